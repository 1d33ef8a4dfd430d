"""The file that is released: what its columns tell of the changes, by hand over all records."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError
from bnp_models.risk.recoding import Recoded
from bnp_models.risk.released import NEARLY, release, told
from bnp_models.risk.verdict import Limits, Verdict

N = 300
YES = Verdict(True, "within", Limits(max_tau1=5), None)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    years = rng.integers(0, 90, N)
    group = np.array(["0-14", "15-39", "40-64", "65+"])[np.digitize(years, [15, 40, 65])]
    work = np.where(years < 15, "", rng.choice(["employed", "none", "retired"], N))
    degree = rng.choice(["basic", "college", "master"], N, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({
        "group": group, "degree": degree, "town": rng.choice(list("abcd"), N),
        "years": years.astype(str), "work": work,
        "code": pd.Series(degree).map({"basic": "9", "college": "13", "master": "14"}),
        "weight": rng.permutation(N).astype(str), "income": rng.choice(list("12345"), N),
    })  # fmt: skip


@pytest.fixture(scope="module")
def table(frame):
    return bnp.Microdata.from_frame(frame, ["group", "degree", "town"])


def released_of(table, frame, carry=(), link=None, recoded=None, suppressed=None):
    recoded = recoded or Recoded.unchanged(table)
    codes = recoded.coarsening.coarser(table).codes
    mask = np.zeros(codes.shape, bool) if suppressed is None else suppressed
    labels = bnp.Microdata(recoded.coarsening.schema, np.where(mask, -1, codes)).to_frame()
    return release(table, recoded, mask, labels, frame, carry, link or {})


def some_suppressed():
    """Values of each variable in a tenth of the records."""
    return np.random.default_rng(1).random((N, 3)) < 0.1


def guesses(by, of, within, in_order):
    """For each record, the level that most others with its value have; None where there is none."""
    found = []
    for i in range(len(by)):
        others = [k for k in range(len(by)) if k != i and within[k] == within[i]]
        same = [k for k in others if by[k] == by[i]]
        if not same and in_order:
            ends = []
            for side in (
                [k for k in others if by[k] < by[i]],
                [k for k in others if by[k] > by[i]],
            ):
                if side:
                    at = side[np.abs(by[side] - by[i]).argmin()]
                    ends.append(
                        int(np.bincount(of[[k for k in others if by[k] == by[at]]]).argmax())
                    )
            found.append(ends[0] if len(set(ends)) == 1 else None)
        else:
            found.append(_most(of[same]))
    return found


def _most(levels):
    if not len(levels):
        return None
    number = np.bincount(levels, minlength=1)
    return int(number.argmax()) if (number == number.max()).sum() == 1 else None


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.6])
def test_levels_are_guessed_from_all_other_records(in_order, noise):
    rng = np.random.default_rng(4)
    within = rng.integers(0, 2, 80)
    by = rng.integers(0, 30, 80)
    of = np.where(rng.random(80) < noise, rng.integers(0, 2, 80), by // 15)
    guess = guesses(by, of, within, in_order)
    made = np.array([one is not None for one in guess])
    wrong = made & (np.array(guess) != of)
    without = made.sum() - sum(np.bincount(of[made & (within == g)]).max() for g in (0, 1))
    saved, known = told(by, of, within, in_order)
    assert saved == pytest.approx(max(0, 1 - wrong.sum() / without))
    assert (saved >= NEARLY) == (noise < 0.1)
    if saved >= NEARLY:
        assert (known == ~wrong).all()


def test_what_is_the_same_by_chance_tells_nothing():
    rng = np.random.default_rng(5)
    common = (rng.random(1000) < 0.92).astype(int)
    for size in (5, 20, 100, 300, 1000):
        for in_order in (False, True):
            saved, known = told(rng.integers(0, size, 1000), common, in_order=in_order)
            assert saved < 0.2 and not known.any()
    children = rng.integers(0, 5, 1000)
    saved, known = told(np.where(children == 0, 0, rng.integers(1, 6, 1000)), children)
    # In part only: no other record has an occupation like that of children.
    assert saved < NEARLY and (known == (children == 0)).all()


def test_columns_that_nobody_declared_are_left_out(table, frame):
    made = released_of(table, frame)
    assert list(made.frame) == ["group", "degree", "town"]
    assert {one.role for one in made.columns} == {"key"}
    assert made.judge(YES) == YES


def test_exact_values_beside_groups_tell_what_was_suppressed(table, frame):
    mask = some_suppressed()
    made = released_of(table, frame, ["years", "income"], suppressed=mask)
    assert (made.frame["years"] == frame["years"]).all()
    assert made.suppressed_told == mask[:, 0].sum() > 10 and made.suppressed == mask.sum()
    (found,) = [one for one in made.read_back if one.saved >= NEARLY]
    assert (found.column, found.variable) == ("years", "group")
    verdict = made.judge(YES)
    assert verdict.release is False
    assert f"'years', released beside the key variables, tells {mask[:, 0].sum()} of" in verdict.why
    # Nobody who has not declared it has it in his file, nor what children do not have.
    assert released_of(table, frame, ["income"], suppressed=mask).judge(YES).release is True
    gaps = released_of(table, frame, ["work"], suppressed=mask)
    children = (frame["group"] == "0-14").to_numpy()
    assert gaps.suppressed_told == (mask[:, 0] & children).sum() > 0


def test_merged_and_dropped_levels_are_told_too(table, frame):
    recoded = Recoded.unchanged(table).merging(1, [1, 2])
    made = released_of(table, frame, ["code"], recoded=recoded)
    assert made.merged_told == frame["degree"].isin(["college", "master"]).sum()
    assert "tells 0 of 0 suppressed values" in made.judge(YES).why
    dropped = released_of(table, frame, ["code"], recoded=Recoded.unchanged(table).dropping(1))
    assert dropped.merged_told == N and dropped.judge(YES).release is False


def test_linked_columns_are_changed_alike(table, frame):
    mask = some_suppressed()
    recoded = Recoded.unchanged(table).merging(1, [1, 2]).merging(0, [2, 3])
    link = {"code": "degree", "years": "group"}
    made = released_of(table, frame, link=link, recoded=recoded, suppressed=mask)
    assert made.suppressed_told == made.merged_told == 0
    assert made.frame["code"].isna().tolist() == mask[:, 1].tolist()
    left = made.frame[~mask[:, 1]]
    assert set(zip(left["degree"], left["code"], strict=True)) == {
        ("basic", "9"), ("college + master", "13 to 14")
    }  # fmt: skip
    old = frame["years"].astype(int) >= 40
    assert (made.frame["years"][old & ~mask[:, 0]] == "40 to 89").all()
    assert (made.frame["years"] == frame["years"])[~old & ~mask[:, 0]].all()
    # Exact ages below 40 are left, which tell more than the groups of which the risk is known.
    number = {one.column: one.sample_uniques for one in made.columns}
    assert number["code"] == made.uniques_of_keys == number["group"] < number["years"]
    verdict = made.judge(YES)
    assert verdict.release is None and "make 'years' the key variable" in verdict.why
    assert made.judge(YES._replace(release=False)).release is False
    only = released_of(table, frame, link={"code": "degree"}, recoded=recoded, suppressed=mask)
    assert only.judge(YES).release is True
    gone = Recoded.unchanged(table).dropping(1)
    assert list(released_of(table, frame, link={"code": "degree"}, recoded=gone).frame) == [
        "group", "town"
    ]  # fmt: skip


def test_uniques_by_the_columns_that_are_released(table, frame):
    mask = some_suppressed()
    made = released_of(table, frame, ["income"], {"code": "degree"}, suppressed=mask)

    def alone(names):
        keys = ["group", "degree", "town"]
        number = 0
        for i in range(N):
            kept = [
                name for name in names
                if not mask[i, keys.index({"code": "degree"}.get(name, name))]
            ] if names != ["income"] else names  # fmt: skip
            number += (frame[kept] == frame[kept].iloc[i]).all(axis=1).sum() == 1
        return number

    assert made.uniques_of_keys == alone(["group", "degree", "town"]) > 0
    number = {one.column: one.sample_uniques for one in made.columns}
    assert number["code"] == alone(["group", "degree", "town", "code"])
    both = 0
    for i in range(N):
        kept = [x for j, x in enumerate(["group", "degree", "town"]) if not mask[i, j]]
        kept.append("income")
        both += (frame[kept] == frame[kept].iloc[i]).all(axis=1).sum() == 1
    assert number["income"] == both > made.uniques_of_keys


@pytest.mark.parametrize(
    ("carry", "link", "problem"),
    [
        (["no"], {}, "unknown column"),
        (["town"], {}, "is a key variable"),
        ([], {"code": "no"}, "unknown key variable"),
        (["code"], {"code": "degree"}, "leave out one"),
    ],
)
def test_what_is_refused(table, frame, carry, link, problem):
    with pytest.raises(MicrodataError, match=problem):
        released_of(table, frame, carry, link)
