"""Protected files: the log of their changes as JSON values, and one self-contained HTML page."""

from os import PathLike

import pandas as pd

from bnp_models.data.schema import text_of
from bnp_models.data.writing import write_text
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.report.pages import Filing, render_page
from bnp_models.report.plots import TRACED
from bnp_models.report.summaries import figures_of
from bnp_models.risk.population import PopulationRisk
from bnp_models.risk.protection import FileRisk, Protection

_SHOWN = 100


def changes_document(
    protection: Protection,
    refitted: FileRisk | None = None,
    *,
    ids: pd.Series | None = None,
    usable: bool = True,
    why: str = "",
) -> dict:
    """Content of ``changes.json``: every recoding and suppression, the risk before and after.

    Parameters
    ----------
    protection
        Result of `protect`.
    refitted
        Risk of the protected file by chains on the recoded sample, where there are any.
    ids
        (n,) identifiers of the records, which the log then names them by too.
    usable, why
        Whether tau_1 of the sample can be used, and a sentence that says why.
    """
    suppressions = protection.suppressions()
    if ids is not None:
        suppressions.insert(1, "id", [text_of(x) for x in ids.to_numpy(object)[suppressions.row]])
    number = protection.suppressed.sum(axis=0).tolist()
    kept = protection.coarsening.schema.variables
    return {
        "n": protection.table.n,
        "population_size": protection.population_size,
        "variables": list(protection.table.schema.variables),
        "verdict": protection.after.judge(protection.limits, usable, why).document(),
        "before": _of_file(protection.before),
        "after": _of_file(protection.after),
        **({} if refitted is None else {"refitted": _of_file(refitted)}),
        "recodings": [
            {"variable": one.variable, "levels": list(one.levels), "to": one.label,
             "loss": float(one.loss)}
            for one in protection.recodings
        ],
        "suppressed": dict(zip(kept, number, strict=True)),
        "suppressed_records": int(protection.suppressed.any(axis=1).sum()),
        "suppressions": suppressions.to_dict(orient="records"),
    }  # fmt: skip


def _of_file(risk: FileRisk) -> dict:
    """Figures of a file: those of its risk, and the information that it has lost."""
    return {
        "sample_uniques": risk.sample_uniques,
        "tau1": figures_of(risk.tau1),
        "tau2": figures_of(risk.tau2),
        "largest_risk": float(risk.r1.max()),
        "k_anonymity": [small._asdict() for small in risk.anonymity],
        "loss": float(risk.loss),
    }


def render_protection_report(
    risk: PopulationRisk,
    changes: dict,
    *,
    summary: dict,
    diagnosis: Diagnosis,
    command: str | None = None,
    records: bool = True,
    filing: Filing | None = None,
) -> str:
    """Report of a protected file.

    Parameters
    ----------
    risk
        Result of `population_risk` on the sample.
    changes
        Result of `changes_document`.
    summary
        Result of `risk_summary` on the sample.
    diagnosis
        Diagnosis of the run and the risk.
    command
        The command line, where there was one.
    records
        Whether the page may show single records.
    filing
        What the page is filed by.

    Returns
    -------
    html
        One self-contained page.
    """
    return render_page(
        "protection.html.j2",
        risk.law,
        {name: diagnosis.draws[name] for name in TRACED},
        s=summary | {"verdict": changes["verdict"]},
        c=changes,
        active=summary["components"],
        command=command,
        records=records,
        filing=filing,
        shown=[list(one.values()) for one in changes["suppressions"][:_SHOWN]],
    )


def write_protection_report(
    path: str | PathLike, risk: PopulationRisk, changes: dict, **options
) -> None:
    """Write the page of `render_protection_report`, which takes the same options."""
    write_text(render_protection_report(risk, changes, **options), path)
