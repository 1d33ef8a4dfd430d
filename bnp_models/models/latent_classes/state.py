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
    """The coded sample, records padded, and the region it lies in.

    Records are there one by one, but for those of cells that hold many: such a cell is there once,
    with its count.
    """

    rows: Int[Array, "J n"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda that holds each record's level; that of the first level where missing."""
    one_hot: Float[Array, "R n"] = eqx.field(metadata={"record_axis": 1})
    """1 where the record has the level; a missing value has none."""
    weight: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """1 for a record, 0 for padding."""
    cell_rows: Int[Array, "J C"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda that holds each level of the cells with counts; there may be none."""
    cell_one_hot: Float[Array, "R C"] = eqx.field(metadata={"record_axis": 1})
    """1 where such a cell has the level."""
    cell_counts: Int[Array, " C"] = eqx.field(metadata={"record_axis": 0})
    """Records of each of them; 0 for padding."""
    num_records: Int[Array, ""]
    """Records, those of cells with counts included and padding excluded."""
    incomplete: Int[Array, " m"]
    """Records with a missing value; padding is beyond the last record."""
    missing: Bool[Array, "m J"]
    """Where the incomplete records have no value."""
    admitted: Float[Array, "B m"]
    """1 where the observed values of an incomplete record are in the feasible box."""
    levels: Levels
    """Levels of the variables, the rows of lambda."""
    feasible: Region
    """Feasible cells, by group of variables."""
    impossible: Region
    """Impossible cells, by group of variables."""
    everything_impossible: Region
    """Impossible cells as boxes of one group, for augmentation "boxes"; else without boxes."""
    parts: LevelParts
    """Parts of the levels among which counts of the impossible boxes are shared out."""
    boxes: Bool[Array, "B R"]
    """Levels that each feasible box admits, of all variables: records are drawn in these boxes."""
    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""
    constrained: tuple[int, ...] = eqx.field(static=True)
    """Variables that structural zeros name."""


class LatentClassState(eqx.Module):
    """Parameters with which a chain goes on: the classes of the records are redrawn first."""

    log_pi: Float[Array, " K"]
    """Log weights of the classes before truncation."""
    log_lambda: Float[Array, "R K"]
    """Log level probabilities before truncation, by row and class."""
    level_shape: Float[Array, " R+G"]
    """Dirichlet shapes c_j beta_jl of the level probabilities, by node: ones under the uniform
    prior."""
    alpha: Float[Array, ""]
    """Concentration of the sticks."""


class LatentClassInfo(eqx.Module):
    """Figures of one sweep."""

    components: Int[Array, ""]
    """Classes with at least one record of the sample."""
    last_class: Int[Array, ""]
    """Records in the last class, which takes all that the sticks leave: should be 0."""
    log_likelihood: Float[Array, ""]
    """log P(sample), labels integrated out, at the parameters that the sweep started from."""
    log_feasible: Float[Array, ""]
    """log P(feasible) = log(1 - w_0) of a record before truncation; driven by the prior."""
    augmented: Int[Array, ""]
    """Records drawn for the impossible region; -1 where they were beyond 2**30 and left out."""
    accepted_levels: Float[Array, ""]
    """Share of the Metropolis-Hastings proposals of level probabilities accepted."""
    accepted_splits: Int[Array, ""]
    """Split-merge moves accepted, 0 or 1."""
    left_over: Float[Array, ""]
    """0: the sticks are truncated by definition."""


def one_hot_levels(codes: Int[Array, "J n"], num_levels: tuple[int, ...]) -> Float[Array, "R n"]:
    """Indicators of the level that each record has of each variable; a code of -1 has none."""
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
    """Records with their classes, and cells with the counts of theirs.

    Parameters
    ----------
    z
        Class of each record.
    split
        Records of each cell by class; None where no cell has a count.
    rows
        Row of lambda that holds each record's level of each variable.
    """
    if split is not None:
        rows = jnp.concatenate([rows, data.cell_rows], axis=1)
    return LabelledRecords(z, split, rows, data.weight > 0, data.num_records)


def count_levels(
    records: LabelledRecords, num_levels: tuple[int, ...], num_classes: int
) -> tuple[Int[Array, "R K"], Int[Array, " K"]]:
    """Count the records of each class with each level, and in all."""
    size, num_rows = records.z.size, sum(num_levels)
    rows = records.rows[:, :size]
    counts = count_rows_by_component(
        rows, jnp.broadcast_to(records.z, rows.shape), records.real.astype(jnp.int32),
        (num_rows, num_classes),
    )  # fmt: skip
    if records.split is not None:
        counts += count_split_cells(records.rows[:, size:], records.split, num_rows)
    return counts, jnp.sum(counts[: num_levels[0]], axis=0)
