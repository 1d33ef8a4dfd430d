"""Two modes whose masses are known: chains that start in them, with and without split-merge.

Four blocks of equal records on six binary variables: the first three tell A and B from C and D,
the last three A and C from B and D. With few components by its prior on alpha_0, and every record
at one table by its prior on alpha, the posterior has two modes, {AB, CD} and {AC, BD}. The
Dirichlet-multinomial marginals give the ratio of their masses in closed form; it is one where the
blocks are of equal size, since exchanging the two triples of variables exchanges the modes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, z_scores
from scipy.special import expit, gammaln

from bnp_models.kernels.mixed_membership import split_merge
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership
from bnp_models.models.mixed_membership.start import prepare_records

NUM_LEVELS = (2,) * 6
TRIPLES = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
MODES = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
PRIOR = {"b": 1e6, "b0": 3e8}
PLAIN = {"dish_stride": 0, "cell_stride": 0, "split_merge_every": 0, "seating_every": 0}
NO_SPLITS = {"split_merge_every": 0}
OFTEN = {"dish_stride": 8, "split_merge_every": 1}
CAPACITY = 16
SIZES = EQUAL, _ = (6, 6, 6, 6), (5, 8, 4, 7)


def simulation(sizes, moves, num_chains, num_sweeps, burn=100, seed=0):
    """A function that runs chains: whether they are `wrong`, to their visits and crossings.

    Visits are the sweeps after `burn` that a chain spends in exactly either mode. There are
    `num_chains` chains for each of the block sizes, of which half start in each mode; the results
    have the sizes along their first axis. Wrong chains accept splits as if tables were divided
    evenly whatever the split.
    """
    model = HDPMixedMembership(**PRIOR, **moves, level_prior="uniform")
    multiple = max(model.dish_stride, model.cell_stride, 1)
    block = np.array([np.repeat(np.arange(4), each) for each in sizes])
    each = [
        prepare_records(model, np.repeat(TRIPLES[b], 3, axis=1), NUM_LEVELS, multiple=multiple)
        for b in block
    ]
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    num_records = block.shape[1]
    modes = np.pad(MODES[:, block], ((0, 0), (0, 0), (0, data.weight.shape[1] - num_records)))

    right = split_merge._log_split_ratio

    def chain(key, start, data, modes, wrong):
        def ratio(c_0, c_1, variable, m_0, m_1, alpha0):
            half = (m_0 + m_1) / 2
            even = right(c_0, c_1, variable, half, half, alpha0)
            return jnp.where(wrong, even, right(c_0, c_1, variable, m_0, m_1, alpha0))

        key_init, key_sweeps = jax.random.split(key)
        state = in_mode(model, key_init, data, modes[start])

        def body(t, carry):
            state, visits, last, crossings = carry
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(split_merge, "_log_split_ratio", ratio)
                state, _ = model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)
            now = mode_of(state.z[:, :num_records], modes[:, :num_records])
            visits = visits.at[now].add(t >= burn, mode="drop")
            crossings += (now < 2) & (now != last)
            return state, visits, jnp.where(now < 2, now, last), crossings

        carry = (state, jnp.zeros(2, int), start, jnp.zeros((), int))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1::2]

    keys = jax.random.split(jax.random.key(seed), (len(sizes), num_chains))
    starts = jnp.arange(num_chains) % 2
    over_chains = jax.vmap(chain, in_axes=(0, 0, None, None, None))
    over_sizes = jax.vmap(over_chains, in_axes=(0, None, 0, 0, None))
    run = jax.jit(over_sizes)
    given = keys, starts, data, jnp.asarray(modes.swapaxes(0, 1))
    return lambda wrong=False: [np.asarray(x) for x in run(*given, jnp.asarray(wrong))]


def in_mode(model, key, data, label):
    """A state whose records sit in components 0 and 1, with parameters that fit them."""
    state = model.init(key, data, CAPACITY, 1)
    z = jnp.broadcast_to(label.astype(state.z.dtype), state.z.shape)
    one_hot = jax.nn.one_hot(z, CAPACITY) * data.weight[:, None]
    counts = 1 + jax.ops.segment_sum(
        one_hot.reshape(-1, CAPACITY), data.rows.reshape(-1), num_segments=data.levels.variable.size
    )
    total = jax.ops.segment_sum(counts, data.levels.variable, num_segments=len(NUM_LEVELS))
    g0 = jnp.sum(one_hot[0], axis=0)
    return eqx.tree_at(
        lambda s: (s.z, s.g0, s.theta), state,
        (z, g0 / jnp.sum(g0), counts / total[data.levels.variable]),
    )  # fmt: skip


def mode_of(z, modes):
    """0 or 1 where the records' components are exactly those of a mode, else 2."""
    together = (z[:, :, None] == z[:, None, :]) & (z == z[0])[:, :, None]
    same = jnp.all(together == (modes[:, None, :, None] == modes[:, None, None, :]), axis=(1, 2, 3))
    return jnp.where(jnp.any(same), jnp.argmax(same), 2)


def mass_of_first(sizes):
    """P(first mode | either mode)."""
    log_weight = []
    for mode in MODES:
        value = 0.0
        for component in (0, 1):
            size = np.where(mode == component, sizes, 0)
            value += gammaln(size.sum())
            for triple in (0, 1):
                ones = (size * TRIPLES[:, triple]).sum()
                zeros = size.sum() - ones
                value += 3 * (gammaln(1 + ones) + gammaln(1 + zeros) - gammaln(2 + size.sum()))
        log_weight.append(value)
    return expit(log_weight[0] - log_weight[1])


def mass_score(visits, sizes):
    """Standardised error of the first mode's share of the sweeps in either, over chains."""
    error = visits[:, 0] - mass_of_first(np.array(sizes)) * visits.sum(axis=1)
    return z_scores(error[:, None].astype(float), [0.0])[0]


@pytest.fixture(scope="module")
def scores():
    """Of 16 chains for each of the sizes, by whether the move is wrong; crossings of the least."""
    often = simulation(SIZES, OFTEN, num_chains=16, num_sweeps=600)

    def of(wrong):
        visits, crossings = often(wrong)
        return [mass_score(v, s) for v, s in zip(visits, SIZES, strict=True)], crossings.min()

    return of


@pytest.mark.long
@pytest.mark.parametrize("moves", [PLAIN, NO_SPLITS], ids=["plain", "no split-merge"])
def test_without_split_merge_chains_stay(moves):
    visits, crossings = simulation((EQUAL,), moves, num_chains=4, num_sweeps=600)()
    assert crossings.sum() == 0
    assert (visits[:, ::2, 1] == 0).all() and (visits[:, 1::2, 0] == 0).all()
    assert (visits.sum(axis=2) > 0.7 * 500).all()


@pytest.mark.long
def test_finds_both_modes(scores):
    """Every chain crosses, and the first mode has 0.5 or 0.72 of the mass."""
    z, least_crossings = scores(False)
    assert least_crossings >= 2
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_rejects_an_acceptance_ratio_without_the_partition(scores):
    z, _ = scores(True)
    assert np.abs(z).max() > Z_LIMIT, z
