"""Shares of households that statements hold for, in the original and in synthetic files."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.households import Households
from bnp_models.evaluation.combining import Combined, combined, interval_overlap
from bnp_models.evaluation.files import check_files
from bnp_models.evaluation.proportions import clipped
from bnp_models.rules.rules import Rules


class Shares(NamedTuple):
    """Shares of households, R of them.

    Attributes
    ----------
    names : tuple of str
    original, synthetic, overlap : (R,) arrays
    interval, original_interval : pairs of (R,) arrays
    population : (R,) array or None
    """

    names: tuple[str, ...]
    original: np.ndarray
    synthetic: np.ndarray
    overlap: np.ndarray
    interval: tuple[np.ndarray, np.ndarray]
    original_interval: tuple[np.ndarray, np.ndarray]
    population: np.ndarray | None


def household_shares(
    quantities: Rules,
    original: Households,
    synthetic: Sequence[Households],
    *,
    population: Households | None = None,
    combining: str = "partially",
    level: float = 0.95,
) -> Shares:
    """Compare the shares of households of which statements are true.

    Parameters
    ----------
    quantities
        The statements, as rules (`bnp_models.rules`): "at least one child", say.
    original, synthetic, population
        Households of the same schema; those with a missing value are left out.
    combining, level
        As in `proportions`.

    Raises
    ------
    ValueError
        If no file is given, schemas differ or a file has no complete household.
    MicrodataError
        If a rule does not fit the table.
    """
    check_files(original, synthetic, population)
    files = [original, *synthetic] + ([] if population is None else [population])
    complete = [file.select(~file.incomplete) if file.has_missing else file for file in files]
    if any(file.n == 0 for file in complete):
        raise ValueError("a file has no complete household")
    rows = np.array([[float(file.n)] for file in complete])
    q = np.array([
        [Rules([rule]).check(file).mean() for rule in quantities] for file in complete
    ])  # fmt: skip
    u, made = q * (1 - q) / rows, slice(1, 1 + len(synthetic))
    found = combined(q[made], u[made], rows[made] / rows[0], combining)
    interval, own = clipped(found, level), clipped(Combined(q[0], u[0], np.inf), level)
    return Shares(
        quantities.names, q[0], found.estimate, interval_overlap(own, interval), interval, own,
        None if population is None else q[-1],
    )  # fmt: skip
