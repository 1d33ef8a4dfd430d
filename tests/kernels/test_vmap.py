"""Kernels under `jax.vmap`, over every argument: with one key for all lanes and with a key each."""

import importlib
import inspect
import pkgutil
import sys
from functools import wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p
from nested import tiny_households

import bnp_models as bnp
from bnp_models import kernels
from bnp_models.kernels.variates import (
    categorical,
    discrete,
    gamma,
    level_prior,
    levels,
    rng,
    sticks,
)

LANES = 3
KEY = jax.random.key(5)
SHAPES = jnp.array([0.3, 1.0, 4.0, 40.0])
COUNTS = jnp.array([0, 1, 7, 30])
SHARES = jnp.array([0.2, 0.5, 0.01, 0.9])
LEVELS = levels.Levels.of_variables((2, 3))
BY_LEVEL = jnp.arange(10).reshape(5, 2)
LOG_LEVEL = jnp.log(jnp.array([[0.5, 0.1], [0.5, 0.9], [0.2, 0.3], [0.3, 0.3], [0.5, 0.4]]))

VARIATES = {
    rng.word_pair: (KEY, (4,), jnp.uint32(3)),
    gamma.loggamma: (KEY, SHAPES),
    gamma.loggamma_from_one: (KEY, 1 + SHAPES),
    gamma.gamma_variate: (KEY, SHAPES, 1 / SHAPES),
    gamma.logbeta: (KEY, SHAPES, 2 * SHAPES),
    gamma.log_dirichlet: (KEY, SHAPES),
    discrete.poisson: (KEY, SHAPES),
    discrete.binomial: (KEY, COUNTS, SHARES),
    discrete.split_counts: (KEY, jnp.array(50), SHARES),
    categorical.draw_rows: (KEY, LOG_LEVEL),
    categorical.draw_rows_by_weight: (KEY, jnp.exp(LOG_LEVEL)),
    sticks.truncated_sticks: (KEY, COUNTS, jnp.array(0.7)),
    sticks.stick_concentration: (KEY, jnp.array(-3.0), 4, 0.25, 0.25),
    sticks.retrospective_sticks: (KEY, COUNTS > 1, jnp.array(-0.5), jnp.array(0.7)),
    level_prior.draw_level_prior: (KEY, LEVELS),
    level_prior.update_level_prior: (KEY, BY_LEVEL, LEVELS),
    level_prior.update_level_prior_given_levels: (KEY, LOG_LEVEL, LEVELS),
    levels.draw_levels: (KEY, 1.0 + BY_LEVEL, jnp.array([0, 0, 1, 1, 1])),
}


def is_array(leaf):
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def of_arrays(function, args, kwargs):
    """A call as a function of its arrays; these, and the number of the argument of each."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
    of_leaf = [n for n, x in enumerate([*args, *kwargs.values()]) for _ in jax.tree.leaves(x)]

    def call(*arrays):
        full = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            full[i] = array
        args, kwargs = jax.tree.unflatten(structure, full)
        # A result may have functions and sizes too.
        return [x for x in jax.tree.leaves(function(*args, **kwargs)) if is_array(x)]

    return call, [leaves[i] for i in places], [of_leaf[i] for i in places]


def choices(numbers, each=True):
    """Arguments that have lanes: each one alone, all but the first (the key), and all."""
    first, *others = dict.fromkeys(numbers)
    alone = [{n} for n in (first, *others)] if each or not others else []
    return set(map(frozenset, [*alone, others or [first], {first, *others}]))


def lanes_of(x):
    """Lanes of an array: keys, other values of floats, and the same integers."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.split(x, LANES)
    larger = 1 + jnp.arange(LANES).reshape(-1, *[1] * x.ndim) / 8
    if jnp.issubdtype(x.dtype, jnp.floating):
        return x * larger.astype(x.dtype)
    return jnp.broadcast_to(x, (LANES, *x.shape))


@pytest.mark.parametrize("function", VARIATES, ids=lambda function: function.__name__)
def test_lanes_of_variates_are_the_draws_alone(function):
    call, arrays, numbers = of_arrays(function, VARIATES[function], {})
    alone = jax.jit(call)
    for mapped in choices(numbers):
        on = [number in mapped for number in numbers]
        given = [lanes_of(x) if has else x for x, has in zip(arrays, on, strict=True)]
        together = jax.jit(jax.vmap(call, [0 if has else None for has in on]))(*given)
        for lane in range(LANES):
            of_lane = [x[lane] if has else x for x, has in zip(given, on, strict=True)]
            for a, b in zip(together, alone(*of_lane), strict=True):
                # Proposals of the prior of levels divide small differences of log gamma functions.
                np.testing.assert_allclose(a[lane], b, rtol=1e-3, atol=1e-6)


def all_kernels():
    """Public functions of the kernels by their names."""
    found = {}
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        holder = importlib.import_module(module.name)
        for name, value in vars(holder).items():
            own = getattr(value, "__module__", None) == module.name and not inspect.isclass(value)
            if own and callable(value) and name[0] != "_":
                found[f"{module.name.removeprefix(kernels.__name__ + '.')}.{name}"] = value
    return found


def noting(name, function, calls):
    """The same function, which notes the forms of the arguments of its first traced call."""

    @wraps(function)
    def noted(*args, **kwargs):
        leaves, structure = jax.tree.flatten((args, kwargs))
        if name not in calls and any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            forms = [
                jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
                if isinstance(leaf, jax.Array | np.ndarray) else leaf
                for leaf in leaves
            ]  # fmt: skip
            calls[name] = function, jax.tree.unflatten(structure, forms)
        return function(*args, **kwargs)

    return noted


def sweeps():
    """Models with all their moves, and tiny samples and structural zeros for them."""
    schema = bnp.Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in (2, 3, 2)))
    zeros = bnp.StructuralZeros.from_codes(np.array([[0, 2, -1]]), schema)
    codes = np.array([[0, 0, 0], [0, 1, 1], [1, 2, 0], [1, 0, 1], [0, 0, 1]], np.int32)
    table = bnp.Microdata(schema, codes)
    homes = tiny_households([("own", [("head", "0"), ("other", "1")]), ("rent", [("head", "1")])])
    hdp = bnp.HDPMixedMembership
    return [
        (hdp(capacity=8), table, None),
        (hdp(capacity=8), table, zeros),
        (hdp(capacity=8, augmentation="simulation"), table, zeros),
        (hdp(capacity=8, concentration="record"), table, None),
        (hdp(capacity=8, concentration="hierarchical"), table, None),
        (bnp.MixedMembership(components=3), table, zeros),
        (bnp.NPLCM(components=3), table, None),
        (bnp.TNPLCM(components=3), table, zeros),
        (bnp.NDPMPM(components=2, member_components=2), homes, None),
    ]


@pytest.fixture(scope="module")
def calls():
    """One call of each kernel that a sweep of a model makes: the function and its arguments."""
    noted, functions = {}, all_kernels()
    with pytest.MonkeyPatch.context() as patch:
        replaced = {id(f): noting(name, f, noted) for name, f in functions.items()}
        for module in [m for name, m in sys.modules.items() if name.startswith("bnp_models")]:
            for name, value in list(vars(module).items()):
                if id(value) in replaced:
                    patch.setattr(module, name, replaced[id(value)])
        for model, table, zeros in sweeps():
            data = model.prepare(table, zeros)

            def run(key, model=model, data=data):
                state = model.init(key, data, model.capacity, jnp.int32(2))
                state, _ = model.sweep(key, state, data, jnp.int32(0))
                return model.settle(state, data)

            jax.eval_shape(run, KEY)
    jax.clear_caches()
    return noted


def refused(calls, each):
    """Kernels, and the arguments of which they could not have lanes."""
    found = {}
    for name, (function, (args, kwargs)) in calls.items():
        call, arrays, numbers = of_arrays(function, args, kwargs)
        for mapped in choices(numbers, each):
            on = [number in mapped for number in numbers]
            given = [
                jax.ShapeDtypeStruct((LANES, *x.shape), x.dtype) if has else x
                for x, has in zip(arrays, on, strict=True)
            ]
            function = jax.vmap(call, [0 if has else None for has in on])
            try:
                jax.jit(function).lower(*given)
            except (TypeError, ValueError, NotImplementedError) as error:
                found[name, tuple(mapped)] = str(error)
    return found


@pytest.mark.long
def test_kernels_take_lanes_of_all_arguments(calls):
    """With one key for all lanes, and with a key each."""
    assert len(calls) > 100
    assert not refused(calls, each=False)


@pytest.mark.long
def test_kernels_take_lanes_of_each_argument(calls):
    assert not refused(calls, each=True)


SEEN = "gamma.loggamma", "gamma.gamma_variate", "sticks.truncated_sticks"


def test_a_generator_that_does_not_broadcast_is_seen(calls, monkeypatch):
    """Shown to fail: random words whose positions have no lanes where their stream has."""
    cut = {
        name: calls[name]
        for name in ("variates.gamma.loggamma", "variates.sticks.truncated_sticks")
    }
    monkeypatch.setattr(gamma, "word_pair", without_lanes)
    assert {name for name, _ in refused(cut, each=False)} == set(cut)


def without_lanes(key, shape, stream=0):
    """`word_pair` as it was."""
    seed = jax.random.key_data(key)
    position = jnp.arange(np.prod(shape, dtype=int), dtype=jnp.uint32).reshape(shape)
    words = (jnp.broadcast_to(x, shape) for x in (*seed, jnp.uint32(stream)))
    return tuple(threefry2x32_p.bind(*words, position))
