"""How the forecast of a run's minutes was at a quarter, half and three quarters of what it took.

    python experiments/speed/time_to_trust/forecast.py

Simulated chains are autoregressions whose correlation time is known, started apart as chains of
models are: one quantity that is reported and one that is not. Real chains are those of
experiments/accuracy/verdict_length, with first draws of 25. Both go on in rounds as
`bnp_models.sample` does, until the target of the command line is reached; seconds go with the
sweeps. Makes forecast.md.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import signal

from bnp_models.inference.convergence import Converged, figures_by_name
from bnp_models.inference.trace import Settings, settings_of_round

HERE = Path(__file__).parent
REAL = HERE.parents[1] / "accuracy" / "verdict_length" / "draws.npz"
CHAINS, WARMUP, DRAWS, FEW = 4, 1000, 1000, 25
TIMES, SEEDS = (3, 10, 30, 100, 300), 12
TARGET = Converged(1.01, None, None, 1.1)
# Runs of at most 400 draws, of which 75 are kept, cannot have 100 effective draws of each chain.
TARGET_OF_REAL = Converged(1.02, 200)
SHARES = (0.25, 0.5, 0.75)


def autoregression(rng, time, length, start):
    """Chains (CHAINS, length) with this integrated correlation time."""
    rho = (time - 1) / (time + 1)
    noise = rng.normal(size=(CHAINS, length)) * np.sqrt(1 - rho**2)
    at = rng.normal(size=CHAINS) * start
    return signal.lfilter([1], [1, -rho], noise, axis=1, zi=rho * at[:, None])[0]


def rounds(chains, first):
    """Of each round whose sweeps there are: these, whether it is the first, and the draws judged.

    From the second on, a quarter of the draws is let go.
    """
    end, length = first.num_warmup, next(iter(chains.values())).shape[1]
    while True:
        settings = settings_of_round(first, end + 1)
        end = first.num_warmup + settings.num_samples * settings.thin
        if end > length:
            return
        discarded = 0 if settings == first else settings.num_samples // 4
        places = first.num_warmup + np.arange(settings.num_samples) * settings.thin
        yield end, settings == first, {name: x[:, places[discarded:]] for name, x in chains.items()}


def one_run(chains, first, target):
    """Sweeps that a run takes, and each round's sweeps and forecasts, by all draws and averaged."""
    forecasts = []
    for end, is_first, draws in rounds(chains, first):
        figures = figures_by_name(draws)
        if not target.missed(draws, figures):
            return end, forecasts
        more = 4 / 3 if is_first else 1
        at_once = end * max(1, more * target.draws_needed(draws, figures))
        found = target.forecast(draws, figures, figures_by_name)
        low, high = (np.nan, np.nan) if found is None else (end * max(1, more * x) for x in found)
        forecasts.append({"sweeps": end, "before": at_once, "low": low, "high": high})
    return None, forecasts


def simulated():
    """Chains of 400,000 sweeps, one after the other."""
    for time in TIMES:
        for seed in range(SEEDS):
            draw = partial(autoregression, np.random.default_rng((time, seed)))
            yield {
                "tau1": draw(time, 400 * DRAWS, 5), "log_likelihood": draw(8 * time, 400 * DRAWS, 5)
            }  # fmt: skip


def real():
    """tau_1 in chains of 400 draws, with as many places before them as the warm-up has.

    The log-likelihood of these chains does not reach its limit within 400 draws.
    """
    known = np.load(REAL)
    for name in known.files:
        if f"{name}-about" in known.files:
            yield {"tau1": np.pad(known[name], ((0, 0), (FEW, 0)))}


def table_of(name, runs, first, target):
    """Lines of the table for some runs."""
    rows, jumps = [], {"before": [], "now": []}
    for chains in runs:
        took, forecasts = one_run(chains, first, target)
        if took is None or not forecasts:
            continue
        table = pd.DataFrame(forecasts)
        # The middle of a range is half of its end, which no minimum changes.
        table["now"] = table["high"] / 2
        for rule, found in jumps.items():
            ratio = np.abs(np.diff(np.log2(table[rule].dropna())))
            found += list(ratio)
        for share in SHARES:
            some = table[table["sweeps"] <= share * took]
            if len(some):
                last = some.iloc[-1]
                rows.append({
                    "share": share, "before": last["before"] / took, "now": last["now"] / took,
                    "held": last["low"] <= took <= last["high"],
                })  # fmt: skip
    if not rows:
        yield f"| {name} | no run reaches the target | | | | | | |"
        return
    table = pd.DataFrame(rows)
    for share, some in table.groupby("share"):
        for rule in ("before", "now"):
            ratio = some[rule].dropna()
            held = f"{some['held'][some['now'].notna()].mean():.0%}" if rule == "now" else ""
            yield (
                f"| {name} | {share:.0%} | {rule} | {len(ratio)} of {len(some)} | "
                f"{ratio.median():.2f} | {np.mean(np.abs(np.log2(ratio)) <= 1):.0%} | {held} | "
                f"{2 ** np.median(jumps[rule]):.2f}, {2 ** np.quantile(jumps[rule], 0.9):.2f} |"
            )


def main():
    lines = [
        "| chains | at | forecast | given | median over what it took | within a factor of 2 | "
        "range holds what it took | change to the next forecast, median and 90% |",
        "|---|---|---|---|---|---|---|---|",
        *table_of("simulated", simulated(), Settings(CHAINS, WARMUP, DRAWS, 1, (), (1,)), TARGET),
        *table_of("real", real(), Settings(CHAINS, FEW, FEW, 1, (), (1,)), TARGET_OF_REAL),
    ]
    print(*lines, sep="\n")
    (HERE / "forecast.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
