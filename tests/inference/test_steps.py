"""Models taken out of the driver, and steps of one's own put into it."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT, ks_p_value
from harness import Z_LIMIT
from scipy import stats
from scipy.special import betaln

import bnp_models as bnp
from bnp_models.inference.chunks import chain_keys_of
from bnp_models.inference.steps import StepsInfo
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
    assert sorted(bnp.diagnose(run).figures) == ["log_likelihood", "x"]
    assert all(isinstance(sentence, str) for sentence in bnp.diagnose(run).warnings)
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


STARTS = {
    "drawn": lambda key: {"x": jax.random.normal(key), "n": jnp.int32(0)},
    "constant": lambda key: {"x": jnp.zeros(()), "n": jnp.int32(0)},
    "of Python": lambda key: {"x": 0.0, "n": 0},
    "of NumPy": lambda key: {"x": np.float32(0), "n": np.int32(0)},
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("weak", [False, True])
def test_own_steps_are_traced_once(start, weak, sample_frame):
    """Initial states are of the types, and in the places, of the states that steps return."""
    traced = []

    def step(key, state):
        traced.append(key)
        x = jnp.where(jax.random.uniform(key) < 0.5, 1.0, -1.0) if weak else jax.random.normal(key)
        return {"x": x, "n": state["n"] + 1}, {}

    own = bnp.inference.model_of_steps(STARTS[start], step, keep=["x"])
    run = bnp.sample(own, sample_frame, key=jax.random.key(5), **SETTINGS | {"num_warmup": 3})
    assert np.all(run.draws["x"] != 0)
    assert len(traced) == 1


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


class Position(NamedTuple):
    log_p: jax.Array
    mu: jax.Array


class Chain(NamedTuple):
    """As a state of blackjax: the position within it, and figures of the density."""

    position: Position
    logdensity: jax.Array


LEVELS = {"a": list("uvw"), "b": list("xy")}


def cells_model(**more):
    """A posterior Dir(1 + counts) of the probabilities of the six cells."""

    def prepare(table):
        cells = np.ravel_multi_index(table.codes.T, table.schema.num_levels)
        return jnp.asarray(np.bincount(cells, minlength=6), jnp.float32)

    def init(key, counts):
        return Chain(Position(jnp.full(6, -jnp.log(6.0)), jnp.zeros(())), jnp.zeros(()))

    def step(key, state, counts):
        log_p = jnp.log(jax.random.dirichlet(key, 1 + counts))
        proposal = Position(0 * log_p, jnp.ones(()))
        return Chain(Position(log_p, jnp.exp(log_p[0])), counts @ log_p), {"proposal": proposal}

    def log_cell_probability(draw, cells):
        return draw["log_p"][2 * cells[:, 0] + cells[:, 1]]

    return bnp.inference.model_of_steps(
        init, step, keep=["log_p", "position.mu", "proposal.mu"], prepare=prepare,
        axes={"log_p": ["cell"]}, log_cell_probability=log_cell_probability, name="cells", **more
    )  # fmt: skip


@pytest.fixture(scope="module")
def cells():
    """60 records of six cells, three of them alone in theirs, and their chains."""
    counts = [30, 20, 7, 1, 1, 1]
    pairs = [(a, b) for a in LEVELS["a"] for b in LEVELS["b"]]
    frame = pd.DataFrame(np.repeat(pairs, counts, axis=0), columns=["a", "b"])
    table = bnp.Microdata.from_frame(frame, levels=LEVELS)
    settings = {"num_chains": 2, "num_warmup": 0, "num_samples": 500}
    return bnp.sample(cells_model(), table, key=jax.random.key(2), **settings)


def test_own_steps_keep_arrays_within_their_state(cells):
    first = np.exp(cells.draws["log_p"][..., 0])
    np.testing.assert_allclose(cells.draws["position.mu"], first, rtol=1e-5)
    assert np.all(cells.draws["proposal.mu"] == 1)
    data = cells.to_inference_data(parameters=True)["posterior"]
    assert data["log_p"].dims == ("chain", "draw", "cell")
    # Of several arrays of one name, that of the state is meant.
    named = cells.model.keep(
        Chain(Position(jnp.zeros(6), jnp.float32(3)), jnp.zeros(())),
        StepsInfo({"proposal": Position(jnp.ones(6), jnp.float32(4)), "mu": 5.0}, jnp.zeros(())),
    )
    assert (named["mu"], named["position.mu"], named["proposal.mu"]) == (5, 3, 4)
    assert named["log_p"].sum() == 0 and named["proposal.log_p"].sum() == 6


def test_own_steps_with_cell_probabilities_have_a_risk_and_synthetic_data(cells):
    """Against the beta posterior of the cell of a sample unique: 2 of 66 in all."""
    risk = bnp.population_risk(cells, 200, ties="off")
    stays = np.exp(betaln(2, 64 + 140) - betaln(2, 64))
    error = risk.tau1_conditional.std() / np.sqrt(risk.tau1_conditional.size)
    assert abs(risk.tau1_conditional.mean() - 3 * stays) < Z_LIMIT * error
    assert all(isinstance(sentence, str) for sentence in bnp.diagnose(cells, risk).warnings)
    pointwise = bnp.to_inference_data(cells, risk, pointwise=True)["log_likelihood"]["record"]
    assert pointwise.shape == (2, 500, 60)
    np.testing.assert_allclose(pointwise[..., 0], cells.draws["log_p"][..., 0], rtol=1e-5)
    files = bnp.synthesize(cells, 200)
    share = np.mean([(file["a"] == "u").mean() for file in files])
    # The beta posterior has a standard deviation of 0.05, and a file adds 0.053.
    assert abs(share - 52 / 66) < Z_LIMIT * 0.073 / np.sqrt(200)


def test_own_steps_may_simulate_records_themselves(cells):
    def simulate(key, draw, num_records):
        return jnp.ones((2, num_records), jnp.int32)

    own = dataclasses.replace(cells, model=cells_model(simulate_records=simulate))
    (file,) = bnp.synthesize(own, 1)
    assert set(file["a"]) == {"v"} and set(file["b"]) == {"y"}


def test_parameters_are_those_that_a_model_names(cells, sample_frame):
    assert set(cells.parameters()) == {"log_p", "position.mu", "proposal.mu"}
    run = bnp.sample(make_steps(), sample_frame, key=jax.random.key(6), **SETTINGS)
    assert run.parameters() == {}


def test_wrong_steps_are_refused_in_words(sample_frame):
    def sampled(init, step):
        own = bnp.inference.model_of_steps(init, step, keep=["x"])
        bnp.sample(own, sample_frame, key=jax.random.key(6), **SETTINGS)

    def start(key):
        return {"x": jnp.zeros(())}

    for step, message in (
        (lambda key, state: state, r"^step must return \(state, info\), not dict"),
        (lambda key, state: ({"x": jnp.zeros(3)}, {}), r"x was float32 of shape \(\) and is "
         r"float32 of shape \(3,\)"),
        (lambda key, state: ({"x": jnp.int32(3)}, {}), r"x was float32 of shape \(\) and is int32"),
        (lambda key, state: ({"y": state["x"]}, {}), r"another structure"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            sampled(start, step)
    with pytest.raises(ValueError, match="^keep is empty: give the name of at least one array"):
        bnp.inference.model_of_steps(start, lambda key, state: (state, {}), keep=[])
