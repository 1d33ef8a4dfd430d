"""Files of a risk that chains estimate, of records or of households."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import write_files
from bnp_models.cli.inputs import Inputs
from bnp_models.cli.outputs import recoding_file
from bnp_models.cli.release import filing_of
from bnp_models.cli.runs import Finished
from bnp_models.data.writing import write_json
from bnp_models.inference.arviz import write_netcdf
from bnp_models.report.inference_data import to_inference_data
from bnp_models.risk.population import PopulationRisk
from bnp_models.synthesis.predictive_checks import PredictiveChecks


def write_risk(
    command: Risk,
    inputs: Inputs,
    done: Finished[Any],
    risk: PopulationRisk,
    summary: dict[str, Any],
    checks: PredictiveChecks,
    tables: Mapping[str, Callable[[Path], None]],
    write_page: Callable[..., None],
) -> None:
    """Write the files of a risk.

    Parameters
    ----------
    command, inputs, done
        What was asked for, what was read, and the chains.
    risk
        The risk whose draws posterior.nc has.
    summary, checks
        Content of risk.json, and the checks that it was made with.
    tables
        Functions that write the tables of single units, by file name.
    write_page
        Function that writes report.html; it takes the path, and options of the page.
    """
    output, seed = command.output, inputs.chains.seed

    def write_posterior(path: Path) -> None:
        data = to_inference_data(
            done.run, risk, parameters=output.keep_parameters, seed=seed, checks=checks
        )
        write_netcdf(data, path)

    filing = filing_of(command.data.sample, command.filing)
    of_run = {"level_prior": summary["level_prior"], "filing": filing._asdict()}
    write_files(done.out, {
        "risk.json": partial(write_json, summary),
        **({} if output.no_records else tables),
        "run.json": partial(write_json, done.settings | of_run),
        "posterior.nc": write_posterior,
        "report.html": partial(
            write_page, command=output.command, seed=seed, records=not output.no_records,
            filing=filing,
        ),
        **recoding_file(command.data, inputs.changes.recoding),
    })  # fmt: skip
