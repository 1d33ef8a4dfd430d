"""Records with design weights, whose class of weights is one more variable of the sample.

Weights are inverse inclusion probabilities. All records of one class of weights had nearly the same
probability of inclusion, so that within a class the distributions in the sample and in the
population are the same. A model p(x, s) of the key variables x and the class s in the sample
therefore gives the distribution in the population, and that among the persons who were not sampled,

    p_population(x) = sum_s w_s p(x, s) / c,    p_unsampled(x) = sum_s (w_s - 1) p(x, s) / c',

with w_s the mean weight of class s (after Si, Pillai & Gelman 2015, doi:10.1214/14-BA924, whose
poststratification cells are the distinct weights). No likelihood is raised to a weight: draws of
the model are draws of both distributions, including the shares of the classes. The model assumes
that the probability of inclusion depends only on the weight, and that persons are included
independently of each other: it takes no account of clusters in the design.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, displayed
from bnp_models.data.documents import Document
from bnp_models.data.microdata import Microdata, Records, as_records
from bnp_models.data.schema import MicrodataError, Schema, content_digest
from bnp_models.data.weights import check_weights, total_warnings

MAX_CLASSES = 10
"""Largest number of classes: up to so many distinct weights are classes of their own."""

VARIABLE = "weight class"
"""Name of the variable that is added."""

# Ratio of the weights of one class above which a warning says so.
_WIDE = 2.0

# Intervals of the logarithm of the weights, between which classes are cut.
_INTERVALS = 200


class WeightClass(Document):
    """Records whose weights are alike, and their weights."""

    records: int
    least: float
    mean: float
    largest: float


class WeightsEntry(Document):
    """Figures of the design weights, if the sample has any."""

    sum: float
    """Sum of the design weights."""
    design_effect: float
    """Kish's approximation of the factor by which unequal weights increase variances."""
    classes: Sequence[WeightClass]
    """Classes of the weights."""


class DesignWeights:
    """Design weights of the units of a sample, and the classes in which they are modelled.

    The units are records (`WeightedMicrodata`) or households (`WeightedHouseholds`).
    """

    weights: np.ndarray
    """(n,) weights of the units, positive."""

    @property
    def class_codes(self) -> np.ndarray:
        """(n,) class of the weight of each unit, counted from 0."""
        raise NotImplementedError

    @cached_property
    def class_weights(self) -> np.ndarray:
        """(S,) mean weight of the units of each class."""
        return np.bincount(self.class_codes, self.weights) / np.bincount(self.class_codes)

    def classes(self) -> pd.DataFrame:
        """One row per class: records, and the least, mean and largest of their weights."""
        of = pd.Series(self.weights).groupby(self.class_codes)
        found = of.agg(["size", "min", "mean", "max"])
        return found.set_axis(["records", "least", "mean", "largest"], axis=1)

    def row_of(self, unit: int) -> int:
        """0-based row of the file by which messages name a unit."""
        return unit

    def require_counts(self) -> None:
        """Check that no weight is below one, as no number of units can be.

        Raises
        ------
        MicrodataError
            It names the first record, or household, whose weight is.
        """
        low = np.flatnonzero(self.weights < 1 - 1e-9)
        if low.size:
            raise MicrodataError(
                f"the weight {self.weights[low[0]]:g} is below 1; for the disclosure risk, a "
                "weight must count the units (persons or households) that the sampled one stands "
                "for, itself included: rescale the weights so that they add up to the population "
                "size",
                row=self.row_of(int(low[0])),
            )

    def warnings(self, population_size: int | None = None) -> list[str]:
        """Sentences on weights that do not add up to the population size, or differ in a class."""
        sentences = []
        if population_size is not None:
            sentences = total_warnings(float(self.weights.sum()), population_size)
        if len(self.class_weights) == 1:
            sentences.append("all design weights are equal, so that they change nothing")
        classes = self.classes()
        ratio = (classes["largest"] / classes["least"]).max()
        if ratio > _WIDE:
            sentences.append(
                "design weights are modelled in classes, and the weights of one class differ by a "
                f"factor of up to {ratio:.1f}; its units count as if each had the mean weight of "
                "the class: check the largest and the smallest weights, or trim them"
            )
        return sentences

    def document(self) -> WeightsEntry:
        """Entry "weights" of ``risk.json`` and ``run.json``."""
        total = float(self.weights.sum())
        return WeightsEntry(
            sum=total,
            design_effect=len(self.weights) * np.sum(self.weights**2) / total**2,
            classes=[WeightClass.of(row) for row in self.classes().itertuples()],
        )

    def shown_weights(self) -> dict[str, str]:
        """Line for the display."""
        low, high, total = self.weights.min(), self.weights.max(), self.weights.sum()
        return {"design weights": f"{low:,.4g} to {high:,.4g}, their sum {total:,.6g}"}


@dataclass(frozen=True, eq=False)
@displayed
class WeightedMicrodata(DesignWeights, Microdata):
    """Records whose last variable is the class of their design weight.

    `weighted_microdata` makes such records. `bnp_models.sample` fits the classes like the other
    variables; structural zeros must be made with this schema. In all results of the run, the
    classes are summed out.

    Parameters
    ----------
    schema : Schema
        Of the other variables, and of the weight class.
    codes : (n, J + 1) integer array
        Level codes.
    weights : (n,) float64 array
        Design weights, positive.

    Examples
    --------
    >>> weights = np.where(frame["sex"] == "Male", 50.0, 100.0)
    >>> weighted = bnp.weighted_microdata(table, weights)
    >>> weighted.class_weights.tolist()
    [50.0, 100.0]
    """

    weights: np.ndarray

    @property
    def digest(self) -> str:
        """SHA-256 of the schema, the codes and the weights, in hexadecimal digits."""
        return content_digest(self.schema, self.codes, self.weights)

    @cached_property
    def records(self) -> Microdata:
        """The same records without the class."""
        variables, levels = self.schema.variables[:-1], self.schema.levels[:-1]
        return Microdata(Schema(variables, levels), self.codes[:, :-1])

    @property
    def class_codes(self) -> np.ndarray:
        """(n,) class of the weight of each record, counted from 0."""
        return self.codes[:, -1]

    @cached_property
    def cell_shares(self) -> np.ndarray:
        """(D,) share of the weights in each cell, in the order of `records.tabulated`."""
        levels = [size + 1 for size in self.records.schema.num_levels]
        sums = np.bincount(group_cells(self.records.codes + 1, levels).record_cell, self.weights)
        return sums / sums.sum()

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        title, lines, _ = super()._shown()
        return Shown(title, {**lines, **self.shown_weights()})


def weighted_microdata(table: Microdata | pd.DataFrame, weights: np.ndarray) -> WeightedMicrodata:
    """Add the class of each record's design weight to the records, as their last variable.

    Parameters
    ----------
    table
        Records, or a data frame of them.
    weights : (n,) array
        Design weights, the inverse inclusion probabilities of the records; positive. Only the
        disclosure risk needs their scale.

    Raises
    ------
    MicrodataError
        If a weight is not a positive number, or a variable has the name `VARIABLE`.

    Notes
    -----
    The distinct weights are the classes, if they are at most `MAX_CLASSES`. Else the weights are
    cut into so many classes with the least sum of squares of their logarithms within the classes
    (Fisher 1958, doi:10.1080/01621459.1958.10501479).

    Examples
    --------
    >>> weights = np.where(frame["sex"] == "Male", 50.0, 100.0)
    >>> bnp.weighted_microdata(table, weights).schema.variables
    ('age', 'sex', 'education', 'weight class')
    """
    table = as_records(table, "weighted_microdata(table, weights)", (Microdata,))
    weights = check_weights(weights, table.n)
    code = classes_of(weights)
    schema = with_class(table.schema, code)
    return WeightedMicrodata(schema, np.column_stack([table.codes, code]), weights)


def classes_of(weights: np.ndarray) -> np.ndarray:
    """Class (n,) of each weight, counted from 0, as `weighted_microdata` has them."""
    _, code = np.unique(weights, return_inverse=True)
    return _class_of(np.log(weights)) if code.max() >= MAX_CLASSES else code


def with_class(schema: Schema, code: np.ndarray) -> Schema:
    """The schema with the class of weights as its last variable, given the classes (n,)."""
    levels = (*schema.levels, tuple(range(int(code.max()) + 1)))
    return Schema((*schema.variables, VARIABLE), levels)


def _class_of(values: np.ndarray) -> np.ndarray:
    """Code values by the `MAX_CLASSES` ranges with the least sum of squares within them."""
    edges = np.histogram_bin_edges(values, _INTERVALS)
    interval = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, _INTERVALS - 1)
    # Number of values, sum and sum of squares up to each edge.
    centred = values - values.mean()
    powers = [np.bincount(interval, centred**k, _INTERVALS) for k in range(3)]
    number, total, squares = np.cumsum(np.pad(powers, ((0, 0), (1, 0))), axis=1)
    number, total, squares = (x - x[:, None] for x in (number, total, squares))
    # cost[i, j] of one class from edge i to edge j.
    cost = np.where(number > 0, squares - total**2 / np.maximum(number, 1), 0)
    cost[np.tril_indices(_INTERVALS + 1, -1)] = np.inf
    least, cuts = cost[0], []
    for _ in range(MAX_CLASSES - 1):
        ways = least[:, None] + cost
        cuts.append(ways.argmin(axis=0))
        least = ways.min(axis=0)
    edge, of_interval = _INTERVALS, np.zeros(_INTERVALS, int)
    for cut in reversed(cuts):
        edge = cut[edge]
        of_interval[edge:] += 1
    return np.unique(of_interval[interval], return_inverse=True)[1]


def cell_shares(table: object) -> np.ndarray | None:
    """Share of the weights in each cell; None if the table has no design weights."""
    return table.cell_shares if isinstance(table, WeightedMicrodata) else None


def records_of(table: Records) -> Records:
    """The records without the class of their weights, where they have one."""
    return table.records if isinstance(table, WeightedMicrodata) else table


def require_unweighted(table: object, what: str) -> None:
    """Raise `MicrodataError` where a sample has design weights, which `what` does not take."""
    if isinstance(table, DesignWeights):
        raise MicrodataError(f"{what} takes no design weights; give the records without them")
