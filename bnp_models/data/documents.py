"""JSON documents as types: the fields of a class give the JSON and its JSON Schema.

A document, or a part of one, is a class that derives from `Document`. Its fields are the entries,
and the docstring under a field describes it. An entry without a default is always written, as null
where it is None. One with the default None is left out where it is None; one with the default
`ABSENT` is left out where it is not given. Parts may also be named tuples, whose fields are all
written.
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
    Self,
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

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.keywords.items())


Share = Annotated[float, Keywords(minimum=0, maximum=1)]
NotNegative = Annotated[float, Keywords(minimum=0)]
AtLeastOne = Annotated[float, Keywords(minimum=1)]
Cells = Annotated[int, Keywords(minimum=1)]
Sha256 = Annotated[
    str, Keywords(pattern="^[0-9a-f]{64}$", description="SHA-256, in hexadecimal digits.")
]
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


ABSENT: Any = object()
"""Value of an entry that is left out."""

_DEFAULTS: dict[type, dict[str, Any]] = {}


@dataclass_transform(kw_only_default=True)
class Document(dict[str, Any]):
    """An object of JSON: its entries, in the order in which they are given.

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

    def __init_subclass__(cls) -> None:
        """Take the defaults out of the class: a page would take them for entries."""
        stated = inspect.get_annotations(cls)
        defaults = {name: vars(cls).get(name, ...) for name in stated}
        for name in stated.keys() & vars(cls).keys():
            delattr(cls, name)
        inherited = (_DEFAULTS.get(base, {}) for base in reversed(cls.__mro__))
        _DEFAULTS[cls] = dict(itertools.chain(*(x.items() for x in (*inherited, defaults))))

    def __init__(self, **entries: Any):
        defaults = _DEFAULTS[type(self)]
        missing = set(required_entries(type(self))) - entries.keys()
        if wrong := sorted(missing | (entries.keys() - defaults.keys())):
            raise TypeError(f"{type(self).__name__}: wrong entries {', '.join(wrong)}")
        super().__init__(
            (name, json_value(value))
            for name, value in entries.items()
            if value is not ABSENT and (value is not None or defaults[name] is not None)
        )

    @classmethod
    def of(cls, source: object, **entries: Any) -> Self:
        """Make one in the stated order; entries that are not given are attributes of an object."""
        stated = {name: getattr(source, name, ABSENT) for name in _DEFAULTS[cls]}
        taken = {name: value for name, value in (stated | entries).items() if value is not ABSENT}
        return cls(**taken)


def required_entries(document: type[Document]) -> list[str]:
    """Names of the entries that are never left out."""
    return [name for name, default in _DEFAULTS[document].items() if default is ...]


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


def schema_of(
    document: type[Document],
    *more: type[Document],
    entry: str = "",
    cases: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document.

    Parameters
    ----------
    document
        The type. Its docstring is the title.
    more
        Types with entries that the document may also have.
    entry, cases
        By regular expression of the text of an entry, the names of others that it then has.
    """
    definitions: dict[str, Any] = {}
    schema = _object(document, definitions)
    for kind in more:
        schema["properties"] = _object(kind, definitions)["properties"] | schema["properties"]
    required = schema["required"]
    conditions = [
        {
            "if": {"properties": {entry: {"pattern": pattern}}},
            "then": {"required": [name for name in names if name not in required]},
        }
        for pattern, names in (cases or {}).items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": schema.pop("description").removesuffix("."),
        **schema,
        **({"allOf": conditions} if conditions else {}),
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of a class with fields."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is kind or base in _DEFAULTS:
            texts |= _texts(base.__module__)[base.__name__]
    hints = get_type_hints(kind, include_extras=True)
    defaults = _DEFAULTS.get(kind, dict.fromkeys(hints, ...))
    return {
        "type": "object",
        "additionalProperties": False,
        "description": texts[""],
        "required": [name for name, default in defaults.items() if default is ...],
        "properties": {
            name: _schema(_without_none(hint) if defaults[name] is None else hint, definitions)
            | ({"description": texts[name]} if name in texts else {})
            for name, hint in hints.items()
        },
    }


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
            values = {"enum": [*kinds[0]["enum"], None]} if "enum" in kinds[0] else {}
            return kinds[0] | values | {"type": [kinds[0]["type"], "null"]}
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
