"""Synthetic and completed households from the draws of the nested model."""

import itertools
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np
import pandas as pd

from bnp_models.data.households import Households
from bnp_models.inference.run import HouseholdsRun, spaced_draws
from bnp_models.models.model import MakesHouseholds
from bnp_models.models.nested.prepare import missing_values

# Largest number of households that are simulated at once. If this many households of one size were
# simulated and none was possible, an error is raised.
_HOUSEHOLDS_AT_ONCE, _MAX_TRIED = 2**15, 1e8

SYNTHESIS, IMPUTATION = 0x53594E, 0x494D50
"""Numbers that are folded into the key that a run set aside, one for each purpose."""


def synthesize_households(
    run: HouseholdsRun, num_datasets: int, num_rows: int | None, key: jax.Array | None
) -> list[pd.DataFrame]:
    """Draw synthetic files of households, as many of each size as in the sample.

    Arguments as for `synthesize`.
    """
    table = run.table
    if num_rows is not None and num_rows != table.num_persons:
        raise ValueError(
            f"num_rows is {num_rows}, but the synthetic households have the same sizes as those of "
            f"the sample, in all {table.num_persons} persons; leave num_rows out"
        )
    key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
    return [_checked_households(run, made) for made in simulate_households(run, num_datasets, key)]


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


def impute_households(run: HouseholdsRun, num_datasets: int) -> list[pd.DataFrame]:
    """Complete the sample with the missing values that were kept with the draws, one file for each.

    Arguments as for `impute`.
    """
    return [_checked_households(run, made) for made in complete_households(run, num_datasets)]


def complete_households(run: HouseholdsRun, number: int) -> Iterator[Households]:
    """Yield the sample, completed with the missing values that were kept with some draws."""
    table = run.table
    data = run.model.prepare(table, run.conditions)
    order, of_member = table.order_by_size
    (of_codes, household), (of_values, member) = missing_values(table)
    for draw in spaced_draws(run, number):
        values = np.asarray(draw["completed"])
        codes, members = table.household_codes.copy(), table.member_codes.copy()
        codes[order[household], of_codes] = values[: household.size]
        heads = codes[table.member_household]
        if data.relative is not None:
            members = data.relative.encode(heads, members[:, None])[:, 0]
        members[of_member[member], of_values] = values[household.size :]
        if data.relative is not None:
            members = data.relative.decode(heads, members[:, None])[:, 0]
        yield Households(table.schema, codes, table.sizes, members, table.ids, table.rows)


def _checked_households(run: HouseholdsRun, made: Households) -> pd.DataFrame:
    """Make a frame of households, after checking that all are possible."""
    if run.conditions is not None and not (possible := run.conditions.check(made)).all():
        raise RuntimeError(
            f"{int((~possible).sum())} of the {made.n} new households are impossible; please "
            "report this defect"
        )
    return made.to_frame()


@partial(jax.jit, static_argnames="lanes")
def _simulate_households(model, key, draw, data, left, lanes):
    """Simulate households of the remaining sizes, and check whether each is possible."""
    with jax.named_scope("simulate_households"):
        return model.simulate_households(key, draw, data, left, lanes)
