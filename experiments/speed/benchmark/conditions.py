"""A set of structural zeros like those of a real census file: 73 conditions on 17 variables.

Each condition makes one pair of levels impossible: a renter with a mortgage, a married child, a
record with an employer but no employment. About 97% of the cells are impossible.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

NUM_LEVELS = {
    "tenure": 3, "mortgage": 4, "age": 9, "sex": 2, "marital": 6, "education": 11,
    "employment": 4, "worker": 5, "disability": 3, "veteran": 3, "fertility": 3,
    "birthplace": 2, "citizen": 4, "race": 5, "language": 3, "english": 4, "children": 5,
}  # fmt: skip

# Every level listed on the left excludes every level listed on the right. Level 0 of mortgage,
# employment, worker, disability, veteran, fertility and english is "not asked".
EXCLUSIONS = (
    ("tenure", (0,), "mortgage", (0,)),  # owned
    ("tenure", (1, 2), "mortgage", (1, 2, 3)),  # rented, without rent
    ("age", (0,), "marital", (1, 2, 3, 4, 5)),  # under 15: never married
    ("age", (1,), "marital", (5,)),  # 15 to 17: not widowed
    ("age", (0,), "children", (1, 2, 3, 4)),
    ("age", (0,), "education", (4, 5, 6, 7, 8, 9, 10)),
    ("age", (1,), "education", (7, 8, 9, 10)),
    ("age", (2,), "education", (9, 10)),
    ("age", (0,), "employment", (1, 2, 3)),
    ("age", (1, 2, 3, 4, 5, 6, 7, 8), "employment", (0,)),
    ("age", (0, 1), "veteran", (1, 2)),
    ("age", (2, 3, 4, 5, 6, 7, 8), "veteran", (0,)),
    ("age", (0, 7, 8), "fertility", (2,)),  # a birth in the last year
    ("sex", (0,), "fertility", (1, 2)),
    ("employment", (0,), "worker", (1, 2, 3, 4)),
    ("employment", (1,), "worker", (0,)),
    ("employment", (0,), "disability", (1, 2)),
    ("employment", (1, 2, 3), "disability", (0,)),
    ("birthplace", (0,), "citizen", (2, 3)),  # in the country: neither naturalised nor foreign
    ("birthplace", (1,), "citizen", (0,)),
    ("language", (0,), "english", (1, 2, 3)),  # speaks English at home
)


def pairwise_conditions():
    """Return the numbers of levels and the conditions.

    Returns
    -------
    num_levels : tuple of int, length 17
    codes : (73, 17) int32 array
        One condition a row: the codes of the two levels that exclude each other, -1 elsewhere.
    """
    names = list(NUM_LEVELS)
    pairs = [
        {names.index(left): a, names.index(right): b}
        for left, left_levels, right, right_levels in EXCLUSIONS
        for a in left_levels
        for b in right_levels
    ]
    codes = np.full((len(pairs), len(names)), -1, dtype=np.int32)
    for row, pair in zip(codes, pairs, strict=True):
        for j, level in pair.items():
            row[j] = level
    return tuple(NUM_LEVELS.values()), codes


def conditions_60():
    """The 60 overlapping conditions of a ten-variable census file, 90% of its cells impossible."""
    path = Path(__file__).parents[3] / "tests" / "reference" / "conditions_60.csv"
    frame = pd.read_csv(path)
    # 1-based codes, 0 where the variable is free.
    levels = dict(zip(frame.columns, (3, 4, 9, 2, 6, 5, 11, 4, 3, 3), strict=True))
    schema = bnp.Schema(tuple(levels), tuple(tuple(range(1, n + 1)) for n in levels.values()))
    return bnp.StructuralZeros.from_codes(frame.to_numpy() - 1, schema)


def conditions_73():
    """`pairwise_conditions` as structural zeros."""
    num_levels, codes = pairwise_conditions()
    schema = bnp.Schema(tuple(NUM_LEVELS), tuple(tuple(range(n)) for n in num_levels))
    return bnp.StructuralZeros.from_codes(codes, schema)


def simulate_latent_classes(zeros, n, num_classes, alpha=3.0, seed=0):
    """A sample of n feasible records from a truncated latent class model, sticks of given alpha."""
    rng = np.random.default_rng(seed)
    sticks = np.append(rng.beta(1, alpha, num_classes - 1), 1)
    weight = sticks * np.cumprod(np.append(1, 1 - sticks[:-1]))
    levels = [rng.dirichlet(np.ones(size), num_classes) for size in zeros.schema.num_levels]
    found = []
    while sum(map(len, found)) < n:
        z = rng.choice(num_classes, 200_000, p=weight)
        u = rng.random((len(levels), z.size, 1))
        codes = np.stack(
            [(u[j] > p.cumsum(axis=1)[z]).sum(axis=1) for j, p in enumerate(levels)], axis=1
        )
        codes = np.minimum(codes, np.array(zeros.schema.num_levels) - 1)
        found.append(codes[~zeros.contains(codes)])
    return bnp.Microdata(zeros.schema, np.concatenate(found)[:n])


def simulate_mixed_membership(zeros, n, share=(0.05, 0.15), alpha=0.1, alpha0=3.0, seed=0):
    """A sample of n feasible records from HDP mixed membership with one alpha for all records.

    Parameters
    ----------
    zeros : bnp_models.StructuralZeros
    n : int
    share : pair of floats
        Weights and levels are drawn from their prior until P(feasible) lies between these.
    alpha, alpha0 : float
    seed : int

    Returns
    -------
    table : bnp_models.Microdata, n records
    share : float
        Of the records simulated, how many were feasible: P(feasible).
    """
    rng = np.random.default_rng(seed)
    while True:
        # Sticks beyond the 100th have less than 1e-12 of the mass at alpha_0 = 3.
        sticks = np.append(rng.beta(1, alpha0, 99), 1)
        weight = sticks * np.cumprod(np.append(1, 1 - sticks[:-1]))
        levels = [rng.dirichlet(np.ones(size), weight.size) for size in zeros.schema.num_levels]
        codes = _simulate_items(rng, 50_000, alpha, weight, levels)
        if share[0] <= 1 - zeros.contains(codes).mean() <= share[1]:
            break
    found, simulated = [], 0
    while sum(map(len, found)) < n:
        codes = _simulate_items(rng, 200_000, alpha, weight, levels)
        found.append(codes[~zeros.contains(codes)])
        simulated += len(codes)
    found = np.concatenate(found)
    return bnp.Microdata(zeros.schema, found[:n]), len(found) / simulated


def _simulate_items(rng, size, alpha, weight, levels):
    """(size, J) codes of records before truncation: labels by Polya's urn, then levels."""
    labels, codes = np.empty((len(levels), size), np.int32), []
    for j, p in enumerate(levels):
        labels[j] = rng.choice(weight.size, size, p=weight)
        copied = np.flatnonzero(rng.random(size) * (j + alpha) < j)
        labels[j, copied] = labels[rng.integers(0, max(j, 1), copied.size), copied]
        above = rng.random((size, 1)) > p.cumsum(axis=1)[labels[j]]
        codes.append(np.minimum(above.sum(axis=1), p.shape[1] - 1))
    return np.stack(codes, axis=1)
