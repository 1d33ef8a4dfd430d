"""Options of the latent class models."""

from jaxtyping import Array, Float, Int, Key

from bnp_models.data.microdata import Records
from bnp_models.kernels.variates.sticks import stick_concentration, truncated_sticks
from bnp_models.models.latent_classes.state import (
    LatentClassData,
    LatentClassInfo,
    LatentClassState,
)
from bnp_models.models.level_prior import LevelPriorOptions
from bnp_models.models.model import FixedComponents
from bnp_models.models.options import fixed_or, option
from bnp_models.zeros.structural_zeros import StructuralZeros


class LatentClassOptions(
    LevelPriorOptions[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
    FixedComponents[Records, StructuralZeros, LatentClassData, LatentClassState, LatentClassInfo],
):
    """Options of a latent class model, which its conditionals use."""

    components: int = option(
        50,
        "Number of classes K at which the stick-breaking weights are truncated.",
        least=2, command=True,
    )  # fmt: skip
    a: float = option(0.25, "Shape and rate of alpha's prior.", positive=True)
    b: float = option(0.25, "Shape and rate of alpha's prior.", positive=True)
    reorder: bool = option(
        True, "Whether to make moves that exchange adjacent classes together with their weights."
    )
    swap: bool = option(
        True, "Whether to make moves that exchange classes and leave the weights in place."
    )
    split_merge_every: int = option(
        4, "Sweeps between split-merge moves; 0 turns them off.", least=0
    )
    alpha: float | None = option(
        None,
        """A positive number fixes the concentration of the sticks, and its prior is not used. None:
        it is drawn.""",
        positive=True, command=True, kw_only=True,
    )  # fmt: skip

    def draw_weights(
        self, key: Key[Array, ""], class_counts: Int[Array, " K"], alpha: Float[Array, ""]
    ) -> tuple[Float[Array, " K"], Float[Array, ""]]:
        """Draw log weights given the number of records of each class.

        The second result is the sum of log(1 - V_k) over the sticks, from which alpha is drawn.
        A subclass may override this method. It must then turn off `reorder` and
        `split_merge_every`, because these moves assume stick-breaking weights. The sampler of
        `TNPLCM` assumes them too, except with augmentation "boxes".
        """
        return truncated_sticks(key, class_counts, alpha)

    def draw_alpha(self, key: Key[Array, ""], sum_log_1mv: Float[Array, ""]) -> Float[Array, ""]:
        """Draw alpha given the sum of log(1 - V_k) over the sticks; a subclass may override it."""
        drawn = stick_concentration(key, sum_log_1mv, self.components, self.a, self.b)
        return fixed_or(self.alpha, drawn)

    @property
    def by_class(self) -> bool:
        """Whether each class is truncated separately, and not the mixture as a whole."""
        return False

    @property
    def by_box(self) -> bool:
        """Whether impossible records are drawn by box and class, and not integrated out."""
        return False
