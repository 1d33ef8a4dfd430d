"""Result of an attack on files made without some records: gains of the persons in the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

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

_Z = 1.96


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
    """(A,) whether the person's combination of values is unique in the table."""
    guesses: Mapping[str, Guesses]
    """By intruder, the guesses from files made without the persons left out."""
    released: Mapping[str, Guesses] | None
    """By intruder, the guesses from the released files; None if there are none."""
    num_files: int

    @cached_property
    def entries(self) -> list[GainEntry]:
        """Gain of each intruder, for all persons and for those who are unique."""
        everybody = np.ones(len(self.rows), bool)
        groups = {"all": everybody, "unique": self.unique}
        return [
            self._entry(intruder, name, who)
            for intruder in INTRUDERS
            for name, who in groups.items()
            if min(self._numbers(who)) >= LEAST
        ]

    def _numbers(self, who: np.ndarray) -> tuple[int, int]:
        """Number of the persons kept, and of those left out."""
        return int((who & ~self.left_out).sum()), int((who & self.left_out).sum())

    def _entry(self, intruder: str, name: str, who: np.ndarray) -> GainEntry:
        """Guesses of one intruder about a group of persons."""
        kept, left_out = self._numbers(who)
        found = {}
        for measure in Guesses._fields:
            share, gain = self._gain(intruder, measure, who)
            found |= {measure: share, f"{measure}_gain": gain}
        return GainEntry(intruder=intruder, records=name, kept=kept, left_out=left_out, **found)

    def _gain(
        self, intruder: str, measure: str, who: np.ndarray, variable: int | None = None
    ) -> tuple[float, GainFigures]:
        """Mean of a measure over persons in the sample, and the gain."""
        columns = slice(None) if variable is None else [variable]
        score = getattr(self.guesses[intruder], measure)[:, columns].mean(axis=1)
        kept, left_out = who & ~self.left_out, who & self.left_out
        if self.released is None:
            inside, differences = score[kept].mean(), score
        else:
            released = getattr(self.released[intruder], measure)[:, columns].mean(axis=1)
            inside, differences = released[who].mean(), score - released
        groups = differences[kept], differences[left_out]
        estimate = float(groups[0].mean() - groups[1].mean())
        error = float(np.sqrt(sum(group.var(ddof=1) / len(group) for group in groups)))
        ends = estimate - _Z * error, estimate + _Z * error
        return float(inside), GainFigures(estimate=estimate, standard_error=error, interval=ends)

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
        everybody = np.ones(len(self.rows), bool)
        if min(self._numbers(everybody)) < LEAST:
            return []
        found = []
        for j, name in enumerate(self.table.schema.variables):
            share, gain = self._gain("all_others", "right", everybody, j)
            found.append(VariableGain(variable=name, right=share, right_gain=gain))
        return found

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
        kept, left_out = self._numbers(np.ones(len(self.rows), bool))
        title = f"LeftOutRisk: {counted(kept, 'person')} kept, {left_out:,} left out"
        return Shown(title, {"files": self.num_files, "found": self.in_words()}, self.gains())


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
