"""Problems of tests of truncated classes: a region and its cells, grids, the density of sticks."""

import numpy as np
from latent import feasible_cells, structural_zeros
from scipy import stats

from bnp_models.kernels.boxes.region import Region

NUM_LEVELS = (3, 2, 4, 2, 3, 2)
# Variables 0, 2, 4 in one group, 1 and 5 in another, 3 in no condition.
CONDITIONS = [
    [0, -1, 3, -1, -1, -1], [1, -1, -1, -1, 1, -1], [-1, -1, 2, -1, 0, -1], [-1, 1, -1, -1, -1, 0],
]  # fmt: skip
CONSTRAINED = (0, 2, 4, 1, 5)
FIRST = np.cumsum((0, *NUM_LEVELS[:-1]))
VARIABLE = np.repeat(np.arange(6), NUM_LEVELS)


def make_regions():
    groups = structural_zeros(CONDITIONS, NUM_LEVELS).groups
    assert len(groups) == 2
    return [
        Region.of_boxes([getattr(group, name).sets for group in groups], NUM_LEVELS)
        for name in ("feasible", "impossible")
    ]


def make_levels(seed, num_classes=3):
    """Level probabilities of every class, with some of about 1e-12."""
    rng = np.random.default_rng(seed)
    levels = [rng.dirichlet(np.full(size, 0.3), num_classes).T + 1e-12 for size in NUM_LEVELS]
    return np.log(np.concatenate([x / x.sum(axis=0) for x in levels]))


def cell_probabilities(log_lambda):
    cells = feasible_cells(CONDITIONS, NUM_LEVELS)
    return cells, np.exp(log_lambda[cells + FIRST].sum(axis=1))


def from_grid(rng, log_density, axes, num):
    """`num` draws from a density on a grid of midpoints, uniform within its cells."""
    weight = np.exp(log_density - log_density.max()).ravel()
    which = rng.choice(weight.size, num, p=weight / weight.sum())
    index = np.unravel_index(which, log_density.shape)
    return np.stack([
        axis[i] + (rng.random(num) - 0.5) * (axis[1] - axis[0])
        for axis, i in zip(axes, index, strict=True)
    ])  # fmt: skip


def log_density_of_sticks(pi, alpha):
    """The density of pi when its sticks are Beta(1, alpha), the last one 1."""
    left = 1 - np.concatenate([[0], np.cumsum(pi)[:-2]])
    v = pi[:-1] / left
    return np.sum(stats.beta(1, alpha).logpdf(v) - np.log(left))
