"""Arrays of coded households and of their rules for the nested model."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households, SizeBlock
from bnp_models.kernels.nested.judges import HeadTables
from bnp_models.kernels.nested.members import merge_plan
from bnp_models.kernels.nested.parameters import Head, Levels
from bnp_models.kernels.numerics.counting import first_rows, variable_of_rows
from bnp_models.models.nested.head_tables import head_of, head_tables
from bnp_models.models.nested.options import NestedOptions
from bnp_models.models.nested.relative import RelativeCoding, RelativePredicate
from bnp_models.models.nested.starts import complete_households
from bnp_models.models.nested.state import Missing, NestedData
from bnp_models.rules.head_forms import head_form
from bnp_models.rules.rules import CompiledRules, Rules

DISTINCT_BELOW = 0.8
"""Largest share of distinct members with which probabilities are computed once for each."""

FEW_MEMBERS = 512
"""Number of members below which distinct members are not looked for."""


def prepare_households(
    model: NestedOptions, table: Households, rules: Rules | None = None
) -> NestedData:
    """Arrays of coded households.

    Parameters
    ----------
    model
        The model, whose `relative` says how levels are coded.
    table
        The sample; its missing values are completed by possible ones to start from.
    rules
        Rules that possible households keep, if there are any.

    Raises
    ------
    MicrodataError
        If a household breaks a rule, or no possible completion of one is found.
    """
    schema = table.schema
    relative = RelativeCoding(schema, model.relative) if model.relative else None
    missing, at_household, at_member = _missing_values(table)
    if table.has_missing:
        table = complete_households(table, rules, seed=0)
    blocks = table.size_blocks
    household_codes, member_codes = _codes_by_size(table, relative)
    num_household = (*schema.num_household_levels, len(blocks))
    num_member = schema.num_member_levels
    region = _possible_region(rules, schema, relative, blocks)
    member = Levels(num_member, tuple(region.member))
    return NestedData(
        household_rows=jnp.asarray((household_codes + first_rows(num_household)).T, jnp.int32),
        member_codes=jnp.asarray(member_codes, jnp.int32),
        household_variable=jnp.asarray(variable_of_rows(num_household), jnp.int32),
        member_variable=jnp.asarray(_variables_of_members(member, region.head), jnp.int32),
        blocks=tuple((block.member_codes.shape[1], len(block.households)) for block in blocks),
        plan=merge_plan(num_member),
        household=Levels(num_household, tuple(region.household)),
        member=member,
        possible=region.possible,
        head=region.head,
        kind_shape=_kind_shape(model, region.head),
        tables=region.tables,
        is_head=region.is_head,
        missing=missing,
        at_household=jnp.asarray(at_household, jnp.int32),
        at_member=jnp.asarray(at_member, jnp.int32),
        distinct=None if missing else _distinct_members(member_codes),
        relative=relative,
    )


def _variables_of_members(member: Levels, head: Head | None) -> np.ndarray:
    """Variable of each row of phi; the levels of heads are a variable of their own, the last."""
    variable = variable_of_rows(member.num_levels)
    if head is not None:
        variable[member.rows(head.variable)][np.array(head.levels)] = len(member.num_levels)
    return variable


def _kind_shape(model: NestedOptions, head: Head | None) -> tuple[float, ...]:
    """Dirichlet shapes of the shares of kinds, no head and head.

    How many heads a household would have before truncation the data cannot say: a learned prior
    might leave next to no household possible, and Dir(1) of all levels leaves few.
    """
    if head is None:
        return ()
    if model.level_prior == "learned":
        return 1.0, 1.0
    return float(head.levels.count(False)), float(head.levels.count(True))


def _missing_values(table: Households) -> tuple[tuple[Missing, ...], np.ndarray, np.ndarray]:
    """Incomplete households by block, and (variable, unit) of missing household and member values.

    Units are in the order of sizes.
    """
    if not table.has_missing:
        return (), np.zeros((2, 0), int), np.zeros((2, 0), int)
    order, order_of_members = table.order_by_size
    at_household = np.stack(np.nonzero((table.household_codes[order] < 0).T))
    at_member = np.stack(np.nonzero((table.member_codes[order_of_members] < 0).T))
    return _missing_by_block(table.size_blocks), at_household, at_member


def _missing_by_block(blocks: Sequence[SizeBlock]) -> tuple[Missing, ...]:
    """Incomplete households of each block that has any."""
    missing = []
    first_household = first_member = 0
    for block in blocks:
        number, members = block.member_codes.shape[:2]
        of_household, of_members = block.household_codes < 0, block.member_codes < 0
        incomplete = np.flatnonzero(of_household.any(axis=1) | of_members.any(axis=(1, 2)))
        if incomplete.size:
            member_index = first_member + incomplete[:, None] * members + np.arange(members)
            missing.append(
                Missing(
                    households=jnp.asarray(first_household + incomplete, jnp.int32),
                    members=jnp.asarray(member_index, jnp.int32),
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
    """Codes (n, q + 1) of households, the size the last one, and (p, N) of members."""
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
    """The possible households, in the forms in which the sampler asks for them."""

    household: Sequence[int] = ()
    """Household columns that the rules read."""
    member: Sequence[int] = ()
    """Member columns that the rules read."""
    possible: CompiledRules | RelativePredicate | None = None
    """Predicate of codes; None without rules."""
    head: Head | None = None
    """Members of whom every household has exactly one."""
    tables: HeadTables | None = None
    """The rules as tables, where they have that form."""
    is_head: Bool[Array, " J"] | None = None
    """Joint levels of a head among the members, if the tables have such."""


def _possible_region(
    rules: Rules | None,
    schema: HouseholdSchema,
    relative: RelativeCoding | None,
    blocks: Sequence[SizeBlock],
) -> _Region:
    """Compile the rules, and make tables of them where they have that form."""
    if rules is None or not len(rules):
        return _Region()
    household, member = rules.columns(schema)
    compiled = rules.compile(schema)
    possible: CompiledRules | RelativePredicate = compiled
    if relative is not None:
        household = relative.columns(household, member)
        possible = RelativePredicate(relative, compiled)
    region = _Region(household, member, possible)
    form = head_form(rules, schema)
    if form is None:
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
) -> tuple[Int[Array, "p U"], Int[Array, " N"]] | None:
    """Distinct members and the index of each member among them, where they are few enough."""
    if member_codes.shape[1] < FEW_MEMBERS:
        return None
    codes, index = np.unique(member_codes, axis=1, return_inverse=True)
    if codes.shape[1] > DISTINCT_BELOW * member_codes.shape[1]:
        return None
    return jnp.asarray(codes, jnp.int32), jnp.asarray(index.reshape(-1), jnp.int32)
