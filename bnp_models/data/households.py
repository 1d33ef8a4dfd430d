"""Coded households: members within households, grouped by household size."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed, levels_by_variable
from bnp_models.data.household_checks import (
    checked_codes,
    chosen_columns,
    identify,
    read_only,
    require_constant,
    require_one_head,
    tell_of_numbers,
)
from bnp_models.data.household_schema import HouseholdSchema, codes_of_sizes, size_variable_of
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import read_coded
from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    content_digest,
    plain_label,
)
from bnp_models.data.text_files import AS_FOUND, Reading

_LOG = logging.getLogger(__name__)


class SizeBlock(NamedTuple):
    """The households of one size.

    Attributes
    ----------
    size : int
        Number of persons h, the head included.
    households : (n_h,) int64 array
        Indices of the households, ascending.
    household_codes : (n_h, q) int32 array
        Level codes of the household variables, -1 where missing.
    member_codes : (n_h, m, p) int32 array
        Level codes of the members; m is h, or h - 1 if the head is not a member.
    members : (n_h, m) int64 array
        Rows of the members in ``Households.member_codes``.
    """

    size: int
    households: np.ndarray
    household_codes: np.ndarray
    member_codes: np.ndarray
    members: np.ndarray


@dataclass(frozen=True, eq=False)
@displayed
class Households:
    """Households and their members as level codes.

    Parameters
    ----------
    schema : HouseholdSchema
        The q household variables and p member variables.
    household_codes : (n, q) integer array
        Level codes, -1 where missing. This array, `sizes` and `member_codes` are copied to
        read-only int32 arrays.
    sizes : (n,) integer array
        Number of persons of each household, the head included; at least 1.
    member_codes : (M, p) integer array
        Level codes of the members of household 0, then of household 1, ...; -1 where missing. M is
        the sum of the sizes, less n if the head is not a member.
    ids : (n,) array, optional
        Label of each household; 1, 2, ... by default.
    rows : (N,) integer array, optional
        0-based row of each person in the frame they come from: household by household, the head
        first if it is not a member. In that order by default.

    Raises
    ------
    MicrodataError
        If shapes do not fit, or a code is outside its variable's levels.

    Examples
    --------
    >>> persons = pd.DataFrame({
    ...     "hid": [1, 1, 2], "tenure": ["own", "own", "rent"], "sex": ["f", "m", "f"],
    ... })
    >>> families = bnp.Households.from_frame(persons, "hid", household_variables=["tenure"])
    >>> len(families), families.num_persons
    (2, 3)
    """

    schema: HouseholdSchema
    household_codes: np.ndarray
    sizes: np.ndarray
    member_codes: np.ndarray
    # Arrays, once the defaults are filled in.
    ids: np.ndarray = cast(np.ndarray, None)
    rows: np.ndarray = cast(np.ndarray, None)

    def __post_init__(self):
        schema = self.schema
        sizes = read_only(self.sizes)
        integral = np.issubdtype(np.asarray(self.sizes).dtype, np.integer)
        if sizes.ndim != 1 or not integral or (sizes < 1).any():
            raise MicrodataError(
                "sizes are not a list of numbers of persons, each at least 1; correct them"
            )
        n = len(sizes)
        household_codes = checked_codes(
            self.household_codes, n, schema.household_variables, schema.num_household_levels
        )
        member_codes = checked_codes(
            self.member_codes,
            int(sizes.sum()) - n * schema.num_heads,
            schema.member_variables,
            schema.num_member_levels,
        )
        ids = np.arange(1, n + 1) if self.ids is None else np.array(self.ids)
        rows = np.arange(sizes.sum()) if self.rows is None else np.array(self.rows)
        if ids.shape != (n,) or rows.shape != (sizes.sum(),):
            raise MicrodataError(
                f"ids or rows do not fit {n} households of {sizes.sum()} persons; give one id a "
                "household and one row a person"
            )
        names = ("household_codes", "sizes", "member_codes", "ids", "rows")
        checked = (household_codes, sizes, member_codes, ids, rows)
        for name, array in zip(names, checked, strict=True):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        household: str = "hid",
        household_variables: Sequence[str] = (),
        variables: Sequence[str] | None = None,
        levels: Levels | Schema | None = None,
        head: tuple[str, Label] | None = None,
    ) -> "Households":
        """Code a frame of persons.

        Parameters
        ----------
        frame : DataFrame, (N, any)
            One person a row, the persons of a household in any rows. NaN, None, NA and the empty
            string are missing.
        household : str
            The column that identifies the household; any labels, none missing.
        household_variables : sequence of str
            The variables that describe the household, the same in all its rows. One that is the
            number of persons in every household is recognised: synthetic households get it from
            their size.
        variables : sequence of str, optional
            The columns to keep, household variables included; all by default.
        levels : mapping of variable to labels, frame or Schema, optional
            As in :meth:`Microdata.from_frame`.
        head : (str, label), optional
            The relationship variable and its label for the head of the household, as
            ``("relate", "Householder")``. The head's variables then are the household's.

        Raises
        ------
        MicrodataError
            Besides the errors of :meth:`Microdata.from_frame`: if an identifier is missing, a
            household variable differs within a household, there are fewer than two households, or
            `head` is given and a household has not exactly one.
        """
        check_kind(pd.DataFrame, "Households.from_frame(frame, household)", frame=frame)
        names = [str(name) for name in frame.columns]
        columns = chosen_columns(variables, household, household_variables, names)
        chosen = tuple(name for name in columns if name != household)
        persons = Microdata.from_frame(frame, chosen, levels)
        of_household, ids = identify(frame.iloc[:, names.index(household)], household)
        if len(ids) < 2:
            raise MicrodataError(
                "all persons are of one household; at least two are needed", column=household
            )
        household_level = tuple(name for name in chosen if name in household_variables)
        return cls._arranged(
            persons, of_household, ids, household, household_level, head, columns.index(household)
        )

    @classmethod
    def _arranged(
        cls,
        persons: Microdata,
        of_household: np.ndarray,
        ids: np.ndarray,
        household: str,
        household_level: tuple[str, ...],
        head: tuple[str, Label] | None,
        id_position: int,
    ) -> "Households":
        """Households of coded persons, given each person's household (N,)."""
        chosen = persons.schema.variables
        for name in household_level:
            require_constant(persons, name, of_household, ids)
        sizes = np.bincount(of_household)
        schema = HouseholdSchema(
            persons.schema,
            household,
            household_level,
            head,
            size_variable_of(persons, household_level, of_household, sizes),
            id_position,
        )
        is_head = np.zeros(persons.n, dtype=bool)
        if head is not None:
            is_head = persons.codes[:, chosen.index(head[0])] == schema.head_code
            require_one_head(is_head, of_household, ids, head)
        # Household by household, the head first, in the order of the frame.
        rows = np.lexsort((np.arange(persons.n), ~is_head, of_household))
        codes = persons.codes[rows]
        first = np.cumsum(sizes) - sizes
        at_household_level = (*schema.modelled_household_level, *schema.head_variables)
        household_codes = codes[first][:, [chosen.index(name) for name in at_household_level]]
        members = codes[~is_head[rows]][:, [chosen.index(name) for name in schema.personal]]
        if head is not None:
            relationship = members[:, schema.personal.index(head[0])]
            relationship -= relationship > schema.head_code
        return cls(schema, household_codes, sizes, members, ids, rows)

    def with_persons(
        self, persons: Microdata, head: tuple[str, Label] | None = None
    ) -> "Households":
        """Return the same households with other codes of their persons, or with a head.

        Parameters
        ----------
        persons : Microdata
            As `persons`, in the same order of persons, with the same variables or some of them.
        head : (str, label), optional
            As for :meth:`from_frame`.

        Raises
        ------
        MicrodataError
            As :meth:`from_frame`.
        """
        schema, kept = self.schema, persons.schema.variables
        return self._arranged(
            persons, self.of_household, self.ids, schema.household,
            tuple(name for name in schema.household_level if name in kept), head,
            min(schema.id_position, len(kept)),
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return the persons with their labels and household identifiers, in the order of
        ``rows``: the frame that was coded, or synthetic persons in the same columns."""
        frame = self.persons.to_frame()
        ids = self.ids[self.of_household]
        frame.insert(self.schema.id_position, self.schema.household, pd.Series(ids).infer_objects())
        return frame

    @property
    def of_household(self) -> np.ndarray:
        """(N,) household of each person, in the order of ``rows``, counted from 0."""
        return np.repeat(np.arange(self.n), self.sizes)[np.argsort(self.rows, kind="stable")]

    @cached_property
    def persons(self) -> Microdata:
        """The persons without their household identifiers, in the order of ``rows``."""
        schema = self.schema
        of_household = np.repeat(np.arange(self.n), self.sizes)
        is_head = np.zeros(len(of_household), dtype=bool)
        if schema.head is not None:
            is_head[np.cumsum(self.sizes) - self.sizes] = True
        codes = np.empty((len(of_household), len(schema.table.variables)), dtype=np.int32)
        for j, name in enumerate(schema.table.variables):
            if name == schema.size_variable:
                codes[:, j] = self._size_column(name)[of_household]
            elif name in schema.household_level:
                k = schema.household_variables.index(name)
                codes[:, j] = self.household_codes[of_household, k]
            else:
                column = self.member_codes[:, schema.member_variables.index(name)]
                if schema.head is None:
                    codes[:, j] = column
                elif name == schema.head[0]:
                    codes[is_head, j] = schema.head_code
                    codes[~is_head, j] = column + (column >= schema.head_code)
                else:
                    k = schema.household_variables.index(f"head_{name}")
                    codes[is_head, j] = self.household_codes[:, k]
                    codes[~is_head, j] = column
        return Microdata(schema.table, codes[np.argsort(self.rows, kind="stable")])

    def __len__(self) -> int:
        """Return the number of households."""
        return self.n

    @property
    def n(self) -> int:
        """Number of households."""
        return len(self.sizes)

    @property
    def num_persons(self) -> int:
        """Number of persons, heads included, N."""
        return len(self.rows)

    @property
    def num_members(self) -> int:
        """Number of members, M."""
        return len(self.member_codes)

    @property
    def household_variables(self) -> tuple[str, ...]:
        """Names of the q household variables."""
        return self.schema.household_variables

    @property
    def member_variables(self) -> tuple[str, ...]:
        """Names of the p member variables."""
        return self.schema.member_variables

    @cached_property
    def member_household(self) -> np.ndarray:
        """The (M,) int32 index of each member's household, ascending."""
        members = self.sizes - self.schema.num_heads
        return read_only(np.repeat(np.arange(self.n), members))

    @cached_property
    def size_blocks(self) -> tuple[SizeBlock, ...]:
        """The households by size, the smallest first."""
        members = self.sizes - self.schema.num_heads
        first = np.cumsum(members) - members
        blocks = []
        for size in np.unique(self.sizes):
            households = np.flatnonzero(self.sizes == size)
            index = first[households, None] + np.arange(size - self.schema.num_heads)
            blocks.append(
                SizeBlock(
                    int(size), households, self.household_codes[households],
                    self.member_codes[index], index,
                )
            )  # fmt: skip
        return tuple(blocks)

    @cached_property
    def order_by_size(self) -> tuple[np.ndarray, np.ndarray]:
        """Households, (n,), and rows of ``member_codes``, (M,), in the order of ``size_blocks``."""
        return (
            np.concatenate([block.households for block in self.size_blocks]),
            np.concatenate([block.members.reshape(-1) for block in self.size_blocks]),
        )

    @property
    def has_missing(self) -> bool:
        """Whether any value is missing."""
        return bool((self.household_codes < 0).any() or (self.member_codes < 0).any())

    @property
    def digest(self) -> str:
        """SHA-256 of the schema and the codes, in hexadecimal digits."""
        return content_digest(self.schema, self.household_codes, self.sizes, self.member_codes)

    @property
    def incomplete(self) -> np.ndarray:
        """Households that have a missing value, their own or a member's: (n,) bool array."""
        incomplete = np.asarray((self.household_codes < 0).any(axis=1))
        incomplete[self.member_household[(self.member_codes < 0).any(axis=1)]] = True
        return incomplete

    def first_row(self, household: int) -> int:
        """Return the 0-based row of the frame in which a household (its index) first occurs."""
        start = int(self.sizes[:household].sum())
        return int(self.rows[start : start + self.sizes[household]].min())

    def require_complete(self, what: str) -> None:
        """Check that no value is missing.

        Parameters
        ----------
        what : str
            Name of the task that needs complete households, for the message.

        Raises
        ------
        MicrodataError
            If a value is missing; it names the first such household.
        """
        incomplete = np.flatnonzero(self.incomplete)
        if incomplete.size == 0:
            return
        i = int(incomplete[0])
        raise MicrodataError(
            f"household {quoted(plain_label(self.ids[i]))} has a missing value ({incomplete.size} "
            f"of {self.n} households are incomplete) and {what} needs complete households; drop "
            "them, or complete them with bnp-models impute --model ndpmpm",
            row=self.first_row(i),
        )

    def select(self, chosen: np.ndarray) -> "Households":
        """Return some of the households, with the same schema.

        Parameters
        ----------
        chosen : (n,) bool array or (k,) integer array
            Marks of the households, or their indices in any order.
        """
        index = np.arange(self.n)[chosen]
        rows = np.split(self.rows, np.cumsum(self.sizes)[:-1])
        members = np.split(self.member_codes, np.cumsum(self.sizes - self.schema.num_heads)[:-1])
        return Households(
            self.schema,
            self.household_codes[index],
            self.sizes[index],
            np.concatenate([self.member_codes[:0], *(members[i] for i in index)]),
            self.ids[index],
            np.concatenate([self.rows[:0], *(rows[i] for i in index)]),
        )

    def _size_column(self, name: str) -> np.ndarray:
        """Return the (n,) codes of a size variable."""
        column = codes_of_sizes(self.schema.labels(name), self.sizes)
        if (column < 0).any():
            raise MicrodataError(
                "the variable is the number of persons, but no level stands for a household of "
                f"{self.sizes[np.argmax(column < 0)]} persons; declare one",
                column=name,
            )
        return column

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        schema, size = self.schema, self.sizes
        what = f"{counted(self.n, 'household')} of {counted(self.num_persons, 'person')}"
        household = levels_by_variable(schema.household_variables, schema.household_levels)
        member = levels_by_variable(schema.member_variables, schema.member_levels)
        lines = {
            "persons a household": f"{size.min()} to {size.max()}, {size.mean():.2f} on average",
            "head": None if schema.head is None else " = ".join(map(str, schema.head)),
            **{f"household: {name}": text for name, text in household.items()},
            **{f"member: {name}": text for name, text in member.items()},
            "missing": f"values in {self.incomplete.sum():,} households"
            if self.has_missing
            else None,
        }
        return Shown(f"Households: {what}", lines)


def read_households(
    path: str | PathLike,
    household: str = "hid",
    household_variables: Sequence[str] = (),
    variables: Sequence[str] | None = None,
    levels: Levels | Schema | str | PathLike | None = None,
    head: tuple[str, Label] | None = None,
    reading: Reading = AS_FOUND,
) -> Households:
    """Read persons from a file of any format that :func:`read_microdata` reads.

    Parameters
    ----------
    path : str or path
        One person a row, with a header; read as by :func:`read_microdata`.
    household, household_variables, variables, head
        As in :meth:`Households.from_frame`.
    levels : path, mapping, frame or Schema, optional
        Declared levels, or the file that :func:`~bnp_models.io.read_levels` reads.
    reading : Reading, optional
        As for :func:`read_microdata`.

    Raises
    ------
    MicrodataError
        If the file cannot be read or used; it names the file, row, line, column and value.

    Examples
    --------
    >>> households.to_frame().to_csv("persons.csv", index=False)
    >>> read = bnp.read_households("persons.csv", household="household")
    >>> len(read)
    20
    """

    def code(frame, declared):
        columns = tuple(frame.columns)
        found = Households.from_frame(
            frame, household, household_variables, columns, declared, head
        )
        tell_of_numbers(path, found.of_household)
        return found

    return read_coded(
        path,
        levels,
        lambda names: chosen_columns(variables, household, household_variables, names),
        code,
        reading,
        (household, *household_variables, *(variables or ())),
        (household,),
    )


def persons_of(table: Records | Households) -> Records:
    """Return the persons of households; a table of records is returned unchanged.

    Parameters
    ----------
    table
        Households, or a table of records.

    Examples
    --------
    >>> bnp.data.persons_of(households).n == households.num_persons
    True
    """
    return table.persons if isinstance(table, Households) else table
