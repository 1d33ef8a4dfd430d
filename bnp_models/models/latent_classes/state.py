"""Data, state and info of the chains of latent class models."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import count_rows_by_component, count_split_cells
from bnp_models.kernels.splits.members import LabelledRecords
from bnp_models.kernels.variates.levels import Levels


class LatentClassData(eqx.Module):
    """The coded sample, with padding, and the feasible region.

    Most records are stored singly. A cell with many records is stored once, with its count.
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
    """Number of records, with those of cells with counts and without padding."""
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
    """Parameters of a chain between sweeps; each sweep first draws the classes of the records."""

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
    """log P(sample), labels integrated out, at the parameters before the sweep."""
    log_feasible: Float[Array, ""]
    """log P(feasible) = log(1 - w_0) of a record before truncation; it depends on the prior."""
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
    """Count the records of each class with each level, and the records of each class."""
    size, num_rows = records.z.size, sum(num_levels)
    rows = records.rows[:, :size]
    counts = count_rows_by_component(
        rows, jnp.broadcast_to(records.z, rows.shape), records.real.astype(jnp.int32),
        (num_rows, num_classes),
    )  # fmt: skip
    if records.split is not None:
        counts += count_split_cells(records.rows[:, size:], records.split, num_rows)
    return counts, jnp.sum(counts[: num_levels[0]], axis=0)
