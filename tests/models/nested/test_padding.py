"""Households of padding are of no one: what they hold changes nothing of the parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from nested import tiny_households

from bnp_models import NDPMPM
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.nested import prepare, sweep

MODEL = NDPMPM(components=3, member_components=2, level_prior="uniform")
HOUSEHOLDS = [
    ("own", [("head", "0"), ("other", "1")]),
    ("rent", [("head", None), ("other", None)]),
    (None, [(None, "1"), (None, "0")]),
    ("rent", [("head", "1")]),
    ("own", [(None, "1")]),
]


def with_padding(data, seed):
    """The same households, and others wherever there is padding."""
    key_household, key_member = jax.random.split(jax.random.key(seed))

    def other(key, codes, weight, num_levels, first):
        limits = jnp.asarray(num_levels)[:, None]
        drawn = jax.random.randint(key, codes.shape, 0, limits) + jnp.asarray(first)[:, None]
        return jnp.where(weight > 0, codes, drawn.astype(codes.dtype))

    of_household, of_member = data.household.num_levels, data.member.num_levels
    return dataclasses.replace(
        data,
        household_rows=other(
            key_household, data.household_rows, data.household_weight, of_household,
            first_rows(of_household),
        ),
        member_codes=other(
            key_member, data.member_codes, data.member_weight, of_member, [0] * len(of_member)
        ),
    )  # fmt: skip


def test_a_sweep_does_not_depend_on_padding(monkeypatch):
    """Of households that lie in four padded parts, values missing."""
    monkeypatch.setattr(prepare, "by_platform", lambda *_: 4)
    data = MODEL.prepare(tiny_households(HOUSEHOLDS))
    assert data.household_weight.size > len(HOUSEHOLDS) and data.missing
    samples = [with_padding(data, seed) for seed in (1, 2)]
    state = jax.jit(sweep.draw_prior)(MODEL, jax.random.key(3), data)
    step = jax.jit(MODEL.sweep)
    for key in jax.random.split(jax.random.key(4), 5):
        found = [step(key, state, data, jnp.int32(0)) for data in samples]
        jax.tree.map(np.testing.assert_array_equal, *found)
