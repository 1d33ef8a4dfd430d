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
# # Synthetic households
#
# Users of household data are interested in who lives with whom: couples, children, their ages. A
# file of independent persons loses this information. This notebook makes synthetic *households*
# with the nested model (`ndpmpm`), under rules such as "exactly one householder" and "a child is
# younger than its parent". It then measures how useful the files are, and what they disclose.

# %%
import dataclasses
import os

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.rules import Rules, at_least, person

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few households, few sweeps.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
NUM_HOUSEHOLDS = 60 if SMALL else 500
MODEL = bnp.NDPMPM(components=3 if SMALL else 20, member_components=2 if SMALL else 40)
CHAINS: bnp.inference.ChainOptions = {"num_chains": 2, "num_warmup": 20, "num_samples": 60}
TARGETS = ("person",) if SMALL else ("household", "person")
if not SMALL:
    CHAINS = {"num_chains": 2, "num_warmup": 1_000, "num_samples": 2_000}

# %% [markdown]
# ## Who lives with whom
#
# The file has one person in each row, and a column identifies the household. Some columns describe
# the household and are the same for all of its members. The values of the head can be treated as
# values of the household too. Rules about the head are then conditions on one row, and the sampler
# has to draw far fewer impossible households.

# %%
data = bnp.datasets.bay_area_households()
if SMALL:
    pairs = data.frame.groupby(data.household)[data.household].transform("size") <= 2
    data = dataclasses.replace(data, frame=data.frame[pairs])
part = data.sample(NUM_HOUSEHOLDS, seed=0)
table = part.households(head=True)
print(f"{table.n} households, {table.num_persons} persons")
part.frame.head()

# %% [markdown]
# ## Rules
#
# A rule is a statement about one household. The package contains a set of rules about relationships
# and ages, which it makes from the labels of the file. Rules follow from the meaning of words, not
# from the data: if a household of the sample breaks a rule, there is an error in the household or
# in the rule.

# %%
rules = bnp.census_relationships(table.schema)
rules.require_feasible(table)
print("\n".join(str(rule) for rule in list(rules)[:6]))

# %%
run = bnp.sample(MODEL, table, key=jax.random.key(0), conditions=rules, **CHAINS)
print("\n\n".join(bnp.diagnose(run).warnings) or "no warnings")

# %% [markdown]
# If a warning says that records are in the last class, use more classes. If a warning is about
# R-hat, run longer chains. Do not release files from chains that disagree.
#
# ## The files
#
# There are as many households of each size as in the sample, and no household breaks a rule.

# %%
files = bnp.synthesize(run, 3)
files[0].head()

# %% [markdown]
# ## How useful are the files?
#
# Users will ask for the share of the households for which a statement is true. Such statements are
# written like rules.

# %%
relate, head = part.head
labels = [label for label in table.schema.labels(relate) if label != head]
common = part.frame[relate].value_counts().drop(head).index[:4]
statements = Rules(
    [at_least(1, person(**{relate: label})).named(f"has: {label}") for label in common]
)
coded = [
    bnp.Households.from_frame(
        file, part.household, part.household_variables, levels=table.schema.table, head=part.head
    )
    for file in files
]
shares = bnp.evaluation.household_shares(statements, table, coded)
pd.DataFrame(
    {
        "sample": shares.original.round(3),
        "synthetic": shares.synthetic.round(3),
        "interval": [
            "{:.3f} to {:.3f}".format(*ends) for ends in zip(*shares.interval, strict=True)
        ],
        "overlap": shares.overlap.round(2),
    },
    index=shares.names,
)

# %% [markdown]
# Relations within households are hard to reproduce, for example the difference between the ages of
# the spouse and the head. In this model, the two ages are similar only as far as there are classes
# of households for each age, so that the synthetic differences vary more. `relative=["age"]` of
# `bnp.NDPMPM` is the remedy.

# %%


def age_gaps(frame):
    """Ages of heads less those of the most common other member."""
    ages = pd.to_numeric(frame["age"].astype(str).str.extract(r"(\d+)")[0])
    heads = ages[frame[relate] == head].set_axis(frame.loc[frame[relate] == head, part.household])
    other = frame[relate] == common[0]
    return frame.loc[other, part.household].map(heads.groupby(level=0).first()) - ages[other]


figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bins = np.arange(-42.5, 45, 5).tolist()
axes.hist(age_gaps(part.frame), bins, density=True, alpha=0.6, label="sample")
axes.hist(age_gaps(files[0]), bins, density=True, alpha=0.6, label="synthetic")
axes.set(xlabel=f"age of the head less that of: {common[0]}", ylabel="density")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What do the files disclose?
#
# Suppose that somebody knows all households except one, and all values of this one except a single
# value. The target may be the household (any value of any member), or one person in a household
# whose other members are known.

# %%
attacks = {
    target: bnp.attack_risk(run, table, files, key=jax.random.key(1), target=target)
    for target in TARGETS
}
pd.DataFrame(
    {
        target: {
            "attacked": len(attack.rows),
            "candidates, on average": round(attack.num_candidates.mean(), 1),
            "mean probability of the truth": round(float(attack.rho[:, 0].mean()), 4),
            "the same without the files": round(float((1 / attack.num_candidates).mean()), 4),
            "error of a typical log odds": round(float(np.median(attack.typical_error)), 2),
            "truth first cannot be ruled out": int(attack.at_risk[:, 0].sum()),
        }
        for target, attack in attacks.items()
    }
)

# %%
print("\n\n".join(attacks["person"].warnings()) or "no warnings")

# %% [markdown]
# Take the standard error seriously. These probabilities depend on the likelihood of whole files. If
# a typical log odds has a standard error of 1 or more, the ranks are largely chance, and for most
# persons one can only say that a first place cannot be ruled out. `bnp.evaluation.refit`, as in the
# notebook `synthetic_data`, makes the error smaller, and needs one more run for each file. Before
# that, the chains must agree; these do not.
#
# ## The decision
#
# Here the decision is no: the chains disagree. A smaller model (300 households, six classes of
# households and four of members) was run too, and had not ended with chains that agree after 44
# minutes beside other work. In general, release the files if the quantities that users need are
# reproduced well enough, no warning is left, and no estimate that is precise enough shows that a
# person is at risk. Otherwise use fewer classes, coarser ages, fewer files or longer chains, and
# evaluate the files again.

# %%
worst = attacks["person"].records().head(3)
print(worst[["row", "rho", "candidates", "rank", "standard_error", "at_risk"]].round(3))
print(f"synthetic households: {len(files)} files of {table.n}")
