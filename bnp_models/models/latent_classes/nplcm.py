"""Latent class models of Dunson & Xing (2009), plain and truncated by structural zeros.

    alpha ~ Ga(a, b),   V_k ~ Beta(1, alpha), V_K = 1,   pi_k = V_k prod_{h<k} (1 - V_h)
    lambda_jk ~ Dir(c_j beta_j), with c_j and beta_j learned, or a vector of ones
    z_i ~ pi,           x_ij ~ lambda_{j z_i},           x_i feasible

`NPLCM` has no structural zeros. `TNPLCM` (Manrique-Vallier & Reiter 2014; Manrique-Vallier & Hu
2018) is restricted to the cells that a `bnp_models.StructuralZeros` leaves possible. The functions
are pure: `jax.jit` can compile them, and `jax.vmap` can run them over chains.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.microdata import Microdata, Records
from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.numerics.counting import first_rows, variable_of_rows
from bnp_models.kernels.numerics.platforms import coarse_size
from bnp_models.kernels.variates.discrete import MAX_COUNT
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.levels import Levels, Tree
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.models.latent_classes.classes import update_classes, update_order, update_partition
from bnp_models.models.latent_classes.options import LatentClassOptions
from bnp_models.models.latent_classes.parameters import (
    update_parameters_boxes,
    update_parameters_marginal,
)
from bnp_models.models.latent_classes.predictions import (
    complete_records,
    level_probabilities,
    log_cell_probability,
    simulate_records,
    weight_draws,
)
from bnp_models.models.latent_classes.state import (
    LatentClassData,
    LatentClassInfo,
    LatentClassState,
    count_levels,
    label_records,
    one_hot_levels,
)
from bnp_models.models.level_prior import draw_shape, merge_rows, trees_of, under_prior
from bnp_models.models.model import (
    Completes,
    Draw,
    Fitted,
    PredictsCells,
    last_class_used,
    too_many_augmented,
)
from bnp_models.models.options import documented, fixed_or, option
from bnp_models.zeros.structural_zeros import StructuralZeros

# Incomplete records are padded at least to a multiple of this.
INCOMPLETE_MULTIPLE = 8

# Cells with more records than this have counts; the records of other cells are stored singly. To
# draw the class counts of a cell costs as much as to draw the classes of about this many records.
LISTED_RECORDS = 4


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
        # There may be many of these boxes, so that only the sampler that needs them makes them.
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
    # If no record is stored singly, one row of padding is.
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


TRUNCATIONS = ("mixture", "classes")

AUGMENTATIONS = ("none", "boxes")


class LatentClassModel(
    LatentClassOptions,
    PredictsCells[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
    Completes[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
):
    """Methods of a latent class model; subclasses add the fields of its options."""

    scalars: ClassVar[tuple[str, ...]] = (
        "components", "alpha", "log_likelihood", "last_class", "augmented", "accepted_levels",
        "accepted_splits",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = ("log_pi", "log_lambda", "log_feasible")
    hyperparameters: ClassVar[tuple[str, ...]] = ("level_shape",)
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "log_pi": ("latent_class",),
        "log_lambda": ("variable_level", "latent_class"),
        "level_shape": ("variable_level",),
    }
    takes_missing: ClassVar[bool] = True
    takes_counts: ClassVar[bool] = True
    max_exact_variables: ClassVar[float] = math.inf

    def check(self, table: Microdata | ContingencyTable) -> None:
        """Raise `MicrodataError` unless the ordered variables and the groups fit the table."""
        trees_of(self, table.schema)

    def prepare(
        self,
        table: Microdata | ContingencyTable,
        conditions: StructuralZeros | None = None,
    ) -> LatentClassData:
        """Arrays of a sample, and of its structural zeros."""
        num_levels = table.schema.num_levels
        trees = trees_of(self, table.schema)
        if isinstance(table, ContingencyTable):
            return prepare_cells(self, table.codes, table.counts, num_levels, conditions, trees)
        size = coarse_size(table.n)
        return prepare_records(self, table.codes, num_levels, conditions, size, trees)

    def init(
        self,
        key: Key[Array, ""],
        data: LatentClassData,
        capacity: int,
        num_components: Int[Array, ""],
    ) -> LatentClassState:
        """Initial state in which every record is in one of the classes, at random.

        Chains that start from few classes stay in worse modes for a long time.
        """
        del capacity
        key_z, key_lambda, key_pi, key_alpha, key_cells = Keys(key, 5)
        dtype = jnp.result_type(float)
        u = uniform(words(key_z, data.weight.shape), dtype.type)
        limit = jnp.minimum(num_components, self.components)
        z = uniform_index(u, limit)
        split = None
        if data.cell_counts.size:
            u = uniform(words(key_cells, data.cell_counts.shape), dtype.type)
            of_cell = uniform_index(u, limit)
            split = data.cell_counts * (of_cell == jnp.arange(self.components)[:, None])
        records = label_records(data, z, split, data.rows)
        counts, class_counts = count_levels(records, data.num_levels, self.components)
        alpha = fixed_or(self.alpha, gamma_variate(key_alpha, jnp.ones((), dtype), 1.0))
        log_pi, _ = self.draw_weights(key_pi, class_counts, alpha)
        log_lambda = data.levels.draw(key_lambda, counts)
        return LatentClassState(log_pi, log_lambda, data.levels.shape, alpha)

    def settle(self, state: LatentClassState, data: LatentClassData) -> LatentClassState:
        """Sort the classes by weight; for the warm-up only, since it changes the posterior."""
        log_weight = state.log_pi
        if self.by_class:
            log_weight = log_weight + jnp.log(region_mass(state.log_lambda, data.feasible))
        order = jnp.argsort(-log_weight)
        return dataclasses.replace(
            state, log_pi=state.log_pi[order], log_lambda=state.log_lambda[:, order]
        )

    def sweep(
        self,
        key: Key[Array, ""],
        state: LatentClassState,
        data: LatentClassData,
        iteration: Int[Array, ""],
    ) -> tuple[LatentClassState, LatentClassInfo]:
        """Draw each conditional once, in an order that leaves the posterior invariant."""
        key_z, key_split, key_parameters, key_order = Keys(key, 4)
        records, log_likelihood = update_classes(key_z, state, data)
        state, records, accepted_split = update_partition(
            self, key_split, state, records, data, iteration
        )
        counts, class_counts = count_levels(records, data.num_levels, self.components)
        by_box = self.by_box and data.constrained
        update = update_parameters_boxes if by_box else update_parameters_marginal
        state, log_mass, augmented, accepted = update(
            self, key_parameters, state, data, counts, class_counts
        )
        state, log_mass, class_counts = update_order(self, key_order, state, log_mass, class_counts)
        info = LatentClassInfo(
            components=jnp.sum(class_counts > 0, dtype=jnp.int32),
            last_class=class_counts[-1],
            log_likelihood=log_likelihood,
            log_feasible=jax.nn.logsumexp(state.log_pi + log_mass),
            augmented=augmented,
            accepted_levels=accepted,
            accepted_splits=accepted_split.astype(jnp.int32),
            left_over=jnp.zeros((), state.alpha.dtype),
        )
        return state, info

    def log_cell_probability(
        self,
        key: Key[Array, ""] | None,
        draw: Draw,
        cells: Int[Array, "C J"],
        num_levels: tuple[int, ...],
        *,
        method: str = "exact",
        num_draws: int = 4096,
    ) -> Float[Array, " C"]:
        """log p_c of feasible cells in closed form; `key` and `num_draws` are not used."""
        if method != "exact":
            raise ValueError(f'cell probabilities of {self.name} are exact; method is "exact"')
        return log_cell_probability(draw, cells, num_levels)

    weight_draws = staticmethod(weight_draws)

    def merge_levels(
        self, draws: dict[str, np.ndarray], groups: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Level probabilities of merged levels, which are sums of those of the levels."""
        return {"log_lambda": np.log(merge_rows(np.exp(draws["log_lambda"]), groups))}

    simulate_records = staticmethod(simulate_records)
    complete_records = staticmethod(complete_records)
    level_probabilities = staticmethod(level_probabilities)

    def warnings(self, run: Fitted[Records, StructuralZeros]) -> list[str]:
        """Sentences on records in the last class, and on uncounted impossible records."""
        last = last_class_used(run.draws, run.table.n)
        return list(filter(None, [last, too_many_augmented(run.draws)]))


@documented
class NPLCM(LatentClassModel):
    """The nonparametric latent class model, without structural zeros.

    References
    ----------
    Dunson, D. B. & Xing, C. (2009), doi:10.1198/jasa.2009.tm08439. Si, Y. & Reiter, J. P. (2013),
    doi:10.3102/1076998613480394.

    Examples
    --------
    >>> bnp.NPLCM(components=10).capacity
    10
    """

    name: ClassVar[str] = "nplcm"


@documented
class TNPLCM(LatentClassModel):
    """The truncated nonparametric latent class model: structural zeros have probability zero.

    References
    ----------
    Manrique-Vallier, D. & Reiter, J. P. (2014), doi:10.1080/10618600.2013.844700.
    Manrique-Vallier, D. & Hu, J. (2018), doi:10.1111/rssa.12352.

    Examples
    --------
    >>> bnp.TNPLCM(components=10).takes_missing
    True
    """

    truncation: str = option(
        "mixture",
        """"mixture": the mixture is truncated as a whole, as in the papers. "classes": each class
        is truncated separately, and the stick-breaking weights are the weights of the truncated
        classes. This is the same family of distributions, with a prior whose parameters the data
        identify.""",
        choices=TRUNCATIONS,
    )
    augmentation: str = option(
        "none",
        """"none": the impossible region is integrated out. "boxes": its records are drawn as counts
        by box and class, as in the sampler of the papers. Both have the same posterior; "boxes"
        needs truncation "mixture".""",
        choices=AUGMENTATIONS,
    )

    name: ClassVar[str] = "tnplcm"
    conditions_type: ClassVar[type | None] = StructuralZeros

    def __check_init__(self):
        if self.by_class and self.by_box:
            raise ValueError('truncation "classes" is sampled with augmentation "none" only')

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated separately, and not the mixture as a whole."""
        return self.truncation == "classes"

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return self.augmentation == "boxes"


def draw_prior(model: LatentClassOptions, key: Key[Array, ""], levels: Levels) -> LatentClassState:
    """Draw parameters from the prior with truncation "mixture", for any prior of the levels."""
    key_alpha, key_pi, key_lambda, key_shape = Keys(key, 4)
    dtype = jnp.result_type(float)
    alpha = fixed_or(model.alpha, gamma_variate(key_alpha, jnp.asarray(model.a, dtype), model.b))
    none = jnp.zeros(model.components, jnp.int32)
    log_pi, _ = model.draw_weights(key_pi, none, alpha)
    level_shape = draw_shape(model, key_shape, levels)
    no_record = jnp.zeros((levels.variable.size, model.components), jnp.int32)
    log_lambda = levels.with_shape(level_shape).draw(key_lambda, no_record)
    return LatentClassState(log_pi, log_lambda, level_shape, alpha)
