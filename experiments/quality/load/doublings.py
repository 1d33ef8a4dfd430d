"""Time and memory of each step of the commands, as what a user can scale is doubled.

    python experiments/quality/load/doublings.py
    python experiments/quality/load/doublings.py --things records conditions --up-to 1

Each size of each thing is a process of its own. A step that compiles is done once before it is
timed. Seconds are of the processor, of all threads. Appends to doublings.csv what is not there
yet, and makes doublings.md. A step is left out of the sizes at which it would take longer than
`MOST_SECONDS`, or more memory than `MOST_GIB`, by its last two.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "accuracy" / "known_truth")]
from results import markdown  # noqa: E402

ROWS = HERE / "doublings.csv"
SIZES = {
    "records": (62_500, 125_000, 250_000, 500_000, 1_000_000),
    "records under structural zeros": (62_500, 125_000, 250_000, 500_000, 1_000_000),
    "variables": (5, 10, 20, 40, 80),
    "levels of one variable": (25, 50, 100, 200, 400),
    "conditions": (125, 250, 500, 1000),
    "synthetic files": (3, 6, 12, 25, 50, 100),
    "attack draws": (50, 100, 200, 400),
    "components": (10, 20, 40, 80),
    "draws": (250, 500, 1000, 2000),
    "households": (1000, 2000, 4000, 8000),
}
WITH_ZEROS = ("conditions", "records under structural zeros")
MOST_SECONDS, MOST_GIB = 100, 6
FLAGGED = 1.25


class Steps:
    """Steps of one process, each measured and appended to the file."""

    def __init__(self, thing: str, size: int, left_out: list[str]):
        self.case, self.left_out = {"thing": thing, "size": size}, left_out

    def __call__(self, step: str, function, compiles: bool = False):
        """What a step returns; None where it is left out."""
        if step in self.left_out:
            return None
        first = time.process_time()
        if compiles:
            function()
        first = time.process_time() - first
        Path("/proc/self/clear_refs").write_text("5")
        before, began = gibibytes("VmRSS"), time.process_time()
        try:
            found = function()
        except Exception as error:  # what a limit says is a result too
            print(self.case, step, f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return None
        row = self.case | {
            "step": step, "seconds": time.process_time() - began, "first": first,
            "gib_before": before, "gib_peak": gibibytes("VmHWM"),
        }  # fmt: skip
        pd.DataFrame([row]).to_csv(
            ROWS, mode="a", header=not ROWS.exists(), index=False, float_format="%.4f"
        )
        return found


def gibibytes(entry: str) -> float:
    """An entry of the status of this process."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[entry].split()[0]) / 2**20


def records_of(n: int, num_levels: list[int], seed: int = 0) -> pd.DataFrame:
    """Labels of records of five latent classes, with few common and many rare levels."""
    rng = np.random.default_rng(seed)
    of_class = rng.integers(5, size=n)
    columns = {}
    for j, size in enumerate(num_levels):
        probability = rng.dirichlet(np.full(size, 0.5) + 2 / (1 + np.arange(size)), size=5)
        limits = probability.cumsum(axis=1)[of_class]
        codes = np.minimum((rng.random(n)[:, None] > limits).sum(axis=1), size - 1)
        columns[f"v{j:02}"] = np.array([f"level {k:03}" for k in range(size)])[codes]
    return pd.DataFrame(columns)


def with_zeros(frame: pd.DataFrame, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Structural zeros, as those by age are, and the records without those that they rule out.

    Each is a level of the first variable with one of another: the pairs that fewest records have.
    """
    tables = [pd.crosstab(frame["v00"], frame[name]).stack() for name in frame.columns[1:]]
    pairs = pd.concat({table.index.names[1]: table for table in tables}).sample(
        frac=1, random_state=0
    )
    rarest = pairs.sort_values(kind="stable").index[:number]
    impossible = np.zeros(len(frame), bool)
    for name, first, other in rarest:
        impossible |= ((frame["v00"] == first) & (frame[name] == other)).to_numpy()
    given = pd.DataFrame([{"v00": first, name: other} for name, first, other in rarest])
    return frame[~impossible], given.reindex(columns=frame.columns)


def levels_of(variables: int, largest: int = 8) -> list[int]:
    """Numbers of levels of variables: 2, 3, 5 and 8 in turn, the first having `largest`."""
    return [largest, *(2 + (j % 4) * (j % 4 + 1) // 2 for j in range(1, variables))]


def one_process(thing: str, size: int, left_out: list[str], folder: Path) -> None:
    """All steps at one size."""
    import jax

    import bnp_models as bnp

    step = Steps(thing, size, left_out)
    if thing == "households":
        return of_households(step, size, folder)
    scale = {
        "records": 4000, "variables": 10, "levels of one variable": 8, "conditions": 0,
        "synthetic files": 3, "attack draws": 0, "components": 20, "draws": 20,
    }  # fmt: skip
    scale["variables"] = 20 if thing in (*WITH_ZEROS, "records") else 10
    scale["levels of one variable"] = 200 if thing in (*WITH_ZEROS, "records") else 8
    scale[thing.removesuffix(" under structural zeros")] = size
    variables, num_files = scale["variables"], scale["synthetic files"]
    frame = records_of(scale["records"], levels_of(variables, scale["levels of one variable"]))
    if thing in WITH_ZEROS:
        frame, given = with_zeros(frame, scale["conditions"] or 100)
        given.to_csv(folder / "zeros.csv", index=False)
    path = folder / "sample.csv"
    frame.to_csv(path, index=False)

    table = step("read a CSV", lambda: bnp.read_microdata(path))
    step("code a data frame", lambda: bnp.Microdata.from_frame(frame))
    step("distinct cells", lambda: bnp.k_anonymity(bnp.Microdata(table.schema, table.codes)))
    step("conditions suggest", lambda: bnp.suggest_conditions(table))
    if thing == "variables" and size > 40:
        return None
    if thing in WITH_ZEROS:
        zeros = step(
            "read conditions", lambda: bnp.read_conditions(folder / "zeros.csv", table.schema)
        )
        step("check records", lambda: zeros.require_feasible(table))
        step("impossible boxes", lambda: zeros.impossible)
        step("feasible boxes, equivalences", lambda: zeros.equivalences)
        small = {"num_chains": 1, "num_warmup": 2, "num_samples": 2, "key": jax.random.key(1)}
        step("4 sweeps of TNPLCM", lambda: bnp.sample(
            bnp.TNPLCM(components=20), table, conditions=zeros, **small
        ), True)  # fmt: skip
        return None
    chains = {"num_chains": 1, "num_warmup": 2, "num_samples": 20, "key": jax.random.key(0)}
    chains["num_samples"] = max(scale["draws"], scale["attack draws"], num_files)
    model = bnp.NPLCM(components=scale["components"])
    run = step(
        "sweeps of NPLCM, one for each draw", lambda: bnp.sample(model, table, **chains), True
    )
    step("12 sweeps of HDP", lambda: bnp.sample(
        bnp.HDPMixedMembership(), table, **chains | {"num_samples": 10}
    ), True)  # fmt: skip
    population = 20 * table.n
    risk = step("population_risk", lambda: bnp.population_risk(run, population), True)
    if risk is not None:
        step("records.csv", lambda: bnp.io.write_records(risk, folder / "records.csv"))
        step("posterior.nc", lambda: bnp.io.write_netcdf(
            bnp.to_inference_data(run, risk, parameters=True), folder / "posterior.nc"
        ))  # fmt: skip
        step("report page", lambda: bnp.report.write_report(folder / "report.html", risk))
    step("predictive checks", lambda: bnp.predictive_checks(run), True)
    step("coarsen, each variable dropped", lambda: bnp.coarsen(run, population), True)
    files = step("synthesize", lambda: bnp.synthesize(run, num_files), True)
    step("synthesize, calibrated", lambda: bnp.synthesize(run, 1, method="calibrated"), True)
    if files is None:
        return None
    step("write files", lambda: [bnp.io.write_frame(f, folder / "made.csv") for f in files])
    tables = step("code files like the original", lambda: [
        bnp.Microdata.from_frame(f, levels=table.schema) for f in files
    ])  # fmt: skip
    step("evaluate", lambda: bnp.evaluate(table, tables), True)
    for order in (1, 2, 3):
        step(
            f"{order}-way proportions",
            lambda order=order: bnp.evaluation.proportions(table, tables, order),
        )
    step(
        "propensity, main effects", lambda: bnp.evaluation.propensity_score(table, tables[0]), True
    )
    step("closest records", lambda: bnp.evaluation.closest_records(table, tables))
    step("disclosure", lambda: bnp.evaluation.disclosure(table, tables, table.schema.variables[:3]))
    step("trees", lambda: bnp.evaluation.tree_propensity(table, tables[0]))
    step("attack", lambda: bnp.attack_risk(
        run, table, files, key=jax.random.key(3), num_bootstrap=50
    ), True)  # fmt: skip
    step("protect", lambda: bnp.protect(run, population, max_risk=0.2, max_suppressed=0.01), True)
    return None


def of_households(step: Steps, size: int, folder: Path) -> None:
    """Steps of households with rules."""
    import jax

    import bnp_models as bnp

    people = bnp.datasets.bay_area_households(distinct=True).sample(1900, seed=0)
    copies = -(-size // 1900)
    frames = [
        people.frame.assign(household=people.frame[people.household].astype(str) + f" {copy}")
        for copy in range(copies)
    ]
    frame = pd.concat(frames, ignore_index=True)
    frame = frame[frame["household"].isin(frame["household"].unique()[:size])]
    frame.drop(columns={people.household} - {"household"}).to_csv(folder / "all.csv", index=False)
    given = step("read households", lambda: bnp.read_households(
        folder / "all.csv", "household", people.household_variables
    ))  # fmt: skip
    rules = bnp.census_relationships(given)
    kept = step("check rules", lambda: given.select(rules.check(given)))
    run = step("6 sweeps of NDPMPM", lambda: bnp.sample(
        bnp.NDPMPM(member_classes="nested"), kept, conditions=rules, key=jax.random.key(0),
        num_chains=1, num_warmup=2, num_samples=4,
    ), True)  # fmt: skip
    if run is None:
        return
    # Parameters of one draw are kept.
    files = step("synthesize", lambda: bnp.synthesize(run, 1), True)
    if files is not None:
        step("evaluate", lambda: bnp.evaluate(kept, files), True)


def forecast(rows: pd.DataFrame, size: int) -> tuple[float, float]:
    """Seconds and GiB of a step at a size, by its last two sizes."""
    rows = rows.sort_values("size")
    last = rows.iloc[-1]
    if len(rows) < 2:
        return 0.0, 0.0
    before, ratio = rows.iloc[-2], size / last["size"]
    by = np.log(last["size"] / before["size"])
    power = max(np.log(max(last["seconds"], 0.01) / max(before["seconds"], 0.01)) / by, 1.0)
    # What compiles is done twice.
    seconds = last["seconds"] * ratio**power * (2 if last["first"] > 0 else 1)
    added = max(last["gib_peak"] - last["gib_before"], 0)
    return seconds, last["gib_before"] + added * ratio


def exponent(size: np.ndarray, value: np.ndarray, least: float) -> float:
    """Slope of the logarithms over the last three doublings; NaN where values are small."""
    size, value = size[-4:], value[-4:]
    if len(size) < 3 or value[-1] < least:
        return np.nan
    return float(np.polyfit(np.log(size), np.log(np.maximum(value, least / 100)), 1)[0])


def table_of(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each step of each thing: its largest size, what it took, and the exponents."""
    found = []
    for (thing, step), part in rows.groupby(["thing", "step"], sort=False):
        part = part.drop_duplicates("size", keep="last").sort_values("size")
        last, size = part.iloc[-1], part["size"].to_numpy(float)
        added = (part["gib_peak"] - part["gib_before"]).to_numpy()
        of_time = exponent(size, part["seconds"].to_numpy(), 0.1)
        of_memory = exponent(size, added, 0.05)
        worst = np.nanmax([of_time, of_memory, 0])
        found.append({
            "scaled": thing, "step": step, "from": int(size[0]), "to": int(size[-1]),
            "seconds": last["seconds"], "GiB at the most": last["gib_peak"],
            "exponent of time": of_time, "exponent of memory": of_memory,
            "": "**>**" if worst > FLAGGED else "",
        })  # fmt: skip
    return pd.DataFrame(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--things", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--up-to", type=int, help="only so many sizes of each")
    parser.add_argument("--minutes", type=float, default=10, help="of each size, at the most")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--left-out", nargs="*", default=[], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        with tempfile.TemporaryDirectory() as folder:
            one_process(args.one[0], int(args.one[1]), args.left_out, Path(folder))
        return
    for thing in args.things:
        for size in SIZES[thing][: args.up_to]:
            rows = pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame({"thing": [], "size": []})
            rows = rows[rows["thing"] == thing]
            if (rows["size"] == size).any():
                continue
            too_much = [
                step for step, part in rows.groupby("step")
                if (np.array(forecast(part, size)) > (MOST_SECONDS, MOST_GIB)).any()
            ] if len(rows) else []  # fmt: skip
            command = [sys.executable, __file__, "--one", thing, str(size), "--left-out", *too_much]
            try:
                subprocess.run(command, check=False, timeout=60 * args.minutes)
            except subprocess.TimeoutExpired:
                print(f"{thing} {size}: stopped after {args.minutes} minutes", file=sys.stderr)
    text = markdown(table_of(pd.read_csv(ROWS)), index=False)
    (HERE / "doublings.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
