"""Options of the latent class models."""

import equinox as eqx

from bnp_models.models.model import FixedComponents
from bnp_models.models.options import check_integer, check_positive


class LatentClassOptions(FixedComponents):
    """Options of a latent class model, as its conditionals read them."""

    a: eqx.AbstractVar[float]
    """Shape of alpha's prior."""
    b: eqx.AbstractVar[float]
    """Rate of alpha's prior."""
    reorder: eqx.AbstractVar[bool]
    """Moves that exchange classes, weights and all."""
    swap: eqx.AbstractVar[bool]
    """Moves that exchange classes between weights."""
    split_merge_every: eqx.AbstractVar[int]
    """Sweeps between split-merge moves; 0 turns them off."""

    def __check_init__(self):
        check_integer(2, components=self.components)
        check_positive(a=self.a, b=self.b)

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated by itself, and not the mixture as a whole."""
        return False

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return False
