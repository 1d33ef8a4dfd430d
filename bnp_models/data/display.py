"""Short display of results: as text, and as a table in notebooks."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from html import escape
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd

_WIDTH, _NAMES, _ROWS = 80, 10, 5


class Shown(NamedTuple):
    """Title, figures and rows that display an object, as text or in a notebook."""

    title: str
    """Kind of the object, in one line."""
    lines: Mapping[str, object] = {}
    """Figures of the object by name; a figure that is None is not shown."""
    frame: pd.DataFrame | None = None
    """Table below the figures, of which the first rows are shown."""


class Displayed(Protocol):
    """Object with a method that gives its display."""

    def _shown(self) -> Shown: ...


_Class = TypeVar("_Class", bound=type)


def displayed(cls: _Class) -> _Class:
    """Give a class a ``__repr__`` and a ``_repr_html_`` that are made from its ``_shown``.

    Apply it below `dataclass`, which then leaves ``__repr__`` as it is.
    """
    cls.__repr__ = as_text  # type: ignore[assignment, method-assign]
    cls._repr_html_ = as_html  # type: ignore[attr-defined]
    return cls


def as_text(given: Displayed) -> str:
    """Text of an object: its title, its figures one a line, and the first rows."""
    shown = given._shown()
    lines = _lines(shown)
    width = max(map(len, lines), default=0)
    parts = [shown.title, *(f"  {name:<{width}}  {_cut(text)}" for name, text in lines.items())]
    if shown.frame is not None and len(shown.frame):
        text = shown.frame.head(_ROWS).to_string(index=False, max_cols=12, max_colwidth=24)
        parts += [f"  {row}" for row in text.splitlines()]
        if len(shown.frame) > _ROWS:
            parts.append(f"  ... {len(shown.frame):,} rows")
    return "\n".join(parts)


def as_html(given: Displayed) -> str:
    """The same as HTML, escaped."""
    return html_of(given._shown())


def html_of(shown: Shown) -> str:
    """HTML of what is shown."""
    parts = [f"<p><strong>{escape(shown.title)}</strong></p>"]
    with pd.option_context("display.max_colwidth", None):
        if lines := _lines(shown):
            parts.append(pd.DataFrame({"": lines}).to_html(header=False))
        if shown.frame is not None and len(shown.frame):
            parts.append(shown.frame.head(_ROWS).to_html(index=False, max_cols=12))
            if len(shown.frame) > _ROWS:
                parts.append(f"<p>{len(shown.frame):,} rows</p>")
    return f"<div>{''.join(parts)}</div>"


def options_as_text(model: Any) -> str:
    """The options of a model, a dataclass, also those with their default values."""
    options = ", ".join(f"{name}={value}" for name, value in _options(model).items())
    return textwrap.fill(
        f"{type(model).__name__}({options})", 100, subsequent_indent="  ", break_long_words=False
    )


def options_as_html(model: Any) -> str:
    """The options of a model, a dataclass, as a table of HTML."""
    return html_of(Shown(type(model).__name__, _options(model)))


def _options(model: Any) -> dict[str, str]:
    """The options of a model as text; a number may be in an array."""
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return {
        name: str(value) if getattr(value, "shape", None) == () else repr(value)
        for name, value in values.items()
    }


def _lines(shown: Shown) -> dict[str, str]:
    """Figures as text."""
    return {
        str(name): whole(value) if isinstance(value, int) else str(value)
        for name, value in shown.lines.items()
        if value is not None
    }


def _cut(text: str) -> str:
    """Text of one line, shortened."""
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4]} ..."


def title_of(given: Displayed) -> str:
    """Title of an object within another."""
    return given._shown().title


def spread(draws: np.ndarray) -> str:
    """Mean and 95% interval of draws."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{np.mean(draws):,.4g} (95% interval {low:,.4g} to {high:,.4g})"


def whole(number: int) -> str:
    """An integer, in powers of ten where it is long."""
    return f"{number:,}" if number < 10**15 else f"{Decimal(number):.3g}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and what is counted, such as "1 record" and "1,234 records"."""
    return f"{whole(number)} {one if number == 1 else many or one + 's'}"


def first_parts(parts: Sequence[str], what: str, most: int = 4) -> str:
    """The first parts of a sentence, and how many more there are of what they are about."""
    more = len(parts) - most
    return "; ".join([*parts[:most], *([counted(more, f"more {what}")] if more > 0 else [])])


def levels_by_variable(
    variables: Sequence[str], levels: Sequence[Sequence[object]]
) -> dict[str, str]:
    """Levels of the first variables, in words, and how many more variables there are."""
    some = list(zip(variables, levels, strict=True))
    if len(some) > _NAMES + 1:
        some = some[:_NAMES]
    lines = {
        name: f"{counted(len(labels), 'level')}: {_cut(', '.join(map(str, labels[:30])))}"
        for name, labels in some
    }
    if len(some) < len(variables):
        lines["..."] = f"{len(variables) - len(some):,} more variables"
    return lines


def shapes(arrays: Mapping[str, np.ndarray]) -> str:
    """Names and shapes of arrays, those of one shape together."""
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, array in arrays.items():
        by_shape.setdefault(np.shape(array), []).append(name)
    return "; ".join(f"{', '.join(names)} {shape}" for shape, names in by_shape.items())
