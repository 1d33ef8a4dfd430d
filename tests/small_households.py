"""Nested latent classes so small that all households can be gone through, and rules for them.

Households have a home and a size of 1 to 3, members a role (head, spouse, child) and an age.
"""

import itertools
import math

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from bnp_models.kernels.nested.judges import Compositions, HeadTables
from bnp_models.kernels.nested.parameters import Head, Variables, tables_of

SIZES = (1, 2, 3)
HOUSEHOLD, MEMBER = Variables((2, 3), (0,)), Variables((3, 2), (0, 1))
# Joint levels of a member: the heads are the first two.
ROLES, AGES = np.divmod(np.arange(6), 2)
IS_HEAD = ROLES == 0
F, S = 2, 2

# By home and age of the head; in the second, by joint level of another member too.
HEAD_OK = np.array([[False, True], [True, True]])
PAIR_OK = np.broadcast_to(~IS_HEAD, (2, 2, 6)).copy()
PAIR_OK[:, 0, 5] = False
# Without a head: by home, and joint level of a member.
ALONE_OK = np.ones((2, 1, 6), bool)
ALONE_OK[1, 0, 4] = False
SPOUSE, OLD_SPOUSE, YOUNG_CHILD = ROLES == 1, np.arange(6) == 3, np.arange(6) == 4


def parameters(seed=0):
    """Log weights of the classes and log level probabilities."""
    rng = np.random.default_rng(seed)
    pi, omega = rng.dirichlet(np.ones(F)), rng.dirichlet(np.ones(S), F)
    lam = np.concatenate([rng.dirichlet(np.full(k, 3.0), F).T for k in (2, 3)])
    phi = np.concatenate([
        rng.dirichlet(np.full(k, 2.0), (F, S)).transpose(2, 0, 1) for k in (3, 2)
    ])  # fmt: skip
    return tuple(jnp.asarray(np.log(x), jnp.float32) for x in (pi, omega, lam, phi))


def make_tables(values, has_head):
    head = Head(0, (True, False, False)) if has_head else None
    return tables_of(*values, HOUSEHOLD, MEMBER, head)


def all_households():
    """Homes, indices of sizes, and joint levels of members of every household, size by size."""
    for i, size in enumerate(SIZES):
        for home in range(2):
            for members in itertools.product(range(6), repeat=size):
                yield home, i, members


def is_possible(home, members, has_head):
    members = np.array(members)
    if has_head:
        heads = members[IS_HEAD[members]]
        if len(heads) != 1:
            return False
        head, members = heads[0], members[~IS_HEAD[members]]
        good = HEAD_OK[home, head] and PAIR_OK[home, head, members].all()
    else:
        good = ALONE_OK[home, 0, members].all()
    apart = OLD_SPOUSE[members].any() and YOUNG_CHILD[members].any()
    return bool(good and SPOUSE[members].sum() <= 1 and not apart)


def predicate(has_head):
    """The same rules of arrays, home and size (B, 2), role and age (B, h, 2)."""

    def possible(codes, members):
        home, joint = codes[:, 0], members[..., 0] * 2 + members[..., 1]
        if has_head:
            heads = jnp.asarray(IS_HEAD)[joint]
            head = jnp.sum(jnp.where(heads, joint, 0), axis=1)
            beside = jnp.asarray(PAIR_OK)[home[:, None], jnp.minimum(head, 1)[:, None], joint]
            good = (jnp.sum(heads, axis=1) == 1) & jnp.all(beside | heads, axis=1)
            good = good & jnp.asarray(HEAD_OK)[home, jnp.minimum(head, 1)]
        else:
            good = jnp.all(jnp.asarray(ALONE_OK)[home[:, None], 0, joint], axis=1)
        spouses = jnp.sum(jnp.asarray(SPOUSE)[joint], axis=1)
        apart = jnp.any(joint == 3, axis=1) & jnp.any(joint == 4, axis=1)
        return good & (spouses <= 1) & ~apart

    return possible


def rule_tables(has_head):
    """The same rules as tables, every joint level of a member a kind of its own."""
    pair_ok = PAIR_OK if has_head else ALONE_OK
    head_ok = HEAD_OK if has_head else np.ones((2, 1), bool)
    others = [size - has_head for size in SIZES]
    size, counts = [], []
    for i, m in enumerate(others):
        for members in itertools.combinations_with_replacement(range(6), m):
            n = np.bincount(np.array(members, int), minlength=6)
            if n @ SPOUSE <= 1 and not (n @ OLD_SPOUSE and n @ YOUNG_CHILD):
                size.append(i)
                counts.append(n)
    ways = [math.factorial(n.sum()) / math.prod(map(math.factorial, n)) for n in counts]
    compositions = Compositions(
        size=jnp.asarray(size), counts=jnp.asarray(np.array(counts)), ways=jnp.asarray(ways),
        places=jnp.asarray(others) + 1, most=max(others),
        levels=tuple(jnp.array([k]) for k in range(6)),
        fits=(jnp.array([[0.0], [1.0]]),) * 6,
        row=jnp.asarray(np.moveaxis(pair_ok, 2, 0), jnp.int32),
    )  # fmt: skip
    return HeadTables(
        head_ok=jnp.asarray(head_ok), pair_ok=jnp.asarray(pair_ok),
        head_index=jnp.asarray(np.where(IS_HEAD & has_head, AGES, 0)),
        kind=jnp.arange(6)[None], limited=jnp.asarray(SPOUSE[None]), at_most=jnp.array([1]),
        apart=jnp.asarray(np.stack([OLD_SPOUSE, YOUNG_CHILD])[:, None]),
        compositions=compositions,
    )  # fmt: skip


def class_probabilities(values):
    """P(g, household) of every household, (households, F), and P(g, m, level | g) of a member."""
    log_pi, log_omega, log_lambda, log_phi = (np.asarray(x, float) for x in values)
    log_member = log_omega + log_phi[ROLES] + log_phi[3 + AGES]
    of_member = logsumexp(log_member, axis=2)
    log_p = [
        log_pi + log_lambda[home] + log_lambda[2 + i] + of_member[list(members)].sum(axis=0)
        for home, i, members in all_households()
    ]
    return np.exp(log_p), np.exp(log_member)
