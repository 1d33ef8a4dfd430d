"""Missing values of a sample's records, drawn given one draw of the parameters."""

import jax
import numpy as np

from bnp_models.models.model import Completes, Data, Draw


def complete_sample(model: Completes, key: jax.Array, draw: Draw, data: Data) -> np.ndarray:
    """Level codes (n, J) of the sample, its missing values drawn given one kept draw."""
    return np.asarray(_complete(model, key, draw, data)).T[: int(data.num_records)]


@jax.jit
def _complete(model, key, draw, data):
    """(J, n) level codes of the sample, completed."""
    with jax.named_scope("complete_records"):
        return model.complete_records(key, draw, data)
