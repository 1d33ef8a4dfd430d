"""Checks of the labels of a sample, which warn or refuse before any other work is done."""

import logging
import math
import shlex
from collections.abc import Collection, Iterable, Mapping

import pandas as pd

from bnp_models.cli.folder import reading_of
from bnp_models.cli.parts import Data
from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted, first_parts
from bnp_models.data.identifying import identifying_variables
from bnp_models.data.label_numbers import OwnLevel, is_no_answer, read_numbers, sorted_labels
from bnp_models.data.labels import label_warnings, missing_codes, with_counts
from bnp_models.data.messages import as_option, listed, listing, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.notation import looks_like_number, notation_of
from bnp_models.data.reading import read_frame, read_levels
from bnp_models.data.recoding import Merged
from bnp_models.data.schema import Label, MicrodataError, text_of
from bnp_models.data.sentinels import codes_among
from bnp_models.data.spelling import are_dates, ranges_of_dates, shown
from bnp_models.models.level_prior import are_numbers
from bnp_models.zeros.settled import find_settled, in_words

_LOG = logging.getLogger(__name__)

# Least number of levels of which some order is another than its reverse.
_ORDERED = 3


def check_labels(
    data: Data,
    table: Records,
    ordered: Collection[str],
    by_order: bool,
    by_file: Mapping[str, Merged | None],
) -> dict[str, set[str]]:
    """Warn of suspicious labels; refuse labels that cannot be used as an option needs them.

    Parameters
    ----------
    data, table
        What was asked for, and the records as they were read.
    ordered, by_order
        As of `recoded`.
    by_file
        By variable of which a file says it, what becomes of the labels.

    Returns
    -------
    apart
        By variable, codes such as 9999 that `--ordered auto` would take for numbers; they are to be
        levels of their own.

    Raises
    ------
    MicrodataError
        If there are dates among ranges, or codes such as 9999 among numbers that are put into bins,
        an order that was asked for, a top code, or merged levels; or if nobody declared the order
        of a variable.
    """
    require_order(data, table, ordered)
    uses = _uses(data, ordered)
    least = data.recoding.merge_rare or 0
    # Of columns that are refused as identifying, nobody asks for the order.
    named = data.allow_identifying or data.variables is not None
    gone = () if named else {found.variable for found in identifying_variables(table)}
    refused, apart, found = [], {}, []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        own = by_file.get(name)
        if name in by_file and (own is None or not own.ranges):
            continue
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        _refuse_dates(name, labels, counts)
        known: Collection[str] = ()
        if own is not None:
            # What has a row of its own in the file is in no range.
            known = own.codes.keys()
            uses[name] = f"a range of {data.recoding.recode_by}"
        elif name not in uses and any(0 < n < least for n in numbers):
            uses[name] = f"--merge-rare {least}"
        automatic = name not in (*uses, *gone) and by_order and are_numbers(labels)
        if automatic:
            uses[name] = "the order of its levels (--ordered auto)"
        if name in dict(data.recoding.bins) and are_dates(labels):
            raise MicrodataError(
                f"has dates such as {quoted(text_of(labels[0]))}: --bins takes them for numbers "
                "and would draw others that are no dates; put years, months or ages in their place",
                column=name,
            )
        _check_notation(data, name, labels, counts, uses)
        codes = [label for label in codes_among(labels, numbers)
                 if text_of(label) not in known]  # fmt: skip
        if automatic and codes:
            apart[name] = set(map(text_of, codes))
            found.append(f"{quoted(name)} has {with_counts(codes, counts)}")
        elif name in uses and codes:
            refused.append((name, codes, counts))
    if refused:
        raise _codes_among_numbers(refused, uses)
    if apart:
        name, (first, *_) = next(iter(apart.items()))
        _LOG.warning(
            "%s: codes among numbers? %s; they are levels of their own, in no range of "
            "--conditions, until you say what they are: missing (--missing %s), a level of its own "
            "(--level %s=%s), or a number, as -1 may be for the age of babies (--number %s=%s)",
            data.sample, first_parts(found, "variable"),
            as_option(f"{x}={text}" for x, codes in apart.items() for text in sorted(codes)),
            name, first, name, first,
        )  # fmt: skip
    return apart


def say_labels(data: Data, table: Records) -> None:
    """Say which labels may stand for missing values, or are one value in several spellings."""
    for sentence in label_warnings(table, _settled_codes(table)):
        _LOG.warning("%s: %s", data.sample, sentence)
    # A box that is ticked or empty.
    ticked = [
        f"{name!r} ({text_of(labels[0])!r})"
        for j, (name, labels) in enumerate(zip(table.schema.variables, table.schema.levels,
                                               strict=True))
        if len(labels) == 1 and (table.tabulated.codes[:, j] < 0).any()
    ]  # fmt: skip
    if ticked:
        _LOG.warning(
            "%s: columns with one value and empty cells: %s; as they are, every empty cell stands "
            "for that value. If it is empty where the answer is no, write a value of its own there "
            "(synthesize --keep-missing keeps it empty)",
            data.sample, listed(ticked),
        )  # fmt: skip


def _settled_codes(table: Records) -> dict[tuple[str, str], str]:
    """Words, by variable and label that looks like a missing value and that another settles."""
    found = {}
    for name, texts in missing_codes(table).items():
        j = table.schema.variables.index(name)
        for text in texts:
            settled = [one for one in find_settled(table, text) if one.variable == j]
            if settled:
                (found[name, text],) = in_words(table, settled, text)
    return found


def require_order(data: Data, table: Records, ordered: Collection[str]) -> None:
    """Refuse variables that are named as ordered, and whose order nobody declared.

    Raises
    ------
    MicrodataError
        If labels are no numbers, and are in alphabetical order because neither --levels nor the
        file says another one.
    """
    declared = () if data.levels is None else read_levels(data.levels)
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        if name not in ordered or name in declared or len(labels) < _ORDERED:
            continue
        read = zip(labels, read_numbers(labels), strict=True)
        words = [label for label, number in read if number is None and not is_no_answer(label)]
        if words and list(labels) == sorted_labels(labels) and not _has_order(data, name):
            raise MicrodataError(
                f"nothing says in which order its levels are: they are no numbers, and would be "
                f"taken in the order of the alphabet ({listing(list(labels))}); declare the order "
                "by --levels FILE, with the columns variable and level and one row for each level, "
                "or leave the variable out of those that are ordered",
                column=name,
            )


def _has_order(data: Data, name: str) -> bool:
    """Whether the file says in which order the levels of a column are."""
    if data.sample.is_folder:
        return False
    frame, _ = read_frame(data.sample, [name], reading_of(data))
    return isinstance(frame[name].dtype, pd.CategoricalDtype)


def _uses(data: Data, ordered: Iterable[str]) -> dict[str, str]:
    """Options that ask for the numbers of variables, by variable."""
    uses = dict.fromkeys(ordered, "--ordered")
    uses |= {name: f"--bins {name}={k}" for name, k in data.recoding.bins}
    return uses | {name: f"--top-code {name}={x:g}" for name, x in data.recoding.top_code}


def _refuse_dates(name: str, labels: Collection[Label], counts: Mapping[str, int]) -> None:
    """Refuse dates among the ranges of a variable."""
    if dates := ranges_of_dates(labels):
        were = [
            f"{shown(label)} ({counted(counts[text_of(label)], 'record')}) was {quoted(to)}"
            for label, to in dates.items()
        ]
        raise MicrodataError(
            "has dates among its ranges, and a spreadsheet probably made dates of ranges: "
            f"{listed(were)}; rename these levels in the file",
            column=name,
        )


def _check_notation(
    data: Data,
    name: str,
    labels: Collection[Label],
    counts: Mapping[str, int],
    uses: Mapping[str, str],
) -> None:
    """Say that a column of labels may be numbers in another notation; refuse that in an order."""
    told = data.text.decimal or data.text.thousands or name in reading_of(data).numbers
    if told or not all(isinstance(label, str) for label in labels):
        return
    counts = {text_of(x): counts[text_of(x)] for x in labels if not isinstance(x, OwnLevel)}
    try:
        notation = notation_of(counts)
    except MicrodataError as error:
        if name in uses and all(map(looks_like_number, counts)):
            raise MicrodataError(f"{uses[name]}: {error.problem}", column=name) from None
        return
    plain = [notation.plain(text) or text for text in counts]
    intervals = read_numbers(plain)
    if intervals == read_numbers(list(counts)) or None in intervals:
        return
    looks = f"looks like numbers with {notation}"
    if name in uses:
        raise MicrodataError(
            f"{looks}, but {uses[name]} would take its values for labels without a number; say "
            f"--decimal '{notation.decimal}'",
            column=name,
        )
    if are_numbers(sorted_labels(plain)):
        _LOG.warning(
            "%s: column %r %s, but is read as labels; with --decimal '%s' it is read as numbers",
            data.sample, name, looks, notation.decimal,
        )  # fmt: skip


def _codes_among_numbers(
    refused: list[tuple[str, list[Label], dict[str, int]]], uses: Mapping[str, str]
) -> MicrodataError:
    """The error for codes that would be taken for numbers."""
    name, codes, counts = refused[0]
    text = text_of(codes[0])
    option = as_option(f"{name}={text_of(code)}" for code in codes)
    looks, these, as_what, are = (
        ("looks like a code", "it", "a number", "it is")
        if len(codes) == 1
        else ("look like codes", "them", "numbers", "they are")
    )
    also = [f"{other!r} has {with_counts(more, of)}" for other, more, of in refused[1:]]
    return MicrodataError(
        f"{with_counts(codes, counts)} {looks} among numbers, and {uses[name]} would take {these} "
        f"for {as_what}; say what {are}: missing (--missing {option}), a "
        f"level of its own (--level {shlex.quote(f'{name}={text}')}), or a number (--number "
        f"{shlex.quote(f'{name}={text}')})" + (f"; {listed(also)} too" if also else ""),
        column=name,
    )


def by_variable(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Values that options name, by variable."""
    found: dict[str, set[str]] = {}
    for name, value in pairs:
        found.setdefault(name, set()).add(value)
    return found


def say_kept(
    data: Data,
    option: str,
    name: str,
    table: Records,
    left: Collection[Label],
    top: float = math.inf,
) -> None:
    """Say which labels that are no numbers stay as they are where numbers are asked for.

    Those of numbers from `top` on are what they become.
    """
    labels = table.schema.levels[table.schema.variables.index(name)]
    counts = level_counts(table, name)
    texts = {text_of(label) for label in left if not isinstance(label, OwnLevel)}
    kept = {
        text_of(label): int(n)
        for label, interval, n in zip(labels, read_numbers(labels), counts, strict=True)
        if text_of(label) in texts
        and n
        and (interval is None or interval.low < interval.high and interval.low < top)
    }
    if kept:
        _LOG.warning(
            "%s: with %s, levels of column %r that are not single numbers stay as they are: %s",
            data.sample, option, name, with_counts(list(kept), kept),
        )  # fmt: skip
