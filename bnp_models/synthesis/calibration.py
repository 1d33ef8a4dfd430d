"""Balanced samples of the cells of a model: closer to its distribution than random draws.

Many records simulated from all draws are a pool, whose distinct cells stand for the posterior
predictive distribution. In a balanced sample of the pool, groups of similar cells have nearly the
expected number of records. Before that, the weights of the cells may be calibrated to the one- and
two-way margins of the sample, as survey weights are.
"""

import math
from itertools import combinations

import numpy as np

from bnp_models.data.cells import joint_codes, rake_once
from bnp_models.data.contingency import ContingencyTable

MODEL_SHARE = 0.2
"""Weight of the model's margins in the calibration of cells; the sample's margins have the rest.

A pair of levels that no record of the sample has keeps this share of its probability."""

# Largest number of rounds of calibration; mean difference from the margins at which rounds end.
_MOST_ROUNDS, _CLOSE = 50, 1e-4


def calibrate(
    codes: np.ndarray,
    weight: np.ndarray,
    sample: ContingencyTable,
    share: float = MODEL_SHARE,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """Change the weights of cells so that their margins are nearly those of a sample.

    Parameters
    ----------
    codes : (C, J) integer array
        Level codes of the cells.
    weight : (C,) array
        Their weights, positive.
    sample : ContingencyTable
        The sample, complete, in the same codes.
    share : float
        As `MODEL_SHARE`, between 0 and 1.
    observed : (D,) array, optional
        Share of each cell of the sample. Default: the share of its records.

    Returns
    -------
    weight : (C,) float64 array
        Weights, which sum to one.

    Notes
    -----
    The method is raking (iterative proportional fitting). Among all weights with these two-way
    margins, and therefore these one-way margins, it finds those that are nearest to the old weights
    in relative entropy (Deming & Stephan 1940, doi:10.1214/aoms/1177731829; Deville & Sarndal 1992,
    doi:10.1080/01621459.1992.10475217). Interactions of three and more variables stay those of the
    model.
    """
    num_levels = sample.schema.num_levels
    weight = weight / weight.sum()
    observed = sample.counts / sample.n if observed is None else observed
    pairs = list(combinations(range(codes.shape[1]), min(2, codes.shape[1])))

    def places(codes):
        """Index of each cell in the table of each pair; one pair at a time, to save memory."""
        for pair in pairs:
            yield joint_codes([codes[:, j] for j in pair], [num_levels[j] for j in pair])

    goals = []
    for pair, own, seen in zip(pairs, places(codes), places(sample.codes), strict=True):
        size = math.prod(num_levels[j] for j in pair)
        of_model, of_sample = np.bincount(own, weight, size), np.bincount(seen, observed, size)
        goals.append(share * of_model + (1 - share) * of_sample)
    for _ in range(_MOST_ROUNDS):
        weight, away = rake_once(weight, zip(places(codes), goals, strict=True))
        weight = weight / weight.sum()
        if sum(x.sum() / 2 for x in away) < _CLOSE * len(pairs):
            break
    return weight


def balanced_sample(
    rng: np.random.Generator, codes: np.ndarray, weight: np.ndarray, number: int
) -> np.ndarray:
    """Draw the number of records of each cell, so that it is close to its expected value.

    Parameters
    ----------
    rng
        Generator.
    codes : (C, J) integer array
        Level codes of the cells.
    weight : (C,) array
        Their weights, which sum to one.
    number : int
        Records in all.

    Returns
    -------
    counts : (C,) int64 array
        Records of each cell; the expectation is `number` times its weight.

    Notes
    -----
    The variables, and the levels of each, are put into random order, and the cells are sorted
    lexicographically. They are then cut into as many strata of equal weight as there are records,
    and one record is drawn from each stratum (stratified sampling, Cochran 1977, ISBN
    0-471-16240-X, chapter 5). Systematic sampling, which rounds the count of each cell, would be
    closer to the weights, but repeats more of the sample's unique combinations
    (experiments/synthesis/peers).
    """
    variables = rng.permutation(codes.shape[1])
    keys = [rng.permutation(codes[:, j].max() + 1)[codes[:, j]] for j in variables]
    order = np.lexsort(keys)
    ends = np.cumsum(weight[order])
    point = (np.arange(number) + rng.random(number)) * (ends[-1] / number)
    chosen = np.minimum(np.searchsorted(ends, point, side="right"), len(order) - 1)
    return np.bincount(order[chosen], minlength=len(order))


def shuffled_records(rng: np.random.Generator, codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Records of cells with counts, in random order."""
    return codes[rng.permutation(np.repeat(np.arange(len(codes)), counts))]
