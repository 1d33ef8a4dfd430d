"""The contract of a model: the members that inference, risk and synthesis need.

A model is an `equinox.Module`. Its fields are its options and hyperparameters, and its methods are
pure functions that `jax.jit` can compile and `jax.vmap` can run over chains. It derives from the
contracts that it fulfils: `Growing` or `FixedComponents`, and those for the results that can be
computed from its draws.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from typing_extensions import TypeVar

from bnp_models.data.display import counted, options_as_html, options_as_text
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.schema import Label, Schema
from bnp_models.kernels.mixed_membership.cell_probability import CellEstimate
from bnp_models.kernels.nested.simulation import Simulated
from bnp_models.models.options import check_options
from bnp_models.rules.rules import Rules
from bnp_models.zeros.coding import Coding
from bnp_models.zeros.structural_zeros import StructuralZeros

if TYPE_CHECKING:
    # A type checker does not know other kinds of class variables.
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar

Table: TypeAlias = Records | Households
"""The sample: `Microdata` or `Households`, as the model's `table_type` says; also a
`ContingencyTable` if the model accepts counts."""

Conditions: TypeAlias = StructuralZeros | Rules
"""Structural zeros or rules, as the model's `conditions_type` says."""


class Info(Protocol):
    """Figures of one sweep, a pytree; the driver reads only `left_over`."""

    @property
    def left_over(self) -> Float[Array, ""]:
        """Weight of components beyond the last slot; 0 if there can be no such components."""


TableT = TypeVar("TableT", bound=Table)
"""The sample."""

ConditionsT = TypeVar("ConditionsT", bound=Conditions)
"""Structural zeros, or rules."""

DataT = TypeVar("DataT")
"""The arrays of a table, made by `Model.prepare`: a pytree that chains share.

A field with an axis over records declares it by ``eqx.field(metadata={"record_axis": axis})``; the
field may be divided among devices along this axis.
"""

StateT = TypeVar("StateT")
"""State from which a chain can be continued: a pytree, with ``record_axis`` as in `DataT`."""

InfoT = TypeVar("InfoT", bound=Info)
"""Figures of one sweep."""

TableC = TypeVar("TableC", bound=Table, covariant=True, default=Table)
ConditionsC = TypeVar("ConditionsC", bound=Conditions, covariant=True, default=Conditions)


class Fitted(Protocol[TableC, ConditionsC]):
    """Attributes of a `bnp_models.Run` that the methods of its model read."""

    @property
    def table(self) -> TableC:
        """The sample."""

    @property
    def conditions(self) -> ConditionsC | None:
        """Structural zeros, or rules; None if there were none."""

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Kept quantities, each (chains, draws, ...)."""

    @property
    def coding(self) -> Coding | None:
        """Form in which the model sees the records, if it is not the records themselves."""

    @property
    def num_levels(self) -> tuple[int, ...]:
        """Number of levels of each variable, in the model's coding."""

    @property
    def feasible_sets(self) -> np.ndarray | None:
        """(B, R) sets of levels of the feasible boxes, in the model's coding; None: all cells."""


Levels: TypeAlias = dict[str, tuple[Label, ...]]
"""Levels of variables by name, in the same order as in arrays."""

Draw: TypeAlias = dict[str, Array]
"""One kept draw: an array for each name of `Model.parameters`, and "alpha" if it is a scalar."""


class Model(eqx.Module, Generic[TableT, ConditionsT, DataT, StateT, InfoT]):
    """Members of every model; generic in the types of sample, conditions, data, state and info.

    Notes
    -----
    Methods share these arguments: `key`, a random key that is used once; `table` and `conditions`,
    the sample and its structural zeros or rules; `data`, the result of `prepare`; `state`, that of
    one chain; `info`, the figures of one sweep; `capacity`, the number of components that arrays
    have room for; `draw`, one kept draw; `num_levels`, the number of levels of each variable;
    `num_records`, how many records are drawn; and `run`, the finished chains.
    """

    name: AbstractClassVar[str]
    """Name of the model in files and on the command line."""
    scalars: AbstractClassVar[tuple[str, ...]]
    """Names of the scalars that are kept for every draw, among those of `keep`."""
    parameters: AbstractClassVar[tuple[str, ...]]
    """Names of the arrays that are kept for predictions, among those of `keep`."""
    hyperparameters: ClassVar[tuple[str, ...]] = ()
    """Names of further arrays that are kept with draws but that predictions do not use."""
    weight_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of further arrays for predictions, which only `PredictsCells.weight_draws` makes."""
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of the axes, after chain and draw, of the arrays that are kept with draws."""
    monitored: ClassVar[tuple[str, ...]] = ("log_likelihood", "components", "alpha", "beta")
    """Names of the scalars by which convergence is judged, if they are kept."""
    parameters_every: ClassVar[int] = 1
    """Default interval between the draws whose arrays are kept."""
    table_type: ClassVar[type] = Microdata
    """Type of the data to which the model is fitted."""
    conditions_type: ClassVar[type | None] = None
    """Type of the structural zeros or rules that the model accepts; None if it accepts none."""
    takes_missing: ClassVar[bool] = False
    """Whether the model draws missing values or sums them out."""
    missing_under_conditions: ClassVar[bool] = True
    """Whether the model draws missing values, or sums them out, under structural zeros too."""
    takes_counts: ClassVar[bool] = False
    """Whether the model accepts a `ContingencyTable` (cells with counts) instead of `Microdata`."""

    def __check_init__(self) -> None:
        check_options(self)

    def __repr__(self) -> str:
        return options_as_text(self)

    def _repr_html_(self) -> str:
        return options_as_html(self)

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Minimum number of components that the arrays have room for."""

    @property
    @abstractmethod
    def start_components(self) -> tuple[int, ...]:
        """Numbers of components of the initial states, used for one chain after the other."""

    def check(self, table: TableT) -> None:
        """Raise `MicrodataError` unless the options fit the table."""

    def coding(self, conditions: ConditionsT | None) -> Coding | None:
        """Form in which the model sees the records, if it is not the records themselves."""
        return None

    def levels_of_axes(self, table: TableT, conditions: ConditionsT | None) -> dict[str, Levels]:
        """Variables and their levels along the axes of levels, by name of the axis."""
        coding = self.coding(conditions)
        schema = table.schema if coding is None else coding.schema
        assert isinstance(schema, Schema)
        return {"variable_level": dict(zip(schema.variables, schema.levels, strict=True))}

    @abstractmethod
    def prepare(self, table: TableT, conditions: ConditionsT | None = None) -> DataT:
        """Make the arrays of a sample of `table_type` under conditions of `conditions_type`."""

    @abstractmethod
    def init(
        self, key: Key[Array, ""], data: DataT, capacity: int, num_components: Int[Array, ""]
    ) -> StateT:
        """Initial state of one chain, with `capacity` slots and at most `num_components` used."""

    @abstractmethod
    def sweep(
        self, key: Key[Array, ""], state: StateT, data: DataT, iteration: Int[Array, ""]
    ) -> tuple[StateT, InfoT]:
        """Make one sweep of one chain; the sweep leaves the posterior invariant.

        `iteration` counts the sweeps. It is negative in the first part of the warm-up, in which
        chains lose the surplus components of their initial states. Moves that do not help with this
        may begin at zero.
        """

    def keep(self, state: StateT, info: InfoT) -> dict[str, Array]:
        """Quantities of one sweep that a user may keep, by name: all fields of state and info.

        `state` is the state after the sweep. A field of the same name in both is taken from it. A
        quantity of the info may belong to the state before the sweep, as the log likelihood of the
        latent class models does.
        """
        return vars(info) | vars(state)

    def settle(self, state: StateT, data: DataT) -> StateT:
        """State after a step of the warm-up that need not leave the posterior invariant."""
        return state

    def level_concentrations(self, run: Fitted[TableT, ConditionsT]) -> dict[str, float] | None:
        """Posterior mean, by variable, of the concentration of a learned prior of levels.

        None if the prior is not learned.
        """
        return None

    def warnings(self, run: Fitted[TableT, ConditionsT]) -> list[str]:
        """Sentences about a `Run` of this model for the person who decides whether to use it."""
        return []


class Growing(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model whose number of components may change: the driver enlarges or shrinks its arrays."""

    start_share: AbstractClassVar[float]
    """Share of the slots that an initial state may fill."""

    @abstractmethod
    def grow(self, key: Key[Array, ""], state: StateT, data: DataT, capacity: int) -> StateT:
        """State with more slots, drawn exactly given the old state."""

    @abstractmethod
    def slots_needed(self, state: StateT, data: DataT) -> Float[Array, ""]:
        """Number of slots for all but a negligible weight, and some spare ones."""

    @abstractmethod
    def shrink(self, state: StateT, data: DataT, capacity: int) -> StateT:
        """State with fewer slots; for the warm-up only."""


class FixedComponents(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model whose number of components is one of its options."""

    components: eqx.AbstractVar[int]
    """Number K of components."""

    @property
    def start_components(self) -> tuple[int, ...]:
        """Number of components that initial states may use, which is K."""
        return (self.components,)

    @property
    def capacity(self) -> int:
        """Number of slots for components, which is K."""
        return self.components


class PredictsCells(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model that gives the probability of a cell for a new record, and new records."""

    max_exact_variables: AbstractClassVar[float]
    """Largest number of variables for which exact cell probabilities are quick."""

    @abstractmethod
    def log_cell_probability(
        self,
        key: Key[Array, ""],
        draw: Draw,
        cells: Int[Array, "C J"],
        num_levels: tuple[int, ...],
        *,
        method: str = "exact",
        num_draws: int = 4096,
    ) -> Float[Array, " C"] | CellEstimate:
        """log p_c (C,) of cells given one kept draw, or an estimate if the method is not exact."""

    @abstractmethod
    def simulate_records(
        self,
        key: Key[Array, ""],
        draw: Draw,
        num_records: int,
        num_levels: tuple[int, ...],
        feasible: Bool[Array, "B R"] | None = None,
    ) -> Int[Array, "J n"]:
        """Level codes of new records in the feasible boxes (None: all cells), given one draw."""

    def weight_draws(
        self,
        draws: dict[str, np.ndarray],
        weights: np.ndarray,
        num_levels: tuple[int, ...],
        feasible: np.ndarray | None,
    ) -> dict[str, np.ndarray]:
        """Draws of the distribution sum_s weights[s] p(x, s) / Z: the arrays that change, by name.

        Parameters
        ----------
        draws
            Arrays (chains, draws, ...) of a run whose last variable is the class s.
        weights
            (S,) weights of the classes, not negative.
        num_levels, feasible
            As for `simulate_records`, of the records without the class.

        Raises
        ------
        ValueError
            If the model cannot compute this distribution; the default is that it cannot.
        """
        raise ValueError(f"the {self.name} model takes no design weights")

    def merge_levels(
        self, draws: dict[str, np.ndarray], groups: np.ndarray
    ) -> dict[str, np.ndarray] | None:
        """Arrays of draws (chains, draws, ...) that change when levels are merged, by name.

        `groups` is as for `merge_rows`. The result is None if the distribution of coarser records
        does not have the form of the model, which is the default.
        """
        return None


class KnowsMargins(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model that can compute the margins of all variables."""

    @abstractmethod
    def level_probabilities(
        self,
        draw: Draw,
        num_levels: tuple[int, ...],
        feasible: Bool[Array, "B R"] | None = None,
    ) -> Float[Array, " R"] | None:
        """P(x_j = l) of a feasible record, for every level of every variable.

        None if the computation would take too long.
        """


class Completes(KnowsMargins[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model that completes records."""

    @abstractmethod
    def complete_records(self, key: Key[Array, ""], draw: Draw, data: DataT) -> Int[Array, "J n"]:
        """Level codes of the sample, with missing values drawn given one kept draw.

        Padding, where `prepare` adds any, comes after the records.
        """


class MakesHouseholds(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """A model that simulates possible households, and may know the margins of their variables."""

    @abstractmethod
    def simulate_households(
        self, key: Key[Array, ""], draw: Draw, data: DataT, left: Float[Array, " H"], lanes: int
    ) -> tuple[Simulated, Bool[Array, " lanes"]]:
        """Simulate a batch of households given one kept draw, and check which of them are possible.

        Parameters
        ----------
        left
            Relative frequency with which each size is simulated.
        lanes
            Number of households simulated at once.
        """

    @abstractmethod
    def level_probabilities(self, draw: Draw, data: DataT) -> Float[Array, " R"] | None:
        """P(level) for every level of households' variables, their size last, then of members'.

        None if it cannot be computed under the rules in the data.
        """

    def weight_households(
        self, draws: dict[str, np.ndarray], weights: np.ndarray, rows: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Draws of the distribution sum_s weights[s] p(household, s) / Z: the arrays that change.

        Parameters
        ----------
        draws
            Arrays (chains, draws, ...) of a run whose households have the class s as a variable.
        weights
            (S,) weights of the classes, not negative.
        rows
            (S,) rows of the classes among those of the levels of all household variables.

        Raises
        ------
        ValueError
            If the model cannot compute this distribution; the default is that it cannot.
        """
        raise ValueError(f"the {self.name} model takes no design weights")


def matters(in_last: float, total: int) -> bool:
    """Whether so many of the members are in the last class that results may depend on it.

    No proportion of the model changes by more than the share of the members who are in the wrong
    class. A share of up to 1 / (2 sqrt(total)), the largest standard error of a proportion of the
    sample, changes less than another sample would.
    """
    return in_last > math.sqrt(total) / 2


def last_class_used(draws: dict[str, np.ndarray], total: int, unit: str = "record") -> str | None:
    """Warn if many of the `total` members are in the last class, if "last_class" was kept."""
    mean = float(np.mean(draws.get("last_class", 0)))
    if not matters(mean, total):
        return None
    return (
        f"too few classes: on average, {mean:,.0f} of {counted(total, unit)} are in the last "
        "class, which stands for all further classes; raise components (--components)"
    )


def too_many_augmented(draws: dict[str, np.ndarray]) -> str | None:
    """Warn that some draw had too many impossible records to count ("augmented" is -1)."""
    if np.min(draws.get("augmented", 0), initial=0) >= 0:
        return None
    return (
        "nearly everything is impossible: a kept draw needed more records of the impossible region "
        "than can be counted, and the rest were left out; look for conditions or rules that "
        "exclude too much"
    )


def reweighted(log_pi: np.ndarray, log_p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Log weights of classes in the distribution sum_s weights[s] p(x, s) / Z.

    Parameters
    ----------
    log_pi
        (chains, draws, K) log weights of the classes in the distribution p.
    log_p
        (chains, draws, S, K) log probabilities of s in each class, where s is independent of x.
    weights
        (S,) weights, not negative.
    """
    with np.errstate(divide="ignore"):
        # The logarithm is -inf where only s of weight zero have probability.
        log_mean = np.log(np.einsum("s,cdsk->cdk", weights, np.exp(log_p, dtype=float)))
    total = log_pi + log_mean
    return (total - np.logaddexp.reduce(total, axis=2, keepdims=True)).astype(log_pi.dtype)
