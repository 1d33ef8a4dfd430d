"""Makes table.md of the draws that run.py keeps."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.inference.convergence import MAX_RHAT, Converged, interval_errors

HERE = Path(__file__).parent
LENGTHS = (50, 100, 200, 400)
LIMITS = (0.25, 0.5, 0.8, 1.25, 2, 4)
MULTIPLES = (0, 1, 2, 3)


def rule_before(tau1: np.ndarray, limit: float) -> bool | None:
    """The earlier rule: unknown unless converged, no by the mean, yes by the interval's end."""
    if Converged(MAX_RHAT).missed({"tau1": tau1}):
        return None
    if tau1.mean() > limit:
        return False
    return True if np.quantile(tau1, 0.975) <= limit else None


def rule_by_interval(tau1: np.ndarray, limit: float, multiple: float) -> bool | None:
    """By the end of the interval, moved towards the limit by so many Monte Carlo errors."""
    low, high = np.quantile(tau1, [0.025, 0.975])
    of_low, of_high = interval_errors(tau1)
    if low - multiple * of_low > limit:
        return False
    return True if high + multiple * of_high <= limit else None


def rule_by_mean(tau1: np.ndarray, limit: float, multiple: float) -> bool | None:
    """As the last, but no by the mean."""
    from arviz_stats.base import array_stats

    of_mean = float(array_stats.mcse(tau1.astype(float), chain_axis=0, draw_axis=1, method="mean"))
    if tau1.mean() - multiple * of_mean > limit:
        return False
    return None if (found := rule_by_interval(tau1, limit, multiple)) is False else found


RULES = {
    "before": rule_before,
    **{f"interval, {m}": partial(rule_by_interval, multiple=m) for m in MULTIPLES},
    **{f"mean, {m}": partial(rule_by_mean, multiple=m) for m in MULTIPLES},
}
NAMES = {True: "yes", False: "no", None: "unknown"}


def answers(known: dict[str, np.ndarray]) -> Iterator[dict]:
    """A row for each run, rule, limit and length of the chains."""
    for run in [name.removesuffix("-about") for name in known if name.endswith("-about")]:
        truth, misfit = known[f"{run}-about"]
        if misfit:
            continue
        for rule, judge in RULES.items():
            for times in LIMITS:
                found = {
                    length: NAMES[judge(known[run][:, :length], times * truth)]
                    for length in LENGTHS
                }
                yield {"run": run, "rule": rule, "limit": times, **found}


def table_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Shares of the answers by rule, and length of the chains, in per cent."""
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
    table = table_of(rows)
    print(table.round(1).to_string())


if __name__ == "__main__":
    write(dict(np.load(HERE / "draws.npz")))
