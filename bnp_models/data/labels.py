"""Labels that may not be what they seem: codes for missing values, and one label spelt twice."""

import re
from collections.abc import Collection, Mapping, Sequence

from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted
from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, text_of
from bnp_models.data.sentinels import codes_among
from bnp_models.data.spelling import ranges_of_dates, several_spellings, shown

# Words and signs of statistical programs, and codes such as -9 and -99.
_MISSING = re.compile(
    r"\s*(n/?a|#n/a|nan|null|missing|\.[a-z]?|\.\.|\?|-|-[89]|-[89]{2,4})\s*", re.I
)


def label_warnings(table: Records, said: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """Return sentences on labels that look like missing values or dates, or are one value spelt
    twice.

    Parameters
    ----------
    table
        Records.
    said
        By variable, texts of labels of which somebody has said what they are.

    Notes
    -----
    Codes among numbers are those of `codes_among`.
    """
    said = said or {}
    sentences = []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        among = codes_among(labels, numbers)
        codes = [
            label
            for label in labels
            if (label in among or _looks_missing(label))
            and text_of(label) not in said.get(name, ())
        ]
        if codes:
            these = "is it" if len(codes) == 1 else "are they"
            sentences.append(
                f"missing values? {quoted(name)} has {with_counts(codes, counts)} among its "
                f"levels; {these} to be read as missing, say --missing "
                f"{','.join(map(text_of, codes))}, else --level {name}={text_of(codes[0])} or "
                "rename the label"
            )
        sentences += [
            f"one label or two? levels of {quoted(name)} may be one value in several spellings: "
            f"{with_counts(same, counts)}; --normalise makes them one"
            for same in several_spellings(labels)
        ]
        if dates := ranges_of_dates(labels):
            were = listed(f"{shown(label)} was {to}" for label, to in dates.items())
            sentences.append(
                f"ranges or dates? {quoted(name)} has dates among ranges, which a spreadsheet made "
                f"of them: {were}; rename these levels"
            )
    return sentences


def with_counts(labels: Sequence[Label], counts: Mapping[str, int]) -> str:
    """Return labels for a message, with their numbers of records, given these by text."""
    return listed(
        f"{shown(label)} ({counted(counts[text_of(label)], 'record')})" for label in labels
    )


def _looks_missing(label: Label) -> bool:
    """Whether a label alone looks like the code of a missing value."""
    return not isinstance(label, OwnLevel) and _MISSING.fullmatch(text_of(label)) is not None
