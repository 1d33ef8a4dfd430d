"""Result of an attack on synthetic files: risks by target, and their error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed, title_of
from bnp_models.data.documents import Document, Keywords, Share, Warnings
from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Microdata
from bnp_models.evaluation.attack.bootstrap import MIN_BLOCKS, TIMES_IN_BLOCK
from bnp_models.inference.convergence import MAX_RHAT, Figures, figures_of

FDR = 0.005
"""False discovery rate at which records are declared safe."""

MAX_PARETO_K = 0.7

MAX_ERROR = 0.5
"""Limit for the typical standard error of log odds; above it, ranks mean little."""

TOP = (1, 2, 3, 5, 10)
"""Ranks k of the file-level measure tau_k."""

_BY_RANK = Keywords(propertyNames={"pattern": "^[0-9]+$"})

# A field's name cannot contain a point.
ParetoK = Annotated[
    Mapping[str, float | None],
    Keywords(
        properties={
            "max": {"type": ["number", "null"]},
            "weight_sets": {"type": "integer", "minimum": 0},
            "above_0.7": {"type": "integer", "minimum": 0},
        },
        required=["max", "weight_sets", "above_0.7"],
        additionalProperties=False,
    ),
]


class RhoEntry(Document):
    """Posterior probability of the true value."""

    mean: float
    max: float
    mean_before: float
    """Mean probability of the true value before the files are seen."""


class AttackEntry(Document):
    """Knowledge that an intruder who knows all records but one can gain about that record."""

    target: Annotated[str, Keywords(enum=["record", "person", "household"])]
    attacked: int
    """Number of records whose combination of values is unique."""
    files: int
    estimator: str
    draws: int
    blocks: int
    draws_per_block: int
    bootstrap_replicates: int
    false_discovery_rate: Share
    tau: Annotated[Mapping[str, Share], _BY_RANK]
    """Estimated share of the attacked records whose true value is among the first k guesses of an
    intruder."""
    at_risk: Annotated[Mapping[str, int], _BY_RANK]
    """Number of attacked records for which it cannot be ruled out, at the false discovery rate,
    that the true value is among the first k guesses."""
    ranked_within: Annotated[Mapping[str, int], _BY_RANK]
    """Number of attacked records whose true value has an estimated rank of at most k."""
    in_words: str
    rho: RhoEntry | None
    standard_error: float | None
    """Standard error of the log odds of rho, median over the attacked records."""
    pareto_k: ParetoK | None
    log_likelihood: Sequence[Figures]
    """Diagnostics of the chains on the original and, if there are refits, of the chains on the
    original with each file added."""
    warnings: Warnings


@dataclass(frozen=True, eq=False)
@displayed
class AttackRisk:
    """Probability that an intruder guesses each of the attacked records, and its error.

    Notes
    -----
    A bootstrap replicate takes blocks of consecutive draws with replacement. A block has at least
    five autocorrelation times of log L if there are enough draws. All records and candidates use
    the same blocks. H(i, k) is the hypothesis that the truth of record i ranks among the first k.
    The test statistic is the k-th largest log odds of a candidate against the truth, in units of
    its standard error. It is compared with the largest error among the other candidates in each
    replicate, so that H(i, k) is not rejected if the rank is large only because of Monte Carlo
    error. (The share of replicates with a rank of at most k would be a wrong p-value, because it is
    small whenever that error is large.) The p-values are adjusted over records by Benjamini &
    Hochberg. A record whose hypothesis is not rejected counts as at risk, so that noisy draws put
    more records at risk, not fewer.

    Examples
    --------
    >>> attack = bnp.attack_risk(run, table, files, key=jax.random.key(1), rows=[0, 1])
    >>> sorted(attack.records()["row"])
    [0, 1]
    >>> sorted(attack.tau)
    [1, 2, 3, 5, 10]
    """

    COLUMNS: ClassVar[frozenset[str]] = frozenset((
        "row", "rho", "candidates", "rank", "p_value", "adjusted_p", "standard_error", "pareto_k",
        "at_risk",
    ))  # fmt: skip
    """Names of the figures in the table of records, which no variable may have."""

    target: str
    """Unit that is attacked: "record", "household" or "person"."""
    table: Microdata | Households
    rows: np.ndarray
    """(A,) 0-based rows of the attacked records or persons, or numbers of the households."""
    columns: tuple[tuple[str, object], ...]
    """Variable and label in which each of the C - 1 other candidates differs from the truth."""
    rho: np.ndarray
    """(A, C) probability of every candidate, the truth first; nan if it is not a candidate."""
    standard_error: np.ndarray
    """(A, C) bootstrap standard error of the log odds of every candidate against the truth."""
    pareto_k: np.ndarray
    """(A, C) Pareto k of each candidate's weights; 0 for the truth, whose weights are equal."""
    rank: np.ndarray
    """(A,) rank of the truth among the candidates, 1 for the most likely."""
    p_values: np.ndarray
    """(A, len(top)) p-values of the hypotheses that the truth ranks among the first k."""
    top: tuple[int, ...]
    """Ranks k."""
    fdr: float
    """False discovery rate of declaring records safe."""
    num_files: int
    """Synthetic files M."""
    num_bootstrap: int
    """Bootstrap replicates."""
    num_blocks: int
    """Number of blocks of consecutive draws, which the bootstrap takes as a whole."""
    block_length: int
    """Draws of the longest block."""
    times_in_block: float
    """Autocorrelation times of the files' log likelihood in the longest block."""
    log_likelihood: np.ndarray
    """(L, chains, draws) log likelihood of each synthetic file; with refits, then also of each file
    at the draws of the chains to which it was added."""
    estimator: str
    """"gamma", "direct" or "refit"."""

    @cached_property
    def adjusted(self) -> np.ndarray:
        """(A, len(top)) p-values adjusted by Benjamini & Hochberg, separately for each k."""
        if not len(self.rows):
            return self.p_values
        from scipy.stats import false_discovery_control

        return false_discovery_control(self.p_values, axis=0)

    @property
    def at_risk(self) -> np.ndarray:
        """(A, len(top)) whether it cannot be rejected that the truth has rank k or better."""
        return self.adjusted > self.fdr

    @property
    def tau(self) -> dict[int, float]:
        """Share of the attacked records that are at risk, by k: the file-level tau_k."""
        share = self.at_risk.mean(axis=0) if len(self.rows) else np.zeros(len(self.top))
        return {k: float(x) for k, x in zip(self.top, share, strict=True)}

    @property
    def num_candidates(self) -> np.ndarray:
        """(A,) number of candidates for each record, the truth included."""
        return np.isfinite(self.rho).sum(axis=1)

    @property
    def worst_k(self) -> np.ndarray:
        """(A,) largest Pareto k among the candidates for each record."""
        return np.nanmax(self.pareto_k, axis=1)

    @property
    def typical_error(self) -> np.ndarray:
        """(A,) median standard error of the log odds of a record's candidates; 0 without any."""
        errors = np.where(np.isfinite(self.rho[:, 1:]), self.standard_error[:, 1:], np.nan)
        alone = self.num_candidates == 1
        return np.nanmedian(np.where(alone[:, None], 0, errors), axis=1)

    def records(self) -> pd.DataFrame:
        """List the attacked records, the largest rho first: row, values and figures of each.

        Columns after the values: ``rho`` of the truth, number of ``candidates``, ``rank`` of the
        truth, ``p_value`` and ``adjusted_p`` of the hypothesis that the truth ranks first, the
        median ``standard_error`` of the log odds and the largest ``pareto_k`` of the candidates,
        and whether the record is ``at_risk``.
        """
        frame = self._values()
        frame["rho"], frame["candidates"] = self.rho[:, 0], self.num_candidates
        frame["rank"] = self.rank
        frame["p_value"], frame["adjusted_p"] = self.p_values[:, 0], self.adjusted[:, 0]
        frame["standard_error"], frame["pareto_k"] = self.typical_error, self.worst_k
        frame["at_risk"] = self.at_risk[:, 0]
        order = np.lexsort((self.rows, -frame["p_value"], frame["rank"], -frame["rho"]))
        return frame.iloc[order].reset_index(drop=True)

    def _values(self) -> pd.DataFrame:
        """Row or number of each attacked record, and its values."""
        if self.target == "household" and isinstance(self.table, Households):
            return self._values_of_households(self.table)
        frame = persons_of(self.table).to_frame().iloc[self.rows].reset_index(drop=True)
        frame.insert(0, "row", self.rows)
        return frame

    def _values_of_households(self, table: Households) -> pd.DataFrame:
        """First row, number, persons and values of each attacked household."""
        frame = pd.DataFrame({"row": [table.first_row(int(i)) for i in self.rows]})
        schema = table.schema
        frame[schema.household] = table.ids[self.rows]
        frame["persons"] = table.sizes[self.rows]
        codes = table.household_codes[self.rows]
        for k, name in enumerate(schema.household_variables):
            labels = np.array(schema.household_levels[k], dtype=object)
            frame[name] = pd.Series(labels[codes[:, k]]).infer_objects()
        return frame

    def candidates(self, row: int) -> pd.DataFrame:
        """List the candidates for one record, the most likely first.

        Parameters
        ----------
        row
            One of `rows`.

        Returns
        -------
        frame
            ``variable`` and ``value`` in which the candidate differs from the truth (none for the
            truth itself), ``rho`` and ``pareto_k``.

        Raises
        ------
        ValueError
            If that record was not attacked.
        """
        if row not in self.rows:
            raise ValueError(f"row {row} was not attacked; choose one of `rows`")
        i = np.flatnonzero(self.rows == row)[0]
        valid = np.flatnonzero(np.isfinite(self.rho[i]))
        named = [(None, None), *self.columns]
        columns = {
            "variable": [named[c][0] for c in valid],
            "value": [named[c][1] for c in valid],
            "rho": self.rho[i, valid],
            "pareto_k": self.pareto_k[i, valid],
        }
        frame = pd.DataFrame(columns)
        return frame.sort_values("rho", ascending=False, kind="stable", ignore_index=True)

    def in_words(self) -> str:
        """Sentence on the number of values that an intruder guesses at the first try."""
        first, open_ = self.rank == 1, self.at_risk[:, 0]
        sentence = (
            "by estimate, an intruder who knows the whole original except one value of a "
            f"{self.target} would guess this value correctly at the first try for {first.sum():,} "
            f"of the {counted(len(self.rows), self.target)} attacked"
        )
        if more := (open_ & ~first).sum():
            sentence += f"; for {more:,} more the draws are too few to rule this out"
        if ruled_out := (~open_ & ~first).sum():
            sentence += f"; for the other {ruled_out:,} this is ruled out"
        return sentence

    def summary(self) -> AttackEntry:
        """Figures of all attacked records together, as JSON values."""
        number, rho = len(self.rows), self.rho[:, 0]
        sets = self.pareto_k[:, 1:][np.isfinite(self.rho[:, 1:])]
        ranked = (self.rank[:, None] <= np.array(self.top)).sum(axis=0)
        by_top = partial(zip, [str(k) for k in self.top], strict=True)
        return AttackEntry(
            target=self.target,
            attacked=number,
            files=self.num_files,
            estimator=self.estimator,
            draws=self.log_likelihood[0].size,
            blocks=self.num_blocks,
            draws_per_block=self.block_length,
            bootstrap_replicates=self.num_bootstrap,
            false_discovery_rate=self.fdr,
            tau={str(k): share for k, share in self.tau.items()},
            at_risk=dict(by_top(self.at_risk.sum(axis=0))),
            ranked_within=dict(by_top(ranked)),
            in_words=self.in_words(),
            rho=None if not number else RhoEntry(
                mean=rho.mean(), max=rho.max(), mean_before=(1 / self.num_candidates).mean()
            ),
            standard_error=np.median(self.typical_error) if number else None,
            pareto_k=None if not number else {
                "max": sets.max() if sets.size and np.isfinite(sets.max()) else None,
                "weight_sets": sets.size,
                "above_0.7": (sets > MAX_PARETO_K).sum(),
            },
            log_likelihood=[figures_of(values) for values in self.log_likelihood],
            warnings=self.warnings(),
        )  # fmt: skip

    def warnings(self) -> list[str]:
        """Sentences on what makes the figures unreliable."""
        number, sentences = len(self.rows), []
        if not number:
            return [f"no {self.target} was attacked: none has a unique combination of values"]
        bad = int((self.worst_k > MAX_PARETO_K).sum())
        if bad:
            sentences.append(
                f"for {bad:,} of the {number:,} {self.target}s attacked, importance weights have "
                f"heavy tails (Pareto k above {MAX_PARETO_K}): do not trust the probability (rho) "
                "and the rank of their true values; sample more draws"
            )
        error = float(np.median(self.typical_error))
        if error > MAX_ERROR:
            remedy = "sample more draws"
            if self.estimator == "gamma":
                remedy = "sample more draws, or refit with each file"
            factor = "over a million" if error > math.log(1e6) else f"{math.exp(error):.2g}"
            sentences.append(
                f"rho is uncertain by a factor of {factor} (typical standard error of log odds "
                f"{error:.2g}): ranks are largely chance, and few records can be declared safe; "
                f"{remedy}"
            )
        few, short = self.num_blocks < MIN_BLOCKS, self.times_in_block < TIMES_IN_BLOCK
        if few or short:
            sentences.append(
                f"the bootstrap's {self.num_blocks} blocks of up to {self.block_length} draws are "
                f"too {'few' if few else 'short'} (there should be at least {MIN_BLOCKS} blocks, "
                f"of {TIMES_IN_BLOCK} autocorrelation times each), so that its p-values are "
                "overconfident: sample more draws, or draws that are further apart"
            )
        least = 1 / (self.num_bootstrap + 1)
        if least > self.fdr:
            sentences.append(
                f"with {self.num_bootstrap} bootstrap replicates no p-value is below {least:.2g}, "
                f"so that nothing can be declared safe at a false discovery rate of {self.fdr:g}; "
                f"use at least {round(2 / self.fdr)} replicates"
            )
        rhats = [
            rhat
            for values in self.log_likelihood
            if (rhat := figures_of(values)["rhat"]) is not None and rhat > MAX_RHAT
        ]
        if rhats:
            sentences.append(
                "the chains disagree on how likely the synthetic files are (R-hat "
                f"{max(rhats):.3f}, should be below {MAX_RHAT}): sample longer"
            )
        return sentences

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "sample": title_of(self.table),
            "files": self.num_files,
            "estimator": self.estimator,
            "at risk, rank k or better": ", ".join(f"{k}: {x:.1%}" for k, x in self.tau.items()),
        }
        what = counted(len(self.rows), self.target)
        return Shown(f"AttackRisk: {what} attacked", lines, self.records())
