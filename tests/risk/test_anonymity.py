"""k-anonymity by suppression and recoding: every target counted by hand in the protected file."""

import itertools

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.risk.anonymity import Anonymity, missed
from bnp_models.risk.suppression import _hitting, suppress_rare

SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(k)) for k in (2, 3, 4, 3)))


def table_of(seed, n=40):
    return bnp.Microdata(SCHEMA, np.random.default_rng(seed).integers(0, SCHEMA.num_levels, (n, 4)))


def plain_counts(original, released, columns, stratum):
    """For each record of a file: the records of it, and those before, that it cannot be told from.

    In the file a suppressed value, -1, may stand for any, of either record.
    """
    wild, before = [], []
    for i, own in enumerate(released[:, columns]):
        same = stratum == stratum[i]
        others = released[:, columns]
        wild.append((((others == own) | (others < 0) | (own < 0)).all(axis=1) & same).sum())
        before.append((((original[:, columns] == own) | (own < 0)).all(axis=1) & same).sum())
    return np.array(wild), np.array(before)


@pytest.mark.parametrize("targets", [
    [Anonymity(3)], [Anonymity(4, size=2)], [Anonymity(5, variables=("a", "c"))],
    [Anonymity(2, size=3), Anonymity(6, size=1)],
])  # fmt: skip
@pytest.mark.parametrize("with_strata", [False, True])
def test_every_combination_is_common(targets, with_strata):
    table = table_of(1)
    stratum = np.arange(40) % 2 if with_strata else None
    where = np.zeros(40, int) if stratum is None else stratum
    mask = suppress_rare(table, targets, np.ones(4), stratum)
    released = np.where(mask, -1, table.codes)
    for target in targets:
        columns = target.columns(SCHEMA)
        unsafe = np.zeros(40, bool)
        for chosen in itertools.combinations(columns, target.size or len(columns)):
            wild, before = plain_counts(table.codes, released, list(chosen), where)
            assert (wild >= target.k).all() and (before >= target.k).all()
            unsafe |= plain_counts(table.codes, table.codes, list(chosen), where)[1] < target.k
        nothing = np.zeros_like(mask)
        assert (missed(table, target, nothing, stratum) == unsafe).all()
        assert not missed(table, target, mask, stratum).any()
    assert mask.any() and not mask.all(axis=1).all()


def test_no_suppression_is_superfluous():
    table, target = table_of(2), Anonymity(3)
    mask = suppress_rare(table, [target], np.ones(4))
    for row, column in np.argwhere(mask):
        fewer = mask.copy()
        fewer[row, column] = False
        assert missed(table, target, fewer)[row]


def test_cheap_values_are_suppressed_first():
    assert _hitting([(0, 1), (1, 2)], np.ones(3)) == [1]
    assert sorted(_hitting([(0, 1), (1, 2)], np.array([1, 9, 1]))) == [0, 2]
    # The first choice is not needed after the others.
    assert sorted(_hitting([(0, 1), (0, 2), (1, 3), (2, 4)], np.ones(5))) == [1, 2]
