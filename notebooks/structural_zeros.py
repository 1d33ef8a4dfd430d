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
# # Combinations that cannot occur, and how much the risk changes if they are ignored
#
# A census form asks children no question about their work. Therefore some combinations are
# impossible, and a model that does not know them gives them positive probabilities. The possible
# combinations then have too small probabilities: records seem to be rarer than they are, and **the
# estimated risk is too high**. This notebook estimates the risk with and without the structural
# zeros, for a sample whose true risk is known. It uses the mixed membership model with a fixed
# number of profiles (`mixed-membership`); the HDP, which estimates this number, is used in the same
# way.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnp_models as bnp

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few records, few sweeps, no conclusions.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
SAMPLE_SIZE = 100 if SMALL else 1_000
MODEL = bnp.MixedMembership(components=5 if SMALL else 20)
CHAINS: bnp.inference.ChainOptions = {"num_chains": 2, "num_warmup": 30, "num_samples": 30}
if not SMALL:
    CHAINS = {"num_chains": 4, "num_warmup": 2_000, "num_samples": 500, "thin": 2}


def tau1_of(run):
    """What the chains must agree on."""
    return bnp.population_risk(run, len(population), ties="off").monitored(run)


TARGET = None if SMALL else bnp.Converged(quantities=tau1_of, others_rhat=1.1)

# %% [markdown]
# ## The list
#
# Conditions are a table: each row is an impossible combination, whatever the values of the
# variables that it does not name. Rows may overlap. Take conditions from the questionnaire, never
# from the empty cells of the sample: a widow of 20 is possible, even if there is none in the
# sample.

# %%
VARIABLES = [
    "age", "sex", "race", "marital_status", "education", "class_of_worker",
    "household_relationship", "parents_at_home",
]  # fmt: skip
if SMALL:
    VARIABLES = ["age", "sex", "marital_status", "education"]
population = bnp.datasets.census_income()
sample = population.sample(SAMPLE_SIZE, seed=0)[VARIABLES]
table = bnp.Microdata.from_frame(sample)

CHILD, CODE = "0-14", "Under 15 years old"
OF_CHILDREN = {
    "marital_status": "Never married", "class_of_worker": "Not working", "education": CODE
}  # fmt: skip
rows = [
    {"age": CHILD, name: label}
    for name, allowed in OF_CHILDREN.items()
    for label in population.levels[name]
    if label != allowed
]
rows += [{"age": age, "education": CODE} for age in population.levels["age"] if age != CHILD]
# Parents at home are recorded only for persons under 18 who are neither the head nor married to the
# head.
known = [label for label in population.levels["parents_at_home"] if label != "Not in universe"]
grown = [age for age in population.levels["age"] if age not in (CHILD, "15-24")]
rows += [{"age": age, "parents_at_home": label} for age in grown for label in known]
rows += [
    {"household_relationship": who, "parents_at_home": label}
    for who in ("Householder", "Spouse")
    for label in known
]
conditions = pd.DataFrame([row for row in rows if row.keys() <= {*VARIABLES}])
zeros = bnp.StructuralZeros.from_frame(conditions, table.schema)
print(f"{zeros.num_impossible_cells:,} of {table.schema.num_cells:,} cells are impossible")
conditions.head()

# %% [markdown]
# If a record breaks a condition, there is an error in the data or in the list of conditions. Check
# this first:

# %%
zeros.require_feasible(table)
print("\n".join(zeros.sentences))

# %% [markdown]
# Such a sentence says that one item determines another: the education code of children only repeats
# their age group. `not_applicable=True` leaves such items out of the records. The chains are then
# faster and give the same result within their error.
#
# ## With and without
#
# The chains continue until they agree on $\tau_1$, or for an hour at most (`until`).

# %%
KEY = jax.random.key(0)
runs = {
    name: bnp.sample(MODEL, table, key=KEY, conditions=known, until=TARGET, **CHAINS)
    for name, known in (("zeros ignored", None), ("zeros known", zeros))
}
# By the model alone: a correction for overdispersion would hide a part of the effect of the zeros.
risks = {name: bnp.population_risk(run, len(population), ties="off") for name, run in runs.items()}

# %%
truth = bnp.datasets.Population(
    population.frame[VARIABLES], population.source, population.licence
).truth(sample)
pd.DataFrame(
    {
        name: {
            "tau_1, mean": round(risk.tau1.mean(), 1),
            "tau_1, truth": truth.tau1,
            "95% interval": "{:.0f} to {:.0f}".format(*np.quantile(risk.tau1, [0.025, 0.975])),
            "tau_2, mean": round(risk.tau2.mean(), 1),
            "tau_2, truth": round(truth.tau2, 1),
            "log likelihood": round(risk.log_likelihood.mean()),
        }
        for name, risk in risks.items()
    }
)

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for name, risk in risks.items():
    values, counts = np.unique(risk.tau1, return_counts=True)
    axes.plot(values, counts / risk.tau1.size, marker=".", label=name)
axes.axvline(truth.tau1, color="red", label=f"truth: {truth.tau1}")
axes.set(xlabel="sample uniques that are unique in the population", ylabel="probability")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Can it be trusted?
#
# The probability of the impossible region, `p_zero`, depends on the prior, so that convergence is
# not judged by it. The warnings are about the quantity of interest: its R-hat and its effective
# sample sizes.

# %%
for name, risk in risks.items():
    print(f"{name}:", *bnp.diagnose(risk.run, risk).warnings or ["no warnings"], sep="\n  ")
print("\nchain by chain:", risks["zeros known"].tau1_conditional.mean(axis=1).round(1))

# %% [markdown]
# ## The decision
#
# Quote the figure of the run with the zeros, now corrected for overdispersion, because real
# populations are less smooth than a model. If the upper end of its interval is too high, coarsen
# the variables that make records rare and run again, as the notebook `disclosure_risk` does. In
# this example the zeros change the risk only a little: the model has learned from the sample that
# children do not marry, work or study. Synthetic records need the zeros in any case.

# %%
quoted = bnp.population_risk(runs["zeros known"], len(population))
low, high = np.quantile(quoted.tau1, [0.025, 0.975])
print(f"quote: {quoted.tau1.mean():.0f} ({low:.0f} to {high:.0f})")
