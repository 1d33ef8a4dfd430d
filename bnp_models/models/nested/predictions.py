"""Possible households simulated given one kept draw."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bnp_models.kernels.nested.parameters import Levels, log_class_weights, tables_of
from bnp_models.kernels.nested.simulation import Simulated, simulate_households
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.nested.state import NESTED, NestedData
from bnp_models.models.nested.sweep import judge_of

MEMBERS_AT_ONCE = 4
"""Room for members, for each of the households that are simulated at once."""


def simulate_possible(
    key: Key[Array, ""],
    draw: dict[str, Array],
    data: NestedData,
    left: Float[Array, " H"],
    lanes: int,
) -> tuple[Simulated, Bool[Array, " B"]]:
    """Simulate a batch of households given one kept draw, and judge which of them are possible.

    Parameters
    ----------
    draw
        Arrays of `NESTED`.
    data
        The sample, of which only sizes and rules are used.
    left
        Proportion in which to simulate each size: the households of one size do not depend on it.
    lanes
        Households at once.
    """
    key_draw, key_judge = Keys(key, 2)
    household = Levels(data.household.num_levels, tuple(range(len(data.household.num_levels) - 1)))
    member = Levels(data.member.num_levels, tuple(range(len(data.member.num_levels))))
    log_pi, log_omega, log_lambda, log_phi = (draw[name] for name in NESTED)
    tables = tables_of(log_pi, log_omega, log_lambda, log_phi, household, member, data.head)
    sizes, _ = zip(*data.blocks, strict=True)
    log_size = log_lambda[data.household.size_rows]
    has_head = data.head is not None
    log_weight = log_class_weights(tables, log_size, sizes, has_head)
    log_weight = jax.nn.log_softmax(log_weight, axis=1) + jnp.log(left)[:, None]
    others = tuple(size - has_head for size in sizes)
    slots = lanes * MEMBERS_AT_ONCE + max(others)
    new = simulate_households(
        key_draw, tables, log_weight, others, lanes, slots, household, member, has_head
    )
    possible = new.used
    if data.possible is not None:
        possible = possible & judge_of(data)(new, key_judge)
    return new, possible
