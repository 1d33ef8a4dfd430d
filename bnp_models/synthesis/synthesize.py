"""Synthetic and completed data sets from the draws of a run."""

from functools import partial

import jax
import numpy as np
import pandas as pd

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.inference.run import Run, spaced_draws
from bnp_models.synthesis.households import (
    IMPUTATION,
    SYNTHESIS,
    impute_households,
    synthesize_households,
)

# Records simulated at once: at most so many, and entries of the arrays of boxes by records.
_RECORDS_AT_ONCE = 2**15

_ENTRIES_AT_ONCE = 2**25


def synthesize(
    run: Run, num_datasets: int = 5, num_rows: int | None = None, *, key: jax.Array | None = None
) -> list[pd.DataFrame]:
    """Draw completely synthetic data sets.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``. The sample may have missing values, which
        synthetic data have not.
    num_datasets
        M, one for each of as many well-separated draws.
    num_rows
        Records of each; by default as many as the sample has. Of households none other: there are
        as many of each size as in the sample.
    key
        By default one that `run` set aside.

    Returns
    -------
    frames
        Of the sample's columns and labels, in the sample's types; households by size, numbered
        anew.

    Raises
    ------
    ValueError
        If there are fewer draws than data sets, or `run` kept no parameters.
    RuntimeError
        If a record breaks a condition, which would be a defect.

    Notes
    -----
    Estimates from the M files are combined by `combine_partially_synthetic`.
    """
    if isinstance(run.table, Households):
        return synthesize_households(run, num_datasets, num_rows, key)
    num_rows = run.table.n if num_rows is None else num_rows
    if num_rows < 1:
        raise ValueError(f"num_rows must be at least 1, not {num_rows}")
    key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
    feasible = run.feasible_sets
    num_boxes = 1 if feasible is None else len(feasible)
    batch = _ENTRIES_AT_ONCE // (num_boxes + run.capacity)
    batch = min(num_rows, max(256, min(batch, _RECORDS_AT_ONCE)))
    frames = []
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        key_m = jax.random.fold_in(key, m)
        keys = (jax.random.fold_in(key_m, b) for b in range(-(-num_rows // batch)))
        codes = [
            np.asarray(
                _simulate(run.model, key_b, draw, feasible, num_records=batch,
                          num_levels=run.num_levels)
            )
            for key_b in keys
        ]  # fmt: skip
        codes = np.concatenate(codes, axis=1).T[:num_rows]
        codes = codes if run.coding is None else run.coding.expand(codes)
        frames.append(_checked_frame(run, codes))
    return frames


def impute(run: Run, num_datasets: int = 5, *, key: jax.Array | None = None) -> list[pd.DataFrame]:
    """Complete the missing values of the sample, several times.

    Parameters
    ----------
    run
        Chains of a model that takes missing values, which kept its ``parameters``.
    num_datasets
        M, one for each of as many well-separated draws.
    key
        By default one that `run` set aside.

    Returns
    -------
    frames
        The sample with its missing values filled in, all those of a record at once: what was
        observed is unchanged, and every record is feasible.

    Raises
    ------
    ValueError
        If nothing is missing, the model takes no missing values, there are fewer draws than data
        sets, or `run` kept no parameters.
    RuntimeError
        If a record breaks a condition or an observed value changed, which would be a defect.

    Notes
    -----
    Estimates from the M files are combined by `combine_imputed`.
    """
    table, model = run.table, run.model
    if not table.has_missing:
        raise ValueError("no value is missing: there is nothing to impute")
    if not model.takes_missing:
        raise ValueError(f"the {model.name} model does not draw missing values")
    if isinstance(table, Households):
        return impute_households(run, num_datasets)
    key = jax.random.fold_in(run.key if key is None else key, IMPUTATION)
    data = model.prepare(table, run.conditions)
    observed = table.codes >= 0
    frames = []
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        codes = np.asarray(_complete(model, jax.random.fold_in(key, m), draw, data)).T
        if (codes != table.codes)[observed].any():
            raise RuntimeError("an observed value was changed; please report this defect")
        frames.append(_checked_frame(run, codes))
    return frames


def _checked_frame(run, codes):
    if run.conditions is not None and (broken := run.conditions.contains(codes)).any():
        raise RuntimeError(
            f"{int(broken.sum())} of {len(codes)} records made are impossible; please report "
            "this defect"
        )
    return Microdata(run.table.schema, codes).to_frame()


@partial(jax.jit, static_argnames=("num_records", "num_levels"))
def _simulate(model, key, draw, feasible, num_records, num_levels):
    return model.simulate_records(key, draw, num_records, num_levels, feasible)


@jax.jit
def _complete(model, key, draw, data):
    return model.complete_records(key, draw, data)
