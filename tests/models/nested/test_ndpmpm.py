"""The nested model beyond its posterior: missing values, synthetic households, bad input."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT, chi_square_p_value
from nested import (
    all_households,
    log_probabilities,
    possible_households,
    tiny_households,
)

import bnp_models as bnp
from bnp_models.kernels.nested.judges import log_possible
from bnp_models.kernels.nested.members import in_parts
from bnp_models.models.nested import missing, predictions, prepare, sweep
from bnp_models.models.nested.ndpmpm import SIZE
from bnp_models.rules import each, exactly, person
from bnp_models.rules.census import census_relationships
from bnp_models.synthesis.households import complete_households

ONE_HEAD = bnp.Rules([
    exactly(1, person(role="head")),
    each(person(role="other")).is_older_than(person(role="head"), 0),
])  # fmt: skip
SMALL = bnp.NDPMPM(components=3, member_components=2, member_classes="nested")
draw_prior = jax.jit(sweep.draw_prior)
HOUSEHOLDS = [
    ("own", [("head", "0"), ("other", "1")]),
    ("rent", [("head", None), ("other", None)]),
    (None, [(None, "1"), (None, "0")]),
    ("rent", [("head", "1")]),
    ("own", [(None, "1")]),
]


def relatives(number, most=3):
    """Bundled households of few persons, and the rules that they keep."""
    households = bnp.datasets.bay_area_households().sample(number, seed=0).households()
    households = households.select(households.sizes <= most)
    return households, census_relationships(households)


def test_missing_values_given_the_parameters():
    """Completions have the probabilities that the truncated model gives them, all at once."""
    table = tiny_households(HOUSEHOLDS)
    data = SMALL.prepare(table, ONE_HEAD)
    state = draw_prior(SMALL, jax.random.key(1), data)

    @jax.jit
    def chain(key):
        def step(state, key):
            keys = jax.random.split(key)
            new = missing.fill_in(state, data)
            g, m, _ = sweep.update_classes(keys[0], state, new)
            new = missing.update_missing(keys[1], state, g, m, new)
            completed = missing.completed_values(new)
            state = dataclasses.replace(state, completed=completed)
            return state, (new.household_rows, new.member_codes)

        return jax.lax.scan(step, state, jax.random.split(key, 4000))[1]

    rows, codes = chain(jax.random.key(2))
    uniform = []
    # Every tenth: as good as independent.
    rows, codes = np.asarray(rows)[100::10], np.asarray(codes)[100::10]
    parameters = state.log_pi, state.log_omega, state.log_lambda, state.log_phi
    parameters = tuple(np.asarray(value, np.float64) for value in parameters)
    first = 0
    for i, (members, number) in enumerate(data.blocks):
        household, person_codes = all_households(data, members)
        log_p = log_probabilities(np, parameters, data, i)
        possible = possible_households(data, i)
        block = table.size_blocks[i]
        start = sum(m * n for m, n in data.blocks[:i])
        for k in range(number):
            seen_h, seen_m = block.household_codes[k], block.member_codes[k]
            fits = possible & ((seen_h < 0) | (household == seen_h)).all(axis=1)
            fits &= ((seen_m < 0) | (person_codes == seen_m)).all(axis=(1, 2))
            at = start + k * members
            own = codes[:, :, at : at + members].swapaxes(1, 2).reshape(len(rows), -1)
            drawn = np.concatenate([rows[:, :1, first + k], own], axis=1)
            every = np.concatenate([household, person_codes.reshape(len(household), -1)], axis=1)
            which = (drawn[:, None] == every).all(axis=2)
            assert which.any(axis=1).all()
            counts = np.bincount(which.argmax(axis=1), minlength=len(every))
            assert counts[~fits].sum() == 0
            if fits.sum() > 1:
                assert chi_square_p_value(counts[fits], np.exp(log_p[fits])) > P_LIMIT
                uniform.append(chi_square_p_value(counts[fits], np.ones(fits.sum())))
        first += number
    # Other probabilities would have been told apart.
    assert min(uniform) < P_LIMIT


@pytest.mark.parametrize(
    "head", [None, pytest.param(("relate", "Householder"), marks=pytest.mark.long)]
)
def test_exact_probability_of_the_possible(head):
    """log P(possible) by tables against the share among simulated households."""
    households, _ = relatives(150, most=4)
    frame = households.to_frame()
    table = bnp.Households.from_frame(
        frame, "household", ["persons", "tenure", "income", "vehicles"], head=head
    )
    rules = census_relationships(table)
    data = SMALL.prepare(table, rules)
    assert data.tables is not None and data.tables.compositions is not None
    state = draw_prior(SMALL, jax.random.key(3), data)
    parameters = (state.log_pi, state.log_omega, state.log_lambda, state.log_phi)
    exact = np.exp(float(jax.jit(log_possible)(
        *parameters, data.tables, data.household, data.member, data.is_head
    )))  # fmt: skip
    # Asked one by one, not by tables, and with any number of heads.
    plain = dataclasses.replace(data, tables=None, head=None)
    sizes = np.exp(np.asarray(jax.nn.logsumexp(
        state.log_pi + state.log_lambda[data.household.size_rows], axis=1
    )))  # fmt: skip
    draw = dict(zip(("log_pi", "log_omega", "log_lambda", "log_phi"), parameters, strict=True))
    simulate = jax.jit(
        lambda key: predictions.simulate_possible(key, draw, plain, jnp.asarray(sizes), 4096)
    )
    used, good = 0, 0
    for key in jax.random.split(jax.random.key(4), 20):
        new, possible = simulate(key)
        used, good = used + int(new.used.sum()), good + int(possible.sum())
    error = np.sqrt(exact * (1 - exact) / used)
    assert abs(good / used - exact) < 4.5 * error, (good / used, exact)


def test_distinct_members_stand_for_all():
    """Probabilities of the distinct members alone give the likelihood that all members give."""
    households, rules = relatives(600)
    data = SMALL.prepare(households, rules)
    codes, index = data.distinct, data.distinct_index
    assert codes.shape[1] < data.member_codes.shape[1]
    np.testing.assert_array_equal(codes[:, index], data.member_codes)
    state = draw_prior(SMALL, jax.random.key(6), data)
    every = dataclasses.replace(data, distinct=None)
    update = jax.jit(sweep.update_classes)
    g, m, found = update(jax.random.key(7), state, data)
    g_every, m_every, exact = update(jax.random.key(7), state, every)
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    np.testing.assert_array_equal(g, g_every)
    np.testing.assert_array_equal(m, m_every)


@pytest.mark.parametrize(("age", "distinct"), [("1", 2), (None, None)])
def test_members_with_missing_values_stand_for_themselves(age, distinct, monkeypatch):
    """What is filled in changes from sweep to sweep, and so would the distinct members."""
    monkeypatch.setattr(prepare, "FEW_MEMBERS", 1)
    table = tiny_households([("own", [("head", "0"), ("other", "1")])] * 8
                            + [("own", [("head", "0"), ("other", age)])])  # fmt: skip
    found = SMALL.prepare(table, None).distinct
    assert distinct == (None if found is None else found.shape[1])


@pytest.mark.long
def test_households_in_parts_are_the_same_households(monkeypatch):
    """Likelihood, counts and missing values, of households that lie in four padded parts."""
    table = tiny_households(HOUSEHOLDS * 3)
    whole = SMALL.prepare(table, ONE_HEAD)
    monkeypatch.setattr(prepare, "by_platform", lambda *_: 4)
    parts = SMALL.prepare(table, ONE_HEAD)
    assert parts.num_households == whole.num_households == 15
    assert parts.household_weight.size == 15 + 5 and parts.household_weight.sum() == 15
    _, households, members = in_parts(whole.blocks, 4)
    state = draw_prior(SMALL, jax.random.key(5), whole)
    codes = jax.random.bernoulli(jax.random.key(6), shape=(whole.at_household.shape[1] +
                                                           whole.at_member.shape[1],))  # fmt: skip
    state = dataclasses.replace(state, completed=codes.astype(jnp.int32))
    one, several = (missing.fill_in(state, data) for data in (whole, parts))
    for name, place in (("household_rows", households.place), ("member_codes", members.place)):
        found = np.asarray(getattr(several, name))[:, place]
        np.testing.assert_array_equal(found, getattr(one, name))
    np.testing.assert_array_equal(missing.completed_values(several), codes)
    update = jax.jit(sweep.update_classes)
    g, m, log_likelihood = update(jax.random.key(7), state, several)
    exact = update(jax.random.key(7), state, one)[2]
    np.testing.assert_allclose(log_likelihood, exact, rtol=1e-6)
    counts = sweep.count_classes(SMALL, g, m, several)
    expected = sweep.count_classes(SMALL, g[households.place], m[members.place], one)
    jax.tree.map(np.testing.assert_array_equal, counts, expected)
    assert counts.households.sum() == 15
    updated = missing.update_missing(jax.random.key(8), state, g, m, several)
    known = np.ones(parts.member_codes.shape, bool)
    known[tuple(np.asarray(parts.at_member))] = False
    np.testing.assert_array_equal(updated.member_codes[known], several.member_codes[known])
    assert (updated.member_codes[~known] != several.member_codes[~known]).any()


@pytest.fixture(scope="module")
def incomplete_run():
    """Chains on households of which a tenth of the members' values are missing."""
    households, rules = relatives(100, most=2)
    codes = households.member_codes.copy()
    codes[np.random.default_rng(0).random(codes.shape) < 0.1] = -1
    incomplete = bnp.Households(
        households.schema, households.household_codes, households.sizes, codes, households.ids,
        households.rows,
    )  # fmt: skip
    model = bnp.NDPMPM(
        components=4, member_components=3, level_prior="uniform", member_classes="nested"
    )
    return bnp.sample(
        model, incomplete, key=jax.random.key(5), conditions=rules, num_chains=2,
        num_warmup=20, num_samples=20, parameters_every=4,
    )  # fmt: skip


def test_synthetic_households(incomplete_run):
    """They keep the rules, and have the sample's sizes, columns and labels."""
    run = incomplete_run
    assert run.draws["log_phi"].shape[:2] == (2, 5) and run.draws["alpha"].shape == (2, 20)
    frames = bnp.synthesize(run, 2)
    original = run.table.to_frame()
    for frame, same in zip(frames, bnp.synthesize(run, 2), strict=True):
        pd.testing.assert_frame_equal(frame, same)
        assert list(frame.columns) == list(original.columns)
        made = bnp.Households.from_frame(
            frame, "household", ["persons", "tenure", "income", "vehicles"],
            levels=run.table.schema.table,
        )  # fmt: skip
        assert sorted(made.sizes) == sorted(run.table.sizes)
        assert run.conditions.check(made).all()
        assert (made.persons.codes >= 0).all()
    assert not frames[0].equals(frames[1])
    with pytest.raises(ValueError, match="have the same sizes as those of the sample"):
        bnp.synthesize(run, 1, 7)


@pytest.mark.long
def test_households_of_given_sizes():
    """Classes share the weights of the sizes, files are as ever, and there is no attack on them."""
    households, rules = relatives(100, most=3)
    run = bnp.sample(
        bnp.NDPMPM(components=4, member_components=3, sizes="given", level_prior="uniform"),
        households, key=jax.random.key(6), conditions=rules, num_chains=2, num_warmup=10,
        num_samples=8, parameters_every=4,
    )  # fmt: skip
    data = run.model.prepare(households, rules)
    of_sizes = run.draws["log_lambda"][..., data.household.size_rows, :]
    np.testing.assert_array_equal(of_sizes, np.broadcast_to(of_sizes[..., :1], of_sizes.shape))
    assert np.ptp(of_sizes[..., 0], axis=-1).min() > 0
    frame = bnp.synthesize(run, 1)[0]
    made = bnp.Households.from_frame(
        frame,
        "household",
        ["persons", "tenure", "income", "vehicles"],
        levels=households.schema.table,
    )
    assert sorted(made.sizes) == sorted(households.sizes) and rules.check(made).all()
    with pytest.raises(bnp.MicrodataError, match="given sizes"):
        bnp.evaluation.check_source(run, households, rules)
    # Without rules the prior of random sizes is learned, and that of given ones is not.
    model = bnp.NDPMPM(sizes="given")
    data = model.prepare(households, None)
    shapes = {
        "household_shape": jnp.full(data.household_levels.shape.size, 2.0),
        "member_shape": jnp.full(data.member_levels.shape.size, 2.0),
    }
    kept = sweep._keep_sizes(model, shapes["household_shape"], data)
    assert (kept[data.household.size_rows] == 1).all() and (kept != 1).any()
    draws = {name: np.asarray(shape)[None, None] for name, shape in shapes.items()}
    told = types.SimpleNamespace(table=households, conditions=None, draws=draws)
    assert "household size" not in model.level_concentrations(told)
    assert "household size" in bnp.NDPMPM().level_concentrations(told)
    with pytest.raises(ValueError, match="sizes"):
        bnp.NDPMPM(sizes="fixed")


def test_completed_households(incomplete_run):
    """What was observed is unchanged, and the households are possible."""
    before = incomplete_run.table.persons
    seen = before.codes >= 0
    for made in complete_households(incomplete_run, 2):
        assert (made.persons.codes[seen] == before.codes[seen]).all()
        assert incomplete_run.conditions.check(made).all()
    first, second = bnp.impute(incomplete_run, 2)
    for frame in (first, second):
        made = bnp.Microdata.from_frame(frame.drop(columns="household"), levels=before.schema)
        assert (made.codes[seen] == before.codes[seen]).all()
        assert (made.codes >= 0).all()
    assert not first.equals(second)


def test_parameters_of_fewer_draws_as_inference_data(incomplete_run):
    data = bnp.to_inference_data(incomplete_run, parameters=True)
    assert data["posterior"]["alpha"].shape == (2, 20)
    assert data["parameters"]["log_phi"].shape[:2] == (2, 5)
    np.testing.assert_array_equal(data["parameters"]["draw"], [3, 7, 11, 15, 19])
    table, schema = incomplete_run.table, incomplete_run.table.schema
    levels = data["parameters"]["log_phi"].isel(member_class=0, household_class=1)
    last = schema.member_variables[-1]
    np.testing.assert_array_equal(
        levels.sel(member_variable_level=f"{last}={schema.member_levels[-1][-1]}"),
        incomplete_run.draws["log_phi"][:, :, -1, 1, 0],
    )
    constant = data["constant_data"]
    sizes = constant["household_level"].values[constant["household_variable"] == SIZE]
    assert list(sizes) == [str(size) for size in np.unique(table.sizes)]
    labels = constant["household_variable_level"].values
    np.testing.assert_array_equal(data["parameters"]["household_variable_level"], labels)
    assert constant["num_households"] == table.n


def test_resumed_and_interrupted_runs_agree(tmp_path):
    """Arrays kept of fewer draws: the same whether the run was cut into chunks, or extended."""
    table = tiny_households([one for one in HOUSEHOLDS if one[0] == "own"][:1] * 3)
    how = {"key": jax.random.key(7), "num_chains": 2, "num_warmup": 3, "parameters_every": 3}
    whole = bnp.sample(SMALL, table, num_samples=12, **how)
    cut = bnp.sample(SMALL, table, num_samples=12, chunk_sweeps=2, **how)
    longer = bnp.extend(bnp.sample(SMALL, table, num_samples=5, **how), 7)
    for other in (cut, longer):
        for name, values in whole.draws.items():
            np.testing.assert_array_equal(values, other.draws[name])
    assert whole.draws["log_pi"].shape[1] == 4
    thinned = whole.thinned(2)
    assert thinned.settings.parameters_every == 3
    np.testing.assert_array_equal(thinned.draws["log_pi"], whole.draws["log_pi"][:, 1::2])
    parameters = whole.parameters()
    np.testing.assert_array_equal(parameters["alpha"], whole.draws["alpha"][:, 2::3])


def test_errors():
    table = tiny_households(HOUSEHOLDS[:1] * 2)
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="the ndpmpm model takes Households, not Microdata"):
        bnp.sample(SMALL, table.persons, key=key)
    with pytest.raises(ValueError, match="the nplcm model takes Microdata, not Households"):
        bnp.sample(bnp.NPLCM(), table, key=key)
    nobody = bnp.Rules([exactly(0, person(role="head"))])
    with pytest.raises(bnp.MicrodataError, match="household 0 breaks the rule"):
        bnp.sample(SMALL, table, key=key, conditions=nobody)
    with pytest.raises(ValueError, match="components must be an integer of at least 2"):
        bnp.NDPMPM(components=1)
    with pytest.raises(ValueError, match="beta is one of common, class"):
        bnp.NDPMPM(beta="none")
