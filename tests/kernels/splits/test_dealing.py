"""Records of a split or a merge dealt into chunks, by either form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.kernels.splits import anchors, dealing, seated_items

J, N, REAL, RECORDS = 3, 2000, 1950, (700, 1234)


def dealt(seed, is_split):
    """Records of five components, dealt, with what was dealt."""
    rng = np.random.default_rng(seed)
    z = rng.choice(5, (J, N), p=[0.5, 0.3, 0.1, 0.05, 0.05]).astype(np.int32)
    z[:, RECORDS] = [[1, 1 if is_split else 3]] * J
    table = np.tile(np.arange(J, dtype=np.int32)[:, None], N)
    rows = rng.integers(0, 9, (J, N)).astype(np.int32)
    chosen = anchors.Anchors(
        is_split=jnp.bool_(is_split), records=tuple(map(jnp.int32, RECORDS)),
        tables=(jnp.int32(0), jnp.int32(2)), k_a=jnp.int32(1),
        k_b=jnp.int32(1 if is_split else 3), k_new=jnp.int32(4), possible=jnp.bool_(True),
    )  # fmt: skip
    seated = seated_items.SeatedItems(*map(jnp.asarray, (z, table, rows)), jnp.int32(REAL))
    return dealing.deal_records(chosen, seated), z, rows, table


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("is_split", [True, False])
def test_every_item_concerned_is_dealt_once(seed, is_split):
    found, z, rows, table = dealt(seed, is_split)
    inside = ((z == 1) | (~np.bool_(is_split) & (z == 3))) & (np.arange(N) < REAL)
    bits = np.asarray(found.entries.bits)
    assert ((bits & seated_items.INSIDE) > 0).sum() == inside.sum()
    for x, of_items in ((rows, found.entries.rows), (table, found.entries.table)):
        back = np.asarray(dealing.in_order(found, of_items, N))
        np.testing.assert_array_equal(back[inside], x[inside])
    back = np.asarray(dealing.in_order(found, found.entries.bits, N))
    np.testing.assert_array_equal(
        (back & seated_items.SECOND > 0)[inside], (z == (3, 1)[is_split])[inside]
    )
    for bit, record, j in ((seated_items.ANCHOR_0, 700, 0), (seated_items.ANCHOR_1, 1234, 2)):
        assert (bits & bit > 0).sum() == 1 and back[j, record] & bit


@pytest.mark.usefixtures("either_form")
def test_both_anchors_are_among_some_hundred_that_shape_the_proposal(seed):
    found, *_ = dealt(seed, True)
    bits = np.asarray(found.shaping.bits)
    assert bits.shape[1] >= 500
    assert (bits & seated_items.ANCHOR_0).any() and (bits & seated_items.ANCHOR_1).any()
    # Nearly all of them have items of the component.
    assert (bits & seated_items.INSIDE > 0).any(axis=0).mean() > 0.8


def test_an_item_of_each_component_is_anchor_as_often_in_lines_of_records(seed):
    """An accelerator finds items by lines: the same item as sums over all records in turn."""
    number = jnp.asarray(np.random.default_rng(seed).poisson(0.3, 100))
    keys = jax.random.split(jax.random.key(seed), 200)
    found = [jax.vmap(anchors.pick_member, (0, None))(keys, number)]
    with forms_of(accelerator=True):
        found.append(jax.vmap(anchors.pick_member, (0, None))(keys, number))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(found[0][0])) > 10
