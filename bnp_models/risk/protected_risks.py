"""Risks of the records of a file that was recoded, and in which values were suppressed.

A suppressed value says nothing: the record matches every person who agrees with it on the rest, so
that its risk is that of the coarser key on which it still has values. Let a record have values on
the key K. Its match set in the population are the F persons with these values on K; it is a sample
unique on K where no other record of the sample, as it was before suppression, has them. Every
record has a key of its own, and its risk follows from the posterior draws as that of a coarser file
does (`coarsening`).
"""

from collections.abc import Iterator

import jax
import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.recoding import Recoding
from bnp_models.inference.run import Run
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.risk.coarsening import MAX_CELLS
from bnp_models.risk.evaluator import Evaluator, record_risks

REPEATS = 8
"""Draws of the numbers of population uniques given each draw of the parameters."""


class ProtectedRisks:
    """Evaluates the risks of records on keys of their own, at some draws of a run.

    Parameters
    ----------
    run, population_size
        As for `population_risk`.
    ties
        Evaluate with the layer for ties.
    num_draws
        Draws of the run that are evaluated, evenly spaced, at the most.
    key
        Used once.
    """

    def __init__(
        self, run: Run, population_size: int, *, ties: bool, num_draws: int, key: jax.Array
    ):
        self._evaluator = Evaluator.of(
            run, population_size, lambda law: law.spaced_parameters(num_draws)
        )
        self.run = self._evaluator.run
        self.table, self._num_new = self.run.table, self._evaluator.num_new
        self._key_cells, key_ties, key_counts = Keys(key, 3)
        self._tied = self._evaluator.draw_ties(key_ties) if ties else None
        self.num_draws = self._evaluator.draws["alpha"].size
        self._generator = numpy_generator(key_counts)
        # The same for a record whatever its key: then a coarser key never adds a unique.
        self._finest = self.table.cells().sample_uniques
        size = (REPEATS, self.num_draws, len(self._finest))
        self._uniform = self._generator.random(size, np.float32)

    def of_rows(self, coarsening: Recoding, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate r_1 = P(F = 1) and r_2 = E(1/F), each (draws, m), of sample uniques.

        Parameters
        ----------
        coarsening
            Key that they are known by.
        rows
            (m,) 0-based rows of records that are sample uniques on this key.
        """
        log_b, log_q = self._log_probabilities(coarsening, rows)
        if self._tied is not None:
            return self._tied.record_risks(log_b, self._num_new, log_q)
        return record_risks(log_q, self._num_new)

    def draw_joining(self, coarsening: Recoding, rows: np.ndarray) -> np.ndarray:
        """Draw how many unsampled persons match each sample unique, (draws, m), one by one."""
        log_b, log_q = self._log_probabilities(coarsening, rows)
        q = np.exp(np.minimum(log_q, 0))
        if self._tied is not None:
            q = self._tied.draw_probabilities(self._generator, np.exp(log_b), q)
        return self._generator.binomial(self._num_new, np.minimum(q, 1))

    def draw_tau1(self, r1: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Draw the number of population uniques among records, (REPEATS * draws,).

        Given the parameters, records are taken as independent: their match sets may overlap where
        their keys differ, and hardly ever do.

        Parameters
        ----------
        r1
            (draws, m) as of `of_rows`.
        rows
            (m,) rows of the records.
        """
        uniform = self._uniform[..., np.searchsorted(self._finest, rows)]
        return np.sum(uniform < r1, axis=-1, dtype=float).ravel()

    def uniques(self, coarsening: Recoding, rows: np.ndarray) -> np.ndarray:
        """Whether records (m,) are alone in the sample with their values on a key, bool."""
        return self.sharing(coarsening)[rows] == 1

    def sharing(self, coarsening: Recoding) -> np.ndarray:
        """Number of records (n,) with the values that each record has on a key, itself included."""
        codes = coarsening.coarser_codes(self.table.codes)
        cells = group_cells(codes, coarsening.schema.num_levels)
        return cells.counts[cells.record_cell]

    def listable(self, coarsening: Recoding, rows: np.ndarray) -> bool:
        """Whether these records' cells on a key can be evaluated; always without conditions."""
        if self.run.conditions is None:
            return True
        cells = coarsening.coarser_codes(self.table.codes[rows])
        return sum(coarsening.num_finer(cell) for cell in cells) <= MAX_CELLS

    def _log_probabilities(self, coarsening, rows) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities (draws, m) of cells: for records of the sample, and for others."""
        codes = self.table.codes[rows]
        return self._evaluator.coarser(coarsening, codes, self._key_cells)


def patterns(suppressed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield every distinct row (J,) of an array (n, J) of bool, and where it is, (m,)."""
    distinct, of_row = np.unique(suppressed, axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    for number, pattern in enumerate(distinct):
        yield pattern, np.flatnonzero(of_row == number)
