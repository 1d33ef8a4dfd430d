"""Proportions of cells of one, two and three variables: the original and synthetic files."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from bnp_models.data.cells import joint_codes
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.documents import ABSENT, Document, Share
from bnp_models.data.frames import Tabular
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.evaluation.combining import compare_with_original
from bnp_models.evaluation.files import coded_files
from bnp_models.evaluation.propensity import standardised
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default


class ProportionsEntry(Document):
    """Figures of all tables with the same number of variables."""

    tables: int
    tables_left_out: int
    """Number of tables that were not evaluated because there were too many."""
    cells: int
    cells_judged: int
    """Cells in which the original has enough records for an interval."""
    mean_difference: float
    """Mean absolute difference of proportions."""
    largest_difference: float
    mean_tvd: float
    """Mean total variation distance."""
    k_marginal: float
    """1,000 (1 - mean_tvd), the score of the NIST challenges."""
    overlap: float | None
    """Mean overlap of 95% intervals (Karr et al. 2006, doi:10.1198/000313006X124640)."""
    overlap_below_half: Share | None
    covers_original: Share | None
    """Cells whose combined interval contains the original's proportion."""
    mean_difference_from_population: float | None = None
    original_mean_difference_from_population: float | None = None
    covers_population: Share | None = ABSENT
    original_covers_population: Share | None = ABSENT


@dataclass(frozen=True, eq=False)
@displayed
class Proportions:
    """Proportions of the C cells of all T tables of one order.

    All intervals have one confidence level. Overlap and coverage are computed only for cells with
    enough records of the original inside and outside the cell for a normal interval.

    Examples
    --------
    >>> pairs = bnp.evaluation.proportions(table, files, order=2)
    >>> len(pairs.tables)
    3
    """

    schema: Schema
    order: int
    tables: np.ndarray
    """(T, order) positions of each table's variables."""
    left_out: int
    """Number of tables that were not evaluated because there were too many, or because they were
    too large."""
    table: np.ndarray
    """(C,) index into `tables`."""
    count: np.ndarray
    """(C,) records of the original."""
    original: np.ndarray
    """(C,) proportions."""
    synthetic: np.ndarray
    """(C,) means of the proportions in the files."""
    interval: tuple[np.ndarray, np.ndarray]
    """(C,) ends of the intervals from the synthetic files, by the combining rule, cut to [0, 1]."""
    original_interval: tuple[np.ndarray, np.ndarray]
    """(C,) ends of q +- z sqrt(q (1 - q) / n), from the original, cut to [0, 1]."""
    judged: np.ndarray
    """(C,) bool: cells for which overlap and coverage are computed."""
    overlap: np.ndarray
    """(C,) overlap of the two intervals, from 0 to 1; NaN if it is not computed."""
    population: np.ndarray | None
    """(C,) proportions in the population, if it is known."""
    fit: pd.DataFrame
    """One row for each table, the worst first: `variables`, `cells` that are not empty, `tvd`
    (total variation distance) and `pmse_ratio` (of the propensity score of the table's cells)."""
    k_marginal: np.ndarray
    """(M,) score of each file: 1,000 times (1 - the mean total variation distance of its tables).
    This is the k-marginal score of NIST's challenges; the original has 1,000."""

    def covered(self, of: str = "original", by: str = "synthetic") -> np.ndarray:
        """For each judged cell, whether its proportion lies inside the interval.

        Parameters
        ----------
        of
            "original" or "population".
        by
            The interval: "synthetic" or "original".
        """
        value = self.population if of == "population" else self.original
        if value is None:
            raise ValueError("no population was given")
        low, high = self.interval if by == "synthetic" else self.original_interval
        return ((low <= value) & (value <= high))[self.judged]

    def summary(self) -> ProportionsEntry:
        """Figures for evaluation.json; shares are None if no cell is judged."""
        away = np.abs(self.synthetic - self.original)
        overlap = self.overlap[self.judged]

        def share(values):
            return float(np.mean(values)) if len(values) else None

        of_population: dict[str, Any] = {}
        if self.population is not None:
            of_population = {
                "mean_difference_from_population": np.abs(self.synthetic - self.population).mean(),
                "original_mean_difference_from_population": np.abs(
                    self.original - self.population
                ).mean(),
                "covers_population": share(self.covered("population")),
                "original_covers_population": share(self.covered("population", "original")),
            }
        return ProportionsEntry(
            tables=len(self.tables),
            tables_left_out=self.left_out,
            cells=len(self.original),
            cells_judged=self.judged.sum(),
            mean_difference=away.mean(),
            largest_difference=away.max(),
            mean_tvd=self.fit["tvd"].mean(),
            k_marginal=self.k_marginal.mean(),
            overlap=share(overlap),
            overlap_below_half=share(overlap < 0.5),
            covers_original=share(self.covered()),
            **of_population,
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "tables left out": self.left_out or None,
            "cells": len(self.original),
            "mean total variation distance": f"{self.fit['tvd'].mean():.4f}",
            "k-marginal score": f"{self.k_marginal.mean():.1f}",
        }
        title = f"Proportions: {counted(len(self.tables), f'{self.order}-way table')}"
        return Shown(title, lines, self.fit)


def proportions(
    original: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    order: int,
    *,
    population: Tabular | None = None,
    combining: str = "partially",
    level: float = 0.95,
    min_count: int = 10,
    max_tables: int = 1000,
    max_cells: int = 1_000_000,
    key: jax.Array | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Proportions:
    """Compare the proportions of all cells of all tables of `order` variables.

    Parameters
    ----------
    original
        The records from which the synthetic files were made: a table, or a data frame.
    synthetic
        M files of the same schema, or data frames, which are coded like the original.
    order
        Number of variables of a table.
    population
        Records of the whole population, if it is known, in the same schema.
    combining
        "partially" or "fully", as for `bnp_models.evaluation.combining.combine`.
    level
        Confidence level of the intervals.
    min_count
        Overlap and coverage are judged for cells with at least so many records of the original
        inside and outside the cell.
    max_tables, max_cells
        Largest number of tables, and of cells in all of them. If there are more, tables are chosen
        at random up to these limits.
    key
        Random key of that choice. Default: `jax.random.key(0)`.
    progress
        Function that is called with the number of finished tables and of all tables.

    Raises
    ------
    ValueError
        If no file is given, schemas differ, `order` is out of range, or a table has no complete
        record; a MicrodataError if no table is small enough.

    References
    ----------
    Karr, A. F. et al. (2006), doi:10.1198/000313006X124640: overlap. Raab, G. M., Nowok, B. &
    Dibben, C. (2021), doi:10.48550/arXiv.2109.12717: propensity scores of tables.

    Examples
    --------
    >>> bnp.evaluation.proportions(table, files, order=1).fit["variables"].tolist() != []
    True
    """
    original, synthetic, others = coded_files(
        "proportions(original, synthetic, order)", original, synthetic, population=population
    )
    population = others["population"]
    schema, end = original.schema, 1 + len(synthetic)
    rng = numpy_generator(key_or_default(key))
    tables, left_out = _chosen_tables(schema.num_levels, order, max_tables, max_cells, rng)
    files = [original, *synthetic] + ([] if population is None else [population])
    by_table = _counts(files, tables, progress)
    counts, rows = _concatenated(by_table)
    q = counts / rows
    mean, interval, original_interval, overlap = compare_with_original(
        q, rows, len(synthetic), combining, level
    )
    fit, distances = _fits(schema, tables, by_table, end)
    judged = (counts[0] >= min_count) & (rows[0] - counts[0] >= min_count)
    return Proportions(
        schema=schema,
        order=order,
        tables=tables,
        left_out=left_out,
        table=np.repeat(np.arange(len(tables)), [count.shape[1] for count in by_table]),
        count=counts[0],
        original=q[0],
        synthetic=mean,
        interval=interval,
        original_interval=original_interval,
        judged=judged,
        overlap=np.where(judged, overlap, np.nan),
        population=None if population is None else q[-1],
        fit=fit,
        k_marginal=1000 * (1 - distances),
    )


def _counts(files, tables, progress) -> list[np.ndarray]:
    """(files, cells) records in each cell of each table."""
    schema = files[0].schema
    # Each variable has a contiguous column.
    files = [file.tabulated for file in files]
    columns = [np.ascontiguousarray(file.codes.T).astype(np.int64) for file in files]
    incomplete = [(column < 0).any(axis=1) for column in columns]
    counts = []
    for done, table in enumerate(tables):
        of_files = [
            _table_counts(file.counts, column, missing, table, schema.num_levels)
            for file, column, missing in zip(files, columns, incomplete, strict=True)
        ]
        counts.append(np.stack(of_files))
        if (counts[-1].sum(axis=1) == 0).any():
            names = [schema.variables[j] for j in table]
            raise ValueError(f"a file has no record with values of all of {', '.join(names)}")
        if progress is not None:
            progress(done + 1, len(tables))
    return counts


def _concatenated(by_table) -> tuple[np.ndarray, np.ndarray]:
    """(files, C) records in each cell of all tables, and in all cells of the same table."""
    rows = np.stack([count.sum(axis=1) for count in by_table], axis=1).astype(np.float64)
    sizes = [count.shape[1] for count in by_table]
    return np.concatenate(by_table, axis=1), np.repeat(rows, sizes, axis=1)


def _chosen_tables(num_levels, order, max_tables, max_cells, rng):
    """(T, order) positions of variables, and how many tables are left out."""
    variables = len(num_levels)
    if not 1 <= order <= variables:
        raise ValueError(f"order must be from 1 to {variables}, not {order}")
    number = math.comb(variables, order)
    if number <= 200_000:
        every = np.array(list(itertools.combinations(range(variables), order)))
    else:
        # There are far more tables than are wanted, so that random ones are nearly all distinct.
        drawn = rng.random((4 * max_tables, variables))
        every = np.unique(np.sort(np.argsort(drawn, axis=1)[:, :order], axis=1), axis=0)
    sizes = np.prod(np.array(num_levels, dtype=np.float64)[every], axis=1)
    chosen = np.arange(len(every))
    if len(every) > max_tables or sizes.sum() > max_cells:
        chosen = rng.permutation(len(every))
        chosen = chosen[sizes[chosen] <= max_cells]
        chosen = np.sort(chosen[np.cumsum(sizes[chosen]) <= max_cells][:max_tables])
    if not len(chosen):
        raise MicrodataError(
            f"every table of {order} variables has more than {max_cells:,} cells; choose variables "
            "with fewer levels (--variables)"
        )
    return every[chosen], number - len(chosen)


def _table_counts(counts, columns, incomplete, table, num_levels):
    """Number of records in each cell of a table, among records with values of all its variables."""
    sizes = [num_levels[j] for j in table]
    joint = joint_codes([columns[j] for j in table], sizes)
    if incomplete[table].any():
        whole = (columns[table] >= 0).all(axis=0)
        joint, counts = joint[whole], counts[whole]
    # Sums below 2**53 are exact.
    return np.bincount(joint, counts, math.prod(sizes)).astype(np.int64)


def _fits(schema, tables, counts, end):
    """Frame of the tables as `Proportions.fit`, and each file's mean total variation distance."""
    rows, distances = [], []
    for table, count in zip(tables, counts, strict=True):
        q = count / count.sum(axis=1, keepdims=True)
        distances.append(np.abs(q[1:end] - q[0]).sum(axis=1) / 2)
        ratios = []
        for made in count[1:end]:
            both = count[0] + made
            occupied = both > 0
            total, share = both.sum(), made.sum() / both.sum()
            away = made[occupied] / both[occupied] - share
            pmse = both[occupied] @ away**2 / total
            ratios.append(standardised(pmse, occupied.sum() - 1, share, total).ratio)
        rows.append(
            (
                tuple(schema.variables[j] for j in table),
                int((count[:end] > 0).any(axis=0).sum()),
                np.abs(q[1:end].mean(axis=0) - q[0]).sum() / 2,
                np.mean(ratios),
            )
        )
    frame = pd.DataFrame(rows, columns=["variables", "cells", "tvd", "pmse_ratio"])
    frame = frame.sort_values("pmse_ratio", ascending=False, kind="stable", ignore_index=True)
    return frame, np.mean(distances, axis=0)
