"""Disclosure risk of cells under the Polettini-Stander hierarchy."""

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.cells.thinning import benedetti_franconi, summarise
from bnp_models.models.cells.full_bayes import HyperparameterDraws
from bnp_models.models.cells.polettini_stander import (
    LEVELS,
    PolettiniStander,
    beta_parameters,
    double_precision,
    log_posterior_jit,
    population_of,
)

# Draws whose distributions of F are mixed for quantiles and modes, and levels of each.
_MIXED, _MIXED_LEVELS = 64, 60

_BATCH_OF_DRAWS = 64


# Risk.


@dataclass(frozen=True, eq=False)
class CellRisk:
    """The disclosure risk of every non-empty cell of a sample."""

    model: PolettiniStander
    """With the hyperparameters that were used; under full Bayes, the medians of `draws`."""
    cells: WeightedCells
    draws: HyperparameterDraws | None
    """Chains of the hyperparameters, under full Bayes."""
    risk: np.ndarray
    """(D,) E(1 / F | f)."""
    p_unique: np.ndarray
    """(D,) P(F = 1 | f)."""
    median: np.ndarray
    """(D,) median of F."""
    mode: np.ndarray
    """(D,) most probable F."""
    q025: np.ndarray
    """(D,) 2.5% quantile of F."""
    q975: np.ndarray
    """(D,) 97.5% quantile of F."""
    tau1: np.ndarray
    """(chains, draws) draws of the number of sample uniques that are unique in the population."""
    tau1_conditional: np.ndarray
    """(chains, draws) expectation of that number given the hyperparameters."""
    tau1_variance: np.ndarray
    """(chains, draws) variance of that number given the hyperparameters."""
    tau2: np.ndarray
    """(chains, draws) sum over sample uniques of E(1 / F | f), given the hyperparameters."""
    log_likelihood: np.ndarray
    """(chains, draws) of the hyperparameters."""
    seconds: dict[str, float]

    def frame(self) -> pd.DataFrame:
        """One row per non-empty cell, riskiest first: key variables, f, phat, risk and so on."""
        schema = self.cells.table.schema
        columns = {}
        for j, (name, labels) in enumerate(zip(schema.variables, schema.levels, strict=True)):
            values = np.empty(len(labels), dtype=object)
            values[:] = labels
            columns[name] = pd.Series(values[self.cells.codes[:, j]]).infer_objects()
        columns |= {"f": self.cells.f.astype(np.int64), "phat": self.cells.phat}
        columns |= {"risk": self.risk, "p_unique": self.p_unique}
        for name in ("median", "mode", "q025", "q975"):
            columns[name] = getattr(self, name).astype(np.int64)
        frame = pd.DataFrame(columns)
        return frame.iloc[np.argsort(-self.risk, kind="stable")].reset_index(drop=True)


def cell_risk(
    model: PolettiniStander,
    cells: WeightedCells,
    *,
    key: jax.Array,
    draws: HyperparameterDraws | None = None,
    num_chains: int = 4,
    num_samples: int = 1000,
) -> CellRisk:
    """Risk, probability of a population unique, median, mode and interval of F, cell by cell.

    Parameters
    ----------
    model
        With the hyperparameters to use, unless there are `draws`.
    cells
        What `weighted_cells` returned.
    key
        For the draws of tau_1.
    draws
        What `sample_hyperparameters` returned: everything is then averaged over them.
    num_chains, num_samples
        Draws of tau_1 without `draws`, all independent.

    Notes
    -----
    Under `draws`, risk and probability are means over all of them, quantiles and modes those of the
    mixture over 64 of them at most.
    """
    began = time.perf_counter()
    with double_precision():
        f, phat, _, pair = cells.distinct
        unique = f == 1
        if draws is None:
            values = {name: np.full((1, 1), v) for name, v in model.hyperparameters.items()}
            log_likelihood = np.full((num_chains, num_samples), model.log_likelihood(cells))
        else:
            values, log_likelihood = draws.values, draws.log_likelihood
        flat = {name: value.reshape(-1) for name, value in values.items()}
        arguments = model.variant, flat, f, phat, population_of(cells)
        if draws is None:
            risks, chances, quantiles, mode = _at_one(*arguments)
        else:
            risks, chances = _risks(*arguments)
            quantiles, mode = _places(*arguments)
    if draws is not None:
        medians = {name: float(np.median(value)) for name, value in values.items()}
        model = PolettiniStander(model.variant, **medians, empty_phat=model.empty_phat)
    number = np.bincount(pair, minlength=len(f))[unique]
    chances_unique = chances[:, unique]
    shape = log_likelihood.shape
    conditional = chances_unique @ number
    variance = (chances_unique * (1 - chances_unique)) @ number
    tau2 = risks[:, unique] @ number
    generator = np.random.Generator(np.random.Philox(key=_seed(key)))
    rows = np.broadcast_to(np.arange(len(chances)), log_likelihood.size) if draws is not None else (
        np.zeros(log_likelihood.size, int)
    )  # fmt: skip
    tau1 = _draw_counts(generator, number, np.clip(chances_unique, 0, 1), rows)
    return CellRisk(
        model=model, cells=cells, draws=draws,
        risk=risks.mean(axis=0)[pair], p_unique=chances.mean(axis=0)[pair],
        median=quantiles[1][pair], mode=mode[pair], q025=quantiles[0][pair],
        q975=quantiles[2][pair], tau1=tau1.reshape(shape),
        tau1_conditional=conditional[rows].reshape(shape),
        tau1_variance=variance[rows].reshape(shape), tau2=tau2[rows].reshape(shape),
        log_likelihood=log_likelihood,
        seconds={"risk": time.perf_counter() - began},
    )  # fmt: skip


def _seed(key):
    words = np.asarray(jax.random.bits(key, (4,), np.uint32), np.uint64)
    return words[:2] << np.uint64(32) | words[2:]


def _draw_counts(generator, number, chances, rows):
    """Of each row, the sum over groups of Binomial(number, chance)."""
    counts = np.empty(len(rows))
    block = max(1, 2**20 // max(1, len(number)))
    for start in range(0, len(rows), block):
        here = rows[start : start + block]
        drawn = generator.binomial(number.astype(np.int64), chances[here])
        counts[start : start + block] = drawn.sum(axis=1)
    return counts


def _cell_arguments(variant, values, f, phat, size):
    """Arguments of `summarise` at one draw of the hyperparameters."""
    values = {name: jnp.asarray(value) for name, value in values.items()}
    a, b = beta_parameters(variant, values, phat)
    alpha = jnp.full_like(f, 1.0) * values["alpha"]
    return f, alpha, a, b, jnp.log(size) - jnp.log(alpha)


def _distinct_for(variant, f, phat):
    """In Model I phat plays no part: the distinct f, and which of them each pair is."""
    if variant == 1:
        f, of_pair = np.unique(f, return_inverse=True)
        return f, np.zeros(len(f)), of_pair.reshape(-1)
    return f, phat, np.arange(len(f))


def _at_one(variant, flat, f, phat, size):
    """What `_risks` and `_places` return, of one draw."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    values = {name: value[0] for name, value in flat.items()}
    arguments = _cell_arguments(variant, values, *map(jnp.asarray, (f, phat, size)))
    found = jax.tree.map(np.asarray, summarise(*arguments, LEVELS))
    return (
        found.risk[None, of_pair], found.p_unique[None, of_pair], found.quantiles[:, of_pair],
        found.mode[of_pair],
    )  # fmt: skip


def _risks(variant, flat, f, phat, size):
    """E(1 / F | f) and P(F = 1 | f), (draws, pairs)."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    f, phat, size = map(jnp.asarray, (f, phat, size))

    def one(values):
        found = summarise(*_cell_arguments(variant, values, f, phat, size), LEVELS)
        return found.risk, found.p_unique

    total = len(flat["alpha"])
    evaluate = jax.jit(lambda values: jax.lax.map(one, values))
    parts = []
    for start in range(0, total, _BATCH_OF_DRAWS):
        chosen = np.minimum(np.arange(start, start + _BATCH_OF_DRAWS), total - 1)
        found = evaluate({name: jnp.asarray(value[chosen]) for name, value in flat.items()})
        kept = min(_BATCH_OF_DRAWS, total - start)
        parts.append([np.asarray(part)[:kept] for part in found])
    return tuple(np.concatenate(part)[:, of_pair] for part in zip(*parts, strict=True))


def _places(variant, flat, f, phat, size):
    """Quantiles (levels, pairs) and mode (pairs,) of F, mixed over draws."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    arrays = tuple(map(jnp.asarray, (f, phat, size)))
    total = len(flat["alpha"])
    chosen = np.unique(np.linspace(0, total - 1, min(total, _MIXED)).round().astype(int))
    levels = tuple((np.arange(_MIXED_LEVELS) + 0.5) / _MIXED_LEVELS)
    pooled, modes = [], []
    for i in chosen:
        values = {name: value[i] for name, value in flat.items()}
        found = summarise(*_cell_arguments(variant, values, *arrays), levels)
        pooled.append(np.asarray(found.quantiles))
        modes.append(np.asarray(found.mode))
    quantiles = np.quantile(np.concatenate(pooled), LEVELS, axis=0, method="inverted_cdf")
    candidates = np.quantile(np.stack(modes), np.linspace(0, 1, 9), axis=0, method="nearest")
    density = np.zeros(candidates.shape)
    for i in chosen[:: max(1, len(chosen) // 16)]:
        values = {name: value[i] for name, value in flat.items()}
        arguments = _cell_arguments(variant, values, *arrays)
        density += np.exp(np.asarray(log_posterior_jit(jnp.asarray(candidates), *arguments)))
    mode = np.take_along_axis(candidates, density.argmax(axis=0)[None], axis=0)[0]
    return quantiles[:, of_pair], mode[of_pair]


def benedetti_franconi_risk(cells: WeightedCells) -> np.ndarray:
    """(D,) E(1 / F) under the negative binomial of Benedetti & Franconi (1998), exactly."""
    with double_precision():
        f, phat, _, pair = cells.distinct
        risk = jax.jit(benedetti_franconi)(jnp.asarray(f), jnp.asarray(phat))
        return np.asarray(risk)[pair]


# Goodness of fit.

_BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (11, 20), (21, 50), (51, 100))

_MAX_PHATS = 48


def counts_of_counts(model: PolettiniStander, cells: WeightedCells) -> pd.DataFrame:
    """How many cells have 0, 1, 2, .. records: observed, and expected under the marginal of f.

    Returns
    -------
    frame
        Columns "records" ("0", "6-10", "101+"), "observed" and "expected"; both add up to K.

    Notes
    -----
    In Model II a cell's expectation depends on its phat, and on the assumed ones where it is empty;
    more than 48 distinct values are put into as many groups.
    """
    if model.variant == 1:
        phat, number = np.zeros(1), np.array([float(cells.num_cells)])
    else:
        phat, number = _grouped(cells.phat)
        empty = np.array(model.empty_phat or ((cells.pooled_phat, 1.0),))
        phat = np.concatenate([phat, empty[:, 0]])
        number = np.concatenate([number, empty[:, 1] * (cells.num_cells - cells.f.size)])
    last = _BINS[-1][1]
    pmf = np.exp(model.log_marginal(np.arange(last + 1.0)[:, None], phat, cells))
    each = pmf @ number
    expected = [each[low : high + 1].sum() for low, high in _BINS]
    counts = np.bincount(np.minimum(cells.f, last + 1).astype(int), minlength=last + 2)
    counts[0] = cells.num_cells - cells.f.size
    observed = [counts[low : high + 1].sum() for low, high in _BINS]
    names = [f"{low}" if low == high else f"{low}-{high}" for low, high in _BINS]
    return pd.DataFrame({
        "records": [*names, f"{last + 1}+"],
        "observed": [*observed, counts[last + 1]],
        "expected": [*expected, cells.num_cells - sum(expected)],
    })  # fmt: skip


def _grouped(phat):
    found, number = np.unique(phat, return_counts=True)
    if len(found) <= _MAX_PHATS:
        return found, number.astype(float)
    groups = np.array_split(np.sort(phat), _MAX_PHATS)
    return np.array([g.mean() for g in groups]), np.array([float(len(g)) for g in groups])
