"""Unique combinations of the original that recur in synthetic files."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.contingency import common_cells
from bnp_models.data.frames import Tabular
from bnp_models.evaluation.files import coded_files


class Replicated(NamedTuple):
    """Combinations that one record of the original has, and that synthetic files have too."""

    uniques: int
    """Records that are alone in their cell in the original."""
    found: tuple[int, ...]
    """For each file: the number of these cells that have a record in it."""
    found_unique: tuple[int, ...]
    """For each file: the number of these cells that have exactly one record in it."""
    in_any: int
    """How many have a record in some file."""
    in_all: int
    """How many have a record in every file."""


def replicated_uniques(original: Tabular, synthetic: Tabular | Sequence[Tabular]) -> Replicated:
    """Count the uniques of the original whose combination occurs in synthetic files.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.

    Notes
    -----
    A combination may occur again by chance, and more of them do if the model is good. This is not
    the probability that an intruder learns anything.

    Examples
    --------
    >>> found = bnp.evaluation.replicated_uniques(table, files)
    >>> found.uniques == len(table.tabulated.unique_cells)
    True
    """
    original, synthetic, _ = coded_files(
        "replicated_uniques(original, synthetic)", original, synthetic
    )
    # One file at a time: the cells of all together become more with each.
    found, found_unique = [], []
    files_with = np.zeros(int((common_cells([original])[1] == 1).sum()), int)
    for file in synthetic:
        _, (own, count) = common_cells([original, file])
        there = count[own == 1]
        found.append(int((there > 0).sum()))
        found_unique.append(int((there == 1).sum()))
        files_with += there > 0
    return Replicated(
        len(files_with),
        tuple(found),
        tuple(found_unique),
        int((files_with > 0).sum()),
        int((files_with == len(synthetic)).sum()),
    )
