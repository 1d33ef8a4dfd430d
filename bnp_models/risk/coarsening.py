"""Coarser keys from the same posterior: variables dropped, levels merged, without new chains.

A dropped variable's factor leaves the probability of a cell, and merged levels add theirs up: in
mixed membership and latent class models the law of the coarser record is that of the same model
with fewer variables or levels.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.inference.run import Run
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.risk.population import checked_model


class Coarsening(NamedTuple):
    """Coarser form of the records of a schema."""

    schema: Schema
    """Variables and levels that are left."""
    variables: tuple[int, ...]
    """Column of each of these variables among those of the finer schema."""
    codes: tuple[np.ndarray, ...]
    """For each of them, the new code of every old one."""

    def apply(self, codes: np.ndarray) -> np.ndarray:
        """Codes (n, J') of the coarser form of complete records (n, J)."""
        columns = [of[codes[:, j]] for j, of in zip(self.variables, self.codes, strict=True)]
        return np.stack(columns, axis=1)

    def rows(self, num_levels: tuple[int, ...]) -> np.ndarray:
        """For each row of the finer level probabilities, its coarser one; -1: it is dropped."""
        rows = np.full(sum(num_levels), -1)
        first = first_rows(num_levels)
        new_first = first_rows(self.schema.num_levels)
        for start, j, of in zip(new_first, self.variables, self.codes, strict=True):
            rows[first[j] : first[j] + num_levels[j]] = start + of
        return rows


def parse_coarsening(specs: Sequence[str], schema: Schema) -> Coarsening:
    """Read statements such as "drop:race" and "merge:age=0-14+15-24".

    Parameters
    ----------
    specs
        Statements, which all hold; several variables of one are apart by commas.
    schema
        Of the records.

    Raises
    ------
    MicrodataError
        If a statement is of another form, names an unknown variable or level, drops a variable that
        is gone or all of them, or merges fewer than two levels.
    """
    dropped: set[str] = set()
    merged: dict[str, list[list[int]]] = {}
    for spec in specs:
        kind, _, what = spec.partition(":")
        if kind == "drop" and what:
            for name in what.split(","):
                dropped.add(_known(name.strip(), schema))
        elif kind == "merge" and "=" in what:
            name, _, given = what.partition("=")
            name = _known(name.strip(), schema)
            merged.setdefault(name, []).append(_codes_of(name, given.split("+"), schema))
        else:
            raise MicrodataError(
                f"{quoted(spec)} is no coarsening; write drop:VARIABLE or merge:VARIABLE=A+B"
            )
    if both := sorted(dropped & merged.keys()):
        raise MicrodataError("the variable is dropped and has levels merged", column=both[0])
    variables = tuple(j for j, name in enumerate(schema.variables) if name not in dropped)
    if not variables:
        raise MicrodataError("every variable is dropped; leave one at least")
    levels: list[tuple[Label, ...]] = []
    codes: list[np.ndarray] = []
    for j in variables:
        labels, of = _merge(schema.levels[j], merged.get(schema.variables[j], []))
        levels.append(labels)
        codes.append(of)
    names = tuple(schema.variables[j] for j in variables)
    return Coarsening(Schema(names, tuple(levels)), variables, tuple(codes))


def coarsen(run: Run, *specs: str) -> Run:
    """Run of the same model and draws on coarser keys.

    Its `population_risk`, `predictive_checks` and so on are those of the coarser file.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``.
    specs
        Statements such as "drop:race" and "merge:age=0-14+15-24", which all hold.

    Raises
    ------
    MicrodataError
        As `parse_coarsening`.
    ValueError
        If the model gives no probabilities of cells, or the run is under structural zeros.

    Notes
    -----
    The posterior is that of the finer file, which knows more than the coarser one would teach.
    """
    model = checked_model(run.model)
    if run.conditions is not None:
        raise ValueError(
            "keys are coarsened without structural zeros only; fit the coarser file by itself"
        )
    coarsening = parse_coarsening(specs, run.table.schema)
    rows = coarsening.rows(run.table.schema.num_levels)
    draws = model.merge_levels(run.draws, rows, sum(coarsening.schema.num_levels))
    table = Microdata(coarsening.schema, coarsening.apply(run.table.codes))
    return dataclasses.replace(run, table=table, draws=run.draws | draws)


def _known(name: str, schema: Schema) -> str:
    """The name, if it is a variable's."""
    if name not in schema.variables:
        raise unknown_variable(name, list(schema.variables))
    return name


def _codes_of(name: str, given: Sequence[str], schema: Schema) -> list[int]:
    """Codes of the levels that are merged."""
    labels = [text_of(label) for label in schema.levels[schema.variables.index(name)]]
    codes = []
    for label in map(str.strip, given):
        if label not in labels:
            raise MicrodataError(
                f"has no level {quoted(label)}; its levels are {', '.join(labels)}", column=name
            )
        codes.append(labels.index(label))
    if len(set(codes)) < 2:
        raise MicrodataError("two different levels or more are merged", column=name)
    return codes


def _merge(
    labels: Sequence[Label], groups: Sequence[Sequence[int]]
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Labels that are left, and the new code of each old one; a merged level comes first of its."""
    leader = np.arange(len(labels))
    for group in groups:
        together = np.isin(leader, leader[list(group)])
        leader[together] = leader[together].min()
    kept = np.unique(leader)
    names: list[Label] = [
        labels[k] if (leader == k).sum() == 1
        else "+".join(text_of(labels[i]) for i in np.flatnonzero(leader == k).tolist())
        for k in kept.tolist()
    ]  # fmt: skip
    if any(isinstance(name, str) for name in names):
        names = [text_of(name) for name in names]
    return tuple(names), np.searchsorted(kept, leader)
