"""Summary and page of the disclosure risk of households."""

from os import PathLike
from typing import Any

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.compositions import num_compositions
from bnp_models.data.writing import write_text
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.report.documents import HouseholdRiskDocument, HouseholdsEntry, PersonsEntry
from bnp_models.report.pages import Filing, render_page
from bnp_models.report.plots import TRACED, checks_plot, histogram_plot
from bnp_models.report.risk import NUM_RISKIEST
from bnp_models.report.summaries import (
    entries_of_chains,
    entry_of_weights,
    figures_of,
    of_ties,
    p_zero,
    timing,
    warnings_with,
    what_if,
)
from bnp_models.risk.coarser_risk import CoarserRisk
from bnp_models.risk.households import HouseholdRisk
from bnp_models.risk.verdict import Limits
from bnp_models.synthesis.predictive_checks import MAX_Z, PredictiveChecks


def household_risk_summary(
    risk: HouseholdRisk,
    *,
    seed: int | None = None,
    diagnosis: Diagnosis | None = None,
    checks: PredictiveChecks | None = None,
    coarser: dict[str, CoarserRisk] | None = None,
    limits: Limits | None = None,
) -> HouseholdRiskDocument:
    """Content of ``risk.json``; only its last two entries depend on the clock.

    Parameters
    ----------
    risk
        Result of `household_risk`.
    seed, diagnosis, limits
        As for `risk_summary`; the limits are those of households.
    checks
        Result of ``predictive_checks(run, unit="household")``, whose warnings are added.
    coarser
        Result of `coarsen`.

    Examples
    --------
    >>> model = bnp.NDPMPM(components=4, member_components=2)
    >>> run = bnp.sample(model, households, key=jax.random.key(0), **short)
    >>> risk = bnp.household_risk(run, 5_000)
    >>> bnp.report.household_risk_summary(risk)["households"]["n"]
    20
    """
    check_kind(HouseholdRisk, "household_risk_summary(risk)", risk=risk)
    diagnosis = Diagnosis.of(risk.run, risk) if diagnosis is None else diagnosis
    run, units = risk.law, risk.households
    schema = run.table.schema.table
    of_rules: dict[str, Any] = {}
    if run.conditions is not None:
        of_rules = {
            "p_zero": p_zero(run.at_kept_arrays(run.draws["log_feasible"], units.thin)),
            "rules_in_words": [str(rule) for rule in run.conditions],
        }
    return HouseholdRiskDocument(
        model=run.model.name,
        n=run.table.n,
        population_size=risk.population_size,
        variables=schema.variables,
        levels=schema.num_levels,
        cells=num_compositions(run.table.schema, np.unique(run.table.sizes)),
        sample_uniques=units.sample_uniques,
        weights=entry_of_weights(risk.run),
        households=_of_households(risk),
        persons=_of_persons(risk),
        **entries_of_chains(run, units, diagnosis, (checks,), limits, seed, "household"),
        checks=None if checks is None else checks.document(),
        what_if=None if coarser is None else what_if(coarser),
        **of_rules,
        **of_ties(units),
        warnings=warnings_with(diagnosis, checks),
        **timing(run),
    )


def _of_households(risk: HouseholdRisk) -> HouseholdsEntry:
    """Entry "households"."""
    units = risk.households
    return HouseholdsEntry(
        n=risk.table.n,
        population_size=risk.population_size,
        sample_uniques=units.sample_uniques,
        tau1=figures_of(units.tau1),
        tau2=figures_of(units.tau2),
        hierarchical=None if risk.persons is None else risk.hierarchical.sum(),
    )


def _of_persons(risk: HouseholdRisk) -> PersonsEntry:
    """Entry "persons"."""
    table, own = risk.table, risk.persons
    return PersonsEntry(
        n=table.num_persons,
        population_size=risk.num_persons,
        sample_uniques=len(table.persons.tabulated.unique_cells),
        tau1=None if own is None else figures_of(own.tau1),
        tau2=None if own is None else figures_of(own.tau2),
        found=risk.r_household.sum(),
    )


def render_household_report(
    risk: HouseholdRisk,
    *,
    command: str | None = None,
    records: bool = True,
    filing: Filing | None = None,
    diagnosis: Diagnosis | None = None,
    checks: PredictiveChecks | None = None,
    **entries,
) -> str:
    """Report of the disclosure risk of households.

    Parameters
    ----------
    risk
        Result of `household_risk`.
    command, records, filing
        As for `render_report`.
    diagnosis, checks, entries
        As for `household_risk_summary`.

    Returns
    -------
    html
        One self-contained page.
    """
    diagnosis = Diagnosis.of(risk.run, risk) if diagnosis is None else diagnosis
    summary = household_risk_summary(risk, diagnosis=diagnosis, checks=checks, **entries)
    riskiest = risk.household_table().head(NUM_RISKIEST) if records else None
    return render_page(
        "households.html.j2",
        risk.law,
        {name: diagnosis.draws[name] for name in TRACED},
        s=summary,
        active=summary["components"],
        command=command,
        filing=filing,
        thin=risk.households.thin,
        checked=None if checks is None else checks_plot(checks, "household", "composition"),
        max_z=MAX_Z,
        household=risk.table.schema.household,
        head=risk.table.schema.head,
        histogram=histogram_plot(risk.households) if len(risk.households.rows) else None,
        riskiest=None if riskiest is None else [
            [str(row.household), row.f, *(
                "–" if np.isnan(value) else f"{value:.3f}"
                for value in (row.r1, row.r2, row.hierarchical)
            )]
            for row in riskiest.itertuples()
        ],
    )  # fmt: skip


def write_household_report(path: str | PathLike, risk: HouseholdRisk, **options) -> None:
    """Write the page of `render_household_report`, which takes the same options, to an HTML file.

    Parameters
    ----------
    path
        Where the file is written.
    risk
        Result of `household_risk`.
    options
        Options of `render_household_report`.

    Examples
    --------
    >>> model = bnp.NDPMPM(components=4, member_components=2)
    >>> run = bnp.sample(model, households, key=jax.random.key(0), **short)
    >>> risk = bnp.household_risk(run, 5_000)
    >>> bnp.report.write_household_report("households.html", risk)
    """
    write_text(render_household_report(risk, **options), path)
