"""How soon runs until a target end, by the share of their draws that they let go.

    python experiments/time_to_trust/let_go.py

The autoregressions of `forecast.py`, whose log-likelihood has these correlation times, from starts
five standard deviations apart. Prints the mean number of sweeps, and how far the mean of the slower
quantity then is from the truth, in its standard deviations.
"""

import numpy as np
from forecast import CHAINS, DRAWS, TARGET, WARMUP, autoregression

from bnp_models.inference.convergence import figures_by_name
from bnp_models.inference.settings import Settings, settings_of_round

SHARES, TIMES, SEEDS, LONGEST = (0.5, 0.25, 0.0), (80, 240, 720, 1600), 16, 150 * DRAWS


def ends(rng, time):
    """By share: the sweeps of a run, and the error of its slower mean."""
    times = {"tau1": time / 32, "log_likelihood": time}
    chains = {name: autoregression(rng, x, LONGEST, 5) for name, x in times.items()}
    first = Settings(CHAINS, WARMUP, DRAWS, 1, (), (1,))
    found, end = {}, WARMUP
    while len(found) < len(SHARES):
        settings = settings_of_round(first, end + 1)
        end = WARMUP + settings.num_samples * settings.thin
        if end > LONGEST:
            break
        places = WARMUP + np.arange(settings.num_samples) * settings.thin
        for share in set(SHARES) - set(found):
            dropped = 0 if settings == first else int(settings.num_samples * share)
            draws = {name: x[:, places[dropped:]] for name, x in chains.items()}
            if not TARGET.missed(draws, figures_by_name(draws)):
                found[share] = end, abs(draws["log_likelihood"].mean())
    return found


def main():
    for time in TIMES:
        runs = [ends(np.random.default_rng((time, seed)), time) for seed in range(SEEDS)]
        for share in SHARES:
            sweeps, errors = zip(*(run[share] for run in runs if share in run), strict=True)
            print(f"correlation time {time}, share {share}: {len(sweeps)} runs, "
                  f"{np.mean(sweeps):,.0f} sweeps, error {np.mean(errors):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
