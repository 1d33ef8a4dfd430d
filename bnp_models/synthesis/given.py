"""Synthetic files whose records all have given values, drawn exactly given these values."""

from collections.abc import Mapping, Sequence

import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    Schema,
    text_of,
    undeclared_level,
    unknown_variable,
)
from bnp_models.inference.run import RecordsRun
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.model import Conditions, Model, Table
from bnp_models.rules.rules import Rules

MOST_TRIED = 10**9
"""Largest number of records that a model simulates to find those with the given values."""


def values_by_variable(
    given: Mapping[str, Label | Sequence[Label]] | None,
) -> dict[str, Sequence[Label]]:
    """Values by variable as lists; a single value becomes a list of one."""
    return {
        name: [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        for name, value in (given or {}).items()
    }


def check_given(
    given: Mapping[str, Sequence[Label]],
    model: Model,
    table: Table,
    conditions: Conditions | None,
    method: str,
    num_rows: int,
) -> None:
    """Raise ValueError unless files can be made of records with these values.

    Parameters
    ----------
    given
        Values by variable, any of which a record may have.
    model, table, conditions
        Of the run.
    method, num_rows
        As for `synthesize`.
    """
    if isinstance(table, Households) or isinstance(conditions, Rules):
        raise ValueError("households cannot be drawn given values of their persons")
    if method != "predictive":
        raise ValueError('records can be drawn given values only by method "predictive"')
    if model.coding(conditions) is not None:
        raise ValueError(
            "records cannot be drawn given values if values that do not apply are left out "
            "(not_applicable)"
        )
    admitted = admitted_levels(given, table.schema)
    sets = None if conditions is None else conditions.feasible.sets
    if not len(boxes_within(sets, admitted, table.schema.num_levels)):
        raise ValueError("no possible record has these values: they are in a structural zero")
    if isinstance(model, MembershipOptions):
        cells = table.tabulated
        rows = cells.codes + first_rows(table.schema.num_levels)
        having = int(cells.counts[admitted[rows].all(axis=1)].sum())
        if num_rows * table.n > MOST_TRIED * having:
            raise ValueError(
                f"{having:,} of {table.n:,} records of the sample have these values, and the "
                f"{model.name} model simulates records until {num_rows:,} have them; make fewer, "
                "give fewer values, or use a latent class model (tnplcm)"
            )


def admitted_levels(given: Mapping[str, Sequence[Label]], schema: Schema) -> np.ndarray:
    """(R,) whether a record may have each level, for the levels of all variables.

    Raises
    ------
    MicrodataError
        If a variable or a level is unknown.
    """
    parts = []
    for name in given:
        if name not in schema.variables:
            raise unknown_variable(name, list(schema.variables))
    for name, labels in zip(schema.variables, schema.levels, strict=True):
        texts = [text_of(label) for label in labels]
        wanted = [text_of(label) for label in given.get(name, labels)]
        for text in wanted:
            if text not in texts:
                raise MicrodataError(undeclared_level(text, labels), column=name)
        parts.append(np.isin(texts, wanted))
    return np.concatenate(parts)


def boxes_within(
    sets: np.ndarray | None, admitted: np.ndarray, num_levels: tuple[int, ...]
) -> np.ndarray:
    """Parts (B, R) of boxes with admitted levels only; boxes without such a part are left out."""
    within = admitted[None] if sets is None else sets & admitted
    levels = np.add.reduceat(within, first_rows(num_levels), axis=1, dtype=int)
    return within[(levels > 0).all(axis=1)]


def sets_given(run: RecordsRun, given: Mapping[str, Sequence[Label]]) -> np.ndarray | None:
    """Parts of the feasible boxes (B, R) with these values; None: all cells."""
    if not given:
        return run.feasible_sets
    schema = run.table.schema
    return boxes_within(run.feasible_sets, admitted_levels(given, schema), schema.num_levels)
