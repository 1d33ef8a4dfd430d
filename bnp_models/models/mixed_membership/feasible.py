"""P(feasible) of a mixed membership record before truncation, exact or estimated."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from bnp_models.data.schema import MicrodataError
from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.mixed_membership.urn_boxes import (
    UrnBoxes,
    block_sums,
    partition_totals,
    probability,
    weights_by_size,
)
from bnp_models.kernels.mixed_membership.urn_partitions import TooManyPartitions
from bnp_models.kernels.numerics.platforms import RECORDS, in_double, in_turn, map_draws
from bnp_models.kernels.numerics.set_partitions import log_block_weights, log_block_weights_gamma
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.mixed_membership.new_records import new_concentrations
from bnp_models.models.mixed_membership.options import FEASIBLE_DRAWS, MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPState, Zeros
from bnp_models.zeros.structural_zeros import StructuralZeros


def compile_zeros(
    model: MembershipOptions, conditions: StructuralZeros, num_levels: tuple[int, ...]
) -> Zeros:
    """Make the arrays of structural zeros.

    Parameters
    ----------
    num_levels
        Number of levels of each variable. If items may be absent, there is one more variable with
        one level.

    Raises
    ------
    MicrodataError
        If boxes are needed that have too many partitions to list.
    """
    # Levels that the conditions do not have (the level of absent items) are in every box.
    beyond = sum(num_levels) - conditions.feasible.sets.shape[1]

    def padded(table, fill):
        return np.pad(table, ((0, 0), (0, beyond)), constant_values=fill)

    sets = padded(conditions.feasible.sets, True)
    try:
        feasible = UrnBoxes.of_boxes(sets, num_levels)
    except TooManyPartitions:
        feasible = None
    impossible = None
    if model.augmentation != "simulation":
        try:
            if feasible is None:
                raise TooManyPartitions("the feasible boxes have too many partitions to list")
            impossible = UrnBoxes.of_boxes(padded(conditions.impossible.sets, True), num_levels)
        except TooManyPartitions as error:
            if model.augmentation != "auto":
                raise MicrodataError(
                    f'augmentation "{model.augmentation}": {error}; use "simulation"'
                ) from None
    return Zeros(
        feasible=feasible,
        impossible=impossible,
        parts=LevelParts.of_boxes(None, num_levels) if impossible is None else impossible.parts,
        boxes=jnp.asarray(sets),
        region=Region.of_boxes(
            [padded(group.feasible.sets, True) for group in conditions.groups], num_levels
        ),
        tilts=jnp.asarray(padded(conditions.tilts, 0), jnp.result_type(float)),
        num_levels=conditions.schema.num_levels,
    )


def feasible_totals(
    g0: Float[Array, " K"], theta: Float[Array, "R K"], data: HDPData
) -> Float[Array, " Q"] | None:
    """Partition totals of the feasible boxes; None if these are not listed."""
    if data.zeros is None or data.zeros.feasible is None:
        return None
    boxes = data.zeros.feasible
    return in_turn(lambda: partition_totals(block_sums(theta, g0, boxes), boxes))()


def of_urn(model: MembershipOptions, state: HDPState) -> Float[Array, ""]:
    """Parameter that all new records share: the shared alpha, or b of their prior."""
    return state.alpha if model.shared else state.rate


def urn_weights(
    model: MembershipOptions, concentration: Float[Array, ""], boxes: UrnBoxes
) -> Float[Array, " Q"]:
    """E[alpha^B / (alpha)_d] for a new record, for each size d and number of blocks B in boxes."""
    most = boxes.most_variables
    if model.shared:
        return weights_by_size(log_block_weights(concentration, most), boxes)
    return weights_by_size(log_block_weights_gamma(model.a, concentration, most), boxes)


def feasible_probability(
    model: MembershipOptions,
    concentration: Float[Array, ""],
    totals: Float[Array, " Q"] | None,
    boxes: UrnBoxes,
) -> Float[Array, ""]:
    """P(feasible) from `feasible_totals`, at a concentration of the kind that `of_urn` returns."""
    assert totals is not None
    return in_turn(lambda: probability(totals, urn_weights(model, concentration, boxes)))()


@jax.named_scope("log_feasible")
def log_feasible(
    model: MembershipOptions, key: Key[Array, ""], state: HDPState, data: HDPData
) -> Float[Array, ""]:
    """log P(feasible) of a record before truncation.

    It is exact if the feasible boxes could be listed. Otherwise it is the mean over draws of record
    weights; given these, variables are independent, so that the masses of groups are multiplied.
    """
    zeros = data.zeros
    assert zeros is not None
    if zeros.feasible is not None:
        return jnp.log(
            feasible_probability(model, of_urn(model, state), state.totals, zeros.feasible)
        )
    key_alpha, key_g = Keys(key)
    dtype = state.g0.dtype
    alpha = new_concentrations(model, key_alpha, state.alpha, state.rate, FEASIBLE_DRAWS)
    shape = alpha[:, None] * state.g0
    g = jnp.exp(log_dirichlet(key_g, jnp.maximum(shape, jnp.finfo(dtype).tiny)))
    levels = jnp.matmul(state.theta, g.T, precision=lax.Precision.HIGHEST)
    mass = region_mass(jnp.log(levels), zeros.region)
    return jnp.log(jnp.mean(mass))


def log_growth_given(
    model: MembershipOptions, state: HDPState, boxes: UrnBoxes
) -> Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]]:
    """Function of an old and a new concentration: the log ratio of P(feasible), new over old."""

    def ratio(totals, old, new):
        p_old, p_new = (feasible_probability(model, x, totals, boxes) for x in (old, new))
        return jnp.log(p_new / p_old)

    def log_growth(old, new):
        given = (state.totals, old, new)
        return in_double(ratio, *given) if many_records(state) else ratio(*given)

    return log_growth


def many_records(state: HDPState) -> bool:
    """Whether there are so many records that their log densities need double precision."""
    return state.z.shape[-1] >= RECORDS


def weight_draws(
    model: MembershipOptions,
    draws: dict[str, np.ndarray],
    weights: np.ndarray,
    num_levels: tuple[int, ...],
    feasible: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """Draws of sum_s weights[s] p(x, s) / Z, a distribution that `new_records` can evaluate.

    Parameters and result are those of `PredictsCells.weight_draws`.

    Notes
    -----
    The item of the weight class s has the same model as other items, z ~ g and s ~ theta_z. The sum
    therefore replaces its factor theta_k(s) by v_k = sum_s weights[s] theta_k(s). "mean_weight" is
    v divided by its mean under g_0, which equals Z if all cells are feasible. Otherwise
    "log_feasible" is log Z, computed from the boxes with that item included.
    """
    theta, rest = np.split(draws["theta"], [sum(num_levels)], axis=2)
    if np.ptp(weights) == 0:
        return {"theta": theta}
    weights = weights / weights.max()
    mean = np.einsum("s,cdsk->cdk", weights, rest[:, :, : len(weights)].astype(float))
    mean /= np.sum(draws["g0"] * mean, axis=2, keepdims=True)
    changed = {"theta": theta, "mean_weight": mean.astype(theta.dtype)}
    if feasible is None:
        return changed
    boxes = weighted_boxes(feasible, num_levels)
    concentration = draws["alpha" if model.shared else "alpha_rate"]
    arrays = draws["g0"], theta, changed["mean_weight"], concentration
    flat = [x.reshape(-1, *x.shape[2:]) for x in arrays]
    log_p = np.asarray(_log_weighted_feasible(model, boxes, *flat))
    return changed | {"log_feasible": log_p.reshape(concentration.shape)}


def weighted_boxes(feasible: np.ndarray, num_levels: tuple[int, ...]) -> UrnBoxes:
    """Feasible boxes (B, R) with one more variable of two levels; the boxes admit the first.

    Raises
    ------
    MicrodataError
        If there are too many partitions to list.
    """
    first = np.tile([True, False], (len(feasible), 1))
    try:
        return UrnBoxes.of_boxes(np.concatenate([feasible, first], axis=1), (*num_levels, 2))
    except TooManyPartitions:
        raise MicrodataError(
            "the conditions fix too many variables together for mixed membership with design "
            "weights: P(feasible) is not exact; use tnplcm"
        ) from None


@jax.jit
def _log_weighted_feasible(model, boxes, g0, theta, mean_weight, concentration):
    """log E[(g . mean_weight) P(feasible | g)], (D,), given each draw."""

    def one(draw):
        g0, theta, mean_weight, concentration = draw
        with_class = jnp.concatenate([theta, mean_weight[None], jnp.zeros_like(theta[:1])])
        totals = partition_totals(block_sums(with_class, g0, boxes), boxes)
        return jnp.log(feasible_probability(model, concentration, totals, boxes))

    return map_draws(one, (g0, theta, mean_weight, concentration))
