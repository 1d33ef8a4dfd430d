"""Report of a disclosure risk estimate: one self-contained HTML page."""

from os import PathLike

from bnp_models.data.writing import write_text
from bnp_models.evaluation.uniques import k_anonymity
from bnp_models.inference.diagnostics import monitored
from bnp_models.report.pages import render_page
from bnp_models.report.plots import TRACED, histogram_plot
from bnp_models.report.summaries import risk_summary
from bnp_models.risk.population import PopulationRisk

NUM_RISKIEST = 20

_METHODS = {
    "exact": "exact",
    "draws": "by shared draws of record weights",
    "sequential": "by sequential imputation",
}


def write_report(
    path: str | PathLike,
    risk: PopulationRisk,
    *,
    command: str | None = None,
    seed: int | None = None,
    records: bool = True,
) -> None:
    """Write the report of a disclosure risk estimate.

    Parameters
    ----------
    path
        The HTML file.
    risk
        What `population_risk` returned.
    command
        The command line, where there was one.
    seed
        The seed, where there was one.
    records
        Whether the page may show single records.
    """
    html = render_report(risk, command=command, seed=seed, records=records)
    write_text(html, path)


def render_report(
    risk: PopulationRisk,
    *,
    command: str | None = None,
    seed: int | None = None,
    records: bool = True,
) -> str:
    """The page that `write_report` writes."""
    draws = monitored(risk.run, risk)
    riskiest = risk.records().head(NUM_RISKIEST)
    summary = risk_summary(risk, seed=seed)
    return render_page(
        "report.html.j2",
        risk.run,
        {name: draws[name] for name in TRACED},
        s=summary,
        active=summary["components"],
        command=command,
        how=_METHODS[risk.method],
        thin=risk.thin,
        anonymity=k_anonymity(risk.run.table),
        records=records,
        histogram=histogram_plot(risk) if len(risk.rows) else None,
        header=list(riskiest.columns),
        riskiest=riskiest.to_numpy(dtype=object).tolist(),
    )
