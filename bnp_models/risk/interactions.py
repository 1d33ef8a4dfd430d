"""Log-linear models with main effects and some two-way interactions: their choice and fit.

The interactions are the edges of a graph of the variables. If the graph falls apart when one
variable is removed, the distribution is a product. With the blocks B (largest parts that the
removal of a single variable does not separate), the variables v, and the number d_v of blocks that
contain v,

    p(c) = prod_B p_B(c_B) / prod_v p_v(c_v)^(d_v - 1)

(Lauritzen 1996, Graphical Models, proposition 3.17). A block of one or two variables is the margin
of the sample. A larger block is fitted by iterative proportional fitting over the cells all of
whose margins are positive. These cells are listed variable by variable, so that the full grid is
never formed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bnp_models.data.cells import group_cells, joint_codes, rake_once
from bnp_models.data.schema import MicrodataError

Edge = tuple[int, int]

TOLERANCE = 1e-6

NUM_SIMULATED = 4096
"""Cells from which sums over all cells are estimated."""


class Bounds(NamedTuple):
    """Limits of the work for a fit."""

    max_support: int = 2**22
    """Limit for the cells of a block."""
    max_sweeps: int = 2000
    """Sweeps of iterative proportional fitting."""
    max_work: float = np.inf
    """Limit for the product of cells, interactions and sweeps of a block."""


class Drawing(NamedTuple):
    """Tables from which cells of a block are drawn, given one of its variables, or none."""

    order: np.ndarray
    """(M,) cells of the block in the order of the variable's levels."""
    bounds: np.ndarray
    """(L + 1,) position at which each level begins, and the end."""
    cumulative: np.ndarray
    """(M + 1,) sums of the probabilities in this order."""


@dataclass(frozen=True, eq=False)
class Block:
    """Distribution of the variables of a block."""

    variables: tuple[int, ...]
    listed: np.ndarray
    """(M, K) codes of the cells of positive probability, in lexicographic order."""
    share: np.ndarray
    """(M,) probability of each."""
    where: np.ndarray
    """(D,) index of the block's cell that contains each cell of the sample."""
    sweeps: int = 0
    discrepancy: float = 0.0
    _drawings: dict[int | None, Drawing] = field(default_factory=dict)

    def drawing(self, joint: int | None) -> Drawing:
        """Tables for drawing the block's cells given a variable; they are made only once."""
        if joint not in self._drawings:
            given = np.zeros(len(self.share), np.int32)
            if joint is not None:
                given = self.listed[:, self.variables.index(joint)]
            order = np.argsort(given, kind="stable")
            bounds = np.searchsorted(given[order], np.arange(given.max() + 2))
            cumulative = np.append(0.0, np.cumsum(self.share[order]))
            self._drawings[joint] = Drawing(order, bounds, cumulative)
        return self._drawings[joint]


def blocks_of(edges: Iterable[Edge]) -> list[frozenset[Edge]]:
    """Edges of each block of a graph; variables without edges are in no block.

    Notes
    -----
    If an edge is added between variables that a path connects already, all blocks on the path
    become one block.
    """
    blocks: list[frozenset[Edge]] = []
    for edge in edges:
        path = _path(blocks, *edge)
        through = [block for block in blocks if block & path]
        blocks = [block for block in blocks if not block & path]
        blocks.append(frozenset([edge]).union(*through))
    return blocks


def _path(blocks: list[frozenset[Edge]], start: int, end: int) -> frozenset[Edge]:
    """Edges of a path from one variable to another; empty if there is no path."""
    neighbours: dict[int, list[int]] = {}
    for i, j in frozenset().union(*blocks):
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    before, queue = {start: start}, [start]
    for i in queue:
        for j in neighbours.get(i, []):
            if j not in before:
                before[j] = i
                queue.append(j)
    edges, j = [], end
    while j in before and j != start:
        edges.append((min(j, before[j]), max(j, before[j])))
        j = before[j]
    return frozenset(edges)


class Fitter:
    """Fits of several graphs to one weighted sample, which share their blocks.

    Parameters
    ----------
    codes
        (D, J) codes of the sample's cells.
    weight
        (D,) their shares, which add up to 1.
    bounds
        Limits of the work for a block.
    """

    def __init__(self, codes: np.ndarray, weight: np.ndarray, bounds: Bounds) -> None:
        self.codes, self.weight, self.bounds = codes, weight, bounds
        self.num_levels = codes.max(axis=0) + 1
        self.margins = [np.bincount(column, weight) for column in codes.T]
        self._made: dict[frozenset[Edge] | int, Block] = {}

    def fit(self, edges: Iterable[Edge]) -> "Fitted":
        """Fit the model with these interactions.

        Raises
        ------
        MicrodataError
            If a block has more cells than the limit.
        """
        edges = tuple(edges)
        apart = set(range(self.codes.shape[1])).difference(*edges)
        parts: list[frozenset[Edge] | int] = [*blocks_of(edges), *sorted(apart)]
        return Fitted(self, edges, _ordered([self._block(part) for part in parts]))

    def _block(self, part: frozenset[Edge] | int) -> Block:
        """Distribution of a block, or of a variable without edges."""
        if part not in self._made:
            self._made[part] = self._new_block(part)
        return self._made[part]

    def _new_block(self, part):
        variables = (part,) if isinstance(part, int) else tuple(sorted(set().union(*part)))
        codes, levels = self.codes[:, variables], self.num_levels[list(variables)]
        if len(variables) < 3:
            cells = group_cells(codes, levels)
            share = np.bincount(cells.record_cell, self.weight)
            return Block(variables, cells.codes, share, cells.record_cell)
        edges = sorted((variables.index(i), variables.index(j)) for i, j in part)
        listed = list_cells(codes, edges, self.bounds.max_support)
        fitted = fit_margins(listed, codes, self.weight, edges, self.bounds)
        return Block(variables, listed, fitted[0], _positions(codes, listed), *fitted[1:])


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model."""

    fitter: Fitter
    edges: tuple[Edge, ...]
    """Pairs of variables that interact."""
    parts: list[tuple[Block, int | None]]
    """Blocks, and the variable that each shares with earlier blocks."""

    @cached_property
    def share(self) -> np.ndarray:
        """(D,) probability of each cell of the sample."""
        share = np.ones(len(self.fitter.codes))
        for block, joint in self.parts:
            share *= block.share[block.where]
            if joint is not None:
                share /= self.fitter.margins[joint][self.fitter.codes[:, joint]]
        return share

    def simulate(self, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw cells, and return their probabilities.

        Parameters
        ----------
        uniforms
            (S, J) uniform numbers. Models that share blocks use the same numbers for these.

        Returns
        -------
        codes
            (S, J) codes of the drawn cells.
        share
            (S,) their probabilities.
        """
        codes = np.zeros(uniforms.shape, np.int32)
        share = np.ones(len(uniforms))
        for block, joint in self.parts:
            order, bounds, cumulative = block.drawing(joint)
            wanted = 0 if joint is None else codes[:, joint]
            first, last = bounds[wanted], bounds[wanted + 1] - 1
            low, high = cumulative[first], cumulative[last + 1]
            own = [i for i in block.variables if i != joint][0]
            at = np.searchsorted(cumulative, low + uniforms[:, own] * (high - low), "right") - 1
            drawn = order[np.clip(at, first, last)]
            share *= block.share[drawn] / (high - low)
            codes[:, block.variables] = block.listed[drawn]
        return codes, share


def _ordered(blocks: list[Block]) -> list[tuple[Block, int | None]]:
    """Blocks in an order in which each shares at most one variable with earlier blocks."""
    ordered: list[tuple[Block, int | None]] = []
    seen: set[int] = set()
    left = list(blocks)
    while left:
        block = next((b for b in left if seen.intersection(b.variables)), left[0])
        left = [b for b in left if b is not block]
        ordered.append((block, next(iter(seen.intersection(block.variables)), None)))
        seen.update(block.variables)
    return ordered


def gains(codes: np.ndarray, weight: np.ndarray, num_records: int) -> dict[Edge, float]:
    """Evaluate the reduction of Akaike's criterion by each interaction alone.

    Parameters
    ----------
    codes, weight
        As of `Fitter`.
    num_records
        Size n of the sample.

    Returns
    -------
    gains
        2 n I(i, j) - 2 (L_i - 1) (L_j - 1), with I the mutual information in the sample and L the
        number of levels that occur; the largest is first.
    """
    num_levels, found = codes.max(axis=0) + 1, {}
    for i, j in combinations(range(codes.shape[1]), 2):
        sizes = num_levels[[i, j]]
        pair = joint_codes([codes[:, i], codes[:, j]], sizes)
        joint = np.bincount(pair, weight, minlength=sizes.prod()).reshape(sizes)
        rows, columns = joint.sum(axis=1), joint.sum(axis=0)
        some = joint > 0
        information = joint[some] @ np.log(joint[some] / np.outer(rows, columns)[some])
        parameters = (np.sum(rows > 0) - 1) * (np.sum(columns > 0) - 1)
        found[i, j] = float(2 * num_records * information - 2 * parameters)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def forest(gains: dict[Edge, float], num_variables: int) -> list[Edge]:
    """Choose the forest of interactions with the largest sum of gains.

    Notes
    -----
    This is the tree of largest mutual information (Chow & Liu 1968, doi:10.1109/TIT.1968.1054142)
    without the edges that do not reduce AIC, that is, the forest of smallest AIC (Edwards, de Abreu
    & Labouriau 2010, doi:10.1186/1471-2105-11-18). Without a penalty, sparse pairs of variables
    with many levels look dependent; the penalty of BIC leaves out too many interactions
    (experiments/accuracy/risk_peers).
    """
    root, edges = list(range(num_variables)), []
    for (i, j), gain in gains.items():
        if gain > 0 and root[i] != root[j]:
            root = [root[i] if r == root[j] else r for r in root]
            edges.append((i, j))
    return edges


def search(
    fitter: Fitter, candidates: list[Edge], f: np.ndarray, phat: np.ndarray, total: float
) -> "Fitted":
    """Choose interactions by forward selection, so that the uniques of the sample are fitted well.

    Parameters
    ----------
    fitter
        Fitter of the weighted sample; models with blocks beyond its bounds are not considered.
    candidates
        Interactions to choose from.
    f, phat
        (D,) records of each cell, and its sampling fraction.
    total
        Size of the population, to which the weights add up.

    Returns
    -------
    fitted
        The selection begins with main effects. Each step adds the interaction that makes |B_1| /
        se(B_1) smallest, and it ends when no interaction makes it smaller (Skinner & Shlomo 2008,
        section 3: `misfit_of_uniques`).
    """
    uniforms = spread_evenly(NUM_SIMULATED, fitter.codes.shape[1])

    def misfit(fitted):
        return abs(misfit_of_uniques(fitted, f, phat, total, uniforms))

    best = fitter.fit(())
    smallest = misfit(best)
    while True:
        found, so_far = best, smallest
        for pair in candidates:
            if pair in best.edges:
                continue
            try:
                fitted = fitter.fit((*best.edges, pair))
            except MicrodataError:
                continue
            if (of_pair := misfit(fitted)) < smallest:
                found, smallest = fitted, of_pair
        if smallest == so_far:
            return best
        best = found


def misfit_of_uniques(
    fitted: Fitted, f: np.ndarray, phat: np.ndarray, total: float, uniforms: np.ndarray
) -> float:
    """Evaluate B_1 / se(B_1), which is above zero if the model has too few interactions.

    Notes
    -----
    B_1, an estimate of the bias of tau_1 (Skinner & Shlomo 2008, doi:10.1198/016214507000001328,
    section 3), with mu = phat lambda:

        sum_k lambda e^-lambda (1 - phat) {f - mu + (1 - phat) [(f - mu)^2 - f] / (2 phat)},

    where the sum is over all cells, also the empty ones. The sum as if all cells were empty is an
    expectation under the model, which is estimated from cells that are drawn from the model. The
    terms of the sample's cells are then corrected. Given the model, the terms in brackets are
    uncorrelated and have variances mu and 2 mu^2.
    """
    pooled = float(f.sum()) / total

    def terms(mean, count, fraction):
        weight = mean * np.exp(-mean) * (1 - fraction)
        away = count - fraction * mean
        return weight * (away + (1 - fraction) * (away**2 - count) / (2 * fraction))

    of_drawn = total * fitted.simulate(uniforms)[1]
    mean = total * fitted.share
    # Each cell is drawn with probability lambda / total.
    empty = total * np.mean(terms(of_drawn, 0.0, pooled) / of_drawn)
    misfit = empty + np.sum(terms(mean, f, phat) - terms(mean, 0.0, pooled))
    scale = np.exp(-2 * of_drawn) * (1 - pooled) ** 2
    variance = pooled * of_drawn + (1 - pooled) ** 2 * of_drawn**2 / 2
    total_variance = total * np.mean(scale * of_drawn * variance)
    # Zero if no unique is in doubt: cells have many records, or nearly all persons are sampled.
    return float(misfit / np.sqrt(total_variance)) if total_variance > 0 else 0.0


def list_cells(codes: np.ndarray, edges: Iterable[Edge], max_support: int) -> np.ndarray:
    """List the cells all of whose margins are positive, in lexicographic order."""
    num_levels, edges = codes.max(axis=0) + 1, list(edges)
    listed = np.unique(codes[:, 0])[:, None].astype(np.int32)
    for j in range(1, codes.shape[1]):
        occurs = np.bincount(codes[:, j]) > 0
        keep = np.broadcast_to(occurs, (len(listed), num_levels[j])).copy()
        for i in (i for i, end in edges if end == j):
            seen = np.zeros((num_levels[i], num_levels[j]), bool)
            seen[codes[:, i], codes[:, j]] = True
            keep &= seen[listed[:, i]]
        rows, levels = np.nonzero(keep)
        if len(rows) > max_support:
            raise MicrodataError(
                f"a log-linear model with two-way interactions has more than {max_support} cells "
                "of positive mean; choose fewer variables or levels, or main effects only"
            )
        listed = np.concatenate([listed[rows], levels[:, None].astype(np.int32)], axis=1)
    return listed


def fit_margins(
    listed: np.ndarray, codes: np.ndarray, weight: np.ndarray, edges: Iterable[Edge], bounds: Bounds
) -> tuple[np.ndarray, int, float]:
    """Fit two-way margins by iterative proportional fitting.

    Returns
    -------
    fitted
        Share of each listed cell.
    sweeps
        Number of sweeps that were made.
    discrepancy
        Largest difference between a fitted and an observed margin.
    """
    num_levels = codes.max(axis=0) + 1
    margins = []
    for i, j in edges:
        sizes = num_levels[[i, j]]
        seen, where = (joint_codes([x[:, i], x[:, j]], sizes) for x in (codes, listed))
        margins.append((where, np.bincount(seen, weight, minlength=sizes.prod())))
    fitted = np.full(len(listed), 1 / len(listed))
    most = min(bounds.max_sweeps, bounds.max_work / (len(listed) * len(margins)))
    sweep, discrepancy = 0, np.inf
    while discrepancy >= TOLERANCE and (sweep == 0 or sweep < most):
        sweep += 1
        fitted, away = rake_once(fitted, margins)
        discrepancy = float(max(x.max() for x in away))
    return fitted, sweep, discrepancy


def _positions(codes: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Position of each cell among the listed cells."""
    both = group_cells(np.concatenate([listed, codes]), codes.max(axis=0) + 1).record_cell
    position = np.empty(both.max() + 1, int)
    position[both[: len(listed)]] = np.arange(len(listed))
    return position[both[len(listed) :]]


def spread_evenly(size: int, dimensions: int) -> np.ndarray:
    """Points (size, dimensions) that fill the unit cube evenly: multiples of irrational numbers.

    The irrational numbers are powers of the root of x^(dimensions + 1) = x + 1 (the R sequence of
    M. Roberts).
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    return (0.5 + np.arange(1, size + 1)[:, None] * steps) % 1
