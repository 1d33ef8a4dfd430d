"""The command ``bnp-models``: the public API, in the order in which a notebook would call it.

Bad input ends with exit code 2 and one line on stderr, before anything is written.
"""

import argparse
import contextlib
import csv
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import sys
from pathlib import Path

import bnp_models as bnp

# A later model is one more line: its name, its class, and the options that are its fields.
MODELS = {
    "hdp": ("HDPMixedMembership", ("concentration", "augmentation", "not_applicable")),
    "mixed-membership": ("MixedMembership", ("components", "augmentation", "not_applicable")),
    "nplcm": ("NPLCM", ("components",)),
    "tnplcm": ("TNPLCM", ("components",)),
    "ndpmpm": ("NDPMPM", ("components", "member_components")),
    "polettini-stander-1": ("PolettiniStander", ("alpha", "a", "b")),
    "polettini-stander-2": ("PolettiniStander", ("alpha", "a", "gamma", "empty_phat")),
}

# Models of cells rather than of records: they have no sweeps, and more options.
_CELL_MODELS = {"polettini-stander-1": 1, "polettini-stander-2": 2}
_CELL_OPTIONS = ("cells", "weights", "hyperparameters", "baselines")

# Options of the models of persons within households.
_HOUSEHOLD_OPTIONS = ("household", "household_variables", "rules", "head")

_MODELS_OF = {
    "risk": ("hdp", "mixed-membership", "nplcm", "tnplcm", *_CELL_MODELS),
    "synthesize": ("tnplcm", "nplcm", "ndpmpm"),
    "impute": ("tnplcm", "nplcm", "ndpmpm"),
}  # The first is the default.
_OPTIONS = tuple(dict.fromkeys(name for _, names in MODELS.values() for name in names))
_STOPPING = ("until_rhat", "until_ess", "max_minutes")
_MAX_MINUTES = 60.0
_OUTPUTS = {
    "risk": ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc"),
    "synthesize": ("run.json", "report.html", "posterior.nc"),
    "impute": ("run.json", "report.html", "posterior.nc"),
}
_DATASETS = {"synthesize": "synthetic_{}.csv", "impute": "imputed_{}.csv"}
_RECORDS_COLUMNS = ("row", "r1", "r2")


class _UsageError(ValueError):
    """Options that do not fit the data, or a folder that cannot be used."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {_one_line(message)}\n")


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
        options = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code
    try:
        return options.command(options, argv)
    except (bnp.MicrodataError, bnp.CheckpointError, bnp.NoMaximumError, _UsageError) as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")


def risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    if options.model in _CELL_MODELS:
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
    with _located(options):
        table.require_complete("the disclosure risk")
        bnp.check_population_size(table, options.population_size)
    settings = _settings(options, model, table, conditions, population_size=options.population_size)
    evaluate = functools.partial(
        bnp.population_risk,
        population_size=options.population_size,
        progress=_shows_progress(options),
    )
    return _carry_out(
        options, argv, model, table, conditions, settings, evaluate, "risk", _write_risk
    )


def synthesize(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models synthesize``: check everything, sample, write synthetic data sets."""
    model, table, conditions = _checked_input(options)
    if options.household is not None:
        if options.rows not in (None, table.num_persons):
            raise _UsageError(
                "--rows: synthetic households have the sizes of the sample's; leave it out"
            )
        options.rows = table.num_persons
    elif options.rows is None:
        options.rows = table.n
    _check_datasets(options)
    settings = _settings(
        options, model, table, conditions, datasets=options.datasets, rows=options.rows
    )
    return _carry_out(
        options, argv, model, table, conditions, settings, _margins_of(options), "margins",
        _write_datasets,
    )  # fmt: skip


def _margins_of(options):
    """Makes of a run the margins that convergence is judged by; of households, none."""
    return bnp.level_margins if options.household is None else lambda run: None


def impute(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models impute``: check everything, sample, write completed data sets."""
    model, table, conditions = _checked_input(options)
    if not table.has_missing:
        raise bnp.MicrodataError(
            "no value is missing (only empty cells are), so there is nothing to impute",
            file=options.sample,
        )
    _check_datasets(options)
    settings = _settings(options, model, table, conditions, datasets=options.datasets)
    return _carry_out(
        options, argv, model, table, conditions, settings, _margins_of(options), "margins",
        _write_datasets,
    )  # fmt: skip


def _carry_out(options, argv, model, table, conditions, settings, evaluate, evaluated, write):
    """Sample and write, unless it is done; leave no empty folder behind.

    `evaluate` makes of the draws what convergence is judged by too, under the name `evaluated`.
    """
    import jax

    def work(out):
        if not options.resume:
            for name in _outputs(options):
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
            progress=_shows_progress(options),
            monitor=monitor,
        )
        answer, summary = write(
            options, run, evaluate_once(run), settings | {"command": _command(argv)}
        )
        if summary.get("stopping", {"reached": True})["reached"]:
            bnp.Checkpoint(out / "checkpoint", fingerprint="").clear()
        else:
            answer += "\nto go on: repeat the command with --resume and more --max-minutes"
        return answer

    how = f"repeat the command with --resume to go on in {options.out}"
    return _into_folder(options, settings, work, how)


def _into_folder(options, settings, work, how_to_go_on):
    """Do the work in the folder, unless it is done; leave no empty folder behind."""
    out = Path(options.out)
    if options.resume and _is_complete(out, _outputs(options), settings):
        _say(options, f"{out} is complete: nothing to resume")
        return 0
    made = _make_folder(out)
    try:
        _use_compilation_cache()
        answer = work(out)
    except KeyboardInterrupt:
        _remove_empty(made)
        print(f"bnp-models: interrupted; {how_to_go_on}", file=sys.stderr)
        return 130
    except BaseException:
        _remove_empty(made)
        raise
    _say(options, answer)
    return 0


def _command(argv):
    """The command line that makes these files, or goes on making them."""
    return shlex.join(["bnp-models", *(word for word in argv if word != "--resume")])


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
                progress=_shows_progress(options),
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
        command = _command(argv)
        data = bnp.cell_inference_data(result, seed=options.seed)
        bnp.write_netcdf(data, out / "posterior.nc")
        bnp.write_cells(result, out / "cells.csv", baselines=options.baselines)
        bnp.write_cell_report(out / "report.html", result, summary, command=command)
        bnp.write_json(settings | {"command": command}, out / "run.json")
        bnp.write_json(summary, out / "risk.json")
        return _answer(summary, out, "cells.csv")

    return _into_folder(options, settings, work, "repeat the command")


def _checked_cells(options):
    """The model and the weighted cells; everything that needs no computation is checked."""
    _check_options(options)
    for name in ("conditions", *_STOPPING, "keep_parameters"):
        if getattr(options, name):
            others = (m for m in _MODELS_OF["risk"] if m not in _CELL_MODELS)
            raise _UsageError(f"{_flag(name)}: is an option of --model {_listed(others)} only")
    if options.hyperparameters == "full-bayes":
        for name in ("alpha", "a", "b", "gamma"):
            if getattr(options, name) is not None:
                raise _UsageError(
                    f"{_flag(name)}: full Bayes has priors; leave out the option, or "
                    "--hyperparameters full-bayes"
                )
    fields = MODELS[options.model][1]
    try:
        model = bnp.PolettiniStander(_CELL_MODELS[options.model], **_given(options, *fields))
        bnp.Settings(options.chains, options.warmup, options.draws, options.thin, (), (1,))
    except ValueError as error:
        raise _UsageError(str(error)) from None
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
    with _located(options):
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
    bnp.write_records(result, out / "records.csv")
    bnp.write_report(out / "report.html", result, command=settings["command"], seed=options.seed)
    bnp.write_json(settings, out / "run.json")
    bnp.write_json(summary, out / "risk.json")
    return _answer(summary, out), summary


def _write_datasets(options, run, margins, settings):
    out, imputed = Path(options.out), options.name == "impute"
    for path in _numbered(out, _DATASETS[options.name]):
        path.unlink()
    if imputed:
        frames = bnp.impute(run, options.datasets)
    else:
        frames = bnp.synthesize(run, options.datasets, options.rows)
    names = [_DATASETS[options.name].format(m + 1) for m in range(len(frames))]
    for name, frame in zip(names, frames, strict=True):
        bnp.write_frame(frame, out / name)
    data = bnp.to_inference_data(run, parameters=options.keep_parameters, seed=options.seed)
    bnp.write_netcdf(data, out / "posterior.nc")
    bnp.write_synthesis_report(
        out / "report.html", run, frames, margins, imputed=imputed, command=settings["command"],
        seed=options.seed,
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


def _answer(summary, out, table="records.csv"):
    tau1 = summary["tau1"]
    lines = [
        f"{summary['sample_uniques']:,} of {summary['n']:,} records are unique in the sample; of "
        f"these, {tau1['mean']:.1f} are expected to be unique among {summary['population_size']:,} "
        f"(95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})"
    ]
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    lines.append(f"written: {out / 'report.html'}, risk.json, {table}, posterior.nc")
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
        raise _UsageError(str(error)) from None
    if options.conditions is not None and not model.truncates:
        raise _UsageError(
            f"--conditions: the {options.model} model does not take structural zeros; use --model "
            f"{_listed(_taking_zeros(options.name), 'or')}"
        )
    if getattr(model, "nested", False):
        return model, *_checked_households(options)
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
        with _located(options):
            conditions.require_feasible(table)
    return model, table, conditions


def _checked_households(options):
    """The coded households and the rules that they keep."""
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
        raise _UsageError("--head yes: no variable with a label such as Householder is found")
    rules = None
    if options.rules is not None:
        rules = bnp.read_rules(options.rules, table)
        with _located(options):
            rules.require_feasible(table)
    return table, rules


def _check_options(options):
    """Refuse options that are not the model's."""
    fields = MODELS[options.model][1]
    nested = [name for name, (kind, _) in MODELS.items() if kind == "NDPMPM"]
    for name in _HOUSEHOLD_OPTIONS:
        if options.model not in nested and getattr(options, name, None) not in (None, "auto"):
            raise _UsageError(f"{_flag(name)}: is an option of --model {_listed(nested)} only")
    if options.model in nested:
        if options.household is None:
            raise _UsageError(
                f"--model {options.model}: needs --household, the column that says who lives with "
                "whom"
            )
        if options.conditions is not None:
            raise _UsageError(
                f"--conditions: the {options.model} model takes --rules; a combination that is "
                "impossible for one person is a rule about each person"
            )
    for name in _OPTIONS:
        if getattr(options, name, None) is not None and name not in fields:
            models = [m for m in _MODELS_OF[options.name] if name in MODELS[m][1]]
            raise _UsageError(f"{_flag(name)}: is an option of --model {_listed(models)} only")
    if options.model not in _CELL_MODELS:
        for name in _CELL_OPTIONS:
            if getattr(options, name, None) not in (None, False, "fixed"):
                models = _listed(_CELL_MODELS)
                raise _UsageError(f"{_flag(name)}: is an option of --model {models} only")


@contextlib.contextmanager
def _located(options):
    """Name the file, and the line of the record, in an error about the coded sample."""
    try:
        yield
    except bnp.MicrodataError as error:
        lines = None
        if error.row is not None:
            _, lines = bnp.read_frame(options.sample, options.variables)
        raise error.in_file(options.sample, lines) from None


def _taking_zeros(name):
    """The command's models that take structural zeros."""
    return [model for model in _MODELS_OF[name] if getattr(bnp, MODELS[model][0]).truncates]


def _check_stopping(options):
    if options.until_rhat is None:
        for name in _STOPPING[1:]:
            if getattr(options, name) is not None:
                raise _UsageError(f"{_flag(name)}: is an option of --until-rhat only")
        return
    if options.chains == 1:
        raise _UsageError("--until-rhat: compares chains; let --chains be 2 or more")
    if options.max_minutes is None:
        options.max_minutes = _MAX_MINUTES


def _check_datasets(options):
    if options.datasets > options.chains * options.draws:
        raise _UsageError(
            f"--datasets {options.datasets}: each needs a draw of its own, and --chains "
            f"{options.chains} --draws {options.draws} keep {options.chains * options.draws}"
        )


def _settings(options, model, table, conditions, **more):
    """What decides the outputs, for run.json; JSON values only."""
    import jax

    names = ("chains", "warmup", "draws", "thin", "seed", "keep_parameters")
    return {
        "model": options.model,
        **more,
        **{name: getattr(options, name, None) for name in (*_OPTIONS, *_HOUSEHOLD_OPTIONS)},
        **{
            name: getattr(model, name)
            for name in ("components", "member_components")
            if name in MODELS[options.model][1]
        },
        **{name: getattr(options, name) for name in names + _STOPPING},
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": bnp.__version__,
        "jax_version": jax.__version__,
    }


def _outputs(options):
    names = _OUTPUTS[options.name]
    if options.model in _CELL_MODELS:
        names = tuple("cells.csv" if name == "records.csv" else name for name in names)
    if options.name in _DATASETS:
        names += tuple(_DATASETS[options.name].format(m + 1) for m in range(options.datasets))
    return names


def _numbered(out, pattern):
    """Files of the folder that this program named by number."""
    name = re.compile(pattern.replace(".", r"\.").format("[1-9][0-9]*"))
    return [path for path in out.iterdir() if name.fullmatch(path.name)]


def _is_complete(out, outputs, settings):
    """Whether a finished run with these settings is in the folder.

    Raises
    ------
    _UsageError
        If a finished run with other settings is.
    """
    if not all((out / name).is_file() for name in outputs):
        return False
    try:
        found = json.loads((out / "run.json").read_text(encoding="utf-8"))
        different = {name for name, value in settings.items()
                     if name not in found or found[name] != value}  # fmt: skip
        same = "command" in found and not different
    except (ValueError, TypeError):
        return False
    if different <= set(_STOPPING) and (out / "checkpoint").is_dir():
        # A run that had used up its minutes, and may go on.
        return same
    if not same:
        raise _UsageError(
            f"{out}: holds a finished run with other data, settings or versions; choose another "
            "--out, or leave out --resume to replace it"
        )
    return True


def _shows_progress(options):
    return options.progress or (sys.stderr.isatty() and not options.quiet)


def _make_folder(out):
    """Make the folder; the folders that had to be made, innermost first.

    Raises
    ------
    _UsageError
        If it cannot be made or written to.
    """
    if out.exists() and not out.is_dir():
        raise _UsageError(f"--out {out}: is a file; name a folder")
    missing = []
    for folder in (out, *out.parents):
        if folder.exists():
            break
        missing.append(folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(missing)
        raise _UsageError(f"--out {out}: cannot be made ({error.strerror})") from None
    if not os.access(out, os.W_OK | os.X_OK):
        _remove_empty(missing)
        raise _UsageError(f"--out {out}: is not writable")
    return missing


def _remove_empty(folders):
    for folder in folders:
        if not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()


def _use_compilation_cache():
    """Keep compiled programs between runs, in the user's cache folder, unless one is set.

    Compiled programs fit one kind of processor; a home that several machines share gets one
    folder for each kind.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kind = hashlib.sha256(_processor().encode()).hexdigest()[:12]
        folder = cache / "bnp-models" / "xla" / kind
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()} {platform.machine()} {platform.processor()} {flags}"


def _parser():
    parser = _Parser(
        prog="bnp-models",
        description="Bayesian non-parametric models for categorical microdata.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bnp-models {bnp.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_risk(commands)
    _add_synthesize(commands)
    _add_impute(commands)
    return parser


def _add_risk(commands):
    parser = _add_command(
        commands,
        "risk",
        risk,
        help="estimate how many sample uniques are unique in the population",
        description="Estimate the disclosure risk of a sample of categorical microdata: how many "
        "of its unique records are unique in the population, and which.",
        epilog="Writes risk.json, records.csv (or cells.csv), posterior.nc and report.html to DIR.",
    )
    parser.add_argument("--population-size", metavar="N", type=_integer(1, 2**53), required=True,
                        help="persons in the population, those of the sample included")  # fmt: skip
    _add_common(parser, "risk", keep_parameters=False)
    _add_cells(parser)


def _add_cells(parser):
    """Options of the models of cells."""
    cells = parser.add_argument_group(
        "polettini-stander", "risk of every cell; writes cells.csv instead of records.csv"
    )
    cells.add_argument("--weights", metavar="COLUMN",
                       help="column of the design weights: persons that a record stands "
                       "for (default: N / n each)")  # fmt: skip
    cells.add_argument("--cells", metavar="K", type=_integer(1, 2**62),
                       help="cells that a person can fall in (default: all combinations of "
                       "levels)")  # fmt: skip
    cells.add_argument("--hyperparameters", default="fixed",
                       choices=("fixed", "empirical-bayes", "full-bayes"),
                       help="as given below, those of the largest likelihood, or sampled by "
                       "NUTS (default: fixed)")  # fmt: skip
    for name, what in (
        ("alpha", "shape of the cell means (default: 0.92 in model 1, 0.1 in 2)"),
        ("a", "of the sampling fractions: Beta(a, b) in model 1 (default: 0.86), Beta(a phat, "
              "a (1 - phat)) in 2 (default: 80)"),
        ("b", "of model 1 (default: 80)"),
        ("gamma", "of model 2: share of the cells that can be sampled (default: 0.7)"),
    ):  # fmt: skip
        cells.add_argument(f"--{name}", metavar="X", type=_number_above(0), help=what)
    cells.add_argument("--empty-phat", metavar="P:W,..", type=_mixture,
                       help="of model 2: sampling fractions assumed of empty cells, and the share "
                       "of these with each, as 0.0034:0.86,0.028:0.14 (default: that of the "
                       "whole sample)")  # fmt: skip
    cells.add_argument("--baselines", action="store_true",
                       help="add to cells.csv the risk of Benedetti and Franconi, and of Poisson "
                       "log-linear models")  # fmt: skip


def _add_synthesize(commands):
    parser = _add_command(
        commands,
        "synthesize",
        synthesize,
        help="make completely synthetic data sets",
        description="Make synthetic data sets with the columns and labels of a sample of "
        "categorical microdata. Missing values of the sample are allowed; the synthetic data have "
        "none, and no record in a structural zero.",
        epilog="Writes synthetic_1.csv and so on, run.json, posterior.nc and report.html to DIR. "
        "Only the synthetic files are meant for release.",
    )
    parser.add_argument("--datasets", metavar="M", type=_integer(1, 10**6), default=5,
                        help="data sets, each from a draw of its own (default: 5)")  # fmt: skip
    parser.add_argument("--rows", metavar="N", type=_integer(1, 2**31),
                        help="records of each (default: as many as the sample has)")  # fmt: skip
    # The evaluation of what an intruder can learn reads the parameters.
    _add_common(parser, "synthesize", keep_parameters=True)


def _add_impute(commands):
    parser = _add_command(
        commands,
        "impute",
        impute,
        help="complete missing values, several times",
        description="Complete the missing values (empty cells) of a sample of categorical "
        "microdata: several times, so that the uncertainty shows in how much the data sets differ. "
        "No completed record is in a structural zero.",
        epilog="Writes imputed_1.csv and so on, run.json, posterior.nc and report.html to DIR.",
    )
    parser.add_argument("--datasets", metavar="M", type=_integer(1, 10**6), default=5,
                        help="data sets, each from a draw of its own (default: 5)")  # fmt: skip
    _add_common(parser, "impute", keep_parameters=False)


def _add_households(parser):
    """Options of the models of persons within households."""
    group = parser.add_argument_group(
        "ndpmpm", "persons within households; one person a row, households of the sample's sizes"
    )
    group.add_argument("--household", metavar="COLUMN",
                       help="column that says who lives with whom")  # fmt: skip
    group.add_argument("--household-variables", metavar="A,B,..", type=_names,
                       help="columns that are the same for all members of a household")  # fmt: skip
    group.add_argument("--rules", metavar="RULES",
                       help="what every household keeps: census-relationships, or a Python file "
                       "that defines `rules`, which is run (see bnp_models.rules)")  # fmt: skip
    group.add_argument("--head", choices=("auto", "yes", "no"), default="auto",
                       help="let the head's variables be the household's: auto, where every "
                       "household has one with a usual label such as Householder (default: "
                       "auto)")  # fmt: skip
    group.add_argument("--member-components", metavar="S", type=_integer(2, 2**12),
                       help="classes of members in each class of households (default: "
                       "15)")  # fmt: skip


def _add_command(commands, name, function, **texts):
    parser = commands.add_parser(name, allow_abbrev=False, **texts)
    parser.set_defaults(command=function, name=name)
    parser.add_argument("sample", metavar="SAMPLE", help="CSV or Parquet file, one record a row")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    return parser


def _add_common(parser, name, keep_parameters):
    """Options that all commands share: data, model, chains, output."""
    data = parser.add_argument_group("data")
    data.add_argument("--variables", metavar="A,B,..", type=_names,
                      help="key variables (default: all columns)" if name == "risk" else
                      "variables to use and to write (default: all columns)")  # fmt: skip
    data.add_argument("--levels", metavar="CSV",
                      help="declared levels: columns variable and level (default: those "
                      "seen)")  # fmt: skip
    data.add_argument("--conditions", metavar="CSV",
                      help="structural zeros, for models that take them: the header names "
                      "variables, each row is a combination that cannot occur, an empty cell "
                      "leaves its variable free")  # fmt: skip
    model = parser.add_argument_group("model")
    models = _MODELS_OF[name]
    model.add_argument("--model", choices=models, default=models[0],
                       help=f"(default: {models[0]})")  # fmt: skip
    if "hdp" in models:
        model.add_argument("--concentration", choices=("shared", "record", "hierarchical"),
                           help="of the hdp model: one alpha for all records, one each, or one "
                           "each with an unknown rate (default: shared)")  # fmt: skip
        model.add_argument("--augmentation", choices=("boxes", "simulation", "expected"),
                           help="of hdp and mixed-membership under --conditions: how records of "
                           "the impossible region are drawn; the last is an approximation "
                           "(default: boxes, or simulation where they are too many)")  # fmt: skip
        model.add_argument("--not-applicable", action="store_const", const=True,
                           help="of hdp and mixed-membership under --conditions: leave out of a "
                           "record the items that another variable settles")  # fmt: skip
    model.add_argument("--components", metavar="K", type=_integer(2, 2**16),
                       help="latent classes of nplcm and tnplcm (default: 50), or components "
                       "of mixed-membership (default: 20)" if "hdp" in models else
                       "latent classes (default: 50), of households with ndpmpm (default: "
                       "40)")  # fmt: skip
    if "ndpmpm" in models:
        _add_households(parser)
    chains = parser.add_argument_group("chains")
    for option, default, least, most, what in (
        ("chains", 4, 1, 2**16, "chains"),
        ("warmup", 1000, 0, 2**31, "sweeps before the first draw"),
        ("draws", 1000, 1, 2**31, "draws kept of each chain"),
        ("thin", 1, 1, 2**31, "sweeps per kept draw"),
        ("seed", 0, 0, 2**32, "the same seed gives the same results"),
    ):
        chains.add_argument(f"--{option}", metavar="K", type=_integer(least, most), default=default,
                            help=f"{what} (default: {default})")  # fmt: skip
    chains.add_argument("--until-rhat", metavar="R", type=_number_above(1),
                        help="after those draws go on, until R-hat is at most R and the "
                        "effective sample sizes are large enough, for every quantity judged, or "
                        "the minutes are used up; 1.01 is usual")  # fmt: skip
    chains.add_argument("--until-ess", metavar="E", type=_number_above(0),
                        help="effective sample size to reach, bulk and tail, chains together "
                        "(default: 100 for each chain)")  # fmt: skip
    chains.add_argument("--max-minutes", metavar="M", type=_number_above(0),
                        help="minutes of sampling, compilation and those before a --resume "
                        "included, after which to stop all the same (default: "
                        f"{_MAX_MINUTES:g})")  # fmt: skip
    chains.add_argument("--resume", action="store_true",
                        help="go on from the checkpoint in DIR, if there is one")  # fmt: skip
    chains.add_argument("--checkpoint-seconds", metavar="S", type=_seconds, default=10.0,
                        help="least time between checkpoints (default: 10)")  # fmt: skip
    output = parser.add_argument_group("output")
    if keep_parameters:
        parser.set_defaults(keep_parameters=True)
    else:
        output.add_argument("--keep-parameters", action="store_true",
                            help="put the model's arrays into posterior.nc too: 20 kB a draw and "
                            "more")  # fmt: skip
    output.add_argument("--progress", action="store_true",
                        help="show progress bars even where stderr is not a terminal")  # fmt: skip
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _integer(least, most):
    def integer(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if not least <= value < most:
            raise argparse.ArgumentTypeError(
                f"{value} is out of range: at least {least} and below {most}"
            )
        return value

    return integer


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _number_above(least):
    def number(text):
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is out of range: above {least}")
        return value

    return number


def _mixture(text):
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in text.split(",")]
    except ValueError:
        pairs = [()]
    if not all(len(pair) == 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0.0034:0.86,0.028:0.14")
    return tuple(pairs)


def _flag(name):
    return f"--{name.replace('_', '-')}"


def _listed(items, word="and"):
    items = list(items)
    return f" {word} ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _names(text):
    return next(csv.reader([" ".join(text.splitlines())], skipinitialspace=True), [])


def _given(options, *names):
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _say(options, text):
    if not options.quiet:
        print(text)


def _fail(message):
    print(f"bnp-models: error: {_one_line(message)}", file=sys.stderr)
    return 2


def _one_line(text):
    return " ".join(text.splitlines())
