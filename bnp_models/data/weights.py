"""Cells of a sample with design weights, and the size of the population that they stand for."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from os import PathLike

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_number
from bnp_models.data.cells import Cells
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.microdata import Microdata, Records, as_records
from bnp_models.data.reading import read_frame
from bnp_models.data.respelling import plain_numbers
from bnp_models.data.schema import MicrodataError, errors_in
from bnp_models.data.source import opened
from bnp_models.data.strata import empty_cells, find_strata
from bnp_models.data.text_files import AS_FOUND, Reading

# Share by which the sum of weights may differ from the population size without a warning.
_TOLERATED = 0.05

# Persons from which on float64, in which counts meet probabilities, does not hold every number.
_MAX_POPULATION = 2**53


@dataclass(frozen=True, eq=False)
@displayed
class WeightedCells:
    """The D non-empty cells of a sample.

    Attributes
    ----------
    table : Microdata or ContingencyTable
        The sample of n records.
    population_size : int
        Number of persons of the population, N.
    num_cells : int
        Number of cells that a person can fall in, K, empty ones included.
    codes : (D, J) int32 array
        Level codes of the cells, in lexicographic order.
    f : (D,) float64 array
        Number of records in each cell.
    weight : (D,) float64 array
        Sum of the weights of the records in each cell; without weights, each record's is N / n.

    Examples
    --------
    >>> cells = bnp.weighted_cells(table, 5_000)
    >>> round(float(cells.weight.sum()))
    5000
    """

    table: Records
    population_size: int
    num_cells: int
    codes: np.ndarray
    f: np.ndarray
    weight: np.ndarray

    @property
    def phat(self) -> np.ndarray:
        """Estimated sampling fraction of each cell, (D,): f over the sum of weights."""
        return self.f / self.weight

    @property
    def pooled_phat(self) -> float:
        """Estimated sampling fraction of the sample: n over the sum of all weights."""
        return float(self.f.sum() / self.weight.sum())

    @cached_property
    def distinct(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The U distinct pairs of f and phat; cells with the same pair have the same posterior.

        Four arrays: f, phat and the number of cells of each pair, (U,), and the index of each
        cell's pair, (D,).
        """
        pairs = np.stack([self.f, self.phat], axis=1)
        distinct, pair, number = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return distinct[:, 0], distinct[:, 1], number.astype(float), pair.reshape(-1)

    @cached_property
    def strata(self) -> tuple[str, ...] | None:
        """Names of the one or two key variables that define strata of the sample.

        These are variables whose levels explain the sampling fractions of the cells: 90% or more of
        the variance of log phat. Empty if the fractions are nearly equal; None if no one or two
        variables explain them.
        """
        schema = self.table.schema
        columns = find_strata(self.codes, self.phat, schema.num_levels)
        return None if columns is None else tuple(schema.variables[i] for i in columns)

    @cached_property
    def empty(self) -> tuple[np.ndarray, np.ndarray]:
        """Sampling fractions of the empty cells, and the number of empty cells with each, (S,).

        An empty cell has the fraction of its stratum, which is the number of its records divided by
        the sum of their weights. Without strata (`strata` is empty or None) it has that of the
        whole sample. If `num_cells` is not the number of all combinations of levels, the empty
        cells are distributed among the strata as all combinations without records are.
        """
        schema = self.table.schema
        columns = tuple(schema.variables.index(name) for name in self.strata or ())
        phat, share = empty_cells(self.codes, self.f, self.weight, schema.num_levels, columns)
        return phat, share * (self.num_cells - len(self.f))

    def warnings(self) -> list[str]:
        """Return sentences on weights that do not fit the population size."""
        return total_warnings(float(self.weight.sum()), self.population_size)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "population": self.population_size,
            "cells that can occur": self.num_cells,
            "cells with one record": int((self.f == 1).sum()),
            "sum of weights": f"{self.weight.sum():,.6g}",
        }
        number = counted(len(self.f), "cell")
        return Shown(f"WeightedCells: {counted(self.table.n, 'record')} in {number}", lines)


def weighted_cells(
    table: Records | pd.DataFrame,
    population_size: int,
    weights: np.ndarray | None = None,
    *,
    num_cells: int | None = None,
) -> WeightedCells:
    """Group a sample by cell.

    Parameters
    ----------
    table
        Complete records, a data frame of them, or their contingency table.
    population_size
        Number of persons of the population, N, at least the sample's size.
    weights
        Design weights of the records, (n,), positive. Default: N / n each. A contingency table
        takes none.
    num_cells
        Number of cells that can occur, K, if some cannot. Default: all combinations of levels.

    Raises
    ------
    MicrodataError
        If a value is missing, a weight is not a positive number, a cell's weights add up to less
        than its records, the population is smaller than the sample, or `num_cells` is fewer than
        the cells that records fall in.

    Examples
    --------
    >>> weights = np.where(frame["sex"] == "Male", 50.0, 100.0)
    >>> cells = bnp.weighted_cells(table, round(weights.sum()), weights)
    >>> cells.warnings()
    []
    """
    table = as_records(table, "weighted_cells(table, population_size)")
    check_population_size(table, population_size)
    table.require_complete("the disclosure risk")
    cells = table.tabulated
    if num_cells is None:
        num_cells = table.schema.num_cells
    if num_cells < len(cells.counts):
        raise MicrodataError(
            f"{num_cells} cells are fewer than the {len(cells.counts)} that records fall in; give "
            "the number of all combinations that can occur, seen or not"
        )
    f = cells.counts.astype(float)
    weight = f * (population_size / table.n)
    if weights is not None:
        if not isinstance(table, Microdata):
            raise MicrodataError(
                "design weights belong to single records, but a contingency table has only cell "
                "counts"
            )
        weight = _weight_of_cells(table.cells(), weights)
    return WeightedCells(
        table=table,
        population_size=int(population_size),
        num_cells=int(num_cells),
        codes=cells.codes,
        f=f,
        weight=np.maximum(weight, f),
    )


def _weight_of_cells(cells: Cells, weights: np.ndarray) -> np.ndarray:
    """Return the (D,) sums of weights, each at least the cell's number of records."""
    weights = check_weights(weights, len(cells.record_cell))
    weight = np.bincount(cells.record_cell, weights, minlength=len(cells.counts))
    short = weight < cells.counts * (1 - 1e-9)
    if short.any():
        row = int(np.argmax(short[cells.record_cell]))
        k = cells.record_cell[row]
        raise MicrodataError(
            f"the weights of this record's cell add up to {weight[k]:g}, less than its "
            f"{cells.counts[k]} record{'s'[: int(cells.counts[k] > 1)]}; a weight counts the "
            "persons that a record stands for, itself included",
            row=row,
        )
    return weight


def check_weights(weights: np.ndarray, num_records: int) -> np.ndarray:
    """Return weights of records as a float64 array, if all are positive numbers.

    Raises
    ------
    ValueError
        If there are not as many as records.
    MicrodataError
        If one is not a positive number; it names the first.
    """
    weights = np.asarray(weights, float)
    if weights.shape != (num_records,):
        raise ValueError(f"weights have shape {weights.shape}; expected ({num_records},)")
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise MicrodataError(
            f"the weight {weights[row]:g} is not a positive number; correct it", row=row
        )
    return weights


def total_warnings(total: float, population_size: int) -> list[str]:
    """Return a sentence where weights of this sum do not fit the population size."""
    if abs(total / population_size - 1) <= _TOLERATED:
        return []
    return [
        f"the weights add up to {total:,.0f}, and the population size is {population_size:,}: "
        "check both, or rescale the weights"
    ]


def read_weights(path: str | PathLike, column: str, reading: Reading = AS_FOUND) -> np.ndarray:
    """Read a column of weights of the file that `read_microdata` reads.

    Parameters
    ----------
    path
        The file, one record a row.
    column
        Name of the column.
    reading
        Format of the file. If it does not give the notation of numbers, the notation is detected in
        the column.

    Returns
    -------
    (n,) float64 array

    Raises
    ------
    MicrodataError
        If the column is missing, its notation cannot be told, or a value is not a positive number;
        it names the file, row and column.

    Examples
    --------
    >>> frame.assign(weight=2.5).to_csv("sample.csv", index=False)
    >>> bnp.read_weights("sample.csv", "weight").sum().item()
    155.0
    """
    with opened(path) as source:
        frame, lines = read_frame(source, (column,), reading)
        reading = dataclasses.replace(reading, numbers=(*reading.numbers, column))
        with errors_in(source):
            values = plain_numbers(frame[column], column, source, reading)
    weights = np.empty(len(frame))
    for row, value in enumerate(values):
        try:
            weights[row] = float(value)
        except (TypeError, ValueError):
            weights[row] = np.nan
        if not (np.isfinite(weights[row]) and weights[row] > 0):
            empty = pd.isna(value) or value == ""
            problem = "the cell is empty" if empty else f"{value!r} is not a positive number"
            raise MicrodataError(
                f"{problem}; give every record its weight, a positive number",
                file=path,
                row=row,
                line=None if lines is None else lines[row],
                column=column,
            )
    if (weights < 1).all() and abs(weights.sum() - 1) > _TOLERATED:
        raise MicrodataError(
            "the weights are all below 1, as the probabilities to be in the sample are; give their "
            "inverse, the number of persons that a record stands for",
            file=path,
            column=column,
        )
    return weights


def check_population_size(table: Records | pd.DataFrame, population_size: int) -> None:
    """Raise `MicrodataError` if the population is smaller than the sample, or beyond 2^53.

    Parameters
    ----------
    table
        Coded records, a table of counts, or a data frame.
    population_size
        Number of persons of the population.

    Examples
    --------
    >>> bnp.data.check_population_size(table, 50)
    Traceback (most recent call last):
    ...
    bnp_models.data.schema.MicrodataError: the population size 50 is smaller than the ...
    """
    table = as_records(table, "check_population_size(table, population_size)")
    check_number(population_size=population_size)
    if population_size < table.n:
        raise MicrodataError(
            f"the population size {population_size} is smaller than the sample's {table.n} "
            "records; give the number of persons of the population"
        )
    if not population_size <= _MAX_POPULATION:
        # Not a number is caught here too.
        raise MicrodataError(
            f"the population size {population_size:,} is not a number of persons up to 2^53; "
            "give the number of persons of the population"
        )
