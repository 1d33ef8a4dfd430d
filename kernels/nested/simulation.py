"""Simulation of households of several sizes from the untruncated model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.nested.parameters import Tables, Variables
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import Keys, uniform, words


class Simulated(NamedTuple):
    """Households of several sizes, with their members stored one after the other."""

    used: Bool[Array, " B"]
    """Whether the lane has a household; at the end of a batch there may be no room for members."""
    size: Int[Array, " B"]
    """Index of its size among the sizes."""
    g: Int[Array, " B"]
    """Household class."""
    codes: Int[Array, "q B"]
    """Level codes of the household; 0 for variables that are not drawn."""
    head: tuple[Int[Array, " B"], Int[Array, "p B"]] | None
    """Member class and level codes of the head, if a head is drawn separately."""
    first: Int[Array, " B"]
    """Index of the first of its other members."""
    household: Int[Array, " N"]
    """Household of each other member."""
    present: Bool[Array, " N"]
    """Whether the slot has a member of a household that is used."""
    m: Int[Array, " N"]
    """Member classes."""
    members: Int[Array, "p N"]
    """Level codes of the other members."""


class DrawnVariables(NamedTuple):
    """Variables that are drawn for a household and its members."""

    household: Variables
    """Household variables; those that rules use are drawn."""
    member: Variables
    """Member variables; those that rules use are drawn."""
    has_head: bool
    """Whether a head is drawn separately; then each household has exactly one head."""


@jax.named_scope("simulate_households")
def simulate_households(
    key: Key[Array, ""],
    tables: Tables,
    log_weight: Float[Array, "H F"],
    others: tuple[int, ...],
    lanes: int,
    slots: int,
    drawn: DrawnVariables,
) -> Simulated:
    """Draw households from the untruncated model, optionally with exactly one head.

    Parameters
    ----------
    key
        Used once.
    tables
        Parameters, as cumulative weights.
    log_weight
        Log weights of sizes and household classes.
    others
        Number of members of each size, without a head that is drawn separately.
    lanes, slots
        Largest numbers of households and of members that are drawn at once.
    drawn
        Variables that are drawn, and whether there is a head.
    """
    household, member, has_head = drawn
    num_classes = log_weight.shape[1]
    num_nested = tables.nested.shape[1]
    dtype = log_weight.dtype.type
    key_lane, key_slot = Keys(key)

    def draw_members(u, g, kind):
        m, _ = search_cumulative(tables.nested, kind * num_classes + g, u[0])
        rows = (kind * num_classes + g) * num_nested + m
        codes = jnp.zeros((len(member.num_levels), g.size), jnp.int32)
        for j, table, u_j in zip(member.read, tables.member, u[1:], strict=True):
            codes = codes.at[j].set(search_cumulative(table, rows, u_j)[0])
        return m, codes

    num_uniforms = 1 + len(household.read) + (1 + len(member.read)) * has_head
    u = uniform(words(key_lane, (num_uniforms, lanes)), dtype)
    joint = cumulative_sum(jnp.exp(log_weight - jnp.max(log_weight)).reshape(1, -1))
    size_and_class, _ = search_cumulative(joint, jnp.zeros(lanes, jnp.int32), u[0])
    size, g = size_and_class // num_classes, size_and_class % num_classes
    codes = jnp.zeros((len(household.num_levels), lanes), jnp.int32)
    for k, table, u_k in zip(household.read, tables.household, u[1:], strict=False):
        codes = codes.at[k].set(search_cumulative(table, g, u_k)[0])
    head = None
    if has_head:
        head = draw_members(u[1 + len(household.read) :], g, jnp.ones(lanes, jnp.int32))

    num_others = jnp.asarray(others, jnp.int32)[size]
    end = jnp.cumsum(num_others)
    first = end - num_others
    # The batch ends as soon as the largest household might not fit, so that sizes are not biased.
    used = first <= slots - max(others)
    of_slot = jnp.zeros(slots, jnp.int32).at[first].add(1, mode="drop")
    of_slot = jnp.cumsum(of_slot) - 1
    present = jnp.arange(slots) < jnp.max(jnp.where(used, end, 0))
    u = uniform(words(key_slot, (1 + len(member.read), slots)), dtype)
    m, members = draw_members(u, g[of_slot], jnp.zeros(slots, jnp.int32))
    return Simulated(used, size, g, codes, head, first, of_slot, present, m, members)
