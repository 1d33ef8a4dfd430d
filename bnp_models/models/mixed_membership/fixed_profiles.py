"""Mixed membership with a fixed number of extreme profiles (Manrique-Vallier & Reiter 2012).

    h ~ Dir(1_K),            alpha ~ Ga(a, b),     g_i ~ Dir(alpha h)
    theta_jk ~ Dir(c_j beta_j), z_ij ~ g_i,        x_ij ~ theta_j^{(z_ij)}

where x_i is restricted to the cells that structural zeros leave. This is the parametric model of
Battiston & Rimella (2024), appendix A. It uses the kernels, state and data of its non-parametric
version, `bnp_models.HDPMixedMembership`, in which h is called g_0.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.data.microdata import Microdata
from bnp_models.kernels.numerics.counting import count_components, count_rows_by_component
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.mixed_membership import new_records, start
from bnp_models.models.mixed_membership.conditionals import draw_alpha, draw_level_shape
from bnp_models.models.mixed_membership.feasible import weight_draws
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPInfo, HDPState, sweep_info
from bnp_models.models.mixed_membership.sweep import sweep_with
from bnp_models.models.model import FixedComponents
from bnp_models.models.options import documented, option
from bnp_models.zeros.structural_zeros import StructuralZeros


@documented
class MixedMembership(
    MembershipOptions, FixedComponents[Microdata, StructuralZeros, HDPData, HDPState, HDPInfo]
):
    """Mixed membership with a fixed number of profiles: its options and hyperparameters.

    References
    ----------
    Manrique-Vallier, D. & Reiter, J. P. (2012), doi:10.1080/01621459.2012.710508.

    Examples
    --------
    >>> bnp.MixedMembership(components=10).capacity
    10
    """

    components: int = option(20, "Extreme profiles K.", least=2, command=True)

    name: ClassVar[str] = "mixed-membership"
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "alpha", "tables", "log_likelihood_items", "augmented", "accepted_tilts",
        "accepted_trajectories",
    )  # fmt: skip
    concentration: ClassVar[str] = "shared"
    split_merge_every: ClassVar[int] = 0
    rate_prior: ClassVar[tuple[float, float]] = (1.0, 1.0)
    """Not used, because b is given."""
    alpha0: ClassVar[None] = None
    """Not used, because the weights have another prior."""

    draw_alpha = draw_alpha
    prepare = start.prepare
    init = start.init_state
    log_cell_probability = new_records.log_cell_probability
    simulate_records = new_records.simulate_records
    complete_records = new_records.complete_records
    level_probabilities = new_records.level_probabilities
    weight_draws = weight_draws

    def sweep(
        self, key: Key[Array, ""], state: HDPState, data: HDPData, iteration: Int[Array, ""]
    ) -> tuple[HDPState, HDPInfo]:
        """Make one sweep, in an order that leaves the posterior invariant."""
        return sweep_with(update_parameters, self, key, state, data, iteration)

    def draw_weights(
        self,
        key: Key[Array, ""],
        state: HDPState,
        tables: Int[Array, " K"],
        added: Int[Array, " K"],
    ) -> tuple[Float[Array, ""], Float[Array, " K"], Float[Array, ""]]:
        """Draw h | m ~ Dir(1 + m_1, .., 1 + m_K), with m the tables, augmented ones included.

        Parameters
        ----------
        key
            Used once.
        state
            State of the chain.
        tables
            Number of tables of each component, in the sample.
        added
            The same in the impossible records that were drawn.
        """
        weights = jnp.exp(log_dirichlet(key, 1 + (tables + added).astype(state.g0.dtype)))
        return state.alpha0, weights, jnp.zeros_like(state.alpha0)

    def prior_tables(self, state: HDPState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Number of tables that the prior of the weights adds: one for each component.

        Parameters
        ----------
        state
            State of the chain.
        """
        return jnp.ones_like(state.alpha0), jnp.zeros_like(state.alpha0)

    def keep(self, state: HDPState, info: HDPInfo) -> dict[str, Array]:
        """Quantities of one sweep that a user may choose to keep, by name."""
        kept = super().keep(state, info)
        del kept["alpha0"], kept["left_over"]
        return kept


def update_parameters(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Draw alpha given the tables, then h and theta given the tables and the items."""
    key_alpha, key_h, key_theta, key_levels = Keys(key, 4)
    num_rows, capacity = state.theta.shape
    tables = count_components(state.z, opens * data.weight, capacity)
    num_tables = jnp.sum(tables)
    alpha, _ = model.draw_alpha(key_alpha, state, data, opens, num_tables)
    with jax.named_scope("draw_weights"):
        _, h, left_over = model.draw_weights(key_h, state, tables, jnp.zeros_like(tables))
    counts = count_rows_by_component(data.rows, state.z, data.weight, (num_rows, capacity))
    shape = draw_level_shape(model, key_levels, state, data, counts, iteration)
    theta = jnp.exp(data.levels.with_shape(shape).draw(key_theta, counts))
    state = dataclasses.replace(state, g0=h, theta=theta, level_shape=shape, alpha=alpha)
    return state, sweep_info(state, data, tables, counts, left_over)
