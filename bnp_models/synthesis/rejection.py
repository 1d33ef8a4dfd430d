"""Synthetic files that keep structural zeros or rules of which the chains knew nothing."""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from bnp_models.data.households import Households
from bnp_models.inference.run import Run
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.rules.rules import Rules
from bnp_models.synthesis.given import MOST_TRIED
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions


def with_conditions(
    run: Run,
    conditions: StructuralZeros | Rules | pd.DataFrame,
    method: str,
    keep: Sequence[str],
    num_rows: int | None,
) -> Run:
    """Chains that ignored these conditions, as a run under them for the functions that make files.

    The parameters stay those of the chains. The files then have their distribution restricted to
    the possible records or households, as if each one were drawn again until it is possible.

    Parameters
    ----------
    run
        Chains without conditions.
    conditions, method, keep, num_rows
        As for `synthesize`.

    Raises
    ------
    ValueError
        If the chains had conditions, these do not fit the sample, the method needs a sample that
        keeps them, or hardly a record would be possible.
    """
    table, model = run.table, run.model
    if run.conditions is not None:
        raise ValueError(
            "conditions: the chains had structural zeros or rules, which their files keep anyway; "
            "leave conditions out"
        )
    if method != "predictive" or keep:
        raise ValueError(
            "conditions: for chains that had none, files are drawn only by method "
            '"predictive" and without keep; or give the conditions to sample'
        )
    conditions = as_conditions(conditions, table.schema)
    kind = Rules if isinstance(table, Households) else StructuralZeros
    if not isinstance(conditions, kind):
        raise ValueError(
            f"conditions: this sample takes {kind.__name__}, not {type(conditions).__name__}"
        )
    if isinstance(conditions, StructuralZeros):
        if conditions.schema != table.schema:
            raise ValueError(
                "conditions: they were made for another schema; give them as a data frame"
            )
        if model.coding(conditions) is not None:
            raise ValueError(
                "conditions: the model leaves out values that do not apply (not_applicable), which "
                "chains without conditions do not know; give the conditions to sample"
            )
        if isinstance(model, MembershipOptions):
            _require_some_possible(table, conditions, num_rows)
    return dataclasses.replace(run, conditions=conditions)


def _require_some_possible(table, conditions: StructuralZeros, num_rows: int | None) -> None:
    """Raise ValueError if nearly all simulated records would be impossible, as the sample's are."""
    cells = table.tabulated
    possible = int(cells.counts[~conditions.contains(cells.codes)].sum())
    wanted = table.n if num_rows is None else num_rows
    if wanted * table.n > MOST_TRIED * possible:
        raise ValueError(
            f"conditions: {possible:,} of {table.n:,} records of the sample are possible, and "
            f"records are simulated until {wanted:,} are; correct the conditions"
        )
