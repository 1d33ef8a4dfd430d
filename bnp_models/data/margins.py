"""Margins of cells: the cells of some variables' table, and weights raked to margins."""

from collections.abc import Iterable, Sequence

import numpy as np


def joint_codes(columns: Sequence[np.ndarray], num_levels: Sequence[int]) -> np.ndarray:
    """Code rows by their cell of the table of some variables.

    Parameters
    ----------
    columns : sequence of (n,) integer arrays
        Level codes of each variable of the table.
    num_levels : sequence of int
        Numbers of their levels, whose product is below 2**63.
    """
    joint = np.asarray(columns[0], np.int64)
    for column, size in zip(columns[1:], num_levels[1:], strict=True):
        joint = joint * size + column
    return joint


def rake_once(
    weight: np.ndarray, margins: Iterable[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Change the weights of cells by one round of iterative proportional fitting.

    Parameters
    ----------
    weight : (C,) array
        Weights.
    margins : iterable of ((C,) integer array, array)
        For each table, where each cell is in it, and the margin that is wanted.

    Returns
    -------
    weight : (C,) float64 array
        New weights, which have the last of the margins exactly.
    away : list of arrays
        Absolute differences from each margin before the weights were adjusted to it.
    """
    away = []
    for where, goal in margins:
        now = np.bincount(where, weight, len(goal))
        away.append(np.abs(now - goal))
        weight = weight * np.divide(goal, now, out=np.zeros_like(goal), where=now > 0)[where]
    return weight, away
