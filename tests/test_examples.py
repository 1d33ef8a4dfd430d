"""Examples in docstrings: every public function and class has one, and each of them runs."""

import doctest
import inspect

import pytest
from public import public_names

import bnp_models as bnp

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = public_names()
COMPILES = {
    "household_risk", "impute", "report.household_risk_summary", "report.write_household_report",
    "results.HouseholdRisk", "models.sample_population_counts", "results.CountsRun",
    "results.HyperparameterDraws", "sample_hyperparameters",
}  # fmt: skip
"""Samplers that no other example runs: their compilation would be half of the time of all."""


def run_examples(doc: str, names: dict, where: str) -> dict:
    """Run the examples of a docstring with some names; return the names that there are then."""
    test = doctest.DocTestParser().get_doctest(doc, names, where, None, 0)
    assert test.examples, f"{where} has no example in its docstring"
    report = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(
        test, out=report.append, clear_globs=False
    )
    assert not failed, "".join(report)
    return test.globs


@pytest.fixture(scope="module")
def names():
    """What the package's own docstring defines, for all others to use."""
    return run_examples(bnp.__doc__, {}, "bnp_models")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in COMPILES)) for name in PUBLIC],
)
def test_examples(name, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(inspect.getdoc(PUBLIC[name]) or "", dict(names), name)


def test_a_docstring_without_an_example_is_seen(names):
    with pytest.raises(AssertionError, match="f has no example"):
        run_examples("Add one.", {}, "f")
    with pytest.raises(AssertionError, match="Expected"):
        run_examples(">>> 1 + 1\n3", {}, "f")
