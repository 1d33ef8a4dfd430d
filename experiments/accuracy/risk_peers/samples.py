"""Populations that are known, and samples of them: for the experiments beside this one too."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

sys.path.append(str(Path(__file__).parents[1] / "known_truth"))

from populations import population  # noqa: E402

FILES = ("mothers", "voters", "workers", "crash_occupants", "policies", "simulated_residents")
BUNDLED = ("all", "adults")
SURVEY = "survey"


def populations(
    folder: str | Path, nist: str | Path | None = None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the frame of each population, one at a time.

    Parameters
    ----------
    folder
        The folder of the six files of `FILES`, each NAME.csv.gz; all their columns are keys.
    nist
        national2019.csv.gz of the NIST excerpts, whose ten variables are those of
        experiments/accuracy/known_truth. Default: without this population.

    Yields
    ------
    name
        Of `FILES`, `BUNDLED` (the census) and `SURVEY` (the excerpt).
    frame
        (N, J) one person a row; categorical columns of strings, whose categories are the levels
        of the whole population, in the order of their numbers where they have any.
    """
    for name in FILES:
        path = Path(folder) / f"{name}.csv.gz"
        yield name, _in_order(pd.read_csv(path, dtype=str, keep_default_na=False))
    for name in BUNDLED:
        yield name, population(name, 0, None).frame
    if nist is not None:
        yield SURVEY, _in_order(population(SURVEY, 0, Path(nist).parent).frame)


def draw_sample(frame: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Draw a simple random sample without replacement.

    Parameters
    ----------
    frame
        (N, J) a population of `populations`.
    n
        Number of records.
    seed
        With n, the seed of the generator.

    Returns
    -------
    sample
        (n, J) in the population's order, with its categories, indexed from 0.
    """
    rows = np.sort(np.random.default_rng((seed, n)).choice(len(frame), n, replace=False))
    return frame.iloc[rows].reset_index(drop=True)


def truth(frame: pd.DataFrame, sample: pd.DataFrame) -> bnp.datasets.Truth:
    """The true risk of a sample: tau1, tau2, and F of each sample unique."""
    return bnp.datasets.Population(frame, source="", licence="").truth(sample)


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Categorical columns, their levels by the first number in each, those without one last."""
    return frame.apply(
        lambda column: pd.Categorical(column, sorted(column.astype(str).unique(), key=_place))
    )


def _place(label: str) -> tuple[bool, int, str]:
    """Sorting key of a level."""
    number = re.match(r"\W*?(-?\d+)", label)
    return number is None, int(number[1]) if number else 0, label
