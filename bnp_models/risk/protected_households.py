"""Risks of the households of a file that was recoded, and in which values were suppressed.

The unit is the household. A variable is suppressed in all persons of a household together: the
household then matches every household that agrees with it on the other variables, so that its risk
is that of the coarser composition without this variable. How many persons it has stays known. The
original values are a possible completion, so that the rules that households keep still hold.
"""

import numpy as np

from bnp_models.data.recoding import Merged, Recoding
from bnp_models.risk.coarser_compositions import HouseholdEvaluator
from bnp_models.risk.households import check_households
from bnp_models.risk.protected_risks import ProtectedRisks


class ProtectedHouseholds(ProtectedRisks):
    """Risks of households, each on a key of its own, at some draws of a run.

    Rows are households, and `table` has their persons. Parameters are those of `ProtectedRisks`,
    with a run as for `household_risk`.
    """

    unit = "household"

    def _set_up(self, run, population_size, num_draws, key, num_shares) -> None:
        check_households(run.model, run.table, population_size)
        self._households = HouseholdEvaluator(run, population_size, num_draws, key, num_shares)
        self._evaluator = self._households
        self.table = self._households.run.table.persons

    def without(self, coarsening: Recoding, dropped: np.ndarray) -> Recoding:
        """The key of a household that has lost these variables (J',), all of them perhaps."""
        if not dropped.all():
            return coarsening.without(dropped)
        # Of one variable, one level is left.
        name, labels = coarsening.schema.variables[0], coarsening.original.levels
        j = coarsening.original.variables.index(name)
        others = dict.fromkeys(x for x in coarsening.original.variables if x != name)
        one = Merged.together(name, labels[j], [range(len(labels[j]))])
        return Recoding.of(coarsening.original, {**others, name: one})

    def sharing(self, coarsening: Recoding, among: np.ndarray | None = None) -> np.ndarray:
        """Number of households, or of some (m,), with each one's composition on a key."""
        return self._households.sharing(coarsening, among)

    def listable(self, coarsening: Recoding, rows: np.ndarray) -> bool:
        """Whether there are few enough values of heads to sum over."""
        return self._households.can_evaluate(coarsening)

    def _log_probabilities(self, coarsening, rows) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities (draws, m): for households of the sample, and for others."""
        return self._households.coarser(coarsening, rows)
