"""Disclosure risk of cells under the Polettini-Stander hierarchy."""

import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Microdata
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.cells.thinning import (
    CountTable,
    benedetti_franconi,
    draw_counts,
    summarise,
    summary_of,
    tabulate,
)
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.kernels.variates.rng import key_array
from bnp_models.models.cells.full_bayes import HyperparameterDraws
from bnp_models.models.cells.polettini_stander import (
    LEVELS,
    PolettiniStander,
    beta_parameters,
    log_posterior_of_counts,
    mean_cell_size,
)
from bnp_models.models.options import typed_key

# Number of draws whose distributions of F are mixed for quantiles and modes; levels of quantiles.
_MIXED, _MIXED_LEVELS = 64, 60

_BATCH_OF_DRAWS = 64


@dataclass(frozen=True, eq=False)
@displayed
class CellRisk:
    """Disclosure risk of every non-empty cell of a sample.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> result.frame().columns[-6:].tolist()
    ['risk', 'p_unique', 'median', 'mode', 'q025', 'q975']
    """

    model: PolettiniStander
    """Model with the hyperparameters that were used; under full Bayes, the medians of `draws`."""
    cells: WeightedCells
    """Non-empty cells of the sample."""
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
    """(chains, draws) draws of the sum over sample uniques of 1 / F."""
    tau2_conditional: np.ndarray
    """(chains, draws) expectation of that sum given the hyperparameters."""
    log_likelihood: np.ndarray
    """(chains, draws) log likelihood of the hyperparameters."""
    seconds: dict[str, float]
    """Wall-clock seconds, by step."""

    def frame(self) -> pd.DataFrame:
        """One row per non-empty cell, riskiest first: key variables, f, phat, risk and so on."""
        frame = Microdata(self.cells.table.schema, self.cells.codes).to_frame().assign(
            f=self.cells.f.astype(np.int64), phat=self.cells.phat, risk=self.risk,
            p_unique=self.p_unique,
            **{x: vars(self)[x].astype(np.int64) for x in ("median", "mode", "q025", "q975")},
        )  # fmt: skip
        return frame.sort_values("risk", ascending=False, kind="stable", ignore_index=True)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "model": repr(self.model),
            "cells": title_of(self.cells),
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
        }
        return Shown("CellRisk", lines, self.frame())


def cell_risk(
    model: PolettiniStander,
    cells: WeightedCells,
    *,
    key: jax.Array,
    draws: HyperparameterDraws | None = None,
    num_chains: int = 4,
    num_samples: int = 1000,
) -> CellRisk:
    """Evaluate for each cell the posterior of F, its number of persons in the population.

    Parameters
    ----------
    model
        Model with the hyperparameters to use, unless `draws` is given.
    cells
        Non-empty cells of the sample, from `weighted_cells`.
    key
        For the draws of tau_1 and tau_2.
    draws
        Draws of the hyperparameters, from `sample_hyperparameters`. If given, all results are
        averaged over them.
    num_chains, num_samples
        Number of independent draws of tau_1 and tau_2, if `draws` is not given.

    Notes
    -----
    If `draws` is given, risk and probability are means over all draws; quantiles and modes are
    those of the mixture of at most 64 draws.

    Examples
    --------
    >>> result = bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0))
    >>> result.tau1.shape
    (4, 1000)
    >>> len(result.frame()) == len(cells.f)
    True
    """
    call = "cell_risk(model, cells, key=...)"
    check_kind(PolettiniStander, call, model=model)
    check_kind(WeightedCells, call, cells=cells)
    key = typed_key(key)
    began = time.perf_counter()
    with double_precision():
        f, phat, _, pair = cells.distinct
        if draws is None:
            values = {name: np.full(1, value) for name, value in model.hyperparameters.items()}
            log_likelihood = np.full((num_chains, num_samples), model.log_likelihood(cells))
            evaluate = _at_one_draw
        else:
            values = {name: value.reshape(-1) for name, value in draws.values.items()}
            log_likelihood = draws.log_likelihood
            evaluate = _averaged
        keys = key_array(_of_this_precision(key), log_likelihood.size)
        size, uniques = mean_cell_size(cells), pair[cells.f == 1]
        pairs = evaluate(keys, model.variant, values, f, phat, size, uniques)
    if draws is not None:
        medians = {name: float(np.median(value)) for name, value in values.items()}
        model = PolettiniStander(model.variant, **medians, empty_phat=model.empty_phat)
    unique = f == 1
    number = np.bincount(pair, minlength=len(f))[unique]
    p_unique = pairs.p_unique[:, unique]
    # Draw of the hyperparameters for each draw of tau_1 and tau_2.
    shape = log_likelihood.shape
    given = (np.arange(log_likelihood.size) if draws is not None else np.zeros(shape, int)).ravel()
    return CellRisk(
        model=model,
        cells=cells,
        draws=draws,
        risk=pairs.risk.mean(axis=0)[pair],
        p_unique=pairs.p_unique.mean(axis=0)[pair],
        median=pairs.quantiles[1][pair],
        mode=pairs.mode[pair],
        q025=pairs.quantiles[0][pair],
        q975=pairs.quantiles[2][pair],
        tau1=pairs.tau1.reshape(shape),
        tau1_conditional=(p_unique @ number)[given].reshape(shape),
        tau1_variance=((p_unique * (1 - p_unique)) @ number)[given].reshape(shape),
        tau2=pairs.tau2.reshape(shape),
        tau2_conditional=(pairs.risk[:, unique] @ number)[given].reshape(shape),
        log_likelihood=log_likelihood,
        seconds={"risk": time.perf_counter() - began},
    )


def _of_this_precision(key: jax.Array) -> Key[Array, ""]:
    """The same key, made in the current precision."""
    return jax.random.wrap_key_data(jax.random.key_data(key))


class _PairRisks(NamedTuple):
    """Posterior of F for the distinct pairs of f and phat."""

    risk: np.ndarray
    """(draws, pairs) E(1 / F | f) given each draw of the hyperparameters."""
    p_unique: np.ndarray
    """(draws, pairs) P(F = 1 | f) given each draw."""
    quantiles: np.ndarray
    """(levels, pairs) quantiles of F, over all draws."""
    mode: np.ndarray
    """(pairs,) mode of F, over all draws."""
    tau1: np.ndarray
    """(keys,) draws of tau_1."""
    tau2: np.ndarray
    """(keys,) draws of tau_2."""


@jax.jit
def _draw_taus(
    keys: Key[Array, " draws"], table: CountTable, cell: Int[Array, " uniques"]
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """Draw tau_1 and tau_2 with each key; `cell` has the column in the table of each unique."""

    def one(key):
        F = draw_counts(key, table, cell)
        return jnp.sum(F == 1, dtype=F.dtype), jnp.sum(1 / F)

    return jax.lax.map(one, keys)


def _cell_arguments(variant, values, f, phat, size) -> tuple[Array, Array, Array, Array, Array]:
    """Arguments of `summarise` at one draw of the hyperparameters."""
    values = {name: jnp.asarray(value) for name, value in values.items()}
    a, b = beta_parameters(variant, values, phat)
    alpha = jnp.full_like(f, 1.0) * values["alpha"]
    return f, alpha, a, b, jnp.log(size) - jnp.log(alpha)


def _distinct_for(variant, f, phat):
    """Distinct pairs (f, phat), and the index of each cell's pair; Model I ignores phat."""
    if variant == 1:
        f, of_pair = np.unique(f, return_inverse=True)
        return f, np.zeros(len(f)), of_pair.reshape(-1)
    return f, phat, np.arange(len(f))


def _at_one_draw(keys, variant, values, f, phat, size, uniques) -> _PairRisks:
    """Posterior of F at a single value of the hyperparameters; draws of tau_1 and tau_2.

    `uniques` has the pair of each sample unique.
    """
    f, phat, of_pair = _distinct_for(variant, f, phat)
    values = {name: value[0] for name, value in values.items()}
    arguments = _cell_arguments(variant, values, *map(jnp.asarray, (f, phat, size)))
    table = tabulate(*arguments)
    summary = jax.tree.map(np.asarray, summary_of(table, LEVELS))
    taus = _draw_taus(keys, table, jnp.asarray(of_pair[uniques]))
    return _PairRisks(
        summary.risk[None, of_pair],
        summary.p_unique[None, of_pair],
        summary.quantiles[:, of_pair],
        summary.mode[of_pair],
        *map(np.asarray, taus),
    )


def _averaged(keys, variant, values, f, phat, size, uniques) -> _PairRisks:
    """Posterior of F at each draw of the hyperparameters, and its mixture over the draws.

    With each draw, one of tau_1 and tau_2; `uniques` has the pair of each sample unique.
    """
    f, phat, of_pair = _distinct_for(variant, f, phat)
    arguments = variant, values, *map(jnp.asarray, (f, phat, size))
    risk, p_unique, *taus = _risks_by_draw(keys, jnp.asarray(of_pair[uniques]), *arguments)
    quantiles, mode = _quantiles_and_modes(*arguments)
    return _PairRisks(
        risk[:, of_pair], p_unique[:, of_pair], quantiles[:, of_pair], mode[of_pair], *taus
    )


def _risks_by_draw(keys, cell, variant, values, f, phat, size):
    """E(1 / F | f) and P(F = 1 | f), (draws, pairs) each; draws of tau_1 and tau_2, (draws,)."""

    def one(of_draw):
        key, values = of_draw
        table = tabulate(*_cell_arguments(variant, values, f, phat, size))
        taus = (tau[0] for tau in _draw_taus(key[None], table, cell))
        return table.risk, table.p_unique, *taus

    total = len(values["alpha"])
    evaluate = jax.jit(partial(jax.lax.map, one))
    parts = []
    for start in range(0, total, _BATCH_OF_DRAWS):
        chosen = np.minimum(np.arange(start, start + _BATCH_OF_DRAWS), total - 1)
        of_batch = {name: jnp.asarray(value[chosen]) for name, value in values.items()}
        batch = evaluate((keys[chosen], of_batch))
        kept = min(_BATCH_OF_DRAWS, total - start)
        parts.append([np.asarray(part)[:kept] for part in batch])
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _quantiles_and_modes(variant, values, f, phat, size):
    """Quantiles (levels, pairs) and mode (pairs,) of F, mixed over draws."""
    total = len(values["alpha"])
    chosen = np.unique(np.linspace(0, total - 1, min(total, _MIXED)).round().astype(int))
    levels = tuple((np.arange(_MIXED_LEVELS) + 0.5) / _MIXED_LEVELS)
    pooled, modes = [], []
    for i in chosen:
        draw = {name: value[i] for name, value in values.items()}
        summary = summarise(*_cell_arguments(variant, draw, f, phat, size), levels)
        pooled.append(np.asarray(summary.quantiles))
        modes.append(np.asarray(summary.mode))
    quantiles = np.quantile(np.concatenate(pooled), LEVELS, axis=0, method="inverted_cdf")
    candidates = np.quantile(np.stack(modes), np.linspace(0, 1, 9), axis=0, method="nearest")
    density = np.zeros(candidates.shape)
    for i in chosen[:: max(1, len(chosen) // 16)]:
        draw = {name: value[i] for name, value in values.items()}
        arguments = _cell_arguments(variant, draw, f, phat, size)
        density += np.exp(np.asarray(log_posterior_of_counts(jnp.asarray(candidates), *arguments)))
    mode = np.take_along_axis(candidates, density.argmax(axis=0)[None], axis=0)[0]
    return quantiles, mode


def benedetti_franconi_risk(cells: WeightedCells) -> np.ndarray:
    """Evaluate E(1 / F) of every cell under the negative binomial of Benedetti & Franconi (1998).

    Parameters
    ----------
    cells
        Non-empty cells of the sample, from `weighted_cells`.

    Returns
    -------
    risk
        (D,) E(1 / F), exactly.

    Examples
    --------
    >>> bnp.risk.benedetti_franconi_risk(cells).shape == cells.f.shape
    True
    """
    check_kind(WeightedCells, "benedetti_franconi_risk(cells)", cells=cells)
    with double_precision():
        f, phat, _, pair = cells.distinct
        risk = jax.jit(benedetti_franconi)(jnp.asarray(f), jnp.asarray(phat))
        return np.asarray(risk)[pair]


# Ranges of numbers of records in a cell, in which `counts_of_counts` groups cells.
_BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (11, 20), (21, 50), (51, 100))

# Distinct values of phat above which they are put into groups.
_MAX_PHATS = 48


def counts_of_counts(model: PolettiniStander, cells: WeightedCells) -> pd.DataFrame:
    """Count the cells that have 0, 1, 2, .. records, and their expected number under the model.

    Parameters
    ----------
    model
        Model with the hyperparameters to use.
    cells
        Non-empty cells of the sample, from `weighted_cells`.

    Returns
    -------
    frame
        Columns "records" ("0", "6-10", "101+"), "observed" and "expected"; both add up to K.

    Notes
    -----
    In Model II the expectation of a cell depends on its phat; for an empty cell, on the assumed
    values of phat. If there are more than 48 distinct values, they are put into 48 groups.

    Examples
    --------
    >>> bnp.risk.counts_of_counts(bnp.PolettiniStander(variant=1), cells).empty
    False
    """
    call = "counts_of_counts(model, cells)"
    check_kind(PolettiniStander, call, model=model)
    check_kind(WeightedCells, call, cells=cells)
    if model.variant == 1:
        phat, number = np.zeros(1), np.array([float(cells.num_cells)])
    else:
        of_both = _grouped(cells.phat), model.empty_cells(cells)
        phat, number = (np.concatenate(parts) for parts in zip(*of_both, strict=True))
    last = _BINS[-1][1]
    pmf = np.exp(model.log_marginal(np.arange(last + 1.0)[:, None], phat, cells))
    each = pmf @ number
    expected = [each[low : high + 1].sum() for low, high in _BINS]
    counts = np.bincount(np.minimum(cells.f, last + 1).astype(int), minlength=last + 2)
    counts[0] = cells.num_cells - cells.f.size
    observed = [counts[low : high + 1].sum() for low, high in _BINS]
    names = [f"{low}" if low == high else f"{low}-{high}" for low, high in _BINS]
    return pd.DataFrame(
        {
            "records": [*names, f"{last + 1}+"],
            "observed": [*observed, counts[last + 1]],
            "expected": [*expected, cells.num_cells - sum(expected)],
        }
    )


def _grouped(phat):
    """Values of phat, or means of groups if there are too many values, and the cells of each."""
    distinct, number = np.unique(phat, return_counts=True)
    if len(distinct) <= _MAX_PHATS:
        return distinct, number.astype(float)
    groups = np.array_split(np.sort(phat), _MAX_PHATS)
    return np.array([g.mean() for g in groups]), np.array([float(len(g)) for g in groups])
