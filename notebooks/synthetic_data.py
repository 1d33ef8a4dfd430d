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
# # May these synthetic data be released?
#
# An agency has a sample that it must not release, and wants to publish files of synthetic persons
# instead. The files should be as useful as possible and disclose nothing about single persons. This
# notebook makes such files with the truncated latent class model (`tnplcm`), and answers the two
# questions of a release committee: **How useful are they? How safe are they?**
#
# `nplcm` is the same without the list of impossible combinations: `bnp.NPLCM()`, no conditions.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnp_models as bnp

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few records, few sweeps, no conclusions.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
SAMPLE_SIZE, NUM_FILES = (100, 2) if SMALL else (500, 3)
CHAINS: bnp.inference.ChainOptions = {"num_chains": 2, "num_warmup": 30, "num_samples": 60}
MODEL = bnp.TNPLCM(components=4, split_merge_every=0)
if not SMALL:
    CHAINS = {"num_chains": 4, "num_warmup": 1_000, "num_samples": 1_000, "thin": 5}
    MODEL = bnp.TNPLCM(components=20)


def margins_of(run):
    """What the chains must agree on."""
    return bnp.level_margins(run).monitored(run)


TARGET = None if SMALL else bnp.Converged(quantities=margins_of, others_rhat=1.05)

# %% [markdown]
# ## The sample, and combinations that cannot occur
#
# The sample is drawn from a bundled census population. In this file, children are not married, do
# not work and have no education. A synthetic married child would be absurd, and everybody could see
# that it is synthetic. Therefore the impossible combinations are listed, one in each row; a row
# holds for all values of the variables that it does not name.

# %%
VARIABLES = ["age", "sex", "race", "marital_status", "education", "class_of_worker"]
population = bnp.datasets.census_income()
sample = population.sample(SAMPLE_SIZE, seed=0)[VARIABLES]
table = bnp.Microdata.from_frame(sample)

CHILD, CODE = "0-14", "Under 15 years old"
rows = [
    {"age": CHILD, name: label}
    for name, allowed in (
        ("marital_status", "Never married"), ("class_of_worker", "Not working"),
        ("education", CODE),
    )
    for label in population.levels[name]
    if label != allowed
]  # fmt: skip
rows += [{"age": age, "education": CODE} for age in population.levels["age"] if age != CHILD]
zeros = bnp.StructuralZeros.from_frame(pd.DataFrame(rows), table.schema)
print(f"{table.n} records, {len(table.cells().sample_uniques)} alone with their combination")
print(f"{zeros.num_impossible_cells:,} of {table.schema.num_cells:,} cells are impossible")

# %% [markdown]
# ## Fit the model, check it, and then make files
#
# Several chains start from different values. If they disagree, no later result can be trusted.
# Therefore they continue until they agree on the share of every level (`until`), or for an hour at
# most. Read the warnings first.

# %%
run = bnp.sample(MODEL, table, key=jax.random.key(0), conditions=zeros, until=TARGET, **CHAINS)
margins = bnp.level_margins(run)
print("\n\n".join(bnp.diagnose(run, margins).warnings) or "no warnings")

# %%
files = bnp.synthesize(run, NUM_FILES)
files[0].head()

# %% [markdown]
# Each file is made from another draw of the parameters, so that the differences between the files
# show the uncertainty of the parameters. Users combine the estimates from the files with
# `bnp.evaluation.combine_partially_synthetic`, whose intervals include this uncertainty.
#
# ## How useful are they?
#
# `evaluate` compares all tables of one, two and three variables. The overlap is the share that the
# interval from the synthetic files and the interval from the sample have in common; two samples of
# this size would have 70 to 80%. The pMSE ratio shows whether a regression can tell synthetic
# records from real ones: it cannot if the ratio is about 1, and it can if the ratio is above 10.

# %%
coded = [bnp.Microdata.from_frame(file, levels=table.schema) for file in files]
whole = bnp.Microdata.from_frame(population.frame[VARIABLES], levels=table.schema)
quality = bnp.evaluate(table, coded, population=whole, conditions=zeros)
found = quality.summary()
pd.DataFrame(
    {
        f"{k} variables": {
            "mean overlap": f"{part['overlap']:.0%}",
            "population covered, synthetic": f"{part['covers_population']:.0%}",
            "population covered, sample": f"{part['original_covers_population']:.0%}",
        }
        for k, part in found["proportions"].items()
    }
)

# %%
print("pMSE ratio:", {kind: round(score["ratio"], 2) for kind, score in found["pmse"].items()})
print("impossible records:", [one["number"] for one in found["impossible"]])

# %% [markdown]
# In this exercise, the population is known too. For your own file, look at the overlap and at the
# tables that fit worst:

# %%
quality.proportions[2].fit.head()

# %% [markdown]
# ## How safe are they?
#
# No synthetic person is a real person, so nobody can be found in the files. But consider the worst
# case: somebody knows the whole sample except one record, and all values of this record except one.
# Can this intruder find the missing value from the files? For every record that is unique in the
# sample, `attack_risk` estimates the probability of the true value and of every alternative.

# %%
attack = bnp.attack_risk(run, table, files, key=jax.random.key(1))
print("\n\n".join(attack.warnings()) or "no warnings")

# %% [markdown]
# This is the estimator of the published papers, and it is imprecise, because it depends on the
# likelihood of whole files, which differs very much between draws. If the standard error of the log
# odds is larger than the log odds, a low rank has no meaning, and the test below declares hardly
# anybody safe. The remedy takes time but is simple: run the chains again, once for each file, on
# the sample with this file added.

# %%
refits = bnp.evaluation.refit(
    MODEL, table, files, key=jax.random.key(2), conditions=zeros, until=TARGET, **CHAINS
)
better = bnp.attack_risk(run, table, files, key=jax.random.key(1), refits=refits, max_draws=4_000)
print("\n\n".join(better.warnings()) or "no warnings")

# %%
pd.DataFrame(
    {
        name: {
            "error of a typical log odds": round(float(np.median(risk.typical_error)), 2),
            "records attacked": len(risk.rows),
            "truth first, by estimate": int((risk.rank == 1).sum()),
            "truth first cannot be ruled out": int(risk.at_risk[:, 0].sum()),
            "mean probability of the truth": round(float(risk.rho[:, 0].mean()), 3),
            "the same without the files": round(float((1 / risk.num_candidates).mean()), 3),
            "largest probability of a truth": round(float(risk.rho[:, 0].max()), 2),
        }
        for name, risk in (("as in the papers", attack), ("chains that know the file", better))
    }
)

# %% [markdown]
# Read the second column. It has the mean probability of the true value with the files, and without
# them; the difference is what the files disclose. A warning about heavy tails (Pareto k) concerns
# single records: their probabilities are not known well, and the decision below does not use them.
# The records with the highest probabilities are:

# %%
better.records().head(5).round(3)

# %%
better.candidates(int(better.records()["row"][0])).head(5).round(3)

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
gain = better.rho[:, 0] * better.num_candidates
axes.hist(gain, bins=np.linspace(0, max(3, gain.max()), 40).tolist(), color="#1f5f8b")
axes.axvline(1, color="red", label="nothing learned")
axes.set(xlabel="probability of the truth, times the number of candidates", ylabel="records")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## The decision
#
# To the right of the line, the files make the true value more probable. A committee may decide that
# no true value may become twice as probable by the release, or more probable than one half. If some
# records do not meet this limit, make fewer files, coarsen the levels of the variable that
# discloses most, or use a model with fewer classes, and run this notebook again. The figures are
# for an intruder who knows everybody else; a real intruder knows less. The figures do not say how
# much harm a disclosure would do.

# %%
limit, known = 2, better.worst_k <= 0.7
number = int((gain[known] > limit).sum())
print(f"{known.size - known.sum()} of {known.size} records: not known, count them as at risk")
print(
    f"synthetic data: {number} of the other {known.sum()} truths more than {limit} times as likely"
)
