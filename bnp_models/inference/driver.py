"""Driver of a run: chunks of sweeps, capacity that grows and shrinks, checkpoints."""

import time
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from bnp_models.data.microdata import Microdata
from bnp_models.inference.checkpoint import Checkpoint, Saved
from bnp_models.inference.chunks import (
    advance_chains,
    capacity_of_starts,
    chain_keys_of,
    chunk_end,
    fewer_slots,
    grow_chains,
    init_chains,
    one_draw,
    shrink_chains,
    slots_of_buffer,
)
from bnp_models.inference.placement import Placement, describe_devices
from bnp_models.inference.run import Run, concatenate_draws
from bnp_models.inference.settings import Settings, number_kept
from bnp_models.models.model import Growing, Model
from bnp_models.zeros.structural_zeros import StructuralZeros

EARLY_SHARE = 0.25
"""Share of the warm-up after which slots that only the starts needed are given back."""


class Task(NamedTuple):
    """Whose chains."""

    model: Model
    table: Microdata
    conditions: StructuralZeros | None
    key: jax.Array


def advance_to(
    task: Task,
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
    data = model.prepare(table, conditions)
    devices = list(devices) if devices is not None else jax.devices()
    place = Placement(num_chains, data, devices)
    key_init, key_sweeps, key_grow, key_risk = jax.random.split(key, 4)
    chain_keys = chain_keys_of(key_sweeps, num_chains)
    starts = jnp.asarray([settings.start_components[c % len(settings.start_components)]
                          for c in range(num_chains)], jnp.int32)  # fmt: skip

    clock = {"compile": 0.0, "warmup": 0.0, "draws": 0.0}
    began = time.perf_counter()
    first_capacity = capacity_of_starts(model, settings, table.n)
    capacity, growth, iteration, segments = first_capacity, [], 0, []
    start = partial(init_chains, capacity=capacity, starts=starts)
    fresh = (model, data, chain_keys_of(key_init, num_chains))
    states = start(*fresh) if begin is None else jax.eval_shape(start, *fresh)
    available = jax.eval_shape(one_draw, model, data, chain_keys, states)
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
    slots = slots_of_buffer({name: available[name] for name in keep}, num_chains, every)
    early_end = int(num_warmup * EARLY_SHARE) if first_capacity > model.capacity else 0
    # Until the starts have shed their components: a plainer sweep, which is compiled sooner.
    sweeper = model.early() if iteration < early_end else model
    advance = partial(
        advance_chains, warmup=num_warmup, thin=settings.thin, keep=keep, slots=slots, every=every,
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
            stop = min(goal, chunk_end(iteration, settings, slots, chunk_sweeps, rate))
            stop = min(stop, early_end) if iteration < early_end else stop
            reached, states, overflow, buffers, last = advance(
                sweeper, data, chain_keys, states, iteration, stop
            )
            reached, overflow = int(reached), bool(overflow)
            kept, kept_arrays = (
                number_kept(reached, settings, by) - number_kept(iteration, settings, by)
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
                grow_keys = chain_keys_of(jax.random.fold_in(key_grow, iteration), num_chains)
                states = place.state(grow_chains(model, grow_keys, states, data, capacity))
                states = advance(sweeper, data, chain_keys, states, iteration, iteration)[1]
                jax.block_until_ready(states)
                clock["compile"] += time.perf_counter() - began
            elif isinstance(model, Growing) and iteration in (early_end, num_warmup):
                began = time.perf_counter()
                sweeper = model
                fewer = fewer_slots(model, data, states, capacity)
                if fewer < capacity:
                    capacity = fewer
                    states = place.state(shrink_chains(model, states, data, capacity))
                states = advance(sweeper, data, chain_keys, states, iteration, iteration)[1]
                jax.block_until_ready(states)
                clock["compile"] += time.perf_counter() - began
            goal = _goal(iteration, settings, clock, max_seconds)
            due = time.perf_counter() - last_save > checkpoint_seconds
            if store is not None and (due or iteration >= goal):
                merged = concatenate_draws(pending) if pending else None
                everything = concatenate_draws(segments + pending) if rewrite else merged
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
        settings = replace(settings, num_samples=number_kept(goal, settings))
    draws = concatenate_draws(segments + pending)
    return Run(
        model=model, table=table, settings=settings,
        draws={name: np.moveaxis(value, 0, 1) for name, value in draws.items()},
        key=key_risk, state=states, capacity=capacity, growth=tuple(growth),
        conditions=conditions, seconds=clock, device=describe_devices(devices), origin=key,
    )  # fmt: skip


def _goal(iteration: int, settings: Settings, clock, max_seconds: float | None) -> int:
    """The sweep to go to: that of the last draw, or of the next one where the time is used up."""
    if max_seconds is None or sum(clock.values()) < max_seconds:
        return settings.num_sweeps
    number = -(-max(iteration - settings.num_warmup, 1) // settings.thin)
    return min(settings.num_warmup + number * settings.thin, settings.num_sweeps)


def _postfix(latest: dict[str, np.ndarray], monitor) -> dict[str, str]:
    figures = {}
    if "components" in latest:
        figures["components"] = "/".join(str(int(c)) for c in latest["components"])
    if monitor is not None:
        figures |= {name: f"{value:.3g}" for name, value in monitor(latest).items()}
    return figures
