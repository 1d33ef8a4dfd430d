"""Types of command line arguments: each reads a text or says why it cannot."""

import argparse
import csv
import os
import re
from collections.abc import Callable
from fractions import Fraction


def integer_type(least: int, most: int) -> Callable[[str], int]:
    """Type of integers of at least `least` and below `most`."""

    def integer(text: str) -> int:
        value = _integer_said(text)
        if value is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer")
        if not least <= value < most:
            raise argparse.ArgumentTypeError(
                f"{value} is out of range; it must be at least {least} and below {most}"
            )
        return value

    return integer


def _integer_said(text: str) -> int | None:
    """The integer that a text such as 1000000, 1,000,000 or 1e6 says; None where it says none."""
    if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+", text):
        text = text.replace(",", "")
    # Not all that a fraction can be: 1e999999999 would have to be written out.
    if not re.fullmatch(
        r"\s*[+-]?[0-9](_?[0-9]){0,99}(\.[0-9]{0,99})?(e[+-]?[0-9]{1,2})?\s*", text, re.I
    ):
        return None
    number = Fraction(text)
    return int(number) if number.denominator == 1 else None


def number_at_least(least: float) -> Callable[[str], float]:
    """Type of finite numbers of at least `least`."""
    return _number(lambda value: value >= least, f"at least {least}")


def number_above(least: float) -> Callable[[str], float]:
    """Type of finite numbers above `least`."""
    return _number(lambda value: value > least, f"above {least}")


def _number(fits: Callable[[float], bool], which: str) -> Callable[[str], float]:
    """Type of finite numbers that fit; `which` says in words which do."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not (fits(value) and value < float("inf")):
            raise argparse.ArgumentTypeError(f"{text} is out of range; it must be {which}")
        return value

    return number


share_type = _number(lambda value: 0 <= value <= 1, "from 0 to 1")
"""Type of numbers from 0 to 1."""


def mixture_type(text: str) -> list[list[float]]:
    """Read pairs of a value and its weight, as 0.0034:0.86,0.028:0.14."""
    try:
        pairs = [list(map(float, part.split(":"))) for part in text.split(",")]
    except ValueError:
        pairs = [[]]
    if not all(len(pair) == 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0.0034:0.86,0.028:0.14")
    return pairs


def name_list(text: str) -> list[str]:
    """Read names as one line of a CSV file has them."""
    return next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])


def ordered_type(text: str) -> str | list[str]:
    """Read "auto", "none", or names."""
    return text if text in ("auto", "none") else name_list(text)


def relative_kinds(text: str) -> str | list:
    """Read "auto", "none" (an empty list), or names, each alone or with a kind: [name, kind]."""
    if text in ("auto", "none"):
        return text if text == "auto" else []
    pairs = [name.rpartition(":") for name in name_list(text)]
    return [
        [name, kind] if kind in ("difference", "same") and name else name + colon + kind
        for name, colon, kind in pairs
    ]


def number_of_variable(text: str) -> tuple[str, float]:
    """Read a variable and a number, as age=85."""
    name, value = _variable_and_number(text)
    if not name or not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable and a number, such as age=85")
    return name, value


def _variable_and_number(text: str) -> tuple[str, float]:
    """A variable and the number after "=", NaN where there is none."""
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        return name, float("nan")


def bin_number(text: str) -> tuple[str, int]:
    """Read a variable and its number of bins, as income=20."""
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal() or not 2 <= int(number) <= 1000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a variable and a number of bins from 2 to 1000, such as income=20"
        )
    return name, int(number)


def two_variables(text: str) -> tuple[str, str]:
    """Read two variables, as municipality=region; one that holds "=" is in double quotes."""
    found = re.fullmatch(r'("(?:[^"]|"")*"|[^=]+)=("(?:[^"]|"")*"|[^=]+)', text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not two variables, such as municipality=region"
        )
    first, second = (name_list(name)[0] if name[0] == '"' else name for name in found.groups())
    return first, second


def value_of_variable(text: str) -> tuple[str, str]:
    """Read a variable and one of its values, as age=9999."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a variable and a value, such as age=9999"
        )
    return name, value


def label_of_column(text: str) -> tuple[str | None, str]:
    """Read a label, or a column and a label of it, as ymarr=NA; the column is None for all."""
    name, sign, label = text.partition("=")
    return (name, label) if name and sign and label else (None, text)


def file_of_variable(text: str) -> tuple[str, str]:
    """Read a variable and a file, as occupation=codes.csv; either may hold "=" too."""
    pairs = [(text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "="]
    pairs = [(name, path) for name, path in pairs if name and path]
    if not pairs:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a variable and a file, such as occupation=codes.csv"
        )
    return next((pair for pair in pairs if os.path.exists(pair[1])), pairs[0])


def importance_type(text: str) -> tuple[str, float]:
    """Read a variable and its importance, as income=2."""
    name, value = _variable_and_number(text)
    if not name or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a variable and its importance, a number above 0, such as income=2"
        )
    return name, value


def anonymity_type(text: str) -> tuple[int, int | None, tuple[str, ...] | None]:
    """Read a k of k-anonymity, and the sets of variables it is for: 3, 2=10 or age,sex=5."""
    of, _, number = text.rpartition("=")
    if not number.isdecimal() or not 2 <= int(number) < 2**31 or text.startswith("="):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of records of at least 2, such as 3, or such a number for "
            "sets of variables, such as 2=10 or age,sex=5"
        )
    if of.isdecimal():
        return int(number), int(of), None
    return int(number), None, tuple(name_list(of)) if of else None
