"""Validation within the sample: truths by hand, and sentences with a direction."""

import jax
import numpy as np

import bnp_models as bnp
from bnp_models.risk import validation
from bnp_models.risk.validation import Split, Validation


def split(truth, estimates):
    return Split(50, truth, np.array([estimates], float))


def test_parts_are_of_the_sample_and_truths_those_of_it(small, monkeypatch):
    parts, right = [], validation.sample

    def sample(model, part, **how):
        parts.append(part)
        return right(model, part, **how)

    monkeypatch.setattr(validation, "sample", sample)
    found = bnp.validate_within(
        bnp.NPLCM(components=4), small.table, key=jax.random.key(1), num_splits=2, fraction=0.5,
        num_chains=2, num_warmup=20, num_samples=20,
    )  # fmt: skip
    assert len(found.splits) == len(parts) == 2
    cells, counts = np.unique(small.table.codes, axis=0, return_counts=True)
    alone = {tuple(cell) for cell in cells[counts == 1]}
    for one, part in zip(found.splits, parts, strict=True):
        assert one.tau1.shape == (2, 20) and part.n == small.table.n // 2
        assert one.sample_uniques == len(part.cells().sample_uniques)
        # Uniques of the whole in the part are among the part's.
        assert 0 < one.truth == sum(tuple(record) in alone for record in part.codes)
    assert found.splits[0].truth != found.splits[1].truth or not np.array_equal(
        found.splits[0].tau1, found.splits[1].tau1
    )
    document = found.document()
    assert document["fraction"] == 0.5 and len(document["splits"]) == 2
    assert document["covered"] == sum(one.covered for one in found.splits)


def test_the_direction_of_the_error_is_said():
    low, fits, high = split(20, [5, 6, 7]), split(6, [5, 6, 7]), split(2, [5, 6, 7])
    assert Validation((fits, fits, high), 0.25).warnings() == []
    (sentence,) = Validation((fits, high, high), 0.25).warnings()
    assert "2 of 3 splits" in sentence and "probably too high" in sentence
    assert "estimates are 1.80 times the truth" in sentence
    (sentence,) = Validation((low, low, fits), 0.25).warnings()
    assert "probably too low" in sentence
    assert Validation((split(0, [0, 1]),), 0.25).document()["ratio"] is None
