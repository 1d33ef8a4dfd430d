"""Options of the nested model, as its conditionals read them."""

import equinox as eqx

from bnp_models.models.model import FixedComponents, MakesHouseholds


class NestedOptions(FixedComponents, MakesHouseholds):
    """Options of NDPMPM, which describes them."""

    member_components: eqx.AbstractVar[int]
    """Member classes S of each household class."""
    a: eqx.AbstractVar[float]
    """Shape of alpha's prior."""
    b: eqx.AbstractVar[float]
    """Rate of alpha's prior."""
    a_beta: eqx.AbstractVar[float]
    """Shape of beta's prior."""
    b_beta: eqx.AbstractVar[float]
    """Rate of beta's prior."""
    beta: eqx.AbstractVar[str]
    """One concentration for all household classes, "common", or one for each, "class"."""
    reorder: eqx.AbstractVar[bool]
    """Moves that exchange adjacent classes."""
    relative: eqx.AbstractVar[tuple]
    """Variables of members that are coded relative to their head's."""
    grouped: eqx.AbstractVar[tuple]
    """Numbers of adjacent levels by variable."""
    level_concentration: eqx.AbstractVar[float]
    """Parameter of the Dirichlet prior of level probabilities."""
    impossible_weight: eqx.AbstractVar[int]
    """How many impossible households each drawn one stands for."""
