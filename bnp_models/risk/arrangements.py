"""Households arranged for coarser compositions, and their probabilities at draws of a model.

A nested model describes a household with a head by the head's values and by those of its members.
If a coarsening no longer tells who the head is, each person who may be the head is put in this
place in turn: an *arrangement*. If a coarser variable of members is coded relative to the head's
value, arrangements are evaluated for each value that the head may have: a *choice*.
"""

import itertools
import operator
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from bnp_models.data.coarser_households import Labels, Members, is_coarser, ranges
from bnp_models.models.nested.relative import Pair
from bnp_models.risk.evaluator import Draws
from bnp_models.risk.household_probabilities import Laws

LEAST = 1e-300
"""Smallest probability; smaller ones are replaced by it."""


class Arrangements(NamedTuple):
    """Households with each of the persons who may be their head in this place."""

    row: np.ndarray
    """(E,) index of the household among those that are asked for, ascending."""
    of_member: np.ndarray
    """(M,) arrangement of each member, ascending."""
    size: np.ndarray
    """(E,) index of the household's size among those of the model."""
    household_codes: np.ndarray
    """(E, q) level codes of the household and of the person in the head's place."""
    level_codes: np.ndarray
    """(M, p) level codes of the members."""
    member_codes: np.ndarray
    """(M, p) the same, relative to the head's values where the model has them so; but level codes
    of the variables for which the head's values are summed over."""

    def members_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Members of some arrangements (T,), one arrangement after the other.

        The results are the place of the arrangement among those that were chosen, and the member.
        """
        number = self.num_members
        return ranges((np.cumsum(number) - number)[chosen], number[chosen])

    @property
    def num_members(self) -> np.ndarray:
        """(E,) number of members of each arrangement."""
        return np.bincount(self.of_member, minlength=len(self.row))


class Choice(NamedTuple):
    """Values of the head that are fixed, and the arrangements whose head may have them."""

    levels: dict[int, int]
    """The head's level of each variable that is summed over, by column of the households."""
    arrangement: np.ndarray
    """(E',) arrangements."""
    codes: np.ndarray
    """(U, p) distinct codes of their members."""
    counts: csr_array
    """(E', U) members of each arrangement that have these codes."""


class Evaluated(NamedTuple):
    """Log probabilities of the arrangements of a choice at D draws; D is left out of one draw's."""

    log_p: np.ndarray
    """(D, E', F) by class of households."""
    levels: list[np.ndarray]
    """For each variable of members, log probabilities (D, L, G, S) of its levels."""

    def at(self, d: int) -> "Evaluated":
        """The log probabilities at one draw."""
        return Evaluated(self.log_p[d], [x[d].astype(float) for x in self.levels])


class Arranger:
    """Variables of persons in a nested model, and arrangements of the households of a sample."""

    def __init__(self, laws: Laws):
        self.data, self.sizes = laws.data, laws.sizes
        self.schema, self.members = laws.run.table.schema, Members.of(laws.run.table)
        names, own = self.schema.table.variables, self.schema.household_variables
        self.relationship = None if self.schema.head is None else names.index(self.schema.head[0])
        shared = len(self.schema.modelled_household_level)
        self.shared = [names.index(name) for name in own[:shared]]
        """Columns of persons that the variables of the household itself are."""
        self.of_head = [names.index(name.removeprefix("head_")) for name in own[shared:]]
        """Columns of persons that the variables of the head are."""
        self.of_member = [names.index(name) for name in self.schema.member_variables]
        """Columns of persons that the variables of members are."""
        household, member = laws.data.household, laws.data.member
        self.size_rows = household.size_rows
        """Rows of `log_lambda` that the sizes are."""
        self.household_rows = [household.rows(k) for k in range(len(self.shared + self.of_head))]
        """Rows of `log_lambda` of the levels of each variable of households."""
        self.member_rows = [member.rows(v) for v in range(len(self.of_member))]
        """Rows of `log_phi` of the levels of each variable of members."""
        relative = laws.data.relative
        self.pairs: tuple[Pair, ...] = () if relative is None else relative.pairs

    def head_is_known(self, labels: Labels) -> bool:
        """Whether nobody but heads has their coarser level of the relationship."""
        if self.relationship is None:
            return True
        of = labels[self.relationship]
        return int((of == of[self.schema.head_code]).sum()) == 1

    def summed(self, labels: Labels) -> list[Pair]:
        """Variables relative to the head's that are coarser: the head's values are summed over."""
        return [pair for pair in self.pairs if is_coarser(labels[self.of_member[pair.member]])]

    def levels(self, labels: Labels) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Labels of the levels of each variable of households, and of each one of members."""
        member = [
            np.delete(labels[j], self.schema.head_code) if j == self.relationship else labels[j]
            for j in self.of_member
        ]
        return [labels[j] for j in (*self.shared, *self.of_head)], member

    def arranged(self, labels: Labels, rows: np.ndarray) -> Arrangements:
        """Arrange some households (m,)."""
        codes, sizes = self.members.codes, self.members.sizes[rows]
        first = self.members.start[rows]
        row, head = np.arange(len(rows)), np.full(len(rows), -1)
        if self.relationship is not None:
            row, head = ranges(first, sizes)
            of = labels[self.relationship]
            may = of[codes[head, self.relationship]] == of[self.schema.head_code]
            row, head = row[may], head[may]
        of_member, person = ranges(first[row], sizes[row])
        others = person != head[of_member]
        of_member, person = of_member[others], person[others]
        household = np.concatenate(
            [codes[first[row]][:, self.shared], codes[head][:, self.of_head]], axis=1
        )
        levels = self._levels_of_members(labels, codes[person])
        relative, summed = levels.copy(), self.summed(labels)
        for pair in self.pairs:
            if pair not in summed:
                of_head = household[of_member, pair.household]
                relative[:, pair.member] = pair.coded[of_head, levels[:, pair.member]]
        size = np.searchsorted(self.sizes, sizes[row])
        return Arrangements(row, of_member, size, household, levels, relative)

    def _levels_of_members(self, labels: Labels, codes: np.ndarray) -> np.ndarray:
        """Codes (M, p) of members; a head in a member's place has a level of its coarser level."""
        levels = codes[:, self.of_member].copy()
        if self.relationship is not None:
            v, head = self.of_member.index(self.relationship), self.schema.head_code
            of = labels[self.relationship]
            alike = np.flatnonzero(of == of[head])
            if len(others := alike[alike != head]):
                levels[levels[:, v] == head, v] = others[0]
            levels[:, v] -= levels[:, v] > head
        return levels

    def choices(self, labels: Labels, arranged: Arrangements) -> list[Choice]:
        """Values of the head that are summed over, and the arrangements that may have them."""
        found, summed = [], self.summed(labels)
        of_household, _ = self.levels(labels)
        for levels in itertools.product(*(range(pair.num_levels) for pair in summed)):
            fixed = {pair.household: level for pair, level in zip(summed, levels, strict=True)}
            may = np.ones(len(arranged.row), bool)
            for k, level in fixed.items():
                of = of_household[k]
                may &= of[arranged.household_codes[:, k]] == of[level]
            if may.any():
                found.append(_choice(fixed, may, arranged))
        return found

    def evaluated(
        self, draws: Draws, labels: Labels, arranged: Arrangements, choices: Sequence[Choice]
    ) -> Iterator[Evaluated]:
        """Evaluate the arrangements of each choice at D draws."""
        (of_household, of_member), summed = self.levels(labels), self.summed(labels)
        log_pi, log_omega = (draws[name].astype(float) for name in ("log_pi", "log_omega"))
        of_levels = [draws["log_lambda"][:, rows] for rows in self.household_rows]
        own = [draws["log_phi"][:, rows] for rows in self.member_rows]
        fixed = {pair.household for pair in summed}
        base = log_pi[:, None] + draws["log_lambda"][:, self.size_rows[arranged.size]]
        for k, of in enumerate(of_household):
            if k not in fixed:
                base += merged(of_levels[k], of, arranged.household_codes[:, k])
        for choice in choices:
            log_p, levels = base[:, choice.arrangement], list(own)
            for pair in summed:
                level, v = choice.levels[pair.household], pair.member
                log_p += of_levels[pair.household][:, level][:, None]
                levels[v] = own[v][:, pair.coded[level]]
            by_variable = zip(levels, of_member, choice.codes.T, strict=True)
            log_levels = reduce(operator.add, (merged(*one) for one in by_variable))
            log_member = _log_members(log_levels, log_omega)
            yield Evaluated(log_p + _sum_of_members(choice.counts, log_member), levels)


def _choice(fixed: dict[int, int], may: np.ndarray, arranged: Arrangements) -> Choice:
    """The arrangements that may (E,) have the fixed values, with their distinct members."""
    place, members = np.cumsum(may) - 1, may[arranged.of_member]
    codes, kind = np.unique(arranged.member_codes[members], axis=0, return_inverse=True)
    at = (place[arranged.of_member[members]], kind.reshape(-1))
    counts = csr_array((np.ones(len(at[0])), at), shape=(int(may.sum()), len(codes)))
    return Choice(fixed, np.flatnonzero(may), codes, counts)


def merged(log_p: np.ndarray, labels: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Log probabilities (D, m, ...) of the coarser levels that some levels (m,) belong to.

    Parameters
    ----------
    log_p
        (D, L, ...) log probabilities of all levels.
    labels
        (L,) coarser level of each level.
    levels
        (m,) levels.
    """
    if not len(levels) or not is_coarser(labels):
        return log_p[:, levels].astype(float)
    wanted, place = np.unique(labels[levels], return_inverse=True)
    order = np.argsort(labels, kind="stable")
    low, high = (np.searchsorted(labels[order], wanted, side) for side in ("left", "right"))
    _, index = ranges(low, high - low)
    first = np.cumsum(high - low) - (high - low)
    sums = np.add.reduceat(np.exp(log_p[:, order[index]], dtype=float), first, axis=1)
    return np.log(np.maximum(sums, LEAST))[:, place]


def _log_members(log_p: np.ndarray, log_omega: np.ndarray) -> np.ndarray:
    """Log probability (D, U, F) of members, of whose levels (D, U, G, S) is that by class."""
    if log_p.shape[2] < log_omega.shape[1]:
        top = log_p.max(axis=3)
        total = np.exp(log_p[:, :, 0] - top) @ np.exp(log_omega).transpose(0, 2, 1)
        return np.log(np.maximum(total, LEAST)) + top
    return logsumexp(log_p + log_omega[:, None], axis=3)


def _sum_of_members(counts: csr_array, log_member: np.ndarray) -> np.ndarray:
    """Sums (D, E', F) over the members of each arrangement of what they have (D, U, F)."""
    num_draws, number, num_classes = log_member.shape
    flat = log_member.transpose(1, 0, 2).reshape(number, num_draws * num_classes)
    return (counts @ flat).reshape(-1, num_draws, num_classes).transpose(1, 0, 2)
