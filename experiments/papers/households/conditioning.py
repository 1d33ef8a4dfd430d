"""How sizes of households enter the likelihood under rules: five answers to one small problem.

    python experiments/papers/households/conditioning.py

Households have one or two persons. theta is the share of those of one person before truncation,
with a uniform prior, and nothing else is unknown. Every household of one person is possible; one of
two persons is impossible with probability Q. The table has the posterior of theta under each
reading of Hu, Reiter & Wang (2018, doi:10.1214/16-BA1047) and each value of the option `sizes` of
`bnp_models.NDPMPM`, exact up to quadrature. Writes conditioning.md.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import beta, nbinom

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

ONE, TWO = 150, 50
"""Possible households of one and of two persons in the sample."""

Q = 0.9
NODES = 20_000


def posteriors() -> dict[str, np.ndarray]:
    """Densities of theta at the nodes, up to a factor."""
    theta = nodes()
    feasible = theta + (1 - theta) * (1 - Q)
    observed = ONE * np.log(theta) + TWO * np.log1p(-theta)
    # The printed sampler alternates n_0 | theta and theta | n_0. Here its n_0 does not depend on
    # theta, so that the distribution to which it converges is a mixture of beta distributions.
    rejected = np.arange(nbinom.ppf(1 - 1e-12, TWO, 1 - Q) + 1)
    number = nbinom.pmf(rejected, TWO, 1 - Q)
    sampler = sum(
        p * beta.pdf(theta, 1 + ONE, 1 + TWO + n) for p, n in zip(number, rejected, strict=True)
    )
    return {
        'one truncation for all sizes (`sizes="random"`, the default)': density(
            observed - (ONE + TWO) * np.log(feasible)
        ),
        'sizes given (`sizes="given"`)': np.ones_like(theta),
        "equation (15) as printed, with P(size h and impossible)": density(
            observed - TWO * np.log1p(-Q * (1 - theta))
        ),
        "equation (15) with P(impossible given size h)": density(observed),
        "the sampler of appendix A": sampler,
    }


def nodes() -> np.ndarray:
    """Midpoints of equal parts of the unit interval."""
    return (np.arange(NODES) + 0.5) / NODES


def density(log_density: np.ndarray) -> np.ndarray:
    """Density up to a factor, from its logarithm."""
    return np.exp(log_density - log_density.max())


def main() -> None:
    """Write the table."""
    theta, rows = nodes(), []
    for way, weight in posteriors().items():
        weight = weight / weight.sum()
        mean = float(weight @ theta)
        sd = float(np.sqrt(weight @ (theta - mean) ** 2))
        rows.append({"likelihood": way, "mean of theta": mean, "sd of theta": sd})
    text = markdown(pd.DataFrame(rows), index=False)
    (HERE / "conditioning.md").write_text(
        f"{ONE} possible households of one person and {TWO} of two; households of two persons are "
        f"impossible with probability {Q}.\n\n{text}\n"
    )


if __name__ == "__main__":
    main()
