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
persons. Since the persons who are left out are drawn at random, this is the difference of two
groups in a randomised experiment, whose standard error is Neyman's (1923). If files were no more
informative about the persons from whom they were made than about others, its expectation would be
zero. With a holdout there are no r_i: the persons of the sample were kept, and those of the holdout
left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.frames import Tabular
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.evaluation.attack.gains import LEAST, LeftOutRisk
from bnp_models.evaluation.attack.guesses import (
    DECAYS,
    NUM_CLUES,
    Guesses,
    Persons,
    Weighted,
    choice_probabilities,
    clues,
    fit_choices,
    judge_guesses,
    together,
)
from bnp_models.evaluation.attack.targets import possible_changes
from bnp_models.evaluation.files import coded_files
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default, typed_key
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions

SHARE = 0.2
"""Share of the records that are left out."""

MOST = 2500
"""Default for the largest number of persons of each group who are attacked."""

# Largest number of persons times levels.
_ENTRIES = 2_000_000


class _World(NamedTuple):
    """Files, and the records of the sample from which they were made."""

    files: list[Weighted]
    rows: np.ndarray
    """Rows of the sample."""


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
        Largest number of persons of each of the two groups who are attacked; they are chosen at
        random.
    key
        Random key of this choice, and of the halves of the persons from whom the intruder learns
        how to combine what he knows. Default: ``jax.random.key(0)``.

    Raises
    ------
    MicrodataError
        If a file does not have the sample's columns and levels.
    ValueError
        If `left_out` has another length, or no record was left out or kept.

    Notes
    -----
    The intruder who knows all other records fits his model to persons who were kept, and never to
    the person whose values he guesses: the persons are divided at random into two halves, and the
    values of each are guessed with the coefficients of the other. A weighted record counts as
    often as its weight, in units of the mean weight, among the records that he knows.

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
    rng = numpy_generator(key_or_default(key))
    most = min(most, max(LEAST, _ENTRIES // sum(sample.schema.num_levels)))
    rows = np.concatenate([
        _some(rng, np.flatnonzero(attacked & ~left_out), most),
        _some(rng, np.flatnonzero(attacked & left_out), most),
    ])  # fmt: skip
    possible = possible_changes(
        sample.codes[rows], sample.schema.num_levels, as_conditions(conditions, sample.schema)
    )
    attack = _Attack(sample, weights, rows, left_out[rows], possible, rng.random(len(rows)) < 0.5)
    own = None
    if released is not None:
        _, whole, _ = coded_files(call, sample, released, complete=True)
        own = attack.guesses(_World(_weighted(whole), np.flatnonzero(sample.complete)))
    kept = _World(_weighted(made), np.flatnonzero(sample.complete & ~left_out))
    unique = np.zeros(sample.n, bool)
    complete = np.flatnonzero(sample.complete)
    cells = group_cells(sample.codes[complete], sample.schema.num_levels)
    unique[complete[cells.sample_uniques]] = True
    return LeftOutRisk(
        sample, rows, left_out[rows], unique[rows], attack.guesses(kept), own, len(made)
    )


class _Attack(NamedTuple):
    """Persons who are attacked, and what they are attacked with."""

    sample: Microdata
    weights: np.ndarray
    """(n,) weights of the records of the sample, with mean one."""
    rows: np.ndarray
    left_out: np.ndarray
    possible: np.ndarray
    half: np.ndarray
    """(A,) half of the persons to which each belongs."""

    def guesses(self, world: _World) -> dict[str, Guesses]:
        """Guesses of each intruder from some files."""
        levels = self.sample.schema.num_levels
        codes = self.sample.codes[self.rows]
        found = self._clues(world)
        known = {"files": found[..., : len(DECAYS)], "all_others": found}
        persons = Persons(codes, self.possible, None)
        return {
            name: judge_guesses(self._probabilities(part, persons), codes, levels)
            for name, part in known.items()
        }

    def _clues(self, world: _World) -> np.ndarray:
        """(A, R, P) what an intruder knows of each value who knows all other records."""
        known = Weighted(self.sample.codes[world.rows], self.weights[world.rows])
        files, levels = together(world.files), self.sample.schema.num_levels
        place, inside = np.searchsorted(world.rows, self.rows), np.isin(self.rows, world.rows)
        found = np.empty((*self.possible.shape, NUM_CLUES), np.float32)
        for who, own in ((inside, place), (~inside, None)):
            if who.any():
                persons = Persons(self.sample.codes[self.rows], self.possible, own)
                found[who] = clues(persons.at(who), files, known, levels)
        return found

    def _probabilities(self, found: np.ndarray, persons: Persons) -> np.ndarray:
        """(A, R) probabilities of values, with coefficients that fit the other half's."""
        levels = self.sample.schema.num_levels
        probabilities = np.empty(self.possible.shape)
        for half in (False, True):
            # He learns from persons who were kept, whatever the files were made from.
            others = (self.half != half) & ~self.left_out
            beta = fit_choices(found[others], persons.at(others), levels)
            guessed = self.half == half
            probabilities[guessed] = choice_probabilities(
                found[guessed], beta, persons.at(guessed), levels
            )
        return probabilities


def _checked_mask(mask: np.ndarray, sample: Microdata, name: str) -> np.ndarray:
    """The mask as an array, one entry for each record."""
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (sample.n,):
        raise ValueError(f"{name} must say True or False of each of the {sample.n} records")
    return mask


def _some(rng: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the rows, chosen at random, in order."""
    return np.sort(rng.choice(rows, most, replace=False)) if len(rows) > most else rows


def _weighted(files: Sequence[Microdata]) -> list[Weighted]:
    """Complete records of files; each counts once."""
    found = []
    for file in files:
        cells = file.tabulated
        codes, counts = cells.codes[cells.complete], cells.counts[cells.complete]
        found.append(Weighted(codes, counts.astype(float)))
    return found
