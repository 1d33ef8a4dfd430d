"""Driver of chains: chunks of sweeps, capacity that grows and shrinks, checkpoints.

If the number of components of a model is fixed (it is not `Growing`), its capacity never changes.
Then `_advance` returns False, because nothing is left over; `_grow` is never called, `_shrink`
returns at once, and `growth_start` and `growth` stay 0 and empty. Skip them when you read on for
such a model.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import Checkpoint, Saved
from bnp_models.inference.chunks import (
    Advanced,
    Stretch,
    advancing,
    capacity_of_starts,
    chain_keys_of,
    grow_chains,
    init_chains,
    one_draw,
    shrink_chains,
    slots_needed,
)
from bnp_models.inference.compilation import (
    LARGE,
    check_kept,
    check_memory,
    forget_programs,
    options_of_loops,
)
from bnp_models.inference.convergence import MIN_DRAWS
from bnp_models.inference.interruption import Interrupted, OutOfTime, noted_signals
from bnp_models.inference.placement import Placement, describe_devices, join_groups
from bnp_models.inference.progress import Monitor, Progress, Tell
from bnp_models.inference.run import Run
from bnp_models.inference.trace import Kept, Schedule, Settings, Trace, chunk_end, slots_for_arrays
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import Growing, Model
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

NO_GROWTH_SHARE = 0.25
"""Share of the warm-up in which chains lose components of their initial states and get no more
slots. After it, slots that only the initial states needed are removed."""

_CHUNK_SECONDS, _FIRST_CHUNK = 0.5, 8
"""Seconds that a chunk of sweeps should take, and sweeps of the first one."""


class Task(NamedTuple):
    """Posterior from which the chains draw, and their key."""

    model: Model
    table: Records | Households
    conditions: StructuralZeros | Rules | None
    key: jax.Array


@dataclass(frozen=True)
class Execution:
    """Settings of the execution of chains; they do not change the draws."""

    store: Checkpoint | None = None
    """Folder that checkpoints are saved in."""
    devices: Sequence[jax.Device] | None = None
    """Devices to use; None: all."""
    checkpoint_seconds: float = 10.0
    """Least time between checkpoints."""
    chunk_sweeps: int | None = None
    """Sweeps between returns to Python; None: as many as take about half a second."""
    progress: bool | Tell = False
    """Whether a progress bar is shown on stderr; or a function that gets one sentence a minute."""
    monitor: Monitor | None = None
    """More figures for the bar."""

    def __post_init__(self):
        if self.chunk_sweeps is not None and self.chunk_sweeps < 1:
            raise ValueError(f"chunk_sweeps must be positive, not {self.chunk_sweeps}")


def keys_of(key: jax.Array) -> Keys:
    """Keys of a run, in this order: initial states, sweeps, new slots, and `Run.key`."""
    return Keys(key, 4)


class Driver:
    """Chains and their progress to the last draw; a driver is used for one `run`.

    Parameters
    ----------
    task
        The posterior, and the key of all randomness.
    settings
        Chains, sweeps, and what is kept.
    execution
        Devices, checkpoints and display of progress.
    """

    def __init__(self, task: Task, settings: Settings, execution: Execution):
        self.task, self.settings, self.execution = task, settings, execution
        self.model = task.model
        self.data = self.model.prepare(task.table, task.conditions)
        devices = execution.devices
        self.devices = jax.local_devices() if devices is None else list(devices)
        self.place = Placement(settings.num_chains, self.data, self.devices)
        self.key_init, key_sweeps, self.key_grow, self.key_risk = keys_of(task.key)
        self.chain_keys = self.place.groups(chain_keys_of(key_sweeps, settings.num_chains))

        shown = execution.progress if processes.is_first() else False
        self.progress = Progress(shown, execution.monitor, settings.num_chains)
        self.clock = {"compile": 0.0, "warmup": 0.0, "draws": 0.0}
        self.iteration = 0
        self.capacity = capacity_of_starts(self.model, settings, task.table.n)
        self.growth: list[tuple[int, int]] = []
        self.trace = Trace(settings)
        self.rate: float | None = None
        self.first = 0
        growing = isinstance(self.model, Growing)
        self.growth_start = int(settings.num_warmup * NO_GROWTH_SHARE) if growing else 0

    def run(
        self,
        begin: Run | Saved | None = None,
        max_seconds: float | None = None,
        rewrite: bool = False,
    ) -> Run:
        """Run the chains from a start, a checkpoint or an earlier run to the last draw.

        Parameters
        ----------
        begin
            The checkpoint or the run from which to continue; None to start new chains.
        max_seconds
            Seconds on the run's clock after which to stop at the next draw; None: no limit.
        rewrite
            Whether the first save replaces all draws in the store.

        Raises
        ------
        OutOfTime
            If the seconds are used up, and there are too few draws to judge.
        Interrupted
            If a signal came.
        """
        forget_programs()
        if not isinstance(begin, Run):
            # With fewer than MIN_DRAWS draws, R-hat and effective sample sizes are undefined.
            least = min(MIN_DRAWS * self.settings.parameters_every, self.settings.num_samples)
            self.first = self.settings.num_warmup + least * self.settings.thin
        with noted_signals() as noted, contextlib.closing(self.progress):
            with self._timed("compile"):
                self._start(begin)
                if begin is None:
                    self._check_draws()
            goal = self._goal(max_seconds)
            if self.iteration < goal:
                with self._timed("compile"):
                    self._compile()
                goal = self._goal(max_seconds)
            if max_seconds is not None:
                self.progress.seconds_left = max_seconds - sum(self.clock.values())
            last_save = time.perf_counter()
            while self.iteration < goal:
                overflow = self._advance(goal)
                if overflow:
                    self._grow()
                elif self.iteration in (self.growth_start, self.settings.num_warmup):
                    self._shrink()
                goal = self._goal(max_seconds)
                since, stop = processes.largest(time.perf_counter() - last_save, noted())
                due = since > self.execution.checkpoint_seconds or self.iteration >= goal or stop
                if self.execution.store is not None and due:
                    self._save(self.execution.store, rewrite)
                    last_save, rewrite = time.perf_counter(), False
                if stop and self.iteration < goal:
                    saved = self.execution.store is not None
                    raise Interrupted(int(stop), self.iteration, goal, saved)
            (stop,) = processes.largest(noted())
            if stop and self.execution.store is not None:
                # The signal came during the last sweeps or while they were saved. The run stops
                # here, because the steps that follow may take long.
                raise Interrupted(int(stop), self.iteration, goal, True)
        if max_seconds is not None and goal < self.first:
            raise self._out_of_time(max_seconds)
        return self._finish(goal)

    def _start(self, begin: Run | Saved | None) -> None:
        """Set the states: new ones, or those of a checkpoint or a run; place arrays on devices."""
        model, settings = self.model, self.settings
        # All chains of a superchain start from the same state.
        start = np.arange(settings.num_chains) // settings.superchain
        components = np.resize(settings.start_components, settings.num_chains)[start]
        starts = jnp.asarray(components, jnp.int32)
        keys = chain_keys_of(self.key_init, settings.num_chains)[start]
        self.data = self.place.data(self.data)
        if begin is None:
            self.states = [
                # States are placed explicitly, because JAX puts arrays that depend on neither data
                # nor key on its default device.
                self.place.group(init_chains(model, self.data, keys, self.capacity, starts))
                for keys, starts in self.place.groups((keys, starts))
            ]
        else:
            init = partial(init_chains, model, capacity=self.capacity, starts=starts)
            like = jax.tree.structure(jax.eval_shape(init, self.data, keys))
            self.states = self.place.groups(self._restore(begin, like))
        # This traces a sweep, to learn the shapes of what it keeps. The states are on their devices
        # already, because `_compile` can use this trace again only if it finds them there.
        self.available = jax.eval_shape(
            one_draw, model, self.data, self.chain_keys[0], self.states[0]
        )
        unknown = [name for name in settings.keep if name not in self.available]
        if unknown:
            known = ", ".join(sorted(self.available))
            raise ValueError(f"keep: the model has no {unknown[0]!r}; it has {known}")

    def _restore(self, begin: Run | Saved, structure: jax.tree_util.PyTreeDef):
        """Continue from the end of a checkpoint or a run; return the states."""
        if isinstance(begin, Run):
            draws = begin.draws | {
                name: np.concatenate([early, begin.draws[name]], axis=1)
                for name, early in begin.warmup_draws.items()
            }
            self.trace.saved = [{name: np.moveaxis(x, 1, 0) for name, x in draws.items()}]
            self.growth = list(begin.growth)
            self.iteration, self.capacity = begin.settings.num_sweeps, begin.capacity
            self.clock = dict(begin.seconds)
            return begin.state
        progress = begin.progress
        self.trace.saved = begin.segments
        self.growth = [tuple(pair) for pair in progress["growth"]]
        self.iteration, self.capacity = progress["iteration"], progress["capacity"]
        self.clock = progress["seconds"]
        return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in begin.state])

    def _check_draws(self) -> None:
        """Refuse draws that do not fit into memory; joining them needs twice their size."""
        settings, needed = self.settings, 0
        for draw in map(self.available.get, settings.keep):
            kept = settings.scalars if draw.ndim == 1 else settings.arrays
            each = settings.num_chains * math.prod(draw.shape[1:]) * draw.dtype.itemsize
            needed += 2 * each * kept.number(settings.num_sweeps)
        check_kept("the draws", needed, "keep fewer of them (--draws, or --thin)")

    def _compile(self) -> None:
        """Trace and compile by a call with no sweeps, so that later times exclude compilation."""
        settings = self.settings
        available = {name: self.available[name] for name in settings.keep}
        self.slots = slots_for_arrays(available, settings.num_chains)
        program = advancing(options_of_loops(self.devices))
        schedule = Schedule(
            settings.num_warmup, self.growth_start, settings.scalars, settings.arrays
        )
        given = {"schedule": schedule, "kept": Kept(settings.keep, self.slots)}
        of_chains = self.chain_keys[0], self.states[0], Stretch(self.iteration, self.iteration)
        if sum(leaf.nbytes for leaf in jax.tree.leaves((self.data, self.states))) >= LARGE:
            lowered = program.lower(self.model, self.data, *of_chains, **given)
            shared = len(self.states) if self.devices[0].platform == "cpu" else 1
            check_memory(lowered.compile(), self.devices[0], shared)
        self.advance = partial(program, self.model, self.data, **given)
        with self.progress.compiling():
            jax.block_until_ready(self.advance(*of_chains))

    def _advance(self, goal: int) -> bool:
        """Run a chunk of sweeps, keep it, and return whether a chain needs more slots."""
        settings, begin, began = self.settings, self.iteration, time.perf_counter()
        length = _FIRST_CHUNK if self.rate is None else max(1, int(self.rate * _CHUNK_SECONDS))
        length = self.execution.chunk_sweeps or length
        stop = min(goal, chunk_end(begin, settings, self.slots, length))
        stop = min(stop, self.growth_start) if begin < self.growth_start else stop
        groups = self._advance_groups(begin, stop)
        self.iteration = int(groups[0].reached)
        self.states = [group.states for group in groups]
        self.trace.add([group.buffers for group in groups], begin, self.iteration)
        overflow, elapsed = processes.largest(
            any(bool(group.overflow) for group in groups), time.perf_counter() - began
        )
        self.clock["warmup" if begin < settings.num_warmup else "draws"] += elapsed
        self.rate = (self.iteration - begin) / elapsed
        self.progress.update(self.iteration, goal, settings.num_warmup, lambda: {
            name: np.concatenate([group.buffers[name][group.last[name]] for group in groups])
            for name in groups[0].buffers
        })  # fmt: skip
        return bool(overflow)

    def _advance_groups(self, begin: int, stop: int) -> list[Advanced]:
        """Advance all groups of chains to one sweep: `stop`, or the first that needs more slots."""

        def advance(keys, states, stop):
            return self.advance(keys, states, Stretch(begin, stop))

        stops = [stop] * len(self.states)
        groups = self.place.run(
            advance, self.chain_keys, self.states, stops, meanwhile=self.trace.fetch
        )
        (before_stop,) = processes.largest(stop - min(int(group.reached) for group in groups))
        reached = stop - int(before_stop)
        for number, group in enumerate(groups):
            if int(group.reached) > reached:
                groups[number] = advance(self.chain_keys[number], self.states[number], reached)
        return groups

    def _grow(self) -> None:
        """Double the number of slots of every chain."""
        with self._timed("compile"):
            self.capacity *= 2
            self.growth.append((self.iteration, self.capacity))
            key = jax.random.fold_in(self.key_grow, self.iteration)
            keys = chain_keys_of(key, self.settings.num_chains)
            self.states = [
                self.place.group(grow_chains(self.model, keys, states, self.data, self.capacity))
                for keys, states in zip(self.place.groups(keys), self.states, strict=True)
            ]
            self._compile()

    def _shrink(self) -> None:
        """Remove slots that no chain needs, at two fixed points of the warm-up."""
        if not isinstance(self.model, Growing):
            return
        with self._timed("compile"):
            needed = [slots_needed(self.model, states, self.data) for states in self.states]
            (most,) = processes.largest(max(map(float, needed)))
            least, capacity = max(self.model.capacity, most), self.capacity
            while capacity // 2 >= least:
                capacity //= 2
            if capacity < self.capacity:
                self.capacity = capacity
                self.states = [
                    self.place.group(shrink_chains(self.model, states, self.data, capacity))
                    for states in self.states
                ]
                self._compile()

    def _save(self, store: Checkpoint, rewrite: bool) -> None:
        """Save the states and the draws since the last checkpoint, or all of them."""
        draws = self.trace.joined() if rewrite else self.trace.unsaved()
        progress = {
            "iteration": self.iteration,
            "capacity": self.capacity,
            "growth": self.growth,
            "seconds": self.clock,
        }
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(join_groups(self.states))]
        store.save(progress, leaves, draws, replace=rewrite)
        self.trace.note_saved()

    def _finish(self, goal: int) -> Run:
        """Make the run, with the number of its draws in the settings."""
        settings = self.settings
        if goal < settings.num_sweeps:
            made = (goal - settings.num_warmup - settings.num_discarded) // settings.thin
            settings = replace(settings, num_samples=made)
        draws = {name: np.moveaxis(value, 0, 1) for name, value in self.trace.joined().items()}
        early = settings.num_warmup_draws
        scalars = {name: value for name, value in draws.items() if value.ndim == 2}
        return Run(
            model=self.model,
            table=self.task.table,
            settings=settings,
            draws=draws | {name: value[:, early:] for name, value in scalars.items()},
            warmup_draws={name: value[:, :early] for name, value in scalars.items() if early},
            key=self.key_risk,
            state=join_groups(self.states),
            capacity=self.capacity,
            growth=tuple(self.growth),
            conditions=self.task.conditions,
            seconds=self.clock,
            device=describe_devices(self.devices * jax.process_count()),
            origin=self.task.key,
        )

    def _goal(self, max_seconds: float | None) -> int:
        """Sweep at which the chains stop: that of the last draw, while there is time.

        When the time is used up, it is that of the next draw, or the present one if there are too
        few draws to judge.
        """
        settings = self.settings
        if max_seconds is None or sum(self.clock.values()) < max_seconds:
            return settings.num_sweeps
        if self.iteration < self.first:
            return self.iteration
        number = -(-max(self.iteration - settings.num_warmup, 1) // settings.thin)
        return min(settings.num_warmup + number * settings.thin, settings.num_sweeps)

    def _out_of_time(self, max_seconds: float) -> OutOfTime:
        """Error of a run whose time is used up before there are draws to judge."""
        needed = None
        if self.rate is not None:
            left = (self.first - self.iteration) / self.rate
            needed = (sum(self.clock.values()) + left) / 60
        minutes, compiling = max_seconds / 60, self.clock["compile"] / 60
        return OutOfTime(minutes, self.iteration, self.first, needed, compiling)

    @contextlib.contextmanager
    def _timed(self, part: str):
        """Add the seconds of the enclosed code to one part of the clock."""
        began = time.perf_counter()
        yield
        (elapsed,) = processes.largest(time.perf_counter() - began)
        self.clock[part] += elapsed
