"""Members' values relative to those of their head, so that classes need not represent ages.

Given its classes, a household's members are independent of their head (Hu, Reiter & Wang 2018,
doi:10.1214/16-BA1047). The ages of couples are then similar only if there are classes of households
for each age. If age is coded as the difference from the head's age, this similarity is one narrow
distribution for all couples. If race is coded as equal to the head's or not, no class for each race
is needed. A variable may be coded so for some relationships to the head only, such as the age of
spouses. Given the head and the relationship, codes and values correspond one to one, so that no
household is added or lost. Rules are applied to the values that the codes represent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.label_numbers import are_ordered
from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import Label, MicrodataError, plain_label
from bnp_models.models.level_prior import are_numbers
from bnp_models.rules.rules import CompiledRules
from bnp_models.rules.views import codes_of_joint, joint_level

KINDS = ("difference", "same")

Relative: TypeAlias = str | tuple[str, str | None] | tuple[str, str | None, tuple[Label, ...]]
"""A variable whose values are relative to the head's, with a kind and relationships if given."""

LEAST_GAIN, LEAST_GAIN_OF_ONE = 10.0, {"difference": 0.5, "same": 0.1}
"""Least gains in log probability, in all and for each member, for which `relative_to_heads` chooses
codes relative to the head's value (experiments/synthesis/member_classes)."""


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
    applies: tuple[bool, ...]
    """Whether members of each relationship to the head have codes relative to the head's value; the
    others have their levels."""

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
        Variables of persons. Each is a name; or a name and a kind; or a name, a kind and the labels
        of the relationships whose members are coded so (default: all members). "difference" is the
        number of levels from the head's level, modulo the number of levels; "same" gives code 0 to
        the head's level. Without a kind, or if it is None, it is "difference" if the labels are
        numbers in order, and otherwise "same".

    Raises
    ------
    MicrodataError
        If the head is not at household level, a variable is unknown, repeated, or the relationship,
        or a relationship is unknown.
    """

    schema: HouseholdSchema
    variables: tuple[Relative, ...]

    def __post_init__(self):
        schema = self.schema
        if schema.head is None:
            raise MicrodataError(
                "to model values relative to those of the head, the head must be described by "
                "variables of the household; name the relationship variable and its label for the "
                "head"
            )
        names = [name for name, *_ in self._named]
        known = [name for name in schema.member_variables if name != schema.head[0]]
        relationships = schema.member_levels[self.relationship]
        for name, kind, labels in self._named:
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
            if unknown := [label for label in labels or () if label not in relationships]:
                raise MicrodataError(
                    f"{quoted(unknown[0])} is no relationship to the head, which are "
                    f"{listing(relationships)}; leave it out of those for which {name} is relative",
                    column=schema.head[0],
                )

    @property
    def _named(self) -> list[tuple[str, str | None, tuple[Label, ...] | None]]:
        """Names of the variables, and their kinds and relationships if these are given."""
        every = ((one,) if isinstance(one, str) else one for one in self.variables)
        return [(*one, *(None, None)[len(one) - 1 :]) for one in every]

    @property
    def relationship(self) -> int:
        """Column of the members' relationship to the head."""
        assert self.schema.head is not None
        return self.schema.member_variables.index(self.schema.head[0])

    @property
    def reads_relationship(self) -> bool:
        """Whether a variable is coded so for some relationships only."""
        return not all(all(pair.applies) for pair in self.pairs)

    @cached_property
    def patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """Sets of pairs that apply together: which (P, pairs), and the set of each relationship."""
        applies = np.array([pair.applies for pair in self.pairs], bool)
        patterns, of_relationship = np.unique(applies, axis=1, return_inverse=True)
        return patterns.T, of_relationship.reshape(-1)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Columns of each variable, of the members and of their head."""
        schema, pairs = self.schema, []
        relationships = schema.member_levels[self.relationship]
        for name, kind, chosen in self._named:
            member = schema.member_variables.index(name)
            labels = schema.member_levels[member]
            pairs.append(
                Pair(
                    schema.household_variables.index(f"head_{name}"), member,
                    kind or _kind_of(labels), len(labels),
                    tuple(chosen is None or label in chosen for label in relationships),
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
            applies = xp.asarray(pair.applies)[columns[self.relationship]]
            recoded = xp.asarray(table)[head, codes]
            columns[pair.member] = xp.where((codes >= 0) & applies, recoded, codes)
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
            Columns that rules use, among them the relationship if the code of another one depends
            on it; in joint levels the last column varies fastest.

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
        joint = dict(zip(member, codes_of_joint(num_member), strict=True))
        for j, codes in joint.items():
            if j in of_member:
                pair = of_member[j]
                decoded = pair.decoded[heads[pair.household][:, None], codes]
                applies = np.array(pair.applies)[joint.get(self.relationship, 0)]
                codes = np.where(applies, decoded, codes)
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
        """Raise `MicrodataError`, naming the first such household, if a head's value is missing, or
        a relationship that the codes depend on."""
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
        missing = np.flatnonzero(table.member_codes[:, self.relationship] < 0)
        if missing.size and self.reads_relationship:
            i = int(table.member_household[missing[0]])
            raise MicrodataError(
                f"household {quoted(plain_label(table.ids[i]))} has a member whose relationship to "
                "the head is missing, and variables are relative to the head's for some "
                f"relationships only ({missing.size} such members); fill it in, or leave out "
                "relative (--relative none)",
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


def relative_to_heads(table: Households) -> tuple[tuple[str, str, tuple[Label, ...]], ...]:
    """Choose variables, and relationships, for which members are like their head.

    Parameters
    ----------
    table
        The sample, with the heads at household level; otherwise nothing is chosen.

    Returns
    -------
    relative
        The option `relative` of `NDPMPM`: for each chosen variable its name, its kind, and the
        labels of the relationships whose members are to be coded relative to their head.

    Notes
    -----
    A variable is chosen for a relationship if the codes of its members relative to their heads have
    a higher marginal probability under Dir(1/2) than their levels: by `LEAST_GAIN` in natural
    logarithms in all, and by `LEAST_GAIN_OF_ONE` for each member. Codes are differences for
    variables with many levels that are numbers in order. Nothing is chosen if the relationship of a
    member is missing, and no variable of which a head's value is missing.

    Examples
    --------
    >>> bnp.models.relative_to_heads(households)
    ()
    """
    schema = table.schema
    if schema.head is None:
        return ()
    kinds = {
        name: KINDS[0] if are_numbers(levels) else KINDS[1]
        for name, levels in zip(schema.member_variables, schema.member_levels, strict=True)
        if name != schema.head[0]
    }
    coding = RelativeCoding(schema, tuple(kinds.items()))
    relationship = table.member_codes[:, coding.relationship]
    if (relationship < 0).any():
        return ()
    heads = table.household_codes[table.member_household]
    coded = coding.encode(heads, table.member_codes[:, None])[:, 0]
    chosen = []
    for pair, name in zip(coding.pairs, kinds, strict=True):
        if (table.household_codes[:, pair.household] < 0).any():
            continue
        labels = []
        for r, label in enumerate(schema.member_levels[coding.relationship]):
            of = (relationship == r) & (coded[:, pair.member] >= 0)
            gain = _log_marginal(coded[of, pair.member], pair.num_levels) - _log_marginal(
                table.member_codes[of, pair.member], pair.num_levels
            )
            if gain >= max(LEAST_GAIN, LEAST_GAIN_OF_ONE[pair.kind] * of.sum()):
                labels.append(plain_label(label))
        if labels:
            chosen.append((name, pair.kind, tuple(labels)))
    return tuple(chosen)


def _log_marginal(codes: np.ndarray, num_levels: int) -> float:
    """Log marginal probability of codes whose probabilities have the prior Dir(1/2)."""
    counts = np.bincount(codes, minlength=num_levels)
    log_p = gammaln(counts + 0.5).sum() - num_levels * gammaln(0.5)
    return float(log_p + gammaln(num_levels / 2) - gammaln(num_levels / 2 + counts.sum()))


def _kind_of(labels: Sequence[Label]) -> str:
    """Kind of a variable with these labels: "difference" if they are numbers in order."""
    return KINDS[0] if are_ordered(labels) else KINDS[1]
