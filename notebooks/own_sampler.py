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
# # A Gibbs sampler of your own
#
# The models of this package are composed of small functions, the *kernels*. They are pure functions
# of arrays, whose first argument is a random key. You can therefore compose them in another way.
# This notebook builds a latent class model that the package does not have, a finite one with a
# symmetric Dirichlet prior on the class weights, and checks it against a simulation whose truth is
# known.
#
# $$z_i \sim \pi, \quad x_{ij} \sim \lambda_{j z_i}, \quad
# \pi \sim \mathrm{Dir}(a, \ldots, a), \quad \lambda_{jk} \sim \mathrm{Dir}(1, \ldots, 1)$$

# %%
import os
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import bnp_models as bnp
from bnp_models.kernels.numerics.counting import count_rows_by_component, first_rows
from bnp_models.kernels.variates.categorical import draw_rows
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.levels import draw_levels
from bnp_models.models.latent_classes.predictions import log_cell_probability

# The tests run this notebook with BNP_NOTEBOOK_SMALL=1: few sweeps.
SMALL = os.environ.get("BNP_NOTEBOOK_SMALL") == "1"
NUM_CHAINS, NUM_SWEEPS = (2, 100) if SMALL else (4, 4_000)
K, A = 6, 0.5

# %% [markdown]
# ## Data with a known truth
#
# The data have three classes and five variables. The sampler knows neither the classes nor their
# number.

# %%
rng = np.random.default_rng(0)
num_levels = (2, 3, 4, 2, 3)
pi = np.array([0.5, 0.3, 0.2])
levels = [rng.dirichlet(np.full(size, 0.5), 3) for size in num_levels]
z_true = rng.choice(3, 800, p=pi)
codes = np.stack([(rng.random(800)[:, None] > own[z_true].cumsum(1)).sum(1) for own in levels], 1)
codes = np.minimum(codes, np.array(num_levels) - 1)

# %% [markdown]
# ## The sweep
#
# All level probabilities are in one array, variable after variable; `rows` has the entry that
# belongs to each value of a record. Every conditional is one call:
#
# 1. the class of each record: `draw_rows`, by inverse CDF from log weights.
#    (`jax.random.categorical` would be slower, and in 32 bits wrong for very rare events.)
# 2. counts of levels by class: `count_rows_by_component`, a scatter-add of integers;
# 3. level probabilities: `draw_levels`, Dirichlet draws in logarithms, which do not underflow;
# 4. class weights: `log_dirichlet`.

# %%
rows = jnp.asarray((codes + first_rows(num_levels)).T, jnp.int32)
variable = jnp.asarray(np.repeat(np.arange(len(num_levels)), num_levels))


def sweep(key, state):
    """One scan of Gibbs: classes given parameters, parameters given classes."""
    log_pi, log_lambda = state
    key_z, key_lambda, key_pi = jax.random.split(key, 3)
    log_weight = log_pi + sum(log_lambda[row] for row in rows)
    z, log_likelihood = draw_rows(key_z, log_weight.T)
    ones = jnp.ones(rows.shape[1], jnp.int32)
    counts = count_rows_by_component(
        rows, jnp.broadcast_to(z, rows.shape), ones, (variable.size, K)
    )
    in_class = jnp.sum(counts[: num_levels[0]], axis=0)
    log_lambda = draw_levels(key_lambda, 1.0 + counts, variable)
    log_pi = log_dirichlet(key_pi, A + in_class)
    kept = {"log_likelihood": jnp.sum(log_likelihood), "log_pi": log_pi, "log_lambda": log_lambda}
    return (log_pi, log_lambda), kept | {"occupied": jnp.sum(in_class > 0)}


# %% [markdown]
# ## Chains
#
# `scan` repeats the sweep, `vmap` runs the chains in parallel, and `jit` compiles everything. The
# key of sweep t is `fold_in(key, t)`: no key is used twice, and the draws do not depend on how the
# run is divided into parts.

# %%


@partial(jax.jit, static_argnames="num_sweeps")
def chain(key, num_sweeps):
    """A chain that starts from the prior."""
    key_pi, key_lambda, key_sweeps = jax.random.split(key, 3)
    start = (
        log_dirichlet(key_pi, jnp.full(K, A)),
        draw_levels(key_lambda, jnp.ones((variable.size, K)), variable),
    )
    keys = jax.vmap(lambda t: jax.random.fold_in(key_sweeps, t))(jnp.arange(num_sweeps))
    return jax.lax.scan(lambda state, key: sweep(key, state), start, keys)[1]


keys = jax.random.split(jax.random.key(0), NUM_CHAINS)
draws = jax.vmap(lambda key: chain(key, NUM_SWEEPS))(keys)
draws = {name: np.asarray(value)[:, NUM_SWEEPS // 2 :] for name, value in draws.items()}
{name: value.shape for name, value in draws.items()}

# %% [markdown]
# ## Did it converge?
#
# The number of a class has no meaning: the same class may have number 1 in one chain and number 4
# in another. Therefore look at quantities that do not depend on the numbering.

# %%
scalars = {name: draws[name] for name in ("log_likelihood", "occupied")}
for name, figures in bnp.diagnose(scalars).figures.items():
    found = {k: v and round(v, 2) for k, v in figures.items()}
    print(f"{name}: mean {draws[name].mean():.1f},", found)

figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
axes.plot(draws["log_likelihood"].T, lw=0.4)
axes.set(xlabel="sweep after the first half", ylabel="log likelihood")
plt.show()

# %% [markdown]
# ## Is it right?
#
# The posterior means of the probabilities of cells are compared with the true probabilities. The
# function `log_cell_probability` of the package takes the same arrays, so that you can use it with
# your own sampler.

# %%
cells = np.stack(np.meshgrid(*map(np.arange, num_levels), indexing="ij"), -1).reshape(-1, 5)
by_class = np.prod([own[:, c] for own, c in zip(levels, cells.T, strict=True)], axis=0)
true = pi @ by_class
thin = {k: jnp.asarray(v[:, ::10].reshape(-1, *v.shape[2:])) for k, v in draws.items()}
zero = jnp.zeros(len(thin["log_pi"]))
thin = {"log_pi": thin["log_pi"], "log_lambda": thin["log_lambda"], "log_feasible": zero}
of_draw = jax.jit(lambda draw: jnp.exp(log_cell_probability(draw, jnp.asarray(cells), num_levels)))
estimate = np.asarray(jax.lax.map(of_draw, thin)).mean(axis=0)
observed = np.bincount(np.ravel_multi_index(codes.T, num_levels), minlength=len(cells)) / len(codes)
print(f"total variation distance to the truth: model {abs(estimate - true).sum() / 2:.3f}, "
      f"observed frequencies {abs(observed - true).sum() / 2:.3f}")  # fmt: skip

# %%
figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.loglog(true, observed + 1e-5, ".", alpha=0.4, label="observed")
axes.loglog(true, estimate, ".", alpha=0.6, label="model")
axes.loglog([1e-5, 0.3], [1e-5, 0.3], color="grey", lw=0.8)
axes.set(xlabel="true probability of a cell", ylabel="estimate", xlim=(1e-5, 0.3))
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# The model borrows strength: it also estimates the probabilities of cells without records. Every
# sampler of this package has passed a stronger test: sweeps alternate with draws of new data from
# the model, and the parameters must keep their prior distribution (`tests/latent.py`, Geweke's
# test). Do the same before you rely on a sampler of your own.

# %%
print(f"own sampler: {draws['occupied'].mean():.1f} of {K} classes in use, 3 in truth")
