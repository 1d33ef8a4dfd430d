"""Rules of households as tables over a head and one other member, for the kernels.

`bnp_models.rules.head_forms` finds the rules that have this form.
`bnp_models.kernels.nested.judges` uses the tables to judge households.
"""

import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.nested.judges import Compositions, HeadTables
from bnp_models.kernels.nested.parameters import Head
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.rules.head_forms import HeadForm

MAX_COMPOSITIONS = 2000
"""Largest number of compositions of a household for which P(possible) is computed exactly."""


def head_of(form: HeadForm) -> Head | None:
    """Levels of heads, if the rules require exactly one head and one variable identifies heads."""
    if not form.is_head.any():
        return None
    is_head = form.is_head.reshape(form.num_member_levels)
    for axis, variable in enumerate(form.columns.member):
        others = tuple(k for k in range(is_head.ndim) if k != axis)
        levels = np.asarray(is_head.all(axis=others))
        # If every level means head, there can be no other members.
        if (levels == is_head.any(axis=others)).all() and not levels.all():
            return Head(variable, tuple(levels.tolist()))
    return None


def head_tables(
    form: HeadForm, others: Sequence[int], relative: RelativeCoding | None = None
) -> HeadTables:
    """Tables of rules over a head and one other member, for `judge_by_tables`.

    Parameters
    ----------
    form
        The rules that have this form.
    others
        Number of members besides the head, for each size.
    relative
        Coding of the members, if they are coded relative to a head; the tables then use these
        codes.
    """
    num_joint = form.is_head.size
    head_index = np.zeros(num_joint, np.int32)
    if form.heads[0] >= 0:
        head_index[form.heads] = np.arange(len(form.heads))
    apart = np.array(form.apart, bool).reshape(-1, 2, num_joint)
    limited = np.array([mask for mask, _ in form.at_most], bool).reshape(-1, num_joint)
    masks = np.concatenate([limited, *apart])
    kinds, kind = np.unique(masks, axis=1, return_inverse=True)
    kind, head_ok, pair_ok = kind.reshape(1, -1), form.head_ok, form.pair_ok
    if relative is not None:
        households, members = relative.decoded_levels(*form.columns)
        kind, head_ok = kind[0][members], head_ok[households]
        pair_ok = np.take_along_axis(pair_ok[households], members[:, None], axis=2)
        if (kind == kind[:1]).all():
            kind = kind[:1]
    at_most = [count for _, count in form.at_most]
    limited, apart = kinds[: len(at_most)], kinds[len(at_most) :].reshape(-1, 2, kinds.shape[1])
    return HeadTables(
        head_ok=jnp.asarray(head_ok),
        pair_ok=jnp.asarray(pair_ok),
        head_index=jnp.asarray(head_index),
        kind=jnp.asarray(kind, jnp.int32),
        limited=jnp.asarray(limited),
        at_most=jnp.asarray(at_most, jnp.int32),
        apart=jnp.asarray(np.moveaxis(apart, 0, 1)),
        compositions=_compositions(limited, at_most, apart, tuple(others), kind, pair_ok),
    )


def _compositions(
    limited: np.ndarray,
    at_most: Sequence[int],
    apart: np.ndarray,
    others: tuple[int, ...],
    kind: np.ndarray,
    pair_ok: np.ndarray,
) -> Compositions | None:
    """Allowed numbers of other members of each kind, and the levels of each kind that fit a head.

    None if there are more than `MAX_COMPOSITIONS`. `others` has the numbers of other members. The
    rest are fields of `HeadTables` as NumPy arrays, of which `apart` has shape (pairs, 2, kinds).
    """
    num_kinds = limited.shape[1]
    if any(math.comb(m + num_kinds - 1, num_kinds - 1) > MAX_COMPOSITIONS for m in others):
        return None
    allowed = [_allowed_counts(m, limited, at_most, apart) for m in others]
    counts = np.concatenate(allowed)
    ways = [math.factorial(row.sum()) / math.prod(map(math.factorial, row)) for row in counts]
    num_households, num_heads, _ = pair_ok.shape
    levels = [np.flatnonzero((kind == k).any(axis=0)) for k in range(num_kinds)]
    fits, rows = [], []
    for k, levels_k in enumerate(levels):
        fits_head = (pair_ok & (kind == k)[:, None])[:, :, levels_k].reshape(-1, levels_k.size)
        distinct, row = np.unique(fits_head, axis=0, return_inverse=True)
        fits.append(distinct)
        rows.append(row)
    dtype = jnp.result_type(float)
    return Compositions(
        size=jnp.asarray(np.repeat(np.arange(len(others)), list(map(len, allowed))), jnp.int32),
        counts=jnp.asarray(counts, jnp.int32),
        ways=jnp.asarray(ways, dtype),
        places=jnp.asarray(others, jnp.int32) + 1,
        most=max(others),
        levels=tuple(jnp.asarray(levels_k, jnp.int32) for levels_k in levels),
        fits=tuple(jnp.asarray(matrix, dtype) for matrix in fits),
        row=jnp.asarray(np.stack(rows).reshape(num_kinds, num_households, num_heads), jnp.int32),
    )


def _allowed_counts(
    members: int, limited: np.ndarray, at_most: Sequence[int], apart: np.ndarray
) -> np.ndarray:
    """Numbers of members of each kind (compositions, kinds) that the rules allow."""
    num_kinds = limited.shape[1]
    last = members + num_kinds - 1
    bars = itertools.combinations(range(last), num_kinds - 1)
    counts = np.array([np.diff((-1, *bar, last)) - 1 for bar in bars])
    some = np.einsum("ck,dek->cde", counts, apart) > 0
    allowed = (counts @ limited.T <= at_most).all(axis=1) & ~some.all(axis=2).any(axis=1)
    return counts[allowed]
