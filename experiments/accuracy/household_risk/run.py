"""Risk of the households of samples of a known population, beside two formulas.

    python experiments/accuracy/household_risk/run.py FOLDER

FOLDER has simulated_households.csv.gz, persons with hid, region, age, gender and ecoStat. Of the
households that were copied from one household of a survey, one is kept (`without_copies`). Writes
results.csv a row at a time, and table.md; another call goes on where one was stopped. With `--runs`
the chains are kept in a folder, and another call evaluates the risk of kept chains again.
"""

import argparse
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.data.compositions import composition_rows, compositions_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

KEYS = {
    "region, size; sex, age, activity": (["region", "size"], ["gender", "age", "ecoStat"]),
    "size; sex, age": (["size"], ["gender", "age"]),
}
CHAINS = {"num_chains": 2, "num_warmup": 500, "num_samples": 1000}


def read(folder: Path) -> pd.DataFrame:
    """One person a row, with the size of the household, as text."""
    frame = pd.read_csv(folder / "simulated_households.csv.gz", dtype=str, keep_default_na=False)
    frame["size"] = frame.groupby("hid")["hid"].transform("size").astype(str)
    return frame


def patterns(frame: pd.DataFrame) -> pd.Series:
    """Region, and ages in years and sexes of all members, of each household."""
    persons = frame.sort_values(["hid", "age", "gender"])
    of_members = (persons["age"] + persons["gender"]).groupby(persons["hid"]).agg(" ".join)
    return frame.groupby("hid")["region"].first() + " " + of_members


def without_copies(frame: pd.DataFrame) -> pd.DataFrame:
    """One household of each pattern, and the same share of the households of one person.

    The population was made by copying the regions, ages and sexes of whole households of a survey,
    about five times each. Persons who live alone may have the same pattern without being copies.
    """
    pattern = patterns(frame)
    alone = frame.groupby("hid")["size"].first() == "1"
    kept = ~pattern.duplicated() & ~alone
    drawn = np.random.default_rng(0).random(len(kept)) < kept.sum() / (~alone).sum()
    chosen = kept.index[kept | (alone & drawn)]
    return frame[frame["hid"].isin(chosen)].reset_index(drop=True)


def population(folder: Path, copies: bool = False) -> pd.DataFrame:
    """One person a row, ages in tens of years."""
    frame = read(folder)
    frame = frame if copies else without_copies(frame)
    age = pd.to_numeric(frame["age"], errors="coerce")
    tens = (age // 10 * 10).astype("Int64").astype(str)
    frame["age"] = tens.where(age.notna(), "unknown")
    return frame


def households(frame: pd.DataFrame, keys: str, levels=None) -> bnp.Households:
    """The households with these keys."""
    shared, own = KEYS[keys]
    return bnp.Households.from_frame(frame, "hid", shared, ["hid", *shared, *own], levels)


def draw(frame: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """The persons of a simple random sample of n households."""
    chosen = np.random.default_rng(seed).permutation(frame["hid"].unique())[:n]
    return frame[frame["hid"].isin(chosen)].reset_index(drop=True)


def alike(everybody: bnp.Households, sample: bnp.Households) -> np.ndarray:
    """Households of the population that are like each household of the sample, (n,)."""
    rows, counts = np.unique(composition_rows(everybody), axis=0, return_counts=True)
    of_row = {row.tobytes(): int(n) for row, n in zip(rows, counts, strict=True)}
    of_sample = composition_rows(sample)
    # The largest household of the sample may be smaller than that of the population.
    missing = rows.shape[1] - of_sample.shape[1]
    of_sample = np.pad(of_sample, ((0, 0), (0, missing)), constant_values=-2)
    return np.array([of_row[row.tobytes()] for row in of_sample])


def truth(everybody: bnp.Households, sample: bnp.Households) -> dict:
    """Uniques of the sample, and how many households of the population are like each of them."""
    found = compositions_of(sample)
    of_unique = alike(everybody, sample)[found.first[found.counts == 1]]
    return {
        "sample_uniques": len(of_unique), "tau1_true": int((of_unique == 1).sum()),
        "tau2_true": float((1 / of_unique).sum()),
    }  # fmt: skip


def chains(case: dict, table: bnp.Households, kept: Path | None) -> bnp.Run:
    """The run of a case: the one that was kept, or a new one."""
    path = kept and kept / f"{list(KEYS).index(case['keys'])}_{case['n']}_{case['seed']}"
    if path and path.exists():
        return bnp.load_run(path)
    model = bnp.NDPMPM(member_classes=case["member_classes"])
    run = bnp.sample(model, table, key=jax.random.key(case["seed"]), **CHAINS)
    if path:
        run.save(path)
    return run


def measure(case: dict, frame: pd.DataFrame, kept: Path | None = None) -> dict:
    """A row of results."""
    everybody = households(frame, case["keys"])
    sample = draw(frame, case["n"], case["seed"])
    table = households(sample, case["keys"], everybody.schema.table)
    run = chains(case, table, kept)
    risk = bnp.household_risk(run, everybody.n)
    found = truth(everybody, table)
    row = case | found
    for name in ("tau1", "tau2"):
        draws, alone = vars(risk.households)[name], vars(risk.households.overdispersion)[name]
        low, high = np.quantile(draws, [0.025, 0.975])
        row |= {
            name: draws.mean(), f"{name}_low": low, f"{name}_high": high,
            f"{name}_held": int(low <= found[f"{name}_true"] <= high),
            f"{name}_model_alone": alone.mean(),
        }  # fmt: skip
    of_persons = risk.records().sort_values("row")["r1"].to_numpy()
    log_rest = np.log1p(-np.minimum(of_persons, 1 - 1e-12))
    figures = bnp.diagnose(run, risk).figures
    return row | {
        "hierarchical_r1": -np.expm1(np.bincount(risk.table.of_household, log_rest)).sum(),
        "hierarchical_r2": risk.hierarchical.sum(),
        "naive": found["sample_uniques"] * table.n / everybody.n,
        "rhat_tau1": figures["tau1"]["rhat"],
        "rhat_log_likelihood": figures["log_likelihood"]["rhat"],
        "seconds": sum(run.seconds.values()),
    }


def make_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the samples of each case, and how many intervals hold the truth."""
    of_case = rows.groupby(["keys", "n", "member_classes"], sort=False)
    table = of_case.agg(
        samples=("seed", "size"), uniques=("sample_uniques", "mean"),
        tau1_true=("tau1_true", "mean"), tau1=("tau1", "mean"), tau1_held=("tau1_held", "sum"),
        tau1_alone=("tau1_model_alone", "mean"), tau2_true=("tau2_true", "mean"),
        tau2=("tau2", "mean"), tau2_held=("tau2_held", "sum"),
        tau2_alone=("tau2_model_alone", "mean"),
        hierarchical_r1=("hierarchical_r1", "mean"), hierarchical_r2=("hierarchical_r2", "mean"),
        naive=("naive", "mean"), rhat_tau1=("rhat_tau1", "max"), seconds=("seconds", "mean"),
    )  # fmt: skip
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--member-classes", nargs="+", default=["shared"])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--copies", action="store_true", help="keep all copies")
    parser.add_argument("--runs", type=Path, help="folder of the chains")
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    args = parser.parse_args()
    frame = population(args.folder, args.copies)
    results = Results(args.out, ("keys", "n", "seed", "member_classes"), args.minutes)
    cases = (
        {"keys": keys, "n": n, "seed": seed, "member_classes": classes}
        for n, seed, keys, classes in itertools.product(
            args.sizes, range(args.seeds), KEYS, args.member_classes
        )
    )
    for case in results.missing(cases):
        results.append(measure(case, frame, args.runs))
        print(*case.values(), flush=True)
    table = make_table(pd.read_csv(args.out))
    (args.out.with_name("table.md")).write_text(markdown(table) + "\n")


if __name__ == "__main__":
    main()
