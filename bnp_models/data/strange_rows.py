"""Rows of a table that are probably no records: headers, totals, notes, parts of other tables."""

import functools
import logging
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from bnp_models.data.display import counted
from bnp_models.data.messages import listed, quoted
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source

_LOG = logging.getLogger(__name__)

_TOTAL = re.compile(
    r"\s*((grand|over-?all)[ _-]?)?(totals?|sum|summe|gesamt|insgesamt|totale|totaal|somme|suma)"
    r"\s*:?\s*", re.I,
)  # fmt: skip

# Columns from which on a record with one value is told from one that lacks another; and values that
# a row must have that no other row has.
_COLUMNS_OF_TABLE, _OWN_VALUES = 3, 3

# Share of the records whose value nobody else has, up to which a column has categories.
_MOSTLY_SHARED = 0.05

# Rows from which on it is no chance that they come again in the same order.
_LEAST_HALF = 20

# Rows among which one is empty in a column that has values in the first row of each group only.
_BETWEEN = 100

# Lines that are named in a message.
_NAMED = 3


def check_rows(source: Source, frame: pd.DataFrame, lines: Sequence[int] | None) -> None:
    """Refuse rows that are no records, and say which ones may be none.

    Parameters
    ----------
    source
        The file; what is said is said once for each source.
    frame
        Columns of it as they were read.
    lines
        (n,) line, or row of a sheet, of each record, where they have one.

    Raises
    ------
    MicrodataError
        If a row is the header again, or the last one is called a total.
    """
    if frame.empty:
        return
    places = list(range(len(frame))) if lines is None else lines
    what = "row" if lines is None else "line"
    _refuse_header(source, frame, lines)
    _refuse_total(source, frame, lines)
    own = _rows_of_own_values(frame)
    said = []
    if own.size:
        named = listed(f"{what} {places[row]}" for row in own[:_NAMED])
        more = f" and {own.size - _NAMED} more" if own.size > _NAMED else ""
        values = listed(map(quoted, _values(frame, own[0])[:_OWN_VALUES]))
        said.append(
            f"{named}{more}: no value occurs in any other record ({values}), as if this were a "
            "second header, a total or another table; it is read as a record, and if it is none, "
            "remove it"
        )
    elif lines and len(note := _values(frame, len(frame) - 1)) == 1 and isinstance(note[0], str):
        name = frame.columns[(_filled(frame.iloc[[-1]])[0])][0]
        if frame.shape[1] >= _COLUMNS_OF_TABLE and (frame[name] == note[0]).sum() == 1:
            said.append(
                f"line {lines[-1]}, the last, has {quoted(note[0])} and nothing else, and is read "
                "as a record; if it is a note on the table, remove it"
            )
    said += _first_of_groups(frame)
    half = len(frame) // 2
    if half >= _LEAST_HALF and 2 * half == len(frame) and frame.shape[1] > 1:
        first, second = (part.reset_index(drop=True) for part in (frame[:half], frame[half:]))
        if first.equals(second) and (first.nunique() > 1).any():
            said.append(
                f"the last {half:,} rows are the first {half:,} again; if the file was joined to "
                "itself, every record is in it twice, and none is unique"
            )
    for sentence in said:
        source.once(("rows", sentence), functools.partial(_LOG.warning, "%s: %s", source, sentence))


def _filled(frame: pd.DataFrame) -> np.ndarray:
    """(n, J) whether cells have a value."""
    return (frame.notna() & (frame != "")).to_numpy(bool)


def _values(frame: pd.DataFrame, row: int) -> list:
    """Values that a row has."""
    return list(frame.iloc[row][_filled(frame.iloc[[row]])[0]])


def _refuse_header(source: Source, frame: pd.DataFrame, lines: Sequence[int] | None) -> None:
    """Refuse a row that is the header again, as where files were joined."""
    # Names that number the columns may be codes of a record too.
    if frame.shape[1] < 2 or all(str(name).isdecimal() for name in frame):
        return
    same, most = np.ones(len(frame), bool), 0
    for name in frame:
        named = (frame[name].astype(object) == name).to_numpy(bool)
        same, most = same & named, max(most, int(named.sum()))
        if not same.any():
            return
    # Where a box is ticked, some programs write the name of its column, and all may be ticked.
    if same.sum() == most:
        row, more = int(np.argmax(same)), most - 1
        rows = f", and so {'is' if more == 1 else 'are'} {counted(more, 'more row')}" * bool(more)
        raise MicrodataError(
            f"this is the header again{rows}; remove {'them' if more else 'it'}",
            file=source, row=row, line=None if lines is None else lines[row],
        )  # fmt: skip


def _refuse_total(source: Source, frame: pd.DataFrame, lines: Sequence[int] | None) -> None:
    """Refuse a last row that is called a total, in a column where no other one is."""
    last = frame.iloc[-1]
    for name, value in last.items():
        if (
            isinstance(value, str)
            and _TOTAL.fullmatch(value)
            and (frame[name] == value).sum() == 1
            and frame.shape[1] > 1
        ):
            raise MicrodataError(
                f"{quoted(value)} in the last row only: it is a total of the others and no record; "
                "remove it",
                file=source, row=len(frame) - 1, line=None if lines is None else lines[-1],
                column=str(name),
            )  # fmt: skip


def _rows_of_own_values(frame: pd.DataFrame) -> np.ndarray:
    """Rows all of whose values in columns of categories no other row has."""
    number, own, filled = (np.zeros(len(frame), int) for _ in range(3))
    for _, column in frame.items():
        if is_numeric_dtype(column.dtype) or is_datetime64_any_dtype(column.dtype):
            # A text among them would have made the column text.
            continue
        try:
            codes, values = pd.factorize(column)
        except TypeError:
            continue
        if (empty := np.flatnonzero(np.asarray(values, object) == "")).size:
            codes = np.where(codes == empty[0], -1, codes)
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        if (counts == 1).sum() > max(_MOSTLY_SHARED * len(frame), 1):
            continue
        number += 1
        filled += codes >= 0
        own += np.append(counts == 1, False)[codes]
        if not (own == filled).any():
            return np.zeros(0, int)
    enough = (filled >= _OWN_VALUES) | ((filled == 2) & (filled < number))
    return np.flatnonzero((own == filled) & enough)


def _first_of_groups(frame: pd.DataFrame) -> list[str]:
    """Sentences on columns that have a value only in the first row of each group of rows."""
    found = []
    for name, column in frame.items():
        if _filled(column.iloc[:_BETWEEN].to_frame()).all():
            continue
        filled = _filled(column.to_frame())[:, 0]
        number = int(filled.sum())
        if not filled[0] or not 2 <= number <= len(frame) / 4:
            continue
        if column[filled].nunique() == number:
            found.append(
                f"column {quoted(name)} has each of its {number} values once, and is empty in the "
                "rows between; if these are cells that were merged, or values that hold for the "
                "rows below, fill them in"
            )
    return found
