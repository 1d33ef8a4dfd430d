"""The benchmark's scores, by this project's own code."""

from itertools import combinations

import numpy as np
import pandas as pd

# Columns that are scored in bins of a twentieth of the target's records, but for these labels.
RANKED = {"PINCP": ("N",), "POVPIP": ("N", "501")}
_BINS = 20


def k_marginal(target, synthetic):
    """Score of all pairs of features; where PUMA is one, the mean over areas of the others'."""
    target, synthetic = target.copy(), synthetic.copy()
    for name in RANKED.keys() & set(target.columns):
        target[name], synthetic[name] = _ranked(name, target[name], synthetic[name])
    features = [name for name in target.columns if name != "PUMA"]
    codes, sizes = {}, {}
    for name in features:
        both, _ = pd.factorize(pd.concat([target[name], synthetic[name]]))
        codes[name] = both[: len(target)], both[len(target) :]
        sizes[name] = both.max() + 1
    areas = [(np.ones(len(target), bool), np.ones(len(synthetic), bool))]
    if "PUMA" in target.columns:
        areas = [
            (np.asarray(target["PUMA"] == area), np.asarray(synthetic["PUMA"] == area))
            for area in target["PUMA"].unique()
        ]
    scores = []
    for inside in areas:
        distances = [
            _distance([codes[a][k][inside[k]] * sizes[b] + codes[b][k][inside[k]] for k in (0, 1)])
            for a, b in combinations(features, 2)
        ]
        scores.append(500 * (2 - np.mean(distances)))
    return float(np.mean(scores))


def _distance(cells):
    """Sum over cells of the differences of the shares of two files."""
    if not len(cells[1]):
        return 2.0
    _, where = np.unique(np.concatenate(cells), return_inverse=True)
    first, second = where[: len(cells[0])], where[len(cells[0]) :]
    shares = [np.bincount(x, minlength=where.max() + 1) / len(x) for x in (first, second)]
    return np.abs(shares[0] - shares[1]).sum()


def _ranked(name, target, synthetic):
    """Both columns in bins of the target's ranks, labels that are apart as they are."""
    own = RANKED[name]
    number = pd.to_numeric(target.where(~target.isin(own)), errors="coerce")
    rank = number.rank(pct=True)
    bins = np.minimum((_BINS * rank).where(rank.notna(), 0).astype(int), _BINS - 1)
    highest = number.groupby(bins.where(number.notna())).max()
    edges = highest.to_numpy()[:-1]
    of_synthetic = pd.to_numeric(synthetic.where(~synthetic.isin(own)), errors="coerce")
    made = np.searchsorted(edges, of_synthetic.fillna(0), side="left")
    found = np.searchsorted(edges, number.fillna(0), side="left")
    return (
        pd.Series(np.where(target.isin(own), target, found.astype(str)), target.index),
        pd.Series(np.where(synthetic.isin(own), synthetic, made.astype(str)), synthetic.index),
    )


def uniques_matched(target, synthetic):
    """Share of the target's unique records whose combination occurs in the synthetic file."""
    columns = list(target.columns)
    alone = target[~target.duplicated(columns, keep=False)]
    found = alone.merge(synthetic[columns].drop_duplicates(), on=columns, how="inner")
    return len(found) / max(len(alone), 1)
