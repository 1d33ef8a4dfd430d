"""Protected files of households, against all households that agree with what is left of them."""

import dataclasses
from functools import lru_cache

import jax
import numpy as np
import pytest
from exact_households import Exact

import bnp_models as bnp
from bnp_models.data.coarser_households import recoded_households
from bnp_models.risk import possible_shares
from bnp_models.risk.anonymity import Anonymity, missed
from bnp_models.risk.coarsening import parse_coarsening
from bnp_models.risk.protected_households import ProtectedHouseholds
from bnp_models.risk.protection import _file_risk
from bnp_models.risk.recoding import Recoded
from bnp_models.risk.recoding_search import RecodingSearch
from bnp_models.risk.units import Units
from bnp_models.risk.verdict import Limits

POPULATION = 60
CASES = ("no rules", "a head", "tables, a head", "relative", "weights, a head", "sizes, a head")


@lru_cache
def exact_of(case):
    return Exact(case, num_draws=3, draws=4)


def risks_of(run):
    return ProtectedHouseholds(
        run, POPULATION, overdispersion=False, num_draws=1000, key=jax.random.key(1)
    )


def keys_of(table, coarsening, gone):
    """What is left of each household, sorted: its coarser values that are not suppressed."""
    codes = coarsening.coarser_codes(table.persons.codes)[:, ~gone]
    of = table.of_household
    return [tuple(sorted(map(tuple, codes[of == i].tolist()))) for i in range(table.n)]


def by_hand(exact, coarsening, mask):
    """Households of the sample that agree with each (n,), and the probability that one does."""
    (every, p), table = exact.all, exact.plain
    sharing, q = np.zeros(table.n, int), np.zeros((len(p), table.n))
    for i, gone in enumerate(mask):
        own, of_all = keys_of(table, coarsening, gone), keys_of(every, coarsening, gone)
        sharing[i] = sum(key == own[i] for key in own)
        q[:, i] = p[:, [key == own[i] for key in of_all]].sum(axis=1)
    return sharing, q


@pytest.mark.parametrize("case", CASES)
def test_risks_are_those_of_all_households_that_agree_on_the_rest(case, monkeypatch):
    monkeypatch.setattr(possible_shares, "SIMULATED", 4000)
    exact = exact_of(case)
    table = exact.plain
    text = "merge:age=0+1" if exact.table.schema.num_member_levels[-1] > 2 else "drop:home"
    coarsening = parse_coarsening(text, table.schema.table)
    rng = np.random.default_rng(2)
    mask = rng.random((table.n, len(coarsening.variables))) < 0.4
    mask[0], mask[1] = True, False
    found = _file_risk(risks_of(exact.run), coarsening, mask, 0.0)
    sharing, q = by_hand(exact, coarsening, mask)
    np.testing.assert_array_equal(found.sharing, sharing)
    assert found.unit == "household" and (sharing == 1).any() and (sharing > 1).any()
    none = (1 - q) ** (POPULATION - table.n) * (sharing == 1)
    rtol = 0.05 if "tables" in case or "sizes, a head" in case else 1e-3
    np.testing.assert_allclose(found.r1, none.mean(axis=0), rtol=rtol, atol=1e-4)
    error = np.sqrt((none * (1 - none)).sum(axis=1).mean() / found.tau1.size) + 1e-9
    assert abs(found.tau1.mean() - none.sum(axis=1).mean()) < 4 * error + 0.02


def test_how_many_persons_a_household_has_stays_known():
    """All its values suppressed, it is alone of its size."""
    exact = exact_of("a head")
    risks = risks_of(exact.run)
    same = Recoded.unchanged(exact.plain.persons).coarsening
    key = risks.without(same, np.ones(len(same.variables), bool))
    sizes = exact.plain.sizes
    np.testing.assert_array_equal(risks.sharing(key), [(sizes == size).sum() for size in sizes])
    (every, p), rows = exact.all, np.arange(exact.plain.n)
    log_b, _ = risks._log_probabilities(key, rows)
    expected = np.stack([p[:, every.sizes == size].sum(axis=1) for size in sizes], axis=1)
    np.testing.assert_allclose(np.exp(log_b)[::4], expected, rtol=1e-4)


@pytest.mark.parametrize(("share", "recode"), [(0.0, ()), (1.0, ()), (0.3, ("drop:home",))])
def test_limits_are_met(share, recode):
    exact = exact_of("tables, a head")
    run, table = exact.run, exact.plain
    found = bnp.protect(
        run, POPULATION, max_tau1=1.5, max_suppressed=share, recode=recode, ties="off"
    )
    assert found.before.unit == "household"
    assert found.met and np.quantile(found.after.tau1, 0.975) <= 1.5 < found.before.tau1.mean()
    assert "unique" in found.judge().why
    changed = found.suppressed.any(axis=1)
    assert changed.sum() <= share * table.n and changed.any() == (share > 0)
    assert bool(found.recodings) == (share < 1)
    sharing, _ = by_hand(exact, found.coarsening, found.suppressed)
    np.testing.assert_array_equal(found.after.sharing, sharing)
    # All persons of a household lose a value, and others none.
    frame = found.frame()
    np.testing.assert_array_equal(frame.isna(), found.suppressed[table.of_household])
    assert len(found.suppressions()) == frame.isna().sum().sum()
    # A variable of persons is left, so that the file is one of households.
    assert set(found.coarsening.schema.variables) & set(table.schema.personal)
    assert recoded_households(table, found.coarsening).n == table.n
    if recode:
        assert "home" not in frame


def test_the_first_recoding_costs_least_for_what_it_takes_off_the_risk():
    """Loss of information over the fall of tau_1, by hand for each next step."""
    exact = exact_of("a head")
    table = exact.plain
    found = bnp.protect(exact.run, POPULATION, max_tau1=0.5, max_suppressed=0, ties="off")
    whole = Recoded.unchanged(table.persons, needed=table.schema.personal)
    nothing = np.zeros((table.n, len(table.schema.table.variables)), bool)

    def tau1(recoded):
        sharing, q = by_hand(exact, recoded.coarsening, nothing[:, recoded.kept])
        return ((1 - q) ** (POPULATION - table.n) * (sharing == 1)).sum(axis=1).mean()

    ones = np.ones(len(table.schema.table.variables))
    prices = {}
    for j, _, candidate in whole.steps(np.zeros(len(ones), bool)):
        gain = tau1(whole) - tau1(candidate)
        if gain > 1e-3:
            prices[table.schema.table.variables[j]] = candidate.loss(ones) / gain
    assert len(prices) > 1
    assert found.recodings[0].variable == min(prices, key=prices.get)


@pytest.mark.parametrize("case", ["guests, a head", "relative", "weights, a head"])
def test_recodings_are_those_of_a_plain_search(case):
    """Each step of the search has the least price of all next steps, by hand."""
    exact = exact_of(case)
    table = exact.plain
    risks, units, ones = risks_of(exact.run), Units.of(table), np.ones(table.persons.num_variables)
    search = RecodingSearch(risks, units, Limits(0.0), ones, ones == 1)

    def tau1(recoded):
        nothing = np.zeros((table.n, len(recoded.kept)), bool)
        sharing, q = by_hand(exact, recoded.coarsening, nothing)
        return ((1 - q) ** (POPULATION - table.n) * (sharing == 1)).sum(axis=1).mean()

    recoded = Recoded.unchanged(table.persons, needed=table.schema.personal)
    number = 0
    while (step := search.next(recoded)) is not None:
        now, loss = tau1(recoded), recoded.loss(ones)
        prices = {
            candidate.groups: (candidate.loss(ones) - loss) / (now - left)
            for _, _, candidate in recoded.steps(ones == 1)
            if now - (left := tau1(candidate)) > 2e-3 * now
        }
        recoded, number = step[0], number + 1
        assert prices[recoded.groups] <= 1.01 * min(prices.values())
    assert number >= 2


@pytest.mark.parametrize("limits", [Limits(0.0), Limits(None, 0.1)])
@pytest.mark.parametrize("case", ["a head", "no rules"])
def test_what_is_known_of_recodings_is_that_of_a_new_search(case, limits):
    """Step after step, on households with ages of forty levels."""
    rng = np.random.default_rng(0)
    ages = [rng.choice(40, rng.integers(1, 4)).astype(str) for _ in range(40)]
    sample = [
        (str(rng.choice(["own", "rent"])), [("head", own[0]), *(("other", x) for x in own[1:])])
        for own in ages
    ]
    exact = Exact(case, num_draws=2, sample=sample, ages=40)
    table = exact.plain
    units, ones = Units.of(table), np.ones(table.persons.num_variables)
    risks = ProtectedHouseholds(
        exact.run, 400, overdispersion=False, num_draws=10, key=jax.random.key(1)
    )
    search, number = RecodingSearch(risks, units, limits, ones, ones == 1), [0, 0, 0]
    recoded = Recoded.unchanged(table.persons, needed=table.schema.personal)
    while (step := search.next(recoded)) is not None:
        again, _ = RecodingSearch(risks, units, limits, ones, ones == 1).next(recoded)
        assert step[0].groups == again.groups
        number[0] += 1
        recoded = step[0]
        search._forget_changed(recoded)
        number[1] += len(search._gains)
        number[2] += len(list(recoded.steps(ones == 1)))
    assert number[0] > 4 and 0 < number[1] < number[2]


def test_what_is_released_is_judged_by_households():
    exact = exact_of("guests, a head")
    table = exact.plain
    found = bnp.protect(exact.run, POPULATION, max_tau1=1.5, max_suppressed=1, ties="off")
    assert found.suppressed.any()
    frame = table.to_frame()
    frame["more"] = np.random.default_rng(0).integers(0, 2, len(frame)).astype(str)
    released = found.released(frame, carry=["more"])
    everything = released.frame
    hid, n = table.of_household, 0
    # Before suppression, among households of which the same variables are left.
    coarse = found.coarsening.coarser(table.persons).to_frame().assign(more=frame["more"])
    for i, gone in enumerate(np.column_stack([found.suppressed, np.zeros(table.n, bool)])):
        left = coarse.loc[:, ~gone]
        keys = [tuple(sorted(map(tuple, left[hid == h].to_numpy(str)))) for h in range(table.n)]
        n += keys.count(keys[i]) == 1
    assert released.unit == "household" and released.sample_uniques == n
    assert released.uniques_of_keys == (found.after.sharing == 1).sum() <= n < len(everything)
    assert (
        f"{n} households are unique"
        in dataclasses.replace(released, related=("more",), uniques_of_keys=n - 1)
        .judge(found.judge())
        .why
    )


def test_units_that_have_a_level():
    units, table = Units.of(exact_of("a head").plain), exact_of("a head").plain
    for j, (size, codes) in enumerate(
        zip(table.persons.schema.num_levels, table.persons.codes.T, strict=True)
    ):
        for code in range(size):
            expected = [(codes[table.of_household == i] == code).any() for i in range(table.n)]
            np.testing.assert_array_equal(units.with_levels(j, [code]), expected)
        assert units.with_levels(j, range(size)).all() and not units.with_levels(j, []).any()
    records = Units.of(table.persons)
    np.testing.assert_array_equal(records.with_levels(2, [1]), table.persons.codes[:, 2] == 1)


def test_a_variable_costs_as_much_as_persons_lose_it():
    table = exact_of("a head").plain
    costs = Units.of(table).costs(np.array([1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(costs, table.sizes[:, None] * [1, 2, 1])


@pytest.mark.parametrize(
    "target", [Anonymity(2), Anonymity(3, size=1), Anonymity(2, variables=("home", "role"))]
)
def test_k_households_have_each_combination(target):
    exact = exact_of("a head")
    table = exact.plain
    same = Recoded.unchanged(table.persons).coarsening
    mask = np.zeros((table.n, 3), bool)
    mask[[2, 5], [2, 0]] = True
    found = missed(table.persons, target, mask, None, table.of_household)
    names = table.schema.table.variables
    expected = np.zeros(table.n, bool)
    for i in range(table.n):
        left = [j for j in target.columns(table.schema.table) if not mask[i, j]]
        for columns in target.sets(left):
            gone = ~np.isin(np.arange(len(names)), columns)
            own = keys_of(table, same, gone)
            expected[i] |= own.count(own[i]) < target.k
    np.testing.assert_array_equal(found, expected)
    assert 0 < found.sum() <= table.n
    protection = bnp.protect(exact.run, POPULATION, k=[target], max_suppressed=1)
    assert protection.met and protection.anonymity[0].after == 0
    assert f"{target.k} households" in protection.judge().why


def test_strata_are_of_whole_households():
    table = exact_of("a head").plain
    units = Units.of(table)
    np.testing.assert_array_equal(
        units.strata(np.array(["a", "b"])[table.of_household % 2]), np.arange(table.n) % 2
    )
    with pytest.raises(ValueError, match="persons of one household"):
        units.strata(np.arange(table.num_persons))
    with pytest.raises(ValueError, match="not one for each of"):
        units.strata(np.arange(table.n))


def test_the_last_variable_of_persons_is_not_dropped():
    table = exact_of("a head").plain
    whole = Recoded.unchanged(table.persons, needed=table.schema.personal)
    assert table.schema.table.variables == ("home", "role", "age")
    ordered = np.zeros(3, bool)
    assert {j for j, merges, _ in whole.steps(ordered) if merges is None} == {0, 1, 2}
    assert {j for j, merges, _ in whole.dropping(1).steps(ordered) if merges is None} == {0}


def _nothing_known(patch):
    patch.setattr(
        ProtectedHouseholds, "without",
        lambda self, coarsening, gone: None if gone.all() else coarsening.without(gone),
    )  # fmt: skip


def test_a_size_that_is_forgotten_is_seen(monkeypatch):
    exact = exact_of("a head")
    same = Recoded.unchanged(exact.plain.persons).coarsening
    mask = np.ones((exact.plain.n, 3), bool)
    sharing, _ = by_hand(exact, same, mask)
    _nothing_known(monkeypatch)
    found = _file_risk(risks_of(exact.run), same, mask, 0.0)
    assert (found.sharing != sharing).any()
