"""How well a model predicts records that it has not seen."""

from typing import Any, cast

import jax
import numpy as np
import pandas as pd
from scipy.special import logsumexp

from bnp_models.data.arguments import check_kind
from bnp_models.data.frames import code_like
from bnp_models.data.microdata import Microdata
from bnp_models.inference.run import Run
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.options import typed_key
from bnp_models.risk.evaluator import cell_probabilities, checked_method, checked_model

NUM_DRAWS = 200
"""Draws of a run that are averaged over, at the most."""


def held_out_log_probability(
    run: Run,
    codes: np.ndarray | Microdata | pd.DataFrame,
    *,
    method: str = "auto",
    num_samples: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> np.ndarray:
    """Log posterior predictive probability of records, in nats.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``.
    codes
        (m, J) level codes of complete records that the run has not seen, in the sample's schema;
        or a table, or a data frame of these.
    method, key
        As for `population_risk`.
    num_samples
        Draws that are averaged over, evenly spaced, at the most.

    Returns
    -------
    log_p
        (m,) logarithms of the mean probability of each record's cell over the draws; under
        structural zeros among the feasible cells.

    Raises
    ------
    ValueError
        If the model gives no probabilities of cells, or `run` kept no parameters.

    Examples
    --------
    >>> bnp.held_out_log_probability(run, population.sample(5, seed=2)).shape
    (5,)
    """
    check_kind(Run, "held_out_log_probability(run, codes)", run=run)
    if key is not None:
        key = typed_key(key)
    if isinstance(codes, Microdata | pd.DataFrame):
        codes = cast(Any, code_like(codes, run.table)).codes
    method = checked_method(method, checked_model(run.model), run.table)
    draws = run.spaced_parameters(num_samples)
    key, _ = Keys(run.key if key is None else key)
    cells, of_record = np.unique(codes, axis=0, return_inverse=True)
    log_p = np.concatenate(
        [block for block, _, _ in cell_probabilities(run, draws, cells, method, key)]
    )
    return (logsumexp(log_p, axis=0) - np.log(len(log_p)))[of_record.reshape(-1)]
