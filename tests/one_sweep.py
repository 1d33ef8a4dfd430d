"""One sweep from an exact draw of the joint distribution of parameters and data leaves it as it is.

Of every case, a model and the form of its data, the joint distribution is drawn exactly and a sweep
given the data follows: means of functions of parameters and data are the same before and after if
the sweep leaves the posterior invariant, and no truth by other means is needed (Geweke 2004,
doi:10.1198/016214504000001132, one step of very many chains). Products with the data see at once
what a sweep makes of them wrongly.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import latent
import nested
import numpy as np
import truncated
from harness import DEEP_GROUPS, where
from latent import structural_zeros

from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.levels import bands_of_levels
from bnp_models.models.latent_classes.predictions import simulate_records
from bnp_models.models.latent_classes.state import prepare_records as prepare_latent_classes
from bnp_models.models.mixed_membership.hdp import draw_prior
from bnp_models.models.mixed_membership.start import prepare_records as prepare_mixed_membership
from bnp_models.models.nested.sweep import draw_prior as draw_nested_prior

# Levels of the first variable may be numbers, or lie in groups of groups; 19 of 24 cells are
# feasible under the conditions.
NUM_LEVELS = (6, 2, 2)
TREES = {"": None, "ordered": {0: bands_of_levels(6)}, "groups": {0: DEEP_GROUPS}}
CONDITIONS = [[1, 1, -1], [2, 1, -1], [5, -1, 0]]
# Slots for components.
CAPACITY = 12
FIRST = jnp.asarray(first_rows(NUM_LEVELS))[:, None]

# What a careless sweep makes of its data, by the place of a switch.
CARELESS = ("another value", "padding counts")
# More at once would be folded into constants for long.
BATCH = 128


class Joint:
    """A joint distribution of parameters and data, and a sweep of it that is compiled once.

    Parameters
    ----------
    draw
        (key) -> a state, and level codes given it.
    data
        (codes, careless) -> data for a sweep; `careless` has a switch for each of `CARELESS`.
    functions
        (state, codes) -> functions of the parameters, and of the values that are not missing.
    draws
        Of the joint distribution.
    padded
        Whether the data have padding.
    """

    def __init__(self, model, draw, data, functions, draws=4096, padded=True):
        def change(switches, key):
            key_joint, key_time, key_sweep = jax.random.split(key, 3)
            state, codes = draw(key_joint)
            time = jax.random.randint(key_time, (), 0, 12)
            new, _ = model.sweep(key_sweep, state, data(codes, switches), time)

            def moments(state):
                parameters, values = functions(state, codes)
                return jnp.append(1, values)[:, None] * parameters

            before = moments(state)
            return before, moments(new) - before

        @jax.jit
        def changes(keys, switches):
            return jax.lax.map(partial(change, switches), keys, batch_size=BATCH)

        self.changes, self.draws = changes, draws
        self.careless = CARELESS if padded else CARELESS[:1]

    def scores(self, seed, careless=None):
        """z-scores of what one sweep changes on average, of all that is not constant."""
        switches = jnp.asarray([careless == name for name in CARELESS])
        keys = jax.random.split(jax.random.key(seed), self.draws)
        before, change = (np.asarray(x, np.float64) for x in self.changes(keys, switches))
        spread = change.std(axis=0)
        # What is not constant changes: a step that is left out leaves the law as it is, too.
        moved = spread[0] > 1e-5
        np.testing.assert_array_equal(moved, before[:, 0].std(axis=0) > 1e-5)
        return change.mean(axis=0)[:, moved] / spread[:, moved] * np.sqrt(self.draws)


def one_level_on(codes, num_levels, wrong):
    """Level codes, or, where wrong, those with a record's one level further."""
    moved = (codes[:, 3] + 1) % jnp.asarray(num_levels, codes.dtype)
    return where(wrong, codes.at[:, 3].set(moved), codes)


def of_levels(shape, number):
    """The logarithm of a concentration and the mean of its first level, by Dirichlet shapes."""
    c = jnp.sum(shape[:number])
    return jnp.log(c), shape[0] / c


def mixed_membership(model, tree="", conditions=None, missing=((), ())):
    """Six records beside two of padding, some values missing; under conditions, feasible ones."""
    zeros = structural_zeros(conditions, NUM_LEVELS)
    given = np.zeros((6, 3), int)
    given[missing] = -1
    template = prepare_mixed_membership(
        model, given, NUM_LEVELS, zeros, multiple=8, trees=TREES[tree]
    )
    real, seen = template.weight > 0, np.pad(given.T >= 0, ((0, 0), (0, 2)), constant_values=True)
    absent = sum(NUM_LEVELS)

    def draw(key):
        if zeros is None:
            return draw_prior(model, key, real.size, NUM_LEVELS, CAPACITY, template.levels)
        key_state, key_rows = jax.random.split(key)
        state = truncated.draw_joint(model, key_state, template, CAPACITY)
        return state, truncated.draw_rows(key_rows, state, template) - FIRST

    def data(codes, careless):
        # Padding holds what no model has drawn.
        codes = jnp.where(real, codes, 0)
        rows = one_level_on(codes, NUM_LEVELS, careless[0]) + FIRST
        rows = jnp.where(seen, rows, absent)
        weight = where(careless[1], jnp.ones_like(template.weight), template.weight)
        return dataclasses.replace(truncated.with_rows(template, rows), weight=weight)

    def functions(state, codes):
        share = jnp.sum((codes == 0) & seen & real, axis=1) / jnp.sum(seen & real, axis=1)
        occupied = jnp.zeros(CAPACITY).at[jnp.where(real, state.z, CAPACITY)].set(1, mode="drop")
        log_theta = jnp.log(state.theta)[codes + FIRST, state.z]
        parameters = [
            jnp.sum(jnp.where(real, jnp.log(state.alpha), 0)), jnp.log(state.rate),
            jnp.log(state.alpha0), jnp.sum(occupied), jnp.sum(state.g0**2),
            jnp.sum((state.z[0] == state.z[1]) & real),
            jnp.sum(jnp.where(real & seen, log_theta, 0)),
            jnp.sum(state.g0 * state.theta[0]), *of_levels(state.level_shape, NUM_LEVELS[0]),
        ]  # fmt: skip
        if tree:
            parameters += of_levels(state.level_shape[sum(NUM_LEVELS) :], None)
        return jnp.stack([x.astype(float) for x in parameters]), share - 0.5

    return Joint(model, draw, data, functions)


def latent_classes(model, tree="", conditions=None, missing=((), ()), counted=0):
    """Six records beside padding, some values missing; and others that are counted by cell."""
    zeros = structural_zeros(conditions, NUM_LEVELS)
    codes = np.zeros((6, 3), int)
    codes[missing] = -1
    template = prepare_latent_classes(
        model, codes, NUM_LEVELS, zeros, multiple=8, trees=TREES[tree]
    )
    if counted:
        template = latent.with_counted(template, conditions, counted)
    size = template.weight.size + counted
    seen = np.zeros((3, size), bool)
    seen[:, :6], seen[:, template.weight.size :] = codes.T >= 0, True

    def draw(key):
        key_state, key_records = jax.random.split(key)
        state = latent.draw_prior(model, key_state, template)
        return state, simulate_records(
            key_records, latent.kept_of(state), size, NUM_LEVELS, template.boxes
        )

    def data(codes, careless):
        codes = codes.at[:, 6 : template.weight.size].set(0)
        data = latent.with_codes(template, one_level_on(codes, NUM_LEVELS, careless[0]))
        weight = where(careless[1], jnp.ones_like(data.weight), data.weight)
        return dataclasses.replace(data, weight=weight)

    def functions(state, codes):
        share = jnp.sum((codes == 0) & seen, axis=1) / seen.sum(axis=1)
        return latent.statistics(state, template), share - 0.5

    return Joint(model, draw, data, functions)


def households(model, table, rules=None):
    """Households of one size under rules."""
    template = model.prepare(table, rules)

    def draw(key):
        key_state, key_households = jax.random.split(key)
        state = draw_nested_prior(model, key_state, template)
        return state, nested.draw_households(key_households, state, template)

    def data(values, careless):
        household, person = values
        other = one_level_on(person[:, 0].T, template.member.num_levels, careless[0]).T
        return nested.with_households(template, household, person.at[:, 0].set(other))

    def functions(state, values):
        household, person = values
        first = jnp.mean(household == 0, axis=0), jnp.mean(person == 0, axis=(0, 1))
        return nested.moments(state, template), jnp.concatenate(first) - 0.5

    return Joint(model, draw, data, functions, draws=16_384, padded=False)
