"""Settings of a run: chains, warm-up, draws, thinning, and the rounds of a run until a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bnp_models.data.contingency import Coded
from bnp_models.models.model import Growing, Model

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
