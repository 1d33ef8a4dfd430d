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
# An agency holds a sample that it must not give away, and wants to publish files of invented
# persons instead: as useful as possible, and telling nobody's secret. This notebook makes such
# files with the truncated latent class model (`tnplcm`), and asks the two questions that a release
# committee asks. **How good are they? How safe are they?**
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
SAMPLE_SIZE, NUM_FILES = (100, 2) if SMALL else (500, 5)
CHAINS = {"num_chains": 2, "num_warmup": 30, "num_samples": 60}
MODEL = bnp.TNPLCM(components=4, split_merge_every=0)
if not SMALL:
    CHAINS = {"num_chains": 4, "num_warmup": 1_000, "num_samples": 1_000, "thin": 2}
    MODEL = bnp.TNPLCM(components=30)

# %% [markdown]
# ## The sample, and what cannot occur
#
# The sample is drawn from a bundled census population. Children neither marry nor work in this
# file, nor have they a schooling of their own. A synthetic married child would be absurd, and would
# say of itself that it is synthetic. So the impossible combinations are listed, one a row; a
# variable that a row does not name is free.

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
# ## Fit, look, and only then make files
#
# Several chains start from different places. If they do not tell the same story, nothing that
# follows can be trusted, so the warnings come first.

# %%
run = bnp.sample(MODEL, table, key=jax.random.key(0), conditions=zeros, **CHAINS)
margins = bnp.level_margins(run)
print("\n\n".join(bnp.warnings_of(run, margins)) or "no warnings")

# %%
files = bnp.synthesize(run, NUM_FILES)
files[0].head()

# %% [markdown]
# Each file comes from another draw of the parameters. What differs between the files is what the
# model does not know; users combine the files with `bnp.evaluation.combine_partially_synthetic`,
# and get intervals that include it.
#
# ## How good are they?
#
# `evaluate` compares all tables of one, two and three variables. Overlap: the share that the
# interval from the synthetic files and the one from the sample have in common. Two samples of this
# size would have 70 to 80%. pMSE: can a regression tell synthetic records from real ones? Around 1
# it cannot; above 10 it can.

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
# Here a good deal of the population is known to be covered, because this is an exercise. With your
# own file, read the overlap and the worst tables:

# %%
quality.proportions[2].fit.head()

# %% [markdown]
# ## How safe are they?
#
# No synthetic person is a real one, so nobody can be looked up. But suppose the worst: somebody
# knows the whole sample except one record, and of that record everything but one value, though not
# which. Do the files tell which value is right? For every record that is alone in the sample,
# `attack_risk` works out the probability of the truth and of every alternative.

# %%
attack = bnp.attack_risk(run, table, files, key=jax.random.key(1))
print("\n\n".join(attack.warnings()) or "no warnings")

# %% [markdown]
# That estimate is the one of the published papers, and it is poor: it rests on the likelihood of
# whole files, which varies wildly from draw to draw. When the error of the log odds is larger than
# the log odds, a low rank says nothing, and the test below declares next to nobody safe. The remedy
# costs time, not thought: run the chains again, once for each file, on the sample with that file
# added.

# %%
refits = bnp.evaluation.refit(
    MODEL, table, files, key=jax.random.key(2), conditions=zeros, **CHAINS
)
better = bnp.attack_risk(run, table, files, key=jax.random.key(1), refits=refits)
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
# Read the second column. The probability of the truth, on average, against what a guess without the
# files has: that is what releasing them gives away. Then the records for which it is highest:

# %%
better.records().head(5).round(3)

# %%
better.candidates(int(better.records()["row"][0])).head(5).round(3)

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
gain = better.rho[:, 0] * better.num_candidates
axes.hist(gain, bins=np.linspace(0, max(3, gain.max()), 40), color="#1f5f8b")
axes.axvline(1, color="red", label="nothing learned")
axes.set(xlabel="probability of the truth, times the number of candidates", ylabel="records")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## The decision
#
# To the right of the line, the files speak for the truth. A committee may say: no truth may be
# twice as likely after release as before, or no truth above one half. If some records fail, the
# usual remedies are fewer files, coarser levels of the variable that gives them away, or a model
# with fewer classes, and then this notebook again. The figures are for an intruder who knows
# everybody else; a real one knows less. What the numbers cannot say is how bad it would be.

# %%
limit = 2
number = int((gain > limit).sum())
print(f"synthetic data: {number} of {len(gain)} truths more than {limit} times as likely")
