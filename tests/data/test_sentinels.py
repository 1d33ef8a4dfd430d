"""Codes among numbers."""

import pytest

from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.sentinels import codes_among

AGES = list(map(str, range(18, 91)))


@pytest.mark.parametrize(
    ("others", "codes"),
    [
        (AGES, ["9999"]), (AGES, ["99"]), (AGES, ["97", "98", "99"]), (AGES, ["999", "998"]),
        (AGES, ["-9", "-8", "-7", "-1"]), (AGES, ["-1"]), (AGES, ["-99"]), (AGES, ["888"]),
        (["1", "2", "3", "4"], ["-9"]), (["1", "2", "3"], ["8", "9"]), (["0", "1"], ["9"]),
        (["0-4", "5-9", "10+"], ["99"]), (["0-4", "5-9", "10+"], ["-9"]),
        ([1, 2, 3], [-9]), (list(range(1920, 2005)), [9999]), ([-120, -3, 50, 700], [-99999]),
        (["0.5", "1.5", "2.25"], ["99"]), (["0", "40"], ["998", "999"]),
        (["0", "1200", "2400", "41310"], ["99999"]), ([], ["-7"]), ([], ["-7", "-1"]),
    ],
)  # fmt: skip
def test_codes(others, codes):
    labels = [*others, *codes]
    assert codes_among(labels, [4] * len(labels)) == codes
    assert codes_among(others, [4] * len(others)) == []
    own = [*others, *map(OwnLevel, map(str, codes))]
    assert codes_among(own, [4] * len(own)) == []


@pytest.mark.parametrize(
    "labels",
    [
        list(map(str, range(100))), [*map(str, range(85)), "85+"], ["-2", "-1", "0", "1", "2"],
        [-12, -9, -1, 0, 5], ["1", "2", "3", "4", "5", "6", "7", "8", "9"], ["98", "99"], ["99"],
        ["1", "2", "3", "4", "6", "8"], ["a", "b", "9"], ["", "unknown"],
        ["Paris", "Rome", "-7"],
    ],
)  # fmt: skip
def test_numbers(labels):
    assert codes_among(labels, [4] * len(labels)) == []


def test_many_records_among_few():
    labels, counts = list(map(str, range(100))), [3] * 100
    assert codes_among(labels, counts) == []
    counts[99] = 20
    assert codes_among(labels, counts) == ["99"]


def test_one_record_that_stands_out_little_is_a_number():
    labels = [*map(str, range(18, 81)), "84", "88", "97"]
    assert codes_among(labels, [1] * len(labels)) == []
