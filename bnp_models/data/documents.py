"""JSON documents as types: one statement of their entries gives the JSON and its JSON Schema.

A document, or a part of one, is a class that derives from `Document`. Its fields are the entries,
in their order, and the docstring under a field describes it. Where an entry is None, it is left out
if None is its default, and null if it has no default. Parts may also be named tuples, whose entries
are all written, and typed dictionaries.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np


class Keywords:
    """Keywords of JSON Schema that a type alone does not state, for `Annotated`."""

    def __init__(self, **keywords: Any):
        self.keywords = keywords


Share = Annotated[float, Keywords(minimum=0, maximum=1)]
NotNegative = Annotated[float, Keywords(minimum=0)]
AtLeastOne = Annotated[float, Keywords(minimum=1)]
Cells = Annotated[int, Keywords(minimum=1)]
Sha256 = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]
Warnings = Annotated[
    Sequence[str], Keywords(description="Warnings to read before the figures are used.")
]
Seconds = Annotated[
    Mapping[str, NotNegative], Keywords(description="Wall-clock seconds by part of the work.")
]

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    Any: {},
}


@dataclass_transform(kw_only_default=True)
class Document(dict[str, Any]):
    """An object of JSON, made of its entries by name.

    Raises
    ------
    TypeError
        If an entry is missing, or is not stated.

    Examples
    --------
    >>> recoding = RecodingEntry(variable="age", levels=("15-24", "25-34"), to="15-34", loss=0.5)
    >>> recoding["levels"]
    ['15-24', '25-34']
    """

    def __init__(self, **entries: Any):
        stated, optional = type(self).__annotations__, optional_entries(type(self))
        wrong = (stated.keys() - optional - entries.keys()) | (entries.keys() - stated.keys())
        if wrong:
            raise TypeError(f"{type(self).__name__}: wrong entries {', '.join(sorted(wrong))}")
        given = ((name, entries.get(name)) for name in stated)
        super().__init__(
            (name, json_value(value))
            for name, value in given
            if value is not None or name not in optional
        )


def optional_entries(document: type[Document]) -> set[str]:
    """Entries that may be left out."""
    return {name for name in document.__annotations__ if name in vars(document)}


def json_value(value: Any) -> Any:
    """Return a value with its named tuples, sequences and NumPy values as JSON has them.

    Examples
    --------
    >>> json_value({"share": np.float64(0.5), "levels": ("no", "yes")})
    {'share': 0.5, 'levels': ['no', 'yes']}
    """
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping) and not isinstance(value, Document):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def schema_of(document: type, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document; its docstring is the title.

    Parameters
    ----------
    document
        The type.
    more
        Keywords that its fields do not state.
    """
    definitions: dict[str, Any] = {}
    schema = _object(document, definitions)
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    title["title"] = schema.pop("description").removesuffix(".")
    return title | schema | more | {"$defs": dict(sorted(definitions.items()))}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of a class with fields."""
    texts, properties, required = _texts(kind.__module__)[kind.__name__], {}, []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        if optional:
            hint = get_args(hint)[0]
        elif issubclass(kind, Document) and name in optional_entries(kind):
            optional, hint = True, _without_none(hint)
        if not optional:
            required.append(name)
        description = {"description": texts[name]} if name in texts else {}
        properties[name] = _schema(hint, definitions) | description
    return {
        "type": "object", "additionalProperties": False, "description": texts[""],
        "required": required, "properties": properties,
    }  # fmt: skip


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of the values of a type; classes with fields become definitions."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if origin is Annotated:
        schema = _schema(parts[0], definitions)
        for more in parts[1:]:
            schema |= more.keywords
        return schema
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, UnionType):
        kinds = [_schema(part, definitions) for part in parts if part is not NoneType]
        if len(kinds) == 1 and "type" in kinds[0]:
            return kinds[0] | {"type": [kinds[0]["type"], "null"]}
        return {"anyOf": kinds + [{"type": "null"}] * (NoneType in parts)}
    if origin in (list, tuple, Sequence):
        fixed = origin is tuple and parts[-1] is not ...
        length = {"minItems": len(parts), "maxItems": len(parts)} if fixed else {}
        return {"type": "array", "items": _schema(parts[0], definitions)} | length
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(parts[1], definitions)}
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = {}
        definitions[hint.__name__] = _object(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _without_none(hint: Any) -> Any:
    """The type without None."""
    return reduce(or_, (part for part in get_args(hint) if part is not NoneType))


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """By class of a module: the first paragraphs of its docstring ("") and of those of its fields.

    Python keeps no docstrings of fields: they are read from the source.
    """
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            texts = found[node.name] = {"": _first_paragraph(ast.get_docstring(node) or "")}
            for field, text in itertools.pairwise(node.body):
                match field, text:
                    case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                        texts[name] = _first_paragraph(docstring)
    return found


def _first_paragraph(docstring: str) -> str:
    """First paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
