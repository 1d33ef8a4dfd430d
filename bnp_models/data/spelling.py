"""One value in several spellings, and ranges that a spreadsheet turned into dates."""

import datetime
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping

from bnp_models.data.label_numbers import Interval, plain_number, read_numbers
from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, text_of

_DASHES = re.compile("[\u2010-\u2015\u2212]")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_WIDE = re.compile("[\uff01-\uff5e]")

# What a month begins with in English, German, French, Spanish, Italian, Portuguese and Dutch.
_MONTHS = [
    "jan|ene|gen", "feb|fév|fev", "mar|mär|mrz|mrt", "apr|avr|abr", "may|mai|mag|mei",
    "jun|juin|giu", "jul|juil|lug", "aug|aoû|aou|ago", "sep|set", "oct|okt|ott|out", "nov",
    "dec|déc|dez|dic",
]  # fmt: skip
_MONTH = {start: k for k, starts in enumerate(_MONTHS, 1) for start in starts.split("|")}
_NAME = r"(?P<name>[^\W\d_]{3,9})\.?"
_DATES = [
    re.compile(form)
    for form in (
        rf"(?P<a>[0-9]{{1,2}})[-. /]+{_NAME}(?:[-. /,]+(?P<year>[0-9]{{2,4}}))?",
        rf"{_NAME}[-. /]+(?P<a>[0-9]{{1,2}}|[0-9]{{4}})(?:[-. /,]+(?P<year>[0-9]{{2,4}}))?",
        r"(?P<year>[0-9]{4})[-./](?P<b>[0-9]{1,2})[-./](?P<a>[0-9]{1,2})(?:[ t]00:00(?::00.*)?)?",
        r"(?P<a>[0-9]{1,2})[-./](?P<b>[0-9]{1,2})[-./](?P<year>[0-9]{4}|[0-9]{2})",
    )
]


def clean(text: str) -> str:
    """Return a text without what nobody sees: composed, without signs of no width, few spaces."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(sign for sign in text if unicodedata.category(sign) != "Cf")
    return " ".join(text.split())


def spelling_key(label: Label) -> Hashable:
    """Return a key that is equal for all spellings of one value.

    Parameters
    ----------
    label
        A text or a number.

    Returns
    -------
    key
        The number, if the label is or spells one: that of "01", "1" and "1.0". Else the text in one
        of the normal forms of Unicode, without signs of no width, with plain spaces, dashes and
        quotation marks, in lower case.

    Examples
    --------
    >>> from bnp_models.data.spelling import spelling_key
    >>> spelling_key("Québec ") == spelling_key("QUE\u0301BEC") and spelling_key("01") == 1
    True
    """
    if not isinstance(label, str):
        number = plain_number(label)
        return text_of(label) if number is None else number
    text = _WIDE.sub(lambda sign: chr(ord(sign[0]) - 0xFEE0), clean(label))
    number = plain_number(text)
    if number is not None:
        return number
    return _DASHES.sub("-", text).translate(_QUOTES).casefold()


def several_spellings(labels: Iterable[Label]) -> list[list[Label]]:
    """Return the labels that are one value in several spellings, together."""
    alike: dict[Hashable, list[Label]] = {}
    for label in labels:
        alike.setdefault(spelling_key(label), []).append(label)
    return [same for same in alike.values() if len(same) > 1]


def one_spelling(counts: Mapping[Label, int], declared: Iterable[Label] = ()) -> dict[Label, Label]:
    """Return the new spelling of labels, so that each value has one spelling.

    Parameters
    ----------
    counts
        Records of each label.
    declared
        Labels whose spelling is known.

    Returns
    -------
    new
        For each label that changes, its new spelling: the declared one, or the best in the column.
        Programs drop leading zeros and add ".0", so that "01" is better than "1", and "1" is better
        than "1.0". Otherwise a spelling without invisible signs is better, and then the spelling
        that more records have.

    Examples
    --------
    >>> from bnp_models.data.spelling import one_spelling
    >>> one_spelling({"01": 3, "1": 20, "1.0": 5, "F": 9, "f": 1})
    {'1': '01', '1.0': '01', 'f': 'F'}
    """
    known = {spelling_key(label): label for label in declared}
    new: dict[Label, Label] = {}
    for label in counts:
        if (to := known.get(spelling_key(label))) is not None and text_of(to) != text_of(label):
            new[label] = to
    for same in several_spellings(label for label in counts if spelling_key(label) not in known):
        best = max(same, key=lambda label: _merit(label, counts[label]))
        new |= {label: best for label in same if label is not best}
    return new


def _merit(label: Label, count: int) -> tuple[bool, int, bool, int]:
    """Key by which spellings are ranked; the best one has the largest key."""
    text = text_of(label)
    zeros = len(text) if re.fullmatch("0[0-9]+", text) else 0
    whole = re.fullmatch("-?[0-9]+", text) is not None
    return whole, zeros, clean(text) == text, count


def shown(label: Label) -> str:
    """Return a label for a message, with signs that nobody sees spelt out."""
    if isinstance(label, datetime.date):
        return label.isoformat()[:10]
    text = text_of(label)
    return quoted(label) if unicodedata.normalize("NFC", text) == text else ascii(text)


def ranges_of_dates(labels: Iterable[Label]) -> dict[Label, str]:
    """Return the ranges that a spreadsheet turned into dates, by the present label.

    Parameters
    ----------
    labels
        Labels of one variable.

    Returns
    -------
    ranges
        By each label that is a date, "5-9" for "05-Sep", "9-May" or 2026-09-05; empty if no other
        label is a range of numbers.

    Examples
    --------
    >>> from bnp_models.data.spelling import ranges_of_dates
    >>> ranges_of_dates(["0-4", "05-Sep", "Oct-14", "15-24", "25+"])
    {'05-Sep': '5-9', 'Oct-14': '10-14'}
    """
    labels = list(labels)
    dates = {label: ends for label in labels if (ends := _ends_of_date(label))}
    if not dates:
        return {}
    others = read_numbers([label for label in labels if label not in dates])
    known = [one for one in others if one is not None]
    if not any(one.low < one.high for one in known):
        return {}
    return {label: _fitting(ends, known) for label, ends in dates.items()}


def _fitting(ends: list[tuple[int, int]], known: list[Interval]) -> str:
    """The range of those possible that overlaps none of the others, or the first."""
    apart = [
        (low, high)
        for low, high in ends
        if not any(low <= one.high and one.low <= high for one in known)
    ]
    low, high = [*apart, *ends][0]
    return f"{low}-{high}"


def _ends_of_date(label: Label) -> list[tuple[int, int]]:
    """Ends of the ranges that a date may have been; none where the label is no date."""
    if isinstance(label, datetime.date):
        label = label.isoformat()[:10]
    if not isinstance(label, str):
        return []
    for form in _DATES:
        if match := form.fullmatch(label.strip().casefold()):
            found = match.groupdict()
            month = _MONTH.get((found.get("name") or "")[:3]) or _month(found.get("name") or "")
            first, year = int(found["a"]), int(found["year"] or 0) % 100
            second = int(found["b"]) if found.get("b") else month
            if not second or not (1 <= first % 100 <= 31 or first > 31) or second > 31:
                return []
            pairs = [(first % 100, second)]
            # The first of October 2014 was "10-14".
            pairs += [(second, year)] * (first == 1) + [(first, year)] * (second == 1)
            return [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    return []


def _month(name: str) -> int | None:
    """Number of a month by the first four letters, of those that three do not tell."""
    return _MONTH.get(name[:4])
