"""Item 6: what objects say of themselves."""

import jax
import pandas as pd

import bnp_models as bnp

frame = pd.read_csv("sample.csv")
table = bnp.Microdata.from_frame(frame)
model = bnp.NPLCM(components=6)
run = bnp.sample(model, table, key=jax.random.key(0), num_chains=2, num_warmup=100,
                 num_samples=100)  # fmt: skip
zeros = bnp.StructuralZeros.from_frame(
    pd.DataFrame({"age": ["15-24"], "marital_status": ["Widowed"]}), table.schema
)
things = {
    "run": run, "table": table, "risk": bnp.population_risk(run, population_size=228_421),
    "evaluation": bnp.evaluate(table, bnp.synthesize(run, 2)), "model": model, "zeros": zeros,
}  # fmt: skip
for name, thing in things.items():
    page = len(thing._repr_html_()) if hasattr(thing, "_repr_html_") else "none"
    print(f"{name}: repr {len(repr(thing)):,} characters, _repr_html_ {page}")
try:
    print("len(table):", len(table))
except TypeError as error:
    print("len(table):", error)
