"""Models taken out of the driver, and steps of one's own put into it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, ks_p_value
from harness import Z_LIMIT
from scipy import stats

import bnp_models as bnp
from bnp_models.inference.chunks import chain_keys_of
from bnp_models.kernels.variates.rng import Keys

SETTINGS = {"num_chains": 2, "num_warmup": 0, "num_samples": 20}


@pytest.mark.long
def test_a_kernel_makes_the_draws_of_sample(sample_frame):
    """A scan of the steps with the keys that `sample` uses."""
    model, key = bnp.NPLCM(components=5), jax.random.key(3)
    run = bnp.sample(model, sample_frame, key=key, **SETTINGS)
    kernel = bnp.kernel_of(model, sample_frame)
    key_init, key_sweeps, _, _ = Keys(key, 4)

    def chain(key_init, key):
        def one(state, sweep):
            state, info = kernel.step(jax.random.fold_in(key, sweep), state)
            return state, kernel.keep(state, info)["alpha"]

        return jax.lax.scan(one, kernel.init(key_init), jnp.arange(20))

    state, alpha = jax.jit(jax.vmap(chain))(
        chain_keys_of(key_init, 2), chain_keys_of(key_sweeps, 2)
    )
    np.testing.assert_allclose(alpha, run.draws["alpha"], rtol=1e-4)
    assert state.sweeps.tolist() == [20, 20]


def test_a_kernel_starts_from_the_first_number_of_components(sample_frame):
    model = bnp.HDPMixedMembership()
    for number in (None, 3):
        kernel = bnp.kernel_of(model, sample_frame, num_components=number)
        z = jax.jit(kernel.init)(jax.random.key(0)).chain.z
        first = model.start_components[0] if number is None else number
        assert len(np.unique(z)) <= first < len(np.unique(z)) + 3


class State(NamedTuple):
    x: jax.Array


class Info(NamedTuple):
    log_likelihood: jax.Array
    pair: jax.Array


def make_steps(shrink=0.5, by_data=False):
    """An autoregression, with the data's size added where it is given."""

    def init(key, data=0.0):
        return State(jax.random.normal(key) + data)

    def step(key, state, data=0.0):
        x = shrink * state.x + jax.random.normal(key) + data
        return State(x), Info(-(x**2), jnp.stack([x, -x]))

    prepare = (lambda table: jnp.float32(table.n)) if by_data else None
    return bnp.inference.model_of_steps(
        init, step, keep=["x", "log_likelihood", "pair"], prepare=prepare
    )


def test_own_steps_are_sampled_saved_and_resumed(sample_frame, tmp_path):
    """Resumed in the middle, by functions made anew, the draws are the same bits."""
    table = bnp.Microdata.from_frame(sample_frame)
    options = {"key": jax.random.key(5), "num_chains": 2, "num_warmup": 10, "num_samples": 30}
    run = bnp.sample(make_steps(), table, **options)
    assert run.draws["x"].shape == (2, 30) and run.draws["pair"].shape == (2, 30, 2)
    np.testing.assert_array_equal(run.draws["pair"][..., 0], run.draws["x"])
    assert sorted(bnp.convergence(run)) == ["log_likelihood", "x"]
    assert all(isinstance(sentence, str) for sentence in bnp.warnings_of(run))
    assert repr(run).startswith("Run: 2 chains of 30 draws of own")

    class Killed(Exception):
        pass

    saving = {"checkpoint": tmp_path / "chains", "checkpoint_seconds": 0, "chunk_sweeps": 7}
    with pytest.raises(Killed):
        calls = []

        def after_three(latest):
            calls.append(latest)
            if len(calls) == 4:
                raise Killed
            return {}

        bnp.sample(make_steps(), table, progress=True, monitor=after_three, **options, **saving)
    assert (tmp_path / "chains" / "manifest.json").exists()
    resumed = bnp.sample(make_steps(), table, resume=True, **options, **saving)
    for name, draws in run.draws.items():
        np.testing.assert_array_equal(resumed.draws[name], draws)
    with pytest.raises(bnp.CheckpointError, match="made with other data, settings"):
        other = bnp.inference.model_of_steps(
            lambda key: State(jax.random.normal(key)),
            lambda key, state: (State(state.x + 1), Info(-(state.x**2), jnp.zeros(2))),
            keep=["x", "log_likelihood", "pair"],
        )
        bnp.sample(other, table, resume=True, **options, **saving)


def test_every_sweep_of_every_chain_has_a_key_of_its_own(sample_frame):
    """What each sweep adds to an autoregression is another standard normal variate."""
    run = bnp.sample(make_steps(), sample_frame, key=jax.random.key(5), **SETTINGS | {
        "num_chains": 4, "num_samples": 400,
    })  # fmt: skip
    x = run.draws["x"]
    added = x[:, 1:] - x[:, :-1] / 2
    assert len(np.unique(added.round(5))) > 0.99 * added.size
    assert ks_p_value(added, stats.norm.cdf) > P_LIMIT
    # Autocorrelations of what is added, and those between chains, are none.
    centred = (added - added.mean()) / added.std()
    for lag in range(1, 20):
        z = (centred[:, lag:] * centred[:, :-lag]).mean() * np.sqrt(centred[:, lag:].size)
        assert abs(z) < Z_LIMIT
    z = (np.corrcoef(centred) - np.eye(4)) * np.sqrt(centred.shape[1])
    assert np.abs(z).max() < Z_LIMIT


def test_own_steps_are_given_their_data(sample_frame):
    run = bnp.sample(make_steps(by_data=True), sample_frame, key=jax.random.key(6), **SETTINGS)
    assert run.draws["x"][:, -1].mean() == pytest.approx(2 * len(sample_frame), rel=0.05)
    with pytest.raises(ValueError, match="keep: the model has no 'y'; it has log_likelihood, pa"):
        bnp.sample(make_steps(), sample_frame, key=jax.random.key(6), keep=["y"], **SETTINGS)
    with pytest.raises(TypeError, match="^step must be a function, not int$"):
        bnp.inference.model_of_steps(lambda key: {}, 3, keep=["x"])
    with pytest.raises(ValueError, match="gives no probabilities of cells"):
        bnp.population_risk(run, 20_000)
