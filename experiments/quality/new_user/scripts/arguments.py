"""Item 14: wrong arguments."""

import jax
import pandas as pd

import bnp_models as bnp

table = bnp.Microdata.from_frame(pd.read_csv("sample.csv"))
key = jax.random.key(0)
small = {"num_chains": 2, "num_warmup": 100, "num_samples": 100}
model = bnp.NPLCM(components=6)
for name, call in {
    "the class": lambda: bnp.sample(bnp.NPLCM, table, key=key, **small),
    "key=0": lambda: bnp.sample(model, table, key=0, **small),
    "swapped": lambda: bnp.sample(table, model, key=key, **small),
    "a path": lambda: bnp.sample(model, "sample.csv", key=key, **small),
    "population_risk(table)": lambda: bnp.population_risk(table, population_size=228_421),
    "synthesize(model, 2)": lambda: bnp.synthesize(model, 2),
    "components='6'": lambda: bnp.NPLCM(components="6"),
    "variables='age'": lambda: bnp.Microdata.from_frame(pd.read_csv("sample.csv"), variables="age"),
}.items():
    try:
        call()
        print(f"{name}: taken")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:100]!r}")
