"""How the forecast of a run's minutes was at a quarter, half and three quarters of what it took.

    python experiments/speed/time_to_trust/forecast.py

Chains are autoregressions whose correlation time is known, started apart as chains of models are:
one quantity that is reported and one that is not. They go on in rounds as `bnp_models.sample` does,
until the target of the command line is reached; seconds go with the sweeps. Makes forecast.md.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.inference.convergence import Converged, figures_by_name
from bnp_models.inference.trace import Settings, settings_of_round

HERE = Path(__file__).parent
CHAINS, WARMUP, DRAWS = 4, 1000, 1000
TIMES, SEEDS = (3, 10, 30, 100, 300), 12
TARGET = Converged(1.01, None, None, 1.1)


def autoregression(rng, time, length, start):
    """Chains (CHAINS, length) with this integrated correlation time."""
    rho = (time - 1) / (time + 1)
    noise = rng.normal(size=(CHAINS, length)) * np.sqrt(1 - rho**2)
    x = np.empty((CHAINS, length))
    at = rng.normal(size=CHAINS) * start
    for t in range(length):
        at = rho * at + noise[:, t]
        x[:, t] = at
    return x


def rounds(chains, length, share):
    """Of each round whose sweeps there are: these, whether it is the first, and the draws judged.

    From the second on, this share of the draws is let go.
    """
    first, end = Settings(CHAINS, WARMUP, DRAWS, 1, (), (1,)), WARMUP
    while True:
        settings = settings_of_round(first, end + 1)
        end = WARMUP + settings.num_samples * settings.thin
        if end > length:
            return
        discarded = 0 if settings == first else int(settings.num_samples * share)
        places = WARMUP + np.arange(settings.num_samples) * settings.thin
        draws = {name: x[:, places[discarded:]] for name, x in chains.items()}
        yield end, settings == first, draws


def one_run(rng, time):
    """Forecasts of all the sweeps that a run takes: those sweeps, and each round's forecast."""
    length = 400 * DRAWS
    chains = {
        "tau1": autoregression(rng, time, length, 5),
        "log_likelihood": autoregression(rng, 8 * time, length, 5),
    }
    forecasts = []
    for end, is_first, draws in rounds(chains, length, 0.25):
        figures = figures_by_name(draws)
        if not TARGET.missed(draws, figures):
            return end, forecasts
        times = TARGET.draws_needed(draws, figures)
        forecasts.append((end, end * times * (4 / 3 if is_first and times > 1 else 1)))
    return None, forecasts


def main():
    rows = []
    for time in TIMES:
        for seed in range(SEEDS):
            took, forecasts = one_run(np.random.default_rng((time, seed)), time)
            if took is None or not forecasts:
                continue
            for share in (0.25, 0.5, 0.75):
                known = [forecast for sweeps, forecast in forecasts if sweeps <= share * took]
                if known:
                    rows.append({"time": time, "share": share, "ratio": known[-1] / took})
    table = pd.DataFrame(rows)
    table["log"] = np.log2(table["ratio"])
    found = table.groupby("share").agg(
        runs=("log", "size"), median=("ratio", "median"),
        within_2=("log", lambda x: np.mean(np.abs(x) <= 1)),
        within_4=("log", lambda x: np.mean(np.abs(x) <= 2)),
    )  # fmt: skip
    lines = ["| at | runs | median of forecast over what it took | within a factor of 2 | of 4 |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {share:.0%} | {row.runs:.0f} | {row['median']:.2f} | {row.within_2:.0%} | "
        f"{row.within_4:.0%} |" for share, row in found.iterrows()
    ]  # fmt: skip
    print(*lines, sep="\n")
    (HERE / "forecast.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
