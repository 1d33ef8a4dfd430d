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

import importlib

import lazy_loader

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_NAMESPACES = (
    "data", "evaluation", "inference", "models", "report", "risk", "rules", "zeros", "io",
    "results",
)  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name, or a folder, when it is first used."""
    if name in __all__:
        return _lazy(name)
    if name[0] != "_":
        module = importlib.import_module(f"{__name__}.inference.earlier")
        if (function := module.earlier(__name__, name)) is not None:
            return function
        # Until the first release all names of the namespaces stood here.
        for namespace in _NAMESPACES:
            module = importlib.import_module(f"{__name__}.{namespace}")
            if name in getattr(module, "__all__", vars(module)):
                messages = importlib.import_module(f"{__name__}.data.messages")
                messages.warn_of_new_name(f"{__name__}.{name}", f"{__name__}.{namespace}.{name}")
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
