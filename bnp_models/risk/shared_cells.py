"""Risk of records that are not alone in the sample: E(1 / F) of cells with several records.

F - f persons of the cell are not in the sample. Given the model's probability of the cell, their
number is binomial. With the correction for overdispersion (`bnp_models.risk.ties`), whose posterior
given f has shape shape_c + f, it is negative binomial.
"""

import numpy as np

from bnp_models.risk.reciprocals import expected_reciprocal
from bnp_models.risk.ties import Tied


def shared_risks(
    tied: Tied | None,
    counts: np.ndarray,
    log_b: np.ndarray,
    num_new: int,
    log_q: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate r_1 and r_2 of the records in cells that have several records of the sample.

    Parameters
    ----------
    tied
        The correction for overdispersion for each of D draws; None for the model alone.
    counts
        (C,) records of the sample in each cell, at least 2.
    log_b, log_q
        (D, ..., C) logarithms of the model's probabilities, for a record of the sample and for one
        that is not in it.
    num_new
        N - n unsampled records.

    Returns
    -------
    r1
        Zeros, because there are other persons in the cell.
    r2
        E 1 / F.
    """
    q = np.exp(np.minimum(log_q, -1e-12))
    if tied is None:
        return np.zeros(q.shape), expected_reciprocal(counts, -num_new, -q)
    b = np.exp(log_b)
    shape = tied.shape_of(b)
    odds = num_new * q / (shape + tied.num_records * b)
    return np.zeros(q.shape), expected_reciprocal(counts, shape + counts, odds)
