"""``bnp-models compare``: models of one sample side by side."""

import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bnp_models.cli.commands import Compare
from bnp_models.cli.folder import (
    into_folder,
    located,
    progress_of_chains,
    say,
    write_files,
)
from bnp_models.cli.inputs import check_sweeps
from bnp_models.cli.label_checks import require_order
from bnp_models.cli.models import MODELS, MODELS_OF
from bnp_models.cli.options import UsageError, about, plain, values_of
from bnp_models.cli.parts import Data
from bnp_models.cli.runs import GO_ON
from bnp_models.cli.samples import read_sample
from bnp_models.comparison.comparison import Comparison, compare
from bnp_models.data.display import counted
from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Microdata
from bnp_models.data.writing import write_json
from bnp_models.inference.checkpoint import Checkpoint
from bnp_models.models.model import Model
from bnp_models.report.comparison import comparison_summary, write_comparison_report
from bnp_models.risk.evaluator import check_table
from bnp_models.version import __version__

_LOG = logging.getLogger(__name__)

_OUTPUTS = ("compare.json", "run.json", "report.html")


def compare_models(command: Compare) -> int:
    """``bnp-models compare``: check everything, run the chains, write the comparison."""
    data, fit, chains, output = command.data, command.fit, command.chains, command.output
    groups = as_hierarchies(fit.groups or ())
    models = {text: _model(text, groups) for text in command.models}
    _check_zeros(data, models)
    table, conditions, changes = read_sample(data, fit)
    assert isinstance(table, Microdata)
    with located(data):
        table.require_complete("a comparison of models")
        models = {text: changes.grouped(model) for text, model in models.items()}
        for model in models.values():
            model.check(table)
            named = vars(model).get("ordered", ())
            require_order(data, table, () if isinstance(named, str) else named)
        check_table(table, command.population_size or table.n)
    if command.folds > command.parts:
        raise UsageError(f"--folds {command.folds}: is more than --parts {command.parts}; lower it")
    if command.parts > table.n:
        raise UsageError(
            f"--parts {command.parts}: is more than the {table.n} records of SAMPLE; lower it"
        )
    check_sweeps(chains)
    said = values_of(command)
    names = ("models", "folds", "parts", "population_size", "chains", "warmup", "draws", "thin",
             "seed", "max_minutes", "no_records")  # fmt: skip
    settings = {name: plain(said[name]) for name in names} | {
        "groups": {name: str(file) for name, file in fit.groups} if fit.groups else None,
        "sample_sha256": table.digest,
        "conditions_sha256": None if conditions is None else conditions.digest,
        "version": __version__,
        "jax_version": jax.__version__,
    }

    def work(out: Path) -> str:
        if not chains.resume:
            for name in _OUTPUTS:
                (out / name).unlink(missing_ok=True)
        say(
            output,
            f"{counted(len(models) * (1 + command.folds), 'run')} of chains: "
            f"{counted(len(models), 'model')}, fitted to the sample and to the sample without "
            f"each of {counted(command.folds, 'part')}",
        )
        found = compare(
            models, table, key=jax.random.key(chains.seed), conditions=conditions,
            population_size=command.population_size, num_folds=command.parts, folds=command.folds,
            **chains.sweeps, max_minutes=chains.max_minutes,
            checkpoint=out / "checkpoint", resume=chains.resume,
            checkpoint_seconds=chains.checkpoint_seconds, progress=progress_of_chains(output),
        )  # fmt: skip
        summary = comparison_summary(found, seed=chains.seed)
        write_files(out, {
            "compare.json": partial(write_json, summary),
            "run.json": partial(write_json, settings | {"command": output.command}),
            "report.html": lambda path: write_comparison_report(
                path, found, command=output.command, seed=chains.seed
            ),
        })  # fmt: skip
        answer = _message(found, out)
        if not all(one.complete for one in found.models.values()):
            return f"{answer}\n{GO_ON}"
        for path in sorted((out / "checkpoint").iterdir()):
            Checkpoint(path, fingerprint="").clear()
        (out / "checkpoint").rmdir()
        return answer

    data.sample.close()
    how = f"repeat the command with --resume to go on in {output.out}"
    return into_folder(output, settings, _OUTPUTS, work, how, resume=chains.resume)


def _check_zeros(data: Data, models: Mapping[str, Model]) -> None:
    """Refuse structural zeros that no model takes, and say which models do without them."""
    without = [text for text, model in models.items() if model.conditions_type is None]
    if data.zeros is None or not without:
        return
    if len(without) == len(models):
        raise UsageError(
            f"{data.zeros}: none of the models takes structural zeros; compare tnplcm too, or "
            f"leave {data.zeros} out"
        )
    _LOG.warning(
        "%s: models that take no structural zeros are fitted without them: %s",
        data.zeros, listed(without),
    )  # fmt: skip


def _model(text: str, groups: Hierarchies = ()) -> Model:
    """Model given as NAME or NAME:OPTION=VALUE:.., with the groups that all have."""
    name, *given = text.split(":")
    known = [known for known in MODELS_OF["compare"]]
    if name not in known:
        raise UsageError(
            f"--models: {name!r} is not a model that can be compared; choose from "
            f"{listed(known, 'and')}"
        )
    values: dict[str, Any] = {"groups": groups}
    for pair in given:
        option, _, value = pair.partition("=")
        option = option.replace("-", "_")
        own = [known for known in MODELS[name].options if known != "groups"]
        if option not in own or not value:
            options = [known.replace("_", "-") for known in own]
            raise UsageError(
                f"--models: {pair!r} does not set an option of {name}, whose options are "
                f"{listed(options, 'and')}"
            )
        values[option] = _value(value)
        if option == "ordered":
            values[option] = value if value in ("auto", "none") else value.split("+")
    with about(f"--models {text}"):
        return MODELS[name].load()(**values)


def _value(text: str) -> int | float | str:
    """A number where the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _message(found: Comparison, out: Path) -> str:
    """Lines that say which model predicts best, and what was written."""
    lines = [
        f"{row.model}: mean log probability of a held-out record {row.held_out:.3f} nats"
        + (
            f", {row.behind:.3f} (standard error {row.behind_se:.3f}) less than the best"
            if row.behind
            else ", the best"
        )
        for row in found.table().itertuples()
    ]
    lines += [
        f"warning: {name}: {sentence}"
        for name, one in found.models.items() for sentence in one.warnings()
        if "stopped after" in sentence
    ]  # fmt: skip
    return "\n".join([*lines, f"written: {out / 'report.html'}, compare.json, run.json, run.toml"])
