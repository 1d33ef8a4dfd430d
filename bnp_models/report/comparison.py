"""Models of a sample side by side: compare.json, and one self-contained HTML page."""

import platform
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from bnp_models.comparison.comparison import Compared, Comparison
from bnp_models.data.documents import Document, Seconds, Warnings
from bnp_models.data.writing import write_text
from bnp_models.inference.arviz import versions
from bnp_models.inference.convergence import MAX_RHAT, MIN_ESS_PER_CHAIN
from bnp_models.report.documents import Diagnostics, FiguresEntry
from bnp_models.report.pages import environment
from bnp_models.report.summaries import figures_of
from bnp_models.synthesis.predictive_checks import ChecksEntry
from bnp_models.version import __version__


class ComparedEntry(Document):
    """Results of a model."""

    held_out: float
    """Mean log probability of a record held out."""
    behind: float
    """Difference from the figure of the best model."""
    behind_se: float
    """Standard error of that difference."""
    checks: ChecksEntry
    diagnostics: Diagnostics
    components: float
    conditions: bool
    """Whether the model takes the conditions into account."""
    warnings: Warnings
    seconds: Seconds
    tau1: FiguresEntry | None = None
    tau2: FiguresEntry | None = None


class CompareDocument(Document):
    """compare.json of bnp-models compare."""

    n: int
    """Records."""
    population_size: float | None
    variables: Sequence[str]
    sample_uniques: int
    parts: int
    """Number of parts that the sample was divided into."""
    folds: int
    """Number of parts that were held out, one at a time."""
    held_out_records: int
    best: str
    """Model that predicts held-out records best."""
    models: Mapping[str, ComparedEntry]
    """Results of each model, by its name in --models."""
    seed: int | None
    version: str
    device: str


def comparison_summary(comparison: Comparison, *, seed: int | None = None) -> CompareDocument:
    """Content of ``compare.json``; entries called seconds depend on the clock.

    Parameters
    ----------
    comparison
        Result of `compare`.
    seed
        The seed, where there was one.
    """
    rows = {row.model: row for row in comparison.table().itertuples()}
    first = next(iter(comparison.models.values()))
    table = first.run.table
    return CompareDocument(
        n=table.n,
        population_size=None if first.risk is None else first.risk.population_size,
        variables=table.schema.variables,
        sample_uniques=len(table.cells().sample_uniques),
        parts=comparison.num_folds,
        folds=comparison.folds,
        held_out_records=len(first.log_probabilities),
        best=comparison.best,
        models={name: _compared(one, rows[name]) for name, one in comparison.models.items()},
        seed=seed,
        version=__version__,
        device=first.run.device,
    )


def _compared(one: Compared, row: Any) -> ComparedEntry:
    """Entry of a model, with its row of the table."""
    return ComparedEntry.of(
        row,
        checks=one.checks.document(),
        diagnostics=one.diagnosis.figures,
        components=one.run.draws["components"].mean(),
        conditions=one.run.conditions is not None,
        warnings=one.warnings(),
        seconds=one.run.seconds,
        tau1=None if one.risk is None else figures_of(one.risk.tau1),
        tau2=None if one.risk is None else figures_of(one.risk.tau2),
    )


def render_comparison_report(
    comparison: Comparison, *, command: str | None = None, seed: int | None = None
) -> str:
    """Report of a comparison: one self-contained HTML page.

    Parameters
    ----------
    comparison
        Result of `compare`.
    command
        The command line, where there was one.
    seed
        The seed, where there was one.
    """
    summary = comparison_summary(comparison, seed=seed)
    models = summary["models"]
    run = next(iter(comparison.models.values())).run
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            s=summary | {
                "warnings": [
                    f"model {name}: {sentence}"
                    for name, one in models.items() for sentence in one["warnings"]
                ],
                "seconds": {name: sum(one["seconds"].values()) for name, one in models.items()},
            },
            ranked=sorted(models.items(), key=lambda item: item[1]["behind"]),
            settings=run.settings,
            command=command,
            max_rhat=MAX_RHAT,
            min_ess=MIN_ESS_PER_CHAIN * run.settings.num_chains,
            versions=versions() | {"python": platform.python_version()},
        )
    )  # fmt: skip


def write_comparison_report(path: str | PathLike, comparison: Comparison, **options) -> None:
    """Write the page of `render_comparison_report`, which takes the same options."""
    write_text(render_comparison_report(comparison, **options), path)
