"""Latent class models of Dunson & Xing (2009), plain and truncated by structural zeros.

    alpha ~ Ga(a, b),   V_k ~ Beta(1, alpha), V_K = 1,   pi_k = V_k prod_{h<k} (1 - V_h)
    lambda_jk ~ Dir(1_{L_j})
    z_i ~ pi,           x_ij ~ lambda_{j z_i},           x_i feasible

`NPLCM` has no structural zeros; `TNPLCM` (Manrique-Vallier & Reiter 2014; Manrique-Vallier & Hu
2018) keeps to the cells that a `bnp_models.StructuralZeros` leaves. The functions are pure: they
jit, and vmap over chains.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.assignment import draw_rows
from bnp_models.kernels.atoms import Atoms, draw_levels_by_atom, split_over_atoms
from bnp_models.kernels.counting import count_rows_by_component, first_rows, order_free_sum
from bnp_models.kernels.discrete import MAX_COUNT, poisson
from bnp_models.kernels.logspace import gamma_variate, loggamma_from_one
from bnp_models.kernels.rng import uniform, words
from bnp_models.kernels.split_classes import split_or_merge_classes
from bnp_models.kernels.sticks import stick_concentration, truncated_sticks
from bnp_models.kernels.truncation import (
    Region,
    Tilt,
    box_masses,
    draw_levels,
    draw_observed_weights,
    outside_mass,
    region_mass,
    reorder_classes,
    stick_tilt,
    swap_classes,
    update_levels_truncated,
)

TRUNCATIONS = ("mixture", "classes")
AUGMENTATIONS = ("none", "boxes", "simulation")


class LatentClassData(eqx.Module):
    """The coded sample and the region it lies in."""

    rows: Int[Array, "J n"]
    """Row of lambda that holds each record's level; that of the first level where missing."""
    one_hot: Float[Array, "R n"]
    """1 where the record has the level; a missing value has none."""
    incomplete: Int[Array, " m"]
    """Records with a missing value."""
    missing: Bool[Array, "m J"]
    """Their missing values."""
    admitted: Float[Array, "B m"]
    """1 where their observed values are in the feasible box."""
    variable: Int[Array, " R"]
    """Variable of each row of lambda."""
    feasible: Region
    """Feasible cells, by group of variables."""
    impossible: Region
    """Impossible cells, by group of variables."""
    everything_impossible: Region
    """Impossible cells as boxes of one group, for augmentation "boxes"; else without boxes."""
    atoms: Atoms
    """Sets of levels among which counts of the impossible boxes are shared out."""
    boxes: Bool[Array, "B R"]
    """The feasible boxes as sets of levels of all variables, in which records are drawn."""
    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""
    constrained: tuple[int, ...] = eqx.field(static=True)
    """Variables that a condition names."""

    @property
    def num_records(self) -> int:
        """Records n."""
        return self.rows.shape[1]


class LatentClassState(eqx.Module):
    """All that a chain needs to go on: the classes of the records are redrawn first."""

    log_pi: Float[Array, " K"]
    """Log weights of the classes before truncation."""
    log_lambda: Float[Array, "R K"]
    """Log level probabilities before truncation, by row and class."""
    alpha: Float[Array, ""]
    """Concentration of the sticks."""


class LatentClassInfo(eqx.Module):
    """What one sweep says of itself."""

    components: Int[Array, ""]
    """Classes with at least one record of the sample."""
    last_class: Int[Array, ""]
    """Records in the last class, which takes all that the sticks leave: should be 0."""
    log_likelihood: Float[Array, ""]
    """Of the sample, labels integrated out, at the parameters that the sweep started from."""
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


class _LatentClassModel(eqx.Module):
    """What NPLCM and TNPLCM share: everything but the fields."""

    components: eqx.AbstractVar[int]
    a: eqx.AbstractVar[float]
    b: eqx.AbstractVar[float]
    truncation: eqx.AbstractVar[str]
    augmentation: eqx.AbstractVar[str]
    reorder: eqx.AbstractVar[bool]
    swap: eqx.AbstractVar[bool]
    split_merge_every: eqx.AbstractVar[int]
    truncates: eqx.AbstractClassVar[bool]

    scalars: ClassVar[tuple[str, ...]] = (
        "components", "alpha", "log_likelihood", "last_class", "augmented", "accepted_levels",
        "accepted_splits",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = ("log_pi", "log_lambda", "log_feasible")
    takes_missing: ClassVar[bool] = True
    max_exact_variables: ClassVar[float] = math.inf

    def __check_init__(self):
        if not isinstance(self.components, int) or self.components < 2:
            raise ValueError(f"components must be an integer of at least 2, not {self.components}")
        for name in ("a", "b"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if self.truncation not in TRUNCATIONS:
            raise ValueError(
                f"truncation is one of {', '.join(TRUNCATIONS)}, not {self.truncation!r}"
            )
        if self.augmentation not in AUGMENTATIONS:
            raise ValueError(
                f"augmentation is one of {', '.join(AUGMENTATIONS)}, not {self.augmentation!r}"
            )
        if self.truncation == "classes" and self.augmentation != "none":
            raise ValueError('truncation "classes" is sampled with augmentation "none" only')

    @property
    def start_components(self) -> tuple[int, ...]:
        """Classes of the initial states: all."""
        return (self.components,)

    @property
    def capacity(self) -> int:
        """Slots for classes: K, which never grows."""
        return self.components

    def prepare(self, codes: np.ndarray, num_levels: tuple[int, ...], conditions=None):
        """Arrays of a coded sample.

        Parameters
        ----------
        codes
            (n, J) 0-based level codes, -1 where missing.
        num_levels
            Levels of each variable.
        conditions
            A `bnp_models.StructuralZeros`, or None.
        """
        if conditions is None:
            feasible, impossible = np.ones((1, sum(num_levels)), bool), None
            groups = ()
        else:
            feasible = conditions.feasible.sets
            # These boxes may be many: they are made only for the sampler that needs them.
            by_box = self.augmentation == "boxes"
            impossible = conditions.impossible.sets if by_box else None
            groups = conditions.groups
        variable = np.repeat(np.arange(len(num_levels)), num_levels)
        first_row = first_rows(num_levels)
        free = np.all([g.feasible.sets.all(axis=0) for g in groups], axis=0)
        constrained = tuple(
            int(j) for j in np.unique(variable[~np.broadcast_to(free, variable.shape)])
        )
        missing = codes < 0
        incomplete = np.flatnonzero(missing.any(axis=1))
        present = np.maximum(codes, 0) + first_row
        admitted = np.all(feasible[:, present[incomplete]] | missing[incomplete], axis=2)
        return LatentClassData(
            rows=jnp.asarray(present.T, jnp.int32),
            one_hot=one_hot_levels(jnp.asarray(codes.T, jnp.int32), num_levels),
            incomplete=jnp.asarray(incomplete, jnp.int32),
            missing=jnp.asarray(missing[incomplete]),
            admitted=jnp.asarray(admitted, jnp.result_type(float)),
            variable=jnp.asarray(variable, jnp.int32),
            feasible=Region.of_boxes([g.feasible.sets for g in groups], num_levels),
            impossible=Region.of_boxes([g.impossible.sets for g in groups], num_levels),
            everything_impossible=Region.of_boxes(
                [] if impossible is None else [impossible], num_levels
            ),
            atoms=Atoms.of_boxes(impossible, num_levels),
            boxes=jnp.asarray(feasible),
            num_levels=tuple(num_levels),
            constrained=constrained,
        )

    def record_axes(self, tree) -> list[int | None]:
        """No leaf is sharded over records: chains are what devices share."""
        return [None] * len(jax.tree.leaves(tree))

    def init(
        self,
        key: Key[Array, ""],
        data: LatentClassData,
        capacity: int,
        num_components: Int[Array, ""],
    ) -> LatentClassState:
        """A start with every record in one of the classes, at random.

        Chains that start from few classes stay in worse modes for long.
        """
        del capacity
        key_z, key_lambda, key_pi, key_alpha = jax.random.split(key, 4)
        dtype = jnp.result_type(float)
        u = uniform(words(key_z, (data.num_records,)), dtype.type)
        limit = jnp.minimum(num_components, self.components)
        z = jnp.minimum((u * limit).astype(jnp.int32), limit - 1)
        counts, class_counts = count_levels(data.rows, z, data.num_levels, self.components)
        alpha = gamma_variate(key_alpha, jnp.ones((), dtype), 1.0)
        log_pi, _ = truncated_sticks(key_pi, class_counts, alpha)
        log_lambda = draw_levels(key_lambda, 1 + counts.astype(dtype), data.variable)
        return LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)

    def settle(self, state: LatentClassState, data: LatentClassData) -> LatentClassState:
        """Sort the classes by weight: for warm-up only, the posterior is not invariant."""
        log_weight = state.log_pi
        if self.truncation == "classes":
            log_weight = log_weight + jnp.log(region_mass(state.log_lambda, data.feasible))
        order = jnp.argsort(-log_weight)
        return eqx.tree_at(
            lambda s: (s.log_pi, s.log_lambda),
            state,
            (state.log_pi[order], state.log_lambda[:, order]),
        )

    def sweep(
        self,
        key: Key[Array, ""],
        state: LatentClassState,
        data: LatentClassData,
        iteration: Int[Array, ""],
    ) -> tuple[LatentClassState, LatentClassInfo]:
        """One sweep, in an order that leaves the posterior invariant."""
        key_z, key_split, key_parameters, key_order = jax.random.split(key, 4)
        z, rows, log_likelihood = update_classes(key_z, state, data)
        state, z, accepted_split = update_partition(
            self, key_split, state, z, rows, data, iteration
        )
        counts, class_counts = count_levels(rows, z, data.num_levels, self.components)
        update = {
            "none": update_parameters_marginal,
            "boxes": update_parameters_boxes,
            "simulation": update_parameters_simulation,
        }[self.augmentation if data.constrained else "none"]
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

    def grow(self, key, state, data, capacity):
        """The number of classes is part of the model: the driver never asks for more."""
        raise ValueError(f"{self.name} has a fixed number of classes")

    def keep(self, state: LatentClassState, info: LatentClassInfo) -> dict[str, Array]:
        """Everything of one sweep that a user may choose to keep."""
        return {
            "components": info.components,
            "alpha": state.alpha,
            "log_likelihood": info.log_likelihood,
            "last_class": info.last_class,
            "augmented": info.augmented,
            "accepted_levels": info.accepted_levels,
            "accepted_splits": info.accepted_splits,
            "log_pi": state.log_pi,
            "log_lambda": state.log_lambda,
            "log_feasible": info.log_feasible,
        }

    def log_cell_probability(self, key, draw, cells, num_levels, method="exact", **how):
        """See the function `log_cell_probability`: a closed form, without key or draws."""
        if method != "exact":
            raise ValueError(f'cell probabilities of {self.name} are exact; method is "exact"')
        return log_cell_probability(draw, cells, num_levels)

    def simulate_records(self, key, draw, num_records, num_levels, feasible=None):
        """See the function `simulate_records`."""
        return simulate_records(key, draw, num_records, num_levels, feasible)

    def complete_records(self, key, draw, data):
        """See the function `complete_records`."""
        return complete_records(key, draw, data)

    def level_probabilities(self, draw, num_levels, feasible=None):
        """See the function `level_probabilities`."""
        return level_probabilities(draw, num_levels, feasible)


class NPLCM(_LatentClassModel):
    """The nonparametric latent class model, without structural zeros.

    Parameters
    ----------
    components
        Classes K at which the sticks are truncated.
    a, b
        Shape and rate of alpha's prior.
    reorder, swap
        Moves that exchange classes, weights and all, and classes between weights.
    split_merge_every
        Sweeps between split-merge moves; 0 turns them off.

    References
    ----------
    Dunson, D. B. & Xing, C. (2009), doi:10.1198/jasa.2009.tm08439. Si, Y. & Reiter, J. P. (2013),
    doi:10.3102/1076998613480394.
    """

    components: int = eqx.field(static=True, default=50)
    a: float = 0.25
    b: float = 0.25
    reorder: bool = eqx.field(static=True, default=True)
    swap: bool = eqx.field(static=True, default=True)
    split_merge_every: int = eqx.field(static=True, default=4)

    name: ClassVar[str] = "nplcm"
    truncates: ClassVar[bool] = False
    truncation: ClassVar[str] = "mixture"
    augmentation: ClassVar[str] = "none"


class TNPLCM(_LatentClassModel):
    """The truncated nonparametric latent class model: structural zeros have probability zero.

    Parameters
    ----------
    components
        Classes K at which the sticks are truncated.
    a, b
        Shape and rate of alpha's prior.
    truncation
        "mixture": the mixture is truncated as a whole, as in the papers. "classes": each class is
        truncated, and the sticks are the weights of the truncated classes: the same family of
        distributions under a prior that the data identify.
    augmentation
        "none": the impossible region is integrated out; "boxes": its records are drawn as counts
        by box and class (the papers' sampler); "simulation": they are drawn one by one. All three
        have the same posterior; the last two need truncation "mixture".
    reorder, swap
        Moves that exchange classes, weights and all, and classes between weights.
    split_merge_every
        Sweeps between split-merge moves; 0 turns them off.

    References
    ----------
    Manrique-Vallier, D. & Reiter, J. P. (2014), doi:10.1080/10618600.2013.844700.
    Manrique-Vallier, D. & Hu, J. (2018), doi:10.1111/rssa.12352.
    """

    components: int = eqx.field(static=True, default=50)
    a: float = 0.25
    b: float = 0.25
    truncation: str = eqx.field(static=True, default="mixture")
    augmentation: str = eqx.field(static=True, default="none")
    reorder: bool = eqx.field(static=True, default=True)
    swap: bool = eqx.field(static=True, default=True)
    split_merge_every: int = eqx.field(static=True, default=4)

    name: ClassVar[str] = "tnplcm"
    truncates: ClassVar[bool] = True


def one_hot_levels(codes: Int[Array, "J n"], num_levels: tuple[int, ...]) -> Float[Array, "R n"]:
    """1 where a record has a level; a code of -1 has none."""
    return jnp.concatenate([
        jax.nn.one_hot(codes[j], size, axis=0, dtype=jnp.result_type(float))
        for j, size in enumerate(num_levels)
    ])  # fmt: skip


def count_levels(
    rows: Int[Array, "J n"], z: Int[Array, " n"], num_levels: tuple[int, ...], num_classes: int
) -> tuple[Int[Array, "R K"], Int[Array, " K"]]:
    """Records of each class with each level, and in all."""
    weight = jnp.ones(z.size, jnp.int32)
    counts = count_rows_by_component(
        rows, jnp.broadcast_to(z, rows.shape), weight, (sum(num_levels), num_classes)
    )
    return counts, jnp.sum(counts[: num_levels[0]], axis=0)


def draw_prior(
    model: _LatentClassModel, key: Key[Array, ""], variable: Int[Array, " R"]
) -> LatentClassState:
    """Parameters from the prior of truncation "mixture"; `variable` is that of each row."""
    key_alpha, key_pi, key_lambda = jax.random.split(key, 3)
    dtype = jnp.result_type(float)
    alpha = gamma_variate(key_alpha, jnp.asarray(model.a, dtype), model.b)
    log_pi, _ = truncated_sticks(key_pi, jnp.zeros(model.components, jnp.int32), alpha)
    log_lambda = draw_levels(
        key_lambda, jnp.ones((variable.size, model.components), dtype), variable
    )
    return LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)


def update_classes(
    key: Key[Array, ""], state: LatentClassState, data: LatentClassData
) -> tuple[Int[Array, " n"], Int[Array, "J n"], Float[Array, ""]]:
    """Step (a): every record's class, and with it its missing values.

    Returns
    -------
    z, rows
        Classes; rows of lambda that hold the levels, missing ones drawn.
    log_likelihood
        Of the observed values, at these parameters.
    """
    key_z, key_values = jax.random.split(key)
    log_weight = jnp.matmul(
        state.log_lambda.T, data.one_hot, precision=lax.Precision.HIGHEST
    ) + state.log_pi[:, None]  # fmt: skip
    rows = data.rows
    if data.incomplete.size:
        log_box = log_completions(state.log_lambda, data)
        completions = jax.nn.logsumexp(log_box, axis=0).T
        log_weight = log_weight.at[:, data.incomplete].add(completions)
    z, log_total = draw_rows(key_z, log_weight)
    if data.incomplete.size:
        completed = draw_missing(key_values, state.log_lambda, data, z[data.incomplete], log_box)
        rows = rows.at[:, data.incomplete].set(completed)
    log_feasible = jax.nn.logsumexp(
        state.log_pi + jnp.log(region_mass(state.log_lambda, data.feasible))
    )
    log_likelihood = -order_free_sum(-jnp.minimum(log_total - log_feasible, 0))
    return z, rows, log_likelihood


def log_completions(
    log_lambda: Float[Array, "R K"], data: LatentClassData
) -> Float[Array, "B m K"]:
    """Log probability, by feasible box and class, that missing values complete a record in it."""
    log_admitted = jnp.log(data.admitted)[:, :, None]
    if not data.constrained:
        return jnp.broadcast_to(log_admitted, (*data.admitted.shape, log_lambda.shape[1]))
    variables = np.array(data.constrained)
    masses = _masses_of_sets(log_lambda, data.boxes, data.num_levels)[variables]
    missing = data.missing[:, variables].astype(log_lambda.dtype)
    # A set of no mass has a logarithm that a product with 0 must not turn into nan.
    log_mass = jnp.log(jnp.maximum(masses, jnp.finfo(masses.dtype).tiny))
    return log_admitted + jnp.einsum(
        "mv,vbk->bmk", missing, log_mass, precision=lax.Precision.HIGHEST
    )


def draw_missing(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    data: LatentClassData,
    z: Int[Array, " m"],
    log_box: Float[Array, "B m K"],
) -> Int[Array, "J m"]:
    """Rows of the incomplete records, their missing values drawn given their classes.

    The box comes first, then the levels within its sets: every completion is feasible.
    """
    key_box, key_levels = jax.random.split(key)
    of_class = jnp.take_along_axis(log_box, z[None, :, None], axis=2)[:, :, 0]
    box, _ = draw_rows(key_box, of_class)
    drawn = draw_levels_in_box(
        key_levels, log_lambda, data.boxes, z, box, data.num_levels
    )  # fmt: skip
    return jnp.where(data.missing.T, drawn, data.rows[:, data.incomplete])


def draw_levels_in_box(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    sets: Bool[Array, "B R"],
    z: Int[Array, " m"],
    box: Int[Array, " m"],
    num_levels: tuple[int, ...],
) -> Int[Array, "J m"]:
    """Row of lambda of each variable, drawn from a class within a box."""
    keys = jax.random.split(key, len(num_levels))
    drawn = []
    for key_j, start, size in zip(keys, first_rows(num_levels), num_levels, strict=True):
        allowed = sets[:, start : start + size][box].T
        log_weight = jnp.where(allowed, log_lambda[start : start + size][:, z], -jnp.inf)
        level, _ = draw_rows(key_j, log_weight)
        drawn.append(start + level)
    return jnp.stack(drawn)


def update_partition(
    model: _LatentClassModel,
    key: Key[Array, ""],
    state: LatentClassState,
    z: Int[Array, " n"],
    rows: Int[Array, "J n"],
    data: LatentClassData,
    iteration: Int[Array, ""],
) -> tuple[LatentClassState, Int[Array, " n"], Bool[Array, ""]]:
    """Split or merge classes, every so many sweeps; the parameters of two of them move along.

    Returns
    -------
    state, z, accepted
        The state and the classes of the records after the move, and whether it was accepted.
    """
    if not model.split_merge_every:
        return state, z, jnp.zeros((), bool)
    by_class = model.truncation == "classes"

    def move(key, state, z):
        key_scale, key_move = jax.random.split(key)
        one_hot = data.one_hot
        if data.incomplete.size:
            codes = rows[:, data.incomplete] - first_rows(data.num_levels)[:, None]
            one_hot = one_hot.at[:, data.incomplete].set(one_hot_levels(codes, data.num_levels))
        log_mass = jnp.log(region_mass(state.log_lambda, data.feasible))
        log_seen = state.log_pi + log_mass
        log_scale = loggamma_from_one(key_scale, jnp.asarray(data.num_records, log_mass.dtype))
        log_x = log_scale - jax.nn.logsumexp(log_seen) + (log_seen if by_class else state.log_pi)
        z, log_x, log_lambda, accepted = split_or_merge_classes(
            key_move, z, log_x, state.log_lambda, rows, one_hot, data.variable, data.feasible,
            state.alpha, by_class,
        )  # fmt: skip
        if by_class:
            log_x = log_x - jnp.log(region_mass(log_lambda, data.feasible))
        log_pi = log_x - jax.nn.logsumexp(log_x)
        return LatentClassState(log_pi, log_lambda, state.alpha), z, accepted

    def stay(key, state, z):
        return state, z, jnp.zeros((), bool)

    due = iteration % model.split_merge_every == 0
    return lax.cond(due, move, stay, key, state, z)


def update_parameters_marginal(
    model: _LatentClassModel,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Level probabilities, weights and alpha, no augmented record behind the level probabilities.

    Records of the impossible region are drawn by class only, to break the sticks anew: they do not
    touch the level probabilities.

    Parameters
    ----------
    counts, class_counts
        Records of each class with each level, and in all, from `count_levels`.

    Returns
    -------
    state
        Parameters, drawn.
    log_mass
        log F_k of the new level probabilities.
    augmented
        Records drawn for the impossible region, -1 where there were too many to count.
    accepted
        Share of Metropolis-Hastings proposals accepted; 1 where none is made.
    """
    keys = jax.random.split(key, 6)
    log_pi, alpha = state.log_pi, state.alpha
    zero = jnp.zeros((), jnp.int32)
    evidence = (counts, class_counts, data.variable)
    if not data.constrained:
        log_lambda = draw_levels(keys[0], 1 + counts.astype(alpha.dtype), data.variable)
        log_pi, sum_log_1mv = truncated_sticks(keys[1], class_counts, alpha)
        log_mass, accepted, augmented = jnp.zeros_like(log_pi), jnp.ones_like(alpha), zero
    elif model.truncation == "classes":
        nothing = jnp.zeros_like(log_pi)
        log_lambda, log_mass, accepted = update_levels_truncated(
            keys[0], state.log_lambda, *evidence, data.feasible, Tilt(nothing, nothing)
        )
        log_rho, sum_log_1mv = truncated_sticks(keys[1], class_counts, alpha)
        log_pi, augmented = log_rho - log_mass, zero
        log_pi = log_pi - jax.nn.logsumexp(log_pi)
    else:
        num_records = jnp.asarray(data.num_records, log_pi.dtype)
        log_mass = jnp.log(region_mass(state.log_lambda, data.feasible))
        tilt, log_s = stick_tilt(keys[0], log_pi, log_mass, alpha, num_records)
        log_lambda, log_mass, accepted = update_levels_truncated(
            keys[1], state.log_lambda, *evidence, data.feasible, tilt
        )
        log_pi = draw_observed_weights(keys[2], class_counts, log_mass, log_s, alpha)
        log_outside = log_pi + jnp.log(outside_mass(log_lambda, data.feasible, data.impossible))
        of_class = draw_augmented(keys[3], log_outside, log_pi + log_mass, num_records)
        too_many = _too_many(of_class)
        of_class = jnp.where(too_many, 0, of_class)
        augmented = jnp.where(too_many, -1, jnp.sum(of_class))
        log_sticks, sum_log_1mv = truncated_sticks(keys[4], class_counts + of_class, alpha)
        # The weights have been drawn already: without a count they stay.
        log_pi = jnp.where(too_many, log_pi, log_sticks)
        sum_log_1mv = jnp.where(too_many, log_pi[-1], sum_log_1mv)
    alpha = stick_concentration(keys[5], sum_log_1mv, model.components, model.a, model.b)
    state = LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)
    return state, log_mass, augmented, accepted


def draw_augmented(
    key: Key[Array, ""],
    log_outside: Float[Array, "..."],
    log_inside: Float[Array, " K"],
    num_records: Float[Array, ""],
) -> Int[Array, "..."]:
    """Records of the impossible region by any partition of it, given the parameters.

    Negative multinomial as gamma-mixed Poissons: g ~ Ga(n, 1), then Poisson(g w / P).

    Parameters
    ----------
    log_outside
        Log probabilities of the parts of the impossible region.
    log_inside
        Log feasible probability, by class.
    """
    key_g, key_count = jax.random.split(key)
    log_g = loggamma_from_one(key_g, num_records)
    return poisson(key_count, jnp.exp(log_g + log_outside - jax.nn.logsumexp(log_inside)))


def _too_many(counts):
    """Whether one of them, or their sum, is beyond what int32 holds with room for the sample."""
    return jnp.any(counts < 0) | (jnp.sum(counts.astype(float)) > MAX_COUNT)


def update_parameters_boxes(
    model: _LatentClassModel,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Steps (b) to (f) on counts by box and class (Manrique-Vallier & Hu 2018, section 2.3).

    A variable that a box leaves free integrates out of the box's records: it has no counts.
    Arguments and results as in `update_parameters_marginal`.
    """
    key_count, key_split, key_parameters = jax.random.split(key, 3)
    log_mass_before = jnp.log(region_mass(state.log_lambda, data.feasible))
    log_inside = state.log_pi + log_mass_before
    log_box = jnp.sum(jnp.log(box_masses(state.log_lambda, data.everything_impossible)), axis=0)
    num_records = jnp.asarray(data.num_records, state.alpha.dtype)
    of_box = draw_augmented(key_count, state.log_pi + log_box, log_inside, num_records)
    too_many = _too_many(of_box)
    of_box = jnp.where(too_many, 0, of_box)
    of_set = jnp.matmul(data.atoms.set_of_box, of_box)
    added = split_over_atoms(key_split, of_set, state.log_lambda, data.atoms)
    new, log_mass, augmented, accepted = _given_augmented(
        model, key_parameters, state, data, counts, class_counts, added, jnp.sum(of_box, axis=0)
    )
    new, log_mass = jax.tree.map(
        lambda drawn, old: jnp.where(too_many, old, drawn),
        (new, log_mass),
        (state, log_mass_before),
    )
    return new, log_mass, jnp.where(too_many, -1, augmented), accepted


def _given_augmented(model, key, state, data, counts, class_counts, added, added_class_counts):
    """Steps (b) and (c), and alpha: `added` augmented records by atom, and in all by class."""
    key_levels, key_pi, key_alpha = jax.random.split(key, 3)
    shape = 1 + counts.astype(state.alpha.dtype)
    log_lambda = draw_levels_by_atom(key_levels, shape, added, data.atoms)
    log_pi, sum_log_1mv = truncated_sticks(key_pi, class_counts + added_class_counts, state.alpha)
    alpha = stick_concentration(key_alpha, sum_log_1mv, model.components, model.a, model.b)
    log_mass = jnp.log(region_mass(log_lambda, data.feasible))
    state = LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)
    return state, log_mass, jnp.sum(added_class_counts), jnp.ones_like(alpha)


SIMULATION_BATCH = 4096


def update_parameters_simulation(
    model: _LatentClassModel,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Parameters given augmented records, simulated until as many as the sample's are feasible.

    Exact, and slow where most cells are impossible: the check of the other two. Arguments and
    results as in `update_parameters_marginal`.
    """
    key_simulate, key_parameters = jax.random.split(key)
    wanted, batch = data.num_records, SIMULATION_BATCH
    everything = jnp.ones((1, sum(data.num_levels)), bool)

    def unfinished(carry):
        return carry[1] < wanted

    def simulate(carry):
        step, found, added, of_class = carry
        key_z, key_x = jax.random.split(jax.random.fold_in(key_simulate, step))
        z, _ = draw_rows(key_z, jnp.broadcast_to(state.log_pi[:, None], (model.components, batch)))
        rows = draw_levels_in_box(
            key_x, state.log_lambda, everything, z, jnp.zeros_like(z), data.num_levels
        )
        inside = jnp.any(jnp.all(data.boxes[:, rows], axis=1), axis=0)
        before = found + jnp.cumsum(inside) - inside
        kept = (~inside & (before < wanted)).astype(jnp.int32)
        level_counts = count_rows_by_component(
            rows, jnp.broadcast_to(z, rows.shape), kept, added.shape
        )
        of_class = of_class.at[z].add(kept)
        return step + 1, found + jnp.sum(inside), added + level_counts, of_class

    start = (0, jnp.zeros((), jnp.int32), jnp.zeros_like(counts), jnp.zeros_like(class_counts))
    _, _, added, of_class = lax.while_loop(unfinished, simulate, start)
    atoms, num_atoms = data.atoms, data.atoms.variable.size
    of_atom = jax.ops.segment_sum(added, atoms.of_row, num_segments=num_atoms)
    return _given_augmented(
        model, key_parameters, state, data, counts, class_counts, of_atom, of_class
    )


def update_order(
    model: _LatentClassModel,
    key: Key[Array, ""],
    state: LatentClassState,
    log_mass: Float[Array, " K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, " K"]]:
    """Exchange classes between weights, then classes with their weights between positions.

    Returns
    -------
    state, log_mass, class_counts
        The arguments in the new order.

    Notes
    -----
    Under truncation "classes" the sticks are the observed weights, and they are what moves.
    """
    key_swap, key_reorder = jax.random.split(key)
    by_class = model.truncation == "classes"
    log_weight = state.log_pi + log_mass if by_class else state.log_pi
    log_lambda = state.log_lambda
    if model.swap:
        seen = jnp.zeros_like(log_mass) if by_class else log_mass
        order = swap_classes(key_swap, log_weight, seen, class_counts)
        log_lambda, log_mass = log_lambda[:, order], log_mass[order]
        class_counts = class_counts[order]
    if model.reorder:
        order = reorder_classes(key_reorder, log_weight, state.alpha)
        log_lambda, log_mass = log_lambda[:, order], log_mass[order]
        class_counts, log_weight = class_counts[order], log_weight[order]
    log_pi = log_weight - log_mass if by_class else log_weight
    log_pi = log_pi - jax.nn.logsumexp(log_pi)
    state = LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=state.alpha)
    return state, log_mass, class_counts


def log_cell_probability(
    draw: dict[str, Array], cells: Int[Array, "C J"], num_levels: tuple[int, ...]
) -> Float[Array, " C"]:
    """log p_c of feasible cells for a new record, given one kept draw: closed form.

    Parameters
    ----------
    draw
        "log_pi" (K,), "log_lambda" (R, K) and "log_feasible" of one sweep.
    cells
        0-based level codes.
    num_levels
        Levels of each variable, static.
    """
    rows = cells + first_rows(num_levels)
    log_weight = draw["log_pi"] + sum(draw["log_lambda"][row] for row in rows.T)
    return jax.nn.logsumexp(log_weight, axis=1) - draw["log_feasible"]


def simulate_records(
    key: Key[Array, ""],
    draw: dict[str, Array],
    num_records: int,
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Int[Array, "J n"]:
    """Level codes of new feasible records given one kept draw, without rejection.

    Parameters
    ----------
    feasible
        Disjoint boxes of the feasible cells; None where every cell is.

    Notes
    -----
    The class is drawn by its feasible mass, then the box, then levels within the box.
    """
    key_z, key_box, key_levels = jax.random.split(key, 3)
    log_pi, log_lambda = draw["log_pi"], draw["log_lambda"]
    if feasible is None:
        feasible = jnp.ones((1, log_lambda.shape[0]), bool)
    log_box = jnp.sum(jnp.log(_masses_of_sets(log_lambda, feasible, num_levels)), axis=0)
    log_class = log_pi + jax.nn.logsumexp(log_box, axis=0)
    z, _ = draw_rows(key_z, jnp.broadcast_to(log_class[:, None], (log_pi.size, num_records)))
    box, _ = draw_rows(key_box, log_box[:, z])
    rows = draw_levels_in_box(key_levels, log_lambda, feasible, z, box, num_levels)
    return rows - first_rows(num_levels)[:, None]


def _masses_of_sets(log_lambda, sets, num_levels):
    """Probability of each box's sets of levels, (J, B, K), of boxes known only when it runs."""
    level = jnp.exp(log_lambda)
    return jnp.stack([
        jnp.matmul(
            sets[:, start : start + size].astype(level.dtype), level[start : start + size],
            precision=lax.Precision.HIGHEST,
        )
        for start, size in zip(first_rows(num_levels), num_levels, strict=True)
    ])  # fmt: skip


def complete_records(
    key: Key[Array, ""], draw: dict[str, Array], data: LatentClassData
) -> Int[Array, "J n"]:
    """Level codes of the sample, its missing values drawn given one kept draw."""
    state = LatentClassState(draw["log_pi"], draw["log_lambda"], draw["alpha"])
    _, rows, _ = update_classes(key, state, data)
    return rows - first_rows(data.num_levels)[:, None]


def level_probabilities(
    draw: dict[str, Array],
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Float[Array, " R"]:
    """P(x_j = l) of a feasible record, for every level of every variable, given one kept draw."""
    log_pi, log_lambda = draw["log_pi"], draw["log_lambda"]
    if feasible is None:
        feasible = jnp.ones((1, log_lambda.shape[0]), bool)
    masses = _masses_of_sets(log_lambda, feasible, num_levels)
    probability = []
    for j, (start, size) in enumerate(zip(first_rows(num_levels), num_levels, strict=True)):
        others = jnp.prod(jnp.delete(masses, j, axis=0), axis=0)
        sets = feasible[:, start : start + size].T.astype(others.dtype)
        of_level = jnp.matmul(sets, others, precision=lax.Precision.HIGHEST)
        weight = jnp.exp(log_pi + log_lambda[start : start + size]) * of_level
        probability.append(jnp.sum(weight, axis=1) / jnp.sum(weight))
    return jnp.concatenate(probability)
