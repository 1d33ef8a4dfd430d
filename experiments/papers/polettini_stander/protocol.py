"""A stratified sample of unequal probabilities from the bundled population, with its truth.

The four groups of `race` stand for the regions of the paper: the smallest is sampled at eight times
the rate of the largest, as Val d'Aosta was against the three large regions.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

import bnp_models as bnp

REGION = "race"
# Sampling fraction of each region, by its size: the paper's were 0.028 and 0.0034.
LARGE, SMALL = 0.01, 0.08
SMALL_BELOW = 10_000


class Drawn(NamedTuple):
    """A sample and what is known of its cells."""

    cells: bnp.data.WeightedCells
    truth: np.ndarray
    """(D,) F of each non-empty cell."""
    small: np.ndarray
    """(D,) whether it is in a small region."""
    frame: pd.DataFrame
    """The records, with the column "weight"."""


def draw(population: bnp.datasets.Population, seed: int) -> Drawn:
    """Draw a fixed number of each region's persons at random; weights are N_r / n_r."""
    random = np.random.default_rng(seed)
    frame = population.frame
    parts = []
    sizes = frame[REGION].value_counts()
    for region, size in sizes.items():
        fraction = SMALL if size < SMALL_BELOW else LARGE
        number = round(fraction * size)
        rows = random.choice(np.flatnonzero(frame[REGION] == region), number, replace=False)
        parts.append(frame.iloc[rows].assign(weight=size / number))
    sample = pd.concat(parts, ignore_index=True)
    variables = list(population.variables)
    table = bnp.Microdata.from_frame(sample[variables], levels=population.levels)
    cells = bnp.weighted_cells(table, len(population), sample["weight"].to_numpy())
    codes = bnp.Microdata.from_frame(frame, levels=population.levels).codes
    both = np.concatenate([cells.codes, codes])
    _, of_row = np.unique(both, axis=0, return_inverse=True)
    counts = np.bincount(of_row.reshape(-1)[len(cells.codes) :])
    truth = counts[of_row.reshape(-1)[: len(cells.codes)]]
    region = cells.codes[:, variables.index(REGION)]
    labels = np.array(population.levels[REGION], dtype=object)[region]
    small = np.array([sizes[label] < SMALL_BELOW for label in labels])
    return Drawn(cells, truth.astype(float), small, sample)
