"""Disclosure risk of a sample: how many of its uniques are unique in the population.

Given the parameters of one kept draw, a new population record falls in cell c with probability
q_c, so that the N - n unsampled records add Binomial(N - n, q_c) to a sample unique. Everything
here follows from the q_c of every kept draw (Skinner & Shlomo 2008, doi:10.1198/016214507000001328;
Battiston & Rimella 2024, section 3.2.2 and appendix B).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.microdata import Microdata
from bnp_models.data.weights import check_population_size
from bnp_models.inference.run import Run, blocks_of_draws, coding_of

METHODS = ("auto", "exact", "draws", "sequential")

TRUNCATIONS = ("exact", "exponent")

# Shared draws, and particles of sequential imputation. On a CPU draws have the smaller error at
# equal cost; with fewer than 1,024 particles the plug-in tau_1 is biased by more than 1%.
NUM_DRAWS = {"exact": 0, "draws": 4096, "sequential": 1024}

# Sequential imputation is slow; without a `thin` of the caller's it evaluates this many draws.
SEQUENTIAL_DRAWS = 100

_RECORDS_AT_ONCE = 2**15


@dataclass(frozen=True, eq=False)
class PopulationRisk:
    """Posterior of the disclosure risk of a sample."""

    run: Run
    population_size: int
    method: str
    """How cell probabilities were evaluated: "exact", "draws" or "sequential"."""
    tau1: np.ndarray
    """(chains, draws) draws of the number of sample uniques that are unique in the population."""
    tau1_conditional: np.ndarray
    """(chains, draws) expectation of that number given each draw's parameters; its spread is
    narrower than that of the number."""
    tau2: np.ndarray
    """(chains, draws) sum over sample uniques of E(1/F) given each draw's parameters."""
    log_likelihood: np.ndarray
    """(chains, draws) sum over records of log p_c, the labels integrated out."""
    rows: np.ndarray
    """0-based rows of the sample uniques."""
    r1: np.ndarray
    """Per sample unique, the posterior mean of P(F = 1)."""
    r2: np.ndarray
    """Per sample unique, the posterior mean of E(1/F)."""
    thin: int
    """Every how many of the run's draws were evaluated."""
    relative_error: float
    """Median relative standard error of the cell probabilities; 0 where they are exact."""

    def records(self) -> pd.DataFrame:
        """One row per sample unique, riskiest first: row, the key variables, r1, r2."""
        frame = self.run.table.to_frame().iloc[self.rows].reset_index(drop=True)
        frame.insert(0, "row", self.rows)
        frame["r1"], frame["r2"] = self.r1, self.r2
        return frame.sort_values(["r1", "row"], ascending=[False, True], ignore_index=True)


def population_risk(
    run: Run,
    population_size: int,
    *,
    method: str = "auto",
    truncation: str = "exact",
    thin: int | None = None,
    key: jax.Array | None = None,
    progress: bool = False,
) -> PopulationRisk:
    """Posterior of tau_1, tau_2 and the risk of each sample unique.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``.
    population_size
        N, at least the sample's size.
    method
        "exact" evaluates cell probabilities without Monte Carlo error: latent class models in
        closed form, the HDP by the recursion over subsets of variables. For the HDP, "draws"
        averages over draws of record weights shared by all cells, "sequential" estimates each cell
        by sequential imputation, and both correct tau's bias by a two-half jackknife; "auto" is
        exact wherever the model's ``max_exact_variables`` allows, and "draws" beyond.
    truncation
        Under structural zeros, "exact" gives an unsampled record the probability q_c = p_c / P(F)
        of cell c; "exponent" is the approximation of Battiston & Rimella (2024), eq. (11), which
        leaves p_c as it is and takes (N - n) / P(F) records, for comparison.
    thin
        Evaluate every `thin`-th draw of `run`. Default: every draw, and about 100 of each chain
        under "sequential".
    key
        For the counts and particles; by default one that `run` set aside.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    ValueError
        If the population is smaller than the sample, a record is incomplete, or `run` kept no
        parameters.
    """
    table, model = run.table, run.model
    check_population_size(table, population_size)
    table.require_complete("the disclosure risk")
    if method not in METHODS:
        raise ValueError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    if truncation not in TRUNCATIONS:
        raise ValueError(f"truncation is one of {', '.join(TRUNCATIONS)}, not {truncation!r}")
    taken = {"row", "r1", "r2"}.intersection(table.schema.variables)
    if taken:
        raise ValueError(f"rename the variable {min(taken)!r}: the table of records has its own")
    kept = run.parameters()
    if method == "auto":
        method = _default_method(model, table)
    key_particles, key_counts = jax.random.split(run.key if key is None else key)

    cells = table.cells()
    unique_cells = np.flatnonzero(cells.counts == 1)
    rows = cells.sample_uniques
    # r1, r2 follow the order of rows.
    of_row = np.searchsorted(unique_cells, cells.record_cell[rows])
    if thin is None:
        slow = method == "sequential"
        thin = -(-run.settings.num_samples // SEQUENTIAL_DRAWS) if slow else 1
    if not 1 <= thin <= run.settings.num_samples:
        raise ValueError(f"thin must be from 1 to {run.settings.num_samples}, not {thin}")
    num_chains, num_draws = kept["alpha"][:, ::thin].shape
    num_new = population_size - table.n
    draws = {name: value[:, ::thin].reshape(-1, *value.shape[2:]) for name, value in kept.items()}
    counts_rng = np.random.Generator(np.random.Philox(key=_seed_words(key_counts)))
    total = num_chains * num_draws
    tau1, tau1_conditional, tau2, log_likelihood = (np.zeros(total) for _ in range(4))
    errors = np.zeros(total)
    sum_r1, sum_r2 = np.zeros(len(unique_cells)), np.zeros(len(unique_cells))
    codes = cells.codes if run.coding is None else run.coding.reduce(cells.codes)
    evaluate = partial(
        _evaluate, model, jnp.asarray(codes, jnp.int32), num_levels=run.num_levels, method=method,
    )  # fmt: skip
    log_feasible = np.zeros(total)
    if truncation == "exponent":
        log_feasible = draws["log_feasible"].astype(np.float64)
    for here, padded in tqdm(blocks_of_draws(total), desc="risk", disable=not progress):
        keys = jax.vmap(partial(jax.random.fold_in, key_particles))(padded)
        estimate = evaluate(keys, {name: value[padded] for name, value in draws.items()})
        estimate = [np.asarray(part, np.float64)[: here.size] for part in estimate]
        log_p, relative_se, halves = estimate
        errors[here] = np.median(relative_se, axis=1)
        log_likelihood[here] = log_p @ cells.counts
        log_q = log_p[:, unique_cells] + log_feasible[here, None]
        size = num_new if truncation == "exact" else num_new * np.exp(-log_feasible[here, None])
        r1, r2 = record_risks(log_q, size)
        if method != "exact":
            shift = log_feasible[here, None, None]
            r1_halves, r2_halves = record_risks(
                halves[..., unique_cells] + shift, np.asarray(size)[..., None]
            )
            r1 = 2 * r1 - r1_halves.mean(axis=1)
            r2 = 2 * r2 - r2_halves.mean(axis=1)
        tau1_conditional[here], tau2[here] = r1.sum(axis=1), r2.sum(axis=1)
        sum_r1 += r1.sum(axis=0)
        sum_r2 += r2.sum(axis=0)
        tau1[here] = draw_tau1(counts_rng, np.exp(log_q), np.rint(size).reshape(-1).astype(int))
    shape = (num_chains, num_draws)
    return PopulationRisk(
        run=run, population_size=int(population_size), method=method,
        tau1=tau1.reshape(shape), tau1_conditional=tau1_conditional.reshape(shape),
        tau2=tau2.reshape(shape), log_likelihood=log_likelihood.reshape(shape),
        thin=thin, rows=rows, r1=(sum_r1 / total)[of_row], r2=(sum_r2 / total)[of_row],
        relative_error=float(np.median(errors)),
    )  # fmt: skip


def record_risks(log_q: np.ndarray, num_new: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """r_1 = (1 - q)^M and r_2 = E 1 / (1 + Binomial(M, q)) for M unsampled records.

    Parameters
    ----------
    log_q
        Logarithms of cell probabilities, any shape, float64; q may be 1e-12 or less.
    num_new
        M = N - n, broadcast against `log_q`.

    Notes
    -----
    r_2 = (1 - (1 - q)^(M + 1)) / ((M + 1) q): Skinner & Shlomo (2008), with log1p and expm1 so
    that neither loses its digits at small q.
    """
    q = np.exp(np.minimum(log_q, -1e-12))
    log_1mq = np.log1p(-q)
    r2 = -np.expm1((num_new + 1) * log_1mq) / np.maximum((num_new + 1) * q, 1e-300)
    return np.exp(num_new * log_1mq), np.minimum(r2, 1.0)


def draw_tau1(rng: np.random.Generator, q: np.ndarray, num_new: int | np.ndarray) -> np.ndarray:
    """Draws of the number of sample uniques that no unsampled record joins.

    Parameters
    ----------
    rng
        A NumPy generator.
    q
        (draws, cells) cell probabilities of each draw's parameters.
    num_new
        N - n unsampled records, for all draws or for each.

    Notes
    -----
    The unsampled records' counts are multinomial given q, and the count is the number of zeros
    among those of the unique cells: exact, and sequential binomials, so cheap at any N.
    """
    elsewhere = np.maximum(1 - q.sum(axis=1, keepdims=True), 0)
    p = np.concatenate([q, elsewhere], axis=1)
    joined = rng.multinomial(num_new, p / p.sum(axis=1, keepdims=True))
    return np.sum(joined[:, :-1] == 0, axis=1)


def simulate_tau1(
    run: Run, population_size: int, *, num_draws: int, key: jax.Array | None = None
) -> np.ndarray:
    """Draws of tau_1 by simulating the unsampled population: no cell probability is needed.

    The independent check of `population_risk`, and far slower: N - n records a draw.

    Parameters
    ----------
    num_draws
        Draws of `run` to use, evenly spaced over all chains.

    Returns
    -------
    tau1
        (num_draws,) counts.
    """
    table, model = run.table, run.model
    check_population_size(table, population_size)
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in run.parameters().items()}
    chosen = np.linspace(0, len(flat["alpha"]) - 1, num_draws).round().astype(int)
    cells = table.cells()
    unique = cells.codes[cells.counts == 1]
    multiplier = _separating_hash(unique)
    order = np.argsort(_hash(unique, multiplier))
    unique = unique[order]
    num_new = population_size - table.n
    num_batches = -(-num_new // _RECORDS_AT_ONCE)
    expand = None if run.coding is None else run.coding.expand
    result = np.zeros(num_draws, int)
    for i, draw in enumerate(chosen):
        result[i] = int(
            _count_untouched(
                model,
                jax.random.fold_in(run.key if key is None else key, i),
                {name: value[draw] for name, value in flat.items()},
                jnp.asarray(unique, jnp.int32),
                jnp.asarray(multiplier),
                num_new,
                num_batches,
                None if run.feasible_sets is None else jnp.asarray(run.feasible_sets),
                num_levels=run.num_levels,
                expand=expand,
            )
        )
    return result


def tau1_monitor(
    run_model, table: Microdata, population_size: int, max_cells: int = 256, conditions=None
) -> Callable[[dict[str, np.ndarray]], dict[str, float]]:
    """For `sample(monitor=...)`: the current tau_1 of the first chain, for the progress bar.

    Above `max_cells` sample uniques it is scaled up from that many of them.
    """
    cells = table.cells()
    unique = cells.codes[cells.counts == 1]
    part = unique[:: max(1, -(-len(unique) // max_cells))]
    coding = coding_of(run_model, conditions)
    num_levels = table.schema.num_levels if coding is None else coding.schema.num_levels
    part = part if coding is None else coding.reduce(part)
    num_new = population_size - table.n
    method = _default_method(run_model, table)

    def monitor(latest: dict[str, np.ndarray]) -> dict[str, float]:
        names = (*run_model.parameters, "alpha")
        if not len(part) or any(name not in latest for name in names):
            return {}
        log_q = _evaluate(
            run_model, jnp.asarray(part, jnp.int32), jax.random.key(0)[None],
            {name: latest[name][:1] for name in names},
            num_levels=num_levels, method=method,
        )[0]  # fmt: skip
        r1, _ = record_risks(np.asarray(log_q, np.float64), num_new)
        return {"tau_1": float(r1.sum()) * len(unique) / len(part)}

    return monitor


def _default_method(model, table):
    return "exact" if table.num_variables <= model.max_exact_variables else "draws"


@partial(jax.jit, static_argnames=("num_levels", "method"))
def _evaluate(model, cells, keys, draws, num_levels, method):
    """log p of every cell for every draw, its relative standard error, and that of its halves."""

    def one(arguments):
        key, draw = arguments
        result = model.log_cell_probability(
            key, draw, cells, num_levels, method=method, num_draws=NUM_DRAWS[method]
        )
        if method == "exact":
            return result, jnp.zeros(()), jnp.zeros(())
        return result.log_p, result.relative_se, result.log_p_halves

    log_p, relative_se, halves = jax.lax.map(one, (keys, draws))
    return log_p, relative_se.reshape(keys.size, -1), halves


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
        found = jnp.clip(jnp.searchsorted(hashes, _hash(codes, multiplier)), 0, len(hashes) - 1)
        same = jnp.all(unique[found] == codes, axis=1) & exists
        return touched.at[found].max(same)

    touched = jax.lax.fori_loop(0, num_batches, batch, jnp.zeros(len(unique), bool))
    return jnp.sum(~touched)


def _hash(codes, multiplier):
    return (codes.astype(np.uint32) * multiplier).sum(axis=1, dtype=np.uint32)


def _separating_hash(codes: np.ndarray) -> np.ndarray:
    """Odd multipliers, one a variable, under which no two of the cells have one hash."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        multiplier = rng.integers(0, 2**32, codes.shape[1], dtype=np.uint32) | np.uint32(1)
        if np.unique(_hash(codes, multiplier)).size == len(codes):
            return multiplier
    raise ValueError(f"{len(codes)} sample uniques are too many for population simulation")


def _seed_words(key: jax.Array) -> np.ndarray:
    """128 bits from a JAX key, for a NumPy generator."""
    words = np.asarray(jax.random.bits(key, (4,), np.uint32), np.uint64)
    return words[:2] << np.uint64(32) | words[2:]
