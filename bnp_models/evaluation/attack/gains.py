"""Result of an attack on files made without some records: gains of the persons in the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.documents import Document, Keywords, NotNegative, Share, Warnings
from bnp_models.data.microdata import Microdata
from bnp_models.evaluation.attack.guesses import Guesses

INTRUDERS = ("files", "all_others")
"""What intruders know besides all other values of the person: the files; all other records too."""

LEAST = 20
"""Least number of persons of a group whose gain is estimated."""


class GainFigures(Document):
    """Difference between persons in the sample and persons who are not, and its error."""

    estimate: float
    standard_error: NotNegative
    interval: Annotated[tuple[float, float], Keywords(description="95% interval.")]


class GainEntry(Document):
    """Guesses of one intruder about some of the persons."""

    intruder: Annotated[str, Keywords(enum=list(INTRUDERS))]
    """files: he knows all other values of the person, and the files; all_others: he also knows all
    other records of the sample."""
    records: Annotated[str, Keywords(enum=["all", "unique"])]
    """All persons, or those whose combination of values is unique in the sample."""
    kept: int
    """Number of persons from whom the files were made."""
    left_out: int
    """Number of persons who were left out."""
    right: Share
    """Share of the values of persons in the sample that are guessed right at the first try."""
    right_gain: GainFigures
    """Part of this share that is due to the persons being in the sample."""
    probability: Share
    """Mean probability that the intruder gives to the true value."""
    probability_gain: GainFigures
    """Part of this probability that is due to the persons being in the sample."""


class VariableGain(Document):
    """Guesses of the values of one variable, by an intruder who knows all other records too."""

    variable: str
    right: Share
    right_gain: GainFigures


class GainsEntry(Document):
    """What files tell about persons because they are in the sample."""

    design: Annotated[str, Keywords(enum=["made_again", "holdout"])]
    """made_again: files were also made without some of the persons; holdout: persons of the sample
    are compared with those of a holdout."""
    files: int
    gains: Sequence[GainEntry]
    by_variable: Sequence[VariableGain]
    in_words: str
    """What was found."""
    conclusion: str
    """What may be concluded."""
    warnings: Warnings


@dataclass(frozen=True, eq=False)
@displayed
class LeftOutRisk:
    """What synthetic files tell about persons because they are in the sample.

    Examples
    --------
    >>> left_out = np.arange(table.n) % 2 == 0
    >>> risk = bnp.evaluation.left_out_risk(table, left_out, files, released=files)
    >>> sorted(set(risk.gains()["intruder"]))
    ['all_others', 'files']
    """

    table: Microdata
    """The sample, without design weights; with a holdout, both together."""
    rows: np.ndarray
    """(A,) 0-based rows of the attacked persons."""
    left_out: np.ndarray
    """(A,) whether the files were made without the person."""
    unique: np.ndarray
    """(A,) whether nobody else in the table has the person's combination of values."""
    guesses: Mapping[str, Guesses]
    """By intruder, the guesses from files made without the persons left out."""
    released: Mapping[str, Guesses] | None
    """By intruder, the guesses from the released files; None if there are none."""
    chance: np.ndarray
    """(B, 2, 2, 2 + J) gains, as of `gain_table`, when other records, chosen at random, are taken
    for those left out."""
    num_files: int

    @cached_property
    def entries(self) -> list[GainEntry]:
        """Gain of each intruder, for all persons and for those who are unique."""
        groups = {"all": self._everybody, "unique": self.unique}
        return [
            self._entry(intruder, name, who, column)
            for intruder in INTRUDERS
            for column, (name, who) in enumerate(groups.items())
            if min(self._numbers(who)) >= LEAST
        ]

    @property
    def _everybody(self) -> np.ndarray:
        """(A,) everybody who is attacked."""
        return np.ones(len(self.rows), bool)

    def _numbers(self, who: np.ndarray) -> tuple[int, int]:
        """Number of the persons kept, and of those left out."""
        return int((who & ~self.left_out).sum()), int((who & self.left_out).sum())

    def _entry(self, intruder: str, name: str, who: np.ndarray, column: int) -> GainEntry:
        """Guesses of one intruder about a group of persons."""
        kept, left_out = self._numbers(who)
        found: dict[str, Any] = {}
        for measure in Guesses._fields:
            found[measure] = float(np.nanmean(self._inside(intruder, measure)[who]))
            found[f"{measure}_gain"] = self._gain(intruder, measure, column)
        return GainEntry(intruder=intruder, records=name, kept=kept, left_out=left_out, **found)

    def _inside(self, intruder: str, measure: str) -> np.ndarray:
        """(A, J) guesses about persons in the sample; nan for a holdout."""
        if self.released is not None:
            return getattr(self.released[intruder], measure)
        found = getattr(self.guesses[intruder], measure)
        return np.where(self.left_out[:, None], np.nan, found)

    @cached_property
    def _table(self) -> np.ndarray:
        """(2, 2, 2 + J) the gains."""
        return gain_table(self.guesses, self.released, self.left_out, self.unique)

    def _gain(self, intruder: str, measure: str, column: int) -> GainFigures:
        """Gain in a column of `gain_table`, and its error."""
        at = INTRUDERS.index(intruder), Guesses._fields.index(measure), column
        estimate, chance = float(self._table[at]), self.chance[:, *at]
        error = float(np.sqrt(np.nanmean(chance**2)))
        width = quantile(len(chance)) * error
        ends = estimate - width, estimate + width
        return GainFigures(estimate=estimate, standard_error=error, interval=ends)

    def gains(self) -> pd.DataFrame:
        """List the gains of `entries`: one row per intruder and group of persons.

        Columns: ``intruder``, ``records``, ``kept``, ``left_out``, the share of values guessed
        ``right``, and the ``gain`` of this share with its ``standard_error``, ``lower`` and
        ``upper`` end.
        """
        names = ["intruder", "records", "kept", "left_out", "right"]
        rows = [
            {name: entry[name] for name in names} | _flat(entry["right_gain"])
            for entry in self.entries
        ]
        return pd.DataFrame(rows, columns=[*names, *_FLAT])

    def by_variable(self) -> list[VariableGain]:
        """Gain of each variable, for the intruder who knows all other records too."""
        if not self.entries:
            return []
        right = np.nanmean(self._inside("all_others", "right"), axis=0)
        return [
            VariableGain(
                variable=name, right=right[j], right_gain=self._gain("all_others", "right", 2 + j)
            )
            for j, name in enumerate(self.table.schema.variables)
        ]

    def _of_all(self) -> dict[str, GainEntry]:
        """Gain of each intruder for all persons."""
        return {one["intruder"]: one for one in self.entries if one["records"] == "all"}

    def in_words(self) -> str:
        """Sentence on what is guessed right, and on what the sample adds."""
        of_all = self._of_all()
        if not of_all:
            return "too few persons were left out to say what an intruder learns"
        words = {
            "files": "an intruder who knows all values of a person but one guesses this one right "
            "at the first try in {right} of the cases; {gain} of them because the person is in the "
            "sample",
            "all_others": "if he also knows all other records of the sample, {right}, and {gain}",
        }
        return "; ".join(
            words[name].format(right=_percent(one["right"]), gain=_in_points(one["right_gain"]))
            for name, one in of_all.items()
        )

    def conclusion(self) -> str:
        """Sentence on what may be concluded from the gains."""
        gains = [one["right_gain"] for one in self.entries]
        if not gains:
            return "nothing can be concluded; make files with more records"
        most = max(0.0, *(gain["interval"][1] for gain in gains))
        found = any(gain["interval"][0] > 0 for gain in gains)
        said = "the files tell" if found else "it was not found that the files tell"
        return (
            f"{said} such an intruder something about a person that he would not learn from files "
            f"made without this person; on average this concerns at most {_percent(most)} of the "
            "guesses (upper end of the 95% intervals, also for persons with unique values). It may "
            "be more for single persons, and for an intruder with another method"
        )

    def warnings(self) -> list[str]:
        """Sentences on what makes the figures unreliable."""
        if not self.entries:
            return [f"fewer than {LEAST} persons could be attacked in one of the two groups"]
        wide = max(one["right_gain"]["standard_error"] for one in self._of_all().values())
        if wide > 0.02:
            return [
                f"the gain has a standard error of {_percent(wide)}, so that only large gains can "
                "be found; more records make it more precise"
            ]
        return []

    def summary(self) -> GainsEntry:
        """Figures as JSON values."""
        return GainsEntry(
            design="holdout" if self.released is None else "made_again",
            files=self.num_files,
            gains=self.entries,
            by_variable=self.by_variable(),
            in_words=self.in_words(),
            conclusion=self.conclusion(),
            warnings=self.warnings(),
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        kept, left_out = self._numbers(self._everybody)
        title = f"LeftOutRisk: {counted(kept, 'person')} kept, {left_out:,} left out"
        return Shown(title, {"files": self.num_files, "found": self.in_words()}, self.gains())


def gain_table(
    guesses: Mapping[str, Guesses],
    released: Mapping[str, Guesses] | None,
    left_out: np.ndarray,
    unique: np.ndarray,
) -> np.ndarray:
    """Compute the gains of persons who were kept over persons who were left out.

    Parameters
    ----------
    guesses, released
        By intruder, the guesses from files made without some persons, and from the released ones.
    left_out, unique : (A,) bool array
        Whether each person was left out, and is unique in the sample.

    Returns
    -------
    gains : (2, 2, 2 + J) array
        For each intruder and measure: the gain over all variables of all persons, and of those who
        are unique, and that of each variable for all persons; nan without persons.
    """
    found = []
    for intruder in INTRUDERS:
        for measure in Guesses._fields:
            score = getattr(guesses[intruder], measure)
            if released is not None:
                score = score - getattr(released[intruder], measure)
            over_all = score.mean(axis=1)
            columns = np.column_stack([over_all, np.where(unique, over_all, np.nan), score])
            found.append(_mean(columns[~left_out]) - _mean(columns[left_out]))
    return np.reshape(found, (len(INTRUDERS), len(Guesses._fields), -1))


def _mean(columns: np.ndarray) -> np.ndarray:
    """Mean of the known values of each column; nan if there are none."""
    number = np.isfinite(columns).sum(axis=0)
    sums = np.nansum(columns, axis=0)
    return np.divide(sums, number, out=np.full(len(sums), np.nan), where=number > 0)


def quantile(number: int) -> float:
    """97.5% quantile of Student's t, whose variance is estimated from so many gains by chance."""
    from scipy.stats import t

    return float(t.ppf(0.975, number))


_FLAT = ("gain", "standard_error", "lower", "upper")


def _flat(gain: GainFigures) -> dict[str, float]:
    """Figures of a gain as columns."""
    figures = gain["estimate"], gain["standard_error"], *gain["interval"]
    return dict(zip(_FLAT, figures, strict=True))


def _percent(share: float) -> str:
    """Share in per cent."""
    return f"{100 * share:.1f}%"


def _in_points(gain: GainFigures) -> str:
    """Gain in percentage points, with its interval."""
    low, high = gain["interval"]
    return f"{100 * gain['estimate']:.1f}% (95% interval {100 * low:.1f}% to {100 * high:.1f}%)"
