"""Coarser keys from the same posterior: variables dropped, levels merged, without new chains.

In mixed membership and latent class models the factor of a dropped variable becomes one, and a
merged level has the sum of the probabilities of its levels. With structural zeros, the probability
of a coarser cell is the sum of the probabilities of the feasible cells in it, which are listed.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.hierarchies import Hierarchies, Hierarchy, numbered
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records, SmallCells, k_anonymity
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.inference.run import Run
from bnp_models.inference.weighting import sample_law, unsampled_law
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.rng import Keys, key_array, numpy_generator
from bnp_models.models.options import typed_key
from bnp_models.risk.population import (
    cell_probabilities,
    check_table,
    checked_method,
    checked_model,
    draw_taus,
    draw_ties,
)
from bnp_models.zeros.structural_zeros import StructuralZeros

NUM_DRAWS = 100
"""Draws at which coarser keys are evaluated, at the most."""

MAX_CELLS = 2**16
"""Feasible cells that are listed for one coarsening, at the most."""


@dataclasses.dataclass(frozen=True, eq=False)
@displayed
class CoarserRisk:
    """Disclosure risk of the sample on coarser keys.

    Examples
    --------
    >>> coarser = bnp.coarsen(run, 5_000, ["drop:education"])["drop:education"]
    >>> coarser.table.schema.variables
    ('age', 'sex')
    """

    table: Records
    """The coarser records."""
    tau1: np.ndarray
    """(draws,) draws of the number of sample uniques that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F their population count."""

    @cached_property
    def sample_uniques(self) -> int:
        """Number of records alone in their cell."""
        return len(self.table.tabulated.unique_cells)

    @cached_property
    def anonymity(self) -> list[SmallCells]:
        """Records in cells of fewer than 2, 3 and 5."""
        return k_anonymity(self.table)

    def _shown(self) -> Shown:
        """What is shown of it."""
        lines = {
            "sample": title_of(self.table),
            "sample uniques": self.sample_uniques,
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
        }
        return Shown("CoarserRisk", lines)


class Coarsening(NamedTuple):
    """Coarser form of the records of a schema."""

    schema: Schema
    """Variables and levels that are left."""
    variables: tuple[int, ...]
    """Column of each of these variables among those of the finer schema."""
    codes: tuple[np.ndarray, ...]
    """For each of them, the new code of every old one."""

    def coarser(self, table: Records) -> Records:
        """The coarser form of complete records."""
        return table.recoded(self.schema, self.coarser_codes(table.codes))

    def coarser_codes(self, codes: np.ndarray) -> np.ndarray:
        """The coarser codes (m, J') of finer ones (m, J)."""
        columns = [of[codes[:, j]] for j, of in zip(self.variables, self.codes, strict=True)]
        return np.stack(columns, axis=1)

    def without(self, dropped: np.ndarray) -> "Coarsening":
        """The same without some of its variables, dropped where this (J',) is true; not all."""
        kept = np.flatnonzero(~dropped)
        schema = Schema(
            tuple(self.schema.variables[j] for j in kept),
            tuple(self.schema.levels[j] for j in kept),
        )
        variables = tuple(self.variables[j] for j in kept)
        return Coarsening(schema, variables, tuple(self.codes[j] for j in kept))

    def finer(self, cell: np.ndarray, num_levels: tuple[int, ...]) -> np.ndarray:
        """All finer cells (m, J) of a coarser one (J',)."""
        choices = self._choices(cell, num_levels)
        return np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(-1, len(choices))

    def num_finer(self, cell: np.ndarray, num_levels: tuple[int, ...]) -> int:
        """How many these are."""
        return math.prod(map(len, self._choices(cell, num_levels)))

    def _choices(self, cell, num_levels) -> list[np.ndarray]:
        """For each finer variable, its codes in a coarser cell."""
        choices = [np.arange(size) for size in num_levels]
        for code, j, of in zip(cell, self.variables, self.codes, strict=True):
            choices[j] = np.flatnonzero(of == code)
        return choices

    def groups(self, num_levels: tuple[int, ...]) -> np.ndarray:
        """For each row of level probabilities, one of those merged with it; -1: it is dropped."""
        groups = np.full(sum(num_levels), -1)
        first = first_rows(num_levels)
        for j, of in zip(self.variables, self.codes, strict=True):
            _, leader = np.unique(of, return_index=True)
            groups[first[j] : first[j] + num_levels[j]] = first[j] + leader[of]
        return groups


def parse_coarsening(text: str, schema: Schema, hierarchies: Hierarchies = ()) -> Coarsening:
    """Read a coarsening such as "drop:race" or "merge:age=0-14+15-24;group:occupation".

    Parameters
    ----------
    text
        Statements separated by semicolons, which are all applied: "drop:A,B" leaves these variables
        out, "keep:A,B" leaves all others out, "merge:A=X+Y" makes one level of several, "group:A"
        replaces the levels of a variable by their groups, and "group:A=2" by the groups of these
        groups.
    schema
        Of the records.
    hierarchies
        Groups of the levels of variables.

    Raises
    ------
    MicrodataError
        If a statement is of another form, names an unknown variable or level, drops a variable that
        is gone or all of them, merges fewer than two levels, or asks for groups of a variable that
        has none, or not so many layers of them.
    """
    dropped: set[str] = set()
    merged: dict[str, list[list[int]]] = {}
    grouped: dict[str, list[str]] = {}
    for statement in map(str.strip, text.split(";")):
        kind, _, what = statement.partition(":")
        if kind in ("drop", "keep") and what:
            names = {_known(name.strip(), schema) for name in what.split(",")}
            dropped |= names if kind == "drop" else set(schema.variables) - names
        elif kind == "merge" and "=" in what:
            name, _, given = what.partition("=")
            name = _known(name.strip(), schema)
            merged.setdefault(name, []).append(_codes_of(name, given, schema))
        elif kind == "group" and what:
            name, _, layer = what.partition("=")
            name = _known(name.strip(), schema)
            grouped[name] = _groups_of(name, layer.strip() or "1", schema, dict(hierarchies))
        else:
            raise MicrodataError(
                f"{quoted(statement)} is no coarsening; write drop:VARIABLE, keep:VARIABLES, "
                "merge:VARIABLE=A+B or group:VARIABLE"
            )
    return coarsening_of(dropped, merged, schema, grouped)


def keep_variables(names: Sequence[str], schema: Schema) -> Coarsening:
    """Coarsening to some of the variables.

    Raises
    ------
    MicrodataError
        If one is unknown, or there is none.
    """
    kept = {_known(name, schema) for name in names}
    return coarsening_of(set(schema.variables) - kept, {}, schema)


def single_drops(table: Records, conditions: StructuralZeros | None) -> dict[str, Coarsening]:
    """Coarsenings that drop one variable each, as far as their cells can be listed."""
    schema = table.schema
    found = {
        f"drop:{name}": coarsening_of({name}, {}, schema)
        for name in schema.variables
        if len(schema.variables) > 1
    }
    return {
        text: coarsening
        for text, coarsening in found.items()
        if conditions is None or _num_listed(coarsening, table) <= MAX_CELLS
    }


def require_listable(
    coarsenings: Mapping[str, Coarsening], table: Records, conditions: StructuralZeros | None
) -> None:
    """Refuse a coarsening that has more than `MAX_CELLS` cells to list, under structural zeros.

    Raises
    ------
    MicrodataError
        If there is one.
    """
    for text, coarsening in coarsenings.items():
        if conditions is not None and (size := _num_listed(coarsening, table)) > MAX_CELLS:
            raise MicrodataError(
                f"{quoted(text)} makes cells of {size:,} finer ones, more than {MAX_CELLS:,}, "
                "which are listed under structural zeros; drop fewer variables, or fit the "
                "coarser file by itself"
            )


def coarsen(
    run: Run,
    population_size: int,
    coarsenings: Sequence[str] | Mapping[str, Coarsening] | None = None,
    *,
    ties: bool = True,
    num_draws: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> dict[str, CoarserRisk]:
    """Evaluate the risk of a sample on coarser keys, from the same draws.

    Parameters
    ----------
    run, population_size
        As for `population_risk`.
    coarsenings
        Each of one or more statements, as "drop:race" or "merge:age=0-14+15-24;drop:sex", and
        "group:occupation" where the model has groups of that variable's levels; or those read, by
        text. Default: each variable dropped by itself.
    ties
        Whether to use the layer for ties, with the parameters of the finer file.
    num_draws
        Largest number of draws of the run that are used; they are evenly spaced.
    key
        By default a key that `run` keeps for this purpose.

    Returns
    -------
    risks
        By the text of the coarsening.

    Raises
    ------
    MicrodataError
        As `parse_coarsening` and `require_listable`.
    ValueError
        As `population_risk`.

    Notes
    -----
    The posterior is that of the finer file, which has more information than the coarser file.

    Examples
    --------
    >>> coarser = bnp.coarsen(run, 5_000, ["drop:education", "merge:age=0-14+15-24"])
    >>> list(coarser)
    ['drop:education', 'merge:age=0-14+15-24']
    """
    check_kind(Run, "coarsen(run, population_size)", run=run)
    if key is not None:
        key = typed_key(key)
    checked_model(run.model)
    rest, run = unsampled_law(run), sample_law(run)
    check_table(run.table, population_size)
    if coarsenings is None:
        coarsenings = single_drops(run.table, run.conditions)
    found = (
        coarsenings if isinstance(coarsenings, Mapping)
        else {
            text: parse_coarsening(text, run.table.schema, hierarchies_of(run.model))
            for text in coarsenings
        }
    )  # fmt: skip
    require_listable(found, run.table, run.conditions)
    draws = run.spaced_parameters(num_draws)
    unsampled = None
    if rest is not run:
        unsampled = rest, rest.spaced_parameters(num_draws)
    key_ties, *keys = key_array(run.key if key is None else key, 1 + len(found))
    tied = draw_ties(run, draws, key_ties) if ties else None
    return {
        text: _evaluate(run, draws, unsampled, coarsening, population_size, tied, of_one)
        for (text, coarsening), of_one in zip(found.items(), keys, strict=True)
    }


def _evaluate(run, draws, unsampled, coarsening, population_size, tied, key) -> CoarserRisk:
    """Evaluate the risk on one coarser key, with a layer for ties or None.

    `unsampled` is the law of unsampled records and its draws, or None where it is the sample's.
    """
    key_particles, key_counts = Keys(key)
    generator = numpy_generator(key_counts)
    table = coarsening.coarser(run.table)

    def probabilities(law, draws):
        log_p = np.concatenate([*unique_probabilities(law, draws, coarsening, key_particles)])
        return np.exp(np.minimum(log_p, 0))

    b = probabilities(run, draws)
    q = b if unsampled is None else probabilities(*unsampled)
    if tied is not None:
        q = tied.draw_probabilities(generator, b, q)
    return CoarserRisk(table, *draw_taus(generator, q, population_size - table.n))


def unique_probabilities(
    run: Run, draws: dict[str, np.ndarray], coarsening: Coarsening, key: jax.Array
) -> Iterator[np.ndarray]:
    """Evaluate the coarser cells with one record of a run's sample, a block of draws at a time.

    Yields
    ------
    log_p
        (block, cells) log probabilities for a new record, cells in lexicographic order.
    """
    table = coarsening.coarser(run.table).tabulated
    codes = run.table.codes_at(table.first_rows[table.unique_cells])
    # As many as the finer file has: same shapes, nothing is compiled.
    size = len(run.table.tabulated.codes)
    return coarser_probabilities(run, draws, coarsening, codes, key, size)


def coarser_probabilities(
    run: Run,
    draws: dict[str, np.ndarray],
    coarsening: Coarsening,
    codes: np.ndarray,
    key: jax.Array,
    size: int | None = None,
) -> Iterator[np.ndarray]:
    """Evaluate the coarser cells that some records are in, a block of draws at a time.

    Parameters
    ----------
    run, draws
        As for `population.cell_probabilities`.
    coarsening
        Of the run's records.
    codes
        (m, J) codes of the finer records, one for each cell.
    key
        For the particles.
    size
        Cells that arrays are padded to, at least m. Default: a power of two.

    Yields
    ------
    log_p
        (block, m) log probabilities for a new record.
    """
    num_levels = run.table.schema.num_levels
    merged = None
    if run.conditions is None:
        merged = checked_model(run.model).merge_levels(draws, coarsening.groups(num_levels))
    if merged is not None:
        # The code of any finer level stands for its merged one.
        draws, finer = draws | merged, [row[None] for row in codes]
    else:
        finer = [coarsening.finer(cell, num_levels) for cell in coarsening.coarser_codes(codes)]
        if run.conditions is not None:
            finer = [cells[~run.conditions.contains(cells)] for cells in finer]
    lengths = [len(cells) for cells in finer]
    if merged is None or size is None:
        size = 1 << (max(1, sum(lengths)) - 1).bit_length()
    padding = np.repeat(run.table.codes[:1], size - sum(lengths), axis=0)
    first = np.cumsum([0, *lengths])[:-1]
    method = checked_method("auto", run.model, run.table)
    of_cells = np.concatenate([*finer, padding])
    for log_p, _, _ in cell_probabilities(run, draws, of_cells, method, key):
        used = log_p[:, : sum(lengths)]
        yield np.logaddexp.reduceat(used, first, axis=1) if lengths else used


def _num_listed(coarsening: Coarsening, table: Records) -> int:
    """Finer cells of the coarser cells with one record."""
    cells = coarsening.coarser(table).tabulated
    uniques = cells.codes[cells.unique_cells]
    return sum(coarsening.num_finer(cell, table.schema.num_levels) for cell in uniques)


def hierarchies_of(model: Any) -> Hierarchies:
    """Groups of the levels of a model's variables, if it has any."""
    return vars(model).get("groups", ())


def coarsening_of(
    dropped: set[str],
    merged: Mapping[str, Sequence[Sequence[int]]],
    schema: Schema,
    grouped: Mapping[str, Sequence[str]] | None = None,
) -> Coarsening:
    """Coarsening that drops variables, merges groups of codes of others, or names all groups.

    `grouped` has, by variable, the name of the group of each level.

    Raises
    ------
    MicrodataError
        If a variable is dropped that has levels merged, or all are dropped.
    """
    grouped = grouped or {}
    if twice := sorted((dropped | merged.keys()) & grouped.keys()):
        raise MicrodataError(
            "the variable is dropped or has levels merged, and is in groups", column=twice[0]
        )
    if both := sorted(dropped & merged.keys()):
        raise MicrodataError("the variable is dropped and has levels merged", column=both[0])
    variables = tuple(j for j, name in enumerate(schema.variables) if name not in dropped)
    if not variables:
        raise MicrodataError("every variable is dropped; leave one at least")
    levels: list[tuple[Label, ...]] = []
    codes: list[np.ndarray] = []
    for j in variables:
        name = schema.variables[j]
        labels, of = _merge(schema.levels[j], merged.get(name, []))
        if name in grouped:
            labels, of = tuple(dict.fromkeys(grouped[name])), np.array(numbered(grouped[name]))
        levels.append(labels)
        codes.append(of)
    left = tuple(schema.variables[j] for j in variables)
    return Coarsening(Schema(left, tuple(levels)), variables, tuple(codes))


def _known(name: str, schema: Schema) -> str:
    """The name, if it is a variable's."""
    if name not in schema.variables:
        raise unknown_variable(name, list(schema.variables))
    return name


def _groups_of(
    name: str, layer: str, schema: Schema, hierarchies: Mapping[str, Hierarchy]
) -> list[str]:
    """Name of the group of each level of a variable, in the layer of this number."""
    if name not in hierarchies:
        raise MicrodataError("has no groups; give them (--groups)", column=name)
    most = hierarchies[name].num_layers
    if not layer.isdecimal() or not 1 <= int(layer) <= most:
        raise MicrodataError(
            f"{quoted(layer)} is no layer of its groups; they are numbered from 1 to {most}",
            column=name,
        )
    try:
        return hierarchies[name].groups_of(schema.levels[schema.variables.index(name)], int(layer))
    except MicrodataError as error:
        raise MicrodataError(error.problem, column=name) from None


def _codes_of(name: str, given: str, schema: Schema) -> list[int]:
    """Codes of the levels that are merged, their labels apart by "+"."""
    labels = [text_of(label) for label in schema.levels[schema.variables.index(name)]]
    codes = _split_labels(given.strip(), labels)
    if codes is None:
        raise MicrodataError(
            f"{quoted(given)} are not some of its levels apart by +; its levels are "
            f"{', '.join(labels)}", column=name,
        )  # fmt: skip
    if len(set(codes)) < 2:
        raise MicrodataError("two different levels or more are merged", column=name)
    return codes


def _split_labels(text: str, labels: Sequence[str]) -> list[int] | None:
    """Codes of labels apart by "+", which a label may have too (75+); None: it cannot be read."""
    for code, label in enumerate(labels):
        if text == label:
            return [code]
        if text.startswith(label + "+"):
            rest = _split_labels(text[len(label) + 1 :].strip(), labels)
            if rest is not None:
                return [code, *rest]
    return None


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
