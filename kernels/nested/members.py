"""Members of households in classes within the household's class: probabilities and draws.

Household i has class g with weight pi_g, member j of it class m with weight omega_gm, and values
with probabilities lambda_g (household) and phi_gm (member), independently given the classes (Hu,
Reiter & Wang 2018, doi:10.1080/01621459.2017.1350179 for synthesis; the nested Dirichlet process is
Rodriguez, Dunson & Gelfand 2008, doi:10.1198/016214508000000553).

Members are stored one after the other, household by household, in blocks of households with the
same number of members. `blocks` is ((members, households), ...) and static, so that sums over
members are reshapes. If there are several parts, so that several devices can share the households,
each part has its share of every block, with padding. The parts follow each other, and `blocks` are
those of one part.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.nested.parameters import joint_codes, times_levels
from bnp_models.kernels.variates.rng import uniform, words

Blocks = tuple[tuple[int, int], ...]
"""Number of members and number of households of each block."""

Plan = tuple[tuple[int, ...], ...]
"""Variables of each table of joint levels."""

# Largest number of rows of a table of several variables, and of its variables, so that products of
# probabilities do not underflow.
_MERGED_ROWS = 1024
_MERGED_VARIABLES = 4

# Tables are scaled so that the product of their largest entries is 2 to this power. Products can
# then be as small as 1e-73 of it.
_HEADROOM = 120

# The number of household classes is padded to a multiple of this, the length of a CPU's vectors.
_LANES = 8


def merge_plan(num_levels: tuple[int, ...]) -> Plan:
    """Choose the variables that share a table of joint levels; fewer tables need fewer gathers."""
    tables: list[list[int]] = []
    for j in sorted(range(len(num_levels)), key=lambda j: -num_levels[j]):
        for table in tables:
            size = int(np.prod([num_levels[k] for k in table])) * num_levels[j]
            if len(table) < _MERGED_VARIABLES and size <= _MERGED_ROWS:
                table.append(j)
                break
        else:
            tables.append([j])
    return tuple(map(tuple, tables))


def merged_rows(
    codes: Int[Array, "p N"], num_levels: tuple[int, ...], plan: Plan
) -> Int[Array, "T N"]:
    """Row of each member in each table of `plan`."""
    return jnp.stack([joint_codes(codes, num_levels, variables) for variables in plan])


@jax.named_scope("merged_tables")
def merged_tables(
    phi: Float[Array, "R G S"], num_levels: tuple[int, ...], plan: Plan
) -> list[Float[Array, "_ G S"]]:
    """Joint level probabilities of the variables of each table, by household and member class.

    G is F, or 1 if all household classes share the member classes.
    """
    one = jnp.ones((1, *phi.shape[1:]), phi.dtype)
    return [times_levels(one, phi, num_levels, variables) for variables in plan]


@jax.named_scope("log_member_probability")
def log_member_probability(
    tables: list[Float[Array, "_ G S"]], omega: Float[Array, "F S"], rows: Int[Array, "T N"]
) -> Float[Array, "N F"]:
    """Log probability of each member's values in each household class, summed over member classes.

    Parameters
    ----------
    tables
        Joint level probabilities, of `merged_tables`.
    omega
        Weights of the member classes in each household class.
    rows
        Row of each member in each table.

    Notes
    -----
    Probabilities underflow below 1e-73 of the product of the largest entries of the member's rows.
    A step adds one member class for all members and household classes. The number of household
    classes is padded to whole vectors.
    """
    num_classes, num_nested = omega.shape
    num_members = rows.shape[1]
    if tables[0].shape[1] < num_classes:
        return _log_shared_probability(tables, omega, rows)
    width = -(-num_classes // _LANES) * _LANES
    scaled, log_scale = [], jnp.zeros(num_members, omega.dtype)
    for table, row in zip(_weighted(tables, omega), rows, strict=True):
        table, log_largest = _scale(table, (1, 2), len(tables))
        log_scale = log_scale + log_largest[row]
        by_nested = jnp.moveaxis(table, 2, 0)
        scaled.append(jnp.pad(by_nested, ((0, 0), (0, 0), (0, width - num_classes))))

    def add(m, total):
        product = jnp.ones((), omega.dtype)
        for table, row in zip(scaled, rows, strict=True):
            product = product * table[m].at[row].get(mode="promise_in_bounds")
        return total + product

    # This loop is not unrolled: gathers fused with a sum over classes are much slower on a CPU.
    total = lax.fori_loop(0, num_nested, add, jnp.zeros((num_members, width), omega.dtype))
    total = jnp.maximum(total[:, :num_classes], jnp.finfo(omega.dtype).tiny)
    return jnp.log(total) + log_scale[:, None]


def _log_shared_probability(tables, omega, rows):
    """Result (N, F) of `log_member_probability` if household classes share the member classes."""
    weight, log_scale = member_class_weights(tables, rows)
    total = jnp.matmul(weight, omega.T, precision=lax.Precision.HIGHEST)
    return jnp.log(jnp.maximum(total, jnp.finfo(omega.dtype).tiny)) + log_scale[:, None]


def member_class_weights(
    tables: list[Float[Array, "_ 1 S"]], rows: Int[Array, "T N"]
) -> tuple[Float[Array, "N S"], Float[Array, " N"]]:
    """Probability of each member's values in each shared member class, and the log of its scale.

    Arguments as for `log_member_probability`.
    """
    weight, log_scale = jnp.ones((), tables[0].dtype), jnp.zeros((), tables[0].dtype)
    for table, row in zip(tables, rows, strict=True):
        scaled, log_largest = _scale(table[:, 0], 1, len(tables))
        weight = weight * scaled.at[row].get(mode="promise_in_bounds")
        log_scale = log_scale + log_largest[row]
    return weight, log_scale


def _weighted(tables, omega):
    """The tables, with the weights of the member classes multiplied into the first one."""
    return [tables[0] * omega, *tables[1:]]


def _scale(table, axes, num_tables):
    """Scale a table so that its largest entries along axes agree; return also log divisors."""
    dtype = table.dtype.type
    power = _HEADROOM // num_tables
    largest = jnp.maximum(jnp.max(table, axis=axes, keepdims=True), jnp.finfo(dtype).tiny)
    log_divisor = jnp.log(largest).reshape(-1) - dtype(power * math.log(2))
    return table / largest * dtype(2.0**power), log_divisor


class Places(NamedTuple):
    """Positions of units in parts, and the unit at each position (the first one for padding)."""

    place: np.ndarray
    """(units,) position of each unit; units are in the order of blocks."""
    unit: np.ndarray
    """(positions,) unit at each position."""

    @property
    def weight(self) -> np.ndarray:
        """(positions,) 1 for a unit, 0 for padding."""
        weight = np.zeros(len(self.unit), np.int32)
        weight[self.place] = 1
        return weight


def in_parts(blocks: Blocks, parts: int) -> tuple[Blocks, Places, Places]:
    """Divide the households of each block among parts of equal size.

    Returns
    -------
    blocks
        Blocks of one part, with padding.
    households, members
        Positions of households and of members; units are in the order of the given blocks.
    """
    of_part = tuple((members, -(-households // parts)) for members, households in blocks)
    parts_of_blocks, offsets = [], []
    first = 0
    for (_, households), (_, size) in zip(blocks, of_part, strict=True):
        parts_of_blocks.append(np.arange(households) // size)
        offsets.append(first + np.arange(households) % size)
        first += size
    part, offset = np.concatenate(parts_of_blocks), np.concatenate(offsets)
    number = np.repeat(*np.array(blocks).T)
    members_of_part = np.repeat(*np.array(of_part).T)
    first_member = np.cumsum(members_of_part) - members_of_part
    num_members = int(members_of_part.sum())
    start = part * num_members + first_member[offset]
    within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    return (
        of_part,
        _places(part * first + offset, parts * first),
        _places(np.repeat(start, number) + within, parts * num_members),
    )


def _places(place, size):
    """Make `Places` from the positions of units, of which there are `size`."""
    unit = np.zeros(size, int)
    unit[place] = np.arange(len(place))
    return Places(place, unit)


@jax.named_scope("sum_by_household")
def sum_by_household(
    log_p: Float[Array, "N F"], blocks: Blocks, parts: int = 1
) -> Float[Array, "n F"]:
    """Sum over the members of each household; 0 if there is none."""
    num_classes = log_p.shape[1]
    log_p = log_p.reshape(parts, -1, num_classes)
    sums, start = [], 0
    for members, households in blocks:
        of_block = log_p[:, start : start + members * households]
        sums.append(jnp.sum(of_block.reshape(parts, households, members, num_classes), axis=2))
        start += members * households
    return jnp.concatenate(sums, axis=1).reshape(-1, num_classes)


def repeat_by_member(x: Int[Array, " n"], blocks: Blocks, parts: int = 1) -> Int[Array, " N"]:
    """Repeat the value of each household for each of its members."""
    x = x.reshape(parts, -1)
    repeated, start = [], 0
    for members, households in blocks:
        repeated.append(jnp.repeat(x[:, start : start + households], members, axis=1))
        start += households
    return jnp.concatenate(repeated, axis=1).reshape(-1)


@jax.named_scope("draw_member_classes")
def draw_member_classes(
    key: Key[Array, ""],
    tables: list[Float[Array, "_ G S"]],
    omega: Float[Array, "F S"],
    rows: Int[Array, "T N"],
    g: Int[Array, " N"],
) -> Int[Array, " N"]:
    """Draw the class of each member within the class of its household.

    Parameters
    ----------
    key
        Used once.
    tables, omega, rows
        As for `log_member_probability`.
    g
        Class of the member's household.
    """
    num_classes, num_nested = omega.shape
    if tables[0].shape[1] < num_classes:
        weight = member_class_weights(tables, rows)[0] * omega.at[g].get(mode="promise_in_bounds")
    else:
        weight = jnp.ones((), omega.dtype)
        for table, row in zip(_weighted(tables, omega), rows, strict=True):
            scaled, _ = _scale(table, 2, len(tables))
            scaled = scaled.reshape(-1, num_nested)
            weight = weight * scaled.at[row * num_classes + g].get(mode="promise_in_bounds")
    cumulative = jnp.matmul(
        weight, jnp.triu(jnp.ones((num_nested, num_nested), weight.dtype)),
        precision=lax.Precision.HIGHEST,
    )  # fmt: skip
    u = uniform(words(key, g.shape), weight.dtype.type)
    passed = cumulative <= (u * cumulative[:, -1])[:, None]
    return jnp.minimum(jnp.sum(passed, axis=1), num_nested - 1)
