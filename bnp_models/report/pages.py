"""Pages of all reports: their templates, and the parts on chains and data that all pages have."""

import platform
import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, NamedTuple

import jinja2
import numpy as np
import pandas as pd

from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.documents import Keywords, Sha256
from bnp_models.data.microdata import Records
from bnp_models.inference.arviz import versions
from bnp_models.inference.convergence import (
    CLOSE_RHAT,
    MAX_RHAT,
    MIN_ESS_PER_CHAIN,
    OTHERS_RHAT,
)
from bnp_models.inference.run import Run
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.report.plots import COLOURS, rank_plot, themed, trace_plot
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

_MAX_LEVELS_SHOWN = 12


class Filing(NamedTuple):
    """Title, author, date and input of a page."""

    date: Annotated[str, Keywords(format="date")]
    """Day on which it was made."""
    input: str
    """Name of the sample's file."""
    sha256: Sha256 | None
    """SHA-256 of that file, in hexadecimal digits; null for a folder."""
    title: str | None = None
    author: str | None = None


@cache
def environment() -> jinja2.Environment:
    """Environment of all pages: their templates and filters."""
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("bnp_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "count": "{:,}".format, "number": _number, "plain": _plain,
        "without_diagnostics": _without_diagnostics,
    }  # fmt: skip
    return pages


def render_page(template: str, run: Run, draws: dict[str, np.ndarray], **content) -> str:
    """Render a page of a run: names that all pages show, and its own content."""
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
    """Names that `base.html.j2` asks for: plots of chains, limits, versions."""
    return {
        "versions": versions() | {"python": platform.python_version()},
        "max_rhat": MAX_RHAT,
        "close_rhat": CLOSE_RHAT,
        "others_rhat": OTHERS_RHAT,
        "min_ess": MIN_ESS_PER_CHAIN * num_chains,
        "colours": [
            (chain + 1, themed(COLOURS[chain])) for chain in range(min(num_chains, len(COLOURS)))
        ],
        "traces": [
            (name, trace_plot(name, values), rank_plot(name, values))
            for name, values in draws.items()
        ],
    }


def _advice(run: Run) -> str:
    """Sentence about the treatment of equivalences; may be empty."""
    if run.coding is not None:
        return "The values that another variable determines were left out of the records."
    if (
        isinstance(run.model, MembershipOptions)
        and isinstance(run.conditions, StructuralZeros)
        and run.conditions.not_applicable.coding.absent
    ):
        return (
            "The data cannot distinguish parameters that differ only along an equivalence. With "
            "--not-applicable, values that another variable determines are left out of the "
            "records, and these parameters are left out with them."
        )
    return ""


def _conditions(conditions: StructuralZeros | Rules | None) -> dict | None:
    """Number of structural zeros, and the share of the cells that they make impossible."""
    if conditions is None or isinstance(conditions, Rules):
        return None
    share = conditions.num_impossible_cells / conditions.schema.num_cells
    # So that rounding never turns most into all, or some into none.
    digits = 1 if 0.001 <= share <= 0.999 else 4
    return {"number": conditions.num_conditions, "share": f"{100 * share:.{digits}f}%"}


def compared_levels(
    table: Records,
    frames: Sequence[pd.DataFrame] | Sequence[ContingencyTable],
    imputed: bool,
    least: int,
    shares: np.ndarray | None = None,
) -> list[dict]:
    """Proportions of the levels of each variable in the sample and in the data made of it.

    Parameters
    ----------
    table
        The sample.
    frames
        Synthetic or completed data, as `synthesize` and `impute` return them.
    imputed
        Whether they are completed: only the values that were missing are then compared.
    least
        Levels that at least one but fewer than this many records of the sample have are hidden.
    shares
        Share of each cell of the sample, by design weights. Default: that of its records.
    """
    sample = table.tabulated
    variables = []
    for j, (name, labels) in enumerate(
        zip(table.schema.variables, table.schema.levels, strict=True)
    ):
        num_levels = len(labels)
        # The first entry is of missing values.
        before = np.bincount(sample.codes[:, j] + 1, sample.counts, num_levels + 1)
        missing, before = before[0] / table.n, before[1:]
        after = np.zeros(num_levels)
        for frame in frames:
            if isinstance(frame, ContingencyTable):
                after += np.bincount(frame.codes[:, j], frame.counts, num_levels)
                continue
            codes = pd.Categorical(frame.iloc[:, j], categories=list(labels)).codes
            made = codes[table.codes[:, j] < 0] if imputed else codes
            after += np.bincount(made, minlength=num_levels)
        entry = {"name": name, "num_levels": num_levels, "missing": missing}
        if after.sum() == 0:
            variables.append(entry | {"rows": [], "more": 0, "hidden": 0})
            continue
        hidden = (before > 0) & (before < least)
        if shares is not None:
            before = np.bincount(sample.codes[:, j] + 1, shares, num_levels + 1)[1:]
        before, after = before / (before.sum() or 1), after / after.sum()
        # The most frequent ones, in the order of the levels.
        shown = np.sort(np.argsort(-before - after, kind="stable")[:_MAX_LEVELS_SHOWN])
        rest = np.setdiff1d(np.flatnonzero(~hidden), shown)
        shown = shown[~hidden[shown]]
        variables.append(entry | {
            "rows": [{"label": labels[c], "before": before[c], "after": after[c]} for c in shown],
            "scale": max(before.max(), after.max()),
            "hidden": int(hidden.sum()),
            "more": rest.size, "more_before": before[rest].sum(), "more_after": after[rest].sum(),
        })  # fmt: skip
    return variables


def _number(value: float) -> str:
    """Number with one decimal, or none from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def _plain(value: float) -> str:
    """Number without a decimal where it is whole, as quantiles of a count mostly are."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.1f}"


def _without_diagnostics(sentence: str) -> str:
    """A sentence without the R-hat and the effective draws that it has in brackets."""
    return re.sub(r" \(R-hat [^()]*\)", "", sentence)
