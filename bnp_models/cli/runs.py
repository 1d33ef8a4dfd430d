"""Chains of a command: sampled, judged, and handed to what writes the results."""

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from bnp_models.cli.folder import command_line, into_folder, progress_of_chains, say
from bnp_models.cli.inputs import HOUSEHOLD_OPTIONS, MODEL_OPTIONS, Inputs
from bnp_models.cli.models import MODELS
from bnp_models.cli.outputs import output_names, remove_outputs
from bnp_models.cli.parser import STOPPING
from bnp_models.cli.samples import Changes
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.data.weight_classes import records_of
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.inference.convergence import OTHERS_RHAT, Converged, Evaluated
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import Run
from bnp_models.inference.sampling import sample
from bnp_models.models.level_prior import Ordered, document_of_prior, ordered_names
from bnp_models.rules.rules import Rules
from bnp_models.version import __version__
from bnp_models.zeros.structural_zeros import StructuralZeros

Evaluate = Callable[[Run], Evaluated | None]
"""Computes what the chains are judged by besides their own draws."""

Write = Callable[[Run, Any, Diagnosis, dict[str, Any]], str]
"""Writes the results, given the run, what was evaluated of it, its diagnosis and the settings for
run.json; returns what is said at the end.
"""


@dataclass(frozen=True)
class _JudgedTarget(Converged):
    """Target that also judges what was evaluated of the draws, and says how long it will take."""

    diagnose: Callable[[Run], Diagnosis] | None = None
    say: Callable[[str], None] | None = None

    def __call__(self, run: Run) -> bool:
        """Whether the run meets the target."""
        if self.diagnose is None:
            return super().__call__(run)
        # What is evaluated costs more: only where nothing else speaks against the run.
        diagnosis = Diagnosis.of(run)
        if diagnosis.reached:
            diagnosis = self.diagnose(run)
        if not diagnosis.reached and self.say is not None:
            self.say(_forecast(run, diagnosis))
        return bool(diagnosis.reached)


def _forecast(run: Run, diagnosis: Diagnosis) -> str:
    """Sentence on how far a run has come, and how long it may take."""
    assert run.until is not None
    spent, most = sum(run.seconds.values()) / 60, run.until.max_minutes
    sentence = f"after {spent:.1f} minutes, {diagnosis.missed[0]}"
    if diagnosis.minutes_needed is not None:
        sentence += (
            f"; the run probably needs about {max(1, round(diagnosis.minutes_needed)):,} "
            "minutes in all"
        )
    return f"{sentence}, and it ends after {most:g} minutes at the latest"


def sample_into_folder(
    options: argparse.Namespace,
    argv: list[str],
    inputs: Inputs,
    settings: dict[str, Any],
    evaluate: Evaluate,
    write: Write,
    monitor: Callable | None = None,
) -> int:
    """Sample and write, unless it is done; leave no empty folder behind.

    Returns
    -------
    code
        The exit code.
    """

    checkpoint = Path(options.out) / "checkpoint"

    @functools.lru_cache(maxsize=1)
    def diagnose(run: Run) -> Diagnosis:
        """Diagnosis of the last draws, once: what judged them is what is written."""
        return Diagnosis.of(run, evaluate(run))

    def work(_: Path) -> str:
        if not options.resume:
            remove_outputs(options)
        run = _sample(options, inputs, checkpoint, diagnose, monitor)
        diagnosis = diagnose(run)
        settings_and_command = settings | {"command": command_line(argv)}
        answer = write(run, diagnosis.evaluated, diagnosis, settings_and_command)
        if diagnosis.reached is False:
            return f"{answer}\nto go on: repeat the command with --resume and more --max-minutes"
        Checkpoint(checkpoint, fingerprint="").clear()
        return answer

    how = f"repeat the command with --resume to go on in {options.out}"
    return into_folder(options, settings, output_names(options), work, how)


def _sample(
    options: argparse.Namespace,
    inputs: Inputs,
    checkpoint: Path,
    diagnose: Callable[[Run], Diagnosis],
    monitor: Callable | None,
) -> Run:
    """Run the chains, or go on with them, with the options of the command."""
    until: dict[str, Any] = {}
    if options.until_rhat is not None:
        target = _JudgedTarget(
            options.until_rhat, options.until_ess, diagnose=diagnose,
            others_rhat=max(options.until_rhat, OTHERS_RHAT),
            say=functools.partial(say, options),
        )  # fmt: skip
        until = {"until": target, "max_minutes": options.max_minutes}
    return sample(
        inputs.model,
        inputs.table,
        key=jax.random.key(options.seed),
        conditions=inputs.conditions,
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.draws,
        thin=options.thin,
        checkpoint=checkpoint,
        resume=options.resume,
        checkpoint_seconds=options.checkpoint_seconds,
        progress=progress_of_chains(options),
        monitor=monitor,
        **until,
    )


def recorded_settings(
    options: argparse.Namespace,
    model: object,
    table: Records | Households,
    conditions: StructuralZeros | Rules | None,
    changes: Changes,
    **more: Any,
) -> dict[str, Any]:
    """Settings that decide the outputs, for run.json; JSON values only."""
    given = vars(options)
    names = ("chains", "warmup", "draws", "thin", "seed", "keep_parameters", "no_records")
    has_prior = "level_prior" in MODELS[options.model].options
    components = {"components", "member_components"}.intersection(MODELS[options.model].options)
    return {
        "model": options.model,
        **more,
        **{name: given.get(name) for name in (*MODEL_OPTIONS, *HOUSEHOLD_OPTIONS)},
        **{name: vars(model)[name] for name in sorted(components)},
        "groups": {name: str(file) for name, file in given.get("groups") or ()} or None,
        "roles": None if given.get("roles") is None else str(given["roles"]),
        **_ordered(model, table),
        **({"weights": given["weights"]} if given.get("weights") is not None else {}),
        **changes.settings(),
        **({"level_prior": document_of_prior(model)} if has_prior else {}),
        **{name: given[name] for name in names + STOPPING},
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
