"""Codes among numbers, such as 9999, 97 to 99, and -9 to -1."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from bnp_models.data.label_numbers import OwnLevel, plain_number, read_numbers
from bnp_models.data.schema import Label

# Digits of a code: 9, 99 and so on, 88, 77, 66, 97 and 998; below zero any digit.
_ABOVE = re.compile(r"[789]|([6-9])\1+|9+[4-9]")
_BELOW = re.compile(r"[1-9]|([6-9])\1+|9+[4-9]")
_WITHIN = re.compile(r"9+[789]")

# So many times the largest distance between other numbers, a code is away from them: one of three
# digits or more, one of fewer, and one of single records.
_LONG_AWAY, _AWAY, _FAR_AWAY = 1, 2, 10

# Records of a code among the numbers, at the least, and how many times those of its neighbours.
_LEAST, _TIMES = 5, 3


def codes_among(labels: Sequence[Label], counts: Iterable[int]) -> list[Label]:
    """Return the labels that look like codes among numbers, such as a code for "no answer".

    Parameters
    ----------
    labels
        (L,) levels of one variable. An `OwnLevel` is none.
    counts
        (L,) records of each.

    Notes
    -----
    A number can be a code if all its digits are 9, 8 or 7, if it is 94 to 99, 994 to 999 and so on,
    or if it is a negative number of such digits or of one digit. It is taken for a code

    - below zero: if all negative numbers are such codes, and they do not mirror the positive ones,
      as -2 to 2; or if it is far below other negative numbers;
    - above: if it is farther from the next number than other numbers are from each other;
    - within: if it is 97 to 99, 997 to 999 and so on, with many more records than its neighbours.

    Examples
    --------
    >>> from bnp_models.data.sentinels import codes_among
    >>> codes_among(["17", "18", "19", "21", "98", "99", "-1"], [9, 8, 9, 7, 2, 5, 3])
    ['98', '99', '-1']
    """
    counts = list(counts)
    points: dict[Fraction, int] = {}
    for label, count in zip(labels, counts, strict=True):
        if count and (number := plain_number(label)) is not None:
            points[number] = points.get(number, 0) + int(count)
    # Names of many records are not read one by one.
    if not any(_has_form(number, _BELOW) for number in points):
        return []
    among_ranges = _ends_of_ranges(labels)
    if len(points) + len(among_ranges) < 3:
        return []
    found = _below(points, among_ranges) | _above(points, among_ranges) | _within(points)
    return [
        label
        for label, count in zip(labels, counts, strict=True)
        if count and plain_number(label) in found
    ]


def _ends_of_ranges(labels: Sequence[Label]) -> list[tuple[float, float]]:
    """Ends of the labels that are ranges of numbers."""
    read = read_numbers([label for label in labels if not isinstance(label, OwnLevel)])
    return [(one.low, one.high) for one in read if one is not None and one.low < one.high]


def _has_form(number: Fraction, form: re.Pattern[str], least: int = 1) -> bool:
    """Whether a number has the digits of a code."""
    digits = str(abs(number))
    return len(digits) >= least and form.fullmatch(digits) is not None


def _below(points: Mapping[Fraction, int], ranges: Sequence[tuple[float, float]]) -> set[Fraction]:
    """Codes below zero."""
    negative = {number for number in points if number < 0}
    usual = {number for number in negative if not _has_form(number, _BELOW)}
    positive = {number for number in points if number > 0}
    if any(low < 0 for low, _ in ranges):
        return set()
    if usual:
        far = 3 * min(usual)
        return {number for number in negative - usual if number < far}
    if not positive and not ranges:
        return set()
    mirrored = len(negative) > 1 and {-number for number in negative} <= positive
    steps = max(positive, default=Fraction(0)) == -min(negative, default=Fraction(0))
    return set() if mirrored and steps else negative


def _above(points: Mapping[Fraction, int], ranges: Sequence[tuple[float, float]]) -> set[Fraction]:
    """Codes above the other numbers."""
    order = sorted((number for number in points if number >= 0), reverse=True)
    if 2 * len(ranges) > len(order):
        return {number for number in order if _has_form(number, _ABOVE, 2)}
    tops = 0
    while tops < len(order) and _has_form(order[tops], _ABOVE):
        tops += 1
    for k in range(min(tops, len(order) - 2), 0, -1):
        codes, others = order[:k], order[k:]
        gaps = [a - b for a, b in zip(others, others[1:], strict=False)]
        gap, usual = codes[-1] - others[0], max(gaps)
        single = codes[0] < 10 and (codes[0] != 9 or gap < 3)
        away = _LONG_AWAY if codes[-1] > 100 else _AWAY
        if sum(points[number] for number in codes) < 2 * len(codes):
            away = _FAR_AWAY
        if not single and gap > away * usual:
            return set(codes)
    return set()


def _within(points: Mapping[Fraction, int]) -> set[Fraction]:
    """Codes of which there are many more than of their neighbours."""
    order = sorted(points)
    found = set()
    for i, number in enumerate(order):
        beside = [points[order[k]] for k in (i - 2, i - 1, i + 1, i + 2) if 0 <= k < len(order)]
        many = points[number] >= max(_LEAST, _TIMES * max(beside, default=0))
        if many and len(order) > 12 and _has_form(number, _WITHIN):
            usual = statistics.median(points.values())
            found |= {number} if points[number] >= _TIMES * usual else set()
    return found
