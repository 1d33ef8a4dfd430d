"""Targets of an attack among households: those that are alone, and their members."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.microdata import group_cells
from bnp_models.evaluation.attack.record_targets import Group, checked_rows, one_changed, over_draws
from bnp_models.kernels.attack.importance import log_neighbours
from bnp_models.kernels.nested.members import (
    log_member_probability,
    merge_plan,
    merged_rows,
    merged_tables,
    sum_by_household,
)
from bnp_models.kernels.nested.parameters import log_class_weights, tables_of
from bnp_models.kernels.nested.possible import log_possible
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.models.nested.predictions import simulate_possible
from bnp_models.models.nested.state import NESTED, NestedData

SIMULATED = 2**13


class HouseholdTargets:
    """Households, or persons within them, under a nested model.

    Candidates are in the sample's codes, and rules are asked about these. Given the head, codes
    relative to it are one to one: a candidate is as likely as what it is coded as.
    """

    def __init__(self, model: NDPMPM, table: Households, rules, target, rows):
        self.table, self.target = table, target
        self.data: NestedData = model.prepare(table, rules)
        self.possible = None if rules is None or not len(rules) else rules.compile(table.schema)
        schema = table.schema
        self.num_levels = schema.num_household_levels, schema.num_member_levels
        heads = schema.num_heads
        self.first_member = np.cumsum(table.sizes - heads) - (table.sizes - heads)
        of_household = [
            (name, label)
            for name, labels in zip(
                schema.household_variables, schema.household_levels, strict=True
            )
            for label in labels
        ]
        of_member = [
            (name, label)
            for name, labels in zip(schema.member_variables, schema.member_levels, strict=True)
            for label in labels
        ]
        most = 1 if target == "person" else int(table.sizes.max()) - heads
        places = (
            [""] if target == "person" else [f" of person {j + 1 + heads}" for j in range(most)]
        )
        self.columns = tuple(
            of_household + [(name + place, x) for place in places for name, x in of_member]
        )
        complete = ~table.incomplete
        if target == "household":
            rows = _unique_households(table, complete) if rows is None else rows
            self.rows = checked_rows(rows, complete, "household")
            self.household, self.place = self.rows, np.zeros(len(self.rows), int)
            return
        person = np.empty(table.num_persons, int)
        person[table.rows] = np.arange(table.num_persons)
        household = np.repeat(np.arange(table.n), table.sizes)[person]
        if rows is None:
            own = np.flatnonzero(complete[household])
            cells = group_cells(table.persons.codes[own], schema.table.num_levels)
            rows = own[cells.sample_uniques]
        self.rows = checked_rows(rows, complete[household], "person")
        self.household = household[self.rows]
        start = np.cumsum(table.sizes) - table.sizes
        # -1 for a head whose variables are the household's.
        self.place = person[self.rows] - start[self.household] - heads

    def groups(self):
        """Households of one size; persons apart by whether they are a head at household level."""
        heads, (household, member) = self.table.schema.num_heads, map(sum, self.num_levels)
        of_head = np.array([
            name.startswith("head_") and name not in self.table.schema.table.variables
            for name, _ in self.columns[:household]
        ], bool)  # fmt: skip
        sizes = self.table.sizes[self.household]
        for block, size in enumerate(np.unique(self.table.sizes)):
            for is_head in (False, True) if self.target == "person" and heads else (False,):
                which = np.flatnonzero((sizes == size) & ((self.place < 0) == is_head))
                if not len(which):
                    continue
                num_members = int(size) - heads
                if self.target == "household":
                    columns = np.arange(household + num_members * member)
                elif is_head:
                    columns = np.flatnonzero(of_head)
                else:
                    columns = household + np.arange(member)
                if not len(columns):
                    continue
                part = "all" if self.target == "household" else "head" if is_head else "member"
                relative = self.data.relative
                ratio = partial(
                    _log_nested_ratios, size=block, num_levels=self.num_levels, part=part,
                    columns=tuple(columns.tolist()) if is_head else None,
                    pairs=() if relative is None else relative.pairs,
                )  # fmt: skip
                prepare = partial(
                    self._prepare, num_members=num_members, part=part, columns=columns
                )
                yield Group(which, columns, prepare, ratio)

    def _prepare(self, which, num_members, part, columns):
        here = self.household[which]
        household = self.table.household_codes[here]
        index = self.first_member[here][:, None] + np.arange(num_members)
        members = self.table.member_codes[index]
        place = np.maximum(self.place[which], 0)
        changes = []
        if part != "member":
            changed = one_changed(household, self.num_levels[0])
            if part == "head":
                changed = changed[:, columns]
            repeated = np.broadcast_to(members[:, None], (*changed.shape[:2], *members.shape[1:]))
            changes.append((changed, repeated))
        if part != "head":
            places = range(num_members) if part == "all" else (None,)
            for j in places:
                at = place if j is None else np.full(len(which), j)
                lanes = np.arange(len(which))
                own = one_changed(members[lanes, at], self.num_levels[1])
                repeated = np.repeat(members[:, None], own.shape[1], axis=1)
                repeated[lanes, :, at] = own
                changes.append((
                    np.broadcast_to(household[:, None], (*own.shape[:2], household.shape[1])),
                    repeated,
                ))  # fmt: skip
        valid = []
        for codes, persons in changes:
            other = (codes != household[:, None]).any(axis=2)
            other |= (persons != members[:, None]).any(axis=(2, 3))
            if self.possible is not None:
                other &= self.possible.on_numpy(codes, persons)
            valid.append(other)
        level_rows, by_head = self._recoded(household, members)
        member_rows = self._coded(household, members) + first_rows(self.num_levels[1])
        arrays = household + first_rows(self.num_levels[0]), member_rows, place, level_rows, by_head
        arrays = jax.tree.map(partial(jnp.asarray, dtype=jnp.int32), arrays)
        return arrays, np.concatenate(valid, axis=1)

    def _coded(self, household, members):
        """Member codes (.., m, p) as the model has them."""
        relative = self.data.relative
        return members if relative is None else relative.encode(household, members)

    def _recoded(self, household, members):
        """What codes relative to the head are of other levels, and under other heads.

        Returns
        -------
        level_rows
            (A, R) row of phi of each level of a member; None where levels are their own codes.
        by_head
            For each relative variable, (A, h, L) code of every member's level by level of the head.
        """
        relative = self.data.relative
        if relative is None:
            return None, ()
        level_rows = np.tile(np.arange(sum(self.num_levels[1])), (len(household), 1))
        by_head = []
        for pair in relative.pairs:
            start = first_rows(self.num_levels[1])[pair.member]
            own = start + pair.coded[household[:, pair.household]]
            level_rows[:, start : start + pair.num_levels] = own
            by_head.append(pair.coded.T[members[:, :, pair.member]])
        return level_rows, tuple(by_head)

    def log_likelihood(self, draws, files, key, progress):
        """(files, draws) log likelihood of each file, given the sizes of its households."""
        sizes = np.unique(self.table.sizes)
        found = []
        for m, file in enumerate(files):
            prepared = self._file(file, sizes)
            evaluate = partial(_log_households, **prepared, num_levels=self.num_levels[1])
            found.append(
                over_draws(
                    draws, evaluate, lambda log_p: log_p.sum(axis=1), progress,
                    f"likelihood of file {m + 1}",
                )
            )  # fmt: skip
        numbered = draws | {"number": np.arange(len(draws["log_pi"]))}
        evaluate = partial(_log_possible, data=self.data, key=key)
        log_normal = over_draws(numbered, evaluate, lambda x: x.T, progress, "possible")
        wanted = np.stack([(file.sizes[:, None] == sizes).sum(axis=0) for file in files])
        return np.stack(found) - wanted @ log_normal

    def _file(self, file, sizes):
        """Arrays of a synthetic file; households of one size together."""
        order, of_member = file.order_by_size
        codes = np.column_stack([
            file.household_codes[order], np.searchsorted(sizes, file.sizes[order])
        ])  # fmt: skip
        heads = file.household_codes[file.member_household]
        coded = self._coded(heads, file.member_codes[:, None])[:, 0]
        members, index = np.unique(coded[of_member], axis=0, return_inverse=True)
        blocks = tuple(block.member_codes.shape[1::-1] for block in file.size_blocks)
        num_levels = (*self.num_levels[0], len(sizes))
        return {
            "household_rows": jnp.asarray(codes + first_rows(num_levels), jnp.int32),
            "members": jnp.asarray(members.T, jnp.int32),
            "index": jnp.asarray(index.reshape(-1), jnp.int32),
            "blocks": blocks,
        }


def _unique_households(table, complete):
    """Households that no other has the values of, in whatever order its members are."""
    _, member = np.unique(table.member_codes, axis=0, return_inverse=True)
    found = []
    for block in table.size_blocks:
        key = np.column_stack([
            block.household_codes, np.sort(member.reshape(-1)[block.members], axis=1)
        ])  # fmt: skip
        _, which, counts = np.unique(key, axis=0, return_inverse=True, return_counts=True)
        found.append(block.households[counts[which.reshape(-1)] == 1])
    found = np.sort(np.concatenate(found))
    return found[complete[found]]


def _log_member_sums(log_omega, log_phi, member_rows):
    """Log weight of every member's classes, (A, h, F, S), and with them summed out, (A, h, F)."""
    inner = log_omega
    for v in range(member_rows.shape[2]):
        inner = inner + log_phi[member_rows[:, :, v]]
    return jax.nn.logsumexp(inner, axis=-1)


def _log_by_head(draw, log_weight, household_rows, member_rows, pair, codes, num_levels):
    """(A, L) log probability of each household with another level of its head.

    Parameters
    ----------
    log_weight
        (A, F) log weights of the classes, household variables and members apart.
    pair
        The variable that members have relative to the head's.
    codes
        (A, h, L) what the members' levels are coded as, by level of the head.
    """
    log_lambda, log_phi = draw["log_lambda"], draw["log_phi"]
    for k in range(household_rows.shape[1]):
        if k != pair.household:
            log_weight = log_weight + log_lambda[household_rows[:, k]]
    start = first_rows(num_levels[0])[pair.household]
    log_head = log_lambda[start : start + pair.num_levels]
    others = draw["log_omega"]
    for v in range(member_rows.shape[2]):
        if v != pair.member:
            others = others + log_phi[member_rows[:, :, v]]
    others = jnp.broadcast_to(others, (*member_rows.shape[:2], *others.shape[-2:]))
    start = first_rows(num_levels[1])[pair.member]
    top = jnp.max(others, axis=3, keepdims=True)
    mass = jnp.einsum(
        "ahfs,lfs->ahfl", jnp.exp(others - top), jnp.exp(log_phi[start : start + pair.num_levels]),
        precision=jax.lax.Precision.HIGHEST,
    )  # fmt: skip
    by_code = jnp.log(jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)) + top
    of_members = jnp.take_along_axis(by_code, codes[:, :, None], axis=3)
    log_p = log_weight[:, :, None] + log_head.T + jnp.sum(of_members, axis=1)
    return jax.nn.logsumexp(log_p, axis=1)


@partial(jax.jit, static_argnames=("size", "num_levels", "part", "columns", "pairs"))
def _log_nested_ratios(
    draws, household_rows, member_rows, place, level_rows, by_head, *, size, num_levels, part,
    columns, pairs,
):  # fmt: skip
    """(A, W, draws) log of the probability of each changed household over the household's."""
    num_records, num_members, num_variables = member_rows.shape
    last = sum(num_levels[0])

    def one(draw):
        log_omega, log_phi, log_lambda = draw["log_omega"], draw["log_phi"], draw["log_lambda"]
        of_members = _log_member_sums(log_omega, log_phi, member_rows)
        log_weight = draw["log_pi"] + log_lambda[last + size]
        others = log_weight + jnp.sum(of_members, axis=1)
        total = others
        for k in range(household_rows.shape[1]):
            total = total + log_lambda[household_rows[:, k]]
        log_own = jax.nn.logsumexp(total, axis=1)
        found = []
        if part != "member" and num_levels[0]:
            log_p = log_neighbours(others, log_lambda[:last], household_rows, num_levels[0])
            for pair, codes in zip(pairs, by_head, strict=True):
                start = first_rows(num_levels[0])[pair.household]
                log_p = log_p.at[:, start : start + pair.num_levels].set(
                    _log_by_head(
                        draw, log_weight, household_rows, member_rows, pair, codes, num_levels
                    )
                )
            found.append(log_p if columns is None else log_p[:, np.array(columns)])
        if part != "head" and num_members:
            rows, own = member_rows, of_members
            if part == "member":
                rows = jnp.take_along_axis(rows, place[:, None, None], axis=1)
                own = jnp.take_along_axis(own, place[:, None, None], axis=1)
            weight = (total[:, None] - own)[..., None] + log_omega
            log_p = log_neighbours(
                weight.reshape(-1, log_omega.size), log_phi.reshape(-1, log_omega.size),
                rows.reshape(-1, num_variables), num_levels[1],
            ).reshape(num_records, -1, sum(num_levels[1]))  # fmt: skip
            if level_rows is not None:
                log_p = jnp.take_along_axis(log_p, level_rows[:, None], axis=2)
            found.append(log_p.reshape(num_records, -1))
        return jnp.concatenate(found, axis=1) - log_own[:, None]

    return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)


@partial(jax.jit, static_argnames=("blocks", "num_levels"))
def _log_households(draws, household_rows, members, index, blocks, num_levels):
    """(draws, n) log probability of every household, size included, before truncation."""
    plan = merge_plan(num_levels)
    rows = merged_rows(members, num_levels, plan)

    def one(draw):
        tables = merged_tables(jnp.exp(draw["log_phi"]), num_levels, plan)
        log_member = log_member_probability(tables, jnp.exp(draw["log_omega"]), rows)
        total = draw["log_pi"] + sum_by_household(log_member[index], blocks)
        for k in range(household_rows.shape[1]):
            total = total + draw["log_lambda"][household_rows[:, k]]
        return jax.nn.logsumexp(total, axis=1)

    return jax.lax.map(one, draws)


@jax.jit
def _log_possible(draws, data, key):
    """(draws, H) log probability that a household has each size and is possible."""
    sizes = tuple(members for members, _ in data.blocks)
    each = jnp.eye(len(sizes), dtype=bool)
    size_rows = data.household.size_rows

    def one(draw):
        parameters = [draw[name] for name in NESTED]
        log_size = draw["log_lambda"][size_rows]
        if data.possible is None:
            return jax.nn.logsumexp(draw["log_pi"] + log_size, axis=1)
        if data.tables is not None and data.tables.compositions is not None:

            def of_size(mine):
                alone = jnp.where(mine[:, None], log_size, -jnp.inf)
                parameters[2] = draw["log_lambda"].at[size_rows].set(alone)
                return log_possible(
                    *parameters, data.tables, data.household, data.member, data.is_head
                )

            return jax.vmap(of_size)(each)
        own = jax.random.fold_in(key, draw["number"])
        tables = tables_of(*parameters, data.household, data.member, data.head)
        log_weight = log_class_weights(tables, log_size, sizes, data.head is not None)
        new, possible = simulate_possible(
            own, draw, data, jnp.full(len(sizes), 1 / len(sizes)), SIMULATED * len(sizes)
        )
        tried = jax.ops.segment_sum(new.used.astype(float), new.size, num_segments=len(sizes))
        found = jax.ops.segment_sum(possible.astype(float), new.size, num_segments=len(sizes))
        # Half a household where none was possible: finite, and rare enough.
        share = jnp.maximum(found, 0.5) / jnp.maximum(tried, 1)
        return jax.nn.logsumexp(log_weight, axis=1) + jnp.log(share)

    return jax.lax.map(one, draws)
