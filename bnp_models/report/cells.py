"""Risk of each cell as files: risk.json, draws for ArviZ, cells.csv, and one HTML page."""

from os import PathLike
from typing import Any

import jax
import numpy as np
import pandas as pd

from bnp_models.data.microdata import k_anonymity
from bnp_models.data.schema import MicrodataError
from bnp_models.data.writing import write_table, write_text
from bnp_models.inference.arviz import draws_dataset, groups_for_arviz
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.report.documents import CellsRiskDocument, FiguresEntry, FitEntry
from bnp_models.report.pages import Filing, environment, of_chains
from bnp_models.report.plots import COLOURS, as_svg, new_axes, plain_tick
from bnp_models.report.risk import NUM_RISKIEST
from bnp_models.report.summaries import figures_of
from bnp_models.risk import baselines as classical
from bnp_models.risk.baselines import Baselines
from bnp_models.risk.cells import CellRisk, counts_of_counts
from bnp_models.risk.verdict import Limits, VerdictEntry, figures_of_draws, judge
from bnp_models.version import __version__

CELL_COLUMNS = ("f", "phat", "risk", "p_unique", "median", "mode", "q025", "q975")

_HEADERS = {
    "f": "records", "phat": "sampling fraction", "p_unique": "chance of one person only",
    "median": "persons, median", "q025": "2.5%", "q975": "97.5%",
}  # fmt: skip

_COUNTS = ("f", "median", "mode", "q025", "q975")

_METHODS = {
    "fixed": "the hyperparameters were given",
    "empirical-bayes": "the hyperparameters maximise the likelihood",
    "full-bayes": "the hyperparameters were sampled, and everything is averaged over them",
}
# The marginal fits badly where cells with no record or one are expected to be this much fewer or
# more than they are.
_MISFIT = 0.2


def monitored_cells(result: CellRisk) -> dict[str, np.ndarray]:
    """Quantities that convergence is judged by, each (chains, draws); none without chains."""
    if result.draws is None:
        return {}
    return {
        "tau1": result.tau1, "tau1_conditional": result.tau1_conditional, **result.draws.values,
        "log_likelihood": result.log_likelihood,
    }  # fmt: skip


def cell_risk_summary(
    result: CellRisk,
    *,
    method: str = "fixed",
    seed: int | None = None,
    seconds: dict | None = None,
    limits: Limits | None = None,
    baselines: Baselines | None = None,
) -> CellsRiskDocument:
    """Content of ``risk.json``; only its last two entries depend on the clock.

    Parameters
    ----------
    result
        Result of `cell_risk`.
    method
        Source of the hyperparameters: "fixed", "empirical-bayes" or "full-bayes".
    seed
        The seed, where there was one.
    seconds
        Wall-clock seconds by part of the run; default: those of `result`.
    limits
        An agency's limits, by which a verdict is given.
    baselines
        Classical estimates, which are shown beside those of the model.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> bnp.report.cell_risk_summary(result)["population_size"]
    5000
    """
    cells, diagnosis = result.cells, Diagnosis(monitored_cells(result))
    schema = cells.table.schema
    fit = counts_of_counts(result.model, result.cells)
    hyperparameters: dict[str, Any] = (
        result.model.hyperparameters
        if result.draws is None
        else {name: figures_of(value) for name, value in result.draws.values.items()}
    )
    conditional = result.tau1_conditional
    # Means, and the spread of tau_1, without the error of simulation.
    sd = np.sqrt(np.var(conditional) + np.mean(result.tau1_variance))
    tau1 = FiguresEntry(**figures_of(result.tau1) | {"mean": conditional.mean(), "sd": sd})
    tau2 = FiguresEntry(**figures_of(result.tau2) | {"mean": result.tau2_conditional.mean()})
    warnings = _cell_warnings(result, fit, diagnosis, method)
    against = [sentence for sentence in warnings if sentence not in result.cells.warnings()]
    why = f"tau1 should not be used: {'; '.join(against)}"
    timing = dict.fromkeys(("compile", "warmup", "draws"), 0.0) | (seconds or result.seconds)
    return CellsRiskDocument(
        model=result.model.name,
        n=cells.table.n,
        population_size=cells.population_size,
        variables=schema.variables,
        levels=schema.num_levels,
        cells=cells.num_cells,
        non_empty_cells=len(cells.f),
        sample_uniques=(cells.f == 1).sum(),
        seed=seed,
        version=__version__,
        device=", ".join(sorted({device.device_kind for device in jax.devices()})),
        hyperparameters={"method": method, **hyperparameters},
        tau1=tau1,
        tau1_conditional=figures_of(conditional),
        tau2=tau2,
        tau2_conditional=figures_of(result.tau2_conditional),
        verdict=_verdict(result, tau1, limits, not against, why),
        **({} if baselines is None else baselines.document()),
        log_likelihood=np.mean(result.log_likelihood),
        fit=[FitEntry.of(row) for row in fit.itertuples()],
        diagnostics=diagnosis.figures,
        modes=diagnosis.modes.document() if diagnosis.draws else None,
        warnings=warnings,
        seconds={name: round(value, 3) for name, value in timing.items()},
        # There are no sweeps: the entry is for programs that read it of other models.
        sweeps_per_second=None,
    )


def _verdict(
    result: CellRisk, tau1: FiguresEntry, limits: Limits | None, usable: bool, why: str
) -> VerdictEntry | None:
    """Entry "verdict", where there are limits."""
    if limits is None or not limits.given:
        return None
    r1 = result.p_unique[result.cells.f == 1]
    return judge(
        figures_of_draws(result.tau1) | {"mean": tau1["mean"]}, r1, limits, usable, why
    ).document()


def _cell_warnings(
    result: CellRisk, fit: pd.DataFrame, diagnosis: Diagnosis, method: str
) -> list[str]:
    """Warnings to read before the figures are used."""
    sentences = result.cells.warnings()
    if method != "fixed" and _strata_of_empty_cells(result) is None:
        sentences.append(
            "the sampling fractions of the empty cells are not known: the weights differ between "
            "cells, but not by the levels of one or two key variables, so that every empty cell "
            "was given the sampling fraction of the whole sample; the hyperparameters, and with "
            "them all figures, depend on it; give the fractions (empty_phat, --empty-phat), or "
            "include the variables that define the strata among the key variables"
        )
    seen, expected = fit["observed"].to_numpy(float), fit["expected"].to_numpy(float)
    uniques = abs(expected[1] - seen[1]) > _MISFIT * seen[1] + 3 * np.sqrt(seen[1] + 1)
    filled = result.cells.num_cells - expected[0], result.cells.num_cells - seen[0]
    if uniques or abs(filled[0] / filled[1] - 1) > _MISFIT:
        sentences.append(
            f"misfit: with these hyperparameters {filled[0]:,.0f} cells are expected to have "
            f"records and {expected[1]:,.0f} to have exactly one, but {filled[1]:,.0f} cells have "
            f"records and {seen[1]:,.0f} have exactly one; choose other hyperparameters, or have "
            "them estimated, before using the figures"
        )
    if result.draws is not None:
        sentences += diagnosis.warnings
        diverging = int(result.draws.statistics["diverging"].sum())
        if diverging:
            sentences.append(
                f"{diverging} divergent transition{'s'[: diverging > 1]}: the draws may miss part "
                "of the posterior; run a longer warm-up"
            )
    return sentences


def _strata_of_empty_cells(result: CellRisk) -> tuple[str, ...] | None:
    """Variables whose strata the empty cells' sampling fractions are of; None if not known.

    Empty if the fractions are given, and in Model I, which does not use them.
    """
    if result.model.variant == 1 or result.model.empty_phat is not None:
        return ()
    return result.cells.strata


def cell_inference_data(result: CellRisk, *, seed: int | None = None):
    """Draws for ArviZ, as `bnp_models.to_inference_data` gives those of a run.

    Without chains, the hyperparameters are constants, and the draws of tau1 are independent.

    Parameters
    ----------
    result
        Result of `cell_risk`.
    seed
        Seed of the run, which is written with the draws. Default: none is written.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> data = bnp.report.cell_inference_data(result)
    >>> "tau1" in data["posterior"]
    True
    """
    shape = result.tau1.shape
    values = {n: np.full(shape, v) for n, v in result.model.hyperparameters.items()}
    statistics = {}
    if result.draws is not None:
        values, statistics = result.draws.values, result.draws.statistics
    groups = {
        "posterior": draws_dataset({
            **values, "tau1": result.tau1, "tau1_conditional": result.tau1_conditional,
            "tau2": result.tau2, "tau2_conditional": result.tau2_conditional,
            "log_likelihood": result.log_likelihood,
        }),
        "sample_stats": draws_dataset({"tau1_variance": result.tau1_variance, **statistics}),
    }  # fmt: skip
    attributes = {"model": result.model.name, "population_size": result.cells.population_size}
    return groups_for_arviz(groups, attributes | ({} if seed is None else {"seed": seed}))


def cells_frame(result: CellRisk, *, baselines: bool = False) -> pd.DataFrame:
    """Table that cells.csv holds: `CellRisk.frame`, riskiest first.

    Parameters
    ----------
    result
        Result of `cell_risk`.
    baselines
        Add the risk of Benedetti & Franconi, and of Poisson log-linear models: with main effects,
        with all two-way interactions, and with some of them, along a forest or searched for. Models
        that would take longer than a few seconds are left out.

    Raises
    ------
    MicrodataError
        If a key variable has the name of another column.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> "risk" in bnp.report.cells_frame(result)
    True
    """
    check_names(result.cells.table.schema.variables, baselines)
    frame = result.frame()
    if baselines:
        order = np.argsort(-result.risk, kind="stable")
        for baseline in classical.baselines(result.cells).found:
            frame[baseline.name] = baseline.risk[order]
    return frame


def check_names(variables, baselines: bool = False) -> None:
    """Raise MicrodataError if a variable has the name of a column of cells.csv.

    Parameters
    ----------
    variables
        Names of the variables.
    baselines
        Whether the file also has the columns of the classical estimators.

    Examples
    --------
    >>> bnp.report.check_names(table.schema.variables)
    """
    for name in (*CELL_COLUMNS, *(classical.NAMES if baselines else ())):
        if name in variables:
            raise MicrodataError(
                "cells.csv has a column of this name; rename the variable or choose variables "
                "without it",
                column=name,
            )


def write_cells(
    result: CellRisk, path: str | PathLike, *, baselines: bool = False, bom: bool = False
) -> None:
    """Write one row per non-empty cell, riskiest first, as `write_table` writes.

    Parameters
    ----------
    result
        Result of `cell_risk`.
    path
        Where the CSV file is written.
    baselines
        Whether to add the columns of the classical estimators.
    bom
        Whether the file begins with a byte order mark, by which Excel recognises UTF-8.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> bnp.io.write_cells(result, "cells.csv")
    >>> len(pd.read_csv("cells.csv")) == len(cells.f)
    True
    """
    figures = [name for name in (*CELL_COLUMNS, *classical.NAMES) if name not in _COUNTS]
    write_table(cells_frame(result, baselines=baselines), path, figures, bom=bom)


def render_cell_report(
    result: CellRisk, summary: dict, *, command: str | None = None, records: bool = True,
    filing: Filing | None = None,
) -> str:  # fmt: skip
    """Report of the risk of cells.

    Parameters
    ----------
    result
        Result of `cell_risk`.
    summary
        Result of `cell_risk_summary`.
    command
        The command line, where there was one.
    records
        Whether the page may show single cells.
    filing
        Title, author, date and input of the page.

    Returns
    -------
    html
        One self-contained page.
    """
    draws = monitored_cells(result)
    riskiest = result.frame().head(NUM_RISKIEST)
    page = environment().get_template("cells.html.j2")
    return page.render(
        s=summary,
        command=command,
        filing=filing,
        how=_METHODS[summary["hyperparameters"]["method"]],
        strata=_strata_of_empty_cells(result),
        values={
            name: value if result.draws is None else value["mean"]
            for name, value in summary["hyperparameters"].items()
            if name != "method"
        },
        fit=summary["fit"],
        fit_plot=plot_fit(pd.DataFrame(summary["fit"])),
        anonymity=k_anonymity(result.cells.table),
        records=records,
        header=[_HEADERS.get(name, name) for name in riskiest.columns],
        riskiest=[[_shown(value) for value in row] for row in riskiest.to_numpy(dtype=object)],
        **of_chains(draws, len(result.tau1)),
    )


def write_cell_report(path: str | PathLike, result: CellRisk, summary: dict, **options) -> None:
    """Write the page of `render_cell_report`, which takes the same options, to an HTML file.

    Parameters
    ----------
    path
        Where the file is written.
    result
        Result of `cell_risk`.
    summary
        Result of `cell_risk_summary`.
    options
        Further options of `render_cell_report`.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> bnp.report.write_cell_report("cells.html", result, bnp.report.cell_risk_summary(result))
    """
    write_text(render_cell_report(result, summary, **options), path)


def plot_fit(fit: pd.DataFrame):
    """Numbers of cells by number of records, observed and expected, as inline SVG."""
    figure, axes = new_axes(4.4, 2.2)
    x = np.arange(len(fit))
    axes.plot(x, np.maximum(fit["observed"], 1e-9), "o", color=COLOURS[0], label="observed")
    axes.plot(x, np.maximum(fit["expected"], 1e-9), "x", color=COLOURS[1], label="expected")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plain_tick)
    axes.yaxis.set_minor_formatter("")
    axes.set_ylim(bottom=0.3)
    axes.set_xticks(x, fit["records"], rotation=30)
    axes.set_xlabel("records in the cell")
    axes.set_ylabel("cells")
    axes.legend(frameon=False, fontsize=8)
    return as_svg(figure, "Cells by number of records, observed and expected")


def _shown(value):
    """Value of the table of cells as the page has it."""
    return f"{value:.3g}" if isinstance(value, float) else value
