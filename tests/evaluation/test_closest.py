"""Distances to the closest record: all pairs in plain Python, copies and fresh samples."""

import jax
import numpy as np
import pytest
from dependent import SCHEMA

import bnp_models as bnp


def all_pairs(records, others, itself=False):
    """Share of records at each distance from the closest of the others."""
    nearest = []
    for i, record in enumerate(records):
        known = np.delete(others, i, axis=0) if itself else others
        nearest.append(min(int((record != other).sum()) for other in known))
    return np.bincount(nearest, minlength=records.shape[1] + 1) / len(records)


def test_all_pairs(files):
    original, synthetic, _ = files
    small = [bnp.Microdata(SCHEMA, t.codes[:150]) for t in (original, *synthetic[:2])]
    found = bnp.evaluation.closest_records(small[0], small[1:], small[2])
    expected = np.mean([all_pairs(t.codes, small[0].codes) for t in small[1:]], axis=0)
    np.testing.assert_allclose(found.share_by_distance, expected)
    own = all_pairs(small[0].codes, small[0].codes, itself=True)
    np.testing.assert_allclose(found.original_by_distance, own)
    expected = np.mean([all_pairs(t.codes, small[2].codes) for t in small[1:]], axis=0)
    np.testing.assert_allclose(found.holdout_by_distance, expected)


def wide(rng, n, of=None):
    """Records of twelve variables of five levels, or some of those that there are."""
    schema = bnp.Schema(tuple("abcdefghijkl"), (tuple(range(5)),) * 12)
    codes = rng.integers(5, size=(n, 12))
    if of is not None:
        codes[: n // 4] = of.codes[rng.integers(of.n, size=n // 4)]
    return bnp.Microdata(schema, codes)


def test_a_fresh_sample_is_as_close_to_the_holdout_and_one_with_copies_is_not():
    rng = np.random.default_rng(0)
    original, holdout = wide(rng, 800), wide(rng, 1300)
    fresh = bnp.evaluation.closest_records(original, [wide(rng, 800)], holdout)
    assert abs(fresh.closer_to_original - 0.5) < 4 * fresh.standard_error
    assert fresh.holdout_by_distance is not None
    copied = bnp.evaluation.closest_records(original, [wide(rng, 800, original)], holdout)
    assert copied.closer_to_original > 0.5 + 4 * copied.standard_error
    assert copied.share_by_distance[0] == pytest.approx(0.25)


def test_as_many_records_are_taken_of_the_original_as_of_the_holdout():
    """Eight records that have no value in common: two of either side are taken, whichever."""
    schema = bnp.Schema(tuple("abc"), (tuple(range(8)),) * 3)
    many, few = (bnp.Microdata(schema, np.repeat(x[:, None], 3, axis=1))
                 for x in (np.arange(6), np.arange(6, 8)))  # fmt: skip
    for seed in range(3):
        found = bnp.evaluation.closest_records(many, many, few, key=jax.random.key(seed))
        # Two of six are copies of what is taken, and the others are as far from both.
        assert found.closer_to_original == pytest.approx((2 + 4 / 2) / 6)
        assert found.share_by_distance == (1, 0, 0, 0)
        assert found.holdout_by_distance == (0, 0, 0, 1)
        found = bnp.evaluation.closest_records(few, many, many, key=jax.random.key(seed))
        assert found.closer_to_original == pytest.approx((4 / 2) / 6)
        np.testing.assert_allclose(found.holdout_by_distance, [2 / 6, 0, 0, 4 / 6])


def test_without_a_holdout_and_with_incomplete_records():
    rng = np.random.default_rng(1)
    original = wide(rng, 300)
    codes = np.array(original.codes)
    codes[:100, 0] = -1
    found = bnp.evaluation.closest_records(original, [bnp.Microdata(original.schema, codes)])
    assert found.share_by_distance[0] == 1
    assert found.closer_to_original is None and found.holdout_by_distance is None
    with pytest.raises(ValueError, match="no complete record"):
        bnp.evaluation.closest_records(
            original, [bnp.Microdata(original.schema, np.full((3, 12), -1))]
        )
