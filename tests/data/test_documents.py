"""Documents: what a class states of its entries is what is written, and what the schema says."""

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Literal, NamedTuple

import jinja2
import jsonschema
import numpy as np
import pytest

from bnp_models.data.documents import ABSENT, Document, Share, required_entries, schema_of


class Place(NamedTuple):
    """Place of a thing."""

    row: int
    """Row, from 0."""
    share: Share | None = None


class Thing(Document):
    """thing.json of a test.

    What is below does not count.
    """

    name: str
    """Its name, of which
    the text goes on."""
    weight: float | None
    label: str | None = None
    """Its label."""
    place: Place | None
    ends: tuple[float, float]
    kind: Literal["small", True]
    sizes: Mapping[str, Sequence[int]]
    other: str | Place | None = None


ENTRIES = {
    "name": "a", "weight": None, "place": Place(np.int64(3)), "ends": (np.float64(0.5), 1.0),
    "kind": True, "sizes": {"b": (1, 2)},
}  # fmt: skip


class Named(Thing):
    """Thing that someone has."""

    owner: str | None = ABSENT
    """Who has it."""


def test_entries_are_json_values_in_the_order_given():
    assert json.dumps(Thing(**ENTRIES)) == (
        '{"name": "a", "weight": null, "place": {"row": 3, "share": null}, "ends": [0.5, 1.0], '
        '"kind": true, "sizes": {"b": [1, 2]}}'
    )
    assert list(Thing(label="c", **ENTRIES)) == ["label", *ENTRIES]


def test_entries_are_left_out_or_null():
    assert {**ENTRIES, "label": None}.keys() - Thing(**ENTRIES, label=None).keys() == {"label"}
    assert "owner" not in Named(**ENTRIES) and "owner" not in Named(**ENTRIES, owner=ABSENT)
    assert Named(**ENTRIES, owner=None)["owner"] is None
    # A page that asks for an entry finds no default of the class.
    page = jinja2.Environment().from_string("{{ d.label is defined }} {{ d.name }}")
    assert page.render(d=Thing(**ENTRIES)) == "False a"


def test_entries_are_taken_from_an_object():
    source = SimpleNamespace(**ENTRIES, label="c", unknown=1)
    expected = {"name": "b", "weight": None, "label": "c", **dict(list(ENTRIES.items())[2:])}
    assert json.dumps(Thing.of(source, name="b")) == json.dumps(Thing(**expected))
    del source.ends
    with pytest.raises(TypeError, match="^Thing: wrong entries ends$"):
        Thing.of(source)


def test_wrong_entries_are_refused():
    with pytest.raises(TypeError, match="^Thing: wrong entries more, name$"):
        Thing(**{k: v for k, v in ENTRIES.items() if k != "name"}, more=1)


def test_the_schema_says_the_same():
    schema = schema_of(Thing)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == "thing.json of a test"
    assert schema["required"] == required_entries(Named) == list(ENTRIES)
    assert schema["properties"] == {
        "name": {"type": "string", "description": "Its name, of which the text goes on."},
        "weight": {"type": ["number", "null"]},
        "label": {"type": "string", "description": "Its label."},
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        "ends": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "kind": {"enum": ["small", True]},
        "sizes": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        },
        "other": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Place"}]},
    }
    place = schema["$defs"]["Place"]
    assert (place["description"], place["required"]) == ("Place of a thing.", ["row", "share"])
    assert place["properties"]["row"]["description"] == "Row, from 0."
    assert place["properties"]["share"] == {
        "type": ["number", "null"], "minimum": 0, "maximum": 1,
    }  # fmt: skip
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(Thing(**ENTRIES, label="c", other=Place(0, 0.5)))
    for wrong in ({"label": 1}, {"ends": [1]}, {"sizes": {"b": [-1]}}, {"place": {"row": 3}}):
        assert not validator.is_valid(Thing(**ENTRIES) | wrong), wrong


def test_entries_that_depend_on_another():
    schema = schema_of(Thing, Named, entry="name", cases={"^of ": ("name", "owner")})
    assert schema["properties"]["owner"] == {
        "type": ["string", "null"], "description": "Who has it.",
    }  # fmt: skip
    validator = jsonschema.Draft202012Validator(schema)
    owned = ENTRIES | {"name": "of b"}
    assert validator.is_valid(Thing(**ENTRIES)) and not validator.is_valid(Thing(**owned))
    assert validator.is_valid(Named(**owned, owner=None))
