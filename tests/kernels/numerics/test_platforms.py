"""Forms of a kernel for CPUs and for accelerators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_models.kernels.numerics import platforms
from bnp_models.kernels.numerics.platforms import in_turn

usable = pytest.mark.usefixtures("either_form")


def test_the_form_is_that_of_the_backend_unless_it_is_forced():
    here = jax.default_backend() != "cpu"
    assert platforms.on_accelerator() == here
    for forced in (True, False):
        with platforms.forms_of(accelerator=forced):
            assert platforms.on_accelerator() == forced
            assert platforms.by_platform("cpu", "accelerator") == ["cpu", "accelerator"][forced]
    assert platforms.on_accelerator() == here


def test_what_was_traced_for_one_platform_is_not_used_for_the_other():
    traced = jax.jit(lambda: jnp.int32(platforms.by_platform(1, 2)))
    assert traced() == platforms.by_platform(1, 2)
    with platforms.forms_of(accelerator=True):
        assert traced() == 2
    with platforms.forms_of(accelerator=False):
        assert traced() == 1


@usable
def test_entries_that_are_put():
    x = np.arange(12).reshape(3, 4)
    new = jnp.arange(4) + 20

    @jax.jit
    def replaced(x):
        return jax.lax.fori_loop(1, 3, lambda i, x: platforms.put(x, i, new + i), x)

    expected = x.copy()
    expected[1:] = [np.asarray(new) + 1, np.asarray(new) + 2]
    np.testing.assert_array_equal(replaced(x), expected)
    np.testing.assert_array_equal(platforms.put(jnp.zeros(3), 1, jnp.float32(5)), [0, 5, 0])


@usable
def test_entries_of_a_record():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    np.testing.assert_array_equal(platforms.record_at(jnp.asarray(x), jnp.int32(2)), x[:, 2])
    taken = platforms.record_at(jnp.asarray(x % 2 == 0), jnp.int32(3))
    assert taken.dtype == bool
    np.testing.assert_array_equal(taken, x[:, 3] % 2 == 0)


@usable
def test_short_loops_and_draws():
    assert platforms.short_loop(4, lambda i, x: 2 * x + i, jnp.int32(1)) == 27
    doubled = platforms.map_draws(lambda draw: 2 * draw["x"], {"x": jnp.arange(3)})
    np.testing.assert_array_equal(doubled, [0, 2, 4])


def test_lanes_go_together_on_accelerators():
    """Shown by the loop that the lanes of a CPU take turns in."""

    def loops():
        lanes = jax.vmap(lambda x: in_turn(lambda x: jnp.sum(x * x))(x))
        return str(jax.make_jaxpr(lanes)(jnp.ones((4, 3)))).count("scan")

    with platforms.forms_of(accelerator=False):
        assert loops() == 1
    with platforms.forms_of(accelerator=True):
        assert loops() == 0


@usable
@pytest.mark.parametrize("in_use", [0, 16, 17, 40])
def test_sums_of_blocks_of_columns_in_use(in_use):
    x = np.random.default_rng(0).integers(1, 9, (3, 40))
    x[:, in_use:] = 0
    blocks = platforms.blocks_of_columns(jnp.asarray(x))
    assert len(blocks) == platforms.by_platform(3, 1)

    @jax.jit
    def total(in_use):
        start = jnp.ones(3, jnp.int32)
        return platforms.sum_of_blocks(
            lambda i, part: (i + 1) * jnp.sum(part, axis=1), blocks, in_use, start
        )

    number = np.arange(40) // 16 + 1 if len(blocks) > 1 else 1
    np.testing.assert_array_equal(total(jnp.int32(in_use)), 1 + (number * x).sum(axis=1))
