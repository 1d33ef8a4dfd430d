"""Options of the mixed membership models, and methods that the two models implement differently."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.data.microdata import Microdata
from bnp_models.kernels.mixed_membership.urn_partitions import TooManyPartitions, require_listable
from bnp_models.models.level_prior import LevelPriorOptions, merge_rows, trees_of
from bnp_models.models.mixed_membership.state import HDPData, HDPInfo, HDPState, mean_alpha
from bnp_models.models.model import Completes, Fitted, PredictsCells, too_many_augmented
from bnp_models.models.options import option
from bnp_models.zeros.coding import Coding
from bnp_models.zeros.structural_zeros import StructuralZeros

Concentration: TypeAlias = Literal["shared", "record", "hierarchical"]

CONCENTRATIONS: tuple[str, ...] = get_args(Concentration)

Augmentation: TypeAlias = Literal["auto", "boxes", "simulation"]

AUGMENTATIONS: tuple[str, ...] = get_args(Augmentation)

# Records are padded to a multiple of this on all devices. It is divisible by 1, 2, 4, .. 128 parts
# on devices and by the stride of the dish move.
RECORD_MULTIPLE = 128

# Number of draws of record weights for log P(feasible) if there are too many boxes to be exact.
FEASIBLE_DRAWS = 1024


class MembershipOptions(
    LevelPriorOptions[Microdata, StructuralZeros, HDPData, HDPState, HDPInfo],
    PredictsCells[Microdata, StructuralZeros, HDPData, HDPState, HDPInfo],
    Completes[Microdata, StructuralZeros, HDPData, HDPState, HDPInfo],
):
    """Options of both mixed membership models, which the functions of a sweep use."""

    a: float = option(
        2.0, "Shape a and rate b of alpha's gamma prior.", positive=True, kw_only=True
    )
    b: float = option(
        1.0, "Shape a and rate b of alpha's gamma prior.", positive=True, kw_only=True
    )
    dish_stride: int = option(
        64,
        """The dish move draws new components for whole tables. Each sweep takes one table of every
        `dish_stride`-th record, in rotation; 0 turns the move off.""",
        least=0, kw_only=True,
    )  # fmt: skip
    cell_stride: int = option(
        8,
        """A second dish move is for records whose items are all at one table. Each sweep takes
        n / `cell_stride` distinct cells (at least 1,024) of the n records, in rotation, with all
        records of these cells; 0 turns the move off.""",
        least=0, kw_only=True,
    )  # fmt: skip
    seating_every: int = option(
        8,
        """Sweeps between moves that draw the shared alpha, with the labels of all records at one or
        two tables summed out, and then draw these labels given alpha. Only for up to 12 variables;
        0 turns the moves off.""",
        least=0, kw_only=True,
    )  # fmt: skip
    augmentation: Augmentation = option(
        "auto",
        """How records of the impossible region are drawn under structural zeros: "boxes", as counts
        of boxes; "simulation", one by one until as many feasible records as the sample has were
        simulated; "auto", "boxes" unless the structural zeros connect too many variables. All are
        exact.""",
        choices=AUGMENTATIONS, command=True, kw_only=True,
    )  # fmt: skip
    tilt: bool = option(
        True,
        """Whether to make moves that change the level probabilities of a component along
        equivalences among the structural zeros.""",
        kw_only=True,
    )  # fmt: skip
    trajectory_steps: int = option(
        8,
        """Leapfrog steps of the Hamiltonian move that a sweep makes under structural zeros; 0 turns
        it off.""",
        least=0, kw_only=True,
    )  # fmt: skip
    not_applicable: bool = option(
        False,
        """Leave out of each record the items that its other items determine, by an equivalence
        among the structural zeros. Most of these structural zeros are then no longer needed
        (`StructuralZeros.not_applicable`).""",
        command=True, kw_only=True,
    )  # fmt: skip
    alpha: float | None = option(
        None,
        """A positive number fixes alpha, which must then be shared by all records; separate alphas
        that are all fixed at one number would be the same model. None: it is drawn.""",
        positive=True, command=True, kw_only=True,
    )  # fmt: skip

    parameters: ClassVar[tuple[str, ...]] = ("g0", "theta", "alpha_rate", "log_feasible")
    hyperparameters: ClassVar[tuple[str, ...]] = ("level_shape",)
    weight_parameters: ClassVar[tuple[str, ...]] = ("mean_weight",)
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "g0": ("component",),
        "theta": ("variable_level", "component"),
        "level_shape": ("variable_level",),
    }
    conditions_type: ClassVar[type | None] = StructuralZeros
    takes_missing: ClassVar[bool] = True
    missing_under_conditions: ClassVar[bool] = False
    max_exact_variables: ClassVar[float] = 12
    """Limit for exact cell probabilities: 2,000 cells take 20 ms at 10 variables, 1 s at 13."""

    @property
    @abstractmethod
    def concentration(self) -> str:
        """One of `CONCENTRATIONS`: one alpha for all records, or one each with b given or drawn."""

    @property
    @abstractmethod
    def rate_prior(self) -> tuple[float, float]:
        """Shape and rate of the prior of b, if it has one."""

    @property
    @abstractmethod
    def alpha0(self) -> float | None:
        """Concentration of G_0, if it is fixed."""

    @property
    @abstractmethod
    def split_merge_every(self) -> int:
        """Sweeps between split-merge moves; 0 turns them off."""

    @property
    def shared(self) -> bool:
        """Whether all records have one concentration."""
        return self.concentration == "shared"

    def __check_init__(self):
        if self.alpha is not None and not self.shared:
            raise ValueError(
                "alpha fixes the one concentration of all records; it needs concentration "
                f'"shared", not {self.concentration!r}'
            )
        if self.not_applicable and np.ndim(self.level_shape):
            raise ValueError(
                "level_shape must be one number where not_applicable leaves out levels, not "
                f"{len(self.level_shape)}"
            )
        for name in ("dish_stride", "cell_stride"):
            stride = vars(self)[name]
            if stride and RECORD_MULTIPLE % stride:
                raise ValueError(f"{name} is 0 or a divisor of {RECORD_MULTIPLE}, not {stride}")

    def check(self, table: Microdata) -> None:
        """Raise `MicrodataError` unless the ordered variables and the groups fit the table."""
        trees_of(self, table.schema)

    def keep(self, state: HDPState, info: HDPInfo) -> dict[str, Array]:
        """Quantities of one sweep that a user may choose to keep, by name."""
        figures = dict(vars(info))
        return {
            "alpha": mean_alpha(state.alpha, figures.pop("num_records")),
            **figures,
            "alpha0": state.alpha0,
            "g0": state.g0,
            "theta": state.theta,
            "level_shape": state.level_shape,
            "alpha_rate": state.rate,
            "z": state.z.astype(jnp.int32),
        }

    def coding(self, conditions: StructuralZeros | None) -> Coding | None:
        """Not-applicable form of the records, if this option is on."""
        if conditions is None or not self.not_applicable:
            return None
        return conditions.not_applicable.coding

    def merge_levels(
        self, draws: dict[str, np.ndarray], groups: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Level probabilities of merged levels: sums over the levels that were merged."""
        return {"theta": merge_rows(draws["theta"], groups)}

    def warnings(self, run: Fitted[Microdata, StructuralZeros]) -> list[str]:
        """Sentences on impossible records and P(feasible) of a `Run`."""
        checks = too_many_augmented(run.draws), self._estimated_feasible(run)
        return list(filter(None, checks))

    def _estimated_feasible(self, run: Fitted[Microdata, StructuralZeros]) -> str | None:
        """Warning that P(feasible) is not exact."""
        if run.feasible_sets is None:
            return None
        try:
            require_listable(run.feasible_sets, run.num_levels)
        except TooManyPartitions:
            return (
                "P(feasible), the probability of the possible cells, is not exact but estimated "
                f"from {FEASIBLE_DRAWS:,} draws of record weights, because the conditions connect "
                "too many variables; the error of the log-likelihood is n times as large, and the "
                "sampler runs without split-merge and other moves that help chains mix; write "
                "conditions with fewer variables, or use tnplcm, which is exact"
            )
        return None

    @abstractmethod
    def draw_alpha(
        self,
        key: Key[Array, ""],
        state: HDPState,
        data: HDPData,
        opens: Bool[Array, "J n"],
        num_tables: Int[Array, ""],
        augmented: Any = None,
        log_growth: Callable | None = None,
    ) -> tuple[Float[Array, "*n"], Float[Array, ""]]:
        """Draw alpha and the rate b of its prior; this calls `conditionals.draw_alpha`.

        A subclass may override this method; no other move then changes alpha and b.

        Parameters
        ----------
        key
            Used once.
        state
            State of the chain.
        data
            Arrays of the sample.
        opens
            Whether each item is the first at its table.
        num_tables
            Number of tables of all records.
        augmented
            Impossible records that were drawn under structural zeros. Default: none.
        log_growth
            Function of an old and a new alpha: log ratio of P(feasible) under the new one to that
            under the old one. Default: there are no structural zeros.
        """

    @abstractmethod
    def draw_weights(
        self,
        key: Key[Array, ""],
        state: HDPState,
        tables: Int[Array, " K"],
        added: Int[Array, " K"],
    ) -> tuple[Float[Array, ""], Float[Array, " K"], Float[Array, ""]]:
        """Draw alpha_0, the component weights, and the mass beyond the last component.

        `tables` are those of the sample, `added` those of augmented records. A subclass that
        overrides this method must also override `prior_tables`, which moves under structural zeros
        use.

        Parameters
        ----------
        key
            Used once.
        state
            State of the chain.
        tables
            Number of tables of each component, in the sample.
        added
            The same in the impossible records that were drawn.
        """

    @abstractmethod
    def prior_tables(self, state: HDPState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Tables that the prior of the weights adds: to each component, and for new components.

        Parameters
        ----------
        state
            State of the chain.
        """
