"""Parameters of classes of households and members, as weights for drawing households."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.categorical import cumulative_sum


class Variables(eqx.Module):
    """Variables and their levels, as rows of one array."""

    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Number of levels of each variable."""
    read: tuple[int, ...] = eqx.field(static=True)
    """The variables that rules use."""

    @property
    def first(self) -> tuple[int, ...]:
        """Row of the first level of each variable that rules use."""
        rows = first_rows(self.num_levels)
        return tuple(int(rows[j]) for j in self.read)

    @property
    def size_rows(self) -> np.ndarray:
        """Rows of the last variable, which is the size for household variables."""
        return first_rows(self.num_levels)[-1] + np.arange(self.num_levels[-1])

    def rows(self, variable: int) -> slice:
        """Rows of the levels of one variable."""
        first = first_rows(self.num_levels)[variable]
        return slice(first, first + self.num_levels[variable])

    def block(self, levels: Float[Array, "R ..."], variable: int) -> Float[Array, "L ..."]:
        """Rows of one variable in an array of all levels."""
        return levels[self.rows(variable)]


def joint_codes(
    codes: Int[Array, "J ..."], num_levels: tuple[int, ...], variables: tuple[int, ...]
) -> Int[Array, "..."]:
    """Code of the joint level of some variables; the last one varies fastest."""
    joint = jnp.zeros(codes.shape[1:], jnp.int32)
    for j in variables:
        joint = joint * num_levels[j] + codes[j]
    return joint


def times_levels(
    start: Float[Array, "1 ..."],
    levels: Float[Array, "R ..."],
    num_levels: tuple[int, ...],
    variables: tuple[int, ...],
) -> Float[Array, "joint ..."]:
    """Multiply by the level probabilities of some variables: one row for each joint level."""
    first = first_rows(num_levels)
    for j in variables:
        block = levels[first[j] : first[j] + num_levels[j]]
        start = (start[:, None] * block).reshape(-1, *start.shape[1:])
    return start


class Head(NamedTuple):
    """Kind of members of whom every household has exactly one, a head."""

    variable: int
    """Member variable that identifies heads."""
    levels: tuple[bool, ...]
    """Whether each of its levels means head."""


class Tables(NamedTuple):
    """Cumulative weights from which households of any size are drawn."""

    log_household: Float[Array, " F"]
    """Log weights of the household classes."""
    log_kind: Float[Array, "T F"]
    """Log probability of the kinds of members (other, head); of one kind if there are no heads."""
    nested_weight: Float[Array, "T F S"]
    """Weights of the member classes, for other members and for heads."""
    nested: Float[Array, "TF S"]
    """Cumulative weights of the member classes, by kind and household class."""
    household: tuple[Float[Array, "F L"], ...]
    """Cumulative weights of the levels of each household variable that rules use."""
    member: tuple[Float[Array, "C L"], ...]
    """Cumulative weights of each member variable, by (kind, household class, member class)."""


@jax.named_scope("tables_of")
def tables_of(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R G S"],
    household: Variables,
    member: Variables,
    head: "Head | None",
) -> Tables:
    """Make the tables of weights from which households are drawn.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities; G is F, or 1 if all household classes
        share the member classes.
    household, member
        Numbers of levels of household and member variables, and which of them rules read.
    head
        Kind of members of whom every household has exactly one, if there is one.
    """
    num_classes, num_nested = log_omega.shape
    log_phi = jnp.broadcast_to(log_phi, (len(log_phi), num_classes, num_nested))

    def weights(log_weight):
        largest = jnp.max(log_weight, axis=-1, keepdims=True)
        return jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0))

    def cumulative(log_weight):
        return cumulative_sum(weights(log_weight))

    kinds = 1 if head is None else 2
    if head is None:
        log_kind = jnp.zeros((1, num_classes, num_nested), log_pi.dtype)
    else:
        of_variable = member.block(log_phi, head.variable)
        is_head = np.array(head.levels)
        # Not computed as 1 - P(head), which loses digits.
        log_kind = jnp.stack(
            [jax.nn.logsumexp(of_variable[x], axis=0) for x in (~is_head, is_head)]
        )
    log_nested = log_omega + log_kind

    def levels_of(variable):
        table = jnp.moveaxis(member.block(log_phi, variable), 0, -1)
        if head is not None and variable == head.variable:
            table = jnp.stack([jnp.where(x, table, -jnp.inf) for x in (~is_head, is_head)])
        else:
            table = jnp.broadcast_to(table, (kinds, *table.shape))
        return cumulative(table.reshape(-1, table.shape[-1]))

    return Tables(
        log_household=log_pi,
        log_kind=jax.nn.logsumexp(log_nested, axis=2),
        nested_weight=weights(log_nested),
        nested=cumulative(log_nested.reshape(-1, num_nested)),
        household=tuple(cumulative(household.block(log_lambda, k).T) for k in household.read),
        member=tuple(levels_of(j) for j in member.read),
    )


def log_class_weight(
    tables: Tables, log_size: Float[Array, " F"], size: int, heads: int | None
) -> Float[Array, " F"]:
    """Log weights of the household classes for a size, and for a number of heads.

    Parameters
    ----------
    tables
        Weights.
    log_size
        Log probability of the size, by class.
    size
        Members.
    heads
        Number of heads among the members; None: any number.
    """
    weight = tables.log_household + log_size
    if heads is None:
        return weight
    if heads > size:
        return jnp.full_like(weight, -jnp.inf)
    ways = math.log(math.comb(size, heads))
    log_other, log_head = tables.log_kind
    # 0 times minus infinity counts as 0.
    of_others = log_other * (size - heads) if size > heads else 0.0
    return weight + ways + of_others + (log_head * heads if heads else 0.0)


def log_class_weights(
    tables: Tables, log_size: Float[Array, "H F"], sizes: tuple[int, ...], has_head: bool
) -> Float[Array, "H F"]:
    """Log weights of the household classes for every size, with exactly one head or any number."""
    heads = 1 if has_head else None
    return jnp.stack(
        [log_class_weight(tables, log_size[i], size, heads) for i, size in enumerate(sizes)]
    )
