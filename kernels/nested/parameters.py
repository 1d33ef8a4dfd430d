"""Parameters of classes of households and of their members, merged over what no rule reads."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.categorical import cumulative_sum


class Levels(eqx.Module):
    """Variables and their levels, as rows of one array."""

    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""
    read: tuple[int, ...] = eqx.field(static=True)
    """The variables that rules read."""

    @property
    def first(self) -> tuple[int, ...]:
        """Row of the first level of each variable that rules read."""
        rows = first_rows(self.num_levels)
        return tuple(int(rows[j]) for j in self.read)

    @property
    def size_rows(self) -> np.ndarray:
        """Rows of the last variable, which of household variables is the size."""
        return first_rows(self.num_levels)[-1] + np.arange(self.num_levels[-1])

    def block(self, levels: Float[Array, "R ..."], variable: int) -> Float[Array, "L ..."]:
        """The rows of one variable."""
        first = first_rows(self.num_levels)[variable]
        return levels[first : first + self.num_levels[variable]]


class Head(NamedTuple):
    """The members of whom every household has exactly one."""

    variable: int
    """The member variable that tells."""
    levels: tuple[bool, ...]
    """Of its levels, those of a head."""


class Augmented(NamedTuple):
    """Counts over the impossible households of a draw."""

    households: Int[Array, " F"]
    """By class."""
    household_levels: Int[Array, "Q F"]
    """By level of the household variables that rules read, and class."""
    members: Int[Array, "F S"]
    """Members by class."""
    member_levels: Int[Array, "R F S"]
    """Members by level of the variables that rules read, and class."""
    unread: Int[Array, "2 F S"]
    """Members of whom no more is known than that they are no head, or a head."""

    @classmethod
    def none(cls, shape: tuple[int, int], household: Levels, member: Levels) -> "Augmented":
        """No household: shape is (F, S)."""
        num_classes = shape[0]

        def zeros(*shape):
            return jnp.zeros(shape, jnp.int32)

        return cls(
            zeros(num_classes), zeros(sum(household.num_levels), num_classes), zeros(*shape),
            zeros(sum(member.num_levels), *shape), zeros(2, *shape),
        )  # fmt: skip


class Tables(NamedTuple):
    """Cumulative weights from which households of any size are drawn."""

    log_household: Float[Array, " F"]
    """Log weights of the household classes."""
    log_kind: Float[Array, "T F"]
    """Log probability that a member is no head, and that it is one; without a head, that it is."""
    nested_weight: Float[Array, "T F S"]
    """Weights of the member classes of those who are no head, and of heads."""
    nested: Float[Array, "TF S"]
    """The same, cumulative."""
    household: tuple[Float[Array, "F L"], ...]
    """Levels of each household variable that rules read."""
    member: tuple[Float[Array, "C L"], ...]
    """Levels of each member variable that rules read, by (kind, household class, member class)."""


def tables_of(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R F S"],
    household: Levels,
    member: Levels,
    head: "Head | None",
) -> Tables:
    """Tables of the parameters.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    household, member
        The variables.
    head
        Those of whom every household has exactly one, if there are such.
    """
    num_classes, num_nested = log_omega.shape

    def weights(log_weight):
        largest = jnp.max(log_weight, axis=-1, keepdims=True)
        return jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0))

    def cumulative(log_weight):
        return cumulative_sum(weights(log_weight))

    kinds = 1 if head is None else 2
    if head is None:
        log_kind = jnp.zeros((1, num_classes, num_nested), log_pi.dtype)
    else:
        own = member.block(log_phi, head.variable)
        is_head = np.array(head.levels)
        # Not 1 - P(head), which cancels.
        log_kind = jnp.stack([jax.nn.logsumexp(own[x], axis=0) for x in (~is_head, is_head)])
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
    """Log weight of the household classes for a size, and for so many heads among the members.

    Parameters
    ----------
    log_size
        Log probability of the size, by class.
    size
        Members.
    heads
        None where heads do not matter.
    """
    weight = tables.log_household + log_size
    if heads is None:
        return weight
    if heads > size:
        return jnp.full_like(weight, -jnp.inf)
    ways = math.log(math.comb(size, heads))
    others, own = tables.log_kind
    # 0 times minus infinity is nothing.
    more = others * (size - heads) if size > heads else 0.0
    return weight + ways + more + (own * heads if heads else 0.0)


def log_class_weights(
    tables: Tables, log_size: Float[Array, "H F"], sizes: tuple[int, ...], has_head: bool
) -> Float[Array, "H F"]:
    """`log_class_weight` of every size, with exactly one head or whatever heads there are."""
    return jnp.stack([
        log_class_weight(tables, log_size[i], size, 1 if has_head else None)
        for i, size in enumerate(sizes)
    ])  # fmt: skip
