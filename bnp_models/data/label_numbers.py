"""The numbers that labels stand for: "7", "15-24", "under 5", "65 and over", "$15,000-$24,999"."""

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction
from typing import NamedTuple

from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, MicrodataError, plain_label, text_of

# Neither 1/3, which has no last digit, nor 1e999999999, which would have to be written out.
_PLAIN = re.compile(r"[+-]?(?:[0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,2})?")

_N = r"([+-]?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300}))"
_OR_LESS, _OR_MORE, _TO_BELOW = "↓", "↑", "→"

# Patterns in a label, and the sign of _FORMS that replaces each. They are replaced in this order:
# "and over" of "85 and over" is replaced before "over" of "over 85".
_SIGNS = [
    (r"[‐‑‒–—―]", "-"),
    (r"−", "-"),
    (r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?<=[0-9])[ \u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))", ""),
    (r"[$€£]", ""),
    (r"\b(?:and|to|-)\s*(?:under|below|less than|<)(?=\s*[-+]?[0-9])|-\s*<", _TO_BELOW),
    (
        r"(?:\b(?:and|or)|&|/)\s*(?:more|over|older|above|up|upwards?|higher|greater|larger)\b"
        r"(?!\s*[-+]?[0-9])|\bplus\b",
        _OR_MORE,
    ),
    (
        r"(?:\b(?:and|or)|&|/)\s*(?:less|fewer|under|younger|below|lower|smaller)\b"
        r"(?!\s*[-+]?[0-9])",
        _OR_LESS,
    ),
    (r"\b(?:at least|(?:no|not) (?:less|fewer) than)\b|≥|⩾", ">="),
    (r"\b(?:at most|up to|(?:no|not) more than)\b|≤|⩽", "<="),
    (r"\b(?:less than|fewer than|lower than|younger than|smaller than|under|below)\b", "<"),
    (r"\b(?:more than|greater than|older than|larger than|over|above)\b", ">"),
    (r"\b(?:to|through|thru)\b", "-"),
    (r"^\s*(?:aged?|ages|from)\b", ""),
]

# Forms of labels, after the replacement of _SIGNS and without a unit: the pattern; the group of the
# pattern that is the lower end of the interval, and that of the upper end (None: open); and whether
# the lower end, and the upper end, is excluded from the interval.
_FORMS: list[tuple[str, int | None, int | None, bool, bool]] = [
    (rf"{_N}", 1, 1, False, False),
    (rf"{_N}-{_N}", 1, 2, False, False),
    (rf"{_N}{_TO_BELOW}{_N}", 1, 2, False, True),
    (rf"\[{_N}[,;]{_N}\)", 1, 2, False, True),
    (rf"\({_N}[,;]{_N}\]", 1, 2, True, False),
    (rf"\[{_N}[,;]{_N}\]", 1, 2, False, False),
    (rf"\({_N}[,;]{_N}\)", 1, 2, True, True),
    (rf"{_N}(?:\+|{_OR_MORE})|>={_N}", 1, None, False, False),
    (rf">{_N}", 1, None, True, False),
    (rf"{_N}{_OR_LESS}|<={_N}", None, 1, False, False),
    (rf"<{_N}", None, 1, False, True),
]

# Phrases and plurals of one unit; any other single word is one if two labels share it.
_UNITS = {
    "years of age": "year", "years old": "year", "year old": "year", "yrs old": "year",
    "years": "year", "yrs": "year", "yr": "year", "y": "year", "year of age": "year",
    "people": "person", "children": "child", "hrs": "hour", "hr": "hour", "h": "hour",
    "mins": "minute", "min": "minute", "%": "percent", "per cent": "percent", "usd": "dollar",
    "eur": "euro",
}  # fmt: skip
_KNOWN_UNITS = frozenset(_UNITS.values()) | {
    "year", "month", "week", "day", "hour", "minute", "person", "member", "child", "room",
    "bedroom", "car", "dollar", "euro", "pound", "gbp", "chf", "km", "mile", "kg", "cm", "m", "ha",
    "time", "employee",
}  # fmt: skip
_RATE = re.compile(r"\b(?:per|a|an|each) (?:year|month|week|day|hour)\b|/(?:year|month|week|day)\b")
_WORD = re.compile(r"[^\W\d_]+|%")
_PHRASE = re.compile(r"(?:[^\W\d_]+|%)(?:\s+(?:[^\W\d_]+|%))*")

# A unit at the end of a label, as in "15 to 24 years".
_TAIL = re.compile(r"[0-9]( [^\W\d_][^0-9+]*)$")
_NUMBER_WITHIN = re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)")

_NO_NUMBERS = re.compile(
    r"|none|n|unknown|not known|n/?a|not applicable|inapplicable|missing|not (?:stated|reported|"
    r"answered|available|ascertained|specified)|no [^\W\d_]+|refus(?:ed|al)|"
    r"(?:i )?do(?:n't|nt|n’t| not) know|dk|unspecified|undetermined|nan|null|other|[-.?]+"
)


class OwnLevel(str):
    """A label that is not a number although it may look like one, such as a code 9999."""

    __slots__ = ()


class TrueNumber:
    """A label that is a number, although it may look like a code, such as 99.

    Its instances are texts or numbers, equal to those that they were made of.
    """

    __slots__ = ()

    @staticmethod
    def of(label: Label) -> Label:
        """Mark a label."""
        kinds = {str: _TrueText, int: _TrueInteger, float: _TrueFloat}
        return kinds[type(label)](label) if type(label) in kinds else label


class _TrueText(TrueNumber, str):
    __slots__ = ()


class _TrueInteger(TrueNumber, int):
    __slots__ = ()


class _TrueFloat(TrueNumber, float):
    __slots__ = ()


class Interval(NamedTuple):
    """The numbers from `low` to `high`, both included; an open end is infinite."""

    low: float
    high: float


def plain_number(label: Label) -> Fraction | None:
    """Return the number that a label is or spells, exactly; None where it is none or a range."""
    if isinstance(label, bool | OwnLevel) or not isinstance(label, str | int | float):
        return None
    text = text_of(label).strip()
    return Fraction(text) if _PLAIN.fullmatch(text) else None


def is_no_answer(label: Label) -> bool:
    """Whether a label says that there is no number, such as "none", "unknown" or "n/a"."""
    if isinstance(label, OwnLevel):
        return True
    return _NO_NUMBERS.fullmatch(" ".join(text_of(label).casefold().split())) is not None


def read_numbers(labels: Sequence[Label]) -> list[Interval | None]:
    """Read the labels of one variable as intervals of numbers.

    Parameters
    ----------
    labels
        (L,) numbers or texts.

    Returns
    -------
    intervals
        (L,) the numbers that each label stands for; None where it cannot be read as numbers.

    Notes
    -----
    Read are numbers ("7", "$9,500"), ranges ("15-24", "15 to 24 years", "15 and under 25", "[15,
    25)"), and ranges with an open end ("under 15", "less than 15", "14 or less", "up to 14", "< 15
    years", "65+", "65 and over", "over 64"). A word that follows a number is a unit if it is a
    common unit, or if another label has it too. If the labels have several units, labels with a
    unit are not read.

    If all numbers are whole, "under 15" ends at 14. If one range ends at the number with which
    another begins, as "0-5" and "5-10", this number belongs to the second range.

    Examples
    --------
    >>> from bnp_models.data.label_numbers import read_numbers
    >>> read_numbers(["under 15", "15 to 24", "unknown"])
    [Interval(low=-inf, high=14.0), Interval(low=15.0, high=24.0), None]
    """
    read = [_read(label) for label in labels]
    units = Counter(one.unit for one in read if one is not None and one.unit)
    shared = len(units) == 1 and next(iter(units.items()))
    usable = shared and (shared[0] in _KNOWN_UNITS or shared[1] > 1)
    kept = [one if one is not None and (usable or not one.unit) else None for one in read]
    begin = {
        one.low for one in kept if one is not None and one.low != one.high and not one.low_is_out
    }
    whole = all(
        float(end).is_integer()
        for one in kept
        if one is not None
        for end in (one.low, one.high)
        if math.isfinite(end)
    )
    return [None if one is None else _closed(one, whole, begin) for one in kept]


class _Read(NamedTuple):
    """Range of numbers that was read from one label."""

    low: float
    high: float
    low_is_out: bool = False
    high_is_out: bool = False
    unit: str = ""


@functools.lru_cache(maxsize=2**14, typed=True)
def _read(label: Label) -> _Read | None:
    """The interval and the unit of one label; None where it is no interval."""
    if (number := plain_number(label)) is not None:
        return _Read(float(number), float(number))
    if not isinstance(label, str) or isinstance(label, OwnLevel) or len(label) > 1000:
        return None
    if (bare := _bare(label)) is None:
        return None
    text, unit = bare
    for form, low, high, low_is_out, high_is_out in _FORMS:
        if match := re.fullmatch(form, text):
            numbers = [float(group) for group in match.groups() if group is not None]
            first = -math.inf if low is None else numbers[low - 1]
            last = math.inf if high is None else numbers[high - 1]
            nothing = first > last or (first == last and (low_is_out or high_is_out))
            if nothing or not all(map(math.isfinite, numbers)):
                return None
            return _Read(first, last, low_is_out, high_is_out, unit)
    return None


def _bare(label: str) -> tuple[str, str] | None:
    """A label in signs, without spaces and its unit, and the unit; None: with other words."""
    text = _RATE.sub("", label.casefold())
    for pattern, sign in _SIGNS:
        text = re.sub(pattern, sign, text)
    text = text.strip()
    # Digits apart are two numbers, and a word before the number is no unit.
    if re.search(r"[0-9.]\s+[0-9.]", text) or re.match(r"[^\W\d_]", text):
        return None
    units = {_unit_of(" ".join(phrase.split())) for phrase in _PHRASE.findall(text)}
    if len(units) > 1 or "" in units:
        return None
    return re.sub(r"\s+", "", _WORD.sub("", text)), "".join(units)


def _unit_of(phrase: str) -> str:
    """The unit that a phrase stands for; empty: several words that are none."""
    if phrase in _UNITS:
        return _UNITS[phrase]
    if " " in phrase:
        return ""
    return phrase.removesuffix("s") if len(phrase) > 3 else phrase


def _closed(one: _Read, whole: bool, begin: Collection[float] = ()) -> Interval:
    """The same interval with both ends in it: the next whole number, or the next of floats."""
    low, high = one.low, one.high
    if one.low_is_out:
        low = low + 1 if whole else math.nextafter(low, math.inf)
    if one.high_is_out or (low < high and high in begin):
        high = high - 1 if whole else math.nextafter(high, -math.inf)
    return Interval(low, max(low, high))


def read_range(text: str) -> Interval | None:
    """Return the interval that one text says, whatever other labels there are; None: none."""
    one = _read(text)
    return None if one is None else _closed(one, whole=False)


def range_said(text: str) -> Hashable | None:
    """Return what texts of one range have in common, its unit too; None where it is no range.

    Examples
    --------
    >>> from bnp_models.data.label_numbers import range_said
    >>> range_said("65+") == range_said("65 and over"), range_said("1-2 days") == range_said("1-2")
    (True, False)
    """
    one = _read(text)
    return None if one is None or one.low == one.high else one


def overlapping(labels: Sequence[Label]) -> tuple[Label, Label] | None:
    """Return two labels that are numbers or ranges and have numbers in common; None if none have.

    Examples
    --------
    >>> from bnp_models.data.label_numbers import overlapping
    >>> overlapping(["0-14", "0-17", "18+"]), overlapping(["0-5", "5-10", "10+"])
    (('0-14', '0-17'), None)
    """
    read = zip(read_numbers(labels), labels, strict=True)
    order = sorted((one, k, label) for k, (one, label) in enumerate(read) if one is not None)
    for (one, _, label), (other, _, next_label) in itertools.pairwise(order):
        if other.low <= one.high:
            return label, next_label
    return None


def require_numbers(labels: Sequence[Label], need: str) -> list[Interval | None]:
    """Read the labels of a variable, where numbers are needed.

    Parameters
    ----------
    labels
        (L,) numbers or texts.
    need
        What needs the numbers, for the message.

    Returns
    -------
    intervals
        (L,) as of `read_numbers`; None only where `is_no_answer`.

    Raises
    ------
    MicrodataError
        If a label cannot be read. It names the first such label.
    """
    intervals = read_numbers(labels)
    for label, interval in zip(labels, intervals, strict=True):
        if interval is None and not is_no_answer(label):
            raise MicrodataError(
                f"level {quoted(label)} cannot be read as a number or a range of numbers, as "
                f"{need} needs it"
            )
    return intervals


def unit_of(labels: Sequence[Label]) -> str:
    """Return the unit of the numbers of a variable, such as "year"; empty if none or several.

    Examples
    --------
    >>> from bnp_models.data.label_numbers import unit_of
    >>> unit_of(["under 15 years", "15 to 24 years", "unknown"])
    'year'
    """
    read = map(_read, labels)
    units = {one.unit for one in read if one is not None and one.unit}
    return units.pop() if len(units) == 1 else ""


def numbers_among(labels: Sequence[Label]) -> list[Interval]:
    """Return the intervals of those labels of a variable that can be read as numbers."""
    return [interval for interval in read_numbers(labels) if interval is not None]


def are_ordered(labels: Sequence[Label]) -> bool:
    """Whether all labels are numbers or ranges in ascending order, so that neighbours are alike."""
    intervals = numbers_among(labels)
    return len(intervals) == len(labels) > 0 and intervals == sorted(intervals)


def sorted_labels(labels: Sequence[Label]) -> list[Label]:
    """Return labels sorted by the numbers they stand for, those without an answer last.

    Where one cannot be read they are sorted as text, with the numbers in it by size: "9th" comes
    before "10th".
    """
    plain = [plain_number(label) for label in labels]
    if None not in plain:
        exact = dict(zip(labels, plain, strict=True))
        return sorted(labels, key=lambda label: (exact[label], text_of(label)))
    # `all` stops at the first label that cannot be read. A variable of names may have a label for
    # each record, and `read_numbers` would read them all.
    if all(_read(label) is not None or is_no_answer(label) for label in labels):
        intervals = dict(zip(labels, read_numbers(labels), strict=True))
        if all(intervals[label] is not None or is_no_answer(label) for label in labels):
            last = Interval(math.inf, math.inf)
            return sorted(labels, key=lambda label: (intervals[label] or last, text_of(label)))
    return sorted(labels, key=lambda label: (_pieces(text_of(label)), text_of(label)))


def _pieces(text: str) -> list[str | float]:
    """Text and numbers in turn, the first a text."""
    pieces = _NUMBER_WITHIN.split(text)
    return [float(piece.replace(",", "")) if k % 2 else piece for k, piece in enumerate(pieces)]


def written(number: float | Fraction) -> str:
    """Return a number as people write it: without ".0", with twelve digits at the most."""
    return text_of(plain_label(float(f"{float(number):.12g}")))


def name_of_run(labels: Sequence[Label]) -> str:
    """Return the name of adjacent levels that became one: "15 to 34", "34 or less" or "65+".

    Where their numbers cannot be read, it is made of the texts of the first and the last.
    """
    ends = labels[0], labels[-1]
    first, last = read_numbers(ends)
    begin, end = map(text_of, ends)
    if first is None or last is None or (math.isinf(first.low) and math.isinf(last.high)):
        return f"{begin} to {end.rpartition(' to ')[2]}"
    units = [match[1] for match in map(_TAIL.search, (begin, end)) if match]
    unit = units[0] if len(units) == 2 and units[0] == units[1] else ""
    if math.isinf(first.low):
        return f"{written(last.high)}{unit} or less"
    low = begin if plain_number(ends[0]) is not None else written(first.low)
    if math.isinf(last.high):
        return f"{low}{unit} or more" if unit else f"{low}+"
    high = end if plain_number(ends[1]) is not None else written(last.high)
    return f"{low} to {high}{unit}"
