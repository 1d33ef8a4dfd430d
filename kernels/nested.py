"""Two layers of latent classes: households in classes, and their members in classes within those.

Household i has class g with weight pi_g, member j of it class m with weight omega_gm, and values
with probabilities lambda_g (household) and phi_gm (member), independently given the classes (Hu,
Reiter & Wang 2018, doi:10.1080/01621459.2017.1350179 for synthesis; the nested Dirichlet process is
Rodriguez, Dunson & Gelfand 2008, doi:10.1198/016214508000000553).

Members lie one after the other, household by household, households in blocks of one number of
members: `blocks` is ((members, households), ...), static, so that sums over them are reshapes.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.counting import first_rows
from bnp_models.kernels.rng import uniform, words

Blocks = tuple[tuple[int, int], ...]
Plan = tuple[tuple[int, ...], ...]

# A table of several variables has at most so many rows, and is of at most so many variables: then a
# product of its probabilities does not underflow.
_MERGED_ROWS = 1024
_MERGED_VARIABLES = 3

# Entries of the array members by classes that are in memory at once.
_ENTRIES_AT_ONCE = 2**18


def merge_plan(num_levels: tuple[int, ...]) -> Plan:
    """Variables that share a table of joint levels: the fewer tables, the fewer gathers."""
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
    rows = []
    for table in plan:
        row = jnp.zeros(codes.shape[1], jnp.int32)
        for j in table:
            row = row * num_levels[j] + codes[j]
        rows.append(row)
    return jnp.stack(rows)


def merged_tables(
    phi: Float[Array, "R F S"], num_levels: tuple[int, ...], plan: Plan
) -> list[Float[Array, "_ F S"]]:
    """Joint level probabilities of the variables of each table, by class."""
    first = first_rows(num_levels)
    tables = []
    for variables in plan:
        joint = jnp.ones((1, *phi.shape[1:]), phi.dtype)
        for j in variables:
            own = phi[first[j] : first[j] + num_levels[j]]
            joint = (joint[:, None] * own).reshape(-1, *phi.shape[1:])
        tables.append(joint)
    return tables


def log_member_probability(
    tables: list[Float[Array, "_ F S"]], omega: Float[Array, "F S"], rows: Int[Array, "T N"]
) -> Float[Array, "N F"]:
    """Log probability of each member's values in each household class, its own class summed out.

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
    Products are brought back to scale after every table: what underflows is 1e-38 of the best.
    """
    num_classes, num_nested = omega.shape
    num_members = rows.shape[1]
    flat, log_scale = [], jnp.zeros(num_members, omega.dtype)
    for t, table in enumerate(tables):
        table = table * omega if t == 0 else table
        scale = jnp.max(table, axis=(1, 2))
        log_scale = log_scale + jnp.log(scale)[rows[t]]
        # Member class by household class: a sum over the first is one of vectors.
        scaled = jnp.swapaxes(table / scale[:, None, None], 1, 2)
        flat.append(scaled.reshape(scaled.shape[0], -1))
    size = max(8, min(num_members, _ENTRIES_AT_ONCE // (num_classes * num_nested)))
    num_chunks = -(-num_members // size)
    padded = jnp.pad(rows, ((0, 0), (0, num_chunks * size - num_members)))
    chunks = jnp.swapaxes(padded.reshape(len(tables), num_chunks, size), 0, 1)
    tiny = jnp.finfo(omega.dtype).tiny

    def chunk(rows):
        product, log_factor = flat[0][rows[0]], jnp.zeros(size, omega.dtype)
        for t in range(1, len(flat)):
            if t > 1:
                largest = jnp.max(product, axis=1)
                product = product / largest[:, None]
                log_factor = log_factor + jnp.log(largest)
            product = product * flat[t][rows[t]]
        total = jnp.sum(product.reshape(size, num_nested, num_classes), axis=1)
        return jnp.log(jnp.maximum(total, tiny)) + log_factor[:, None]

    log_p = lax.map(chunk, chunks).reshape(-1, num_classes)[:num_members]
    return log_p + log_scale[:, None]


def sum_by_household(log_p: Float[Array, "N F"], blocks: Blocks) -> Float[Array, "n F"]:
    """Sums over the members of each household, 0 where there is none."""
    parts, start = [], 0
    for members, households in blocks:
        own = log_p[start : start + members * households]
        parts.append(jnp.sum(own.reshape(households, members, log_p.shape[1]), axis=1))
        start += members * households
    return jnp.concatenate(parts)


def repeat_by_member(x: Int[Array, " n"], blocks: Blocks) -> Int[Array, " N"]:
    """What belongs to a household, for each of its members."""
    parts, start = [], 0
    for members, households in blocks:
        parts.append(jnp.repeat(x[start : start + households], members))
        start += households
    return jnp.concatenate(parts)


def draw_member_classes(
    key: Key[Array, ""],
    tables: list[Float[Array, "_ F S"]],
    omega: Float[Array, "F S"],
    rows: Int[Array, "T N"],
    g: Int[Array, " N"],
) -> Int[Array, " N"]:
    """The class of each member within that of its household, g.

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
    weight = omega[g]
    for t, table in enumerate(tables):
        own = table / jnp.max(table, axis=2, keepdims=True)
        weight = weight / jnp.max(weight, axis=1, keepdims=True)
        weight = weight * own.reshape(-1, num_nested)[rows[t] * num_classes + g]
    cumulative = jnp.matmul(
        weight, jnp.triu(jnp.ones((num_nested, num_nested), weight.dtype)),
        precision=lax.Precision.HIGHEST,
    )  # fmt: skip
    u = uniform(words(key, g.shape), weight.dtype.type)
    passed = cumulative <= (u * cumulative[:, -1])[:, None]
    return jnp.minimum(jnp.sum(passed, axis=1), num_nested - 1)
