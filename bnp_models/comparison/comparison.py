"""Several models of one sample: held-out prediction, predictive checks and tau_1 of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pandas as pd
from scipy.special import logsumexp

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed, spread, title_of
from bnp_models.data.frames import code_like
from bnp_models.data.microdata import Microdata
from bnp_models.data.weight_classes import require_unweighted
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.interruption import OutOfTime
from bnp_models.inference.run import AllDraws, RecordsRun, Run
from bnp_models.inference.sampling import NUM_SAMPLES, coded_input, positive_minutes, sample
from bnp_models.kernels.variates.rng import Keys, key_array, numpy_generator
from bnp_models.models.model import Model
from bnp_models.models.options import typed_key
from bnp_models.risk.evaluator import cell_probabilities, checked_method, checked_model
from bnp_models.risk.population import PopulationRisk, population_risk
from bnp_models.synthesis.predictive_checks import PredictiveChecks, predictive_checks
from bnp_models.zeros.structural_zeros import StructuralZeros

NUM_DRAWS = 200
"""Largest number of draws of a run over which probabilities are averaged."""


def held_out_log_probability(
    run: RecordsRun,
    codes: np.ndarray | Microdata | pd.DataFrame,
    *,
    method: str = "auto",
    num_samples: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> np.ndarray:
    """Log posterior predictive probability of records, in nats.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``.
    codes
        (m, J) level codes, in the sample's schema, of complete records that the run has not seen;
        or a table or a data frame of such records.
    method, key
        As for `population_risk`.
    num_samples
        Largest number of draws over which probabilities are averaged; they are evenly spaced.

    Returns
    -------
    log_p
        (m,) logarithms of the mean over draws of the probability of each record's cell, given that
        the cell is feasible.

    Raises
    ------
    ValueError
        If the model gives no probabilities of cells, or `run` kept no parameters.

    Examples
    --------
    >>> bnp.held_out_log_probability(run, population.sample(5, seed=2)).shape
    (5,)
    """
    check_kind(Run, "held_out_log_probability(run, codes)", run=run)
    if key is not None:
        key = typed_key(key)
    if isinstance(codes, Microdata | pd.DataFrame):
        codes = cast(Any, code_like(codes, run.table)).codes
    method = checked_method(method, checked_model(run.model), run.table)
    draws = run.spaced_parameters(num_samples)
    key, _ = Keys(run.key if key is None else key)
    cells, of_record = np.unique(codes, axis=0, return_inverse=True)
    log_p = np.concatenate(
        [block for block, _, _ in cell_probabilities(run, draws, cells, method, key)]
    )
    return (logsumexp(log_p, axis=0) - np.log(len(log_p)))[of_record.reshape(-1)]


CALL = "compare({'hdp': HDPMixedMembership()}, table, key=...)"


@dataclass(frozen=True, eq=False)
@displayed
class Compared:
    """One model of a sample.

    Examples
    --------
    >>> models = {"few": model}
    >>> parts = {"num_folds": 62, "folds": 2}
    >>> comparison = bnp.compare(models, table, key=jax.random.key(0), **parts, **short)
    >>> comparison.models["few"].log_probabilities.shape
    (2,)
    """

    log_probabilities: np.ndarray
    """(n held out,) log predictive probability of each held-out record, in nats."""
    run: Run[Microdata, StructuralZeros]
    """Chains on the whole sample."""
    diagnosis: Diagnosis
    """Diagnosis of these chains."""
    checks: PredictiveChecks
    """Comparison of the whole sample with its replicates."""
    risk: PopulationRisk | None
    """Risk of the whole sample, if the population's size was given."""
    cut_short: tuple[str, ...] = ()
    """Sentences on chains without a part whose minutes were used up."""

    @property
    def held_out(self) -> float:
        """Mean log predictive probability of a held-out record."""
        return float(self.log_probabilities.mean())

    @property
    def complete(self) -> bool:
        """Whether all chains made all of their draws."""
        return not self.cut_short and made_all_draws(self.run)

    def warnings(self) -> list[str]:
        """Sentences on the chains and on the fit."""
        return [*self.diagnosis.warnings, *self.cut_short, *self.checks.warnings()]

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "run": title_of(self.run),
            "held out": f"{self.held_out:.4f} nats a record",
            "z of sample uniques": f"{self.checks.cells[1].z:.2f}",
            "tau_1": None if self.risk is None else spread(self.risk.tau1),
        }
        return Shown(f"Compared: {self.run.model.name}", lines)


@dataclass(frozen=True, eq=False)
@displayed
class Comparison:
    """Models of one sample, by name.

    Examples
    --------
    >>> models = {"few": model}
    >>> parts = {"num_folds": 62, "folds": 2}
    >>> comparison = bnp.compare(models, table, key=jax.random.key(0), **parts, **short)
    >>> comparison.best
    'few'
    """

    models: dict[str, Compared]
    """In the order given."""
    num_folds: int
    """Number of parts into which the sample was divided."""
    folds: int
    """Number of parts that were held out, one at a time."""

    @property
    def best(self) -> str:
        """Name of the model that predicts held-out records best."""
        return max(self.models, key=lambda name: self.models[name].held_out)

    def table(self) -> pd.DataFrame:
        """One row per model, the best first.

        "held_out" is the mean log probability of a held-out record in nats; "behind" is its
        difference from that of the best model, and "behind_se" the standard error of this
        difference over records; "z_uniques" is the z of the predictive check of sample uniques.
        """
        best = self.models[self.best].log_probabilities
        rows = []
        for name, one in self.models.items():
            behind = best - one.log_probabilities
            error = behind.std(ddof=1) / math.sqrt(behind.size)
            row = {
                "model": name, "held_out": one.held_out, "behind": behind.mean(),
                "behind_se": error, "z_uniques": one.checks.cells[1].z,
            }  # fmt: skip
            if one.risk is not None:
                low, high = np.quantile(one.risk.tau1, [0.025, 0.975])
                row |= {"tau1": one.risk.tau1.mean(), "q025": low, "q975": high}
            rows.append(row)
        return pd.DataFrame(rows).sort_values("held_out", ascending=False, ignore_index=True)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        what = (
            f"{counted(len(self.models), 'model')}, {self.folds} of {self.num_folds} parts held out"
        )
        return Shown(f"Comparison: {what}", {"best": self.best}, self.table())


def compare(
    models: Mapping[str, Model],
    table: Microdata | pd.DataFrame,
    *,
    key: jax.Array,
    population_size: int | None = None,
    conditions: StructuralZeros | pd.DataFrame | None = None,
    num_folds: int = 5,
    folds: int = 1,
    max_minutes: float | None = None,
    checkpoint: str | PathLike | None = None,
    **options: Any,
) -> Comparison:
    """Compare models of one sample by held-out prediction, predictive checks and risk.

    Parameters
    ----------
    models
        Models by name. Those that do not take structural zeros are fitted without them.
    table
        Complete records, or a data frame of them.
    key
        A key, which is used once. The same records are held out for all models.
    population_size
        N, for tau_1; None leaves it out.
    conditions
        Structural zeros, for the models that take them.
    num_folds
        Number of random parts of the sample; one part is held out at a time.
    folds
        Number of parts that are held out, from 1 to `num_folds`; chains are run for each.
    max_minutes
        Minutes of all runs together, on their own clocks (`Run.seconds`); minutes before a resume
        count. Each run may take an equal share of the minutes that are left; what it does not take
        is left for the later ones. A run that takes more stops at its next draw, and a warning says
        so. Default: no limit.
    checkpoint
        Folder in which every run of chains has a folder of its own, for ``resume=True``.
    options
        Options of `sample`, such as num_chains, num_warmup, num_samples and thin.

    Returns
    -------
    comparison

    Raises
    ------
    ValueError
        If there are more folds than parts or records, or a model gives no probabilities of cells.
    OutOfTime
        If the minutes of a run are used up before there are draws to judge.

    Notes
    -----
    A model that ignores structural zeros gives impossible records a positive probability, which
    lowers its held-out figure.

    Examples
    --------
    >>> models = {"few": model}
    >>> parts = {"num_folds": 62, "folds": 2}
    >>> comparison = bnp.compare(models, table, key=jax.random.key(0), **parts, **short)
    >>> comparison.table().columns.tolist()
    ['model', 'held_out', 'behind', 'behind_se', 'z_uniques']
    """
    check_kind(Mapping, CALL, models=models)
    key = typed_key(key)
    for model in models.values():
        table, conditions = coded_input(CALL, model, table, conditions)
    if not 2 <= num_folds <= table.n or not 1 <= folds <= num_folds:
        raise ValueError(
            f"folds must be from 1 to num_folds, and num_folds from 2 to {table.n}, not {folds} "
            f"and {num_folds}"
        )
    require_unweighted(table, "a comparison of models")
    table.require_complete("a comparison of models")
    key_parts, *model_keys = key_array(key, 1 + len(models))
    order = numpy_generator(key_parts).permutation(table.n)
    parts = [np.sort(part) for part in np.array_split(order, num_folds)[:folds]]
    found, budget = {}, _Budget(max_minutes, len(models) * (1 + folds))
    for i, ((name, model), model_key) in enumerate(zip(models.items(), model_keys, strict=True)):
        zeros = conditions if model.conditions_type is not None else None
        key_whole, *fold_keys = key_array(model_key, 1 + folds)
        folder = None if checkpoint is None else Path(checkpoint) / f"model_{i + 1}"
        run_chains = partial(_sample, budget, folder, model, zeros, options)
        log_p, cut = [], []
        for f, (part, fold_key) in enumerate(zip(parts, fold_keys, strict=True)):
            rest = Microdata(table.schema, np.delete(table.codes, part, axis=0))
            run = run_chains(f"fold_{f + 1}", rest, fold_key)
            log_p.append(held_out_log_probability(run, table.codes[part]))
            cut += _cut_short(run, f"the chains without part {f + 1}")
        run = run_chains("whole", table, key_whole)
        risk = None if population_size is None else population_risk(run, population_size)
        found[name] = Compared(
            np.concatenate(log_p), run, Diagnosis.of(run, risk), predictive_checks(run), risk,
            tuple(cut),
        )  # fmt: skip
    return Comparison(found, num_folds, folds)


class _Budget:
    """Minutes that several runs of chains share."""

    def __init__(self, max_minutes: float | None, num_runs: int):
        self.seconds = None if max_minutes is None else 60 * positive_minutes(max_minutes)
        self.num_runs = self.num_left = num_runs

    def options(self, num_samples: int) -> dict[str, Any]:
        """Options of `sample` by which the next run ends after its share of what is left."""
        options: dict[str, Any] = {"until": AllDraws(num_samples)}
        if self.seconds is not None:
            # Above zero, which `sample` refuses.
            options["max_minutes"] = max(self.seconds / self.num_left / 60, 1e-9)
        return options

    def spend(self, run: Run) -> None:
        """Take the minutes of a finished run from what is left."""
        self.num_left -= 1
        if self.seconds is not None:
            self.seconds -= sum(run.seconds.values())


def _sample(
    budget, folder, model, zeros, options, of_part, table, key
) -> Run[Microdata, StructuralZeros]:
    """Chains of a model on a part of the sample, with a checkpoint of their own."""
    if folder is not None:
        options = options | {"checkpoint": Path(f"{folder}_{of_part}")}
    options = budget.options(options.get("num_samples", NUM_SAMPLES)) | options
    try:
        run = sample(model, table, key=key, conditions=zeros, **options)
    except OutOfTime as error:
        # Its minutes are a share of those that were given.
        shared = f"one of {budget.num_runs} runs of chains, which share the minutes given"
        error.args = (f"{shared}, {error}",)
        raise
    budget.spend(run)
    return run


def _cut_short(run: Run, of_part: str) -> list[str]:
    """Sentence on chains that made fewer draws than were asked for; none if they made all."""
    if made_all_draws(run):
        return []
    assert run.until is not None
    made, asked = run.settings.num_samples, run.until.first.num_samples
    return [
        f"{of_part} stopped after {run.until.max_minutes:.2g} minutes, with {made:,} of {asked:,} "
        "draws each, so that the figures of held-out records are less precise; allow more minutes "
        "(--max-minutes)"
    ]


def made_all_draws(run: Run) -> bool:
    """Whether the chains made all draws that were asked for, and were not ended by their time."""
    return run.until is None or run.until.target(run)
