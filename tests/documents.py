"""JSON files of commands against their schemas."""

from functools import cache

import jsonschema

from bnp_models.report.json_schemas import json_schema


@cache
def validator_of(name):
    """Validator of a file; `report/test_json_schemas.py` checks the schema itself."""
    return jsonschema.Draft202012Validator(json_schema(name))


def check_document(document, name):
    """Raise a ValidationError unless a document keeps the schema of the file with this name."""
    validator_of(name).validate(document)
