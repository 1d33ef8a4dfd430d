"""Samples and settings at the edge of what can be asked: they run, or are refused in one line.

    python experiments/numbers/edges.py                  # all cases that have no row yet
    python experiments/numbers/edges.py --only "N = n"   # these, anew
    python experiments/numbers/edges.py --minutes 9      # no further case after nine minutes

Each model on each case, forty sweeps of two chains; then, where the model has it, tau_1, and two
synthetic files. Passed: all draws are finite, tau_1 is within 0 and the number of sample uniques,
and files have labels of the sample only. Writes ``edges.md`` beside this file.
"""

import argparse
import time
from pathlib import Path
from types import FunctionType

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.inference.compilation import use_compilation_cache
from bnp_models.models.model import PredictsCells

TABLE = Path(__file__).parent / "edges.md"
HEAD = "| model | case | outcome | seconds |\n|---|---|---|---|\n"


def frame(n, levels, seed=0):
    """Records of independent variables with these numbers of levels."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({f"v{j}": rng.integers(0, k, n) for j, k in enumerate(levels)})


def equal(n):
    """Records that are all the same, of declared levels."""
    return bnp.Microdata.from_frame(
        pd.DataFrame({"a": ["x"] * n, "b": ["u"] * n}), levels={"a": ["x", "y"], "b": ["u", "v"]}
    )


def unique(n):
    """Records of which each has a value of its own."""
    return pd.DataFrame({"id": np.arange(n), "half": np.arange(n) % 2})


SAMPLES = {
    "n = 2": frame(2, [3, 2]).assign(v0=[0, 1], v1=[1, 0]),
    "one variable": frame(80, [6]),
    "a variable with one level": frame(80, [4, 1, 3]),
    "all records equal": equal(60),
    "all records unique": unique(60),
    "300 levels": frame(200, [300, 2]),
    "thirty variables": frame(60, [2] * 30),
}
MODELS = {
    "hdp": bnp.HDPMixedMembership(),
    "mixed-membership": bnp.MixedMembership(components=4),
    "nplcm": bnp.NPLCM(components=5),
    "tnplcm": bnp.TNPLCM(components=5),
}
# Functions: some settings are refused when the model is made.
SETTINGS = {
    ("nplcm", "K = 1"): lambda: bnp.NPLCM(components=1),
    ("nplcm", "K = 1,024"): lambda: bnp.NPLCM(components=1024),
    ("tnplcm", "K = 1"): lambda: bnp.TNPLCM(components=1),
    ("tnplcm", "K = 1,024"): lambda: bnp.TNPLCM(components=1024),
    ("mixed-membership", "K = 1"): lambda: bnp.MixedMembership(components=1),
    ("mixed-membership", "K = 1,024"): lambda: bnp.MixedMembership(components=1024),
    ("hdp", "alpha near 1e-8"): lambda: bnp.HDPMixedMembership(a=1e3, b=1e11),
    ("hdp", "alpha near 1e6"): lambda: bnp.HDPMixedMembership(a=1e3, b=1e-3),
    ("mixed-membership", "alpha near 1e-8"): lambda: bnp.MixedMembership(
        components=4, a=1e3, b=1e11
    ),
    ("mixed-membership", "alpha near 1e6"): lambda: bnp.MixedMembership(
        components=4, a=1e3, b=1e-3
    ),
    ("nplcm", "alpha near 1e-8"): lambda: bnp.NPLCM(components=5, a=1e3, b=1e11),
    ("nplcm", "alpha near 1e6"): lambda: bnp.NPLCM(components=5, a=1e3, b=1e-3),
    ("tnplcm", "alpha near 1e-8"): lambda: bnp.TNPLCM(components=5, a=1e3, b=1e11),
    ("tnplcm", "alpha near 1e6"): lambda: bnp.TNPLCM(components=5, a=1e3, b=1e-3),
}
SMALL = frame(80, [4, 3, 2])
TAKE_ZEROS = ("hdp", "mixed-membership", "tnplcm")


def zeros_of(rows, data):
    """Structural zeros: values of variables by name, one combination a row."""
    return bnp.StructuralZeros.from_frame(pd.DataFrame(rows), as_table(data).schema)


def as_table(data):
    """A sample with its schema."""
    return bnp.Microdata.from_frame(data) if isinstance(data, pd.DataFrame) else data


def feasible(data, **values):
    """Records of a frame that do not have all of these values."""
    has = np.logical_and.reduce([data[name] == value for name, value in values.items()])
    return data[~has].reset_index(drop=True)


def all_but_two():
    """Zeros that leave the cells (x, u) and (y, v) of the sample of equal records."""
    return [{"a": "x", "b": "v"}, {"a": "y", "b": "u"}]


WITH_ZEROS = {
    "with a zero": (feasible(SMALL, v0=0, v1=0), [{"v0": 0, "v1": 0}], None),
    "with a zero, n = 2": (SAMPLES["n = 2"], [{"v0": 0, "v1": 0}], None),
    "with a zero, N = n": (feasible(SMALL, v0=0, v1=0), [{"v0": 0, "v1": 0}], -1),
    "with zeros, all records equal": (equal(60), all_but_two(), None),
}


def household_cases():
    """Few households of the bundled file, and models of them."""
    everyone = bnp.datasets.bay_area_households()
    some, two = (everyone.sample(n, seed=0).households() for n in (25, 2))
    small = bnp.NDPMPM(components=3, member_components=3)
    named = {
        "25 households": (small, some),
        "two households": (small, two),
        "all households equal": (small, some.select(np.zeros(20, int))),
        "F = S = 1": (lambda: bnp.NDPMPM(components=1, member_components=1), some),
        "F = 128, S = 8": (bnp.NDPMPM(components=128, member_components=8), some),
        "alpha near 1e-8": (bnp.NDPMPM(components=3, member_components=3, a=1e3, b=1e11), some),
        "alpha near 1e6": (bnp.NDPMPM(components=3, member_components=3, a=1e3, b=1e-3), some),
        "beta near 1e6": (
            bnp.NDPMPM(components=3, member_components=3, a_beta=1e3, b_beta=1e-3), some
        ),
    }  # fmt: skip
    return [("ndpmpm", what, *rest, None, None) for what, rest in named.items()]


def outcome(model, data, zeros, population):
    """What came of it: passed, refused and why, or what is wrong."""
    try:
        model = model() if isinstance(model, FunctionType) else model
        table = as_table(data)
        if isinstance(model, bnp.PolettiniStander):
            return outcome_of_cells(model, table, population or 50 * table.n)
        conditions = zeros and zeros_of(zeros, table)
        short = {"num_chains": 2, "num_warmup": 20, "num_samples": 20}
        run = bnp.sample(model, table, key=jax.random.key(0), conditions=conditions, **short)
        for name, draws in run.draws.items():
            # Logarithms of what has no weight are minus infinity.
            if np.isnan(draws).any() or np.isposinf(draws).any():
                return f"WRONG: {name} is not finite"
        if isinstance(run.model, PredictsCells):
            population = table.n if population == -1 else population or 50 * table.n
            found = wrong_risk(bnp.population_risk(run, population), table)
            if found:
                return found
        for made in bnp.synthesize(run, 2):
            if wrong := other_labels(made, table.schema):
                return f"WRONG: {wrong} has other labels"
    except (ValueError, bnp.MicrodataError) as error:
        return f"refused: {error}" if "\n" not in str(error) else f"WRONG: {error!r}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {str(error).splitlines()[0]}"
    return "passed"


def wrong_risk(risk, table):
    """What is wrong with a risk, or None."""
    uniques = len(risk.rows)
    for name in ("tau1", "tau2", "tau1_conditional", "tau2_conditional"):
        tau = getattr(risk, name)
        if not (tau.min() >= 0 and tau.max() <= uniques * (1 + 1e-5)):
            return f"WRONG: {name} from {tau.min()} to {tau.max()} of {uniques}"
        if risk.population_size == table.n and not np.allclose(tau, uniques):
            return f"WRONG: {name} of a census is {tau.min()} to {tau.max()} of {uniques}"
    if not all(((r >= 0) & (r <= 1)).all() for r in (risk.r1, risk.r2)):
        return "WRONG: a risk of a record is not within 0 and 1"
    return None


def other_labels(made, schema):
    """A variable of a synthetic file that has labels which the sample's schema lacks."""
    schema = getattr(schema, "table", schema)
    levels = zip(schema.variables, schema.levels, strict=True)
    return next((name for name, labels in levels if not set(made[name]) <= set(labels)), None)


def outcome_of_cells(model, table, population):
    """Risk of cells under Polettini & Stander's models."""
    risk = bnp.cell_risk(model, bnp.weighted_cells(table, population), key=jax.random.key(0))
    for name in ("risk", "p_unique"):
        values = np.asarray(getattr(risk, name))
        if not ((values >= 0) & (values <= 1)).all():
            return f"WRONG: {name} is not within 0 and 1"
        if population == table.n and name == "risk" and not np.isfinite(values).all():
            return "WRONG: risk of a census is not finite"
    return "passed"


def all_cases():
    """Model's name, case, model, sample, structural zeros, population size."""
    cases = [(name, what, model, data, None, None) for what, data in SAMPLES.items()
             for name, model in MODELS.items()]  # fmt: skip
    cases += [(name, what, model, SMALL, None, None) for (name, what), model in SETTINGS.items()]
    cases += [(name, "N = n", model, SMALL, None, -1) for name, model in MODELS.items()]
    cases += [(name, what, MODELS[name], data, zeros, population)
              for what, (data, zeros, population) in WITH_ZEROS.items()
              for name in TAKE_ZEROS]  # fmt: skip
    for variant in (1, 2):
        model = bnp.PolettiniStander(variant=variant)
        cases += [(model.name, what, model, data, None, None) for what, data in SAMPLES.items()]
        cases.append((model.name, "N = n", model, SMALL, None, len(SMALL)))
        cases.append((model.name, "N = 10^12", model, SMALL, None, 10**12))
        for alpha in (1e-8, 1e6):
            extreme = bnp.PolettiniStander(variant=variant, alpha=alpha)
            cases.append((model.name, f"alpha = {alpha:.0e}", extreme, SMALL, None, None))
    return cases + household_cases()


def main():
    """Run cases, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", help="models or cases")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    use_compilation_cache()
    cases = {case[:2]: case[2:] for case in all_cases()}
    rows = {}
    if TABLE.exists():
        for line in TABLE.read_text().splitlines()[2:]:
            rows[tuple(line.split(" | ")[:2])] = line
    rows = {tuple(x.strip("| ") for x in key): line for key, line in rows.items()}
    rows = {key: line for key, line in rows.items() if key in cases}
    started = time.monotonic()
    for key, case in cases.items():
        if not set(key) & set(options.only) if options.only else key in rows:
            continue
        if time.monotonic() - started > 60 * options.minutes:
            break
        began = time.perf_counter()
        found = outcome(*case)
        seconds = time.perf_counter() - began
        rows[key] = f"| {key[0]} | {key[1]} | {found} | {seconds:.0f} |"
        print(rows[key], flush=True)
        TABLE.write_text(HEAD + "".join(rows[k] + "\n" for k in cases if k in rows))
    print(f"{len(rows)} of {len(cases)} cases have a row")


if __name__ == "__main__":
    main()
