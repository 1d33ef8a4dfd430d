"""Arrays of coded households and of their rules for the nested model."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households, SizeBlock
from bnp_models.data.schema import MicrodataError
from bnp_models.kernels.nested.judges import HeadTables
from bnp_models.kernels.nested.members import Places, in_parts, merge_plan
from bnp_models.kernels.nested.parameters import Head, Variables
from bnp_models.kernels.numerics.counting import first_rows, variable_of_rows
from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.kernels.variates.levels import Levels, Tree
from bnp_models.models.level_prior import Grouping, learns_levels, under_prior
from bnp_models.models.nested.head_tables import head_of, head_tables
from bnp_models.models.nested.options import NestedOptions
from bnp_models.models.nested.relative import RelativeCoding, RelativePredicate
from bnp_models.models.nested.starts import complete_households
from bnp_models.models.nested.state import Missing, NestedData
from bnp_models.rules.head_forms import head_form
from bnp_models.rules.rules import CompiledRules, Rules

DISTINCT_BELOW = 0.8
"""Largest share of distinct members for which probabilities are computed once per distinct one."""

PARTS_ON_ACCELERATORS = 8
"""Number of parts of the households on accelerators, so that this many devices can share them."""

FEW_MEMBERS = 512
"""Number of members below which distinct members are not searched for."""


def prepare_households(
    model: NestedOptions, table: Households, rules: Rules | None = None
) -> NestedData:
    """Arrays of coded households.

    Parameters
    ----------
    model
        The model; its `relative` says how levels are coded.
    table
        The sample; its missing values get possible initial values.
    rules
        Rules that possible households keep, if there are any.

    Raises
    ------
    MicrodataError
        If a household breaks a rule, or no possible completion of one is found.
    """
    schema = table.schema
    relative = RelativeCoding(schema, model.relative) if model.relative else None
    blocks = tuple(
        (block.member_codes.shape[1], len(block.households)) for block in table.size_blocks
    )
    parts = by_platform(1, PARTS_ON_ACCELERATORS)
    blocks_of_part, households, members = in_parts(blocks, parts)
    missing = _missing_by_block(table.size_blocks, households.place, members.place)
    at_household, at_member = missing_values(table)
    if table.has_missing:
        table = complete_households(table, rules, key=jax.random.key(0))
    household_codes, member_codes = _codes_by_size(table, relative)
    household_codes, member_codes = household_codes[households.unit], member_codes[:, members.unit]
    num_household = (*schema.num_household_levels, len(blocks))
    num_member = schema.num_member_levels
    trees = trees_of(model, schema)
    region = _possible_region(rules, schema, relative, table.size_blocks)
    member = Variables(num_member, tuple(region.member))
    distinct, index = (None, None) if missing else _distinct_members(member_codes)
    return NestedData(
        household_rows=jnp.asarray((household_codes + first_rows(num_household)).T, jnp.int32),
        member_codes=jnp.asarray(member_codes, jnp.int32),
        household_weight=jnp.asarray(households.weight),
        member_weight=jnp.asarray(members.weight),
        household_levels=under_prior(model, Levels.of_variables(num_household, trees[0])),
        member_levels=under_prior(
            model,
            Levels.of_variables(
                num_member,
                trees[1],
                int(region.head is not None),
                _variables_of_members(member, region.head),
            ),
        ),
        blocks=blocks,
        blocks_of_part=blocks_of_part,
        parts=parts,
        plan=merge_plan(num_member),
        household=Variables(num_household, tuple(region.household)),
        member=member,
        possible=region.possible,
        head=region.head,
        kind_shape=_kind_shape(model, region.head),
        tables=region.tables,
        is_head=region.is_head,
        missing=missing,
        at_household=_at_places(at_household, households),
        at_member=_at_places(at_member, members),
        distinct=distinct,
        distinct_index=index,
        relative=relative,
    )


def trees_of(
    model: NestedOptions, schema: HouseholdSchema
) -> tuple[dict[int, Tree], dict[int, Tree]]:
    """Groups of levels by column, for households (with the columns of heads) and for members.

    Raises
    ------
    MicrodataError
        If a variable is unknown, is the relationship, or has groups and is coded relative to the
        head; or if its levels are not in order, or a level is in no group.
    """
    household, member = schema.household_variables, schema.member_variables
    told = {f"head_{name}" for name in member}.intersection(household)
    known = [name for name in household if name not in told]
    known += [name for name in member if schema.head is None or name != schema.head[0]]
    grouping = Grouping.of(model).resolved(
        (*household, *member), (*schema.household_levels, *schema.member_levels)
    )
    if model.ordered == "auto":
        grouping = grouping._replace(ordered=tuple(x for x in grouping.ordered if x in known))
    grouping.require_known(known)
    ordered, groups = grouping
    relative = {one if isinstance(one, str) else one[0] for one in model.relative}
    if both := sorted(relative & dict(groups).keys()):
        raise MicrodataError("has groups and is relative; leave out one", column=both[0])
    grouping = Grouping(
        (*ordered, *(f"head_{name}" for name in ordered)),
        (*groups, *((f"head_{name}", hierarchy) for name, hierarchy in groups)),
    )
    return (
        grouping.trees(household, schema.household_levels),
        grouping.trees(member, schema.member_levels),
    )


def _variables_of_members(member: Variables, head: Head | None) -> np.ndarray:
    """Variable of each row of phi; the levels of heads are a separate variable, the last one."""
    variable = variable_of_rows(member.num_levels)
    if head is not None:
        variable[member.rows(head.variable)][np.array(head.levels)] = len(member.num_levels)
    return variable


def _kind_shape(model: NestedOptions, head: Head | None) -> tuple[float, ...]:
    """Dirichlet shapes of the shares of two kinds of members: no head, and head.

    The data give no information on how many heads a household would have before truncation. With a
    learned prior nearly all households might be impossible, and with Dir(1) for all levels few are
    possible.
    """
    if head is None:
        return ()
    if learns_levels(model):
        return 1.0, 1.0
    shape = 1.0 if model.level_shape is None else float(model.level_shape)
    return shape * head.levels.count(False), shape * head.levels.count(True)


def missing_values(table: Households) -> tuple[np.ndarray, np.ndarray]:
    """(variable, unit) of the missing values of households and of members, in the order of sizes.

    This is also the order of `NestedState.completed`, in which values of households come first.
    """
    order, order_of_members = table.order_by_size
    at_household = np.stack(np.nonzero((table.household_codes[order] < 0).T))
    at_member = np.stack(np.nonzero((table.member_codes[order_of_members] < 0).T))
    return at_household, at_member


def _at_places(at: np.ndarray, places: Places) -> Int[Array, "2 C"]:
    """(variable, place) for (variable, unit)."""
    variable, unit = at
    return jnp.asarray(np.stack([variable, places.place[unit]]), jnp.int32)


def _missing_by_block(
    blocks: Sequence[SizeBlock], household_place: np.ndarray, member_place: np.ndarray
) -> tuple[Missing, ...]:
    """Incomplete households of each block that has any, given by their positions."""
    missing = []
    first_household = first_member = 0
    for block in blocks:
        number, members = block.member_codes.shape[:2]
        of_household, of_members = block.household_codes < 0, block.member_codes < 0
        incomplete = np.flatnonzero(of_household.any(axis=1) | of_members.any(axis=(1, 2)))
        if incomplete.size:
            member_index = first_member + incomplete[:, None] * members + np.arange(members)
            place = household_place[first_household + incomplete]
            missing.append(
                Missing(
                    households=jnp.asarray(place, jnp.int32),
                    members=jnp.asarray(member_place[member_index], jnp.int32),
                    of_household=jnp.asarray(of_household[incomplete]),
                    of_members=jnp.asarray(of_members[incomplete]),
                )
            )
        first_household += number
        first_member += number * members
    return tuple(missing)


def _codes_by_size(
    table: Households, relative: RelativeCoding | None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, q + 1) of households, with the size last, and codes (p, N) of members."""
    blocks = table.size_blocks
    size = np.repeat(np.arange(len(blocks)), [len(block.households) for block in blocks])
    order, _ = table.order_by_size
    members = [
        block.member_codes
        if relative is None
        else relative.encode(block.household_codes, block.member_codes)
        for block in blocks
    ]
    num_variables = len(table.schema.member_variables)
    flat = [codes.reshape(-1, num_variables) for codes in members]
    return np.column_stack([table.household_codes[order], size]), np.concatenate(flat).T


class _Region(NamedTuple):
    """The possible households, in the forms that the sampler needs."""

    household: Sequence[int] = ()
    """Household columns that the rules read."""
    member: Sequence[int] = ()
    """Member columns that the rules read."""
    possible: CompiledRules | RelativePredicate | None = None
    """Predicate of codes; None without rules."""
    head: Head | None = None
    """Members of whom every household has exactly one."""
    tables: HeadTables | None = None
    """The rules as tables, if they have that form."""
    is_head: Bool[Array, " J"] | None = None
    """Whether each joint level is one of a head, if the tables have heads among the members."""


def _possible_region(
    rules: Rules | None,
    schema: HouseholdSchema,
    relative: RelativeCoding | None,
    blocks: Sequence[SizeBlock],
) -> _Region:
    """Compile the rules, and make tables of them if they have that form."""
    if rules is None or not len(rules):
        return _Region()
    household, member = rules.columns(schema)
    compiled = rules.compile(schema)
    possible: CompiledRules | RelativePredicate = compiled
    known = True
    if relative is not None:
        household = relative.columns(household, member)
        possible = RelativePredicate(relative, compiled)
        # The codes of some variables are levels or not, which the member's relationship says.
        depend = any(p.member in member and not all(p.applies) for p in relative.pairs)
        known = relative.relationship in member or not depend
        member = tuple(sorted({*member, *(() if known else (relative.relationship,))}))
    region = _Region(household, member, possible)
    form = head_form(rules, schema)
    if form is None or not known:
        return region
    head = head_of(form)
    region = region._replace(head=head)
    if len(form.rest) or (head is None and schema.head is None):
        return region
    others = [block.member_codes.shape[1] - (head is not None) for block in blocks]
    return region._replace(
        tables=head_tables(form, others, relative),
        is_head=None if head is None else jnp.asarray(form.is_head),
    )


def _distinct_members(
    member_codes: np.ndarray,
) -> tuple[Int[Array, "p U"] | None, Int[Array, " N"] | None]:
    """Distinct members and the index of each member among them, if there are few enough."""
    if member_codes.shape[1] < FEW_MEMBERS:
        return None, None
    codes, index = np.unique(member_codes, axis=1, return_inverse=True)
    if codes.shape[1] > DISTINCT_BELOW * member_codes.shape[1]:
        return None, None
    return jnp.asarray(codes, jnp.int32), jnp.asarray(index.reshape(-1), jnp.int32)
