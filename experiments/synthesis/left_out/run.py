"""What synthetic files tell about persons because they are in the sample, by kind of file.

python experiments/synthesis/left_out/run.py
python experiments/synthesis/left_out/run.py --null 200
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import jax
import numpy as np

import bnp_models as bnp
from bnp_models.evaluation.attack.gains import quantile
from bnp_models.evaluation.attack.left_out import NUM_CHANCE

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "peers"))
from methods import trees as sequential_trees  # noqa: E402

FILES, COMPONENTS = 5, 50
CHAINS = {"num_chains": 2, "num_warmup": 1000, "num_samples": 100, "thin": 5}
KEPT = ("age", "sex", "race")
COLUMNS = (
    "n", "seed", "files", "intruder", "records", "kept", "left_out", "right", "gain",
    "standard_error", "lower", "upper",
)  # fmt: skip


def of_chains(model, method="predictive", keep=()):
    """Maker of files of a model by a method."""

    def make(table, key, cache):
        if model not in cache:
            cache[model] = bnp.sample(MODELS[model], as_sample(table, model), key=key, **CHAINS)
        return bnp.synthesize(cache[model], FILES, method=method, keep=keep)

    return make


def as_sample(table, model):
    """The sample of a model: with design weights for one of them."""
    if model != "weighted":
        return table
    old = table.codes[:, table.schema.variables.index("age")] % 2 == 1
    return bnp.weighted_microdata(table, np.where(old, 3.0, 1.0))


MODELS = {
    "nplcm": bnp.NPLCM(COMPONENTS), "weighted": bnp.NPLCM(COMPONENTS),
    "hdp": bnp.HDPMixedMembership(),
}  # fmt: skip


def copies(table, key, cache):
    """The sample itself."""
    return [table]


def bootstrap(table, key, cache):
    """Records of the sample, drawn with replacement."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return [
        bnp.Microdata(table.schema, table.codes[rng.integers(table.n, size=table.n)])
        for _ in range(FILES)
    ]


def trees(table, key, cache):
    """Sequential classification trees, grown as synthpop's default grows them."""
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    return [bnp.Microdata(table.schema, x) for x in sequential_trees(table, None, None, seed)]


MAKERS = {
    "a copy of the sample": copies,
    "bootstrap samples": bootstrap,
    "sequential trees": trees,
    "nplcm, predictive": of_chains("nplcm"),
    "nplcm, balanced": of_chains("nplcm", "balanced"),
    "nplcm, calibrated": of_chains("nplcm", "calibrated"),
    f"nplcm, --keep {','.join(KEPT)}": of_chains("nplcm", keep=KEPT),
    "nplcm with weights, calibrated": of_chains("weighted", "calibrated"),
    # Files of the population, which know nothing of the sample.
    "fresh samples": None,
    "hdp, calibrated": of_chains("hdp", "calibrated"),
}


def rows_of(risk, **more):
    """Rows of the table of gains."""
    return [more | row for row in risk.gains().to_dict("records")]


def compare(population, n, seed, share, done):
    """Gains of every kind of files of one sample, one kind after the other, unless it is done."""
    rng = np.random.default_rng([n, seed])
    chosen = rng.permutation(population.n)
    table = bnp.Microdata(population.schema, population.codes[chosen[:n]])
    left_out = bnp.evaluation.choose_left_out(table, jax.random.key(seed), share)
    some = bnp.Microdata(table.schema, table.codes[~left_out])
    whole, part = {}, {}
    for name, make in MAKERS.items():
        if (str(n), str(seed), name) in done:
            continue
        began = time.perf_counter()
        if make is None:
            released, without = (fresh(population, chosen[n:], k, rng) for k in (n, some.n))
        else:
            keys = jax.random.key(100 + seed), jax.random.key(200 + seed)
            released, without = make(table, keys[0], whole), make(some, keys[1], part)
        made = time.perf_counter() - began
        risk = bnp.evaluation.left_out_risk(
            as_sample(table, "weighted") if "weights" in name else table,
            left_out, without, released=released, key=jax.random.key(300 + seed),
        )  # fmt: skip
        seconds = time.perf_counter() - began
        print(f"n={n} seed={seed} {name}: made in {made:.0f} s, attacked in {seconds - made:.0f} s")
        print(risk.in_words(), flush=True)
        yield from rows_of(risk, n=n, seed=seed, files=name)


def fresh(population, rows, size, rng):
    """Other samples of the population."""
    return [
        bnp.Microdata(population.schema, population.codes[rng.choice(rows, size, replace=False)])
        for _ in range(FILES)
    ]


def null(population, number, n=500):
    """Share of the intervals that contain zero for files that know nothing of the sample."""
    inside, scores = [], []
    for seed in range(number):
        rng = np.random.default_rng([7, seed])
        chosen = rng.permutation(population.n)
        table = bnp.Microdata(population.schema, population.codes[chosen[:n]])
        left_out = bnp.evaluation.choose_left_out(table, jax.random.key(seed))
        released, without = (
            fresh(population, chosen[n:], k, rng) for k in (n, int((~left_out).sum()))
        )
        risk = bnp.evaluation.left_out_risk(
            table, left_out, without, released=released, key=jax.random.key(seed)
        )
        gains = risk.gains()
        inside.append((gains["lower"] <= 0) & (gains["upper"] >= 0))
        scores.append(gains["gain"] / gains["standard_error"])
    print(f"n = {n}, {number} samples")
    for k, row in gains.iterrows():
        z = np.array([one[k] for one in scores])
        covered = np.mean([one[k] for one in inside])
        print(row["intruder"], row["records"], f"intervals with zero {covered:.3f},",
              f"z-scores: mean {z.mean():.2f}, sd {z.std(ddof=1):.2f}", flush=True)  # fmt: skip


def tabulate(rows):
    """Markdown table of the mean gains over seeds, with standard errors of these means."""
    lines = [
        "| n | files | intruder | guessed right | gain | 95% interval | unique persons | gain | "
        "95% interval |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = {}
    for row in rows:
        key = int(row["n"]), row["files"], row["intruder"]
        groups.setdefault(key, {}).setdefault(row["records"], []).append(row)
    for (n, files, intruder), by_records in groups.items():
        cells = [f"{n:,}", files, intruder]
        for records in ("all", "unique"):
            some = by_records[records]
            gain = np.mean([float(row["gain"]) for row in some])
            error = np.sqrt(sum(float(row["standard_error"]) ** 2 for row in some)) / len(some)
            right = np.mean([float(row["right"]) for row in some])
            width = quantile(NUM_CHANCE * len(some)) * error
            ends = f"{100 * (gain - width):.1f} to {100 * (gain + width):.1f}"
            cells += [f"{100 * right:.1f}%", f"{100 * gain:.1f}", ends]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def read(path):
    """Rows of a table."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.2, help="of the records, left out")
    parser.add_argument("--null", type=int, help="samples whose files know nothing of them")
    options = parser.parse_args()
    population = bnp.Microdata.from_frame(bnp.datasets.census_income().frame)
    if options.null:
        null(population, options.null)
        return
    results = HERE / "results.csv"
    if not results.exists():
        results.write_text(",".join(COLUMNS) + "\n")
    done = {(row["n"], row["seed"], row["files"]) for row in read(results)}
    with open(results, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        for n in options.rows:
            for seed in range(options.seeds):
                for row in compare(population, n, seed, options.share, done):
                    writer.writerow(row)
                    file.flush()
    (HERE / "table.md").write_text(tabulate(read(results)))


if __name__ == "__main__":
    main()
