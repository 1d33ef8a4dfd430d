"""Members' values relative to those of their head, so that classes need not represent ages.

Given its classes, a household's members are independent of their head (Hu, Reiter & Wang 2018,
doi:10.1214/16-BA1047). The ages of couples are then similar only if there are classes of households
for each age. If age is coded as the difference from the head's age, this similarity is one narrow
distribution for all couples. If race is coded as equal to the head's or not, no class for each race
is needed. Given the head, codes and values correspond one to one, so that no household is added or
lost. Rules are applied to the values that the codes represent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.label_numbers import are_ordered
from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, MicrodataError, plain_label
from bnp_models.rules.rules import CompiledRules
from bnp_models.rules.views import codes_of_joint, joint_level

KINDS = ("difference", "same")


class Pair(NamedTuple):
    """Columns of a variable of members, and of the same variable of their head."""

    household: int
    """Column of the household codes."""
    member: int
    """Column of the member codes."""
    kind: str
    """One of `KINDS`."""
    num_levels: int
    """Number of levels of both."""

    @property
    def decoded(self) -> np.ndarray:
        """Level that each code represents, by level of the head: (L, L) int32."""
        level = np.arange(self.num_levels, dtype=np.int32)
        if self.kind == "difference":
            return (level[:, None] + level) % self.num_levels
        # Code 0 is the head's level; level 0 gets the code of the head's level.
        head = np.broadcast_to(level[:, None], (self.num_levels,) * 2)
        return np.where(level == 0, head, np.where(level == head, 0, level)).astype(np.int32)

    @property
    def coded(self) -> np.ndarray:
        """Code of each level, by level of the head: (L, L) int32."""
        return np.argsort(self.decoded, axis=1).astype(np.int32)


@dataclass(frozen=True)
class RelativeCoding:
    """Codes of members relative to their heads; hashable.

    Parameters
    ----------
    schema
        Schema of households with the head at household level.
    variables
        Variables of persons. Each is a name, or a pair of a name and a kind. "difference" is the
        number of levels from the head's level, modulo the number of levels; "same" gives code 0 to
        the head's level. Without a kind it is "difference" if the labels are numbers in order, and
        otherwise "same".

    Raises
    ------
    MicrodataError
        If the head is not at household level, or a variable is unknown, repeated, or the
        relationship.
    """

    schema: HouseholdSchema
    variables: tuple[str | tuple[str, str], ...]

    def __post_init__(self):
        schema = self.schema
        if schema.head is None:
            raise MicrodataError(
                "to model values relative to those of the head, the head must be described by "
                "variables of the household; name the relationship variable and its label for the "
                "head"
            )
        names = [name for name, _ in self._named]
        known = [name for name in schema.member_variables if name != schema.head[0]]
        for name, kind in self._named:
            if name not in known:
                raise MicrodataError(
                    f"cannot be relative to the head's value, only {', '.join(known)} can; "
                    "leave it out",
                    column=name,
                )
            if names.count(name) > 1:
                raise MicrodataError("the variable is relative twice; list it once", column=name)
            if kind not in (None, *KINDS):
                raise MicrodataError(
                    f"the kind must be {' or '.join(KINDS)}, not {kind!r}", column=name
                )

    @property
    def _named(self) -> list[tuple[str, str | None]]:
        """Names of the variables, and their kinds if these are given."""
        return [(one, None) if isinstance(one, str) else (one[0], one[1]) for one in self.variables]

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Columns of each variable, of the members and of their head."""
        schema, pairs = self.schema, []
        for name, kind in self._named:
            member = schema.member_variables.index(name)
            labels = schema.member_levels[member]
            pairs.append(
                Pair(
                    schema.household_variables.index(f"head_{name}"), member,
                    kind or _kind_of(labels), len(labels),
                )
            )  # fmt: skip
        return tuple(pairs)

    def encode(self, household_codes: np.ndarray, member_codes: np.ndarray) -> np.ndarray:
        """Code members relative to their heads.

        Parameters
        ----------
        household_codes
            (.., q) level codes.
        member_codes
            (.., m, p) level codes; -1 stays -1.
        """
        return self._recoded(np, household_codes, member_codes, [p.coded for p in self.pairs])

    def decode(self, household_codes: np.ndarray, member_codes: np.ndarray, xp=np) -> np.ndarray:
        """Return level codes for codes relative to the head's; `xp` is the module of the arrays."""
        return self._recoded(xp, household_codes, member_codes, [p.decoded for p in self.pairs])

    def _recoded(self, xp, household_codes, member_codes, tables):
        """Member codes by the table of each pair, whose first index is the head's level."""
        columns = [member_codes[..., j] for j in range(member_codes.shape[-1])]
        for pair, table in zip(self.pairs, tables, strict=True):
            head, codes = household_codes[..., None, pair.household], columns[pair.member]
            columns[pair.member] = xp.where(codes < 0, codes, xp.asarray(table)[head, codes])
        return xp.stack(columns, axis=-1)

    def columns(self, household: Sequence[int], member: Sequence[int]) -> tuple[int, ...]:
        """Household columns that rules need to read these columns of households and of members.

        Beside the given household columns they are the head's columns of those member columns that
        are coded relative to the head.
        """
        heads = {pair.household for pair in self.pairs if pair.member in member}
        return tuple(sorted({*household, *heads}))

    def decoded_levels(
        self, household: Sequence[int], member: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Joint levels that the codes represent.

        Parameters
        ----------
        household, member
            Columns that rules use; in joint levels the last column varies fastest.

        Returns
        -------
        households
            (B',) joint level of `household` of each joint level of `columns(household, member)`.
        members
            (B', R) joint level of `member` that each joint code represents.
        """
        schema, extended = self.schema, self.columns(household, member)
        num_household = [schema.num_household_levels[k] for k in extended]
        num_member = [schema.num_member_levels[j] for j in member]
        heads = dict(zip(extended, codes_of_joint(num_household), strict=True))
        of_member = {pair.member: pair for pair in self.pairs}
        shape = (math.prod(num_household), math.prod(num_member))
        members = []
        for j, codes in zip(member, codes_of_joint(num_member), strict=True):
            if j in of_member:
                head = heads[of_member[j].household]
                codes = of_member[j].decoded[head[:, None], codes]
            members.append(np.broadcast_to(codes, shape))
        levels = [np.broadcast_to(heads[k], shape[:1]) for k in household]
        household_levels = np.stack([np.zeros(shape[0], np.int32), *levels], axis=-1)
        member_levels = np.stack([np.zeros(shape, np.int32), *members], axis=-1)
        num_household = [schema.num_household_levels[k] for k in household]
        return (
            joint_level(household_levels, [1, *num_household]),
            joint_level(member_levels, [1, *num_member]),
        )

    def require_heads(self, table: Households) -> None:
        """Raise `MicrodataError`, naming the first such household, if a head's value is missing."""
        of_head = [pair.household for pair in self.pairs]
        unknown = np.flatnonzero((table.household_codes[:, of_head] < 0).any(axis=1))
        if unknown.size:
            i = int(unknown[0])
            raise MicrodataError(
                f"the head of household {quoted(plain_label(table.ids[i]))} has a missing value of "
                f"a variable that is modelled relative to the head ({unknown.size} such "
                "households); fill it in, or do not model the variable relative to the head",
                row=table.first_row(i),
            )


@dataclass(frozen=True)
class RelativePredicate:
    """Predicate of relative codes, by rules on the levels that they represent; hashable."""

    coding: RelativeCoding
    rules: CompiledRules

    def __call__(self, household_codes, member_codes):
        """Judge households of one size by `CompiledRules`, given codes relative to the head's."""
        return self.rules(household_codes, self.coding.decode(household_codes, member_codes, jnp))

    def on_numpy(self, household_codes: np.ndarray, member_codes: np.ndarray) -> np.ndarray:
        """Judge households like `__call__`, but without JAX."""
        return self.rules.on_numpy(
            household_codes, self.coding.decode(household_codes, member_codes)
        )


def _kind_of(labels: Sequence[Label]) -> str:
    """Kind of a variable with these labels: "difference" if they are numbers in order."""
    return KINDS[0] if are_ordered(labels) else KINDS[1]
