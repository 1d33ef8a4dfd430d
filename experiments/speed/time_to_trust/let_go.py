"""How soon runs until a target end, by the share of their draws that they let go.

    python experiments/speed/time_to_trust/let_go.py

The autoregressions of `forecast.py`, whose log-likelihood has these correlation times, from starts
five standard deviations apart. Prints the mean number of sweeps, and how far the mean of the slower
quantity then is from the truth, in its standard deviations.
"""

import numpy as np
from forecast import DRAWS, TARGET, autoregression, rounds

from bnp_models.inference.convergence import figures_by_name

SHARES, TIMES, SEEDS, LONGEST = (0.5, 0.25, 0.0), (80, 240, 720, 1600), 16, 150 * DRAWS


def ends(rng, time):
    """By share: the sweeps of a run, and the error of its slower mean."""
    times = {"tau1": time / 32, "log_likelihood": time}
    chains = {name: autoregression(rng, x, LONGEST, 5) for name, x in times.items()}
    found = {}
    for share in SHARES:
        for end, _, draws in rounds(chains, LONGEST, share):
            if not TARGET.missed(draws, figures_by_name(draws)):
                found[share] = end, abs(draws["log_likelihood"].mean())
                break
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
