"""Options of the latent class models."""

import equinox as eqx

from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.data.microdata import Records
from bnp_models.models.latent_classes.state import (
    LatentClassData,
    LatentClassInfo,
    LatentClassState,
)
from bnp_models.models.level_prior import (
    LEVEL_PRIORS,
    Grouping,
    as_ordered,
    record_concentrations,
)
from bnp_models.models.model import Fitted, FixedComponents
from bnp_models.models.options import check_choice, check_integer, check_positive
from bnp_models.zeros.structural_zeros import StructuralZeros


class LatentClassOptions(
    FixedComponents[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo]
):
    """Options of a latent class model, as its conditionals read them."""

    components: int = eqx.field(static=True, default=50)
    """Classes K at which the sticks are truncated."""
    a: float = 0.25
    """Shape of alpha's prior."""
    b: float = 0.25
    """Rate of alpha's prior."""
    reorder: bool = eqx.field(static=True, default=True)
    """Moves that exchange classes, weights and all."""
    swap: bool = eqx.field(static=True, default=True)
    """Moves that exchange classes between weights."""
    split_merge_every: int = eqx.field(static=True, default=4)
    """Sweeps between split-merge moves; 0 turns them off."""
    level_prior: str = eqx.field(static=True, default="learned")
    """One of `LEVEL_PRIORS`: whether the prior of level probabilities is learned."""
    ordered: str | tuple[str, ...] = eqx.field(static=True, default="auto", converter=as_ordered)
    """Variables whose levels have bands of adjacent ones: "auto", or names."""
    groups: Hierarchies = eqx.field(static=True, default=(), converter=as_hierarchies)
    """Groups of the levels of variables, by name."""

    def __check_init__(self):
        check_integer(2, components=self.components)
        check_integer(0, split_merge_every=self.split_merge_every)
        check_positive(a=self.a, b=self.b)
        check_choice(LEVEL_PRIORS, level_prior=self.level_prior)
        Grouping.of(self).require_apart()

    def level_concentrations(
        self, run: Fitted[Records, StructuralZeros]
    ) -> dict[str, float] | None:
        """Posterior mean, by variable, of the concentration of a learned prior of levels."""
        return record_concentrations(self, run)

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated by itself, and not the mixture as a whole."""
        return False

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return False
