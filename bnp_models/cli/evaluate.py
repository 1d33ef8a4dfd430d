"""``bnp-models evaluate``: synthetic files judged by their original."""

import contextlib
import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax

from bnp_models.cli.commands import Evaluate, Measures, Relations
from bnp_models.cli.folder import (
    into_folder,
    located,
    reading_of,
    shows_progress,
    variables_of,
    write_files,
)
from bnp_models.cli.options import UsageError, flag
from bnp_models.cli.outputs import warning_lines
from bnp_models.cli.parts import Data, Output
from bnp_models.cli.samples import conditions_of, given_roles, recoded, with_empty_levels
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.folders import read_records
from bnp_models.data.households import Households, persons_of, read_households
from bnp_models.data.merging import merge_in_steps
from bnp_models.data.messages import install_command, reason
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import is_text
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.respelling import notation_in
from bnp_models.data.schema import MicrodataError, errors_in, unknown_variable
from bnp_models.data.source import Source
from bnp_models.data.writing import write_json, write_table
from bnp_models.evaluation import evaluation
from bnp_models.evaluation.attack.attack import AttackRisk, attack_risk, check_columns, refit
from bnp_models.evaluation.attack.posterior import (
    NoAttack,
    Posterior,
    check_source,
    model_of,
    read_posterior,
)
from bnp_models.evaluation.files import read_like
from bnp_models.evaluation.sources import find_sources
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import Conditions
from bnp_models.report.evaluation import write_evaluation_report
from bnp_models.rules.census import find_head
from bnp_models.rules.reading import read_rules
from bnp_models.rules.rules import Rules
from bnp_models.zeros.settled import NOT_APPLICABLE, empty_as_level, find_settled

_OUTPUTS = ("evaluation.json", "report.html")
_RECORDS = "records.csv"
_MEASURES = 0x4D454153
Table: TypeAlias = Records | Households
Units: TypeAlias = Microdata | Households

_OF_HOUSEHOLDS = ("household_variables", "rules", "roles", "quantities")


class _Files(NamedTuple):
    """Files of an evaluation, coded: arguments of `evaluation.evaluate`."""

    original: Table
    synthetic: list[Table]
    population: Table | None
    conditions: Conditions | None
    quantities: Rules | None
    holdout: Table | None


class _Original(NamedTuple):
    """The original, coded as the other files are to be."""

    table: Table
    """Records, or households."""
    levels: dict[str, Merged]
    """Recoded variables, by name."""
    as_level: bool
    """Whether values that are missing by design are a level."""


def evaluate(command: Evaluate) -> int:
    """``bnp-models evaluate``: check everything, judge the files, write the results."""
    given = _checked_files(command)
    attacked, no_attack = None, None
    try:
        attacked = _checked_posterior(command, given)
    except NoAttack as error:
        no_attack = str(error)
    names = _names_of(command.synthetic)
    output, measures = command.output, command.measures

    def work(out: Path) -> str:
        for name in (*_OUTPUTS, _RECORDS):
            (out / name).unlink(missing_ok=True)
        records: dict[str, Callable[[Path], None]] = {}
        attack = None
        if attacked is not None:
            # First, as it may be refused.
            attack = _attack(command, given, *attacked)
            if not output.no_records:
                records[_RECORDS] = functools.partial(write_table, attack.records())
        tell, close = _progress(output)
        try:
            result = evaluation.evaluate(
                **given._asdict(), combining=measures.combining, keys=measures.keys,
                targets=measures.targets, trees=measures.trees, progress=tell,
                key=jax.random.fold_in(jax.random.key(measures.seed), _MEASURES),
            )  # fmt: skip
        finally:
            close()
        lie = [j for j, file in enumerate(command.synthetic) if not file.is_standard_input]
        sources = find_sources([command.synthetic[j] for j in lie], [names[j] for j in lie])
        result = dataclasses.replace(result, sources=sources, attack=attack, no_attack=no_attack)
        summary = result.summary(names, measures.seed)
        settings = {
            "command": output.command,
            "original_sha256": given.original.digest,
            "synthetic_sha256": [table.digest for table in given.synthetic],
        }
        write_files(out, {
            "evaluation.json": functools.partial(write_json, settings | summary),
            **records,
            "report.html": lambda path: write_evaluation_report(
                path, result, names, command=output.command, records=not output.no_records
            ),
        })  # fmt: skip
        return _message(summary, out, output.no_records)

    return into_folder(output, {}, _OUTPUTS, work, "repeat the command")


def _checked_files(command: Evaluate) -> _Files:
    """Coded files, conditions or rules, and statements about households, all checked."""
    _check_options(command)
    original = _coded_original(command)
    conditions, quantities = _conditions(command, original.table)
    read = _reader(command, original)
    # What stands above the header of the original does not stand above theirs.
    as_found = {"sep": None, "encoding": None, "skip": 0, "sheet": None}
    synthetic = [read(path, **as_found) for path in command.synthetic]
    population, holdout = (
        None if path is None
        else read(path, **({} if is_text(path) == is_text(command.original) else as_found))
        for path in (command.population, command.holdout)
    )  # fmt: skip
    files = _Files(original.table, synthetic, population, conditions, quantities, holdout)
    _require_complete_units(command, files)
    _check_disclosure(command.measures, persons_of(original.table).schema.variables)
    return files


def _check_options(command: Evaluate) -> None:
    """Refuse options that are only for households, or not for them."""
    data, households = command.data, command.households
    if households.household is None:
        for name in _OF_HOUSEHOLDS:
            if vars(households)[name] is not None:
                raise UsageError(
                    f"{flag(name)}: needs --household, the column that identifies the household of "
                    "each person"
                )
        return
    if households.roles is not None and not (
        households.rules or households.quantities or command.attack.posterior
    ):
        raise UsageError(
            "--roles: is used only with --rules, --quantities or --posterior; leave it out"
        )
    if data.zeros is not None:
        raise UsageError(
            f"{data.zeros}: structural zeros describe single records; with --household, give "
            "--rules instead"
        )
    if command.changes is not None:
        raise UsageError(
            "--changes: this file describes single records, and cannot be used with --household; "
            "leave one of them out"
        )


def _coded_original(command: Evaluate) -> _Original:
    """Read and recode the original as options and the changes of a protection say."""
    data, households = command.data, command.households
    table = _read(data, households)
    persons = persons_of(table)
    as_level = data.text.empty_as_level or bool(data.text.settles_empty)
    if as_level:
        persons = with_empty_levels(data, persons)
    of_household = table.of_household if isinstance(table, Households) else None
    # Codes such as -1 among numbers are then in no range of the conditions, as for synthesize.
    persons, changes = recoded(
        data, persons, of_household=of_household, by_order=data.zeros is not None
    )
    levels: dict[str, Merged] = {**changes.all}
    if command.changes is not None:
        protected = _as_protected(command.changes, persons)
        persons = protected.coarser(persons)
        for name, one in protected.changed.items():
            if one is not None:
                levels[name] = levels[name].then(one) if name in levels else one
    if not isinstance(table, Households):
        return _Original(persons, levels, as_level)
    assert isinstance(persons, Microdata)
    with located(data):
        return _Original(table.with_persons(persons), levels, as_level)


def _conditions(command: Evaluate, original: Table) -> tuple[Conditions | None, Rules | None]:
    """Conditions or rules that the original obeys, and statements about households."""
    data, households = command.data, command.households
    if isinstance(original, Households):
        roles = given_roles(households, original.persons)
        rules, quantities = (
            None if path is None else read_rules(path, original, roles)
            for path in (households.rules, households.quantities)
        )
        if rules is not None:
            with located(data):
                rules.require_feasible(original)
        return rules, quantities
    conditions = conditions_of(data, original)
    if conditions is None:
        return None, None
    with errors_in(data.conditions or data.sample):
        # Compiled now: conditions that are too many are refused before anything is done.
        _ = conditions.diagram, conditions.walk
    with located(data):
        conditions.require_feasible(original)
    return conditions, None


def _reader(command: Evaluate, original: _Original) -> Callable[..., Table]:
    """Function that reads a file like the original, with changes of how files are read."""
    as_level, persons = original.as_level, persons_of(original.table)
    reading = reading_of(command.data)
    # What synthesize wrote is told from the files.
    found = {name: notation_in(command.original, name) for name in reading.numbers}
    usual = {name: notation for name, notation in found.items() if notation is not None}
    reading = dataclasses.replace(reading, notations=usual)

    def read(path: Source, **changed: Any) -> Table:
        as_changed = dataclasses.replace(reading, **changed)
        try:
            table = read_like(path, original.table, original.levels, as_changed)
        except MicrodataError as error:
            if not as_level and f"value {NOT_APPLICABLE!r}" in error.problem:
                raise UsageError(
                    f"{error}; if --empty-as-level made it a level, give that option here too"
                ) from None
            raise
        if as_level and not isinstance(table, Households):
            # In files of --keep-missing these cells are empty, as they are in the original.
            table = empty_as_level(table, find_settled(persons, NOT_APPLICABLE))
        # There may be more files than a process can have open.
        if not path.is_standard_input:
            path.release()
        return table

    return read


def _require_complete_units(command: Evaluate, files: _Files) -> None:
    """Refuse a file without any complete record, or household where statements are about these."""
    paths = [command.original, *command.synthetic, command.population, command.holdout]
    tables = [files.original, *files.synthetic, files.population, files.holdout]
    for path, table in zip(paths, tables, strict=True):
        if table is None:
            continue
        judged = [("record", persons_of(table).complete)]
        if files.quantities is not None and isinstance(table, Households):
            judged.append(("household", ~table.incomplete))
        for unit, complete in judged:
            if not complete.any():
                raise UsageError(
                    f"{path}: no {unit} has values of all variables; choose fewer --variables"
                )


def _check_disclosure(measures: Measures, variables: tuple[str, ...]) -> None:
    """Check keys and targets, and that trees can be grown."""
    if measures.targets is not None and not measures.keys:
        raise UsageError(
            "--targets: needs --keys, the variables that an intruder knows; add --keys, or leave "
            "--targets out"
        )
    for name, names in [("--keys", keys) for keys in measures.keys] + [
        ("--targets", measures.targets or ())
    ]:
        for variable in names:
            if variable not in variables:
                raise UsageError(f"{name}: {unknown_variable(variable, variables, 'variable')}")
    if measures.trees and importlib.util.find_spec("sklearn") is None:
        raise UsageError(
            "--trees: needs the package scikit-learn; install it: "
            f"{install_command('scikit-learn')}"
        )


def _read(data: Data, given: Relations) -> Table:
    """Read the original: `Households` where there is a column of them, else records or cells."""
    reading = reading_of(data)
    if given.household is None:
        return read_records(data.sample, variables_of(data), data.levels, reading)
    return read_households(
        data.sample, given.household, given.household_variables or (), variables_of(data),
        data.levels, reading=reading,
    )  # fmt: skip


def _as_protected(path: str, table: Records) -> Recoding:
    """Recoding that ``bnp-models protect`` applied to the variables of its file."""
    steps = _recodings(path)
    dropped = {one["variable"] for one in steps if one["to"] is None}
    merges = [(x["variable"], x["levels"], x["to"]) for x in steps if x["to"] is not None]
    names = table.schema.variables
    with errors_in(path):
        # Of variables that are left out, nothing is asked.
        _, merged = merge_in_steps(table, [step for step in merges if step[0] in names])
        return Recoding.of(table.schema, {**merged, **dict.fromkeys(dropped.intersection(names))})


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
        raise UsageError(
            f"--changes: {path}: is not a changes.json that bnp-models protect has written"
        ) from None
    return steps


def _checked_posterior(command: Evaluate, given: _Files) -> tuple[Posterior, Units] | None:
    """Draws that the files come from, and the original as it was coded for them."""
    original, attack, households = given.original, command.attack, command.households
    if attack.posterior is None:
        for name in ("refit", "target"):
            if vars(attack)[name]:
                raise UsageError(
                    f"{flag(name)}: needs --posterior, the posterior.nc that synthesize wrote with "
                    "the files"
                )
        return None
    if households.household is None and attack.target is not None:
        raise UsageError(
            "--target: is only for persons within households; leave it out, or give --household"
        )
    for path, table in zip(
        [command.original, *command.synthetic], [original, *given.synthetic], strict=True
    ):
        if isinstance(table, ContingencyTable):
            raise UsageError(
                f"--posterior: attacks need single records, but {path} is a folder, of which only "
                "cell counts are kept; leave --posterior out"
            )
    assert not isinstance(original, ContingencyTable)
    posterior, coded = read_posterior(attack.posterior), original
    if (
        isinstance(original, Households)
        and posterior.attributes["sample_sha256"] != original.digest
    ):
        head = find_head(original.schema, given_roles(households, original.persons))
        # The head of each household at household level, as synthesize has it where it can.
        with contextlib.suppress(MicrodataError):
            coded = original if head is None else original.with_persons(original.persons, head)
    with errors_in(attack.posterior):
        check_source(posterior, coded, given.conditions)
    with located(command.data):
        check_columns(coded)
    for path, table in zip(command.synthetic, given.synthetic, strict=True):
        # Written as is told from it.
        with located(Data(sample=path, variables=command.variables)):
            table.require_complete("the attack")
    return posterior, coded


def _attack(command: Evaluate, given: _Files, posterior: Posterior, original: Units) -> AttackRisk:
    """Attack every record that is alone with its values."""
    progress = shows_progress(command.output)
    key_refit, key = Keys(jax.random.key(command.measures.seed), 2)
    synthetic, conditions = given.synthetic, given.conditions
    if command.households.household is not None:
        synthetic = [table.to_frame() for table in synthetic]
    refits = None
    if command.attack.refit:
        num_chains, num_kept = posterior.parameters["log_pi"].shape[:2]
        model = model_of(posterior)
        num_samples = num_kept * model.parameters_every
        refits = refit(
            model, original, synthetic, key=key_refit, conditions=conditions,
            num_chains=num_chains, num_samples=num_samples, progress=progress,
            **{name: int(posterior.attributes[name]) for name in ("num_warmup", "thin")},
        )  # fmt: skip
    return attack_risk(
        posterior, original, synthetic, key=key, conditions=conditions,
        target=command.attack.target, refits=refits, progress=progress,
    )  # fmt: skip


def _names_of(paths):
    """Names of the files without their folders, if these differ."""
    names = [Path(str(path)).name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))


def _progress(output: Output) -> tuple[Callable | None, Callable]:
    """Functions that show on a bar how far the evaluation is, and that end the bar."""
    if not shows_progress(output):
        return None, lambda: None
    from tqdm import tqdm

    bars: list[tqdm] = []

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
                f"{order}-way proportions: the intervals overlap those of the original by "
                f"{100 * row['overlap']:.0f}%, and contain its proportion in "
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
            f"attack on every {attack['target']} whose combination of values is unique: "
            f"{attack['in_words']}"
        )
    lines += warning_lines(summary["warnings"])
    table = ", records.csv" if attack is not None and not no_records else ""
    lines.append(f"written: {out / 'report.html'}, evaluation.json{table}, run.toml")
    return "\n".join(lines)
