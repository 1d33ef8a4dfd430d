"""What tests of HDP mixed membership under structural zeros share: exact answers, chains, faults.

Tables have three variables. Exact posterior means are ratios of expectations under the prior of
(G_0, alpha), drawn with NumPy, of the likelihood prod_i p(x_i) / P(F)^n, every cell's p(x) summed
over the five partitions of three variables by hand: nothing of the package is used.
"""

import contextlib
from functools import cache, partial
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DEEP, DEEP_GROUPS, draw_variable, of_ones, prior_of, where
from scipy import integrate, stats
from scipy.special import digamma

from bnp_models import HDPMixedMembership, StructuralZeros
from bnp_models.data.schema import Schema
from bnp_models.kernels.mixed_membership import (
    truncated_split_merge,
    urn_boxes,
)
from bnp_models.kernels.mixed_membership.tables import simulate_labels, simulate_levels
from bnp_models.kernels.mixed_membership.urn_boxes import probability, weights_by_size
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.numerics.set_partitions import log_block_weights
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.levels import Levels, bands_of_levels
from bnp_models.models.mixed_membership import (
    augmentation,
    conditionals,
    fixed_profiles,
    hdp,
    sweep,
    truncated_sweep,
)
from bnp_models.models.mixed_membership import feasible as mixed_membership_feasible
from bnp_models.models.mixed_membership.new_records import (
    in_boxes,
    log_cell_probability,
    pad_levels,
)
from bnp_models.models.mixed_membership.start import prepare_records

# One condition; half of the table impossible; an equivalence between the first two variables.
BINARY = (2, 2, 2)
CONDITIONS = {
    "one": [[1, 1, -1]],
    "half": [[0, 0, 0], [1, 1, -1], [-1, 1, 1]],
    "equivalence": [[0, 1, -1], [1, 0, -1]],
    # The first variable is ordered, of four levels.
    "ordered": [[1, 1, -1], [2, 1, -1], [3, -1, 0]],
    "ordered, equivalence": [[0, 1, -1], [3, 1, -1], [1, 0, -1], [2, 0, -1]],
    "ordered, without": [],
    # The first variable has six levels in groups that lie in larger ones.
    "groups": [[1, 1, -1], [2, 1, -1], [5, -1, 0]],
    "groups, without": [],
}
LEVELS = {name: (4, 2, 2) for name in CONDITIONS if name.startswith("ordered")}
LEVELS |= {name: (6, 2, 2) for name in CONDITIONS if name.startswith("groups")}
# Trees of the first variable, as they are drawn and as the models have them.
TREES = {4: ([2, 2], bands_of_levels(4)), 6: (DEEP, DEEP_GROUPS)}
SAMPLES = {
    "one": [[0, 0, 0], [0, 0, 0], [1, 0, 1], [0, 1, 1]],
    "half": [[0, 0, 1], [1, 0, 0], [1, 0, 0]],
    "equivalence": [[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]],
    "ordered": [[0, 0, 0], [0, 1, 1], [1, 0, 1], [3, 1, 1]],
    "ordered, equivalence": [[0, 0, 0], [3, 0, 1], [1, 1, 1], [1, 1, 0]],
    "ordered, without": [[0, 0, 0], [0, 1, 1], [1, 0, 1], [3, 1, 1]],
    "groups": [[0, 0, 0], [0, 1, 1], [1, 0, 1], [4, 1, 1]],
    "groups, without": [[0, 0, 0], [0, 1, 1], [1, 0, 1], [4, 1, 1]],
}
NAMES = ("alpha", "alpha0", "log_feasible", "first cell", "last cell", "log_c")

# For joint distributions: 8 cells of 18 are feasible. The first level of the first variable goes
# with the first of the second, and the last two levels of the third are in every condition alike.
WIDER = (2, 3, 3)
WIDER_CONDITIONS = [[0, 1, -1], [0, 2, -1], [1, 0, -1], [1, 1, 0]]

# 14 cells of 18, with a level part of two levels.
MOST_FEASIBLE = [[0, 0, -1], [1, 2, 2]]

_STICKS = 64


def fit_few_records(monkeypatch):
    """Loops that fit the few records of a table."""
    monkeypatch.setattr(augmentation, "SIMULATION_BATCH", 64)
    monkeypatch.setattr(urn_boxes, "_BLOCKS_AT_ONCE", 64)
    # So that some blocks are drawn one by one, and some are counted.
    monkeypatch.setattr(urn_boxes, "_COUNTED_TYPES", 4)
    monkeypatch.setattr(urn_boxes, "_COUNTED_BLOCKS", 2)
    monkeypatch.setattr(urn_boxes, "_COUNTED_TOGETHER", 8)


def at_least(log_feasible):
    """log P(F), as -3 where it is less.

    A learned prior has near 1% of a posterior where next to nothing is feasible, which chains
    seldom find and slowly leave.
    """
    return jnp.maximum(log_feasible, -3.0)


def structural_zeros(conditions, num_levels=BINARY) -> StructuralZeros | None:
    """Conditions given as codes, -1 where a variable is free; None where there are none."""
    if not len(conditions):
        return None
    schema = Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in num_levels))
    return StructuralZeros.from_codes(np.array(conditions, np.int32), schema)


def all_cells(num_levels):
    return np.array(list(product(*map(range, num_levels))))


def is_feasible(conditions, num_levels=BINARY):
    """Whether no condition describes a cell, for all of `all_cells`."""
    cells = all_cells(num_levels)
    rows = np.array(conditions).reshape(-1, 1, len(num_levels))
    return ~np.any(np.all((rows < 0) | (cells == rows), axis=2), axis=0)


@cache
def prior_draws(num_levels, a0, b0, level_prior, num_draws=200_000, seed=0):
    """Draws of alpha_0, of log c of the first variable's levels, and of sums over partitions.

    By blocks B = 1, 2, 3 and for all cells, the sums (3, draws, cells) are of the product over
    blocks of (|b| - 1)! sum_k g_0k prod_j theta_kj.
    """
    rng = np.random.default_rng(seed)
    size = 10_000
    alphas, concentrations, parts = [], [], []
    for _ in range(0, num_draws, size):
        alpha0 = np.full(size, a0) if b0 is None else rng.gamma(a0, 1 / b0, size)
        log_1mv = np.log(rng.random((size, _STICKS))) / alpha0[:, None]
        log_1mv[:, -1] = -np.inf
        passed = np.cumsum(log_1mv[:, :-1], axis=1)
        g0 = -np.expm1(log_1mv) * np.exp(np.concatenate([np.zeros((size, 1)), passed], axis=1))
        (x, log_c), (y, _), (z, _) = (
            draw_variable(rng, level_prior, size, tree, (_STICKS,))
            for tree in (TREES.get(num_levels[0], num_levels)[0], *num_levels[1:])
        )
        gx, gy, zt = x * g0[:, None], y * g0[:, None], z.swapaxes(1, 2)
        alone = [(t @ g0[:, :, None])[:, :, 0] for t in (x, y, z)]
        a, b, c = (
            alone[0][:, :, None, None], alone[1][:, None, :, None], alone[2][:, None, None, :]
        )  # fmt: skip
        ab = (gx @ y.swapaxes(1, 2))[:, :, :, None]
        ac, bc = (gx @ zt)[:, :, None, :], (gy @ zt)[:, None, :, :]
        abc = (gx[:, :, None] * y[:, None]).reshape(size, -1, _STICKS) @ zt
        sums = np.stack([2 * abc.reshape((a * b * c).shape), ab * c + ac * b + bc * a, a * b * c])
        alphas.append(alpha0)
        concentrations.append(log_c)
        parts.append(sums.reshape(3, size, -1))
    return (
        np.concatenate(alphas), np.concatenate(concentrations), np.concatenate(parts, axis=1)
    )  # fmt: skip


def of_alpha0(model):
    """Shape and rate of alpha_0's prior, or the number that it is, and None."""
    return (model.a0, model.b0) if model.alpha0 is None else (model.alpha0, None)


def _weights(alpha):
    """alpha^B / (alpha)_3 for B = 1, 2, 3."""
    rising = alpha * (alpha + 1) * (alpha + 2)
    return np.stack([alpha**b / rising for b in (1, 2, 3)])


def urn_weights(model, size, seed=1):
    """Draws of alpha (or b, or zeros) and of E[alpha^B / (alpha)_3] of a new record (3, size)."""
    rng = np.random.default_rng(seed)
    if model.shared:
        alpha = rng.gamma(model.a, 1 / model.b, size)
        if model.alpha is not None:
            alpha = np.full(size, model.alpha)
        return alpha, _weights(alpha)
    if model.concentration == "record":
        prior = stats.gamma(model.a, scale=1 / model.b)
        mean = [
            integrate.quad(lambda x, b=b: _weights(x)[b] * prior.pdf(x), 0, np.inf, epsabs=1e-12)
            for b in range(3)
        ]
        return np.zeros(size), np.array(mean)[:, :1]
    # A grid of b, for each of which the weights are a trapezoid sum over log alpha.
    rates = rng.gamma(model.a1, 1 / model.b1, size)
    grid = np.exp(np.linspace(-16, 5, 400))
    nodes = np.exp(np.linspace(-40, 18, 4001))
    density = stats.gamma.pdf(nodes[:, None], model.a, scale=1 / grid) * nodes[:, None]
    table = _weights(nodes) @ density * np.diff(np.log(nodes))[0]
    return rates, np.stack([np.interp(np.log(rates), np.log(grid), row) for row in table])


def exact_means(model, name: str):
    """Posterior means of what `posterior_chains` follows, and their errors.

    Of alpha (or b), alpha_0, log P(F), two cells' shares, and log c of the first variable.

    Under the model of alphas of their own, "alpha" is the rate b where it has a prior, else 0.
    """
    num_levels = LEVELS.get(name, BINARY)
    alpha0, log_c, sums = prior_draws(num_levels, *of_alpha0(model), prior_of(model))
    first, weight = urn_weights(model, len(alpha0))
    p = np.einsum("bd,bdc->dc", np.broadcast_to(weight, (3, len(alpha0))), sums)
    feasible = is_feasible(CONDITIONS[name], num_levels)
    mass = p[:, feasible].sum(axis=1)
    cells = all_cells(num_levels)
    index = [int(np.flatnonzero(np.all(cells == x, axis=1))[0]) for x in SAMPLES[name]]
    likelihood = np.prod(p[:, index], axis=1) / mass ** len(index)
    ends = np.flatnonzero(feasible)[[0, -1]]
    log_feasible = at_least(np.log(mass))
    values = np.column_stack([first, alpha0, log_feasible, p[:, ends] / mass[:, None], log_c])
    return weighted_means(likelihood, values)


def weighted_means(likelihood, values):
    """Means of values (draws, quantities) of prior draws with these weights, and their errors."""
    top = likelihood[:, None] * values
    mean = top.mean(axis=0) / likelihood.mean()
    residual = top - mean * likelihood[:, None]
    return mean, residual.std(axis=0) / likelihood.mean() / np.sqrt(len(likelihood))


def prior_means(model, conditions):
    """Means of what `joint_chains` returns under the prior, and their errors.

    alpha (or b), its logarithm, alpha_0, its logarithm, log P(F), a covariance: of the first
    logarithm and log P(F) at small less that at large alpha, which are independent; c of the second
    variable's levels, its logarithm and the mean of its first level.
    """
    alpha0, _, sums = prior_draws(WIDER, *of_alpha0(model), prior_of(model))
    _, weight = urn_weights(model, len(alpha0))
    mass = sums[:, :, is_feasible(conditions, WIDER)].sum(axis=2)
    log_p = np.log(np.sum(weight * mass, axis=0))
    mean = [*_first_moments(model), model.a0 / model.b0, digamma(model.a0) - np.log(model.b0)]
    error = log_p.std() / np.sqrt(len(log_p))
    size = WIDER[1]
    of_levels = [size, np.log(size) + digamma(1), 1 / size]
    return np.array([*mean, log_p.mean(), 0, *of_levels]), np.array([0, 0, 0, 0, error, *[0] * 4])


def _first_moments(model):
    """Prior means of `_first` and of its logarithm."""
    if model.concentration == "record":
        return 0.0, 0.0
    a, b = (model.a, model.b) if model.shared else (model.a1, model.b1)
    return a / b, digamma(a) - np.log(b)


# Faults: each is a wrong version of one step, chosen by a switch when the compiled sweep runs.


def _forget(field):
    def fault(wrong):
        right = truncated_sweep.draw_augmented

        def draw_augmented(*args):
            found = right(*args)
            return found._replace(**{field: jnp.where(wrong, 0, getattr(found, field))})

        return truncated_sweep, "draw_augmented", draw_augmented

    return fault


def _untruncated_alpha(wrong):
    right = conditionals.truncated_shared_concentration

    def truncated_shared_concentration(*args):
        *rest, log_growth = args
        return right(*rest, lambda *both: jnp.where(wrong, 0, log_growth(*both)))

    return conditionals, "truncated_shared_concentration", truncated_shared_concentration


def _argument(module, name, place, change):
    """A function of a module that gets another argument at this place."""

    def fault(wrong):
        right = getattr(module, name)

        def function(*args):
            args = list(args)
            args[place] = where(wrong, change(args[place]), args[place])
            return right(*args)

        return module, name, function

    return fault


def _field(name, place, field, change):
    """A step whose argument at this place gets another value of a field."""
    module = sweep if name == "seatless_shared_concentration" else truncated_sweep

    def fault(wrong):
        right = getattr(module, name)

        def function(*args):
            args = list(args)
            old = getattr(args[place], field)
            args[place] = args[place]._replace(**{field: where(wrong, change(old), old)})
            return right(*args)

        return module, name, function

    return fault


def _untruncated_trajectory(wrong):
    right = truncated_sweep.move_parameters

    def move_parameters(key, now, density, concentration, truncation, *args):
        def untruncated(value):
            given = truncation(value)
            return given._replace(num_records=jnp.where(wrong, 0, given.num_records))

        return right(key, now, density, concentration, untruncated, *args)

    return truncated_sweep, "move_parameters", move_parameters


def _untruncated_splits(wrong):
    right = truncated_split_merge.probability

    def probability(*args):
        return jnp.where(wrong, 1, right(*args))

    return truncated_split_merge, "probability", probability


def _without_bands(name):
    # As if levels were Dirichlet in all: nodes are the levels, with their shapes.
    def fault(wrong):
        right, count = getattr(truncated_sweep, name), Levels.count

        def forget(self, of_level):
            nodes, of_levels = count(self, of_level), len(of_level)
            return jnp.where(wrong, nodes.at[of_levels:].set(0), nodes)

        def function(*args):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Levels, "count", forget)
                return right(*args)

        return truncated_sweep, name, function

    return fault


FAULTS = {
    "trajectory without bands": _without_bands("move_parameters"),
    "tilt without bands": _without_bands("tilt_component"),
    "split-merge not truncated": _untruncated_splits,
    "augmented tables left out": _forget("tables"),
    "augmented levels left out": _forget("levels"),
    "augmented alphas left out": _forget("sum_alpha"),
    "alpha not truncated": _untruncated_alpha,
    "tilt with the prior of levels twice": _field(
        "tilt_component", 3, "counts", lambda counts: counts + 1
    ),
    "tilt not truncated": _field("tilt_component", 4, "num_records", lambda n: 0),
    "trajectory with the prior of levels twice": _field(
        "move_parameters", 2, "counts", lambda counts: counts + 1
    ),
    "trajectory not truncated": _untruncated_trajectory,
    "trajectory with a prior of ones": _field("move_parameters", 2, "levels", of_ones),
    "levels' prior without impossible records": _argument(
        truncated_sweep, "split_over_levels", 1, jnp.zeros_like
    ),
    "seating at another concentration": _argument(
        sweep, "draw_seating", 2, lambda alpha: 4 * alpha
    ),
    "records at many tables seated anew": _argument(sweep, "can_be_seated", 1, jnp.zeros_like),
    "records of other components seated anew": _argument(sweep, "can_be_seated", 0, jnp.zeros_like),
    "tables of the records that stay left out": _argument(
        sweep, "seatless_shared_concentration", 3, jnp.zeros_like
    ),
    "records that stay summed out too": _field(
        "seatless_shared_concentration", 2, "records", lambda n: n + (n < 1)
    ),
    "split-merge at another alpha_0": _field(
        "split_or_merge_truncated", 3, "others", lambda alpha0: 4 * alpha0
    ),
    "split-merge with a prior of ones": _field("split_or_merge_truncated", 3, "levels", of_ones),
    "split-merge with half the total of the weights": _argument(
        truncated_split_merge, "gamma_variate", 1, lambda shape: shape / 2
    ),
    "split-merge with a table more": _argument(
        truncated_split_merge, "log_beta", 0, lambda m: m + 1
    ),
    # Of a fixed number of components, whose weights have the prior of one table each.
    "tilt without the prior of weights": _field("tilt_component", 3, "tables", lambda m: m - 1),
    "trajectory without the prior of weights": _field(
        "move_parameters", 2, "tables", lambda m: m - 1
    ),
    "weights with half their prior": _argument(
        fixed_profiles, "log_dirichlet", 1, lambda m: m - 0.5
    ),
}


@contextlib.contextmanager
def planted(switches):
    """While a sweep is traced: steps that go wrong where their switch is on."""
    with pytest.MonkeyPatch.context() as patch:
        for name, wrong in switches.items():
            patch.setattr(*FAULTS[name](wrong))
        yield


def switched(names, on=None):
    """Switches of these faults, one of them on."""
    assert on is None or on in names
    return {name: jnp.asarray(name == on) for name in names}


def _first(model, state):
    """alpha where it is shared, b where it has a prior, else nothing."""
    if model.shared:
        return state.alpha
    return state.rate if model.concentration == "hierarchical" else jnp.zeros(())


def _second(model, state):
    """alpha_0, or what a fixed number of weights squared add up to."""
    return state.alpha0 if isinstance(model, HDPMixedMembership) else jnp.sum(state.g0**2)


def prepared(model, name):
    """The data of a sample, and the first and the last feasible cell."""
    multiple = max(model.dish_stride, model.cell_stride, 1)
    num_levels = LEVELS.get(name, BINARY)
    trees = {0: TREES[num_levels[0]][1]} if name in LEVELS else None
    zeros = structural_zeros(CONDITIONS[name], num_levels)
    data = prepare_records(
        model, np.array(SAMPLES[name]), num_levels, zeros, multiple=multiple, trees=trees
    )
    ends = np.flatnonzero(is_feasible(CONDITIONS[name], num_levels))[[0, -1]]
    return data, jnp.asarray(all_cells(num_levels)[ends], jnp.int32)


@partial(jax.jit, static_argnames=("num_chains", "capacity", "num_levels"))
def posterior_chains(
    model, key, data, ends, switches, num_sweeps, burn, *, num_chains, capacity, num_levels=BINARY
):
    """Per-chain means of the quantities of `exact_means`."""
    own = slice(num_levels[0])
    if data.levels.layers:
        own = slice(-data.levels.layers[-1].number, None)

    def one(key, start):
        key_init, key_sweeps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            with planted(switches):
                state, info = model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)
            draw = {"g0": state.g0, "theta": state.theta, "alpha": state.alpha,
                    "alpha_rate": state.rate, "log_feasible": info.log_feasible}  # fmt: skip
            share = jnp.exp(log_cell_probability(model, None, draw, ends, num_levels))
            parameters = _first(model, state), _second(model, state)
            log_c = jnp.log(jnp.sum(state.level_shape[own]))
            log_feasible = at_least(info.log_feasible)
            now = jnp.stack([*parameters, log_feasible, *share, log_c])
            return state, sums + jnp.where(t >= burn, now, 0)

        carry = (model.init(key_init, data, capacity, start), jnp.zeros(len(NAMES)))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / (num_sweeps - burn)

    starts = 1 + jnp.arange(num_chains) % 3
    return jax.vmap(one)(jax.random.split(key, num_chains), starts)


def scores(means: np.ndarray, exact: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Standardised differences of chains' means from exact ones, both errors counted.

    What is constant has none.
    """
    truth, error = exact
    means = np.asarray(means, np.float64)
    own = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return (means.mean(axis=0) - truth) / np.sqrt(own**2 + np.square(error) + 1e-20)


def joint_data(model, num_records, conditions=WIDER_CONDITIONS, num_levels=WIDER):
    """Data of the right shape, for any values of the records."""
    multiple = max(model.dish_stride, model.cell_stride, 1)
    codes = np.zeros((num_records, len(num_levels)), int)
    zeros = structural_zeros(conditions, num_levels)
    return prepare_records(model, codes, num_levels, zeros, multiple=multiple)


def with_rows(data, rows):
    """The data of other records, each of them a cell of its own."""
    return eqx.tree_at(
        lambda d: (d.rows, d.cell, d.cell_rows, d.num_cells), data,
        (rows, jnp.arange(rows.shape[1]), rows, jnp.asarray(rows.shape[1], jnp.int32)),
    )  # fmt: skip


def draw_joint(model, key, data, capacity):
    """Parameters from the prior, and labels of feasible records: an exact draw of their joint."""
    num_levels, num_padded = data.zeros.num_levels, data.weight.size
    key_prior, key_records = jax.random.split(key)
    state, _ = hdp.draw_prior(model, key_prior, num_padded, num_levels, capacity, data.levels)
    draw_labels = _draw_labels if model.shared else _simulate_labels
    alpha, z = draw_labels(model, key_records, state, data)
    totals = mixed_membership_feasible.feasible_totals(state.g0, state.theta, data)
    return eqx.tree_at(
        lambda s: (s.alpha, s.z, s.totals), state, (alpha, z, totals), is_leaf=lambda x: x is None
    )


def _draw_labels(model, key, state, data):
    """Labels among all there are: also where next to nothing is feasible."""
    num_items, num_padded = data.rows.shape
    labels = all_cells((state.g0.size,) * num_items)
    rows, feasible = _rows_of_cells(data)
    log_p, share = 0.0, feasible[:, None].astype(float)
    for j, of_item in enumerate(labels.T):
        before = (labels[:, :j] == of_item[:, None]).sum(axis=1)
        log_p += jnp.log(state.alpha * state.g0[of_item] + before) - jnp.log(state.alpha + j)
        share *= state.theta[rows[:, j]][:, of_item]
    log_p += jnp.log(jnp.sum(share, axis=0))
    chosen = jax.random.categorical(key, log_p, shape=(num_padded,))
    return state.alpha, jnp.asarray(labels, state.z.dtype)[chosen].T


def _simulate_labels(model, key, state, data):
    """Concentrations and labels of records that are drawn again until they are feasible."""
    num_levels = data.zeros.num_levels
    num_items, num_padded = data.rows.shape
    theta = pad_levels(state.theta, num_levels)
    first = jnp.asarray(first_rows(num_levels))[:, None]

    def again(carry):
        step, done, alpha, z = carry
        keys = jax.random.split(jax.random.fold_in(key, step), 3)
        new_alpha = gamma_variate(keys[0], jnp.full(num_padded, model.a), state.rate)
        new_z, _ = simulate_labels(keys[1], new_alpha, state.g0, num_items)
        rows = first + simulate_levels(keys[2], new_z, theta)
        alpha, z = jnp.where(done, alpha, new_alpha), jnp.where(done, z, new_z)
        return step + 1, done | in_boxes(rows, data.zeros.boxes), alpha, z

    start = jnp.int32(0), jnp.zeros(num_padded, bool), state.alpha, state.z
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), again, start)[2:]


def _rows_of_cells(data):
    """Rows of theta (cells, J) of all cells, and which are feasible."""
    cells = all_cells(data.zeros.num_levels) + first_rows(data.zeros.num_levels)
    rows = jnp.asarray(cells, jnp.int32)
    return rows, in_boxes(rows.T, data.zeros.boxes)


def draw_rows(key, state, data):
    """Values (J, n) of the records on the feasible cells, given labels and parameters."""
    rows, feasible = _rows_of_cells(data)
    # (cells, J, n) by label of each item.
    log_level = jnp.log(state.theta)[rows[:, :, None], state.z]
    logits = jnp.where(feasible[:, None], jnp.sum(log_level, axis=1), -jnp.inf)
    return rows[jax.random.categorical(key, logits, axis=0)].T


def _feasible_at(alpha, state, data):
    """P(F) at a concentration of all records."""
    boxes = data.zeros.feasible
    weights = weights_by_size(log_block_weights(alpha, boxes.most_variables), boxes)
    return probability(state.totals, weights)


def _log_centre(model):
    if model.concentration == "record":
        return 0.0
    a, b = (model.a, model.b) if model.shared else (model.a1, model.b1)
    return jax.scipy.special.digamma(a) - jnp.log(b)


@partial(jax.jit, static_argnames=("num_chains", "capacity"))
def joint_chains(model, key, data, switches, num_sweeps, *, num_chains, capacity):
    """Per-chain means of the statistics of `prior_means`.

    Every chain starts from an exact draw of the joint prior of parameters and feasible records, and
    alternates a draw of the records' values on the feasible cells, given their labels, with a sweep
    (Geweke 2004, doi:10.1198/016214504000001132): it stays there if and only if the sweep leaves
    the posterior invariant. The parameters' marginal is their prior, P(F)^n cancelling.
    """
    num_levels = data.zeros.num_levels
    centre = _log_centre(model)

    def one(key):
        key_prior, key_steps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            key_x, key_sweep = jax.random.split(jax.random.fold_in(key_steps, t))
            rows = draw_rows(key_x, state, data)
            with planted(switches):
                state, info = model.sweep(key_sweep, state, with_rows(data, rows), t)
            first = _first(model, state)
            log_first = jnp.zeros(())
            if model.concentration != "record":
                log_first = jnp.log(first)
            slope = jnp.log(_feasible_at(0.1, state, data) / _feasible_at(10.0, state, data))
            shape = state.level_shape[num_levels[0] : num_levels[0] + num_levels[1]]
            c = jnp.sum(shape)
            now = jnp.stack([
                first, log_first, state.alpha0, jnp.log(state.alpha0), info.log_feasible,
                (log_first - centre) * slope, c, jnp.log(c), shape[0] / c,
            ])  # fmt: skip
            return state, sums + now

        carry = (draw_joint(model, key_prior, data, capacity), jnp.zeros(9))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / num_sweeps

    return jax.vmap(one)(jax.random.split(key, num_chains))
