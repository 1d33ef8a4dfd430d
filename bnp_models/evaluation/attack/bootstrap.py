"""Block bootstrap over the draws, and the verdict on each target of an attack."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.inference.convergence import figures_of
from bnp_models.kernels.attack.importance import (
    log_gamma_means,
    moment_sums,
    pareto_k,
    ranks_of_first,
    top_rank_p_values,
)

# Autocorrelation times in a block of draws, and least and largest number of blocks.
TIMES_IN_BLOCK, MIN_BLOCKS, MAX_BLOCKS = 5, 20, 200


class Blocks(NamedTuple):
    """Blocks of consecutive draws, which the bootstrap takes as a whole."""

    index: np.ndarray  # type: ignore[assignment]
    """(blocks, L) flat indices of the draws."""
    present: np.ndarray
    """(blocks, L) True for a draw, False for padding of a block."""
    times: float
    """Autocorrelation times of log L in the longest block."""


class FileLikelihoods(NamedTuple):
    """Centred likelihoods of the synthetic files, in blocks; none for refits."""

    values: jax.Array | None
    """(files, blocks, L) log L - centre, 0 for padding; None for "refit", which needs no
    likelihood."""
    centre: jax.Array | None
    """(files,) mean of log L; None for "refit"."""


class Verdict(NamedTuple):
    """Figures of some targets; the arrays are those of `AttackRisk`."""

    rho: np.ndarray | jax.Array
    standard_error: np.ndarray | jax.Array
    pareto_k: np.ndarray | jax.Array
    rank: np.ndarray | jax.Array
    p_values: np.ndarray | jax.Array


def split_draws(log_l: np.ndarray) -> Blocks:
    """Split the draws into blocks of nearly equal size.

    Parameters
    ----------
    log_l
        (files, chains, draws) log likelihood of each file.
    """
    num_chains, num_draws = log_l.shape[1:]
    ess = [figures_of(values)["ess_bulk"] for values in log_l]
    time = max([1.0, *(num_chains * num_draws / x for x in ess if x)])
    most, least = -(-MAX_BLOCKS // num_chains), -(-MIN_BLOCKS // num_chains)
    number = min(max(int(num_draws / (TIMES_IN_BLOCK * time)), least), most, num_draws)
    parts = [
        chain * num_draws + part
        for chain in range(num_chains)
        for part in np.array_split(np.arange(num_draws), number)
    ]
    length = max(map(len, parts))
    index = np.stack([np.pad(part, (0, length - len(part)), mode="edge") for part in parts])
    present = np.arange(length) < np.array([len(part) for part in parts])[:, None]
    return Blocks(index, present, length / time)


@partial(jax.jit, static_argnames=("num_posteriors", "num_blocks", "num_bootstrap"))
def bootstrap_counts(
    key: jax.Array, num_posteriors: int, num_blocks: int, num_bootstrap: int
) -> jax.Array:
    """Draw how often each replicate takes each block: (posteriors, 1 + replicates, blocks).

    Replicate 0 takes every block once.
    """
    shape = (num_posteriors, num_bootstrap, num_blocks)
    drawn = jax.random.randint(key, shape, 0, num_blocks).reshape(-1, num_blocks)
    counts = jax.vmap(lambda taken: jnp.zeros(num_blocks, jnp.int32).at[taken].add(1))(drawn)
    ones = jnp.ones((num_posteriors, 1, num_blocks), jnp.int32)
    counts = jnp.concatenate([ones, counts.reshape(shape)], axis=1)
    return counts.astype(jnp.result_type(float))


def centred_likelihoods(log_l: np.ndarray, blocks: Blocks, estimator: str) -> FileLikelihoods:
    """Centre the likelihoods of the files, in blocks.

    Parameters
    ----------
    log_l
        (files, chains, draws) log likelihood of each file.
    blocks, estimator
        Blocks of draws, and "gamma", "direct" or "refit".
    """
    if estimator == "refit":
        return FileLikelihoods(None, None)
    in_blocks = log_l.reshape(len(log_l), -1)[:, blocks.index]
    centre = log_l.mean(axis=(1, 2))
    values = in_blocks - centre[:, None, None]
    dtype = jnp.result_type(float)
    values = jnp.asarray(np.where(blocks.present, values, 0), dtype)
    return FileLikelihoods(values, jnp.asarray(centre, dtype))


@partial(jax.jit, static_argnames=("num_draws", "top", "estimator"))
def weigh_candidates(
    log_ratio: jax.Array,
    valid: jax.Array,
    *,
    likelihoods: FileLikelihoods,
    present: jax.Array,
    counts: jax.Array,
    num_draws: int,
    top: tuple[int, ...],
    estimator: str,
) -> Verdict:
    """Weigh the candidates for A targets against each other.

    Parameters
    ----------
    log_ratio
        (A, P, C - 1, draws) log weights of the candidates other than the truth, by posterior.
    valid
        (A, C - 1) which of these are candidates.
    likelihoods
        Result of `centred_likelihoods`.
    present
        (blocks, L) `Blocks.present`.
    counts
        (P, 1 + replicates, blocks) how often each block is taken.
    num_draws
        Number of all draws.
    top
        Ranks k of the hypotheses.
    estimator
        "gamma", "direct" or "refit".
    """

    def one(target):
        log_weight, valid = target
        # The truth, which comes first, has equal weights; so do entries that are not candidates.
        log_weight = jnp.pad(jnp.where(valid[:, None], log_weight, 0), ((0, 0), (1, 0), (0, 0)))
        log_weight = jnp.where(present.reshape(-1), log_weight, -jnp.inf)
        valid = jnp.pad(valid, (1, 0), constant_values=True)
        in_blocks = log_weight.reshape(*log_weight.shape[:2], *present.shape)
        score = _scores(in_blocks, likelihoods, counts, estimator)
        log_odds = score - score[:, :1]
        rho = jax.nn.softmax(jnp.where(valid, score[0], -jnp.inf))
        shape = jnp.max(jax.vmap(partial(pareto_k, num_draws=num_draws))(log_weight), axis=0)
        error, p_values = top_rank_p_values(log_odds, valid, top)
        gone = jnp.where(valid, 0, jnp.nan)
        rank = ranks_of_first(score[0], valid)
        return Verdict(rho + gone, error + gone, shape + gone, rank, p_values)

    with jax.named_scope("weigh_candidates"):
        return jax.lax.map(one, (log_ratio, valid))


def _scores(in_blocks, likelihoods, counts, estimator):
    """(replicates, C) log of rho, up to a constant."""
    values, centre = likelihoods
    if estimator == "gamma":
        sums = jnp.einsum(
            "rb,bn...->rn...", counts[0], moment_sums(in_blocks[0], values),
            precision=jax.lax.Precision.HIGHEST,
        )  # fmt: skip
        return log_gamma_means(sums, centre)
    if estimator == "direct":
        own = _log_sums(in_blocks[0], counts[0])
        return sum(_log_sums(in_blocks[0] + log_l, counts[0]) - own for log_l in values)
    return sum(
        _log_sums(log_weight, counts[p]) * (1 if p else 1 - len(in_blocks))
        for p, log_weight in enumerate(in_blocks)
    )


def _log_sums(log_terms, counts):
    """(replicates, C) log of the sums of the terms (C, blocks, L), blocks counted so often.

    In log space throughout: a replicate may leave out all blocks with terms near the largest.
    """
    of_block = jax.nn.logsumexp(log_terms, axis=2)
    return jax.nn.logsumexp(of_block[None], axis=2, b=counts[:, None, :])
