"""``bnp-models risk``: disclosure risk of a sample."""

import argparse
import functools

from bnp_models.cli.cells import run_cell_risk
from bnp_models.cli.folder import located, shows_progress
from bnp_models.cli.inputs import checked_input
from bnp_models.cli.models import CELL_MODELS
from bnp_models.cli.runs import RECORDS_COLUMNS, carry_out, settings_document, write_risk
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weights import check_population_size
from bnp_models.risk.population import population_risk


def risk(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    if options.model in CELL_MODELS:
        return run_cell_risk(options, argv)
    model, table, conditions = checked_input(options)
    for name in RECORDS_COLUMNS:
        if name in table.schema.variables:
            raise MicrodataError(
                "records.csv has a column of this name; rename the variable or choose --variables "
                "without it",
                file=options.sample,
                column=name,
            )
    with located(options.sample, options.variables):
        table.require_complete("the disclosure risk")
        check_population_size(table, options.population_size)
    settings = settings_document(
        options, model, table, conditions, population_size=options.population_size
    )
    evaluate = functools.partial(
        population_risk,
        population_size=options.population_size,
        progress=shows_progress(options),
    )
    return carry_out(
        options, argv, model, table, conditions, settings, evaluate, "risk", write_risk
    )
