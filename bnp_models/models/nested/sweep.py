"""One sweep of the nested model: classes, impossible households, parameters, order.

The numbers of steps are those of Hu, Reiter & Wang (2018), doi:10.1214/16-BA1047.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.latent_classes.order import reorder_classes
from bnp_models.kernels.nested.impossible import (
    Augmented,
    SampleSizes,
    add_other_heads,
    add_simulated,
)
from bnp_models.kernels.nested.judges import (
    Judge,
    judge_by_predicate,
    judge_by_tables,
    log_possible,
)
from bnp_models.kernels.nested.members import (
    draw_member_classes,
    log_member_probability,
    merged_rows,
    merged_tables,
    repeat_by_member,
    sum_by_household,
)
from bnp_models.kernels.nested.parameters import tables_of
from bnp_models.kernels.nested.simulation import DrawnVariables
from bnp_models.kernels.numerics.counting import count_rows_by_component, first_rows, order_free_sum
from bnp_models.kernels.variates.categorical import draw_rows
from bnp_models.kernels.variates.gamma import gamma_variate, log_dirichlet, loggamma
from bnp_models.kernels.variates.level_prior import draw_level_prior, update_level_prior
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL, Levels
from bnp_models.kernels.variates.rng import Keys, key_array, uniform, uniform_index, words
from bnp_models.models.level_prior import draw_shape, learns_levels, update_shape
from bnp_models.models.nested.missing import completed_values
from bnp_models.models.nested.options import NestedOptions
from bnp_models.models.nested.state import NestedData, NestedState
from bnp_models.models.options import fixed_or


def draw_prior(model: NestedOptions, key: Key[Array, ""], data: NestedData) -> NestedState:
    """Draw parameters from the prior before truncation; only the levels of the data are used."""
    key_alpha, key_beta, key_parameters, key_household, key_member = Keys(key, 5)
    dtype = jnp.result_type(float)
    alpha = fixed_or(model.alpha, gamma_variate(key_alpha, jnp.asarray(model.a, dtype), model.b))
    shape = (model.components,) if model.beta == "class" else ()
    beta = fixed_or(
        model.fixed_beta,
        gamma_variate(key_beta, jnp.full(shape, model.a_beta, dtype), model.b_beta),
    )
    shared = draw_member_class_shapes(model, key_beta)
    none = Augmented.none((model.components, model.member_components), data.household, data.member)
    none = by_member_class(model, none)
    shapes = (
        _keep_sizes(model, draw_shape(model, key_household, data.household_levels), data),
        _keep_heads(model, draw_shape(model, key_member, data.member_levels), data),
    )
    return update_parameters(model, key_parameters, alpha, beta, shared, shapes, none, data)


def draw_uniform(
    key: Key[Array, ""], shape: tuple[int, ...], limit: int | Int[Array, ""]
) -> Int[Array, "..."]:
    """Draw classes uniformly from 0 to `limit` - 1."""
    dtype = jnp.result_type(float)
    u = uniform(words(key, shape), dtype.type)
    return uniform_index(u, limit)


@jax.named_scope("update_classes")
def update_classes(
    key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Int[Array, " n"], Int[Array, " N"], Float[Array, ""]]:
    """Steps 1 and 2: draw classes of households, with member classes summed out, then of members.

    Returns
    -------
    g, m
        Classes of the households and of the members.
    log_likelihood
        log P(sample) before truncation, all classes summed out.
    """
    key_g, key_m = Keys(key, 2)
    omega = jnp.exp(state.log_omega)
    tables = merged_tables(jnp.exp(state.log_phi), data.member.num_levels, data.plan)
    rows = merged_rows(data.member_codes, data.member.num_levels, data.plan)
    if data.distinct is None or data.distinct_index is None:
        log_member = log_member_probability(tables, omega, rows)
    else:
        distinct_rows = merged_rows(data.distinct, data.member.num_levels, data.plan)
        log_member = log_member_probability(tables, omega, distinct_rows)
        log_member = log_member.at[data.distinct_index].get(mode="promise_in_bounds")

    # This loop is not unrolled: on a CPU each operation that uses a fused gather would repeat it.
    def add(k, log_weight):
        rows_k = data.household_rows[k]
        return log_weight + state.log_lambda.at[rows_k].get(mode="promise_in_bounds")

    log_weight = sum_by_household(log_member, data.blocks_of_part, data.parts) + state.log_pi
    log_weight = jax.lax.fori_loop(0, data.household_rows.shape[0], add, log_weight)
    g, log_total = draw_rows(key_g, log_weight.T)
    of_member = repeat_by_member(g, data.blocks_of_part, data.parts)
    m = draw_member_classes(key_m, tables, omega, rows, of_member)
    log_p = jnp.where(data.household_weight > 0, jnp.minimum(log_total, 0), 0)
    return g, m, -order_free_sum(-log_p)


def count_classes(
    model: NestedOptions, g: Int[Array, " n"], m: Int[Array, " N"], data: NestedData
) -> Augmented:
    """Count households and members of the sample by class and level."""
    shape = (model.components, model.member_components)
    household_levels = count_rows_by_component(
        data.household_rows, jnp.broadcast_to(g, data.household_rows.shape),
        data.household_weight, (sum(data.household.num_levels), shape[0]),
    )  # fmt: skip
    z = repeat_by_member(g, data.blocks_of_part, data.parts) * shape[1] + m
    rows = data.member_codes + first_rows(data.member.num_levels)[:, None].astype(np.int32)
    member_levels = count_rows_by_component(
        rows, jnp.broadcast_to(z, rows.shape), data.member_weight,
        (sum(data.member.num_levels), math.prod(shape)),
    ).reshape(-1, *shape)  # fmt: skip
    return Augmented(
        households=jnp.sum(household_levels[data.household.size_rows], axis=0),
        household_levels=household_levels,
        members=jnp.sum(member_levels[: data.member.num_levels[0]], axis=0),
        member_levels=member_levels,
        unread=jnp.zeros((2, *shape), jnp.int32),
    )


@jax.named_scope("augment")
def augment(
    model: NestedOptions, key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Augmented, Int[Array, ""], Float[Array, ""]]:
    """Draw the impossible households (step 1 under rules).

    Returns
    -------
    augmented
        Counts of the impossible households by class and level.
    number
        Number of impossible households; -1 if there were too many.
    log_feasible
        Log P(possible) of a household: exact if the rules are tables; otherwise estimated by the
        share of possible households among the drawn ones.
    """
    augmented = Augmented.none(
        (model.components, model.member_components), data.household, data.member
    )
    if data.possible is None:
        return augmented, jnp.int32(0), jnp.zeros_like(state.alpha)
    until = data.num_households - model.prior_possible
    augmented, num_possible, number, failed = _draw_impossible(key, state, data, augmented, until)
    if data.closed_form:
        log_feasible = log_feasible_of(
            state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data
        )
    else:
        drawn = (num_possible + number).astype(state.alpha.dtype)
        log_feasible = jnp.log(num_possible / drawn)
    return augmented, jnp.where(failed, -1, number), log_feasible


def log_feasible_of(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R G S"],
    data: NestedData,
) -> Float[Array, ""]:
    """Log P(possible) of a household before truncation, sizes and classes summed out.

    It must have a closed form. If the arrays are not normalised, the result is the log of the sum
    of their products over all possible households.
    """
    if data.tables is not None:
        return log_possible(
            log_pi, log_omega, log_lambda, log_phi, data.tables, data.household, data.member,
            data.is_head,
        )  # fmt: skip
    members = np.array([size for size, _ in data.blocks])[:, None]
    log_members = members * jax.nn.logsumexp(log_omega, axis=1)
    return jax.nn.logsumexp(log_pi + log_lambda[data.household.size_rows] + log_members)


def _draw_impossible(
    key: Key[Array, ""], state: NestedState, data: NestedData, augmented: Augmented, until: int
) -> tuple[Augmented, Int[Array, ""], Int[Array, ""], Bool[Array, ""]]:
    """Simulate households until enough are possible; each has one head if the rules require it.

    Impossible households with another number of heads are then added without simulation.

    Returns
    -------
    augmented
        Counts of the impossible households by class and level.
    num_possible, number
        Numbers of possible and of impossible households.
    failed
        Whether there were too many.
    """
    key_simulate, key_heads = Keys(key, 2)
    tables = tables_of(
        state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.household,
        data.member, data.head,
    )  # fmt: skip
    sizes = SampleSizes(*zip(*data.blocks, strict=True))
    log_size = state.log_lambda[data.household.size_rows]
    drawn = DrawnVariables(data.household, data.member, data.head is not None)
    augmented, num_possible, number = add_simulated(
        key_simulate, augmented, tables, log_size, sizes, judge_of(data), drawn, until
    )
    failed = num_possible < until
    if drawn.has_head:
        augmented, others = add_other_heads(
            key_heads, augmented, tables, log_size, sizes.members, num_possible + number,
            data.household,
        )  # fmt: skip
        failed = failed | (others < 0)
        number = number + jnp.maximum(others, 0)
    return augmented, num_possible, number, failed


def judge_of(data: NestedData) -> Judge:
    """Function that judges simulated households, by tables if the rules have that form."""
    if data.tables is not None:
        return judge_by_tables(data.tables, data.household, data.member)
    assert data.possible is not None
    return judge_by_predicate(data.possible, *zip(*data.blocks, strict=True))


LevelShapes: TypeAlias = tuple[Float[Array, " Q+B"], Float[Array, " R+G"]]
"""Dirichlet shapes of the prior of level probabilities, of households and of members."""


@jax.named_scope("update_level_shapes")
def update_level_shapes(
    model: NestedOptions,
    key: Key[Array, ""],
    state: NestedState,
    counts: Augmented,
    data: NestedData,
) -> LevelShapes:
    """Draw the shapes of the prior of level probabilities, which are integrated out.

    The counts of members are by member class (`by_member_class`). The level probabilities must be
    drawn again before they are used.
    """
    key_household, key_member = Keys(key)
    household_shape = update_shape(
        model, key_household, counts.household_levels,
        data.household_levels.with_shape(state.household_shape),
    )  # fmt: skip
    member_shape = update_shape(
        model, key_member, counts.member_levels.reshape(len(counts.member_levels), -1),
        data.member_levels.with_shape(state.member_shape),
    )  # fmt: skip
    return _keep_sizes(model, household_shape, data), _keep_heads(model, member_shape, data)


def by_member_class(model: NestedOptions, counts: Augmented) -> Augmented:
    """Add up the counts of members over the household classes, if these share member classes."""
    if not model.shares_members:
        return counts
    return counts._replace(
        member_levels=jnp.sum(counts.member_levels, axis=1, keepdims=True),
        unread=jnp.sum(counts.unread, axis=1, keepdims=True),
    )


def _keep_sizes(
    model: NestedOptions, household_shape: Float[Array, " Q"], data: NestedData
) -> Float[Array, " Q"]:
    """Shapes with ones for the sizes, if rules leave few of the large households possible.

    The data give no information on how many large households there would be before truncation. With
    a learned prior, nearly all households would be large and impossible. Given sizes have no prior.
    """
    if not learns_levels(model) or (data.possible is None and model.sizes == "random"):
        return household_shape
    return household_shape.at[data.household.size_rows].set(1)


def _keep_heads(
    model: NestedOptions, member_shape: Float[Array, " R"], data: NestedData
) -> Float[Array, " R"]:
    """Shapes with ones for the levels of heads, if every household has exactly one head."""
    if not learns_levels(model):
        return member_shape
    group = data.member_levels.group
    return jnp.where(group == len(data.member.num_levels), 1, member_shape)


def initial_member_class_shapes(model: NestedOptions) -> Float[Array, " S"]:
    """Dirichlet shapes of the weights of shared member classes in an initial state."""
    number, fixed = model.member_components, model.fixed_beta
    if not model.shares_members:
        return jnp.zeros(1)
    return jnp.full(number, 1.0 if fixed is None else fixed / number)


def draw_member_class_shapes(model: NestedOptions, key: Key[Array, ""]) -> Float[Array, " S"]:
    """Draw the Dirichlet shapes of the weights of shared member classes from their prior.

    If member classes are not shared, or beta is fixed, the result is the initial shapes.
    """
    if not model.shares_members or model.fixed_beta is not None:
        return initial_member_class_shapes(model)
    return draw_level_prior(key, Levels.of_variables((model.member_components,)))


def update_member_class_shapes(
    model: NestedOptions, key: Key[Array, ""], shape: Float[Array, " S"], counts: Augmented
) -> Float[Array, " S"]:
    """Draw the Dirichlet shapes of the weights of shared member classes given their members.

    The weights are integrated out, and must be drawn again before they are used.
    """
    if model.fixed_beta is not None:
        return shape
    levels = Levels.of_variables((model.member_components,))
    return update_level_prior(key, counts.members.T, levels.with_shape(shape))


@jax.named_scope("update_parameters")
def update_parameters(
    model: NestedOptions,
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    beta: Float[Array, " *F"],
    member_class_shapes: Float[Array, " S"],
    shapes: LevelShapes,
    counts: Augmented,
    data: NestedData,
) -> NestedState:
    """Draw level probabilities, sticks, and then their concentrations (steps 3 to 8).

    Parameters
    ----------
    alpha, beta
        Concentrations of the household classes and of the member classes.
    member_class_shapes
        Dirichlet shapes of the weights of shared member classes, which then give beta.
    shapes
        Dirichlet shapes of the level probabilities' prior.
    counts
        Possible and impossible households by class and level, from `by_member_class`.
    data
        The sample, completed.
    """
    given = model.sizes == "given"
    key_levels, key_pi, key_omega, key_concentrations, *key_sizes = Keys(key, 4 + given)
    log_lambda, log_phi = draw_level_probabilities(key_levels, shapes, counts, data)
    if given:
        log_lambda = _draw_common_sizes(model, key_sizes[0], log_lambda, counts, data)
    log_pi, sum_log_1mv = model.draw_weights(key_pi, counts.households, alpha)
    if model.shares_members:
        log_omega = log_dirichlet(key_omega, member_class_shapes + counts.members)
        none = jnp.zeros(model.components, log_omega.dtype)
        alpha, _ = model.draw_concentrations(key_concentrations, alpha, beta, sum_log_1mv, none)
        beta = jnp.sum(member_class_shapes)
    else:
        each_beta = jnp.broadcast_to(beta, (model.components,))
        log_omega, sums_log_1mv = model.draw_weights(key_omega, counts.members, each_beta)
        alpha, beta = model.draw_concentrations(
            key_concentrations, alpha, beta, sum_log_1mv, sums_log_1mv
        )
    return NestedState(
        log_pi,
        log_omega,
        log_lambda,
        log_phi,
        *shapes,
        alpha,
        beta,
        member_class_shapes,
        completed_values(data),
    )


@jax.named_scope("draw_level_probabilities")
def draw_level_probabilities(
    key: Key[Array, ""], shapes: LevelShapes, counts: Augmented, data: NestedData
) -> tuple[Float[Array, "Q F"], Float[Array, "R G S"]]:
    """Draw log level probabilities of households and of members.

    The gamma variates are drawn together, because separate draws are compiled and run one by one.

    Parameters
    ----------
    shapes
        Dirichlet shapes of their prior.
    counts
        Households and members by class and level. For some members only their kind (head or other
        member) is known.
    """
    num_classes = math.prod(counts.member_levels.shape[1:])
    household = data.household_levels.with_shape(shapes[0])
    member = data.member_levels.with_shape(shapes[1])
    member_levels = counts.member_levels.reshape(-1, num_classes)
    posterior = [household.given(counts.household_levels), member.given(member_levels)]
    if data.head is not None:
        posterior.append(_kind_shapes(member_levels, counts.unread.reshape(2, num_classes), data))
    log_household, log_member, *log_kind = _log_gammas(key, posterior)
    log_lambda = household.log_levels(household.normalise(log_household))
    log_phi = member.log_levels(member.normalise(log_member))
    if data.head is not None:
        # P(kind) P(level | kind): shares of kinds use all counts; level probabilities use only
        # members with known levels.
        rows, kind = _rows_of_head(data)
        log_phi = log_phi.at[rows].add(jax.nn.log_softmax(log_kind[0], axis=0)[kind])
    log_lambda, log_phi = (jnp.maximum(x, LOG_LEAST_LEVEL) for x in (log_lambda, log_phi))
    return log_lambda, log_phi.reshape(counts.member_levels.shape)


def _draw_common_sizes(
    model: NestedOptions,
    key: Key[Array, ""],
    log_lambda: Float[Array, "Q F"],
    counts: Augmented,
    data: NestedData,
) -> Float[Array, "Q F"]:
    """Log level probabilities of households, with the same distribution of sizes in all classes.

    Notes
    -----
    With weights w of the sizes, independent of the class and of prior prod_h 1 / w_h, the model of
    random sizes has the likelihood prod_i w_{h_i} f(x_i | h_i) / (sum_h w_h P_h)^n, whose integral
    over w is prod_i f(x_i | h_i) / P_{h_i}, up to a constant. This is the likelihood of households
    with given sizes, where P_h is the probability that a household of size h is possible.

    If the prior of the other parameters is multiplied by prod_h P_h^{c_h}, where c_h is the same
    share of the households of each size, the prior of w is prod_h 1 / w_h^{1 + c_h}.
    """
    rows = data.household.size_rows
    number = jnp.sum(counts.household_levels[rows], axis=1).astype(log_lambda.dtype)
    _, households = zip(*data.blocks, strict=True)
    share = model.prior_possible / data.num_households
    # If there is no household, as in draws from the prior, any weights can be used.
    shape = jnp.where(jnp.sum(number) > 0, number - share * np.array(households), 1)
    log_share = log_dirichlet(key, shape)
    return log_lambda.at[rows].set(jnp.maximum(log_share, LOG_LEAST_LEVEL)[:, None])


def _rows_of_head(data: NestedData) -> tuple[slice, np.ndarray]:
    """Rows of the variable that identifies heads, and 1 for each of its levels that means head."""
    assert data.head is not None
    return data.member.rows(data.head.variable), np.array(data.head.levels, np.int32)


def _kind_shapes(
    levels: Int[Array, "R C"], unread: Int[Array, "2 C"], data: NestedData
) -> Float[Array, "2 C"]:
    """Dirichlet parameters of the two kinds (other member, head), from counts over their levels."""
    rows, kind = _rows_of_head(data)
    read = [jnp.sum(levels[rows][kind == k], axis=0) for k in (0, 1)]
    return jnp.asarray(data.kind_shape)[:, None] + jnp.stack(read) + unread


def _log_gammas(
    key: Key[Array, ""], shapes: Sequence[Float[Array, "..."]]
) -> list[Float[Array, "..."]]:
    """Logarithms of gamma variates: arrays of several shapes in one draw."""
    log_g = loggamma(key, jnp.concatenate([x.reshape(-1) for x in shapes]))
    ends = np.cumsum([x.size for x in shapes])[:-1]
    return [x.reshape(y.shape) for x, y in zip(jnp.split(log_g, ends), shapes, strict=True)]


@jax.named_scope("update_order")
def update_order(model: NestedOptions, key: Key[Array, ""], state: NestedState) -> NestedState:
    """Exchange adjacent classes with their weights; only the prior of the sticks has an order."""
    if not model.reorder:
        return state
    key_pi, key_omega = Keys(key, 2)
    order = reorder_classes(key_pi, state.log_pi, state.alpha)
    if model.shares_members:
        # Shared member classes have no order.
        return reordered(state, order)
    beta = jnp.broadcast_to(state.beta, (model.components,))
    nested = jax.vmap(reorder_classes)(
        key_array(key_omega, model.components), state.log_omega, beta
    )
    return reordered(state, order, nested)


def reordered(
    state: NestedState, order: Int[Array, " F"], nested: Int[Array, "F S"] | None = None
) -> NestedState:
    """Reorder member classes by `nested` in each household class, then household classes.

    Without `nested`, household classes share the member classes, whose order is kept.
    """
    if nested is None:
        return dataclasses.replace(
            state,
            log_pi=state.log_pi[order],
            log_omega=state.log_omega[order],
            log_lambda=state.log_lambda[:, order],
        )
    nested = nested[order]
    rows = order[:, None], nested
    return dataclasses.replace(
        state,
        log_pi=state.log_pi[order],
        log_omega=state.log_omega[rows],
        log_lambda=state.log_lambda[:, order],
        log_phi=state.log_phi[:, *rows],
        beta=state.beta[order] if state.beta.ndim else state.beta,
    )
