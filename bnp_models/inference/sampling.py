"""Gibbs chains of any model: `sample` and `extend`.

`sample` codes and checks the input, and gives the chains to a `Driver`, which calls compiled
programs of many sweeps each. To follow a run, read on in

- `bnp_models.models.model`: the members of every model, which the driver calls;
- `bnp_models.inference.driver`: `Driver.run` starts the chains, runs chunks of sweeps until the
  last draw, enlarges or shrinks arrays, and saves checkpoints;
- `bnp_models.inference.chunks`: `advance_chains` is the compiled loop over the sweeps of a chunk;
- `bnp_models.inference.trace`: which draws are kept, and how they are copied to the host;
- the file of the model, such as `bnp_models.models.latent_classes.nplcm`: `prepare` makes the
  arrays of the sample, `init` a first state, and `sweep` draws each conditional once. The file
  `state` next to it has the fields of data, state and info, with their shapes; the file
  `conditionals` has the conditionals; the variates are in `bnp_models.kernels`.

If the number of components of the model is fixed, the parts of driver and chunks that change the
capacity do nothing; their docstrings name these parts.

The key of chain c at sweep t is ``fold_in(fold_in(k, c), t)``. Here k is the second of the four
keys that `bnp_models.inference.driver.keys_of` derives from the key given to `sample`. Draws
therefore depend neither on the length of the chunks nor, if each chain is on one device, on the
number of devices. Therefore a run that is extended has the draws of a longer run, and a run until a
target is a loop of extensions. If the records of a chain are divided among devices, floats are
rounded differently.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.frames import TABLES, Tabular
from bnp_models.data.households import Households
from bnp_models.data.microdata import as_records
from bnp_models.data.schema import MicrodataError
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import Checkpoint, Saved
from bnp_models.inference.compilation import use_compilation_cache
from bnp_models.inference.driver import Driver, Execution, Task
from bnp_models.inference.progress import Monitor, Tell
from bnp_models.inference.run import Run, Until
from bnp_models.inference.trace import Settings, interval_of_arrays, settings_of_round, starts_of
from bnp_models.models.model import Conditions, ConditionsT, DataT, InfoT, Model, StateT, TableT
from bnp_models.models.options import typed_key
from bnp_models.rules.rules import Rules
from bnp_models.version import __version__
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions

MAX_MINUTES, NUM_SAMPLES = 60.0, 1000

CALL = "sample(model, table, key=...)"


def sample(
    model: Model[TableT, ConditionsT, DataT, StateT, InfoT],
    table: Tabular,
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = NUM_SAMPLES,
    thin: int = 1,
    until: Callable[[Run], bool] | None = None,
    max_minutes: float | None = None,
    finish_first: bool | None = None,
    keep: Sequence[str] | None = None,
    start_components: Sequence[int] | None = None,
    parameters_every: int | None = None,
    keep_warmup: bool = False,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    chunk_sweeps: int | None = None,
    progress: bool | Tell = False,
    monitor: Monitor | None = None,
) -> Run[TableT, ConditionsT]:
    """Run a model's Gibbs chains.

    With `until`, the chains first make `num_samples` draws. If the target is not reached then, the
    chains continue, and the target is tested again after 2, 3, 4, 6, 8, 12, .. times as many draws.
    From the second test on, the first quarter of the draws is discarded, both before the test and
    in the run that is returned, because these draws may still depend on the starting values if the
    warm-up was too short.

    Parameters
    ----------
    model
        For example `bnp_models.HDPMixedMembership()`.
    table
        The coded sample; without missing values, unless the model draws them. A data frame of
        records is coded by `Microdata.from_frame`, with all its columns.
    key
        A `jax.random.key`. The same key gives the same draws on one device or eight, and whether or
        not the run was interrupted and resumed.
    conditions
        Structural zeros, for a model that takes them, or the rules of households; no record may
        break one. A data frame is coded by `StructuralZeros.from_frame`.
    num_chains, num_warmup, num_samples, thin
        Number of chains; of sweeps before the first draw; of draws kept from each chain; and of
        sweeps for each kept draw.
    until
        Function of a run that says whether the chains may stop, such as
        `bnp_models.Converged(max_rhat=1.01)`. It may depend on nothing but the draws, so that a
        resumed run stops at the same draw as an uninterrupted one. Default: no target.
    max_minutes
        Chains with a target stop at the next draw after so many minutes of compilation, warm-up,
        draws and calls of `until` (``run.seconds``; minutes before a resume count). A compilation
        that has begun cannot be stopped. Default: 60.
    finish_first
        Whether the first `num_samples` draws are made even if they take more than `max_minutes`.
        Default: only if `max_minutes` is not given.
    keep
        Names of the quantities that are kept of each draw: from the model's ``scalars`` and
        ``parameters``, or any other name that its ``keep`` offers (such as "z"). Default: scalars
        and parameters, which `population_risk` needs.
    start_components
        Numbers of components of the chains' initial states, used for one chain after the other and
        then again from the first; by default those that the model recommends. R-hat can only detect
        a second mode if the chains start from different states.
    parameters_every
        Interval between draws whose arrays, such as level probabilities, are kept. Scalars are kept
        for all draws. Default: 1, or the number that a model with large arrays recommends, or more
        if arrays of all levels and components would need more than 256 MiB.
    keep_warmup
        Also keep the scalars of the warm-up, as `Run.warmup_draws`. No result uses them.
    devices
        Devices to use; by default all of `jax.devices()`. Whole chains are divided among the
        devices first, and then records.
    checkpoint, resume
        Folder for checkpoints; and whether the run continues from the last checkpoint in it. With a
        larger `max_minutes`, a run that stopped for lack of time can be continued too.
    checkpoint_seconds
        Minimum time between checkpoints.
    chunk_sweeps
        Number of sweeps that run in compiled code before Python gets control again; by default as
        many as take about half a second.
    progress
        Whether to show a progress bar on stderr; or a function that is called with a sentence: a
        forecast after the first sweeps, and then the progress once a minute.
    monitor
        Function that is called with the latest kept quantities, each (chains, ...), while the
        progress bar is shown, and returns more figures for the bar.

    Returns
    -------
    run
        The chains. With a target, `run.until` is the target, and the first draws may have been
        discarded: ``run.settings.num_discarded`` counts their sweeps. A run without a target, with
        as many more samples, has the same draws at its end. For example, with 500 discarded sweeps,
        750 samples and thin 2, they are the last 750 draws of ``sample(num_samples=1000, thin=2,
        ...)``, because 500 sweeps are 250 draws.

    Raises
    ------
    ValueError
        On settings out of range, an unknown name in `keep`, missing values or conditions that the
        model does not take, a record in a structural zero, or a checkpoint of another run.
    OutOfTime
        If `max_minutes` are used up before there are draws to judge, and `finish_first` is false.
    Interrupted
        A KeyboardInterrupt: SIGINT (Ctrl-C) or SIGTERM came, and the chains stopped at the end of a
        block of sweeps, with a checkpoint if a folder for it was given.

    Notes
    -----
    The log likelihood that the latent class models and `NDPMPM` keep with a draw ("log_likelihood")
    belongs to the parameters before the sweep, and not to those that are kept with it: classes are
    drawn first in a sweep, and the log likelihood is computed then. `population_risk` computes the
    log likelihood of the kept parameters.

    Compiled programs are kept in the user's cache folder (``~/.cache/bnp-models``), or in the
    folder that JAX was given (``jax_compilation_cache_dir``). A second run compiles nothing if its
    data have the same variables and levels and about the same number of records.

    The memory of a run with a target is bounded: a chain keeps at most four times as many draws as
    `num_samples`. Before it would keep more, every second draw is discarded (`Run.thinned`), and
    `thin` is doubled from then on.

    Examples
    --------
    >>> run = bnp.sample(
    ...     bnp.NPLCM(components=4), table, key=jax.random.key(0), num_chains=2, num_warmup=20,
    ...     num_samples=20,
    ... )
    >>> run.draws["alpha"].shape
    (2, 20)
    """
    coded, limits = coded_input(CALL, model, table, conditions)
    key = typed_key(key)
    use_compilation_cache()
    if parameters_every is None:
        parameters_every = interval_of_arrays(model, coded, num_chains, num_samples)
    kept = model.scalars + model.parameters + model.hyperparameters if keep is None else tuple(keep)
    first = Settings(
        num_chains, num_warmup, num_samples, thin, kept,
        starts_of(model, coded.n, start_components), parameters_every, keep_warmup=keep_warmup,
    )  # fmt: skip
    check_input(model, coded, limits)
    if until is None and not (max_minutes is None and finish_first is None):
        raise ValueError(
            "max_minutes and finish_first are only for a run with a target: give until too"
        )
    if finish_first is None:
        finish_first = max_minutes is None
    minutes = MAX_MINUTES if max_minutes is None else positive_minutes(max_minutes)
    asked = None if until is None else Until(until, minutes, first, finish_first)
    if resume and checkpoint is None:
        raise ValueError("resume is only for a run with a checkpoint: give its folder too")
    task = Task(model, coded, limits, key)
    store = saved = None
    if checkpoint is not None:
        fingerprint = _fingerprint(task, first)
        store = Checkpoint(checkpoint, fingerprint if asked is None else f"until-{fingerprint}")
    execution = Execution(store, devices, checkpoint_seconds, chunk_sweeps, progress, monitor)
    if store is not None:
        if resume:
            saved = store.load()
        else:
            store.clear()
    if asked is None:
        run = Driver(task, first, execution).run(saved)
    else:
        run = _sample_until(task, asked, execution, saved)
    return cast(Run[TableT, ConditionsT], run)


def positive_minutes(max_minutes: float) -> float:
    """The minutes, once it is checked that they are more than none."""
    if not max_minutes > 0:
        raise ValueError(f"max_minutes must be positive, not {max_minutes}")
    return float(max_minutes)


def _sample_until(task: Task, asked: Until, execution: Execution, saved: Saved | None) -> Run:
    """Run rounds of draws until the target is reached."""
    first, max_seconds = asked.first, 60 * asked.max_minutes
    iteration = 0 if saved is None else saved.progress["iteration"]
    settings = settings_of_round(first, iteration) or first
    limit = None if settings == first and asked.finish_first else max_seconds
    run = Driver(task, settings, execution).run(saved, limit)
    while True:
        judged = run if asked.in_first(run.settings) else run.later_draws()
        judged = replace(judged, until=asked)
        used_up = sum(run.seconds.values()) >= max_seconds
        further = settings_of_round(first, run.settings.num_sweeps + 1)
        if used_up or further is None:
            return judged
        began = time.perf_counter()
        reached = asked.target(judged)
        # All processes stop together.
        met, elapsed = processes.largest(reached, time.perf_counter() - began)
        run.seconds["checks"] = run.seconds.get("checks", 0.0) + elapsed
        if met:
            return judged
        by = further.thin // run.settings.thin
        run = run if by == 1 else run.thinned(by)
        run = Driver(task, further, execution).run(run, max_seconds, rewrite=by > 1)


def extend(
    run: Run,
    num_samples: int,
    *,
    max_seconds: float | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 10.0,
    chunk_sweeps: int | None = None,
    progress: bool | Tell = False,
    monitor: Monitor | None = None,
) -> Run:
    """Continue a finished run; the draws are those that a longer `sample` would have made.

    Parameters
    ----------
    run
        Chains of `sample`, on the same kind of device.
    num_samples
        Draws to add to each chain.
    max_seconds
        Stop at the first draw at which `run.seconds`, including the seconds before the extension,
        exceed this limit. The run then has fewer draws. Default: no limit.
    checkpoint
        Folder for checkpoints; earlier checkpoints in it are removed. ``sample(num_samples=...,
        resume=True)`` with the number of all draws continues from the last one.
    devices, checkpoint_seconds, chunk_sweeps, progress, monitor
        As for `sample`.

    Raises
    ------
    ValueError
        If `num_samples` is out of range, or the run does not hold the key that made it.

    Examples
    --------
    >>> longer = bnp.extend(run, 10)
    >>> longer.draws["alpha"].shape
    (2, 30)
    """
    check_kind(Run, "extend(run, num_samples)", run=run)
    if run.origin is None:
        raise ValueError("the run does not hold the key that made it: it cannot be extended")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    settings = replace(run.settings, num_samples=run.settings.num_samples + num_samples)
    task = Task(run.model, run.table, run.conditions, run.origin)
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, _fingerprint(task, settings))
    execution = Execution(store, devices, checkpoint_seconds, chunk_sweeps, progress, monitor)
    if store is not None:
        store.clear()
    return Driver(task, settings, execution).run(run, max_seconds, rewrite=True)


def coded_input(
    call: str,
    model: Model[TableT, ConditionsT, DataT, StateT, InfoT],
    table: Tabular,
    conditions: Conditions | pd.DataFrame | None,
) -> tuple[TableT, ConditionsT | None]:
    """Code a sample and conditions that are data frames, for a model.

    `check_input` checks whether the model accepts them.

    Parameters
    ----------
    call
        How the function is called, for messages.
    model, table, conditions
        As for `sample`.

    Raises
    ------
    TypeError
        If the model is not a model (for example a class), or the table is neither a table nor a
        data frame.
    MicrodataError
        If a frame cannot be coded, or the model needs households.
    """
    check_kind(Model, call, model=model)
    if isinstance(table, pd.DataFrame) and model.table_type is Households:
        raise MicrodataError(
            f"the {model.name} model takes Households, not a data frame, which does not say which "
            "column identifies the households; give Households.from_frame(frame, "
            "household=...)"
        )
    table = as_records(table, call, TABLES)
    coded = table, as_conditions(conditions, table.schema)
    return cast(tuple[TableT, ConditionsT | None], coded)


def check_input(
    model: Model,
    table: Tabular,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
) -> None:
    """Raise ValueError unless the model can be fitted to these records under these conditions.

    Parameters
    ----------
    model, table, conditions
        As for `sample`.

    Examples
    --------
    >>> bnp.check_input(bnp.TNPLCM(), table, zeros)
    """
    table, conditions = coded_input("check_input(model, table)", model, table, conditions)
    conditions_type = model.conditions_type or StructuralZeros
    counted = isinstance(table, ContingencyTable)
    table_type = ContingencyTable if counted and model.takes_counts else model.table_type
    for given, kind in ((table, table_type), (conditions, conditions_type)):
        if given is not None and not isinstance(given, kind):
            raise ValueError(
                f"the {model.name} model takes {kind.__name__}, not {type(given).__name__}"
            )
    if counted or not model.takes_missing:
        table.require_complete(f"the {model.name} model" + " of cells with counts" * counted)
    elif conditions is not None and not model.missing_under_conditions and table.has_missing:
        raise MicrodataError(
            f"the {model.name} model takes missing values only without structural zeros; use "
            "tnplcm, or complete the records (bnp-models impute)"
        )
    model.check(table)
    if conditions is None:
        return
    if model.conditions_type is None:
        raise ValueError(
            f"the {model.name} model does not take structural zeros; use tnplcm, or leave out the "
            "conditions"
        )
    if isinstance(conditions, Rules):
        assert isinstance(table, Households)
        conditions.require_feasible(table)
        return
    if conditions.schema != table.schema:
        raise ValueError("the conditions were made for another schema; make them with table.schema")
    conditions.require_feasible(table)


def _fingerprint(task: Task, settings: Settings) -> str:
    """Digest of everything that determines the draws."""
    model, table, conditions, key = task
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
