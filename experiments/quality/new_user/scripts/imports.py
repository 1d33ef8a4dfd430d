"""Item 18: libraries that are imported only where they are used."""

import sys

import jax
import pandas as pd

import bnp_models as bnp

slow = ("numpyro", "optax", "matplotlib", "arviz")


def imported(when):
    print(f"{when}:", ", ".join(name for name in slow if name in sys.modules) or "none of them")


imported("import bnp_models")
table = bnp.Microdata.from_frame(pd.read_csv("sample.csv"))
run = bnp.sample(bnp.NPLCM(components=6), table, key=jax.random.key(0), num_chains=2,
                 num_warmup=100, num_samples=100)  # fmt: skip
imported("sample")
bnp.population_risk(run, population_size=228_421)
imported("population_risk")
