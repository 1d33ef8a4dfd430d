"""Arrays of a coded sample, and initial states of mixed membership models."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from bnp_models.data.cells import group_cells
from bnp_models.data.microdata import Microdata
from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.kernels.numerics.counting import (
    count_rows_by_component,
    first_rows,
    label_type,
    sum_by_group,
)
from bnp_models.kernels.numerics.platforms import coarse_size
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.levels import Levels, Tree
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.models.level_prior import trees_of, under_prior
from bnp_models.models.mixed_membership.feasible import (
    compile_zeros,
    feasible_totals,
    weighted_boxes,
)
from bnp_models.models.mixed_membership.options import RECORD_MULTIPLE, MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPState
from bnp_models.models.options import fixed_or
from bnp_models.zeros.structural_zeros import StructuralZeros

# Share of the slots that an initial state may fill.
START_SHARE = 7 / 8


def prepare(
    model: MembershipOptions, table: Microdata, conditions: StructuralZeros | None = None
) -> HDPData:
    """Make the arrays of a sample, by `prepare_records`.

    Raises
    ------
    MicrodataError
        As `prepare_records`, and as `weighted_boxes` if the records have design weights.
    """
    if isinstance(table, WeightedMicrodata) and conditions is not None:
        _check_weighted(model, conditions)
    size = coarse_size(table.n, RECORD_MULTIPLE)
    coding = model.coding(conditions)
    trees = trees_of(model, table.schema if coding is None else coding.schema)
    return prepare_records(model, table.codes, table.schema.num_levels, conditions, size, trees)


def _check_weighted(model: MembershipOptions, conditions: StructuralZeros) -> None:
    """Raise `MicrodataError` unless P(feasible) with design weights is exact under these zeros."""
    left = conditions.not_applicable.conditions if model.not_applicable else conditions
    if left is not None:
        sizes = left.schema.num_levels
        weighted_boxes(left.feasible.sets[:, : -sizes[-1]], sizes[:-1])


def prepare_records(
    model: MembershipOptions,
    codes: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
    multiple: int = RECORD_MULTIPLE,
    trees: Mapping[int, Tree] | None = None,
) -> HDPData:
    """Make the arrays of a coded sample.

    Parameters
    ----------
    codes
        (n, J) 0-based level codes, -1 where missing; with structural zeros no value is missing.
    num_levels
        Levels of each variable.
    conditions
        Structural zeros, or None.
    multiple
        Records are padded to a multiple of this; the strides must divide it.
    trees
        Groups of the levels of some variables, by column.

    Raises
    ------
    MicrodataError
        If the conditions constrain too many variables for the chosen augmentation.
    """
    # For the search of distinct cells, a missing value is a further level, the first.
    cells = group_cells(codes + 1, [size + 1 for size in num_levels])
    distinct = cells.codes - 1
    # Items that are missing or do not apply are absent; they do not enter the likelihood.
    may_be_absent = model.not_applicable or bool((codes < 0).any())
    if conditions is not None and model.not_applicable:
        coding, conditions = conditions.not_applicable
        codes, distinct = coding.reduce(codes), coding.reduce(distinct)
        num_levels = coding.schema.num_levels
    num_records, num_items = codes.shape
    padding = -num_records % multiple
    first_row = first_rows(num_levels)
    # All absent items have one further level, of probability one.
    levels = (*num_levels, 1) if may_be_absent else num_levels
    absent = sum(num_levels)
    rows = np.pad(np.where(codes < 0, absent, codes + first_row), ((0, padding), (0, 0)))
    cell_rows = np.zeros_like(rows)
    cell_rows[: len(distinct)] = np.where(distinct < 0, absent, distinct + first_row)
    zeros = None
    if conditions is not None and conditions.num_impossible_cells > 0:
        zeros = compile_zeros(model, conditions, levels)
    return HDPData(
        rows=jnp.asarray(rows.T, jnp.int32),
        weight=jnp.asarray(np.arange(num_records + padding) < num_records, jnp.int32),
        num_records=jnp.asarray(num_records, jnp.int32),
        # The number of Dirichlet draws does not depend on whether items may be absent.
        levels=under_prior(
            model, Levels.of_variables(levels, trees, spare=0 if may_be_absent else 1)
        ),
        cell=jnp.asarray(np.pad(cells.record_cell, (0, padding)), jnp.int32),
        cell_rows=jnp.asarray(cell_rows.T, jnp.int32),
        num_cells=jnp.asarray(len(cells.codes), jnp.int32),
        zeros=zeros,
        num_levels=tuple(num_levels),
    )


def init_state(
    model: MembershipOptions,
    key: Key[Array, ""],
    data: HDPData,
    capacity: int,
    num_components: Int[Array, ""],
) -> HDPState:
    """Put every record in one of `num_components` components, at random.

    Choose many components: chains that begin with one component stay in worse modes for thousands
    of sweeps.
    """
    key_z, key_alpha = Keys(key)
    u = uniform(words(key_z, (data.weight.size,)), jnp.result_type(float).type)
    limit = jnp.minimum(num_components, int(capacity * START_SHARE))
    return state_of_labels(model, key_alpha, data, capacity, uniform_index(u, limit))


def state_of_labels(
    model: MembershipOptions,
    key: Key[Array, ""],
    data: HDPData,
    capacity: int,
    label: Int[Array, " n"],
) -> HDPState:
    """State in which all values of a record are in one component, given for each record.

    Weights and level probabilities are estimated from these components; alpha is drawn from its
    prior, with `key`.
    """
    z = jnp.broadcast_to(label, data.rows.shape)
    variable = data.levels.variable
    dtype = jnp.result_type(float)
    counts = count_rows_by_component(data.rows, z, data.weight, (variable.size, capacity)).astype(
        dtype
    )
    total = sum_by_group(1 + counts, variable, variable.size)
    weight = jnp.sum(counts, axis=0)
    shape = () if model.shared else (data.weight.size,)
    g0, theta = weight / jnp.sum(weight), (1 + counts) / total[variable]
    return HDPState(
        z=z.astype(label_type(capacity)),
        g0=g0,
        theta=theta,
        level_shape=data.levels.shape,
        alpha=fixed_or(model.alpha, gamma_variate(key, jnp.full(shape, model.a, dtype), model.b)),
        rate=jnp.asarray(model.b, dtype),
        alpha0=fixed_or(model.alpha0, jnp.ones((), dtype)),
        totals=feasible_totals(g0, theta, data),
    )
