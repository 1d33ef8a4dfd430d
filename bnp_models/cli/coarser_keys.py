"""Coarser keys that ``bnp-models risk`` is asked for, checked before chains are run."""

import logging
from collections.abc import Callable

from bnp_models.cli.commands import Risk
from bnp_models.cli.inputs import Inputs
from bnp_models.cli.options import about
from bnp_models.data.coarser_households import recoded_households
from bnp_models.data.households import Households
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import Schema
from bnp_models.risk.coarsening import hierarchies_of, household_drops, parse_coarsening
from bnp_models.risk.coarser_compositions import require_few_heads

_LOG = logging.getLogger(__name__)

MOST_DROPS = 30
"""Variables each of which is dropped by itself: the time it takes grows with their square."""


def asked_coarsenings(command: Risk, schema: Schema, inputs: Inputs) -> dict[str, Recoding]:
    """Coarsenings of --what-if by their text."""
    with about("--what-if"):
        return {
            text: parse_coarsening(text, schema, hierarchies_of(inputs.model))
            for text in command.what_if
        }


def with_drops(
    command: Risk,
    schema: Schema,
    asked: dict[str, Recoding],
    drops: Callable[[], dict[str, Recoding]],
) -> dict[str, Recoding]:
    """Coarsenings that were asked for, and those that drop one variable, if there are not many."""
    if len(schema.variables) <= MOST_DROPS:
        return asked | drops()
    _LOG.warning(
        "%s: %d key variables: the risk without each single variable is estimated only if "
        "there are at most %d; name the variables of interest (--what-if drop:A), or choose "
        "fewer --variables",
        command.data.sample, len(schema.variables), MOST_DROPS,
    )  # fmt: skip
    return asked


def household_coarsenings(
    command: Risk, inputs: Inputs, households: Households
) -> dict[str, Recoding]:
    """Coarsenings of households: those asked for, and each variable dropped."""
    schema = households.schema
    asked = asked_coarsenings(command, schema.table, inputs)
    with about("--what-if"):
        require_few_heads(asked, inputs.model, schema)
        for coarsening in asked.values():
            recoded_households(households, coarsening)
    return with_drops(command, schema.table, asked, lambda: household_drops(schema))
