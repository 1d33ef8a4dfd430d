"""Draws of the chains of one model on one sample, and selections of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Generic, TypeAlias, TypeGuard

import jax
import numpy as np

from bnp_models.data.display import Shown, counted, displayed, shapes, spread, title_of
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Schema
from bnp_models.inference.arviz import arrange_draws
from bnp_models.inference.saving import write_run
from bnp_models.inference.trace import Settings, thinned_settings
from bnp_models.models.model import ConditionsC, Model, TableC
from bnp_models.rules.rules import Rules
from bnp_models.zeros.coding import Coding
from bnp_models.zeros.structural_zeros import StructuralZeros

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
    """Settings of the first draws. The settings of the run may have more sweeps, some of which are
    discarded, or a larger `thin`; or fewer sweeps, if the minutes were used up."""
    finish_first: bool = True
    """Whether the first draws are all made, however long they take."""

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
    """`Microdata`, `ContingencyTable` or `Households` to which the model was fitted."""
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
    """Scalars of the warm-up, each (chains, draws), if they were kept."""

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
        names = dict.fromkeys((*names_of_draw(self.model), *weighting))
        missing = [name for name in names if name not in self.draws]
        if missing:
            raise ValueError(f"the run did not keep {missing[0]!r}; sample with keep=None")
        kept = {name: self.draws[name] for name in names}
        return {
            name: self.at_kept_arrays(x, thin) if x.ndim == 2 else x[:, ::thin]
            for name, x in kept.items()
        }

    def spaced_parameters(self, most: int) -> dict[str, np.ndarray]:
        """Result of `parameters` for at most `most` draws, evenly spaced over all chains."""
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
        # Draws of the warm-up are counted back from its end.
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

    def save(self, path: str | PathLike) -> None:
        """Write the run into a folder, from which `bnp_models.load_run` reads it.

        Parameters
        ----------
        path
            The folder; a run or a checkpoint in it is replaced.

        Notes
        -----
        **The folder contains the records of the sample. It must be kept as safe as the sample is.**
        Only its owner can read it.

        The folder has the model, the sample, the structural zeros or rules, draws, states, keys,
        settings and versions, in the format of checkpoints: JSON and NumPy arrays, no pickle. It
        does not have the target (`until`). `load_run` must be given what cannot be written: a model
        of a user's own class, rules that are Python functions, and a sample with labels that are
        neither text, numbers nor None.
        """
        write_run(self, path)

    def to_inference_data(self, *, parameters: bool = False):
        """Arrange the draws for ArviZ: InferenceData on 0.2x, an xarray DataTree on 1.x.

        Parameters
        ----------
        parameters
            Include arrays such as g0 and theta.

        Notes
        -----
        Groups are "posterior", "sample_stats" and "constant_data"; a run that has kept its warm-up
        also has "warmup_posterior" and "warmup_sample_stats". `bnp_models.to_inference_data`
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


def names_of_draw(model: Model) -> tuple[str, ...]:
    """Names of the quantities that the functions of a model use for one draw."""
    concentration = ("alpha",) if "alpha" in model.scalars else ()
    return tuple(dict.fromkeys((*model.parameters, *concentration)))


def shape_of_draws(parameters: dict[str, np.ndarray]) -> tuple[int, int]:
    """Number of chains and number of draws of each chain, from arrays (chains, draws, ...)."""
    num_chains, num_draws = next(iter(parameters.values())).shape[:2]
    return num_chains, num_draws


def blocks_of_draws(
    total: int, figures: int = 1, at_once: int = _DRAWS_AT_ONCE
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices of the draws that are evaluated together, and the same indices padded to one length.

    The last block repeats a draw, so that all blocks use one compiled program. A block has
    `at_once` draws, or fewer if there are many `figures` for each draw.
    """
    size = min(at_once, max(1, _FIGURES_AT_ONCE // figures))
    blocks = (np.arange(start, start + size) for start in range(0, total, size))
    return [(block[block < total], np.minimum(block, total - 1)) for block in blocks]


def spaced_positions(num_chains: int, num_draws: int, number: int) -> list[tuple[int, int]]:
    """Chain and draw of each of `number` draws, evenly spaced over all draws of all chains."""
    total = num_chains * num_draws
    return [divmod((2 * m + 1) * total // (2 * number), num_draws) for m in range(number)]


def spaced_draws(run, number):
    """Parameters of `number` draws, evenly spaced over all chains and draws."""
    draws = run.parameters()
    num_chains, num_draws = shape_of_draws(draws)
    total = num_chains * num_draws
    if not 1 <= number <= total:
        raise ValueError(
            f"num_datasets must be from 1 to the number of draws kept, {total}, not {number}"
        )
    for chain, position in spaced_positions(num_chains, num_draws, number):
        yield {name: value[chain, position] for name, value in draws.items()}
