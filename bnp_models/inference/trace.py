"""What chains keep: settings of a run, the sweeps whose draws are kept, and the kept draws.

A quantity of one number for each chain (a scalar) is kept after every `Settings.thin` sweeps, an
array after every `Settings.parameters_every`-th of these draws. A chunk of compiled sweeps writes
draws to buffers on the devices (`empty_buffers`, `write`) and ends before they are full
(`chunk_end`). `Trace` copies them to the memory of the host and joins them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bnp_models.data.contingency import Coded
from bnp_models.inference import processes
from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.models.model import Growing, Model

# A run until convergence keeps at most this multiple of its first number of draws.
KEPT_AT_MOST = 4


MAX_SWEEPS = 2**31


MOST_KEPT = 2**28
"""Approximate limit for the bytes of a run's first arrays, if `parameters_every` is not given."""


# Least number of records of a component in a default initial state.
RECORDS_OF_COMPONENT = 10


# With at least MANY_CHAINS chains, they start in groups of SUPERCHAIN chains, each group from one
# state.
MANY_CHAINS, SUPERCHAIN = 16, 4

# Target size of the draws that a chunk keeps on the device, in bytes.
_BUFFER_BYTES = 32 * 2**20

# Largest number of draws of scalars that a chunk keeps, on a CPU and on an accelerator (which is
# faster); and largest number of draws of arrays.
_MAX_SCALARS, _MAX_ARRAYS = (64, 512), 64

Block: TypeAlias = dict[str, np.ndarray]
"""Kept draws by name, each (draws, chains, ...)."""


class Every(NamedTuple):
    """Sweeps after which a quantity is kept."""

    first: Int[Array, ""] | int
    """Sweeps before those that are counted: draws are kept after ``first + step`` sweeps, after
    ``first + 2 * step`` sweeps, and so on."""
    step: Int[Array, ""] | int
    """Sweeps for each draw."""

    def number(self, sweeps):
        """Number of draws that are kept in so many sweeps."""
        return (sweeps > self.first) * (sweeps - self.first) // self.step


class ChainOptions(TypedDict, total=False):
    """Type of a dictionary of arguments that several calls of `sample` share.

    It may have `num_chains`, `num_warmup`, `num_samples` and `thin`. Type checkers accept
    ``**chains`` only if they know which arguments it has.

    Examples
    --------
    >>> chains: bnp.inference.ChainOptions = {"num_chains": 2, "num_warmup": 20, "num_samples": 20}
    >>> bnp.sample(model, table, key=jax.random.key(0), **chains).settings.num_samples
    20
    """

    num_chains: int
    num_warmup: int
    num_samples: int
    thin: int


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
    def scalars(self) -> Every:
        """Sweeps whose scalars are kept."""
        first = self.num_warmup % self.thin if self.keep_warmup else self.num_warmup
        return Every(first, self.thin)

    @property
    def arrays(self) -> Every:
        """Sweeps whose arrays are kept."""
        return Every(self.num_warmup, self.thin * self.parameters_every)

    @property
    def num_warmup_draws(self) -> int:
        """Draws of the warm-up whose scalars are kept."""
        return self.scalars.number(self.num_warmup)

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


def starts_of(
    model: Model, num_records: int, start_components: Sequence[int] | None
) -> tuple[int, ...]:
    """Numbers of components with which chains start; None: those that the model recommends."""
    if start_components is None:
        # Components that a small sample cannot fill would only make sweeps slower.
        most = max(1, num_records // RECORDS_OF_COMPONENT)
        growing = isinstance(model, Growing)
        start_components = [min(c, most) if growing else c for c in model.start_components]
    return tuple(int(c) for c in start_components)


def interval_of_arrays(model: Model, table: object, num_chains: int, num_samples: int) -> int:
    """Default interval between draws whose arrays are kept.

    The interval is that of the model, or larger if arrays of all levels and components would take
    more than `MOST_KEPT` bytes.
    """
    every = model.parameters_every
    if isinstance(table, Coded):
        each = 4 * sum(table.schema.num_levels) * model.capacity
        every = max(every, -(-each * num_chains * num_samples // MOST_KEPT))
    return max(1, min(every, num_samples))


class Schedule(NamedTuple):
    """Sweeps of a run, by number, at which something happens in a chunk."""

    warmup: Int[Array, ""] | int
    """Sweeps of the warm-up."""
    growth_start: Int[Array, ""] | int
    """Sweep from which on the capacity may grow."""
    scalars: Every = Every(0, 1)
    """Sweeps whose scalars are kept."""
    arrays: Every = Every(0, 1)
    """Sweeps whose arrays are kept."""


class Kept(NamedTuple):
    """Quantities that a chunk keeps, and the room for them."""

    names: tuple[str, ...]
    """Names of the kept quantities."""
    slots: int
    """Number of arrays of one quantity for which a chunk has room."""


def slots_for_arrays(available: Mapping[str, jax.ShapeDtypeStruct], num_chains: int) -> int:
    """Number of arrays of each quantity for which one chunk has room."""
    size = num_chains * sum(
        math.prod(draw.shape[1:]) * draw.dtype.itemsize
        for draw in available.values()
        if draw.ndim > 1
    )
    return int(np.clip(_BUFFER_BYTES // max(size, 1), 1, _MAX_ARRAYS))


def empty_buffers(available: Mapping[str, jax.ShapeDtypeStruct], slots: int) -> dict[str, Array]:
    """Buffers for the scalars of a chunk, and for `slots` arrays, each with a spare entry."""
    sizes = {name: by_platform(*_MAX_SCALARS) if draw.ndim == 1 else slots
             for name, draw in available.items()}  # fmt: skip
    return {
        name: jnp.zeros((sizes[name] + 1, *draw.shape), draw.dtype)
        for name, draw in available.items()
    }


def write(
    buffers: dict[str, Array],
    drawn: Mapping[str, Array],
    start: Int[Array, ""] | int,
    iteration: Int[Array, ""],
    schedule: Schedule,
) -> tuple[dict[str, Array], dict[str, Int[Array, ""]]]:
    """Write the quantities of a sweep to the buffers of a chunk that began at sweep `start`.

    A quantity that is not kept after this sweep is written to the spare entry.

    Returns
    -------
    buffers, entries
        The buffers, and the entry of each to which the quantity was written.
    """
    written, entries = {}, {}
    for name, buffer in buffers.items():
        kept = schedule.scalars if buffer.ndim == 2 else schedule.arrays
        before, after = kept.number(iteration), kept.number(iteration + 1)
        entries[name] = jnp.where(after > before, before - kept.number(start), len(buffer) - 1)
        written[name] = jax.lax.dynamic_update_index_in_dim(
            buffer, drawn[name], entries[name], axis=0
        )
    return written, entries


def chunk_end(iteration: int, settings: Settings, slots: int, length: int) -> int:
    """Sweep at which the next chunk ends; no later than the warm-up, or than a full buffer."""
    ends = [settings.num_warmup if iteration < settings.num_warmup else settings.num_sweeps]
    for kept, room in ((settings.scalars, by_platform(*_MAX_SCALARS)), (settings.arrays, slots)):
        ends.append(kept.first + (kept.number(iteration) + room) * kept.step)
    return min(iteration + length, *ends)


class Trace:
    """Kept draws of a run's chains: blocks that are in a checkpoint, and later ones."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.saved: list[Block] = []
        self.later: list[Block] = []
        self._written: tuple[Sequence[dict[str, Array]], dict[str, int]] | None = None

    def add(self, buffers: Sequence[dict[str, Array]], begin: int, end: int) -> None:
        """Add draws of the sweeps from `begin` to `end`, in the buffers of each group of chains.

        Only the buffers of one chunk are held. `fetch` must therefore have run since the last call,
        or that chunk's draws are lost. `Driver` calls `fetch` while the next chunk runs, which is
        before it adds that chunk.
        """
        numbers = {}
        for name, buffer in buffers[0].items():
            kept = self.settings.scalars if buffer.ndim == 2 else self.settings.arrays
            numbers[name] = kept.number(end) - kept.number(begin)
        self._written = buffers, numbers

    def fetch(self) -> None:
        """Copy the draws that `add` holds to the host, if there are any."""
        if self._written is None:
            return
        (buffers, numbers), self._written = self._written, None
        if any(numbers.values()):
            fetched = [jax.device_get(of_group) for of_group in buffers]
            self.later.append({
                name: np.concatenate([b[name][: numbers[name]] for b in fetched], axis=1)
                for name in fetched[0]
            })  # fmt: skip

    def unsaved(self) -> Block | None:
        """Join the draws that are in no checkpoint, from the chains of all processes."""
        self.fetch()
        if self.later:
            self.later = [processes.gather(concatenate_draws(self.later), axis=1)]
        return self.later[0] if self.later else None

    def joined(self) -> Block:
        """Join all draws."""
        self.unsaved()
        return concatenate_draws(self.saved + self.later)

    def note_saved(self) -> None:
        """Record that a checkpoint has all draws."""
        self.saved, self.later = self.saved + self.later, []


def concatenate_draws(segments: Sequence[Block]) -> Block:
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
