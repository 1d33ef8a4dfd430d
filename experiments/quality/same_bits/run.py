"""Digests of the draws of short runs of all models.

    python experiments/quality/same_bits/run.py [--write]

A change of structure must leave every digest as it is. The names used here are public and old, so
that the script runs on earlier commits too; digests of different machines, or of different
versions of JAX, may differ.
"""

import argparse
import functools
import hashlib
import json
import os
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp

# The programs compile for longer than they run.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
)

HERE = Path(__file__).parent
SETTINGS = {"num_chains": 2, "num_warmup": 12, "num_samples": 6, "parameters_every": 1}
VARIABLES = ["age", "sex", "marital_status", "education", "class_of_worker"]
CHILD = {"age": "0-14"}
CONDITIONS = [
    CHILD | {"marital_status": "Married"},
    CHILD | {"marital_status": "Widowed"},
    CHILD | {"education": "Bachelor or higher"},
    CHILD | {"class_of_worker": "Employee"},
    {"education": "Under 15 years old", "age": "25-34"},
    {"education": "Under 15 years old", "age": "75+"},
]


def digest(arrays: dict) -> str:
    """Digest of named arrays, or of frames."""
    hashed = hashlib.sha256()
    for name in sorted(arrays):
        value = arrays[name]
        hashed.update(name.encode())
        if isinstance(value, pd.DataFrame):
            hashed.update(value.to_csv(index=False).encode())
        else:
            hashed.update(np.ascontiguousarray(np.asarray(value)).tobytes())
    return hashed.hexdigest()[:16]


def persons(missing: bool = False) -> tuple[bnp.Microdata, bnp.StructuralZeros]:
    """150 census records that keep the conditions, and these."""
    frame = bnp.datasets.census_income().sample(150, seed=1)[VARIABLES]
    frame = frame.astype(object).reset_index(drop=True)
    if missing:
        frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    table = bnp.Microdata.from_frame(frame)
    conditions = pd.DataFrame(CONDITIONS, columns=VARIABLES)
    return table, bnp.StructuralZeros.from_frame(conditions, table.schema)


def households(missing: bool = False) -> tuple[bnp.Households, bnp.Rules]:
    """Sixty made-up households, and rules that they keep."""
    random = np.random.default_rng(3)
    rows = []
    for i in range(60):
        home = ("own", "rent")[random.integers(2)]
        for j in range(random.integers(1, 5)):
            role = "head" if j == 0 else ("spouse", "child")[min(j - 1, 1)]
            age = random.integers(0, 2) if role == "child" else random.integers(1, 4)
            rows.append((i, home, role, str(age), ("a", "b", "c")[random.integers(3)]))
    frame = pd.DataFrame(rows, columns=["id", "home", "role", "age", "kind"])
    if missing:
        gone = random.random(len(frame)) < 0.1
        frame.loc[gone, "kind"] = None
    table = bnp.Households.from_frame(frame, household="id", household_variables=["home"])
    head = bnp.rules.person(role="head")
    rules = bnp.Rules([
        bnp.rules.exactly(1, head),
        bnp.rules.at_most(1, bnp.rules.person(role="spouse")),
        bnp.rules.each(head).has(bnp.rules.person(age=("1", "2", "3"))),
    ])  # fmt: skip
    return table, rules


def chains() -> dict[str, tuple]:
    """Each run by its name: model, data, structural zeros or rules, and more settings."""
    table, zeros = persons()
    incomplete, _ = persons(missing=True)
    homes, rules = households()
    incomplete_homes, _ = households(missing=True)
    runs = {
        f"hdp {kind}{' zeros' if given else ''}": (
            bnp.HDPMixedMembership(concentration=kind), table, given, {},
        )
        for kind in ("shared", "record", "hierarchical") for given in (None, zeros)
    }  # fmt: skip
    nested = functools.partial(bnp.NDPMPM, 6, 4, member_classes="nested")
    runs |= {
        "hdp simulation": (bnp.HDPMixedMembership(augmentation="simulation"), table, zeros, {}),
        "hdp not applicable": (bnp.HDPMixedMembership(not_applicable=True), table, zeros, {}),
        "hdp grows": (
            bnp.HDPMixedMembership(capacity=4, a0=8.0), table, None, {"start_components": (2,)},
        ),
        "mixed membership": (bnp.MixedMembership(components=8), table, None, {}),
        "mixed membership zeros": (bnp.MixedMembership(components=8), table, zeros, {}),
        "nplcm": (bnp.NPLCM(components=10), table, None, {}),
        "nplcm missing": (bnp.NPLCM(components=10), incomplete, None, {}),
        "tnplcm": (bnp.TNPLCM(components=10), table, zeros, {}),
        "tnplcm missing": (bnp.TNPLCM(components=10), incomplete, zeros, {}),
        "tnplcm classes": (bnp.TNPLCM(components=10, truncation="classes"), table, zeros, {}),
        "tnplcm boxes": (bnp.TNPLCM(components=10, augmentation="boxes"), table, zeros, {}),
        "ndpmpm": (nested(), homes, None, {}),
        "ndpmpm rules": (nested(), homes, rules, {}),
        "ndpmpm missing": (nested(beta="class"), incomplete_homes, rules, {}),
        "hdp uniform": (bnp.HDPMixedMembership(level_prior="uniform"), table, zeros, {}),
        "tnplcm uniform": (bnp.TNPLCM(components=10, level_prior="uniform"), table, zeros, {}),
        "ndpmpm uniform": (nested(level_prior="uniform"), homes, rules, {}),
        "hdp ordered": (bnp.HDPMixedMembership(ordered=("age",)), table, None, {}),
        "hdp ordered zeros": (bnp.HDPMixedMembership(ordered=("age",)), table, zeros, {}),
        "mixed membership ordered": (
            bnp.MixedMembership(components=8, ordered=("age",)), table, zeros, {},
        ),
        "nplcm ordered": (bnp.NPLCM(components=10, ordered=("age",)), table, None, {}),
        "tnplcm ordered": (bnp.TNPLCM(components=10, ordered=("age",)), table, zeros, {}),
        "tnplcm ordered boxes": (
            bnp.TNPLCM(components=10, ordered=("age",), augmentation="boxes"), table, zeros, {},
        ),
        "ndpmpm ordered": (nested(ordered=("age",)), homes, rules, {}),
        "hdp ordered uniform": (
            bnp.HDPMixedMembership(ordered=("age",), level_prior="uniform"), table, zeros, {},
        ),
    }  # fmt: skip
    return runs


def digests(only: str = "") -> dict[str, str]:
    """Digests of the runs with this in their name, and of results made from some of them."""
    found = {}
    for number, (name, (model, table, conditions, more)) in enumerate(chains().items()):
        if only not in name:
            continue
        key = jax.random.fold_in(jax.random.key(7), number)
        print(f"{name} ..", flush=True)
        # A compiled program maps memory, and a process may have only so many maps.
        jax.clear_caches()
        run = bnp.sample(model, table, key=key, conditions=conditions, **SETTINGS | more)
        found[name] = digest(run.draws)
        if name in ("hdp shared", "hdp record", "hdp shared zeros", "mixed membership zeros",
                    "hdp not applicable", "nplcm", "tnplcm"):  # fmt: skip
            risk = bnp.population_risk(run, population_size=20_000, ties="off")
            arrays = {"tau1": risk.tau1, "tau2": risk.tau2, "given": risk.tau1_conditional}
            found[f"{name}: risk"] = digest(arrays | {"records": risk.records()})
        if name in ("nplcm", "tnplcm", "tnplcm classes", "ndpmpm", "ndpmpm rules"):
            frames = bnp.synthesize(run, 2)
            found[f"{name}: synthetic"] = digest({str(i): f for i, f in enumerate(frames)})
            risk = bnp.attack_risk(run, table, frames, key=key, conditions=conditions)
            found[f"{name}: attack"] = digest({"records": risk.records()})
        if name in ("nplcm missing", "tnplcm missing", "ndpmpm missing"):
            frames = bnp.impute(run, 2)
            found[f"{name}: imputed"] = digest({str(i): f for i, f in enumerate(frames)})
    return found | of_cells() if only in "cells" else found


def of_cells() -> dict[str, str]:
    """Digests of the hierarchy of cells."""
    table, _ = persons()
    cells = bnp.weighted_cells(table, 20_000, num_cells=9_000)
    found, keys = {}, jax.random.split(jax.random.key(11), 4)
    for variant in (1, 2):
        model = bnp.PolettiniStander(variant)
        try:
            found[f"empirical Bayes {variant}"] = str(bnp.fit_empirical_bayes(model, cells).model)
        except bnp.NoMaximumError as error:
            found[f"empirical Bayes {variant}"] = str(error)
        risk = bnp.cell_risk(model, cells, key=keys[variant], num_chains=2, num_samples=10)
        arrays = {"cells": bnp.report.cells_frame(risk), "tau1": risk.tau1}
        found[f"polettini-stander {variant}"] = digest(arrays)
    draws = bnp.sample_hyperparameters(
        bnp.PolettiniStander(1), cells, key=keys[0], num_chains=1, num_warmup=10, num_samples=5
    )
    found["polettini-stander full Bayes"] = digest(draws.values)
    counts = bnp.models.sample_population_counts(cells, key=keys[3], num_chains=1, num_samples=10)
    found["dirichlet-multinomial"] = digest({"risk": counts.risk})
    return found


def main() -> None:
    """Write the digests, or compare them with those written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="runs with this in their name")
    parser.add_argument("--out", type=Path, default=HERE / "digests.json")
    options = parser.parse_args()
    found = digests(options.only)
    if options.write:
        options.out.write_text(json.dumps(found, indent=2) + "\n")
        return
    kept = json.loads(options.out.read_text())
    compared = found if options.only else kept | found
    different = [name for name in compared if kept.get(name) != found.get(name)]
    print(f"{len(compared)} digests, {len(different)} different")
    for name in different:
        print(f"  {name}: {kept.get(name)} -> {found.get(name)}")
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
