"""One self-contained HTML page for whoever decides on a release: the answer, and its grounds."""

import io
import platform
import re
from collections.abc import Sequence
from os import PathLike

import numpy as np
import pandas as pd

from bnp_models.diagnostics import MAX_RHAT, MIN_ESS_PER_CHAIN, monitored
from bnp_models.export import persons_of, risk_summary, run_summary, versions, write_text
from bnp_models.households import Households
from bnp_models.risk import PopulationRisk
from bnp_models.rules import Rules
from bnp_models.sampling import Run
from bnp_models.synthesis import Margins
from bnp_models.utility import k_anonymity

NUM_RISKIEST = 20
# On pages without single records, what fewer persons share is not shown.
SMALLEST_SHOWN = 5

_TRACED = ("tau1_conditional", "log_likelihood", "components", "alpha")
_METHODS = {
    "exact": "exact",
    "draws": "by shared draws of record weights",
    "sequential": "by sequential imputation",
}
_MAX_LEVELS_SHOWN = 12
_MAX_TRACE_POINTS = 400
_RANK_BINS = 20
COLOURS = ("#1f5f8b", "#c8672b", "#3d8b57", "#8a5a9e", "#a8323e", "#6b6b6b", "#b08a1e", "#2f9aa0")
_INK = "#39424e"


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
    return _render(
        "report.html.j2",
        risk.run,
        {name: draws[name] for name in _TRACED},
        s=summary,
        active=summary["components"],
        command=command,
        how=_METHODS[risk.method],
        thin=risk.thin,
        anonymity=k_anonymity(risk.run.table),
        records=records,
        histogram=_histogram(risk) if len(risk.rows) else None,
        header=list(riskiest.columns),
        riskiest=riskiest.to_numpy(dtype=object).tolist(),
    )


def write_synthesis_report(
    path: str | PathLike,
    run: Run,
    frames: Sequence[pd.DataFrame],
    margins: Margins | None = None,
    *,
    imputed: bool = False,
    command: str | None = None,
    seed: int | None = None,
    records: bool = True,
) -> None:
    """Write the report of synthetic or completed data sets.

    Parameters
    ----------
    path
        The HTML file.
    run
        The chains that they were drawn from.
    frames
        What `synthesize` returned, or `impute`.
    margins
        What `level_margins` returned: convergence is judged by them too.
    imputed
        Whether the frames are the sample, completed.
    command
        The command line, where there was one.
    seed
        The seed, where there was one.
    records
        Whether the page may show levels that fewer than five records of the sample have.
    """
    html = render_synthesis_report(
        run, frames, margins, imputed=imputed, command=command, seed=seed, records=records
    )
    write_text(html, path)


def render_synthesis_report(
    run: Run,
    frames: Sequence[pd.DataFrame],
    margins: Margins | None = None,
    *,
    imputed: bool = False,
    command: str | None = None,
    seed: int | None = None,
    records: bool = True,
) -> str:
    """The page that `write_synthesis_report` writes."""
    table = persons_of(run.table)
    if isinstance(run.table, Households):
        frames = [frame.drop(columns=run.table.schema.household) for frame in frames]
    summary = run_summary(run, margins, seed=seed)
    variables = _compared(table, frames, imputed, 0 if records else SMALLEST_SHOWN)
    differences = [
        {"name": f"{v['name']} = {row['label']}", "difference": abs(row["after"] - row["before"])}
        for v in variables
        for row in v["rows"]
    ]
    return _render(
        "synthesis.html.j2",
        run,
        monitored(run, margins=margins),
        s=summary,
        active=summary["active_components"],
        command=command,
        imputed=imputed,
        num_datasets=len(frames),
        rows=len(frames[0]),
        incomplete=int((~table.complete).sum()),
        anonymity=k_anonymity(table),
        variables=variables,
        largest=None
        if imputed
        else max(differences, key=lambda found: found["difference"], default=None),
        records=records,
        smallest=SMALLEST_SHOWN,
    )


def environment():
    """Where the templates of all pages are."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("bnp_models", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"count": "{:,}".format, "number": _number, "plain": _plain}
    return found


def _render(template, run, draws, **content):
    """A page: what all of them show, and its own content."""
    return (
        environment()
        .get_template(template)
        .render(
            settings=run.settings,
            conditions=_conditions(run.conditions),
            rules=list(map(str, run.conditions)) if isinstance(run.conditions, Rules) else [],
            advice=_advice(run),
            **of_chains(draws, run.settings.num_chains),
            **content,
        )
    )


def of_chains(draws: dict[str, np.ndarray], num_chains: int) -> dict:
    """What every page is told of chains, and of what made it: names for `base.html.j2`."""
    return {
        "versions": versions() | {"python": platform.python_version()},
        "max_rhat": MAX_RHAT,
        "min_ess": MIN_ESS_PER_CHAIN * num_chains,
        "colours": [
            (chain + 1, COLOURS[chain % len(COLOURS)])
            for chain in range(min(num_chains, len(COLOURS)))
        ],
        "traces": [
            (name, _trace(name, values), _ranks(name, values)) for name, values in draws.items()
        ],
    }


def _advice(run):
    """What to do about equivalences."""
    if getattr(run.model, "not_applicable", False):
        return "The items that another variable settles were left out of the records."
    if (
        hasattr(run.model, "not_applicable")
        and run.conditions is not None
        and run.conditions.not_applicable.absent
    ):
        return (
            "The data cannot tell apart parameters that differ only along an equivalence; with "
            "--not-applicable, items that another variable settles are left out of the records, "
            "and so are those parameters."
        )
    return ""


def _conditions(conditions):
    if conditions is None or isinstance(conditions, Rules):
        return None
    share = conditions.num_impossible_cells / conditions.schema.num_cells
    # So that rounding never turns most into all, or some into none.
    digits = 1 if 0.001 <= share <= 0.999 else 4
    return {"number": conditions.num_conditions, "share": f"{100 * share:.{digits}f}%"}


def _compared(table, frames, imputed, least):
    """Per variable, how often its levels occur in the sample and in what was made of it.

    Levels that some but fewer than `least` records of the sample have are not told of.
    """
    missing = table.codes < 0
    found = []
    for j, (name, labels) in enumerate(
        zip(table.schema.variables, table.schema.levels, strict=True)
    ):
        num_levels = len(labels)
        before = np.bincount(table.codes[~missing[:, j], j], minlength=num_levels)
        after = np.zeros(num_levels)
        for frame in frames:
            codes = pd.Categorical(frame.iloc[:, j], categories=list(labels)).codes
            after += np.bincount(codes[missing[:, j]] if imputed else codes, minlength=num_levels)
        entry = {"name": name, "num_levels": num_levels, "missing": missing[:, j].mean()}
        if after.sum() == 0:
            found.append(entry | {"rows": [], "more": 0, "hidden": 0})
            continue
        hidden = (before > 0) & (before < least)
        before, after = before / max(before.sum(), 1), after / after.sum()
        # The most frequent ones, in the order of the levels.
        shown = np.sort(np.argsort(-before - after, kind="stable")[:_MAX_LEVELS_SHOWN])
        rest = np.setdiff1d(np.flatnonzero(~hidden), shown)
        shown = shown[~hidden[shown]]
        found.append(entry | {
            "rows": [{"label": labels[c], "before": before[c], "after": after[c]} for c in shown],
            "scale": max(before.max(), after.max()),
            "hidden": int(hidden.sum()),
            "more": rest.size, "more_before": before[rest].sum(), "more_after": after[rest].sum(),
        })  # fmt: skip
    return found


def _number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def _plain(value):
    """Without a decimal where there is nothing to show: quantiles of a count are mostly whole."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.1f}"


def _histogram(risk):
    draws = risk.tau1.ravel()
    low, high = int(draws.min()), int(draws.max())
    width = max(1, -(-(high - low + 1) // 50))
    edges = np.arange(low, high + width + 1, width) - 0.5
    heights = np.histogram(draws, edges)[0] / draws.size
    interval = np.quantile(draws, [0.025, 0.975])
    figure, axes = new_axes(5.4, 2.4)
    axes.axvspan(interval[0] - 0.5, interval[1] + 0.5, color="#e4edf4", lw=0, label="95% interval")
    axes.bar(edges[:-1] + width / 2, heights, width * 0.9, color=COLOURS[0])
    axes.axvline(draws.mean(), color=COLOURS[1], lw=1.6, label=f"mean {draws.mean():.1f}")
    axes.set_xlabel("sample uniques that are unique in the population")
    axes.set_ylabel("posterior probability")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return as_svg(figure, "Posterior of tau1")


def _trace(name, values):
    figure, axes = new_axes(4.2, 1.9)
    step = -(-values.shape[1] // _MAX_TRACE_POINTS)
    for chain, draws in enumerate(values):
        axes.plot(
            np.arange(values.shape[1])[::step], draws[::step], lw=0.6, alpha=0.8,
            color=COLOURS[chain % len(COLOURS)],
        )  # fmt: skip
    axes.set_xlabel("draw")
    return as_svg(figure, f"Trace of {name}, one line a chain")


def _ranks(name, values):
    """Histograms of each chain's ranks among all draws: flat where the chains agree."""
    figure, axes = new_axes(4.2, 1.9)
    num_chains, num_draws = values.shape
    # Ties are broken at random, with a fixed seed: a count such as components is full of them.
    tie = np.random.default_rng(0).permutation(values.size)
    rank = np.empty(values.size, int)
    rank[np.lexsort((tie, values.ravel()))] = np.arange(values.size)
    bins = min(_RANK_BINS, num_draws)
    edges = np.linspace(0, values.size, bins + 1)
    for chain, ranks in enumerate(rank.reshape(values.shape)):
        heights = np.histogram(ranks, edges)[0] * bins / num_draws
        axes.stairs(heights, edges, lw=1.2, color=COLOURS[chain % len(COLOURS)])
    axes.axhline(1, color=_INK, lw=0.8, ls=":")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rank among all draws")
    return as_svg(figure, f"Rank plot of {name}, one line a chain")


def new_axes(width, height):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b8c0c8")
    axes.tick_params(labelsize=8, color="#b8c0c8", labelcolor=_INK)
    axes.xaxis.label.set(fontsize=8.5, color=_INK)
    axes.yaxis.label.set(fontsize=8.5, color=_INK)
    return figure, axes


def as_svg(figure, title):
    """The figure as inline SVG: the same draws give the same text, and no id occurs twice."""
    import markupsafe
    import matplotlib

    buffer = io.StringIO()
    settings = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r'<g id="[^"]*">', "<g>", text[text.index("<svg ") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    label = markupsafe.escape(title)
    return markupsafe.Markup(text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))
