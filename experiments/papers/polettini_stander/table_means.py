"""The paper's protocol with a model of the table as the cells' prior mean: table_means.md.

    python experiments/papers/polettini_stander/table_means.py

The samples of run.py. The models are those of experiments/accuracy/risk_peers/table_priors.py, with
phat of the cell and, for an empty cell, that of its region. The correction is that of
`bnp.loglinear_risk(structure="forest", ties="on")`, with a prior that is fitted without the census.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from protocol import REGION, draw
from run import Found, row_of

import bnp_models as bnp
from bnp_models.risk.loglinear import corrected

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "accuracy" / name) for name in ("risk_peers", "known_truth")]
from results import markdown  # noqa: E402
from table_priors import (  # noqa: E402
    FOREST_LAWS,
    Means,
    estimate_prior,
    fitted_table,
    prior_of_others,
    risks,
    simulated_shares,
)

COLUMNS = ["missed", "false_alarms", "true_tau1", "tau1", "true_tau2", "tau2", "mean_squared_error",
           "rank_correlation"]  # fmt: skip
EARLIER = ["Model I, paper's values", "Model II, paper's values",
           "Model II, empirical Bayes, strata", "log-linear, main effects",
           "log-linear, two-way"]  # fmt: skip


def about(cells: bnp.data.WeightedCells, structure: str, exponent: float | None) -> Found:
    """Empirical Bayes about a log-linear model of this structure."""
    fitted, n = fitted_table(cells, structure), float(cells.f.sum())
    region = cells.table.schema.variables.index(REGION)
    codes, share = simulated_shares(fitted)
    of_region = np.zeros(cells.table.schema.num_levels[region])
    of_region[cells.codes[:, region]] = cells.phat
    drawn = Means.of(cells, share, of_region[codes[:, region]])
    seen = Means.of(cells, fitted.share, cells.phat)
    prior = estimate_prior(cells.f, seen, drawn, n, exponent)
    return Found(*risks(cells, fitted.share, prior)), f"{prior.shape:.3g}, {prior.exponent:.2f}"


def main():
    population, rows, held = bnp.datasets.census_income(adults=True), [], np.zeros(2, int)
    without_census = prior_of_others(pd.read_csv(FOREST_LAWS), "adults")
    for seed in range(10):
        drawn = draw(population, seed)
        for structure in ("independence", "forest", "two-way"):
            for name, exponent in (("gamma", 0.0), ("power", None)):
                found, note = about(drawn.cells, structure, exponent)
                rows.append(row_of(drawn, seed, f"{name} about {structure}", found, note))
        forest = bnp.loglinear_risk(drawn.cells, structure="forest")
        with_ties = corrected(forest, drawn.cells, jax.random.key(seed), without_census)
        for name, one in (("log-linear, forest", forest), ("correction about forest", with_ties)):
            rows.append(row_of(drawn, seed, name, Found(one.risk, one.p_unique), ""))
        for i, tau in enumerate(("tau1", "tau2")):
            low, high = getattr(with_ties, f"{tau}_interval")
            held[i] += low <= rows[-1][f"true_{tau}"] <= high
    rows = pd.DataFrame(rows)
    earlier = pd.read_csv(HERE / "results.csv")
    both = pd.concat([earlier[earlier["method"].isin(EARLIER)], rows])
    means = both.groupby("method", sort=False)[COLUMNS].mean()
    notes = rows[rows["seed"] == 0][["method", "note"]].rename(columns={"note": "shape, exponent"})
    notes = notes[notes["shape, exponent"] != ""]
    text = f"Means over ten samples.\n\n{markdown(means)}\n\n"
    text += f"95% intervals of the correction contain tau_1 in {held[0]} of them, "
    text += f"and tau_2 in {held[1]}.\n\n"
    text += f"Estimates in the first sample:\n\n{markdown(notes, index=False)}\n"
    (HERE / "table_means.md").write_text(text)


if __name__ == "__main__":
    main()
