"""Summaries of a run or a risk as JSON values: the content of risk.json and run.json."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.documents import ABSENT
from bnp_models.data.households import Households, persons_of
from bnp_models.data.schema import text_of
from bnp_models.data.weight_classes import DesignWeights, WeightsEntry
from bnp_models.inference.convergence import Converged
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import Run
from bnp_models.inference.weighting import sample_law
from bnp_models.models.level_prior import LevelPriorOptions, document_of_prior
from bnp_models.report.documents import (
    ChainsRiskDocument,
    CoarserEntry,
    ContributionEntry,
    FiguresEntry,
    LevelEntry,
    LevelPriorEntry,
    MisclassificationEntry,
    RunSummary,
    StoppingEntry,
    TausEntry,
    TiesEntry,
    UsableEntry,
)
from bnp_models.risk.baselines import Baselines
from bnp_models.risk.coarser_risk import CoarserRisk
from bnp_models.risk.missing_keys import MissingEntry, num_incomplete
from bnp_models.risk.population import PopulationRisk
from bnp_models.risk.validation import Validation
from bnp_models.risk.verdict import Limits, figures_of_draws, judge
from bnp_models.rules.rules import Rules
from bnp_models.synthesis.predictive_checks import PredictiveChecks
from bnp_models.version import __version__
from bnp_models.zeros.structural_zeros import StructuralZeros

Judges: TypeAlias = Sequence[PredictiveChecks | Validation | None]
"""Predictive checks and a validation, whose warnings are signs of a misfit; None: not made."""


def figures_of(draws: np.ndarray) -> FiguresEntry:
    """Figures of a scalar."""
    flat = np.asarray(draws, np.float64).ravel()
    q025, q05, q50, q95, q975 = np.quantile(flat, [0.025, 0.05, 0.5, 0.95, 0.975])
    return FiguresEntry(
        mean=flat.mean(), sd=flat.std(ddof=1) if flat.size > 1 else 0.0,
        q025=q025, q05=q05, q50=q50, q95=q95, q975=q975,
    )  # fmt: skip


def risk_summary(
    risk: PopulationRisk,
    *,
    seed: int | None = None,
    diagnosis: Diagnosis | None = None,
    checks: PredictiveChecks | None = None,
    validation: Validation | None = None,
    coarser: dict[str, CoarserRisk] | None = None,
    limits: Limits | None = None,
    baselines: Baselines | None = None,
    notes: Sequence[str] = (),
) -> ChainsRiskDocument:
    """Content of ``risk.json``; only its last two entries depend on the clock.

    Parameters
    ----------
    risk
        Result of `population_risk`.
    seed
        The seed, where there was one.
    diagnosis
        Diagnosis of the run and the risk, where it was made already.
    checks
        Result of `predictive_checks`, whose warnings are added.
    validation
        Result of `validate_within`, whose warnings are added.
    coarser
        Result of `coarsen`.
    limits
        An agency's limits, by which a verdict is given.
    baselines
        Classical estimates, which are set beside the model's.
    notes
        Further sentences on the sample, which come last among the warnings.

    Examples
    --------
    >>> bnp.report.risk_summary(risk)["population_size"]
    5000
    """
    check_kind(PopulationRisk, "risk_summary(risk)", risk=risk)
    diagnosis = Diagnosis.of(risk.run, risk) if diagnosis is None else diagnosis
    run = risk.law
    schema = run.table.schema
    of_region: dict[str, Any] = {}
    if run.conditions is not None:
        log_feasible = run.at_kept_arrays(run.draws["log_feasible"], risk.thin)
        of_region = {"p_zero": p_zero(log_feasible), "equivalences": equivalences(run.conditions)}
    return ChainsRiskDocument(
        model=run.model.name,
        n=run.table.n,
        population_size=risk.population_size,
        variables=schema.variables,
        levels=schema.num_levels,
        cells=schema.num_cells,
        sample_uniques=risk.sample_uniques,
        missing=_of_missing(risk),
        weights=entry_of_weights(risk.run),
        **entries_of_chains(run, risk, diagnosis, (checks, validation), limits, seed),
        **of_region,
        checks=None if checks is None else checks.document(),
        validation=None if validation is None else validation.document(),
        **of_ties(risk),
        misclassification=_of_misclassification(risk),
        contributions=contributions(risk, coarser or {}),
        **({} if baselines is None else baselines.document()),
        what_if=None if coarser is None else what_if(coarser),
        warnings=[*warnings_with(diagnosis, checks, validation), *notes],
        **timing(run),
    )


def entries_of_chains(
    run: Run,
    risk: PopulationRisk,
    diagnosis: Diagnosis,
    judges: Judges,
    limits: Limits | None,
    seed: int | None,
    unit: str = "record",
) -> dict[str, Any]:
    """Entries "seed" to "level_prior" of risk.json, for records and for households.

    Parameters
    ----------
    run
        The run, or the law of the sample in it.
    risk
        Risk of the units, records or households.
    diagnosis, limits, seed
        As for `risk_summary`.
    judges
        Predictive checks and a validation, as far as there are any.
    unit
        As for `judge`.
    """
    verdict = None
    if limits is not None and limits.given:
        verdict = judge(
            figures_of_draws(risk.tau1, risk.run.settings.superchain), risk.r1, limits,
            *allows_verdict(diagnosis, risk, *judges), r1_error=risk.r1_error, unit=unit,
        ).document()  # fmt: skip
    usable, why = _usable(diagnosis, risk, judges)
    return {
        "seed": seed,
        "version": __version__,
        "device": run.device,
        "tau1": figures_of(risk.tau1),
        "tau1_conditional": figures_of(risk.tau1_conditional),
        "tau2": figures_of(risk.tau2),
        "tau2_conditional": figures_of(risk.tau2_conditional),
        "usable": UsableEntry(tau1=usable, why=why),
        "verdict": verdict,
        "diagnostics": diagnosis.figures,
        "stopping": stopping(run, diagnosis),
        "modes": diagnosis.modes.document(),
        "components": np.mean(run.draws["components"]),
        "level_prior": level_prior(run),
    }


def _of_missing(risk: PopulationRisk) -> MissingEntry | None:
    """Entry "missing"; None where no value is."""
    if risk.missing_keys is None:
        return None
    cells = risk.law.table.tabulated
    values = int(cells.counts @ (cells.codes < 0).sum(axis=1))
    return MissingEntry(
        reading=risk.missing_keys, records=num_incomplete(cells), missing_values=values
    )


def _of_misclassification(risk: PopulationRisk) -> MisclassificationEntry | None:
    """Entry "misclassification"; None where no value was changed."""
    found = risk.misclassification
    if found is None:
        return None
    return MisclassificationEntry(
        file=found.source,
        tau1=figures_of(risk.tau1),
        tau2=figures_of(risk.tau2),
        without=TausEntry(tau1=figures_of(found.tau1), tau2=figures_of(found.tau2)),
    )


def _usable(diagnosis: Diagnosis, risk: PopulationRisk, judges: Judges) -> tuple[bool, str]:
    """Whether tau_1 can be used, and a sentence that says why."""
    return diagnosis.verdict("tau1", _misfits(risk, judges))


def _misfits(risk: PopulationRisk, judges: Judges) -> list[str]:
    """Signs that the model does not fit, in words."""
    found = [x.warnings() for x in judges if x is not None] + [risk.imprecise()]
    return [sentence.split(":")[0] for sentences in found for sentence in sentences]


def allows_verdict(
    diagnosis: Diagnosis, risk: PopulationRisk, *judges: PredictiveChecks | Validation | None
) -> tuple[bool, str]:
    """Whether `judge` may compare tau_1 with limits, and a sentence on whether tau_1 can be used.

    Chains that have not converged do not forbid it, because `judge` takes their Monte Carlo error
    into account. A model that does not fit does, and so do chains whose error is not known.
    """
    usable, why = _usable(diagnosis, risk, judges)
    known = diagnosis.figures["tau1"]["rhat"] is not None
    return usable or (known and not _misfits(risk, judges)), why


def level_prior(run: Run) -> LevelPriorEntry:
    """Entry "level_prior": its kind, its shape, or of a learned one the mean of c_j by variable."""
    learned = run.model.level_concentrations(run)
    if learned is not None:
        return LevelPriorEntry(kind="learned", concentration=learned)
    if isinstance(run.model, LevelPriorOptions) and run.model.level_shape is not None:
        return LevelPriorEntry(**document_of_prior(run.model))
    return LevelPriorEntry(kind="uniform")


def of_ties(risk: PopulationRisk) -> dict[str, Any]:
    """Entries "ties", of the kind and parameters of the correction, and "without_ties".

    Of the parameters, the figures are over draws with overdispersion, "probability" is their share.
    Where it is a sensitivity analysis, tau_1 and tau_2 with it are in "ties"; where it is
    on, those without it are in "without_ties".
    """
    if risk.overdispersion is None:
        return {"ties": TiesEntry(kind=risk.ties)}
    drawn, present = risk.overdispersion, risk.overdispersion.present
    beside = TausEntry(tau1=figures_of(drawn.tau1), tau2=figures_of(drawn.tau2))
    within = risk.ties == "sensitivity"
    ties = TiesEntry(
        kind=risk.ties,
        **(beside if within else {}),
        probability=present.mean(),
        shape=figures_of(drawn.shape[present]) if present.any() else None,
        exponent=figures_of(drawn.exponent[present]) if present.any() else None,
    )
    return {"ties": ties, **({} if within else {"without_ties": beside})}


def contributions(
    risk: PopulationRisk, coarser: dict[str, CoarserRisk]
) -> dict[str, ContributionEntry]:
    """Entry "contributions": by variable, the share of tau_1 that goes with it, and its levels'."""
    total, found = float(risk.tau1.mean()), {}
    for name, levels in risk.by_level().groupby("variable", sort=False):
        without = coarser.get(f"drop:{name}")
        found[name] = ContributionEntry(
            share=1 - float(without.tau1.mean()) / total if without and total > 0 else None,
            levels={
                text_of(row.level): LevelEntry.of(row) for row in levels.itertuples()
            },
        )  # fmt: skip
    return found


def what_if(coarser: dict[str, CoarserRisk]) -> list[CoarserEntry]:
    """Entry "what_if": figures of tau_1 and tau_2, sample uniques and k-anonymity of each."""
    return [
        CoarserEntry(
            spec=text,
            variables=one.schema.variables,
            levels=one.schema.num_levels,
            cells=one.num_cells,
            sample_uniques=one.sample_uniques,
            k_anonymity=one.anonymity,
            tau1=figures_of(one.tau1),
            tau2=figures_of(one.tau2),
        )
        for text, one in coarser.items()
    ]


def warnings_with(diagnosis: Diagnosis, *judges: PredictiveChecks | Validation | None) -> list[str]:
    """Warnings of a diagnosis, and then those of predictive checks and of a validation."""
    return diagnosis.warnings + [
        sentence for judge in judges if judge is not None for sentence in judge.warnings()
    ]


def p_zero(log_feasible: np.ndarray) -> FiguresEntry:
    """Figures of the probability that a record is impossible, before truncation.

    The prior drives it: it says nothing of the data, and convergence is not judged by it.
    """
    log_feasible = np.minimum(log_feasible.astype(np.float64), 0)
    # Taken from zero: its negative is -0.0 where everything is feasible.
    return figures_of(0.0 - np.expm1(log_feasible))


def run_summary(
    run: Run,
    diagnosis: Diagnosis | None = None,
    *,
    seed: int | None = None,
    checks: PredictiveChecks | None = None,
) -> RunSummary:
    """Summary of a run that makes data; only its last two entries depend on the clock.

    Parameters
    ----------
    run
        Chains.
    diagnosis
        ``Diagnosis.of(run, level_margins(run))``, say; by default, of the run alone.
    seed
        The seed, where there was one.
    checks
        Result of `predictive_checks`, whose warnings are added.

    Examples
    --------
    >>> bnp.report.run_summary(run)["model"]
    'nplcm'
    """
    check_kind(Run, "run_summary(run)", run=run)
    diagnosis = Diagnosis.of(run) if diagnosis is None else diagnosis
    weights, of_weights = weight_warnings(run), entry_of_weights(run)
    run = sample_law(run)
    persons, conditions = persons_of(run.table), run.conditions
    schema = persons.schema
    of_region: dict[str, Any] = {}
    augmented = ABSENT
    if "augmented" in run.draws:
        # -1 marks a sweep that counted none; a warning says so.
        counted = run.draws["augmented"][run.draws["augmented"] >= 0]
        augmented = np.mean(counted) if counted.size else None
    if isinstance(conditions, Rules):
        of_region = {
            "rules_in_words": [str(rule) for rule in conditions],
            "p_zero": p_zero(run.draws["log_feasible"]),
        }
    elif conditions is not None:
        of_region = {
            "num_conditions": conditions.num_conditions,
            "impossible_cells": conditions.num_impossible_cells,
            "p_zero": p_zero(run.draws["log_feasible"]),
            "equivalences": equivalences(conditions),
        }
    return RunSummary(
        model=run.model.name,
        n=persons.n,
        **_of_households(run),
        weights=of_weights,
        variables=schema.variables,
        levels=schema.num_levels,
        cells=schema.num_cells,
        missing=(persons.tabulated.codes < 0).sum(axis=1) @ persons.tabulated.counts,
        seed=seed,
        version=__version__,
        device=run.device,
        diagnostics=diagnosis.figures,
        stopping=stopping(run, diagnosis),
        modes=diagnosis.modes.document(),
        active_components=np.mean(run.draws["components"]),
        level_prior=level_prior(run),
        checks=None if checks is None else checks.document(),
        augmented=augmented,
        **of_region,
        warnings=[
            *diagnosis.warnings,
            *([] if checks is None else checks.warnings(of_files=True)),
            *weights,
        ],
        **timing(run),
    )


def equivalences(conditions: StructuralZeros) -> list[str]:
    """Sentences that hold in every feasible cell, each about several variables."""
    return [str(equivalence) for equivalence in conditions.equivalences]


def stopping(run: Run, diagnosis: Diagnosis) -> StoppingEntry | None:
    """Entry "stopping" of a run of ``sample(until=...)``; nothing of another.

    "draws" is how many each chain made, "kept" how many of them it kept, one every "thin" sweeps,
    the last ones.
    """
    if run.until is None:
        return None
    target, settings = run.until.target, run.settings
    converged = target if isinstance(target, Converged) else None
    return StoppingEntry(
        reached=bool(diagnosis.reached),
        max_rhat=None if converged is None else float(converged.max_rhat),
        min_ess=None if converged is None else float(converged.least_ess(settings.num_chains)),
        max_minutes=run.until.max_minutes,
        draws=(settings.num_sweeps - settings.num_warmup) // run.until.first.thin,
        kept=settings.num_samples,
        thin=settings.thin,
    )


def entry_of_weights(run: Run) -> WeightsEntry | None:
    """Entry "weights" of a sample with design weights; nothing of another."""
    return run.table.document() if isinstance(run.table, DesignWeights) else None


def weight_warnings(run: Run) -> list[str]:
    """Sentences on the design weights of a sample that has some."""
    return run.table.warnings() if isinstance(run.table, DesignWeights) else []


def timing(run: Run) -> dict[str, Any]:
    """Entries that depend on the clock."""
    return {
        "seconds": {name: round(value, 3) for name, value in run.seconds.items()},
        "sweeps_per_second": round(run.sweeps_per_second, 2),
    }


def _of_households(run: Run) -> dict[str, Any]:
    """Figures of the households of a run; none of a run on records."""
    if not isinstance(run.table, Households):
        return {}
    schema = run.table.schema
    sizes, counts = np.unique(run.table.sizes, return_counts=True)
    return {
        "households": run.table.n,
        "household_sizes": {str(size): int(n) for size, n in zip(sizes, counts, strict=True)},
        "household_level": list(schema.household_level),
        "household_head": None if schema.head is None else [str(x) for x in schema.head],
        "active_member_components": float(np.mean(run.draws["member_components"])),
    }
