"""Small cells and recurring uniques, by hand."""

import numpy as np
from dependent import SCHEMA

import bnp_models as bnp


def test_k_anonymity_and_uniques_by_hand():
    schema = bnp.Schema(("x", "y"), (tuple("abc"), tuple("pq")))
    a = bnp.Microdata(schema, np.array([[0, 0]] * 4 + [[1, 0]] * 2 + [[2, 0], [2, 1], [0, -1]]))
    b = bnp.Microdata(schema, np.array([[2, 0], [2, 1], [2, 1], [0, 1]]))
    assert [tuple(row) for row in bnp.k_anonymity(a)] == [
        (2, 2, 0.25), (3, 4, 0.5), (5, 8, 1.0)
    ]  # fmt: skip
    assert bnp.evaluation.replicated_uniques(a, [b, a]) == (2, (2, 2), (1, 2), 2, 2)
    c = bnp.Microdata(schema, np.array([[2, 1], [0, 0]]))
    assert bnp.evaluation.replicated_uniques(a, [b, c]) == (2, (2, 1), (1, 1), 2, 1)


def test_all_uniques_of_the_original_itself_recur(files):
    original, _, _ = files
    shuffled = bnp.Microdata(SCHEMA, original.codes[::-1])
    replicated = bnp.evaluation.replicated_uniques(original, [original, shuffled])
    assert replicated.found == replicated.found_unique == (replicated.uniques,) * 2
    assert replicated.in_all == replicated.uniques


def test_copies_of_the_original_are_told():
    rng = np.random.default_rng(0)
    schema = bnp.Schema(tuple("abcd"), (tuple("123456"),) * 4)
    original, first, second = (rng.integers(0, 6, (200, 4)) for _ in range(3))
    for made, said in (
        (second, None),
        (original[::-1], "b has the same records as the original: if it should be"),
        (original[rng.integers(0, 200, 100)], "every combination of values in b also occurs"),
        (original[:20], None),
        (np.concatenate([original[:100], second[:1]]), None),
        (first[::-1], "b: the same records as an earlier"),
    ):
        tables = [bnp.Microdata(schema, codes) for codes in (original, first, made)]
        warnings = bnp.evaluate(tables[0], tables[1:]).warnings("ab")
        found = [text for text in warnings if "same records" in text or "every combination" in text]
        assert [text[: len(said)] for text in found] == [said] if said else found == []
