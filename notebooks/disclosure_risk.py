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
# # How risky is this sample?
#
# An agency holds a sample of persons and thinks of releasing it. Names are gone, but age, sex,
# marital status and the like remain: the *key variables*. A person who is alone with a combination
# of them in the whole population can be recognised by anyone who knows those facts. So the
# question is: **how many records of the sample are unique in the population?** That number is
# called $\tau_1$. It cannot be counted, because the rest of the population is not in the file. It
# can be estimated.
#
# This notebook goes from a data frame to $\tau_1$, checks whether the estimate can be trusted, and
# then compares releases that differ in detail. You need no JAX and no Bayesian machinery: read the
# text, and change the data frame to your own.

# %%
import os
from pathlib import Path
from tempfile import mkdtemp

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.datasets import Population, census_income
from bnp_models.inference.arviz import load_arviz

az = load_arviz()  # import arviz as az, without its announcement

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few records, few sweeps, no conclusions.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
SAMPLE_SIZE = 150 if SMALL else 1_000
CHAINS = {"num_chains": 2, "num_warmup": 60, "num_samples": 60}
if not SMALL:
    CHAINS = {"num_chains": 4, "num_warmup": 3_000, "num_samples": 800, "thin": 10}

# %% [markdown]
# ## The data
#
# Pretend that `sample` is your file, read with `pd.read_csv`. Here it is drawn from a bundled
# census population, which has one advantage: the truth is known, and the estimate can be marked at
# the end.
#
# We keep persons of 15 and over. Children have no occupation and no schooling in this file, so that
# whole regions of the table are impossible (*structural zeros*). This version of the model does not
# know that. It would spend probability there and overstate the risk. Leaving the children out is
# what one can do for now. It leaves `parents_at_home` almost constant, so that goes too.

# %%
census = census_income()
adults = census.frame[census.frame["age"] != "0-14"].drop(columns="parents_at_home")
adults = adults.apply(lambda column: column.cat.remove_unused_categories())
population = Population(adults, census.source, census.licence)
if SMALL:
    adults = census.frame[["age", "sex", "race", "education"]]
    population = Population(adults, census.source, census.licence)
population_size = len(population)

sample = population.sample(SAMPLE_SIZE, seed=0)
sample.head()

# %% [markdown]
# How many levels has each variable, and how full is its largest one? A level that few records
# share is where uniqueness comes from.

# %%
pd.DataFrame(
    {
        "levels": [sample[name].nunique() for name in sample],
        "most frequent": [sample[name].mode()[0] for name in sample],
        "its share": [round(sample[name].value_counts(normalize=True).max(), 2) for name in sample],
        "rarest count": [sample[name].value_counts().min() for name in sample],
    },
    index=sample.columns,
)

# %% [markdown]
# ## Coding it
#
# `Microdata` codes the labels once and keeps them. The columns here are pandas categoricals with
# the whole code book, so levels that nobody in the sample has are known too. With plain text
# columns, pass `levels={"age": [...], ...}` for the same effect: a level that exists but was not
# sampled is part of what the model has to think about.

# %%
table = bnp.Microdata.from_frame(sample)
print(f"{table.n:,} records, {table.num_variables} variables, {table.schema.num_cells:,} cells")

# %% [markdown]
# ## Sample uniques
#
# A record that shares its combination with another one in the *sample* is certainly not unique in
# the population. Only the records that are alone in the sample, the *sample uniques*, can be. This
# is a count, not an estimate, and an upper bound for $\tau_1$. It is usually far too high a bound.

# %%
cells = table.cells()
sizes = np.minimum(cells.counts[cells.record_cell], 5)
for size in range(1, 6):
    label = f"{size} or more" if size == 5 else f"{size}"
    print(f"{np.sum(sizes == size):5d} records in cells of {label}")
print(f"\n{len(cells.sample_uniques)} sample uniques")

# %% [markdown]
# ## Running the chains
#
# The model (a hierarchical Dirichlet process mixed membership model) learns which combinations
# are likely, including those not in the sample. It has no number of classes to choose. It is fitted
# by Markov chain Monte Carlo: several *chains* wander through the values that its parameters may
# take. The first sweeps, the *warm-up*, are thrown away. Several chains, because one chain cannot
# show that it is stuck.
#
# The first call takes some seconds more, in which JAX compiles the program.

# %%
model = bnp.HDPMixedMembership()
run = bnp.sample(model, table, key=jax.random.key(0), **CHAINS)
print(f"{run.settings.num_chains} chains of {run.settings.num_sweeps:,} sweeps")

# %% [markdown]
# ## From the chains to $\tau_1$
#
# Each draw of the parameters gives every cell a probability. With it, the persons of the population
# who were not sampled can be dealt over the cells, and the sample uniques that none of them joins
# can be counted. Doing that for every draw gives the whole posterior distribution of $\tau_1$, not
# just a number.
#
# No real population is as smooth as a model. So a cell may hold more persons than the model says,
# or fewer: by how much is learned from the cells of the sample, in a *layer for ties* over the
# model. `ties="off"` leaves it out; the intervals are then narrower than they should be.

# %%
risk = bnp.population_risk(run, population_size)
low, high = np.quantile(risk.tau1, [0.025, 0.975])
print(f"tau_1: mean {risk.tau1.mean():.1f}, 95% interval {low:.0f} to {high:.0f}")
print(f"tau_2: mean {risk.tau2.mean():.1f}")
print(f"tau_1 by the model alone: mean {risk.layer.tau1.mean():.1f}")

# %% [markdown]
# $\tau_2$ is the number of correct matches to expect from somebody who links every sample unique
# to a person in the population with the same combination, at random where there are several.
#
# ## Can it be trusted?
#
# Look at this before the figure above. The chains started in different places. If they now tell the
# same story, R-hat (`r_hat`) is near 1: below 1.05 is wanted. The effective sample size
# (`ess_bulk`, `ess_tail`) says how many independent draws the chains are worth: 100 a chain is
# wanted.
#
# `to_inference_data` arranges the draws as ArviZ wants them. With `parameters=True` the arrays are
# there too, with labels such as "age=0-14" along their axes; `checks=bnp.predictive_checks(run)`
# adds what `az.plot_ppc` compares, `pointwise=True` what `az.loo` and `az.compare` need.

# %%
data = bnp.to_inference_data(run, risk)
names = ["tau1", "tau1_conditional", "components", "alpha", "log_likelihood"]
az.summary(data, var_names=names, round_to=3)

# %% [markdown]
# The traces should look like grass: no trend, and no colour that stays above the others. The rank
# plots should be flat: each chain then has its fair share of low and high values.

# %%
colours = {"color": [f"C{chain}" for chain in range(run.settings.num_chains)]}
names = ["tau1_conditional", "log_likelihood"]
az.plot_trace(data, var_names=names, chain_prop=colours, figsize=(9, 4.5))
plt.tight_layout()

# %%
az.plot_rank(data, var_names=names, figsize=(9, 3.5))
plt.tight_layout()

# %% [markdown]
# The same checks in words, as `bnp-models risk` prints them:

# %%
print("\n\n".join(bnp.warnings_of(run, risk)) or "no warnings")

# %% [markdown]
# R-hat passes and effective sample sizes suffice. Where they fall short, the chains move slowly
# between explanations of the data that fit about equally well, which is common with this kind of
# model. A warning does not say how much it matters for the question. The means of $\tau_1$ chain by
# chain do:

# %%
print("mean of tau_1 by chain:", risk.tau1_conditional.mean(axis=1).round(1))
print(f"width of the 95% interval of tau_1: {high - low:.0f}")

# %% [markdown]
# They differ by much less than the interval is wide, so no chain would lead to another decision.
# For the digit after the point, run longer. Had the chains said 5 and 20, no figure could be used
# until more chains and a longer warm-up agree.

# %% [markdown]
# ## The estimate against the truth
#
# This is the step that you cannot do with your own file. The red line is the number counted in the
# population.

# %%
truth = population.truth(sample)


def plot_tau1(axes, risk, truth, title):
    """The posterior of tau_1, its 95% interval, and the truth."""
    low, high = np.quantile(risk.tau1, [0.025, 0.975])
    values, counts = np.unique(risk.tau1, return_counts=True)
    axes.axvspan(low - 0.5, high + 0.5, color="#e4edf4", label="95% interval")
    axes.bar(values, counts / risk.tau1.size, color="#1f5f8b", label="posterior")
    axes.axvline(truth.tau1, color="red", label=f"truth: {truth.tau1}")
    axes.set(xlabel="sample uniques that are unique in the population", title=title)
    axes.label_outer()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
plot_tau1(axes, risk, truth, "tau_1, persons of 15 and over")

# %% [markdown]
# ## The riskiest records
#
# `r1` is the probability that the record is unique in the population, `r2` the probability that a
# match to it is right. Sums over the sample uniques give back $\tau_1$ and $\tau_2$. `F` is again
# something that only this exercise knows: how many persons share the record's combination.

# %%
in_population = pd.Series(truth.population_counts, index=truth.rows)
riskiest = risk.records()
riskiest["F"] = in_population[riskiest["row"]].to_numpy()
riskiest.head(10).round(2)

# %% [markdown]
# Are the probabilities honest? Among records with `r1` near 0.3, about three in ten should be
# unique in the population: `expected` is the sum of `r1` in each band, `unique` what is true. One
# sample cannot settle it; many samples can, as in `experiments/accuracy/known_truth`.

# %%
bands = pd.cut(riskiest["r1"], [0, 0.02, 0.1, 0.3, 1], include_lowest=True)
riskiest.assign(unique=riskiest["F"] == 1).groupby(bands, observed=True).agg(
    records=("r1", "size"), expected=("r1", "sum"), unique=("unique", "sum")
).round(1)

# %% [markdown]
# ## What if less is released?
#
# This is the decision that an agency takes. Suppose that 20 recognisable persons are too many. Each
# variable that is coarsened or dropped makes cells larger. The sample is the same: only the columns
# change. We refit for each proposal, because a model of fewer variables is another model.
#
# - **coarser**: education in three levels instead of five;
# - **dropped**: no education at all.

# %%
THREE_LEVELS = {
    "Under 15 years old": "Under 15 years old",
    "Less than high school": "Less than high school",
    "High school": "High school or some college",
    "Some college": "High school or some college",
    "Bachelor or higher": "Bachelor or higher",
}


def coarser(frame):
    """Education in fewer levels, still a categorical."""
    fewer = [THREE_LEVELS[level] for level in frame["education"].cat.categories]
    column = frame["education"].astype(str).map(THREE_LEVELS)
    return frame.assign(education=pd.Categorical(column, list(dict.fromkeys(fewer))))


proposals = {
    "education coarser": coarser,
    "education dropped": lambda frame: frame.drop(columns="education"),
}
if SMALL:
    del proposals["education coarser"]

# %%
results = {"everything": (risk, truth)}
for name, release in proposals.items():
    released = release(sample)
    other = bnp.sample(model, bnp.Microdata.from_frame(released), key=jax.random.key(1), **CHAINS)
    results[name] = (
        bnp.population_risk(other, population_size),
        Population(release(adults), census.source, census.licence).truth(released),
    )

rows = []
for name, (found, true) in results.items():
    low, high = np.quantile(found.tau1, [0.025, 0.975])
    rows.append(
        {
            "release": name,
            "sample uniques": true.sample_uniques,
            "tau_1": round(found.tau1.mean(), 1),
            "95% interval": f"{low:.0f} to {high:.0f}",
            "truth": true.tau1,
            "tau_2": round(found.tau2.mean(), 1),
            "tau_2 truth": round(true.tau2, 1),
        }
    )
pd.DataFrame(rows).set_index("release")

# %%
figure, panels = plt.subplots(
    len(results), 1, figsize=(7, 2.2 * len(results)), sharex=True, layout="constrained"
)
for axes, (name, (found, true)) in zip(panels, results.items(), strict=True):
    plot_tau1(axes, found, true, name)

# %% [markdown]
# Two questions to put to this table. Is the upper end of the interval acceptable, and not only
# the mean? Is what is gained worth the detail that users of the data lose? Neither is a question
# that a model answers.
#
# ## Keeping the results
#
# What the command `bnp-models risk` writes, a notebook can write too.

# %%
folder = Path(mkdtemp())
bnp.io.write_json(bnp.report.risk_summary(risk), folder / "risk.json")
bnp.io.write_records(risk, folder / "records.csv")
bnp.io.write_netcdf(data, folder / "posterior.nc")
bnp.report.write_report(folder / "report.html", risk)
sorted(path.name for path in folder.iterdir())
