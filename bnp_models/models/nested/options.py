"""Options of the nested model, as its conditionals read them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.data.households import Households
from bnp_models.models.level_prior import LEVEL_PRIORS, Grouping, as_ordered
from bnp_models.models.model import FixedComponents, MakesHouseholds
from bnp_models.models.nested.state import NestedData, NestedInfo, NestedState
from bnp_models.models.options import check_choice, check_integer, check_positive
from bnp_models.rules.rules import Rules

BETAS = ("common", "class")

SIZES = ("random", "given")


def _as_pairs(given: Any) -> tuple:
    """Hashable form of a mapping, or of a sequence of names and pairs."""
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str):
        given = (given,)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


class NestedOptions(
    FixedComponents[Households, Rules, NestedData, NestedState, NestedInfo],
    MakesHouseholds[Households, Rules, NestedData, NestedState, NestedInfo],
):
    """Options of `bnp_models.NDPMPM`, which describes them."""

    components: int = eqx.field(static=True, default=40)
    member_components: int = eqx.field(static=True, default=15)
    a: float = 0.25
    b: float = 0.25
    a_beta: float = 0.25
    b_beta: float = 0.25
    beta: str = eqx.field(static=True, default="common")
    reorder: bool = eqx.field(static=True, default=True)
    relative: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    level_prior: str = eqx.field(static=True, default="learned")
    ordered: str | tuple[str, ...] = eqx.field(static=True, default="auto", converter=as_ordered)
    groups: Hierarchies = eqx.field(static=True, default=(), converter=as_hierarchies)
    impossible_weight: int = eqx.field(static=True, default=1)
    sizes: str = eqx.field(static=True, default="random")

    def __check_init__(self):
        check_integer(2, components=self.components, member_components=self.member_components)
        check_integer(1, impossible_weight=self.impossible_weight)
        check_positive(
            a=self.a, b=self.b, a_beta=self.a_beta, b_beta=self.b_beta
        )  # fmt: skip
        check_choice(BETAS, beta=self.beta)
        check_choice(SIZES, sizes=self.sizes)
        check_choice(LEVEL_PRIORS, level_prior=self.level_prior)
        Grouping.of(self).require_apart()
