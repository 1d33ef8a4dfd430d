"""Shapes and exponents of the correction for overdispersion that populations of households need.

    python experiments/accuracy/household_risk/laws.py FOLDER --kept CHAINS

FOLDER has simulated_households.csv.gz. The households of Southeast Michigan and of the Bay Area,
one of each source record, are two more populations. For samples of each, the default model is
fitted, and the pair of shape and exponent is found that best explains the counts of the
*population* in the cells of the sample, as in experiments/accuracy/layer_prior for persons. Keeps
the probabilities of the cells in CHAINS; writes laws.csv, and laws.md with the errors of tau_1 and
tau_2 by the prior of records, and by priors that are fitted without the population in question.
"""

import argparse
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.data.compositions import compositions_of
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.variates.rng import Keys
from bnp_models.risk.households import Laws, _units, simulated_unseen
from bnp_models.risk.overdispersion import OF_RECORDS, OverdispersionPosterior

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "known_truth"), str(HERE.parent / "layer_prior")]
from fit import GRID, LOG10_SHAPE, judge, of_population, t_law  # noqa: E402
from results import markdown  # noqa: E402
from run import CHAINS, KEYS, alike, draw, population  # noqa: E402

NUM_DRAWS = 24
# Of each population: size of the samples, and keys of the household and of its members.
CASES = {
    "simulated": (500, *KEYS.values()),
    "Michigan": (
        300,
        (["size", "vehicles"], ["relate", "age", "sex"]),
        (["size", "income"], ["age", "sex", "race"]),
        (["size"], ["age", "sex", "employment"]),
    ),
    "Bay Area": (
        400,
        (["size", "tenure"], ["age", "sex", "marital_status"]),
        (["size", "vehicles"], ["age", "sex"]),
        (["size"], ["age", "sex", "employment", "student"]),
    ),
}
SOURCES = {
    "Michigan": bnp.datasets.southeast_michigan_households,
    "Bay Area": bnp.datasets.bay_area_households,
}


def persons_of(name, folder):
    """One person a row, ages in tens of years, with the size of the household, as text."""
    if name == "simulated":
        return population(folder)
    frame = SOURCES[name](distinct=True).frame.rename(columns={"household": "hid"}).astype(str)
    frame["size"] = frame.groupby("hid")["hid"].transform("size").astype(str)
    frame["age"] = (pd.to_numeric(frame["age"]) // 10 * 10).astype(str)
    return frame


def fitted(frame, n, seed, keys):
    """Counts of the sample's cells, the population's, and probabilities by some draws."""

    def table(chosen, levels=None):
        return bnp.Households.from_frame(
            chosen, "hid", keys[0], ["hid", *keys[0], *keys[1]], levels
        )

    everybody = table(frame)
    sample = table(draw(frame, n, seed), everybody.schema.table)
    run = bnp.sample(bnp.NDPMPM(), sample, key=jax.random.key(seed), progress=False, **CHAINS)
    key_unseen, key_possible = Keys(jax.random.key(seed + 100))
    laws, found = Laws(sample_law(run)), compositions_of(run.table)
    unit = _units(laws, laws, found, everybody.num_persons, everybody.n)[0]
    unseen = np.concatenate([of_draw[0] for of_draw in simulated_unseen(laws, key_unseen)])
    blocks = [
        unit.log_probability(block.draws, block.log_possible)[: block.number]
        for block in laws.blocks(key_possible, 1, False)
    ]
    b = np.exp(np.concatenate(blocks))
    chosen = np.linspace(0, len(b) - 1, NUM_DRAWS).astype(int)
    return {
        "b": b[chosen], "unseen": unseen, "f": found.counts,
        "F": alike(everybody, sample)[found.first], "n": n, "size": everybody.n, "seed": seed,
    }  # fmt: skip


def read(path):
    """A sample that was kept, as `fit.judge` takes it: b among what belongs to a variant."""
    sample = dict(np.load(path))
    return sample | {name: int(sample[name]) for name in ("n", "size", "seed")} | {
        "b": (sample["b"],)
    }  # fmt: skip


def pair_of(sample):
    """Number of the pair of the grid that best explains the population's counts, and its gain.

    The gain is the difference of the log-likelihood from that of the model without correction.
    """
    counts = sample["f"], sample["F"], sample["size"]
    log_likelihood = np.mean([of_population(b, *counts) for b in sample["b"][0]], axis=0)
    best = int(np.argmax(log_likelihood[:-1]))
    return best, log_likelihood[best] - log_likelihood[-1]


def compare(laws, samples):
    """Errors and coverage by prior and power of the likelihood."""
    rows = []
    for path, sample in samples.items():
        layer = OverdispersionPosterior(sample["f"], sample["unseen"])
        log_likelihood = layer.log_likelihood(sample["b"][0])
        others = laws[laws.population != path.stem.rsplit("_", 2)[0]]
        pairs = others.groupby(["population", "keys"])[["log10_shape", "exponent"]].mean()
        priors = {"of records": OF_RECORDS.log_probabilities()}
        priors |= {f"of compositions, scale {x}": t_law(pairs.to_numpy(), x) for x in (1.1, 1.5, 2)}
        for (prior, log_prior), power in itertools.product(priors.items(), (0.5, 1)):
            for one in judge(sample, "b", log_likelihood, log_prior, power):
                error = one["mean"] / one["truth"] - 1
                rows.append({
                    "prior": prior, "power": power, "tau": one["tau"], "error": error,
                    "absolute error": abs(error),
                    "width": (one["q975"] - one["q025"]) / one["truth"],
                    "held": one["q025"] <= one["truth"] <= one["q975"],
                })  # fmt: skip
    rows = pd.DataFrame(rows).groupby(["tau", "prior", "power"], sort=False)
    return rows.mean().round(3).reset_index().sort_values("tau", kind="stable")


def write(folder):
    """laws.csv and laws.md, from the samples that were kept."""
    samples = {path: read(path) for path in sorted(folder.glob("*.npz"))}
    rows = []
    for path, sample in samples.items():
        population_name, number, seed = path.stem.rsplit("_", 2)
        best, gain = pair_of(sample)
        alone = sample["F"][sample["f"] == 1]
        rows.append({
            "population": population_name, "keys": int(number), "seed": int(seed),
            "n": sample["n"], "N": sample["size"], "uniques": len(alone),
            "tau1": int((alone == 1).sum()), "log10_shape": round(LOG10_SHAPE[best], 2),
            "exponent": GRID[1][best], "gain": round(gain, 1),
        })  # fmt: skip
    laws = pd.DataFrame(rows)
    laws.to_csv(HERE / "laws.csv", index=False)
    pairs = laws.groupby(["population", "keys"])[["log10_shape", "exponent"]].mean()
    parts = [
        markdown(laws, index=False),
        f"Mean and standard deviation over sets of keys: log10 of the shape "
        f"{pairs.log10_shape.mean():.2f}, {pairs.log10_shape.std():.2f}; exponent "
        f"{pairs.exponent.mean():.2f}, {pairs.exponent.std():.2f}.",
        markdown(compare(laws, samples), index=False),
    ]
    (HERE / "laws.md").write_text("\n\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    args.kept.mkdir(exist_ok=True, parents=True)
    for seed in range(args.seeds):
        for name, (n, *sets) in CASES.items():
            for number, keys in enumerate(sets):
                path = args.kept / f"{name.replace(' ', '_')}_{number}_{seed}.npz"
                if not path.exists():
                    np.savez(path, **fitted(persons_of(name, args.folder), n, seed, keys))
                    print(path.name, flush=True)
    write(args.kept)


if __name__ == "__main__":
    main()
