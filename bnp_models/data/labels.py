"""Warnings about labels: codes for missing values, and one label in two spellings."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted, first_parts
from bnp_models.data.label_numbers import TrueNumber, overlapping, plain_number
from bnp_models.data.messages import as_option, listed, quoted
from bnp_models.data.microdata import Records, once_for_each_table
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.data.sentinels import codes_among, looks_missing
from bnp_models.data.spelling import ranges_of_dates, several_spellings, shown

# Numbers of a variable that tell whether one of them is a code.
_MANY = 12


# Labels of columns that a message writes out.
_PAIRS = 6


@once_for_each_table
def missing_codes(table: Records) -> dict[str, list[str]]:
    """Return texts of the labels that look like codes of missing values, by variable.

    Parameters
    ----------
    table
        Records. Of an `OwnLevel` and a `TrueNumber` it is known what they are.

    Notes
    -----
    Codes among numbers are those of `codes_among`.
    """
    found = {}
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        among = codes_among(labels, level_counts(table, name))
        # If there are many numbers, only they tell whether a number is a code.
        many = sum(map(_is_number, labels)) >= _MANY
        codes = [
            text_of(label)
            for label in labels
            if label in among or (looks_missing(label) and not (many and _is_number(label)))
        ]
        if codes:
            found[name] = codes
    return found


_ADVICE = (
    "where a value is not known, say so by column (--missing {option}); where there is none, the "
    "label is a level as it is, and --level in the place of --missing says so"
)


def _of_columns(pairs: Sequence[tuple[str, str]]) -> str:
    """Labels of columns as --missing takes them, of a few columns."""
    more = ",.." if len(pairs) > _PAIRS else ""
    return as_option(f"{name}={text}" for name, text in pairs[:_PAIRS]) + more


def label_warnings(
    table: Records,
    settled: Mapping[tuple[str, str], str] | None = None,
) -> list[str]:
    """Return sentences on labels that look like missing values or dates, are one value spelt twice,
    or overlap: one of each kind, of all variables.

    Parameters
    ----------
    table
        As of `missing_codes`.
    settled
        By variable and text of a label that looks like a missing value and that another variable
        settles, the words that say where.
    """
    codes_of, settled = missing_codes(table), settled or {}
    missing, spelt, overlap, were = [], [], [], []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        if name in codes_of:
            missing.append(f"{quoted(name)} has {with_counts(codes_of[name], counts)}")
        spelt += [f"{with_counts(same, counts)} of {quoted(name)}"
                  for same in several_spellings(labels)]  # fmt: skip
        codes = codes_of.get(name, ())
        seen = [x for x in labels if counts[text_of(x)] and text_of(x) not in codes]
        if not several_spellings(labels) and (pair := overlapping(seen)) is not None:
            overlap.append(f"{with_counts(pair, counts)} of {quoted(name)}")
        if dates := ranges_of_dates(labels):
            made = listed(f"{shown(label)} was {to}" for label, to in dates.items())
            were.append(f"{quoted(name)} has dates among ranges: {made}")
    sentences = []
    if missing:
        their = "its levels" if len(missing) == 1 else "their levels"
        pairs = [(name, text) for name, texts in codes_of.items() for text in texts]
        unclear = [pair for pair in pairs if pair not in settled]
        advice = [_ADVICE.format(option=_of_columns(unclear))] if unclear else []
        if settled:
            level = shlex.quote("=".join(next(iter(settled))))
            advice.append(
                f"{first_parts(list(settled.values()), 'variable')}, which says that there is no "
                f"value: a level of its own, as it is (--level {level}), or, tied to the other "
                f"column, --missing {_of_columns(list(settled))} --empty-as-level"
            )
        sentences.append(
            f"missing values? {first_parts(missing, 'variable')} among {their}; {'; '.join(advice)}"
        )
    if spelt:
        sentences.append(
            "one label or two? these levels may be one value in several spellings: "
            f"{first_parts(spelt, 'value')}; --normalise merges them"
        )
    if overlap:
        sentences.append(
            f"two groupings? these ranges overlap: {first_parts(overlap, 'pair')}; code all "
            "records alike"
        )
    if were:
        sentences.append(
            f"ranges or dates? {first_parts(were, 'variable')}; spreadsheets turn such ranges into "
            "dates: rename these levels"
        )
    return sentences


def with_counts(labels: Sequence[Label], counts: Mapping[str, int]) -> str:
    """Return labels for a message, with their numbers of records, given these by text."""
    return listed(
        f"{shown(label)} ({counted(counts[text_of(label)], 'record')})" for label in labels
    )


def _is_number(label: Label) -> bool:
    """Whether a label is a number."""
    return plain_number(label) is not None


def as_numbers(schema: Schema, said: Mapping[str, Collection[str]]) -> Schema:
    """Mark labels of which somebody has said that they are numbers.

    Parameters
    ----------
    schema
        Variables and their levels.
    said
        By variable, texts of such labels.

    Raises
    ------
    MicrodataError
        If a variable or a value is unknown.
    """
    levels = dict(zip(schema.variables, schema.levels, strict=True))
    for name, texts in said.items():
        if name not in levels:
            raise unknown_variable(name, schema.variables, "variable")
        if unknown := sorted(set(texts) - set(map(text_of, levels[name]))):
            raise MicrodataError(f"has no value {unknown[0]!r}; correct --number", column=name)
        levels[name] = tuple(
            TrueNumber.of(label) if text_of(label) in texts else label for label in levels[name]
        )
    return Schema(schema.variables, tuple(levels.values()))
