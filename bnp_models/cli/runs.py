"""Chains of a command: sampling, diagnosis, and the call of the function that writes results."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import jax

from bnp_models.cli.commands import Sampling
from bnp_models.cli.folder import into_folder, progress_of_chains, say
from bnp_models.cli.inputs import HOUSEHOLD_OPTIONS, MODEL_OPTIONS, Inputs
from bnp_models.cli.models import MODELS
from bnp_models.cli.options import plain, values_of
from bnp_models.cli.outputs import output_names, remove_outputs
from bnp_models.cli.parts import STOPPING
from bnp_models.data.households import Households
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Records
from bnp_models.data.weight_classes import records_of
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.inference.convergence import OTHERS_RHAT, Converged, Evaluated
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import AllDraws, Run
from bnp_models.inference.sampling import sample
from bnp_models.inference.warnings import in_minutes
from bnp_models.models.level_prior import (
    LevelPriorOptions,
    Ordered,
    document_of_prior,
    ordered_names,
)
from bnp_models.version import __version__

Found = TypeVar("Found", bound=Evaluated | None)

GO_ON = "to go on: repeat the command with --resume and more --max-minutes"
"""Line about a run whose minutes were used up."""


@dataclass(frozen=True)
class Finished(Generic[Found]):
    """Chains that are done, of which results are written."""

    out: Path
    """The folder."""
    run: Run
    evaluated: Found
    """Result that was computed from the draws of the run."""
    diagnosis: Diagnosis
    settings: dict[str, Any]
    """Settings for run.json."""


@dataclass(frozen=True)
class _JudgedTarget(Converged):
    """Target that also judges the evaluated results, and forecasts how long the run will take."""

    diagnose: Callable[[Run], Diagnosis] | None = None
    say: Callable[[str], None] | None = None
    early: Callable[[Run], Diagnosis] = Diagnosis.of
    """Diagnosis that costs little, judged before anything else is evaluated."""

    def __call__(self, run: Run) -> bool:
        """Whether the run meets the target."""
        if self.diagnose is None:
            return super().__call__(run)
        # What is evaluated costs more: only where nothing else speaks against the run.
        diagnosis = self.early(run)
        if diagnosis.reached:
            diagnosis = self.diagnose(run)
        if not diagnosis.reached and self.say is not None:
            self.say(_forecast(run, diagnosis))
        return bool(diagnosis.reached)


def _forecast(run: Run, diagnosis: Diagnosis) -> str:
    """Sentence on how far a run has come, and how long it may take."""
    assert run.until is not None
    spent, most = sum(run.seconds.values()) / 60, run.until.max_minutes
    sentence = f"after {spent:.1f} minutes, {listed(diagnosis.missed, most=4)}"
    if diagnosis.minutes_needed is not None:
        sentence += (
            f"; the run probably needs {in_minutes(diagnosis.minutes_needed)} minutes in all"
        )
    else:
        sentence += "; it is too early to say how long the run will take"
    return f"{sentence}, and it ends after {most:g} minutes at the latest"


def sample_into_folder(
    command: Sampling,
    inputs: Inputs,
    settings: dict[str, Any],
    evaluate: Callable[[Run], Found],
    write: Callable[[Finished[Found]], str],
    monitor: Callable | None = None,
    earlier: Run | None = None,
    early: Callable[[Any], Diagnosis] | None = Diagnosis.of,
) -> int:
    """Sample and write the results, unless they are finished; leave no empty folder behind.

    Parameters
    ----------
    command, inputs
        What was asked for, and what was read.
    settings
        Settings that decide the outputs, for run.json.
    evaluate
        Computes the result by which the chains are judged, in addition to their own draws.
    write
        Writes the results; returns what is said at the end.
    monitor
        What bars show of a chain.
    earlier
        A finished run, whose draws are used in the place of new ones.
    early
        Diagnosis that is judged before anything is evaluated; None: what is evaluated is judged
        alone.

    Returns
    -------
    code
        The exit code.
    """
    chains, output = inputs.chains, command.output
    checkpoint = output.folder / "checkpoint"

    @functools.lru_cache(maxsize=1)
    def diagnose(run: Run) -> Diagnosis:
        """Diagnosis of the last draws, computed once, so that the same diagnosis is written."""
        return Diagnosis.of(run, evaluate(run))

    def work(out: Path) -> str:
        if not chains.resume:
            remove_outputs(command, out)
        run = earlier
        if run is None:
            run = _sample(command, inputs, checkpoint, diagnose, early or diagnose, monitor)
        diagnosis = diagnose(run)
        said = settings | {"command": output.command}
        answer = write(Finished(out, run, cast(Found, diagnosis.evaluated), diagnosis, said))
        if diagnosis.reached is False:
            return f"{answer}\n{GO_ON}"
        Checkpoint(checkpoint, fingerprint="").clear()
        return answer

    how = f"repeat the command with --resume to go on in {output.out}"
    names = output_names(command)
    return into_folder(output, settings, names, work, how, resume=chains.resume)


def _sample(
    command: Sampling,
    inputs: Inputs,
    checkpoint: Path,
    diagnose: Callable[[Run], Diagnosis],
    early: Callable[[Run], Diagnosis],
    monitor: Callable | None,
) -> Run:
    """Run the chains, or go on with them, with the options of the command."""
    chains, output = inputs.chains, command.output
    until: dict[str, Any] = {}
    if chains.until_rhat is not None:
        target = _JudgedTarget(
            chains.until_rhat, chains.until_ess, diagnose=diagnose,
            others_rhat=max(chains.until_rhat, OTHERS_RHAT),
            say=functools.partial(say, output) if processes.is_first() else None,
            early=early,
        )  # fmt: skip
        # The minutes that are the default do not end the first draws.
        whole = command.chains.max_minutes is None
        until = {"until": target, "max_minutes": chains.max_minutes, "finish_first": whole}
    return sample(
        inputs.model,
        inputs.table,
        key=jax.random.key(chains.seed),
        conditions=inputs.conditions,
        **chains.sweeps,
        checkpoint=checkpoint,
        resume=chains.resume,
        checkpoint_seconds=chains.checkpoint_seconds,
        progress=progress_of_chains(output),
        monitor=monitor,
        **until,
    )


def further_chains(command: Sampling) -> dict[str, Any]:
    """Options of `sample` for chains in addition to the main ones, each within --max-minutes."""
    chains = command.chains
    options: dict[str, Any] = dict(chains.sweeps)
    if chains.max_minutes is not None:
        options |= {"until": AllDraws(chains.num_draws), "max_minutes": chains.max_minutes}
    return options


def recorded_settings(command: Sampling, inputs: Inputs, **more: object) -> dict[str, Any]:
    """Settings that decide the outputs, for run.json; JSON values only."""
    fit, table, conditions = command.fit, inputs.table, inputs.conditions
    fields, given = vars(inputs.model), values_of(fit)
    said = values_of(inputs.chains) | values_of(command.output)
    names = ("chains", "warmup", "draws", "thin", "seed", "keep_parameters", "no_records")
    model, prior = inputs.model, {}
    if isinstance(model, LevelPriorOptions):
        prior = {"level_prior": document_of_prior(model)}
    from_model = {"components", "member_components", "member_classes", "relative", "prior_possible"}
    settled = from_model.intersection(MODELS[fit.chosen_model].options)
    roles, weights = fit.households.roles, command.data.weights
    return {
        "model": fit.chosen_model,
        **{name: plain(value) for name, value in more.items()},
        **{name: plain(given[name]) for name in (*MODEL_OPTIONS, *HOUSEHOLD_OPTIONS)},
        **{name: plain(fields[name]) for name in sorted(settled)},
        "groups": {name: str(file) for name, file in fit.groups or ()} or None,
        "roles": None if roles is None else str(roles),
        **_ordered(inputs.model, table),
        **({} if weights is None else {"weights": weights}),
        **inputs.changes.settings(),
        **prior,
        **{name: said[name] for name in names + STOPPING},
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": __version__,
        "jax_version": jax.__version__,
    }


def _ordered(model: object, table: Records | Households) -> dict[str, list[str]]:
    """Setting "ordered" of a model of records: its variables, those it found by itself included."""
    if isinstance(table, Households) or not isinstance(model, Ordered):
        return {}
    return {"ordered": list(ordered_names(model, records_of(table).schema))}
