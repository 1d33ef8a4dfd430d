"""Simulated populations under the 60 conditions, and samples of them.

For the experiments beside this one too.
"""

import sys
from functools import lru_cache
from pathlib import Path

import numpy as np

import bnp_models as bnp

sys.path.append(str(Path(__file__).parents[2] / "speed" / "benchmark"))
import conditions  # noqa: E402

PEOPLE = 100_000
ALPHA, ALPHA0 = 0.1, 3.0


@lru_cache(maxsize=1)
def population(seed):
    """Conditions, people, P(feasible), the cell of each of the people and the cells' counts."""
    zeros = conditions.conditions_60()
    people, share = conditions.simulate_mixed_membership(
        zeros, PEOPLE, alpha=ALPHA, alpha0=ALPHA0, seed=seed
    )
    cells = people.cells()
    return zeros, people, share, cells.record_cell, cells.counts


def draw_sample(seed, n):
    """A sample's table, and its true tau_1."""
    _, people, _, cell, counts = population(seed)
    rows = np.random.default_rng((seed, n)).choice(PEOPLE, n, replace=False)
    in_sample = np.bincount(cell[rows], minlength=len(counts))
    truth = int(np.sum((in_sample == 1) & (counts == 1)))
    return bnp.Microdata(people.schema, people.codes[rows]), truth
