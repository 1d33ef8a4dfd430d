"""``bnp-models compare``: models of one sample side by side."""

import argparse
import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bnp_models.cli.folder import (
    UsageError,
    command_line,
    into_folder,
    located,
    shows_progress,
    write_files,
)
from bnp_models.cli.inputs import check_sweeps
from bnp_models.cli.models import MODELS, MODELS_OF
from bnp_models.cli.samples import read_sample
from bnp_models.comparison.comparison import Comparison, compare
from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Microdata
from bnp_models.data.writing import write_json
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.models.model import Model
from bnp_models.report.comparison import comparison_summary, write_comparison_report
from bnp_models.risk.evaluator import check_table
from bnp_models.version import __version__

_OUTPUTS = ("compare.json", "run.json", "report.html")


def compare_models(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models compare``: check everything, run the chains, write the comparison."""
    groups = as_hierarchies(options.groups or ())
    models = {text: _model(text, groups) for text in options.models}
    table, conditions, changes = read_sample(options)
    assert isinstance(table, Microdata)
    with located(options):
        table.require_complete("a comparison of models")
        models = {text: changes.grouped(model) for text, model in models.items()}
        for model in models.values():
            model.check(table)
        check_table(table, options.population_size or table.n)
    if options.folds > options.parts:
        raise UsageError(f"--folds {options.folds}: is more than --parts {options.parts}")
    if options.parts > table.n:
        raise UsageError(f"--parts {options.parts}: is more than the {table.n} records")
    check_sweeps(options)
    names = ("models", "folds", "parts", "population_size", "chains", "warmup", "draws", "thin",
             "seed", "no_records")  # fmt: skip
    settings = {name: vars(options)[name] for name in names} | {
        "groups": {name: str(file) for name, file in options.groups} if options.groups else None,
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": __version__,
        "jax_version": jax.__version__,
    }

    def work(out: Path) -> str:
        if not options.resume:
            for name in _OUTPUTS:
                (out / name).unlink(missing_ok=True)
        found = compare(
            models, table, key=jax.random.key(options.seed), conditions=conditions,
            population_size=options.population_size, num_folds=options.parts, folds=options.folds,
            num_chains=options.chains, num_warmup=options.warmup, num_samples=options.draws,
            thin=options.thin, checkpoint=out / "checkpoint", resume=options.resume,
            checkpoint_seconds=options.checkpoint_seconds, progress=shows_progress(options),
        )  # fmt: skip
        command = command_line(argv)
        summary = comparison_summary(found, seed=options.seed)
        write_files(out, {
            "compare.json": partial(write_json, summary),
            "run.json": partial(write_json, settings | {"command": command}),
            "report.html": lambda path: write_comparison_report(
                path, found, command=command, seed=options.seed
            ),
        })  # fmt: skip
        for path in sorted((out / "checkpoint").iterdir()):
            Checkpoint(path, fingerprint="").clear()
        (out / "checkpoint").rmdir()
        return _message(found, out)

    options.sample.close()
    how = f"repeat the command with --resume to go on in {options.out}"
    return into_folder(options, settings, _OUTPUTS, work, how)


def _model(text: str, groups: Hierarchies = ()) -> Model:
    """Model given as NAME or NAME:OPTION=VALUE:.., with the groups that all have."""
    name, *given = text.split(":")
    known = [known for known in MODELS_OF["compare"]]
    if name not in known:
        raise UsageError(f"--models: {name!r} is none of {listed(known, 'and')}")
    values: dict[str, Any] = {"groups": groups}
    for pair in given:
        option, _, value = pair.partition("=")
        option = option.replace("-", "_")
        own = [known for known in MODELS[name].options if known != "groups"]
        if option not in own or not value:
            options = [known.replace("_", "-") for known in own]
            raise UsageError(
                f"--models: {pair!r} sets no option of {name}, which has {listed(options, 'and')}"
            )
        values[option] = _value(value)
        if option == "ordered":
            values[option] = value if value in ("auto", "none") else value.split("+")
    try:
        return MODELS[name].load()(**values)
    except ValueError as error:
        raise UsageError(f"--models {text}: {error}") from None


def _value(text: str) -> int | float | str:
    """A number where the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _message(found: Comparison, out: Path) -> str:
    """Lines that say which model predicts best, and what was written."""
    lines = [
        f"{row.model}: {row.held_out:.3f} nats a held-out record"
        + (f", {row.behind:.3f} (se {row.behind_se:.3f}) behind" if row.behind else ", the best")
        for row in found.table().itertuples()
    ]
    return "\n".join([*lines, f"written: {out / 'report.html'}, compare.json"])
