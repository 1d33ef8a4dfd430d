"""Driver of chains: chunks of sweeps, capacity that grows and shrinks, kept draws, checkpoints."""

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
    Kept,
    Schedule,
    Stretch,
    advancing,
    capacity_of_starts,
    chain_keys_of,
    chunk_end,
    grow_chains,
    init_chains,
    one_draw,
    shrink_chains,
    slots_needed,
    slots_of_buffer,
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
from bnp_models.inference.run import Run, Settings, concatenate_draws, number_kept, scalars_kept
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import Growing, Model
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

NO_GROWTH_SHARE = 0.25
"""Share of the warm-up in which chains lose components of their initial states and get no more
slots. After it, slots that only the initial states needed are removed."""


class Task(NamedTuple):
    """Posterior from which the chains draw, and their key."""

    model: Model
    table: Records | Households
    conditions: StructuralZeros | Rules | None
    key: jax.Array


@dataclass(frozen=True)
class Execution:
    """Settings of the execution of chains. None of them changes a draw."""

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
    """Keys of a run: of starts, of sweeps, of new slots, and the one that it sets aside."""
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
        self.segments: list[dict[str, np.ndarray]] = []
        self.pending: list[dict[str, np.ndarray]] = []
        self.unfetched: tuple[list[Advanced], dict[str, int]] | None = None
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
            # With fewer, neither R-hat nor effective sample sizes can be computed.
            least = min(MIN_DRAWS * self.settings.parameters_every, self.settings.num_samples)
            self.first = self.settings.num_warmup + least * self.settings.thin
        with noted_signals() as noted, contextlib.closing(self.progress):
            with self._timed("compile"):
                self._start(begin)
                if begin is None:
                    self._check_draws()
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
                # The signal came during the last sweeps or their save; the next steps may take
                # long.
                raise Interrupted(int(stop), self.iteration, goal, True)
        if max_seconds is not None and goal < self.first:
            raise self._out_of_time(max_seconds)
        return self._finish(goal)

    def _start(self, begin: Run | Saved | None) -> None:
        """Initial states, or those of a checkpoint or a run; arrays go to their devices."""
        model, settings = self.model, self.settings
        # All chains of a superchain start from the same state.
        start = np.arange(settings.num_chains) // settings.superchain
        components = np.resize(settings.start_components, settings.num_chains)[start]
        starts = jnp.asarray(components, jnp.int32)
        keys = chain_keys_of(self.key_init, settings.num_chains)[start]
        self.data = self.place.data(self.data)
        if begin is None:
            self.states = [
                init_chains(model, self.data, keys, self.capacity, starts)
                for keys, starts in self.place.groups((keys, starts))
            ]
        else:
            init = partial(init_chains, model, capacity=self.capacity, starts=starts)
            like = jax.tree.structure(jax.eval_shape(init, self.data, keys))
            self.states = self.place.groups(self._restore(begin, like))
        # With the final placement, so that the sweep that is traced here is the one that is
        # compiled.
        self.available = jax.eval_shape(
            one_draw, model, self.data, self.chain_keys[0], self.states[0]
        )
        unknown = [name for name in settings.keep if name not in self.available]
        if unknown:
            known = ", ".join(sorted(self.available))
            raise ValueError(f"keep: no {unknown[0]!r}; there are {known}")

    def _restore(self, begin: Run | Saved, structure: jax.tree_util.PyTreeDef):
        """Continue from the end of a checkpoint or a run; return the states."""
        if isinstance(begin, Run):
            draws = begin.draws | {
                name: np.concatenate([early, begin.draws[name]], axis=1)
                for name, early in begin.warmup_draws.items()
            }
            self.segments = [{name: np.moveaxis(value, 1, 0) for name, value in draws.items()}]
            self.growth = list(begin.growth)
            self.iteration, self.capacity = begin.settings.num_sweeps, begin.capacity
            self.clock = dict(begin.seconds)
            return begin.state
        progress = begin.progress
        self.segments, self.growth = begin.segments, [tuple(pair) for pair in progress["growth"]]
        self.iteration, self.capacity = progress["iteration"], progress["capacity"]
        self.clock = progress["seconds"]
        return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in begin.state])

    def _check_draws(self) -> None:
        """Refuse draws that do not fit into memory; joining them needs twice their size."""
        settings, needed = self.settings, 0
        scalars = scalars_kept(settings.num_sweeps, settings)
        arrays = number_kept(settings.num_sweeps, settings, settings.parameters_every)
        for name in settings.keep:
            kept = self.available[name]
            each = settings.num_chains * math.prod(kept.shape[1:]) * kept.dtype.itemsize
            needed += 2 * each * (scalars if kept.ndim == 1 else arrays)
        check_kept("the draws", needed, "keep fewer of them (--draws, or --thin)")

    def _compile(self) -> None:
        """Trace and compile by a call with no sweeps, so that later times exclude compilation."""
        settings = self.settings
        available = {name: self.available[name] for name in settings.keep}
        self.slots = slots_of_buffer(available, settings.num_chains)
        program = advancing(options_of_loops(self.devices))
        schedule = Schedule(
            settings.num_warmup, self.growth_start, settings.thin, settings.parameters_every,
            settings.scalars_from,
        )  # fmt: skip
        given = {"schedule": schedule, "kept": Kept(settings.keep, self.slots)}
        of_chains = self.chain_keys[0], self.states[0], Stretch(self.iteration, self.iteration)
        if sum(leaf.nbytes for leaf in jax.tree.leaves((self.data, self.states))) >= LARGE:
            lowered = program.lower(self.model, self.data, *of_chains, **given)
            shared = len(self.states) if self.devices[0].platform == "cpu" else 1
            check_memory(lowered.compile(), self.devices[0], shared)
        self.advance = partial(program, self.model, self.data, **given)
        first = self.advance(*of_chains)
        jax.block_until_ready(first)

    def _advance(self, goal: int) -> bool:
        """Run a chunk of sweeps, keep it, and return whether a chain needs more slots."""
        settings, begin, began = self.settings, self.iteration, time.perf_counter()
        length = self.execution.chunk_sweeps
        stop = min(goal, chunk_end(begin, settings, self.slots, length, self.rate))
        stop = min(stop, self.growth_start) if begin < self.growth_start else stop
        groups = self._advance_groups(begin, stop)
        self.iteration = int(groups[0].reached)
        self.states = [group.states for group in groups]
        self.unfetched = groups, self._numbers_kept(begin)
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
        groups = self.place.run(advance, self.chain_keys, self.states, stops, meanwhile=self._fetch)
        (before_stop,) = processes.largest(stop - min(int(group.reached) for group in groups))
        reached = stop - int(before_stop)
        for number, group in enumerate(groups):
            if int(group.reached) > reached:
                groups[number] = advance(self.chain_keys[number], self.states[number], reached)
        return groups

    def _numbers_kept(self, begin: int) -> dict[str, int]:
        """Number of draws to keep since sweep `begin`, of scalars and of arrays."""
        settings = self.settings
        scalars = scalars_kept(self.iteration, settings) - scalars_kept(begin, settings)
        every = settings.parameters_every
        arrays = number_kept(self.iteration, settings, every) - number_kept(begin, settings, every)
        return {
            name: scalars if self.available[name].ndim == 1 else arrays for name in settings.keep
        }

    def _fetch(self) -> None:
        """Keep the draws of the last block, while the next one runs or before they are saved."""
        if self.unfetched is None:
            return
        (groups, numbers), self.unfetched = self.unfetched, None
        if any(numbers.values()):
            buffers = [jax.device_get(group.buffers) for group in groups]
            self.pending.append({
                name: np.concatenate([b[name][: numbers[name]] for b in buffers], axis=1)
                for name in buffers[0]
            })  # fmt: skip

    def _grow(self) -> None:
        """Double the number of slots of every chain."""
        with self._timed("compile"):
            self.capacity *= 2
            self.growth.append((self.iteration, self.capacity))
            key = jax.random.fold_in(self.key_grow, self.iteration)
            keys = chain_keys_of(key, self.settings.num_chains)
            self.states = [
                grow_chains(self.model, keys, states, self.data, self.capacity)
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
                    shrink_chains(self.model, states, self.data, capacity) for states in self.states
                ]
                self._compile()

    def _save(self, store: Checkpoint, rewrite: bool) -> None:
        """Save the states and the draws since the last checkpoint, or all of them."""
        self._gather_pending()
        merged = self.pending[0] if self.pending else None
        everything = concatenate_draws(self.segments + self.pending) if rewrite else merged
        progress = {
            "iteration": self.iteration,
            "capacity": self.capacity,
            "growth": self.growth,
            "seconds": self.clock,
        }
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(join_groups(self.states))]
        store.save(progress, leaves, everything, replace=rewrite)
        if merged is not None:
            self.segments.append(merged)
        self.pending = []

    def _gather_pending(self) -> None:
        """Join the draws since the last block, from the chains of all processes, into one block."""
        self._fetch()
        if self.pending:
            self.pending = [processes.gather(concatenate_draws(self.pending), axis=1)]

    def _finish(self, goal: int) -> Run:
        """Make the run, with the number of its draws in the settings."""
        self._gather_pending()
        settings = self.settings
        if goal < settings.num_sweeps:
            discarded = settings.num_discarded // settings.thin
            settings = replace(settings, num_samples=number_kept(goal, settings) - discarded)
        draws = {
            name: np.moveaxis(value, 0, 1)
            for name, value in concatenate_draws(self.segments + self.pending).items()
        }
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
        """Sweep of the last draw; if the time is used up, of the next draw, or the present one."""
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
        return OutOfTime(max_seconds / 60, self.iteration, self.first, needed)

    @contextlib.contextmanager
    def _timed(self, part: str):
        """Add the seconds of the enclosed code to one part of the clock."""
        began = time.perf_counter()
        yield
        (elapsed,) = processes.largest(time.perf_counter() - began)
        self.clock[part] += elapsed
