"""Synthetic files judged as a whole: how useful they are, and what of the original is in them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Microdata
from bnp_models.evaluation.attack.result import AttackRisk
from bnp_models.evaluation.combining import COMBINING_RULES
from bnp_models.evaluation.impossible import Impossible, find_impossible, first_few
from bnp_models.evaluation.propensity import PropensityScore, num_columns, propensity_score
from bnp_models.evaluation.proportions import Proportions, proportions
from bnp_models.evaluation.shares import Shares, household_shares
from bnp_models.evaluation.uniques import Replicated, SmallCells, k_anonymity, replicated_uniques
from bnp_models.rules.rules import Rules
from bnp_models.version import __version__
from bnp_models.zeros.structural_zeros import StructuralZeros

ORDERS = (1, 2, 3)

# Ratios of the propensity score that are commonly taken as those of a bad fit (Raab, Nowok & Dibben
# 2021, doi:10.48550/arXiv.2109.12717, section 4).
BAD_RATIO = 10.0

_MAX_PARAMETERS = 1000

_WORST = 100

_SCORES = {"main_effects": False, "pairs": True}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found."""

    original: Microdata | Households
    synthetic: tuple[Microdata | Households, ...]
    population: Microdata | Households | None
    combining: str
    level: float
    seed: int
    proportions: dict[int, Proportions]
    """By order."""
    scores: dict[str, tuple[PropensityScore, ...]]
    """Of each file: "main_effects", and "pairs" with their interactions if these are not too
    many."""
    score_parameters: int
    """Columns of the regression with interactions."""
    shares: Shares | None
    """Of households, where statements about them were given."""
    anonymity: tuple[list[SmallCells], ...]
    """k-anonymity counts of the original, then of each file."""
    replicated: Replicated
    impossible: tuple[Impossible, ...] | None
    """Of each file, where conditions or rules were given."""
    seconds: dict[str, float]
    attack: AttackRisk | None = None
    """What `attack_risk` found, to be reported with the rest."""

    def warnings(self, names: Sequence[str] | None = None) -> list[str]:
        """What should be known before the files are used or released.

        Parameters
        ----------
        names
            What the synthetic files are called; by default by number.
        """
        names = self.file_names(names)
        found = []
        households = isinstance(self.original, Households)
        for name, broken in zip(names, self.impossible or (), strict=False):
            if broken.number:
                what = "households break a rule" if households else "records break a condition"
                one = what.replace("s break", " breaks")
                found.append(
                    f"do not release {name}: {broken.number:,} {what if broken.number > 1 else one}"
                    f" (the first in row {broken.rows[0]}: {broken.broken[0]})"
                )
        for kind, scores in self.scores.items():
            ratios = [score.ratio for score in scores]
            bad = [name for name, ratio in zip(names, ratios, strict=True) if ratio > BAD_RATIO]
            if bad:
                what = {"main_effects": "main effects", "pairs": "pairs of variables"}[kind]
                found.append(
                    f"poor fit: by their {what} the records of {first_few(bad, ', ')} are told "
                    f"from the original's (pMSE {max(ratios):.1f} times its expected value, more "
                    f"than {BAD_RATIO:g}); see which tables fit worst"
                )
        for order in (1, 2):
            bad = self.proportions[order].fit if order in self.proportions else None
            bad = None if bad is None else bad[bad["pmse_ratio"] > BAD_RATIO]
            if bad is not None and len(bad):
                what = ("variable", "variables") if order == 1 else ("pair", "pairs")
                found.append(
                    f"poor fit of {len(bad)} {what[len(bad) > 1]}{' of variables' * (order == 2)} "
                    f"(pMSE more than {BAD_RATIO:g} times its expected value): "
                    f"{first_few([' and '.join(row) for row in bad['variables']], '; ')}"
                )
        if self.attack is not None:
            found += [f"attack risk: {sentence}" for sentence in self.attack.warnings()]
        return found + self.notices()

    def notices(self) -> list[str]:
        """What was left out or is of limited meaning, in words."""
        found = []
        persons = [persons_of(table) for table in (self.original, *self.synthetic)]
        missing = [int((~table.complete).sum()) for table in persons]
        if any(missing):
            found.append(
                f"values are missing in {missing[0]:,} records of the original and "
                f"{sum(missing[1:]):,} synthetic ones: a table counts the records with all of its "
                "values, and propensity scores and counts of small cells the complete records only"
            )
        if isinstance(self.original, Households):
            found.append(
                "proportions of persons and propensity scores take persons as independent, and "
                "those of one household are not: their intervals are too narrow; shares of "
                "households are right"
            )
        if len(self.synthetic) == 1:
            found.append(
                "one synthetic file: its intervals leave out how much files differ, and are too "
                "narrow for statements about the population; make several"
            )
        for order, part in self.proportions.items():
            if part.left_out:
                found.append(
                    f"{len(part.tables):,} of {len(part.tables) + part.left_out:,} {order}-way "
                    "tables, chosen at random, stand for all"
                )
        if "main_effects" not in self.scores:
            found.append(
                "propensity scores were left out: the regression would have more than "
                f"{_MAX_PARAMETERS:,} columns; tables are judged one by one"
            )
        elif "pairs" not in self.scores and len(persons[0].schema.variables) > 1:
            found.append(
                "the propensity score with pairs of variables was left out: its regression would "
                f"have {self.score_parameters:,} columns, more than {_MAX_PARAMETERS:,}; pairs are "
                "judged one by one"
            )
        return found

    def file_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Names of the synthetic files, those given or by number."""
        if names is None:
            return [f"file {m + 1}" for m in range(len(self.synthetic))]
        return list(names)

    def summary(self, names: Sequence[str] | None = None) -> dict:
        """The content of ``evaluation.json``; only its last entry depends on the clock.

        Parameters
        ----------
        names
            What the synthetic files are called; by default by number.
        """
        persons = [persons_of(table) for table in (self.original, *self.synthetic)]
        schema = persons[0].schema
        households = {}
        if isinstance(self.original, Households):
            households = {
                "households": self.original.n,
                "synthetic_households": [table.n for table in self.synthetic],
            }
        return {
            "n": persons[0].n,
            "files": [
                {"name": name, "rows": table.n}
                for name, table in zip(self.file_names(names), persons[1:], strict=True)
            ],
            "population_size": None if self.population is None else persons_of(self.population).n,
            **households,
            "variables": list(schema.variables),
            "levels": list(schema.num_levels),
            "cells": schema.num_cells,
            "missing": int((persons[0].codes < 0).sum()),
            "seed": self.seed,
            "version": __version__,
            "combining": self.combining,
            "level": self.level,
            "proportions": {str(k): part.summary() for k, part in self.proportions.items()},
            "pmse": {
                kind: {
                    **{
                        name: float(np.mean([getattr(score, name) for score in scores]))
                        for name in PropensityScore._fields
                    },
                    "files": [score._asdict() for score in scores],
                }
                for kind, scores in self.scores.items()
            },
            "worst_tables": {
                str(k): part.fit.head(_WORST).to_dict(orient="records")
                for k, part in self.proportions.items()
            },
            "household_shares": None if self.shares is None else shares_document(self.shares),
            "k_anonymity": {
                "original": [row._asdict() for row in self.anonymity[0]],
                "synthetic": [[row._asdict() for row in rows] for rows in self.anonymity[1:]],
            },
            "replicated_uniques": self.replicated._asdict(),
            "impossible": None if self.impossible is None else [
                {
                    "number": one.number,
                    "first_rows": list(one.rows),
                    "broken": list(one.broken),
                    **({"by_rule": one.by_rule} if one.by_rule else {}),
                }
                for one in self.impossible
            ],
            "attack_risk": None if self.attack is None else self.attack.summary(),
            "warnings": self.warnings(names),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }  # fmt: skip


def evaluate(
    original: Microdata | Households,
    synthetic: Sequence[Microdata | Households],
    *,
    population: Microdata | Households | None = None,
    conditions: StructuralZeros | Rules | None = None,
    quantities: Rules | None = None,
    combining: str = "partially",
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Judge synthetic files by their original.

    Parameters
    ----------
    original
        The records that the synthetic ones stand for, or persons within households.
    synthetic
        M files of the same variables and levels, as `read_like` reads them.
    population
        Records of the whole population, where it is known.
    conditions
        Structural zeros, or rules of households: what of the synthetic files breaks one is counted.
    quantities
        Statements about households, whose shares are compared (`household_shares`).
    combining
        "partially" or "fully": how files are combined (`bnp_models.evaluation.combining.combined`).
    level
        Confidence level of the intervals.
    seed
        Of the choice of tables, where there are too many.
    progress
        Called with what is done now, and how many of how many parts of it are.

    Raises
    ------
    ValueError
        If no file is given, variables or levels differ, or a file has no complete record.
    """
    if combining not in COMBINING_RULES:
        raise ValueError(f"the combining rule must be one of {COMBINING_RULES}, not {combining!r}")
    persons = [persons_of(table) for table in (original, *synthetic)]
    whole = None if population is None else persons_of(population)
    seconds, tell = {}, progress or (lambda *_: None)
    start = time.perf_counter()
    found = {}
    for order in ORDERS[: persons[0].num_variables]:
        found[order] = proportions(
            persons[0], persons[1:], order, population=whole, combining=combining, level=level,
            seed=seed, progress=lambda done, of, order=order: tell(f"{order}-way tables", done, of),
        )  # fmt: skip
    seconds["proportions"] = time.perf_counter() - start
    start = time.perf_counter()
    columns, scores = num_columns(persons, interactions=True), {}
    for kind, interactions in _SCORES.items():
        if num_columns(persons, interactions) > _MAX_PARAMETERS or (
            interactions and persons[0].num_variables == 1
        ):
            continue
        scores[kind] = ()
        for m, table in enumerate(persons[1:]):
            scores[kind] += (
                propensity_score(
                    persons[0], table, interactions=interactions, max_parameters=_MAX_PARAMETERS
                ),
            )
            tell(f"propensity scores, {kind.replace('_', ' ')}", m + 1, len(synthetic))
    seconds["propensity_scores"] = time.perf_counter() - start
    start = time.perf_counter()
    impossible = None
    if conditions is not None:
        impossible = []
        for m, table in enumerate(synthetic):
            impossible.append(find_impossible(table, conditions))
            tell("conditions", m + 1, len(synthetic))
    shares = None
    if quantities is not None:
        shares = household_shares(
            quantities, original, synthetic, population=population, combining=combining,
            level=level,
        )  # fmt: skip
    seconds["conditions_and_shares"] = time.perf_counter() - start
    return Evaluation(
        original, tuple(synthetic), population, combining, level, seed, found, scores, columns,
        shares, tuple(map(k_anonymity, persons)), replicated_uniques(persons[0], persons[1:]),
        None if impossible is None else tuple(impossible), seconds,
    )  # fmt: skip


def shares_document(shares: Shares) -> list[dict]:
    """Shares of households as JSON values, one entry a statement."""
    return [
        {
            "name": name,
            "original": float(shares.original[i]),
            "original_interval": [float(end[i]) for end in shares.original_interval],
            "synthetic": float(shares.synthetic[i]),
            "interval": [float(end[i]) for end in shares.interval],
            "overlap": float(shares.overlap[i]),
            **({} if shares.population is None else {"population": float(shares.population[i])}),
        }
        for i, name in enumerate(shares.names)
    ]
