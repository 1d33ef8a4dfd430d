# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Risk cell by cell, with design weights
#
# The other models learn how the variables depend on each other. The models of Polettini and Stander
# look at one cell at a time. They use the number of persons of the sample who share a combination,
# and the number of persons of the population that each of them stands for. From these they estimate
# how many persons of the population share the combination, and **the probability that a match is
# correct**. They need no chains and take seconds. They also use less information, and their result
# depends on hyperparameters that have to be chosen. This notebook shows how much it depends on
# them.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnp_models as bnp

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few records, no conclusions.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
SAMPLE_SIZE = 200 if SMALL else 3_000

# %% [markdown]
# ## Sample, weights, cells
#
# The sample is stratified: persons of 65 and over are drawn at half the rate of the others, so that
# each of them stands for more persons. The design weight is the number of persons of the population
# that a record stands for.

# %%
VARIABLES = ["age", "sex", "race", "marital_status", "education"]
population = bnp.datasets.census_income(adults=True).frame[VARIABLES]
old = population["age"].isin(["65-74", "75+"]).to_numpy()
rng = np.random.default_rng(0)
rate = np.where(old, 0.5, 1.0)
chosen = rng.random(len(population)) < SAMPLE_SIZE * rate / rate.sum()
sample = population[chosen].reset_index(drop=True)
weights = (rate.sum() / SAMPLE_SIZE / rate)[chosen]

table = bnp.Microdata.from_frame(sample)
cells = bnp.weighted_cells(table, len(population), weights)
print(f"{table.n:,} records in {len(cells.f):,} cells; {int((cells.f == 1).sum()):,} hold one")
print("\n".join(cells.warnings()) or "the weights add up")

# %% [markdown]
# ## Two models
#
# In model I, the sampling fractions of all cells have the same Beta distribution. In model II, the
# sampling fraction of a cell depends on the weights of its records, so that old persons, who have a
# lower sampling fraction, are less at risk. For each cell, `risk` is the probability that a match
# is correct (the expected value of 1/F), and `p_unique` is the probability that the record is alone
# in the population.

# %%
results = {
    "Model I": bnp.cell_risk(bnp.PolettiniStander(1), cells, key=jax.random.key(0)),
    "Model II": bnp.cell_risk(bnp.PolettiniStander(2), cells, key=jax.random.key(0)),
}
results["Model II"].frame().head(5).round(3)

# %% [markdown]
# ## Against the truth
#
# In this exercise the population is known, so that F can be counted for each cell.

# %%
own = bnp.Microdata.from_frame(population, levels=table.schema).cells()
where = {tuple(codes): count for codes, count in zip(own.codes, own.counts, strict=True)}
F = np.array([where[tuple(codes)] for codes in cells.codes])
unique = cells.f == 1
rows = {
    name: {
        "population uniques": round(float(result.tau1.mean()), 1),
        "95% interval": "{:.0f} to {:.0f}".format(*np.quantile(result.tau1, [0.025, 0.975])),
        "correct matches of uniques": round(float(result.risk[unique].sum()), 1),
    }
    for name, result in results.items()
}
rows["Benedetti and Franconi"] = {
    "correct matches of uniques": round(
        float(bnp.risk.benedetti_franconi_risk(cells)[unique].sum()), 1
    )
}
rows["truth"] = {
    "population uniques": int((F[unique] == 1).sum()),
    "correct matches of uniques": round(float((1 / F[unique]).sum()), 1),
}
pd.DataFrame(rows).T.fillna("")

# %% [markdown]
# The intervals are narrow and need not contain the truth, because they are intervals *given the
# hyperparameters that were chosen* (`alpha`, `a`, and `b` or `gamma`), which come from another
# survey. The obvious idea is to estimate the hyperparameters:

# %%
try:
    fitted = bnp.fit_empirical_bayes(bnp.PolettiniStander(1), cells)
    print("estimates:", {k: round(v, 3) for k, v in fitted.model.hyperparameters.items()})
    results["Model I, estimated"] = bnp.cell_risk(fitted.model, cells, key=jax.random.key(0))
    print(f"population uniques: {results['Model I, estimated'].tau1.mean():.1f}")
except bnp.NoMaximumError as error:
    print(f"no estimate: {error}")

# %% [markdown]
# If the result is that there is no maximum, the likelihood increases towards the edge of the
# parameter space: the data do not determine the hyperparameters, and an optimiser must not pretend
# that they do.
#
# ## How much depends on the choice?
#
# Vary the hyperparameters to see how much the result depends on them.

# %%
alphas = [0.05, 0.1, 0.3] if SMALL else [0.02, 0.05, 0.1, 0.2, 0.4, 0.8]
curve = [
    bnp.cell_risk(bnp.PolettiniStander(2, alpha=alpha), cells, key=jax.random.key(0))
    for alpha in alphas
]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(alphas, [result.risk[unique].sum() for result in curve], marker="o", label="Model II")
axes.axhline((1 / F[unique]).sum(), color="red", label="truth")
axes.set(xscale="log", xlabel="alpha", ylabel="correct matches of uniques")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# For a threshold, the order of the cells by estimated risk must be right. The table groups the
# cells by estimated risk, and has the mean of 1/F in each group:

# %%
risk = results["Model II"].risk
groups = pd.qcut(pd.Series(risk[unique]), 4, duplicates="drop")
pd.DataFrame({"estimated": risk[unique], "true": 1 / F[unique]}).groupby(
    groups.to_numpy(), observed=True
).mean().round(3)

# %% [markdown]
# ## The decision
#
# Cells above a threshold are suppressed or coarsened. Which cells are above the threshold depends
# on the hyperparameters. If the curve above is steep, take the largest risk within the range of
# hyperparameters that you cannot exclude. Or use a model that learns from the data
# (`disclosure_risk`), and this model only for a quick overview of thousands of cells.

# %%
threshold = 0.1
flagged = int((risk > threshold).sum())
records = int(cells.f[risk > threshold].sum())
print(f"cell risk: {flagged} cells above {threshold:g}, {records} records")
