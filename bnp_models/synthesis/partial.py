"""Partially synthetic data: some columns are kept, and the others are drawn given them."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import choose_variables
from bnp_models.inference.completing import complete_sample
from bnp_models.inference.run import Run, spaced_draws
from bnp_models.models.model import Completes, Model, Table


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
    run: Run, keep: Sequence[str], num_datasets: int, key: jax.Array
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
    assert isinstance(run.model, Completes)
    kept = np.isin(table.schema.variables, list(keep))
    masked = Microdata(table.schema, np.where(kept, table.codes, -1))
    data = run.model.prepare(masked, run.conditions)
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        yield complete_sample(run.model, jax.random.fold_in(key, m), draw, data)
