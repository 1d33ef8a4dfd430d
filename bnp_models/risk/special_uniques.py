"""SUDA scores: how special the uniqueness of each record of a sample is."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.risk.rare_combinations import Rows, check_combinations, minimal_rare

DIS_FRACTION = 0.01
"""Sampling fraction that the DIS-SUDA scores take for granted, as sdcMicro does."""


@dataclass(frozen=True, eq=False)
@displayed
class Suda:
    """SUDA scores of the records of a sample.

    Examples
    --------
    >>> scores = bnp.risk.suda(table)
    >>> scores.frame().columns.tolist()
    ['msus', 'smallest', 'suda', 'dis_suda']
    """

    number: np.ndarray
    """(n,) minimal sample uniques of each record."""
    smallest: np.ndarray
    """(n,) variables of the smallest of these; 0 where there is none."""
    score: np.ndarray
    """(n,) SUDA scores; 0 for records that are not unique in the sample."""
    dis: np.ndarray
    """(n,) DIS-SUDA scores."""
    contributions: dict[str, float]
    """By variable, the share of the sum of all scores that comes from minimal sample uniques with
    this variable. The shares add up to more than one, because these have several variables."""

    def frame(self) -> pd.DataFrame:
        """One row for each record, in the order of the sample."""
        return pd.DataFrame(
            {
                "msus": self.number, "smallest": self.smallest, "suda": self.score,
                "dis_suda": self.dis,
            }
        )  # fmt: skip

    def _shown(self) -> Shown:
        """What is shown of it."""
        lines = {
            "records with a score": int((self.score > 0).sum()),
            "minimal sample uniques": int(self.number.sum()),
        }
        return Shown(f"Suda: {counted(len(self.score), 'record')}", lines, self.frame())


def suda(
    table: Microdata | pd.DataFrame,
    max_size: int | None = None,
    *,
    dis_fraction: float = DIS_FRACTION,
) -> Suda:
    """Score the records of a sample by their minimal sample uniques.

    Parameters
    ----------
    table
        Records, or a data frame of them. A missing value is in no minimal sample unique.
    max_size
        M, the most variables that a minimal sample unique has. Default: all J of them.
    dis_fraction
        Sampling fraction f of the DIS-SUDA scores, between 0 and 1.

    Raises
    ------
    ValueError
        If `max_size` or `dis_fraction` is out of range, or the variables have more than 65,536
        combinations of up to `max_size`.

    Notes
    -----
    A minimal sample unique (MSU) of a record is a set of its values that no other record has
    together, while every smaller part of the set is shared with another record. An MSU of k
    variables scores prod_{i=k}^{min(M, J-1)} (J - i), which is (J - k)! where M is not limited, and
    a record the sum over its MSUs (Elliot, Manning, Mayes, Gurd & Bane 2005). This is `suda2` of
    sdcMicro with ``original_scores = TRUE``. In the DIS-SUDA scores, let U be the records that are
    unique, P those that are in pairs, d = U f / (U f + P (1 - f)), and q = 1 + (8 - J) / 20. A
    record of score s > 0 has

        1 / (1 + (U / d - U) / (s^q sum of s^-q over all records with a score))

    as in sdcMicro: the chance that a match with a unique record is correct, of the whole file (Data
    Intrusion Simulation, Skinner & Elliot 2002, doi:10.1111/1467-9868.00365), shared out by score.

    References
    ----------
    Manning, A. M., Haglin, D. J. & Keane, J. A. (2008), doi:10.1007/s10618-007-0078-6.

    Examples
    --------
    >>> people = pd.DataFrame({"a": [2, 1, 1], "b": [0, 3, 0], "c": [0, 6, 0]})
    >>> bnp.risk.suda(people).score.tolist()
    [2.0, 4.0, 2.0]
    """
    records = as_records(table, "suda(table)", (Microdata,))
    check_kind(Microdata, "suda(table)", table=records)
    number = records.num_variables
    largest = number if max_size is None else max_size
    if not 1 <= largest <= number:
        raise ValueError(f"max_size must be from 1 to {number}, the variables, not {max_size}")
    if not 0 < dis_fraction < 1:
        raise ValueError(f"dis_fraction must be between 0 and 1, not {dis_fraction}")
    check_combinations(number, largest, "lower max_size, or choose fewer variables")
    cells = records.tabulated
    rows = Rows(cells.codes, cells.counts, records.schema.num_levels)
    found, smallest, score = np.zeros((3, len(cells.codes)))
    by_variable = np.zeros(number)
    for columns, unique in minimal_rare(rows, 2, largest):
        each = math.prod(number - i for i in range(len(columns), min(largest, number - 1) + 1))
        found[unique] += 1
        smallest[unique] = np.where(smallest[unique] == 0, len(columns), smallest[unique])
        score[unique] += each
        by_variable[list(columns)] += each * len(unique)
    dis = _dis_scores(score, cells.counts, number, dis_fraction)
    # Cells of one record are those of the records with a score.
    of_cells = {"number": found.astype(int), "smallest": smallest.astype(int), "score": score,
                "dis": dis}  # fmt: skip
    of_records = {name: np.zeros(records.n, values.dtype) for name, values in of_cells.items()}
    for name, values in of_cells.items():
        of_records[name][cells.first_rows[score > 0]] = values[score > 0]
    shares = by_variable / max(score.sum(), 1)
    contributions = dict(zip(records.schema.variables, shares.tolist(), strict=True))
    return Suda(**of_records, contributions=contributions)


def _dis_scores(
    score: np.ndarray, counts: np.ndarray, num_variables: int, fraction: float
) -> np.ndarray:
    """DIS-SUDA scores of cells (D,), given their scores and counts."""
    scored = score > 0
    power = 1 + (8 - num_variables) / 20
    weight = score[scored] ** power
    # U / d - U = P (1 - f) / f, in the letters of `suda`.
    others = 2 * (counts == 2).sum() * (1 - fraction) / fraction
    dis = np.zeros_like(score)
    dis[scored] = 1 / (1 + others / (weight * np.sum(1 / weight)))
    return dis
