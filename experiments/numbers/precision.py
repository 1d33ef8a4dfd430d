"""Conditionals in single precision against double precision, same inputs and same keys.

    python experiments/numbers/precision.py

A row for each conditional, at a thousand and at a million records. Log weights and log ratios by
which moves are decided: the largest absolute error, in nats. Parameters that are drawn: the largest
relative error of a draw, of 64 keys. Writes ``precision.md`` beside this file.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.cells import thinning
from bnp_models.kernels.latent_classes import observed_weights, order, truncated_levels
from bnp_models.kernels.latent_classes import split_merge as class_splits
from bnp_models.kernels.mixed_membership import assignment, concentration, split_merge, tables
from bnp_models.kernels.nested import members
from bnp_models.kernels.numerics.counting import first_rows, order_free_sum, variable_of_rows
from bnp_models.kernels.numerics.precision import double_precision
from bnp_models.kernels.splits.anchors import Levels
from bnp_models.kernels.variates import gamma, levels, sticks
from bnp_models.models import level_prior

TABLE = Path(__file__).parent / "precision.md"
SIZES = (1_000, 1_000_000)
LEVELS = (2, 5, 20, 9, 3, 40)
VARIABLE = variable_of_rows(LEVELS)
ROWS, CLASSES = sum(LEVELS), 30
KEYS = 64


class Inputs:
    """Parameters and counts of a sample of n records, the shares the same whatever n."""

    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.n, self.rng = n, rng
        self.pi = rng.dirichlet(np.full(CLASSES, 0.5))
        self.level = np.concatenate([rng.dirichlet(np.ones(k), CLASSES).T for k in LEVELS])
        self.class_counts = rng.multinomial(n, self.pi)
        of_variable = np.split(self.level, first_rows(LEVELS)[1:])
        self.counts = np.concatenate(
            [
                np.stack(
                    [
                        rng.multinomial(m, p)
                        for m, p in zip(self.class_counts, block.T, strict=True)
                    ],
                    1,
                )
                for block in of_variable
            ]
        )
        self.rows = np.stack([rng.integers(0, k, 2000) for k in LEVELS])
        self.rows = self.rows + first_rows(LEVELS)[:, None]
        self.mass = rng.uniform(0.6, 0.95, CLASSES)
        self.log_pi, self.log_level = np.log(self.pi), np.log(self.level)
        self.shape = np.ones(ROWS)


def evaluate(function, args, double):
    """A function of arrays in one precision; floats are what float32 makes of them."""

    def given(x):
        x = np.asarray(x)
        return x.astype(np.float32) if x.dtype == np.float64 else x.astype(np.int32)

    args = jax.tree.map(given, args)
    if not double:
        return jax.tree.map(np.asarray, jax.jit(function)(*args))
    with double_precision():
        wide = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, args)
        return jax.tree.map(np.asarray, jax.jit(function)(*wide))


def with_keys(draw):
    """A draw under many keys, a function of arrays."""

    def drawn(*args):
        keys = jax.random.split(jax.random.key(0), KEYS)
        return jax.vmap(lambda key: draw(key, *args))(keys)

    return drawn


CASES = []


def case(model, conditional, measure):
    """Register what makes the function and its arguments of the inputs."""

    def register(make):
        CASES.append((model, conditional, measure, make))
        return make

    return register


@case("latent classes", "log weights of a record's classes", "nats")
def _(x):
    def weights(log_pi, log_level, rows):
        one_hot = jnp.zeros((ROWS, rows.shape[1]), log_pi.dtype)
        one_hot = one_hot.at[rows, jnp.arange(rows.shape[1])].set(1)
        total = jnp.matmul(log_level.T, one_hot, precision="highest") + log_pi[:, None]
        return total - jax.nn.logsumexp(total, axis=0)

    return weights, (x.log_pi, x.log_level, x.rows)


@case("latent classes", "sticks: log weights drawn", "relative, of the weight")
def _(x):
    def draw(key, counts, alpha):
        return sticks.truncated_sticks(key, counts, alpha)[0]

    return with_keys(draw), (x.class_counts, 0.7)


@case("latent classes", "alpha", "relative")
def _(x):
    def draw(key, total):
        return jnp.log(sticks.stick_concentration(key, total, CLASSES, 0.25, 0.25))

    return with_keys(draw), (-12.5 * np.log(x.n),)


@case("latent classes, HDP", "level probabilities drawn", "relative")
def _(x):
    def draw(key, shape):
        return levels.draw_levels(key, shape, jnp.asarray(VARIABLE))

    return with_keys(draw), (x.counts + 1.0,)


@case("all but Polettini-Stander", "concentrations c_j of the level prior", "relative")
def _(x):
    def draw(key, shape, counts):
        drawn = level_prior.update_shape(
            "learned", key, shape, counts, jnp.asarray(VARIABLE), len(LEVELS)
        )
        return jnp.log(drawn)

    return with_keys(draw), (x.shape, x.counts)


@case("latent classes", "split: log ratio of binomial and sticks' prior", "nats")
def _(x):
    def ratio(sizes, log_x, alpha):
        sizes = sizes.astype(log_x.dtype)
        prior = observed_weights.log_stick_prior(log_x, alpha)
        return prior - class_splits.log_binomial(sizes[0], sizes[1])

    # Above 2**17 records no split is proposed in single precision.
    most = min(x.n, 2**17)
    return ratio, (np.array([most // 3, most - most // 3]), x.log_pi, 0.7)


@case("TNPLCM", "log mass of the feasible region", "nats")
def _(x):
    region = Region.of_boxes([x.rng.random((12, ROWS)) < 0.8], LEVELS)
    return (lambda log_level: jnp.log(region_mass(log_level, region))), (x.log_level,)


@case("TNPLCM", "exchange of two classes: log ratio, if it were in single precision", "nats")
def _(x):
    a, b = np.triu_indices(CLASSES, 1)
    swapped = np.tile(np.arange(CLASSES), (len(a), 1))
    swapped[np.arange(len(a)), a], swapped[np.arange(len(a)), b] = b, a

    def ratio(log_pi, log_mass, counts, swapped, a, b):
        order_now = jnp.arange(CLASSES, dtype=jnp.int32)
        now = partial(order.log_swap_ratio, log_pi, log_mass, counts, order_now)
        # What can be accepted, or nearly.
        return jnp.maximum(jax.vmap(now)(swapped, a, b), -20)

    return ratio, (x.log_pi, np.log(x.mass), x.class_counts, swapped, a, b)


@case("TNPLCM", "levels given their feasible mass: log ratio", "nats")
def _(x):
    total = x.class_counts + len(VARIABLE)
    # Proposals differ from the state by what n_k records leave unknown.
    near = x.mass * np.exp(x.rng.normal(size=CLASSES) / np.sqrt(total) / 2)

    def ratio(y, total, new, old):
        return truncated_levels.log_mass_weight(
            new, y, total, 0.5
        ) - truncated_levels.log_mass_weight(old, y, total, 0.5)

    return ratio, (0.3 * total, 1.0 * total, near, x.mass)


@case("TNPLCM", "log weights among the feasible records drawn", "relative")
def _(x):
    def draw(key, counts, log_pi, log_mass, alpha):
        n = jnp.sum(counts)
        _, log_s = observed_weights.stick_tilt(
            jax.random.fold_in(key, 1), log_pi, log_mass, alpha, n
        )
        return observed_weights.draw_observed_weights(key, counts, log_mass, log_s, alpha)

    return with_keys(draw), (x.class_counts, x.log_pi, np.log(x.mass), 0.7)


@case("latent classes, HDP", "log-likelihood of all records (reported)", "nats")
def _(x):
    repeats = max(1, x.n // 1000)

    def total(log_p):
        return order_free_sum(-log_p * repeats)

    return total, (np.log(x.rng.uniform(1e-6, 1e-3, 1000)),)


@case("HDP, K-profile", "items' components drawn: share that differ", "share")
def _(x):
    def draw(z, rows, g0, theta):
        alpha = jnp.full(rows.shape[1], 0.4, g0.dtype)
        return assignment.assign_items(jax.random.key(0), z, rows, alpha, g0, theta)

    z = x.rng.choice(CLASSES, x.rows.shape, p=x.pi)
    return draw, (z, x.rows, x.pi, x.level)


@case("HDP, K-profile", "new tables drawn: share that differ", "share")
def _(x):
    def draw(z, g0):
        return tables.table_indicators(jax.random.key(0), z, 0.4 * g0[z])

    return draw, (x.rng.choice(CLASSES, x.rows.shape, p=x.pi), x.pi)


@case("HDP, K-profile", "component weights g_0 drawn", "relative")
def _(x):
    def draw(key, shape):
        return gamma.log_dirichlet(key, shape)

    return with_keys(draw), (1.5 * x.class_counts + 1.0,)


@case("HDP", "alpha_0", "relative")
def _(x):
    def draw(key, alpha0, tables_in_all):
        return jnp.log(
            concentration.dp_concentration(key, alpha0, jnp.int32(30), tables_in_all, 0.25, 0.25)
        )

    return with_keys(draw), (4.0, 2 * x.n)


@case("HDP, K-profile", "alpha shared by all records", "relative")
def _(x):
    def draw(key, alpha, num_tables, n):
        return jnp.log(
            concentration.shared_concentration(
                key, alpha, num_tables, n, len(LEVELS), jnp.ones(()), jnp.ones(())
            )
        )

    return with_keys(draw), (0.5, int(1.7 * x.n), x.n)


@case("HDP, K-profile", "rate b of the records' alphas", "relative")
def _(x):
    def draw(key, total, n):
        return jnp.log(concentration.gamma_rate(key, total, n, 0.5, 1.0, 1.0))

    return with_keys(draw), (0.6 * x.n, x.n)


@case("HDP", "split of a component: log ratio", "nats")
def _(x):
    def ratio(c_0, c_1, shape, m, alpha0):
        given = Levels.of_prior(shape, jnp.asarray(VARIABLE))
        return split_merge._log_split_ratio(c_0, c_1, given, m[0], m[1], alpha0)

    c_0, c_1 = x.counts[:, :2].T
    return ratio, (c_0, c_1, x.shape, x.class_counts[:2], 1.5)


@case("HDP with zeros", "concentration: log density of all records, single form", "nats")
def _(x):
    t = np.arange(1.0, len(LEVELS))

    def growth(new, old, t):
        def log_density(alpha):
            return (1 + 0.7 * x.n) * jnp.log(alpha) - alpha - x.n * jnp.sum(jnp.log1p(alpha / t))

        return log_density(new) - log_density(old)

    return growth, (0.5 + 0.3 / np.sqrt(x.n), 0.5, t)


@case("HDP, K-profile", "steps of a shared alpha: log ratio without the zeros", "nats")
def _(x):
    alpha = x.rng.uniform(0.2, 2, 2000)
    t = np.arange(1.0, len(LEVELS))[:, None]

    def ratio(new, old, t):
        rising = jnp.sum(jnp.log1p((new - old) / (old + t)), axis=0)
        return 0.7 * x.n * concentration.log_quotient(new, old) - x.n * rising

    near = np.exp(x.rng.normal(size=alpha.size) / np.sqrt(x.n))
    return ratio, (alpha * near, alpha, t)


@case("households", "log probability of a member's values", "nats")
def _(x):
    rng = np.random.default_rng(1)
    phi = [rng.dirichlet(np.ones(k), (CLASSES, 5)).transpose(2, 0, 1) for k in LEVELS]
    omega = rng.dirichlet(np.ones(5), CLASSES)

    def log_p(phi, omega, rows):
        return members.log_member_probability(phi, omega, rows)

    return log_p, (phi, omega, x.rows - first_rows(LEVELS)[:, None])


@case("Polettini-Stander", "log posterior of F, if it were in single precision", "nats")
def _(x):
    F = np.arange(1.0, 200.0) * x.n / 1000
    one = np.ones_like(F)

    def log_p(F, one):
        return thinning.log_posterior(F, one, 0.3 * one, one, 80 * one, 2 * one)

    return log_p, (np.floor(F), one)


@case("risk", "r_1 of a unique from a float32 log probability", "absolute")
def _(x):
    log_q = np.log(np.logspace(-13, -2, 500))

    def r1(log_q):
        return jnp.exp(-(300 * x.n) * jnp.exp(log_q))

    return r1, (log_q,)


def error(measure, single, double):
    """The largest error of a conditional."""
    if measure == "share":
        return np.mean(single != double)
    finite = np.isfinite(double)
    if (finite != np.isfinite(single)).any():
        return np.inf
    return np.abs(single.astype(np.float64) - double)[finite].max()


def main():
    """Evaluate all, write the table."""
    rows = ["| model | conditional | error | n = 1,000 | n = 1,000,000 |", "|---|---|---|---|---|"]
    for model, conditional, measure, make in CASES:
        errors = []
        for n in SIZES:
            function, args = make(Inputs(n))
            both = (evaluate(function, args, double) for double in (False, True))
            errors.append(f"{error(measure, *both):.1e}")
        rows.append(f"| {model} | {conditional} | {measure} | {' | '.join(errors)} |")
        print(rows[-1], flush=True)
        TABLE.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
