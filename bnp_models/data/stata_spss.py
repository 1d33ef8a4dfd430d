"""Stata and SPSS files with their labels, by way of pyreadstat, which is needed for these only.

A value with a label is read as that label, in the order of the values; one without is read as it
is. User-missing values (SPSS) and extended missing values (Stata) are missing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.messages import reason
from bnp_models.data.schema import Label, plain_label

_LABELLED_SUFFIXES = (".dta", ".sav", ".zsav")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,8})")


class FormatError(ValueError):
    """A file that cannot be read or written as asked; the message is one line.

    Parameters
    ----------
    problem
        The mistake and the remedy.
    column
        The variable, where there is one.

    Examples
    --------
    >>> bnp.write_frame(frame.rename(columns={"age": "age in years"}), "sample.dta")
    Traceback (most recent call last):
    ...
    bnp_models.data.stata_spss.FormatError: ...
    """

    def __init__(self, problem: str, column: str | None = None):
        super().__init__(problem)
        self.column = column


@dataclass(frozen=True)
@displayed
class Labelling:
    """The labels of a Stata or SPSS file.

    Examples
    --------
    >>> labelling = bnp.Labelling(values={"sex": {1: "male", 2: "female"}})
    >>> labelling.substantive("sex")
    {1: 'male', 2: 'female'}
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    """Description of each variable."""
    values: Mapping[str, Mapping] = field(default_factory=dict)
    """Label of each value, by variable."""
    missing: Mapping[str, Sequence[Mapping]] = field(default_factory=dict)
    """Ranges (lo, hi) of user-missing values by variable, as pyreadstat has them."""

    def substantive(self, variable: str) -> dict:
        """Return the labels of the values of a variable that are not missing, in their order."""
        ranges = self.missing.get(variable, ())
        return {
            value: label
            for value, label in sorted(
                self.values.get(variable, {}).items(), key=lambda item: _order(item[0])
            )
            if not (isinstance(value, str) and len(value) == 1 and self._numeric(variable))
            and not any(_within(value, limits) for limits in ranges)
        }

    def _numeric(self, variable: str) -> bool:
        """Whether some value with a label is a number."""
        # Stata's extended missing values are letters among numbers.
        return any(not isinstance(value, str) for value in self.values[variable])

    def _shown(self) -> Shown:
        """What is shown of it."""
        lines = {
            "values labelled": ", ".join(self.values),
            "missing": ", ".join(self.missing) or None,
        }
        return Shown(f"Labelling: {counted(len(self.variables), 'variable')} described", lines)


def is_labelled(path: str | PathLike) -> bool:
    """Whether the name is that of a Stata or SPSS file."""
    return Path(path).suffix.lower() in _LABELLED_SUFFIXES


def column_names(path: str | PathLike) -> list[str]:
    """Return the names of the columns of a Stata or SPSS file.

    Raises
    ------
    FormatError
        If it cannot be read, or pyreadstat is not installed.
    """
    return list(_metadata(path).column_names)


def read_labelling(path: str | PathLike) -> Labelling:
    """Read the labels of a Stata or SPSS file; of other files, none.

    Raises
    ------
    FormatError
        If it cannot be read, or pyreadstat is not installed.

    Examples
    --------
    >>> labelling = bnp.Labelling(values={"sex": {1: "male", 2: "female"}})
    >>> codes = pd.DataFrame({"sex": [1, 2, 2]})
    >>> bnp.write_frame(codes, "sample.sav", labelling)
    >>> bnp.read_labelling("sample.sav").values["sex"]
    {1.0: 'male', 2.0: 'female'}
    """
    return _labelling(_metadata(path)) if is_labelled(path) else Labelling()


def read_labelled(path: str | PathLike, columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of a Stata or SPSS file, labels in place of values.

    Parameters
    ----------
    path
        The file.
    columns
        Names of the columns.

    Raises
    ------
    FormatError
        If it cannot be read, two values of a variable have one label, or pyreadstat is not
        installed.
    """
    labelling = _labelling(_metadata(path))
    frame, _ = _read(path, usecols=list(columns))
    return pd.DataFrame(
        {name: _labels_for(frame[name], labelling.substantive(name), name) for name in columns}
    )


def check_column_names(columns: Sequence[str], kind: str) -> None:
    """Refuse column names that a format cannot hold, and a format that cannot be written here.

    Parameters
    ----------
    columns
        Names.
    kind
        One of `bnp_models.data.writing.FORMATS`.

    Raises
    ------
    FormatError
        If a name is too long or has a character that the format cannot hold, or pyreadstat is not
        installed.
    """
    if kind not in ("dta", "sav"):
        return
    _pyreadstat()
    allowed, most = {"dta": (r"[^\W\d]\w*", 32), "sav": (r"[^\W\d_][\w.@#$]*", 64)}[kind]
    for name in columns:
        if not re.fullmatch(allowed, name) or len(name.encode()) > most:
            raise FormatError(
                f"a .{kind} file cannot have a column of this name (letters, digits and _, at most "
                f"{most}); rename it",
                column=name,
            )


def write_labelled(
    frame: pd.DataFrame, path: str | PathLike, kind: str, labelling: Labelling | None = None
) -> None:
    """Write records as a Stata ("dta") or SPSS ("sav") file.

    Parameters
    ----------
    frame
        Records as labels.
    path
        The file.
    kind
        "dta" or "sav".
    labelling
        Labels of the file that the records stand for: its labels become its values again, which
        keep their labels. A variable without value labels is a number if all of its labels are
        integers, else text.

    Raises
    ------
    FormatError
        If the format cannot hold the names or values, or pyreadstat is not installed.
    """
    check_column_names(list(map(str, frame.columns)), kind)
    labelling = labelling or Labelling()
    columns, value_labels = {}, {}
    for name in map(str, frame.columns):
        labels = labelling.substantive(name)
        text = isinstance(next(iter(labels), None), str)
        values = {label: value for value, label in labels.items()}
        columns[name] = _values_for(frame[name], values, text)
        # SPSS keeps the labels of what is user-missing; Stata has none for text.
        kept = labels if kind == "dta" else labelling.values.get(name, {})
        if labels and not (text and kind == "dta"):
            value_labels[name] = {
                plain_label(value): label
                for value, label in kept.items()
                if isinstance(value, str) == text
            }
    options = {
        "column_labels": {
            name: text for name, text in labelling.variables.items() if name in columns
        },
        "variable_value_labels": value_labels,
    }
    module = _pyreadstat()
    try:
        if kind == "sav":
            missing = {name: list(r) for name, r in labelling.missing.items() if name in columns}
            module.write_sav(pd.DataFrame(columns), str(path), missing_ranges=missing, **options)
        else:
            # The format of Stata 14 and later, the first with Unicode.
            module.write_dta(pd.DataFrame(columns), str(path), version=14, **options)
    except (module.ReadstatError, module.PyreadstatError) as error:
        raise FormatError(f"cannot be written as .{kind} ({reason(error)})") from None


def _pyreadstat():
    """Import pyreadstat, or say how to install it."""
    try:
        import pyreadstat
    except ImportError:
        raise FormatError(
            "Stata and SPSS files need pyreadstat; install it: pip install pyreadstat (or "
            "bnp-models[formats])"
        ) from None
    return pyreadstat


def _metadata(path):
    """Read the metadata of a file, as pyreadstat has them."""
    # Ranges of user-missing values are told of only if these are asked for.
    return _read(path, metadataonly=True, user_missing=True)[1]


def _read(path, **options):
    """Read a file by pyreadstat, and raise its errors in one line."""
    module = _pyreadstat()
    stata = Path(path).suffix.lower() == ".dta"
    read = module.read_dta if stata else module.read_sav
    with open(path, "rb"):
        pass
    try:
        return read(str(path), apply_value_formats=False, **options)
    except (module.ReadstatError, module.PyreadstatError, UnicodeDecodeError, ValueError) as error:
        kind = "a Stata" if stata else "an SPSS"
        raise FormatError(f"is not {kind} file ({reason(error)})") from None


def _labelling(metadata) -> Labelling:
    """Return the labels among metadata of pyreadstat."""
    return Labelling(
        {name: text for name, text in metadata.column_names_to_labels.items() if text},
        {name: dict(labels) for name, labels in metadata.variable_value_labels.items()},
        {name: tuple(ranges) for name, ranges in metadata.missing_ranges.items()},
    )


def _labels_for(column: pd.Series, labels: Mapping, name: str):
    """Return the column with labels for values; labels that occur are its ordered categories."""
    if not labels:
        return column
    codes, values = pd.factorize(column)
    ordered = sorted(range(len(values)), key=lambda i: _order(values[i]))
    shown: list[Label] = []
    value_of_text: dict[str, Label] = {}
    for value in (plain_label(values[i]) for i in ordered):
        shown.append(labels.get(value, value))
        text = str(shown[-1])
        if (first := value_of_text.setdefault(text, value)) is not value:
            raise FormatError(
                f"values {first!r} and {value!r} are both labelled {text!r}; relabel one",
                column=name,
            )
    position = np.empty(len(values) + 1, dtype=np.int64)
    position[ordered] = np.arange(len(values))
    # A missing value has the code -1, which picks the last entry.
    position[-1] = -1
    return pd.Categorical.from_codes(position[codes], categories=pd.Index(shown, dtype=object))


def _values_for(column: pd.Series, values: Mapping, text: bool):
    """Return the column with values for labels; without value labels, numbers or text."""
    value_of_label = {str(label): plain_label(value) for label, value in values.items()}
    codes, labels = pd.factorize(column)
    recoded = [value_of_label.get(str(label), label) for label in map(plain_label, labels)]
    integers = not text and all(
        isinstance(value, int | float) or _INTEGER.fullmatch(str(value)) for value in recoded
    )
    if integers:
        numbers = [
            value if isinstance(value, int | float) else int(str(value)) for value in recoded
        ]
        written = pd.Series([*map(float, numbers), np.nan]).take(codes).reset_index(drop=True)
        whole = not (codes < 0).any() and all(float(number).is_integer() for number in numbers)
        return written.astype(np.int64) if whole else written
    written = pd.Series([*map(str, recoded), ""], dtype=object)
    return written.take(codes).reset_index(drop=True)


def _order(value):
    """Return the key by which values are sorted: numbers, then text."""
    return (isinstance(value, str), value if not isinstance(value, str) else 0, str(value))


def _within(value, limits):
    """Whether a value is in a range of pyreadstat; of text, whether it is its lower end."""
    low, high = limits["lo"], limits["hi"]
    if isinstance(value, str) or isinstance(low, str):
        return str(value) == str(low)
    return low <= value <= high
