"""Plots of reports as inline SVG: histograms, traces and ranks."""

import io
import re
from decimal import Decimal

import numpy as np

from bnp_models.risk.population import PopulationRisk
from bnp_models.synthesis.predictive_checks import PredictiveChecks

TRACED = ("tau1_conditional", "log_likelihood", "components", "alpha")

_MAX_TRACE_POINTS = 400

_RANK_BINS = 20

COLOURS = ("#1f5f8b", "#c8672b", "#3d8b57", "#8a5a9e", "#a8323e", "#6b6b6b", "#b08a1e", "#2f9aa0")

INK = "#39424e"
BAND = "#e4edf4"
BAR = "#a9c3d8"
_LINE = "#b8c0c8"

# What a page paints each colour with: `base.html.j2` has others for a dark screen.
_THEMED = {
    INK: "currentColor", BAND: f"var(--band,{BAND})", BAR: f"var(--before,{BAR})",
    _LINE: f"var(--axis,{_LINE})",
    **{colour: f"var(--c{i + 1},{colour})" for i, colour in enumerate(COLOURS)},
}  # fmt: skip

SAME = "the same in every draw"


def histogram_plot(risk: PopulationRisk):
    """Posterior of tau_1, with its mean and its 95% interval; one bar where all draws agree."""
    draws = risk.tau1.ravel()
    low, high = int(draws.min()), int(draws.max())
    width = max(1, -(-(high - low + 1) // 50))
    edges = np.arange(low, high + width + 1, width) - 0.5
    heights = np.histogram(draws, edges)[0] / draws.size
    figure, axes = new_axes(4.4, 2.2)
    axes.bar(edges[:-1] + width / 2, heights, width * 0.9, color=COLOURS[0])
    if low == high:
        axes.set_title(f"{low:,}: {SAME}", fontsize=8.5, color=INK)
        axes.set_xticks([low])
        axes.set_xlim(low - 4, low + 4)
    else:
        interval, mean = np.quantile(draws, [0.025, 0.975]), draws.mean()
        axes.axvspan(*interval + [-0.5, 0.5], color=BAND, lw=0, zorder=0, label="95% interval")
        axes.axvline(mean, color=COLOURS[1], lw=1.6, label=f"mean {mean:,.1f}")
        axes.locator_params("x", integer=True)
        _legend_above(axes)
    axes.set_xlabel("sample uniques that are unique in the population")
    axes.set_ylabel("posterior probability")
    return as_svg(figure, "Posterior of tau1")


def checks_plot(checks: PredictiveChecks, unit: str = "record", cell: str = "cell"):
    """Numbers of cells with 1, 2 and 3 records: of the replicates, and of the sample.

    For the risk of households, cells are compositions and records are households.
    """
    figure, axes = new_axes(4.4, 1.9)
    for place, check in enumerate(checks.cells.values()):
        label = ("95% of the replicates", "sample") if place == 0 else (None, None)
        interval = np.quantile(check.replicated, [0.025, 0.975])
        axes.plot(interval, [place, place], color=BAR, lw=6, label=label[0])
        axes.plot(check.predicted, place, "|", color=COLOURS[0], ms=12, mew=2)
        axes.plot(check.observed, place, "o", color=COLOURS[1], ms=5, label=label[1])
    sizes = list(checks.cells)
    axes.set_yticks(range(len(sizes)), [f"{n} {unit}{'s'[: n > 1]}" for n in sizes])
    axes.set_ylim(len(sizes) - 0.6, -0.4)
    axes.set_xlabel(f"number of {cell}s")
    axes.locator_params("x", integer=True)
    _legend_above(axes)
    title = f"{cell.title()}s with one, two and three {unit}s, expected and observed"
    return as_svg(figure, title)


def trace_plot(name: str, values: np.ndarray):
    """Draws of each chain, thinned to what a small plot can show."""
    figure, axes = new_axes(4.2, 1.9)
    step = -(-values.shape[1] // _MAX_TRACE_POINTS)
    for chain, draws in enumerate(values):
        axes.plot(
            np.arange(values.shape[1])[::step], draws[::step], lw=0.6, alpha=0.8,
            color=COLOURS[chain % len(COLOURS)],
        )  # fmt: skip
    axes.locator_params("y", integer=bool((values % 1 == 0).all()))
    if np.ptp(values) == 0:
        _say_same(axes, values.flat[0])
    axes.set_xlabel("draw")
    return as_svg(figure, f"Trace of {name}, one line a chain")


def rank_plot(name: str, values: np.ndarray):
    """Histograms of each chain's ranks among all draws: flat where the chains agree."""
    figure, axes = new_axes(4.2, 1.9)
    axes.axhline(1, color=INK, lw=0.8, ls=":")
    axes.set_xlabel("rank among all draws")
    title = f"Rank plot of {name}, one line a chain"
    if np.ptp(values) == 0:
        axes.set_title("no draw ranks above another", fontsize=8.5, color=INK)
        axes.set(xlim=(0, values.size), ylim=(0, 2))
        return as_svg(figure, title)
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
    axes.set_ylim(bottom=0)
    return as_svg(figure, title)


def new_axes(width: float, height: float):
    """Figure of this size in inches, and its axes, in the style of all pages."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LINE)
    axes.tick_params(which="both", labelsize=8, color=_LINE, labelcolor=INK)
    axes.locator_params(nbins=6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(fontsize=8.5, color=INK)
        axis.set_major_formatter(plain_tick)
    return figure, axes


def plain_tick(value: float, _=None) -> str:
    """Tick as it is read: thousands apart, no exponent, nothing to be added to it."""
    return f"{Decimal(f'{value + 0.0:.12g}'):,f}".replace("-", "\N{MINUS SIGN}")


def themed(colour: str) -> str:
    """Colour of this module as the style sheet of pages has it, in either scheme."""
    return _THEMED[colour]


def _legend_above(axes):
    """Legend over the axes, at the right."""
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))


def _say_same(axes, value: float):
    """Scale around the one value of a flat trace, and a title that says so."""
    axes.set_title(SAME, fontsize=8.5, color=INK)
    axes.set_yticks([value], [plain_tick(float(f"{value:.6g}"))])
    half = max(abs(value) / 10, 1)
    axes.set_ylim(value - half, value + half)


def as_svg(figure, title):
    """Inline SVG of a figure: the same draws give the same text, and no id occurs twice."""
    import markupsafe
    import matplotlib

    buffer = io.StringIO()
    settings = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r'<g id="[^"]*">', "<g>", text[text.index("<svg ") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _THEMED.get(found[0], found[0]), text)
    label = markupsafe.escape(title)
    return markupsafe.Markup(text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))
