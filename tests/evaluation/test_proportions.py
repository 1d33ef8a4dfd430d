"""Proportions against pandas, at the extremes, and where tables are too many."""

import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from dependent import NAMES, SCHEMA
from scipy import stats

import bnp_models as bnp


def cell_labels(compared):
    """The labels of each cell, told by the order of the cells."""
    labels = []
    for table in compared.tables:
        names = [NAMES[j] for j in table]
        levels = [SCHEMA.levels[j] for j in table]
        labels += [tuple(zip(names, cell, strict=True)) for cell in itertools.product(*levels)]
    return labels


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("combining", ["partially", "fully"])
def test_proportions_against_pandas(files, order, combining):
    original, synthetic, population = files
    compared = bnp.evaluation.proportions(
        original, synthetic, order, population=population, combining=combining
    )
    labels = cell_labels(compared)
    assert len(labels) == len(compared.original) == len(set(labels))
    frames = [table.to_frame() for table in (original, *synthetic, population)]
    num = len(synthetic)
    for cell in range(0, len(labels), max(1, len(labels) // 40)):
        inside = [
            pd.concat([frame[name] == label for name, label in labels[cell]], axis=1).all(axis=1)
            for frame in frames
        ]
        q = np.array([column.mean() for column in inside])
        assert compared.original[cell] == pytest.approx(q[0])
        assert compared.count[cell] == inside[0].sum()
        assert compared.population[cell] == pytest.approx(q[-1])
        assert compared.synthetic[cell] == pytest.approx(q[1:-1].mean())
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
        np.testing.assert_allclose([end[cell] for end in compared.interval], ends, atol=1e-9)
        interval = stats.norm.ppf(0.975) * np.sqrt(q[0] * (1 - q[0]) / 400)
        interval = np.clip([q[0] - interval, q[0] + interval], 0, 1)
        assert compared.judged[cell] == (10 <= inside[0].sum() <= 390)
        if compared.judged[cell]:
            common = max(min(interval[1], ends[1]) - max(interval[0], ends[0]), 0)
            expected = common / 2 / np.ptp(interval) + common / 2 / np.ptp(ends)
            assert compared.overlap[cell] == pytest.approx(expected)
        else:
            assert np.isnan(compared.overlap[cell])


def test_pairs_against_crosstab(files):
    original, synthetic, _ = files
    compared = bnp.evaluation.proportions(original, synthetic, 2).fit
    assert compared["pmse_ratio"].is_monotonic_decreasing and len(compared) == 6
    frames = [table.to_frame().assign(file=m) for m, table in enumerate([original, *synthetic])]
    for row in compared.itertuples():
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


def test_k_marginal_scores_against_crosstab(files):
    """A thousand times one less the mean total variation distance, file by file."""
    original, synthetic, _ = files
    score = bnp.evaluation.proportions(original, synthetic, 2)
    first, *others = (table.to_frame() for table in (original, *synthetic))
    for made, k_marginal in zip(others, score.k_marginal, strict=True):
        distances = []
        for a, b in itertools.combinations(NAMES, 2):
            shares = [pd.crosstab(f[a], f[b], normalize="all") for f in (first, made)]
            away = shares[0].sub(shares[1], fill_value=0)
            distances.append(away.abs().to_numpy().sum() / 2)
        assert k_marginal == pytest.approx(1000 * (1 - np.mean(distances)))
    assert score.summary()["k_marginal"] == pytest.approx(score.k_marginal.mean())


def binary(*ones):
    """A hundred records of variables of which so many are one."""
    codes = np.stack([np.arange(100) < number for number in ones], axis=1).astype(int)
    schema = bnp.Schema(tuple("abc"[: len(ones)]), ((0, 1),) * len(ones))
    return bnp.Microdata(schema, codes)


def test_coverage_is_of_either_proportions_by_either_interval():
    """Half of the original, 0.3 of the files, whose intervals end at 0.1 and less on each side."""
    original, file = binary(50, 50, 50), binary(30, 30, 30)
    found = bnp.evaluation.proportions(original, [file, file], 1, population=binary(58, 35, 58))
    # Halves are 1.96 times 0.05 and the root of 0.3 * 0.7 / 100, which is 0.046.
    np.testing.assert_allclose(found.original_interval[0], 0.402, atol=5e-4)
    np.testing.assert_allclose(found.interval[0][1::2], 0.210, atol=5e-4)
    by_both = [found.covered("population", by)[1::2].tolist() for by in ("original", "synthetic")]
    assert by_both == [[True, False, True], [False, True, False]]
    assert found.covered(by="original").all() and not found.covered().any()
    summary = found.summary()
    assert summary["covers_population"] == pytest.approx(1 / 3)
    assert summary["original_covers_population"] == pytest.approx(2 / 3)
    assert summary["mean_difference_from_population"] == pytest.approx((0.28 + 0.05 + 0.28) / 3)
    of_original = summary["original_mean_difference_from_population"]
    assert of_original == pytest.approx((0.08 + 0.15 + 0.08) / 3)
    alone = bnp.evaluation.proportions(original, [file], 1)
    assert not {name for name in alone.summary() if "population" in name}
    with pytest.raises(ValueError, match="no population was given"):
        alone.covered("population")


def test_cells_near_none_and_near_all_are_not_judged():
    found = bnp.evaluation.proportions(binary(9, 10, 91), [binary(50, 50, 50)], 1)
    assert found.count.tolist() == [91, 9, 90, 10, 9, 91]
    assert found.judged.tolist() == [False, False, True, True, False, False]
    np.testing.assert_array_equal(np.isnan(found.overlap), ~found.judged)
    assert found.summary()["cells_judged"] == len(found.covered()) == 2
    rare = bnp.evaluation.proportions(binary(9), [binary(50)], 1).summary()
    assert rare["cells_judged"] == 0 and rare["overlap"] is rare["covers_original"] is None
    assert bnp.evaluation.proportions(binary(9), [binary(50)], 1, min_count=9).judged.all()


def test_the_original_itself_overlaps_with_itself(files):
    original, _, _ = files
    shuffled = bnp.Microdata(SCHEMA, original.codes[::-1])
    for order in (1, 2, 3):
        summary = bnp.evaluation.proportions(original, [original, shuffled], order).summary()
        assert summary["overlap"] == summary["covers_original"] == 1
        assert summary["largest_difference"] < 1e-12 and summary["overlap_below_half"] == 0


def test_a_bad_file_fits_badly(files):
    original, synthetic, _ = files
    rng = np.random.default_rng(1)
    independent = [
        bnp.Microdata(SCHEMA, rng.permuted(original.codes, axis=0)) for _ in range(5)
    ]  # fmt: skip
    good, bad = (bnp.evaluation.proportions(original, made, 2) for made in (synthetic, independent))
    assert bad.summary()["overlap"] < 0.65 < 0.7 < good.summary()["overlap"]
    assert bad.summary()["covers_original"] < 0.8
    assert good.summary()["covers_original"] > 0.9
    assert bad.fit["variables"][0] == ("a", "c") and bad.fit["pmse_ratio"][0] > 10


def test_missing_values_count_where_they_can(files):
    original, synthetic, _ = files
    codes = original.codes.copy()
    codes[:100, 0] = -1
    compared = bnp.evaluation.proportions(bnp.Microdata(SCHEMA, codes), synthetic, 2)
    whole = bnp.evaluation.proportions(original, synthetic, 2)
    rest = bnp.evaluation.proportions(bnp.Microdata(SCHEMA, codes[100:]), synthetic, 2)
    with_a = (compared.tables == 0).any(axis=1)[compared.table]
    np.testing.assert_array_equal(compared.original[~with_a], whole.original[~with_a])
    np.testing.assert_array_equal(compared.original[with_a], rest.original[with_a])
    codes[:] = -1
    with pytest.raises(ValueError, match="no record with values of all of a, b"):
        bnp.evaluation.proportions(bnp.Microdata(SCHEMA, codes), synthetic, 2)


def test_many_variables_are_sampled():
    levels = tuple(map(str, range(5)))
    schema = bnp.Schema(tuple(f"v{j}" for j in range(12)), (levels,) * 12)
    rng = np.random.default_rng(3)
    a, b = (bnp.Microdata(schema, rng.integers(5, size=(500, 12))) for _ in range(2))
    compared = bnp.evaluation.proportions(a, [b], 3, max_tables=30)
    assert (len(compared.tables), compared.left_out) == (30, 190)
    assert len(set(map(tuple, compared.tables))) == 30
    again = bnp.evaluation.proportions(a, [b], 3, max_tables=30)
    np.testing.assert_array_equal(compared.tables, again.tables)
    other = bnp.evaluation.proportions(a, [b], 3, max_tables=30, key=jax.random.key(1))
    assert (compared.tables != other.tables).any()
    assert len(bnp.evaluation.proportions(a, [b], 3, max_cells=1000).original) == 1000
    with pytest.raises(ValueError, match="more than 100 cells"):
        bnp.evaluation.proportions(a, [b], 3, max_cells=100)
    wide = bnp.Schema(tuple(f"v{j}" for j in range(300)), (("0", "1"),) * 300)
    a = bnp.Microdata(wide, rng.integers(2, size=(50, 300)))
    compared = bnp.evaluation.proportions(a, [a], 3, max_tables=50)
    assert len(compared.tables) == 50 and compared.left_out == 300 * 299 * 298 // 6 - 50


def test_files_of_other_variables_are_refused(files):
    original, synthetic, _ = files
    other = bnp.Microdata(bnp.Schema(("x",), (("0", "1"),)), np.array([[0], [1]]))
    with pytest.raises(ValueError, match="other variables"):
        bnp.evaluation.proportions(original, [other], 1)
    with pytest.raises(ValueError, match="at least one"):
        bnp.evaluation.proportions(original, [], 1)
    with pytest.raises(ValueError, match="order must be from 1 to 4"):
        bnp.evaluation.proportions(original, synthetic, 5)
    with pytest.raises(ValueError, match="combining rule"):
        bnp.evaluation.proportions(original, synthetic, 1, combining="wholly")
