"""``bnp-models protect``: a sample recoded and suppressed until its risk meets limits."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from bnp_models.cli.commands import Protect
from bnp_models.cli.folder import (
    columns_with,
    in_order,
    located,
    reading_of,
    shows_progress,
    tell,
    write_files,
)
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.options import UsageError, about
from bnp_models.cli.outputs import recoding_file, verdict_lines
from bnp_models.cli.population import require_population, weights_of, with_population, with_unit
from bnp_models.cli.release import (
    filing_of,
    limits_of,
    read_ids,
    release_settings,
    with_strictness,
)
from bnp_models.cli.runs import (
    Finished,
    further_chains,
    recorded_settings,
    sample_into_folder,
)
from bnp_models.cli.samples import check_weights_for
from bnp_models.data.coarser_households import recoded_households
from bnp_models.data.display import counted
from bnp_models.data.household_weights import WeightedHouseholds, plain_households
from bnp_models.data.households import Households, persons_of
from bnp_models.data.identifying import Identifying, identifying_variables
from bnp_models.data.messages import as_option, listed, quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.reading import columns_of_file, read_frame
from bnp_models.data.respelling import with_decimal_commas
from bnp_models.data.schema import Schema
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.data.writing import write_frame, write_json
from bnp_models.inference.diagnosis import diagnose
from bnp_models.inference.run import HouseholdsRun, RecordsRun, is_of_households, is_of_records
from bnp_models.inference.sampling import sample
from bnp_models.models.model import PredictsCells
from bnp_models.report.households import household_risk_summary
from bnp_models.report.protection import changes_document, write_protection_report
from bnp_models.report.summaries import allows_verdict, risk_summary
from bnp_models.risk.anonymity import Anonymity
from bnp_models.risk.coarsening import hierarchies_of, parse_coarsening
from bnp_models.risk.coarser_compositions import require_few_heads
from bnp_models.risk.evaluator import check_table
from bnp_models.risk.households import HouseholdRisk, check_households, household_risk
from bnp_models.risk.likelihood import early_diagnosis
from bnp_models.risk.population import PopulationRisk, population_risk, tau1_monitor
from bnp_models.risk.protection import Protection, check_names, protect
from bnp_models.risk.recoding import ordered_variables
from bnp_models.risk.released import Column, check_columns, related_columns
from bnp_models.risk.units import Units
from bnp_models.synthesis.predictive_checks import predictive_checks

_LOG = logging.getLogger(__name__)

# Folded into the key that a run set aside.
_REFIT = 0x52454649


def protect_sample(command: Protect) -> int:
    """``bnp-models protect``: check everything, sample, protect, write the file and its log."""
    asked = command.protection
    if not limits_of(command.limits).given and not asked.k:
        raise UsageError(
            "protect: no limit is given; give --max-tau1 X, --max-risk P or --k K, or several of "
            "them"
        )
    if asked.strata is not None and not asked.k:
        raise UsageError("--strata: is used only with --k; add --k K, or leave --strata out")
    command = with_unit(command)
    require_population(command)
    inputs = checked_input(command)
    command = with_population(command, weights_of(inputs.table))
    ids = _ids(command, inputs)
    size, beside = command.size, _read_beside(command)
    importance = dict(asked.importance)
    _check_protection(command, inputs)
    if asked.strata is not None and isinstance(inputs.table, Households):
        with about("--strata"):
            Units.of(inputs.table).strata(beside[asked.strata].to_numpy(object))
    _check_released(command, inputs, beside)
    settings = recorded_settings(
        command, inputs, population_size=size, **release_settings(command), recode=asked.recode,
        suppress=asked.suppress, importance=importance, refit=asked.refit, k=asked.k,
        strata=asked.strata, carry=asked.carry, link=asked.link, no_merge=asked.no_merge,
    )  # fmt: skip
    write = functools.partial(_write_protected, command, inputs, ids, beside)
    options: dict[str, Any] = {
        "population_size": size, "progress": shows_progress(command.output),
    }  # fmt: skip
    if isinstance(inputs.table, Households):
        of_households = functools.partial(household_risk, **options)
        code = sample_into_folder(command, inputs, settings, of_households, write)
    else:
        assert isinstance(inputs.model, PredictsCells)
        monitor = None if isinstance(inputs.table, WeightedMicrodata) else tau1_monitor(
            inputs.model, inputs.table, size, conditions=inputs.conditions
        )  # fmt: skip
        of_records = functools.partial(population_risk, **options)
        code = sample_into_folder(
            command, inputs, settings, of_records, write, monitor, early=early_diagnosis
        )
    return with_strictness(command.limits, code, command.output.folder / "run.json")


def _ids(command: Protect, inputs: Inputs) -> pd.Series | None:
    """Identifiers (n,) of the records: those of --id, or of the households of the persons."""
    table = inputs.table
    if command.data.id is None and isinstance(table, Households):
        return pd.Series(table.ids[table.of_household])
    return read_ids(command.data)


def _carried(command: Protect) -> list[str]:
    """Columns that are no key variables and are released as they are."""
    asked = command.protection
    strata = [] if asked.strata is None else [asked.strata]
    return list(dict.fromkeys([*strata, *asked.carry]))


def _read_beside(command: Protect) -> pd.DataFrame:
    """Columns (n, any) of the sample that are no key variables and are released, in its order.

    All that writing needs of the sample is read before chains are run.
    """
    data = command.data
    wanted = [*_carried(command), *(name for name, _ in command.protection.link)]
    columns = columns_with(data, wanted)
    if not wanted:
        return pd.DataFrame()
    kept = [name for name in columns if name in wanted]
    frame, _ = read_frame(data.sample, kept, reading_of(data))
    return frame


def _check_released(command: Protect, inputs: Inputs, beside: pd.DataFrame) -> None:
    """Check the columns that are released beside the key variables; say what they may tell."""
    data, asked, table = command.data, command.protection, records_of(persons_of(inputs.table))
    assert isinstance(table, Microdata)
    keys = inputs.changes.original.schema.variables
    with about("--carry, --link"):
        check_columns(beside, _carried(command), dict(asked.link), table.schema.variables)
    names = columns_of_file(data.sample, reading_of(data), keys)
    known = {*keys, *beside, *data.drop, command.fit.households.household}
    left_out = [quoted(name) for name in names if name not in known]
    if left_out:
        _LOG.warning(
            "%s: columns that are no key variables are not written to protected.csv: %s; --carry "
            "writes them as they are, and --link A=B writes A changed as key variable B is",
            data.sample, listed(left_out),
        )  # fmt: skip
    columns = {name: Column.of(beside[name], gaps_tell=True) for name in beside}
    related = related_columns(table, columns)
    for name in _carried(command):
        if name in related:
            _LOG.warning(
                "%s: column %r nearly determines key variable %r, or is determined by it, and is "
                "released as it is; if values of %s are suppressed or merged, they can be read "
                "back, and the verdict is no. --link %s in the place of --carry suppresses and "
                "merges both together", data.sample, name, related[name][0], related[name][0],
                as_option([f"{name}={related[name][0]}"]),
            )  # fmt: skip
    for one in _identifying(beside[_carried(command)]):
        _LOG.warning(
            "%s: column %r, which is released as it is, %s", data.sample, one.variable, one.why
        )


def _identifying(frame: pd.DataFrame) -> list[Identifying]:
    """Columns of a frame (n, any) that identify records, or nearly do."""
    columns = {name: Column.of(frame[name]) for name in frame}
    columns = {name: one for name, one in columns.items() if one.labels}
    if not columns:
        return []
    schema = Schema(tuple(columns), tuple(tuple(one.labels) for one in columns.values()))
    codes = np.stack([one.codes for one in columns.values()], axis=1)
    return identifying_variables(Microdata(schema, codes))


def _check_protection(command: Protect, inputs: Inputs) -> None:
    """Check what is asked of the protection, before any work is done."""
    table = records_of(persons_of(inputs.table))
    assert isinstance(table, Microdata)
    asked, households = command.protection, inputs.table
    with located(command.data):
        if isinstance(households, Households):
            check_households(inputs.model, households, command.size)
        else:
            check_table(table, command.size)
        check_weights_for(command.data, inputs.table, command.size)
    if asked.refit and inputs.conditions is not None:
        zeros = "rules" if isinstance(households, Households) else "structural zeros"
        raise UsageError(
            f"--refit: the {zeros} describe the levels of the sample, and not the merged "
            f"levels; leave --refit out, and run bnp-models risk on protected.csv with {zeros} "
            "for its own levels"
        )
    if asked.refit and isinstance(inputs.table, WeightedMicrodata | WeightedHouseholds):
        raise UsageError("--refit: cannot be used with --weights; leave one of them out")
    with about("--importance"):
        check_names(table, dict(asked.importance), ())
    with about("--no-merge"):
        check_names(table, {}, asked.no_merge)
    if asked.suppress < 1:
        _tell_of_arbitrary_merges(command, inputs, table)
    with about("--k"):
        for target in _targets(command):
            target.check(table.schema)
    with about("--recode"):
        for text in filter(None, [";".join(asked.recode)]):
            recoding = parse_coarsening(text, table.schema, hierarchies_of(inputs.model))
            if isinstance(households, Households):
                plain = plain_households(households)
                recoded_households(plain, recoding)
                require_few_heads({text: recoding}, inputs.model, plain.schema)


def _tell_of_arbitrary_merges(command: Protect, inputs: Inputs, table: Microdata) -> None:
    """Say of which variables any levels may be merged, since nothing says which go together."""
    order = ordered_variables(table.schema, command.fit.named_ordered)
    meant = {name for name, _ in hierarchies_of(inputs.model)} | {*command.protection.no_merge}
    arbitrary = [
        name for name, labels, known in zip(
            table.schema.variables, table.schema.levels, order, strict=True
        )
        if len(labels) > 2 and not known and name not in meant
    ]  # fmt: skip
    if arbitrary:
        _LOG.warning(
            "%s: key variables without an order or groups of their levels, so that any of their "
            "levels may be merged with any other: %s; --groups A=FILE says which go together, "
            "--ordered A with --levels which are next to each other, and --no-merge %s forbids it",
            command.data.sample, listed(map(quoted, arbitrary)), as_option(arbitrary),
        )  # fmt: skip


def _targets(command: Protect) -> list[Anonymity]:
    """Targets of k-anonymity."""
    return [Anonymity(*one) for one in command.protection.k]


def _write_protected(
    command: Protect,
    inputs: Inputs,
    ids: pd.Series | None,
    beside: pd.DataFrame,
    done: Finished[PopulationRisk] | Finished[HouseholdRisk],
) -> str:
    """Write the protected file, its log, figures and page; return what is said of them."""
    out, run, risk = done.out, done.run, done.evaluated
    assert is_of_records(run) or is_of_households(run)
    data, asked, output = command.data, command.protection, command.output
    limits, seed = limits_of(command.limits), inputs.chains.seed
    if shows_progress(output):
        tell("looking for recodings and suppressions ...")
    strata = None if asked.strata is None else beside[asked.strata].to_numpy(object)
    found = protect(
        run, command.size, max_tau1=limits.max_tau1, max_risk=limits.max_risk,
        recode=list(asked.recode), max_suppressed=asked.suppress,
        importance=dict(asked.importance), ordered=command.fit.named_ordered,
        no_merge=asked.no_merge, k=_targets(command), strata=strata,
    )  # fmt: skip
    summary, allowed = _summary(done, seed)
    refitted = None
    if asked.refit:
        again = _refit(command, run, found)
        refitted = found.estimate(again)
        summary["warnings"] += [f"new chains: {sentence}" for sentence in diagnose(again).warnings]
    use = summary["usable"]
    released = found.released(beside, carry=_carried(command), link=dict(asked.link))
    changes = changes_document(
        found, refitted, ids=ids, usable=allowed, why=use["why"], released=released,
        household=command.fit.households.household,
    )  # fmt: skip
    frame = released.frame
    if found.of_household is not None:
        frame[command.fit.households.household] = _numbered(found.of_household)
    protected = in_order(data, frame)
    commas = [name for name in inputs.changes.decimal_commas if name in protected]
    protected = with_decimal_commas(protected, commas)
    filing = filing_of(data.sample, command.filing)
    figures = {
        "usable": use, "verdict": changes["verdict"], "warnings": summary["warnings"],
        "diagnostics": summary["diagnostics"], "level_prior": summary["level_prior"],
        "filing": filing._asdict(), "seconds": summary["seconds"],
    }  # fmt: skip
    write_files(out, {
        "changes.json": functools.partial(write_json, changes),
        "protected.csv": functools.partial(write_frame, protected),
        "run.json": functools.partial(write_json, done.settings | figures),
        "report.html": lambda path: write_protection_report(
            path, risk, changes, summary=summary, diagnosis=done.diagnosis,
            command=output.command, records=not output.no_records, filing=filing,
        ),
        **recoding_file(data, inputs.changes.recoding.then(found.coarsening)),
    })  # fmt: skip
    return _message(found, changes, use["why"], out)


def _summary(
    done: Finished[PopulationRisk] | Finished[HouseholdRisk], seed: int
) -> tuple[dict[str, Any], bool]:
    """Summary of the risk of the sample, and whether it allows a verdict on the protected file."""
    run, risk = done.run, done.evaluated
    of_households = isinstance(risk, HouseholdRisk)
    checks = predictive_checks(run, unit="household" if of_households else "person")
    found: dict[str, Any] = {"seed": seed, "diagnosis": done.diagnosis, "checks": checks}
    if isinstance(risk, HouseholdRisk):
        allowed, _ = allows_verdict(done.diagnosis, risk.households, checks)
        return household_risk_summary(risk, **found), allowed
    allowed, _ = allows_verdict(done.diagnosis, risk, checks)
    return risk_summary(risk, **found), allowed


def _numbered(of_household: np.ndarray) -> np.ndarray:
    """Numbers (N,) of households from 1 on, in the order of the file."""
    return pd.factorize(of_household)[0] + 1


def _refit(
    command: Protect, run: RecordsRun | HouseholdsRun, found: Protection
) -> RecordsRun | HouseholdsRun:
    """Run chains like the first ones on the recoded sample."""
    model: Any = run.model
    kept = found.coarsening.schema.variables
    ordered = vars(model)["ordered"]
    changed: dict[str, Any] = {
        "ordered": ordered if ordered == "auto" else tuple(x for x in ordered if x in kept),
        "groups": found.recoded.hierarchies_left,
    }
    table: Any = run.table
    if is_of_households(run):
        table = recoded_households(run.table, found.coarsening)
        # Without a head, no value is relative to the head's.
        relative = model.relative if table.schema.head is not None else ()
        named = ((one, one if isinstance(one, str) else one[0]) for one in relative)
        changed["relative"] = tuple(one for one, name in named if name in kept)
    else:
        table = found.coarsening.coarser(table)
    model = dataclasses.replace(model, **changed)
    return sample(
        model, table, key=jax.random.fold_in(run.key, _REFIT),
        progress=shows_progress(command.output), **further_chains(command),
    )  # fmt: skip


def _message(found: Protection, changes: dict, why: str, out: Path) -> str:
    """Lines that say what was changed, and what is left of the risk."""
    before, after = changes["before"], changes["after"]
    merges = sum(one["to"] is not None for one in changes["recodings"])
    drops = len(changes["recodings"]) - merges
    values, units = int(found.suppressed_values.sum()), int(found.suppressed.any(axis=1).sum())
    lines = [
        f"{counted(merges, 'merge')} of levels, {counted(drops, 'variable')} dropped, "
        f"{counted(values, 'value')} suppressed in {units:,} of {changes['n']:,} "
        f"{found.after.unit}s: "
        f"{after['loss']:.2f} bits of information per record are lost",
        f"expected population uniques: {before['tau1']['mean']:.1f} before, "
        f"{after['tau1']['mean']:.1f} after (95% interval {after['tau1']['q025']:.0f} to "
        f"{after['tau1']['q975']:.0f})",
        why,
        *verdict_lines(changes),
        f"written: {out / 'report.html'}, protected.csv, changes.json, run.json, run.toml",
    ]
    return "\n".join(lines)
