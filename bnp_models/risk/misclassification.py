"""Disclosure risk of a file some of whose values were changed at random before its release.

PRAM and swapping replace a true level j of a variable by a level k with a probability that the
agency knows. The sample is the released file, and an intruder compares it with true values. A match
with a record that is unique in its cell j of the released file is wrong if the values of this
record are not its own.

M_kj is the probability that a record with the true cell k is released in cell j: the product over
the variables of the probabilities of their matrices, if variables are changed independently. With
F_k persons in the true cells of the population and a sampling fraction pi, a match with a record
that is unique in the released cell j is correct with the probability

    [M_jj / (1 - pi M_jj)] / sum_k [F_k M_kj / (1 - pi M_kj)],

which is about M_jj / F~_j for a small pi. F~_j is the count of cell j in the
population if all persons were released (Shlomo & Skinner 2010, doi:10.1214/09-AOAS317). A model
that is fitted to the released file estimates F~_j, so that M_jj E(1 / F~_j) estimates the risk of a
record, r_2, without the true counts F_k. Of it, M_jj P(F~_j = 1) is the part of records that are
unique in the whole released population, r_1.

What is approximated:

- The sampling fraction is taken as small. With a large one the estimate is too high, by a factor of
  up to about (1 - pi M_jj) / (1 - pi).
- The probability that a released value is the record's own is taken as M_jj. By Bayes' theorem it
  is M_jj p_j / p~_j, with the probabilities of cell j before and after the change. The estimate is
  therefore too high in rare cells that gain records by the change, and too low in rare cells that
  lose records. In cells with many persons the factor cancels in r_2, but not in r_1.
- The formula is for an intruder who knows a person with the values of the cell. Some released cells
  are those of nobody's true values, so that no match is made; which ones, the released file does
  not tell. They are counted all the same, and tau_1 and tau_2 are too high by their part, which may
  be a third or more of a sparse table.
- Variables are taken as changed independently. Swapping changes several variables of a record
  together; the probability that none of them is changed is then that of one variable, and the
  matrix of only this one is to be given. Swapping also keeps all counts of the levels, so that
  records do not change independently of each other. This is ignored.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bnp_models.data.messages import listing, quoted
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import (
    MicrodataError,
    Schema,
    errors_in,
    plain_label,
    text_of,
    undeclared_level,
)
from bnp_models.data.source import Source

COLUMNS = ("variable", "true", "released", "probability")
"""Columns of a file of misclassification probabilities."""

_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class MisclassifiedTaus:
    """What was changed, and draws of tau_1 and tau_2 that do not take it into account."""

    source: str | None
    """File of the probabilities; None if they were given as a table."""
    tau1: np.ndarray
    """(chains, draws) draws of tau_1 as if no value had been changed."""
    tau2: np.ndarray
    """(chains, draws) draws of tau_2 as if no value had been changed."""


@dataclass(frozen=True, eq=False)
class Misclassification:
    """Probabilities that levels are released unchanged.

    Parameters
    ----------
    unchanged : tuple of arrays, length J
        For each variable, (L_j,) the probability of each level to be released as itself.
    source : str, optional
        File of the probabilities.
    """

    unchanged: tuple[np.ndarray, ...]
    source: str | None = None

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, schema: Schema) -> "Misclassification":
        """Make it of rows with the columns of `COLUMNS`; a level without rows is never changed.

        Raises
        ------
        MicrodataError
            If a column is missing, a cell is empty, a variable or level is unknown, a pair of
            levels is given twice, a probability is not from 0 to 1, or those of a true level do not
            sum to 1 (to 1e-6).
        """
        for column in COLUMNS:
            if column not in frame.columns:
                raise MicrodataError(
                    f"the column is missing; the columns are {listing(COLUMNS)}", column=column
                )
        texts = {
            name: [text_of(label) for label in labels]
            for name, labels in zip(schema.variables, schema.levels, strict=True)
        }
        found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for row, values in enumerate(frame[list(COLUMNS)].itertuples(index=False)):
            variable, true, released, probability = _checked_row(values, schema, row)
            released_as = found[variable, true]
            if released in released_as:
                raise MicrodataError(
                    f"the probability that {quoted(true)} of {quoted(variable)} is released as "
                    f"{quoted(released)} is given twice; keep one",
                    row=row,
                )
            released_as[released] = probability
        unchanged = tuple(np.ones(size) for size in schema.num_levels)
        for (variable, true), released_as in found.items():
            total = sum(released_as.values())
            if abs(total - 1) > _TOLERANCE:
                raise MicrodataError(
                    f"the probabilities of variable {quoted(variable)}, true level {quoted(true)}, "
                    f"sum to {total:.9g}, not to 1; give each level that it may be released as, "
                    "itself included"
                )
            of_variable = unchanged[schema.variables.index(variable)]
            of_variable[texts[variable].index(true)] = released_as.get(true, 0.0)
        return cls(unchanged)

    @classmethod
    def from_file(cls, path: Source | str, schema: Schema) -> "Misclassification":
        """Read it from a file with the columns of `COLUMNS`.

        Raises
        ------
        MicrodataError
            As for `of_frame`, or if the file cannot be read; it names the file and the line.
        """
        frame, lines = read_frame(path, COLUMNS)
        with errors_in(path, lines):
            made = cls.of_frame(frame, schema)
        return cls(made.unchanged, str(path))

    def kept(self, codes: np.ndarray) -> np.ndarray:
        """(C,) probability M_jj of each of some cells, codes (C, J), to be released unchanged."""
        factors = [of[codes[:, j]] for j, of in enumerate(self.unchanged)]
        return np.prod(factors, axis=0)


def _checked_row(values: tuple, schema: Schema, row: int) -> tuple[str, str, str, float]:
    """Variable, true level, released level and probability of a row."""
    for column, value in zip(COLUMNS, values, strict=True):
        if pd.isna(value) or value == "":
            raise MicrodataError("the cell is empty; fill it in", row=row, column=column)
    variable, *levels, given = values
    if variable not in schema.variables:
        raise MicrodataError(
            f"{quoted(variable)} is no key variable; the key variables are "
            f"{listing(schema.variables)}; remove the row, or add the variable to the keys "
            "(--variables)",
            row=row,
            column="variable",
        )
    labels = schema.levels[schema.variables.index(variable)]
    known = [text_of(label) for label in labels]
    true, released = texts = [text_of(plain_label(level)) for level in levels]
    for column, text in zip(("true", "released"), texts, strict=True):
        if text not in known:
            raise MicrodataError(
                f"of variable {quoted(variable)}, {undeclared_level(text, labels)} (--levels "
                "declares levels that the sample lacks)",
                row=row,
                column=column,
            )
    try:
        probability = float(given)
    except (TypeError, ValueError):
        probability = np.nan
    if not 0 <= probability <= 1:
        raise MicrodataError(
            f"{quoted(given)} is no number from 0 to 1; correct it", row=row, column="probability"
        )
    return variable, true, released, probability
