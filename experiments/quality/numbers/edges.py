"""Samples and settings at the edge of what can be asked: they run, or are refused in one line.

python experiments/quality/numbers/edges.py                       # those that the table has not yet
python experiments/quality/numbers/edges.py --only nplcm --again
python experiments/quality/numbers/edges.py --minutes 9           # begins none later than that

Each model on each case, forty sweeps of two chains; then, where the model has it, tau_1, and two
synthetic files. Passed: all draws are finite, tau_1 is within 0 and the number of sample uniques,
files have labels of the sample only, and no record of them is impossible. Writes ``edges.md``
beside this file.
"""

import argparse
import itertools
import os
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.inference.compilation import use_compilation_cache
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.model import PredictsCells
from bnp_models.risk.evaluator import cell_probabilities

TABLE = Path(__file__).with_name("edges.md")
HEAD = ["| model | case | outcome | seconds |", "|---|---|---|---|"]
SHORT = {"num_chains": 2, "num_warmup": 20, "num_samples": 20}

# A level that no record has: a structural zero rules it out with the first level of the next one.
NEVER = "never"

TRUNCATED = ("tnplcm, zeros", "hdp, zeros", "mixed-membership, zeros")


def independent(n, levels, seed=0):
    """Records of independent variables with these numbers of levels."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({f"v{j}": rng.integers(0, k, n).astype(str) for j, k in enumerate(levels)})


SAMPLES = {
    "small": independent(80, [4, 3, 2]),
    "n = 2": pd.DataFrame({"v0": ["0", "1"], "v1": ["1", "0"], "v2": ["0", "0"]}),
    "one variable": independent(80, [6]),
    "a variable with one level": independent(80, [4, 1, 3]),
    "all records equal": pd.DataFrame({"v0": ["0"] * 80, "v1": ["0"] * 80, "v2": ["0"] * 80}),
    "all records unique": pd.DataFrame({"v0": np.arange(80).astype(str), "v1": "0", "v2": "0"}),
    "300 levels": independent(80, [300, 2, 2]),
    "thirty variables": independent(80, [2] * 30),
    "cells of 1e-12": independent(80, [10] * 12),
}
DECLARED = {"all records equal": {f"v{j}": ["0", "1"] for j in range(3)}}

MODELS = {
    "nplcm": bnp.NPLCM(components=5),
    "tnplcm": bnp.TNPLCM(components=5),
    "tnplcm, zeros": bnp.TNPLCM(components=5),
    "ndpmpm": bnp.NDPMPM(components=5, member_components=3),
    "hdp": bnp.HDPMixedMembership(),
    "mixed-membership": bnp.MixedMembership(components=4),
    "hdp, zeros": bnp.HDPMixedMembership(),
    "mixed-membership, zeros": bnp.MixedMembership(components=4),
}
SETTINGS = {
    "K = 1": {"components": 1},
    "K = 1,024": {"components": 1024},
    "alpha about 1e-8": {"a": 1.0, "b": 1e8},
    "alpha about 1e6": {"a": 1e3, "b": 1e-3},
}


def microdata(what, zeros):
    """A sample and, if asked, structural zeros of a level that no record has."""
    frame = SAMPLES[what]
    levels = {name: list(values) for name, values in DECLARED.get(what, {}).items()}
    if not zeros:
        return bnp.Microdata.from_frame(frame, levels=levels), None
    levels["v0"] = [*levels.get("v0", sorted(set(frame["v0"]))), NEVER]
    table = bnp.Microdata.from_frame(frame, levels=levels)
    rows = {"v0": [NEVER]} | ({"v1": [table.schema.levels[1][0]]} if "v1" in frame else {})
    return table, bnp.StructuralZeros.from_frame(pd.DataFrame(rows), table.schema)


def families(what):
    """Households of two members, of three variables of theirs."""
    sizes = np.ones(2, int) if what == "n = 2" else np.full(40, 2)
    if what == "households of one to twelve":
        sizes = np.arange(24) // 2 + 1
    persons = SAMPLES["small"] if what not in SAMPLES else SAMPLES[what]
    persons = pd.concat([persons] * 8, ignore_index=True)[: sizes.sum()]
    house = np.repeat(np.arange(len(sizes)), sizes)
    homes = np.array(["own", "rent"])[house % 2 if "equal" not in what else house * 0]
    frame = persons.assign(house=house.astype(str), home=homes)
    return bnp.Households.from_frame(frame, "house", household_variables=["home"]), None


def outcome(model, table, conditions=None, population=None, small_cells=False):
    """What came of it: passed, refused and why, or what is wrong."""
    run = bnp.sample(model, table, key=jax.random.key(0), conditions=conditions, **SHORT)
    for name, draws in run.draws.items():
        # Logarithms of what has no weight are minus infinity.
        if np.isnan(draws).any() or np.isposinf(draws).any():
            return f"WRONG: {name} is not finite"
    said = ""
    if isinstance(model, PredictsCells):
        risk = bnp.population_risk(run, population or 50 * table.n)
        uniques = len(risk.rows)
        if not (risk.tau1.min() >= 0 and risk.tau1.max() <= uniques):
            return f"WRONG: tau_1 from {risk.tau1.min()} to {risk.tau1.max()} of {uniques}"
        if population == table.n and (risk.tau1 != uniques).any():
            return "WRONG: not all uniques of a census are unique"
        if not all(np.isfinite(x).all() for x in (risk.tau2, risk.r1, risk.r2)):
            return "WRONG: a risk is not finite"
        if small_cells:
            said = precision_of_cells(run)
    for made in bnp.synthesize(run, 2):
        problem = wrong_labels(made, table, conditions)
        if problem:
            return problem
    return f"passed{said}"


def wrong_labels(made, table, conditions):
    """What is wrong with a synthetic file, if anything."""
    schema = table.schema
    if isinstance(table, bnp.Households):
        names = (*schema.household_variables, *schema.member_variables)
        levels = (*schema.household_levels, *schema.member_levels)
    else:
        names, levels = schema.variables, schema.levels
    for name, labels in zip(names, levels, strict=True):
        if not set(made[name]) <= set(labels):
            return f"WRONG: {name} has other labels"
    if conditions is not None:
        (zero,) = conditions.to_frame().to_dict("records")
        if np.logical_and.reduce(
            [made[k] == v for k, v in zero.items() if pd.notna(v) and v]
        ).any():
            return "WRONG: an impossible record was made"
    return ""


def precision_of_cells(run):
    """Log probabilities of the sample's cells in float32 beside float64, on the same draws."""
    draws = {k: v[:, ::5] for k, v in run.parameters().items()}
    codes = run.table.cells().codes
    key = jax.random.key(1)
    given = run, draws, codes, "exact", key
    low = np.concatenate([log_p for log_p, _, _ in cell_probabilities(*given)])
    with double_precision():
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in draws.items()}
        given = run, wide, codes, "exact", jax.random.key(1)
        high = np.concatenate([log_p for log_p, _, _ in cell_probabilities(*given)])
    error = np.abs(low - high).max()
    if not (np.isfinite(low).all() and error < 1e-3):
        return f"; WRONG: log probabilities are off by {error:.1e}"
    lowest, highest = np.exp(high.min()), np.exp(high.max())
    return f"; probabilities {lowest:.0e} to {highest:.0e}, off by {error:.0e} nats at most"


def cells_outcome(variant, what, population, settings, num_cells=None, fit=False):
    """What came of a Polettini-Stander model."""
    table, _ = microdata(what, zeros=False)
    cells = bnp.weighted_cells(table, population or 50 * table.n, num_cells=num_cells)
    model = bnp.PolettiniStander(variant, **settings)
    if fit:
        model = bnp.fit_empirical_bayes(model, cells).model
    risk = bnp.cell_risk(model, cells, key=jax.random.key(0))
    for name in ("risk", "p_unique", "tau1", "tau2", "median", "q975"):
        if not np.isfinite(vars(risk)[name]).all():
            return f"WRONG: {name} is not finite"
    uniques = (cells.f == 1).sum()
    if (risk.tau1 < 0).any() or (risk.tau1 > uniques).any() or (risk.risk > 1 + 1e-9).any():
        return f"WRONG: tau_1 from {risk.tau1.min()} to {risk.tau1.max()} of {uniques}"
    return f"passed (tau_1 {risk.tau1.mean():.3g} of {uniques})"


def cases():
    """Name of the model, case, and the function that tries it."""
    for name in MODELS:
        nested = name == "ndpmpm"
        samples = [*SAMPLES, "households of one to twelve"] if nested else SAMPLES
        for what in samples:
            exact = what == "cells of 1e-12"
            yield (
                name,
                what,
                lambda n=name, w=what, e=exact: outcome(
                    MODELS[n], *given(n, w), small_cells=e and not n.startswith("ndp")
                ),
            )
        for what, fields in SETTINGS.items():
            if "components" in fields and name.startswith("hdp"):
                continue
            yield name, what, lambda n=name, f=fields: outcome(changed(n, f), *given(n, "small"))
        if not nested:
            yield (
                name,
                "N = n",
                lambda n=name: outcome(MODELS[n], *given(n, "small"), population=80),
            )
            yield (
                name,
                "N = 1e12",
                lambda n=name: outcome(
                    MODELS[n], *given(n, "all records unique"), population=10**12
                ),
            )
    for variant, what in itertools.product((1, 2), SAMPLES):
        name = f"polettini-stander-{variant}"
        yield name, what, lambda v=variant, w=what: cells_outcome(v, w, None, {})
        yield (
            name,
            f"{what}, estimated",
            lambda v=variant, w=what: cells_outcome(v, w, None, {}, fit=True),
        )
    extremes = {
        "alpha = 1e-8": {"alpha": 1e-8},
        "alpha = 1e6": {"alpha": 1e6},
        "a = 1e-8": {"a": 1e-8},
        "a = 1e6": {"a": 1e6},
    }
    for variant in (1, 2):
        name = f"polettini-stander-{variant}"
        for what, settings in extremes.items():
            yield name, what, lambda v=variant, s=settings: cells_outcome(v, "small", None, s)
        for what, population in {"N = n": 80, "N = 1e12": 10**12}.items():
            yield name, what, lambda v=variant, p=population: cells_outcome(v, "small", p, {})
        yield (
            name,
            "1e15 cells",
            lambda v=variant: cells_outcome(v, "small", None, {}, num_cells=10**15),
        )


def given(name, what):
    """Table and conditions of a case."""
    return families(what) if name == "ndpmpm" else microdata(what, name in TRUNCATED)


def changed(name, fields):
    """The model with these settings; households have a second concentration."""
    model = MODELS[name]
    options = {k: v for k, v in vars(model).items() if k in ("components", "member_components")}
    if name == "ndpmpm" and "a" in fields:
        fields = fields | {"a_beta": fields["a"], "b_beta": fields["b"]}
    return type(model)(**(options | fields))


def tried(try_it):
    """Outcome of a case, its refusal, or its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return try_it()
    except (ValueError, bnp.MicrodataError) as error:
        return f"refused: {error}" if "\n" not in str(error) else f"WRONG: {error!r}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {str(error).splitlines()[0]}"


def main():
    """Try the cases that were asked for, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases with this in 'model: case'")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true", help="those of the table too")
    options = parser.parse_args()
    use_compilation_cache()
    rows = {}
    if TABLE.exists():
        lines = TABLE.read_text(encoding="utf-8").splitlines()[2:]
        rows = {tuple(line.strip("| ").split(" | ")[:2]): line for line in lines}
    began, order = time.monotonic(), []
    for name, what, try_it in cases():
        order.append((name, what))
        wanted = options.only in f"{name}: {what}" and (options.again or order[-1] not in rows)
        if not wanted or time.monotonic() - began > 60 * options.minutes:
            continue
        start = time.perf_counter()
        found = tried(try_it).replace("|", "\\|")
        rows[name, what] = f"| {name} | {what} | {found} | {time.perf_counter() - start:.0f} |"
        print(rows[name, what], flush=True)
        text = "\n".join([*HEAD, *(rows[case] for case in order if case in rows)])
        later = [line for case, line in rows.items() if case not in order]
        part = TABLE.with_suffix(".part")
        part.write_text("\n".join([text, *later]) + "\n", encoding="utf-8")
        os.replace(part, TABLE)


if __name__ == "__main__":
    main()
