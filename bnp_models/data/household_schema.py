"""Variables of households and of their members, and labels that stand for household sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnp_models.data.display import Shown, counted, displayed, levels_by_variable
from bnp_models.data.label_numbers import read_numbers
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    Schema,
    first_repeated,
    unknown_variable,
)


@dataclass(frozen=True)
@displayed
class HouseholdSchema:
    """The variables of persons within households, and how a model sees them; hashable.

    Parameters
    ----------
    table : Schema
        The J variables of persons, the variables of their households included.
    household : str
        The column of household identifiers, which is no variable.
    household_level : tuple of str
        The variables of ``table`` that are the same for all persons of a household.
    head : (str, label), optional
        The relationship variable and its label for the head of the household. If it is given,
        every household has exactly one head, who is no member but described by variables of the
        household: the head is *at household level*.
    size_variable : str, optional
        The household-level variable that is the number of persons.
    id_position : int
        Position of the column of identifiers among the columns of ``table``.

    Raises
    ------
    MicrodataError
        If a variable is unknown or listed twice, no variable of persons is left, or the head's
        label is not a level.

    Examples
    --------
    >>> households.schema.household
    'household'
    """

    table: Schema
    household: str
    household_level: tuple[str, ...] = ()
    head: tuple[str, Label] | None = None
    size_variable: str | None = None
    id_position: int = 0

    def __post_init__(self):
        if self.household in self.table.variables:
            raise MicrodataError(
                "the household identifier is among the variables; leave it out",
                column=self.household,
            )
        for variable in self.household_level:
            if variable not in self.table.variables:
                raise unknown_variable(variable, self.table.variables)
        if (repeated := first_repeated(self.household_level)) is not None:
            raise MicrodataError("the variable is listed twice; list it once", column=repeated)
        if not self.personal:
            raise MicrodataError(
                "every variable is a household variable; keep at least one that describes persons"
            )
        if self.size_variable is not None and self.size_variable not in self.household_level:
            raise unknown_variable(self.size_variable, self.household_level, "household variable")
        if self.head is None:
            return
        relationship, label = self.head
        if relationship not in self.personal:
            raise unknown_variable(relationship, self.personal, "person variable")
        self.table.encode(relationship, label)
        if len(self.table.levels[self.table.variables.index(relationship)]) == 1:
            raise MicrodataError(
                f"everyone is {quoted(label)}, so no member is left beside the head; leave out "
                "the head, or declare more levels",
                column=relationship,
            )
        for variable in self.head_variables:
            if f"head_{variable}" in self.table.variables:
                raise MicrodataError(
                    f"this name is needed for the {quoted(variable)} of the head; rename the "
                    "column",
                    column=f"head_{variable}",
                )

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """The variables of ``table`` that describe persons."""
        return tuple(name for name in self.table.variables if name not in self.household_level)

    @cached_property
    def household_variables(self) -> tuple[str, ...]:
        """The q variables of a household in a model, its size not among them.

        They are the household-level ones, then ``head_VARIABLE`` for each of the head's.
        """
        return (*self.modelled_household_level, *(f"head_{name}" for name in self.head_variables))

    @cached_property
    def household_levels(self) -> tuple[tuple[Label, ...], ...]:
        """The labels of each household variable, in the order of their codes."""
        names = (*self.modelled_household_level, *self.head_variables)
        return tuple(self.labels(name) for name in names)

    @property
    def member_variables(self) -> tuple[str, ...]:
        """The p variables of a member in a model."""
        return self.personal

    @cached_property
    def member_levels(self) -> tuple[tuple[Label, ...], ...]:
        """The labels of each member variable; the head's relationship is none of a member's."""
        levels = []
        for name in self.personal:
            labels = list(self.labels(name))
            if self.head is not None and name == self.head[0]:
                del labels[self.head_code]
            levels.append(tuple(labels))
        return tuple(levels)

    @property
    def num_household_levels(self) -> tuple[int, ...]:
        """Number of levels of each of the q household variables."""
        return tuple(map(len, self.household_levels))

    @property
    def num_member_levels(self) -> tuple[int, ...]:
        """Number of levels of each of the p member variables."""
        return tuple(map(len, self.member_levels))

    @property
    def num_heads(self) -> int:
        """Number of persons of a household who are no members: 1 with a head, else 0."""
        return 0 if self.head is None else 1

    @cached_property
    def head_code(self) -> int:
        """The code in ``table`` of the head's relationship."""
        if self.head is None:
            raise ValueError("the head is not at household level; give the schema a head")
        return self.table.encode(*self.head)

    def labels(self, variable: str) -> tuple[Label, ...]:
        """Return the labels of a variable of ``table``."""
        if variable not in self.table.variables:
            raise unknown_variable(variable, self.table.variables)
        return self.table.levels[self.table.variables.index(variable)]

    @property
    def modelled_household_level(self) -> tuple[str, ...]:
        """The household-level variables except the size, which models treat separately."""
        return tuple(name for name in self.household_level if name != self.size_variable)

    @property
    def head_variables(self) -> tuple[str, ...]:
        """The variables of persons by which the household describes its head."""
        if self.head is None:
            return ()
        return tuple(name for name in self.personal if name != self.head[0])

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "household": self.household,
            "household variables": ", ".join(self.household_level) or "none",
            "head": None if self.head is None else " = ".join(map(str, self.head)),
            **levels_by_variable(self.table.variables, self.table.levels),
        }
        return Shown(f"HouseholdSchema: {counted(len(self.table.variables), 'variable')}", lines)


def codes_of_sizes(labels: Sequence[Label], sizes: np.ndarray) -> np.ndarray:
    """Return the code of the label that stands for each size, -1 if none does.

    Parameters
    ----------
    labels : sequence of labels
        The levels of a variable, such as "1", "2" and "3+".
    sizes : (n,) integer array
        Numbers of persons.

    Returns
    -------
    (n,) int32 array
    """
    exact, least_of_more, code_of_more = {}, None, -1
    for code, interval in enumerate(read_numbers(labels)):
        if interval is None or interval.low < 0:
            continue
        if interval.low == interval.high:
            exact[interval.low] = code
        elif math.isinf(interval.high):
            least_of_more, code_of_more = interval.low, code

    def code_of(size: int) -> int:
        if least_of_more is not None and size >= least_of_more:
            return code_of_more
        return exact.get(size, -1)

    distinct, index = np.unique(sizes, return_inverse=True)
    return np.array([code_of(int(size)) for size in distinct], dtype=np.int32)[index]


def size_variable_of(
    persons: Microdata,
    household_level: Sequence[str],
    of_household: np.ndarray,
    sizes: np.ndarray,
) -> str | None:
    """Return the household variable that is the number of persons, or that number up to "5+".

    Parameters
    ----------
    persons : Microdata
        The N persons.
    household_level : sequence of str
        The variables of households.
    of_household : (N,) integer array
        Index of each person's household.
    sizes : (n,) integer array
        Number of persons of each household.
    """
    for name in household_level:
        j = persons.schema.variables.index(name)
        of_size = codes_of_sizes(persons.schema.levels[j], sizes)
        if (of_size >= 0).all() and (of_size[of_household] == persons.codes[:, j]).all():
            return name
    return None
