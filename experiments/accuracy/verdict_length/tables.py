"""Makes table.md of the draws that run.py keeps."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.inference.convergence import (
    ENDS,
    MAX_RHAT,
    Converged,
    FigureErrors,
    monte_carlo_errors,
)
from bnp_models.risk.verdict import MARGIN

HERE = Path(__file__).parent
LENGTHS = (50, 100, 200, 400)
LIMITS = (0.25, 0.5, 0.8, 1.25, 2, 4)
MULTIPLES = (0, 1, 2, 3)


class Figures(NamedTuple):
    """What the rules need of the draws of tau_1."""

    converged: bool
    mean: float
    ends: np.ndarray
    errors: FigureErrors


def figures_of(tau1: np.ndarray) -> Figures:
    """Figures of (chains, draws) draws."""
    return Figures(
        not Converged(MAX_RHAT).missed({"tau1": tau1}), float(tau1.mean()),
        np.quantile(tau1, ENDS), monte_carlo_errors(tau1),
    )  # fmt: skip


def rule_before(found: Figures, limit: float) -> bool | None:
    """The earlier rule: unknown unless converged, no by the mean, yes by the interval's end."""
    if not found.converged:
        return None
    if found.mean > limit:
        return False
    return True if found.ends[1] <= limit else None


def rule_by_interval(found: Figures, limit: float, multiple: float) -> bool | None:
    """By the end of the interval, moved towards the limit by so many Monte Carlo errors."""
    if found.ends[0] - multiple * found.errors.low > limit:
        return False
    return True if found.ends[1] + multiple * found.errors.high <= limit else None


def rule_by_mean(found: Figures, limit: float, multiple: float) -> bool | None:
    """No by the mean, yes by the upper end, each moved by so many Monte Carlo errors."""
    if found.mean - multiple * found.errors.mean > limit:
        return False
    return True if found.ends[1] + multiple * found.errors.high <= limit else None


RULES = {
    "before": rule_before,
    "interval and 2 errors": partial(rule_by_interval, multiple=2),
    **{f"mean and {m} errors": partial(rule_by_mean, multiple=m) for m in MULTIPLES},
}
NOW = f"mean and {MARGIN:g} errors"
WORDS = {True: "yes", False: "no", None: "unknown"}
COLUMNS = ("decided", "false", "reversed", "withdrawn", "later")


def answers(known: dict[str, np.ndarray]) -> Iterator[dict]:
    """A row for each run, rule and limit, with the answer at each length of the chains."""
    for run in [name.removesuffix("-about") for name in known if name.endswith("-about")]:
        truth, misfit = known[f"{run}-about"]
        if misfit:
            continue
        figures = {length: figures_of(known[run][:, :length]) for length in LENGTHS}
        for rule, judge in RULES.items():
            for times in LIMITS:
                found = {
                    length: WORDS[judge(one, times * truth)] for length, one in figures.items()
                }
                yield {"run": run, "rule": rule, "limit": times, **found}


def shares_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Shares of the answers, in per cent, by rule and length of the chains."""
    right = np.where(rows["limit"] > 1, "yes", "no")
    last = rows[LENGTHS[-1]]
    found = []
    for length in LENGTHS:
        now = rows[length]
        decided = now != "unknown"
        each = pd.DataFrame({
            "rule": rows["rule"], "decided": decided, "false": decided & (now != right),
            "reversed": decided & (last != "unknown") & (now != last),
            "withdrawn": decided & (last == "unknown"),
            "later": ~decided & (last != "unknown"),
        })  # fmt: skip
        shares = 100 * each.groupby("rule", sort=False).mean()
        found.append(shares.assign(draws=length).reset_index())
    return pd.concat(found)


def write(known: dict[str, np.ndarray]) -> None:
    """Write table.md."""
    rows = pd.DataFrame(answers(known))
    runs = rows["run"].str.rpartition("-")[0].groupby(rows["run"]).first().value_counts()
    left_out = [name for name in known if name.endswith("-about") and known[name][1]]
    named = ", ".join(f"{name} {number}" for name, number in runs.items())
    lines = [
        f"{runs.sum()} runs ({named}), {len(LIMITS)} limits each; per cent of the answers. "
        f"{len(left_out)} further runs are left out, in which the checks see a misfit.",
        "",
        "| draws of a chain | rule | " + " | ".join(COLUMNS) + " |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    for row in shares_of(rows).to_dict("records"):
        rule = f"**{row['rule']}**" if row["rule"] == NOW else row["rule"]
        figures = " | ".join(f"{row[name]:.1f}" for name in COLUMNS)
        lines.append(f"| {row['draws']} | {rule} | {figures} |")
    lines += ["", "| limit, of the truth | rule | " + " | ".join(map(str, LENGTHS)) + " |"]
    lines += ["|---|---|" + "---|" * len(LENGTHS)]
    for times in LIMITS:
        for rule in ("before", NOW):
            some = rows[(rows["limit"] == times) & (rows["rule"] == rule)]
            counts = [
                " ".join(f"{(some[n] == word).sum()} {word}" for word in WORDS.values())
                for n in LENGTHS
            ]
            lines.append(f"| {times} | {rule} | " + " | ".join(counts) + " |")
    print(*lines, sep="\n")
    (HERE / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(dict(np.load(HERE / "draws.npz")))
