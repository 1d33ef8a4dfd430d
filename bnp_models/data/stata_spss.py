"""Stata and SPSS files with their labels, read and written by the optional package pyreadstat.

A value with a label is read as that label, in the order of the values; one without is read as it
is. User-missing values (SPSS) and extended missing values (Stata) are missing.

If the format does not allow the name of a column, the column gets another name, and its own name
becomes its label. It can still be read by its own name.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.messages import install_command, reason
from bnp_models.data.schema import Label, plain_label
from bnp_models.data.source import Source, opened

_LABELLED_SUFFIXES = (".dta", ".sav", ".zsav")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,8})")


class _Naming(NamedTuple):
    """Names of columns that a file format allows."""

    fitting: re.Pattern
    """Names that it can have, of any size."""
    others: re.Pattern
    """Characters that none has."""
    in_bytes: bool
    """Whether sizes are of UTF-8, rather than characters."""
    most: int
    """Size of a name."""
    most_of_label: int
    """Size of a label."""
    cased: bool
    """Whether names that differ in case only are two."""

    def fits(self, name: str) -> bool:
        """Whether a column can have the name."""
        return bool(self.fitting.fullmatch(name)) and self.cut(name) == name

    def cut(self, name: str, suffix: str = "") -> str:
        """The name, cut where it is too long with the suffix, and the suffix."""
        most = self.most - len(suffix)
        cut = name.encode()[:most].decode(errors="ignore") if self.in_bytes else name[:most]
        return cut + suffix

    def folded(self, name: str) -> str:
        """Form of a name that is equal for all names that the format treats as the same."""
        return name if self.cased else name.upper()

    def shortened(self, name: str) -> str:
        """A name that fits in the place of one that does not."""
        shown = self.others.sub("_", name).strip("_")
        return self.cut(shown if self.fitting.fullmatch(shown) else f"v_{shown}")

    def stands_for(self, own: str, name: str) -> bool:
        """Whether `own` is a name that a column called `name` can have got."""
        number = re.search("_[0-9]+$", own)
        short = self.shortened(name)
        return own == short or (number is not None and own == self.cut(short, number[0]))


_NAMINGS = {
    "dta": _Naming(
        re.compile(
            r"(?!(_all|_b|byte|_coef|_cons|double|float|if|in|int|long|_n|_N|_pi|_pred|_rc|_skip|"
            r"str[0-9]+|strL|using|with)\Z)[^\W\d]\w*"
        ),
        re.compile(r"\W+"), in_bytes=False, most=32, most_of_label=80, cased=True,
    ),
    "sav": _Naming(
        re.compile(
            r"(?!(ALL|AND|BY|EQ|GE|GT|LE|LT|NE|NOT|OR|TO|WITH)\Z)[^\W\d_][\w.@#$]*", re.IGNORECASE
        ),
        re.compile(r"[^\w.@#$]+"), in_bytes=True, most=64, most_of_label=256, cased=False,
    ),
}  # fmt: skip


class FormatError(ValueError):
    """Error for a file that cannot be read or written; the message is one line.

    Parameters
    ----------
    problem
        The mistake and the remedy.
    column
        The variable, where there is one.

    Examples
    --------
    >>> bnp.io.write_frame(frame.rename(columns={"age": "age in years" * 7}), "sample.dta")
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
    >>> labelling = bnp.io.Labelling(values={"sex": {1: "male", 2: "female"}})
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
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "values labelled": ", ".join(self.values),
            "missing": ", ".join(self.missing) or None,
        }
        return Shown(f"Labelling: {counted(len(self.variables), 'variable')} described", lines)


def is_labelled(path: str | PathLike) -> bool:
    """Whether the name is that of a Stata or SPSS file."""
    return Path(path).suffix.lower() in _LABELLED_SUFFIXES


def column_names(source: Source, wanted: Sequence[str] = ()) -> list[str]:
    """Return the names of the columns of a Stata or SPSS file.

    Parameters
    ----------
    source
        The file.
    wanted
        Names that are asked for. One that no column has is given to the column that
        `names_in_file` can have renamed from it: the one with it as label.

    Raises
    ------
    FormatError
        If it cannot be read, or pyreadstat is not installed.
    """
    return list(_names(_metadata(source), source, wanted).values())


def read_labelling(path: str | PathLike, wanted: Sequence[str] = ()) -> Labelling:
    """Read the labels of a Stata or SPSS file; of other files, none.

    Parameters
    ----------
    path
        The file.
    wanted
        Names of columns that are asked for. A column that was renamed when the file was written is
        returned under its earlier name if that name is among these.

    Raises
    ------
    FormatError
        If it cannot be read, or pyreadstat is not installed.

    Examples
    --------
    >>> labelling = bnp.io.Labelling(values={"sex": {1: "male", 2: "female"}})
    >>> codes = pd.DataFrame({"sex": [1, 2, 2]})
    >>> bnp.io.write_frame(codes, "sample.sav", labelling)
    >>> bnp.io.read_labelling("sample.sav").values["sex"]
    {1.0: 'male', 2.0: 'female'}
    """
    if not is_labelled(path):
        return Labelling()
    with opened(path) as source:
        metadata = _metadata(source)
    return _labelling(metadata, _names(metadata, source, wanted))


def read_labelled(source: Source, columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of a Stata or SPSS file, labels in place of values.

    Parameters
    ----------
    source
        The file.
    columns
        Names of the columns, as `column_names` gives them where these are wanted.

    Raises
    ------
    FormatError
        If it cannot be read, two values of a variable have one label, or pyreadstat is not
        installed.
    """
    metadata = _metadata(source)
    names = _names(metadata, source, columns)
    labelling, own = _labelling(metadata, names), {name: own for own, name in names.items()}
    frame, _ = _read(source, usecols=[own[name] for name in columns])
    single = [name for name, kind in metadata.readstat_variable_types.items() if kind == "float"]
    frame = frame.astype({name: np.float32 for name in single if name in frame})
    return pd.DataFrame({
        name: _labels_for(frame[own[name]], labelling.substantive(name), name) for name in columns
    })  # fmt: skip


def names_in_file(columns: Sequence[str], kind: str) -> dict[str, str]:
    """Return the names of columns in a file, of any of `bnp_models.data.writing.FORMATS`.

    Names that Stata or SPSS can have are kept. Of others, characters become _, with none at the
    ends; reserved words and what begins with a digit get v_ before them; what is too long is cut,
    and what is taken gets a number.

    Raises
    ------
    FormatError
        If a name that is changed has no room in a label, or pyreadstat is not installed.
    """
    if kind not in _NAMINGS:
        return {name: name for name in columns}
    _pyreadstat()
    naming = _NAMINGS[kind]
    names, taken = {}, set()
    for name in columns:
        if naming.fits(name) and naming.folded(name) not in taken:
            names[name] = name
            taken.add(naming.folded(name))
    for name in columns:
        if name in names:
            continue
        if (len(name.encode()) if naming.in_bytes else len(name)) > naming.most_of_label:
            unit = "bytes" if naming.in_bytes else "characters"
            raise FormatError(
                f"this name is too long for a .{kind} file, both as the name of a column and as "
                f"its label, which has at most {naming.most_of_label} {unit}; shorten it",
                column=name,
            )
        short, number = naming.shortened(name), 1
        names[name] = short
        while naming.folded(names[name]) in taken:
            number += 1
            names[name] = naming.cut(short, f"_{number}")
        taken.add(naming.folded(names[name]))
    return {name: names[name] for name in columns}


def write_labelled(
    frame: pd.DataFrame, path: str | PathLike, kind: str, labelling: Labelling | None = None
) -> None:
    """Write records as a Stata ("dta") or SPSS ("sav") file.

    A column that `names_in_file` renames has its own name as label, in the place of a description.

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
    frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    names = names_in_file(list(frame), kind)
    labelling = labelling or Labelling()
    columns, value_labels = {}, {}
    for name, own in names.items():
        labels = labelling.substantive(name)
        text = isinstance(next(iter(labels), None), str)
        values = {label: value for value, label in labels.items()}
        columns[own] = _values_for(frame[name], values, text)
        # SPSS keeps the labels of what is user-missing; Stata has none for text.
        kept = labels if kind == "dta" else labelling.values.get(name, {})
        if labels and not (text and kind == "dta"):
            value_labels[own] = {
                plain_label(value): label
                for value, label in kept.items()
                if isinstance(value, str) == text
            }
    options = {
        "column_labels": {
            own: labelling.variables.get(name) if own == name else name
            for name, own in names.items()
        },
        "variable_value_labels": value_labels,
    }
    module = _pyreadstat()
    try:
        if kind == "sav":
            missing = {names[n]: list(r) for n, r in labelling.missing.items() if n in names}
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
            "Stata and SPSS files need the package pyreadstat; install it: "
            f"{install_command('pyreadstat')}"
        ) from None
    return pyreadstat


def _metadata(source: Source):
    """Metadata of a file, as pyreadstat has them."""
    # Ranges of user-missing values are told of only if these are asked for.
    read = functools.partial(_read, source, metadataonly=True, user_missing=True)
    return source.once("metadata", read)[1]


def _read(source: Source, **options):
    """Read a file by pyreadstat, and raise its errors in one line."""
    module = _pyreadstat()
    stata = _is_stata(source)
    read = module.read_dta if stata else module.read_sav
    try:
        return read(source.rewound(), apply_value_formats=False, **options)
    except OSError:
        raise
    except Exception as error:
        # In a damaged file an index out of bounds, bytes that are no text, and others.
        kind = "a Stata" if stata else "an SPSS"
        raise FormatError(f"is not {kind} file ({reason(error)})") from None


def _is_stata(path) -> bool:
    """Whether the name, of a Stata or SPSS file, is that of a Stata file."""
    return Path(path).suffix.lower() == ".dta"


def _names(metadata, path, wanted: Sequence[str]) -> dict[str, str]:
    """Return the names of a file's columns as `column_names` does, by those in the file."""
    naming = _NAMINGS["dta" if _is_stata(path) else "sav"]
    names = {own: own for own in metadata.column_names}
    for name in (wanted,) if isinstance(wanted, str) else wanted:
        if name in metadata.column_names:
            continue
        for own, label in metadata.column_names_to_labels.items():
            # Blanks at the end of a label are lost in reading.
            if label == name.rstrip(" ") and naming.stands_for(own, name):
                names[own] = name
    return names


def _labelling(metadata, names: Mapping[str, str]) -> Labelling:
    """Return the labels among metadata of pyreadstat, with these names of the columns."""
    return Labelling(
        {names[own]: text for own, text in metadata.column_names_to_labels.items() if text},
        {names[own]: dict(labels) for own, labels in metadata.variable_value_labels.items()},
        {names[own]: tuple(ranges) for own, ranges in metadata.missing_ranges.items()},
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
                f"values {first!r} and {value!r} are both labelled {text!r}; relabel one, "
                "or leave the variable out",
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
