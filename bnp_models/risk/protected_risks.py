"""Risks of the records of a file that was recoded, and in which values were suppressed.

A suppressed value gives no information: the record matches every person who agrees with its other
values, so that its risk is that of the coarser key K on which it still has values. The record
matches the F persons of the population who have its values on K. It is a sample unique on K if no
other record of the sample, before suppression, has these values. Every record has a key of its own,
and its risk is computed from the posterior draws like that of a coarser file (`coarsening`).
"""

import math
from collections.abc import Iterator

import jax
import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Recoding
from bnp_models.inference.convergence import errors_of_mean_draws
from bnp_models.inference.run import HouseholdsRun, RecordsRun, shape_of_draws
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.risk.coarsening import MAX_CELLS
from bnp_models.risk.coarser_compositions import HouseholdEvaluator
from bnp_models.risk.evaluator import Evaluator, record_risks
from bnp_models.risk.verdict import MARGIN, Limits, Verdict, figures_of_draws, judge

REPEATS = 8
"""Number of draws of the population uniques for each draw of the parameters."""


class ProtectedRisks:
    """Risks of records, each on a key of its own, at some draws of a run.

    Parameters
    ----------
    run, population_size
        As for `population_risk`.
    overdispersion
        Whether the correction for overdispersion is used.
    num_draws
        Largest number of draws of the run that are evaluated; they are evenly spaced.
    key
        Used once.
    num_shares
        For households under rules: as for `CoarserCompositions`.
    """

    unit = "record"
    _evaluator: Evaluator | HouseholdEvaluator

    def __init__(
        self,
        run: RecordsRun | HouseholdsRun,
        population_size: int,
        *,
        overdispersion: bool,
        num_draws: int,
        key: jax.Array,
        num_shares: int | None = None,
    ):
        key_cells, key_overdispersion, key_counts = Keys(key, 3)
        self._set_up(run, population_size, num_draws, key_cells, num_shares)
        self._num_new = self._evaluator.num_new
        self._overdispersion = (
            self._evaluator.draw_overdispersion(key_overdispersion) if overdispersion else None
        )
        self.num_chains, _ = shape_of_draws(self._evaluator.draws)
        self.num_draws = math.prod(shape_of_draws(self._evaluator.draws))
        self.superchain = run.settings.superchain
        self._generator = numpy_generator(key_counts)
        # The same uniform number for a record on every key, so that a coarser key never adds a
        # unique.
        self._finest = np.flatnonzero(self.sharing(Recoding.of(self.table.schema, {})) == 1)
        size = (REPEATS, self.num_draws, len(self._finest))
        self._uniform = self._generator.random(size, np.float32)

    def _set_up(self, run, population_size, num_draws, key, num_shares) -> None:
        """Make the evaluator, and `table`, the records of which changes are chosen."""
        self._records = Evaluator.of(
            run, population_size, lambda law: law.spaced_parameters(num_draws)
        )
        self._evaluator = self._records
        self._key_cells, self._conditions = key, self._evaluator.run.conditions
        assert isinstance(self._evaluator.run.table, Microdata)
        self.table = self._evaluator.run.table

    def without(self, coarsening: Recoding, dropped: np.ndarray) -> Recoding | None:
        """The key of a record that has lost these variables (J',); None if nothing is known."""
        return None if dropped.all() else coarsening.without(dropped)

    def of_rows(self, coarsening: Recoding, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate r_1 = P(F = 1) and r_2 = E(1/F), each (draws, m), of sample uniques.

        Parameters
        ----------
        coarsening
            Key on which the records have values.
        rows
            (m,) 0-based rows of records that are sample uniques on this key.
        """
        log_b, log_q = self._log_probabilities(coarsening, rows)
        if self._overdispersion is not None:
            return self._overdispersion.record_risks(log_b, self._num_new, log_q)
        return record_risks(log_q, self._num_new)

    def draw_joining(self, coarsening: Recoding, rows: np.ndarray) -> np.ndarray:
        """Draw the number of unsampled persons who match each sample unique, (draws, m)."""
        log_b, log_q = self._log_probabilities(coarsening, rows)
        q = np.exp(np.minimum(log_q, 0))
        if self._overdispersion is not None:
            q = self._overdispersion.draw_probabilities(self._generator, np.exp(log_b), q)
        return self._generator.binomial(self._num_new, np.minimum(q, 1))

    def draw_tau1(self, r1: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Draw the number of population uniques among records, (chains, draws * REPEATS).

        Given the parameters, records are treated as independent. The persons whom two records match
        may overlap if their keys differ, but this is very rare.

        Parameters
        ----------
        r1
            (draws, m) result of `of_rows`.
        rows
            (m,) rows of the records.
        """
        uniform = self._uniform[..., np.searchsorted(self._finest, rows)]
        tau1 = np.sum(uniform < r1, axis=-1, dtype=float)
        # The repeats of a draw follow each other, as draws of a chain do.
        return tau1.T.reshape(self.num_chains, -1)

    def upper_means(self, r1: np.ndarray) -> np.ndarray:
        """Means (m,) of r_1 (draws, m), and the Monte Carlo errors that verdicts add to them."""
        return r1.mean(axis=0) + MARGIN * self.errors(r1)

    def errors(self, r1: np.ndarray) -> np.ndarray:
        """Monte Carlo standard errors (m,) of the means of r_1 (draws, m)."""
        return errors_of_mean_draws(r1, self.num_chains, self.superchain)

    def judge(self, r1: np.ndarray, rows: np.ndarray, limits: Limits) -> Verdict:
        """Verdict on records with the risks r_1 (draws, m)."""
        tau1 = figures_of_draws(self.draw_tau1(r1, rows), self.superchain)
        return judge(tau1, r1.mean(axis=0), limits, r1_error=self.errors(r1))

    def uniques(self, coarsening: Recoding, rows: np.ndarray) -> np.ndarray:
        """(m,) bool: whether each record is alone in the sample with its values on a key."""
        return self.sharing(coarsening)[rows] == 1

    def sharing(self, coarsening: Recoding, among: np.ndarray | None = None) -> np.ndarray:
        """Number of records, or of some (m,), with the values of each on a key, itself included."""
        codes = self.table.codes if among is None else self.table.codes[among]
        codes = coarsening.coarser_codes(codes)
        cells = group_cells(codes, coarsening.schema.num_levels)
        return cells.counts[cells.record_cell]

    def listable(self, coarsening: Recoding, rows: np.ndarray) -> bool:
        """Whether the cells of these records on a key can be evaluated; True without conditions."""
        if self._conditions is None:
            return True
        cells = coarsening.coarser_codes(self.table.codes[rows])
        return sum(coarsening.num_finer(cell) for cell in cells) <= MAX_CELLS

    def _log_probabilities(self, coarsening, rows) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities (draws, m) of cells: for records of the sample, and for others."""
        codes = self.table.codes[rows]
        return self._records.coarser(coarsening, codes, self._key_cells)


def patterns(suppressed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield every distinct row (J,) of an array (n, J) of bool, and the m rows that have it."""
    distinct, of_row = np.unique(suppressed, axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    for number, pattern in enumerate(distinct):
        yield pattern, np.flatnonzero(of_row == number)
