"""Shapes and exponents of the correction for overdispersion that populations of households need.

    python experiments/accuracy/household_risk/laws.py FOLDER --kept CHAINS

FOLDER has simulated_households.csv.gz. The households of Southeast Michigan and of the Bay Area, one
of each source record, are two more populations. For samples of each, the default model is fitted,
and the pair of shape and exponent is found that best explains the counts of the *population* in the
cells of the sample, as in experiments/accuracy/layer_prior for persons. Keeps the probabilities of
the cells in CHAINS; writes laws.csv, and laws.md with the errors of tau_1 and tau_2 by priors that
are fitted without the population in question.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.data.compositions import composition_rows, compositions_of
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.variates.rng import Keys
from bnp_models.risk.households import Laws, _units, simulated_unseen

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "known_truth"), str(HERE.parent / "layer_prior")]
from fit import GRID, LOG10_SHAPE, LAYER_DRAWS, draw_taus, of_population, t_law  # noqa: E402
from results import markdown  # noqa: E402
from run import CHAINS, KEYS, draw, population  # noqa: E402

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
        "F": counts_in(everybody, sample, found), "n": n, "size": everybody.n, "seed": seed,
    }  # fmt: skip


def counts_in(everybody, sample, found):
    """Households of the population in each cell of the sample."""
    rows, counts = np.unique(composition_rows(everybody), axis=0, return_counts=True)
    of_row = {row.tobytes(): int(count) for row, count in zip(rows, counts, strict=True)}
    own = composition_rows(sample)
    own = np.pad(own, ((0, 0), (0, rows.shape[1] - own.shape[1])), constant_values=-2)
    in_cell = np.zeros(len(found.counts), int)
    in_cell[found.of_household] = [of_row[row.tobytes()] for row in own]
    return in_cell


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


if __name__ == "__main__":
    main()
