"""Samples of the Polettini-Stander hierarchy itself, for several test files."""

from types import SimpleNamespace

import numpy as np

import bnp_models as bnp


def simulate_cells(random, num_cells, population_size, alpha, a, b=None, gamma=None, phats=None):
    """Non-empty cells of a simulated population and sample, their F, and phat of the empty ones.

    Model I with b; Model II with gamma and `phats`, ((phat, share of all cells), ...).
    """
    pi = random.gamma(alpha, 1 / (num_cells * alpha), num_cells)
    F = random.poisson(population_size * pi)
    phat = np.full(num_cells, 0.1)
    if b is None:
        values, shares = np.array(phats).T
        phat = random.choice(values, num_cells, p=shares)
        p = random.beta(a * phat, a * (1 - phat)) * (random.random(num_cells) < gamma)
    else:
        p = random.beta(a, b, num_cells)
    f = random.binomial(F, p)
    seen = f > 0
    codes = np.flatnonzero(seen)[:, None].astype(np.int32)
    records = np.repeat(codes, f[seen], axis=0)
    schema = bnp.Schema(("cell",), (tuple(range(num_cells)),))
    cells = bnp.data.WeightedCells(
        table=bnp.Microdata(schema, records), population_size=int(population_size),
        num_cells=num_cells, codes=codes, f=f[seen].astype(float), weight=f[seen] / phat[seen],
    )  # fmt: skip
    values, number = np.unique(phat[~seen], return_counts=True)
    empty = tuple(zip(values, number / number.sum(), strict=True))
    return SimpleNamespace(cells=cells, truth=F[seen], empty_phat=empty)
