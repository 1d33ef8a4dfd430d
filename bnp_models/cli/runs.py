"""Runs of commands: sample, judge, write the files of the results."""

import functools
import sys
from pathlib import Path

from bnp_models.cli.folder import command_line, into_folder, numbered, shows_progress
from bnp_models.cli.inputs import HOUSEHOLD_OPTIONS, MODEL_OPTIONS
from bnp_models.cli.models import CELL_MODELS, MODELS
from bnp_models.cli.parser import STOPPING, one_line
from bnp_models.data import formats
from bnp_models.data.formats import read_labelling
from bnp_models.data.writing import write_frame, write_json
from bnp_models.inference.arviz import write_netcdf
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.inference.diagnostics import Converged, monitored
from bnp_models.inference.sampling import sample, sample_until
from bnp_models.report.inference_data import to_inference_data, write_records
from bnp_models.report.risk import write_report
from bnp_models.report.summaries import risk_summary, run_summary
from bnp_models.report.synthesis import write_synthesis_report
from bnp_models.risk.population import tau1_monitor
from bnp_models.synthesis.synthesize import impute, synthesize
from bnp_models.version import __version__

OUTPUTS = {
    "risk": ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc"),
    "synthesize": ("run.json", "report.html", "posterior.nc"),
    "impute": ("run.json", "report.html", "posterior.nc"),
}

_DATASETS = {"synthesize": "synthetic_{}", "impute": "imputed_{}"}

RECORDS_COLUMNS = ("row", "r1", "r2")


def carry_out(options, argv, model, table, conditions, settings, evaluate, evaluated, write):
    """Sample and write, unless it is done; leave no empty folder behind.

    `evaluate` makes of the draws what convergence is judged by too, under the name `evaluated`.
    """
    import jax

    def work(out):
        if not options.resume:
            for name in {*OUTPUTS[options.name], *output_names(options)}:
                (out / name).unlink(missing_ok=True)
        monitor = None
        if options.name == "risk":
            monitor = tau1_monitor(model, table, options.population_size, conditions=conditions)
        # Once for the last draws: what judged them is what is written.
        evaluate_once = functools.lru_cache(maxsize=1)(evaluate)
        draw = sample
        if options.until_rhat is not None:
            target = Converged(
                options.until_rhat,
                options.until_ess,
                lambda run: monitored(run, **{evaluated: evaluate_once(run)}),
            )
            draw = functools.partial(sample_until, target, max_minutes=options.max_minutes)
        run = draw(
            model,
            table,
            key=jax.random.key(options.seed),
            conditions=conditions,
            num_chains=options.chains,
            num_warmup=options.warmup,
            num_samples=options.draws,
            thin=options.thin,
            checkpoint=out / "checkpoint",
            resume=options.resume,
            checkpoint_seconds=options.checkpoint_seconds,
            progress=shows_progress(options),
            monitor=monitor,
        )
        answer, summary = write(
            options, run, evaluate_once(run), settings | {"command": command_line(argv)}
        )
        if summary.get("stopping", {"reached": True})["reached"]:
            Checkpoint(out / "checkpoint", fingerprint="").clear()
        else:
            answer += "\nto go on: repeat the command with --resume and more --max-minutes"
        return answer

    how = f"repeat the command with --resume to go on in {options.out}"
    return into_folder(options, settings, output_names(options), work, how)


def write_risk(options, run, result, settings):
    out = Path(options.out)
    summary = risk_summary(result, seed=options.seed)
    data = to_inference_data(run, result, parameters=options.keep_parameters, seed=options.seed)
    write_netcdf(data, out / "posterior.nc")
    if not options.no_records:
        write_records(result, out / "records.csv")
    write_report(
        out / "report.html", result, command=settings["command"], seed=options.seed,
        records=not options.no_records,
    )  # fmt: skip
    write_json(settings, out / "run.json")
    write_json(summary, out / "risk.json")
    return risk_answer(options, summary, out), summary


def write_datasets(options, run, margins, settings):
    out, imputed = Path(options.out), options.name == "impute"
    for kind in formats.FORMATS:
        for path in numbered(out, f"{_DATASETS[options.name]}.{kind}"):
            path.unlink()
    if imputed:
        frames = impute(run, options.datasets)
    else:
        frames = synthesize(run, options.datasets, options.rows)
    names = _names_of_datasets(options)
    labelling = read_labelling(options.sample)
    for name, frame in zip(names, frames, strict=True):
        write_frame(frame, out / name, labelling)
    data = to_inference_data(
        run, parameters=options.keep_parameters, seed=options.seed, num_datasets=len(frames)
    )
    write_netcdf(data, out / "posterior.nc")
    write_synthesis_report(
        out / "report.html", run, frames, margins, imputed=imputed, command=settings["command"],
        seed=options.seed, records=not options.no_records,
    )  # fmt: skip
    summary = run_summary(run, margins, seed=options.seed)
    write_json(settings | summary, out / "run.json")
    kind = "completed" if imputed else "synthetic"
    zeros = "" if run.conditions is None else ", none of them in a structural zero"
    if run.conditions is not None and options.household is not None:
        zeros = " in households that keep the rules"
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    lines = [f"{len(frames)} {kind} data set{'s'[: len(frames) > 1]} of {len(frames[0]):,} records"
             f"{zeros}"]  # fmt: skip
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    lines.append(f"written: {out / shown}, report.html, run.json, posterior.nc")
    return "\n".join(lines), summary


def risk_answer(options, summary, out, table="records.csv"):
    tau1 = summary["tau1"]
    lines = [
        f"{summary['sample_uniques']:,} of {summary['n']:,} records are unique in the sample; of "
        f"these, {tau1['mean']:.1f} are expected to be unique among {summary['population_size']:,} "
        f"(95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})"
    ]
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    names = ("risk.json", *([] if options.no_records else [table]), "posterior.nc")
    lines.append(f"written: {out / 'report.html'}, {', '.join(names)}")
    return "\n".join(lines)


def settings_document(options, model, table, conditions, **more):
    """What decides the outputs, for run.json; JSON values only."""
    import jax

    names = ("chains", "warmup", "draws", "thin", "seed", "keep_parameters", "no_records")
    return {
        "model": options.model,
        **more,
        **{name: getattr(options, name, None) for name in (*MODEL_OPTIONS, *HOUSEHOLD_OPTIONS)},
        **{
            name: getattr(model, name)
            for name in ("components", "member_components")
            if name in MODELS[options.model][1]
        },
        **{name: getattr(options, name) for name in names + STOPPING},
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": __version__,
        "jax_version": jax.__version__,
    }


def output_names(options):
    names = OUTPUTS[options.name]
    if options.model in CELL_MODELS:
        names = tuple("cells.csv" if name == "records.csv" else name for name in names)
    if options.no_records:
        names = tuple(name for name in names if name not in ("records.csv", "cells.csv"))
    if options.name in _DATASETS:
        names += _names_of_datasets(options)
    return names


def _names_of_datasets(options):
    pattern = f"{_DATASETS[options.name]}.{options.format}"
    return tuple(pattern.format(m + 1) for m in range(options.datasets))


def fail(message):
    print(f"bnp-models: error: {one_line(message)}", file=sys.stderr)
    return 2
