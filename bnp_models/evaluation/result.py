"""Result of an evaluation of synthetic files: its figures, and sentences on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bnp_models.data.contingency import ContingencyTable, common_cells
from bnp_models.data.display import Shown, counted, displayed, first_parts, title_of
from bnp_models.data.households import Households, persons_of
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records, SmallCells
from bnp_models.data.weight_classes import records_of
from bnp_models.evaluation.attack.gains import LeftOutRisk
from bnp_models.evaluation.attack.result import AttackRisk
from bnp_models.evaluation.closest import ClosestRecords
from bnp_models.evaluation.disclosure_measures import Disclosure, Replicated
from bnp_models.evaluation.documents import (
    AnonymityEntry,
    EvaluationSummary,
    FileEntry,
    ImpossibleEntry,
    PropensityEntry,
    ShareEntry,
    TableEntry,
    TreesEntry,
)
from bnp_models.evaluation.impossible import Impossible
from bnp_models.evaluation.propensity import PropensityScore, TreePropensity
from bnp_models.evaluation.proportion_estimates import Proportions
from bnp_models.evaluation.shares import Shares
from bnp_models.evaluation.sources import Source
from bnp_models.version import __version__
from bnp_models.zeros.settled import find_settled, in_words, with_values

# A larger ratio of the propensity score is commonly taken as a bad fit (Raab, Nowok & Dibben 2021,
# doi:10.48550/arXiv.2109.12717, section 4).
BAD_RATIO = 10.0

MAX_PARAMETERS = 1000
"""Largest number of columns of a regression for propensity scores."""

_WORST = 100

# If at least so many records are expected in new cells, it is no chance if none is there.
_LEAST_NEW = 20.0

# Kinds of propensity scores in sentences.
_TOLD_BY = {"main_effects": "main effects", "pairs": "pairs of variables"}


@dataclass(frozen=True, eq=False)
@displayed
class Evaluation:
    """Figures of synthetic files, which are compared with their original.

    Examples
    --------
    >>> evaluation = bnp.evaluate(table, files)
    >>> sorted(evaluation.proportions)
    [1, 2, 3]
    >>> evaluation.summary()["n"]
    62
    """

    original: Records | Households
    """Records from which the synthetic files were made."""
    synthetic: tuple[Records | Households, ...]
    """Synthetic files."""
    population: Records | Households | None
    """Records of the whole population, if it is known."""
    combining: str
    """Rule by which estimates from the files are combined, "partially" or "fully"."""
    level: float
    """Confidence level of the intervals."""
    proportions: dict[int, Proportions]
    """Proportions of cells, by the number of variables of a table."""
    scores: dict[str, tuple[PropensityScore, ...]]
    """Score of each file by kind: "main_effects", and "pairs" (with interactions of pairs of
    variables) if there are not too many interactions."""
    score_parameters: int
    """Number of columns of the regression with interactions."""
    shares: Shares | None
    """Shares of households, if statements about households were given."""
    anonymity: tuple[list[SmallCells], ...]
    """k-anonymity counts of the original, then of each file."""
    replicated: Replicated
    """Unique combinations of the original that occur again in the files."""
    closest: ClosestRecords
    """Distances to the closest record of the original, and of a holdout, if there is one."""
    disclosures: tuple[Disclosure, ...]
    """Disclosure to an intruder who knows some variables, one entry for each set of keys."""
    trees: tuple[TreePropensity, ...] | None
    """Score of each file by classification trees, if they were wanted."""
    impossible: tuple[Impossible, ...] | None
    """Impossible records of each file, if structural zeros or rules were given."""
    seconds: dict[str, float]
    """Wall-clock seconds, by step."""
    attack: AttackRisk | None = None
    """Risks of an attack, which are reported with the other figures."""
    sources: tuple[Source, ...] = ()
    """Known runs that made the files, which are reported with the other figures."""
    no_attack: str | None = None
    """Why the attack that was asked for is not for these files, where it is not."""
    gains: LeftOutRisk | None = None
    """What the files tell about the persons of the original, but not about those of a holdout."""

    def not_assessed(self) -> str | None:
        """Why it cannot be assessed what an intruder learns; None if it was, or was not asked."""
        if self.attack is not None or self.gains is not None or self.attacked_by_runs:
            return None
        if self.no_attack is not None:
            return self.no_attack
        made_by = {source.method for source in self.sources}
        methods = [method for method in ("balanced", "calibrated") if method in made_by]
        if not methods:
            return None
        return (
            f"the files were made by --method {' and '.join(methods)}, and the attack is only for "
            "files that were drawn at random, by --for inference (--method predictive)"
        )

    @property
    def attacked_by_runs(self) -> list[str]:
        """What the runs that made the files found by an attack; empty if a file is not theirs."""
        made = sum(len(source.files) for source in self.sources)
        found = [source.attack for source in self.sources if source.attack is not None]
        return found if made == len(self.synthetic) and len(found) == len(self.sources) else []

    def warnings(self, names: Sequence[str] | None = None) -> list[str]:
        """Sentences that a person should know before the files are used or released.

        Parameters
        ----------
        names
            Names of the synthetic files; by default by number.
        """
        names = self.file_names(names)
        attack = [] if self.attack is None else self.attack.warnings()
        if self.gains is not None:
            attack = attack + self.gains.warnings()
        return [
            *self._warnings_of_impossible(names),
            *self._warnings_of_copies(names),
            *self._warnings_of_settled(names),
            *(sentence for source in self.sources for sentence in source.sentences()),
            *self._warnings_of_scores(names),
            *self._warnings_of_tables(),
            *(f"attack risk: {sentence}" for sentence in attack),
            *self._warnings_of_no_attack(),
            *self.notices(),
        ]

    def _warnings_of_no_attack(self) -> list[str]:
        """Sentence on an attack that was asked for and is not for these files."""
        if self.no_attack is None:
            return []
        if self.not_assessed() is not None:
            return [f"attack risk not assessed: {self.no_attack}"]
        return [f"--posterior was not used: {self.no_attack}"]

    def _warnings_of_settled(self, names: list[str]) -> list[str]:
        """Sentence on files with values that are missing by design in the original."""
        original = records_of(persons_of(self.original))
        settled = find_settled(original) if original.has_missing else []
        filled: dict[int, str] = {}
        for one in settled:
            variable = quoted(original.schema.variables[one.variable])
            for name, file in zip(names, self.synthetic, strict=True):
                number, values = with_values(records_of(persons_of(file)), one)
                if values:
                    where = f"{values:,} of {number:,} such records of {name}"
                    filled.setdefault(one.variable, f"{variable} in {where}")
        if not filled:
            return []
        words = in_words(original, [one for one in settled if one.variable in filled])
        return [
            f"values where the original has none by design: {first_parts(words, 'variable')}, but "
            f"there are values of {first_parts(list(filled.values()), 'variable')}; make files "
            "with --empty-as-level, or with --keep-missing"
        ]

    def _warnings_of_impossible(self, names: list[str]) -> list[str]:
        """Sentences on files with impossible records or households."""
        one, many = "record breaks a condition", "records break a condition"
        if isinstance(self.original, Households):
            one, many = "household breaks a rule", "households break a rule"
        return [
            f"do not release {name}: {file.number:,} {many if file.number > 1 else one}"
            f" (the first in row {file.rows[0]}: {file.broken[0]})"
            for name, file in zip(names, self.impossible or (), strict=False)
            if file.number
        ]

    def _warnings_of_copies(self, names: list[str]) -> list[str]:
        """Sentences on files with the records of the original, or of another file."""
        cells = [persons_of(table).tabulated for table in (self.original, *self.synthetic)]
        copies = [name for name, file in zip(names, cells[1:], strict=True)
                  if _same_records(file, cells[0])]  # fmt: skip
        if copies:
            have, it = ("has", "it") if len(copies) == 1 else ("have", "they")
            return [
                f"{_first_few(copies, ', ')} {have} the same records as the original: if {it} "
                f"should be synthetic, do not release {'it' if it == 'it' else 'them'}; the "
                "figures below compare the original with a copy"
            ]
        sentences = []
        for name, file in zip(names, cells[1:], strict=True):
            expected = _expected_new(cells[0], file.n)
            if expected >= _LEAST_NEW and not _new_records(cells[0], file):
                sentences.append(
                    f"every combination of values in {name} also occurs in the original, but about "
                    f"{expected:,.0f} records should have a new one: if the file should be "
                    "synthetic, do not release it"
                )
        again = [
            name for m, name in enumerate(names, 1)
            if any(_same_records(cells[m], other) for other in cells[1:m])
        ]  # fmt: skip
        if again:
            sentences.append(
                f"{_first_few(again, ', ')}: the same records as an earlier synthetic file; give "
                "each file only once, because intervals would otherwise be too narrow"
            )
        return sentences

    def _warnings_of_scores(self, names: list[str]) -> list[str]:
        """Sentences on files that a regression easily distinguishes from the original."""
        sentences = []
        for kind, scores in self.scores.items():
            ratios = [score.ratio for score in scores]
            bad = [name for name, ratio in zip(names, ratios, strict=True) if ratio > BAD_RATIO]
            if bad:
                sentences.append(
                    f"poor fit: a regression on {_TOLD_BY[kind]} distinguishes the records of "
                    f"{_first_few(bad, ', ')} from those of the original (pMSE {max(ratios):.1f} "
                    f"times its expected value, more than {BAD_RATIO:g}); see which tables fit "
                    "worst"
                )
        return sentences

    def _warnings_of_tables(self) -> list[str]:
        """Sentences on variables and pairs of variables that fit badly."""
        sentences = []
        for order, one, many in (
            (1, "variable", "variables"),
            (2, "pair of variables", "pairs of variables"),
        ):
            if order not in self.proportions:
                continue
            fit = self.proportions[order].fit
            bad = [" and ".join(row) for row in fit["variables"][fit["pmse_ratio"] > BAD_RATIO]]
            if bad:
                sentences.append(
                    f"poor fit of {len(bad)} {many if len(bad) > 1 else one} (pMSE more than "
                    f"{BAD_RATIO:g} times its expected value): {_first_few(bad, '; ')}"
                )
        return sentences

    def notices(self) -> list[str]:
        """Sentences on what was left out, and on figures of limited meaning."""
        sentences = []
        persons = [persons_of(table).tabulated for table in (self.original, *self.synthetic)]
        missing = [int(table.counts[~table.complete].sum()) for table in persons]
        if any(missing):
            sentences.append(
                f"values are missing in {missing[0]:,} records of the original and "
                f"{sum(missing[1:]):,} synthetic ones: a table counts the records that have values "
                "of all its variables, and propensity scores and counts of small cells use only "
                "the complete records"
            )
        if isinstance(self.original, Households):
            sentences.append(
                "proportions of persons and propensity scores assume that persons are independent, "
                "but persons of one household are not: these intervals are too narrow; shares of "
                "households are not affected"
            )
        if len(self.synthetic) == 1:
            sentences.append(
                "one synthetic file: its intervals do not include the variance between files, and "
                "are too narrow for statements about the population; make several files"
            )
        for order, part in self.proportions.items():
            if part.left_out:
                sentences.append(
                    f"only {len(part.tables):,} of {len(part.tables) + part.left_out:,} "
                    f"{order}-way tables were evaluated, chosen at random"
                )
        if "main_effects" not in self.scores:
            sentences.append(
                "propensity scores were left out: the regression would have more than "
                f"{MAX_PARAMETERS:,} columns; tables are evaluated one by one"
            )
        elif "pairs" not in self.scores and len(persons[0].schema.variables) > 1:
            sentences.append(
                "the propensity score with pairs of variables was left out: its regression would "
                f"have {self.score_parameters:,} columns, more than {MAX_PARAMETERS:,}; pairs are "
                "evaluated one by one"
            )
        return sentences

    def file_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Names of the synthetic files: the given names, or numbers."""
        if names is None:
            return [f"file {m + 1}" for m in range(len(self.synthetic))]
        return list(names)

    def summary(
        self, names: Sequence[str] | None = None, seed: int | None = None
    ) -> EvaluationSummary:
        """Content of ``evaluation.json``; only its last entry depends on the clock.

        Parameters
        ----------
        names
            Names of the synthetic files; by default numbers.
        seed
            The seed, if there was one.
        """
        persons = [persons_of(table).tabulated for table in (self.original, *self.synthetic)]
        schema = persons[0].schema
        homes = self.original if isinstance(self.original, Households) else None
        return EvaluationSummary(
            n=persons[0].n,
            files=[
                FileEntry(name=name, rows=table.n)
                for name, table in zip(self.file_names(names), persons[1:], strict=True)
            ],
            population_size=None if self.population is None else persons_of(self.population).n,
            households=None if homes is None else homes.n,
            synthetic_households=None if homes is None else [table.n for table in self.synthetic],
            variables=schema.variables,
            levels=schema.num_levels,
            cells=schema.num_cells,
            missing=(persons[0].codes < 0).sum(axis=1) @ persons[0].counts,
            seed=seed,
            version=__version__,
            combining=self.combining,
            level=self.level,
            proportions={str(k): part.summary() for k, part in self.proportions.items()},
            pmse={
                kind: PropensityEntry(**_means(scores), files=scores)
                for kind, scores in self.scores.items()
            },
            worst_tables={
                str(k): [TableEntry.of(row) for row in part.fit.head(_WORST).itertuples()]
                for k, part in self.proportions.items()
            },
            household_shares=None if self.shares is None else share_entries(self.shares),
            k_anonymity=AnonymityEntry(original=self.anonymity[0], synthetic=self.anonymity[1:]),
            replicated_uniques=self.replicated,
            closest_records=self.closest,
            disclosure=self.disclosures,
            pmse_trees=(
                None if self.trees is None else TreesEntry(**_means(self.trees), files=self.trees)
            ),
            impossible=None if self.impossible is None else [*map(_entry_of, self.impossible)],
            synthetic_runs=self.sources,
            attack_risk=None if self.attack is None else self.attack.summary(),
            attack_gains=None if self.gains is None else self.gains.summary(),
            attack_not_assessed=self.not_assessed(),
            warnings=self.warnings(names),
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        rows = {order: part.summary() for order, part in self.proportions.items()}
        columns = ["tables", "cells", "mean_tvd", "k_marginal", "overlap"]
        frame = pd.DataFrame(rows).T[columns].reset_index(names="variables")
        ratios = [
            f"{np.mean([score.ratio for score in scores]):.2f} by {_TOLD_BY[kind]}"
            for kind, scores in self.scores.items()
        ]
        found = np.mean(self.replicated.found_unique)
        lines = {
            "original": title_of(self.original),
            "pMSE over its expected value": ", ".join(ratios) or None,
            "uniques that are unique in a file": f"{found:,.1f} of {self.replicated.uniques:,}",
            "warnings": len(self.warnings()),
        }
        title = f"Evaluation: {counted(len(self.synthetic), 'synthetic file')}"
        return Shown(title, lines, frame)


def _same_records(one: ContingencyTable, other: ContingencyTable) -> bool:
    """Whether two files have the same records, in any order."""
    return np.array_equal(one.counts, other.counts) and np.array_equal(one.codes, other.codes)


def _expected_new(original: ContingencyTable, number: int) -> float:
    """Expected number of `number` further records of the population that are in cells without a
    record. Their share is about that of the records that are alone in their cell (Good-Turing)."""
    counts = original.counts[original.complete]
    return number * float((counts == 1).sum()) / max(1, counts.sum())


def _new_records(original: ContingencyTable, file: ContingencyTable) -> int:
    """Number of complete records of a file in cells without a record of the original."""
    _, (own, made) = common_cells([original, file])
    return int(made[own == 0].sum())


def _first_few(items: list[str], separator: str) -> str:
    """Text with the first five items of a list, and the number of further items."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return separator.join(items[:5]) + more


def _means(scores: Sequence[PropensityScore] | Sequence[TreePropensity]) -> dict[str, float]:
    """Means of each figure over files."""
    means = (float(np.mean(values)) for values in zip(*scores, strict=True))
    return dict(zip(scores[0]._fields, means, strict=True))


def _entry_of(impossible: Impossible) -> ImpossibleEntry:
    """Entry of the impossible records of one file."""
    return ImpossibleEntry.of(
        impossible, first_rows=impossible.rows, by_rule=impossible.by_rule or None
    )  # fmt: skip


def share_entries(shares: Shares) -> list[ShareEntry]:
    """Entries of shares of households, one for each statement."""

    def ends(interval, i):
        return interval[0][i], interval[1][i]

    return [
        ShareEntry(
            name=name,
            original=shares.original[i],
            original_interval=ends(shares.original_interval, i),
            synthetic=shares.synthetic[i],
            interval=ends(shares.interval, i),
            overlap=shares.overlap[i],
            population=None if shares.population is None else shares.population[i],
        )
        for i, name in enumerate(shares.names)
    ]
