"""What tests of latent class models share: exact answers, chains, faults planted in them."""

import contextlib
import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import draw_variable, of_ones, where
from numpy.polynomial.legendre import leggauss
from scipy.special import roots_jacobi

from bnp_models import StructuralZeros
from bnp_models.data.schema import Schema
from bnp_models.kernels.boxes.grouped_blocks import GroupedBlock
from bnp_models.kernels.latent_classes import split_merge
from bnp_models.kernels.latent_classes.truncation import Tilt
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.models import level_prior
from bnp_models.models.latent_classes import conditionals, nplcm, predictions, truncated
from bnp_models.models.latent_classes import state as latent_state


def structural_zeros(conditions, num_levels) -> StructuralZeros | None:
    """Conditions given as codes, -1 where a variable is free; None where there are none."""
    if conditions is None:
        return None
    names = tuple(f"v{j}" for j in range(len(num_levels)))
    schema = Schema(names, tuple(tuple(range(levels)) for levels in num_levels))
    return StructuralZeros.from_codes(np.array(conditions), schema)


def all_cells(num_levels):
    return np.indices(num_levels).reshape(len(num_levels), -1).T


def feasible_cells(conditions, num_levels):
    """Cells that no condition describes, by going through all of them."""
    cells = all_cells(num_levels)
    impossible = np.zeros(len(cells), bool)
    for condition in np.array(conditions if conditions is not None else []):
        impossible |= ((condition < 0) | (cells == condition)).all(axis=1)
    return cells[~impossible]


def two_class_posterior(codes, conditions, model, nodes, stick_nodes=60) -> np.ndarray:
    """Posterior means with two classes and binary variables, by Gauss-Legendre quadrature.

    Returns those of the probabilities of the feasible cells, alpha, log P(feasible), the number of
    occupied classes and the log-likelihood. Values -1 are missing: the likelihood is summed over
    feasible completions. `nodes` are those for each variable.
    """
    shapes = np.ones((len(nodes), 2)) if model.level_shape is None else model.level_shape
    shapes = np.broadcast_to(np.reshape(shapes, (-1, 2)) if np.ndim(shapes) else shapes,
                             (len(nodes), 2))  # fmt: skip
    rules = [roots_jacobi(size, *shape - 1) for size, shape in zip(nodes, shapes, strict=True)]
    level = np.stack(np.meshgrid(*[(x + 1) / 2 for x, _ in rules], indexing="ij"))
    level = level.reshape(len(nodes), -1)
    shares = [w / w.sum() for _, w in rules]
    weight = np.prod(np.meshgrid(*shares, indexing="ij"), axis=0).ravel()
    cells = feasible_cells(conditions, (2,) * len(nodes))
    p_class = np.prod(np.where(cells[:, :, None] == 1, level, 1 - level), axis=1)
    mass = p_class.sum(axis=0)
    records, times = np.unique(codes, axis=0, return_counts=True)
    fits = ((records[:, None] == cells) | (records[:, None] < 0)).all(axis=2).astype(float)
    by_class = model.by_class
    if by_class:
        p_class = p_class / mass
    p_record = fits @ p_class
    u, stick_weight = leggauss(stick_nodes)
    # alpha integrated out of (1 - V)^alpha, whose distribution given alpha is uniform.
    log_t = model.b - model.b * ((u + 1) / 2) ** (-1 / model.a)
    if model.alpha is not None:
        log_t = np.log((u + 1) / 2) / model.alpha
    total = np.zeros(len(cells) + 5)
    for lt, sw in zip(log_t, stick_weight, strict=True):
        v, t = -np.expm1(lt), np.exp(lt)
        seen = 1.0 if by_class else v * mass[:, None] + t * mass
        log_seen = -np.log(v / mass[:, None] + t / mass) if by_class else np.log(seen)
        log_like = 0.0
        for p, m in zip(p_record, times, strict=True):
            log_like = log_like + m * np.log((v * p[:, None] + t * p) / seen)
        w = sw * weight[:, None] * weight * np.exp(log_like)
        by_seen = w / seen
        alone = 0.0
        for stick, p_own in ((v, p_record[:, :, None]), (t, p_record[:, None])):
            share = 1.0
            for own, p, m in zip(p_own, p_record, times, strict=True):
                share = share * (stick * own / (v * p[:, None] + t * p)) ** m
            alone = alone + share
        total += np.concatenate([
            p_class @ (v * by_seen.sum(axis=1) + t * by_seen.sum(axis=0)),
            [w.sum() * (model.alpha or (model.a + 1) / (model.b - lt)), (w * log_seen).sum(),
             (w * (2 - alone)).sum(), (w * log_like).sum(), w.sum()],
        ])  # fmt: skip
    return total[:-1] / total[-1]


def prior_draws_posterior(
    codes, conditions, model, num_levels=(2, 2, 2), trees=None, num_draws=400_000
) -> tuple:
    """Means as of `two_class_posterior` by weighting draws of the prior, and their errors."""
    rng = np.random.default_rng(0)
    level = [
        draw_variable(rng, model.level_prior, num_draws, (trees or {}).get(j, size), (2,))[0]
        for j, size in enumerate(num_levels)
    ]
    alpha = rng.gamma(model.a, 1 / model.b, num_draws)
    first = rng.beta(1, np.maximum(alpha, 1e-12))
    pi = np.stack([first, 1 - first], axis=1)
    cells = feasible_cells(conditions, num_levels)
    p_class = np.ones((num_draws, len(cells), 2))
    for of_variable, column in zip(level, cells.T, strict=True):
        p_class = p_class * of_variable[:, column]
    log_feasible = 0.0
    if model.by_class:
        mass_of_class = p_class.sum(axis=1, keepdims=True)
        p_class = p_class / mass_of_class
        log_feasible = -np.log((pi / mass_of_class[:, 0]).sum(axis=1))
    p_cell = np.einsum("dck,dk->dc", p_class, pi)
    mass = p_cell.sum(axis=1)
    log_feasible = np.log(mass) + log_feasible
    fits = ((codes[:, None] == cells) | (codes[:, None] < 0)).all(axis=2).astype(float)
    own = np.einsum("nc,dck->dnk", fits, p_class) * pi[:, None]
    log_like = np.log(own.sum(axis=2) / mass[:, None]).sum(axis=1)
    alone = np.prod(own / own.sum(axis=2, keepdims=True), axis=1).sum(axis=1)
    values = np.column_stack([
        p_cell / mass[:, None], alpha, log_feasible, 2 - alone, log_like
    ])  # fmt: skip
    likelihood = np.exp(log_like)
    top = likelihood[:, None] * values
    mean = top.mean(axis=0) / likelihood.mean()
    residual = top - mean * likelihood[:, None]
    return mean, residual.std(axis=0) / likelihood.mean() / np.sqrt(num_draws)


# Faults: each is a wrong version of one step, chosen by a switch when the compiled sweep runs.


def _ignore_tilt(wrong, model):
    right = truncated.stick_tilt

    def stick_tilt(*args):
        tilt, log_s = right(*args)
        return Tilt(*(jnp.where(wrong, 0, x) for x in tilt)), log_s

    return [(truncated, "stick_tilt", stick_tilt)]


def _forget_augmented(wrong, model):
    right = truncated.draw_augmented
    return [(truncated, "draw_augmented", lambda *args: jnp.where(wrong, 0, right(*args)))]


def _hyperparameter_for_alpha(wrong, model):
    right = latent_state.truncated_sticks

    def truncated_sticks(key, counts, alpha):
        return right(key, counts, jnp.where(wrong, model.a, alpha))

    return [(latent_state, "truncated_sticks", truncated_sticks)]


def _draw_fixed_alpha(wrong, model):
    right = latent_state.fixed_or
    return [(latent_state, "fixed_or", lambda fixed, x: jnp.where(wrong, x, right(fixed, x)))]


def _ignore_fixed_shape(wrong, model):
    right = conditionals.update_shape
    return [(conditionals, "update_shape", lambda *args: jnp.where(wrong, 1.0, right(*args)))]


def _invert_last_reorder(wrong, model):
    # The ratio of the last pair is a power alpha - 1.
    right = conditionals.reorder_classes

    def reorder_classes(key, log_pi, alpha):
        return right(key, log_pi, jnp.where(wrong, 2 - alpha, alpha))

    return [(conditionals, "reorder_classes", reorder_classes)]


def _thin_splits(wrong, model):
    # As if a factor 1/2 were missing from the ratio.
    right = conditionals.split_or_merge_classes

    def split_or_merge_classes(key, records, counts, old, *args):
        new, moved, accepted = right(key, records, counts, old, *args)
        num_rows, num_classes = old.log_lambda.shape
        _, after = latent_state.count_levels(new, (num_rows,), num_classes)
        more = jnp.sum(after > 0) > jnp.sum(counts.tables > 0)
        coin = uniform(words(jax.random.fold_in(key, 1), ()), old.log_x.dtype.type)
        keep = wrong & more & (coin < 0.5)
        kept = jax.tree.map(
            lambda a, b: jnp.where(keep, a, b), (records, old), (new, moved)
        )  # fmt: skip
        return *kept, accepted & ~keep

    return [(conditionals, "split_or_merge_classes", split_or_merge_classes)]


def _forget_stick_prior(wrong, model):
    right = split_merge.log_stick_prior

    def log_stick_prior(*args):
        return jnp.where(wrong, 0, right(*args))

    return [(split_merge, "log_stick_prior", log_stick_prior)]


def _complete_anyhow(wrong, model):
    right = conditionals.draw_missing

    def draw_missing(key, log_lambda, data, z, log_box):
        anywhere = eqx.tree_at(lambda d: d.boxes, data, data.boxes | wrong)
        return right(key, log_lambda, anywhere, z, log_box)

    return [(conditionals, "draw_missing", draw_missing)]


def _argument(module, name, place, change):
    def fault(wrong, model):
        right = getattr(module, name)

        def function(*args):
            args = list(args)
            args[place] = where(wrong, change(args[place]), args[place])
            return right(*args)

        return [(module, name, function)]

    return fault


def _split_as_unweighted(wrong, model):
    right = conditionals.split_counts

    def split_counts(key, counts, weights, axis):
        return right(key, counts, jnp.where(wrong, weights**0.5, weights), axis)

    return [(conditionals, "split_counts", split_counts)]


def _forget_bands(wrong, model):
    # As if levels were Dirichlet in all, without a distribution over bands.
    right = GroupedBlock.log_weight

    def log_weight(self, *args):
        return jnp.where(wrong, 0, right(self, *args))

    return [(GroupedBlock, "log_weight", log_weight)]


FAULTS = {
    "bands without their factor": _forget_bands,
    "alpha drawn although fixed": _draw_fixed_alpha,
    "shape of ones although fixed": _ignore_fixed_shape,
    "classes of cells by the root of their weights": _split_as_unweighted,
    "split-merge with a prior of ones": _argument(
        conditionals, "split_or_merge_classes", 4, of_ones
    ),
    "truncated levels with a prior of ones": _argument(
        truncated, "update_levels_truncated", 4, of_ones
    ),
    "levels' prior from a record fewer": _argument(
        level_prior, "update_level_prior", 1, lambda counts: jnp.maximum(counts - 1, 0)
    ),
    "levels' prior from even levels": _argument(
        truncated, "update_level_prior_given_levels", 1, lambda log_level: log_level / 2
    ),
    "tilt ignored": _ignore_tilt,
    "augmented left out of the sticks": _forget_augmented,
    "hyperparameter for alpha": _hyperparameter_for_alpha,
    "reorder inverted": _invert_last_reorder,
    "splits accepted half as often": _thin_splits,
    "split places without the prior": _forget_stick_prior,
    "completions not feasible": _complete_anyhow,
}
NO_ALPHA_STEP = "alpha not updated"


@contextlib.contextmanager
def planted(model, switches):
    """While a sweep is traced: steps that go wrong where their switch is on."""
    with pytest.MonkeyPatch.context() as patch:
        for name, wrong in switches.items():
            if name != NO_ALPHA_STEP:
                for module, attribute, function in FAULTS[name](wrong, model):
                    patch.setattr(module, attribute, function)
        yield


def sweep(model, switches, key, state, data, t):
    with planted(model, switches):
        new, info = model.sweep(key, state, data, t)
    if NO_ALPHA_STEP in switches:
        alpha = jnp.where(switches[NO_ALPHA_STEP], state.alpha, new.alpha)
        new = eqx.tree_at(lambda s: s.alpha, new, alpha)
    return new, info


def switched(names, on=None):
    """Switches of these faults, one of them on."""
    return {name: jnp.asarray(name == on) for name in names}


@partial(jax.jit, static_argnames=("num_chains",))
def posterior_chains(model, key, data, cells, switches, num_sweeps, burn, *, num_chains=256):
    """Per-chain means of the quantities of `two_class_posterior`."""

    def one(key):
        key_init, key_sweeps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            state, info = sweep(model, switches, jax.random.fold_in(key_sweeps, t), state, data, t)
            kept = model.keep(state, info)
            log_p = predictions.log_cell_probability(kept, cells, data.num_levels)
            rest = [kept["alpha"], kept["log_feasible"], kept["components"],
                    kept["log_likelihood"]]  # fmt: skip
            now = jnp.concatenate([jnp.exp(log_p), jnp.stack([x.astype(float) for x in rest])])
            return state, sums + jnp.where(t >= burn, now, 0)

        carry = (model.init(key_init, data, model.components, 2), jnp.zeros(len(cells) + 4))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / (num_sweeps - burn)

    return jax.vmap(one)(jax.random.split(key, num_chains))


SIMULATION_BATCH = 64


def update_parameters_simulation(model, key, state, data, counts, class_counts):
    """`truncated.update_parameters_boxes` by another way: impossible records one by one.

    Records are simulated until as many as the sample's are feasible; those that are not are the
    augmented ones.
    """
    key_simulate, key_parameters = jax.random.split(key)
    everything = jnp.ones((1, sum(data.num_levels)), bool)

    def unfinished(carry):
        return carry[1] < data.num_records

    def simulate(carry):
        step, num_feasible, added, added_by_class = carry
        key_z, key_x = jax.random.split(jax.random.fold_in(key_simulate, step))
        z = jax.random.categorical(key_z, state.log_pi, shape=(SIMULATION_BATCH,))
        rows = conditionals.draw_levels_in_box(
            key_x, state.log_lambda, everything, z, jnp.zeros_like(z), data.num_levels
        )
        inside = jnp.any(jnp.all(data.boxes[:, rows], axis=1), axis=0)
        before = num_feasible + jnp.cumsum(inside) - inside
        kept = (~inside & (before < data.num_records)).astype(jnp.int32)
        return (
            step + 1, num_feasible + jnp.sum(inside), added.at[rows, z].add(kept),
            added_by_class.at[z].add(kept),
        )  # fmt: skip

    start = (0, jnp.int32(0), jnp.zeros_like(counts), jnp.zeros_like(class_counts))
    _, _, added, added_by_class = jax.lax.while_loop(unfinished, simulate, start)
    by_part = jax.ops.segment_sum(added, data.parts.part_of_row, data.parts.variable.size)
    return truncated.update_given_augmented(
        model, key_parameters, state, data, counts, class_counts, by_part, added_by_class
    )


def with_codes(data, codes):
    """The data of other values of the same records, the same ones missing.

    Records beyond those that are there one by one are counted by cell.
    """
    size, first = data.weight.size, first_rows(data.num_levels)[:, None]
    if data.cell_counts.size:
        counted = (codes[:, size:] + first)[:, :, None] == data.cell_rows[:, None]
        counts = jnp.sum(jnp.all(counted, axis=0), axis=0, dtype=jnp.int32)
        data = eqx.tree_at(lambda d: d.cell_counts, data, counts)
        codes = codes[:, :size]
    rows = codes + first_rows(data.num_levels)[:, None]
    own = rows.T[data.incomplete]
    admitted = jnp.all(data.boxes[:, own] | data.missing, axis=2)
    one_hot = latent_state.one_hot_levels(codes, data.num_levels)
    if data.incomplete.size:
        gone = data.missing.T[data.levels.variable]
        one_hot = one_hot.at[:, data.incomplete].multiply(~gone)
    return eqx.tree_at(
        lambda d: (d.rows, d.one_hot, d.admitted), data,
        (rows, one_hot, admitted.astype(data.admitted.dtype)),
    )  # fmt: skip


def with_counted(data, conditions, num_counted):
    """The data with so many records besides, by all feasible cells: sweeps find some empty."""
    cells = feasible_cells(conditions, data.num_levels)
    return dataclasses.replace(
        data, num_records=data.num_records + num_counted,
        cell_rows=jnp.asarray((cells + first_rows(data.num_levels)).T, jnp.int32),
        cell_one_hot=latent_state.one_hot_levels(jnp.asarray(cells.T), data.num_levels),
        cell_counts=jnp.zeros(len(cells), jnp.int32),
    )  # fmt: skip


def draw_prior(model, key, data):
    """Parameters from the prior of the model's own truncation."""
    state = nplcm.draw_prior(model, key, data.levels)
    if model.by_class:
        log_pi = state.log_pi - jnp.log(truncated.region_mass(state.log_lambda, data.feasible))
        state = eqx.tree_at(lambda s: s.log_pi, state, log_pi - jax.nn.logsumexp(log_pi))
    return state


def kept_of(state):
    return {"log_pi": state.log_pi, "log_lambda": state.log_lambda}


def statistics(state, data):
    """Functions of the parameters without heavy tails, which alpha ~ Ga(0.25, 0.25) has."""
    margin = predictions.level_probabilities(kept_of(state), data.num_levels, data.boxes)
    log_seen = state.log_pi + jnp.log(truncated.region_mass(state.log_lambda, data.feasible))
    alpha = state.alpha / (1 + state.alpha)
    log_alpha = jnp.log(state.alpha)
    log_feasible = jax.nn.logsumexp(log_seen)
    weight = jnp.exp(log_seen - log_feasible)
    of_levels = []
    # Of a constrained variable, and of the last one, or of the bands.
    num_rows = len(data.levels.variable)
    end = num_rows if data.levels.layers else num_rows - data.num_levels[-1]
    if len(data.levels.layers) > 1:
        # Of the largest groups.
        end = len(state.level_shape) - data.levels.layers[-1].number
    for shape in (state.level_shape[: data.num_levels[0]], state.level_shape[end:]):
        c = jnp.sum(shape)
        of_levels += [c, jnp.log(c), shape[0] / c]
    return jnp.stack([
        alpha, log_alpha, log_feasible, margin[0], margin[0] ** 2, jnp.sum(weight**2), weight[0],
        weight[-1], *of_levels,
    ])  # fmt: skip


@partial(jax.jit, static_argnames=("num_chains", "num_counted"))
def joint_chains(model, key, data, switches, num_sweeps, *, num_counted=0, num_chains=256):
    """Per-chain means of statistics of parameters and labels where data and sweeps alternate.

    Every chain starts from an exact draw of the joint prior (Geweke 2004,
    doi:10.1198/016214504000001132): it stays there if and only if the sweep leaves the posterior
    invariant. So many records besides are counted by cell.
    """

    def one(key):
        key_prior, key_steps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            key_x, key_sweep = jax.random.split(jax.random.fold_in(key_steps, t))
            codes = predictions.simulate_records(
                key_x, kept_of(state), data.weight.size + num_counted, data.num_levels, data.boxes
            )
            new = with_codes(data, codes)
            state, info = sweep(model, switches, key_sweep, state, new, t)
            now = jnp.append(statistics(state, data), info.components.astype(float))
            return state, sums + now

        carry = (draw_prior(model, key_prior, data), jnp.zeros(15))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / num_sweeps

    return jax.vmap(one)(jax.random.split(key, num_chains))


@partial(jax.jit, static_argnames=("num_draws", "num_counted"))
def prior_statistics(model, key, data, num_draws, num_counted=0):
    """The same statistics of independent draws of the prior."""

    def one(key):
        key_prior, key_z = jax.random.split(key)
        state = draw_prior(model, key_prior, data)
        log_seen = state.log_pi + jnp.log(truncated.region_mass(state.log_lambda, data.feasible))
        weight = jnp.pad(data.weight, (0, num_counted), constant_values=1)
        z = jax.random.categorical(key_z, log_seen, shape=weight.shape)
        occupied = jnp.sum(jnp.zeros(log_seen.size, jnp.int32).at[z].add(weight) > 0)
        return jnp.append(statistics(state, data), occupied.astype(float))

    return jax.vmap(one)(jax.random.split(key, num_draws))


def two_sample_z(chain_means, draws) -> np.ndarray:
    """Standardised differences of the means of two independent samples (size, quantities)."""
    difference, variance = 0.0, 0.0
    for sample, sign in ((chain_means, 1), (draws, -1)):
        sample = np.asarray(sample, np.float64)
        difference = difference + sign * sample.mean(axis=0)
        variance = variance + sample.var(axis=0, ddof=1) / len(sample)
    return difference / np.sqrt(variance)
