"""Print the true disclosure risk of samples of the census population, over seeds 0 to 19."""

import numpy as np

from bnp_models.datasets import census_income

SIZES = (1_000, 5_000, 10_000)
NUM_SEEDS = 20


def main():
    population = census_income()
    print("| n | sample uniques | tau1 | tau2 |")
    print("|---:|---:|---:|---:|")
    for n in SIZES:
        truths = [population.truth(population.sample(n, seed)) for seed in range(NUM_SEEDS)]
        figures = np.array([(t.sample_uniques, t.tau1, t.tau2) for t in truths])
        cells = [
            f"{column.mean():,.1f} ({column.min():,.{digits}f} to {column.max():,.{digits}f})"
            for column, digits in zip(figures.T, (0, 0, 1), strict=True)
        ]
        print(f"| {n:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
