"""Report of synthetic or completed data sets: one self-contained HTML page."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, cast

import numpy as np
import pandas as pd

from bnp_models.data.bin_values import FEW
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.households import Households, persons_of
from bnp_models.data.identifying import SMALLEST_SHOWN, share_of_values
from bnp_models.data.identifying import values_of_one as alone_values
from bnp_models.data.microdata import k_anonymity
from bnp_models.data.weight_classes import cell_shares
from bnp_models.data.writing import write_text
from bnp_models.evaluation.attack.posterior import can_attack
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.run import Run
from bnp_models.inference.weighting import sample_law
from bnp_models.report.pages import compared_levels, render_page
from bnp_models.report.plots import checks_plot
from bnp_models.report.summaries import run_summary
from bnp_models.synthesis.calibration import MODEL_SHARE
from bnp_models.synthesis.predictive_checks import MAX_Z, PredictiveChecks
from bnp_models.synthesis.synthesize import num_records


def render_synthesis_report(
    run: Run,
    frames: Sequence[pd.DataFrame] | Sequence[ContingencyTable],
    diagnosis: Diagnosis | None = None,
    *,
    imputed: bool = False,
    command: str | None = None,
    seed: int | None = None,
    records: bool = True,
    checks: PredictiveChecks | None = None,
    method: str = "predictive",
    binned: Sequence[str] = (),
    merged: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    values_of_one: Mapping[str, float] | None = None,
    kept: Sequence[str] = (),
    notes: Sequence[str] = (),
    edited: Mapping[str, Any] | None = None,
    attack: Mapping[str, Any] | None = None,
) -> str:
    """Report of synthetic or completed data sets.

    Parameters
    ----------
    run
        The chains that they were drawn from.
    frames
        Result of `synthesize` or of `impute`.
    diagnosis
        ``Diagnosis.of(run, level_margins(run))``, say; by default, of the run alone.
    imputed
        Whether the frames are the sample, completed.
    command
        The command line, where there was one.
    seed
        The seed, where there was one.
    records
        Whether the page may show labels that fewer than five records of the sample have.
    checks
        Result of `predictive_checks`, which the page then shows.
    method
        How `synthesize` made the frames.
    binned
        Variables whose values are drawn from the bins that the frames have.
    merged
        By variable, the labels of the sample that became one level, by that level.
    values_of_one
        By variable, the share of the values of the data that one record alone of the sample has.
        Default: counted in the frames.
    kept
        Columns that every record keeps, where the data are partially synthetic.
    notes
        More sentences that are to be read before use.
    edited
        Where impossible records were edited: the numbers of these `records`, of `fields` (values)
        that were set free, and of these `by_variable`.
    attack
        Result of `LeftOutRisk.summary` for these files, which the page then shows.

    Returns
    -------
    html
        One self-contained page.
    """
    diagnosis = Diagnosis.of(run) if diagnosis is None else diagnosis
    summary = run_summary(run, diagnosis, seed=seed, checks=checks)
    summary["warnings"] = [*notes, *summary["warnings"]]
    shares = cell_shares(run.table)
    run = sample_law(run)
    table = persons_of(run.table)
    if isinstance(run.table, Households):
        frames = [
            cast(pd.DataFrame, made).drop(columns=run.table.schema.household) for made in frames
        ]
    variables = compared_levels(table, frames, imputed, 0 if records else SMALLEST_SHOWN, shares)
    differences = [
        {"name": f"{v['name']} = {row['label']}", "difference": abs(row["after"] - row["before"])}
        for v in variables
        for row in v["rows"]
    ]
    if values_of_one is None and not imputed:
        alone = alone_values(table)
        values_of_one = {
            name: float(np.mean([share_of_values(made, name, alone[name]) for made in frames]))
            for name in alone
        }
    return render_page(
        "synthesis.html.j2",
        run,
        diagnosis.draws,
        s=summary,
        active=summary["active_components"],
        command=command,
        imputed=imputed,
        method=method,
        binned=binned,
        few=FEW,
        attackable=method == "predictive"
        and not kept
        and "weights" not in summary
        and can_attack(run.model),
        attack=attack,
        households=isinstance(run.table, Households),
        kept=kept,
        edited=edited or {},
        merged=merged or {},
        values_of_one=values_of_one or {},
        model_share=MODEL_SHARE,
        part=diagnosis.share,
        num_datasets=len(frames),
        rows=num_records(frames[0]),
        incomplete=int(table.tabulated.counts[~table.tabulated.complete].sum()),
        anonymity=k_anonymity(table),
        checked=None if checks is None else checks_plot(checks),
        max_z=MAX_Z,
        variables=variables,
        largest=None
        if imputed
        else max(differences, key=lambda found: found["difference"], default=None),
        records=records,
        smallest=SMALLEST_SHOWN,
    )


def write_synthesis_report(
    path: str | PathLike,
    run: Run,
    frames: Sequence[pd.DataFrame] | Sequence[ContingencyTable],
    **options,
) -> None:
    """Write the page of `render_synthesis_report`, which takes the same options, to a file.

    Parameters
    ----------
    path
        Where the file is written.
    run
        Chains from which the files were made.
    frames
        The synthetic files, or their tables of counts.
    options
        Further options of `render_synthesis_report`.

    Examples
    --------
    >>> bnp.report.write_synthesis_report("synthesis.html", run, files)
    """
    write_text(render_synthesis_report(run, frames, **options), path)
