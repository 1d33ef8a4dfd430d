"""Item 5: data frames where a frame is natural."""

import jax
import pandas as pd

import bnp_models as bnp

frame = pd.read_csv("sample.csv")
table = bnp.Microdata.from_frame(frame)
run = bnp.sample(bnp.NPLCM(components=6), table, key=jax.random.key(0), num_chains=2,
                 num_warmup=100, num_samples=100)  # fmt: skip
files = bnp.synthesize(run, 2)
for name, call in {
    "evaluate(table, files)": lambda: bnp.evaluate(table, files),
    "evaluate(frame, files)": lambda: bnp.evaluate(frame, files),
    "propensity_score(frame, file)": lambda: bnp.evaluation.propensity_score(frame, files[0]),
    "replicated_uniques(frame, files)": lambda: bnp.evaluation.replicated_uniques(frame, files),
    "k_anonymity(frame)": lambda: bnp.k_anonymity(frame),
    "weighted_cells(frame)": lambda: bnp.weighted_cells(frame, population_size=228_421),
    "sample(model, frame)": lambda: bnp.sample(
        bnp.NPLCM(components=6), frame, key=jax.random.key(0), num_chains=2, num_warmup=100,
        num_samples=100),
}.items():  # fmt: skip
    try:
        print(f"{name}: {type(call()).__name__}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:90]}")
