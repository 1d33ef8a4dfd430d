"""Strata of a sample, found from the sampling fractions of its cells."""

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

# Standard deviation of the logarithm of the fractions below which all cells are in one stratum.
_ALIKE = 0.05

# Part of the variance of that logarithm that levels must explain to define strata.
_EXPLAINED = 0.9


def find_strata(
    codes: NDArray[np.int32], phat: NDArray[np.float64], num_levels: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Find the key variables whose levels explain the sampling fractions of the non-empty cells.

    Parameters
    ----------
    codes
        (D, J) level codes of the cells.
    phat
        (D,) sampling fraction of each cell.
    num_levels
        (J,) numbers of levels.

    Returns
    -------
    columns
        One or two columns of `codes` whose levels explain 90% or more of the variance of log phat,
        adjusted for the number of levels; one column if one suffices. Empty if the fractions are
        nearly equal. None if no columns explain them, or if there are fewer than two cells for
        each combination of their levels on average.
    """
    log_phat = np.log(phat)
    if np.std(log_phat) < _ALIKE:
        return ()
    for number in (1, 2):
        explained = {
            columns: _explained(_combined(codes, num_levels, columns), log_phat)
            for columns in combinations(range(codes.shape[1]), number)
        }
        best = max(explained, key=lambda columns: explained[columns], default=None)
        if best is not None and explained[best] >= _EXPLAINED:
            return best
    return None


def _combined(codes, num_levels, columns):
    """One number (D,) for the combination of the levels of these columns; 0 without columns."""
    number = np.zeros(len(codes), np.int64)
    for column in columns:
        number = number * num_levels[column] + codes[:, column]
    return number


def _explained(group: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """Part of the variance that the groups explain, by unbiased estimates."""
    _, group, size = np.unique(group, return_inverse=True, return_counts=True)
    if len(values) < 2 * len(size):
        return 0.0
    means = np.bincount(group, values) / size
    within = np.sum((values - means[group]) ** 2) / (len(values) - len(size))
    return 1 - within / np.var(values, ddof=1)


def empty_cells(
    codes: NDArray[np.int32],
    f: NDArray[np.float64],
    weight: NDArray[np.float64],
    num_levels: tuple[int, ...],
    columns: tuple[int, ...],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sampling fraction of the empty cells of each stratum, and their share of all empty cells.

    Parameters
    ----------
    codes, f, weight
        Level codes (D, J) of the non-empty cells, their records and the sums of their weights.
    num_levels
        (J,) numbers of levels.
    columns
        Variables whose combinations of levels are the strata; without any, there is one stratum.

    Returns
    -------
    phat, share
        (S,) each, of the strata that have empty cells. The fraction of a stratum without records is
        that of the whole sample. The shares add up to 1 if there are empty cells.
    """
    stratum = _combined(codes, num_levels, columns)
    strata = math.prod(num_levels[column] for column in columns)
    records, weights, filled = (
        np.bincount(stratum, x, minlength=strata) for x in (f, weight, np.ones(len(f)))
    )
    pooled = f.sum() / weight.sum()
    phat = np.divide(records, weights, out=np.full(strata, pooled), where=weights > 0)
    empty = float(math.prod(num_levels) // strata) - filled
    kept = empty > 0
    if not kept.any():
        return np.array([pooled]), np.ones(1)
    return phat[kept], empty[kept] / empty.sum()
