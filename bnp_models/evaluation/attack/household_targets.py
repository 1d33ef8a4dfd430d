"""Targets of an attack among households: those that are alone, and their members."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.microdata import group_cells
from bnp_models.evaluation.attack.targets import (
    Draws,
    Group,
    Targets,
    change_one,
    checked_rows,
    labels_of,
    over_draws,
)
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
from bnp_models.rules.rules import Rules

# Households simulated per draw and size for P(possible), where it has no closed form.
SIMULATED = 2**13


class HouseholdTargets(Targets):
    """Candidates for households, or for persons within them, under a nested model.

    Candidates are in the sample's codes, and rules are asked about these. Given the head, codes
    relative to it are one to one: a candidate is as likely as what it is coded as.

    Parameters
    ----------
    model
        The model of the draws.
    table
        The sample.
    rules
        Rules: what they exclude is no candidate.
    target
        "household" or "person".
    rows
        Households by their number, or persons by their row; None: the complete ones that are alone
        with their values.
    """

    def __init__(
        self,
        model: NDPMPM,
        table: Households,
        rules: Rules | None,
        target: str,
        rows: Sequence[int] | None,
    ):
        self.table, self.target = table, target
        self.data: NestedData = model.prepare(table, rules)
        self.possible = None if rules is None or not len(rules) else rules.compile(table.schema)
        schema = table.schema
        self.num_levels = schema.num_household_levels, schema.num_member_levels
        heads = schema.num_heads
        self.first_member = np.cumsum(table.sizes - heads) - (table.sizes - heads)
        most = 1 if target == "person" else int(table.sizes.max()) - heads
        places = [f" of person {j + 1 + heads}" for j in range(most)]
        places = [""] if target == "person" else places
        of_household = labels_of(schema.household_variables, schema.household_levels)
        of_members = [
            labels_of(schema.member_variables, schema.member_levels, place) for place in places
        ]
        self.columns = (*of_household, *(column for part in of_members for column in part))
        choose = self._choose_households if target == "household" else self._choose_persons
        choose(rows, ~table.incomplete)

    def _choose_households(self, rows, complete):
        """Set the numbers of the households attacked."""
        rows = _unique_households(self.table, complete) if rows is None else rows
        self.rows = checked_rows(rows, complete, "household")
        self.household, self.place = self.rows, np.zeros(len(self.rows), int)

    def _choose_persons(self, rows, complete):
        """Set the rows of the persons attacked, their households and their places there."""
        table = self.table
        person = np.empty(table.num_persons, int)
        person[table.rows] = np.arange(table.num_persons)
        household = np.repeat(np.arange(table.n), table.sizes)[person]
        if rows is None:
            candidates = np.flatnonzero(complete[household])
            cells = group_cells(table.persons.codes[candidates], table.schema.table.num_levels)
            rows = candidates[cells.sample_uniques]
        self.rows = checked_rows(rows, complete[household], "person")
        self.household = household[self.rows]
        start = np.cumsum(table.sizes) - table.sizes
        # -1 for a head whose variables are the household's.
        self.place = person[self.rows] - start[self.household] - table.schema.num_heads

    def groups(self) -> Iterator[Group]:
        """Group households by size; persons also by whether they are a head at household level."""
        heads = self.table.schema.num_heads
        sizes = self.table.sizes[self.household]
        for block, size in enumerate(np.unique(self.table.sizes)):
            for part in self._parts():
                which = np.flatnonzero((sizes == size) & ((self.place < 0) == (part == "head")))
                num_members = int(size) - heads
                columns = self._columns(part, num_members)
                if not len(which) or not len(columns):
                    continue
                ratio = partial(
                    _log_nested_ratios,
                    size=block,
                    num_levels=self.num_levels,
                    part=part,
                    columns=tuple(columns.tolist()) if part == "head" else None,
                    pairs=() if self.data.relative is None else self.data.relative.pairs,
                )
                prepare = partial(
                    self._prepare, num_members=num_members, part=part, columns=columns
                )
                yield Group(which, columns, prepare, ratio)

    def _parts(self):
        """Parts of households that a candidate differs in: "all", or a "member" or the "head"."""
        if self.target == "household":
            return ("all",)
        return ("member", "head") if self.table.schema.num_heads else ("member",)

    def _columns(self, part, num_members):
        """Columns of the candidates that differ in a part of a household."""
        household, member = map(sum, self.num_levels)
        if part == "all":
            return np.arange(household + num_members * member)
        if part == "member":
            return household + np.arange(member)
        variables = self.table.schema.table.variables
        return np.flatnonzero(
            [
                name.startswith("head_") and name not in variables
                for name, _ in self.columns[:household]
            ]
        )

    def _prepare(self, which, num_members, part, columns):
        """Arrays of some targets, and which changes make a candidate."""
        index = self.household[which]
        household = self.table.household_codes[index]
        members = self.table.member_codes[
            self.first_member[index][:, None] + np.arange(num_members)
        ]
        place = np.maximum(self.place[which], 0)
        valid = []
        for codes, persons in self._changes(household, members, place, part, columns):
            differs = (codes != household[:, None]).any(axis=2)
            differs |= (persons != members[:, None]).any(axis=(2, 3))
            if self.possible is not None:
                differs &= self.possible.on_numpy(codes, persons)
            valid.append(differs)
        level_rows, by_head = self._recoded(household, members)
        member_rows = self._coded(household, members) + first_rows(self.num_levels[1])
        arrays = household + first_rows(self.num_levels[0]), member_rows, place, level_rows, by_head
        arrays = jax.tree.map(partial(jnp.asarray, dtype=jnp.int32), arrays)
        return arrays, np.concatenate(valid, axis=1)

    def _changes(self, household, members, place, part, columns):
        """Changed households, (A, W, q) codes and (A, W, m, p) of their members, by what changes.

        Parameters
        ----------
        household, members
            (A, q) and (A, m, p) level codes.
        place
            (A,) the member that changes, for "member".
        part, columns
            "all", "member" or "head", and the columns of the candidates.
        """
        if part != "member":
            changed = change_one(household, self.num_levels[0])
            if part == "head":
                changed = changed[:, columns]
            shape = (*changed.shape[:2], *members.shape[1:])
            yield changed, np.broadcast_to(members[:, None], shape)
        if part == "head":
            return
        lanes = np.arange(len(household))
        places = [place] if part == "member" else np.arange(members.shape[1])
        for at in places:
            at = np.broadcast_to(at, len(household))
            changed = change_one(members[lanes, at], self.num_levels[1])
            persons = np.repeat(members[:, None], changed.shape[1], axis=1)
            persons[lanes, :, at] = changed
            shape = (*changed.shape[:2], household.shape[1])
            yield np.broadcast_to(household[:, None], shape), persons

    def _coded(self, household, members):
        """Member codes (.., m, p) as the model has them."""
        relative = self.data.relative
        return members if relative is None else relative.encode(household, members)

    def _recoded(self, household, members):
        """Codes relative to the head, of other levels and under other heads.

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
            coded = start + pair.coded[household[:, pair.household]]
            level_rows[:, start : start + pair.num_levels] = coded
            by_head.append(pair.coded.T[members[:, :, pair.member]])
        return level_rows, tuple(by_head)

    def log_likelihood(
        self, draws: Draws, files: Sequence[Households], key: jax.Array, progress: bool
    ) -> np.ndarray:
        """(files, draws) log likelihood of each file, given the sizes of its households."""
        sizes = np.unique(self.table.sizes)
        log_l = []
        for m, file in enumerate(files):
            arrays = self._file(file, sizes)
            evaluate = partial(_log_households, **arrays, num_levels=self.num_levels[1])
            description = f"likelihood of file {m + 1}"
            log_l.append(
                over_draws(draws, evaluate, lambda log_p: log_p.sum(axis=1), progress, description)
            )
        numbered = draws | {"number": np.arange(len(draws["log_pi"]))}
        evaluate = partial(_log_possible, data=self.data, key=key)
        log_normal = over_draws(numbered, evaluate, lambda x: x.T, progress, "possible")
        wanted = np.stack([(file.sizes[:, None] == sizes).sum(axis=0) for file in files])
        return np.stack(log_l) - wanted @ log_normal

    def _file(self, file, sizes):
        """Arrays of a synthetic file; households of one size together."""
        order, of_member = file.order_by_size
        codes = np.column_stack(
            [file.household_codes[order], np.searchsorted(sizes, file.sizes[order])]
        )
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
    alone = []
    for block in table.size_blocks:
        key = np.column_stack(
            [block.household_codes, np.sort(member.reshape(-1)[block.members], axis=1)]
        )
        _, which, counts = np.unique(key, axis=0, return_inverse=True, return_counts=True)
        alone.append(block.households[counts[which.reshape(-1)] == 1])
    households = np.sort(np.concatenate(alone))
    return households[complete[households]]


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
        (A, h, L) codes of the members' levels, by level of the head.
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
        "ahfs,lfs->ahfl",
        jnp.exp(others - top),
        jnp.exp(log_phi[start : start + pair.num_levels]),
        precision=jax.lax.Precision.HIGHEST,
    )
    by_code = jnp.log(jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)) + top
    of_members = jnp.take_along_axis(by_code, codes[:, :, None], axis=3)
    log_p = log_weight[:, :, None] + log_head.T + jnp.sum(of_members, axis=1)
    return jax.nn.logsumexp(log_p, axis=1)


@partial(jax.jit, static_argnames=("size", "num_levels", "part", "columns", "pairs"))
def _log_nested_ratios(
    draws,
    household_rows,
    member_rows,
    place,
    level_rows,
    by_head,
    *,
    size,
    num_levels,
    part,
    columns,
    pairs,
):
    """(A, W, draws) log of the probability of each changed household over the household's."""
    last = sum(num_levels[0])

    def one(draw):
        log_lambda = draw["log_lambda"]
        of_members = _log_member_sums(draw["log_omega"], draw["log_phi"], member_rows)
        log_weight = draw["log_pi"] + log_lambda[last + size]
        without_household = log_weight + jnp.sum(of_members, axis=1)
        total = without_household
        for k in range(household_rows.shape[1]):
            total = total + log_lambda[household_rows[:, k]]
        log_p = []
        if part != "member" and num_levels[0]:
            by_household = log_neighbours(
                without_household, log_lambda[:last], household_rows, num_levels[0]
            )
            for pair, codes in zip(pairs, by_head, strict=True):
                start = first_rows(num_levels[0])[pair.household]
                by_household = by_household.at[:, start : start + pair.num_levels].set(
                    _log_by_head(
                        draw, log_weight, household_rows, member_rows, pair, codes, num_levels
                    )
                )
            log_p.append(by_household if columns is None else by_household[:, np.array(columns)])
        if part != "head" and member_rows.shape[1]:
            at = None if part == "all" else place[:, None, None]
            log_p.append(
                _log_by_member(draw, total, of_members, member_rows, at, level_rows, num_levels[1])
            )
        log_truth = jax.nn.logsumexp(total, axis=1)
        return jnp.concatenate(log_p, axis=1) - log_truth[:, None]

    with jax.named_scope("weights_of_candidates"):
        return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)


def _log_by_member(draw, total, of_members, member_rows, place, level_rows, num_levels):
    """(A, members * R) log probability of each household with another level of one member.

    Parameters
    ----------
    total
        (A, F) log weights of the classes, household and members together.
    of_members
        (A, h, F) those of each member.
    place
        (A, 1, 1) the member that changes; None: each in turn.
    level_rows
        As `HouseholdTargets._recoded` returns them.
    """
    log_omega, log_phi = draw["log_omega"], draw["log_phi"]
    if place is not None:
        member_rows = jnp.take_along_axis(member_rows, place, axis=1)
        of_members = jnp.take_along_axis(of_members, place, axis=1)
    num_records, _, num_variables = member_rows.shape
    weight = (total[:, None] - of_members)[..., None] + log_omega
    log_p = log_neighbours(
        weight.reshape(-1, log_omega.size),
        log_phi.reshape(-1, log_omega.size),
        member_rows.reshape(-1, num_variables),
        num_levels,
    ).reshape(num_records, -1, sum(num_levels))
    if level_rows is not None:
        log_p = jnp.take_along_axis(log_p, level_rows[:, None], axis=2)
    return log_p.reshape(num_records, -1)


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

    with jax.named_scope("likelihood_of_files"):
        return jax.lax.map(one, draws)


@jax.jit
def _log_possible(draws, data, key):
    """(draws, H) log probability that a household has each size and is possible."""
    each = jnp.eye(len(data.blocks), dtype=bool)
    size_rows = data.household.size_rows

    def one(draw):
        log_size = draw["log_lambda"][size_rows]
        if data.possible is None:
            return jax.nn.logsumexp(draw["log_pi"] + log_size, axis=1)
        if data.tables is not None and data.tables.compositions is not None:
            of_size = partial(_log_possible_of_size, draw, data, log_size)
            return jax.vmap(of_size)(each)
        return _log_possible_by_simulation(draw, data, log_size, key)

    with jax.named_scope("log_possible"):
        return jax.lax.map(one, draws)


def _log_possible_of_size(draw, data, log_size, of_size):
    """Log probability that a household has one size and is possible, in closed form."""
    log_pi, log_omega, log_lambda, log_phi = (draw[name] for name in NESTED)
    alone = jnp.where(of_size[:, None], log_size, -jnp.inf)
    log_lambda = log_lambda.at[data.household.size_rows].set(alone)
    return log_possible(
        log_pi,
        log_omega,
        log_lambda,
        log_phi,
        data.tables,
        data.household,
        data.member,
        data.is_head,
    )


def _log_possible_by_simulation(draw, data, log_size, key):
    """(H,) log probability that a household has each size and is possible, estimated."""
    sizes = tuple(members for members, _ in data.blocks)
    parameters = [draw[name] for name in NESTED]
    tables = tables_of(*parameters, data.household, data.member, data.head)
    log_weight = log_class_weights(tables, log_size, sizes, data.head is not None)
    new, possible = simulate_possible(
        jax.random.fold_in(key, draw["number"]),
        draw,
        data,
        jnp.full(len(sizes), 1 / len(sizes)),
        SIMULATED * len(sizes),
    )
    tried = jax.ops.segment_sum(new.used.astype(float), new.size, num_segments=len(sizes))
    good = jax.ops.segment_sum(possible.astype(float), new.size, num_segments=len(sizes))
    # Half a household where none was possible: finite, and rare enough.
    share = jnp.maximum(good, 0.5) / jnp.maximum(tried, 1)
    return jax.nn.logsumexp(log_weight, axis=1) + jnp.log(share)
