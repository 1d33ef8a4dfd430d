"""The sampling driver: any model's chains, compiled inside, a Python loop outside.

A model gives ``prepare``, ``init``, ``sweep``, ``keep``, ``grow`` and ``record_axes``, and may give
``settle``, which follows each sweep of warm-up (see `bnp_models.hdp.HDPMixedMembership` and
`bnp_models.nplcm.TNPLCM`); the driver gives several chains by vmap, sharding over the
devices there are, capacity that grows, kept draws on the host, checkpoints and exact resume. The
key of chain c at sweep t is ``fold_in(fold_in(key, c), t)``, so that draws depend neither on the
devices nor on where the run was cut into chunks: a run that is extended has the draws of a longer
one, and `sample_until` is a loop of extensions.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tqdm import tqdm

from bnp_models.checkpoint import Checkpoint, Saved
from bnp_models.equivalences import Coding
from bnp_models.households import Households
from bnp_models.microdata import Microdata
from bnp_models.rules import Rules
from bnp_models.version import __version__
from bnp_models.zeros import StructuralZeros

# The capacity grows when a sweep leaves more mass than this unrepresented; in the first half of
# warm-up, which starts from many components on purpose, when it leaves more than the second.
LEFT_OVER_TOLERANCE = 1e-6
EARLY_LEFT_OVER_TOLERANCE = 1e-3

# Aimed at: the bytes of one chunk's kept draws on the device, and its seconds.
_BUFFER_BYTES = 32 * 2**20
_MAX_SLOTS = 64
_CHUNK_SECONDS = 0.5

_DRAWS_AT_ONCE = 16

EARLY_SHARE = 0.25
"""Share of the warm-up after which slots that only the starts needed are given back."""

# A run that goes on until it has converged keeps at most so many times its first draws.
KEPT_AT_MOST = 4

_MAX_SWEEPS = 2**31


@dataclass(frozen=True)
class Settings:
    """What was asked of the chains."""

    num_chains: int
    num_warmup: int
    num_samples: int
    thin: int
    keep: tuple[str, ...]
    start_components: tuple[int, ...]
    parameters_every: int = 1
    """Draws for one of which arrays, such as level probabilities, are kept."""

    def __post_init__(self):
        for name, least in (
            ("num_chains", 1), ("num_warmup", 0), ("num_samples", 1), ("thin", 1),
            ("parameters_every", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        if self.num_sweeps >= _MAX_SWEEPS:
            raise ValueError("more than 2**31 sweeps: lower num_samples or thin")
        if not self.start_components or min(self.start_components) < 1:
            raise ValueError("start_components needs positive numbers of components")

    @property
    def num_sweeps(self) -> int:
        """Sweeps of one chain, warm-up included."""
        return self.num_warmup + self.num_samples * self.thin


@dataclass(frozen=True)
class Until:
    """What was asked of a run of `sample_until`."""

    target: Callable[["Run"], bool]
    """Whether a run will do."""
    max_minutes: float
    """The minutes after which the chains stop, wherever they are."""
    first: Settings
    """The settings of the first draws; those of the run have more draws, or a larger `thin`."""


@dataclass(frozen=True, eq=False)
class Run:
    """The chains of one model on one sample."""

    model: object
    table: Microdata
    settings: Settings
    draws: dict[str, np.ndarray]
    """Kept quantities, each (chains, draws); arrays, of every `settings.parameters_every`-th draw,
    (chains, draws // parameters_every, ...)."""
    key: jax.Array
    """A key that the chains have not used, for what is computed from the draws."""
    state: object
    """State of the chains after the last sweep; the leading axis is the chain."""
    capacity: int
    """Slots for components at the end."""
    growth: tuple[tuple[int, int], ...]
    """(sweep, new capacity) of each growth."""
    conditions: StructuralZeros | None = None
    """The structural zeros that the model kept to."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds: compile, warmup, draws."""
    device: str = ""
    origin: jax.Array | None = None
    """The key that `sample` was given, from which that of every sweep follows."""
    until: Until | None = None
    """Of a run of `sample_until`: its target."""

    @property
    def sweeps_per_second(self) -> float:
        """Sweeps of all chains over the seconds after compilation."""
        elapsed = self.seconds["warmup"] + self.seconds["draws"]
        return self.settings.num_chains * self.settings.num_sweeps / max(elapsed, 1e-9)

    def parameters(self, thin: int = 1) -> dict[str, np.ndarray]:
        """What the model's functions of one draw read, each (chains, draws, ...).

        Parameters
        ----------
        thin
            Take every `thin`-th of the draws of which arrays were kept.

        Raises
        ------
        ValueError
            If the run did not keep them.
        """
        names = dict.fromkeys((*self.model.parameters, "alpha"))
        missing = [name for name in names if name not in self.draws]
        if missing:
            raise ValueError(f"the run did not keep {missing[0]!r}; sample with keep=None")
        every = self.settings.parameters_every
        kept = {name: self.draws[name] for name in names}
        kept = {name: x[:, every - 1 :: every] if x.ndim == 2 else x for name, x in kept.items()}
        return {name: values[:, ::thin] for name, values in kept.items()}

    @property
    def coding(self) -> Coding | None:
        """How the model sees the records, where that is not as they are."""
        return coding_of(self.model, self.conditions)

    @property
    def num_levels(self) -> tuple[int, ...]:
        """Levels of each variable, as the model sees them."""
        schema = self.table.schema if self.coding is None else self.coding.schema
        return schema.num_levels

    @property
    def feasible_sets(self) -> np.ndarray | None:
        """(B, R) sets of levels of the feasible boxes, as the model sees them; None: all cells."""
        conditions = self.conditions if self.coding is None else self.coding.conditions
        return None if conditions is None else conditions.feasible.sets

    def thinned(self, by: int = 2) -> "Run":
        """The run that `sample` would have made with `thin` larger by this factor.

        Every `by`-th draw is kept, the last one among them; nothing else changes.

        Raises
        ------
        ValueError
            If the number of draws is no multiple of `by`.
        """
        if by < 1 or self.settings.num_samples % by:
            raise ValueError(
                f"{self.settings.num_samples} draws cannot be thinned by {by}: not a multiple"
            )
        settings = _thinned(self.settings, by, self.settings.num_samples // by)
        sparser = settings.parameters_every * by // self.settings.parameters_every
        draws = {
            name: value[:, step - 1 :: step].copy()
            for name, value in self.draws.items()
            for step in (by if value.ndim == 2 else sparser,)
        }
        return replace(self, settings=settings, draws=draws)

    def to_inference_data(self):
        """The draws for ArviZ: InferenceData on 0.2x, an xarray DataTree on 1.x.

        See `bnp_models.export.to_inference_data`.
        """
        from bnp_models.export import to_inference_data

        return to_inference_data(self)


def sample(
    model,
    table: Microdata,
    *,
    key: jax.Array,
    conditions: StructuralZeros | None = None,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thin: int = 1,
    keep: Sequence[str] | None = None,
    start_components: Sequence[int] | None = None,
    parameters_every: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    chunk_sweeps: int | None = None,
    progress: bool = False,
    monitor: Callable[[dict[str, np.ndarray]], dict[str, float]] | None = None,
) -> Run:
    """Run a model's Gibbs chains.

    Parameters
    ----------
    model
        For example `bnp_models.HDPMixedMembership()`.
    table
        The coded sample; without missing values, unless the model draws them (NPLCM, TNPLCM).
    key
        A `jax.random.key`; the same key gives the same draws on one device or eight, resumed or
        not, whatever the chunks.
    conditions
        Structural zeros, for a model that takes them (TNPLCM); no record may fall in one.
    num_chains, num_warmup, num_samples, thin
        Chains; sweeps before the first draw; draws kept per chain; sweeps per kept draw.
    keep
        Names of what is kept of each draw, from the model's ``scalars`` and ``parameters`` or
        any other name that its ``keep`` offers (such as "z"). Default: scalars and parameters,
        which `population_risk` needs.
    start_components
        Components of the chains' initial states, cycled over the chains; default as the model
        recommends. Scattered starts are what R-hat needs to see a second mode.
    parameters_every
        Keep arrays, such as level probabilities, of every so many draws only; scalars are kept of
        all. Default: of all, or as the model says whose arrays are large.
    devices
        Devices to use; default all of `jax.devices()`. Chains are sharded first, then records.
    checkpoint
        Folder for checkpoints. With `resume`, the run continues from the last one there.
    checkpoint_seconds
        Least time between checkpoints.
    chunk_sweeps
        Sweeps between returns to Python; default as many as take about half a second.
    progress
        Show a progress bar on stderr.
    monitor
        Called with the latest kept quantities, each (chains, ...), while the bar is shown;
        returns more figures for it.

    Raises
    ------
    ValueError
        On settings out of range, an unknown name in `keep`, missing values or conditions that the
        model does not take, a record in a structural zero, or a checkpoint of another run.
    """
    settings = _settings(
        model, num_chains, num_warmup, num_samples, thin, keep, start_components, parameters_every
    )
    check_input(model, table, conditions)
    store = saved = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, _fingerprint(model, table, conditions, settings, key))
        saved = store.load() if resume else store.clear()
    return _advance_to(
        _Task(model, table, conditions, key), settings, saved, store=store, devices=devices,
        checkpoint_seconds=checkpoint_seconds, chunk_sweeps=chunk_sweeps, progress=progress,
        monitor=monitor,
    )  # fmt: skip


def extend(
    run: Run,
    num_samples: int,
    *,
    max_seconds: float | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 10.0,
    chunk_sweeps: int | None = None,
    progress: bool = False,
    monitor: Callable[[dict[str, np.ndarray]], dict[str, float]] | None = None,
) -> Run:
    """Go on with a finished run: the draws are those that a longer `sample` would have made.

    Parameters
    ----------
    run
        Chains of `sample`, on the same kind of device.
    num_samples
        Draws to add to each chain.
    max_seconds
        Stop at the first draw after which `run.seconds`, those before the extension included, are
        more; there are then fewer draws. Default: no limit.
    checkpoint
        Folder for checkpoints, of which earlier ones are removed; ``sample(num_samples=...,
        resume=True)`` with the number of all draws goes on from them.
    devices, checkpoint_seconds, chunk_sweeps, progress, monitor
        As for `sample`.

    Raises
    ------
    ValueError
        If `num_samples` is out of range, or the run does not hold the key that made it.
    """
    if run.origin is None:
        raise ValueError("the run does not hold the key that made it: it cannot be extended")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    settings = replace(run.settings, num_samples=run.settings.num_samples + num_samples)
    task = _Task(run.model, run.table, run.conditions, run.origin)
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, _fingerprint(*task[:3], settings, run.origin))
        store.clear()
    return _advance_to(
        task, settings, run, store=store, devices=devices, max_seconds=max_seconds, rewrite=True,
        checkpoint_seconds=checkpoint_seconds, chunk_sweeps=chunk_sweeps, progress=progress,
        monitor=monitor,
    )  # fmt: skip


def sample_until(
    target: Callable[[Run], bool],
    model,
    table: Microdata,
    *,
    key: jax.Array,
    max_minutes: float = 60.0,
    conditions: StructuralZeros | None = None,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thin: int = 1,
    keep: Sequence[str] | None = None,
    start_components: Sequence[int] | None = None,
    parameters_every: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    chunk_sweeps: int | None = None,
    progress: bool = False,
    monitor: Callable[[dict[str, np.ndarray]], dict[str, float]] | None = None,
) -> Run:
    """Run a model's chains until a target is reached or the minutes are used up.

    After the warm-up and the first `num_samples` draws, which are always made, the target is asked;
    if it is not reached, the chains double their draws, and so on. Asking it again and again costs
    at most as much as asking it once more of all draws.

    Parameters
    ----------
    target
        Whether a run will do, such as `bnp_models.Converged(max_rhat=1.01)`. A function of the
        draws alone, so that a resumed run stops where another one does.
    max_minutes
        Of ``run.seconds`` (compilation, warm-up and draws; before a resume too), after which the
        chains stop at the next draw. What `target` takes is not counted.
    num_samples, thin
        Draws of each chain before the target is first asked, and sweeps per draw.
    checkpoint
        Folder for checkpoints. With `resume`, the run continues from the last one there; with a
        larger `max_minutes`, also one that had used up its minutes.
    conditions, num_chains, num_warmup, keep, start_components, parameters_every, devices, \
    checkpoint_seconds, chunk_sweeps, progress, monitor
        As for `sample`.

    Returns
    -------
    run
        Its `until` holds the target. Its draws are those of
        ``sample(num_samples=run.settings.num_samples, thin=run.settings.thin, ...)``.

    Raises
    ------
    ValueError
        As `sample`.

    Notes
    -----
    Memory is bounded: a chain keeps at most four times its first draws. Before it would keep more,
    every second draw is let go (`Run.thinned`) and `thin` doubles from there on.
    """
    first = _settings(
        model, num_chains, num_warmup, num_samples, thin, keep, start_components, parameters_every
    )
    if not max_minutes > 0:
        raise ValueError(f"max_minutes must be positive, not {max_minutes}")
    check_input(model, table, conditions)
    store = saved = None
    if checkpoint is not None:
        fingerprint = _fingerprint(model, table, conditions, first, key)
        store = Checkpoint(checkpoint, f"until-{fingerprint}")
        saved = store.load() if resume else store.clear()
    task, max_seconds = _Task(model, table, conditions, key), 60 * max_minutes
    options = {
        "store": store, "devices": devices, "checkpoint_seconds": checkpoint_seconds,
        "chunk_sweeps": chunk_sweeps, "progress": progress, "monitor": monitor,
    }  # fmt: skip
    here = _round(first, 0 if saved is None else saved.progress["iteration"])
    limit = max_seconds if here != first else None
    asked = Until(target, float(max_minutes), first)
    run = _advance_to(task, here, saved, max_seconds=limit, **options)
    while True:
        run = replace(run, until=asked)
        used_up = sum(run.seconds.values()) >= max_seconds
        further = _round(first, run.settings.num_sweeps + 1)
        if used_up or further is None or target(run):
            return run
        by = further.thin // run.settings.thin
        run = run if by == 1 else run.thinned(by)
        run = _advance_to(task, further, run, max_seconds=max_seconds, rewrite=by > 1, **options)


def _round(first: Settings, iteration: int) -> Settings | None:
    """The settings of the round in which a sweep lies; None where there would be too many sweeps.

    Rounds end after 1, 2, 4, .. times the first draws, thinned so as not to be too many.
    """
    times = 1
    while first.num_warmup + times * first.num_samples * first.thin < iteration:
        times *= 2
    if first.num_warmup + times * first.num_samples * first.thin >= _MAX_SWEEPS:
        return None
    by = max(1, times // KEPT_AT_MOST)
    return _thinned(first, by, first.num_samples * times // by)


def _thinned(settings: Settings, by: int, num_samples: int) -> Settings:
    """Fewer draws, those that are kept of them being among the old ones."""
    every = math.lcm(settings.parameters_every, by) // by
    return replace(
        settings, num_samples=num_samples, thin=settings.thin * by, parameters_every=every
    )


class _Task(NamedTuple):
    """Whose chains."""

    model: object
    table: Microdata
    conditions: StructuralZeros | None
    key: jax.Array


def _settings(
    model, num_chains, num_warmup, num_samples, thin, keep, start_components, parameters_every
):
    keep = tuple(keep) if keep is not None else model.scalars + model.parameters
    if parameters_every is None:
        parameters_every = min(getattr(model, "parameters_every", 1), max(num_samples, 1))
    start_components = model.start_components if start_components is None else start_components
    start_components = tuple(int(c) for c in start_components)
    return Settings(
        num_chains, num_warmup, num_samples, thin, keep, start_components, parameters_every
    )


def _advance_to(
    task: _Task,
    settings: Settings,
    begin: Run | Saved | None,
    *,
    store: Checkpoint | None,
    devices,
    checkpoint_seconds,
    chunk_sweeps,
    progress,
    monitor,
    max_seconds: float | None = None,
    rewrite: bool = False,
) -> Run:
    """The chains from a start, a checkpoint or an earlier run to the last of these settings' draws.

    With `max_seconds`, to the first draw after it. With `rewrite`, the store does not hold the
    earlier draws as they are now.
    """
    if chunk_sweeps is not None and chunk_sweeps < 1:
        raise ValueError(f"chunk_sweeps must be positive, not {chunk_sweeps}")
    model, table, conditions, key = task
    num_chains, num_warmup, keep = settings.num_chains, settings.num_warmup, settings.keep
    data = prepared(model, table, conditions)
    devices = list(devices) if devices is not None else jax.devices()
    place = _Placement(model, num_chains, data, devices)
    key_init, key_sweeps, key_grow, key_risk = jax.random.split(key, 4)
    chain_keys = _chain_keys(key_sweeps, num_chains)
    starts = jnp.asarray([settings.start_components[c % len(settings.start_components)]
                          for c in range(num_chains)], jnp.int32)  # fmt: skip

    clock = {"compile": 0.0, "warmup": 0.0, "draws": 0.0}
    began = time.perf_counter()
    first_capacity = _first_capacity(model, settings, table.n)
    capacity, growth, iteration, segments = first_capacity, [], 0, []
    start = partial(_init_chains, capacity=capacity, starts=starts)
    fresh = (model, data, _chain_keys(key_init, num_chains))
    states = start(*fresh) if begin is None else jax.eval_shape(start, *fresh)
    available = jax.eval_shape(_one_draw, model, data, chain_keys, states)
    unknown = [name for name in keep if name not in available]
    if unknown:
        raise ValueError(f"keep: no {unknown[0]!r}; there are {', '.join(sorted(available))}")
    if isinstance(begin, Saved):
        segments = begin.segments
        iteration, capacity = begin.progress["iteration"], begin.progress["capacity"]
        growth = [tuple(pair) for pair in begin.progress["growth"]]
        clock = begin.progress["seconds"]
        states = jax.tree.unflatten(
            jax.tree.structure(states), [jnp.asarray(leaf) for leaf in begin.state]
        )
    elif begin is not None:
        segments = [{name: np.moveaxis(value, 1, 0) for name, value in begin.draws.items()}]
        iteration, capacity = begin.settings.num_sweeps, begin.capacity
        growth, clock, states = list(begin.growth), dict(begin.seconds), begin.state
    data, states = place.data(data), place.state(states)

    every = settings.parameters_every
    slots = _num_slots({name: available[name] for name in keep}, num_chains, every)
    early_end = int(num_warmup * EARLY_SHARE) if first_capacity > model.capacity else 0
    # Until the starts have shed their components: a plainer sweep, which is compiled sooner.
    sweeper = model.early() if iteration < early_end else model
    advance = partial(
        _advance, warmup=num_warmup, thin=settings.thin, keep=keep, slots=slots, every=every,
        patience=early_end,
    )  # fmt: skip
    # No sweep at all: this call traces and compiles, so that the clock of the others is clean.
    states = advance(sweeper, data, chain_keys, states, iteration, iteration)[1]
    jax.block_until_ready(states)
    clock["compile"] += time.perf_counter() - began

    goal, rate = _goal(iteration, settings, clock, max_seconds), None
    pending: list[dict[str, np.ndarray]] = []
    last_save = time.perf_counter()
    bar = tqdm(
        total=goal, initial=iteration, unit="sweep", disable=not progress,
        smoothing=0.1, dynamic_ncols=True, desc="warm-up",
    )  # fmt: skip
    with bar:
        while iteration < goal:
            began = time.perf_counter()
            stop = min(goal, _chunk_end(iteration, settings, slots, chunk_sweeps, rate))
            stop = min(stop, early_end) if iteration < early_end else stop
            reached, states, overflow, buffers, last = advance(
                sweeper, data, chain_keys, states, iteration, stop
            )
            reached, overflow = int(reached), bool(overflow)
            kept, kept_arrays = (
                _num_kept(reached, settings, by) - _num_kept(iteration, settings, by)
                for by in (1, every)
            )
            host = jax.device_get(buffers) if kept or progress else {}
            elapsed = time.perf_counter() - began
            clock["warmup" if iteration < num_warmup else "draws"] += elapsed
            rate = (reached - iteration) / elapsed
            bar.set_description("warm-up" if reached <= num_warmup else "draws", refresh=False)
            bar.update(reached - iteration)
            iteration = reached
            if kept:
                number = {name: kept if available[name].ndim == 1 else kept_arrays for name in host}
                pending.append({name: value[: number[name]].copy() for name, value in host.items()})
            if progress:
                latest = {name: value[int(last[name])] for name, value in host.items()}
                bar.set_postfix(_postfix(latest, monitor))
            if overflow:
                began = time.perf_counter()
                capacity *= 2
                growth.append((iteration, capacity))
                grow_keys = _chain_keys(jax.random.fold_in(key_grow, iteration), num_chains)
                states = place.state(_grow_chains(model, grow_keys, states, data, capacity))
                states = advance(sweeper, data, chain_keys, states, iteration, iteration)[1]
                jax.block_until_ready(states)
                clock["compile"] += time.perf_counter() - began
            elif hasattr(model, "shrink") and iteration in (early_end, num_warmup):
                began = time.perf_counter()
                sweeper = model
                fewer = _fewer_slots(model, data, states, capacity)
                if fewer < capacity:
                    capacity = fewer
                    states = place.state(_shrink_chains(model, states, data, capacity))
                states = advance(sweeper, data, chain_keys, states, iteration, iteration)[1]
                jax.block_until_ready(states)
                clock["compile"] += time.perf_counter() - began
            goal = _goal(iteration, settings, clock, max_seconds)
            due = time.perf_counter() - last_save > checkpoint_seconds
            if store is not None and (due or iteration >= goal):
                merged = _concatenate(pending) if pending else None
                everything = _concatenate(segments + pending) if rewrite else merged
                store.save(
                    {"iteration": iteration, "capacity": capacity, "growth": growth,
                     "seconds": clock},
                    [np.asarray(leaf) for leaf in jax.tree.leaves(states)],
                    everything,
                    replace=rewrite,
                )  # fmt: skip
                if merged is not None:
                    segments.append(merged)
                pending, last_save, rewrite = [], time.perf_counter(), False
    if goal < settings.num_sweeps:
        settings = replace(settings, num_samples=_num_kept(goal, settings))
    draws = _concatenate(segments + pending)
    return Run(
        model=model, table=table, settings=settings,
        draws={name: np.moveaxis(value, 0, 1) for name, value in draws.items()},
        key=key_risk, state=states, capacity=capacity, growth=tuple(growth),
        conditions=conditions, seconds=clock, device=_describe(devices), origin=key,
    )  # fmt: skip


def blocks_of_draws(total: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices of the draws that are evaluated together, and the same padded to one length.

    The last block repeats a draw, so that one compiled shape serves all.
    """
    starts = range(0, total, _DRAWS_AT_ONCE)
    blocks = (np.arange(start, start + _DRAWS_AT_ONCE) for start in starts)
    return [(block[block < total], np.minimum(block, total - 1)) for block in blocks]


def coding_of(model, conditions: StructuralZeros | None) -> Coding | None:
    """The not-applicable form of the records, where the model works on that; else None."""
    recoded = conditions is not None and getattr(model, "not_applicable", False)
    return conditions.not_applicable if recoded else None


def prepared(model, table: Microdata | Households, conditions=None):
    """The model's arrays of a table."""
    if isinstance(table, Households):
        return model.prepare(table, conditions)
    return model.prepare(table.codes, table.schema.num_levels, conditions)


def check_input(
    model, table: Microdata | Households, conditions: StructuralZeros | Rules | None = None
) -> None:
    """Raise ValueError unless the model can be fitted to these records under these conditions."""
    nested = getattr(model, "nested", False)
    for given, kinds in ((table, (Microdata, Households)), (conditions, (StructuralZeros, Rules))):
        if given is not None and not isinstance(given, kinds[nested]):
            raise ValueError(
                f"the {model.name} model takes {kinds[nested].__name__}, not {type(given).__name__}"
            )
    if not model.takes_missing:
        table.require_complete(f"the {model.name} model")
    if nested:
        model.check(table)
    if conditions is None:
        return
    if not model.truncates:
        raise ValueError(
            f"the {model.name} model does not take structural zeros; use tnplcm, or leave out the "
            "conditions"
        )
    if not nested and conditions.schema != table.schema:
        raise ValueError("the conditions were made for another schema; make them with table.schema")
    conditions.require_feasible(table)


def _chain_keys(key, num_chains):
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(num_chains))


@partial(jax.jit, static_argnames="capacity")
def _init_chains(model, data, keys, capacity, starts):
    return jax.vmap(lambda key, start: model.init(key, data, capacity, start))(keys, starts)


@partial(jax.jit, static_argnames="capacity")
def _grow_chains(model, keys, states, data, capacity):
    return jax.vmap(lambda key, state: model.grow(key, state, data, capacity))(keys, states)


def _first_capacity(model, settings: Settings, num_records: int) -> int:
    """Slots that hold the starts, and are given back early in the warm-up."""
    capacity = model.capacity
    most = min(max(settings.start_components[: settings.num_chains]), num_records)
    while hasattr(model, "shrink") and most > capacity * model.start_share:
        capacity *= 2
    return capacity


def _fewer_slots(model, data, states, capacity: int) -> int:
    """Half the slots, or a quarter, .., where that is enough for every chain."""
    if capacity // 2 < model.capacity:
        return capacity
    needed = float(jnp.max(_slots_needed(model, states, data)))
    while capacity // 2 >= max(model.capacity, needed):
        capacity //= 2
    return capacity


@jax.jit
def _slots_needed(model, states, data):
    return jax.vmap(lambda state: model.slots_needed(state, data))(states)


@partial(jax.jit, static_argnames="capacity")
def _shrink_chains(model, states, data, capacity):
    return jax.vmap(lambda state: model.shrink(state, data, capacity))(states)


@partial(jax.jit, static_argnames="keep")  # so that its shapes and its body are traced once
def _sweep_chains(model, data, chain_keys, states, iteration, keep):
    """One sweep of every chain: the states, the largest mass left over, and what is kept."""

    def one(key, state):
        state, info = model.sweep(jax.random.fold_in(key, iteration), state, data, iteration)
        kept = model.keep(state, info)
        return state, info.left_over, {name: kept[name] for name in (keep or kept)}

    states, left_over, kept = jax.vmap(one)(chain_keys, states)
    return states, jnp.max(left_over), kept


def _one_draw(model, data, chain_keys, states):
    return _sweep_chains(model, data, chain_keys, states, jnp.int32(0), None)[2]


@partial(jax.jit, static_argnames=("keep", "slots", "every"))
def _advance(
    model, data, chain_keys, states, start, stop, warmup, patience, thin, keep, slots, every=1
):
    """Sweeps start..stop-1, or fewer where a chain outgrows its capacity.

    Start and stop are traced: chunks of any length share one compiled program. A sweep that is not
    kept writes to a spare slot behind the buffer.
    """
    shapes = jax.eval_shape(
        lambda: _sweep_chains(model, data, chain_keys, states, jnp.int32(0), keep)[2]
    )
    # Sweeps per entry of a buffer, and entries: arrays may be kept of fewer draws.
    strides = {name: 1 if s.ndim == 1 else every for name, s in shapes.items()}
    sizes = {name: -(-slots // stride) for name, stride in strides.items()}
    buffers = {name: jnp.zeros((sizes[name] + 1, *s.shape), s.dtype) for name, s in shapes.items()}
    past = jnp.maximum(start - warmup, 0)

    def unfinished(carry):
        iteration, _, overflow, _, _ = carry
        return (iteration < stop) & ~overflow

    def body(carry):
        iteration, states, _, buffers, _ = carry
        buffers, last = dict(buffers), {}
        states, left_over, kept = _sweep_chains(model, data, chain_keys, states, iteration, keep)
        if hasattr(model, "settle"):
            states = jax.lax.cond(
                iteration < warmup,
                jax.vmap(lambda state: model.settle(state, data)),
                lambda states: states,
                states,
            )
        early = iteration < warmup // 2
        tolerance = jnp.where(early, EARLY_LEFT_OVER_TOLERANCE, LEFT_OVER_TOLERANCE)
        # Chains that still shed the components of their starts are not given more slots.
        tolerance = jnp.where(iteration < patience, jnp.inf, tolerance)
        overflow = left_over > tolerance
        done = iteration + 1 - warmup
        for name, value in kept.items():
            step = thin * strides[name]
            number = done // step - 1 - past // step
            last[name] = jnp.where((done > 0) & (done % step == 0), number, sizes[name])
            buffers[name] = jax.lax.dynamic_update_index_in_dim(
                buffers[name], value, last[name], axis=0
            )
        return iteration + 1, states, overflow, buffers, last

    spare = {name: jnp.int32(size) for name, size in sizes.items()}
    carry = (jnp.int32(start), states, jnp.bool_(False), buffers, spare)
    return jax.lax.while_loop(unfinished, body, carry)


def _num_kept(iteration: int, settings: Settings, every: int = 1) -> int:
    return max(iteration - settings.num_warmup, 0) // (settings.thin * every)


def _goal(iteration: int, settings: Settings, clock, max_seconds: float | None) -> int:
    """The sweep to go to: that of the last draw, or of the next one where the time is used up."""
    if max_seconds is None or sum(clock.values()) < max_seconds:
        return settings.num_sweeps
    number = -(-max(iteration - settings.num_warmup, 1) // settings.thin)
    return min(settings.num_warmup + number * settings.thin, settings.num_sweeps)


def _num_slots(available, num_chains: int, every: int) -> int:
    """Draws that one chunk can keep."""
    leaves = jax.tree.leaves(available)
    size = sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize // (1 if leaf.ndim == 1 else every)
        for leaf in leaves
    )
    return int(np.clip(_BUFFER_BYTES // max(size, 1), 1, _MAX_SLOTS))


def _chunk_end(iteration, settings, slots, chunk_sweeps, rate) -> int:
    """Where the next chunk ends: at the latest with warm-up, or with the buffer full."""
    length = chunk_sweeps or (8 if rate is None else max(1, int(rate * _CHUNK_SECONDS)))
    if iteration < settings.num_warmup:
        return min(iteration + length, settings.num_warmup)
    full = settings.num_warmup + (_num_kept(iteration, settings) + slots) * settings.thin
    return min(iteration + length, full, settings.num_sweeps)


def _postfix(latest: dict[str, np.ndarray], monitor) -> dict[str, str]:
    figures = {}
    if "components" in latest:
        figures["components"] = "/".join(str(int(c)) for c in latest["components"])
    if monitor is not None:
        figures |= {name: f"{value:.3g}" for name, value in monitor(latest).items()}
    return figures


def _concatenate(segments: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Draws of several segments; parameters of an earlier, smaller capacity are padded with 0."""

    def join(arrays):
        shape = (
            np.max([a.shape[1:] for a in arrays], axis=0, initial=0) if arrays[0].ndim > 1 else ()
        )
        padded = [
            np.pad(a, [(0, 0)] + [(0, int(w) - s) for w, s in zip(shape, a.shape[1:], strict=True)])
            for a in arrays
        ]
        return np.concatenate(padded)

    return {name: join([segment[name] for segment in segments]) for name in segments[0]}


def _describe(devices) -> str:
    kinds = [device.device_kind for device in devices]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def _fingerprint(model, table, conditions, settings, key) -> str:
    leaves, structure = jax.tree.flatten(model)
    parts = {
        "model": [type(model).__name__, str(structure), [float(leaf) for leaf in leaves]],
        "settings": str(settings),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "impl": str(jax.random.key_impl(key)),
        "data": table.digest,
        "conditions": None if conditions is None else conditions.digest,
        "versions": [__version__, jax.__version__, str(jnp.result_type(float))],
        "backend": jax.default_backend(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class _Placement:
    """Where arrays lie: chains over one axis of a mesh of devices, records over the other."""

    def __init__(self, model, num_chains: int, data, devices):
        self._model = model
        pairs = zip(jax.tree.leaves(data), model.record_axes(data), strict=True)
        lengths = [leaf.shape[axis] for leaf, axis in pairs if axis is not None]
        num_padded = max(lengths, default=1)
        chains = math.gcd(num_chains, len(devices))
        records = math.gcd(num_padded, len(devices) // chains)
        self._mesh = jax.make_mesh(
            (chains, records), ("chains", "records"), axis_types=(AxisType.Auto,) * 2,
            devices=devices[: chains * records],
        )  # fmt: skip

    def data(self, data):
        return self._put(data, leading=())

    def state(self, states):
        return self._put(states, leading=("chains",))

    def _put(self, tree, leading):
        axes = self._model.record_axes(tree)
        leaves, structure = jax.tree.flatten(tree)
        placed = []
        for leaf, axis in zip(leaves, axes, strict=True):
            spec = list(leading) + [None] * (leaf.ndim - len(leading))
            if axis is not None:
                spec[len(leading) + axis] = "records"
            placed.append(jax.device_put(leaf, NamedSharding(self._mesh, PartitionSpec(*spec))))
        return jax.tree.unflatten(structure, placed)
