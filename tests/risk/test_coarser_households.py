"""Coarser compositions of households, against all households that are in them."""

import dataclasses
from functools import lru_cache

import jax
import numpy as np
import pytest
from exact_households import Exact
from harness import Z_LIMIT
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.data.coarser_households import Members, labels_of, recoded_households
from bnp_models.data.compositions import compositions_of
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.nested.relative import Pair
from bnp_models.risk import arrangements, coarser_compositions, possible_shares
from bnp_models.risk.arrangements import Arranger
from bnp_models.risk.coarsening import household_drops, parse_coarsening
from bnp_models.risk.coarser_compositions import CoarserCompositions, HouseholdEvaluator
from bnp_models.risk.household_probabilities import Laws

# Case, coarsening, and whether rules may exclude households of a coarser composition.
PLAIN = [
    ("no rules", "drop:home"), ("no rules", "drop:role;merge:age=0+1"), ("no rules", "drop:age"),
    ("a head", "drop:home"), ("a head", "drop:age"), ("a head", "drop:role"),
    ("a head", "merge:age=0+1;drop:home"), ("shared", "drop:role"), ("shared", "merge:age=0+1"),
    ("guests, a head", "merge:role=head+guest"), ("guests, a head", "merge:role=other+guest"),
    ("guests, a head", "merge:role=head+other;drop:home"), ("guests, a head", "drop:role;drop:age"),
    ("relative", "merge:age=1+2"), ("relative", "drop:age"), ("relative", "drop:role"),
    ("relative", "drop:role;merge:age=0+2"), ("sizes", "drop:size"), ("sizes", "drop:age"),
    ("tables on homes", "drop:area"), ("tables, a head", "drop:home"), ("weights", "drop:age"),
    ("weights, a head", "drop:role"), ("weights, sizes", "drop:home"),
]  # fmt: skip
RULED = [
    ("tables", "drop:age"), ("tables", "drop:role"), ("tables, a head", "merge:age=1+2"),
    ("tables, a head", "drop:age"), ("tables, a head", "drop:role"),
    ("tables on homes", "drop:home"), ("tables on homes", "drop:home;drop:age"),
    ("guests, rules", "merge:role=head+guest"),
    ("guests, rules", "merge:role=other+guest"), ("relative rules", "merge:age=0+1"),
    ("relative rules", "drop:role"), ("sizes, a head", "drop:age"),
    ("weights, tables", "drop:role"),
]  # fmt: skip


@lru_cache
def exact_of(case):
    return Exact(case, num_draws=2)


def coarsening_of(text, table):
    return parse_coarsening(text, table.schema.table)


def coarse_keys(table, coarsening):
    """The coarser values of the persons of each household, sorted; one by one."""
    codes = coarsening.coarser_codes(table.persons.codes)
    of = table.of_household
    return [tuple(sorted(map(tuple, codes[of == i].tolist()))) for i in range(table.n)]


class Coarse:
    """Compositions of all possible households on a coarser key, and their exact probabilities."""

    def __init__(self, case, text, law_of=bnp.inference.unsampled_law):
        self.exact = exact = exact_of(case)
        self.table, p = exact.all
        self.coarsening = coarsening_of(text, self.table)
        self.labels = labels_of(self.coarsening)
        keys = coarse_keys(self.table, self.coarsening)
        number = {key: c for c, key in enumerate(dict.fromkeys(keys))}
        self.of = np.array([number[key] for key in keys])
        self.p = np.stack([np.bincount(self.of, row) for row in p])
        # A household of each coarser composition, at random.
        order = np.random.default_rng(0).permutation(self.table.n)
        self.first = order[np.unique(self.of[order], return_index=True)[1]]
        law = dataclasses.replace(law_of(exact.run), table=self.table)
        self.compositions = CoarserCompositions(
            Laws(law), 100, jax.random.key(0), numpy_generator(jax.random.key(1))
        )

    def found(self):
        return np.exp(self.compositions.log_probabilities(self.labels, self.first))


@pytest.mark.parametrize(("case", "text"), PLAIN)
def test_probabilities_are_sums_over_the_households_of_a_coarser_composition(case, text):
    coarse = Coarse(case, text)
    assert len(coarse.first) < len(compositions_of(coarse.table).counts) or text == "drop:size"
    assert not coarse.compositions.may_break_rules(coarse.labels, coarse.first).any()
    found = coarse.found()
    np.testing.assert_allclose(found, coarse.p, rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-4)


def z_scores(coarse, number):
    """Of shares of possible households among `number`, given the exact ones."""
    found = coarse.found()
    arranger = coarse.compositions
    all_ = np.exp(arranger._evaluated(coarse.labels, coarse.first, False))
    share = coarse.p / all_
    error = np.sqrt(share * np.maximum(1 - share, 0) / number)
    return (found / all_ - share) / (error + 1e-4)


@pytest.mark.parametrize(("case", "text"), RULED)
def test_under_rules_only_possible_households_count(case, text, monkeypatch):
    monkeypatch.setattr(possible_shares, "SIMULATED", 4000)
    coarse = Coarse(case, text)
    may_break = coarse.compositions.may_break_rules(coarse.labels, coarse.first)
    assert may_break.any()
    z = z_scores(coarse, 4000)
    assert np.abs(z).max() < Z_LIMIT
    # What no rule reads is exact.
    assert np.abs(z[:, ~may_break]).max(initial=0) < 1


@pytest.mark.parametrize(("case", "text"), RULED)
def test_compositions_without_impossible_households_are_listed(case, text, monkeypatch):
    """Where the head is known: by the exact share of possible households, 1 or less."""
    coarse = Coarse(case, text)
    compositions, labels, rows = coarse.compositions, coarse.labels, coarse.first
    may_break = compositions.may_break_rules(labels, rows)
    share = coarse.p / np.exp(compositions._evaluated(labels, rows, False))
    np.testing.assert_allclose(share[:, ~may_break], 1, rtol=1e-4)
    if compositions.arranger.head_is_known(labels):
        assert (share[:, may_break] < 1 - 1e-4).all()
    monkeypatch.setattr(possible_shares, "MAX_LISTED", 0)
    none_listed = compositions.may_break_rules(labels, rows)
    assert (may_break <= none_listed).all()


def test_listing_spares_simulations(monkeypatch):
    coarse = Coarse("tables, a head", "merge:age=1+2")
    number = []
    for most in (2**10, 0):
        monkeypatch.setattr(possible_shares, "MAX_LISTED", most)
        number.append(coarse.compositions.may_break_rules(coarse.labels, coarse.first).sum())
    assert 0 < number[0] < number[1]


def test_shares_at_a_few_draws_are_those_of_all(monkeypatch):
    """The share at the middle draw holds for both."""
    monkeypatch.setattr(possible_shares, "SIMULATED", 4000)
    coarse = Coarse("tables, a head", "drop:age")
    law = dataclasses.replace(bnp.inference.unsampled_law(coarse.exact.run), table=coarse.table)
    few = CoarserCompositions(
        Laws(law), 100, jax.random.key(0), numpy_generator(jax.random.key(1)), num_shares=1
    )
    all_ = np.exp(few._evaluated(coarse.labels, coarse.first, False))
    share = np.exp(few._evaluated(coarse.labels, coarse.first, True)) / all_
    exact = (coarse.p / all_)[1]
    error = np.sqrt(exact * np.maximum(1 - exact, 0) / 4000)
    assert np.abs((share - exact) / (error + 1e-4)).max() < Z_LIMIT
    assert np.abs(coarse.p / all_ - exact).max() > 0.01


def test_households_that_rules_exclude_are_seen(monkeypatch):
    """Their share is not nearly one, so that leaving it out would be an error."""
    monkeypatch.setattr(possible_shares, "SIMULATED", 4000)
    coarse = Coarse("tables, a head", "drop:age")
    monkeypatch.setattr(
        CoarserCompositions, "may_break_rules", lambda self, labels, rows: np.zeros(len(rows), bool)
    )
    assert np.abs(z_scores(coarse, 4000)).max() > Z_LIMIT


def _no_head_sum(patch):
    # One person in the head's place, whoever may be there.
    right = Arranger.arranged

    def arranged(self, labels, rows):
        found = right(self, labels, rows)
        first = np.flatnonzero(np.diff(found.row, prepend=-1))
        place = np.full(len(found.row), -1)
        place[first] = np.arange(len(first))
        kept = place[found.of_member] >= 0
        return arrangements.Arrangements(
            found.row[first], place[found.of_member[kept]], found.size[first],
            found.household_codes[first], found.level_codes[kept], found.member_codes[kept],
        )  # fmt: skip

    patch.setattr(Arranger, "arranged", arranged)


def _finer_head(patch):
    # The head's own value alone in the place of all that it may have.
    right = Arranger.choices

    def choices(self, labels, arranged):
        return [
            one for one in right(self, labels, arranged)
            if all(level == 0 for level in one.levels.values())
        ]  # fmt: skip

    patch.setattr(Arranger, "choices", choices)


def _levels_for_codes(patch):
    patch.setattr(Pair, "coded", property(lambda self: np.argsort(self.decoded, axis=0)))


def _finer_orders(patch):
    right = Members.grouped

    def grouped(self, labels, rows=None):
        finest = [np.arange(len(of)) for of in labels]
        return right(self, labels, rows)._replace(log_orders=right(self, finest, rows).log_orders)

    patch.setattr(Members, "grouped", grouped)


def _not_merged(patch):
    patch.setattr(
        arrangements, "merged", lambda log_p, labels, levels: log_p[:, levels].astype(float)
    )


PLANTED = {
    "one person in the head's place": ("a head", "drop:role", _no_head_sum),
    "one value of the head": ("relative", "drop:age", _finer_head),
    "codes taken for levels": ("relative", "merge:age=1+2", _levels_for_codes),
    "orders of the finer values": ("no rules", "drop:age", _finer_orders),
    "levels not merged": ("no rules", "merge:age=0+1", _not_merged),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_seen(planted, monkeypatch):
    case, text, plant = PLANTED[planted]
    coarse = Coarse(case, text)
    plant(monkeypatch)
    assert np.abs(coarse.found() / coarse.p - 1).max() > 0.01


@pytest.mark.parametrize("text", ["drop:role", "merge:role=head+guest", "merge:role=other+guest"])
def test_recoded_households_have_a_head_as_long_as_one_is_known(text):
    table = exact_of("guests, a head").plain
    coarsening = coarsening_of(text, table)
    coarse = recoded_households(table, coarsening)
    known = text == "merge:role=other+guest"
    assert (coarse.schema.head is not None) == known
    sharing = Members.of(table).grouped(labels_of(coarsening)).sharing
    found = compositions_of(coarse)
    np.testing.assert_array_equal(sharing, found.counts[found.of_household])
    keys = coarse_keys(table, coarsening)
    np.testing.assert_array_equal(sharing, [keys.count(key) for key in keys])
    frame = coarse.to_frame()
    assert frame["hid"].tolist() == table.to_frame()["hid"].tolist()
    if known:
        assert set(frame["role"]) == {"head", "other + guest"}


def test_a_composition_is_evaluated_once():
    """Coarsenings that make the same of a household have the same figures, simulated or not."""
    run = exact_of("tables, a head").run
    evaluator = HouseholdEvaluator(run, 100, 100, jax.random.key(0))
    schema, rows = run.table.schema.table, np.arange(run.table.n)
    one, other = (parse_coarsening(text, schema) for text in ("drop:age", "merge:age=0+1+2"))
    (first, _), (again, _) = evaluator.coarser(one, rows), evaluator.coarser(other, rows)
    np.testing.assert_array_equal(first, again)
    finest = evaluator.coarser(bnp.Recoding.of(schema, {}), rows)[0]
    assert (first >= finest).all() and (first > finest + 0.1).any()


def test_coarsenings_with_the_same_number_of_levels_are_not_the_same():
    """What one evaluator finds for several coarsenings, a new one finds for each."""
    run = exact_of("relative").run
    schema, rows = run.table.schema.table, np.arange(run.table.n)

    def new():
        return HouseholdEvaluator(run, 100, 100, jax.random.key(0))

    evaluator = new()
    for text in ("merge:age=0+1", "merge:age=1+2", "merge:age=0+2"):
        coarsening = parse_coarsening(text, schema)
        found, _ = evaluator.coarser(coarsening, rows)
        np.testing.assert_array_equal(found, new().coarser(coarsening, rows)[0])


def test_taus_are_those_of_simulated_populations():
    """tau_1 and tau_2 on coarser keys, against populations of 30 households from one parameter."""
    exact, size = Exact("tables, a head", num_draws=1, draws=400), 30
    (every, p), table = exact.all, exact.plain
    rng, texts = np.random.default_rng(0), ["drop:home", "merge:age=1+2", "drop:home;drop:role"]
    new = rng.multinomial(size - table.n, p[0], 20_000)
    risks = bnp.coarsen(exact.run, size, texts, ties="off", num_samples=400)
    assert list(risks) == texts
    for text, risk in risks.items():
        coarsening = coarsening_of(text, table)
        of_all, own = coarse_keys(every, coarsening), coarse_keys(table, coarsening)
        uniques = [key for key in own if own.count(key) == 1]
        same = np.array([[key == other for other in of_all] for key in uniques])
        joined = new @ same.T
        assert risk.sample_uniques == len(uniques) > 0
        assert risk.anonymity[1].records == sum(own.count(key) < 3 for key in own)
        for found, true in (
            (risk.tau1, (joined == 0).sum(axis=1)), (risk.tau2, (1 / (1 + joined)).sum(axis=1)),
        ):  # fmt: skip
            error = np.hypot(found.std() / np.sqrt(400), true.std() / np.sqrt(20_000))
            # The shares of possible households are estimated.
            slack = 0.02 if "age" in text or "role" in text else 0
            assert abs(found.mean() - true.mean()) < Z_LIMIT * error + slack


def test_what_is_dropped_by_default():
    table = exact_of("sizes, a head").plain
    assert list(household_drops(table.schema)) == ["drop:home", "drop:role", "drop:age"]
    risks = bnp.coarsen(exact_of("sizes, a head").run, 50)
    assert list(risks) == ["drop:home", "drop:role", "drop:age"]
    for text, risk in risks.items():
        assert risk.schema.variables == tuple(
            name for name in table.schema.table.variables if name != text.removeprefix("drop:")
        )
        assert 0 <= risk.tau1.mean() <= risk.tau2.mean() <= risk.sample_uniques


def test_what_cannot_be_asked(monkeypatch):
    run = exact_of("relative").run
    with pytest.raises(bnp.MicrodataError, match="keep at least one that describes persons"):
        bnp.coarsen(run, 50, ["keep:home"])
    with pytest.raises(bnp.MicrodataError, match="not between the sample's 7 households"):
        bnp.coarsen(run, 5)
    monkeypatch.setattr(coarser_compositions, "MAX_HEADS", 2)
    bnp.coarsen(run, 50, ["drop:home"])
    with pytest.raises(bnp.MicrodataError, match="3 combinations of the head's values"):
        bnp.coarsen(run, 50, ["drop:age"])


def test_simulated_levels_have_their_probabilities():
    """Within their labels, by class, and never another label."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 2).T
    labels, number = np.array([1, 0, 1, 1, 0]), 200_000
    level, column = rng.integers(0, 5, number), rng.integers(0, 2, number)
    drawn = possible_shares.draw_within(np.log(p), labels, level, column, rng)
    assert (labels[drawn] == labels[level]).all()
    for label in (0, 1):
        for c in (0, 1):
            of = drawn[(labels[level] == label) & (column == c)]
            expected = np.where(labels == label, p[:, c], 0)
            expected /= expected.sum()
            share = np.bincount(of, minlength=5) / len(of)
            error = np.sqrt(expected * (1 - expected) / len(of)) + 1e-12
            assert (np.abs(share - expected) / error).max() < Z_LIMIT


def test_log_orders_are_those_of_permutations():
    """All persons alike in their coarser values have one order."""
    table = exact_of("no rules").plain
    members = Members.of(table)
    coarsening = coarsening_of("drop:role;merge:age=0+1", table)
    for labels, coarse in ((labels_of(coarsening), True), (labels_of(
        bnp.Recoding.of(table.schema.table, {})), False)):  # fmt: skip
        log_orders = members.grouped(labels).log_orders
        expected = np.zeros(table.n) if coarse else compositions_of(table).log_orders[
            compositions_of(table).of_household
        ]  # fmt: skip
        np.testing.assert_allclose(log_orders, expected, atol=1e-12)


def test_the_correction_for_overdispersion_is_that_of_the_sample():
    run = exact_of("a head").run
    evaluator = HouseholdEvaluator(run, 100, 100, jax.random.key(0))
    drawn = evaluator.draw_overdispersion(jax.random.key(1))
    assert drawn.shape.shape == (2,) and drawn.num_records == run.table.n
    on, off = (bnp.coarsen(run, 100, ["drop:age"], ties=ties)["drop:age"] for ties in ("on", "off"))
    assert on.sample_uniques == off.sample_uniques
    assert logsumexp(on.tau1) != logsumexp(off.tau1) or on.tau2.mean() != off.tau2.mean()
