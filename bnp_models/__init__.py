"""Bayesian non-parametric models for categorical microdata, on JAX.

Names are imported when they are first used, so that ``import bnp_models`` is quick.

Examples
--------
Examples of all functions and classes begin with these lines:

>>> import jax, numpy as np, pandas as pd
>>> import bnp_models as bnp
>>> population = bnp.datasets.census_income()
>>> frame = population.sample(62, seed=0)[["age", "sex", "education"]]
>>> table = bnp.Microdata.from_frame(frame)
>>> impossible = pd.DataFrame({"age": ["0-14"], "education": ["Bachelor or higher"]})
>>> zeros = bnp.StructuralZeros.from_frame(impossible, table.schema)
>>> households = bnp.datasets.bay_area_households().sample(20, seed=0).households()
>>> cells = bnp.weighted_cells(table, population_size=5_000)

Chains as short as these are for examples only:

>>> short = {"num_chains": 2, "num_warmup": 20, "num_samples": 20}
>>> model = bnp.NPLCM(components=4)
>>> run = bnp.sample(model, table, key=jax.random.key(0), **short)
>>> risk = bnp.population_risk(run, population_size=5_000)
>>> files = bnp.synthesize(run, 2)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
