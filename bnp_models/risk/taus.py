"""tau_1 and tau_2 of a sample, and the risk of its cells, added up over blocks of posterior draws.

Each block has the probabilities q_c of the cells at some kept draws. Given q_c, the number F - f of
persons of a cell who are not in the sample is binomial. With the correction for overdispersion
(`bnp_models.risk.overdispersion`), whose posterior given f has shape shape_c + f, it is negative
binomial.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.contingency import ContingencyTable
from bnp_models.inference.convergence import batches_of, errors_of_means
from bnp_models.risk.evaluator import (
    Block,
    LogProbabilities,
    draw_joining,
    draw_taus,
    record_risks,
)
from bnp_models.risk.missing_keys import Completed
from bnp_models.risk.overdispersion import (
    AVERAGED_DRAWS,
    MODEL_HOLDS,
    Overdispersion,
    OverdispersionPosterior,
)
from bnp_models.risk.reciprocals import expected_reciprocal

TAUS = ("tau1", "tau2")


@dataclass(frozen=True, eq=False)
class OverdispersionDraws:
    """Draws of the correction for overdispersion, and tau_1 and tau_2 for comparison.

    If the correction is "on", the figures for comparison are those without it. If it is a
    "sensitivity" analysis, they are those with it.
    """

    shape: np.ndarray
    """(chains, draws) draws of the correction's shape; a draw without overdispersion has the value
    `overdispersion.MODEL_HOLDS`."""
    exponent: np.ndarray
    """(chains, draws) draws of the correction's exponent."""
    tau1: np.ndarray
    """(chains, draws) draws of tau_1 for comparison."""
    tau2: np.ndarray
    """(chains, draws) draws of tau_2 for comparison."""

    @property
    def present(self) -> np.ndarray:
        """(chains, draws) True for draws with overdispersion."""
        return self.shape < MODEL_HOLDS


class RiskSums:
    """Risk of the cells of a sample: draws of its figures, and sums over draws by cell.

    Parameters
    ----------
    cells
        Cells of the sample.
    num_new
        Number N - n of persons who are not in the sample.
    generator
        Generator for the counts, and for the draws of the correction.
    posterior
        Posterior of the correction for overdispersion, or None.
    on
        Whether the main figures use the correction, and those for comparison do not.
    all_records
        Whether E(1/F) is summed also of cells with several records.
    matching
        (C,) records that match those of each cell, where missing values are wildcards.
    incomplete
        (m,) rows of the incomplete records, where values are missing at random.
    kept
        (C,) probability that the values of each cell's records are their own, where some were
        changed at random before the release (`bnp_models.risk.misclassification`). No value is
        missing then.
    thinning
        Generator that draws which records have their own values.
    shape
        (chains, draws) of the draws that are added.
    superchain
        Number of consecutive chains that started at the same point.
    """

    def __init__(
        self,
        cells: ContingencyTable,
        num_new: int,
        generator: np.random.Generator,
        posterior: OverdispersionPosterior | None,
        on: bool,
        all_records: bool,
        matching: np.ndarray | None = None,
        incomplete: np.ndarray | None = None,
        *,
        kept: np.ndarray | None = None,
        thinning: np.random.Generator | None = None,
        shape: tuple[int, int],
        superchain: int = 1,
    ):
        self.cells, self.num_new, self.generator = cells, num_new, generator
        self.posterior, self.on = posterior, on
        self.counts = cells.counts if matching is None else matching
        self.random = incomplete is not None
        unique = self.counts == 1
        self.uniques = np.flatnonzero(unique & cells.complete if self.random else unique)
        self.rows = cells.first_rows[self.uniques]
        if incomplete is not None:
            self.rows = np.append(self.rows, incomplete)
        self.shared = np.flatnonzero(self.counts > 1) if all_records else self.uniques[:0]
        self.all_records = all_records
        self.asked = np.append(self.uniques, self.shared)
        self.kept, self.thinning = kept, thinning
        self.shape, self.batches = shape, batches_of(*shape, superchain)
        self.r1_of_batches = np.zeros((2 * shape[0] // superchain, len(self.rows)))
        self.done = 0
        self.r1 = np.zeros(len(self.rows))
        self.r2 = np.zeros(len(self.rows) + len(self.shared))
        self.alone = np.zeros(len(self.rows))
        self.by_draw: dict[str, list[np.ndarray]] = defaultdict(list)
        self.of_correction: dict[str, list[np.ndarray]] = defaultdict(list)
        self.unthinned: dict[str, list[np.ndarray]] = defaultdict(list)

    def add(self, block: Block, completed: Completed | None = None) -> None:
        """Add a block of draws, and the incomplete records as completed by these draws."""
        of_uniques = slice(len(self.uniques))
        of_sample, of_rest = block.of_sample.at(of_uniques), block.of_rest.at(of_uniques)
        alone = None
        if completed is not None:
            of_sample = of_sample.beside(completed.of_sample)
            of_rest = of_rest.beside(completed.of_rest)
            alone = self._alone(completed.codes)
            self.alone += alone.sum(axis=0)
            self.by_draw["num_uniques"].append(alone.sum(axis=1))
        corrections = self._draw_corrections(block)
        self._add_taus(of_sample, of_rest, corrections, alone)
        corrections = corrections if self.on else []
        self._add_risks(of_sample, of_rest, corrections, alone)
        if self.all_records:
            self._add_shared(block, corrections)
        self.by_draw["log_likelihood"].append(block.log_p @ self.cells.counts)
        self.by_draw["error"].append(np.median(block.relative_se, axis=1))

    def _draw_corrections(self, block: Block) -> list[Overdispersion]:
        """Draw several corrections for each draw; an empty list without a posterior of these."""
        if self.posterior is None:
            return []
        complete = np.exp(block.log_p[:, self.cells.complete])
        return self.posterior.draw(self.generator, complete, AVERAGED_DRAWS)

    def _add_taus(self, of_sample, of_rest, corrections, alone) -> None:
        """Add draws of tau_1 and tau_2, and those for comparison if there are corrections."""
        q = np.exp(of_rest.log_p)
        if corrections:
            first = corrections[0]
            beside = first.draw_probabilities(self.generator, np.exp(of_sample.log_p), q)
            if self.on:
                q, beside = beside, q
            self.of_correction["shape"].append(first.shape)
            self.of_correction["exponent"].append(first.exponent)
            self._draw_taus(self.of_correction, beside, alone)
        self._draw_taus(self.by_draw, q, alone)

    def _add_risks(self, of_sample, of_rest, corrections, alone) -> None:
        """Add r_1 and r_2 of the uniques."""
        evaluate = partial(_mean_risks, corrections)
        r1, r2 = _unbiased_risks(evaluate, of_sample, of_rest, self.num_new)
        if alone is not None:
            r1, r2 = r1 * alone, r2 * alone
        if self.kept is not None:
            r1, r2 = r1 * self.kept[self.uniques], r2 * self.kept[self.uniques]
        self.r1 += r1.sum(axis=0)
        np.add.at(self.r1_of_batches, self.batches[self.done : self.done + len(r1)], r1)
        self.done += len(r1)
        self.r2[: len(self.rows)] += r2.sum(axis=0)
        self.by_draw["tau1_conditional"].append(r1.sum(axis=1))
        self.by_draw["tau2_conditional"].append(r2.sum(axis=1))

    def _add_shared(self, block, corrections) -> None:
        """Add E(1/F) of the cells with several records."""
        first = corrections[0] if corrections else None
        evaluate = partial(shared_risks, first, self.counts[self.shared])
        rest = slice(len(self.rows), None)
        of_both = block.of_sample.at(rest), block.of_rest.at(rest)
        r2 = _unbiased_risks(evaluate, *of_both, self.num_new)[1].sum(axis=0)
        self.r2[rest] += r2 if self.kept is None else r2 * self.kept[self.shared]

    def _alone(self, codes: np.ndarray) -> np.ndarray:
        """Whether each complete unique and each completed record is the only record of its cell.

        The codes are those of the incomplete records, (block, m, J), as completed by each draw. The
        result is (block, U + m): the U complete uniques first.
        """
        cells, (block, size, width) = self.cells, codes.shape
        known, counts = cells.codes[cells.complete], cells.counts[cells.complete]
        together = np.concatenate([known, codes.reshape(-1, width)])
        grouped = group_cells(together, cells.schema.num_levels)
        of_known, of_drawn = np.split(grouped.record_cell, [len(known)])
        number = np.zeros(len(grouped.codes), np.int64)
        number[of_known] = counts
        draw = np.repeat(np.arange(block), size)
        _, same, times = np.unique(
            draw * len(number) + of_drawn, return_inverse=True, return_counts=True
        )
        alone = (number[of_drawn] + times[same.reshape(-1)] == 1).reshape(block, size)
        # Index of each cell among the complete uniques; U for the other cells.
        place = np.full(len(number), len(self.uniques))
        place[of_known[counts == 1]] = np.arange(len(self.uniques))
        taken = np.zeros((block, len(self.uniques) + 1), bool)
        taken[draw, place[of_drawn]] = True
        return np.concatenate([~taken[:, :-1], alone], axis=1)

    def _draw_taus(
        self, to: dict[str, list[np.ndarray]], q: np.ndarray, alone: np.ndarray | None
    ) -> None:
        """Add draws of tau_1 and tau_2 given the probabilities of the uniques' cells."""
        if self.kept is None:
            taus = draw_taus(self.generator, q, self.num_new, alone)
        else:
            taus = self._draw_thinned(q, record=to is self.by_draw)
        for name, tau in zip(TAUS, taus, strict=True):
            to[name].append(tau)

    def _draw_thinned(self, q: np.ndarray, record: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draws of tau_1 and tau_2 of the records whose values are their own.

        `record` says whether the figures of all records, from the same draws, are recorded.
        """
        assert self.kept is not None and self.thinning is not None
        joined, kept = draw_joining(self.generator, q, self.num_new), self.kept[self.uniques]
        alone, shares = joined == 0, 1 / (1 + joined)
        if record:
            self.unthinned["tau1"].append(alone.sum(axis=1, dtype=float))
            self.unthinned["tau2"].append(shares.sum(axis=1))
        own = self.thinning.random(q.shape) < kept
        return np.sum(alone & own, axis=1, dtype=float), shares @ kept

    def _concatenated(self, draws: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
        """Draws of all blocks, each (chains, draws)."""
        return {name: np.concatenate(parts).reshape(self.shape) for name, parts in draws.items()}

    def taus_of_all(self) -> dict[str, np.ndarray]:
        """Draws of tau_1 and tau_2 that ignore that values were changed; empty without `kept`."""
        return self._concatenated(self.unthinned)

    def figures(self) -> dict[str, Any]:
        """Fields of `PopulationRisk`."""
        shape = self.shape
        by_draw, of_correction = map(self._concatenated, (self.by_draw, self.of_correction))
        number, rows = math.prod(shape), self.rows
        # Of a chain with one draw, the second batch is empty.
        drawn = np.bincount(self.batches, minlength=len(self.r1_of_batches))
        order = np.argsort(rows)
        if self.random:
            order = order[self.alone[order] > 0]
        r2_of_cells = None
        if self.all_records:
            r2_of_cells = np.empty(len(self.cells.counts))
            r2_of_cells[self.asked] = self.r2 / number
        return by_draw | {
            "relative_error": float(np.median(by_draw.pop("error"))),
            "rows": rows[order],
            "r1": (self.r1 / number)[order],
            "r1_error": errors_of_means(self.r1_of_batches, drawn)[order],
            "r2": (self.r2[: len(rows)] / number)[order],
            "overdispersion": OverdispersionDraws(**of_correction) if of_correction else None,
            "r2_of_cells": r2_of_cells,
        }


def _mean_risks(corrections, log_b, num_new, log_q):
    """Means of r_1 and r_2 over the corrections of each draw; without any, those of the model."""
    if not corrections:
        return record_risks(log_q, num_new)
    return np.mean([one.record_risks(log_b, num_new, log_q) for one in corrections], axis=0)


def shared_risks(
    overdispersion: Overdispersion | None,
    counts: np.ndarray,
    log_b: np.ndarray,
    num_new: int,
    log_q: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate r_1 and r_2 of the records in cells that have several records of the sample.

    Parameters
    ----------
    overdispersion
        The correction for overdispersion for each of D draws; None for the model alone.
    counts
        (C,) records of the sample in each cell, at least 2.
    log_b, log_q
        (D, ..., C) logarithms of the model's probabilities, for a record of the sample and for one
        that is not in it.
    num_new
        N - n unsampled records.

    Returns
    -------
    r1
        Zeros, because there are other persons in the cell.
    r2
        E 1 / F.
    """
    q = np.exp(np.minimum(log_q, -1e-12))
    if overdispersion is None:
        return np.zeros(q.shape), expected_reciprocal(counts, -num_new, -q)
    b = np.exp(log_b)
    return np.zeros(q.shape), overdispersion.expected_reciprocals(counts, b, num_new * q)


def _unbiased_risks(
    evaluate: Callable, of_sample: LogProbabilities, of_rest: LogProbabilities, num_new: int
) -> tuple[np.ndarray, np.ndarray]:
    """r_1 and r_2 (draws, uniques); a jackknife over two halves corrects the Monte Carlo bias."""
    r1, r2 = evaluate(of_sample.log_p, num_new, of_rest.log_p)
    if of_sample.halves is None:
        return r1, r2
    r1_halves, r2_halves = evaluate(of_sample.halves, num_new, of_rest.halves)
    return 2 * r1 - r1_halves.mean(axis=1), 2 * r2 - r2_halves.mean(axis=1)
