"""Position of the header of a table, and the cells below it that belong to each column."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bnp_models.data.messages import listed, quoted
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source

ROWS = 100
"""Rows that are looked at for how a text file is written."""

# Rows among which the header is looked for, and rows that tell row names from values.
_ABOVE, _NUMBERED = 20, 3


class Row(NamedTuple):
    """A row of a table as texts."""

    line: int
    """Line of the file, or row of the sheet, on which it starts, counted from 1."""
    cells: Sequence[str]
    """Texts, "" where a cell is empty."""


class Layout(NamedTuple):
    """Columns of a table by the cells of its rows."""

    names: list[str]
    """Names of the columns, "" where there is none."""
    positions: list[int]
    """Place of each column among the cells of a row."""
    widths: frozenset[int]
    """Numbers of cells that a row may have."""
    empty: list[int] = []
    """Places of cells that belong to no column, and have to be empty."""
    remarks: tuple[str, ...] = ()
    """Sentences on what is left out, and on names that are changed."""


def find_layout(rows: Sequence[Row], source: Source) -> Layout:
    """Tell the columns of a table from its first rows, the header first.

    Columns without a name and without values are left out. The row names that R and pandas write
    are left out too: a first column whose values all differ and which has no name in the header, or
    for which the header has no cell.

    Parameters
    ----------
    rows
        Rows that are not empty but for the first.
    source
        The file, for messages.

    Raises
    ------
    MicrodataError
        If the first row is empty, or has a title in the place of a header.
    """
    if not rows:
        raise MicrodataError("the file is empty; expected a header and records", file=source)
    header, body = list(map(_one_line, rows[0].cells)), rows[1:]
    if not any(header):
        if body:
            # Below it may be a title.
            find_layout(body, source)
        skip = f"; remove it, or, in SAMPLE, say --skip {body[0].line - 1}" if body else ""
        raise MicrodataError(
            f"the first line is empty; expected a header{skip}", file=source, line=rows[0].line
        )
    usual = Counter(len(row.cells) for row in body).most_common(1)
    width = usual[0][0] if usual else len(header)
    filled = sorted({j for row in body for j, cell in enumerate(row.cells) if cell})
    shifted = width == len(header) + 1 and all(header) and differ(body, 0)
    if shifted:
        remarks = (_left_out([_ROW_NAMES]), *_renamed(rows[0].cells))
        return Layout(header, list(range(1, width)), frozenset([width]), [], remarks)
    nameless = [j for j in filled if j >= len(header) or not header[j]]
    numbered = nameless == [0] and differ(body, 0)
    if nameless not in ([], [0]) and 2 * sum(map(bool, header)) <= len(filled):
        raise _title(rows, filled, source)
    kept = [j for j, name in enumerate(header) if name or (j in nameless and not numbered)]
    gone = [j for j in range(len(header)) if j not in kept and j not in filled]
    left_out = [_ROW_NAMES] if numbered else []
    if gone:
        left_out.append(f"{len(gone)} without a name and without values")
    remarks = (*([_left_out(left_out)] if left_out else []), *_renamed(rows[0].cells))
    # Of the cells that are left out at the end, a row may lack all.
    widths = frozenset([len(header), max(kept) + 1] if gone else [len(header)])
    return Layout([header[j] for j in kept], kept, widths, gone, remarks)


_ROW_NAMES = "the first, which has no name and a different value in every row"


def _one_line(name: str) -> str:
    """A name without the line breaks and blanks around them that a cell of a header may have."""
    return " ".join(part.strip() for part in name.splitlines()).strip()


def _left_out(columns: Sequence[str]) -> str:
    """Sentence on columns that are left out."""
    return f"columns that are left out: {listed(columns)}"


def _renamed(header: Sequence[str]) -> list[str]:
    """Sentence on names that are read without line breaks, or without blanks at their ends."""
    changed = [quoted(name) for name in header if name != _one_line(name)]
    how = "without line breaks and without blanks at the ends"
    return [f"names of columns that are read {how}: {listed(changed)}"] if changed else []


def differ(body: Sequence[Row], j: int) -> bool:
    """Whether the values in cell j of the rows all differ, and are enough to say so."""
    values = [row.cells[j] for row in body if len(row.cells) > j]
    return len(values) >= _NUMBERED and all(values) and len(set(values)) == len(values)


def _title(rows: Sequence[Row], filled: Sequence[int], source: Source) -> MicrodataError:
    """Error for a first row that names too few columns, with the row that may be the header."""
    named = sum(map(bool, rows[0].cells))
    remedy = (
        "remove what stands above the header, or, in SAMPLE, say how many lines that is (--skip)"
    )
    for row in rows[1:_ABOVE]:
        if all(j < len(row.cells) and row.cells[j] for j in filled):
            remedy = (
                f"if it is a title, and the header is in line {row.line}, remove what stands above "
                f"that, or, in SAMPLE, say --skip {row.line - 1}"
            )
            break
    return MicrodataError(
        f"the first line has names for only {named} of {len(filled)} columns; {remedy}",
        file=source, line=rows[0].line,
    )  # fmt: skip
