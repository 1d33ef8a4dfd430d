"""Populations simulated record by record: tau_1 without any cell probability."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import bnp_models as bnp
from bnp_models.risk.evaluator import cell_probabilities

_RECORDS_AT_ONCE = 2**15


def simulate_tau1(run, population_size, *, num_draws):
    """Draw tau_1 by simulating the unsampled population: N - n records a draw.

    Parameters
    ----------
    run
        Chains that kept the model's parameters.
    population_size
        N.
    num_draws
        Draws of `run` to use, evenly spaced over all chains.

    Returns
    -------
    tau1
        (num_draws,) counts.
    """
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in run.parameters().items()}
    chosen = np.linspace(0, len(flat["alpha"]) - 1, num_draws).round().astype(int)
    cells = run.table.cells()
    unique = cells.codes[cells.counts == 1]
    multiplier = _separating_hash(unique)
    unique = unique[np.argsort(_hash(unique, multiplier))]
    num_new = population_size - run.table.n
    untouched = partial(
        _count_untouched,
        run.model,
        unique=jnp.asarray(unique, jnp.int32),
        multiplier=jnp.asarray(multiplier),
        num_new=num_new,
        num_batches=-(-num_new // _RECORDS_AT_ONCE),
        feasible=None if run.feasible_sets is None else jnp.asarray(run.feasible_sets),
        num_levels=run.num_levels,
        expand=None if run.coding is None else run.coding.expand,
    )
    return np.array(
        [
            int(
                untouched(
                    jax.random.fold_in(run.key, i), {name: value[d] for name, value in flat.items()}
                )
            )
            for i, d in enumerate(chosen)
        ]
    )


def shared_z(law, risk, missing=0, simulations=200):
    """z-score of the sum of 1/F over all records of the sample, simulated, against its risk.

    Persons join each cell by the probabilities that each draw of `law` gives, `missing` of F are
    forgotten.
    """
    cells = risk.law.table.tabulated
    key, parts = jax.random.key(0), []
    for log_p, _, _ in cell_probabilities(law, law.parameters(), cells.codes, "exact", key):
        parts.append(np.exp(np.minimum(log_p, 0)))
    q, rng = np.concatenate(parts), np.random.default_rng(4)
    sums = np.empty(simulations)
    for i in range(simulations):
        persons = cells.counts + rng.binomial(risk.population_size - cells.n, q)
        sums[i] = (cells.counts / np.maximum(persons - missing, 1)).sum(axis=1).mean()
    return (sums.mean() - risk.r2_of_cells @ cells.counts) / sums.std() * np.sqrt(simulations)


@partial(jax.jit, static_argnames=("num_levels", "expand"))
def _count_untouched(
    model, key, draw, unique, multiplier, num_new, num_batches, feasible, num_levels, expand
):
    """Simulate `num_new` records by batches; count the unique cells that none falls in."""
    hashes = _hash(unique, multiplier)

    def batch(i, touched):
        codes = model.simulate_records(
            jax.random.fold_in(key, i), draw, _RECORDS_AT_ONCE, num_levels, feasible
        ).T
        codes = codes if expand is None else expand(codes)
        exists = i * _RECORDS_AT_ONCE + jnp.arange(_RECORDS_AT_ONCE) < num_new
        cell = jnp.clip(jnp.searchsorted(hashes, _hash(codes, multiplier)), 0, len(hashes) - 1)
        same = jnp.all(unique[cell] == codes, axis=1) & exists
        return touched.at[cell].max(same)

    touched = jax.lax.fori_loop(0, num_batches, batch, jnp.zeros(len(unique), bool))
    return jnp.sum(~touched)


def _hash(codes, multiplier):
    """Hash of each cell, in the arithmetic of 32 bits."""
    return (codes.astype(np.uint32) * multiplier).sum(axis=1, dtype=np.uint32)


def _separating_hash(codes):
    """Odd multipliers, one a variable, under which no two of the cells have one hash."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        multiplier = rng.integers(0, 2**32, codes.shape[1], dtype=np.uint32) | np.uint32(1)
        if np.unique(_hash(codes, multiplier)).size == len(codes):
            return multiplier
    raise ValueError(f"{len(codes)} sample uniques are too many for population simulation")


def weighted(codes, population_size, weights=None, **options):
    """Cells of coded records, all of whose levels up to the largest exist."""
    levels = tuple(tuple(range(int(size))) for size in codes.max(axis=0) + 1)
    names = tuple(f"v{j}" for j in range(codes.shape[1]))
    table = bnp.Microdata(bnp.Schema(names, levels), codes)
    return bnp.weighted_cells(table, population_size, weights, **options)
