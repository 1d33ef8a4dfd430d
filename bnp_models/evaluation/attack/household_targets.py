"""Targets of an attack among households: unique households, or persons within households."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.compositions import compositions_of
from bnp_models.data.households import Households
from bnp_models.evaluation.attack.household_probabilities import (
    CodedHouseholds,
    log_household_ratios,
)
from bnp_models.evaluation.attack.targets import (
    Draws,
    Group,
    Targets,
    change_one,
    checked_rows,
    labels_of,
    over_draws,
)
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.models.nested.probabilities import (
    household_arrays,
    log_households,
    log_possible_by_size,
)
from bnp_models.models.nested.state import NestedData
from bnp_models.rules.rules import Rules


class HouseholdTargets(Targets[Households]):
    """Candidates for households, or for persons within them, under a nested model.

    Candidates and rules use the codes of the sample. Given the head and the relationship, codes
    relative to the head and values correspond one to one, so that a candidate has the probability
    of its relative codes.

    Parameters
    ----------
    model
        The model of the draws.
    table
        The sample.
    rules
        Rules; households that break one are not candidates.
    target
        "household" or "person".
    rows
        Households by their number, or persons by their row; None: the complete ones whose
        combination of values is unique.
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
        """Set the numbers of the attacked households."""
        rows = _unique_households(self.table, complete) if rows is None else rows
        self.rows = checked_rows(rows, complete, "household")
        self.household, self.place = self.rows, np.zeros(len(self.rows), int)

    def _choose_persons(self, rows, complete):
        """Set the rows of the attacked persons, their households and their places within these."""
        table = self.table
        person = np.argsort(table.rows, kind="stable")
        household = table.of_household
        if rows is None:
            candidates = np.flatnonzero(complete[household])
            cells = group_cells(table.persons.codes[candidates], table.schema.table.num_levels)
            rows = candidates[cells.sample_uniques]
        self.rows = checked_rows(rows, complete[household], "person")
        self.household = household[self.rows]
        start = np.cumsum(table.sizes) - table.sizes
        # A head whose variables are variables of the household has -1.
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
                    log_household_ratios,
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
        """Parts of a household in which candidates may differ: "all", "member" or "head"."""
        if self.target == "household":
            return ("all",)
        return ("member", "head") if self.table.schema.num_heads else ("member",)

    def _columns(self, part, num_members):
        """Columns of the candidates that differ in this part of a household."""
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
        """Arrays of some targets, and whether each change gives a candidate."""
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
        by_pattern, pattern, by_head = self._recoded(household, members)
        member_rows = self._coded(household, members) + first_rows(self.num_levels[1])
        household_rows = household + first_rows(self.num_levels[0])
        coded = CodedHouseholds(household_rows, member_rows, place, by_pattern, pattern, by_head)
        coded = jax.tree.map(partial(jnp.asarray, dtype=jnp.int32), coded)
        return (coded,), np.concatenate(valid, axis=1)

    def _changes(self, household, members, place, part, columns):
        """Yield codes (A, W, q) of changed households and (A, W, m, p) of their members.

        Parameters
        ----------
        household, members
            (A, q) and (A, m, p) level codes.
        place
            (A,) the member that changes, if the part is "member".
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
        """Member codes (.., m, p) in the model's coding."""
        relative = self.data.relative
        return members if relative is None else relative.encode(household, members)

    def _recoded(self, household, members):
        """Codes relative to the head: of all levels of a member, and for all levels of the head.

        Returns
        -------
        by_pattern, pattern, by_head
            As in `CodedHouseholds`.
        """
        relative = self.data.relative
        if relative is None:
            return (), None, ()
        first, relationship = first_rows(self.num_levels[1]), members[:, :, relative.relationship]
        patterns, of_relationship = relative.patterns
        by_pattern = []
        for applies in patterns:
            codes = members.copy()
            level_rows = np.tile(np.arange(sum(self.num_levels[1])), (len(household), 1))
            for pair in itertools.compress(relative.pairs, applies):
                start, head = first[pair.member], household[:, pair.household]
                codes[:, :, pair.member] = pair.coded[head[:, None], codes[:, :, pair.member]]
                level_rows[:, start : start + pair.num_levels] = start + pair.coded[head]
            by_pattern.append((codes + first, level_rows))
        # Another relationship changes which values are relative; another value does not.
        own = of_relationship[relationship]
        pattern = np.repeat(own[:, :, None], sum(self.num_levels[1]), axis=2)
        start = first[relative.relationship]
        pattern[:, :, start : start + len(of_relationship)] = of_relationship
        by_head = tuple(
            np.where(
                np.array(pair.applies)[relationship][:, :, None],
                pair.coded.T[members[:, :, pair.member]], members[:, :, [pair.member]],
            )
            for pair in relative.pairs
        )  # fmt: skip
        return tuple(by_pattern), pattern, by_head

    def log_likelihood(
        self, draws: Draws, files: Sequence[Households], key: jax.Array, progress: bool
    ) -> np.ndarray:
        """(files, draws) log likelihood of each file, given the sizes of its households."""
        sizes = np.unique(self.table.sizes)
        log_l = []
        for m, file in enumerate(files):
            arrays = household_arrays(file, sizes, self.data.relative)
            evaluate = partial(log_households, **arrays)
            description = f"likelihood of file {m + 1}"
            log_l.append(
                over_draws(draws, evaluate, lambda log_p: log_p.sum(axis=1), progress, description)
            )
        numbered = draws | {"number": np.arange(len(draws["log_pi"]))}
        evaluate = partial(log_possible_by_size, data=self.data, key=key)
        log_normal = over_draws(numbered, evaluate, lambda x: x.T, progress, "possible")
        wanted = np.stack([(file.sizes[:, None] == sizes).sum(axis=0) for file in files])
        return np.stack(log_l) - wanted @ log_normal


def _unique_households(table, complete):
    """Complete households whose values no other household has, in any order of the members."""
    found = compositions_of(table)
    households = np.sort(found.first[found.counts == 1])
    return households[complete[households]]
