"""What synthetic files tell about a person because the person is in the sample.

This holds for files of any kind and any software. Some records of the sample, chosen at random, are
left out, and files are made in the same way from the others. An intruder guesses values of persons
from these files (`bnp_models.evaluation.attack.guesses`). The files tell something about a person
only because he is in the sample if values of the persons who were kept are guessed better than
those of the persons who were left out. If s_i is the share of the values of person i that are
guessed right from files made without the persons who were left out, and r_i from the files that are
released, which were made from all records, then

    gain = mean of (s_i - r_i) over persons kept - mean of (s_i - r_i) over persons left out.

r_i differs little from s_i if person i was kept, and takes away most of the variation between
persons. With a holdout there are no r_i: the persons of the sample were kept, and those of the
holdout left out.

Persons who are left out are drawn at random, so that this is a randomised experiment. Its error is
that of a randomisation test (Fisher 1935): other persons, drawn at random, are taken for those left
out, the attack is repeated with the same files, and the root mean square of the gains is the
standard error. If files are no more informative about the persons from whom they were made than
about others, the gain is one more draw from the distribution of these gains. A standard error for
independent persons would be too small, because all of them are guessed by the same tables.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.frames import Tabular
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.evaluation.attack.gains import LEAST, LeftOutRisk, gain_table
from bnp_models.evaluation.attack.guesses import (
    Guesses,
    Persons,
    Weighted,
    choice_probabilities,
    clues_of_files,
    excess_of_tables,
    fit_choices,
    judge_guesses,
    together,
    two_way,
)
from bnp_models.evaluation.attack.targets import possible_changes
from bnp_models.evaluation.files import coded_files
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default, typed_key
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions

SHARE = 0.2
"""Share of the records that are left out."""

MOST = 5000
"""Default for the largest number of persons who are attacked."""

NUM_CHANCE = 20
"""Default for the number of times that other persons are taken for those left out."""

# Largest number of persons times levels.
_ENTRIES = 2_000_000


def choose_left_out(table: Microdata, key: jax.Array, share: float = SHARE) -> np.ndarray:
    """Choose records at random that are left out of a sample.

    Parameters
    ----------
    table
        The sample. If it has design weights, a record of each class of weights is kept.
    key
        Random key.
    share
        Share of the records that are left out.

    Returns
    -------
    left_out : (n,) bool array
        Whether each record is left out.

    Raises
    ------
    ValueError
        If no record would be left out, or none kept.

    Examples
    --------
    >>> int(bnp.evaluation.choose_left_out(table, jax.random.key(0)).sum())
    12
    """
    check_kind(Microdata, "choose_left_out(table, key)", table=table)
    number = round(share * table.n)
    if not 0 < number < table.n:
        raise ValueError(f"share: {number} of {table.n} records cannot be left out")
    order = numpy_generator(typed_key(key)).permutation(table.n)
    if isinstance(table, WeightedMicrodata):
        _, first = np.unique(table.class_codes[order], return_index=True)
        order = np.concatenate([np.delete(order, first), order[first]])
        number = min(number, table.n - len(first))
    left_out = np.zeros(table.n, bool)
    left_out[order[:number]] = True
    return left_out


def left_out_risk(
    table: Tabular,
    left_out: np.ndarray,
    files: Tabular | Sequence[Tabular],
    *,
    released: Tabular | Sequence[Tabular] | None = None,
    conditions: StructuralZeros | pd.DataFrame | None = None,
    persons: np.ndarray | None = None,
    most: int = MOST,
    num_chance: int = NUM_CHANCE,
    key: jax.Array | None = None,
) -> LeftOutRisk:
    """Estimate what files tell about persons because they are in the sample.

    Parameters
    ----------
    table
        The sample: records, with or without design weights, or a data frame. With a holdout, the
        records of both.
    left_out : (n,) bool array
        Records from which `files` were not made. They must have been chosen at random.
    files
        Files that were made from the other records, in the same way as those released.
    released
        Files that were made from all records; None with a holdout.
    conditions
        Structural zeros, which the intruder knows.
    persons : (n,) bool array, optional
        Records that are attacked. Default: all complete ones.
    most
        Largest number of persons who are attacked; they are chosen at random.
    num_chance
        Number of times that other persons are taken for those left out.
    key
        Random key of these choices. Default: ``jax.random.key(0)``.

    Raises
    ------
    MicrodataError
        If a file does not have the sample's columns and levels.
    ValueError
        If `left_out` has another length, no record was left out or kept, or `num_chance` is below
        2.

    Notes
    -----
    The intruder fits his model to persons who were kept, and never to the person whose values he
    guesses: the persons are divided at random into two halves, and the values of each are guessed
    with the coefficients of the other. A weighted record counts as often as its weight, in units of
    the mean weight, among the records that he knows.

    Examples
    --------
    >>> left_out = np.arange(table.n) % 2 == 0
    >>> without = table.to_frame()[~left_out]
    >>> bnp.evaluation.left_out_risk(table, left_out, without).num_files
    1
    """
    call = "left_out_risk(table, left_out, files)"
    check_kind((Microdata, pd.DataFrame), call, table=table)
    given = as_records(table, call, (Microdata,))
    sample, weights = records_of(given), np.ones(given.n)
    if isinstance(given, WeightedMicrodata):
        weights = given.weights / given.weights.mean()
    sample, made, _ = coded_files(call, sample, files, complete=True)
    left_out = _checked_mask(left_out, sample, "left_out")
    attacked = sample.complete.copy()
    if persons is not None:
        attacked &= _checked_mask(persons, sample, "persons")
    if left_out.all() or not left_out.any():
        raise ValueError("left_out: some records must be left out, and some kept")
    if num_chance < 2:
        raise ValueError(f"num_chance must be at least 2, not {num_chance}")
    rng, levels = numpy_generator(key_or_default(key)), sample.schema.num_levels
    rows = np.flatnonzero(attacked)
    most = min(most, max(2 * LEAST, _ENTRIES // sum(levels)))
    if len(rows) > most:
        rows = np.sort(rng.choice(rows, most, replace=False))
    codes, zeros = sample.codes[rows], as_conditions(conditions, sample.schema)
    persons_attacked = Persons(codes, possible_changes(codes, levels, zeros))
    attack = _Attack(sample, weights, rows, persons_attacked, rng.random(len(rows)) < 0.5)
    own = None
    if released is not None:
        _, whole, _ = coded_files(call, sample, released, complete=True)
        own, _ = attack.guesses(attack.look_at(whole), np.zeros(sample.n, bool))
    complete = np.flatnonzero(sample.complete)
    cells = group_cells(sample.codes[complete], levels)
    unique = cells.counts[cells.record_cell[np.searchsorted(complete, rows)]] == 1
    seen = attack.look_at(made)
    guesses, start = attack.guesses(seen, left_out)
    chance = []
    for _ in range(num_chance):
        others = left_out.copy()
        others[complete] = rng.permutation(left_out[complete])
        by_chance, _ = attack.guesses(seen, others, start)
        chance.append(gain_table(by_chance, own, others[rows], unique))
    return LeftOutRisk(
        sample, rows, left_out[rows], unique, guesses, own, np.array(chance), len(made)
    )


class _Seen(NamedTuple):
    """What an intruder sees of files."""

    clues: np.ndarray
    """(A, R, D) clues to each value of each person."""
    tables: np.ndarray
    """(R, R) share of the records that have each pair of levels."""


class _Attack(NamedTuple):
    """Persons who are attacked, and the sample that an intruder may know but for each of them."""

    sample: Microdata
    weights: np.ndarray
    """(n,) weights of the records of the sample, with mean one."""
    rows: np.ndarray
    """(A,) rows of the persons."""
    persons: Persons
    half: np.ndarray
    """(A,) half of the persons to which each belongs."""

    def look_at(self, files: Sequence[Microdata]) -> _Seen:
        """Compute what can be seen of files without knowing the sample."""
        levels = self.sample.schema.num_levels
        records = together(_weighted(files))
        clues = clues_of_files(self.persons, records, levels)
        return _Seen(clues, two_way(records, levels) / records.weights.sum())

    def guesses(
        self,
        seen: _Seen,
        left_out: np.ndarray,
        start: Mapping[str, Sequence[np.ndarray]] | None = None,
    ) -> tuple[dict[str, Guesses], dict[str, list[np.ndarray]]]:
        """Guesses of each intruder, and his coefficients.

        The records that are not left out (n,) are those that he may know, and from which he learns.
        """
        levels = self.sample.schema.num_levels
        kept = self.sample.complete & ~left_out
        known = Weighted(self.sample.codes[kept], self.weights[kept])
        weights = np.where(left_out, 0, self.weights)[self.rows]
        excess = excess_of_tables(self.persons.codes, weights, seen.tables, known, levels)
        clues = {"files": seen.clues, "all_others": np.concatenate([seen.clues, excess], axis=2)}
        guessed: dict[str, Guesses] = {}
        coefficients: dict[str, list[np.ndarray]] = {}
        for name, found in clues.items():
            probabilities = np.empty(self.persons.possible.shape)
            coefficients[name] = []
            for h, half in enumerate((False, True)):
                learnt = (self.half != half) & (weights > 0)
                first = None if start is None else start[name][h]
                beta = fit_choices(found[learnt], self.persons.at(learnt), levels, first)
                whom = self.half == half
                probabilities[whom] = choice_probabilities(
                    found[whom], beta, self.persons.at(whom), levels
                )
                coefficients[name].append(beta)
            guessed[name] = judge_guesses(probabilities, self.persons.codes, levels)
        return guessed, coefficients


def _checked_mask(mask: np.ndarray, sample: Microdata, name: str) -> np.ndarray:
    """The mask as an array, one entry for each record."""
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (sample.n,):
        raise ValueError(f"{name} must say True or False of each of the {sample.n} records")
    return mask


def _weighted(files: Sequence[Microdata]) -> list[Weighted]:
    """Complete records of files; each counts once."""
    found = []
    for file in files:
        cells = file.tabulated
        codes, counts = cells.codes[cells.complete], cells.counts[cells.complete]
        found.append(Weighted(codes, counts.astype(float)))
    return found
