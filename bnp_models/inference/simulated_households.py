"""Households that are simulated from the draws of a run of the nested model."""

import itertools
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

from bnp_models.data.households import Households
from bnp_models.inference.run import HouseholdsRun, spaced_draws
from bnp_models.models.model import MakesHouseholds

# Largest number of households that are simulated at once. If this many households of one size were
# simulated and none was possible, an error is raised.
_HOUSEHOLDS_AT_ONCE, _MAX_TRIED = 2**15, 1e8


def simulate_households(run: HouseholdsRun, number: int, key: jax.Array) -> Iterator[Households]:
    """Simulate possible households, as many of each size as in the sample, for some draws."""
    table, model = run.table, run.model
    if not isinstance(model, MakesHouseholds):
        raise ValueError(f"the {model.name} model does not simulate households")
    data = model.prepare(table, run.conditions)
    lanes = int(np.clip(2 * table.n, 256, _HOUSEHOLDS_AT_ONCE))
    for m, draw in enumerate(spaced_draws(run, number)):
        key_m = jax.random.fold_in(key, m)
        codes, members, member_codes = _draw_households(model, key_m, draw, data, lanes)
        if data.relative is not None:
            heads = codes[np.repeat(np.arange(len(members)), members)]
            member_codes = data.relative.decode(heads, member_codes[:, None])[:, 0]
        yield Households(table.schema, codes, members + table.schema.num_heads, member_codes)


def _draw_households(model, key, draw, data, lanes):
    """Draw possible households until there are enough: household codes, sizes, member codes."""
    sizes, wanted = (np.array(x) for x in zip(*data.blocks, strict=True))
    tried, possible = np.zeros(len(wanted)), np.zeros_like(wanted)
    households = [[] for _ in wanted]
    for step in itertools.count():
        left = wanted - possible
        if not left.any():
            break
        _check_hope(sizes, tried, possible)
        share = left * (tried + 1) / (possible + 0.5)
        new, good = _simulate_households(
            model, jax.random.fold_in(key, step), draw, data, share / share.sum(), lanes=lanes
        )
        new, good = jax.tree.map(np.asarray, (new, good))
        tried += np.bincount(new.size[new.used], minlength=len(sizes))
        for i in np.flatnonzero(left):
            chosen = np.flatnonzero(good & (new.size == i))[: left[i]]
            households[i] += [_household(new, lane, sizes[i]) for lane in chosen]
            possible[i] = len(households[i])
    codes, members = zip(*itertools.chain.from_iterable(households), strict=True)
    return np.stack(codes), np.repeat(sizes, wanted), np.concatenate(members)


def _check_hope(sizes, tried, possible):
    """Raise RuntimeError if many households of a size were simulated and none was possible."""
    hopeless = (possible == 0) & (tried > _MAX_TRIED)
    if hopeless.any():
        raise RuntimeError(
            f"none of {int(tried[hopeless][0]):,} simulated households with {sizes[hopeless][0]} "
            "members is possible; look for rules that exclude too much"
        )


def _household(new, lane, num_members):
    """Codes of one simulated household, and (members, p) of its members."""
    head = [] if new.head is None else [new.head[1][:, lane, None]]
    others = new.first[lane] + np.arange(num_members - len(head))
    members = np.concatenate([*head, new.members[:, others]], axis=1)
    return new.codes[:-1, lane], members.T


@partial(jax.jit, static_argnames="lanes")
def _simulate_households(model, key, draw, data, left, lanes):
    """Simulate households of the remaining sizes, and check whether each is possible."""
    with jax.named_scope("simulate_households"):
        return model.simulate_households(key, draw, data, left, lanes)
