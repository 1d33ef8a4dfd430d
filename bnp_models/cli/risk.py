"""``bnp-models risk``: disclosure risk of a sample."""

import argparse
import functools
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from bnp_models.cli.cells import run_cell_risk
from bnp_models.cli.folder import UsageError, located, shows_progress, write_files
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.models import CELL_MODELS
from bnp_models.cli.outputs import recoding_file, risk_message, table_name
from bnp_models.cli.release import (
    filing_of,
    limits_of,
    read_ids,
    release_settings,
    with_strictness,
)
from bnp_models.cli.runs import recorded_settings, sample_into_folder
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.households import persons_of
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.data.writing import write_json
from bnp_models.inference.arviz import write_netcdf
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import Run
from bnp_models.inference.weighting import sample_law
from bnp_models.models.model import PredictsCells
from bnp_models.report.inference_data import to_inference_data, write_records
from bnp_models.report.risk import write_report
from bnp_models.report.summaries import risk_summary
from bnp_models.risk.baselines import baseline_cells, baselines
from bnp_models.risk.coarsening import (
    hierarchies_of,
    keep_variables,
    parse_coarsening,
    require_listable,
    single_drops,
)
from bnp_models.risk.coarser_risk import coarsen
from bnp_models.risk.evaluator import check_table
from bnp_models.risk.population import PopulationRisk, population_risk, tau1_monitor
from bnp_models.risk.validation import Validation, validate_within
from bnp_models.synthesis.predictive_checks import predictive_checks

# Folded into the key that a run set aside.
_VALIDATION = 0x56414C


def risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    if options.model in CELL_MODELS:
        for name, given in (
            ("validate", options.validate is not None), ("what-if", options.what_if),
            ("keys", options.keys), ("id", options.id), ("all-records", options.all_records),
        ):  # fmt: skip
            if given:
                raise UsageError(f"--{name}: is not for models of cells")
        return with_strictness(options, run_cell_risk(options, argv))
    if options.keys and options.variables is None:
        options.variables = list(dict.fromkeys(name for names in options.keys for name in names))
    inputs = checked_input(options)
    coarsenings = _checked_coarsenings(options, inputs)
    if options.validate is not None and isinstance(inputs.table, ContingencyTable):
        raise UsageError("--validate: needs records, and the sample is a folder; leave it out")
    ids = read_ids(options)
    table = persons_of(inputs.table)
    if options.all_records and isinstance(table, ContingencyTable):
        raise UsageError("--all-records: needs records, and the sample is a folder; leave it out")
    weighted = isinstance(table, WeightedMicrodata)
    with located(options):
        check_table(records_of(table), options.population_size, options.all_records)
        if isinstance(table, WeightedMicrodata):
            table.require_counts()
    settings = recorded_settings(
        options, *inputs, population_size=options.population_size, validate=options.validate,
        ties=options.ties, coarsenings=list(coarsenings), baselines=options.baselines,
        all_records=options.all_records,
        **release_settings(options),
    )  # fmt: skip
    evaluate = functools.partial(
        population_risk,
        population_size=options.population_size,
        ties=options.ties,
        all_records=options.all_records,
        progress=shows_progress(options),
    )
    assert isinstance(inputs.model, PredictsCells)
    # The bar shows no tau_1 of a sample with weights: the monitor would take it for a simple one.
    monitor = None if weighted else tau1_monitor(
        inputs.model, table, options.population_size, conditions=inputs.conditions
    )  # fmt: skip
    write = functools.partial(_write_risk, options, coarsenings, ids, inputs.changes.recoding)
    # Only the digest of its file is asked for from here on.
    options.sample.release()
    code = sample_into_folder(options, argv, inputs, settings, evaluate, write, monitor)
    return with_strictness(options, code)


def _checked_coarsenings(options: argparse.Namespace, inputs: Inputs) -> dict[str, Recoding]:
    """Coarser keys: sets of key variables, those asked for, and each variable dropped."""
    table, conditions = records_of(persons_of(inputs.table)), inputs.conditions
    of = "--keys"
    try:
        sets = {
            f"keep:{','.join(names)}": keep_variables(names, table.schema) for names in options.keys
        }
        require_listable(sets, table, conditions)
        of = "--what-if"
        asked = {
            text: parse_coarsening(text, table.schema, hierarchies_of(inputs.model))
            for text in options.what_if
        }
        require_listable(asked, table, conditions)
    except MicrodataError as error:
        raise UsageError(f"{of}: {error}") from None
    return sets | asked | single_drops(table, conditions)


def _write_risk(
    options: argparse.Namespace,
    coarsenings: dict[str, Recoding],
    ids: pd.Series | None,
    recoding: Recoding,
    run: Run,
    result: PopulationRisk,
    diagnosis: Diagnosis,
    settings: dict[str, Any],
) -> str:
    """Write the files of a risk; return what is said of it."""
    out, seed = Path(options.out), options.seed
    checks = predictive_checks(run)
    validation = None if options.validate is None else _validate(options, run)
    coarser = coarsen(run, options.population_size, coarsenings, ties=options.ties == "on")
    found: dict[str, Any] = {
        "diagnosis": diagnosis, "checks": checks, "validation": validation, "coarser": coarser,
        "limits": limits_of(options),
        "baselines": baselines(baseline_cells(run.table, options.population_size))
        if options.baselines else None,
    }  # fmt: skip
    summary = risk_summary(result, seed=seed, **found)

    def write_posterior(path):
        data = to_inference_data(
            run, result, parameters=options.keep_parameters, seed=seed, checks=checks
        )
        write_netcdf(data, path)

    filing = filing_of(options)
    of_run = {"level_prior": summary["level_prior"], "filing": filing._asdict()}
    write_table = functools.partial(write_records, result, ids=ids, bom=options.bom)
    write_files(out, {
        "risk.json": functools.partial(write_json, summary),
        **({} if options.no_records else {table_name(options): write_table}),
        "run.json": functools.partial(write_json, settings | of_run),
        "posterior.nc": write_posterior,
        "report.html": lambda path: write_report(
            path, result, command=settings["command"], seed=seed,
            records=not options.no_records, filing=filing, **found,
        ),
        **recoding_file(options, recoding),
    })  # fmt: skip
    return risk_message(options, summary, table_name(options))


def _validate(options: argparse.Namespace, run: Run) -> Validation:
    """Validate within the sample, by chains like those of the run.

    Parts are simple random samples of it, whatever weights it has.
    """
    records = sample_law(run)
    return validate_within(
        run.model, records.table, key=jax.random.fold_in(run.key, _VALIDATION),
        conditions=records.conditions, num_splits=options.validate, num_chains=options.chains,
        num_warmup=options.warmup, num_samples=options.draws, thin=options.thin,
        progress=shows_progress(options),
    )  # fmt: skip
