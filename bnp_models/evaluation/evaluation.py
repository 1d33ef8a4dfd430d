"""Evaluation of synthetic files: how useful they are, and what they reveal of the original."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.frames import Tabular
from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Microdata, k_anonymity
from bnp_models.evaluation.attack.gains import LEAST, LeftOutRisk
from bnp_models.evaluation.attack.left_out import left_out_risk
from bnp_models.evaluation.closest import closest_records
from bnp_models.evaluation.combining import COMBINING_RULES
from bnp_models.evaluation.disclosure_measures import Disclosure, disclosure, replicated_uniques
from bnp_models.evaluation.files import coded_files
from bnp_models.evaluation.impossible import Impossible, find_impossible
from bnp_models.evaluation.propensity import (
    PropensityScore,
    num_columns,
    propensity_score,
    tree_propensity,
)
from bnp_models.evaluation.proportion_estimates import proportions
from bnp_models.evaluation.result import MAX_PARAMETERS, Evaluation
from bnp_models.evaluation.shares import Shares, household_shares
from bnp_models.kernels.variates.rng import Keys, key_array
from bnp_models.models.options import key_or_default
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions

ORDERS = (1, 2, 3)

# Kinds of propensity scores, and whether they have interactions.
_SCORES = {"main_effects": False, "pairs": True}

Tell = Callable[[str, int, int], None]
"""Function called with the name of a step, the number of its parts that are done, and of all."""


def evaluate(
    original: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    *,
    population: Tabular | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    quantities: Rules | None = None,
    holdout: Tabular | None = None,
    keys: Sequence[Sequence[str]] = (),
    targets: Sequence[str] | None = None,
    trees: bool = False,
    combining: str = "partially",
    level: float = 0.95,
    key: jax.Array | None = None,
    progress: Tell | None = None,
) -> Evaluation:
    """Compare synthetic files with their original.

    Parameters
    ----------
    original
        The original: single records, counts of cells, or persons within households. A data frame of
        records is coded with the labels of all given frames.
    synthetic
        M files of the same variables and levels: tables, such as those of `read_like`; or data
        frames, such as those of `synthesize`, which are coded like the original.
    population
        Records of the whole population, if it is known.
    conditions
        Structural zeros, or rules for households; impossible synthetic records or households are
        counted.
    quantities
        Statements about households, whose shares are compared (`household_shares`).
    holdout
        Records of the same population from which the files were not made (`closest_records`).
    keys, targets
        Sets of variables that an intruder knows, and variables that the intruder would like to know
        (`disclosure`); the default of `targets` is all variables that are not keys.
    trees
        Whether classification trees are used, too, to distinguish records (`tree_propensity`).
    combining
        Rule by which estimates from the files are combined, "partially" or "fully"
        (`bnp_models.evaluation.combining.combine`).
    level
        Confidence level of the intervals.
    key
        Random key for the choice of tables and records, if there are too many, and for the
        permutations of `tree_propensity`. Default: `jax.random.key(0)`.
    progress
        Function that is called with the name of the step, the number of its parts that are done,
        and the number of all its parts.

    Raises
    ------
    ValueError
        If no file is given, variables or levels differ, or a file has no complete record.

    Examples
    --------
    >>> evaluation = bnp.evaluate(table, bnp.synthesize(run, 2))
    >>> [file["rows"] for file in evaluation.summary()["files"]]
    [62, 62]
    """
    if combining not in COMBINING_RULES:
        raise ValueError(f"the combining rule must be one of {COMBINING_RULES}, not {combining!r}")
    original, synthetic, others = coded_files(
        "evaluate(original, synthetic)", original, synthetic, population=population, holdout=holdout
    )
    population, holdout = others["population"], others["holdout"]
    conditions = as_conditions(conditions, original.schema)
    if conditions is not None:
        kind = Rules if isinstance(original, Households) else StructuralZeros
        check_kind(kind, "evaluate(original, synthetic, conditions=...)", conditions=conditions)
    persons = [persons_of(table) for table in (original, *synthetic)]
    whole = None if population is None else persons_of(population)
    key_tables, key_trees, key_closest, key_gains = Keys(key_or_default(key), 4)
    tell: Tell = progress or (lambda *_: None)
    seconds: dict[str, float] = {}
    with _timed(seconds, "proportions"):
        by_order = {}
        for order in ORDERS[: persons[0].num_variables]:
            by_order[order] = proportions(
                persons[0],
                persons[1:],
                order,
                population=whole,
                combining=combining,
                level=level,
                key=jax.random.fold_in(key_tables, order),
                progress=partial(tell, f"{order}-way tables"),
            )
    with _timed(seconds, "propensity_scores"):
        scores = _propensity_scores(persons, tell)
        by_trees = None
        if trees:
            keys_trees = key_array(key_trees, len(synthetic))
            by_trees = tuple(
                tree_propensity(persons[0], file, key=one)
                for file, one in zip(persons[1:], keys_trees, strict=True)
            )
    with _timed(seconds, "disclosure"):
        apart = None if holdout is None else persons_of(holdout)
        closest = closest_records(persons[0], persons[1:], apart, key=key_closest)
        gains = _gains(original, synthetic, holdout, conditions, key_gains)
        disclosures = tuple(_disclosure(persons, names, targets) for names in keys)
    with _timed(seconds, "conditions_and_shares"):
        impossible = _impossible_of_files(synthetic, conditions, tell)
        shares = _shares(quantities, original, synthetic, population, combining, level)
    return Evaluation(
        original=original,
        synthetic=tuple(synthetic),
        population=population,
        combining=combining,
        level=level,
        proportions=by_order,
        scores=scores,
        score_parameters=num_columns(persons, interactions=True),
        shares=shares,
        anonymity=tuple(map(k_anonymity, persons)),
        replicated=replicated_uniques(persons[0], persons[1:]),
        closest=closest,
        disclosures=disclosures,
        trees=by_trees,
        impossible=impossible,
        gains=gains,
        seconds=seconds,
    )


def _gains(original, synthetic, holdout, conditions, key) -> LeftOutRisk | None:
    """What files tell about the original, but not about a holdout; for single records only."""
    if not isinstance(original, Microdata) or not isinstance(holdout, Microdata):
        return None
    if min(original.complete.sum(), holdout.complete.sum()) < LEAST:
        return None
    both = Microdata(original.schema, np.concatenate([original.codes, holdout.codes]))
    left_out = np.arange(both.n) >= original.n
    return left_out_risk(both, left_out, synthetic, conditions=conditions, key=key)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Record the wall-clock seconds of a step."""
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start


def _propensity_scores(persons, tell) -> dict[str, tuple[PropensityScore, ...]]:
    """Scores of each file, by the kinds of regressions that are not too large."""
    original, *files = persons
    scores = {}
    for kind, interactions in _SCORES.items():
        too_large = num_columns(persons, interactions) > MAX_PARAMETERS
        if too_large or (interactions and original.num_variables == 1):
            continue
        of_files = []
        for m, file in enumerate(files):
            of_files.append(
                propensity_score(
                    original, file, interactions=interactions, max_parameters=MAX_PARAMETERS
                )
            )
            tell(f"propensity scores, {kind.replace('_', ' ')}", m + 1, len(files))
        scores[kind] = tuple(of_files)
    return scores


def _disclosure(persons, keys, targets) -> Disclosure:
    """Disclosure by some keys, for the targets that are not among the keys."""
    if targets is not None:
        targets = [name for name in targets if name not in keys]
    return disclosure(persons[0], persons[1:], keys, targets)


def _impossible_of_files(synthetic, conditions, tell) -> tuple[Impossible, ...] | None:
    """Impossible records or households of each file; None without structural zeros or rules."""
    if conditions is None:
        return None
    impossible = []
    for m, table in enumerate(synthetic):
        impossible.append(find_impossible(table, conditions))
        tell("conditions", m + 1, len(synthetic))
    return tuple(impossible)


def _shares(quantities, original, synthetic, population, combining, level) -> Shares | None:
    """Shares of households for which statements are true; None without statements."""
    if quantities is None:
        return None
    return household_shares(
        quantities, original, synthetic, population=population, combining=combining, level=level
    )
