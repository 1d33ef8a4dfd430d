"""Protected files: risks by hand over all cells, what is chosen, and what is written."""

import dataclasses
import itertools

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.hierarchies import as_hierarchies
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.convergence import monte_carlo_errors
from bnp_models.inference.trace import Settings
from bnp_models.risk.anonymity import Anonymity
from bnp_models.risk.evaluator import cell_probabilities
from bnp_models.risk.protected_risks import ProtectedRisks
from bnp_models.risk.protection import FileRisk, _file_risk, protect
from bnp_models.risk.recoding import Recoded, importance_of, ordered_variables
from bnp_models.risk.recoding_search import RecodingSearch
from bnp_models.risk.suppression import fewest_records
from bnp_models.risk.units import Units
from bnp_models.risk.verdict import MARGIN, Limits

AGES = ("0-4", "5-14", "15-44", "45-64", "65+")
SCHEMA = bnp.Schema(("age", "sex", "town"), (AGES, ("f", "m"), tuple("abcdefgh")))
NUM_LEVELS = SCHEMA.num_levels
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
N, NUM_CHAINS, NUM_DRAWS = 40, 2, 20
POPULATION = 200


@pytest.fixture(scope="module")
def run(latent):
    """Latent classes whose draws are given by hand, on 40 records."""
    rng, shape = np.random.default_rng(0), (NUM_CHAINS, NUM_DRAWS)
    levels = [np.moveaxis(rng.dirichlet(np.ones(s), (*shape, 4)), 3, 2) for s in NUM_LEVELS]
    pi = rng.dirichlet(np.ones(4), shape)
    draws = {
        "alpha": np.ones(shape), "log_feasible": np.zeros(shape), "log_pi": np.log(pi),
        "log_lambda": np.log(np.concatenate(levels, axis=2)),
        "level_shape": np.ones((*shape, sum(NUM_LEVELS))),
    }  # fmt: skip
    codes = CELLS[rng.choice(len(CELLS), N, p=rng.dirichlet(np.full(len(CELLS), 0.7)))]
    return dataclasses.replace(
        latent.run, model=bnp.NPLCM(components=4), table=bnp.Microdata(SCHEMA, codes),
        conditions=None, draws={name: np.float32(x) for name, x in draws.items()},
        settings=Settings(NUM_CHAINS, 0, NUM_DRAWS, 1, (), (NUM_DRAWS,)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def fine(run):
    """Probabilities (draws, cells) of all cells."""
    blocks = cell_probabilities(run, run.parameters(), CELLS, "exact", jax.random.key(0))
    return np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))


@pytest.fixture(scope="module")
def twelve(run):
    """The same, on twelve records that have every level."""
    codes = CELLS[np.random.default_rng(5).integers(0, len(CELLS), 12)]
    for j, size in enumerate(NUM_LEVELS):
        codes[:size, j] = range(size)
    return dataclasses.replace(run, table=bnp.Microdata(SCHEMA, codes))


def risks_of(run, ties=False):
    return ProtectedRisks(
        run, POPULATION, overdispersion=ties, num_draws=1000, key=jax.random.key(1)
    )


def by_hand(codes, fine, groups, mask):
    """For each record: records that agree with it, and the probability that a person does.

    `groups` has the new code of every old one, of each variable.
    """
    cells = np.stack([of[CELLS[:, j]] for j, of in enumerate(groups)], axis=1)
    records = np.stack([of[codes[:, j]] for j, of in enumerate(groups)], axis=1)
    sharing, q = [], []
    for record, gone in zip(records, mask, strict=True):
        agree = (records == record) | gone
        sharing.append(agree.all(axis=1).sum())
        q.append(fine[:, ((cells == record) | gone).all(axis=1)].sum(axis=1))
    return np.array(sharing), np.stack(q, axis=1)


def entropy(codes):
    share = np.bincount(codes) / len(codes)
    share = share[share > 0]
    return -(share * np.log2(share)).sum()


def new_codes(groups):
    """The new code of every old one, 0 for all of a variable that is dropped."""
    found = [np.zeros(size, int) for size in NUM_LEVELS]
    for of, together in zip(found, groups, strict=True):
        for code, group in enumerate(together or ()):
            of[list(group)] = code
    return found


def plain_loss(codes, groups, weight):
    """Entropy that is lost of every variable, times its importance."""
    columns = zip(codes.T, new_codes(groups), weight, strict=True)
    return sum(w * (entropy(x) - entropy(of[x])) for x, of, w in columns)


def plain_risks(codes, fine, groups, mask=None, upper=False):
    """Probability of each record to be unique in the population, with errors that verdicts add."""
    mask = np.zeros(codes.shape, bool) if mask is None else mask
    sharing, q = by_hand(codes, fine, new_codes(groups), mask)
    r1 = (1 - q) ** (POPULATION - len(codes)) * (sharing == 1)
    return r1.mean(axis=0) + upper * MARGIN * errors_of_halves(r1)


def errors_of_halves(r1):
    """Standard errors of means from those of halves of chains."""
    halves = r1.reshape(2 * NUM_CHAINS, NUM_DRAWS // 2, -1).mean(axis=1)
    return halves.std(axis=0, ddof=1) / np.sqrt(2 * NUM_CHAINS)


def plain_steps(codes, groups):
    """Groups after every next step, where all levels are seen; only the ages are in order."""
    kept = [j for j, together in enumerate(groups) if together]
    for j in kept:
        made = [None] if len(kept) > 1 else []
        if len(groups[j]) > 2:
            rarest = min(groups[j], key=lambda group: np.isin(codes[:, j], group).sum())
            pairs = [(rarest, group) for group in groups[j] if group != rarest]
            for x, y in itertools.pairwise(groups[j]) if j == 0 else pairs:
                made.append(tuple(sorted({*groups[j], tuple(sorted(x + y))} - {x, y})))
        yield from ((*groups[:j], new, *groups[j + 1 :]) for new in made)


def plain_prices(codes, fine, groups, limits, weight, whole=False):
    """Loss of each next step for what it takes off tau_1, or off risks above their limit.

    The whole loss in place of the step's is an error.
    """

    def risk(groups):
        r1 = plain_risks(codes, fine, groups, upper=limits.max_tau1 is None)
        return np.maximum(r1 - (limits.max_risk or 0), 0).sum()

    now, prices = risk(groups), {}
    before = 0 if whole else plain_loss(codes, groups, weight)
    for new in plain_steps(codes, groups):
        gain = now - risk(new)
        if gain > 1e-3 * now:
            prices[new] = (plain_loss(codes, new, weight) - before) / gain
    return prices


def plain_recodings(codes, fine, limits, weight):
    """Variables that are recoded one after the other, what each loses, and the last groups."""
    made, groups = [], Recoded.unchanged(bnp.Microdata(SCHEMA, codes)).groups
    while prices := plain_prices(codes, fine, groups, limits, weight):
        new = min(prices, key=prices.get)
        (j,) = [j for j in range(3) if new[j] != groups[j]]
        losses = [plain_loss(codes, of, weight) for of in (groups, new)]
        made.append((SCHEMA.variables[j], new[j] is None, losses[1] - losses[0]))
        groups = new
    return made, groups


def plain_suppressions(codes, fine, groups, limit, weight):
    """Values (n, 3) that each record by itself loses: the largest fall of risk for its worth."""
    mask, kept = np.zeros(codes.shape, bool), [j for j in range(3) if groups[j]]
    while (above := plain_risks(codes, fine, groups, mask, upper=True) > limit).any():
        now = plain_risks(codes, fine, groups, mask)
        worth = np.full(codes.shape, -np.inf)
        for j in kept:
            left = plain_risks(codes, fine, groups, mask | (np.arange(3) == j))
            worth[:, j] = np.where(mask[:, j], -np.inf, (now - left) / weight[j])
        mask[above, worth.argmax(axis=1)[above]] = True
    return mask


GROUPS = (np.array([0, 1, 1, 2, 3]), np.array([0, 1]), np.array([0, 1, 0, 2, 3, 4, 5, 6]))


def merged(table):
    return Recoded.unchanged(table).merging(0, [1, 2]).merging(2, [0, 2])


def masked():
    mask = np.random.default_rng(3).random((N, 3)) < 0.3
    mask[0], mask[1:20] = True, False
    return mask


def test_risks_are_those_of_all_persons_who_agree_on_the_rest(run, fine):
    table, mask, risks = run.table, masked(), risks_of(run)
    found = _file_risk(risks, merged(table).coarsening, mask, 0.0)
    sharing, q = by_hand(table.codes, fine, GROUPS, mask)
    np.testing.assert_array_equal(found.sharing, sharing)
    assert 3 < found.sample_uniques < N and (mask[sharing == 1]).any()
    none = (1 - q) ** (POPULATION - N) * (sharing == 1)
    np.testing.assert_allclose(found.r1, none.mean(axis=0), atol=1e-6, rtol=1e-4)
    error = np.sqrt((none * (1 - none)).sum(axis=1).mean() / len(found.tau1))
    assert abs(found.tau1.mean() - none.sum(axis=1).mean()) < 4 * error
    # E 1 / (1 + Binomial(M, q)), summed over the sample uniques.
    m = POPULATION - N + 1
    inverse = ((1 - (1 - q) ** m) / (m * q))[:, sharing == 1].sum(axis=1)
    spread = found.tau2.std() / np.sqrt(len(found.tau2))
    assert abs(found.tau2.mean() - inverse.mean()) < 4 * spread
    assert found.anonymity[1].records == (sharing < 3).sum()


def test_with_the_layer_for_ties_they_are_those_of_the_same_cells(run, fine):
    table, mask, risks = run.table, masked(), risks_of(run, ties=True)
    found = _file_risk(risks, merged(table).coarsening, mask, 0.0)
    sharing, q = by_hand(table.codes, fine, GROUPS, mask)
    r1, _ = risks._overdispersion.record_risks(np.log(np.minimum(q, 1)), POPULATION - N)
    np.testing.assert_allclose(found.r1, r1.mean(axis=0) * (sharing == 1), atol=1e-6, rtol=1e-3)


def test_under_structural_zeros_impossible_persons_count_for_nothing(run, fine):
    zeros = bnp.StructuralZeros.from_codes(np.array([[0, 1, 0], [2, 0, -1]]), SCHEMA)
    possible = ~zeros.contains(CELLS)
    table = bnp.Microdata(SCHEMA, run.table.codes[~zeros.contains(run.table.codes)])
    share = fine[:, possible].sum(axis=1)
    draws = run.draws | {"log_feasible": np.float32(np.log(share)).reshape(2, -1)}
    truncated = dataclasses.replace(
        run, conditions=zeros, table=table, draws=draws, model=bnp.TNPLCM(components=4)
    )
    mask = masked()[: table.n]
    found = _file_risk(risks_of(truncated), merged(table).coarsening, mask, 0.0)
    only = np.where(possible, fine, 0) / share[:, None]
    sharing, q = by_hand(table.codes, only, GROUPS, mask)
    none = (1 - q) ** (POPULATION - table.n) * (sharing == 1)
    np.testing.assert_allclose(found.r1, none.mean(axis=0), atol=1e-6, rtol=1e-3)


def test_suppressions_meet_the_limits_with_few_values(run):
    before = risks_of(run)
    nothing = _file_risk(before, Recoded.unchanged(run.table).coarsening, np.zeros((N, 3), bool), 0)
    limit = 0.5 * np.quantile(nothing.tau1, 0.975)
    found = protect(run, POPULATION, max_tau1=limit, max_suppressed=1, ties="off")
    assert found.met and not found.recodings
    assert np.quantile(found.after.tau1, 0.975) <= limit < np.quantile(found.before.tau1, 0.975)
    changed = found.suppressed.any(axis=1)
    assert 0 < changed.sum() < nothing.sample_uniques
    # Only sample uniques, and each by the value whose suppression lowers its own risk most.
    assert (found.before.sharing[changed] == 1).all()
    one = found.suppressed.sum(axis=1) == 1
    for row in np.flatnonzero(one):
        left = []
        for j in range(3):
            mask = np.zeros((N, 3), bool)
            mask[row, j] = True
            left.append(_file_risk(before, found.coarsening, mask, 0).r1[row])
        assert left[int(found.suppressed[row].argmax())] == pytest.approx(min(left), abs=0.02)
    worth = protect(
        run, POPULATION, max_tau1=limit, max_suppressed=1, ties="off",
        importance={"age": 1e6, "town": 1e6},
    )  # fmt: skip
    assert worth.suppressed[:, 1].sum() > found.suppressed[:, 1].sum()


@pytest.mark.parametrize(
    ("limits", "number"),
    [(Limits(1.2), 0), (Limits(0.6), 1), (Limits(0.59), 2), (Limits(0), 4), (None, 0),
     (Limits(None, 0.15), 3), (Limits(0.6, 0.2), 2), (Limits(0.3, 0.4), 2)],
)  # fmt: skip
def test_the_fewest_records_that_can_do(limits, number):
    assert fewest_records(np.array([0.2, 0.5, 0.1, 0.3]), limits or Limits()) == number


def test_every_record_is_brought_to_its_limit(run):
    found = protect(run, POPULATION, max_risk=0.02, max_suppressed=1, ties="off")
    before, after = (one.r1 + MARGIN * one.r1_error for one in (found.before, found.after))
    assert found.before.r1.max() > 0.1 and after.max() <= 0.02 and found.met
    assert not found.suppressed[before <= 0.02].any()
    # Some are above it only by their errors.
    assert found.suppressed[(before > 0.02) & (found.before.r1 <= 0.02)].any(axis=1).all()


def test_records_that_may_be_above_the_limit_by_their_errors_are_recoded(run):
    none = protect(run, POPULATION, max_tau1=100, ties="off").before
    riskiest = none.r1.argmax()
    limit = none.r1[riskiest] + none.r1_error[riskiest]
    found = protect(run, POPULATION, max_risk=limit, max_suppressed=0, ties="off")
    assert found.before.judge(found.limits).release is None
    assert found.recodings and found.met


def test_errors_of_records_are_those_of_halves_of_chains(run):
    risks = risks_of(run)
    rows = np.flatnonzero(risks.sharing(Recoded.unchanged(run.table).coarsening) == 1)
    r1 = risks.of_rows(Recoded.unchanged(run.table).coarsening, rows)[0]
    expected = errors_of_halves(r1)
    np.testing.assert_allclose(risks.errors(r1), expected, rtol=1e-6)
    found = protect(run, POPULATION, max_tau1=100, ties="off").before
    np.testing.assert_allclose(found.r1_error[rows], expected, rtol=1e-6)
    assert not np.delete(found.r1_error, rows).any()


def test_the_verdict_on_a_file_is_by_its_errors():
    """Those of records, and those of tau_1 from chains of which four start at one point."""
    rng = np.random.default_rng(0)
    tau1 = rng.normal(10, 1, (16, 50)) + np.repeat([-1, 0, 1, 0], 4)[:, None]
    file = FileRisk(
        tau1=tau1, tau2=tau1.ravel(), r1=np.array([0.1, 0.3]), r1_error=np.array([0, 0.06]),
        sharing=np.ones(2, int), loss=0.0, superchain=4,
    )  # fmt: skip
    assert file.judge(Limits(max_risk=0.4)).release is None
    assert file.judge(Limits(max_risk=0.43)).release is True
    errors = monte_carlo_errors(tau1, 4)
    assert f"errors of {errors.mean:.2g} for the mean" in file.judge(Limits(max_tau1=9)).why
    assert errors.mean > 1.5 * monte_carlo_errors(tau1).mean


def test_a_record_gets_as_many_suppressions_as_it_needs(run):
    """Few persons in all: with one value less most records are unique still."""
    table = bnp.Microdata(SCHEMA, np.array([[i, i % 2, i] for i in range(5)]))
    few = dataclasses.replace(run, table=table)
    found = protect(few, 20, max_risk=0.02, max_suppressed=1, ties="off")
    assert found.met and not found.recodings and found.after.r1.max() <= 0.02
    assert (found.suppressed.sum(axis=1) > 1).any()


def test_only_the_record_above_the_limit_is_changed(run):
    """It needs two suppressions, and the others none: of thirty the one with rare values."""
    levels = [[0.3, 0.3, 0.2, 0.199, 0.001], [0.5, 0.5], [0.2] * 3 + [0.1] * 3 + [0.099, 0.001]]
    log_lambda = np.log(np.concatenate(levels), dtype=np.float32)[:, None]
    draws = run.draws | {"log_lambda": np.broadcast_to(log_lambda, run.draws["log_lambda"].shape)}
    common = CELLS[(CELLS[:, 0] < 4) & (CELLS[:, 2] < 7)]
    codes = np.random.default_rng(0).permutation(common)[:30]
    codes[0] = [4, 0, 7]
    few = dataclasses.replace(run, table=bnp.Microdata(SCHEMA, codes), draws=draws)
    for most in (0.05, 1):
        found = protect(few, 200, max_risk=0.5, max_suppressed=most, ties="off")
        assert (found.before.r1 > 0.5).tolist() == [True] + [False] * 29
        assert found.met and not found.recodings
        assert found.suppressed[0].sum() == found.suppressed.sum() == 2


def test_recodings_go_on_until_few_records_are_left_to_suppress(run):
    found = protect(
        run, POPULATION, max_tau1=2, max_suppressed=0.1, ties="off", recode=["merge:town=b+d"],
    )  # fmt: skip
    first = found.recodings[0]
    assert first[:3] == ("town", ("b", "d"), "b + d") and len(found.recodings) > 1
    assert found.met and found.suppressed.any(axis=1).sum() <= 4
    weight = np.ones(3)
    assert sum(step.loss for step in found.recodings) == pytest.approx(found.recoded.loss(weight))
    assert found.after.loss >= found.recoded.loss(weight) > found.before.loss == 0
    alone = protect(run, POPULATION, max_tau1=2, max_suppressed=0, ties="off")
    assert alone.met and not alone.suppressed.any()
    hopeless = protect(run, POPULATION, max_tau1=-1, max_suppressed=0, ties="off")
    assert not hopeless.met and hopeless.after.r1.max() == 0


def test_the_protected_file_has_what_was_not_touched(run):
    found = protect(run, POPULATION, max_tau1=4, max_suppressed=0.2, ties="off",
                    recode=["merge:town=a+b"])  # fmt: skip
    frame = run.table.to_frame().assign(weight=np.arange(N), note="x")
    assert list(found.apply(frame)) == list(found.coarsening.schema.variables)
    made = found.apply(frame, carry=["weight", "note"])
    assert list(made) == [x for x in frame if x in (*found.coarsening.schema.variables, "weight",
                                                    "note")]  # fmt: skip
    assert (made["weight"] == np.arange(N)).all() and frame["town"].isin(list("abcdefgh")).all()
    for j, name in enumerate(found.coarsening.schema.variables):
        gone = found.suppressed[:, j]
        assert made[name].isna().tolist() == gone.tolist()
        parts = [set(x.split(" + ")) for x in made[name][~gone]]
        old = frame[name][~gone].astype(str)
        assert all(x in part for x, part in zip(old, parts, strict=True))
    log = found.suppressions()
    assert len(log) == found.suppressed.sum()
    for one in log.itertuples():
        assert one.old == str(frame[one.column][one.row]) and pd.isna(made[one.column][one.row])


def test_new_chains_on_the_recoded_table_estimate_the_same_file(run):
    """Of a run whose draws are those of the merged table."""
    found = protect(run, POPULATION, max_tau1=4, max_suppressed=0.2, ties="off",
                    recode=["merge:town=a+b"])  # fmt: skip
    coarse = found.coarsening
    theta = np.exp(run.draws["log_lambda"])
    first = np.cumsum([0, *NUM_LEVELS])
    summed = [
        theta[:, :, first[j] + np.flatnonzero(of == k)].sum(axis=2)
        for j, of in zip(coarse.variables, coarse.codes, strict=True)
        for k in range(of.max() + 1)
    ]
    new = dataclasses.replace(
        run, table=coarse.coarser(run.table),
        draws=run.draws | {"log_lambda": np.log(np.stack(summed, axis=2))},
    )  # fmt: skip
    again = found.estimate(new, ties="off")
    np.testing.assert_allclose(again.r1, found.after.r1, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(again.sharing, found.after.sharing)


def test_losses_are_entropies(run):
    table, weight = run.table, np.array([1.0, 2.0, 1.0])

    recoded = merged(table).dropping(1)
    expected = 2 * entropy(table.codes[:, 1])
    for j in (0, 2):
        expected += entropy(table.codes[:, j]) - entropy(GROUPS[j][table.codes[:, j]])
    assert recoded.loss(weight) == pytest.approx(expected)
    costs = recoded.costs(weight)
    assert costs.sum() / N == pytest.approx(sum(entropy(GROUPS[j][table.codes[:, j]])
                                                for j in (0, 2)))  # fmt: skip


@pytest.mark.parametrize("limits", [Limits(1), Limits(None, 0.02)])
def test_the_next_step_loses_least_for_what_it_takes_off(run, fine, limits):
    """Of all steps, from the sample and after recodings whose loss is not the step's."""
    weight, codes, wrong = np.array([1, 2, 0.5]), run.table.codes, []
    unchanged, in_order = Recoded.unchanged(run.table), ordered_variables(SCHEMA)
    for recoded in (
        unchanged, merged(run.table), unchanged.dropping(0), unchanged.dropping(1),
        unchanged.merging(0, [1, 2, 3]),
    ):  # fmt: skip
        search = RecodingSearch(risks_of(run), Units.of(run.table), limits, weight, in_order)
        found, made = search.next(recoded)
        prices = plain_prices(codes, fine, recoded.groups, limits, weight)
        assert len(prices) > 3 and prices[found.groups] <= 1.01 * min(prices.values())
        losses = [plain_loss(codes, x.groups, weight) for x in (recoded, found)]
        assert sum(step.loss for step in made) == pytest.approx(losses[1] - losses[0])
        by_whole = plain_prices(codes, fine, recoded.groups, limits, weight, whole=True)
        wrong.append(prices[min(by_whole, key=by_whole.get)] > 1.01 * min(prices.values()))
    # The planted error would be seen.
    assert any(wrong)


@pytest.mark.parametrize("limits", [Limits(-1), Limits(None, 0.05)])
def test_recodings_are_those_of_a_plain_search(twelve, fine, limits):
    """Until none takes anything off, or no record is above its limit."""
    importance = {"age": 0.9, "sex": 1.5}
    found = protect(
        twelve, POPULATION, **limits._asdict(), max_suppressed=0, importance=importance, ties="off"
    )  # fmt: skip
    weight = importance_of(SCHEMA, importance)
    made, groups = plain_recodings(twelve.table.codes, fine, limits, weight)
    assert [(step.variable, step.label is None) for step in found.recodings] == [
        x[:2] for x in made
    ]  # fmt: skip
    assert len({x[0] for x in made}) > 1 and found.recoded.groups == groups
    assert [step.loss for step in found.recodings] == pytest.approx([x[2] for x in made])
    assert found.after.loss == pytest.approx(plain_loss(twelve.table.codes, groups, weight))
    assert found.met == (limits.max_tau1 is None)


IMPORTANCE = {"age": 6, "sex": 2, "town": 2.3}


@pytest.fixture(scope="module")
def without_age(twelve):
    """Protected after the first variable is dropped."""
    return protect(
        twelve, POPULATION, max_risk=0.02, max_suppressed=1, importance=IMPORTANCE, ties="off",
        recode=["drop:age", "merge:town=b+d"],
    )  # fmt: skip


def test_variables_keep_their_importance_when_the_first_is_dropped(twelve, fine, without_age):
    codes, groups, weight = twelve.table.codes, without_age.recoded.groups, [*IMPORTANCE.values()]
    assert without_age.met and groups[0] is None and (1, 3) in groups[2]
    mask = plain_suppressions(codes, fine, groups, 0.02, weight)
    np.testing.assert_array_equal(without_age.suppressed, mask[:, 1:])
    # The planted error: that of the variables before.
    shifted = plain_suppressions(codes, fine, groups, 0.02, [0, *weight[:2]])
    assert mask.any(axis=0).tolist() == [False, True, True] and (mask != shifted).any()
    dropped, town = (step.loss for step in without_age.recodings)
    assert dropped == pytest.approx(6 * entropy(codes[:, 0]))
    assert dropped + town == pytest.approx(plain_loss(codes, groups, weight))
    coarse = np.stack([of[x] for of, x in zip(new_codes(groups), codes.T, strict=True)], axis=1)
    bits = -np.log2((coarse[:, None] == coarse).mean(axis=0)) * weight
    lost = dropped + town + bits[mask].sum() / len(codes)
    assert without_age.after.loss == pytest.approx(lost)


def test_the_log_names_the_variables_of_the_sample_when_the_first_is_dropped(twelve, without_age):
    rows, columns = np.nonzero(without_age.suppressed)
    names = np.array(["sex", "town"])[columns]
    labels = twelve.table.to_frame()
    old = [labels[name][row] for row, name in zip(rows, names, strict=True)]
    log = without_age.suppressions()
    assert log["row"].tolist() == rows.tolist()
    assert log["column"].tolist() == names.tolist() and log["old"].tolist() == old
    assert {*names} == {"sex", "town"}


def test_names_and_orders():
    numbers = bnp.Schema(("a", "b", "c"), (("<5", "5-9", "10+"), ("x", "1", "2"), (1, 2, 3)))
    assert ordered_variables(numbers, ["b"]).tolist() == [True, True, True]
    assert ordered_variables(numbers).tolist() == [True, False, True]
    assert importance_of(numbers, {"b": 3}).tolist() == [1, 3, 1]
    table = bnp.Microdata(numbers, np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 2]]))
    made = Recoded.unchanged(table).merging(2, [0, 1])
    assert made.coarsening.schema.levels[2] == ("1 to 2", "3")
    steps = [(j, levels) for j, levels, _ in Recoded.unchanged(table).steps(np.ones(3, bool))]
    assert steps.count((0, None)) == 1 and (0, [((0,), (1,))]) in steps
    assert (0, [((0,), (2,))]) not in steps


def test_what_is_refused(run):
    with pytest.raises(ValueError, match="give max_tau1"):
        protect(run, POPULATION)
    with pytest.raises(bnp.MicrodataError, match="unknown variable.*age"):
        protect(run, POPULATION, max_tau1=1, importance={"income": 2})
    with pytest.raises(bnp.MicrodataError, match="smaller than the sample"):
        protect(run, 10, max_tau1=1)
    counts = dataclasses.replace(run, table=run.table.tabulated)
    with pytest.raises(ValueError, match="single records"):
        protect(counts, POPULATION, max_tau1=1)


TOWNS = pd.DataFrame({
    "level": list("abcdefgh"), "group": [*"xxxyyy", "z", "z"], "larger": [*["n"] * 6, "s", "s"],
})  # fmt: skip


def test_variables_with_groups_are_recoded_along_them(run):
    """Layer after layer, all levels at once, under the names of the groups."""
    groups = as_hierarchies({"town": TOWNS})
    recoded = Recoded.unchanged(run.table, groups)
    (step,) = [(m, new) for j, m, new in recoded.steps(np.zeros(3, bool)) if j == 2 and m]
    assert step[0] == [((0,), (1,), (2,)), ((3,), (4,), (5,)), ((6,), (7,))]
    assert step[1].coarsening.schema.levels[2] == ("x", "y", "z")
    (last,) = [(m, new) for j, m, new in step[1].steps(np.zeros(3, bool)) if j == 2 and m]
    assert last[0] == [((0, 1, 2), (3, 4, 5))]
    # The larger group of two towns is the smaller one.
    assert last[1].coarsening.schema.levels[2] == ("n", "z")
    assert not [m for j, m, _ in last[1].steps(np.zeros(3, bool)) if j == 2 and m]
    ((_, left),) = step[1].hierarchies_left
    assert left.rows == (("x", "x", "n"), ("y", "y", "n"), ("z", "z", "s"))
    # Merges across the groups, asked for before, are kept together.
    across = recoded.merging(2, [0, 3])
    (found,) = [new for j, m, new in across.steps(np.zeros(3, bool)) if j == 2 and m]
    assert found.groups[2] == ((0, 1, 2, 3, 4, 5), (6, 7))


def test_levels_are_not_merged_where_that_is_forbidden(run):
    plain = Recoded.unchanged(run.table)
    forbidden = Recoded.unchanged(run.table, unmerged=("town",))
    order = ordered_variables(SCHEMA)
    steps, left = ([(j, merges) for j, merges, _ in of.steps(order)] for of in (plain, forbidden))
    assert left == [(j, merges) for j, merges in steps if j != 2 or merges is None] != steps
    # It stays forbidden after other steps.
    assert forbidden.merging(0, [1, 2]).dropping(1).unmerged == ("town",)
    options = {"max_tau1": 1, "max_suppressed": 0, "ties": "off"}
    merged = protect(run, POPULATION, **options).recodings
    found = protect(run, POPULATION, no_merge=["town"], **options).recodings
    assert any(one.variable == "town" and one.levels for one in merged)
    assert not any(one.variable == "town" and one.levels for one in found) and found
    with pytest.raises(MicrodataError, match="unknown variable"):
        protect(run, POPULATION, no_merge=["city"], **options)


def test_protection_along_groups(run):
    model = dataclasses.replace(run.model, groups=as_hierarchies({"town": TOWNS}))
    grouped = dataclasses.replace(run, model=model)
    found = protect(grouped, POPULATION, max_tau1=1, max_suppressed=0, importance={"town": 0.1})
    towns = [one for one in found.recodings if one.variable == "town" and one.label]
    assert [one.label for one in towns[:3]] == ["x", "y", "z"]
    assert towns[0].levels == ("a", "b", "c")
    asked = protect(grouped, POPULATION, max_tau1=30, max_suppressed=0.1, recode=["group:town=2"])
    assert {"n", "z"} == set(asked.frame()["town"].dropna())


@pytest.mark.parametrize("limits", [{}, {"max_tau1": 1.0}])
def test_protect_until_three_share_each_key(run, limits):
    found = bnp.protect(run, POPULATION, k=3, max_suppressed=0.3, **limits)
    assert found.met and found.judge().word == "yes"
    (reached,) = found.anonymity
    assert reached.before > reached.after == 0
    labels = found.frame()
    coarser = found.coarsening.coarser(found.table).codes
    gone = found.suppressed
    for i, own in enumerate(coarser):
        alike = ((coarser == own) | gone[i]).all(axis=1)
        # In the file itself, where a suppressed value may stand for any.
        in_file = ((coarser == own) | gone | gone[i]).all(axis=1)
        assert in_file.sum() >= alike.sum() == found.after.sharing[i] >= 3
    assert labels.isna().sum().sum() == gone.sum()
    assert "each combination of all key variables must have 3 records" in found.judge().why


def test_protect_by_suppression_alone_says_where_it_ends(run):
    few = bnp.protect(run, POPULATION, k=5, max_suppressed=0.0, recode=["drop:town"])
    assert few.met or few.anonymity[0].after > 0
    hopeless = bnp.protect(run, POPULATION, k=1_000, max_suppressed=0.1)
    assert not hopeless.met and hopeless.judge().release is False
    assert hopeless.suppressed.any(axis=1).sum() <= 0.1 * hopeless.table.n
    assert (
        f"{hopeless.anonymity[0].after} of {hopeless.table.n} records do not meet this limit"
        in (hopeless.judge().why)
    )


def test_what_cannot_be_asked(run):
    for target, problem in (
        (1, "k must be at least 2"), ([Anonymity(3, size=9)], "none are in sets of 9"),
        ([Anonymity(3, variables=("no",))], "no"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=problem):
            bnp.protect(run, POPULATION, k=target)
    with pytest.raises(ValueError, match="not one for each"):
        bnp.protect(run, POPULATION, k=2, strata=pd.Series([1, 2]))
    with pytest.raises(ValueError, match="give max_tau1, max_risk or k"):
        bnp.protect(run, POPULATION)
