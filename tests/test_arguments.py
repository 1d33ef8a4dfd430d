"""Wrong arguments from Python: one plain sentence, before any work; and what `dir` lists."""

import subprocess
import sys

import jax
import pytest

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
    "a risk to diagnose": (
        lambda small: bnp.convergence(small.risk),
        "run must be of type Run, not PopulationRisk; write convergence(run)",
    ),
    "a run to summarise as a risk": (
        lambda small: bnp.risk_summary(small.run),
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
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bnp.kernels.nothing  # noqa: B018


def test_keys_of_either_kind_are_keys():
    assert typed_key(KEY) is KEY
    made = typed_key(jax.random.PRNGKey(0))
    assert jax.random.bits(made) == jax.random.bits(KEY)
