"""Synthetic and completed households from the draws of the nested model."""

import itertools
from functools import partial

import jax
import numpy as np

from bnp_models.data.households import Households
from bnp_models.inference.run import spaced_draws

# Households simulated at once at most, and those of one size without a possible one among them
# after which nothing is hoped for.
_HOUSEHOLDS_AT_ONCE = 2**15

_MAX_TRIED = 1e8

# What the keys that a run set aside are folded with, one a purpose.
SYNTHESIS, IMPUTATION = 0x53594E, 0x494D50


def synthesize_households(run, num_datasets, num_rows, key):
    """Households of each size, as many as in the sample, for each of as many draws."""
    table, model = run.table, run.model
    if num_rows is not None and num_rows != table.num_persons:
        raise ValueError(
            f"num_rows is {num_rows}, but synthetic households have the sizes of the sample's, "
            f"which make {table.num_persons} persons; leave it out"
        )
    key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
    data = model.prepare(table, run.conditions)
    lanes = int(np.clip(2 * table.n, 256, _HOUSEHOLDS_AT_ONCE))
    frames = []
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        key_m = jax.random.fold_in(key, m)
        codes, members, member_codes = _draw_households(model, key_m, draw, data, lanes)
        if data.relative is not None:
            heads = codes[np.repeat(np.arange(len(members)), members)]
            member_codes = data.relative.decode(heads, member_codes[:, None])[:, 0]
        made = Households(table.schema, codes, members + table.schema.num_heads, member_codes)
        frames.append(_checked_households(run, made))
    return frames


def _draw_households(model, key, draw, data, lanes):
    """Household codes, members of each, and member codes: possible ones, until all are there."""
    sizes, wanted = (np.array(x) for x in zip(*data.blocks, strict=True))
    tried, found = np.zeros(len(wanted)), np.zeros_like(wanted)
    households = [[] for _ in wanted]
    for step in itertools.count():
        left = wanted - found
        if not left.any():
            break
        hopeless = (found == 0) & (tried > _MAX_TRIED)
        if hopeless.any():
            raise RuntimeError(
                f"no possible household with {sizes[hopeless][0]} members among "
                f"{int(tried[hopeless][0]):,} simulated; look for rules that exclude too much"
            )
        share = left * (tried + 1) / (found + 0.5)
        new, good = _simulate_households(
            model, jax.random.fold_in(key, step), draw, data, share / share.sum(), lanes=lanes
        )
        new, good = jax.tree.map(np.asarray, (new, good))
        tried += np.bincount(new.size[new.used], minlength=len(sizes))
        for i in np.flatnonzero(left):
            for lane in np.flatnonzero(good & (new.size == i))[: left[i]]:
                head = [] if new.head is None else [new.head[1][:, lane, None]]
                others = new.first[lane] + np.arange(sizes[i] - len(head))
                members = np.concatenate([*head, new.members[:, others]], axis=1)
                households[i].append((new.codes[:-1, lane], members.T))
            found[i] = len(households[i])
    codes, members = zip(*(one for of_size in households for one in of_size), strict=True)
    return np.stack(codes), np.repeat(sizes, wanted), np.concatenate(members)


def impute_households(run, num_datasets):
    """The sample with the missing values of as many draws filled in."""
    table = run.table
    data = run.model.prepare(table, run.conditions)
    order, of_member = table.order_by_size
    (of_codes, household), (of_values, member) = map(
        np.asarray, (data.at_household, data.at_member)
    )
    frames = []
    for draw in spaced_draws(run, num_datasets):
        values = np.asarray(draw["completed"])
        codes, members = table.household_codes.copy(), table.member_codes.copy()
        codes[order[household], of_codes] = values[: household.size]
        heads = codes[table.member_household]
        if data.relative is not None:
            members = data.relative.encode(heads, members[:, None])[:, 0]
        members[of_member[member], of_values] = values[household.size :]
        if data.relative is not None:
            members = data.relative.decode(heads, members[:, None])[:, 0]
        made = Households(table.schema, codes, table.sizes, members, table.ids, table.rows)
        frames.append(_checked_households(run, made))
    return frames


def _checked_households(run, made: Households):
    if run.conditions is not None and not (possible := run.conditions.check(made)).all():
        raise RuntimeError(
            f"{int((~possible).sum())} of {made.n} households made are impossible; please report "
            "this defect"
        )
    return made.to_frame()


@partial(jax.jit, static_argnames="lanes")
def _simulate_households(model, key, draw, data, left, lanes):
    return model.simulate_households(key, draw, data, left, lanes)
