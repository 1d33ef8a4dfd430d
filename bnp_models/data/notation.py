"""Notation of numbers: the decimal mark, and the mark between thousands."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from bnp_models.data.messages import listed, quoted
from bnp_models.data.schema import MicrodataError

DECIMALS = (".", ",")
"""Marks before decimals."""

# Marks between thousands, and the characters that each is written with.
_THOUSANDS = {
    "": "", ",": ",", ".": ".", " ": " \u00a0\u2009\u202f", "'": "'\u2019",
}  # fmt: skip
_MARK = "[.,'\u2019 \u00a0\u2009\u202f]"
_TOKEN = re.compile(rf"[.,]?[0-9]+(?:{_MARK}[0-9]+)*")
_SIGNED = re.compile(rf"\s*[+-]?{_TOKEN.pattern}\s*")

# Share of the values up to which those that speak against a notation may be slips.
_SLIPS = 0.01

# What stands for an interval with a comma between its ends.
_BRACKETED = re.compile(r"\s*[\[(][^;]*[\])]\s*")


def check_marks(decimal: str | None, thousands: str | None) -> None:
    """Raise `MicrodataError` unless these can be marks in numbers; None is not known."""
    if decimal is not None and decimal not in DECIMALS:
        raise MicrodataError(f"{quoted(decimal)} cannot be the decimal mark; give , or .")
    if thousands is not None and thousands not in _THOUSANDS:
        marks = listed([quoted(mark) for mark in _THOUSANDS if mark], "or")
        raise MicrodataError(
            f"{quoted(thousands)} cannot be the mark between thousands; give {marks}"
        )
    if decimal is not None and decimal == thousands:
        raise MicrodataError(
            f"{quoted(decimal)} cannot be both the decimal mark and the mark between thousands; "
            "give two marks"
        )


class Notation(NamedTuple):
    """Marks in numbers.

    Examples
    --------
    >>> from bnp_models.data.notation import Notation
    >>> Notation(",", ".").plain("1.200,50 to 1.300")
    '1200.50 to 1300'
    """

    decimal: str = "."
    """Mark before the decimals: a point or a comma."""
    thousands: str = ""
    """Mark between thousands; empty: there is none."""

    def plain(self, text: str) -> str | None:
        """Return a text with its numbers as programs read them; None where one has other marks."""
        if _BRACKETED.fullmatch(text):
            return text
        tokens = _TOKEN.findall(text)
        if not all(self._form.fullmatch(token) for token in tokens):
            return None
        return _TOKEN.sub(lambda match: self._plain(match[0]), text)

    @property
    def _form(self) -> re.Pattern[str]:
        """Pattern of a number in this notation."""
        marks = _THOUSANDS[self.thousands]
        whole = "[0-9]+"
        if marks:
            whole += rf"|[0-9]{{1,3}}(?:[{marks}][0-9]{{2,3}})*[{marks}][0-9]{{3}}"
        return re.compile(rf"(?:{whole})(?:{re.escape(self.decimal)}[0-9]+)?"
                          rf"|{re.escape(self.decimal)}[0-9]+")  # fmt: skip

    def _plain(self, token: str) -> str:
        """A number without marks between thousands, and with a decimal point."""
        for mark in _THOUSANDS[self.thousands]:
            token = token.replace(mark, "")
        return token.replace(self.decimal, ".")

    def __str__(self) -> str:
        """Return it in words."""
        between = {"": "", ",": "commas", ".": "points", " ": "spaces", "'": "apostrophes"}
        words = "a decimal comma" if self.decimal == "," else "a decimal point"
        return words + (f" and {between[self.thousands]} between thousands" * bool(self.thousands))


def looks_like_number(label: object) -> bool:
    """Whether a label is a number, or a text of one number in any notation."""
    if isinstance(label, str):
        return _SIGNED.fullmatch(label) is not None
    return isinstance(label, int | float) and not isinstance(label, bool)


def notation_of(
    counts: Mapping[str, int],
    decimal: str | None = None,
    thousands: str | None = None,
    otherwise: Notation | None = None,
) -> Notation:
    """Find the notation of the numbers of a column.

    Parameters
    ----------
    counts
        Records of each text.
    decimal, thousands
        Marks that are known, as of `Notation`.
    otherwise
        The notation to return if it is one of several that fit all texts.

    Returns
    -------
    notation
        The notation that fits all texts with marks, except texts that fit no notation.

    Raises
    ------
    MicrodataError
        If more than one notation fits, or each contradicts some texts; the message has their
        counts.

    Notes
    -----
    "1,003" may be 1003 or 1.003. Other texts of the column decide, such as "12,5" or "1,003,500",
    unless they are so few (1%) that they may be typing errors. In a label that is more than a
    number, such as "$15,000-$24,999", a comma before three digits is a mark between thousands
    unless `decimal` is a comma.

    Examples
    --------
    >>> from bnp_models.data.notation import notation_of
    >>> str(notation_of({"980": 3, "1200,5": 1, "1.200": 1}))
    'a decimal comma and points between thousands'
    """
    known = thousands is not None and decimal is not None
    candidates = [
        Notation(before, between)
        for before in (DECIMALS if decimal is None else (decimal,))
        for between in (_THOUSANDS if thousands is None else (thousands,))
        if before != between
    ]
    read = {
        text: [_read(one, text, decimal is None) for one in candidates]
        for text in counts
        if re.search(rf"[.,]?[0-9]{_MARK}[0-9]|[.,][0-9]", text)
    }
    # What fits none is no number, whatever the notation.
    read = {text: each for text, each in read.items() if any(one is not None for one in each)}
    total = sum(counts[text] for text in read)
    if not total or known:
        return candidates[0]
    against = [
        sum(counts[text] for text, each in read.items() if each[k] is None)
        for k in range(len(candidates))
    ]
    likely = [k for k, number in enumerate(against) if number <= _SLIPS * total]
    readings = {tuple(each[k] for each in read.values()) for k in likely}
    if likely and len(readings) == 1 and not against[likely[0]]:
        return candidates[likely[0]]
    if otherwise in candidates and not against[candidates.index(otherwise)]:
        return otherwise
    raise MicrodataError(_contradiction(counts, read))


def _read(notation: Notation, text: str, guessed: bool) -> str | None:
    """A text as a notation reads it; None where it does not fit."""
    if guessed and notation.decimal == "," and not _SIGNED.fullmatch(text):
        if re.search(r"[0-9],[0-9]{3}(?![0-9])", text):
            return None
    return notation.plain(text)


def _contradiction(counts: Mapping[str, int], read: Mapping[str, list[str | None]]) -> str:
    """Description of the ambiguous values, with their numbers of records."""
    alike: dict[tuple[bool, ...], list[str]] = {}
    for text, each in read.items():
        alike.setdefault(tuple(one is not None for one in each), []).append(text)
    said = []
    for texts in alike.values():
        number = sum(counts[text] for text in texts)
        meant = list(dict.fromkeys(one for one in read[texts[0]] if one is not None))
        either = f" ({listed(meant, 'or')})"
        said.append(
            f"{number:,} record{'s'[: number != 1]} with values such as {quoted(texts[0])}"
            + either * (len(meant) > 1)
        )
    return (
        f"how its numbers are written cannot be told: it has {listed(said)}; say which is the "
        "decimal mark (--decimal , or --decimal .) or the mark between thousands (--thousands), or "
        "correct the values"
    )
