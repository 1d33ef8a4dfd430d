"""SUDA scores and l-diversity: by hand, by brute force, and as sdcMicro's guide has them."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.risk import rare_combinations
from bnp_models.risk.rare_combinations import Rows, minimal_rare
from bnp_models.risk.special_uniques import _dis_scores

# Tables 4.3 and 4.5 of the practice guide to sdcMicro (SDCPractice, IHSN).
GUIDE = pd.DataFrame(
    {
        "residence": ["urban"] * 4 + ["rural"] + ["urban"] * 5,
        "gender": list("fffmfmfmff"),
        "education": [
            "secondary-", "secondary-", "primary-", "secondary", "secondary", "secondary",
            "primary", "post", "secondary-", "secondary-",
        ],
        "labour": ["yes", "yes", "none", "yes", "no", "yes", "none", "no", "none", "none"],
        "health": ["yes"] * 5 + ["no", "no", "yes", "no", "yes"],
    }
)  # fmt: skip
KEYS = ["residence", "gender", "education", "labour"]


def plain_minimal(codes, below, largest):
    """Minimal rare combinations of each record, by looking at every set of variables."""
    n, number = codes.shape
    found = []
    for i in range(n):
        rare = []
        for size in range(1, largest + 1):
            for columns in itertools.combinations(range(number), size):
                own = codes[i, columns]
                alike = (codes[:, columns] == own).all(axis=1).sum()
                known = (own >= 0).all()
                if known and alike < below and not any(set(x) <= set(columns) for x in rare):
                    rare.append(columns)
        found.append(sorted(rare))
    return found


@pytest.mark.parametrize(("below", "largest", "missing"), [(2, 4, 0), (3, 4, 0.2), (4, 2, 0)])
def test_minimal_rare_combinations_by_brute_force(below, largest, missing):
    rng = np.random.default_rng(below)
    codes = rng.integers(0, [2, 3, 4, 3], (25, 4))
    codes[rng.random(codes.shape) < missing] = -1
    found = [[] for _ in codes]
    rows = Rows(codes, np.ones(len(codes), int), (2, 3, 4, 3))
    for columns, where in minimal_rare(rows, below, largest):
        for row in where:
            found[row].append(columns)
    plain = plain_minimal(codes, below, largest)
    assert any(plain) and [sorted(x) for x in found] == plain


def test_suda_of_the_guide():
    scores = bnp.risk.suda(GUIDE[KEYS])
    assert scores.score.tolist() == [0, 0, 6, 0, 12, 0, 6, 10, 0, 0]
    # The same with the maximum of its example, 3; with 2 the last factor is left out.
    assert bnp.risk.suda(GUIDE[KEYS], 3).score.tolist() == scores.score.tolist()
    assert bnp.risk.suda(GUIDE[KEYS], 1).score.tolist() == [0, 0, 3, 0, 3, 0, 3, 3, 0, 0]
    assert scores.number[4] == 4 and scores.smallest[4] == 1
    # U = 4, three pairs, f = 0.01: 594 = 6 * 99, and q = 1.2.
    weight = np.array([6, 12, 6, 10]) ** 1.2
    expected = 1 / (1 + 594 / (weight * (1 / weight).sum()))
    np.testing.assert_allclose(scores.dis[[2, 4, 6, 7]], expected, rtol=1e-12)


def test_dis_scores_of_the_guide():
    """Its printed figures are those of other scores, which sdcMicro had before."""
    score = np.array([0, 1.75, 0, 3.25, 1.75, 2.75, 0])
    dis = _dis_scores(score, np.array([2, 1, 2, 1, 1, 1, 2]), 4, 0.01)
    printed = [0, 0.005120313, 0, 0.010702061, 0.005120313, 0.008775093, 0]
    np.testing.assert_allclose(dis, printed, atol=5e-9)


def test_suda_of_other_examples():
    """Those of sdcMicro's own tests."""
    people = pd.DataFrame({"a": [2, 1, 1], "b": [0, 3, 0], "c": [0, 6, 0]})
    assert bnp.risk.suda(people).contributions == {"a": 0.5, "b": 0.375, "c": 0.375}
    book = pd.DataFrame(
        {
            "age": ["20s"] * 7 + ["60s"],
            "gender": ["m"] * 4 + ["f"] * 3 + ["m"],
            "income": ["50k+"] * 2 + ["50k-"] * 6,
            "education": ["high"] * 4 + ["university", "high", "middle", "university"],
        }
    )
    assert bnp.risk.suda(book).score[4:].tolist() == [4, 2, 6, 8]


def test_suda_by_brute_force():
    codes = np.random.default_rng(0).integers(0, 3, (30, 4))
    table = bnp.Microdata(bnp.Schema(tuple("abcd"), (tuple(range(3)),) * 4), codes)
    for largest in (2, 4):
        last = min(largest, 3)
        expected = [
            sum(math.prod(4 - i for i in range(len(x), last + 1)) for x in of_one)
            for of_one in plain_minimal(codes, 2, largest)
        ]
        assert max(expected) > 0
        assert bnp.risk.suda(table, largest).score.tolist() == expected


def test_suda_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="max_size must be from 1 to 4"):
        bnp.risk.suda(GUIDE[KEYS], 5)
    with pytest.raises(ValueError, match="dis_fraction must be between 0 and 1"):
        bnp.risk.suda(GUIDE[KEYS], dis_fraction=1)
    monkeypatch.setattr(rare_combinations, "MOST_COMBINATIONS", 14)
    assert bnp.risk.suda(GUIDE[KEYS], 3).score.sum() == 34
    with pytest.raises(ValueError, match="4 variables have 15 combinations of up to 4"):
        bnp.risk.suda(GUIDE[KEYS])


def test_l_diversity_of_the_guide():
    found = bnp.risk.l_diversity(GUIDE, KEYS, "health")
    assert found["distinct"].tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 2, 2]
    assert found["records"].tolist() == [2, 2, 1, 2, 1, 2, 1, 1, 2, 2]
    np.testing.assert_allclose(found["entropy"], found["distinct"])


def test_l_diversity_by_hand():
    people = pd.DataFrame({"sex": list("ffffmm"), "ill": ["a", "a", "a", "b", "c", None]})
    found = bnp.risk.l_diversity(people, ["sex"], "ill")
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found["distinct"].tolist() == [2, 2, 2, 2, 1, 1]
    np.testing.assert_allclose(found["entropy"], [math.exp(entropy)] * 4 + [1, 1])


def test_l_diversity_is_refused():
    with pytest.raises(bnp.MicrodataError, match="sensitive variable is a key too"):
        bnp.risk.l_diversity(GUIDE, ["gender", "health"], "health")
    gaps = GUIDE.assign(gender=[None, *"ffmfmfmff"])
    with pytest.raises(bnp.MicrodataError, match="needs complete keys"):
        bnp.risk.l_diversity(gaps, KEYS, "health")
