"""Columns that say what a row stands for: design weights, and numbers of persons."""

import re

import numpy as np

from bnp_models.data.bins import level_counts
from bnp_models.data.label_numbers import plain_number
from bnp_models.data.microdata import Microdata, Records

# Words of names of weights, those of well-known surveys among them, and words that tell of others.
_WEIGHT = re.compile(
    r"[a-z]{0,3}(weights?|wgts?|wght|wts?)|w|gewicht|hochrechnungsfaktor|poids|ponderaci[oó]n|"
    r"pond[eé]ration|per?wt|hhwt|wtfinl|asecwt|earnwt|lnkfw1mwt|rb050|pb040|db090|v005|hv005|"
    r"f?stur?wt[0-9]*|final(weight|wgt|wt)|(rep|repl|brr|jk|boot|bsw?|p|h)w(t|gt|eight)?s?[0-9]+"
)
_REPLICATES = re.compile(
    r"(rep|repl|brr|jk|bsw?|boot)[ _.-]?(w|wt|wgt|weight)s?[ _.-]?[0-9]+", re.I
)
_NO_WEIGHT = {"birth", "body", "baby", "kg", "lb", "lbs", "self", "loss", "gain", "status", "class"}

_COUNT = re.compile(
    r"_?(n|freq|freqs|frequency|frequencies|counts?|n_?obs|num_?obs|anzahl|fallzahl|h(ä|ae)ufigkeit|"
    r"effectifs?|frecuencia|n_?records|n_?cases)_?", re.I,
)  # fmt: skip


def named_as_weights(name: str) -> bool:
    """Whether a name is a usual one of design weights.

    Examples
    --------
    >>> from bnp_models.data.design_columns import named_as_weights
    >>> [named_as_weights(name) for name in ("final_wt", "repwt12", "birth_weight", "growth")]
    [True, True, False, False]
    """
    if _REPLICATES.fullmatch(name.strip()):
        return True
    words = [word.casefold() for word in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if word]
    found = [word for word in words if _WEIGHT.fullmatch(word)]
    # One letter is a name, and no part of one: income_w is that of a wave, or of women.
    found = [word for word in found if len(word) > 1 or len(words) == 1]
    return bool(found) and not _NO_WEIGHT.intersection(words)


def weight_variables(table: Records) -> list[str]:
    """Return the variables that are design weights by their names, and have several numbers."""
    return [
        name
        for name, labels in zip(table.schema.variables, table.schema.levels, strict=True)
        if named_as_weights(name) and _are_not_negative(labels) and len(labels) > 1
    ]


def count_variable(table: Records) -> str | None:
    """Return the variable that says how many persons have the other values of a row, if one does.

    It has a usual name, and its values are whole numbers above 0, not all of them 1; no two rows
    have the same values of the other variables, and rows are in groups of the first or of the last
    of these, or sorted by the number.
    """
    if not isinstance(table, Microdata):
        return None
    schema, cells = table.schema, table.tabulated
    for j, name in enumerate(schema.variables):
        if not is_count_name(name) or len(schema.variables) < 2:
            continue
        read = [plain_number(label) for label in schema.levels[j]]
        numbers = [number for number in read if number is not None]
        if len(numbers) < len(read) or any(n < 1 or n.denominator > 1 for n in numbers):
            continue
        if (cells.codes[:, j] < 0).any() or level_counts(table, name).sum() != table.n:
            continue
        others = np.delete(cells.codes, j, axis=1)
        if max(numbers) > 1 and len(np.unique(others, axis=0)) == table.n:
            rows = np.delete(table.codes, j, axis=1)
            counts = np.array([int(number) for number in numbers])[table.codes[:, j]]
            if _in_groups(rows[:, 0]) or _in_groups(rows[:, -1]) or (np.diff(counts) <= 0).all():
                return name
    return None


def _in_groups(codes: np.ndarray) -> bool:
    """Whether equal codes follow each other."""
    return int((np.diff(codes) != 0).sum()) + 1 == len(np.unique(codes))


def is_count_name(name: str) -> bool:
    """Whether a name is a usual one of numbers of records."""
    return _COUNT.fullmatch(name.strip()) is not None


def _are_not_negative(labels: tuple) -> bool:
    """Whether all labels are numbers, none of them below 0."""
    numbers = [plain_number(label) for label in labels]
    return all(number is not None and number >= 0 for number in numbers)
