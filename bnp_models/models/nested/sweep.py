"""One sweep of the nested model: classes, impossible households, parameters, order."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.latent_classes.order import reorder_classes
from bnp_models.kernels.nested.impossible import (
    MAX_COUNTED,
    Augmented,
    add_other_heads,
    add_simulated,
)
from bnp_models.kernels.nested.judges import Judge, judge_by_predicate, judge_by_tables
from bnp_models.kernels.nested.members import (
    draw_member_classes,
    log_member_probability,
    merged_rows,
    merged_tables,
    repeat_by_member,
    sum_by_household,
)
from bnp_models.kernels.nested.parameters import tables_of
from bnp_models.kernels.nested.possible import log_possible
from bnp_models.kernels.numerics.counting import count_rows_by_component, first_rows, order_free_sum
from bnp_models.kernels.variates.categorical import draw_rows
from bnp_models.kernels.variates.gamma import (
    gamma_variate,
    loggamma,
    loggamma_from_one,
    normalise_levels,
)
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.kernels.variates.sticks import truncated_sticks
from bnp_models.models.model import Model
from bnp_models.models.nested.missing import completed_values
from bnp_models.models.nested.prepare import variable_of_rows
from bnp_models.models.nested.state import NestedData, NestedState


def draw_prior(model: Model, key: Key[Array, ""], data: NestedData) -> NestedState:
    """Parameters from the prior before truncation."""
    key_alpha, key_beta, key_parameters = jax.random.split(key, 3)
    dtype = jnp.result_type(float)
    alpha = gamma_variate(key_alpha, jnp.asarray(model.a, dtype), model.b)
    shape = (model.components,) if model.beta == "class" else ()
    beta = gamma_variate(key_beta, jnp.full(shape, model.a_beta, dtype), model.b_beta)
    none = Augmented.none((model.components, model.member_components), data.household, data.member)
    return update_parameters(model, key_parameters, alpha, beta, none, data)


def draw_uniform(key, shape, limit):
    dtype = jnp.result_type(float)
    u = uniform(words(key, shape), dtype.type)
    return jnp.minimum((u * limit).astype(jnp.int32), limit - 1)


def update_classes(
    key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Int[Array, " n"], Int[Array, " N"], Float[Array, ""]]:
    """Steps 1 and 2: the class of every household, its members' summed out, and then theirs.

    Returns
    -------
    g, m
        Classes of the households and of the members.
    log_likelihood
        Of the sample before truncation, all classes summed out.
    """
    key_g, key_m = jax.random.split(key)
    omega = jnp.exp(state.log_omega)
    tables = merged_tables(jnp.exp(state.log_phi), data.member.num_levels, data.plan)
    rows = merged_rows(data.member_codes, data.member.num_levels, data.plan)
    if data.distinct is None:
        log_member = log_member_probability(tables, omega, rows)
    else:
        codes, index = data.distinct
        own = merged_rows(codes, data.member.num_levels, data.plan)
        log_member = log_member_probability(tables, omega, own)
        log_member = log_member.at[index].get(mode="promise_in_bounds")

    # A loop, not unrolled: fused gathers are computed again by every consumer on a CPU.
    def add(k, log_weight):
        own = data.household_rows[k]
        return log_weight + state.log_lambda.at[own].get(mode="promise_in_bounds")

    log_weight = sum_by_household(log_member, data.blocks) + state.log_pi
    log_weight = jax.lax.fori_loop(0, data.household_rows.shape[0], add, log_weight)
    g, log_total = draw_rows(key_g, log_weight.T)
    m = draw_member_classes(key_m, tables, omega, rows, repeat_by_member(g, data.blocks))
    return g, m, -order_free_sum(-jnp.minimum(log_total, 0))


def count_classes(
    model: Model, g: Int[Array, " n"], m: Int[Array, " N"], data: NestedData
) -> Augmented:
    """Households and members of the sample by class and level."""
    shape = (model.components, model.member_components)
    household_levels = count_rows_by_component(
        data.household_rows, jnp.broadcast_to(g, data.household_rows.shape),
        jnp.ones(g.size, jnp.int32), (sum(data.household.num_levels), shape[0]),
    )  # fmt: skip
    z = repeat_by_member(g, data.blocks) * shape[1] + m
    rows = data.member_codes + first_rows(data.member.num_levels)[:, None].astype(np.int32)
    member_levels = count_rows_by_component(
        rows, jnp.broadcast_to(z, rows.shape), jnp.ones(z.size, jnp.int32),
        (sum(data.member.num_levels), math.prod(shape)),
    ).reshape(-1, *shape)  # fmt: skip
    return Augmented(
        households=jnp.sum(household_levels[data.household.size_rows], axis=0),
        household_levels=household_levels,
        members=jnp.sum(member_levels[: data.member.num_levels[0]], axis=0),
        member_levels=member_levels,
        unread=jnp.zeros((2, *shape), jnp.int32),
    )


def augment(
    model: Model, key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Augmented, Int[Array, ""], Float[Array, ""]]:
    """Step 1 under structural zeros: the impossible households.

    Returns
    -------
    augmented
        Their counts.
    number
        How many, weighted; -1 where there were too many.
    log_feasible
        Log P(possible) of a household: exact where the rules are tables, else from the share of
        possible ones among those drawn.
    """
    shape = (model.components, model.member_components)
    augmented = Augmented.none(shape, data.household, data.member)
    if data.possible is None:
        return augmented, jnp.int32(0), jnp.zeros_like(state.alpha)
    tables = tables_of(
        state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.household,
        data.member, data.head,
    )  # fmt: skip
    key_simulate, key_heads = jax.random.split(key)
    sizes, wanted = zip(*data.blocks, strict=True)
    log_size = state.log_lambda[data.household.size_rows]
    has_head = data.head is not None
    until = -(-sum(wanted) // model.impossible_weight)
    augmented, found, number = add_simulated(
        key_simulate, augmented, tables, log_size, sizes, wanted, judge_of(data), data.household,
        data.member, has_head, until,
    )  # fmt: skip
    failed = found < until
    if has_head:
        augmented, others = add_other_heads(
            key_heads, augmented, tables, log_size, sizes, found + number, data.household
        )
        failed = failed | (others < 0)
        number = number + jnp.maximum(others, 0)
    if data.tables is not None and data.tables.compositions is not None:
        log_share = log_possible(
            state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.tables,
            data.household, data.member, data.is_head,
        )  # fmt: skip
    else:
        log_share = jnp.log(found / (found + number).astype(state.alpha.dtype))
    if model.impossible_weight > 1:
        # All or nothing, as in `add_other_heads`: int32 must hold them.
        most = jnp.maximum(jnp.sum(augmented.members.astype(state.alpha.dtype)), number)
        failed = failed | (most * model.impossible_weight > MAX_COUNTED)
        weight = jnp.where(failed, 1, model.impossible_weight)
        augmented = jax.tree.map(lambda x: x * weight, augmented)
        number = number * weight
    return augmented, jnp.where(failed, -1, number), log_share


def judge_of(data: NestedData) -> Judge:
    if data.tables is None:
        return judge_by_predicate(data.possible, *zip(*data.blocks, strict=True))
    return judge_by_tables(data.tables, data.household, data.member)


def update_parameters(
    model: Model,
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    beta: Float[Array, " *F"],
    counts: Augmented,
    data: NestedData,
) -> NestedState:
    """Steps 3 to 8: level probabilities, sticks and then their concentrations."""
    keys = jax.random.split(key, 4)
    log_lambda, log_phi = draw_level_probabilities(keys[0], counts, data, model.level_concentration)
    log_pi, sum_log_1mv = truncated_sticks(keys[1], counts.households, alpha)
    each_beta = jnp.broadcast_to(beta, (model.components,))
    log_omega, sums_log_1mv = truncated_sticks(keys[2], counts.members, each_beta)
    sticks = model.member_components - 1
    if model.beta == "common":
        sticks, sums_log_1mv = sticks * model.components, jnp.sum(sums_log_1mv)
    of_betas = jnp.atleast_1d(sums_log_1mv)
    dtype = alpha.dtype
    drawn = gamma_variate(
        keys[3],
        jnp.full(1 + of_betas.size, model.a_beta + sticks, dtype)
        .at[0].set(model.a + model.components - 1),
        jnp.append(model.b - sum_log_1mv, model.b_beta - of_betas),
    )  # fmt: skip
    alpha, beta = drawn[0], drawn[1:].reshape(beta.shape)
    return NestedState(log_pi, log_omega, log_lambda, log_phi, alpha, beta, completed_values(data))


def draw_level_probabilities(
    key: Key[Array, ""], counts: Augmented, data: NestedData, concentration: float = 1.0
) -> tuple[Float[Array, "Q F"], Float[Array, "R F S"]]:
    """Log level probabilities of households and of members, those known by their kind only among
    the counts.

    The gamma variates are drawn together: each draw apart is compiled, and waits, by itself.

    Parameters
    ----------
    concentration
        Of the symmetric Dirichlet priors of levels, or of groups; at least 1 is quicker.
    """
    num_member, num_classes = counts.member_levels.shape[0], counts.members.size
    of_levels = [counts.household_levels, counts.member_levels.reshape(num_member, num_classes)]
    groups = [data.household_groups, data.member_groups]
    of_groups = [
        x if own is None
        else jnp.zeros((sum(own.num_groups), x.shape[1]), x.dtype).at[own.group].add(x)
        for x, own in zip(of_levels, groups, strict=True)
    ]  # fmt: skip
    dtype = jnp.result_type(float)
    shapes = [concentration + x.astype(dtype) for x in of_groups]
    # Shares within groups are those of all classes.
    shapes += [
        1 + jnp.sum(x, axis=1).astype(dtype)
        for x, own in zip(of_levels, groups, strict=True) if own is not None
    ]  # fmt: skip
    if data.head is not None:
        variable, levels = data.head
        num_groups = data.member.num_levels
        if data.member_groups is not None:
            num_groups = data.member_groups.num_groups
        first = first_rows(num_groups)[variable]
        own = slice(first, first + len(levels))
        kind = jnp.asarray(levels, jnp.int32)
        of_kind = [jnp.sum(shapes[1][own][np.array(levels) == k], axis=0) for k in (0, 1)]
        unread = counts.unread.reshape(2, num_classes)
        shapes.append(jnp.stack(of_kind) + unread)
    flat = jnp.concatenate([x.reshape(-1) for x in shapes])
    log_g = loggamma_from_one(key, flat) if concentration >= 1 else loggamma(key, flat)
    ends = np.cumsum([x.size for x in shapes])[:-1]
    log_g = [x.reshape(y.shape) for x, y in zip(jnp.split(log_g, ends), shapes, strict=True)]
    found = []
    within = iter(log_g[2:])
    for j, (of_group, variable) in enumerate(
        zip(groups, (data.household_variable, data.member_variable), strict=True)
    ):
        if of_group is not None:
            variable = variable_of_rows(of_group.num_groups)
        log_levels = normalise_levels(log_g[j], variable)
        if j == 1 and data.head is not None:
            # Kinds have Dirichlet shares given all counts, the levels of one given those read only.
            log_share = jax.nn.log_softmax(log_g[-1], axis=0)
            of_kind = normalise_levels(log_g[j][own], kind)
            log_levels = log_levels.at[own].set(of_kind + log_share[kind])
        if of_group is not None:
            share = normalise_levels(next(within)[:, None], of_group.group)
            log_levels = log_levels[of_group.group] + share
        found.append(log_levels)
    return found[0], found[1].reshape(counts.member_levels.shape)


def update_order(model: Model, key: Key[Array, ""], state: NestedState) -> NestedState:
    """Exchange classes with their neighbours, weights and all: only the sticks know the order."""
    if not model.reorder:
        return state
    key_pi, key_omega = jax.random.split(key)
    order = reorder_classes(key_pi, state.log_pi, state.alpha)
    beta = jnp.broadcast_to(state.beta, (model.components,))
    nested = jax.vmap(reorder_classes)(
        jax.random.split(key_omega, model.components), state.log_omega, beta
    )
    return reordered(state, order, nested)


def reordered(state: NestedState, order, nested) -> NestedState:
    """Member classes in the order `nested` of each household class, then those in `order`."""
    nested = nested[order]
    rows = order[:, None], nested
    return NestedState(
        log_pi=state.log_pi[order],
        log_omega=state.log_omega[rows],
        log_lambda=state.log_lambda[:, order],
        log_phi=state.log_phi[:, *rows],
        alpha=state.alpha,
        beta=state.beta[order] if state.beta.ndim else state.beta,
        completed=state.completed,
    )
