"""Types of command line arguments: each reads a text or says why it cannot."""

import argparse
import csv


def integer_type(least, most):
    def integer(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if not least <= value < most:
            raise argparse.ArgumentTypeError(
                f"{value} is out of range: at least {least} and below {most}"
            )
        return value

    return integer


def seconds_type(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def number_above(least):
    def number(text):
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is out of range: above {least}")
        return value

    return number


def mixture_type(text):
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in text.split(",")]
    except ValueError:
        pairs = [()]
    if not all(len(pair) == 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0.0034:0.86,0.028:0.14")
    return tuple(pairs)


def name_list(text):
    return next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])


def relative_kinds(text):
    """Names, each alone or with a kind."""
    pairs = [name.rpartition(":") for name in name_list(text)]
    return [
        [name, kind] if kind in ("difference", "same") and name else name + colon + kind
        for name, colon, kind in pairs
    ]


def group_widths(text):
    """[name, number] of each."""
    pairs = [part.rpartition("=") for part in name_list(text)]
    if not all(name and number.isdecimal() and int(number) > 0 for name, _, number in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as age=5,income=2")
    return [[name, int(number)] for name, _, number in pairs]
