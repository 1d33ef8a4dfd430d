"""Values in the words of messages."""

import re
import sys
import tomllib
from pathlib import Path

import bnp_models
from bnp_models.data.messages import install_command, listed, listing, quoted


def test_a_long_value_is_shortened():
    assert quoted("x" * 70) == repr("x" * 70)
    assert quoted("x" * 1000) == f"'{'x' * 59}...{'x' * 9}'"


def test_a_long_list_says_how_many_there_are():
    assert listing([1, "a"]) == "1, 'a'"
    assert listing(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listing(range(13)).endswith("10, 11, ... (13 in all)")


def test_an_enumeration_ends_with_the_word():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(iter(["a", "b"]), "or") == "a or b"


def test_packages_to_install_are_named_as_the_index_has_them(monkeypatch):
    """No index has bnp-models, so that no message may name its extras."""
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert install_command("x") == '"/a b/python" -m pip install x'
    package = Path(bnp_models.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert "bnp-models[" not in text
    named = set(re.findall(r"install_command\('([^']+)'\)", text))
    project = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [re.split(r"[>=\[]", one)[0] for kind in ("formats", "trees") for one in extras[kind]]
    assert named == set(wanted) and len(named) == 3
