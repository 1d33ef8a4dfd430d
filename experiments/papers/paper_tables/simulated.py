"""The simulated population of section 5.1, and tau_1 by sampling the population.

The paper prints the population's size, 712,174, and that its variables have 2 to 11 levels. The
size is that of the file without structural zeros of section 5.2: eight variables and 39,600 cells.
Parameters are not printed. Here K extreme profiles have weights g_0 ~ Dir(1) and level
probabilities from their uniform prior, and all records have one alpha.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

import bnp_models as bnp
from bnp_models.synthesis.synthesize import simulate_samples

sys.path.append(str(Path(__file__).parents[2] / "accuracy" / "known_truth"))
from populations import mixed_membership  # noqa: E402

SIZE = 712_174
LEVELS = {
    "age": 5, "sex": 2, "marital": 6, "race": 5, "education": 11, "employment": 3, "disability": 2,
    "veteran": 2,
}  # fmt: skip
NUM_PROFILES, ALPHA, SEED = 10, 0.5, 0
# Draws at which the rest of the population is simulated.
NUM_SAMPLED = 100


def population() -> bnp.datasets.Population:
    """The population; the same at each call."""
    rng = np.random.default_rng(SEED)
    shape = ALPHA * rng.dirichlet(np.ones(NUM_PROFILES))
    levels = {name: [str(i) for i in range(number)] for name, number in LEVELS.items()}
    return mixed_membership(rng, levels, shape, SIZE)


def sampled_tau1(run) -> tuple[np.ndarray, float]:
    """tau_1 by the paper's first way, at `NUM_SAMPLED` draws, and its seconds.

    At each draw, the persons who are not in the sample are simulated, and the sample uniques that
    none of them equals are counted.
    """
    began = time.perf_counter()
    shape = run.table.schema.num_levels
    cells = run.table.cells()
    unique = np.ravel_multi_index(cells.codes[cells.counts == 1].T, shape)
    key = jax.random.fold_in(run.key, SIZE)
    rest = simulate_samples(run, NUM_SAMPLED, key, SIZE - run.table.n)
    found = (np.isin(unique, np.ravel_multi_index(made.codes.T, shape)) for made in rest)
    tau1 = np.array([len(unique) - same.sum() for same in found])
    return tau1, time.perf_counter() - began
