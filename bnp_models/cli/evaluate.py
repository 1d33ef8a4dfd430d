"""``bnp-models evaluate``: synthetic files judged by their original."""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bnp_models.cli.folder import (
    UsageError,
    command_line,
    into_folder,
    located,
    reading_of,
    shows_progress,
    write_files,
)
from bnp_models.cli.parser import flag
from bnp_models.cli.samples import given_roles, recoded
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.folders import read_records
from bnp_models.data.households import persons_of, read_households
from bnp_models.data.merging import merge_in_steps
from bnp_models.data.messages import reason
from bnp_models.data.microdata import Records
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.schema import MicrodataError, unknown_variable
from bnp_models.data.text_files import Reading
from bnp_models.data.writing import write_json, write_table
from bnp_models.evaluation import evaluation
from bnp_models.evaluation.attack.attack import attack_risk, check_columns, refit
from bnp_models.evaluation.attack.posterior import check_source, model_of, read_posterior
from bnp_models.evaluation.files import read_like
from bnp_models.evaluation.sources import find_sources
from bnp_models.kernels.variates.rng import Keys
from bnp_models.report.evaluation import write_evaluation_report
from bnp_models.rules.census import find_head
from bnp_models.rules.reading import read_rules
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import read_conditions

_OUTPUTS = ("evaluation.json", "report.html")
_RECORDS = "records.csv"
_OF_HOUSEHOLDS = ("household_variables", "rules", "roles", "quantities")


class _Files(NamedTuple):
    """Files of an evaluation, coded: arguments of `evaluation.evaluate`."""

    original: Any
    synthetic: list
    population: Any
    conditions: Any
    quantities: Rules | None
    holdout: Any


def evaluate(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models evaluate``: check everything, judge the files, write the results."""
    given = _checked_files(options)
    posterior, coded = _checked_posterior(
        options, given.original, given.synthetic, given.conditions
    )
    names = _names_of(options.synthetic)

    def work(out: Path) -> str:
        for name in (*_OUTPUTS, _RECORDS):
            (out / name).unlink(missing_ok=True)
        records: dict[str, Callable[[Path], None]] = {}
        attack = None
        if posterior is not None:
            # First, as it may be refused.
            attack = _attack(options, posterior, coded, given.synthetic, given.conditions)
            if not options.no_records:
                records[_RECORDS] = functools.partial(write_table, attack.records())
        tell, close = _progress(options)
        try:
            result = evaluation.evaluate(
                **given._asdict(), combining=options.combining, seed=options.seed, progress=tell,
                keys=options.keys, targets=options.targets, trees=options.trees,
            )  # fmt: skip
        finally:
            close()
        lie = [j for j, file in enumerate(options.synthetic) if not file.is_standard_input]
        sources = find_sources([options.synthetic[j] for j in lie], [names[j] for j in lie])
        result = dataclasses.replace(result, sources=sources, attack=attack)
        command = command_line(argv)
        summary = result.summary(names)
        settings = {
            "command": command,
            "original_sha256": given.original.digest,
            "synthetic_sha256": [table.digest for table in given.synthetic],
        }
        write_files(out, {
            "evaluation.json": functools.partial(write_json, settings | summary),
            **records,
            "report.html": lambda path: write_evaluation_report(
                path, result, names, command=command, records=not options.no_records
            ),
        })  # fmt: skip
        return _message(summary, out, options.no_records)

    return into_folder(options, {}, _OUTPUTS, work, "repeat the command")


def _checked_files(options: argparse.Namespace) -> _Files:
    """Coded files, conditions or rules, and statements about households, all checked."""
    if options.household is None:
        for name in _OF_HOUSEHOLDS:
            if vars(options)[name] is not None:
                raise UsageError(f"{flag(name)}: needs --household, the column of households")
    elif options.conditions is not None:
        raise UsageError(
            "--conditions: describe single records; with --household, give --rules instead"
        )
    if options.household is not None and options.changes is not None:
        raise UsageError("--changes: describes single records and cannot be used with --household")
    original = _read(options)
    persons, changes = recoded(options, persons_of(original))
    bins: dict[str, Merged] = {**changes.all}
    if options.changes is not None:
        protected = _as_protected(options, persons)
        persons = protected.coarser(persons)
        for name, one in protected.changed.items():
            if one is not None:
                bins[name] = bins[name].then(one) if name in bins else one
    if options.household is None:
        original = persons
    else:
        with located(options):
            original = original.with_persons(persons)
    conditions: Any = None
    quantities = None
    if options.conditions is not None:
        conditions = read_conditions(options.conditions, original.schema)
        try:
            # Compiled now: conditions that are too many are refused before anything is done.
            _ = conditions.diagram, conditions.walk
        except MicrodataError as error:
            raise error.in_file(options.conditions) from None
    roles = given_roles(options, persons_of(original))
    if options.rules is not None:
        conditions = read_rules(options.rules, original, roles)
    if options.quantities is not None:
        quantities = read_rules(options.quantities, original, roles)
    if conditions is not None:
        with located(options):
            conditions.require_feasible(original)
    reading = reading_of(options)
    # What synthesize wrote is told from the files.
    made = Reading(missing=reading.missing)

    def read(path, reading=reading):
        table = read_like(path, original, bins, reading)
        # There may be more files than a process can have open.
        if not path.is_standard_input:
            path.release()
        return table

    files = [(path, read(path, made)) for path in options.synthetic]
    population = None
    if options.population is not None:
        population = read(options.population)
        files.append((options.population, population))
    holdout = None
    if options.holdout is not None:
        holdout = read(options.holdout)
        files.append((options.holdout, holdout))
    for path, table in [(options.original, original), *files]:
        if not persons_of(table).complete.any():
            raise UsageError(f"{path}: no record has values of all variables; choose --variables")
        if quantities is not None and table.incomplete.all():
            raise UsageError(f"{path}: no household is complete; choose --variables")
    synthetic = [table for _, table in files[: len(options.synthetic)]]
    _check_disclosure(options, persons_of(original).schema.variables)
    return _Files(original, synthetic, population, conditions, quantities, holdout)


def _check_disclosure(options: argparse.Namespace, variables: tuple[str, ...]) -> None:
    """Check keys and targets, and that trees can be grown."""
    if options.targets is not None and not options.keys:
        raise UsageError("--targets: needs --keys, the variables that an intruder knows")
    for name, names in [("--keys", keys) for keys in options.keys] + [
        ("--targets", options.targets or [])
    ]:
        for variable in names:
            if variable not in variables:
                raise UsageError(f"{name}: {unknown_variable(variable, variables, 'variable')}")
    if options.trees and importlib.util.find_spec("sklearn") is None:
        raise UsageError("--trees: needs scikit-learn; pip install 'bnp-models[trees]'")


def _read(options: argparse.Namespace) -> Any:
    """Read the original: `Households` where there is a column of them, else records or cells."""
    if options.household is None:
        return read_records(
            options.original, options.variables, options.levels, reading_of(options)
        )
    return read_households(
        options.original, options.household, options.household_variables or (),
        options.variables, options.levels, reading=reading_of(options),
    )  # fmt: skip


def _as_protected(options: argparse.Namespace, table: Records) -> Recoding:
    """What ``bnp-models protect`` made of the variables of its file."""
    path = options.changes
    steps = _recodings(path)
    dropped = {one["variable"] for one in steps if one["to"] is None}
    merges = [(x["variable"], x["levels"], x["to"]) for x in steps if x["to"] is not None]
    names = table.schema.variables
    try:
        # Of variables that are left out, nothing is asked.
        _, merged = merge_in_steps(table, [step for step in merges if step[0] in names])
        return Recoding.of(table.schema, {**merged, **dict.fromkeys(dropped.intersection(names))})
    except MicrodataError as error:
        raise error.in_file(path) from None


def _recodings(path: str) -> list[dict[str, Any]]:
    """Recodings that a changes.json tells of."""
    try:
        steps = json.loads(Path(path).read_text(encoding="utf-8"))["recodings"]
        for one in steps:
            texts = [one["variable"], *one["levels"], "" if one["to"] is None else one["to"]]
            # Texts, and such as a page can hold.
            "".join(texts).encode()
            if not isinstance(one["levels"], list):
                raise TypeError
    except OSError as error:
        raise UsageError(f"--changes: {path}: cannot be read ({reason(error)})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"--changes: {path}: is no changes.json of bnp-models protect") from None
    return steps


def _checked_posterior(options, original, synthetic, conditions):
    """Draws that the files come from, and the original as it was coded for them."""
    if options.posterior is None:
        for name in ("refit", "target"):
            if vars(options)[name]:
                raise UsageError(f"{flag(name)}: needs --posterior, the posterior.nc of synthesize")
        return None, None
    if options.household is None and options.target is not None:
        raise UsageError("--target: is only for persons within households (--household)")
    for path, table in zip(
        [options.original, *options.synthetic], [original, *synthetic], strict=True
    ):
        if isinstance(table, ContingencyTable):
            raise UsageError(f"--posterior: the attack needs records, and {path} is a folder")
    posterior = read_posterior(options.posterior)
    coded = original
    roles = given_roles(options, persons_of(original))
    head = None if options.household is None else find_head(original.schema, roles)
    if head is not None and posterior.attributes["sample_sha256"] != original.digest:
        # The head of each household at household level, as synthesize has it where it can.
        with contextlib.suppress(MicrodataError):
            coded = original.with_persons(original.persons, head)
    try:
        check_source(posterior, coded, conditions)
    except MicrodataError as error:
        raise error.in_file(options.posterior) from None
    with located(options):
        check_columns(coded)
    for path, table in zip(options.synthetic, synthetic, strict=True):
        with located(options, path):
            table.require_complete("the attack")
    return posterior, coded


def _attack(options, posterior, original, synthetic, conditions):
    """Attack every record that is alone with its values."""
    import jax

    progress = shows_progress(options)
    key_refit, key = Keys(jax.random.key(options.seed), 2)
    if options.household is not None:
        synthetic = [table.to_frame() for table in synthetic]
    refits = None
    if options.refit:
        num_chains, num_kept = posterior.parameters["log_pi"].shape[:2]
        model = model_of(posterior)
        num_samples = num_kept * model.parameters_every
        refits = refit(
            model, original, synthetic, key=key_refit, conditions=conditions,
            num_chains=num_chains, num_samples=num_samples, progress=progress,
            **{name: int(posterior.attributes[name]) for name in ("num_warmup", "thin")},
        )  # fmt: skip
    return attack_risk(
        posterior, original, synthetic, key=key, conditions=conditions, target=options.target,
        refits=refits, progress=progress,
    )  # fmt: skip


def _names_of(paths):
    """Names of the files without their folders, if these differ."""
    names = [Path(str(path)).name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))


def _progress(options):
    """Functions that show on a bar how far the evaluation is, and that end the bar."""
    if not shows_progress(options):
        return None, lambda: None
    from tqdm import tqdm

    bars = []

    def tell(what, done, of):
        if not bars or bars[-1].desc != what:
            if bars:
                bars[-1].close()
            bars.append(tqdm(total=of, desc=what, leave=False))
            bars[-1].desc = what
        bars[-1].update(done - bars[-1].n)

    return tell, lambda: bars and bars[-1].close()


def _message(summary, out, no_records):
    """Lines that say what was found, and what was written."""
    number = len(summary["files"])
    lines = []
    for order, row in summary["proportions"].items():
        if row["overlap"] is not None:
            lines.append(
                f"{order}-way proportions: intervals overlap the original's by "
                f"{100 * row['overlap']:.0f}%, and cover its proportion in "
                f"{100 * row['covers_original']:.0f}% of {row['cells_judged']:,} cells"
            )
    for kind, score in summary["pmse"].items():
        lines.append(
            f"pMSE by {kind.replace('_', ' ')}: {score['ratio']:.2f} times its expected value"
        )
    uniques = summary["replicated_uniques"]
    if uniques["uniques"]:
        share = sum(uniques["found"]) / number / uniques["uniques"]
        lines.append(
            f"{100 * share:.1f}% of the original's {uniques['uniques']:,} unique combinations "
            "occur in a synthetic file, on average"
        )
    attack = summary["attack_risk"]
    if attack is not None and attack["attacked"]:
        lines.append(
            f"attack on every {attack['target']} that is alone with its values: "
            f"{attack['in_words']}"
        )
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    table = ", records.csv" if attack is not None and not no_records else ""
    lines.append(f"written: {out / 'report.html'}, evaluation.json{table}")
    return "\n".join(lines)
