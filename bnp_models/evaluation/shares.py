"""Shares of households for which statements are true, in the original and in synthetic files."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.frames import Tabular
from bnp_models.data.households import Households
from bnp_models.evaluation.combining import compare_with_original
from bnp_models.evaluation.files import coded_files
from bnp_models.rules.rules import Rules


class Shares(NamedTuple):
    """Shares of households for which each of R statements is true."""

    names: tuple[str, ...]
    """Names of the statements."""
    original: np.ndarray
    """(R,) shares in the original."""
    synthetic: np.ndarray
    """(R,) means of the shares in the files."""
    overlap: np.ndarray
    """(R,) overlap of the two intervals, from 0 to 1."""
    interval: tuple[np.ndarray, np.ndarray]
    """(R,) ends of the intervals from the synthetic files, by the combining rule."""
    original_interval: tuple[np.ndarray, np.ndarray]
    """(R,) ends of the intervals from the original."""
    population: np.ndarray | None
    """(R,) shares in the population, if it is known."""


def household_shares(
    quantities: Rules,
    original: Households,
    synthetic: Tabular | Sequence[Tabular],
    *,
    population: Tabular | None = None,
    combining: str = "partially",
    level: float = 0.95,
) -> Shares:
    """Compare the shares of households for which statements are true.

    Parameters
    ----------
    quantities
        The statements, as rules (`bnp_models.rules`), such as "at least one child".
    original, synthetic, population
        Households of the same schema; those with a missing value are left out. All except the
        original may be data frames of persons.
    combining, level
        As in `proportions`.

    Raises
    ------
    ValueError
        If no file is given, schemas differ or a file has no complete household.
    MicrodataError
        If a rule does not fit the table.

    Examples
    --------
    >>> rules = bnp.census_relationships(households)
    >>> shares = bnp.evaluation.household_shares(rules, households, [households.to_frame()])
    >>> bool((shares.original == shares.synthetic).all())
    True
    """
    call = "household_shares(quantities, original, synthetic)"
    check_kind(Rules, call, quantities=quantities)
    check_kind(Households, call, original=original)
    original, synthetic, others = coded_files(call, original, synthetic, population=population)
    population = others["population"]
    files = [original, *synthetic] + ([] if population is None else [population])
    complete = [file.select(~file.incomplete) if file.has_missing else file for file in files]
    if any(file.n == 0 for file in complete):
        raise ValueError("a file has no complete household")
    rows = np.array([[float(file.n)] for file in complete])
    q = np.array([[Rules([rule]).check(file).mean() for rule in quantities] for file in complete])
    mean, interval, original_interval, overlap = compare_with_original(
        q, rows, len(synthetic), combining, level
    )
    return Shares(
        names=quantities.names,
        original=q[0],
        synthetic=mean,
        overlap=overlap,
        interval=interval,
        original_interval=original_interval,
        population=None if population is None else q[-1],
    )
