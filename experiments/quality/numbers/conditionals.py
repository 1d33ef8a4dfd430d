"""Conditionals that `precision.py` evaluates in both precisions, with the inputs they are given.

Where a conditional is decided within a kernel, the kernel is run, and what it compares with the
logarithm of a uniform is taken from it.
"""

import sys
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models import HDPMixedMembership, StructuralZeros
from bnp_models.data.schema import Schema
from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.cells import thinning
from bnp_models.kernels.latent_classes import order, truncation
from bnp_models.kernels.mixed_membership import (
    concentration,
    hamiltonian,
    split_merge,
    tables,
    tilts,
    truncated_split_merge,
)
from bnp_models.kernels.mixed_membership.tilts import Atoms, DirichletDensity, Truncation
from bnp_models.kernels.nested import impossible, judges, members, parameters
from bnp_models.kernels.numerics.counting import first_rows, order_free_sum, variable_of_rows
from bnp_models.kernels.numerics.gamma_ratios import log_binomial
from bnp_models.kernels.numerics.platforms import RECORDS, in_double
from bnp_models.kernels.splits.levels import propose_levels, weigh_side_levels
from bnp_models.kernels.variates import gamma, level_prior, levels, sticks
from bnp_models.kernels.variates.rng import Keys, normal, words
from bnp_models.models.mixed_membership import feasible, truncated_sweep

sys.path.append(str(Path(__file__).parents[3] / "tests"))
import small_households

SIZES = (1_000, RECORDS - 1, 1_000_000)
FEW, MANY = SIZES[:2], SIZES[2:]
"""Sizes at which moves of mixed membership are decided in single and in double precision."""

LEVELS = (2, 5, 20, 9, 3, 40)
VARIABLE = variable_of_rows(LEVELS)
# The last variable has the level of absent items.
ABSENT = (*LEVELS, 1)
ROWS, CLASSES = sum(LEVELS), 30
KEYS = 64

# Of this log ratio and less no proposal is ever accepted.
LEAST_RATIO = -20.0

# a is 0 where b is, and some levels of c, d and e do not go together.
SCHEMA = Schema(tuple("abcdef"), tuple(tuple(range(k)) for k in LEVELS))
CONDITIONS = [
    *([0, level, -1, -1, -1, -1] for level in range(1, 5)), [1, 0, -1, -1, -1, -1],
    [-1, -1, 3, 5, -1, -1], [-1, -1, 4, 6, 2, -1],
]  # fmt: skip
ALPHA = 0.3


class Inputs:
    """Parameters and counts of a sample of n records, the shares the same whatever n."""

    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.n, self.rng = n, rng
        self.pi = rng.dirichlet(np.full(CLASSES, 0.5))
        self.level = np.concatenate([rng.dirichlet(np.ones(k), CLASSES).T for k in LEVELS])
        self.class_counts = rng.multinomial(n, self.pi)
        self.counts = count_levels(rng, self.class_counts, self.level)
        self.rows = np.stack([rng.integers(0, k, 2000) for k in LEVELS])
        self.rows = self.rows + first_rows(LEVELS)[:, None]
        self.mass = rng.uniform(0.6, 0.95, CLASSES)
        self.log_pi, self.log_level = np.log(self.pi), np.log(self.level)
        self.shape = np.ones(ROWS)


def count_levels(rng, sizes, level):
    """Draw how many records of each class have each level."""
    of_variable = np.split(level, first_rows(LEVELS)[1:])
    return np.concatenate([
        np.stack([rng.multinomial(m, p) for m, p in zip(sizes, block.T, strict=True)], axis=1)
        for block in of_variable
    ])  # fmt: skip


class Truncated:
    """A sample of n records that the urn drew and structural zeros left, and its parameters.

    Items and tables are counted by component; the first two components are nearly alike.
    """

    def __init__(self, n, seed=0, components=8):
        rng = np.random.default_rng(seed)
        self.n = n
        theta = [rng.dirichlet(np.full(k, 0.6), components).T for k in LEVELS]
        for block in theta:
            block[:, 1] = block[:, 0] * np.exp(0.05 * rng.normal(size=len(block)))
            block /= block.sum(axis=0)
        self.g0 = rng.dirichlet(np.full(components, 3.0))
        self.theta = np.concatenate([*theta, np.ones((1, components))])
        self.counts = np.zeros((ROWS + 1, components), np.int32)
        self.tables = np.zeros(components, np.int32)
        left = n
        while left:
            z, new, x = self._draw(rng, theta, max(2 * left, 1000))
            possible = ~np.any([self._meets(x, row) for row in CONDITIONS], axis=0)
            kept = np.flatnonzero(possible)[:left]
            np.add.at(self.counts, (x[:, kept] + first_rows(LEVELS)[:, None], z[:, kept]), 1)
            np.add.at(self.tables, z[:, kept][new[:, kept]], 1)
            left -= len(kept)
        self.levels = np.ones(ROWS + 1)
        self.variable = variable_of_rows((*LEVELS, 1)).astype(np.int32)

    def _draw(self, rng, theta, number):
        """Draw labels, which items open tables, and levels."""
        z, x = np.zeros((2, len(LEVELS), number), int)
        new = np.ones((len(LEVELS), number), bool)
        for j in range(len(LEVELS)):
            new[j] = rng.random(number) < ALPHA / (ALPHA + j)
            copied = z[rng.integers(0, max(j, 1), number), np.arange(number)]
            z[j] = np.where(new[j], rng.choice(self.g0.size, number, p=self.g0), copied)
            for k, p in enumerate(theta[j].T):
                x[j, z[j] == k] = rng.choice(LEVELS[j], np.sum(z[j] == k), p=p)
        return z, new, x

    def _meets(self, x, row):
        return np.all([x[j] == level for j, level in enumerate(row) if level >= 0], axis=0)


truncated = cache(Truncated)


@cache
def zeros():
    """Arrays of the structural zeros."""
    conditions = StructuralZeros.from_codes(np.array(CONDITIONS, np.int32), SCHEMA)
    return feasible.compile_zeros(HDPMixedMembership(), conditions, (*LEVELS, 1))


def on_host(function):
    """Mark a function that compiles by itself."""
    function.on_host = True
    return function


def with_keys(draw):
    """A draw under many keys, a function of arrays."""

    def drawn(*args):
        keys = jax.random.split(jax.random.key(0), KEYS)
        return jax.vmap(lambda key: draw(key, *args))(keys)

    return drawn


def threshold(accepts, points):
    """Log ratio by which a kernel decides, at each point: the largest log u that it accepts."""

    def of_point(point):
        low, high = -60.0, 60.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if accepts(np.exp(middle), *point) else (low, middle)
        return low

    return np.maximum([of_point(point) for point in points], LEAST_RATIO)


CASES = []


def case(model, conditional, measure, sizes=SIZES):
    """Register what makes the function and its arguments of the number of records."""

    def register(make):
        CASES.append(SimpleNamespace(
            model=model, conditional=conditional, measure=measure, sizes=sizes, make=make
        ))  # fmt: skip
        return make

    return register


def both_forms(model, conditional, make):
    """Register a log ratio of mixed membership in the form that samples of a size have."""
    case(model, f"{conditional}, single form", "nats", FEW)(partial(make, double=False))
    case(model, f"{conditional}, double form", "nats", MANY)(partial(make, double=True))
    case(model, f"{conditional}, if large samples had the single form", "nats", MANY)(
        partial(make, double=False)
    )


# Latent classes -----------------------------------------------------------------------------------


def levels_of(num_levels, shape):
    """Levels under a prior of these shapes, of any precision."""
    return levels.Levels.of_variables(num_levels).with_shape(shape)


@case("latent classes", "log weights of a record's classes", "nats")
def _(n):
    x = Inputs(n)

    def weights(log_pi, log_level, rows):
        one_hot = jnp.zeros((ROWS, rows.shape[1]), log_pi.dtype)
        one_hot = one_hot.at[rows, jnp.arange(rows.shape[1])].set(1)
        total = jnp.matmul(log_level.T, one_hot, precision="highest") + log_pi[:, None]
        return total - jax.nn.logsumexp(total, axis=0)

    return weights, (x.log_pi, x.log_level, x.rows)


@case("latent classes", "weights", "drawn")
def _(n):
    x = Inputs(n)

    def draw(key, counts, alpha):
        return sticks.truncated_sticks(key, counts, alpha)[0]

    return with_keys(draw), (x.class_counts, 0.7)


@case("latent classes", "alpha", "drawn")
def _(n):
    def draw(key, total):
        return jnp.log(sticks.stick_concentration(key, total, CLASSES, 0.25, 0.25))

    return with_keys(draw), (-12.5 * np.log(n),)


@case("all but Polettini-Stander", "level probabilities", "drawn")
def _(n):
    x = Inputs(n)

    def draw(key, shape):
        return levels.draw_levels(key, shape, jnp.asarray(VARIABLE))

    return with_keys(draw), (x.counts + 1.0,)


@case("all but Polettini-Stander", "shapes of the level prior, given counts", "drawn")
def _(n):
    x = Inputs(n)

    def draw(key, shape, counts):
        return jnp.log(level_prior.update_level_prior(key, counts, levels_of(LEVELS, shape)))

    return with_keys(draw), (x.shape, x.counts)


@case("TNPLCM", "shapes of the level prior, given levels", "drawn")
def _(n):
    x = Inputs(n)

    def draw(key, shape, log_level):
        return jnp.log(
            level_prior.update_level_prior_given_levels(key, log_level, levels_of(LEVELS, shape))
        )

    return with_keys(draw), (x.shape, x.log_level)


@case("latent classes", "split: log ratio of levels and weights, at most 2^17 records", "nats")
def _(n):
    # Above 2**17 records no split is proposed in single precision.
    sides = Truncated(min(n, 2**17))

    def ratio(log_theta, log_sum, counts, members, shape, region):
        def weight(counts, level):
            return propose_levels(
                jax.random.key(0), counts, log_sum, level, True, levels_of(ABSENT, shape), region
            )[1:]  # fmt: skip

        mass, apart = weight(counts, log_theta)
        mass_of_all, together = weight(jnp.sum(counts, axis=1, keepdims=True), log_sum)
        masses = jnp.log(jnp.append(mass, mass_of_all))
        members = jnp.append(members, jnp.sum(members))
        terms = jnp.append(apart, together) - (members + 1) * masses
        return terms[0] + terms[1] - terms[2] - log_binomial(members[0], members[1])

    theta = sides.theta[:, :2]
    both = (theta @ sides.tables[:2] / sides.tables[:2].sum())[:, None]
    # A record is in one class: all its items count.
    members = sides.counts[: LEVELS[0], :2].sum(axis=0) * 1.0
    given = np.log(theta), np.log(both), sides.counts[:, :2] * 1.0, members, sides.levels
    return ratio, (*given, zeros().region)


@case("TNPLCM", "log mass of the feasible region", "nats")
def _(n):
    x = Inputs(n)
    region = Region.of_boxes([x.rng.random((12, ROWS)) < 0.8], LEVELS)
    return (lambda log_level: jnp.log(region_mass(log_level, region))), (x.log_level,)


def exchange(n, double):
    """Log ratios of exchanges of classes that can be accepted, or nearly."""
    x = Inputs(n)
    a, b = np.triu_indices(CLASSES, 1)
    swapped = np.tile(np.arange(CLASSES), (len(a), 1))
    swapped[np.arange(len(a)), a], swapped[np.arange(len(a)), b] = b, a

    def ratios(log_pi, log_mass, counts, swapped, a, b):
        now = jnp.arange(CLASSES, dtype=jnp.int32)

        def all_pairs(log_pi, log_mass):
            ratio = partial(order.log_swap_ratio, log_pi, log_mass, counts, now)
            return jnp.maximum(jax.vmap(ratio)(swapped, a, b), LEAST_RATIO)

        given = log_pi, log_mass
        return in_double(all_pairs, *given) if double else all_pairs(*given)

    return ratios, (x.log_pi, np.log(x.mass), x.class_counts, swapped, a, b)


case("TNPLCM", "exchange of two classes: log ratio", "nats")(partial(exchange, double=True))
case("TNPLCM", "exchange of two classes: log ratio, if it were in single precision", "nats")(
    partial(exchange, double=False)
)


@case("TNPLCM", "levels given their feasible mass: log ratio", "nats")
def _(n):
    x = Inputs(n)
    total = x.class_counts + len(VARIABLE)
    # Proposals differ from the state by what n_k records leave unknown.
    near = x.mass * np.exp(x.rng.normal(size=CLASSES) / np.sqrt(total) / 2)

    def ratio(y, total, new, old):
        return truncation.log_mass_weight(new, y, total, 0.5) - truncation.log_mass_weight(
            old, y, total, 0.5
        )

    return ratio, (0.3 * total, 1.0 * total, near, x.mass)


@case("TNPLCM", "weights among the feasible records", "drawn")
def _(n):
    x = Inputs(n)

    def draw(key, counts, log_pi, log_mass, alpha):
        number = jnp.sum(counts)
        _, log_s = truncation.stick_tilt(
            jax.random.fold_in(key, 1), log_pi, log_mass, alpha, number
        )
        return truncation.draw_observed_weights(key, counts, log_mass, log_s, alpha)

    return with_keys(draw), (x.class_counts, x.log_pi, np.log(x.mass), 0.7)


@case("latent classes, HDP", "log-likelihood of all records (reported)", "relative")
def _(n):
    x = Inputs(n)
    return (lambda log_p: order_free_sum(-log_p)), (np.log(x.rng.uniform(1e-6, 1e-3, n)),)


# Mixed membership ---------------------------------------------------------------------------------


@case("HDP, K-profile", "items' components: share that differ", "share")
def _(n):
    x = Inputs(n)

    def draw(z, rows, g0, theta):
        alpha = jnp.full(rows.shape[1], 0.4, g0.dtype)
        return tables.assign_items(jax.random.key(0), z, rows, alpha, g0, theta)

    z = x.rng.choice(CLASSES, x.rows.shape, p=x.pi)
    return draw, (z, x.rows, x.pi, x.level)


@case("HDP, K-profile", "new tables: share that differ", "share")
def _(n):
    x = Inputs(n)

    def draw(z, g0):
        return tables.table_indicators(jax.random.key(0), z, 0.4 * g0[z])

    return draw, (x.rng.choice(CLASSES, x.rows.shape, p=x.pi), x.pi)


@case("HDP, K-profile", "component weights g_0", "drawn")
def _(n):
    return with_keys(gamma.log_dirichlet), (1.5 * Inputs(n).class_counts + 1.0,)


@case("HDP", "alpha_0", "drawn")
def _(n):
    def draw(key, alpha0, num_tables):
        return jnp.log(
            concentration.dp_concentration(key, alpha0, jnp.int32(30), num_tables, 0.25, 0.25)
        )

    return with_keys(draw), (4.0, 2 * n)


@case("HDP, K-profile", "alpha shared by all records", "drawn")
def _(n):
    def draw(key, alpha, num_tables, n):
        return jnp.log(
            concentration.shared_concentration(key, alpha, num_tables, n, len(LEVELS), 1.0, 1.0)
        )

    return with_keys(draw), (0.5, int(1.7 * n), n)


@case("HDP, K-profile", "rate b of the records' alphas", "drawn")
def _(n):
    def draw(key, total, n):
        return jnp.log(concentration.gamma_rate(key, total, n, 0.5, 1.0, 1.0))

    return with_keys(draw), (0.6 * n, n)


def walk_ratio(draw):
    """Log ratio of a step of a concentration from `old` to `new`, by the kernel that draws it."""

    def ratio(old, new, *args):
        def walk(_key, x, num_records, log_ratio, log_growth, unit=1.0):
            total = log_ratio(x, new)
            return total if log_growth is None else total - num_records * log_growth(x, new)

        with patch.object(concentration, "_truncated_walk", walk):
            return draw(old, *args)

    return ratio


def near(n, old, number=200):
    """Proposals that differ from the state by what n records leave unknown, and the state."""
    rng = np.random.default_rng(1)
    return np.full(number, old), old * np.exp(rng.normal(size=number) / np.sqrt(n))


@case("HDP, K-profile", "shared alpha, labels summed out: log ratio", "nats")
def _(n):
    rng = np.random.default_rng(0)
    cells = min(n, 2000)
    log_totals = np.stack([rng.normal(-12, 3, cells), rng.normal(-14, 3, cells)])
    records = rng.multinomial(int(0.9 * n), rng.dirichlet(np.full(cells, 0.5))) * 1.0

    def draw(alpha, log_totals, records):
        others = n - int(0.9 * n)
        return concentration.seatless_shared_concentration(
            jax.random.key(0), alpha, concentration.SummedOut(log_totals, records),
            jnp.int32(2.5 * others), jnp.int32(others), len(LEVELS),
            concentration.GammaPrior(2.0, 1.0),
        )  # fmt: skip

    ratio = jax.vmap(walk_ratio(draw), in_axes=(0, 0, None, None))
    return ratio, (*near(n, 0.15, 50), log_totals, records)


def shared_alpha(n, double):
    """Log ratios of steps of a shared alpha under structural zeros."""
    sample, model = truncated(n), HDPMixedMembership()
    boxes = zeros().feasible

    def draw(alpha, theta, g0):
        # Large samples are told by their labels' shape.
        length = RECORDS if double else 1
        state = SimpleNamespace(
            z=np.broadcast_to(0, (len(LEVELS), length)),
            totals=feasible.partition_totals(feasible.block_sums(theta, g0, boxes), boxes),
        )
        return concentration.truncated_shared_concentration(
            jax.random.key(0), alpha, jnp.int32(sample.tables.sum()), jnp.int32(n), len(LEVELS),
            model.a, model.b, feasible.log_growth_given(model, state, boxes),
        )  # fmt: skip

    @on_host
    def ratios(old, new, theta, g0):
        one = jax.jit(walk_ratio(draw))
        return np.array([one(x, y, theta, g0) for x, y in zip(old, new, strict=True)])

    return ratios, (*near(n, ALPHA, 50), sample.theta, sample.g0)


both_forms("HDP, K-profile with zeros", "shared alpha: log ratio", shared_alpha)


@case("HDP, K-profile with zeros", "rate b of the alphas: log ratio without the zeros", "nats")
def _(n):
    def draw(b, total):
        return concentration.truncated_gamma_rate(
            jax.random.key(0), b, total, jnp.int32(n), 2.0, 1.0, 1.0, None
        )

    return jax.vmap(walk_ratio(draw), in_axes=(0, 0, None)), (*near(n, 1.5), 2.0 / 1.5 * n)


@case("HDP, K-profile", "all alphas and their rate together: log ratio", "nats")
def _(n):
    rng = np.random.default_rng(0)
    alpha = rng.gamma(2.0, 1 / 1.5, n)
    num_tables = 1 + sum(rng.random(n) < alpha / (alpha + j) for j in range(1, len(LEVELS)))

    @on_host
    def ratio(alpha, rate, num_tables, weight, steps):
        @jax.jit
        def accepts(u, step, alpha, rate, num_tables, weight):
            uniforms = jnp.stack([jnp.full_like(u, 0.1), u])
            with (
                patch.object(concentration, "uniform", lambda *_: uniforms),
                patch.object(concentration, "normal", lambda *_: step[None]),
            ):
                _, new = concentration.rescale_concentrations(
                    jax.random.key(0), alpha, rate, num_tables, weight, len(LEVELS),
                    concentration.GammaPrior(1.0, 1.0),
                )  # fmt: skip
            return new != rate

        dtype = alpha.dtype.type
        return threshold(
            lambda u, step: accepts(dtype(u), step, alpha, rate, num_tables, weight),
            [(step,) for step in steps],
        )

    # The first of the scales is one.
    steps = rng.normal(size=10) / np.sqrt(n)
    return ratio, (alpha, 1.5, num_tables, np.ones(n, int), steps)


def split_ratio(n, double):
    """Log ratios of two sides nearly alike: of the target, and of the proposal, which cancel it."""
    sides = truncated(n)
    rng = np.random.default_rng(0)
    number = sides.tables[:2].sum()
    odds = np.log(sides.tables[0] / sides.tables[1]) + rng.normal(size=number) / 2
    cost = np.log1p(np.exp(odds * np.where(rng.random(number) < 1 / (1 + np.exp(-odds)), -1, 1)))

    def ratio(c_0, c_1, m_0, m_1, shape, alpha0, cost):
        def decided(shape, alpha0):
            given = levels_of(ABSENT, shape)
            target = split_merge._log_split_ratio(c_0, c_1, given, m_0, m_1, alpha0)
            return target + order_free_sum(cost, dtype=target.dtype)

        return in_double(decided, shape, alpha0) if double else decided(shape, alpha0)

    counts = *sides.counts[:, :2].T, *sides.tables[:2]
    return ratio, (*counts, sides.levels, 1.5, cost)


both_forms("HDP", "split or merge of large components: log ratio", split_ratio)


def trajectory(n, double):
    """Growth of the log density from a position to one a tenth of a standard deviation away."""
    sample, model = truncated(n), HDPMixedMembership()
    boxes = zeros().feasible

    def growth(key, log_density, position, precision, _num_steps, _steps, double):
        keys = Keys(key, 3)
        moved = {
            name: x + 0.1 * normal(words(k, x.shape), x.dtype.type) / jnp.sqrt(precision[name])
            for k, (name, x) in zip(keys, position.items(), strict=True)
        }
        difference = lambda new, old: log_density(new) - log_density(old)  # noqa: E731
        return position, (in_double if double else _call)(difference, moved, position)

    @jax.jit
    def one(key, theta, g0, alpha, shape):
        state = SimpleNamespace(g0=g0, z=np.broadcast_to(0, (len(LEVELS), 1)))
        number = jnp.int32(sample.tables.sum())
        density = truncated_sweep._concentration_density(model, state, jnp.int32(n), number, None)
        of_atoms = DirichletDensity(
            sample.counts, levels_of(ABSENT, shape), sample.tables.astype(g0.dtype),
            jnp.asarray(1.5, g0.dtype),
        )  # fmt: skip
        with patch.object(hamiltonian, "hamiltonian_step", growth):
            return hamiltonian.move_parameters(
                key, hamiltonian.Parameters(theta, g0, alpha), of_atoms, density,
                lambda x: Truncation(jnp.int32(n), feasible.urn_weights(model, x, boxes), boxes),
                1, double,
            )[1]  # fmt: skip

    @on_host
    def ratios(*args):
        return np.array([one(key, *args) for key in jax.random.split(jax.random.key(0), 20)])

    return ratios, (sample.theta, sample.g0, ALPHA, sample.levels)


def _call(function, *args):
    return function(*args)


both_forms("HDP, K-profile with zeros", "trajectory: growth of the log density", trajectory)


def tilt(n, double):
    """Log ratios of tilts along the equivalence."""
    sample, model = truncated(n), HDPMixedMembership()
    boxes = zeros().feasible
    rng = np.random.default_rng(0)

    @on_host
    def ratios(theta, g0, alpha, shape, direction, steps):
        @jax.jit
        def accepts(u, k, step, *args):
            theta, g0, alpha, shape, direction = args
            totals = feasible.partition_totals(feasible.block_sums(theta, g0, boxes), boxes)
            density = DirichletDensity(
                jnp.asarray(sample.counts), levels_of(ABSENT, shape),
                jnp.asarray(sample.tables, g0.dtype), jnp.asarray(1.5, g0.dtype),
            )  # fmt: skip
            truncation = Truncation(
                jnp.int32(n), feasible.urn_weights(model, alpha, boxes), boxes
            )  # fmt: skip
            with patch.object(tilts, "_choose_tilt", lambda *_: (k, step, u)):
                return tilts.tilt_component(
                    jax.random.key(0), direction, Atoms(theta, g0, totals), density, truncation,
                    double,
                ).accepted  # fmt: skip

        given = theta, g0, alpha, shape, direction
        dtype = theta.dtype.type
        points = [(np.int32(i % 8), step) for i, step in enumerate(steps)]
        return threshold(lambda u, k, step: accepts(dtype(u), k, step, *given), points)

    # Longer steps are hardly accepted where records of several tables resist.
    steps = rng.normal(size=24) / np.sqrt(n)
    direction = np.asarray(zeros().tilts[0], np.float64)
    return ratios, (sample.theta, sample.g0, ALPHA, sample.levels, direction, steps)


both_forms("HDP, K-profile with zeros", "tilt: log ratio", tilt)


def truncated_split(n, double):
    """Log target of two sides nearly alike and of a merge that is proposed, under zeros."""
    sample, model = truncated(n), HDPMixedMembership()
    arrays = zeros()
    boxes = arrays.feasible

    def one(merged, theta, g0, alpha, alpha0, shape, region):
        found = []

        def given_levels(_, proposal, log_theta, *args):
            """What is drawn is given: a decision takes it as it is."""
            log_level = jnp.append(log_theta, merged[:, None], axis=1)
            return weigh_side_levels(log_level, proposal, *args)

        def accepted(log_target):
            found.append(log_target)
            return log_target > 0

        proposal = SimpleNamespace(
            is_split=jnp.zeros((), bool), stays=jnp.int32(0), other=jnp.int32(1),
            items=jnp.asarray(sample.counts[:, :2]), tables=jnp.asarray(sample.tables[:2]),
            labels=jnp.zeros((1, 1), jnp.int32), accepted=accepted,
        )  # fmt: skip
        density = DirichletDensity(
            jnp.asarray(sample.counts), levels_of(ABSENT, shape), jnp.asarray(sample.tables), alpha0
        )
        totals = feasible.partition_totals(feasible.block_sums(theta, g0, boxes), boxes)
        truncation = Truncation(jnp.int32(n), feasible.urn_weights(model, alpha, boxes), boxes)
        drawn = {"propose_side_levels": given_levels, "gamma_variate": lambda _, total, __: total}
        with patch.multiple(truncated_split_merge, **drawn):
            truncated_split_merge.split_or_merge_truncated(
                jax.random.key(0), proposal, proposal.labels, density,
                Atoms(theta, g0, totals), truncation, region, double,
            )  # fmt: skip
        return found[0]

    @on_host
    def ratios(merged, *args):
        compiled = jax.jit(one)
        return np.array([compiled(of_both, *args) for of_both in merged])

    rng, counts = np.random.default_rng(1), sample.counts[:, :2].sum(axis=1)
    merged = [
        np.concatenate([
            rng.dirichlet(1 + counts[sample.variable == j])
            for j in range(sample.variable[-1] + 1)
        ])
        for _ in range(10)
    ]  # fmt: skip
    merged = np.log(np.maximum(merged, np.exp(levels.LOG_LEAST_LEVEL)))
    return ratios, (merged, sample.theta, sample.g0, ALPHA, 1.5, sample.levels, arrays.region)


both_forms("HDP with zeros", "split or merge of large components: log ratio", truncated_split)


# Households ---------------------------------------------------------------------------------------


@case("NDPMPM", "log weights of a household's classes", "nats")
def _(n):
    rng = np.random.default_rng(1)
    phi = np.concatenate([
        rng.dirichlet(np.ones(k), (CLASSES, 5)).transpose(2, 0, 1) for k in LEVELS
    ])  # fmt: skip
    omega, pi = rng.dirichlet(np.ones(5), CLASSES), rng.dirichlet(np.full(CLASSES, 0.5))
    of_household = rng.dirichlet(np.ones(60), CLASSES).T[rng.integers(0, 60, 500)]
    codes = np.stack([rng.integers(0, k, 2000) for k in LEVELS])

    def weights(phi, omega, pi, of_household, codes):
        plan = members.merge_plan(LEVELS)
        log_p = members.log_member_probability(
            members.merged_tables(phi, LEVELS, plan), omega,
            members.merged_rows(codes, LEVELS, plan),
        )  # fmt: skip
        total = jnp.log(pi * of_household) + members.sum_by_household(log_p, ((4, 500),))
        return jnp.maximum(total - jax.nn.logsumexp(total, axis=1, keepdims=True), LEAST_RATIO)

    return weights, (phi, omega, pi, of_household, codes)


def of_households(seed=0):
    """Parameters of small households, in double precision."""
    return tuple(np.asarray(x, np.float64) for x in small_households.parameters(seed))


@case("NDPMPM", "log probability of a possible household", "nats")
def _(n):
    def log_p(*values):
        return judges.log_possible(
            *values, small_households.rule_tables(True), small_households.HOUSEHOLD,
            small_households.MEMBER, jnp.asarray(small_households.IS_HEAD),
        )  # fmt: skip

    return log_p, of_households()


@case("NDPMPM", "log weights of the classes of simulated households", "nats")
def _(n):
    def weights(*values):
        log_size = values[2][small_households.HOUSEHOLD.size_rows]
        return parameters.log_class_weights(
            small_households.make_tables(values, True), log_size, small_households.SIZES, True
        )

    return weights, of_households()


@case("NDPMPM", "number of impossible households without a head, or with several", "drawn")
def _(n):
    def draw(key, *values):
        tables = small_households.make_tables(values, True)
        none = impossible.Augmented.none(
            (small_households.F, small_households.S), small_households.HOUSEHOLD,
            small_households.MEMBER,
        )  # fmt: skip
        _, number = impossible.add_other_heads(
            key, none, tables, values[2][small_households.HOUSEHOLD.size_rows],
            small_households.SIZES, jnp.int32(n), small_households.HOUSEHOLD,
        )  # fmt: skip
        return jnp.log(number.astype(values[0].dtype))

    return with_keys(draw), of_households()


# Cells --------------------------------------------------------------------------------------------


@case("Polettini-Stander", "log posterior of F, if it were in single precision", "nats")
def _(n):
    F = np.floor(np.arange(1.0, 200.0) * n / 1000)

    def log_p(F, one):
        return thinning.log_posterior(F, one, 0.3 * one, one, 80 * one, 2 * one)

    return log_p, (F, np.ones_like(F))


@case("Polettini-Stander", "log probability of all f, if it were in single precision", "nats")
def _(n):
    f = np.arange(1.0, 41.0)
    cells = np.random.default_rng(0).multinomial(n, 0.8**f / np.sum(0.8**f)) * 1.0

    def log_p(f, cells, one):
        return jnp.sum(cells * thinning.log_marginal(f, 0.3 * one, one, 80 * one, 2 * one))

    return log_p, (f, cells, np.ones_like(f))


@case("risk", "r_1 of a unique from a float32 log probability", "absolute")
def _(n):
    log_q = np.log(np.logspace(-13, -2, 500))
    return (lambda log_q: jnp.exp(-(300 * n) * jnp.exp(log_q))), (log_q,)
