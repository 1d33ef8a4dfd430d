"""HDP mixed membership (Battiston & Rimella 2024): the model, its initial states and its sweep.

    G_0 ~ DP(alpha_0, H),  H = prod_j Dir(c_j beta_j),  alpha_0 ~ Ga(a_0, b_0)
    alpha_i ~ Ga(a, b),    G_i ~ DP(alpha_i, G_0)
    z_ij ~ G_i,            x_ij ~ theta_j^{(z_ij)}

with c_j and beta_j of each variable learned (`kernels.variates.level_prior`; c_j beta_j is a vector
of ones in the paper), alpha_i one per record, or one shared by all records, or one per record with
b ~ Ga(a_1, b_1), and x_i restricted to the cells that structural zeros leave. The larger alpha_i,
the *less* do records differ from G_0. The functions are pure: `jax.jit` can compile them, and
`jax.vmap` can run them over chains.
"""

import dataclasses
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.data.microdata import Microdata
from bnp_models.kernels.mixed_membership.concentration import dp_concentration
from bnp_models.kernels.mixed_membership.tables import simulate_labels, simulate_levels
from bnp_models.kernels.numerics.counting import (
    count_components,
    count_rows_by_component,
    label_type,
    length_in_use,
    order_free_sum,
)
from bnp_models.kernels.variates.categorical import cumulative_sum
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys
from bnp_models.kernels.variates.sticks import retrospective_sticks
from bnp_models.models.level_prior import draw_shape, under_prior
from bnp_models.models.mixed_membership import new_records, start
from bnp_models.models.mixed_membership.conditionals import (
    NEGLIGIBLE,
    draw_alpha,
    draw_g0,
    draw_level_shape,
    draw_theta_in_use,
)
from bnp_models.models.mixed_membership.feasible import feasible_totals, many_records, weight_draws
from bnp_models.models.mixed_membership.new_records import pad_levels
from bnp_models.models.mixed_membership.options import (
    CONCENTRATIONS,
    Concentration,
    MembershipOptions,
)
from bnp_models.models.mixed_membership.start import START_SHARE
from bnp_models.models.mixed_membership.state import HDPData, HDPInfo, HDPState, sweep_info
from bnp_models.models.mixed_membership.sweep import components_first, draw_split_merge, sweep_with
from bnp_models.models.model import Growing
from bnp_models.models.options import documented, fixed_or, option
from bnp_models.zeros.structural_zeros import StructuralZeros

# Numbers of components of the initial states, used for one chain after the other. They lie below
# and above the usual numbers in posteriors, so that R-hat can detect a second mode.
START_COMPONENTS = (10, 50, 100)


@documented
class HDPMixedMembership(
    MembershipOptions, Growing[Microdata, StructuralZeros, HDPData, HDPState, HDPInfo]
):
    """HDP mixed membership: its options and hyperparameters.

    References
    ----------
    Battiston, M. & Rimella, L. (2024). Disclosure risk assessment with Bayesian non-parametric
    hierarchical modelling. Teh, Y. W. et al. (2006), doi:10.1198/016214506000000302.

    Examples
    --------
    >>> bnp.HDPMixedMembership(ordered="age").name
    'hdp'
    """

    concentration: Concentration = option(
        "shared",
        """"shared": one alpha for all records; "record": alpha_i ~ Ga(a, b), as in the paper;
        "hierarchical": the same with b ~ Ga(a1, b1).""",
        choices=CONCENTRATIONS, command=True, kw_only=True,
    )  # fmt: skip
    a0: float = option(
        2.0, "Shape a0 and rate b0 of alpha_0's gamma prior.", positive=True, kw_only=True
    )
    b0: float = option(
        1.0, "Shape a0 and rate b0 of alpha_0's gamma prior.", positive=True, kw_only=True
    )
    a1: float = option(
        1.0, "Shape a1 and rate b1 of b's gamma prior, if b has one.", positive=True, kw_only=True
    )
    b1: float = option(
        1.0, "Shape a1 and rate b1 of b's gamma prior, if b has one.", positive=True, kw_only=True
    )
    alpha0: float | None = option(
        None, "A positive number fixes alpha_0. None: it is drawn.", positive=True, kw_only=True
    )
    capacity: int = option(
        128,
        """Minimum number of components that the arrays have room for. The arrays are larger from
        the start if the initial state has more components, and grow later if necessary.""",
        least=2, kw_only=True,
    )  # fmt: skip
    split_merge_every: int = option(
        2,
        """Sweeps between split-merge moves; 0 turns them off. There are no such moves if structural
        zeros are so complicated that P(feasible) is not exact.""",
        least=0, kw_only=True,
    )  # fmt: skip

    name: ClassVar[str] = "hdp"
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "alpha", "alpha0", "tables", "log_likelihood_items", "left_over",
        "augmented", "accepted_tilts", "accepted_trajectories",
    )  # fmt: skip
    start_components: ClassVar[tuple[int, ...]] = START_COMPONENTS
    start_share: ClassVar[float] = START_SHARE

    draw_alpha = draw_alpha
    prepare = start.prepare
    init = start.init_state
    log_cell_probability = new_records.log_cell_probability
    simulate_records = new_records.simulate_records
    complete_records = new_records.complete_records
    level_probabilities = new_records.level_probabilities
    weight_draws = weight_draws

    @property
    def rate_prior(self) -> tuple[float, float]:
        """Shape and rate of the prior of b, if it has one."""
        return self.a1, self.b1

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
        """Step 4: draw alpha_0, and immediately after it g_0 and the mass beyond the last stick.

        `tables` are those of the sample, `added` those of augmented records. A subclass overrides
        `draw_alpha0` and `draw_g0`; sweeps without structural zeros call these directly.

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
        key_alpha0, key_g0 = Keys(key)
        tables = tables + added
        alpha0 = self.draw_alpha0(key_alpha0, state.alpha0, tables)
        return alpha0, *self.draw_g0(key_g0, tables, alpha0)

    def draw_alpha0(
        self, key: Key[Array, ""], alpha0: Float[Array, ""], tables: Int[Array, " K"]
    ) -> Float[Array, ""]:
        """Draw alpha_0 given the tables of each component; a subclass may override it.

        Parameters
        ----------
        key
            Used once.
        alpha0
            The current value.
        tables
            Number of tables of each component.
        """
        active = jnp.sum(tables > 0)
        drawn = dp_concentration(key, alpha0, active, jnp.sum(tables), self.a0, self.b0)
        return fixed_or(self.alpha0, drawn)

    draw_g0 = staticmethod(draw_g0)

    def prior_tables(self, state: HDPState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Tables that the prior of the weights adds: none to a component, alpha_0 for new ones.

        Parameters
        ----------
        state
            State of the chain.
        """
        return jnp.zeros_like(state.alpha0), state.alpha0

    def grow(self, key: Key[Array, ""], state: HDPState, data: HDPData, capacity: int) -> HDPState:
        """State with more slots; the remainder is divided again among all free slots."""
        added = capacity - state.g0.size
        active = jnp.pad(_active_slots(state, data), (0, added))
        g0 = jnp.pad(state.g0, (0, added))
        remainder = 1 - order_free_sum(jnp.where(active, g0, 0))
        log_remainder = jnp.log(jnp.maximum(remainder, jnp.finfo(g0.dtype).tiny))
        key_sticks, key_theta = Keys(key)
        log_free, _ = retrospective_sticks(key_sticks, active, log_remainder, state.alpha0)
        no_item = jnp.zeros((len(state.theta), capacity), jnp.int32)
        levels = data.levels.with_shape(state.level_shape)
        prior = jnp.exp(levels.draw(key_theta, no_item))
        theta = jnp.where(active, jnp.pad(state.theta, ((0, 0), (0, added))), prior)
        g0 = jnp.where(active, g0, jnp.exp(log_free))
        return dataclasses.replace(
            state, z=state.z.astype(label_type(capacity)), g0=g0, theta=theta,
            totals=feasible_totals(g0, theta, data),
        )  # fmt: skip

    def slots_needed(self, state: HDPState, data: HDPData) -> Float[Array, ""]:
        """Number of slots for all but a negligible mass, and some spare ones."""
        largest_last = jnp.sort(jnp.where(_active_slots(state, data), 1, state.g0))
        in_use = jnp.sum(cumulative_sum(largest_last) > NEGLIGIBLE)
        return 1.25 * in_use + 4

    def shrink(self, state: HDPState, data: HDPData, capacity: int) -> HDPState:
        """State with fewer slots, components first; the last slot gets the remaining mass.

        For the warm-up only, because the mass of the removed slots is small but not zero.
        """
        active = _active_slots(state, data)
        order = jnp.argsort(-(active + state.g0))
        place = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
        kept = order[:capacity]
        g0 = state.g0[kept]
        g0 = g0.at[-1].add(order_free_sum(state.g0[order[capacity:]]))
        theta = state.theta[:, kept]
        return dataclasses.replace(
            state, z=place[state.z].astype(label_type(capacity)), g0=g0, theta=theta,
            totals=feasible_totals(g0, theta, data),
        )  # fmt: skip


def _active_slots(state: HDPState, data: HDPData) -> Bool[Array, " K"]:
    """Components with an item of the sample."""
    weight = jnp.broadcast_to(data.weight, state.z.shape)
    return count_components(state.z, weight, state.g0.size) > 0


def draw_prior(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    num_records: int,
    num_levels: tuple[int, ...],
    capacity: int,
    levels: Levels | None = None,
) -> tuple[HDPState, Int[Array, "J n"]]:
    """Draw parameters, labels and a sample from the joint prior.

    Parameters
    ----------
    num_records
        Records n, without padding.
    num_levels
        Levels of each variable, static.
    capacity
        Number K of slots for components; the mass beyond the last slot is added to it.
    levels
        The levels, if some are in groups.

    Returns
    -------
    state, codes
        The state from which the sample was drawn, and the sample's 0-based level codes (J, n).
    """
    dtype = jnp.result_type(float)
    key_alpha0, key_rate, key_alpha, key_g0, key_theta, key_z, key_levels, key_shape = Keys(key, 8)
    alpha0 = fixed_or(
        model.alpha0, gamma_variate(key_alpha0, jnp.asarray(model.a0, dtype), model.b0)
    )
    rate = jnp.asarray(model.b, dtype)
    if model.concentration == "hierarchical":
        rate = gamma_variate(key_rate, jnp.asarray(model.a1, dtype), model.b1)
    shape = () if model.shared else (num_records,)
    alpha = fixed_or(model.alpha, gamma_variate(key_alpha, jnp.full(shape, model.a, dtype), rate))
    no_slot = jnp.zeros(capacity, bool)
    log_g0, _ = retrospective_sticks(key_g0, no_slot, jnp.zeros((), dtype), alpha0)
    if levels is None:
        levels = under_prior(model, Levels.of_variables(num_levels))
    level_shape = draw_shape(model, key_shape, levels)
    no_item = jnp.zeros((levels.variable.size, capacity), jnp.int32)
    theta = jnp.exp(levels.with_shape(level_shape).draw(key_theta, no_item))
    g0 = jnp.exp(log_g0)
    z, _ = simulate_labels(key_z, jnp.broadcast_to(alpha, (num_records,)), g0, len(num_levels))
    codes = simulate_levels(key_levels, z, pad_levels(theta, num_levels))
    return HDPState(z, g0, theta, level_shape, alpha, rate, alpha0), codes


def update_parameters(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Steps 3 to 6: draw concentrations, split or merge, then draw g_0, theta and the free sticks.

    The prior of the levels is drawn before theta. Components are in the first slots, followed by
    the free sticks; quantities for slots are drawn only for these.

    In the steps for alpha_0 and for splits and
    merges, g_0 is integrated out. Therefore g_0 is drawn immediately after them; any other order
    has a wrong stationary distribution.
    """
    key_alpha, key_alpha0, key_split, key_g0, key_theta, key_levels = Keys(key, 6)
    num_rows, capacity = state.theta.shape
    tables_of_component = count_components(state.z, opens * data.weight, capacity)
    z, tables_of_component = components_first(state.z, tables_of_component)
    num_tables = jnp.sum(tables_of_component)
    alpha, rate = model.draw_alpha(key_alpha, state, data, opens, num_tables)
    with jax.named_scope("draw_alpha0"):
        alpha0 = model.draw_alpha0(key_alpha0, state.alpha0, tables_of_component)
    counts = count_rows_by_component(data.rows, z, data.weight, (num_rows, capacity))
    labelled = z, counts, tables_of_component
    if model.split_merge_every:
        due = (iteration >= 0) & (iteration % model.split_merge_every == 0)
        labelled = lax.cond(
            due, partial(draw_split_merge, double=many_records(state)),
            lambda _key, labelled, *_: labelled,
            key_split, labelled, opens, data, alpha0, state.level_shape,
        )  # fmt: skip
    z, counts, tables_of_component = labelled
    g0, left_over = model.draw_g0(key_g0, tables_of_component, alpha0, NEGLIGIBLE)
    shape = draw_level_shape(model, key_levels, state, data, counts, iteration)
    theta = draw_theta_in_use(
        key_theta, counts, data.levels.with_shape(shape), length_in_use(g0 > 0)
    )
    state = HDPState(z, g0, theta, shape, alpha, rate, alpha0)
    return state, sweep_info(state, data, tables_of_component, counts, left_over)
