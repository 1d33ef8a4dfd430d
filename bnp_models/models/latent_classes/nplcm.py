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
from typing import ClassVar, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.microdata import Microdata, Records
from bnp_models.kernels.boxes.region import region_mass
from bnp_models.kernels.numerics.platforms import coarse_size
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.models.latent_classes.conditionals import (
    draw_without_zeros,
    update_classes,
    update_order,
    update_partition,
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
    LatentClassOptions,
    LatentClassState,
    count_levels,
    label_records,
    prepare_cells,
    prepare_records,
)
from bnp_models.models.latent_classes.truncated import (
    draw_truncated_classes,
    draw_truncated_mixture,
    update_parameters_boxes,
)
from bnp_models.models.level_prior import draw_shape, merge_rows, trees_of
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

TruncatedAs: TypeAlias = Literal["mixture", "classes"]

TRUNCATIONS: tuple[str, ...] = get_args(TruncatedAs)

Augmentation: TypeAlias = Literal["none", "boxes"]

AUGMENTATIONS: tuple[str, ...] = get_args(Augmentation)


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
        """Initial state in which every record is at random in one of `num_components` classes.

        By default these are all K classes, because chains that start from few classes stay in worse
        modes for a long time.
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
        """Sort the classes by weight, the largest first; for the warm-up only.

        The stick-breaking prior gives the orders of the same classes different densities. If the
        classes were sorted after every sweep, draws would come from another distribution than the
        posterior.
        """
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
        """Draw each conditional once, in an order that leaves the posterior invariant.

        The log likelihood of the info belongs to the parameters of `state`, before the sweep: it is
        computed when the classes are drawn. The other kept quantities are those after the sweep.
        """
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
        """Log level probabilities in which each merged level has the sum of its levels' values."""
        return {"log_lambda": np.log(merge_rows(np.exp(draws["log_lambda"]), groups))}

    simulate_records = staticmethod(simulate_records)
    complete_records = staticmethod(complete_records)
    level_probabilities = staticmethod(level_probabilities)

    def warnings(self, run: Fitted[Records, StructuralZeros]) -> list[str]:
        """Sentences on records in the last class, and on uncounted impossible records."""
        last = last_class_used(run.draws, run.table.n)
        return list(filter(None, [last, too_many_augmented(run.draws)]))


@jax.named_scope("update_parameters")
def update_parameters_marginal(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Draw level probabilities, weights and alpha, with the impossible records integrated out.

    Parameters
    ----------
    counts, class_counts
        Number of records of each class with each level, and of each class, from `count_levels`.

    Returns
    -------
    state
        Drawn parameters.
    log_mass, augmented, accepted
        As in `Drawn`.
    """
    *step_keys, key_alpha, key_shape = Keys(key, 7)
    if not data.constrained:
        draw = draw_without_zeros
    elif model.by_class:
        draw = draw_truncated_classes
    else:
        draw = draw_truncated_mixture
    drawn = draw(model, (key_shape, *step_keys), state, data, counts, class_counts)
    alpha = model.draw_alpha(key_alpha, drawn.sum_log_1mv)
    state = LatentClassState(drawn.log_pi, drawn.log_lambda, drawn.level_shape, alpha)
    augmented = jnp.asarray(drawn.augmented, jnp.int32)
    return state, drawn.log_mass, augmented, jnp.asarray(drawn.accepted, alpha.dtype)


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

    truncation: TruncatedAs = option(
        "mixture",
        """"mixture": the mixture is truncated as a whole, as in the papers. "classes": each class
        is truncated separately, and the stick-breaking weights are the weights of the truncated
        classes. This is the same family of distributions, with a prior whose parameters the data
        identify.""",
        choices=TRUNCATIONS,
    )
    augmentation: Augmentation = option(
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
