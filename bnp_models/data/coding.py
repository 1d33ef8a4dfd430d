"""Coding of the labels of one variable, which may arrive in several parts."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from bnp_models.data.label_numbers import sorted_labels
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    in_type_of,
    plain_label,
    text_of,
    undeclared_level,
)
from bnp_models.data.spelling import shown, spelling_key


class ColumnCoder:
    """Codes of the labels of one variable.

    Until all parts are coded, codes are in the order of appearance. `finish` then returns the
    levels in their final order, and the final code for each of these codes.

    Parameters
    ----------
    variable : str
        Name, for messages.
    declared : sequence of labels, optional
        Declared levels, in order.
    categorical : bool
        Whether the labels are given in their order, including those that do not occur.

    Raises
    ------
    MicrodataError
        If a declared level is empty.
    """

    def __init__(
        self, variable: str, declared: Sequence[Label] | None = None, categorical: bool = False
    ):
        self._variable, self.categorical = variable, categorical
        self._declared = None if declared is None else [plain_label(label) for label in declared]
        if any(label == "" or pd.isna(label) for label in self._declared or ()):
            raise MicrodataError("a declared level is empty; name it or remove it", column=variable)
        self._known = None if declared is None else set(map(text_of, self._declared or ()))
        self._codes: dict[str, int] = {}
        self._labels: list[Label] = []

    @property
    def num_labels(self) -> int:
        """Number of labels that have appeared."""
        return len(self._labels)

    def add(self, raw: np.ndarray, values: Iterable[Label], first_row: int = 0) -> np.ndarray:
        """Code a part.

        Parameters
        ----------
        raw : (n,) integer array
            Index into `values` of each record's label, -1 where it is missing.
        values : labels
            Labels of this part. An empty text, None and NaN are missing values.
        first_row : int
            0-based row of the first record of this part.

        Returns
        -------
        (n,) int32 array
            Codes in the order of appearance, -1 where missing.

        Raises
        ------
        MicrodataError
            On a label that is not declared; it names the row and the value.
        """
        codes = []
        for k, label in enumerate(map(plain_label, values)):
            if label == "" or pd.isna(label):
                codes.append(-1)
                continue
            text = text_of(label)
            if text not in self._codes:
                if self._known is not None and text not in self._known:
                    self._refuse(label, np.flatnonzero(raw == k), first_row)
                    # A category that no record has.
                    codes.append(-1)
                    continue
                self._codes[text] = len(self._labels)
                self._labels.append(label)
            codes.append(self._codes[text])
        # The raw code -1 of a missing value picks the last entry.
        return np.array([*codes, -1], dtype=np.int32)[raw]

    def finish(self) -> tuple[tuple[Label, ...], np.ndarray]:
        """Return the levels in order, and the new code of each code of `add`, last that of -1."""
        if self._declared is not None:
            labels = in_type_of(self._labels, self._declared)
        elif self.categorical:
            labels = self._labels
        else:
            labels = sorted_labels(self._labels)
        position = {text_of(label): code for code, label in enumerate(labels)}
        recode = [position[text] for text in self._codes]
        return tuple(labels), np.array([*recode, -1], dtype=np.int32)

    def _refuse(self, label, rows, first_row):
        """Raise the error for a label that is not declared, if there are rows with it."""
        if rows.size:
            labels = in_type_of([*self._labels, label], self._declared)
            same = [one for one in labels if spelling_key(one) == spelling_key(label)]
            # It may be the value that the other file has in another spelling.
            hint = (
                (f"; if it is another spelling of {shown(same[0])}, say --normalise")
                if same
                else ""
            )
            raise MicrodataError(
                undeclared_level(label, labels) + hint,
                row=first_row + int(rows[0]),
                column=self._variable,
            )


def not_plain(variable: str) -> MicrodataError:
    """Return the error for a variable whose values are no labels."""
    return MicrodataError(
        "values that are not plain labels (lists or the like); use text or numbers", column=variable
    )
