"""Options, data, state and info of latent class models, and the arrays of a sample."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.data.microdata import Records
from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import (
    count_rows_by_component,
    count_split_cells,
    first_rows,
    variable_of_rows,
)
from bnp_models.kernels.numerics.platforms import coarse_size
from bnp_models.kernels.splits.members import LabelledRecords
from bnp_models.kernels.variates.discrete import MAX_COUNT
from bnp_models.kernels.variates.levels import Levels, Tree
from bnp_models.kernels.variates.sticks import stick_concentration, truncated_sticks
from bnp_models.models.level_prior import LevelPriorOptions, under_prior
from bnp_models.models.model import FixedComponents
from bnp_models.models.options import fixed_or, option
from bnp_models.zeros.structural_zeros import StructuralZeros

# Incomplete records are padded to a multiple of this number, or of a larger one.
INCOMPLETE_MULTIPLE = 8


# Cells with more records than this have counts; the records of other cells are stored singly.
# Drawing the class counts of a cell costs as much as drawing the classes of about so many records.
LISTED_RECORDS = 4


class LatentClassData(eqx.Module):
    """The coded sample, with padding, and the feasible region.

    Most records are stored singly. A cell with many records is stored once, with its count. In
    shapes, J is the number of variables, R that of levels of all variables, n that of single
    records with padding, C that of cells with counts, m that of incomplete records, and B that of
    feasible boxes.
    """

    rows: Int[Array, "J n"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda for each record's level; for a missing value, the row of the first level."""
    one_hot: Float[Array, "R n"] = eqx.field(metadata={"record_axis": 1})
    """1 if the record has the level; 0 for all levels if the value is missing."""
    weight: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """1 for a record, 0 for padding."""
    cell_rows: Int[Array, "J C"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda for each level of the cells with counts, if there are such cells."""
    cell_one_hot: Float[Array, "R C"] = eqx.field(metadata={"record_axis": 1})
    """1 if such a cell has the level."""
    cell_counts: Int[Array, " C"] = eqx.field(metadata={"record_axis": 0})
    """Number of records of each such cell; 0 for padding."""
    num_records: Int[Array, ""]
    """Number of records, including the records of cells with counts, without padding."""
    incomplete: Int[Array, " m"]
    """Indices of the records with a missing value; padding has an index beyond the last record."""
    missing: Bool[Array, "m J"]
    """True for each missing value of the incomplete records."""
    admitted: Float[Array, "B m"]
    """1 if the observed values of an incomplete record are in the feasible box."""
    levels: Levels
    """Levels of the variables, the rows of lambda."""
    feasible: Region
    """Feasible cells, by group of variables."""
    impossible: Region
    """Impossible cells, by group of variables."""
    everything_impossible: Region
    """Impossible cells as boxes of one group, for augmentation "boxes"; otherwise no boxes."""
    parts: LevelParts
    """Level parts among which the counts of the impossible boxes are divided."""
    boxes: Bool[Array, "B R"]
    """Levels of all variables that each feasible box admits; records are drawn in these boxes."""
    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""
    constrained: tuple[int, ...] = eqx.field(static=True)
    """Variables that structural zeros name."""


class LatentClassState(eqx.Module):
    """Parameters of a chain between sweeps; each sweep first draws the classes of the records.

    In shapes, K is the number of classes, R that of levels of all variables, and G that of groups
    of levels.
    """

    log_pi: Float[Array, " K"]
    """Log weights of the classes before truncation."""
    log_lambda: Float[Array, "R K"]
    """Log level probabilities before truncation, by row and class."""
    level_shape: Float[Array, " R+G"]
    """Dirichlet shapes c_j beta_jl of the level probabilities, by node; ones if uniform."""
    alpha: Float[Array, ""]
    """Concentration of the sticks."""


class LatentClassInfo(eqx.Module):
    """Figures of one sweep."""

    components: Int[Array, ""]
    """Classes with at least one record of the sample."""
    last_class: Int[Array, ""]
    """Number of records in the last class, which has the remaining weight; it should be 0."""
    log_likelihood: Float[Array, ""]
    """log P(sample), labels integrated out, at the parameters before the sweep; the parameters that
    are kept with it are those after the sweep."""
    log_feasible: Float[Array, ""]
    """log sum_k pi_k F_k after the sweep: the log probability that a record is feasible before
    truncation. It depends on the prior, because the sample has only feasible records."""
    augmented: Int[Array, ""]
    """Number of records drawn in the impossible region; -1 if over 2**30, and then none is used."""
    accepted_levels: Float[Array, ""]
    """Share of accepted Metropolis-Hastings proposals of level probabilities."""
    accepted_splits: Int[Array, ""]
    """Number of accepted split-merge moves, 0 or 1."""
    left_over: Float[Array, ""]
    """0, because the model has a fixed number of sticks."""


def one_hot_levels(codes: Int[Array, "J n"], num_levels: tuple[int, ...]) -> Float[Array, "R n"]:
    """Indicators of each record's level of each variable; all 0 for the code -1."""
    return jnp.concatenate([
        jax.nn.one_hot(codes[j], size, axis=0, dtype=jnp.result_type(float))
        for j, size in enumerate(num_levels)
    ])  # fmt: skip


def label_records(
    data: LatentClassData,
    z: Int[Array, " n"],
    split: Int[Array, "K C"] | None,
    rows: Int[Array, "J n"],
) -> LabelledRecords:
    """Records with their classes, and cells with their counts by class.

    Parameters
    ----------
    z
        Class of each record.
    split
        Number of records of each cell by class; None if no cell has a count.
    rows
        Row of lambda for each record's level of each variable.
    """
    if split is not None:
        rows = jnp.concatenate([rows, data.cell_rows], axis=1)
    return LabelledRecords(z, split, rows, data.weight > 0, data.num_records)


def count_levels(
    records: LabelledRecords, num_levels: tuple[int, ...], num_classes: int
) -> tuple[Int[Array, "R K"], Int[Array, " K"]]:
    """Count the records of each class with each level, and the records of each class.

    Every record has exactly one level of the first variable. The size of a class is therefore the
    sum of its counts over the rows of the first variable.
    """
    size, num_rows = records.z.size, sum(num_levels)
    rows = records.rows[:, :size]
    counts = count_rows_by_component(
        rows, jnp.broadcast_to(records.z, rows.shape), records.real.astype(jnp.int32),
        (num_rows, num_classes),
    )  # fmt: skip
    if records.split is not None:
        counts += count_split_cells(records.rows[:, size:], records.split, num_rows)
    return counts, jnp.sum(counts[: num_levels[0]], axis=0)


class LatentClassOptions(
    LevelPriorOptions[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
    FixedComponents[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
):
    """Options of a latent class model, which its conditionals use."""

    components: int = option(
        50,
        "Number of classes K at which the stick-breaking weights are truncated.",
        least=2, command=True,
    )  # fmt: skip
    a: float = option(0.25, "Shape a and rate b of alpha's gamma prior.", positive=True)
    b: float = option(0.25, "Shape a and rate b of alpha's gamma prior.", positive=True)
    reorder: bool = option(
        True, "Whether to make moves that exchange adjacent classes together with their weights."
    )
    swap: bool = option(
        True, "Whether to make moves that exchange classes and leave the weights in place."
    )
    split_merge_every: int = option(
        4, "Sweeps between split-merge moves; 0 turns them off.", least=0
    )
    alpha: float | None = option(
        None,
        """A positive number fixes the concentration of the sticks, and its prior is not used. None:
        it is drawn.""",
        positive=True, command=True, kw_only=True,
    )  # fmt: skip

    def draw_weights(
        self, key: Key[Array, ""], class_counts: Int[Array, " K"], alpha: Float[Array, ""]
    ) -> tuple[Float[Array, " K"], Float[Array, ""]]:
        """Draw log weights given the number of records of each class.

        The second result is the sum of log(1 - V_k) over the sticks, from which alpha is drawn. A
        subclass may override this method. It must then turn off `reorder` and `split_merge_every`,
        because these moves assume stick-breaking weights. The sampler of `TNPLCM` assumes them too,
        except with augmentation "boxes".

        Parameters
        ----------
        key
            Used once.
        class_counts
            Number of records of each class.
        alpha
            Concentration.
        """
        return truncated_sticks(key, class_counts, alpha)

    def draw_alpha(self, key: Key[Array, ""], sum_log_1mv: Float[Array, ""]) -> Float[Array, ""]:
        """Draw alpha given the sum of log(1 - V_k) over the sticks; a subclass may override it.

        Parameters
        ----------
        key
            Used once.
        sum_log_1mv
            Sum of log(1 - V_k) over the sticks V_k, k < K.
        """
        drawn = stick_concentration(key, sum_log_1mv, self.components, self.a, self.b)
        return fixed_or(self.alpha, drawn)

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated separately, and not the mixture as a whole."""
        return False

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return False


def prepare_records(
    model: LatentClassOptions,
    codes: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
    multiple: int = 1,
    trees: Mapping[int, Tree] | None = None,
) -> LatentClassData:
    """Arrays of a coded sample.

    Parameters
    ----------
    model
        The model; its `by_box` says whether the impossible boxes are listed.
    codes
        (n, J) 0-based level codes, -1 where missing.
    num_levels
        Levels of each variable.
    conditions
        Structural zeros, if there are any.
    multiple
        Records are padded to a multiple of this. If it is not 1, incomplete records are padded to
        one of a few sizes.
    trees
        Groups of the levels of some variables, by column.
    """
    num_records = len(codes)
    codes = np.pad(codes, ((0, -num_records % multiple), (0, 0)))
    groups = () if conditions is None else conditions.groups
    feasible = np.ones((1, sum(num_levels)), bool)
    impossible = None
    if conditions is not None:
        feasible = conditions.feasible.sets
        # There may be many impossible boxes: they are listed only for augmentation "boxes".
        impossible = conditions.impossible.sets if model.by_box else None
    first_row = first_rows(num_levels)
    incomplete = np.flatnonzero((codes < 0).any(axis=1))
    if multiple > 1 and incomplete.size:
        padding = coarse_size(incomplete.size, INCOMPLETE_MULTIPLE) - incomplete.size
        incomplete = np.pad(incomplete, (0, padding), constant_values=len(codes))
    missing = np.take(codes, incomplete, axis=0, mode="clip") < 0
    present = np.maximum(codes, 0) + first_row
    of_incomplete = np.take(present, incomplete, axis=0, mode="clip")
    admitted = np.all(feasible[:, of_incomplete] | missing, axis=2)
    return LatentClassData(
        rows=jnp.asarray(present.T, jnp.int32),
        one_hot=one_hot_levels(jnp.asarray(codes.T, jnp.int32), num_levels),
        weight=jnp.asarray(np.arange(len(codes)) < num_records, jnp.int32),
        cell_rows=jnp.zeros((len(num_levels), 0), jnp.int32),
        cell_one_hot=jnp.zeros((sum(num_levels), 0)),
        cell_counts=jnp.zeros(0, jnp.int32),
        num_records=jnp.asarray(num_records, jnp.int32),
        incomplete=jnp.asarray(incomplete, jnp.int32),
        missing=jnp.asarray(missing),
        admitted=jnp.asarray(admitted, jnp.result_type(float)),
        levels=under_prior(model, Levels.of_variables(tuple(num_levels), trees)),
        feasible=Region.of_boxes([g.feasible.sets for g in groups], num_levels),
        impossible=Region.of_boxes([g.impossible.sets for g in groups], num_levels),
        everything_impossible=Region.of_boxes(
            [] if impossible is None else [impossible], num_levels
        ),
        parts=LevelParts.of_boxes(impossible, num_levels),
        boxes=jnp.asarray(feasible),
        num_levels=tuple(num_levels),
        constrained=_constrained_variables(groups, variable_of_rows(num_levels)),
    )


def prepare_cells(
    model: LatentClassOptions,
    codes: np.ndarray,
    counts: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
    trees: Mapping[int, Tree] | None = None,
) -> LatentClassData:
    """Arrays of cells with counts.

    Parameters
    ----------
    model, num_levels, conditions, trees
        As for `prepare_records`.
    codes
        (D, J) 0-based level codes of the cells, complete.
    counts
        (D,) number of records of each cell.

    Raises
    ------
    ValueError
        If there are 2**30 records or more. Larger cells could not be divided among classes, and
        with equally many impossible records the counts would overflow int32.
    """
    total = int(counts.sum())
    if total >= MAX_COUNT:
        raise ValueError(
            f"{total:,} records are too many: latent class models can count fewer than 2^30; take "
            "a sample of them"
        )
    many = counts > LISTED_RECORDS
    listed = np.repeat(codes[~many], counts[~many], axis=0)
    # If no record is stored singly, the arrays have one row of padding.
    rows = listed if len(listed) else codes[:1]
    data = prepare_records(model, rows, num_levels, conditions, coarse_size(len(rows)), trees)
    cells, number = codes[many], counts[many]
    if len(cells):
        padding = coarse_size(len(cells)) - len(cells)
        cells, number = np.pad(cells, ((0, padding), (0, 0))), np.pad(number, (0, padding))
    return dataclasses.replace(
        data,
        weight=data.weight if len(listed) else jnp.zeros_like(data.weight),
        cell_rows=jnp.asarray((cells + first_rows(num_levels)).T, jnp.int32),
        cell_one_hot=one_hot_levels(jnp.asarray(cells.T, jnp.int32), num_levels),
        cell_counts=jnp.asarray(number, jnp.int32),
        num_records=jnp.asarray(total, jnp.int32),
    )


def _constrained_variables(
    groups: tuple[StructuralZeros, ...], variable: np.ndarray
) -> tuple[int, ...]:
    """Variables for which some feasible box of a group does not admit every level."""
    unconstrained = np.ones(variable.shape, bool)
    for group in groups:
        unconstrained &= group.feasible.sets.all(axis=0)
    return tuple(int(j) for j in np.unique(variable[~unconstrained]))
