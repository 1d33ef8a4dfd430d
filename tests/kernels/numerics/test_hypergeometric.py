"""2F1 and beta expectations against mpmath at 50 digits, over all that the models reach and beyond.

The reference values are in tests/reference/hyp2f1.json;
experiments/papers/polettini_stander/reference.py makes them.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import compiles_once

from bnp_models.kernels.numerics.hypergeometric import beta_nodes, log_beta_expectation, log_hyp2f1

REFERENCE = json.loads(
    (Path(__file__).parents[2] / "reference" / "hyp2f1.json").read_text(encoding="utf-8")
)


def table(name, gradients=False):
    rows = [row for row in REFERENCE[name] if not gradients or "gradient" in row]
    at = np.array([row["at"] for row in rows])
    return at, np.array([row["gradient" if gradients else "log"] for row in rows])


def expectation(at, dtype):
    f, alpha, a, b, x = (jnp.asarray(column, dtype) for column in at.T)
    return np.asarray(jax.jit(log_beta_expectation)(f, alpha, a, b, jnp.log(x)), np.float64)


def function(at, dtype):
    return np.asarray(jax.jit(log_hyp2f1)(*(jnp.asarray(v, dtype) for v in at.T)), np.float64)


def beyond(value, reference, tolerance, dtype):
    """Errors of logarithms over what is allowed: the tolerance, or 4 units in the last place."""
    unit = np.finfo(dtype).eps * np.abs(reference)
    return np.abs(value - reference) / np.maximum(tolerance, 4 * unit)


def test_expectations_in_float64(x64):
    at, reference = table("expectations")
    assert at[:, 0].max() == 1e6 and at[:, 4].max() == 1e9 and len(at) > 600
    value = expectation(at, np.float64)
    assert beyond(value, reference, 1e-10, np.float64).max() < 1
    # No allowance is needed but where the logarithm itself has no more digits.
    assert np.abs(value - reference)[np.abs(reference) < 1e5].max() < 1e-10
    wrong = expectation(at * np.array([1, 1, 1, 1 + 1e-9, 1]), np.float64)
    assert beyond(wrong, reference, 1e-10, np.float64).max() > 1


def test_expectations_in_float32():
    at, reference = table("expectations")
    value = expectation(at, np.float32)
    assert beyond(value, reference, 1e-4, np.float32).max() < 1
    usual = np.abs(reference) < 200
    assert usual.mean() > 0.75 and at[usual, 0].max() == 1e6
    assert np.abs(value - reference)[usual].max() < 1e-4


def allowance(at, dtype):
    """Rounding of what is taken out: common powers of x, of size min(a, b) log x."""
    common = np.minimum(np.abs(at[:, 0]), at[:, 1])
    return np.finfo(dtype).eps * common * (1 + np.abs(np.log(np.maximum(np.abs(at[:, 3]), 1))))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_hyp2f1(dtype, tolerance, x64):
    at, reference = table("hyp2f1")
    assert at[:, 3].min() == -1e12 and at[:, 3].max() > 0.9998
    if dtype == np.float32:
        # c - b, and 1 - z, are to be had from rounded arguments.
        rounded = at.astype(np.float32).astype(float)
        kept = np.isclose(rounded[:, 2] - rounded[:, 1], at[:, 2] - at[:, 1], rtol=1e-6)
        kept &= np.isclose(1 - rounded[:, 3], 1 - at[:, 3], rtol=1e-6)
        at, reference = at[kept], reference[kept]
        assert len(at) > 150
    error = np.abs(function(at, dtype) - reference)
    scale = np.maximum(np.abs(reference) * np.finfo(dtype).eps, allowance(at, dtype))
    # float32: rounded arguments move the value by a few units of the terms too.
    assert (error / np.maximum(tolerance, 8 * scale)).max() < 1
    if dtype == np.float64:
        modest = np.abs(reference) + allowance(at, dtype) / np.finfo(dtype).eps < 1e5
        assert modest.mean() > 0.6 and error[modest].max() < tolerance


def test_where_jax_has_no_value(x64):
    """At the arguments of this model jax.scipy.special.hyp2f1 gives infinity or nan."""
    at, reference = table("hyp2f1")
    usual = (at[:, 3] < -700) & (np.abs(reference) < 100)
    assert usual.sum() > 50
    np.testing.assert_allclose(function(at[usual], np.float64), reference[usual], rtol=1e-10)


def test_gradients(x64):
    """Slopes in every argument, relative to their size, or to one."""
    at, reference = table("expectations", gradients=True)
    assert len(at) > 100
    x = at.T
    arguments = [jnp.asarray(column) for column in (x[0], *x[1:4], np.log(x[4]))]
    slopes = jax.jit(jax.vmap(jax.grad(log_beta_expectation, argnums=(1, 2, 3, 4))))
    found = slopes(*arguments)
    found = np.array(found).T
    found[:, 3] /= x[4]
    np.testing.assert_allclose(found, reference, rtol=1e-8, atol=1e-9)
    at, reference = table("hyp2f1", gradients=True)
    slopes = jax.jit(jax.vmap(jax.grad(log_hyp2f1, argnums=(0, 1, 2, 3))))
    found = slopes(*jnp.asarray(at).T)
    np.testing.assert_allclose(np.stack(found, axis=1), reference, rtol=2e-8, atol=1e-9)


def test_the_gradient_in_f_is_that_of_its_neighbours(x64):
    arguments = [jnp.asarray(v) for v in (30.0, 0.1, 0.27, 79.73, np.log(800))]
    step = 1e-4
    value = jax.jit(log_beta_expectation)
    both = [value(arguments[0] + sign * step, *arguments[1:]) for sign in (1, -1)]
    slope = jax.jit(jax.grad(log_beta_expectation))(*arguments)
    np.testing.assert_allclose(slope, (both[0] - both[1]) / (2 * step), rtol=1e-6)


def test_special_values(x64):
    a, b, c = jnp.asarray(0.7), jnp.asarray(1.3), jnp.asarray(2.9)
    function = jax.jit(log_hyp2f1)
    assert float(function(a, b, c, jnp.asarray(0.0))) == 0
    slope = jax.jit(jax.grad(log_hyp2f1, argnums=3))(a, b, c, jnp.asarray(0.0))
    np.testing.assert_allclose(slope, a * b / c, rtol=1e-14)
    z = jnp.asarray([-1e6, -3.0, -1e-3, 0.3, 0.999])
    # 2F1(1, 1; 2; z) = -log(1 - z) / z and 2F1(a, b; b + tiny; z) = (1 - z)^-a.
    np.testing.assert_allclose(
        function(jnp.ones(()), jnp.ones(()), 2 * jnp.ones(()), z),
        np.log(-np.log1p(-z) / z), rtol=1e-12,
    )  # fmt: skip
    for bad in ((a, b, b, z), (a, -b, c, z), (a, b, c, jnp.ones(5))):
        assert np.isnan(function(*bad)).all()


def test_the_nodes_are_a_beta_distribution(x64):
    """Moments at f = 0 and x of no consequence."""
    a, b = jnp.asarray([0.01, 0.86, 300.0]), jnp.asarray([0.5, 80.0, 5.0])
    zero = jnp.zeros(3)
    rule = beta_nodes(zero, zero, a, b, zero)
    mass = np.exp(rule.log_integrand) * rule.weight
    mass /= mass.sum(axis=0)
    mean = (mass * np.exp(rule.log_p)).sum(axis=0)
    np.testing.assert_allclose(mean, a / (a + b), rtol=1e-12)
    variance = (mass * np.exp(2 * rule.log_p)).sum(axis=0) - mean**2
    np.testing.assert_allclose(variance, a * b / (a + b) ** 2 / (a + b + 1), rtol=1e-10)


def test_nothing_is_compiled_twice(x64):
    first = [jnp.asarray(v) for v in (1.0, 2.0, 3.0, -4.0)]
    assert compiles_once(log_hyp2f1, first, [v * 1.5 for v in first])
