"""The sampling driver: any model's chains, compiled inside, a Python loop outside.

A model gives what `bnp_models.models.model.Model` lists; the driver gives several chains by vmap,
sharding over the devices there are, capacity that grows, kept draws on the host, checkpoints and
exact resume. The key of chain c at sweep t is ``fold_in(fold_in(key, c), t)``, so that draws depend
neither on the devices nor on where the run was cut into chunks: a run that is extended has the
draws of a longer one, and `sample_until` is a loop of extensions.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.inference.driver import Task, advance_to
from bnp_models.inference.run import Run, Until
from bnp_models.inference.settings import make_settings, settings_of_round
from bnp_models.rules.rules import Rules
from bnp_models.version import __version__
from bnp_models.zeros.structural_zeros import StructuralZeros


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
    settings = make_settings(
        model, num_chains, num_warmup, num_samples, thin, keep, start_components, parameters_every
    )
    check_input(model, table, conditions)
    store = saved = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, _fingerprint(model, table, conditions, settings, key))
        saved = store.load() if resume else store.clear()
    return advance_to(
        Task(model, table, conditions, key), settings, saved, store=store, devices=devices,
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
    task = Task(run.model, run.table, run.conditions, run.origin)
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, _fingerprint(*task[:3], settings, run.origin))
        store.clear()
    return advance_to(
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
    first = make_settings(
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
    task, max_seconds = Task(model, table, conditions, key), 60 * max_minutes
    options = {
        "store": store, "devices": devices, "checkpoint_seconds": checkpoint_seconds,
        "chunk_sweeps": chunk_sweeps, "progress": progress, "monitor": monitor,
    }  # fmt: skip
    here = settings_of_round(first, 0 if saved is None else saved.progress["iteration"])
    limit = max_seconds if here != first else None
    asked = Until(target, float(max_minutes), first)
    run = advance_to(task, here, saved, max_seconds=limit, **options)
    while True:
        run = replace(run, until=asked)
        used_up = sum(run.seconds.values()) >= max_seconds
        further = settings_of_round(first, run.settings.num_sweeps + 1)
        if used_up or further is None or target(run):
            return run
        by = further.thin // run.settings.thin
        run = run if by == 1 else run.thinned(by)
        run = advance_to(task, further, run, max_seconds=max_seconds, rewrite=by > 1, **options)


def check_input(
    model, table: Microdata | Households, conditions: StructuralZeros | Rules | None = None
) -> None:
    """Raise ValueError unless the model can be fitted to these records under these conditions."""
    conditions_type = model.conditions_type or StructuralZeros
    for given, kind in ((table, model.table_type), (conditions, conditions_type)):
        if given is not None and not isinstance(given, kind):
            raise ValueError(
                f"the {model.name} model takes {kind.__name__}, not {type(given).__name__}"
            )
    if not model.takes_missing:
        table.require_complete(f"the {model.name} model")
    model.check(table)
    if conditions is None:
        return
    if model.conditions_type is None:
        raise ValueError(
            f"the {model.name} model does not take structural zeros; use tnplcm, or leave out the "
            "conditions"
        )
    if isinstance(conditions, StructuralZeros) and conditions.schema != table.schema:
        raise ValueError("the conditions were made for another schema; make them with table.schema")
    conditions.require_feasible(table)


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
