"""Options of the latent class models."""

import equinox as eqx

from bnp_models.models.model import FixedComponents
from bnp_models.models.options import check_choice, check_integer, check_positive

TRUNCATIONS = ("mixture", "classes")

AUGMENTATIONS = ("none", "boxes")


class LatentClassOptions(FixedComponents):
    """Options that NPLCM and TNPLCM share, which their conditionals read."""

    a: eqx.AbstractVar[float]
    """Shape of alpha's prior."""
    b: eqx.AbstractVar[float]
    """Rate of alpha's prior."""
    truncation: eqx.AbstractVar[str]
    """One of `TRUNCATIONS`: the mixture as a whole, or each class by itself."""
    augmentation: eqx.AbstractVar[str]
    """One of `AUGMENTATIONS`: impossible records integrated out, or drawn by box and class."""
    reorder: eqx.AbstractVar[bool]
    """Moves that exchange classes, weights and all."""
    swap: eqx.AbstractVar[bool]
    """Moves that exchange classes between weights."""
    split_merge_every: eqx.AbstractVar[int]
    """Sweeps between split-merge moves; 0 turns them off."""

    def __check_init__(self):
        check_integer(2, components=self.components)
        check_positive(a=self.a, b=self.b)
        check_choice(TRUNCATIONS, truncation=self.truncation)
        check_choice(AUGMENTATIONS, augmentation=self.augmentation)
        if self.truncation == "classes" and self.augmentation != "none":
            raise ValueError('truncation "classes" is sampled with augmentation "none" only')
