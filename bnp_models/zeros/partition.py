"""Partition of a union of conditions into few disjoint boxes, by decision trees."""

import math
from collections.abc import Sequence

import numpy as np

from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, Boxes
from bnp_models.zeros.union import Union, merge_in_best_order, merge_masks

# Limits of the searches, in units of `Union.effort`.
_TREE_EFFORT, _REGROUP_EFFORT = 50_000, 100_000

# Cuts that are tried anew, and boxes beyond which none is.
_REGROUP_TRIALS, _REGROUP_MAX = 300, 1000

# Boxes or slices beyond which they are not listed.
_MAX_BOXES = 200_000


def _regrouped(union: Union, masks: Sequence[int]) -> list[int]:
    """Cut a few neighbouring boxes up anew, again and again; keep what is not more boxes.

    This finds partitions that no tree has. Cuts that leave the number as it was are kept too:
    they lead on to better ones.
    """
    rng = np.random.default_rng(0)
    masks, num = list(masks), len(union.fields)
    stop = union.effort + _REGROUP_EFFORT
    for _ in range(_REGROUP_TRIALS if 2 < len(masks) <= _REGROUP_MAX else 0):
        if union.effort >= stop:
            break
        centre = masks[rng.integers(len(masks))]
        distance = [(centre ^ mask).bit_count() for mask in masks] + 4 * rng.random(len(masks))
        near = set(np.argsort(distance)[: rng.integers(2, 8)].tolist())
        family = union.simplified(masks[i] for i in near)
        tree = _Tree(union, 1, False, order=rng.permutation(num).tolist())
        order = [union.fields[v] for v in rng.permutation(num)]
        recut = merge_masks(tree.masks(family, IMPOSSIBLE), order)
        if len(recut) <= len(near):
            masks = [mask for i, mask in enumerate(masks) if i not in near] + sorted(recut)
    return sorted(masks, reverse=True)


def _partition(union: Union, order: Sequence[int], region: int, single_levels: bool) -> list[int]:
    """Return disjoint masks that make up a region, as few boxes (or slices) as were found.

    The boxes are the leaves of a decision tree that may ask about the variables in another order
    on each branch. The first tree asks in the diagram's order, so it is about as quick to find as
    the diagram was; then come those that ask about the most frequent variable, and those that
    choose among the 2, 3, ... most frequent: with enough effort, all trees.
    """
    best = _Tree(union, 1, single_levels, order=order)
    least = best.cost(union.root, region)
    stop = union.effort + _TREE_EFFORT
    for width in (1, 2, 3, 4, 6, 10, 20):
        tree = _Tree(union, width, single_levels, stop=stop)
        try:
            cost = tree.cost(union.root, region)
        except _OutOfEffort:
            break
        if cost < least:
            best, least = tree, cost
        if width >= len(union.fields):
            break
    if least > _MAX_BOXES:
        raise MicrodataError(
            f"the conditions make {least} disjoint {'slices' if single_levels else 'boxes'}, too "
            "many to list; give fewer or simpler conditions"
        )
    return best.masks(union.root, region)


class _OutOfEffort(Exception):
    """The effort of a search is spent."""


class _Tree:
    """Decision trees over families, chosen to have few leaves in a region.

    A family whose masks fall into components A, B, ... that share no variable needs no common
    tree: its feasible boxes are products of theirs, and its impossible ones are those of A, then
    the feasible boxes of A times the impossible ones of B, and so on.
    """

    def __init__(
        self,
        union: Union,
        width: int,
        single_levels: bool,
        order: Sequence[int] | None = None,
        stop: float = math.inf,
    ):
        self.union, self.width, self.single_levels = union, width, single_levels
        self.order, self.stop = order, stop
        # By family and region: the cost, and the variable to split or the components in order.
        self._plans: dict[tuple[frozenset, int], tuple[int, list[frozenset] | int]] = {}

    def cost(self, family: frozenset, region: int) -> int:
        """Return the number of boxes, or of slices, that the tree gives a region of a family."""
        if not family or family == self.union.everywhere:
            return int(region == (IMPOSSIBLE if family else FEASIBLE))
        key = (family, region)
        if key not in self._plans:
            components = self.union.components(family)
            if len(components) == 1:
                self._plans[key] = self._best_split(family, region)
            elif region == FEASIBLE:
                cost = math.prod(self.cost(component, FEASIBLE) for component in components)
                self._plans[key] = cost, components
            else:
                self._plans[key] = self._chain(components)
        return self._plans[key][0]

    def masks(self, family: frozenset, region: int) -> list[int]:
        """Return the disjoint masks of a region of a family, as many as `cost` counts."""
        union = self.union
        if not family or family == union.everywhere:
            return [union.full] * self.cost(family, region)
        self.cost(family, region)
        plan = self._plans[family, region][1]
        if isinstance(plan, int):
            field = union.fields[plan]
            return [
                mask & ~field | bits
                for bits, child in union.split(family, plan)
                for mask in self.masks(child, region)
            ]
        impossible, feasible = [], [union.full]
        for component in plan:
            if region == IMPOSSIBLE:
                impossible += [a & b for a in feasible for b in self.masks(component, IMPOSSIBLE)]
            if region == FEASIBLE or component is not plan[-1]:
                feasible = [a & b for a in feasible for b in self.masks(component, FEASIBLE)]
        return impossible if region == IMPOSSIBLE else feasible

    def _chain(self, components: list[frozenset]) -> tuple[int, list[frozenset]]:
        """Order components so that their impossible boxes are fewest; return number and order."""
        costs = [(self.cost(c, FEASIBLE), self.cost(c, IMPOSSIBLE), c) for c in components]
        # Exchanging two neighbours shows that this ratio must not increase.
        costs.sort(key=lambda c: -c[1] / (c[0] - 1) if c[0] > 1 else -math.inf)
        total, before = 0, 1
        for feasible, impossible, _ in costs:
            total += before * impossible
            before *= feasible
        return total, [component for _, _, component in costs]

    def _best_split(self, family: frozenset, region: int) -> tuple[int, int]:
        """Return the least cost of a split of a family, and its variable."""
        least, best = math.inf, -1
        for v in self._candidates(family):
            self.union.effort += 0.5
            if self.union.effort >= self.stop:
                raise _OutOfEffort
            field, total = self.union.fields[v], 0
            for bits, child in self.union.split(family, v):
                weight = 1
                if self.single_levels and bits != field:
                    weight = self.union.num_levels_of(bits)
                total += weight * self.cost(child, region)
                if total >= least:
                    break
            else:
                least, best = total, v
        return int(least), best

    def _candidates(self, family: frozenset) -> list[int]:
        """Return the variables to try: the next in order, else the most frequent ones."""
        if self.order is not None:
            support = self.union.support(family)
            return [next(v for v in self.order if support >> v & 1)]
        uses = [0] * len(self.union.fields)
        for mask in family:
            for v, field in enumerate(self.union.fields):
                uses[v] += mask & field != field
        ranked = sorted(range(len(uses)), key=lambda v: (-uses[v], v))
        return [v for v in ranked[: self.width] if uses[v]]


def make_boxes(union: Union, order: Sequence[int], region: int) -> Boxes:
    """Return few disjoint boxes that make up a region, FEASIBLE or IMPOSSIBLE.

    Raises
    ------
    MicrodataError
        If there would be more than 200,000 of them.
    """
    masks = _partition(union, order, region, single_levels=False)
    masks = _regrouped(union, merge_in_best_order(union, masks))
    sets = union.sets(masks)
    sets.flags.writeable = False
    return Boxes(sets, union.num_levels)


def make_slices(union: Union, order: Sequence[int]) -> np.ndarray:
    """Return disjoint slices that make up the impossible cells: (C, J) level codes, -1 where free.

    Raises
    ------
    MicrodataError
        If there would be more than 200,000 of them.
    """
    codes = union.slices(_partition(union, order, IMPOSSIBLE, single_levels=True))
    codes.flags.writeable = False
    return codes
