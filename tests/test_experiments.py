"""Scripts of experiments, which nobody runs for months, still fit the package that they call."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bnp_models as bnp

ROOT = Path(__file__).parents[1] / "experiments"
SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imported(tree: ast.AST) -> dict[str, Any]:
    """Objects of the package by the names under which a script imports them."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bnp_models"):
            module = importlib.import_module(node.module)
            for one in node.names:
                if not hasattr(module, one.name):
                    # A module of a package, which may not have been imported yet.
                    importlib.import_module(f"{node.module}.{one.name}")
                found[one.asname or one.name] = getattr(module, one.name)
        elif isinstance(node, ast.Import):
            found |= {one.asname: bnp for one in node.names if one.name == "bnp_models"}
    return found


def meant(node: ast.expr, known: dict[str, Any]) -> Any:
    """The object of the package that an expression such as ``bnp.data.Bins.choose`` names."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        of = meant(node.value, known)
        # Modules within the folders may be those of an earlier version, which a script compares.
        if inspect.isclass(of) or (inspect.ismodule(of) and of.__name__.count(".") < 2):
            return getattr(of, node.attr)
    return None


def calls(tree: ast.AST, known: dict[str, Any]) -> Iterator[tuple[int, Any, ast.Call]]:
    """Lines of calls of the package all of whose arguments are known, and what is called."""
    for node in ast.walk(tree):
        # Every name has to be there, whether it is called or not.
        if isinstance(node, ast.Attribute):
            meant(node, known)
        if isinstance(node, ast.Call):
            unpacked = any(isinstance(x, ast.Starred) for x in node.args)
            function = meant(node.func, known)
            if callable(function) and not unpacked and all(x.arg for x in node.keywords):
                yield node.lineno, function, node


def check(text: str) -> None:
    """Raise an error unless names exist, and functions take the arguments that they are given."""
    tree = ast.parse(text)
    for line, function, call in calls(tree, imported(tree)):
        given = {str(x.arg): None for x in call.keywords}
        try:
            inspect.signature(function).bind(*[None] * len(call.args), **given)
        except TypeError as error:
            raise TypeError(f"line {line}: {function.__name__}: {error}") from None


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_fit_the_package(script):
    check((ROOT / script).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("import bnp_models as bnp\nbnp.synthesise", AttributeError, "synthesise"),
        ("import bnp_models as bnp\nbnp.data.bin_column()", AttributeError, "bin_column"),
        ("from bnp_models.data.bins import bin_column", ImportError, "bin_column"),
        ("import bnp_models as bnp\nbnp.NPLCM(component=3)", TypeError, "line 2: NPLCM: .*'compon"),
        ("import bnp_models as bnp\nbnp.Limits(1, 2, 3)", TypeError, "too many positional"),
        (
            "from bnp_models.data.bins import Bins as B\nB.choose('a', values=[])",
            TypeError, "line 2: choose: missing a required argument: 'counts'",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_found(text, error, said):
    with pytest.raises(error, match=said):
        check(text)
