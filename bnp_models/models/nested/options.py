"""Options of the nested model, as its conditionals read them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.sticks import truncated_sticks
from bnp_models.models.level_prior import LEVEL_PRIORS, Grouping, as_ordered
from bnp_models.models.model import FixedComponents, MakesHouseholds
from bnp_models.models.options import (
    check_choice,
    check_fixed,
    check_integer,
    check_positive,
    fixed_or,
)

BETAS = ("common", "class")

SIZES = ("random", "given")


def _as_pairs(given: Any) -> tuple:
    """Hashable form of a mapping, or of a sequence of names and pairs."""
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str):
        given = (given,)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


class NestedOptions(FixedComponents, MakesHouseholds):
    """Options of `bnp_models.NDPMPM`, which describes them."""

    components: int = eqx.field(static=True, default=40)
    member_components: int = eqx.field(static=True, default=15)
    a: float = 0.25
    b: float = 0.25
    a_beta: float = 0.25
    b_beta: float = 0.25
    beta: str | float = eqx.field(static=True, default="common")
    reorder: bool = eqx.field(static=True, default=True)
    relative: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    level_prior: str = eqx.field(static=True, default="learned")
    ordered: str | tuple[str, ...] = eqx.field(static=True, default="auto", converter=as_ordered)
    groups: Hierarchies = eqx.field(static=True, default=(), converter=as_hierarchies)
    impossible_weight: int = eqx.field(static=True, default=1)
    sizes: str = eqx.field(static=True, default="random")
    alpha: float | None = eqx.field(default=None, kw_only=True)
    level_shape: float | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_integer(2, components=self.components, member_components=self.member_components)
        check_integer(1, impossible_weight=self.impossible_weight)
        check_positive(
            a=self.a, b=self.b, a_beta=self.a_beta, b_beta=self.b_beta
        )  # fmt: skip
        check_fixed(alpha=self.alpha, level_shape=self.level_shape)
        if isinstance(self.beta, str):
            check_choice(BETAS, beta=self.beta)
        else:
            check_fixed(beta=self.fixed_beta)
        check_choice(SIZES, sizes=self.sizes)
        check_choice(LEVEL_PRIORS, level_prior=self.level_prior)
        Grouping.of(self).require_apart()

    @property
    def fixed_beta(self) -> float | None:
        """The concentration of the member classes, where it is fixed."""
        return None if isinstance(self.beta, str) else self.beta

    def draw_weights(
        self, key: Key[Array, ""], counts: Int[Array, "*g k"], concentration: Float[Array, "*g"]
    ) -> tuple[Float[Array, "*g k"], Float[Array, "*g"]]:
        """Draw log weights given the members of each class, and what concentrations depend on.

        Of the household classes, and of the member classes of all of these. A subclass may override
        it, and must then turn off `reorder`, whose moves know these sticks.
        """
        return truncated_sticks(key, counts, concentration)

    def draw_concentrations(
        self,
        key: Key[Array, ""],
        alpha: Float[Array, ""],
        beta: Float[Array, " *F"],
        sum_log_1mv: Float[Array, ""],
        sums_log_1mv: Float[Array, " F"],
    ) -> tuple[Float[Array, ""], Float[Array, " *F"]]:
        """Draw alpha and beta given the sticks, where they are not fixed; may be overridden.

        Parameters
        ----------
        alpha, beta
            The concentrations as they are.
        sum_log_1mv, sums_log_1mv
            Sums of log(1 - V_k) over the sticks of the household classes, and over those of the
            member classes of each.
        """
        sticks = self.member_components - 1
        if self.beta != "class":
            sticks, sums_log_1mv = sticks * self.components, jnp.sum(sums_log_1mv)
        sums_by_beta = jnp.atleast_1d(sums_log_1mv)
        drawn = gamma_variate(
            key,
            jnp.full(1 + sums_by_beta.size, self.a_beta + sticks, alpha.dtype)
            .at[0].set(self.a + self.components - 1),
            jnp.append(self.b - sum_log_1mv, self.b_beta - sums_by_beta),
        )  # fmt: skip
        beta = fixed_or(self.fixed_beta, drawn[1:].reshape(beta.shape))
        return fixed_or(self.alpha, drawn[0]), beta
