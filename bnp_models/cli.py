"""The command ``bnp-models``: the public API, in the order in which a notebook would call it.

Bad input ends with exit code 2 and one line on stderr, before anything is written.
"""

import argparse
import functools
import hashlib
import sys
from pathlib import Path

import bnp_models as bnp
from bnp_models.cli_evaluate import evaluate
from bnp_models.cli_folder import (
    UsageError,
    command_line,
    into_folder,
    located,
    numbered,
    shows_progress,
)
from bnp_models.cli_parser import (
    CELL_MODELS,
    MAX_MINUTES,
    MODELS,
    MODELS_OF,
    STOPPING,
    flag,
    make_parser,
    one_line,
)
from bnp_models.wording import listed

_CELL_OPTIONS = ("cells", "weights", "hyperparameters", "baselines")

# Options of the models of persons within households.
_HOUSEHOLD_OPTIONS = ("household", "household_variables", "rules", "head")

_OPTIONS = tuple(dict.fromkeys(name for _, names in MODELS.values() for name in names))
_OUTPUTS = {
    "risk": ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc"),
    "synthesize": ("run.json", "report.html", "posterior.nc"),
    "impute": ("run.json", "report.html", "posterior.nc"),
}
_DATASETS = {"synthesize": "synthetic_{}", "impute": "imputed_{}"}
_RECORDS_COLUMNS = ("row", "r1", "r2")


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv
        Arguments after the command's name; by default those of the process.

    Returns
    -------
    code
        0, or 2 on bad input, or 130 when interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        options = make_parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code
    try:
        return COMMANDS[options.name](options, argv)
    except (
        bnp.MicrodataError,
        bnp.CheckpointError,
        bnp.NoMaximumError,
        bnp.FormatError,
        UsageError,
    ) as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")


def risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    if options.model in CELL_MODELS:
        return _cell_risk(options, argv)
    model, table, conditions = _checked_input(options)
    for name in _RECORDS_COLUMNS:
        if name in table.schema.variables:
            raise bnp.MicrodataError(
                "records.csv has a column of this name; rename the variable or choose --variables "
                "without it",
                file=options.sample,
                column=name,
            )
    with located(options.sample, options.variables):
        table.require_complete("the disclosure risk")
        bnp.check_population_size(table, options.population_size)
    settings = _settings(options, model, table, conditions, population_size=options.population_size)
    evaluate = functools.partial(
        bnp.population_risk,
        population_size=options.population_size,
        progress=shows_progress(options),
    )
    return _carry_out(
        options, argv, model, table, conditions, settings, evaluate, "risk", _write_risk
    )


def synthesize(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models synthesize``: check everything, sample, write synthetic data sets."""
    model, table, conditions = _checked_input(options)
    if options.household is not None:
        if options.rows not in (None, table.num_persons):
            raise UsageError(
                "--rows: synthetic households have the sizes of the sample's; leave it out"
            )
        options.rows = table.num_persons
    elif options.rows is None:
        options.rows = table.n
    return _make_datasets(options, argv, model, table, conditions, rows=options.rows)


def impute(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models impute``: check everything, sample, write completed data sets."""
    model, table, conditions = _checked_input(options)
    if not table.has_missing:
        raise bnp.MicrodataError(
            "no value is missing (only empty cells are), so there is nothing to impute",
            file=options.sample,
        )
    return _make_datasets(options, argv, model, table, conditions)


def _make_datasets(options, argv, model, table, conditions, **more):
    """Check, sample and write data sets; `more` is what decides them in this command alone."""
    _check_datasets(options, table)
    settings = _settings(
        options, model, table, conditions, datasets=options.datasets, **more, format=options.format
    )
    # Convergence is judged by the margins of the levels too; of households, by none.
    margins = bnp.level_margins if options.household is None else lambda run: None
    return _carry_out(
        options, argv, model, table, conditions, settings, margins, "margins", _write_datasets
    )


def _carry_out(options, argv, model, table, conditions, settings, evaluate, evaluated, write):
    """Sample and write, unless it is done; leave no empty folder behind.

    `evaluate` makes of the draws what convergence is judged by too, under the name `evaluated`.
    """
    import jax

    def work(out):
        if not options.resume:
            for name in {*_OUTPUTS[options.name], *_outputs(options)}:
                (out / name).unlink(missing_ok=True)
        monitor = None
        if options.name == "risk":
            monitor = bnp.tau1_monitor(model, table, options.population_size, conditions=conditions)
        # Once for the last draws: what judged them is what is written.
        evaluate_once = functools.lru_cache(maxsize=1)(evaluate)
        sample = bnp.sample
        if options.until_rhat is not None:
            target = bnp.Converged(
                options.until_rhat,
                options.until_ess,
                lambda run: bnp.monitored(run, **{evaluated: evaluate_once(run)}),
            )
            sample = functools.partial(bnp.sample_until, target, max_minutes=options.max_minutes)
        run = sample(
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
            bnp.Checkpoint(out / "checkpoint", fingerprint="").clear()
        else:
            answer += "\nto go on: repeat the command with --resume and more --max-minutes"
        return answer

    how = f"repeat the command with --resume to go on in {options.out}"
    return into_folder(options, settings, _outputs(options), work, how)


def _cell_risk(options, argv):
    """``bnp-models risk`` by a model of cells."""
    import jax

    model, cells = _checked_cells(options)
    names = (*_CELL_OPTIONS, "population_size")
    settings = _settings(
        options, model, cells.table, None, **{name: getattr(options, name) for name in names},
        weights_sha256=hashlib.sha256(cells.weight.tobytes()).hexdigest(),
    )  # fmt: skip

    def work(out):
        for name in {*_OUTPUTS["risk"], *_outputs(options)}:
            (out / name).unlink(missing_ok=True)
        fitted, draws, seconds = model, None, {}
        key_chains, key_counts = jax.random.split(jax.random.key(options.seed))
        if options.hyperparameters == "empirical-bayes":
            found = bnp.fit_empirical_bayes(model, cells)
            fitted, seconds = found.model, found.seconds
        elif options.hyperparameters == "full-bayes":
            draws = bnp.sample_hyperparameters(
                model, cells, key=key_chains, num_chains=options.chains,
                num_warmup=options.warmup, num_samples=options.draws, thin=options.thin,
                progress=shows_progress(options),
            )  # fmt: skip
            seconds = draws.seconds
        result = bnp.cell_risk(
            fitted, cells, key=key_counts, draws=draws, num_chains=options.chains,
            num_samples=options.draws,
        )  # fmt: skip
        summary = bnp.cell_risk_summary(
            result, method=options.hyperparameters, seed=options.seed,
            seconds=seconds | result.seconds,
        )  # fmt: skip
        command = command_line(argv)
        data = bnp.cell_inference_data(result, seed=options.seed)
        bnp.write_netcdf(data, out / "posterior.nc")
        if not options.no_records:
            bnp.write_cells(result, out / "cells.csv", baselines=options.baselines)
        bnp.write_cell_report(
            out / "report.html", result, summary, command=command, records=not options.no_records
        )
        bnp.write_json(settings | {"command": command}, out / "run.json")
        bnp.write_json(summary, out / "risk.json")
        return _answer(options, summary, out, "cells.csv")

    return into_folder(options, settings, _outputs(options), work, "repeat the command")


def _checked_cells(options):
    """The model and the weighted cells; everything that needs no computation is checked."""
    _check_options(options)
    for name in ("conditions", *STOPPING, "keep_parameters"):
        if getattr(options, name):
            others = (m for m in MODELS_OF["risk"] if m not in CELL_MODELS)
            raise UsageError(f"{flag(name)}: is an option of --model {listed(others)} only")
    if options.hyperparameters == "full-bayes":
        for name in ("alpha", "a", "b", "gamma"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"{flag(name)}: full Bayes has priors; leave out the option, or "
                    "--hyperparameters full-bayes"
                )
    fields = MODELS[options.model][1]
    try:
        model = bnp.PolettiniStander(CELL_MODELS[options.model], **_given(options, *fields))
        bnp.Settings(options.chains, options.warmup, options.draws, options.thin, (), (1,))
    except ValueError as error:
        raise UsageError(str(error)) from None
    weights, variables = None, options.variables
    if options.weights is not None:
        weights = bnp.read_weights(options.sample, options.weights)
        if variables is None:
            variables = [v for v in bnp.read_frame(options.sample)[0] if v != options.weights]
        elif options.weights in variables:
            raise bnp.MicrodataError(
                "the column of the weights is no key variable; leave it out of --variables",
                file=options.sample,
                column=options.weights,
            )
    table = bnp.read_microdata(options.sample, variables, options.levels)
    with located(options.sample, options.variables):
        bnp.check_names(table.schema.variables, options.baselines)
        cells = bnp.weighted_cells(
            table, options.population_size, weights, num_cells=options.cells
        )  # fmt: skip
        if options.baselines:
            bnp.check_support(cells)
    return model, cells


def _write_risk(options, run, result, settings):
    out = Path(options.out)
    summary = bnp.risk_summary(result, seed=options.seed)
    data = bnp.to_inference_data(run, result, parameters=options.keep_parameters, seed=options.seed)
    bnp.write_netcdf(data, out / "posterior.nc")
    if not options.no_records:
        bnp.write_records(result, out / "records.csv")
    bnp.write_report(
        out / "report.html", result, command=settings["command"], seed=options.seed,
        records=not options.no_records,
    )  # fmt: skip
    bnp.write_json(settings, out / "run.json")
    bnp.write_json(summary, out / "risk.json")
    return _answer(options, summary, out), summary


def _write_datasets(options, run, margins, settings):
    out, imputed = Path(options.out), options.name == "impute"
    for kind in bnp.formats.FORMATS:
        for path in numbered(out, f"{_DATASETS[options.name]}.{kind}"):
            path.unlink()
    if imputed:
        frames = bnp.impute(run, options.datasets)
    else:
        frames = bnp.synthesize(run, options.datasets, options.rows)
    names = _names_of_datasets(options)
    labelling = bnp.read_labelling(options.sample)
    for name, frame in zip(names, frames, strict=True):
        bnp.write_frame(frame, out / name, labelling)
    data = bnp.to_inference_data(
        run, parameters=options.keep_parameters, seed=options.seed, num_datasets=len(frames)
    )
    bnp.write_netcdf(data, out / "posterior.nc")
    bnp.write_synthesis_report(
        out / "report.html", run, frames, margins, imputed=imputed, command=settings["command"],
        seed=options.seed, records=not options.no_records,
    )  # fmt: skip
    summary = bnp.run_summary(run, margins, seed=options.seed)
    bnp.write_json(settings | summary, out / "run.json")
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


def _answer(options, summary, out, table="records.csv"):
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


def _checked_input(options):
    """The model, the coded sample and the conditions; checks that need no sampling are made."""
    kind, fields = MODELS[options.model]
    _check_options(options)
    _check_stopping(options)
    try:
        model = getattr(bnp, kind)(**_given(options, *fields))
        bnp.Settings(options.chains, options.warmup, options.draws, options.thin, (), (1,))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if options.conditions is not None and not model.truncates:
        raise UsageError(
            f"--conditions: the {options.model} model does not take structural zeros; use --model "
            f"{listed(_taking_zeros(options.name), 'or')}"
        )
    if getattr(model, "nested", False):
        return model, *_checked_households(options, model)
    table = bnp.read_microdata(options.sample, options.variables, options.levels)
    conditions = None
    if options.conditions is not None:
        conditions = bnp.read_conditions(options.conditions, table.schema)
        try:
            # Compiled now: conditions that make too many boxes are refused before anything is done.
            _ = conditions.feasible, [group.impossible for group in conditions.groups]
            _ = conditions.equivalences
        except bnp.MicrodataError as error:
            raise error.in_file(options.conditions) from None
        with located(options.sample, options.variables):
            conditions.require_feasible(table)
    return model, table, conditions


def _checked_households(options, model):
    """The coded households, which fit the model, and the rules that they keep."""
    read = functools.partial(
        bnp.read_households, options.sample, options.household, options.household_variables or (),
        options.variables, options.levels,
    )  # fmt: skip
    table = read()
    head = None if options.head == "no" else bnp.find_head(table.schema)
    if head is not None:
        try:
            table = read(head=head)
        except bnp.MicrodataError:
            # Not exactly one in each household; rules that want it say so of which.
            if options.head == "yes":
                raise
    elif options.head == "yes":
        raise UsageError("--head yes: no variable with a label such as Householder is found")
    with located(options.sample, options.variables):
        model.check(table)
    rules = None
    if options.rules is not None:
        rules = bnp.read_rules(options.rules, table)
        with located(options.sample, options.variables):
            rules.require_feasible(table)
    return table, rules


def _check_options(options):
    """Refuse options that are not the model's."""
    fields = MODELS[options.model][1]
    nested = [name for name, (kind, _) in MODELS.items() if kind == "NDPMPM"]
    for name in _HOUSEHOLD_OPTIONS:
        if options.model not in nested and getattr(options, name, None) not in (None, "auto"):
            raise UsageError(f"{flag(name)}: is an option of --model {listed(nested)} only")
    if options.model in nested:
        if options.household is None:
            raise UsageError(
                f"--model {options.model}: needs --household, the column that says who lives with "
                "whom"
            )
        if options.conditions is not None:
            raise UsageError(
                f"--conditions: the {options.model} model takes --rules; a combination that is "
                "impossible for one person is a rule about each person"
            )
    for name in _OPTIONS:
        if getattr(options, name, None) is not None and name not in fields:
            models = [m for m in MODELS_OF[options.name] if name in MODELS[m][1]]
            raise UsageError(f"{flag(name)}: is an option of --model {listed(models)} only")
    for name in ("augmentation", "not_applicable"):
        if options.conditions is None and getattr(options, name, None) is not None:
            raise UsageError(f"{flag(name)}: says how --conditions are taken; give them too")
    if options.model not in CELL_MODELS:
        for name in _CELL_OPTIONS:
            if getattr(options, name, None) not in (None, False, "fixed"):
                models = listed(CELL_MODELS)
                raise UsageError(f"{flag(name)}: is an option of --model {models} only")


def _taking_zeros(name):
    """The command's models that take structural zeros."""
    return [model for model in MODELS_OF[name] if getattr(bnp, MODELS[model][0]).truncates]


def _check_stopping(options):
    if options.until_rhat is None:
        for name in STOPPING[1:]:
            if getattr(options, name) is not None:
                raise UsageError(f"{flag(name)}: is an option of --until-rhat only")
        return
    if options.chains == 1:
        raise UsageError("--until-rhat: compares chains; let --chains be 2 or more")
    if options.max_minutes is None:
        options.max_minutes = MAX_MINUTES


def _check_datasets(options, table):
    try:
        bnp.formats.check_names(getattr(table, "persons", table).schema.variables, options.format)
        if options.household is not None:
            bnp.formats.check_names([options.household], options.format)
    except bnp.FormatError as error:
        where = "" if error.column is None else f" column {error.column!r}:"
        raise UsageError(f"--format {options.format}:{where} {error}") from None
    if options.datasets > options.chains * options.draws:
        raise UsageError(
            f"--datasets {options.datasets}: each needs a draw of its own, and --chains "
            f"{options.chains} --draws {options.draws} keep {options.chains * options.draws}"
        )


def _settings(options, model, table, conditions, **more):
    """What decides the outputs, for run.json; JSON values only."""
    import jax

    names = ("chains", "warmup", "draws", "thin", "seed", "keep_parameters", "no_records")
    return {
        "model": options.model,
        **more,
        **{name: getattr(options, name, None) for name in (*_OPTIONS, *_HOUSEHOLD_OPTIONS)},
        **{
            name: getattr(model, name)
            for name in ("components", "member_components")
            if name in MODELS[options.model][1]
        },
        **{name: getattr(options, name) for name in names + STOPPING},
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": bnp.__version__,
        "jax_version": jax.__version__,
    }


def _outputs(options):
    names = _OUTPUTS[options.name]
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


def _given(options, *names):
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _fail(message):
    print(f"bnp-models: error: {one_line(message)}", file=sys.stderr)
    return 2


COMMANDS = {"risk": risk, "synthesize": synthesize, "impute": impute, "evaluate": evaluate}
