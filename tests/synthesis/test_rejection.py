"""Households that keep rules of which the chains knew nothing, of the restricted distribution."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from exact_households import Exact
from goodness import P_LIMIT, chi_square_p_value

import bnp_models as bnp
from bnp_models.inference import simulated_households
from bnp_models.rules import exactly, person

COPIES = 300


def without_rules(case):
    """A run without the rules of a case, on many copies of its households; and the case."""
    exact = Exact(case)
    table = exact.table.select(np.tile(np.arange(exact.table.n), COPIES))
    return dataclasses.replace(exact.run, table=table, conditions=None), exact


def households_of(frame, table):
    schema = table.schema
    return bnp.Households.from_frame(
        frame, "hid", list(schema.household_level), levels=schema.table, head=schema.head
    )


def keys_of(table):
    """Size, codes of the household and sorted codes of its members, of each household."""
    members = np.split(table.member_codes, np.cumsum(np.bincount(table.member_household))[:-1])
    return [
        (size, *codes, *sorted(map(tuple, own)))
        for size, codes, own in zip(table.sizes, table.household_codes, members, strict=True)
    ]


@pytest.mark.parametrize("case", ["tables", "relative rules", "no closed form"])
def test_households_follow_the_restricted_distribution(case):
    """Of each file, given its draw and the sizes, by going through all possible households."""
    run, exact = without_rules(case)
    everything, p = exact.all
    keys = keys_of(everything)
    # In files the head comes first; the order of the members tells nothing.
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    sizes = np.array([key[0] for key in place])
    p = [np.bincount([place[key] for key in keys], row) for row in p]
    files = bnp.synthesize(run, 3, conditions=exact.rules)
    for row, file in zip(p, files, strict=True):
        made = households_of(file, run.table)
        assert exact.rules.check(made).all()
        np.testing.assert_array_equal(np.sort(made.sizes), np.sort(run.table.sizes))
        counts = np.bincount([place[key] for key in keys_of(made)], minlength=len(row))
        for size in np.unique(made.sizes):
            at = sizes == size
            if at.sum() > 1:
                assert chi_square_p_value(counts[at], row[at] / row[at].sum()) > P_LIMIT
                assert chi_square_p_value(counts[at], np.ones(at.sum())) < P_LIMIT
    # The chains themselves make impossible households.
    free = bnp.synthesize(run, 3)
    assert not exact.rules.check(households_of(free[0], run.table)).all()
    again = bnp.synthesize(run, 3, conditions=exact.rules)
    pd.testing.assert_frame_equal(files[2], again[2])


def test_rules_that_cannot_be_kept(monkeypatch):
    run, exact = without_rules("tables")
    zeros = pd.DataFrame({"home": ["own"]})
    for chains, conditions, more, problem in (
        (exact.run, exact.rules, {}, "the chains had structural zeros or rules"),
        (run, zeros, {}, "takes Rules, not DataFrame"),
        (run, exact.rules, {"keep": ["home"]}, "without keep"),
    ):
        with pytest.raises(ValueError, match=problem):
            bnp.synthesize(chains, 1, conditions=conditions, **more)
    monkeypatch.setattr(simulated_households, "_MAX_TRIED", 1000)
    nobody = bnp.Rules([exactly(7, person(role="head"))])
    with pytest.raises(RuntimeError, match="rules that exclude too much"):
        bnp.synthesize(run, 1, conditions=nobody)
