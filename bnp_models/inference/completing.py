"""Draws of the missing values of a sample's records, given one draw of the parameters."""

from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array, Int

from bnp_models.models.model import Completes, Draw


class Counted(Protocol):
    """Arrays of a sample whose records are counted."""

    @property
    def num_records(self) -> Int[Array, ""]:
        """Number of records, without padding."""


def complete_sample(model: Completes, key: jax.Array, draw: Draw, data: Counted) -> np.ndarray:
    """Level codes (n, J) of the sample, its missing values drawn given one kept draw."""
    return np.asarray(_complete(model, key, draw, data)).T[: int(data.num_records)]


@jax.jit
def _complete(model, key, draw, data):
    """(J, n) level codes of the sample, completed."""
    with jax.named_scope("complete_records"):
        return model.complete_records(key, draw, data)
