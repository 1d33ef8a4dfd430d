"""Cells of a sample with design weights, and the size of the population they stand for."""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike

import numpy as np

from bnp_models.data.microdata import Microdata
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import MicrodataError

# Weights that add up to less or more than the population by this share are warned of.
_TOLERATED = 0.05


@dataclass(frozen=True, eq=False)
class WeightedCells:
    """The D non-empty cells of a sample."""

    table: Microdata
    population_size: int
    """N."""
    num_cells: int
    """K, the cells that a person can fall in, empty ones included."""
    codes: np.ndarray
    """(D, J) level codes, in lexicographic order."""
    f: np.ndarray
    """(D,) records in each, float64."""
    weight: np.ndarray
    """(D,) sum of their weights; without weights, each record's is N / n."""
    weighted: bool
    """Whether weights were given."""

    @property
    def phat(self) -> np.ndarray:
        """(D,) f over the sum of weights: the estimated sampling fraction of each cell."""
        return self.f / self.weight

    @property
    def pooled_phat(self) -> float:
        """n over the sum of all weights."""
        return float(self.f.sum() / self.weight.sum())

    @cached_property
    def distinct(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """f, phat and number of cells of the distinct pairs of f and phat, and each cell's pair.

        Cells with the same pair have the same posterior.
        """
        pairs = np.stack([self.f, self.phat], axis=1)
        found, pair, number = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return found[:, 0], found[:, 1], number.astype(float), pair.reshape(-1)

    def warnings(self) -> list[str]:
        """What is odd about the weights; empty if nothing is."""
        total = float(self.weight.sum())
        if abs(total / self.population_size - 1) <= _TOLERATED:
            return []
        return [
            f"the weights add up to {total:,.0f}, and the population size is "
            f"{self.population_size:,}: check both, or rescale the weights"
        ]


def weighted_cells(
    table: Microdata,
    population_size: int,
    weights: np.ndarray | None = None,
    *,
    num_cells: int | None = None,
) -> WeightedCells:
    """Group a sample by cell.

    Parameters
    ----------
    table
        Complete records.
    population_size
        N, at least the sample's size.
    weights
        (n,) design weights, positive. Default: N / n each.
    num_cells
        K, where some cells of the full table cannot occur. Default: all cells of the table.

    Raises
    ------
    MicrodataError
        If a value is missing, a weight is not a positive number, a cell's weights add up to less
        than its records, the population is smaller than the sample, or `num_cells` is fewer than
        the cells that records fall in.
    """
    check_population_size(table, population_size)
    table.require_complete("the disclosure risk")
    cells = table.cells()
    if num_cells is None:
        num_cells = table.schema.num_cells
    if num_cells < len(cells.counts):
        raise MicrodataError(
            f"{num_cells} cells are fewer than the {len(cells.counts)} that records fall in; give "
            "the number of all combinations that can occur, seen or not"
        )
    f = cells.counts.astype(float)
    if weights is None:
        weight = f * (population_size / table.n)
    else:
        weights = np.asarray(weights, float)
        if weights.shape != (table.n,):
            raise ValueError(f"weights have shape {weights.shape}; expected ({table.n},)")
        bad = ~(np.isfinite(weights) & (weights > 0))
        if bad.any():
            row = int(np.argmax(bad))
            raise MicrodataError(
                f"the weight {weights[row]:g} is not a positive number; correct it", row=row
            )
        weight = np.bincount(cells.record_cell, weights, minlength=len(f))
        short = weight < f * (1 - 1e-9)
        if short.any():
            row = int(np.argmax(short[cells.record_cell]))
            k = cells.record_cell[row]
            raise MicrodataError(
                f"the weights of this record's cell add up to {weight[k]:g}, less than its "
                f"{f[k]:.0f} record{'s'[: int(f[k] > 1)]}; a weight counts the persons that a "
                "record stands for, itself included",
                row=row,
            )
    return WeightedCells(
        table=table, population_size=int(population_size), num_cells=int(num_cells),
        codes=cells.codes, f=f, weight=np.maximum(weight, f), weighted=weights is not None,
    )  # fmt: skip


def read_weights(path: str | PathLike, column: str) -> np.ndarray:
    """Read a column of weights of the file that `read_microdata` reads.

    Raises
    ------
    MicrodataError
        If the column is missing or a value is not a number; it names the file, row and column.
    """
    frame, lines = read_frame(path, (column,))
    weights = np.empty(len(frame))
    for row, value in enumerate(frame[column]):
        try:
            weights[row] = float(value)
        except (TypeError, ValueError):
            weights[row] = np.nan
        if not (np.isfinite(weights[row]) and weights[row] > 0):
            shown = "the cell is empty" if value in ("", None) else f"{value!r}"
            raise MicrodataError(
                f"{shown}{'' if shown.startswith('the') else ' is not a positive number'}; give "
                "every record its weight, a positive number",
                file=path, row=row, line=None if lines is None else lines[row], column=column,
            )  # fmt: skip
    return weights


def check_population_size(table: Microdata, population_size: int) -> None:
    """Raise ValueError unless the population is at least as large as the sample."""
    if population_size < table.n:
        raise MicrodataError(
            f"the population size {population_size} is smaller than the sample's {table.n} records"
        )
