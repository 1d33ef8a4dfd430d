"""Log-likelihood of a run at a few of its draws, by which its chains are judged before the risk."""

from dataclasses import dataclass

import jax
import numpy as np

from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import RecordsRun, Run
from bnp_models.inference.weighting import sample_law
from bnp_models.risk.evaluator import cell_probabilities, checked_method
from bnp_models.risk.population import checked_thin

NUM_DRAWS = 400
"""Number of draws of all chains at which the log-likelihood is evaluated, nearly."""

_FOLD = 0x4C494B45


@dataclass(frozen=True)
class LogLikelihood:
    """Log-likelihood of the sample under some draws of a run."""

    draws: np.ndarray
    """(chains, draws)"""
    share: float = 1.0
    """All of it comes from the chains."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """The log-likelihood, by its name."""
        return {"log_likelihood": self.draws}

    def warnings(self) -> list[str]:
        """None: nothing that is reported rests on it."""
        return []


def log_likelihood(run: RecordsRun) -> LogLikelihood:
    """Evaluate the log-likelihood at a fifth of the draws at which a risk is evaluated.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``, of a model that gives probabilities of cells.
    """
    law = sample_law(run)
    draws = law.parameters(checked_thin(None, run.settings, NUM_DRAWS))
    cells, method = law.table.tabulated, checked_method("auto", law.model, law.table)
    key = jax.random.fold_in(run.key, _FOLD)
    blocks = cell_probabilities(law, draws, cells.codes, method, key)
    values = np.concatenate([log_p @ cells.counts for log_p, _, _ in blocks])
    return LogLikelihood(values.reshape(run.settings.num_chains, -1))


def early_diagnosis(run: RecordsRun) -> Diagnosis:
    """Diagnosis that needs no risk: chains whose log-likelihoods disagree have none yet.

    The log-likelihood is evaluated here if the model keeps none with its draws.
    """
    kept = "log_likelihood" in run.draws
    return Diagnosis.of(run, None if kept else log_likelihood(run))
