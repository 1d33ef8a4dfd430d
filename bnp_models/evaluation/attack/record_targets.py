"""Targets of an attack among records: those that are alone with their values."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from bnp_models.data.microdata import Microdata, group_cells
from bnp_models.kernels.attack.importance import log_neighbours
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes.predictions import log_cell_probability

# Draws of one block of a loop, and households simulated per draw and size for P(possible), where it
# has no closed form.
_DRAWS_AT_ONCE = 16


class Group(NamedTuple):
    """Attacked records that one compiled function serves."""

    which: np.ndarray
    """Their positions among the attacked."""
    columns: np.ndarray
    """(W,) columns of the candidates but the truth."""
    prepare: object
    """Of positions, the arrays of these records, and (A, W) which candidates there are."""
    log_ratio: object
    """Of the draws and those arrays, (A, W, draws) log weights."""


class RecordTargets:
    """Candidates for records under a latent class model."""

    target = "record"

    def __init__(self, table: Microdata, conditions, rows):
        self.table, self.conditions = table, conditions
        complete = table.complete
        if rows is None:
            own = np.flatnonzero(complete)
            cells = group_cells(table.codes[own], table.schema.num_levels)
            rows = own[cells.sample_uniques]
        self.rows = checked_rows(rows, complete, "record")
        schema = table.schema
        self.columns = tuple(
            (name, label)
            for name, labels in zip(schema.variables, schema.levels, strict=True)
            for label in labels
        )

    def groups(self):
        """All records are of one kind."""
        num_levels = self.table.schema.num_levels
        ratio = partial(_log_ratios, num_levels=num_levels)
        which = np.arange(len(self.rows))
        if len(which):
            yield Group(which, np.arange(len(self.columns)), self._prepare, ratio)

    def _prepare(self, which):
        codes = self.table.codes[self.rows[which]]
        num_levels = self.table.schema.num_levels
        changed = one_changed(codes, num_levels)
        valid = changed != codes[:, None]
        valid = valid.any(axis=2)
        if self.conditions is not None:
            flat = changed.reshape(-1, codes.shape[1])
            valid &= ~self.conditions.contains(flat).reshape(valid.shape)
        return (jnp.asarray(codes + first_rows(num_levels), jnp.int32),), valid

    def log_likelihood(self, draws, files, key, progress):
        """(files, draws) log likelihood of each file."""
        del key
        num_levels = self.table.schema.num_levels
        codes = np.concatenate([file.codes for file in files])
        cells = group_cells(codes, num_levels)
        of_file = np.repeat(np.arange(len(files)), [file.n for file in files])
        counts = np.zeros((len(files), len(cells.counts)))
        np.add.at(counts, (of_file, cells.record_cell), 1)
        evaluate = partial(_log_cells, cells=jnp.asarray(cells.codes), num_levels=num_levels)
        return over_draws(draws, evaluate, lambda log_p: counts @ log_p.T, progress, "likelihood")


def checked_rows(rows, complete, what):
    rows = np.asarray(rows, dtype=np.int64).reshape(-1)
    outside = (rows < 0) | (rows >= len(complete))
    if outside.any():
        raise ValueError(f"{what} {rows[outside][0]} is not between 0 and {len(complete) - 1}")
    if not complete[rows].all():
        raise ValueError(f"{what} {rows[~complete[rows]][0]} has missing values")
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"a {what} is listed twice")
    return rows


def one_changed(codes, num_levels):
    """(A, R, J): each record with each level of each variable in turn."""
    variable = np.repeat(np.arange(len(num_levels)), num_levels)
    level = np.concatenate([np.arange(size) for size in num_levels])
    changed = np.repeat(codes[:, None], len(variable), axis=1)
    changed[:, np.arange(len(variable)), variable] = level
    return changed


def over_draws(draws, evaluate, finish, progress, what):
    """What `finish` makes, in float64, of the values at all draws, along the last axis."""
    total, parts = len(draws["log_pi"]), []
    for start in tqdm(range(0, total, _DRAWS_AT_ONCE), desc=what, disable=not progress):
        here = np.minimum(np.arange(start, start + _DRAWS_AT_ONCE), total - 1)
        found = evaluate({name: value[here] for name, value in draws.items()})
        parts.append(finish(np.asarray(found, np.float64))[..., : total - start])
    return np.concatenate(parts, axis=-1)


@partial(jax.jit, static_argnames="num_levels")
def _log_cells(draws, cells, num_levels):
    return jax.lax.map(lambda draw: log_cell_probability(draw, cells, num_levels), draws)


@partial(jax.jit, static_argnames="num_levels")
def _log_ratios(draws, rows, num_levels):
    """(A, R, draws) log of the probability of each changed record over the record's."""

    def one(draw):
        log_p = log_neighbours(draw["log_pi"][None], draw["log_lambda"], rows, num_levels)
        return log_p - jnp.take_along_axis(log_p, rows[:, :1], axis=1)

    return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)
