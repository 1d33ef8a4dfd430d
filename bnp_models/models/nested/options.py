"""Options of the nested model, as its conditionals read them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from bnp_models.models.model import FixedComponents, MakesHouseholds
from bnp_models.models.options import check_choice, check_integer, check_positive

BETAS = ("common", "class")


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
    beta: str = eqx.field(static=True, default="common")
    reorder: bool = eqx.field(static=True, default=True)
    relative: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    grouped: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    level_concentration: float = eqx.field(static=True, default=1.0)
    impossible_weight: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_integer(2, components=self.components, member_components=self.member_components)
        check_integer(1, impossible_weight=self.impossible_weight)
        check_positive(
            a=self.a, b=self.b, a_beta=self.a_beta, b_beta=self.b_beta,
            level_concentration=self.level_concentration,
        )  # fmt: skip
        check_choice(BETAS, beta=self.beta)
        for one in self.grouped:
            if isinstance(one, str) or len(one) != 2 or not isinstance(one[1], int) or one[1] < 1:
                raise ValueError(
                    f"grouped takes a number of levels for each variable, as in {{'age': 5}}, not "
                    f"{one!r}"
                )
