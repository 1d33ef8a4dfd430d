"""JSON Schemas of the JSON files that commands write."""

from collections.abc import Callable
from functools import partial

from bnp_models.data.documents import required_entries, schema_of
from bnp_models.data.messages import listed
from bnp_models.evaluation.documents import EvaluationDocument
from bnp_models.report.comparison import CompareDocument
from bnp_models.report.documents import (
    CellsRiskDocument,
    ChainsRiskDocument,
    HouseholdRiskDocument,
    RiskDocument,
    RunDocument,
    RunSummary,
)
from bnp_models.report.protection import ChangesDocument

_OF_COMMANDS = {
    "risk": ["model", "population_size", "filing", "level_prior"],
    "protect": [
        "model", "population_size", "filing", "usable", "verdict", "warnings", "diagnostics",
        "level_prior", "seconds", "recode", "suppress",
    ],
    "(synthesize|impute)": [*required_entries(RunSummary), "datasets", "files_sha256", "checks"],
    "compare": ["models", "parts", "folds"],
}  # fmt: skip

_SCHEMAS: dict[str, Callable[[], dict]] = {
    "risk.json": partial(
        schema_of,
        RiskDocument,
        CellsRiskDocument,
        ChainsRiskDocument,
        HouseholdRiskDocument,
        entry="model",
        cases={
            "^polettini-stander-[0-9]$": required_entries(CellsRiskDocument),
            "^ndpmpm$": [*required_entries(HouseholdRiskDocument), "checks"],
            "^(?!polettini-stander-[0-9]$|ndpmpm$)": [
                *required_entries(ChainsRiskDocument),
                "checks",
            ],
        },
    ),
    "run.json": partial(
        schema_of,
        RunDocument,
        RunSummary,
        entry="command",
        cases={f"^bnp-models {command} ": names for command, names in _OF_COMMANDS.items()},
    ),
    "evaluation.json": partial(schema_of, EvaluationDocument),
    "compare.json": partial(schema_of, CompareDocument),
    "changes.json": partial(schema_of, ChangesDocument),
}

SCHEMAS = tuple(_SCHEMAS)
"""Files that have one."""


def json_schema(name: str) -> dict:
    """Return the JSON Schema (2020-12) of a file that commands write.

    The schema of a file describes every entry that the file can have.

    Parameters
    ----------
    name
        One of `SCHEMAS`, such as "risk.json".

    Raises
    ------
    ValueError
        If no file of this name has one.

    Examples
    --------
    >>> bnp.io.json_schema("risk.json")["properties"]["seed"]["type"]
    ['integer', 'null']
    """
    if name not in SCHEMAS:
        raise ValueError(f"{name!r} is none of {listed(SCHEMAS, 'and')}")
    return _SCHEMAS[name]()
