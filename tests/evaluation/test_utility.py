"""Utility of synthetic data: against slow independent code, at the extremes, under the null."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import bnp_models as bnp
from bnp_models.evaluation import combining as evaluation_combining
from bnp_models.evaluation import propensity
from bnp_models.rules import Rules, at_least, exactly, person

NAMES = ("a", "b", "c", "d")
SCHEMA = bnp.Schema(NAMES, (tuple("xyz"), tuple("pq"), tuple("1234"), tuple("uvw")))


def draw(rng, rows, tilt=0.0):
    """Dependent records: `tilt` moves the dependence."""
    a = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    b = (rng.random(rows) < 0.3 + 0.2 * a + tilt * (a == 0)).astype(int)
    c = (a + rng.choice(4, rows, p=[0.6, 0.2, 0.1, 0.1])) % 4
    d = rng.choice(3, rows, p=[0.8, 0.15, 0.05])
    return bnp.Microdata(SCHEMA, np.stack([a, b, c, d], axis=1))


@pytest.fixture(scope="module")
def files():
    """A sample, five files of another size, and the population."""
    rng = np.random.default_rng(0)
    return draw(rng, 400), [draw(rng, 300) for _ in range(5)], draw(rng, 20_000)


def cell_labels(found):
    """The labels of each cell, told by the order of the cells."""
    labels = []
    for table in found.tables:
        names = [NAMES[j] for j in table]
        levels = [SCHEMA.levels[j] for j in table]
        labels += [tuple(zip(names, cell, strict=True)) for cell in itertools.product(*levels)]
    return labels


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("combining", ["partially", "fully"])
def test_proportions_against_pandas(files, order, combining):
    original, synthetic, population = files
    found = bnp.proportions(original, synthetic, order, population=population, combining=combining)
    labels = cell_labels(found)
    assert len(labels) == len(found.original) == len(set(labels))
    frames = [table.to_frame() for table in (original, *synthetic, population)]
    num = len(synthetic)
    for cell in range(0, len(labels), max(1, len(labels) // 40)):
        inside = [
            pd.concat([frame[name] == label for name, label in labels[cell]], axis=1).all(axis=1)
            for frame in frames
        ]
        q = np.array([column.mean() for column in inside])
        assert found.original[cell] == pytest.approx(q[0])
        assert found.count[cell] == inside[0].sum()
        assert found.population[cell] == pytest.approx(q[-1])
        assert found.synthetic[cell] == pytest.approx(q[1:-1].mean())
        within, between = (q * (1 - q))[1:-1].mean() / 300, q[1:-1].var(ddof=1)
        if combining == "partially":
            within *= 300 / 400
            variance = within + between / num
            df = np.inf if between == 0 else (num - 1) * (1 + num * within / between) ** 2
        else:
            variance, df = (1 + 1 / num) * between - within, num - 1
            if variance > 0:
                df *= (1 - within / ((1 + 1 / num) * between)) ** 2
            else:
                variance = within * 300 / 400
        half = stats.t.ppf(0.975, df) * np.sqrt(variance)
        ends = np.clip([q[1:-1].mean() - half, q[1:-1].mean() + half], 0, 1)
        np.testing.assert_allclose([end[cell] for end in found.interval], ends, atol=1e-9)
        own = stats.norm.ppf(0.975) * np.sqrt(q[0] * (1 - q[0]) / 400)
        own = np.clip([q[0] - own, q[0] + own], 0, 1)
        assert found.judged[cell] == (10 <= inside[0].sum() <= 390)
        if found.judged[cell]:
            common = max(min(own[1], ends[1]) - max(own[0], ends[0]), 0)
            expected = common / 2 / np.ptp(own) + common / 2 / np.ptp(ends)
            assert found.overlap[cell] == pytest.approx(expected)
        else:
            assert np.isnan(found.overlap[cell])


def test_pairs_against_crosstab(files):
    original, synthetic, _ = files
    found = bnp.proportions(original, synthetic, 2).fit
    assert found["pmse_ratio"].is_monotonic_decreasing and len(found) == 6
    frames = [table.to_frame().assign(file=m) for m, table in enumerate([original, *synthetic])]
    for row in found.itertuples():
        first, second = row.variables
        shares = [pd.crosstab(f[first], f[second], normalize="all") for f in frames]
        mean = sum(s.reindex_like(shares[0]).fillna(0) for s in shares[1:]) / 5
        assert row.tvd == pytest.approx(np.abs(mean - shares[0]).to_numpy().sum() / 2)
        ratios = []
        for frame in frames[1:]:
            both = pd.concat([frames[0], frame])
            # For a table this is Pearson's statistic of being synthetic against the cell.
            cells = both[first] + both[second]
            chi2 = stats.chi2_contingency(pd.crosstab(cells, both["file"]), correction=False)
            share = len(frame) / len(both)
            ratios.append(chi2.statistic / chi2.dof / (1 - share))
        assert row.pmse_ratio == pytest.approx(np.mean(ratios))


def slow_pmse(original, synthetic, interactions):
    """By records, dummies and a general optimiser."""
    frame = pd.concat([original.to_frame(), synthetic.to_frame()])
    made = np.repeat([0.0, 1.0], [original.n, synthetic.n])
    columns = [pd.get_dummies(frame[name], drop_first=True, dtype=float).to_numpy()
               for name in NAMES]  # fmt: skip
    if interactions:
        columns += [(a[:, :, None] * b[:, None]).reshape(len(frame), -1)
                    for a, b in itertools.combinations(columns, 2)]  # fmt: skip
    x = np.concatenate([np.ones((len(frame), 1)), *columns], axis=1)

    def loss(beta):
        eta = x @ beta
        fitted = 1 / (1 + np.exp(-eta))
        return np.logaddexp(0, eta).sum() - made @ eta, x.T @ (fitted - made)

    beta = optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B",
                             options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-8}).x  # fmt: skip
    share = made.mean()
    pmse = ((1 / (1 + np.exp(-x @ beta)) - share) ** 2).mean()
    columns = np.linalg.matrix_rank(x) - 1
    return pmse, columns, pmse / (columns * (1 - share) ** 2 * share / len(frame))


@pytest.mark.parametrize("interactions", [False, True])
def test_propensity_score_against_a_general_optimiser(files, interactions):
    original, synthetic, _ = files
    found = bnp.propensity_score(original, synthetic[0], interactions=interactions)
    pmse, parameters, ratio = slow_pmse(original, synthetic[0], interactions)
    assert found.parameters == parameters == (31 if interactions else 8)
    assert found.pmse == pytest.approx(pmse, rel=1e-4)
    assert found.ratio == pytest.approx(ratio, rel=1e-4)
    deviation = np.sqrt(2 / parameters)
    assert found.z == pytest.approx((ratio - 1) / deviation, rel=1e-3)
    assert found.ratio_predictive == pytest.approx(found.ratio * 400 / 700)
    assert found.z_predictive == pytest.approx((found.ratio_predictive - 1) / deviation)


def test_the_original_itself_scores_as_it_should(files):
    original, _, _ = files
    shuffled = bnp.Microdata(SCHEMA, original.codes[::-1])
    for order in (1, 2, 3):
        summary = bnp.proportions(original, [original, shuffled], order).summary()
        assert summary["overlap"] == summary["covers_original"] == 1
        assert summary["largest_difference"] < 1e-12 and summary["overlap_below_half"] == 0
    for interactions in (False, True):
        score = bnp.propensity_score(original, shuffled, interactions=interactions)
        assert score.pmse == score.ratio == 0
        assert score.z == pytest.approx(-np.sqrt(score.parameters / 2))
    replicated = bnp.replicated_uniques(original, [original, shuffled])
    assert replicated.found == replicated.found_unique == (replicated.uniques,) * 2
    assert replicated.in_all == replicated.uniques


def test_a_bad_file_scores_badly(files):
    original, synthetic, _ = files
    rng = np.random.default_rng(1)
    independent = [
        bnp.Microdata(SCHEMA, rng.permuted(original.codes, axis=0)) for _ in range(5)
    ]  # fmt: skip
    good, bad = (bnp.proportions(original, made, 2) for made in (synthetic, independent))
    assert bad.summary()["overlap"] < 0.65 < 0.7 < good.summary()["overlap"]
    assert bad.summary()["covers_original"] < 0.8
    assert good.summary()["covers_original"] > 0.9
    assert bad.fit["variables"][0] == ("a", "c") and bad.fit["pmse_ratio"][0] > 10
    # Each variable is right, so that main effects do not tell, and interactions do.
    main = bnp.propensity_score(original, independent[0])
    pairs = bnp.propensity_score(original, independent[0], interactions=True)
    assert main.pmse < 1e-12 and pairs.ratio > 5 and pairs.z > 10


REPETITIONS = 200


@pytest.mark.parametrize("fault", [None, "unused level", "wrong share", "other null"])
@pytest.mark.parametrize("null", ["ratio", "ratio_predictive"])
def test_the_ratio_is_one_on_average_under_the_null(null, fault):
    """And is seen not to be where the standardisation has a fault."""
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(REPETITIONS):
        original = draw(rng, 600)
        if null == "ratio":
            synthetic = bnp.Microdata(SCHEMA, original.codes[rng.integers(600, size=300)])
        else:
            synthetic = draw(rng, 300)
        score = bnp.propensity_score(original, synthetic)
        ratio = getattr(score, null)
        if fault == "unused level":
            ratio *= score.parameters / (score.parameters + 2)
        elif fault == "wrong share":
            ratio *= (2 / 3) / (1 / 3)
        elif fault == "other null":
            ratio = getattr(score, {"ratio": "ratio_predictive"}.get(null, "ratio"))
        ratios.append(ratio)
    # A chi-square variable with k - 1 = 8 degrees of freedom, over that number.
    away = (np.mean(ratios) - 1) / np.sqrt(2 / 8 / REPETITIONS)
    assert (abs(away) < 4) == (fault is None)


def test_aliases_and_levels_of_one_file_do_no_harm(files):
    original, synthetic, _ = files
    twice = bnp.Schema((*NAMES, "again"), (*SCHEMA.levels, SCHEMA.levels[0]))
    a, b = (bnp.Microdata(twice, table.codes[:, [0, 1, 2, 3, 0]])
            for table in (original, synthetic[0]))  # fmt: skip
    for interactions in (False, True):
        one = bnp.propensity_score(original, synthetic[0], interactions=interactions)
        two = bnp.propensity_score(a, b, interactions=interactions)
        assert two.pmse == pytest.approx(one.pmse, rel=1e-6)
        # Its product with itself is a main effect, and with others an interaction that is there.
        assert two.parameters == one.parameters
    # One variable: the fitted values are the shares in its cells, 1 where all are synthetic.
    schema = bnp.Schema(("x",), (tuple("abcd"),))
    counts = np.array([[30, 50, 20, 0], [10, 40, 0, 25]])
    a, b = (bnp.Microdata(schema, np.repeat(np.arange(4), count)[:, None]) for count in counts)
    away = counts[1] / counts.sum(axis=0) - 75 / 175
    score = bnp.propensity_score(a, b)
    assert score.pmse == pytest.approx(counts.sum(axis=0) @ away**2 / 175, rel=1e-5)
    assert score.parameters == 3
    assert bnp.proportions(a, [b], 1).fit["pmse_ratio"][0] == pytest.approx(score.ratio, rel=1e-5)


def test_missing_values_count_where_they_can(files):
    original, synthetic, _ = files
    codes = original.codes.copy()
    codes[:100, 0] = -1
    found = bnp.proportions(bnp.Microdata(SCHEMA, codes), synthetic, 2)
    whole = bnp.proportions(original, synthetic, 2)
    rest = bnp.proportions(bnp.Microdata(SCHEMA, codes[100:]), synthetic, 2)
    with_a = (found.tables == 0).any(axis=1)[found.table]
    np.testing.assert_array_equal(found.original[~with_a], whole.original[~with_a])
    np.testing.assert_array_equal(found.original[with_a], rest.original[with_a])
    codes[:] = -1
    with pytest.raises(ValueError, match="no record with values of all of a, b"):
        bnp.proportions(bnp.Microdata(SCHEMA, codes), synthetic, 2)
    with pytest.raises(ValueError, match="no complete record"):
        bnp.propensity_score(bnp.Microdata(SCHEMA, codes), synthetic[0])


def test_interval_overlap():
    def overlap(a, b, c, d):
        return float(evaluation_combining.interval_overlap((a, b), (c, d)))

    assert overlap(0, 1, 0, 1) == 1
    assert overlap(0, 1, 2, 3) == overlap(0, 1, 5, 5) == 0
    assert overlap(0, 2, 1, 2) == pytest.approx(0.75)
    assert overlap(0, 2, 1, 3) == pytest.approx(0.5)
    assert overlap(1, 1, 1, 1) == 1 and overlap(0, 2, 1, 1) == 0.5


def test_many_variables_are_sampled():
    levels = tuple(map(str, range(5)))
    schema = bnp.Schema(tuple(f"v{j}" for j in range(12)), (levels,) * 12)
    rng = np.random.default_rng(3)
    a, b = (bnp.Microdata(schema, rng.integers(5, size=(500, 12))) for _ in range(2))
    found = bnp.proportions(a, [b], 3, max_tables=30)
    assert (len(found.tables), found.left_out) == (30, 190)
    assert len(set(map(tuple, found.tables))) == 30
    again = bnp.proportions(a, [b], 3, max_tables=30)
    np.testing.assert_array_equal(found.tables, again.tables)
    other = bnp.proportions(a, [b], 3, max_tables=30, seed=1)
    assert (found.tables != other.tables).any()
    assert len(bnp.proportions(a, [b], 3, max_cells=1000).original) == 1000
    with pytest.raises(ValueError, match="more than 100 cells"):
        bnp.proportions(a, [b], 3, max_cells=100)
    with pytest.raises(ValueError, match="more than the 50 allowed"):
        bnp.propensity_score(a, b, interactions=True, max_parameters=50)
    assert propensity.num_columns([a, b], True) == 12 * 4 + 66 * 16
    wide = bnp.Schema(tuple(f"v{j}" for j in range(300)), (("0", "1"),) * 300)
    a = bnp.Microdata(wide, rng.integers(2, size=(50, 300)))
    found = bnp.proportions(a, [a], 3, max_tables=50)
    assert len(found.tables) == 50 and found.left_out == 300 * 299 * 298 // 6 - 50


def test_k_anonymity_and_uniques_by_hand():
    schema = bnp.Schema(("x", "y"), (tuple("abc"), tuple("pq")))
    a = bnp.Microdata(schema, np.array([[0, 0]] * 4 + [[1, 0]] * 2 + [[2, 0], [2, 1], [0, -1]]))
    b = bnp.Microdata(schema, np.array([[2, 0], [2, 1], [2, 1], [0, 1]]))
    assert [tuple(row) for row in bnp.k_anonymity(a)] == [
        (2, 2, 0.25), (3, 4, 0.5), (5, 8, 1.0)
    ]  # fmt: skip
    assert bnp.replicated_uniques(a, [b, a]) == (2, (2, 2), (1, 2), 2, 2)


def test_shares_of_households():
    rng = np.random.default_rng(4)
    schema = None
    tables = []
    for children in (0.5, 0.55, 0.45, 0.2):
        rows = []
        for i in range(300):
            rows.append((i, "head", "own" if i % 3 else "rent"))
            rows += [(i, "child", "own" if i % 3 else "rent")] * int(rng.random() < children)
        frame = pd.DataFrame(rows, columns=["hid", "relate", "tenure"])
        levels = None if schema is None else schema.table
        table = bnp.Households.from_frame(frame, "hid", ["tenure"], levels=levels)
        schema = schema or table.schema
        tables.append((table, frame))
    (original, frame), *made = tables
    child = person(relate="child")
    quantities = Rules([at_least(1, child), exactly(1, person(relate="head")).named("one head")])
    found = bnp.household_shares(quantities, original, [table for table, _ in made[:2]],
                                 population=made[2][0])  # fmt: skip
    expected = [(f["relate"] == "child").groupby(f["hid"]).any().mean() for _, f in tables]
    assert found.original == pytest.approx([expected[0], 1])
    assert found.synthetic == pytest.approx([np.mean(expected[1:3]), 1])
    assert found.population == pytest.approx([expected[3], 1])
    assert found.names == ("at least 1 person with relate 'child'", "one head") or found.names[1]
    assert found.overlap[1] == 1 and 0 < found.overlap[0] < 1
    low, high = found.interval
    assert low[0] < found.synthetic[0] < high[0]
    bad = bnp.household_shares(quantities, original, [made[2][0]] * 2)
    assert bad.overlap[0] == 0


def test_files_of_other_variables_are_refused(files):
    original, synthetic, _ = files
    other = bnp.Microdata(bnp.Schema(("x",), (("0", "1"),)), np.array([[0], [1]]))
    with pytest.raises(ValueError, match="other variables"):
        bnp.proportions(original, [other], 1)
    with pytest.raises(ValueError, match="at least one"):
        bnp.proportions(original, [], 1)
    with pytest.raises(ValueError, match="order must be from 1 to 4"):
        bnp.proportions(original, synthetic, 5)
    with pytest.raises(ValueError, match="combining rule"):
        bnp.proportions(original, synthetic, 1, combining="wholly")
