"""Settings of the chains of one model on one sample, their draws, and selections of these."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeGuard

import jax
import numpy as np

from bnp_models.data.contingency import Coded
from bnp_models.data.display import Shown, counted, displayed, shapes, spread, title_of
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Schema
from bnp_models.inference.arviz import arrange_draws
from bnp_models.models.model import ConditionsC, Growing, Model, TableC
from bnp_models.rules.rules import Rules
from bnp_models.zeros.coding import Coding
from bnp_models.zeros.structural_zeros import StructuralZeros

# A run until convergence keeps at most this multiple of its first number of draws.
KEPT_AT_MOST = 4

MAX_SWEEPS = 2**31

MOST_KEPT = 2**28
"""Bytes of the arrays of a run's first draws, about, where nobody says how many are kept."""

# Where there are many chains, so many of them start at one point.
MANY_CHAINS, SUPERCHAIN = 16, 4

# Least number of records of a component in a default initial state.
RECORDS_OF_COMPONENT = 10


@dataclass(frozen=True)
class Settings:
    """Chains, sweeps and kept quantities of a run.

    Examples
    --------
    >>> run.settings.num_sweeps
    40
    """

    num_chains: int
    num_warmup: int
    num_samples: int
    thin: int
    keep: tuple[str, ...]
    start_components: tuple[int, ...]
    parameters_every: int = 1
    """Interval at which arrays, such as level probabilities, are kept; 1: for every draw."""
    num_discarded: int = 0
    """Sweeps between the warm-up and the kept draws, whose draws were discarded."""
    keep_warmup: bool = False
    """Whether the scalars of the warm-up are kept too."""

    def __post_init__(self):
        for name, least in (
            ("num_chains", 1), ("num_warmup", 0), ("num_samples", 1), ("thin", 1),
            ("parameters_every", 1),
        ):  # fmt: skip
            value = vars(self)[name]
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        if self.num_sweeps >= MAX_SWEEPS:
            raise ValueError("more than 2**31 sweeps: lower num_samples or thin")
        if not self.start_components or min(self.start_components) < 1:
            raise ValueError("start_components needs positive numbers of components")

    @property
    def superchain(self) -> int:
        """Number of consecutive chains with the same start; one if there are few chains."""
        many = self.num_chains >= MANY_CHAINS and self.num_chains % SUPERCHAIN == 0
        return SUPERCHAIN if many else 1

    @property
    def num_sweeps(self) -> int:
        """Sweeps of one chain, warm-up included."""
        return self.num_warmup + self.num_discarded + self.num_samples * self.thin

    @property
    def scalars_from(self) -> int:
        """Sweep from which scalars are kept."""
        return self.num_warmup % self.thin if self.keep_warmup else self.num_warmup

    @property
    def num_warmup_draws(self) -> int:
        """Draws of the warm-up whose scalars are kept."""
        return (self.num_warmup - self.scalars_from) // self.thin

    @property
    def num_arrays(self) -> int:
        """Draws of each chain whose arrays are kept."""
        return self.num_samples // self.parameters_every


def settings_of_round(first: Settings, iteration: int) -> Settings | None:
    """Settings of the round to which a sweep belongs; None if there would be too many sweeps.

    Rounds end after 1, 2, 3, 4, 6, 8, 12, .. times the first draws. The draws are thinned if there
    would be too many.
    """
    times, later = 1, 2
    while first.num_warmup + times * first.num_samples * first.thin < iteration:
        times, later = later, max(times * 2, 3)
    if first.num_warmup + times * first.num_samples * first.thin >= MAX_SWEEPS:
        return None
    by = 1
    while times > by * KEPT_AT_MOST:
        by *= 2
    return thinned_settings(first, by, first.num_samples * times // by)


def thinned_settings(settings: Settings, by: int, num_samples: int) -> Settings:
    """Settings with fewer draws, each of which is among those of the old settings."""
    every = math.lcm(settings.parameters_every, by) // by
    return replace(
        settings, num_samples=num_samples, thin=settings.thin * by, parameters_every=every
    )


def kept_names(model: Model, keep: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the quantities to keep; None: those that the model recommends."""
    if keep is None:
        return model.scalars + model.parameters + model.hyperparameters
    return tuple(keep)


def starts_of(
    model: Model, num_records: int, start_components: Sequence[int] | None
) -> tuple[int, ...]:
    """Numbers of components with which chains start; None: those that the model recommends."""
    if start_components is None:
        # Slots that a small sample cannot fill would only make every sweep slower.
        most = max(1, num_records // RECORDS_OF_COMPONENT)
        growing = isinstance(model, Growing)
        start_components = [min(c, most) if growing else c for c in model.start_components]
    return tuple(int(c) for c in start_components)


def interval_of_arrays(model: Model, table: object, num_chains: int, num_samples: int) -> int:
    """Draws to one of which arrays are kept, where nobody says it.

    It is what the model recommends, or more where arrays of every level and component would take
    more than `MOST_KEPT` bytes.
    """
    every = model.parameters_every
    if isinstance(table, Coded):
        each = 4 * sum(table.schema.num_levels) * model.capacity
        every = max(every, -(-each * num_chains * num_samples // MOST_KEPT))
    return max(1, min(every, num_samples))


def number_kept(iteration: int, settings: Settings, every: int = 1) -> int:
    """Number of draws after `iteration` sweeps, or of every `every`-th; discarded ones included."""
    return max(iteration - settings.num_warmup, 0) // (settings.thin * every)


def scalars_kept(iteration: int, settings: Settings) -> int:
    """Number of draws with scalars after `iteration` sweeps, those of the warm-up included."""
    return max(iteration - settings.scalars_from, 0) // settings.thin


_DRAWS_AT_ONCE = 16
_FIGURES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Until:
    """Target of a run, and the settings that it began with."""

    target: Callable[["Run"], bool]
    """Function of a run that returns whether the chains may stop."""
    max_minutes: float
    """Minutes after which the chains stop, whether or not they reached the target."""
    first: Settings
    """Settings of the first draws; those of the run have more sweeps, some of them discarded, or a
    larger `thin`; or fewer, if the minutes were used up."""
    finish_first: bool = True
    """Whether the first draws are made whatever they take."""

    def in_first(self, settings: Settings) -> bool:
        """Whether a run with these settings has made no more than the first draws."""
        return settings.num_sweeps <= self.first.num_sweeps


@dataclass(frozen=True)
class AllDraws:
    """Target of chains that make a given number of draws, if their minutes allow it."""

    num_samples: int

    def __call__(self, run: "Run") -> bool:
        """Whether each chain has made all draws."""
        return run.settings.num_samples >= self.num_samples


@dataclass(frozen=True, eq=False)
@displayed
class Run(Generic[TableC, ConditionsC]):
    """The chains of one model on one sample.

    Examples
    --------
    >>> run.draws["alpha"].shape
    (2, 20)
    >>> run.thinned(2).settings.num_samples
    10
    """

    model: Model
    table: TableC
    """`Microdata`, `ContingencyTable` or `Households` that it was fitted to."""
    settings: Settings
    draws: dict[str, np.ndarray]
    """Kept quantities by name: scalars (chains, draws); arrays (chains, draws // parameters_every,
    ...), kept for every `settings.parameters_every`-th draw."""
    key: jax.Array
    """A key that the chains did not use, for functions that compute something from the draws."""
    state: object
    """State of the chains after the last sweep; the leading axis is the chain."""
    capacity: int
    """Number of components that the arrays have room for at the end."""
    growth: tuple[tuple[int, int], ...]
    """(sweep, new capacity) of each enlargement of the arrays."""
    conditions: ConditionsC | None = None
    """`StructuralZeros` or `Rules` of the model; None if there were none."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds: compile, warmup and draws; and checks, the calls of `until`."""
    device: str = ""
    origin: jax.Array | None = None
    """The key that was given to `sample`; the keys of all sweeps are derived from it."""
    until: Until | None = None
    """Target of the run; None if it had no target."""
    warmup_draws: dict[str, np.ndarray] = field(default_factory=dict)
    """Scalars of the warm-up, each (chains, draws), where they were kept."""

    @property
    def sweeps_per_second(self) -> float:
        """Number of sweeps of all chains, divided by the seconds after compilation."""
        elapsed = self.seconds["warmup"] + self.seconds["draws"]
        return self.settings.num_chains * self.settings.num_sweeps / max(elapsed, 1e-9)

    def parameters(self, thin: int = 1) -> dict[str, np.ndarray]:
        """Arrays that the functions of the model use for one draw, each (chains, draws, ...).

        Parameters
        ----------
        thin
            Take every `thin`-th of the draws whose arrays were kept.

        Raises
        ------
        ValueError
            If the run did not keep them.
        """
        weighting = (name for name in self.model.weight_parameters if name in self.draws)
        names = dict.fromkeys((*self.model.parameters, *weighting, "alpha"))
        missing = [name for name in names if name not in self.draws]
        if missing:
            raise ValueError(f"the run did not keep {missing[0]!r}; sample with keep=None")
        kept = {name: self.draws[name] for name in names}
        return {
            name: self.at_kept_arrays(x, thin) if x.ndim == 2 else x[:, ::thin]
            for name, x in kept.items()
        }

    def spaced_parameters(self, most: int) -> dict[str, np.ndarray]:
        """Arrays as of `parameters`, of at most `most` draws, evenly spaced over all chains."""
        kept = self.settings.num_chains * self.settings.num_arrays
        return self.parameters(max(1, -(-kept // most)))

    def at_kept_arrays(self, values: np.ndarray, thin: int = 1) -> np.ndarray:
        """Take (chains, draws) values at every `thin`-th of the draws whose arrays were kept."""
        every = self.settings.parameters_every
        return values[:, every - 1 :: every][:, ::thin]

    @property
    def coding(self) -> Coding | None:
        """Form in which the model sees the records, if it is not the records themselves."""
        return self.model.coding(self.conditions)

    @property
    def num_levels(self) -> tuple[int, ...]:
        """Number of levels of each variable, in the model's coding."""
        schema = self.table.schema if self.coding is None else self.coding.schema
        assert isinstance(schema, Schema)
        return schema.num_levels

    @property
    def feasible_sets(self) -> np.ndarray | None:
        """(B, R) sets of levels of the feasible boxes, in the model's coding; None: all cells."""
        if self.conditions is None:
            return None
        assert isinstance(self.conditions, StructuralZeros)
        if self.coding is None:
            return self.conditions.feasible.sets
        left = self.conditions.not_applicable.conditions
        return None if left is None else left.feasible.sets

    def thinned(self, by: int = 2) -> "Run":
        """Return the run that `sample` would have made with `thin` multiplied by this factor.

        Every `by`-th draw is kept, including the last one; nothing else changes.

        Raises
        ------
        ValueError
            If the number of draws is no multiple of `by`.
        """
        discarded = self.settings.num_discarded // self.settings.thin
        if by < 1 or self.settings.num_samples % by or discarded % by:
            told = f"{self.settings.num_samples} draws"
            if discarded:
                told += f", after {discarded} that were discarded,"
            raise ValueError(f"{told} cannot be thinned by {by}: not a multiple")
        settings = thinned_settings(self.settings, by, self.settings.num_samples // by)
        sparser = settings.parameters_every * by // self.settings.parameters_every
        draws = {
            name: value[:, step - 1 :: step].copy()
            for name, value in self.draws.items()
            for step in (by if value.ndim == 2 else sparser,)
        }
        # Counted back from the end of the warm-up.
        early = slice(-1 - (settings.num_warmup_draws - 1) * by, None, by)
        warmup = {name: value[:, early].copy() for name, value in self.warmup_draws.items()}
        return replace(self, settings=settings, draws=draws, warmup_draws=warmup)

    def later_draws(self) -> "Run":
        """Run without the first quarter of its draws, or fewer if only some draws have arrays."""
        settings = self.settings
        every = settings.parameters_every
        dropped = settings.num_samples // 4 // every * every
        settings = replace(
            settings,
            num_samples=settings.num_samples - dropped,
            num_discarded=settings.num_discarded + dropped * settings.thin,
        )
        draws = {
            name: value[:, dropped if value.ndim == 2 else dropped // every :].copy()
            for name, value in self.draws.items()
        }
        return replace(self, settings=settings, draws=draws)

    def to_inference_data(self, *, parameters: bool = False):
        """Arrange the draws for ArviZ: InferenceData on 0.2x, an xarray DataTree on 1.x.

        Parameters
        ----------
        parameters
            Include arrays such as g0 and theta.

        Notes
        -----
        Groups are "posterior", "sample_stats" and "constant_data", and, of a run that has kept
        its warm-up, "warmup_posterior" and "warmup_sample_stats". `bnp_models.to_inference_data`
        adds a risk, posterior predictive checks, and the log-likelihood of each record.
        """
        return arrange_draws(self, parameters=parameters)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        settings, seconds = self.settings, self.seconds
        thin = f", one draw in {settings.thin} sweeps" if settings.thin > 1 else ""
        chains = counted(settings.num_chains, "chain")
        lines = {
            "model": repr(self.model),
            "sample": title_of(self.table),
            "conditions": None if self.conditions is None else repr(self.conditions).split("\n")[0],
            "warm-up": f"{settings.num_warmup + settings.num_discarded:,} sweeps{thin}",
            "components": spread(self.draws["components"]) if "components" in self.draws else None,
            "kept": shapes(self.draws),
            "seconds": ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()),
            "device": self.device or None,
        }
        title = f"Run: {chains} of {counted(settings.num_samples, 'draw')} of {self.model.name}"
        return Shown(title, lines)


RecordsRun: TypeAlias = Run[Records, StructuralZeros]
"""Chains on records, one by one or by cell."""

HouseholdsRun: TypeAlias = Run[Households, Rules]
"""Chains on households."""


def is_of_records(run: Run) -> TypeGuard[RecordsRun]:
    """Whether the chains are on records."""
    return not isinstance(run.table, Households)


def is_of_households(run: Run) -> TypeGuard[HouseholdsRun]:
    """Whether the chains are on households."""
    return isinstance(run.table, Households)


def blocks_of_draws(total: int, figures: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices of the draws that are evaluated together, and the same indices padded to one length.

    The last block repeats a draw, so that all blocks use one compiled program. Blocks are smaller
    if there are many `figures` for each draw.
    """
    size = min(_DRAWS_AT_ONCE, max(1, _FIGURES_AT_ONCE // figures))
    blocks = (np.arange(start, start + size) for start in range(0, total, size))
    return [(block[block < total], np.minimum(block, total - 1)) for block in blocks]


def concatenate_draws(segments: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join draws of several segments; arrays of an earlier, smaller capacity are padded with 0."""

    def join(arrays):
        if len({a.shape[1:] for a in arrays}) == 1:
            return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        widest = np.max([a.shape[1:] for a in arrays], axis=0)
        joined = np.zeros((sum(map(len, arrays)), *widest), arrays[0].dtype)
        start = 0
        for a in arrays:
            stop = start + len(a)
            joined[(slice(start, stop), *map(slice, a.shape[1:]))] = a
            start = stop
        return joined

    return {name: join([segment[name] for segment in segments]) for name in segments[0]}


def spaced_positions(num_chains: int, num_draws: int, number: int) -> list[tuple[int, int]]:
    """Chain and draw of each of `number` draws, evenly spaced over all; data sets use these."""
    total = num_chains * num_draws
    return [divmod((2 * m + 1) * total // (2 * number), num_draws) for m in range(number)]


def spaced_draws(run, number):
    """Parameters of `number` draws, evenly spaced over all chains and draws."""
    draws = run.parameters()
    num_chains, num_draws = draws["alpha"].shape
    total = num_chains * num_draws
    if not 1 <= number <= total:
        raise ValueError(
            f"num_datasets must be from 1 to the number of draws kept, {total}, not {number}"
        )
    for chain, position in spaced_positions(num_chains, num_draws, number):
        yield {name: value[chain, position] for name, value in draws.items()}
