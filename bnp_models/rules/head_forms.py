"""Rules of households as tables over the joint levels of a head and one other member.

Most rules in practice compare the head with each other member. Judging a household by tables takes
time in proportion to the number of its members, whatever the number of rules is.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.rules.persons import PersonPredicate
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Comparison, Parts
from bnp_models.rules.views import Columns, JointLevels, codes_of_joint, schema_of

# Entries of the largest table for which a head form is made.
_MAX_ENTRIES = 2**25


@dataclass(frozen=True, eq=False)
class HeadForm:
    """Rules of the form: exactly one head, and each other member fits that head.

    Household ``b`` (its joint level of the household columns read) with members of joint levels
    ``r_1..r_m`` is possible if and only if

    - exactly one member has ``is_head``, say with ``r = heads[a]``; with the head at household
      level, none has, and a = 0;
    - ``head_ok[b, a]``;
    - ``pair_ok[b, a, r]`` for every other member;
    - of the other members, at most ``count`` are marked by ``mask``, for each of ``at_most``;
    - of the other members, none is marked by one mask while another is by the other, for each of
      ``apart``;
    - the rules in ``rest`` hold.

    Joint levels count the last variable fastest.

    Attributes
    ----------
    schema : HouseholdSchema
    columns : Columns
        The columns of the joint levels: B of a household, R of a member.
    num_household_levels, num_member_levels : tuples of int
        Numbers of levels of these columns; B and R are the products.
    is_head : (R,) bool array
        Joint levels of a head among the members; none if the head is at household level.
    heads : (A,) int64 array
        Joint levels for which ``is_head`` is true, ascending; with the head at household level, -1.
    head_ok : (B, A) bool array
        Whether a household may have this head.
    pair_ok : (B, A, R) bool array
        Whether this head and this other member may be in a household; False for another head.
    at_most : tuple of ((R,) bool array, int)
        Marked joint levels, and how many other members may have one of them.
    apart : tuple of ((R,) bool array, (R,) bool array)
        Marked joint levels that no two other members have, one of each.
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
    parts = {rule: part for rule in rules if (part := rule.parts()) is not None}
    head_rule = next(
        (rule for rule, part in parts.items() if len(part.one) == 1 and not part.one[0].household),
        None,
    )
    if head_rule is None and schema.head is None:
        return None
    in_form = {
        rule: part
        for rule, part in parts.items()
        if (not part.one or rule is head_rule)
        and schema.size_variable not in rule.variables.household
    }
    while True:
        if schema.head is None and head_rule not in in_form:
            return None
        columns = Rules(in_form).columns(schema)
        tables = _start(schema, None if head_rule is None else parts[head_rule].one[0], columns)
        if tables is None:
            return None
        misfit = next((rule for rule, part in in_form.items() if not tables.add(part)), None)
        if misfit is None:
            break
        # The columns, and so the tables, may be fewer without the rule.
        del in_form[misfit]
    return HeadForm(
        schema=schema,
        columns=columns,
        num_household_levels=tuple(schema.num_household_levels[j] for j in columns.household),
        num_member_levels=tuple(schema.num_member_levels[j] for j in columns.member),
        is_head=tables.is_head,
        heads=tables.heads,
        head_ok=tables.head_ok[:, :, 0],
        pair_ok=tables.pair_ok,
        at_most=tuple(tables.at_most),
        apart=tuple(tables.apart),
        rest=Rules(rule for rule in rules if rule not in in_form),
    )


@dataclass(eq=False)
class _Tables:
    """Tables of a head form, to which rules are added.

    Attributes
    ----------
    is_head : (R,) bool array
    heads : (A,) int64 array
        As in `HeadForm`.
    the_head, other : JointLevels
        The head and one other member, of shapes that broadcast to (B, A, R).
    head_ok : (B, A, 1) bool array
    pair_ok : (B, A, R) bool array
    at_most, apart : lists
        As in `HeadForm`.
    """

    is_head: np.ndarray
    heads: np.ndarray
    the_head: JointLevels
    other: JointLevels
    head_ok: np.ndarray
    pair_ok: np.ndarray
    at_most: list[tuple[np.ndarray, int]] = field(default_factory=list)
    apart: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, part: Parts) -> bool:
        """Add a rule; return False, and leave the tables unfit for use, if it has another form."""
        return (
            all(self._is_the_head(who) for who in part.one)
            and all(self._add_each(who, what) for who, what in part.unary)
            and all(self._add_comparison(pair) for pair in part.pairs)
            and all(self._add_never(first, second) for first, second in part.never)
            and all(self._add_at_most(who, count) for who, count in part.at_most)
        )

    def _is_the_head(self, who: PersonPredicate) -> bool:
        """Return whether a predicate is true of the head and of no other member."""
        other = (who.mask(self.other) & ~self.is_head).any()
        return bool(who.mask(self.the_head).all() and not other)

    def _add_each(self, who: PersonPredicate, what: PersonPredicate) -> bool:
        """Add: everyone who is ``who`` has ``what``; always of the form."""
        self.head_ok &= ~who.mask(self.the_head) | what.mask(self.the_head)
        self.pair_ok &= ~who.mask(self.other) | what.mask(self.other)
        return True

    def _add_comparison(self, pair: Comparison) -> bool:
        """Add a comparison; of the form unless it compares two other members."""
        who, whom = (one.mask(self.other) & ~self.is_head for one in (pair.who, pair.whom))
        if who.any() and whom.any():
            return False
        is_whom, is_who = pair.whom.mask(self.the_head), pair.who.mask(self.the_head)
        self.pair_ok &= ~(who & is_whom) | pair.related(self.other, self.the_head)
        self.pair_ok &= ~(is_who & whom) | pair.related(self.the_head, self.other)
        return True

    def _add_never(self, first: PersonPredicate, second: PersonPredicate) -> bool:
        """Add: not both are true, of one or two persons; of the form unless households decide."""
        masks = self._of_others(first), self._of_others(second)
        if masks[0] is None or masks[1] is None:
            return False
        self.head_ok &= ~(first.mask(self.the_head) & second.mask(self.the_head))
        self.pair_ok &= ~(first.mask(self.other) & second.mask(self.other))
        self.pair_ok &= ~(first.mask(self.the_head) & second.mask(self.other))
        self.pair_ok &= ~(first.mask(self.other) & second.mask(self.the_head))
        if masks[0].any() and masks[1].any():
            self.apart.append((masks[0], masks[1]))
        return True

    def _add_at_most(self, who: PersonPredicate, count: int) -> bool:
        """Add: at most so many are ``who``; of the form if it is true of all heads or of none."""
        of_head, mask = who.mask(self.the_head), self._of_others(who)
        if mask is None or of_head.any() != of_head.all():
            return False
        count -= int(of_head.all() and of_head.size > 0)
        if count <= 0:
            self.pair_ok &= ~mask
        if mask.any():
            self.at_most.append((mask, count))
        return True

    def _of_others(self, who: PersonPredicate) -> np.ndarray | None:
        """Return the (R,) joint levels of such other members, None if the household decides."""
        mask = who.mask(self.other)
        if (mask != mask[:1]).any():
            return None
        return np.broadcast_to(mask[:1], (1, 1, len(self.is_head)))[0, 0] & ~self.is_head


def _start(
    schema: HouseholdSchema, head: PersonPredicate | None, columns: Columns
) -> _Tables | None:
    """Return tables that no rule restricts, in some columns; None if they would be too large.

    Without a head at household level, the predicate says which members are heads.
    """
    num_b = [schema.num_household_levels[j] for j in columns.household]
    num_r = [schema.num_member_levels[j] for j in columns.member]
    B, R = math.prod(num_b), math.prod(num_r)
    if B * R > _MAX_ENTRIES:
        return None
    households = {
        schema.household_variables[j]: codes[:, None, None]
        for j, codes in zip(columns.household, codes_of_joint(num_b), strict=True)
    }
    members = {
        schema.member_variables[j]: codes
        for j, codes in zip(columns.member, codes_of_joint(num_r), strict=True)
    }
    if schema.head is not None:
        relationship = schema.head[0]
        if relationship in members:
            codes = members[relationship]
            members[relationship] = codes + (codes >= schema.head_code)
        is_head, heads = np.zeros(R, dtype=bool), np.array([-1])
        of_head = {
            name: households.get(f"head_{name}", np.zeros((B, 1, 1), dtype=np.int32))
            for name in members
        }
        of_head[relationship] = np.full((B, 1, 1), schema.head_code, dtype=np.int32)
    else:
        assert head is not None
        is_head = head.mask(JointLevels(schema, members, {}, (R,)))
        heads = np.flatnonzero(is_head)
        of_head = {name: codes[heads][None, :, None] for name, codes in members.items()}
    A = len(heads)
    if B * A * R > _MAX_ENTRIES:
        return None
    of_other = {name: codes[None, None, :] for name, codes in members.items()}
    return _Tables(
        is_head=is_head,
        heads=heads,
        the_head=JointLevels(schema, of_head, households, (1, A, 1)),
        other=JointLevels(schema, of_other, households, (1, 1, R)),
        head_ok=np.ones((B, A, 1), dtype=bool),
        pair_ok=np.broadcast_to(~is_head, (B, A, R)).copy(),
    )
