"""Rules of households as tables over the joint levels of a head and one other member.

Most rules that people write are of a head and each other member; judging a household by tables
takes time in proportion to its members, whatever the number of rules.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.rules.persons import Condition
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Parts, Rule, schema_of
from bnp_models.rules.views import Columns, JointLevels, codes_of_joint, joint_level

# Entries of the largest array of pairs for which a head form is made.
_PAIRS = 2**25


@dataclass(frozen=True, eq=False)
class HeadForm:
    """Rules of the form: exactly one head, and each other member fits that head.

    Household ``b`` (its joint level of the household columns read) with members of joint levels
    ``r_1..r_m`` is possible if and only if

    - exactly one member has ``is_head``, say with ``r = heads[a]``; with the head at household
      level, none has, and a = 0;
    - ``head_ok[b, a]``;
    - ``pair_ok[b, a, r]`` for every other member;
    - of the other members, at most ``count`` are in ``mask``, for each of ``at_most``;
    - of the other members, none is in one mask while another is in the other, for each of
      ``apart``;
    - the rules in ``rest`` hold.

    Joint levels count the last variable fastest.

    Attributes
    ----------
    schema : HouseholdSchema
    columns : Columns
        The columns whose joint levels these are: B of the household's, R of a member's.
    household_variables_read, member_variables_read : tuples of str
        Their names.
    num_household_levels, num_member_levels : tuples of int
        Their numbers of levels; B and R are the products.
    is_head : (R,) bool array
        Joint levels of a head among the members; none if the head is at household level.
    heads : (A,) int64 array
        Where ``is_head``, ascending; with the head at household level A is 1 and the entry -1.
    head_ok : (B, A) bool array
    pair_ok : (B, A, R) bool array
        False for another head.
    at_most : tuple of ((R,) bool array, int)
    apart : tuple of ((R,) bool array, (R,) bool array)
    rest : Rules
        Rules that are not of this form, to be judged by themselves.
    """

    schema: HouseholdSchema
    columns: Columns
    num_household_levels: tuple[int, ...]
    num_member_levels: tuple[int, ...]
    is_head: np.ndarray
    heads: np.ndarray
    head_ok: np.ndarray
    pair_ok: np.ndarray
    at_most: tuple[tuple[np.ndarray, int], ...]
    apart: tuple[tuple[np.ndarray, np.ndarray], ...]
    rest: Rules

    @cached_property
    def household_variables_read(self) -> tuple[str, ...]:
        """Names of the household columns."""
        return tuple(self.schema.household_variables[j] for j in self.columns.household)

    @cached_property
    def member_variables_read(self) -> tuple[str, ...]:
        """Names of the member columns."""
        return tuple(self.schema.member_variables[j] for j in self.columns.member)

    def household_level(self, household_codes: np.ndarray) -> np.ndarray:
        """Return the joint level b, (...), of (..., q) household codes."""
        return joint_level(household_codes[..., self.columns.household], self.num_household_levels)

    def member_level(self, member_codes: np.ndarray) -> np.ndarray:
        """Return the joint level r, (..., m), of (..., m, p) member codes."""
        return joint_level(member_codes[..., self.columns.member], self.num_member_levels)

    def holds(self, household_codes: np.ndarray, member_codes: np.ndarray) -> np.ndarray:
        """Judge households of one size by the tables, ``rest`` included: the definition above.

        Parameters
        ----------
        household_codes : (k, q) integer array
        member_codes : (k, m, p) integer array

        Returns
        -------
        (k,) bool array
        """
        b, r = self.household_level(household_codes), self.member_level(member_codes)
        head = self.is_head[r]
        if self.schema.head is not None:
            possible, a = ~head.any(1), np.zeros(len(b), dtype=np.int64)
        else:
            possible = head.sum(1) == 1
            position = np.take_along_axis(r, head.argmax(1)[:, None], axis=1)[:, 0]
            a = np.where(possible, np.searchsorted(self.heads, position), 0)
            a = np.minimum(a, max(len(self.heads) - 1, 0))
        if len(self.heads) == 0:
            return np.zeros(len(b), dtype=bool)
        possible &= self.head_ok[b, a]
        possible &= (head | self.pair_ok[b[:, None], a[:, None], r]).all(1)
        for mask, count in self.at_most:
            possible &= (mask[r] & ~head).sum(1) <= count
        for first, second in self.apart:
            possible &= ~((first[r] & ~head).any(1) & (second[r] & ~head).any(1))
        rest = self.rest.compile(self.schema)
        return possible & rest.on_numpy(household_codes, member_codes)


def head_form(rules: Rules, schema: Households | HouseholdSchema) -> HeadForm | None:
    """Return the rules as tables over the joint levels of a head and one other member.

    Returns
    -------
    HeadForm or None
        None if there is no rule "exactly one person with ..." of members' variables alone and
        the schema has no head, or the tables would be too large. Rules that compare members
        other than the head with each other, count them in other ways, or were written in
        Python are left in ``rest``.
    """
    schema = schema_of(schema)
    parts = {rule: rule.parts() for rule in rules}
    one = [(rule, found.one[0]) for rule, found in parts.items()
           if found is not None and len(found.one) == 1 and not found.one[0].household]  # fmt: skip
    head_rule, head = one[0] if one else (None, None)
    if head is None and schema.head is None:
        return None
    form = [
        rule
        for rule, found in parts.items()
        if found is not None
        and (not found.one or rule is head_rule)
        and schema.size_variable not in rule.variables.household
    ]
    while True:
        made = _head_tables(schema, head, {rule: parts[rule] for rule in form})
        if made is None or isinstance(made, dict):
            break
        form.remove(made)
    if made is None or head_rule not in form and schema.head is None:
        return None
    return HeadForm(schema=schema, rest=Rules(rule for rule in rules if rule not in form), **made)


def _head_tables(schema: HouseholdSchema, head: Condition | None, parts: Mapping[Rule, Parts]):
    """Return the fields of a head form, None if they are too large, or a rule that is not of that
    form."""
    columns = Rules(parts).columns(schema)
    num_b = tuple(schema.num_household_levels[j] for j in columns.household)
    num_r = tuple(schema.num_member_levels[j] for j in columns.member)
    B, R = math.prod(num_b), math.prod(num_r)
    if B * R > _PAIRS:
        return None
    of_b, of_r = codes_of_joint(num_b), codes_of_joint(num_r)
    households = {
        schema.household_variables[j]: codes[:, None, None]
        for j, codes in zip(columns.household, of_b, strict=True)
    }
    members = {
        schema.member_variables[j]: codes for j, codes in zip(columns.member, of_r, strict=True)
    }
    if schema.head is None:
        is_head = head.mask(JointLevels(schema, members, {}, (R,)))
        heads = np.flatnonzero(is_head)
        of_heads = {name: codes[heads][None, :, None] for name, codes in members.items()}
    else:
        relationship = schema.head[0]
        if relationship in members:
            codes = members[relationship]
            members[relationship] = codes + (codes >= schema.head_code)
        is_head, heads = np.zeros(R, dtype=bool), np.array([-1])
        of_heads = {
            name: households.get(f"head_{name}", np.zeros((B, 1, 1), dtype=np.int32))
            for name in members
        }
        of_heads[relationship] = np.full((B, 1, 1), schema.head_code, dtype=np.int32)
    A = len(heads)
    if B * A * R > _PAIRS:
        return None
    the_head = JointLevels(schema, of_heads, households, (1, A, 1))
    of_others = {name: codes[None, None, :] for name, codes in members.items()}
    other = JointLevels(schema, of_others, households, (1, 1, R))
    head_ok = np.ones((B, A, 1), dtype=bool)
    pair_ok = np.broadcast_to(~is_head, (B, A, R)).copy()
    at_most, apart = [], []

    def on_others(condition):
        """(R,) mask over members other than the head, None if it depends on the household."""
        mask = condition.mask(other)
        if mask.shape[0] != 1:
            if (mask != mask[:1]).any():
                return None
            mask = mask[:1]
        return np.broadcast_to(mask, (1, 1, R)).reshape(R) & ~is_head

    for rule, part in parts.items():
        for who in part.one:
            # With the head at household level the rule must be about that head.
            if not who.mask(the_head).all() or (who.mask(other) & ~is_head).any():
                return rule
        for who, what in part.unary:
            head_ok &= ~who.mask(the_head) | what.mask(the_head)
            pair_ok &= ~who.mask(other) | what.mask(other)
        for pair in part.pairs:
            who, whom = pair.who.mask(other) & ~is_head, pair.whom.mask(other) & ~is_head
            if who.any() and whom.any():
                return rule
            pair_ok &= ~(who & pair.whom.mask(the_head)) | pair.related(other, the_head)
            pair_ok &= ~(pair.who.mask(the_head) & whom) | pair.related(the_head, other)
        for first, second in part.never:
            masks = [on_others(first), on_others(second)]
            if masks[0] is None or masks[1] is None:
                return rule
            head_ok &= ~(first.mask(the_head) & second.mask(the_head))
            pair_ok &= ~(first.mask(other) & second.mask(other))
            pair_ok &= ~(first.mask(the_head) & second.mask(other))
            pair_ok &= ~(first.mask(other) & second.mask(the_head))
            if masks[0].any() and masks[1].any():
                apart.append((masks[0], masks[1]))
        for who, count in part.at_most:
            of_head, mask = who.mask(the_head), on_others(who)
            if mask is None or of_head.any() != of_head.all():
                return rule
            count -= int(of_head.all() and of_head.size > 0)
            if count <= 0:
                pair_ok &= ~mask
            if mask.any():
                at_most.append((mask, count))
    return {
        "columns": columns,
        "num_household_levels": num_b,
        "num_member_levels": num_r,
        "is_head": is_head,
        "heads": heads,
        "head_ok": head_ok[:, :, 0],
        "pair_ok": pair_ok,
        "at_most": tuple(at_most),
        "apart": tuple(apart),
    }
