"""Pages of all reports: their templates, and what every page shows of chains and data."""

import platform

import numpy as np
import pandas as pd

from bnp_models.inference.arviz import versions
from bnp_models.inference.diagnostics import MAX_RHAT, MIN_ESS_PER_CHAIN
from bnp_models.report.plots import COLOURS, rank_plot, trace_plot
from bnp_models.rules.rules import Rules

_MAX_LEVELS_SHOWN = 12


def environment():
    """Where the templates of all pages are."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("bnp_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"count": "{:,}".format, "number": _number, "plain": _plain}
    return found


def render_page(template, run, draws, **content):
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
            (name, trace_plot(name, values), rank_plot(name, values))
            for name, values in draws.items()
        ],
    }


def _advice(run):
    """What to do about equivalences."""
    if getattr(run.model, "not_applicable", False):
        return "The items that another variable settles were left out of the records."
    if (
        hasattr(run.model, "not_applicable")
        and run.conditions is not None
        and run.conditions.not_applicable.coding.absent
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


def compared_levels(table, frames, imputed, least):
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
