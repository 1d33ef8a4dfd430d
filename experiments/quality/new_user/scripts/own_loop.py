"""Item 8: a loop of one's own, and steps of one's own in the driver."""

import jax
import pandas as pd

import bnp_models as bnp

table = bnp.Microdata.from_frame(pd.read_csv("sample.csv"))
kernel = bnp.kernel_of(bnp.NPLCM(components=6), table)
init, step = jax.jit(kernel.init), jax.jit(kernel.step)
state = init(jax.random.key(0))
for i in range(20):
    state, info = step(jax.random.fold_in(jax.random.key(1), i), state)
print("20 sweeps; kept:", *sorted(kernel.keep(state, info))[:6])


def start(key):
    return {"x": jax.random.normal(key)}


def move(key, state):
    x = 0.5 * state["x"] + jax.random.normal(key)
    return {"x": x}, {"square": x**2}


own = bnp.inference.model_of_steps(start, move, keep=["x", "square"])
run = bnp.sample(own, table, key=jax.random.key(0), num_chains=2, num_warmup=100, num_samples=100)
print("own steps:", run.draws["square"].shape, {k: v for k, v in bnp.diagnose(run).figures.items()})
