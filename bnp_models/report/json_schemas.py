"""JSON Schemas of the JSON files that commands write."""

import json
from copy import deepcopy
from functools import cache
from importlib import resources

from bnp_models.data.documents import Document, schema_of
from bnp_models.data.messages import listed
from bnp_models.report.comparison import CompareDocument
from bnp_models.report.protection import ChangesDocument

SCHEMAS = ("risk.json", "run.json", "evaluation.json", "compare.json", "changes.json")
"""Files that have one."""

_DOCUMENTS: dict[str, type[Document]] = {
    "changes.json": ChangesDocument,
    "compare.json": CompareDocument,
}


def json_schema(name: str) -> dict:
    """Return the JSON Schema (2020-12) of a file that commands write.

    Files have no entries but those of their schemas, which say what each is.

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
    >>> bnp.json_schema("risk.json")["properties"]["seed"]["type"]
    ['integer', 'null']
    """
    if name not in SCHEMAS:
        raise ValueError(f"{name!r} is none of {listed(SCHEMAS, 'and')}")
    return deepcopy(_schema(name))


@cache
def _schema(name: str) -> dict:
    """Schema of a file, made once."""
    if name in _DOCUMENTS:
        return schema_of(_DOCUMENTS[name])
    schema = json.loads(_text(name.replace(".json", ".schema.json")))
    return schema | {"$defs": json.loads(_text("shared.json"))}


def _text(name: str) -> str:
    """A file of the schemas."""
    return resources.files("bnp_models.report").joinpath("schemas", name).read_text("utf-8")
