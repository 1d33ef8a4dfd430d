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
# An agency has a sample of persons and considers releasing it. Names were removed, but age, sex,
# marital status and similar variables remain: the *key variables*. If nobody else in the population
# has the same combination of key variables as a person, anybody who knows these facts can recognise
# this person. So the question is: **how many records of the sample are unique in the population?**
# That number is called $\tau_1$. It cannot be counted, because the rest of the population is not in
# the file. It can be estimated.
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
CHAINS: bnp.inference.ChainOptions = {"num_chains": 2, "num_warmup": 60, "num_samples": 60}
if not SMALL:
    CHAINS = {"num_chains": 4, "num_warmup": 1_000, "num_samples": 1_000, "thin": 2}

# %% [markdown]
# ## The data
#
# Pretend that `sample` is your file, read with `pd.read_csv`. Here it is drawn from a bundled
# census population, which has one advantage: the truth is known, and the estimate can be marked at
# the end.
#
# We keep persons of 15 and over. Children have no occupation and no schooling in this file, so that
# whole regions of the table are impossible (*structural zeros*). In this notebook the model is not
# told about them. It would give these combinations positive probabilities and overestimate the
# risk. Therefore children are left out (the notebook `structural_zeros` shows how to declare such
# combinations instead). Without children, `parents_at_home` is almost constant, so that it is left
# out too.

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
# The table shows how many levels each variable has, and the share of its largest level. Records are
# unique mainly because of levels that few records have.

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
# columns, pass `levels={"age": [...], ...}` for the same effect: the model must know a level that
# exists, even if no record of the sample has it.

# %%
table = bnp.Microdata.from_frame(sample)
print(f"{table.n:,} records, {table.num_variables} variables, {table.schema.num_cells:,} cells")

# %% [markdown]
# ## Sample uniques
#
# A record that shares its combination with another one in the *sample* is certainly not unique in
# the population. Only the records that are alone in the sample, the *sample uniques*, can be. This
# is a count, not an estimate, and an upper bound for $\tau_1$. This bound is usually far too high.

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
# The model (a hierarchical Dirichlet process mixed membership model) learns which combinations are
# likely, including those not in the sample. You do not choose a number of classes. It is fitted by
# Markov chain Monte Carlo: several *chains* move through the possible values of its parameters. The
# first sweeps, the *warm-up*, are discarded. Several chains are needed because a single chain
# cannot show that it is stuck.
#
# How many sweeps are needed is not known beforehand. `until` is a target: the chains continue
# until R-hat of $\tau_1$ is at most 1.01 and its effective sample size is at least 100 for each
# chain (both are explained below), or for an hour at most.
#
# The first call takes some seconds more, in which JAX compiles the program.


# %%
def tau1_of(run):
    """What the chains must agree on."""
    return bnp.population_risk(run, population_size).monitored(run)


target = None if SMALL else bnp.Converged(quantities=tau1_of, others_rhat=1.1)
model = bnp.HDPMixedMembership()
run = bnp.sample(model, table, key=jax.random.key(0), until=target, **CHAINS)
print(f"{run.settings.num_chains} chains of {run.settings.num_sweeps:,} sweeps")

# %% [markdown]
# ## From the chains to $\tau_1$
#
# Each draw of the parameters gives every cell a probability. With these probabilities, the persons
# of the population who were not sampled are distributed over the cells at random, and the sample
# uniques in whose cell there is none of them are counted. This is done for every draw and gives the
# posterior distribution of $\tau_1$, and not just one number.
#
# No real population is as smooth as a model: a cell may have more persons than the model expects,
# or fewer (overdispersion). By default the risk is corrected for overdispersion, whose strength is
# estimated from the cells of the sample. `ties="off"` turns this correction off; the intervals are
# then too narrow.

# %%
risk = bnp.population_risk(run, population_size)
low, high = np.quantile(risk.tau1, [0.025, 0.975])
print(f"tau_1: mean {risk.tau1.mean():.1f}, 95% interval {low:.0f} to {high:.0f}")
print(f"tau_2: mean {risk.tau2.mean():.1f}")
if risk.overdispersion is not None:
    print(f"tau_1 by the model alone: mean {risk.overdispersion.tau1.mean():.1f}")

# %% [markdown]
# $\tau_2$ is the expected number of correct matches if somebody links every sample unique to a
# person of the population with the same combination, at random if there are several such persons.
#
# ## Can it be trusted?
#
# Look at this before the figure above. The chains started from different values. If they agree now,
# R-hat (`r_hat`) is near 1; it should be below 1.05. The effective sample size (`ess_bulk`,
# `ess_tail`) is the number of independent draws that would be as informative as the chains; it
# should be at least 100 for each chain. This holds for $\tau_1$, which is reported. The number of
# components and `alpha` may move more slowly, as many values of them explain the data equally well
# and lead to the same $\tau_1$.
#
# `to_inference_data` arranges the draws in the format of ArviZ. `parameters=True` adds the arrays
# of the model, with labels such as "age=0-14" along their axes; `checks=bnp.predictive_checks(run)`
# adds the figures that `az.plot_ppc` compares; and `pointwise=True` adds the log-likelihoods that
# `az.loo` and `az.compare` need.

# %%
data = bnp.to_inference_data(run, risk)
names = ["tau1", "tau1_conditional", "components", "alpha", "total_log_likelihood"]
az.summary(data, var_names=names, round_to=3)

# %% [markdown]
# The traces should have no trend, and no colour should stay above the others. The rank plots should
# be flat: each chain then has about as many low and high values as the others.

# %%
colours = {"color": [f"C{chain}" for chain in range(run.settings.num_chains)]}
names = ["tau1_conditional", "total_log_likelihood"]
az.plot_trace(data, var_names=names, chain_prop=colours, figsize=(9, 4.5))
plt.tight_layout()

# %%
az.plot_rank(data, var_names=names, figsize=(9, 3.5))
plt.tight_layout()

# %% [markdown]
# These are the same checks in words, as `bnp-models risk` prints them:

# %%
print("\n\n".join(bnp.diagnose(run, risk).warnings) or "no warnings")

# %% [markdown]
# The target was reached: there is no warning. If the hour had ended first, the chains would move
# slowly between explanations of the data that fit about equally well, which is common for this kind
# of model. A warning does not say how much this matters for $\tau_1$. The means of $\tau_1$ of each
# chain show it:

# %%
print("mean of tau_1 by chain:", risk.tau1_conditional.mean(axis=1).round(1))
print(f"width of the 95% interval of tau_1: {high - low:.0f}")

# %% [markdown]
# They differ by much less than the width of the interval, so that all chains lead to the same
# decision. If you need the first decimal of the mean, run longer chains. If the means had been 5
# and 20, no figure could be used before more chains with a longer warm-up agreed.

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
# `r1` is the probability that the record is unique in the population, and `r2` is the probability
# that a match with it is correct. Their sums over the sample uniques are the means of $\tau_1$ and
# $\tau_2$. `F`, the number of persons with the combination of the record, is known only in this
# exercise.

# %%
in_population = pd.Series(truth.population_counts, index=truth.rows)
riskiest = risk.records()
riskiest["F"] = in_population[riskiest["row"]].to_numpy()
riskiest.head(10).round(2)

# %% [markdown]
# Are the probabilities calibrated? Among records with `r1` near 0.3, about three in ten should be
# unique in the population. `expected` is the sum of `r1` in each band, and `unique` is the true
# number. One sample is not enough to judge this; `experiments/accuracy/known_truth` has many
# samples.

# %%
bands = pd.cut(riskiest["r1"], [0, 0.02, 0.1, 0.3, 1], include_lowest=True)
riskiest.assign(unique=riskiest["F"] == 1).groupby(bands, observed=True).agg(
    records=("r1", "size"), expected=("r1", "sum"), unique=("unique", "sum")
).round(1)

# %% [markdown]
# ## Would it help to release less?
#
# Suppose that 20 recognisable persons are too many for the agency. If a variable is coarsened or
# dropped, cells become larger. The records of the sample are the same, and only the columns change.
# We fit the model again for each proposal, because a model of fewer variables is another model.
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
    coded = bnp.Microdata.from_frame(released)
    other = bnp.sample(model, coded, key=jax.random.key(1), until=target, **CHAINS)
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
# This table raises two questions. Is the upper end of the interval acceptable, and not only the
# mean? Is the lower risk worth the detail that users of the data lose? A model answers neither of
# them.
#
# ## Keeping the results
#
# A notebook can write the same files as the command `bnp-models risk`.

# %%
folder = Path(mkdtemp())
bnp.io.write_json(bnp.report.risk_summary(risk), folder / "risk.json")
bnp.io.write_records(risk, folder / "records.csv")
bnp.io.write_netcdf(data, folder / "posterior.nc")
bnp.report.write_report(folder / "report.html", risk)
sorted(path.name for path in folder.iterdir())
