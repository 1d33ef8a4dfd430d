"""``bnp-models synthesize`` and ``bnp-models impute``."""

import argparse

from bnp_models.cli.folder import UsageError
from bnp_models.cli.inputs import check_datasets, checked_input
from bnp_models.cli.runs import carry_out, settings_document, write_datasets
from bnp_models.data.schema import MicrodataError
from bnp_models.synthesis.margins import level_margins


def synthesize(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models synthesize``: check everything, sample, write synthetic data sets."""
    model, table, conditions = checked_input(options)
    if options.household is not None:
        if options.rows not in (None, table.num_persons):
            raise UsageError(
                "--rows: synthetic households have the sizes of the sample's; leave it out"
            )
        options.rows = table.num_persons
    elif options.rows is None:
        options.rows = table.n
    return _make_datasets(options, argv, model, table, conditions, rows=options.rows)


def impute(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models impute``: check everything, sample, write completed data sets."""
    model, table, conditions = checked_input(options)
    if not table.has_missing:
        raise MicrodataError(
            "no value is missing (only empty cells are), so there is nothing to impute",
            file=options.sample,
        )
    return _make_datasets(options, argv, model, table, conditions)


def _make_datasets(options, argv, model, table, conditions, **more):
    """Check, sample and write data sets; `more` is what decides them in this command alone."""
    check_datasets(options, table)
    settings = settings_document(
        options, model, table, conditions, datasets=options.datasets, **more, format=options.format
    )
    # Convergence is judged by the margins of the levels too; of households, by none.
    margins = level_margins if options.household is None else lambda run: None
    return carry_out(
        options, argv, model, table, conditions, settings, margins, "margins", write_datasets
    )
