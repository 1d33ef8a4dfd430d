"""JSON Schemas: they are schemas, and see what is wrong; tests/cli holds all files against them."""

import copy
import json

import jsonschema
import pytest

import bnp_models as bnp
from bnp_models.report.json_schemas import SCHEMAS


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name):
    schema = bnp.io.json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    # What it refers to is there, and what is there is referred to somewhere.
    text = json.dumps(schema)
    assert all(f'"#/$defs/{key}"' in everything() for key in schema["$defs"])
    assert text.count("$ref") == sum(text.count(f'"#/$defs/{key}"') for key in schema["$defs"])
    with pytest.raises(ValueError, match=r"none of risk.json, run.json"):
        bnp.io.json_schema("other.json")


def everything():
    return " ".join(json.dumps(bnp.io.json_schema(name)) for name in SCHEMAS)


def planted(document):
    """Copies of a document, each with one error, and what it is."""
    for name, change in {
        "an entry too many": lambda d: d.update(more=1),
        "an entry missing": lambda d: d.pop("tau1"),
        "text for a number": lambda d: d.update(n="150"),
        "a negative count": lambda d: d.update(sample_uniques=-1),
        "a figure missing below": lambda d: d["tau1"].pop("q50"),
        "an entry of another model": lambda d: d.pop("level_prior"),
        "a warning that is no text": lambda d: d.update(warnings=[None]),
    }.items():
        wrong = copy.deepcopy(document)
        change(wrong)
        yield name, wrong


def test_a_schema_sees_what_is_wrong(small):
    document = json.loads(json.dumps(bnp.report.risk_summary(small.risk, seed=0)))
    document["checks"] = json.loads(json.dumps(bnp.predictive_checks(small.run).document()))
    validator = jsonschema.Draft202012Validator(bnp.io.json_schema("risk.json"))
    validator.validate(document)
    for name, wrong in planted(document):
        assert not validator.is_valid(wrong), name
