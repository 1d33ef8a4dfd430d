"""The risk of households against households so few that all of them can be gone through."""

import dataclasses

import jax
import numpy as np
import pytest
from exact_households import AT_TOP, CASES, SAMPLE, WEIGHTS, Exact
from harness import Z_LIMIT
from nested import all_households, tiny_households

import bnp_models as bnp
from bnp_models import NDPMPM
from bnp_models.data.compositions import compositions_of, num_compositions
from bnp_models.report.households import render_household_report
from bnp_models.risk import households
from bnp_models.risk.coarser_compositions import HouseholdEvaluator
from bnp_models.risk.household_probabilities import Laws, simulated_unseen
from bnp_models.risk.overdispersion import OF_COMPOSITIONS, OF_RECORDS, OverdispersionPosterior

UNKNOWN = ("relative rules", "no closed form", "weights, no closed form")


@pytest.mark.parametrize("case", CASES)
def test_probabilities_are_sums_over_all_households(case):
    """In single precision; P(possible) is simulated where the rules have no closed form."""
    exact = Exact(case)
    found, persons = exact.evaluated()
    rtol = 1e-4 if exact.data.closed_form else 0.05
    assert exact.data.closed_form == ("no closed form" not in case)
    np.testing.assert_allclose(found, exact.compositions[1], rtol=rtol)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=rtol)
    assert (persons is None) == (case in UNKNOWN)
    if persons is not None:
        np.testing.assert_allclose(persons, exact.persons[1], rtol=rtol)
        np.testing.assert_allclose(persons.sum(axis=1), 1, rtol=rtol)


class Simulated:
    """Populations of `NUM_HOUSEHOLDS` that hold the sample, all drawn from one parameter."""

    def __init__(self, case, seed=0):
        self.exact = Exact(case, num_draws=1, draws=NUM_TAUS)
        table, found = self.exact.plain, self.exact.compositions[0]
        rng = np.random.default_rng(seed)
        num_new = NUM_HOUSEHOLDS - table.n
        new = rng.multinomial(num_new, self.exact.compositions[1][0], NUM_POPULATIONS)
        own, rows = compositions_of(table), {row.tobytes(): d for d, row in enumerate(found.rows)}
        place = np.array([rows[row.tobytes()] for row in own.rows])
        joined = new[:, place]
        unique = own.counts == 1
        self.tau1 = (joined[:, unique] == 0).sum(axis=1)
        self.tau2 = (1 / (1 + joined[:, unique])).sum(axis=1)
        self.r1 = np.where(unique, (joined == 0).mean(axis=0), 0)[own.of_household]
        self.r2 = (1 / (own.counts + joined)).mean(axis=0)[own.of_household]
        self.found = self._found(new, joined, own)

    def _found(self, new, joined, own):
        """Shares (N,) of populations in which a person is found alone or through the household."""
        every, _ = self.exact.all
        found, table = self.exact.compositions[0], self.exact.plain
        kinds = every.persons.cells()
        of_row = np.empty(every.num_persons, int)
        of_row[every.rows] = np.repeat(np.arange(every.n), every.sizes)
        # Persons of each kind in each composition.
        held = np.zeros((len(found.counts), len(kinds.counts)), int)
        for one, kind in zip(of_row, kinds.record_cell, strict=True):
            if found.first[found.of_household[one]] == one:
                held[found.of_household[one], kind] += 1
        names = {row.tobytes(): c for c, row in enumerate(kinds.codes)}
        of_person = np.array([names[row.tobytes()] for row in table.persons.codes])
        others = new @ held
        alone = (np.bincount(of_person)[of_person] == 1) & (others[:, of_person] == 0)
        home = np.empty(table.num_persons, int)
        home[table.rows] = np.repeat(np.arange(table.n), table.sizes)
        through = (own.counts[own.of_household] == 1) & (joined[:, own.of_household] == 0)
        return (alone | through[:, home]).mean(axis=0)

    def z_scores(self, risk):
        """Of the risk's means against the populations'."""
        size, number = np.sqrt(NUM_POPULATIONS), np.sqrt(NUM_TAUS)
        taus = [
            (x.mean() - y.mean()) / np.hypot(x.std() / number, y.std() / size)
            for x, y in ((risk.households.tau1, self.tau1), (risk.households.tau2, self.tau2))
        ]
        error = np.sqrt(self.r1 * (1 - self.r1)) / size + 1e-5
        found = np.sqrt(self.found * (1 - self.found)) / size + 1e-5
        return np.concatenate([
            taus, (risk.r1 - self.r1) / error, (risk.r2 - self.r2) / (0.5 / size),
            (risk.r_household - self.found) / found,
        ])  # fmt: skip


NUM_HOUSEHOLDS, NUM_POPULATIONS, NUM_TAUS = 30, 40_000, 4_000
SIMULATED = ("no rules", "a head", "tables", "weights", "weights, tables")


@pytest.fixture(scope="module")
def simulated():
    return {case: Simulated(case) for case in SIMULATED}


def evaluate(one, size=NUM_HOUSEHOLDS):
    return bnp.household_risk(one.exact.run, size, ties="off", key=jax.random.key(5))


@pytest.mark.parametrize("case", SIMULATED)
def test_risk_is_that_of_simulated_populations(simulated, case):
    risk = evaluate(simulated[case])
    assert np.abs(simulated[case].z_scores(risk)).max() < Z_LIMIT
    # Who is alone is found through the household too.
    assert (risk._own["r1"] <= risk.r_household + 1e-6).all()


def _one_order(patch):
    right = Laws.of_households
    patch.setattr(
        Laws, "of_households", lambda self, table, orders, distinct=True: right(
            self, table, 0 * orders, distinct
        )
    )  # fmt: skip


def _head_among_the_members(patch):
    right = households.compositions_of

    def wrong(table):
        found = right(table)
        return found._replace(log_orders=found.log_orders + np.log(table.sizes[found.first]))

    patch.setattr(households, "compositions_of", wrong)


def _all_are_possible(patch):
    patch.setattr(
        Laws, "log_possible", lambda self, _, draws, numbers: np.log(
            np.full((len(draws["log_pi"]), len(self.sizes)), 1 / len(self.sizes))
        )
    )  # fmt: skip


def _sizes_apart(patch):
    right = Laws.log_possible
    patch.setattr(Laws, "log_possible", lambda self, *args: right(self, *args)[:, :1])


def _of_the_sample(patch):
    patch.setattr(households, "unsampled_law", bnp.inference.sample_law)


def _of_the_population(patch):
    patch.setattr(households, "unsampled_law", bnp.inference.population_law)


PLANTED = {
    "orders of the members not counted": ("no rules", _one_order),
    "the head counted among the orders": ("a head", _head_among_the_members),
    "P(possible) left out": ("tables", _all_are_possible),
    "P(possible) of the smallest size": ("tables", _sizes_apart),
    "weights left out": ("weights", _of_the_sample),
    "w for w - 1": ("weights", _of_the_population),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_seen(simulated, planted, monkeypatch):
    case, plant = PLANTED[planted]
    plant(monkeypatch)
    assert np.abs(simulated[case].z_scores(evaluate(simulated[case]))).max() > Z_LIMIT


def test_the_law_of_the_sample_has_no_weights():
    """The class is summed out; only persons who are not in the sample have another law."""
    exact = Exact("weights, tables", weigh=np.ones_like)
    found, _ = exact.evaluated(bnp.inference.sample_law)
    np.testing.assert_allclose(found, exact.compositions[1], rtol=1e-4)
    of_rest, _ = exact.evaluated()
    assert np.abs(of_rest / found - 1).max() > 0.05
    persons = bnp.household_risk(exact.run, 100, ties="off").num_persons
    assert persons == round(100 * (WEIGHTS @ exact.table.sizes) / WEIGHTS.sum())


def test_draws_of_different_blocks_use_different_simulated_households():
    """P(possible) of equal draws, more than one block of them, estimated for each anew."""
    exact = Exact("no closed form", num_draws=1, draws=40)
    laws = Laws(exact.run)
    blocks = laws.blocks(jax.random.key(2), 1, False)
    found = np.concatenate([log_possible[:number] for _, log_possible, number in blocks])
    assert found.shape == (40, 3)
    # Households of three break the rule, and the estimates are shares of 8,192 or so.
    assert len(np.unique(found[:, 2])) > 25


@pytest.mark.parametrize("case", ["no rules", "a head"])
def test_simulated_households_that_the_sample_lacks(case):
    """The model's probabilities of their compositions, and of the persons that it lacks."""
    exact = Exact(case, num_draws=1, draws=400)
    found, p = exact.compositions
    own = {row.tobytes() for row in compositions_of(exact.table).rows}
    lacks = np.array([row.tobytes() not in own for row in found.rows])
    kinds, share = exact.persons
    persons = {row.tobytes() for row in exact.table.persons.codes}
    others = np.array([row.tobytes() not in persons for row in kinds])
    made = list(simulated_unseen(Laws(exact.run), jax.random.key(4)))
    assert 4 <= len(made) <= 400
    of_households, of_persons = (np.concatenate(part) for part in zip(*made, strict=True))
    for values, every in ((of_households, p[0][lacks]), (of_persons, share[0][others])):
        assert values.size > 0 and every.size > 0
        away = np.abs(np.log(values[:, None]) - np.log(every)).min(axis=1)
        assert away.max() < 1e-3
    # Of each size as many households are drawn as the sample has.
    sizes, number = np.unique(exact.table.sizes, return_counts=True)
    of_composition = exact.all[0].sizes[found.first]
    expected = sum(
        n * p[0][lacks & (of_composition == size)].sum() / p[0][of_composition == size].sum()
        for size, n in zip(sizes, number, strict=True)
    )
    counts = np.array([len(one[0]) for one in made])
    error = counts.std() / np.sqrt(len(counts))
    assert abs(counts.mean() - expected) < Z_LIMIT * error


def test_the_correction_for_overdispersion_is_made_where_it_is_asked_for(simulated):
    run = simulated["no rules"].exact.run
    short = dataclasses.replace(run, settings=dataclasses.replace(run.settings, num_samples=40))
    short = dataclasses.replace(short, draws={name: x[:, :40] for name, x in run.draws.items()})
    for ties in ("on", "sensitivity", "off"):
        risk = bnp.household_risk(short, NUM_HOUSEHOLDS, ties=ties)
        for unit in (risk.households, risk.persons):
            assert unit.ties == ties and (unit.overdispersion is None) == (ties == "off")
        records = risk.records()
        pairs = records[["r_household", "r1"]].to_numpy().tolist()
        assert pairs == sorted(pairs, reverse=True) and records["r1"].nunique() > 1
    assert risk.num_persons == round(NUM_HOUSEHOLDS * run.table.num_persons / run.table.n)


def test_compositions_have_a_prior_of_their_own(simulated, monkeypatch):
    """Of the correction for overdispersion; persons have that of records."""
    run = simulated["no rules"].exact.run
    asked = []

    def log_prior(posterior):
        asked.append(posterior.prior)
        return posterior.prior.log_probabilities()

    monkeypatch.setattr(OverdispersionPosterior, "log_prior", property(log_prior))
    bnp.household_risk(run, NUM_HOUSEHOLDS)
    assert list(dict.fromkeys(asked)) == [OF_COMPOSITIONS, OF_RECORDS]
    asked.clear()
    HouseholdEvaluator(run, 100, 100, jax.random.key(0)).draw_overdispersion(jax.random.key(1))
    assert set(asked) == {OF_COMPOSITIONS}


def test_a_key_of_ones_own(simulated):
    run = simulated["a head"].exact.run

    def tau1(**options):
        return bnp.household_risk(run, NUM_HOUSEHOLDS, **options).households.tau1

    plain = tau1(ties="off")
    np.testing.assert_array_equal(plain, tau1(ties="off", key=run.key))
    assert not np.array_equal(plain, tau1(ties="off", key=jax.random.key(8)))


def test_names_and_sizes_that_cannot_be():
    """The smallest population is the sample; a column of records.csv is not written twice."""
    exact = Exact("a head")
    households.check_households(exact.model, exact.table, exact.table.n)
    with pytest.raises(bnp.MicrodataError, match="is not between the sample's 7 households"):
        households.check_households(exact.model, exact.table, exact.table.n - 1)
    frame = exact.table.to_frame()
    for renamed in ({"hid": "r_household"}, {"age": "r2"}, {"home": "hierarchical"}):
        new = frame.rename(columns=renamed)
        made = bnp.Households.from_frame(new, new.columns[0], [new.columns[1]])
        with pytest.raises(bnp.MicrodataError, match="rename the column"):
            households.check_households(exact.model, made, 100)


def test_persons_for_households_are_seen(simulated):
    one = simulated["a head"]
    number = round(NUM_HOUSEHOLDS * one.exact.table.sizes.mean())
    assert np.abs(one.z_scores(evaluate(one, number))).max() > Z_LIMIT


def test_checks_compare_compositions_and_sizes(simulated):
    """Against samples that are drawn from all possible compositions, of each size apart."""
    exact = simulated["tables"].exact
    checks = bnp.predictive_checks(exact.run, 400, unit="household", key=jax.random.key(7))
    table, (found, p) = exact.table, exact.compositions
    sizes, number = np.unique(table.sizes, return_counts=True)
    of_composition = exact.all[0].sizes[found.first]
    rng = np.random.default_rng(0)
    laws = [np.where(of_composition == size, p[0], 0) for size in sizes]
    counts = sum(
        rng.multinomial(n, law / law.sum(), 4000) for n, law in zip(number, laws, strict=True)
    )
    own = compositions_of(table).counts
    for k, check in checks.cells.items():
        assert check.observed == (own == k).sum()
        expected = (counts == k).sum(axis=1)
        error = np.hypot(check.sd / np.sqrt(400), expected.std() / np.sqrt(4000))
        assert abs(check.predicted - expected.mean()) < Z_LIMIT * error + 1e-9
    for size, n, law in zip(sizes, number, laws, strict=True):
        check = checks.sizes[int(size)]
        assert check.observed == n
        expected = table.n * law.sum()
        assert abs(check.predicted - expected) < Z_LIMIT * check.sd / np.sqrt(400) + 1e-9
    with pytest.raises(ValueError, match="unit is one of"):
        bnp.predictive_checks(exact.run, unit="family")


def test_compositions_are_counted():
    """Households of two and three members, whose order does not matter, a head apart."""
    for head in (None, AT_TOP):
        table = tiny_households([SAMPLE[2], SAMPLE[5]], head, ages=3)
        data = NDPMPM(components=2, member_components=2).prepare(table)
        expected = 0
        for members, _ in data.blocks:
            codes = zip(*all_households(data, members), strict=True)
            expected += len({
                (tuple(household), tuple(sorted(map(tuple, people)))) for household, people in codes
            })  # fmt: skip
        assert num_compositions(table.schema, np.unique(table.sizes)) == expected


def test_a_page_needs_no_diagnosis(simulated):
    risk = evaluate(simulated["no rules"])
    seconds = {"compile": 1.0, "warmup": 1.0, "draws": 1.0}
    run = dataclasses.replace(risk.run, seconds=seconds)
    risk = dataclasses.replace(risk, run=run, law=run)
    diagnosis = bnp.results.Diagnosis.of(risk.run, risk)
    assert render_household_report(risk) == render_household_report(risk, diagnosis=diagnosis)
