"""New records of mixed membership models: simulation, and probabilities of cells."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.cell_probability import (
    CellEstimate,
    log_cell_probability_draws,
    log_cell_probability_exact,
)
from bnp_models.kernels.mixed_membership.tables import simulate_labels, simulate_levels
from bnp_models.kernels.numerics.counting import first_rows, sum_by_group, variable_of_rows
from bnp_models.kernels.numerics.set_partitions import log_block_weights_gamma
from bnp_models.kernels.variates.categorical import draw_rows, search_cumulative
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.rng import Keys, uniform, words
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData
from bnp_models.models.options import check_choice

# Number of records that are simulated at once.
SIMULATION_BATCH = 8192

# Largest product of levels and feasible boxes for which margins are evaluated.
_MOST_MARGINS = 20_000


def new_concentrations(
    model: MembershipOptions,
    key: Key[Array, ""],
    alpha: Float[Array, "*n"],
    rate: Float[Array, ""],
    size: int,
) -> Float[Array, " size"]:
    """Concentrations of new records: the shared one, or new draws from their prior Ga(a, rate)."""
    if model.shared:
        return jnp.full(size, alpha)
    return gamma_variate(key, jnp.full(size, model.a, rate.dtype), rate)


def simulate_batch(
    model: MembershipOptions,
    key: Key[Array, ""],
    alpha: Float[Array, "*n"],
    rate: Float[Array, ""],
    g0: Float[Array, " K"],
    theta: Float[Array, "J L K"],
    size: int,
) -> tuple[Float[Array, " b"], Int[Array, "J b"], Int[Array, "J b"], Int[Array, "J b"]]:
    """Draw concentrations, labels, seating and level codes of b = `size` new records."""
    key_alpha, key_z, key_x = Keys(key, 3)
    alpha = new_concentrations(model, key_alpha, alpha, rate, size)
    z, table = simulate_labels(key_z, alpha, g0, theta.shape[0])
    return alpha, z, table, simulate_levels(key_x, z, theta)


@jax.named_scope("simulate_records")
def simulate_records(
    model: MembershipOptions,
    key: Key[Array, ""],
    draw: dict[str, Array],
    num_records: int,
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Int[Array, "J n"]:
    """Draw the level codes of new records given one kept draw, through the urn.

    Parameters
    ----------
    draw
        "g0" (K,), "theta" (R, K), "alpha" and "alpha_rate" of one sweep; also "mean_weight" (K,) if
        the draw is one of `weight_draws`.
    num_records
        Records n.
    num_levels
        Levels of each variable, static.
    feasible
        Sets of levels of the feasible boxes; infeasible records are drawn again. None: all cells.
    """
    theta = pad_levels(draw["theta"], num_levels)
    parameters = draw["alpha"], draw["alpha_rate"], draw["g0"], theta

    def simulate(key, size):
        if "mean_weight" in draw:
            return _simulate_weighted(model, key, draw, theta, size)
        return simulate_batch(model, key, *parameters, size)[-1]

    if feasible is None:
        return simulate(key, num_records)
    first = first_rows(num_levels)[:, None]

    def add_batch(carry):
        step, num_kept, codes = carry
        key_batch = jax.random.fold_in(key, step)
        drawn = simulate(key_batch, SIMULATION_BATCH)
        inside = in_boxes(first + drawn, feasible)
        place = jnp.where(inside, num_kept + jnp.cumsum(inside) - 1, num_records)
        return step + 1, num_kept + jnp.sum(inside), codes.at[:, place].set(drawn, mode="drop")

    start = jnp.int32(0), jnp.int32(0), jnp.zeros((len(num_levels), num_records), jnp.int32)
    return lax.while_loop(lambda carry: carry[1] < num_records, add_batch, start)[2]


def _simulate_weighted(
    model: MembershipOptions,
    key: Key[Array, ""],
    draw: dict[str, Array],
    theta: Float[Array, "J L K"],
    size: int,
) -> Int[Array, "J b"]:
    """Draw level codes of b = `size` records from a draw of `weight_draws`.

    The item of the weight class may come first, because the urn is exchangeable. Its component is
    drawn with the weights; the other items are then drawn as usual.
    """
    key_alpha, key_z, key_first, key_x = Keys(key, 4)
    alpha = new_concentrations(model, key_alpha, draw["alpha"], draw["alpha_rate"], size)
    z, table = simulate_labels(key_z, alpha, draw["g0"], theta.shape[0] + 1)
    u = uniform(words(key_first, (size,)), theta.dtype.type)
    cumulative = jnp.cumsum(draw["g0"] * draw["mean_weight"])[None]
    first, _ = search_cumulative(cumulative, jnp.zeros(size, jnp.int32), u)
    return simulate_levels(key_x, jnp.where(table == 0, first, z)[1:], theta)


@jax.named_scope("log_cell_probability")
def log_cell_probability(
    model: MembershipOptions,
    key: Key[Array, ""] | None,
    draw: dict[str, Array],
    cells: Int[Array, "C J"],
    num_levels: tuple[int, ...],
    *,
    method: str = "exact",
    num_draws: int = 4096,
) -> Float[Array, " C"] | CellEstimate:
    """log p_c of cells for a new record, given one kept draw.

    Parameters
    ----------
    model
        Model that gives the prior of a new record's alpha.
    key
        Used once, and only if the method is not exact.
    draw
        "g0" (K,), "theta" (R, K), "alpha", "alpha_rate" and "log_feasible" of one sweep; also
        "mean_weight" (K,) if the draw is one of `weight_draws`.
    cells
        0-based level codes. -1 stands for any value if there are no structural zeros, and for an
        absent item in the not-applicable form.
    num_levels
        Levels of each variable, static.
    method
        "exact" is the subset recursion (for up to `MAX_VARIABLES` variables, see
        `kernels.mixed_membership.cell_probability`) and returns logarithms. "draws" uses draws of
        record weights that all cells share, and returns a `CellEstimate`.
    num_draws
        Number of draws, an even number.

    Notes
    -----
    The alpha of a new record is the shared one, or a new draw from its prior Ga(a, b); it is not an
    alpha of a sample record. This is eq. (10) of Battiston & Rimella (2024) without its Monte Carlo
    error. All cells are assumed to be feasible: their probabilities are divided by P(feasible).
    """
    check_choice(("exact", "draws"), method=method)
    theta = pad_levels(draw["theta"], num_levels)
    log_feasible = draw["log_feasible"]
    # A further level, of probability one, stands for any value.
    cells = jnp.where(cells < 0, theta.shape[1], cells)
    theta = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], axis=1)
    theta, cells = _with_weights(draw, theta, cells)
    if method == "exact":
        return _log_probability_exact(model, draw, theta, cells) - log_feasible
    if key is None:
        raise ValueError(f'method "{method}" needs a key')
    key_alpha, key_cells = Keys(key)
    alpha = new_concentrations(model, key_alpha, draw["alpha"], draw["alpha_rate"], num_draws)
    estimate = log_cell_probability_draws(key_cells, theta, draw["g0"], alpha, cells, num_draws)
    return estimate._replace(
        log_p=estimate.log_p - log_feasible, log_p_halves=estimate.log_p_halves - log_feasible
    )


def _log_probability_exact(
    model: MembershipOptions,
    draw: dict[str, Array],
    theta: Float[Array, "J L K"],
    cells: Int[Array, "C J"],
) -> Float[Array, " C"]:
    """Log probabilities of cells before truncation, exact."""
    exact = partial(log_cell_probability_exact, theta, draw["g0"], cells)
    if model.shared:
        return exact(alpha=draw["alpha"])
    log_weights = log_block_weights_gamma(model.a, draw["alpha_rate"], cells.shape[1])
    return exact(log_weights=log_weights)


@jax.named_scope("complete_records")
def complete_records(
    model: MembershipOptions, key: Key[Array, ""], draw: dict[str, Array], data: HDPData
) -> Int[Array, "J n"]:
    """Level codes of the padded sample, with missing values drawn given one kept draw.

    There are no structural zeros.

    Notes
    -----
    A record's missing values are drawn one after the other, each given the values that are observed
    or already drawn; the rest are summed out. The draws are exact if cell probabilities are exact.
    """
    num_levels = data.num_levels
    method = "exact" if len(num_levels) <= model.max_exact_variables else "draws"
    missing = data.rows == sum(num_levels)

    def draw_variable(j, key, codes):
        key_cells, key_level = Keys(key)
        size, number = num_levels[j], codes.shape[1]
        cells = jnp.broadcast_to(codes[:, None], (len(codes), size, number))
        cells = cells.at[j].set(jnp.arange(size, dtype=codes.dtype)[:, None])
        found = log_cell_probability(
            model, key_cells, draw, cells.reshape(len(codes), -1).T, num_levels, method=method
        )
        log_p = found if method == "exact" else found.log_p
        level, _ = draw_rows(key_level, log_p.reshape(size, number))
        return codes.at[j].set(jnp.where(missing[j], level, codes[j]))

    codes = jnp.where(missing, -1, data.rows - first_rows(num_levels)[:, None])
    for j, of_variable in enumerate(Keys(key, len(num_levels))):
        codes = lax.cond(
            jnp.any(missing[j]), partial(draw_variable, j), lambda _, codes: codes, of_variable,
            codes,
        )  # fmt: skip
    return codes


@jax.named_scope("level_probabilities")
def level_probabilities(
    model: MembershipOptions,
    draw: dict[str, Array],
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Float[Array, " R"] | None:
    """P(x_j = l) of a feasible record given one kept draw, for every level of every variable.

    Parameters
    ----------
    model
        Model that gives the prior of a new record's alpha.
    draw, num_levels
        As for `log_cell_probability`.
    feasible
        Sets of levels of the feasible boxes, which are disjoint. None: all cells.

    Returns
    -------
    probability
        None if there are too many variables for quick exact cell probabilities, or too many boxes.
    """
    weighted = "mean_weight" in draw
    if feasible is None and not weighted:
        return draw["theta"][: sum(num_levels)] @ draw["g0"]
    if feasible is None:
        # Each cell fixes two items: one variable, and the weight class.
        pair, rows = _with_weights(draw, draw["theta"][None], jnp.arange(sum(num_levels))[:, None])
        return jnp.exp(_log_probability_exact(model, draw, pair, rows))
    num_boxes, num_rows = feasible.shape
    if len(num_levels) + weighted > model.max_exact_variables or feasible.size > _MOST_MARGINS:
        return None
    # A box in which one variable is fixed at a level is a cell whose other levels are the box's
    # sets.
    theta = pad_levels(draw["theta"], num_levels)
    sets = pad_levels(feasible.T.astype(theta.dtype), num_levels)
    masses = jnp.einsum("jlb,jlk->jbk", sets, theta, precision=lax.Precision.HIGHEST)
    levels = jnp.concatenate([theta, masses], axis=1)
    variable, first = variable_of_rows(num_levels), first_rows(num_levels)
    box = np.repeat(theta.shape[1] + np.arange(num_boxes), num_rows)
    cells = np.repeat(box[:, None], len(num_levels), axis=1)
    row = np.tile(np.arange(num_rows), num_boxes)
    cells[np.arange(cells.shape[0]), variable[row]] = row - first[variable[row]]
    levels, of_boxes = _with_weights(draw, levels, jnp.asarray(cells))
    log_p = _log_probability_exact(model, draw, levels, of_boxes)
    mass = jnp.sum(jnp.where(feasible, jnp.exp(log_p).reshape(feasible.shape), 0), axis=0)
    return mass / sum_by_group(mass, jnp.asarray(variable), len(num_levels))[variable]


def _with_weights(
    draw: dict[str, Array], theta: Float[Array, "J L K"], cells: Int[Array, "C J"]
) -> tuple[Float[Array, "I L K"], Int[Array, "C I"]]:
    """Levels and cells, with the item of the weight class if the draw is one of `weight_draws`.

    The probability of a cell is linear in the factor of one item. For the item of the weight class,
    the mean weight given the component replaces the probability of a level.
    """
    if "mean_weight" not in draw:
        return theta, cells
    of_class = jnp.zeros_like(theta[:1]).at[0, 0].set(draw["mean_weight"])
    return jnp.concatenate([theta, of_class]), jnp.pad(cells, ((0, 0), (0, 1)))


def in_boxes(rows: Int[Array, "J n"], boxes: Bool[Array, "B R"]) -> Bool[Array, " n"]:
    """Whether records, given by the rows of their levels, are in one of the boxes."""
    return jnp.any(jnp.all(boxes[:, rows], axis=1), axis=0)


def pad_levels(theta: Float[Array, "R K"], num_levels: tuple[int, ...]) -> Float[Array, "J L K"]:
    """Arrange the rows of theta in one block per variable, padded with zeros to equal size."""
    first = first_rows(num_levels)
    level = np.arange(max(num_levels))
    exists = level < np.asarray(num_levels)[:, None]
    rows = np.where(exists, first[:, None] + level, 0)
    return jnp.where(exists[:, :, None], theta[rows], 0)
