"""Report of a disclosure risk estimate: one self-contained HTML page."""

from os import PathLike

import numpy as np

from bnp_models.data.identifying import SMALLEST_SHOWN
from bnp_models.data.writing import write_text
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.report.pages import Filing, render_page
from bnp_models.report.plots import TRACED, checks_plot, histogram_plot
from bnp_models.report.summaries import risk_summary
from bnp_models.risk.population import PopulationRisk
from bnp_models.synthesis.predictive_checks import MAX_Z, PredictiveChecks

NUM_RISKIEST = 20
NUM_CARRIERS = 12

_METHODS = {
    "exact": "exact",
    "draws": "by shared draws of record weights",
}


def render_report(
    risk: PopulationRisk,
    *,
    command: str | None = None,
    records: bool = True,
    filing: Filing | None = None,
    first_row: int = 0,
    diagnosis: Diagnosis | None = None,
    checks: PredictiveChecks | None = None,
    **entries,
) -> str:
    """Report of a disclosure risk estimate.

    Parameters
    ----------
    risk
        Result of `population_risk`.
    command
        The command line, where there was one.
    records
        Whether the page may show single records.
    filing
        What the page is filed by.
    first_row
        Number of the first record of the sample, with which rows are counted.
    diagnosis, checks, entries
        As for `risk_summary`; the page shows all that is given: seed, checks, validation, coarser,
        limits, baselines and notes.

    Returns
    -------
    html
        One self-contained page.
    """
    diagnosis = Diagnosis.of(risk.run, risk) if diagnosis is None else diagnosis
    riskiest = risk.records().head(NUM_RISKIEST)
    riskiest["row"] += first_row
    summary = risk_summary(risk, diagnosis=diagnosis, checks=checks, **entries)
    return render_page(
        "risk.html.j2",
        risk.law,
        {name: diagnosis.draws[name] for name in TRACED},
        s=summary,
        active=summary["components"],
        command=command,
        filing=filing,
        how=_METHODS[risk.method],
        thin=risk.thin,
        anonymity=risk.anonymity,
        fraction=risk.law.table.n / risk.population_size,
        needed=1 / np.log(risk.law.table.n),
        checked=None if checks is None else checks_plot(checks),
        max_z=MAX_Z,
        records=records,
        first_row=first_row,
        carriers=_carriers(risk, records),
        histogram=histogram_plot(risk) if len(risk.rows) else None,
        all_records=risk.r2_of_cells is not None,
        header=["r1", "r2", *riskiest.columns[:-2]],
        riskiest=[
            [f"{r1:.3f}", f"{r2:.3f}", *values]
            for *values, r1, r2 in riskiest.to_numpy(dtype=object).tolist()
        ],
    )


def _carriers(risk: PopulationRisk, records: bool) -> list[dict]:
    """Levels whose share of tau_1 exceeds that of the records most; shares in per cent."""
    levels = risk.by_level()
    totals = {"records": risk.law.table.n, "tau1": risk.r1.sum(), "tau2": risk.r2.sum()}
    for name, total in totals.items():
        levels[f"{name}_share"] = 100 * levels[name] / max(total, 1e-300)
    if not records:
        levels = levels[levels["records"] >= SMALLEST_SHOWN]
    excess = levels["tau1_share"] - levels["records_share"]
    levels = levels[excess > 0].assign(excess=excess)
    levels = levels.sort_values("excess", ascending=False, kind="stable")
    return levels.head(NUM_CARRIERS).to_dict("records")


def write_report(path: str | PathLike, risk: PopulationRisk, **options) -> None:
    """Write the page of `render_report`, which takes the same options, to an HTML file.

    Parameters
    ----------
    path
        Where the file is written.
    risk
        Result of `population_risk`.
    options
        Options of `render_report`.

    Examples
    --------
    >>> bnp.report.write_report("risk.html", risk)
    """
    write_text(render_report(risk, **options), path)
