"""The programs in the guides for users of JAX run, and give what the guides say that they do."""

import contextlib
import importlib
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import stand_in_blackjax
from harness import Z_LIMIT

import bnp_models as bnp

DOCS = Path(__file__).resolve().parents[1] / "docs"
EASY = {"others_rhat=1.1": "max_rhat=100, min_ess=1, others_rhat=100"}


def program_of(page, less):
    """Blocks of Python of a page, one after the other, with smaller numbers."""
    text = (DOCS / page).read_text(encoding="utf-8")
    source = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    for number, smaller in less.items():
        assert number in source, number
        source = source.replace(number, smaller)
    return source


def run_program(source, where):
    """Names that a program defines, and what it prints."""
    names, said = {"__name__": "guide"}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(source, where, "exec"), names)
    return names, said.getvalue()


@pytest.fixture(scope="module")
def one_conditional():
    shorter = "until=target, num_chains=2, num_warmup=20, num_samples=200"
    variables = '(1_000, seed=0)[["age", "sex", "race", "education"]]'
    less = EASY | {
        "until=target": shorter,
        "(1_000, seed=0)": variables.replace("1_000", "150"),
        "bnp.NPLCM(), OnGrid()": "bnp.NPLCM(components=5), OnGrid(components=5)",
    }
    return run_program(program_of("extending.md", less), "extending.md")


def test_one_conditional_changed_gives_a_risk(one_conditional):
    names, said = one_conditional
    run, risk = names["run"], names["risk"]
    values = np.unique(run.draws["alpha"]).astype(float).round(3).tolist()
    assert len(values) > 1 and {*values} <= {0.1, 0.3, 1.0, 3.0}
    assert risk.tau1.shape == (2, 200)
    lines = [line for line in said.splitlines() if line.startswith(("NPLCM ", "OnGrid "))]
    assert [line.split()[0] for line in lines] == ["NPLCM", "OnGrid"]
    assert float(lines[1].split()[2]) == pytest.approx(risk.tau1.mean())


def test_the_changed_conditional_is_that_of_the_formula(one_conditional):
    """Shares of many draws given the sticks, against the density on the page."""
    model, sum_log_1mv = one_conditional[0]["OnGrid"](components=5), -4.0
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(8), i))(np.arange(20_000))
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: model.draw_alpha(key, sum_log_1mv)))(keys))
    values = np.array([0.1, 0.3, 1.0, 3.0])
    # Four sticks V_k ~ Beta(1, alpha), with density alpha (1 - V_k)^(alpha - 1).
    p = values**4 * np.exp((values - 1) * sum_log_1mv)
    p /= p.sum()
    shares = (np.abs(drawn[:, None] - values) < 1e-3).mean(axis=0)
    z = (shares - p) / np.sqrt(p * (1 - p) / drawn.size)
    assert np.abs(z).max() < Z_LIMIT


@pytest.mark.parametrize("library", ["stand-in", "blackjax"])
def test_blackjax_numpyro_and_bnp_run_together(library, monkeypatch):
    """By blackjax, if it is installed, and by a stand-in with the functions that the guide uses."""
    if library == "stand-in":
        for name in ("blackjax", "blackjax.util"):
            monkeypatch.setitem(sys.modules, name, stand_in_blackjax)
    else:
        pytest.importorskip("blackjax")
    less = EASY | {
        "1_000": "150", '"marital_status", "education"': '"education"', "bnp.NPLCM()":
        "bnp.NPLCM(components=5)", "num_steps=500": "num_steps=20", "alpha[250:]": "alpha[10:]",
        "K, num_levels = 6": "K, num_levels = 3",
        "until=target": "until=target, num_chains=2, num_warmup=300, num_samples=1000",
        "num_warmup=1000": "num_warmup=200", "num_chains=4": "num_chains=2",
    }  # fmt: skip
    names, said = run_program(program_of("numpyro_blackjax.md", less), "numpyro_blackjax.md")
    assert names["blackjax"] is importlib.import_module("blackjax")
    assert names["alpha"].shape == (20,) and np.all(np.asarray(names["alpha"]) > 0)
    run, risk = names["run"], names["risk"]
    assert run.draws["log_likelihood"].shape == (2, 1000) and len(risk.tau1) == 2
    assert 0 < risk.r1.min() <= risk.r1.max() < 1
    assert 0.5 < run.draws["acceptance"].mean() < 1
    # One posterior, two samplers.
    (ours, theirs) = (SimpleNamespace(draws=names["largest"][name]) for name in ("bnp", "NumPyro"))
    for one in (ours, theirs):
        (figures,) = bnp.diagnose({"x": one.draws}).figures.values()
        assert figures["rhat"] < 1.1
        one.variance = one.draws.var() / figures["ess_bulk"]
    z = (ours.draws.mean() - theirs.draws.mean()) / np.sqrt(ours.variance + theirs.variance)
    assert abs(z) < Z_LIMIT
    assert f"bnp: {ours.draws.mean():.3f}," in said
