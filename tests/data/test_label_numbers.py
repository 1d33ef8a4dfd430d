"""Labels read as intervals of numbers, against a plain interpretation of how they were made."""

import math
from fractions import Fraction

import numpy as np
import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from bnp_models.data.label_numbers import (
    Interval,
    are_ordered,
    is_no_answer,
    name_of_run,
    plain_number,
    read_numbers,
    require_numbers,
    sorted_labels,
)
from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.statements import codes_meant

INF = math.inf


def whole(*pairs):
    return [None if pair is None else Interval(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        (["under 15", "15 to 24", "25 or more"], [(-INF, 14), (15, 24), (25, INF)]),
        (["less than 15", "Under 15 years old", "< 15 years", "<15"], [(-INF, 14)] * 4),
        (["14 or less", "up to 14", "≤14", "14 and under", "not more than 14"], [(-INF, 14)] * 5),
        (["0 to 14 yrs", "0-14", "0–14", "0 through 14", "age 0 to 14", "0 to <15"], [(0, 14)] * 6),
        (["65+", "65 and over", "65 years or older", "at least 65", "over 64", "≥ 65"],
         [(65, INF)] * 6),
        (["$15,000-$24,999", "£25 000+", "none", "unknown"],
         [(15000, 24999), (25000, INF), None, None]),
        (["1.5 to 2", "2.25"], [(1.5, 2), (2.25, 2.25)]),
        (["-9 to -1", "−5", "+5", 3, 2.0], [(-9, -1), (-5, -5), (5, 5), (3, 3), (2, 2)]),
        (["1 bedroom", "2 bedrooms", "3 or more bedrooms"], [(1, 1), (2, 2), (3, INF)]),
        (["30 hours per week", "40+ hours a week"], [(30, 30), (40, INF)]),
        (["[15, 25)", "[25,30]", "(30, 35]"], [(15, 24), (25, 30), (31, 35)]),
        # The number where two meet belongs to the second.
        (["0-5", "5-10", "10+"], [(0, 4), (5, 9), (10, INF)]),
        # Codes with words, names with numbers, two units, two numbers, several ranges, no range.
        (["1 Married", "2 Widowed", "3"], [None, None, (3, 3)]),
        (["state 1", "5b2", "98 don't know", True, None, ""], [None] * 6),
        (["6 months", "1 year", "2 years"], [None] * 3),
        (["15 24", "15-24-30", "2011-12", "5 years 3 months", "1,5 to 2", "(5,5)"], [None] * 6),
        (["9" * 400, "1e400", "inf", "nan", float("nan"), float("inf")], [None] * 6),
    ],
)  # fmt: skip
def test_labels_as_intervals(labels, read):
    assert read_numbers(labels) == whole(*read)


def test_open_ends_of_numbers_that_are_not_whole():
    under, half, over = read_numbers(["under 1.5", "1.5", "over 2"])
    assert 1.4999 < under.high < 1.5 and half == (1.5, 1.5) and 2 < over.low < 2.0001


LOWS = st.lists(st.integers(-5, 60), min_size=2, max_size=6, unique=True).map(sorted)
SAID = {
    "point": ("{0}", "{0} years", " {0} "),
    "closed": ("{0}-{1}", "{0} to {1}", "{0}–{1}", "{0} to {1} years", "aged {0} to {1}",
               "{0} years to {1} years", "[{0}, {1}]", "{0} and under {2}", "[{0},{2})"),
    "from": ("{0}+", "{0} or more", "{0} and over", "{0} years and older", ">={0}", "≥ {0}",
             "at least {0}", "over {3}", ">{3} yrs", "more than {3}", "{0} plus"),
    "until": ("under {2}", "<{2}", "less than {2} years", "< {2} years old", "up to {1}",
              "{1} or less", "{1} years and under", "<= {1}", "at most {1}"),
}  # fmt: skip
OTHERS = st.lists(
    st.sampled_from(["unknown", "None", "n/a", "Don't know"]), unique=True, max_size=2
)


@st.composite
def variables(draw):
    """Labels of adjacent intervals, and the least and largest whole number of each."""
    lows = draw(LOWS)
    pairs = [(low, high - 1) for low, high in zip(lows, lows[1:], strict=False)]
    if draw(st.booleans()):
        pairs.append((lows[-1], INF))
    if draw(st.booleans()):
        pairs.insert(0, (-INF, lows[0] - 1))
    labels = []
    for low, high in pairs:
        kind = "until" if low == -INF else "from" if high == INF else "closed"
        if kind == "closed" and low == high and draw(st.booleans()):
            kind = "point"
        form = draw(st.sampled_from(SAID[kind]))
        ends = [0 if math.isinf(end) else end for end in (low, high, high + 1, low - 1)]
        labels.append(form.format(*ends))
    return labels, pairs, draw(OTHERS)


@fuzzed()
@given(variables(), st.randoms(use_true_random=False))
def test_labels_are_read_as_they_were_made(made, random):
    labels, pairs, others = made
    # An interval that begins and ends at one number, or adjacent ones, share no number.
    assert read_numbers([*labels, *others]) == whole(*pairs, *[None] * len(others))
    assert are_ordered(labels)
    mixed = [*labels, *others]
    random.shuffle(mixed)
    assert sorted_labels(mixed)[: len(labels)] == labels


@fuzzed()
@given(variables(), st.integers(-8, 65), st.integers(0, 20),
       st.sampled_from(["<", "<=", ">", ">=", "-"]))  # fmt: skip
def test_statements_mean_the_levels_whose_numbers_they_hold(made, number, more, sign):
    labels, pairs, others = made
    grid = np.arange(-200, 300)
    test = {"<": grid < number, "<=": grid <= number, ">": grid > number, ">=": grid >= number,
            "-": (grid >= number) & (grid <= number + more)}[sign]  # fmt: skip
    text = f"{number} to {number + more}" if sign == "-" else f"{sign}{number}"
    shares = [test[(grid >= low) & (grid <= high)].mean() for low, high in pairs]
    if text in labels:
        return
    if any(0 < share < 1 for share in shares):
        said = "contains only a part of the level"
    elif not any(shares):
        said = "contains no level"
    else:
        assert codes_meant(text, [*labels, *others]).tolist() == np.flatnonzero(shares).tolist()
        return
    with pytest.raises(MicrodataError, match=said):
        codes_meant(text, [*labels, *others])


@fuzzed()
@given(variables(), st.data())
def test_the_name_of_levels_that_became_one_is_read_as_all_of_them(made, data):
    labels, pairs, _ = made
    first = data.draw(st.integers(0, len(labels) - 1))
    last = data.draw(st.integers(first, len(labels) - 1))
    low, high = pairs[first][0], pairs[last][1]
    if first < last and (low, high) != (-INF, INF):
        assert read_numbers([name_of_run(labels[first : last + 1])]) == [(low, high)]


def test_names_of_levels_that_became_one():
    assert name_of_run([3, 4]) == "3 to 4"
    assert name_of_run(["17 to 19", "20"]) == "17 to 20"
    assert name_of_run(["01", "02"]) == "01 to 02"
    assert name_of_run(["15 to 24 years", "25 to 34 years"]) == "15 to 34 years"
    assert name_of_run(["under 15", "15 to 24"]) == "24 or less"
    assert name_of_run(["small", "middle", "large"]) == "small to large"


def test_the_label_that_cannot_be_read_is_named():
    assert require_numbers(["5-9", "none"], "a rule") == [Interval(5, 9), None]
    with pytest.raises(MicrodataError, match="level 'abroad' cannot be .* as '<15' needs it"):
        codes_meant("<15", ["10", "abroad", "20"])
    assert [is_no_answer(x) for x in ("No children", "N/A", "?", "one", "10")] == [True] * 3 + [
        False
    ] * 2


def test_numbers_that_are_no_range():
    spelt = {
        "7": 7,
        " -1.5 ": Fraction(-3, 2),
        2.5: Fraction(5, 2),
        "1e2": 100,
        ".5": Fraction(1, 2),
    }
    for label, number in spelt.items():
        assert plain_number(label) == number
    for label in ("5-9", "1/3", "1,000", "", True, None, "1e999", "٣"):
        assert plain_number(label) is None


@pytest.mark.parametrize(
    "labels",
    [
        ["-1", "9", "10"],
        ["1.25", "1.5", "10"],
        [1, 2.5, 10],
        ["9", "10", "x"],
        ["$9,500", "$30,000", "$100,000", "$1,000,000"],
        ["Under 5", "5 to 8", "9 to 12", "10+", "unknown"],
        ["less than 15", "15 to 24", "25 or more"],
        ["x1", "x2", "x10", "y"],
        ["1 married", "2 widowed", "10 single"],
        ["1 to 1.25", "1 to 1.5"],
        ["B", "a", "b"],
    ],
)
def test_labels_are_sorted_as_numbers_or_with_numbers_by_size(labels):
    assert sorted_labels(labels[::-1]) == labels
