"""Completed samples, and partially synthetic data: some columns are drawn given the others."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array, Int

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import choose_variables
from bnp_models.inference.run import RecordsRun, spaced_draws
from bnp_models.models.model import Completes, Draw, Model, Table


class Counted(Protocol):
    """Arrays of a sample whose records are counted."""

    @property
    def num_records(self) -> Int[Array, ""]:
        """Number of records, without padding."""


def complete_sample(model: Completes, key: jax.Array, draw: Draw, data: Counted) -> np.ndarray:
    """Level codes (n, J) of the sample, with missing values drawn given one kept draw."""
    return np.asarray(_complete(model, key, draw, data)).T[: int(data.num_records)]


@jax.jit
def _complete(model, key, draw, data):
    """(J, n) level codes of the sample, completed."""
    with jax.named_scope("complete_records"):
        return model.complete_records(key, draw, data)


def check_keep(keep: Sequence[str], model: Model, table: Table, method: str) -> None:
    """Raise ValueError unless these columns can be kept while the others are drawn."""
    if not isinstance(model, Completes) or not model.missing_under_conditions:
        raise ValueError(f"the {model.name} model cannot draw some columns given others")
    if type(table) is not Microdata:
        raise ValueError("columns can be kept only for single records without design weights")
    if method != "predictive":
        raise ValueError('columns can be kept only by method "predictive"')
    chosen = choose_variables(keep, table.schema.variables)
    if len(chosen) == len(table.schema.variables):
        raise ValueError("every column is kept, so that nothing would be synthetic")


def draw_others(
    run: RecordsRun, keep: Sequence[str], num_datasets: int, key: jax.Array
) -> Iterator[np.ndarray]:
    """Draw all other columns of the sample's records, given those that are kept.

    A value that is missing in a kept column is drawn too.

    Yields
    ------
    codes : (n, J) int array
        Codes of each data set; each uses its own draw of the parameters.

    References
    ----------
    Reiter, J. P. (2003). Inference for partially synthetic, public use microdata sets. Survey
    Methodology 29(2).
    """
    table = run.table
    assert isinstance(run.model, Completes) and isinstance(table, Microdata)
    kept = np.isin(table.schema.variables, list(keep))
    masked = Microdata(table.schema, np.where(kept, table.codes, -1))
    data = run.model.prepare(masked, run.conditions)
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        yield complete_sample(run.model, jax.random.fold_in(key, m), draw, data)
