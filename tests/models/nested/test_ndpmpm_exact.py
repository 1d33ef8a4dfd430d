"""The nested model against exact posteriors and joint distributions, and the faults these see."""

import dataclasses

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from nested import (
    AGE_GROUPS,
    all_households,
    exact_means,
    joint_chains,
    log_probabilities,
    observed_households,
    possible_households,
    posterior_chains,
    prior_means,
    switched,
    tiny_households,
)

import bnp_models as bnp
from bnp_models import NDPMPM, Rules
from bnp_models.kernels.nested.impossible import Augmented
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.models.nested import predictions, sweep
from bnp_models.models.nested.state import NESTED
from bnp_models.rules import aged, at_most, each, exactly, household, person, predicate

HEAD, OTHER = person(role="head"), person(role="other")
HOUSEHOLDS = [
    ("own", [("head", "0"), ("other", "1")]),
    ("own", [("other", "1"), ("head", "1")]),
    ("rent", [("head", "0"), ("other", "0")]),
    ("rent", [("head", "1")]),
    ("rent", [("head", "1")]),
    ("own", [("head", "1"), ("other", "1")]),
]
ONE_HEAD = exactly(1, HEAD)
ONE_AGE = predicate(
    lambda view: (view.number("age") == view.number("age")[..., :1]).all(-1), "all of one age",
    member=["age"],
)  # fmt: skip
RULES = {
    "none": None,
    "without a head": Rules([household(home="rent").implies(at_most(1, aged(1)))]),
    "one head and more": Rules([ONE_HEAD, household(home="own") | ONE_AGE]),
    "guests": Rules([ONE_HEAD, each(person(role="guest")).is_older_than(HEAD, 0)]),
    "one guest": Rules([ONE_HEAD, at_most(1, person(role="guest"))]),
    "tables": Rules([
        ONE_HEAD, each(OTHER).is_older_than(HEAD, 0),
        household(home="rent").implies(each(OTHER).has(aged(0, 0))),
    ]),
}  # fmt: skip
draw_prior = jax.jit(sweep.draw_prior)
SMALL = {
    "components": 2, "member_components": 2, "a": 1.0, "b": 1.0, "a_beta": 1.0, "b_beta": 1.0,
    "member_classes": "nested",
}  # fmt: skip


def prepared(rules, head=None, households=HOUSEHOLDS, ages=2, roles=2, **options):
    model = NDPMPM(**(SMALL | options))
    table = tiny_households(households, head, ages, roles)
    if RULES[rules] is not None:
        RULES[rules].require_feasible(table)
    return model, table, model.prepare(table, RULES[rules])


class Exact:
    """A model on tiny households: compiled once, exact answers by weighting draws of the prior."""

    def __init__(self, rules, head=None, faults=(), num_draws=100_000, **options):
        self.model, self.table, self.data = prepared(rules, head, **options)
        self.truth, self.error = exact_means(self.model, self.table, self.data, num_draws)
        self.faults = faults

    def scores(self, key, on=None, num_sweeps=250, num_chains=64):
        """z-scores of the chains' means; what is exact and constant is left out."""
        switches = switched(self.faults, on)
        means = posterior_chains(
            self.model, key, self.data, switches, num_sweeps, num_sweeps // 3, num_chains
        )
        means = np.asarray(means, np.float64)
        spread = np.sqrt(means.var(axis=0, ddof=1) / len(means) + self.error**2)
        known = spread > 1e-6
        self.spread = spread[known]
        return (means.mean(axis=0) - self.truth)[known] / spread[known]


WITH_GUESTS = [*HOUSEHOLDS[:3], ("own", [("head", "0"), ("guest", "1")])]
CASES = {
    "no rules": ("none", None, {}),
    "rules without a head": ("without a head", None, {}),
    "one head and more": ("one head and more", None, {}),
    "tables": ("tables", None, {}),
    "head of the household": ("tables", ("role", "head"), {}),
    "three roles": ("guests", None, {"roles": 3, "households": WITH_GUESTS}),
    "uniform": ("none", None, {"level_prior": "uniform"}),
    "fixed": ("one head and more", None, {"alpha": 0.5, "beta": 0.3, "level_shape": 0.7}),
    "ordered": ("tables", None, {"ordered": ("age",), "ages": 4}),
    "groups": ("tables", None, {"groups": {"age": AGE_GROUPS}, "ages": 4}),
    "ordered, uniform": ("none", None, {"ordered": "age", "ages": 4, "level_prior": "uniform"}),
    "shared, tables": ("tables", None, {"member_classes": "shared", "components": 3}),
    "shared, rules": ("one head and more", None, {"member_classes": "shared", "beta": 0.8}),
    "shared, head of the household": ("tables", ("role", "head"), {"member_classes": "shared"}),
    "sizes given": ("tables", None, {"sizes": "given", "level_prior": "uniform"}),
    "sizes given, head of the household": (
        "tables",
        ("role", "head"),
        {"sizes": "given", "level_prior": "uniform"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_posterior(case):
    """log alpha, log beta, log c, log P(possible) and two households' shares, of every size."""
    rules, head, options = CASES[case]
    exact = Exact(rules, head, **options)
    assert (exact.data.tables is not None) == (rules in ("tables", "guests"))
    z = exact.scores(jax.random.key(1))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_posterior_with_kernels_for_accelerators():
    rules, head, options = CASES["head of the household"]
    with forms_of(accelerator=True):
        z = Exact(rules, head, **options).scores(jax.random.key(8))
    assert np.abs(z).max() < Z_LIMIT, z


THREE_AGES = [
    ("own", [("head", "0"), ("other", "2")]),
    ("own", [("head", "1"), ("other", "2")]),
    ("rent", [("head", "0"), ("other", "0")]),
    ("own", [("head", "2"), ("other", "2")]),
    ("rent", [("head", "1")]),
    ("own", [("head", "0"), ("other", "1")]),
]
TWO = [household for household in HOUSEHOLDS if len(household[1]) == 2]
# The first runs off to where next to nothing is possible, and its sweeps take long.
POSTERIOR_FAULTS = {
    "no levels of impossible members": 60, "no other heads": 250, "nobody known by kind": 250,
    "prior of ones": 250,
}  # fmt: skip


@pytest.fixture(scope="module")
def tables():
    return Exact("tables", faults=tuple(POSTERIOR_FAULTS))


@pytest.mark.long
@pytest.mark.parametrize("fault", POSTERIOR_FAULTS)
def test_posterior_rejects(tables, fault):
    """Every step that is left out, or done as printed where that is wrong, shows."""
    z = tables.scores(jax.random.key(2), fault, num_sweeps=POSTERIOR_FAULTS[fault])
    assert np.abs(z).max() > Z_LIMIT, z


SHARED_FAULTS = (
    "levels from one household class",
    "shapes of weights from tenfold members",
)


@pytest.fixture(scope="module")
def shared():
    return Exact("none", faults=SHARED_FAULTS, member_classes="shared")


def test_posterior_of_shared_member_classes(shared):
    z = shared.scores(jax.random.key(1))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("fault", SHARED_FAULTS)
def test_posterior_of_shared_member_classes_rejects(shared, fault):
    z = shared.scores(jax.random.key(2), fault, num_sweeps=400)
    assert np.abs(z).max() > Z_LIMIT, z


KIND_FAULTS = ("kinds of as many as their levels", "levels' prior from threefold members")


@pytest.fixture(scope="module")
def three_roles():
    rules, head, options = CASES["three roles"]
    return Exact(rules, head, KIND_FAULTS, **options)


@pytest.mark.long
@pytest.mark.parametrize("fault", KIND_FAULTS)
def test_posterior_of_three_roles_rejects(three_roles, fault):
    z = three_roles.scores(jax.random.key(2), fault)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_posterior_given_sizes_is_not_that_of_random_sizes():
    """Households as printed or of random sizes are found out."""
    exact = Exact("tables", sizes="given", level_prior="uniform")
    exact.model = NDPMPM(**SMALL, level_prior="uniform")
    z = exact.scores(jax.random.key(1))
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_posterior_rejects_sizes_drawn_apart():
    """Under the uniform prior, where households of other sizes tell more."""
    exact = Exact("tables", faults=("size by size",), level_prior="uniform")
    z = exact.scores(jax.random.key(2), "size by size")
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.fixture(
    scope="module",
    params=[
        "tables", pytest.param("one head and more", marks=pytest.mark.long),
        pytest.param("sizes given", marks=pytest.mark.long),
    ],
)  # fmt: skip
def known_possible(request):
    """Six households, and two that the prior takes for drawn and possible."""
    rules, head, options = CASES[request.param]
    return Exact(rules, head, prior_possible=2, member_classes="shared", **options)


def test_posterior_with_households_that_the_prior_takes_for_possible(known_possible):
    z = known_possible.scores(jax.random.key(1))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_posterior_with_fewer_of_these_is_another(known_possible, number, monkeypatch):
    fewer = dataclasses.replace(known_possible.model, prior_possible=number)
    monkeypatch.setattr(known_possible, "model", fewer)
    z = known_possible.scores(jax.random.key(2))
    assert np.abs(z).max() > Z_LIMIT, z


RELATIVE_FAULTS = ("prior of ones", "codes not decoded")


WITH_ROLES = [*THREE_AGES, ("own", [("head", "0"), ("guest", "2")])]
RELATIVE = {
    "all members": {"households": THREE_AGES, "relative": ["age"]},
    "others, not guests": {
        "households": WITH_ROLES, "roles": 3, "relative": [("age", "difference", ["other"])],
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=RELATIVE)
def relative(request):
    return Exact(
        "tables", ("role", "head"), RELATIVE_FAULTS, num_draws=400_000, ages=3,
        **RELATIVE[request.param],
    )  # fmt: skip


@pytest.mark.long
def test_posterior_of_relative_ages(relative):
    """Ages as differences to the head's."""
    assert relative.data.tables.compositions is not None
    z = relative.scores(jax.random.key(5))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize(
    ("relative", "fault"),
    [("all members", fault) for fault in RELATIVE_FAULTS]
    + [("others, not guests", "prior of ones")],
    indirect=["relative"],
)
def test_posterior_of_relative_ages_rejects(relative, fault):
    z = relative.scores(jax.random.key(6), fault, num_sweeps=750)
    assert np.abs(z).max() > Z_LIMIT, z


class Joint:
    """A model under its joint distribution with households of two: compiled once."""

    def __init__(self, rules, **options):
        # Three classes: the last two of two have no order.
        options = {"components": 3, "member_components": 3, "beta": "class"} | options
        self.model, _, self.data = prepared(rules, None, TWO, **options)
        self.truth, self.error = prior_means(self.model, self.data)

    def scores(self, key, on=None, num_sweeps=200):
        """z-scores of the chains' means; log P(possible) is constant without rules."""
        means = joint_chains(self.model, key, self.data, switched(JOINT_FAULTS, on), num_sweeps)
        means = np.asarray(means, np.float64)
        spread = np.sqrt(means.var(axis=0, ddof=1) / len(means) + self.error**2)
        known = spread > 1e-6
        return (means.mean(axis=0) - self.truth)[known] / spread[known]


JOINT_FAULTS = ("reorder inverted", "prior of ones", "levels' prior from threefold members")


# Under rules with the learned prior, next to nothing may be possible: too many to simulate.
@pytest.fixture(scope="module")
def under_rules():
    return Joint("one head and more", level_prior="uniform")


@pytest.fixture(scope="module")
def under_rules_with_possible():
    return Joint("one head and more", level_prior="uniform", prior_possible=2)


@pytest.fixture(scope="module")
def learned():
    return Joint("none")


@pytest.fixture(scope="module")
def shared_classes():
    return Joint("none", beta="common", member_classes="shared")


@pytest.mark.long
@pytest.mark.parametrize(
    "joint", ["under_rules", "under_rules_with_possible", "learned", "shared_classes"]
)
def test_joint_distribution(joint, request):
    z = request.getfixturevalue(joint).scores(jax.random.key(3))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize(
    ("joint", "fault"),
    [("under_rules", JOINT_FAULTS[0]), ("under_rules_with_possible", JOINT_FAULTS[0])]
    + [(joint, x) for joint in ("learned", "shared_classes") for x in JOINT_FAULTS],
)
def test_joint_distribution_rejects(joint, fault, request):
    z = request.getfixturevalue(joint).scores(jax.random.key(4), fault, num_sweeps=100)
    assert np.abs(z).max() > Z_LIMIT, z


def margins_by_enumeration(parameters, data):
    """Probability of every level of households, then of members: sums over all possible ones."""
    parameters = tuple(np.asarray(value, np.float64) for value in parameters)
    of_household, of_member = (
        np.zeros(sum(levels.num_levels)) for levels in (data.household, data.member)
    )
    for i, (size, number) in enumerate(data.blocks):
        possible = possible_households(data, i)
        household, members = (codes[possible] for codes in all_households(data, size))
        log_p = log_probabilities(np, parameters, data, i)[possible]
        p = np.exp(log_p - log_p.max())
        p *= number / p.sum()
        first = first_rows(data.household.num_levels)
        for k in range(household.shape[1]):
            np.add.at(of_household, first[k] + household[:, k], p)
        of_household[first[-1] + i] += number
        rows = members + first_rows(data.member.num_levels)
        np.add.at(of_member, rows, p[:, None, None])
    num_members = sum(size * number for size, number in data.blocks)
    return np.concatenate([of_household / data.num_households, of_member / num_members])


WITH_ONE_GUEST = [*WITH_GUESTS, ("own", [("guest", "0"), ("head", "0"), ("other", "1")])]


@pytest.mark.parametrize(
    ("rules", "head", "options"),
    [
        pytest.param(*CASES["no rules"], marks=pytest.mark.long),
        pytest.param(*CASES["tables"], marks=pytest.mark.long), CASES["head of the household"],
        CASES["shared, head of the household"],
        ("tables", ("role", "head"), {"ages": 3, **RELATIVE["others, not guests"]}),
        ("one guest", None, {"roles": 3, "households": WITH_ONE_GUEST}),
    ],
)  # fmt: skip
def test_margins_of_possible_households(rules, head, options):
    model, _, data = prepared(rules, head, **options)
    draw = vars(draw_prior(model, jax.random.key(3), data))
    exact = margins_by_enumeration([draw[name] for name in NESTED], data)
    margins = predictions.level_probabilities(draw, data)
    np.testing.assert_allclose(margins, exact, atol=2e-6)


def test_shared_classes_are_those_of_each_household_class():
    """The same parameters for each household class give the same probabilities and draws."""
    model, _, data = prepared("tables", ("role", "head"), member_classes="shared", components=3)
    state = draw_prior(model, jax.random.key(3), data)
    log_phi = np.broadcast_to(state.log_phi, (len(state.log_phi), 3, 2))
    assert state.log_phi.shape[1] == 1
    each = dataclasses.replace(state, log_phi=jax.numpy.asarray(log_phi))
    classes = [sweep.update_classes(jax.random.key(4), of, data) for of in (state, each)]
    margins = [predictions.level_probabilities(vars(of), data) for of in (state, each)]
    for one, other in zip(*map(jax.tree.leaves, zip(classes, margins, strict=True)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5)


def test_margins_that_cannot_be_told():
    model, _, data = prepared("one head and more")
    draw = vars(draw_prior(model, jax.random.key(3), data))
    assert predictions.level_probabilities(draw, data) is None


@pytest.mark.parametrize(
    ("rules", "sizes", "learned"),
    [("none", "random", True), ("tables", "random", False), ("none", "given", False)],
)
def test_a_prior_of_sizes_is_learned_only_where_all_households_are_possible(rules, sizes, learned):
    model, _, data = prepared(rules, sizes=sizes)
    none = Augmented.none((2, 2), data.household, data.member)

    state = draw_prior(model, jax.random.key(3), data)
    update = jax.jit(sweep.update_level_shapes)
    drawn, _ = update(model, jax.random.key(4), state, none, data)
    for shape in (state.household_shape, drawn):
        assert (shape[data.household.size_rows] != 1).any() == learned


def test_the_log_likelihood_is_that_of_all_possible_households():
    model, table, data = prepared("tables")
    state = draw_prior(model, jax.random.key(3), data)
    _, info = jax.jit(model.sweep)(jax.random.key(5), state, data, 1)
    parameters = [np.asarray(getattr(state, name), np.float64) for name in NESTED]
    log_p = [log_probabilities(np, parameters, data, i) for i in range(len(data.blocks))]
    possible = [np.exp(x[possible_households(data, i)]).sum() for i, x in enumerate(log_p)]
    observed = zip(log_p, observed_households(model, table, data), strict=True)
    exact = sum(x[cells].sum() for x, cells in observed) - len(HOUSEHOLDS) * np.log(sum(possible))
    np.testing.assert_allclose(info.log_likelihood, exact, rtol=1e-5)


def test_the_prior_takes_fewer_households_for_possible_than_there_are():
    with pytest.raises(bnp.MicrodataError, match="prior_possible .* is 6, and must be less than"):
        prepared("tables", prior_possible=6)
    prepared("tables", prior_possible=5)
