"""Labels that may not be what they seem: codes for missing values, and one label spelt twice."""

import re

from bnp_models.data.messages import listed, quoted
from bnp_models.data.schema import Label, Schema, text_of

# Words and signs of statistical programs, and codes such as -9 and -99.
_MISSING = re.compile(
    r"\s*(n/?a|#n/a|nan|null|missing|\.[a-z]?|\.\.|\?|-|-[89]|-?(9{2,4})|-[89]{2,4})\s*", re.I
)


def label_warnings(schema: Schema) -> list[str]:
    """Return sentences on labels that look like missing values, or differ in spelling alone.

    Notes
    -----
    99, 999 and 9999 look like missing values where all other labels are numbers of less than a
    third of it.
    """
    sentences = []
    for name, labels in zip(schema.variables, schema.levels, strict=True):
        codes = [label for label in labels if _looks_missing(label, labels)]
        if codes:
            shown = listed(map(quoted, codes))
            these = "is it" if len(codes) == 1 else "are they"
            sentences.append(
                f"missing values? {quoted(name)} has {shown} among its levels; {these} to be read "
                f"as missing, say --missing {','.join(map(text_of, codes))}, else rename the label"
            )
        spelt: dict[str, list[Label]] = {}
        for label in labels:
            spelt.setdefault(" ".join(text_of(label).split()).casefold(), []).append(label)
        for same in spelt.values():
            if len(same) > 1:
                sentences.append(
                    f"one label or two? levels of {quoted(name)} differ by spaces or by upper and "
                    f"lower case only: {listed(map(quoted, same))}; make them one in the file"
                )
    return sentences


def _looks_missing(label: Label, labels: tuple[Label, ...]) -> bool:
    """Whether a label looks like the code of a missing value."""
    match = _MISSING.fullmatch(text_of(label))
    if match is None:
        return False
    if match[2] is None or text_of(label).strip().startswith("-"):
        return True
    others = [text_of(other).strip() for other in labels if other != label]
    return bool(others) and all(
        re.fullmatch(r"-?[0-9]+", text) and 3 * int(text) < int(match[2]) for text in others
    )
