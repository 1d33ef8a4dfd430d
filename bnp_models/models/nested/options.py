"""Options of the nested model, which its conditionals use."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.households import Households
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.sticks import truncated_sticks
from bnp_models.models.level_prior import LevelPriorOptions
from bnp_models.models.model import FixedComponents, MakesHouseholds
from bnp_models.models.nested.state import NestedData, NestedInfo, NestedState
from bnp_models.models.options import fixed_or, option
from bnp_models.rules.rules import Rules

Beta: TypeAlias = Literal["common", "class"]

BETAS: tuple[str, ...] = get_args(Beta)

Sizes: TypeAlias = Literal["random", "given"]

SIZES: tuple[str, ...] = get_args(Sizes)

MemberClasses: TypeAlias = Literal["nested", "shared"]

MEMBER_CLASSES: tuple[str, ...] = get_args(MemberClasses)

NESTED_CLASSES, SHARED_CLASSES = 15, 40
"""Default numbers of member classes: of each household class, and of all together."""


def _as_relative(given: Any) -> tuple:
    """Hashable form of a mapping, or of a sequence of names, alone or with kinds and labels."""
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str):
        given = (given,)
    return tuple(one if isinstance(one, str) else _with_labels(*one) for one in given)


def _with_labels(name: str, kind: str | None = None, labels: Any = None) -> tuple:
    """A variable with its kind, and with labels if they are given; a text is one label."""
    if labels is None:
        return name, kind
    return name, kind, (labels,) if isinstance(labels, str) else tuple(labels)


class NestedOptions(
    LevelPriorOptions[Households, Rules, NestedData, NestedState, NestedInfo],
    FixedComponents[Households, Rules, NestedData, NestedState, NestedInfo],
    MakesHouseholds[Households, Rules, NestedData, NestedState, NestedInfo],
):
    """Options of `bnp_models.NDPMPM`, which its conditionals use."""

    components: int = option(
        40, "Household classes F at which the sticks are truncated.", least=2, command=True
    )
    member_components: int = option(
        None,
        f"Member classes S: those of each household class if they are nested ({NESTED_CLASSES} by "
        f"default), or those of all household classes if these share them ({SHARED_CLASSES}).",
        least=2, command=True, static=True,
    )  # fmt: skip
    a: float = option(0.25, "Shape and rate of alpha's prior.", positive=True)
    b: float = option(0.25, "Shape and rate of alpha's prior.", positive=True)
    a_beta: float = option(0.25, "Shape and rate of beta's prior.", positive=True)
    b_beta: float = option(0.25, "Shape and rate of beta's prior.", positive=True)
    beta: Beta | float = option(
        "common",
        """"common": one concentration for the member classes of all household classes; "class": one
        each; a positive number fixes it, for all household classes.""",
        choices=BETAS, positive=True,
    )  # fmt: skip
    reorder: bool = option(
        True, "Whether to make moves that exchange adjacent classes together with their weights."
    )
    relative: tuple = option(
        (),
        """Variables whose values are modelled relative to the value of the head, for which the head
        must be at household level: names, or names with a kind, "difference" for an ordered
        variable and "same" for another, and with the labels of the relationships for which this is
        done, by default all (`RelativeCoding`). The ages of couples and the races within households
        are then similar without a separate class for each age or race. `relative_to_heads` chooses
        variables and relationships from the sample.""",
        command=True, converter=_as_relative,
    )  # fmt: skip
    prior_possible: int = option(
        0,
        """Under rules: the prior density is multiplied by P(possible) to this power, less than the
        number of households. The prior is then what it would be after so many households had been
        drawn without rules and found possible, with nothing else known of them. There are fewer
        impossible households, so that a sweep takes less time and chains agree sooner, but
        relations of which only one is possible in a household, such as husbands and wives, become
        rarer.""",
        least=0, command=True,
    )  # fmt: skip
    sizes: Sizes = option(
        "random",
        """"random": a household's size is a variable of its class. "given": the design of the
        sample has fixed the sizes. The likelihood of a household is then the probability of its
        values given its size, divided by the probability that a household of its size is possible.
        The log-likelihood that chains keep then uses weights of the sizes that are drawn too. Only
        the prior keeps the probabilities of possible households away from zero, and a learned prior
        does so weakly: use level_prior "uniform" if few simulated households keep the rules.""",
        choices=SIZES, command=True,
    )  # fmt: skip
    member_classes: MemberClasses = option(
        "shared",
        """"nested": each household class has its own member classes, as in the paper. "shared": all
        household classes have the same member classes with different weights, so that each member
        class is estimated from the members of all households (Vermunt 2003,
        doi:10.1111/j.0081-1750.2003.t01-1-00131.x; the common atoms of Denti et al. 2023,
        doi:10.1080/01621459.2021.1933499). The weights are then Dirichlet, with shapes that are
        estimated from all household classes.""",
        choices=MEMBER_CLASSES, command=True, kw_only=True,
    )  # fmt: skip
    alpha: float | None = option(
        None,
        "A positive number fixes the concentration of the household classes. None: it is drawn.",
        positive=True, command=True, kw_only=True,
    )  # fmt: skip

    def __post_init__(self):
        if self.member_components is None:
            self.member_components = SHARED_CLASSES if self.shares_members else NESTED_CLASSES

    def __check_init__(self):
        if np.ndim(self.level_shape):
            raise ValueError(f"level_shape must be a positive number, not {self.level_shape}")
        if self.shares_members and self.beta == "class":
            raise ValueError(
                'beta="class" is for member classes of each household class; leave it out, or '
                'give member_classes="nested"'
            )

    @property
    def shares_members(self) -> bool:
        """Whether all household classes have the same member classes."""
        return self.member_classes == "shared"

    @property
    def fixed_beta(self) -> float | None:
        """The concentration of the member classes, if it is fixed."""
        return None if isinstance(self.beta, str) else self.beta

    def draw_weights(
        self, key: Key[Array, ""], counts: Int[Array, "*g k"], concentration: Float[Array, "*g"]
    ) -> tuple[Float[Array, "*g k"], Float[Array, "*g"]]:
        """Draw log weights given the members of each class, and the statistics for concentrations.

        The function is called for the household classes, and for the member classes of all of them.
        A subclass may override it. It must then turn off `reorder`, because these moves assume
        stick-breaking weights.

        Parameters
        ----------
        key
            Used once.
        counts
            Number of members of each class, for one process or several.
        concentration
            Concentration of each process.
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
        """Draw alpha and beta given the sticks, if they are not fixed; a subclass may override it.

        Parameters
        ----------
        key
            Used once.
        alpha, beta
            The current concentrations.
        sum_log_1mv, sums_log_1mv
            Sums of log(1 - V_k) over the sticks of the household classes, and over the sticks of
            the member classes of each household class.
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
