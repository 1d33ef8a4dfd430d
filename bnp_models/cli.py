"""The command ``bnp-models``: the public API, in the order in which a notebook would call it.

Bad input ends with exit code 2 and one line on stderr, before anything is written.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import shlex
import sys
from pathlib import Path

import bnp_models as bnp

# A later model is one more line: its name, and how the options make it.
MODELS = {
    "hdp": lambda options: bnp.HDPMixedMembership(**_given(options, "concentration")),
}

_OUTPUTS = ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc")
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
    except (bnp.MicrodataError, bnp.CheckpointError, _UsageError) as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")


def risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    model, table = _checked_input(options)
    out = Path(options.out)
    settings = _settings(options, table)
    if options.resume and _is_complete(out, settings):
        _say(options, f"{out} is complete: nothing to resume")
        return 0
    made = _make_folder(out)
    try:
        if not options.resume:
            for name in _OUTPUTS:
                (out / name).unlink(missing_ok=True)
        _use_compilation_cache()
        _sample_and_write(options, argv, model, table, settings)
    except KeyboardInterrupt:
        _remove_empty(made)
        print(f"bnp-models: interrupted; repeat the command with --resume to go on in {out}",
              file=sys.stderr)  # fmt: skip
        return 130
    except BaseException:
        _remove_empty(made)
        raise
    return 0


def _sample_and_write(options, argv, model, table, settings):
    import jax

    out = Path(options.out)
    progress = options.progress or (sys.stderr.isatty() and not options.quiet)
    run = bnp.sample(
        model,
        table,
        key=jax.random.key(options.seed),
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.draws,
        thin=options.thin,
        checkpoint=out / "checkpoint",
        resume=options.resume,
        checkpoint_seconds=options.checkpoint_seconds,
        progress=progress,
        monitor=bnp.tau1_monitor(model, table, options.population_size),
    )
    result = bnp.population_risk(run, options.population_size, progress=progress)
    summary = bnp.risk_summary(result, seed=options.seed)
    data = bnp.to_inference_data(run, result, parameters=options.keep_parameters, seed=options.seed)
    command = shlex.join(["bnp-models", *(word for word in argv if word != "--resume")])
    bnp.write_netcdf(data, out / "posterior.nc")
    bnp.write_records(result, out / "records.csv")
    bnp.write_report(out / "report.html", result, command=command, seed=options.seed)
    bnp.write_json(settings | {"command": command}, out / "run.json")
    bnp.write_json(summary, out / "risk.json")
    bnp.Checkpoint(out / "checkpoint", fingerprint="").clear()
    _say(options, _answer(summary, out))


def _answer(summary, out):
    tau1 = summary["tau1"]
    lines = [
        f"{summary['sample_uniques']:,} of {summary['n']:,} records are unique in the sample; of "
        f"these, {tau1['mean']:.1f} are expected to be unique among {summary['population_size']:,} "
        f"(95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})"
    ]
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    lines.append(f"written: {out / 'report.html'}, risk.json, records.csv, posterior.nc")
    return "\n".join(lines)


def _checked_input(options):
    """The model and the coded sample; every check that needs no sampling is made here."""
    if options.conditions is not None:
        raise _UsageError(
            "--conditions: structural zeros are not available yet in this version; leave it out"
        )
    try:
        model = MODELS[options.model](options)
        bnp.Settings(options.chains, options.warmup, options.draws, options.thin, (), (1,))
    except ValueError as error:
        raise _UsageError(str(error)) from None
    table = bnp.read_microdata(options.sample, options.variables, options.levels)
    for name in _RECORDS_COLUMNS:
        if name in table.schema.variables:
            raise bnp.MicrodataError(
                "records.csv has a column of this name; rename the variable or choose --variables "
                "without it",
                file=options.sample,
                column=name,
            )
    try:
        table.require_complete("the disclosure risk")
        bnp.check_population_size(table, options.population_size)
    except bnp.MicrodataError as error:
        raise error.in_file(options.sample) from None
    return model, table


def _settings(options, table):
    """What decides the outputs, for run.json; JSON values only."""
    import jax

    names = ("population_size", "concentration", "chains", "warmup", "draws", "thin", "seed",
             "keep_parameters")  # fmt: skip
    content = repr(table.schema).encode() + table.codes.tobytes()
    return {
        "model": options.model,
        **{name: getattr(options, name) for name in names},
        "sample_sha256": hashlib.sha256(content).hexdigest(),
        "version": bnp.__version__,
        "jax_version": jax.__version__,
    }


def _is_complete(out, settings):
    """Whether a finished run with these settings is in the folder.

    Raises
    ------
    _UsageError
        If a finished run with other settings is.
    """
    if not all((out / name).is_file() for name in _OUTPUTS):
        return False
    try:
        found = json.loads((out / "run.json").read_text(encoding="utf-8"))
        found.pop("command")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    if found != settings:
        raise _UsageError(
            f"{out}: holds a finished run with other data, settings or versions; choose another "
            "--out, or leave out --resume to replace it"
        )
    return True


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
    return parser


def _add_risk(commands):
    parser = commands.add_parser(
        "risk",
        help="estimate how many sample uniques are unique in the population",
        description="Estimate the disclosure risk of a sample of categorical microdata: how many "
        "of its unique records are unique in the population, and which.",
        epilog="Writes risk.json, records.csv, posterior.nc and report.html to DIR.",
        allow_abbrev=False,
    )
    parser.set_defaults(command=risk)
    parser.add_argument("sample", metavar="SAMPLE", help="CSV or Parquet file, one record a row")
    parser.add_argument("--population-size", metavar="N", type=_integer(1, 2**53), required=True,
                        help="persons in the population, those of the sample included")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    data = parser.add_argument_group("data")
    data.add_argument("--variables", metavar="A,B,..", type=_names,
                      help="key variables (default: all columns)")  # fmt: skip
    data.add_argument("--levels", metavar="CSV",
                      help="declared levels: columns variable and level (default: those "
                      "seen)")  # fmt: skip
    data.add_argument("--conditions", metavar="CSV",
                      help="structural zeros (not available yet in this version)")  # fmt: skip
    model = parser.add_argument_group("model")
    model.add_argument("--model", choices=tuple(MODELS), default="hdp", help="(default: hdp)")
    model.add_argument("--concentration", choices=("shared", "record", "hierarchical"),
                       help="of the hdp model: one alpha for all records, one each, or one each "
                       "with an unknown rate (default: shared)")  # fmt: skip
    chains = parser.add_argument_group("chains")
    for name, default, least, most, what in (
        ("chains", 4, 1, 2**16, "chains"),
        ("warmup", 1000, 0, 2**31, "sweeps before the first draw"),
        ("draws", 1000, 1, 2**31, "draws kept of each chain"),
        ("thin", 1, 1, 2**31, "sweeps per kept draw"),
        ("seed", 0, 0, 2**32, "the same seed gives the same results"),
    ):
        chains.add_argument(f"--{name}", metavar="K", type=_integer(least, most), default=default,
                            help=f"{what} (default: {default})")  # fmt: skip
    chains.add_argument("--resume", action="store_true",
                        help="go on from the checkpoint in DIR, if there is one")  # fmt: skip
    chains.add_argument("--checkpoint-seconds", metavar="S", type=_seconds, default=10.0,
                        help="least time between checkpoints (default: 10)")  # fmt: skip
    output = parser.add_argument_group("output")
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
