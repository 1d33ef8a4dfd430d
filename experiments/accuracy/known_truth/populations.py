"""Populations that are known: real ones, and one that the papers' model makes."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

NAMES = ("all", "adults", "survey", "simulated")
SURVEY = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET",
          "DEYE")  # fmt: skip
"""The ten variables of the survey excerpt that its publisher reports on; ages in groups."""
AGES = (-1, 4, 14, 19, 24, 34, 44, 54, 64, 74, 200)
SIMULATED = 100_000
ALPHA, ALPHA0, COMPONENTS = 0.05, 2.0, 64


def population(name: str, seed: int, survey: Path | None) -> bnp.datasets.Population:
    """A population; `seed` makes the simulated one, `survey` is the folder of the excerpt."""
    if name in ("all", "adults"):
        return bnp.datasets.census_income(adults=name == "adults")
    if name == "simulated":
        return _simulated(np.random.default_rng((7, seed)))
    if survey is None:
        raise SystemExit("the survey needs --survey FOLDER, with national2019.csv.gz in it")
    frame = pd.read_csv(survey / "national2019.csv.gz", dtype=str, keep_default_na=False)
    frame = frame[list(SURVEY)]
    frame["AGEP"] = pd.cut(frame["AGEP"].astype(int), list(AGES)).astype(str)
    return bnp.datasets.Population(
        frame=frame.astype("category"),
        source="NIST Diverse Community Excerpts, American Community Survey 2019, national",
        licence="public data of the US Census Bureau",
    )


def draw_sample(people, n: int, seed: int, size: int):
    """The sample `people.sample(n, seed)`, and the coded records of up to `size` others."""
    numbered = people.frame.assign(person=np.arange(len(people)))
    sample = dataclasses.replace(people, frame=numbered).sample(n, seed)
    seen = sample.pop("person")
    table = bnp.Microdata.from_frame(sample)
    chosen = np.random.default_rng(10_000 + seed).choice(len(people), size, replace=False)
    others = people.frame.iloc[np.setdiff1d(chosen, seen)]
    return sample, table, bnp.Microdata.from_frame(others, levels=table.schema).codes


def _simulated(rng) -> bnp.datasets.Population:
    """HDP mixed membership with uniform priors of levels, those of the census variables."""
    levels = bnp.datasets.census_income().levels
    stick = rng.beta(1, ALPHA0, COMPONENTS)
    weight = stick * np.cumprod(np.append(1, 1 - stick[:-1]))
    return mixed_membership(rng, levels, ALPHA * weight, SIMULATED)


def mixed_membership(rng, levels, shape, size: int) -> bnp.datasets.Population:
    """`size` records: g_i ~ Dir(shape), and level probabilities from their uniform prior."""
    shares = rng.standard_gamma(np.broadcast_to(shape, (size, len(shape))))
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    above = np.cumsum(shares, axis=1)
    columns = {}
    for name, labels in levels.items():
        theta = np.cumsum(rng.dirichlet(np.ones(len(labels)), len(shape)), axis=1)
        component = (above < rng.random((size, 1))).sum(axis=1).clip(max=len(shape) - 1)
        code = (theta[component] < rng.random((size, 1))).sum(axis=1)
        columns[name] = pd.Categorical.from_codes(code.clip(max=len(labels) - 1), labels)
    return bnp.datasets.Population(
        frame=pd.DataFrame(columns), source="simulated", licence="none is needed"
    )
