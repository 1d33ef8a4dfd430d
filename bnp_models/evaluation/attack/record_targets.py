"""Targets of an attack among records: those that are alone with their values."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from bnp_models.data.cells import group_cells
from bnp_models.data.microdata import Microdata
from bnp_models.evaluation.attack.targets import (
    Draws,
    Group,
    Targets,
    change_one,
    checked_rows,
    labels_of,
    over_draws,
)
from bnp_models.kernels.attack.importance import log_neighbours
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes.predictions import log_cell_probability
from bnp_models.zeros.structural_zeros import StructuralZeros


class RecordTargets(Targets[Microdata]):
    """Candidates for records under a latent class model.

    Parameters
    ----------
    table
        The sample.
    conditions
        Structural zeros: what they exclude is no candidate.
    rows
        Records to attack; None: the complete ones that are alone with their values.
    """

    target = "record"

    def __init__(
        self, table: Microdata, conditions: StructuralZeros | None, rows: Sequence[int] | None
    ):
        self.table, self.conditions = table, conditions
        schema, complete = table.schema, table.complete
        if rows is None:
            candidates = np.flatnonzero(complete)
            cells = group_cells(table.codes[candidates], schema.num_levels)
            rows = candidates[cells.sample_uniques]
        self.rows = checked_rows(rows, complete, "record")
        self.columns = tuple(labels_of(schema.variables, schema.levels))

    def groups(self) -> Iterator[Group]:
        """Make one group of all records."""
        ratio = partial(_log_ratios, num_levels=self.table.schema.num_levels)
        which = np.arange(len(self.rows))
        if len(which):
            yield Group(which, np.arange(len(self.columns)), self._prepare, ratio)

    def _prepare(self, which):
        """Rows of level probabilities of some records, and which changes make a candidate."""
        codes = self.table.codes[self.rows[which]]
        num_levels = self.table.schema.num_levels
        changed = change_one(codes, num_levels)
        valid = (changed != codes[:, None]).any(axis=2)
        if self.conditions is not None:
            flat = changed.reshape(-1, codes.shape[1])
            valid &= ~self.conditions.contains(flat).reshape(valid.shape)
        return (jnp.asarray(codes + first_rows(num_levels), jnp.int32),), valid

    def log_likelihood(
        self, draws: Draws, files: Sequence[Microdata], key: jax.Array, progress: bool
    ) -> np.ndarray:
        """(files, draws) log likelihood of each file."""
        del key
        num_levels = self.table.schema.num_levels
        codes = np.concatenate([file.codes for file in files])
        cells = group_cells(codes, num_levels)
        of_file = np.repeat(np.arange(len(files)), [file.n for file in files])
        # Sparse: cells become more with each file, and few files have one of them.
        one = np.ones(len(of_file))
        shape = len(files), len(cells.counts)
        counts = sparse.csr_array((one, (of_file, cells.record_cell)), shape)
        evaluate = partial(_log_cells, cells=jnp.asarray(cells.codes), num_levels=num_levels)
        return over_draws(draws, evaluate, lambda log_p: counts @ log_p.T, progress, "likelihood")


@partial(jax.jit, static_argnames="num_levels")
def _log_cells(draws, cells, num_levels):
    """(draws, C) log probability of each cell."""
    with jax.named_scope("likelihood_of_files"):
        return jax.lax.map(lambda draw: log_cell_probability(draw, cells, num_levels), draws)


@partial(jax.jit, static_argnames="num_levels")
def _log_ratios(draws, rows, num_levels):
    """(A, R, draws) log of the probability of each changed record over the record's."""

    def one(draw):
        log_p = log_neighbours(draw["log_pi"][None], draw["log_lambda"], rows, num_levels)
        return log_p - jnp.take_along_axis(log_p, rows[:, :1], axis=1)

    with jax.named_scope("weights_of_candidates"):
        return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)
