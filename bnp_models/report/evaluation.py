"""One self-contained HTML page on the utility and the disclosure risk of synthetic data."""

from collections.abc import Sequence
from os import PathLike

import numpy as np

from bnp_models.data.identifying import SMALLEST_SHOWN
from bnp_models.data.writing import write_text
from bnp_models.evaluation.proportion_estimates import Proportions
from bnp_models.evaluation.result import BAD_RATIO, Evaluation, share_entries
from bnp_models.report.pages import environment, of_chains
from bnp_models.report.plots import COLOURS, INK, as_svg, new_axes

_WORST_SHOWN = {1: 12, 2: 12, 3: 12}
_LABELS = {1: "one variable", 2: "two variables", 3: "three variables"}
# Points of a plot are drawn once for each square of this grid.
_GRID = 110
_COMBINING = {
    "partially": "The estimates from the synthetic files are combined by the rule for partially "
    "synthetic data, which also holds for the files of bnp-models synthesize (T = ū + "
    "b / M, where ū is the variance for a file of the original's size).",
    "fully": "The estimates from the synthetic files are combined by the rule for fully synthetic "
    "data (T = (1 + 1/M) b − ū, with b the variance between the M estimates; if that is not "
    "positive, T = ū instead, for a file of the "
    "original's size).",
}


def render_evaluation_report(
    evaluation: Evaluation,
    names: Sequence[str] | None = None,
    *,
    command: str | None = None,
    records: bool = True,
) -> str:
    """Report of an evaluation.

    Parameters
    ----------
    evaluation
        Result of `evaluate`.
    names
        Names of the synthetic files; by default their numbers.
    command
        The command line, where there was one.
    records
        Whether the page may show single records, and cells with fewer than five.

    Returns
    -------
    html
        One self-contained page.
    """
    summary = evaluation.summary(names)
    parts = evaluation.proportions
    least = 0 if records else SMALLEST_SHOWN
    overlaps = [row["overlap"] for row in summary["proportions"].values()]
    replicated = evaluation.replicated
    sizes = sorted({file["rows"] for file in summary["files"]})
    synthetic = summary["k_anonymity"]["synthetic"]
    page = environment()
    page.filters |= {"percent": _percent, "points": _points}
    return page.get_template("evaluation.html.j2").render(
        s=summary,
        command=command,
        records=records,
        attacked_by_runs=evaluation.attacked_by_runs,
        smallest=SMALLEST_SHOWN,
        bad_ratio=BAD_RATIO,
        # Expected pMSE ratio of a second sample of the population. Files of `synthesize` have their
        # own draws of the parameters each, so that a ratio up to this one is as good as can be.
        ideal=1 + np.mean([file["rows"] for file in summary["files"]]) / summary["n"],
        rows=" to ".join(f"{size:,}" for size in (sizes[:1] + sizes[-1:])[: len(sizes)]),
        overlaps=[] if None in overlaps else [f"{100 * x:.0f}%" for x in overlaps],
        combining=_COMBINING[summary["combining"]],
        scatters=[(_LABELS[k], _scatter(part, "original", least, k)) for k, part in parts.items()],
        of_population=[
            (_LABELS[k], _scatter(part, "population", least, k))
            for k, part in parts.items()
            if part.population is not None
        ],
        histograms=[
            (_LABELS[k], _overlaps(part, k)) for k, part in parts.items() if part.judged.any()
        ],
        worst=[
            (f"Tables of {_LABELS[k]}", part.fit.head(_WORST_SHOWN[k]).to_dict("records"))
            for k, part in parts.items()
        ],
        shares=_shares(evaluation, least),
        anonymity=[
            row | {"synthetic": np.mean([rows[i]["share"] for rows in synthetic if rows] or [0])}
            for i, row in enumerate(summary["k_anonymity"]["original"])
        ],
        found_share=_percent(float(np.mean(replicated.found)) / max(replicated.uniques, 1)),
        **of_chains({}, 1),
    )


def write_evaluation_report(
    path: str | PathLike, evaluation: Evaluation, names: Sequence[str] | None = None, **options
) -> None:
    """Write the page of `render_evaluation_report`, which takes the same options, to a file.

    Parameters
    ----------
    path
        Where the file is written.
    evaluation
        Result of `evaluate`.
    names
        Names of the synthetic files, for the tables of the page. Default: their numbers.
    options
        Further options of `render_evaluation_report`.

    Examples
    --------
    >>> bnp.report.write_evaluation_report("evaluation.html", bnp.evaluate(table, files))
    """
    write_text(render_evaluation_report(evaluation, names, **options), path)


def _shares(evaluation: Evaluation, least: int) -> list[dict]:
    """Shares of households; those of fewer than `least` households of the original are hidden."""
    if evaluation.shares is None:
        return []
    households = evaluation.original.n
    return [
        row | {"hidden": 0 < round(row["original"] * households) < least}
        for row in share_entries(evaluation.shares)
    ]


def _percent(value: float | None) -> str:
    """Share in per cent, or a dash."""
    return "–" if value is None else f"{100 * value:.1f}%"


def _points(value: float) -> str:
    """Difference of shares, in percentage points."""
    return f"{100 * value:.2f}"


def _scatter(part: Proportions, across: str, least: int, order: int):
    """Proportions of the cells on scales by square root, each square of a grid drawn once."""
    shown = (part.count == 0) | (part.count >= least)
    x, y = np.sqrt(vars(part)[across][shown]), np.sqrt(part.synthetic[shown])
    top = max(x.max(initial=0), y.max(initial=0), 1e-3) * 1.03
    _, first = np.unique(
        np.floor(x / top * _GRID) * _GRID + np.floor(y / top * _GRID), return_index=True
    )
    figure, axes = new_axes(3.1, 2.9)
    axes.plot([0, top], [0, top], color=INK, lw=0.8, ls=":")
    size = {1: 14, 2: 8}.get(order, 4)
    axes.scatter(x[first], y[first], s=size, color=COLOURS[0], alpha=0.6, lw=0)
    ticks = [t for t in (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1) if np.sqrt(t) <= top]
    labels = [f"{100 * t:g}%" for t in ticks]
    axes.set_xticks(np.sqrt(ticks), labels)
    axes.set_yticks(np.sqrt(ticks), labels)
    axes.set_xlim(-0.02 * top, top)
    axes.set_ylim(-0.02 * top, top)
    axes.set_xlabel(f"in the {across}")
    axes.set_ylabel("in the synthetic files")
    return as_svg(figure, f"Proportions in the {across} and in synthetic files, {_LABELS[order]}")


def _overlaps(part: Proportions, order: int):
    """Histogram of the overlap of intervals, over the cells that are judged."""
    figure, axes = new_axes(3.1, 1.9)
    overlap = part.overlap[part.judged]
    heights, edges = np.histogram(overlap, np.linspace(0, 1, 21))
    axes.bar(edges[:-1], heights / overlap.size, 0.046, align="edge", color=COLOURS[0])
    mean = overlap.mean()
    axes.axvline(mean, color=COLOURS[1], lw=1.6, label=f"mean {100 * mean:.0f}%")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_xlim(-0.01, 1.01)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set_xlabel("overlap")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return as_svg(figure, f"Overlap of intervals, {_LABELS[order]}")
