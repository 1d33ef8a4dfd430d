"""Tests of the contract of a model, of every model alike."""

import dataclasses
import itertools
from functools import cache
from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from nested import tiny_households

from bnp_models import NPLCM, TNPLCM, HDPMixedMembership, MixedMembership, StructuralZeros
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema
from bnp_models.inference.placement import record_axes
from bnp_models.kernels.numerics.platforms import forms_of, map_draws
from bnp_models.models.mixed_membership.options import CONCENTRATIONS
from bnp_models.models.model import (
    Completes,
    FixedComponents,
    Growing,
    KnowsMargins,
    MakesHouseholds,
    Model,
    PredictsCells,
)
from bnp_models.models.nested.ndpmpm import NDPMPM

NUM_LEVELS = (2, 3, 2)
SCHEMA = Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in NUM_LEVELS))
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))), np.int32)
ZEROS = StructuralZeros.from_codes(np.array([[0, 2, -1]]), SCHEMA)
HOUSEHOLDS = [("own", [("head", "0"), ("other", "1")]), ("rent", [("head", "1")])]
# Moves that would be compiled for long.
PLAIN = {"dish_stride": 0, "cell_stride": 0, "seating_every": 0}
SMALL = PLAIN | {"split_merge_every": 0, "capacity": 8}
# The papers' prior of levels, with which a sweep compiles in half the time.
UNIFORM = {"level_prior": "uniform"}

MODELS = {
    **{f"hdp {c}": HDPMixedMembership(concentration=c, **SMALL, **UNIFORM) for c in CONCENTRATIONS},
    "hdp shared": HDPMixedMembership(**SMALL),
    "mixed-membership": MixedMembership(components=3, **PLAIN, **UNIFORM),
    "nplcm": NPLCM(components=3, split_merge_every=0, **UNIFORM),
    "tnplcm": TNPLCM(components=3, split_merge_every=0),
    "ndpmpm": NDPMPM(components=2, member_components=2),
}

# Models with all their moves.
WHOLE = {
    "hdp": HDPMixedMembership(capacity=8),
    "nplcm": NPLCM(components=3),
    "tnplcm": TNPLCM(components=3),
    "ndpmpm": NDPMPM(components=2, member_components=2),
}


def sample(model):
    """A tiny sample that the model takes, with missing values where it draws them."""
    if model.table_type is not Microdata:
        return tiny_households(HOUSEHOLDS), None
    takes_both = model.takes_missing and model.missing_under_conditions
    zeros = ZEROS if model.conditions_type is not None and takes_both else None
    feasible = CELLS if zeros is None else CELLS[~zeros.contains(CELLS)]
    codes = feasible[np.random.default_rng(0).integers(0, len(feasible), 9)]
    if model.takes_missing:
        codes[2, 0] = codes[5, 2] = -1
    return Microdata(SCHEMA, codes), zeros


@cache
def swept(name):
    """A model's data and its first sweep, made by one compiled program."""
    model = MODELS[name]
    table, conditions = sample(model)
    data = model.prepare(table, conditions)

    @jax.jit
    def run(key):
        key_init, key_sweep = jax.random.split(key)
        start = model.init(key_init, data, model.capacity, jnp.int32(2))
        state, info = model.sweep(key_sweep, start, data, jnp.int32(0))
        return start, state, info, model.keep(state, info)

    start, state, info, kept = run(jax.random.key(1))
    draw = {name: kept[name] for name in (*model.parameters, "alpha")}
    return SimpleNamespace(
        model=model, table=table, conditions=conditions, data=data, start=start, state=state,
        info=info, kept=kept, draw=draw,
    )  # fmt: skip


def of_kind(kind):
    return pytest.mark.parametrize(
        "name", [name for name, model in MODELS.items() if isinstance(model, kind)]
    )


def forms(tree):
    """Structure of a tree, and the shapes and dtypes of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


@of_kind(Model)
def test_a_sweep_keeps_the_form_of_the_state(name):
    one = swept(name)
    assert forms(one.state) == forms(one.start)
    settled = jax.eval_shape(one.model.settle, one.state, one.data)
    assert forms(settled) == forms(one.start)
    assert one.info.left_over.shape == ()


def lowered(function, *platforms):
    """A function of a seed, as it is given to other platforms."""
    with forms_of(accelerator=True):
        return export.export(jax.jit(function), platforms=platforms)(jnp.uint32(0)).mlir_module()


@pytest.mark.long
@pytest.mark.parametrize(("name", "truncated"), [*((name, False) for name in WHOLE), ("hdp", True)])
def test_sweeps_are_lowered_for_accelerators(name, truncated):
    """Those of several chains, without a call of the host."""
    model = WHOLE[name]
    table, conditions = sample(model)
    if truncated:
        table, conditions = Microdata(SCHEMA, CELLS[~ZEROS.contains(CELLS)]), ZEROS
    data = model.prepare(table, conditions)

    def of_chain(key):
        key_init, key_sweep = jax.random.split(key)
        state = model.init(key_init, data, model.capacity, jnp.int32(2))
        return jax.tree.leaves(model.sweep(key_sweep, state, data, jnp.int32(0)))

    def sweeps(seed):
        return jax.vmap(of_chain)(jax.random.split(jax.random.key(seed), 2))

    assert "callback" not in lowered(sweeps, "cuda", "tpu")


@of_kind(PredictsCells)
def test_risk_and_synthesis_are_lowered_for_accelerators(name):
    one = swept(name)
    sets = None if one.conditions is None else jnp.asarray(one.conditions.feasible.sets)

    def both(seed):
        keys = jax.random.split(jax.random.key(seed), 2)
        draws = jax.tree.map(lambda x: jnp.stack([x, x]), one.draw)

        def of_draw(arguments):
            key, draw = arguments
            return one.model.log_cell_probability(key, draw, CELLS, NUM_LEVELS)

        new = one.model.simulate_records(keys[0], one.draw, 5, NUM_LEVELS, sets)
        return map_draws(of_draw, (keys, draws)), new

    assert "callback" not in lowered(both, "cuda", "tpu")


@of_kind(Completes)
def test_completion_is_lowered_for_accelerators(name):
    one = swept(name)

    def completed(seed):
        codes = one.model.complete_records(jax.random.key(seed), one.draw, one.data)
        return codes, one.model.level_probabilities(one.draw, NUM_LEVELS)

    assert "callback" not in lowered(completed, "cuda", "tpu")


@of_kind(MakesHouseholds)
def test_households_are_lowered_for_accelerators(name):
    one = swept(name)
    left = jnp.ones(len(one.data.blocks))

    def made(seed):
        key = jax.random.key(seed)
        return one.model.simulate_households(key, one.draw, one.data, left, 16)

    assert "callback" not in lowered(made, "cuda", "tpu")


def test_a_call_of_the_host_is_seen():
    def watched(seed):
        jax.debug.callback(lambda seed: None, seed)
        return seed

    try:
        text = lowered(watched, "cuda")
    except ValueError:  # where there is no such device
        return
    assert "callback" in text


@of_kind(Model)
def test_what_is_kept_is_of_the_state(name):
    """A state that a subclass changed after the sweep is what its draws are of."""
    one = swept(name)
    changed = jax.tree.map(lambda x: x + 1, one.state)
    kept, before = one.model.keep(changed, one.info), one.kept
    assert kept["alpha"] == pytest.approx(float(before["alpha"]) + 1)
    for field in {*vars(one.state)} & {*before} - {"alpha"}:
        np.testing.assert_array_equal(kept[field], vars(changed)[field])


# By name: options that fix what is drawn otherwise, and what is then kept.
FIXED = {
    "hdp shared": {"alpha": 0.25, "alpha0": 0.5},
    "mixed-membership": {"alpha": 0.25},
    "nplcm": {"alpha": 0.25},
    "tnplcm": {"alpha": 0.25},
    "ndpmpm": {"alpha": 0.25, "beta": 0.5},
}


@pytest.mark.parametrize("name", FIXED)
def test_what_is_fixed_is_kept(name):
    """Concentrations and shapes are the numbers that the options say, after a sweep too."""
    model = dataclasses.replace(MODELS[name], level_shape=2.0, **FIXED[name])
    table, conditions = sample(model)
    data = model.prepare(table, conditions)
    state = model.init(jax.random.key(1), data, model.capacity, jnp.int32(2))
    state, info = jax.jit(model.sweep)(jax.random.key(2), state, data, jnp.int32(0))
    kept = model.keep(state, info)
    for field, value in FIXED[name].items():
        assert np.all(kept[field] == value)
    shapes = [field for field in kept if field.endswith("_shape")]
    assert shapes and all(np.all(kept[field] == 2) for field in shapes)


@of_kind(Model)
def test_keep_offers_scalars_and_parameters(name):
    one = swept(name)
    assert set(one.model.scalars + one.model.parameters) | {"alpha"} <= set(one.kept)
    assert all(one.kept[scalar].shape == () for scalar in one.model.scalars)
    assert all(np.isfinite(one.kept[scalar]) for scalar in one.model.scalars)


@of_kind(Model)
def test_components_and_slots(name):
    model = MODELS[name]
    assert isinstance(model, Growing) != isinstance(model, FixedComponents)
    assert min(model.start_components) >= 1
    if isinstance(model, FixedComponents):
        assert model.capacity == model.components and model.start_components == (model.capacity,)


@of_kind(Model)
def test_records_run_along_the_axes_that_fields_declare(name):
    """And sharding takes no axis of another length."""
    one = swept(name)
    shared = {"hdp shared": True, "mixed-membership": True}
    declared = {}
    for tree in (one.data, one.state):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        for (path, leaf), axis in zip(leaves, record_axes(tree), strict=True):
            if axis is not None:
                declared[path[0].name] = leaf.shape[axis]
    if one.model.table_type is not Microdata:
        households, members = one.data.household_weight.size, one.data.member_weight.size
        assert declared == {
            "household_rows": households, "household_weight": households,
            "member_codes": members, "member_weight": members,
        }  # fmt: skip
        return
    per_record = {"rows", "weight", "one_hot"}
    expected = dict.fromkeys(("cell_rows", "cell_one_hot", "cell_counts"), 0)
    if one.model.name in ("hdp", "mixed-membership"):
        per_record = {"rows", "weight", "cell", "z"} | (set() if name in shared else {"alpha"})
        expected = {}
    assert declared == expected | dict.fromkeys(per_record, one.data.weight.size)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), one.state)
    axes = [None if axis is None else axis + 1 for axis in record_axes(one.state)]
    assert record_axes(stacked, num_leading=1) == axes


@of_kind(Growing)
def test_growing_models_grow_and_shrink(name):
    one = swept(name)
    key, more = jax.random.key(2), 2 * one.model.capacity
    grown = jax.eval_shape(lambda: one.model.grow(key, one.state, one.data, more))
    start = jax.eval_shape(lambda: one.model.init(key, one.data, more, jnp.int32(2)))
    assert forms(grown) == forms(start)
    shrunk = jax.eval_shape(lambda s: one.model.shrink(s, one.data, one.model.capacity), grown)
    assert forms(shrunk) == forms(one.state)
    assert jax.eval_shape(one.model.slots_needed, one.state, one.data).shape == ()
    assert 0 < one.model.start_share <= 1


@of_kind(PredictsCells)
def test_probabilities_of_all_cells_add_up_to_one(name):
    one = swept(name)
    cells = CELLS if one.conditions is None else CELLS[~one.conditions.contains(CELLS)]
    log_p = jax.jit(lambda key, draw: one.model.log_cell_probability(key, draw, cells, NUM_LEVELS))(
        jax.random.key(3), one.draw
    )
    assert log_p.shape == (len(cells),)
    np.testing.assert_allclose(np.exp(log_p).sum(), 1, rtol=1e-4)
    sets = None if one.conditions is None else jnp.asarray(one.conditions.feasible.sets)
    new = jax.eval_shape(
        lambda key: one.model.simulate_records(key, one.draw, 5, NUM_LEVELS, sets),
        jax.random.key(4),
    )
    assert new.shape == (len(NUM_LEVELS), 5)


@of_kind(KnowsMargins)
def test_margins_are_sums_of_cell_probabilities(name):
    one = swept(name)
    cells = CELLS if one.conditions is None else CELLS[~one.conditions.contains(CELLS)]
    sets = None if one.conditions is None else jnp.asarray(one.conditions.feasible.sets)
    log_p = one.model.log_cell_probability(None, one.draw, jnp.asarray(cells), NUM_LEVELS)
    probability = np.exp(np.asarray(log_p))
    expected = np.concatenate(
        [np.bincount(cells[:, j], probability, size) for j, size in enumerate(NUM_LEVELS)]
    )
    margins = one.model.level_probabilities(one.draw, NUM_LEVELS, sets)
    np.testing.assert_allclose(margins, expected, rtol=1e-3, atol=1e-6)


@of_kind(Completes)
def test_completed_records_keep_what_was_observed(name):
    one = swept(name)
    codes = jax.jit(one.model.complete_records)(jax.random.key(5), one.draw, one.data)
    codes = np.asarray(codes).T[: one.table.n]
    observed = one.table.codes >= 0
    assert not observed.all()
    np.testing.assert_array_equal(codes[observed], one.table.codes[observed])
    assert ((codes >= 0) & (codes < NUM_LEVELS)).all()
    margins = np.asarray(one.model.level_probabilities(one.draw, NUM_LEVELS))
    ends = np.cumsum(NUM_LEVELS)[:-1]
    np.testing.assert_allclose([part.sum() for part in np.split(margins, ends)], 1, rtol=1e-4)


@of_kind(MakesHouseholds)
def test_households_are_made_in_lanes(name):
    one = swept(name)
    left = jnp.ones(len(one.data.blocks))
    _, possible = jax.eval_shape(
        lambda key: one.model.simulate_households(key, one.draw, one.data, left, 16),
        jax.random.key(6),
    )
    assert possible.dtype == bool and possible.ndim == 1


@of_kind(Model)
def test_options_are_fields_that_can_be_replaced(name):
    model = MODELS[name]
    copy = dataclasses.replace(model)
    assert copy is not model and jax.tree.structure(copy) == jax.tree.structure(model)


MEMBERS = {
    "name": "of one class", "scalars": (), "parameters": (), "components": 2,
    "max_exact_variables": 3.0,
} | {
    name: lambda self, *args, **how: None
    for name in ("prepare", "init", "sweep", "log_cell_probability", "simulate_records")
}  # fmt: skip


def model_without(*missing):
    members = {name: member for name, member in MEMBERS.items() if name not in missing}
    annotations = {name: ClassVar[type(x)] for name, x in members.items() if not callable(x)}
    return type(Model)(
        "Some", (FixedComponents, PredictsCells), members | {"__annotations__": annotations}
    )


@pytest.mark.parametrize("missing", MEMBERS)
def test_a_model_without_a_member_cannot_be_made(missing):
    assert model_without()().capacity == 2
    with pytest.raises(TypeError, match=missing):
        model_without(missing)()
