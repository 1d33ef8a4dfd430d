"""Options of the latent class models."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.kernels.variates.sticks import stick_concentration, truncated_sticks
from bnp_models.models.level_prior import (
    LEVEL_PRIORS,
    Grouping,
    as_level_shape,
    as_ordered,
    check_level_shape,
    record_concentrations,
)
from bnp_models.models.model import FixedComponents
from bnp_models.models.options import (
    check_choice,
    check_fixed,
    check_integer,
    check_positive,
    fixed_or,
)


class LatentClassOptions(FixedComponents):
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
    alpha: float | None = eqx.field(default=None, kw_only=True)
    """The concentration, where it is fixed; None: it is drawn."""
    level_shape: Any = eqx.field(default=None, converter=as_level_shape, kw_only=True)
    """Dirichlet shape of the level probabilities, where it is fixed: a number, or one each."""

    def __check_init__(self):
        check_integer(2, components=self.components)
        check_integer(0, split_merge_every=self.split_merge_every)
        check_positive(a=self.a, b=self.b)
        check_fixed(alpha=self.alpha)
        check_level_shape(self.level_shape)
        check_choice(LEVEL_PRIORS, level_prior=self.level_prior)
        Grouping.of(self).require_apart()

    def level_concentrations(self, run: Any) -> dict[str, float] | None:
        """Posterior mean, by variable, of the concentration of a learned prior of levels."""
        return record_concentrations(self, run)

    def draw_weights(
        self, key: Key[Array, ""], class_counts: Int[Array, " K"], alpha: Float[Array, ""]
    ) -> tuple[Float[Array, " K"], Float[Array, ""]]:
        """Draw log weights given the records of each class, and what alpha depends on of them.

        A subclass may override it, and must then turn off `reorder` and `split_merge_every`, whose
        moves know these sticks; so does the sampler of `TNPLCM`, but for augmentation "boxes".
        """
        return truncated_sticks(key, class_counts, alpha)

    def draw_alpha(self, key: Key[Array, ""], sum_log_1mv: Float[Array, ""]) -> Float[Array, ""]:
        """Draw alpha given the sum of log(1 - V_k) over the sticks; a subclass may override it."""
        drawn = stick_concentration(key, sum_log_1mv, self.components, self.a, self.b)
        return fixed_or(self.alpha, drawn)

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated by itself, and not the mixture as a whole."""
        return False

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return False
