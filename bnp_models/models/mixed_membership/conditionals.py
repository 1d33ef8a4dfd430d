"""Concentrations, weights and level probabilities of mixed membership, given labels and tables.

The numbers of steps are those of the sampler of Battiston & Rimella (2024).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.concentration import (
    GammaPrior,
    gamma_rate,
    record_concentrations,
    rescale_concentrations,
    shared_concentration,
    truncated_gamma_rate,
    truncated_shared_concentration,
)
from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.numerics.platforms import blocks_of_columns, map_in_use, most_of_lanes
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys
from bnp_models.kernels.variates.sticks import retrospective_sticks
from bnp_models.models.level_prior import update_shape
from bnp_models.models.mixed_membership.augmentation import Augmented
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPState
from bnp_models.models.options import fixed_or

# Mass of G_0 that is not divided into further sticks, and that `slots_needed` neglects.
NEGLIGIBLE = 1e-6


@jax.named_scope("draw_alpha")
def draw_alpha(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    num_tables: Int[Array, ""],
    augmented: Augmented | None = None,
    log_growth: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]] | None = None,
) -> tuple[Float[Array, "*n"], Float[Array, ""]]:
    """Step 3: draw alpha and the rate of its prior; a fixed alpha does not change.

    Under structural zeros, either the `augmented` records are counted like those of the sample, or
    `log_growth` (from `log_growth_given`) integrates the truncation.

    Parameters
    ----------
    model
        Model with the priors.
    key
        Used once.
    state
        State of the chain.
    data
        Arrays of the sample.
    opens
        Whether each item is the first at its table.
    num_tables
        Number of tables of all records.
    augmented, log_growth
        See above. Default: there are no structural zeros.
    """
    if model.alpha is not None:
        return fixed_or(model.alpha, state.alpha), state.rate
    num_items = state.z.shape[0]
    num_records = data.num_records
    more_alpha: Float[Array, ""] | int = 0
    if augmented is not None:
        num_records = num_records + augmented.records
        num_tables = num_tables + jnp.sum(augmented.tables)
        more_alpha = augmented.sum_alpha
    truncation = () if log_growth is None else (log_growth,)
    if model.shared:
        draw = truncated_shared_concentration if truncation else shared_concentration
        alpha = draw(
            key, state.alpha, num_tables, num_records, num_items, model.a, model.b, *truncation
        )
        return alpha, state.rate
    key_alpha, key_rate, key_scale = Keys(key, 3)
    of_record = jnp.sum(opens, axis=0, dtype=jnp.int32)
    alpha = record_concentrations(key_alpha, state.alpha, of_record, num_items, model.a, state.rate)
    rate = state.rate
    if model.concentration == "hierarchical":
        prior = model.rate_prior
        evidence = order_free_sum(alpha * data.weight) + more_alpha, num_records, model.a
        if truncation:
            rate = truncated_gamma_rate(key_rate, rate, *evidence, *prior, *truncation)
        else:
            rate = gamma_rate(key_rate, *evidence, *prior)
        # The alphas of augmented records are not kept, so that they cannot be rescaled with the
        # others.
        if augmented is None:
            alpha, rate = rescale_concentrations(
                key_scale, alpha, rate, of_record, data.weight, num_items, GammaPrior(*prior),
                *truncation,
            )  # fmt: skip
    return alpha, rate


def moves_alpha(model: MembershipOptions) -> bool:
    """Whether moves other than `draw_alpha` may change alpha and b: not if fixed or overridden."""
    return model.alpha is None and type(model).draw_alpha is draw_alpha


@jax.named_scope("draw_g0")
def draw_g0(
    key: Key[Array, ""],
    tables_of_component: Int[Array, " K"],
    alpha0: Float[Array, ""],
    negligible: float = 0.0,
) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """Steps 4 and 6: draw (g_01..g_0K, remainder) ~ Dir(m_1, .., m_K, alpha_0).

    Here m_k is the number of tables of component k. The remainder is divided into sticks for the
    free slots until no more than `negligible` is left. The mass beyond the last stick is the second
    result.

    Parameters
    ----------
    key
        Used once.
    tables_of_component
        Number m_k of tables of each component.
    alpha0
        Concentration.
    negligible
        Mass that may be left beyond the last stick.
    """
    key_dirichlet, key_sticks = Keys(key)
    active = tables_of_component > 0
    shape = jnp.append(tables_of_component.astype(alpha0.dtype), alpha0)
    log_g = log_dirichlet(key_dirichlet, shape)
    log_free, log_left_over = retrospective_sticks(
        key_sticks, active, log_g[-1], alpha0, negligible
    )
    return jnp.exp(jnp.where(active, log_g[:-1], log_free)), jnp.exp(log_left_over)


@jax.named_scope("draw_level_shape")
def draw_level_shape(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    counts: Int[Array, "R K"],
    iteration: Int[Array, ""],
) -> Float[Array, " R"]:
    """Draw the shapes of the prior of theta with theta integrated out, from sweep 0 on.

    Theta must be drawn again before it is used.
    """

    def move(shape):
        return update_shape(model, key, counts, data.levels.with_shape(shape))

    return lax.cond(iteration >= 0, move, lambda shape: shape, state.level_shape)


@jax.named_scope("draw_theta")
def draw_theta_in_use(
    key: Key[Array, ""], counts: Int[Array, "R K"], levels: Levels, in_use: Int[Array, ""]
) -> Float[Array, "R K"]:
    """Step 5: draw theta of the first `in_use` slots; the others have no mass, and repeat one."""
    blocks = blocks_of_columns(counts)
    number, num_rows, width = blocks.shape

    def draw(i):
        return jnp.exp(levels.draw(jax.random.fold_in(key, i), blocks[i]))

    if number == 1:
        return draw(0)[:, : counts.shape[1]]
    drawn = map_in_use(draw, number, lax.div(most_of_lanes(in_use) + (width - 1), width))
    theta = jnp.moveaxis(drawn, 0, 1).reshape(num_rows, -1)[:, : counts.shape[1]]
    return jnp.where(jnp.arange(counts.shape[1]) < in_use, theta, theta[:, :1])
