"""Warnings about labels: codes for missing values, and one label in two spellings."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted, first_parts
from bnp_models.data.label_numbers import TrueNumber
from bnp_models.data.messages import as_option, listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.data.sentinels import codes_among, looks_missing
from bnp_models.data.spelling import ranges_of_dates, several_spellings, shown


def label_warnings(table: Records) -> list[str]:
    """Return sentences on labels that look like missing values or dates, or are one value spelt
    twice: one of each kind, of all variables.

    Parameters
    ----------
    table
        Records. Of an `OwnLevel` and a `TrueNumber` it is known what they are.

    Notes
    -----
    Codes among numbers are those of `codes_among`.
    """
    missing, codes_of, spelt, were = [], {}, [], []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        among = codes_among(labels, numbers)
        codes = [label for label in labels if label in among or looks_missing(label)]
        if codes:
            missing.append(f"{quoted(name)} has {with_counts(codes, counts)}")
            codes_of[name] = [text_of(label) for label in codes]
        spelt += [f"{with_counts(same, counts)} of {quoted(name)}"
                  for same in several_spellings(labels)]  # fmt: skip
        if dates := ranges_of_dates(labels):
            made = listed(f"{shown(label)} was {to}" for label, to in dates.items())
            were.append(f"{quoted(name)} has dates among ranges: {made}")
    sentences = []
    if missing:
        every = dict.fromkeys(text for texts in codes_of.values() for text in texts)
        name, (first, *_) = next(iter(codes_of.items()))
        their = "its levels" if len(missing) == 1 else "their levels"
        these = "is it" if sum(map(len, codes_of.values())) == 1 else "are they"
        sentences.append(
            f"missing values? {first_parts(missing, 'variable')} among {their}; {these} to be read "
            f"as missing, say --missing {as_option(every)}, else --level "
            f"{shlex.quote(f'{name}={first}')} or rename the label"
        )
    if spelt:
        sentences.append(
            "one label or two? these levels may be one value in several spellings: "
            f"{first_parts(spelt, 'value')}; --normalise merges them"
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
