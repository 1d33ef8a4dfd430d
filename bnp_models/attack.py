"""What an intruder who knows all records but one can tell of that one from synthetic files.

For a record x_i the intruder weighs x_i itself and every possible record that differs from it in
one variable. With all of them equally likely beforehand,

    rho_i(x)  proportional to  prod_m E[ L(theta; Y_m) | records with x in the place of x_i ]

where Y_m are the synthetic files and L their likelihood (Hu, Reiter & Wang 2014,
doi:10.1007/978-3-319-11257-2_15; Manrique-Vallier & Hu 2018, doi:10.1111/rssa.12352, section 3.2
and appendix; households and persons within them: Hu, Reiter & Wang 2018, doi:10.1214/16-BA1047,
supplement). The expectations are importance sampling estimates. That an intruder knows so much is
a worst case.

Two estimates. With g = log L and the ratio r = f(x | theta) / f(x_i | theta) of a draw given all
records, the papers' needs E[r e^g] / E[r], whose logarithm they take from the weighted mean and
variance of g: with files of thousands of records g varies by tens, and so does the error by several
units. The other needs a chain for each file with that file's records added to the sample: as
p(theta | X, Y_m) is proportional to p(theta | X) L(theta; Y_m),

    E[L(theta; Y_m) | x for x_i]  proportional to  E[r | X, Y_m] / E[r | X]

in which no likelihood of a file occurs (`refit` makes the chains).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from os import PathLike
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.attack_targets import HouseholdTargets, RecordTargets
from bnp_models.diagnostics import diagnose
from bnp_models.households import Households
from bnp_models.kernels.importance import (
    benjamini_hochberg,
    log_gamma_means,
    moment_sums,
    pareto_k,
    ranks_of_first,
    top_rank_p_values,
    weighted_sums,
)
from bnp_models.microdata import Microdata, MicrodataError
from bnp_models.posterior import Posterior, check_source, model_of
from bnp_models.rules import Rules
from bnp_models.sampling import Run, sample
from bnp_models.synthesis import spaced_positions
from bnp_models.zeros import StructuralZeros

ESTIMATORS = ("gamma", "direct", "refit")
TARGETS = ("household", "person")

FDR = 0.005
"""False discovery rate at which records are declared safe."""

MAX_PARETO_K = 0.7

MAX_ERROR = 0.5
"""Standard error of a typical log odds above which ranks say little."""

MAX_DRAWS = 1000
"""Draws used, by default."""

TOP = (1, 2, 3, 5, 10)
"""Ranks k of the file-level measure tau_k."""

# Options of models that change how chains move, but not where to.
_MOVES = ("augmentation", "reorder", "split_merge_every", "swap")

# Autocorrelation times in a block of draws that the bootstrap takes whole, and blocks at least and
# at most.
_TIMES_IN_BLOCK, _MIN_BLOCKS, _MAX_BLOCKS = 5, 20, 200

# Bytes of one array of log ratios.
_BYTES_AT_ONCE = 2**26


@dataclass(frozen=True, eq=False)
class AttackRisk:
    """How likely an intruder is to guess each of the attacked records, and how sure that is."""

    COLUMNS: ClassVar[frozenset[str]] = frozenset((
        "row", "rho", "candidates", "rank", "p_value", "adjusted_p", "standard_error", "pareto_k",
        "at_risk",
    ))  # fmt: skip
    """Names of the figures in the table of records, which no variable may have."""

    target: str
    """"record", "household" or "person": what is guessed."""
    table: Microdata | Households
    rows: np.ndarray
    """(A,) 0-based rows of the records or persons attacked; of households, their numbers."""
    columns: tuple[tuple[str, object], ...]
    """(C - 1) variable and label that each candidate but the truth has instead."""
    rho: np.ndarray
    """(A, C) probability of every candidate, the truth first; nan where there is none."""
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
    """Blocks of consecutive draws, which the bootstrap takes whole."""
    block_length: int
    """Draws of the longest."""
    times_in_block: float
    """Autocorrelation times of the files' log likelihood in it."""
    log_likelihood: np.ndarray
    """(L, chains, draws) log likelihood of each synthetic file, and with refits of each again at
    the draws that know it."""
    estimator: str
    """"gamma", "direct" or "refit"."""
    impossible_weight: int
    """What each impossible household that was drawn stands for, above 1 in cap-and-weight."""

    @cached_property
    def adjusted(self) -> np.ndarray:
        """(A, len(top)) p-values adjusted by Benjamini & Hochberg, each k by itself."""
        if not len(self.rows):
            return self.p_values
        return np.asarray(jax.vmap(benjamini_hochberg, 1, 1)(jnp.asarray(self.p_values)))

    @property
    def at_risk(self) -> np.ndarray:
        """(A, len(top)) whether rank k or better cannot be rejected."""
        return self.adjusted > self.fdr

    @property
    def tau(self) -> dict[int, float]:
        """Share of the attacked that are at risk, by k: the file-level tau_k."""
        share = self.at_risk.mean(axis=0) if len(self.rows) else np.zeros(len(self.top))
        return {k: float(x) for k, x in zip(self.top, share, strict=True)}

    @property
    def num_candidates(self) -> np.ndarray:
        """(A,) candidates of each, the truth included."""
        return np.isfinite(self.rho).sum(axis=1)

    @property
    def worst_k(self) -> np.ndarray:
        """(A,) largest Pareto k among the candidates of each."""
        return np.nanmax(self.pareto_k, axis=1)

    @property
    def typical_error(self) -> np.ndarray:
        """(A,) median standard error of the log odds of each one's candidates; 0 without any."""
        errors = np.where(np.isfinite(self.rho[:, 1:]), self.standard_error[:, 1:], np.nan)
        alone = self.num_candidates == 1
        return np.nanmedian(np.where(alone[:, None], 0, errors), axis=1)

    def records(self) -> pd.DataFrame:
        """One row per attacked record, the largest rho first: row, its values, the figures.

        Columns after the values: ``rho`` of the truth, ``candidates``, ``rank`` of the truth,
        ``p_value`` and ``adjusted_p`` of the hypothesis that it ranks first, the median
        ``standard_error`` of the log odds and the largest ``pareto_k`` of its candidates, and
        whether it is ``at_risk``.
        """
        frame = self._values()
        frame["rho"], frame["candidates"] = self.rho[:, 0], self.num_candidates
        frame["rank"] = self.rank
        frame["p_value"], frame["adjusted_p"] = self.p_values[:, 0], self.adjusted[:, 0]
        frame["standard_error"], frame["pareto_k"] = self.typical_error, self.worst_k
        frame["at_risk"] = self.at_risk[:, 0]
        order = np.lexsort((self.rows, -frame["p_value"], frame["rank"], -frame["rho"]))
        return frame.iloc[order].reset_index(drop=True)

    def _values(self):
        """What identifies each attacked record, and its values."""
        if self.target != "household":
            persons = self.table.persons if self.target == "person" else self.table
            frame = persons.to_frame().iloc[self.rows].reset_index(drop=True)
            frame.insert(0, "row", self.rows)
            return frame
        frame = pd.DataFrame({"row": [self.table.first_row(int(i)) for i in self.rows]})
        schema = self.table.schema
        frame[schema.household] = self.table.ids[self.rows]
        frame["persons"] = self.table.sizes[self.rows]
        codes = self.table.household_codes[self.rows]
        for k, name in enumerate(schema.household_variables):
            labels = np.array(schema.household_levels[k], dtype=object)
            frame[name] = pd.Series(labels[codes[:, k]]).infer_objects()
        return frame

    def candidates(self, row: int) -> pd.DataFrame:
        """What the intruder weighs for one record, the most likely first.

        Parameters
        ----------
        row
            One of `rows`.

        Returns
        -------
        frame
            ``variable`` and ``value`` that differ from the truth (none for the truth), ``rho`` and
            ``pareto_k``.

        Raises
        ------
        ValueError
            If that record was not attacked.
        """
        found = np.flatnonzero(self.rows == row)
        if not found.size:
            raise ValueError(f"row {row} was not attacked; choose one of `rows`")
        i = found[0]
        valid = np.flatnonzero(np.isfinite(self.rho[i]))
        named = [(None, None), *self.columns]
        frame = pd.DataFrame({
            "variable": [named[c][0] for c in valid],
            "value": [named[c][1] for c in valid],
            "rho": self.rho[i, valid],
            "pareto_k": self.pareto_k[i, valid],
        })  # fmt: skip
        return frame.sort_values("rho", ascending=False, kind="stable", ignore_index=True)

    def summary(self) -> dict:
        """The figures of the file, as JSON values."""
        number, rho = len(self.rows), self.rho[:, 0]
        sets = self.pareto_k[:, 1:][np.isfinite(self.rho[:, 1:])]
        ranked = (self.rank[:, None] <= np.array(self.top)).sum(axis=0)
        by_top = partial(zip, [str(k) for k in self.top], strict=True)
        return {
            "target": self.target,
            "attacked": number,
            "files": self.num_files,
            "estimator": self.estimator,
            "draws": self.log_likelihood[0].size,
            "blocks": self.num_blocks,
            "draws_per_block": self.block_length,
            "bootstrap_replicates": self.num_bootstrap,
            "false_discovery_rate": self.fdr,
            "tau": {str(k): share for k, share in self.tau.items()},
            "at_risk": {k: int(n) for k, n in by_top(self.at_risk.sum(axis=0))},
            "ranked_within": {k: int(n) for k, n in by_top(ranked)},
            "rho": None if not number else {
                "mean": float(rho.mean()), "max": float(rho.max()),
                "mean_before": float((1 / self.num_candidates).mean()),
            },
            "standard_error": float(np.median(self.typical_error)) if number else None,
            "pareto_k": None if not number else {
                "max": float(sets.max()) if sets.size and np.isfinite(sets.max()) else None,
                "weight_sets": int(sets.size),
                "above_0.7": int((sets > MAX_PARETO_K).sum()),
            },
            "log_likelihood": [diagnose(values) for values in self.log_likelihood],
            "warnings": self.warnings(),
        }  # fmt: skip

    def warnings(self) -> list[str]:
        """What stands in the way of trusting the figures, in words."""
        number, sentences = len(self.rows), []
        if not number:
            return [f"no {self.target} was attacked: none is alone with its values"]
        bad = int((self.worst_k > MAX_PARETO_K).sum())
        if bad:
            sentences.append(
                f"importance weights with heavy tails (Pareto k above {MAX_PARETO_K}) for "
                f"candidates of {bad:,} of {number:,} attacked: their rho and rank are not to be "
                "trusted; sample more draws"
            )
        error = float(np.median(self.typical_error))
        if error > MAX_ERROR:
            remedy = "sample more draws"
            if self.estimator == "gamma":
                remedy = "sample more draws, or refit with each file"
            factor = "over a million" if error > math.log(1e6) else f"{math.exp(error):.2g}"
            sentences.append(
                f"rho is uncertain by a factor of {factor} (standard error of a typical log odds "
                f"{error:.2g}): ranks are largely chance, and few records can be declared safe; "
                f"{remedy}"
            )
        few, short = self.num_blocks < _MIN_BLOCKS, self.times_in_block < _TIMES_IN_BLOCK
        if few or short:
            sentences.append(
                f"the bootstrap's {self.num_blocks} blocks of up to {self.block_length} draws are "
                f"too {'few' if few else 'short'} (at least {_MIN_BLOCKS}, of {_TIMES_IN_BLOCK} "
                "autocorrelation times), so that its p-values are too sure: sample more draws, or "
                "further apart"
            )
        if self.impossible_weight > 1:
            sentences.append(
                f"approximation: each impossible household drawn stands for "
                f"{self.impossible_weight} (cap-and-weight), and the draws are taken for those of "
                "the exact posterior; synthesise without for that"
            )
        least = 1 / (self.num_bootstrap + 1)
        if least > self.fdr:
            sentences.append(
                f"with {self.num_bootstrap} bootstrap replicates no p-value is below {least:.2g}, "
                f"so that nothing can be declared safe at {self.fdr:g}; ask for at least "
                f"{round(2 / self.fdr)}"
            )
        rhats = [diagnose(values)["rhat"] for values in self.log_likelihood]
        rhats = [x for x in rhats if x is not None and x > 1.05]
        if rhats:
            sentences.append(
                "the chains disagree on how likely the synthetic files are (R-hat "
                f"{max(rhats):.3f}, should be below 1.05): sample longer"
            )
        return sentences


def attack_risk(
    source: Run | Posterior | str | PathLike,
    table: Microdata | Households,
    synthetic: Sequence[pd.DataFrame | Microdata | Households],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    target: str | None = None,
    rows: Sequence[int] | None = None,
    refits: Sequence[Run | Posterior | str | PathLike] | None = None,
    estimator: str | None = None,
    num_datasets: int | None = None,
    num_bootstrap: int = 1000,
    fdr: float = FDR,
    top: Sequence[int] = TOP,
    max_draws: int = MAX_DRAWS,
    records_at_once: int | None = None,
    progress: bool = False,
) -> AttackRisk:
    """Probabilities that an intruder who knows the sample but for one record gives to that one.

    Parameters
    ----------
    source
        The chains that the synthetic files come from: a run that kept its ``parameters``, what
        `read_posterior` returns, or the path of a ``posterior.nc`` of ``bnp-models synthesize``.
    table
        The sample that was synthesised, coded as it was then.
    synthetic
        The M files: frames, or tables coded as the sample is.
    key
        For the bootstrap, and for P(possible) where rules give it no closed form.
    conditions
        Structural zeros or rules, those of the run; by default none, or what a `Run` holds.
    target
        Of persons within households, "household" (the default: one variable of the household or
        of one member is wrong) or "person" (one variable of one person is, everything else of the
        household being known).
    rows
        Records or persons to attack, by their 0-based row; households by their number. Default:
        those that are alone with their values in the sample, as the others are known already.
        Incomplete ones cannot be attacked.
    refits
        Chains on the sample with each of the files added, from `refit`: a far smaller error.
    estimator
        "refit" with refits. Without, "gamma" (the default), which takes -log L to be gamma
        distributed with the weighted mean and variance, as the paper; or "direct", which averages
        L itself, of use for a handful of synthetic records only.
    num_datasets
        Files that were made from these draws, if `synthetic` is not all of them and the source does
        not say it. The draws that they came from are left out: to those the files look far too
        likely.
    num_bootstrap
        Bootstrap replicates B; no p-value is below 1 / (B + 1).
    fdr
        False discovery rate at which records are declared safe.
    top
        Ranks k of the hypotheses.
    max_draws
        Use about so many draws of each posterior at most, evenly spaced.
    records_at_once
        Records treated together; changes nothing but memory and speed.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    MicrodataError
        If a source is of another sample, other conditions or another model, a refit of a model with
        other options, or the synthetic files do not have the sample's columns and levels.
    ValueError
        On settings out of range, or records that cannot be attacked.

    Notes
    -----
    A bootstrap replicate takes blocks of consecutive draws with replacement, of at least five
    autocorrelation times of log L where there are enough draws; the same blocks serve all records
    and candidates. H(i, k), that the truth ranks among the first k, is tested by the k-th largest
    log odds against the truth in units of its standard error, compared with the largest error among
    the other candidates in each replicate: a rank that is poor by Monte Carlo error only is not
    rejected, whereas the share of replicates with a rank of at most k would be small wherever that
    error is large. The p-values are adjusted over records by Benjamini & Hochberg, and a record
    whose hypothesis is not rejected is at risk: noisy draws make more records at risk, not fewer.

    Weights are f(x | theta) / f(x_i | theta): the probability of a possible record is a constant
    over both. The likelihood of a file contains it. Households of synthetic files are drawn given
    their sizes, and so is their likelihood. Where members' values are relative to the head's, a
    candidate is as likely as what it is coded as: with another head all members are coded anew.
    """
    _check_settings(table, target, num_bootstrap, fdr, top, max_draws)
    if not len(synthetic):
        raise ValueError("no synthetic file is given")
    estimator = _checked_estimator(estimator, refits, table, synthetic)
    posterior, conditions = check_source(source, table, conditions)
    model = model_of(posterior)
    if isinstance(table, Households):
        targets = HouseholdTargets(model, table, conditions, target or "household", rows)
    else:
        targets = RecordTargets(table, conditions, rows)
    files = [_coded(frame, table, m) for m, frame in enumerate(synthetic)]
    if num_datasets is None:
        num_datasets = int(posterior.attributes.get("num_datasets", len(files)))
    posteriors, used = [posterior], [num_datasets]
    for m, one in enumerate(refits or ()):
        posteriors.append(check_source(one, _with_file(table, files[m]), conditions)[0])
        _check_same_model(model, model_of(posteriors[-1]), m)
        used.append(0)
    draws = _chosen_draws(posteriors, used, max_draws)
    key_bootstrap, key_possible = jax.random.split(key)
    log_l = [targets.log_likelihood(draws[0], files, key_possible, progress)]
    for own, file in zip(draws[1:], files, strict=False):
        log_l.append(targets.log_likelihood(own, [file], key_possible, progress))
    num_chains = posterior.parameters["log_pi"].shape[0]
    log_l = np.concatenate(log_l).reshape(-1, num_chains, len(draws[0]["log_pi"]) // num_chains)
    index, present, times = _blocks(log_l)
    judge = partial(
        _judge, present=jnp.asarray(present), num_draws=log_l[0].size, top=tuple(top),
        counts=_bootstrap_counts(key_bootstrap, len(posteriors), len(index), num_bootstrap),
        estimator=estimator, **_values(log_l[: len(files)], index, present, estimator),
    )  # fmt: skip
    padded = [
        {name: jnp.asarray(value[index.reshape(-1)]) for name, value in own.items()}
        for own in draws
    ]
    number, width = len(targets.rows), 1 + len(targets.columns)
    rho, errors, shapes = np.full((3, number, width), np.nan, np.float32)
    rank, p_values = np.zeros(number, np.int32), np.zeros((number, len(top)))
    with tqdm(total=number, desc="attack", disable=not progress) as bar:
        for group in targets.groups():
            per_record = (1 + len(group.columns)) * len(draws) * index.size * 4
            at_once = records_at_once or int(np.clip(_BYTES_AT_ONCE // per_record, 1, 1024))
            at_once = min(at_once, len(group.which))
            of_group = np.concatenate([[0], group.columns + 1])
            for start in range(0, len(group.which), at_once):
                which = group.which[start : start + at_once]
                # The last part repeats a record, so that one compiled shape serves all.
                padding = np.minimum(start + np.arange(at_once), len(group.which) - 1)
                arrays, valid = group.prepare(group.which[padding])
                ratios = [group.log_ratio(own, *arrays) for own in padded]
                found = judge(jnp.stack(ratios, axis=1), jnp.asarray(valid))
                found = [np.asarray(x)[: len(which)] for x in found]
                for whole, part in zip((rho, errors, shapes), found, strict=False):
                    whole[which[:, None], of_group] = part
                rank[which], p_values[which] = found[3:]
                bar.update(len(which))
    return AttackRisk(
        target=targets.target, table=table, rows=targets.rows, columns=targets.columns, rho=rho,
        standard_error=errors, pareto_k=shapes, rank=rank, p_values=p_values, top=tuple(top),
        fdr=fdr, num_files=len(files), num_bootstrap=num_bootstrap, num_blocks=len(index),
        block_length=index.shape[1], times_in_block=times, log_likelihood=log_l,
        estimator=estimator, impossible_weight=getattr(model, "impossible_weight", 1),
    )  # fmt: skip


def refit(
    model,
    table: Microdata | Households,
    synthetic: Sequence[pd.DataFrame | Microdata | Households],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    **how,
) -> list[Run]:
    """Run a model's chains on the sample with each synthetic file added: for `attack_risk`.

    Parameters
    ----------
    model, table, conditions
        Those of the run that the files come from.
    synthetic
        The M files.
    key
        Split, one for each file.
    how
        Further arguments of `bnp_models.sample`.

    Raises
    ------
    MicrodataError
        If a file does not have the sample's columns and levels.

    Notes
    -----
    Households are an approximation: those of a file are drawn given their sizes, and count here as
    households whose sizes say something too. What sizes say of classes is then heard twice.
    """
    files = [_coded(frame, table, m) for m, frame in enumerate(synthetic)]
    keys = jax.random.split(key, len(files))
    return [
        sample(model, _with_file(table, file), key=own, conditions=conditions, **how)
        for own, file in zip(keys, files, strict=True)
    ]


def _with_file(table, file):
    """The sample with a file added."""
    if isinstance(table, Households):
        pairs = [(getattr(table, name), getattr(file, name)) for name in
                 ("household_codes", "sizes", "member_codes")]  # fmt: skip
        return Households(table.schema, *map(np.concatenate, pairs))
    return Microdata(table.schema, np.concatenate([table.codes, file.codes]))


def _check_settings(table, target, num_bootstrap, fdr, top, max_draws):
    if isinstance(table, Households):
        if target not in (None, *TARGETS):
            raise ValueError(f"target is one of {', '.join(TARGETS)}, not {target!r}")
        names = {table.schema.household, *table.schema.table.variables}
        names |= {*table.schema.household_variables}
    else:
        if target not in (None, "record"):
            raise ValueError(f"target {target!r} is of households; leave it out")
        names = set(table.schema.variables)
    taken = AttackRisk.COLUMNS.intersection(names)
    if taken:
        raise ValueError(f"rename the variable {min(taken)!r}: the table of records has its own")
    if num_bootstrap < 1:
        raise ValueError(f"num_bootstrap must be at least 1, not {num_bootstrap}")
    if not 0 < fdr < 1:
        raise ValueError(f"fdr must be between 0 and 1, not {fdr}")
    if not len(top) or min(top) < 1:
        raise ValueError(f"top needs ranks of at least 1, not {tuple(top)}")
    if max_draws < 2:
        raise ValueError(f"max_draws must be at least 2, not {max_draws}")


def _check_same_model(model, other, m):
    """Refits are weighed against the run, and so are of its posterior, whatever their moves."""
    for field in fields(model):
        name = field.name
        if name not in _MOVES and getattr(model, name) != getattr(other, name):
            raise MicrodataError(
                f"refit {m + 1} is of a model with {name} {getattr(other, name)}, the run with "
                f"{getattr(model, name)}; refit with the run's"
            )


def _checked_estimator(estimator, refits, table, synthetic):
    """The estimator that is asked for, by name or by the refits that are given."""
    if estimator is None:
        estimator = "gamma" if refits is None else "refit"
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is one of {', '.join(ESTIMATORS)}, not {estimator!r}")
    if (estimator == "refit") != (refits is not None):
        raise ValueError('estimator "refit" goes with refits, and no other one does')
    if refits is not None:
        if len(refits) != len(synthetic):
            raise ValueError(f"{len(refits)} refits for {len(synthetic)} synthetic files")
    return estimator


def _coded(frame, table, m):
    """A synthetic file with the codes of the sample."""
    try:
        if isinstance(frame, Microdata | Households):
            made = frame
            if made.schema != table.schema:
                raise MicrodataError("has other variables or levels than the sample")
        elif isinstance(table, Households):
            schema = table.schema
            made = Households.from_frame(
                frame, schema.household, schema.household_level,
                (schema.household, *schema.table.variables), schema.table, schema.head,
            )  # fmt: skip
            if made.schema != schema:
                raise MicrodataError("has other variables or levels than the sample")
        else:
            made = Microdata.from_frame(frame, table.schema.variables, table.schema)
        if isinstance(made, Households) and not np.isin(made.sizes, table.sizes).all():
            raise MicrodataError(
                "has households of sizes that the sample has not, so it was not made from it"
            )
        made.require_complete("the attack")
    except MicrodataError as error:
        raise error.in_file(f"synthetic file {m + 1}") from None
    return made


def _chosen_draws(posteriors, used, max_draws):
    """Of each posterior, the parameters at as many draws of each chain, none that made a file."""
    shapes = [posterior.parameters["log_pi"].shape[:2] for posterior in posteriors]
    num_chains = shapes[0][0]
    if any(shape[0] != num_chains for shape in shapes):
        raise ValueError("the refits have another number of chains than the run")
    left = []
    for (_, num_draws), number in zip(shapes, used, strict=True):
        made = set(spaced_positions(num_chains, num_draws, number)) if number else set()
        left.append([
            [d for d in range(num_draws) if (chain, d) not in made] for chain in range(num_chains)
        ])  # fmt: skip
    number = min(max(max_draws // num_chains, 1), *(len(own) for part in left for own in part))
    if number * num_chains < 2:
        raise ValueError(
            f"{num_chains * shapes[0][1]} draws, of which {used[0]} made a synthetic file, are too "
            "few"
        )
    chosen = []
    for posterior, part in zip(posteriors, left, strict=True):
        draw = np.array([
            np.array(own)[np.linspace(0, len(own) - 1, number).round().astype(int)] for own in part
        ])  # fmt: skip
        chain = np.arange(num_chains)[:, None]
        chosen.append({
            name: value[chain, draw].reshape(-1, *value.shape[2:])
            for name, value in posterior.parameters.items()
        })  # fmt: skip
    return chosen


def _blocks(log_l):
    """Draws in blocks of consecutive ones, as even as they come, and how long these are.

    Returns
    -------
    index, present
        (blocks, L) flat indices of the draws, and whether it is one or fills up the block.
    times
        Autocorrelation times of log L in the longest block.
    """
    num_chains, num_draws = log_l.shape[1:]
    ess = [diagnose(values)["ess_bulk"] for values in log_l]
    time = max([1.0, *(num_chains * num_draws / x for x in ess if x)])
    most, least = -(-_MAX_BLOCKS // num_chains), -(-_MIN_BLOCKS // num_chains)
    number = min(max(int(num_draws / (_TIMES_IN_BLOCK * time)), least), most, num_draws)
    parts = [
        chain * num_draws + part
        for chain in range(num_chains)
        for part in np.array_split(np.arange(num_draws), number)
    ]
    length = max(map(len, parts))
    index = np.stack([np.pad(part, (0, length - len(part)), mode="edge") for part in parts])
    present = np.arange(length) < np.array([len(part) for part in parts])[:, None]
    return index, present, length / time


def _bootstrap_counts(key, num_posteriors, num_blocks, num_bootstrap):
    """(posteriors, replicates, blocks): how often each is taken; once in the first replicate."""
    shape = (num_posteriors, num_bootstrap, num_blocks)
    drawn = jax.random.randint(key, shape, 0, num_blocks).reshape(-1, num_blocks)
    counts = jax.vmap(lambda own: jnp.zeros(num_blocks, jnp.int32).at[own].add(1))(drawn)
    ones = jnp.ones((num_posteriors, 1, num_blocks), jnp.int32)
    counts = jnp.concatenate([ones, counts.reshape(shape)], axis=1)
    return counts.astype(jnp.result_type(float))


def _values(log_l, index, present, estimator):
    """log L in blocks, less a constant that is returned too, or what the estimator wants of it."""
    if estimator == "refit":
        return {"values": None, "centre": None}
    in_blocks = log_l.reshape(len(log_l), -1)[:, index]
    if estimator == "gamma":
        centre = log_l.mean(axis=(1, 2))
        values = in_blocks - centre[:, None, None]
    else:
        centre = log_l.max(axis=(1, 2))
        values = np.exp(in_blocks - centre[:, None, None])
    dtype = jnp.result_type(float)
    values = jnp.asarray(np.where(present, values, 0), dtype)
    return {"values": values, "centre": jnp.asarray(centre, dtype)}


@partial(jax.jit, static_argnames=("num_draws", "top", "estimator"))
def _judge(log_ratio, valid, *, values, centre, present, counts, num_draws, top, estimator):
    """Judge several records.

    Parameters
    ----------
    log_ratio
        (A, P, C - 1, draws) log weights of the candidates but the truth, by posterior.
    valid
        (A, C - 1) which of these there are.
    values, centre, present, counts
        Of the draws in blocks.

    Returns
    -------
    rho, standard_error, pareto_k, rank, p_values
        As `AttackRisk` has them.
    """

    def one(arguments):
        log_weight, valid = arguments
        # The truth, whose weights are equal, goes first; what is no candidate has equal ones too.
        log_weight = jnp.pad(jnp.where(valid[:, None], log_weight, 0), ((0, 0), (1, 0), (0, 0)))
        log_weight = jnp.where(present.reshape(-1), log_weight, -jnp.inf)
        valid = jnp.pad(valid, (1, 0), constant_values=True)
        in_blocks = log_weight.reshape(*log_weight.shape[:2], *present.shape)
        score = _scores(in_blocks, values, centre, counts, estimator)
        log_odds = score - score[:, :1]
        rho = jax.nn.softmax(jnp.where(valid, score[0], -jnp.inf))
        shape = jnp.max(jax.vmap(partial(pareto_k, num_draws=num_draws))(log_weight), axis=0)
        error, p_values = top_rank_p_values(log_odds, valid, top)
        gone = jnp.where(valid, 0, jnp.nan)
        return rho + gone, error + gone, shape + gone, ranks_of_first(score[0], valid), p_values

    return jax.lax.map(one, (log_ratio, valid))


def _scores(in_blocks, values, centre, counts, estimator):
    """(replicates, C): log of what rho is proportional to, up to a constant."""

    def replicated(sums, counts):
        return jnp.einsum("rb,bn...->rn...", counts, sums, precision=jax.lax.Precision.HIGHEST)

    if estimator == "gamma":
        sums = replicated(moment_sums(in_blocks[0], values), counts[0])
        return log_gamma_means(sums, centre)
    if estimator == "direct":
        sums = jnp.log(replicated(weighted_sums(in_blocks[0], values), counts[0]))
        return jnp.sum(sums[..., 1:] - sums[..., :1], axis=-1)
    score = 0.0
    for p, own in enumerate(in_blocks):
        top = jnp.max(own, axis=(1, 2))
        sums = replicated(jnp.sum(jnp.exp(own - top[:, None, None]), axis=2).T, counts[p])
        sums = jnp.log(jnp.maximum(sums, jnp.finfo(sums.dtype).tiny)) + top
        score = score + sums * (1 if p else 1 - len(in_blocks))
    return score
