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
# # On a GPU
#
# The same code runs on CPUs and on GPUs. Four things matter: what `jax.devices()` finds, the number
# of chains, 32-bit numbers, and compilation. **The outputs stored in this notebook are of a CPU,
# with small settings.** On a machine with a GPU, run it unchanged: it then uses the GPU, more
# records and more chains. [Measurements](../experiments/speed/gpu/README.md) on GPUs are elsewhere.

# %%
import jax
import pandas as pd

import bnp_models as bnp

# %% [markdown]
# ## Devices
#
# `pip install '.[cuda12]'` (or `cuda13`) installs JAX for NVIDIA GPUs. If the list has only a CPU
# although there is a GPU, this installation or the driver is the reason. `bnp.sample` uses all of
# `jax.devices()`, or those that you name: `devices=jax.devices("cpu")`.

# %%
devices = jax.devices()
on_gpu = jax.default_backend() == "gpu"
print(f"{len(devices)} x {devices[0].device_kind}, backend {jax.default_backend()}")
print("these outputs are of a GPU" if on_gpu else "these outputs are of a CPU")

# %% [markdown]
# ## Numbers of 32 bits
#
# By default JAX computes with 32 bits, and so do the models. Leave it so, because GPUs are slower
# with 64 bits. The kernels are written for 32 bits: they count with integers, and they keep
# probabilities as logarithms, so that those of rare cells are accurate.

# %%
population = bnp.datasets.census_income(adults=True)
table = bnp.Microdata.from_frame(
    population.sample(10_000 if on_gpu else 300, seed=0),
    variables=["age", "sex", "race", "marital_status", "education", "class_of_worker"],
)
model = bnp.NPLCM(components=50 if on_gpu else 20)
run = bnp.sample(model, table, key=jax.random.key(0), num_warmup=100, num_samples=100)
print({name: f"{run.draws[name].dtype}{run.draws[name].shape}" for name in ("alpha", "log_lambda")})

# %% [markdown]
# ## The number of chains
#
# All chains advance together. Four chains use a small part of a GPU, and 32 chains take little
# longer than four. On a CPU with few cores, four times as many chains take about four times as
# long. With several GPUs, each gets whole chains. Compilation takes from seconds to minutes; it is
# done once for each number of chains, and the programs are kept for later runs. Therefore the table
# has it in a column of its own, which is near 0 for programs that an earlier run has kept.

# %%
rows = []
for num_chains in (4, 32, 128) if on_gpu else (2, 4, 8):
    run = bnp.sample(
        model, table, key=jax.random.key(1), num_chains=num_chains, num_warmup=100, num_samples=400
    )
    seconds = run.seconds["warmup"] + run.seconds["draws"]
    rows.append({
        "chains": num_chains,
        "seconds, compilation": round(run.seconds["compile"], 1),
        "seconds, 500 sweeps": round(seconds, 2),
        "draws of all chains a second": round(run.settings.num_chains * 500 / seconds),
    })  # fmt: skip
pd.DataFrame(rows).set_index("chains")

# %% [markdown]
# ## A result
#
# With many chains, each needs fewer draws after its warm-up: the target below asks for a number of
# effective draws of all chains together (`min_ess`). The warm-up of a chain is as long as before.


# %%
def tau1_of(run):
    """What the chains must agree on."""
    return bnp.population_risk(run, len(population)).monitored(run)


target = bnp.Converged(min_ess=400, quantities=tau1_of, others_rhat=1.1)
run = bnp.sample(
    model, table, key=jax.random.key(2), num_chains=32 if on_gpu else 4, num_samples=500,
    until=target,
)  # fmt: skip
risk = bnp.population_risk(run, len(population))
print("\n".join(bnp.diagnose(run, risk).warnings) or "no warnings")
print(f"on {run.device}: tau_1 has mean {risk.tau1.mean():.1f}")
