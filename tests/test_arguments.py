"""Wrong arguments from Python: one plain sentence, before any work; and what `dir` lists."""

import inspect
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from public import public_names

import bnp_models as bnp
from bnp_models.models.options import typed_key

KEY = jax.random.key(0)

WRONG = {
    "a class for a model": (
        lambda small: bnp.sample(bnp.NPLCM, small.table, key=KEY),
        "model is the class NPLCM; give an object of it, such as NPLCM()",
    ),
    "swapped": (
        lambda small: bnp.sample(small.table, bnp.NPLCM(), key=KEY),
        "model must be of type Model, not Microdata; write sample(model, table, key=...)",
    ),
    "a number for a key": (
        lambda small: bnp.sample(bnp.NPLCM(), small.table, key=0),
        "key must be a random key, such as jax.random.key(0), not 0",
    ),
    "an array for a key": (
        lambda small: bnp.sample(bnp.NPLCM(), small.table, key=jax.numpy.zeros(3)),
        "key must be a random key, such as jax.random.key(0), not ArrayImpl",
    ),
    "a path for a table": (
        lambda small: bnp.sample(bnp.NPLCM(), "sample.csv", key=KEY),
        "table must be of type Microdata, ContingencyTable, Households or DataFrame, not "
        "'sample.csv'; write sample(model, table, key=...)",
    ),
    "a size for a run": (
        lambda small: bnp.population_risk(20_000, small.run),
        "run must be of type Run, not 20000; write population_risk(run, population_size)",
    ),
    "a run for a size": (
        lambda small: bnp.population_risk(small.run, small.run),
        "population_size must be a number, not Run",
    ),
    "no size": (
        lambda small: bnp.population_risk(small.run, None),
        "population_size must be a number, not None",
    ),
    "a table to synthesize": (
        lambda small: bnp.synthesize(small.table, 2),
        "run must be of type Run, not Microdata; write synthesize(run, num_datasets)",
    ),
    "a seed to synthesize": (
        lambda small: bnp.synthesize(small.run, 2, key=1),
        "key must be a random key, such as jax.random.key(0), not 1",
    ),
    "files before their original": (
        lambda small: bnp.evaluate([small.table], small.table),
        "original must be of type Microdata, ContingencyTable, Households or DataFrame, not list; "
        "write evaluate(original, synthetic)",
    ),
    "an array of keys": (
        lambda small: bnp.sample(
            bnp.NPLCM(components=2), small.table, key=jax.random.split(jax.random.key(0), 4)
        ),
        "key must be one key, not 4; all chains and draws derive theirs from it",
    ),
    "an array for a frame": (
        lambda small: bnp.Microdata.from_frame(np.zeros((3, 2))),
        "frame must be of type DataFrame, not ndarray; write Microdata.from_frame(frame)",
    ),
    "an array for a frame of households": (
        lambda small: bnp.Households.from_frame(np.zeros((3, 2)), "id"),
        "frame must be of type DataFrame, not ndarray; write Households.from_frame(frame, "
        "household)",
    ),
    "an array for a frame of conditions": (
        lambda small: bnp.StructuralZeros.from_frame(np.zeros((3, 2)), small.table.schema),
        "frame must be of type DataFrame, not ndarray; write StructuralZeros.from_frame(frame, "
        "table.schema)",
    ),
    "a risk to diagnose": (
        lambda small: bnp.diagnose(small.risk).figures,
        "run must be of type Run, not PopulationRisk; write diagnose(run)",
    ),
    "a run to summarise as a risk": (
        lambda small: bnp.report.risk_summary(small.run),
        "risk must be of type PopulationRisk, not Run; write risk_summary(risk)",
    ),
    "a table for cells": (
        lambda small: bnp.cell_risk(bnp.PolettiniStander(variant=1), small.table, key=KEY),
        "cells must be of type WeightedCells, not Microdata; "
        "write cell_risk(model, cells, key=...)",
    ),
    "a list of models": (
        lambda small: bnp.compare([bnp.NPLCM()], small.table, key=KEY),
        "models must be of type Mapping, not list; write compare({'hdp': HDPMixedMembership()}, "
        "table, key=...)",
    ),
    "another model than chains have": (
        lambda small: bnp.sample(bnp.PolettiniStander(variant=1), small.table, key=KEY),
        "model must be of type Model, not PolettiniStander; write sample(model, table, key=...)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_one_plain_sentence(case, small):
    call, sentence = WRONG[case]
    with pytest.raises(TypeError) as raised:
        call(small)
    assert str(raised.value) == sentence


def test_kernels_are_listed_and_imported_by_name():
    script = (
        "import sys, bnp_models as bnp\n"
        "assert {'variates', 'latent_classes', 'nested', 'boxes'} <= {*dir(bnp.kernels)}\n"
        "assert 'bnp_models.kernels.variates.gamma' not in sys.modules\n"
        "assert callable(bnp.kernels.variates.gamma.log_dirichlet)\n"
        "assert 'sticks' in dir(bnp.kernels.variates)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        bnp.kernels.nothing  # noqa: B018


@pytest.mark.parametrize("first", ["bnp.sample", "bnp.population_risk", "bnp.results", "None"])
def test_kernels_are_there_whatever_was_imported_before(first):
    script = (
        f"import pkgutil, bnp_models as bnp; {first}\n"
        "for family in dir(bnp.kernels):\n"
        "    folder = getattr(bnp.kernels, family)\n"
        "    modules = [module.name for module in pkgutil.iter_modules(folder.__path__)]\n"
        "    assert modules and set(modules) <= set(dir(folder))\n"
        "    assert all(getattr(folder, name).__doc__ for name in modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_keys_of_either_kind_are_keys():
    assert typed_key(KEY) is KEY
    made = typed_key(jax.random.PRNGKey(0))
    assert jax.random.bits(made) == jax.random.bits(KEY)


MODEL = bnp.NPLCM(2)
CALLS = {
    "load_run": lambda given, key: bnp.load_run("none", given.run.model, given.table, key=key),
    "attack_risk": lambda it, key: bnp.attack_risk(MODEL, it.table, [it.table], key=key),
    "cell_risk": lambda it, key: bnp.cell_risk(bnp.PolettiniStander(1), it.cells, key=key),
    "coarsen": lambda it, key: bnp.coarsen(it.run, 20_000, key=key),
    "compare": lambda it, key: bnp.compare({"a": MODEL}, it.table, key=key),
    "held_out_log_probability": lambda it, key: bnp.held_out_log_probability(
        it.run, it.table, key=key
    ),
    "household_risk": lambda it, key: bnp.household_risk(it.run, 20_000, key=key),
    "impute": lambda it, key: bnp.impute(it.run, 1, key=key),
    "loglinear_risk": lambda it, key: bnp.loglinear_risk(
        it.cells, structure="forest", ties="on", key=key
    ),
    "population_risk": lambda it, key: bnp.population_risk(it.run, 20_000, key=key),
    "predictive_checks": lambda it, key: bnp.predictive_checks(it.run, key=key),
    "protect": lambda it, key: bnp.protect(it.run, 20_000, max_tau1=5, key=key),
    "evaluate": lambda it, key: bnp.evaluate(it.table, it.table, key=key),
    "evaluation.closest_records": lambda it, key: bnp.evaluation.closest_records(
        it.table, it.table, key=key
    ),
    "evaluation.choose_left_out": lambda it, key: bnp.evaluation.choose_left_out(it.table, key),
    "evaluation.left_out_risk": lambda it, key: bnp.evaluation.left_out_risk(
        it.table, np.arange(it.table.n) < 50, it.table, key=key
    ),
    "evaluation.proportions": lambda it, key: bnp.evaluation.proportions(
        it.table, it.table, 1, key=key
    ),
    "evaluation.tree_propensity": lambda it, key: bnp.evaluation.tree_propensity(
        it.table, it.table, key=key
    ),
    "models.complete_households": lambda it, key: bnp.models.complete_households(
        it.households, key=key
    ),
    "evaluation.refit": lambda it, key: bnp.evaluation.refit(MODEL, it.table, [it.table], key=key),
    "sample": lambda it, key: bnp.sample(MODEL, it.table, key=key),
    "sample_hyperparameters": lambda it, key: bnp.sample_hyperparameters(
        bnp.PolettiniStander(1), it.cells, key=key
    ),
    "models.sample_population_counts": lambda it, key: bnp.models.sample_population_counts(
        it.cells, key=key
    ),
    "synthesize": lambda it, key: bnp.synthesize(it.run, 1, key=key),
    "validate_within": lambda it, key: bnp.validate_within(MODEL, it.table, key=key),
}  # fmt: skip


def test_keys_are_looked_at_wherever_they_are_given(small):
    """By every public function: what is no key is refused in one sentence."""
    taken = {
        name for name, of in public_names().items()
        if inspect.isfunction(of) and "key" in inspect.signature(of).parameters
    }  # fmt: skip
    assert taken == set(CALLS)
    cells = bnp.weighted_cells(small.table, 20_000)
    households = bnp.datasets.bay_area_households().sample(5, seed=0).households()
    given = SimpleNamespace(run=small.run, table=small.table, cells=cells, households=households)
    for name, call in CALLS.items():
        with pytest.raises(TypeError, match="key must be a random key, such as"):
            call(given, 5)
            pytest.fail(name)


def test_a_key_of_either_kind_gives_the_same(small):
    for name in ("held_out_log_probability", "synthesize", "protect", "coarsen"):
        one, other = (
            CALLS[name](SimpleNamespace(run=small.run, table=small.table), key)
            for key in (jax.random.key(3), jax.random.PRNGKey(3))
        )
        if name == "synthesize":
            pd.testing.assert_frame_equal(one[0], other[0])
        elif name == "protect":
            np.testing.assert_array_equal(one.after.tau1, other.after.tau1)
        elif name == "coarsen":
            for text, risk in one.items():
                np.testing.assert_array_equal(risk.tau1, other[text].tau1)
        else:
            np.testing.assert_array_equal(one, other)
