"""Item 7: what ArviZ finds."""

import warnings

import jax
import matplotlib
import pandas as pd

import bnp_models as bnp

matplotlib.use("agg")
warnings.simplefilter("ignore")
import arviz as az  # noqa: E402

table = bnp.Microdata.from_frame(pd.read_csv("sample.csv"))
run = bnp.sample(bnp.NPLCM(components=6), table, key=jax.random.key(0), num_chains=2,
                 num_warmup=100, num_samples=100)  # fmt: skip
checks = bnp.predictive_checks(run)
data = bnp.to_inference_data(run, parameters=True, checks=checks, pointwise=True)
print("ArviZ", az.__version__, "groups:", *getattr(data, "groups", lambda: data.children)())
print("coordinates:", *(c for c in data["posterior"].coords if c not in ("chain", "draw")))
made_by = {**data["posterior"].attrs, **getattr(data, "attrs", {})}
print("created_at:", "created_at" in made_by, " inference_library:", "inference_library" in made_by)
ppc = az.plot_ppc if hasattr(az, "plot_ppc") else az.plot_ppc_dist
for name, call in {
    "az.loo(data)": lambda: az.loo(data),
    "az.compare({..})": lambda: az.compare({"a": data, "b": data}),
    "az.summary(data)": lambda: az.summary(data),
    "az.plot_trace(data)": lambda: az.plot_trace(data, var_names=["alpha"]),
    "az.plot_ppc(data)": lambda: ppc(data, var_names=["table_distance"]),
}.items():
    try:
        call()
        print(f"{name}: works")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:90]}")
