"""Households with design weights, whose class of weights is one more household variable.

A household is included in the sample with all its persons, so that they share its weight: the
number of households of the population that it stands for. The model of the class and its
assumptions are those of `bnp_models.data.weight_classes`, with households in the place of records.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, displayed
from bnp_models.data.households import Households
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema, content_digest, plain_label
from bnp_models.data.weight_classes import VARIABLE, DesignWeights, classes_of, with_class
from bnp_models.data.weights import check_weights


@dataclass(frozen=True, eq=False)
@displayed
class WeightedHouseholds(DesignWeights, Households):
    """Households with a household variable that is the class of their design weight.

    `weighted_households` makes them. `bnp_models.sample` fits the class like the other variables;
    rules need not mention it. In all results of the run, the classes are summed out.

    Parameters
    ----------
    schema, household_codes, sizes, member_codes, ids, rows
        As of `Households`; the class is the last household variable that does not describe a head.
    weights : (n,) float64 array
        Design weights of the households, positive.

    Examples
    --------
    >>> weighted = bnp.data.weighted_households(households, np.repeat([20.0, 40.0], 10))
    >>> weighted.class_weights.tolist()
    [20.0, 40.0]
    """

    weights: np.ndarray = field(kw_only=True)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema, the codes and the weights, in hexadecimal digits."""
        return content_digest(
            self.schema, self.household_codes, self.sizes, self.member_codes, self.weights
        )

    @cached_property
    def households(self) -> Households:
        """The same households without the class."""
        schema, table = self.schema, self.schema.table
        fewer = dataclasses.replace(
            schema,
            table=Schema(table.variables[:-1], table.levels[:-1]),
            household_level=schema.household_level[:-1],
        )
        codes = np.delete(self.household_codes, self._place, axis=1)
        return Households(fewer, codes, self.sizes, self.member_codes, self.ids, self.rows)

    @cached_property
    def persons(self) -> Microdata:
        """The persons without their household identifiers and the class, in the order of
        ``rows``."""
        return self.households.persons

    @property
    def class_codes(self) -> np.ndarray:
        """(n,) class of the weight of each household, counted from 0."""
        return self.household_codes[:, self._place]

    @property
    def class_rows(self) -> np.ndarray:
        """(S,) rows of the classes among those of the levels of all household variables."""
        before = sum(self.schema.num_household_levels[: self._place])
        return before + np.arange(self.schema.num_household_levels[self._place])

    @property
    def _place(self) -> int:
        """Index of the class among the household variables."""
        return self.schema.household_variables.index(VARIABLE)

    def row_of(self, unit: int) -> int:
        """0-based row of the first person of a household, by which messages name it."""
        return self.first_row(unit)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        title, lines, _ = super()._shown()
        return Shown(title, {**lines, **self.shown_weights()})


def weighted_households(table: Households, weights: np.ndarray) -> WeightedHouseholds:
    """Add the class of each household's design weight to the households, as their last variable.

    Parameters
    ----------
    table
        Households.
    weights : (n,) array
        Design weights, the inverse inclusion probabilities of the households; positive. Only the
        disclosure risk needs their scale. `weights_of_households` finds them from those of persons.

    Raises
    ------
    MicrodataError
        If a weight is not a positive number, or a variable has the name of the class.

    Notes
    -----
    The classes are those of `weighted_microdata`.

    Examples
    --------
    >>> weighted = bnp.data.weighted_households(households, np.repeat([20.0, 40.0], 10))
    >>> weighted.schema.household_variables[-1]
    'weight class'
    """
    check_kind(Households, "weighted_households(table, weights)", table=table)
    code = classes_of(check_weights(weights, table.n))
    place = len(table.schema.modelled_household_level)
    schema = dataclasses.replace(
        table.schema,
        table=with_class(table.schema.table, code),
        household_level=(*table.schema.household_level, VARIABLE),
    )
    return WeightedHouseholds(
        schema, np.insert(table.household_codes, place, code, axis=1), table.sizes,
        table.member_codes, table.ids, table.rows, weights=np.asarray(weights, float),
    )  # fmt: skip


def plain_households(table: Households) -> Households:
    """Return households without the class of their weights, if they have any."""
    return table.households if isinstance(table, WeightedHouseholds) else table


def weights_of_households(
    table: Households, weights: np.ndarray, column: str | None = None
) -> np.ndarray:
    """Find the weights of households in those of their persons.

    Parameters
    ----------
    table
        The households.
    weights : (N,) array
        Weights of the persons, in the order of the file; the same for all persons of a household.
    column
        Name of the column of weights, for messages.

    Returns
    -------
    weights : (n,) float64 array

    Raises
    ------
    MicrodataError
        If a weight is not a positive number, or persons of one household have different weights; it
        names the household.

    Examples
    --------
    >>> of_persons = np.where(households.of_household < 10, 20.0, 40.0)
    >>> bnp.data.weights_of_households(households, of_persons).sum().item()
    600.0
    """
    weights = check_weights(weights, table.num_persons)
    of_household = table.of_household
    first = np.unique(of_household, return_index=True)[1]
    differs = weights != weights[first][of_household]
    if differs.any():
        row = int(np.argmax(differs))
        home = of_household[row]
        raise MicrodataError(
            f"the weight is {weights[row]:g}, but {weights[first[home]]:g} in row {first[home]} of "
            f"the same household, {quoted(plain_label(table.ids[home]))}; a household is in the "
            "sample with all its persons: give them one weight, the number of households that "
            "theirs stands for",
            row=row,
            column=column,
        )
    return weights[first]
