"""``bnp-models risk`` by a model of cells."""

import argparse
import hashlib
from functools import partial

from bnp_models.cli.folder import (
    UsageError,
    command_line,
    into_folder,
    located,
    reading_of,
    shows_progress,
    write_files,
)
from bnp_models.cli.inputs import (
    CELL_OPTIONS,
    check_options,
    check_sweeps,
    given_options,
    of_option,
)
from bnp_models.cli.models import CELL_MODELS, MODELS, MODELS_OF
from bnp_models.cli.outputs import (
    output_names,
    recoding_file,
    remove_outputs,
    risk_message,
    table_name,
)
from bnp_models.cli.parser import DRAWS, STOPPING, flag
from bnp_models.cli.release import filing_of, limits_of, release_settings
from bnp_models.cli.runs import recorded_settings
from bnp_models.cli.samples import Changes, recoded, weights_and_variables
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


def run_cell_risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk`` by a model of cells."""
    import jax

    model, cells, changes = _checked_cells(options)
    names = (*CELL_OPTIONS, "baselines", "weights", "population_size")
    settings = recorded_settings(
        options, model, cells.table, None, changes, **{name: vars(options)[name] for name in names},
        **release_settings(options),
        weights_sha256=hashlib.sha256(cells.weight.tobytes()).hexdigest(),
    )  # fmt: skip

    def work(out):
        remove_outputs(options)
        fitted, draws, seconds = model, None, {}
        key_chains, key_counts = Keys(jax.random.key(options.seed), 2)
        method, notes = options.hyperparameters or "empirical-bayes", []
        if method == "empirical-bayes":
            try:
                fit = fit_empirical_bayes(model, cells)
                fitted, seconds = fit.model, fit.seconds
            except NoMaximumError as error:
                if options.hyperparameters is not None:
                    raise
                method, notes = "full-bayes", [f"{error}; full Bayes was used instead"]
        if method == "full-bayes":
            draws = sample_hyperparameters(
                model, cells, key=key_chains, num_chains=options.chains,
                num_warmup=options.warmup, num_samples=options.draws, thin=options.thin,
                progress=shows_progress(options),
            )  # fmt: skip
            seconds = draws.seconds
        result = cell_risk(
            fitted, cells, key=key_counts, draws=draws, num_chains=options.chains,
            num_samples=options.draws,
        )  # fmt: skip
        summary = cell_risk_summary(
            result, method=method, seed=options.seed, seconds=seconds | result.seconds,
            limits=limits_of(options), baselines=baselines(cells) if options.baselines else None,
        )  # fmt: skip
        summary["warnings"] = notes + summary["warnings"]
        command = command_line(argv)
        filing = filing_of(options)
        write_table = partial(
            write_cells, result, baselines=options.baselines, bom=options.bom
        )  # fmt: skip
        of_run = settings | {"command": command, "filing": filing._asdict()}
        write_files(out, {
            "risk.json": partial(write_json, summary),
            **({} if options.no_records else {table_name(options): write_table}),
            "run.json": partial(write_json, of_run),
            "posterior.nc": lambda path: write_netcdf(
                cell_inference_data(result, seed=options.seed), path
            ),
            "report.html": lambda path: write_cell_report(
                path, result, summary, command=command, records=not options.no_records,
                filing=filing,
            ),
            **recoding_file(options, changes.recoding),
        })  # fmt: skip
        return risk_message(options, summary, table_name(options))

    # Only the digest of its file is asked for from here on.
    options.sample.release()
    return into_folder(options, settings, output_names(options), work, "repeat the command")


def _checked_cells(options: argparse.Namespace) -> tuple[PolettiniStander, WeightedCells, Changes]:
    """Model, weighted cells and changes of levels; all is checked that needs no computation."""
    check_options(options)
    for name in ("conditions", *STOPPING, "keep_parameters"):
        if vars(options)[name]:
            others = (m for m in MODELS_OF["risk"] if m not in CELL_MODELS)
            raise UsageError(f"{flag(name)}: is an option of --model {listed(others)} only")
    given = [name for name in ("alpha", "a", "b", "gamma") if vars(options)[name] is not None]
    if given and options.hyperparameters is None:
        options.hyperparameters = "fixed"
    if given and options.hyperparameters == "full-bayes":
        raise UsageError(
            f"{flag(given[0])}: is sampled under full Bayes; leave the option out, or choose other "
            "--hyperparameters"
        )
    options.draws = options.draws or DRAWS
    values = given_options(options, *MODELS[options.model].options)
    try:
        model = PolettiniStander(CELL_MODELS[options.model], **values)
    except ValueError as error:
        raise of_option(error, options) from None
    check_sweeps(options)
    weights, variables = weights_and_variables(options)
    read = read_microdata(options.sample, variables, options.levels, reading_of(options))
    table, changes = recoded(options, read)
    assert isinstance(table, Microdata)
    with located(options):
        check_names(table.schema.variables, options.baselines)
        cells = weighted_cells(table, options.population_size, weights, num_cells=options.cells)
    return model, cells, changes
