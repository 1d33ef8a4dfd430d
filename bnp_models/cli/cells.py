"""``bnp-models risk`` by a model of cells."""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import into_folder, located, reading_of, shows_progress, write_files
from bnp_models.cli.inputs import Inputs, check_options, check_sweeps, model_of
from bnp_models.cli.models import CELL_MODELS, MODELS_OF
from bnp_models.cli.options import UsageError, flag, refuse, values_of
from bnp_models.cli.outputs import (
    output_names,
    recoding_file,
    remove_outputs,
    risk_message,
    table_name,
)
from bnp_models.cli.parts import STOPPING, Chains
from bnp_models.cli.population import with_population
from bnp_models.cli.release import filing_of, limits_of, release_settings
from bnp_models.cli.runs import recorded_settings
from bnp_models.cli.samples import recoded, weights_and_variables, with_empty_levels
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Microdata
from bnp_models.data.reading import read_microdata
from bnp_models.data.weights import WeightedCells, weighted_cells
from bnp_models.data.writing import write_json
from bnp_models.inference.arviz import write_netcdf
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.cells.empirical_bayes import fit_empirical_bayes
from bnp_models.models.cells.full_bayes import sample_hyperparameters
from bnp_models.models.cells.polettini_stander import NoMaximumError, PolettiniStander
from bnp_models.report.cells import (
    cell_inference_data,
    cell_risk_summary,
    check_names,
    write_cell_report,
    write_cells,
)
from bnp_models.risk.baselines import baselines
from bnp_models.risk.cells import cell_risk


def run_cell_risk(command: Risk) -> int:
    """``bnp-models risk`` by a model of cells."""
    import jax

    command, model, cells, inputs = _checked_cells(command)
    chains, output, given = inputs.chains, command.output, command.fit.cells
    settings = recorded_settings(
        command, inputs, cells=given.cells, hyperparameters=given.hyperparameters,
        baselines=command.baselines, weights=command.data.weights,
        population_size=command.size, **release_settings(command),
        weights_sha256=hashlib.sha256(cells.weight.tobytes()).hexdigest(),
    )  # fmt: skip

    def work(out: Path) -> str:
        remove_outputs(command, out)
        fitted, draws, seconds = model, None, {}
        key_chains, key_counts = Keys(jax.random.key(chains.seed), 2)
        method, notes = given.hyperparameters or "empirical-bayes", []
        if method == "empirical-bayes":
            try:
                fit = fit_empirical_bayes(model, cells)
                fitted, seconds = fit.model, fit.seconds
            except NoMaximumError as error:
                if given.hyperparameters is not None:
                    raise
                method, notes = "full-bayes", [f"{error}; full Bayes was used instead"]
        if method == "full-bayes":
            draws = sample_hyperparameters(
                model, cells, key=key_chains, **chains.sweeps, progress=shows_progress(output)
            )  # fmt: skip
            seconds = draws.seconds
        result = cell_risk(
            fitted, cells, key=key_counts, draws=draws, num_chains=chains.chains,
            num_samples=chains.num_draws,
        )  # fmt: skip
        summary = cell_risk_summary(
            result, method=method, seed=chains.seed, seconds=seconds | result.seconds,
            limits=limits_of(command.limits),
            baselines=baselines(cells) if command.baselines else None,
        )  # fmt: skip
        summary["warnings"] = notes + summary["warnings"]
        filing = filing_of(command.data.sample, command.filing)
        write_table = partial(
            write_cells, result, baselines=command.baselines, bom=command.bom
        )  # fmt: skip
        of_run = settings | {"command": output.command, "filing": filing._asdict()}
        write_files(out, {
            "risk.json": partial(write_json, summary),
            **({} if output.no_records else {table_name(command): write_table}),
            "run.json": partial(write_json, of_run),
            "posterior.nc": lambda path: write_netcdf(
                cell_inference_data(result, seed=chains.seed), path
            ),
            "report.html": lambda path: write_cell_report(
                path, result, summary, command=output.command, records=not output.no_records,
                filing=filing,
            ),
            **recoding_file(command.data, inputs.changes.recoding),
        })  # fmt: skip
        return risk_message(command, summary, out)

    # Only the digest of its file is asked for from here on.
    command.data.sample.release()
    return into_folder(
        output, settings, output_names(command), work, "repeat the command", resume=chains.resume
    )


def _checked_cells(command: Risk) -> tuple[Risk, PolettiniStander, WeightedCells, Inputs]:
    """The command with its defaults filled in, model, weighted cells, and the input they are made
    of.

    Everything is checked that can be checked without a computation.
    """
    check_options(command)
    data, fit, chains = command.data, command.fit, command.chains
    said = (
        {"conditions": data.conditions, "settles": data.settles}
        | values_of(chains)
        | values_of(command.output)
    )
    for name in ("conditions", "settles", *STOPPING, "keep_parameters"):
        if said[name]:
            others = (m for m in MODELS_OF["risk"] if m not in CELL_MODELS)
            raise UsageError(
                f"{flag(name)}: can be used only with --model {listed(others, 'or')}; leave it out"
            )
    given = [name for name in ("alpha", "a", "b", "gamma") if values_of(fit)[name] is not None]
    if given and fit.cells.hyperparameters is None:
        fit = replace(fit, cells=replace(fit.cells, hyperparameters="fixed"))
    method = fit.cells.hyperparameters
    if given and method != "fixed":
        raise UsageError(
            f"{flag(given[0])}: is {'sampled' if method == 'full-bayes' else 'estimated'} with "
            f"--hyperparameters {method}; leave the option out, or say --hyperparameters fixed"
        )
    sweeps = {"warmup": chains.warmup != Chains.warmup, "thin": chains.thin != Chains.thin}
    refuse(
        {} if method in (None, "full-bayes") else sweeps,
        "is used only with --hyperparameters full-bayes; leave it out",
    )  # fmt: skip
    chains = replace(chains, draws=chains.num_draws)
    model = model_of(fit, CELL_MODELS[fit.chosen_model])
    check_sweeps(chains)
    weights, variables = weights_and_variables(data)
    read = read_microdata(data.sample, variables, data.levels, reading_of(data))
    with_levels = with_empty_levels(data, read)
    table, changes = recoded(data, with_levels, fit.named_ordered, fit.groups)
    assert isinstance(table, Microdata)
    command = with_population(command, weights)
    with located(data):
        check_names(table.schema.variables, command.baselines)
        cells = weighted_cells(table, command.size, weights, num_cells=fit.cells.cells)
    return (
        replace(command, fit=fit),
        model,
        cells,
        Inputs(model, cells.table, None, changes, chains),
    )
