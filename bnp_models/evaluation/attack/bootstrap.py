"""Block bootstrap over the draws, and the verdict on each target of an attack."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.inference.diagnostics import diagnose
from bnp_models.kernels.attack.importance import (
    log_gamma_means,
    moment_sums,
    pareto_k,
    ranks_of_first,
    top_rank_p_values,
    weighted_sums,
)

# Autocorrelation times in a block of draws that the bootstrap takes whole, and blocks at least and
# at most.
TIMES_IN_BLOCK, MIN_BLOCKS, MAX_BLOCKS = 5, 20, 200

# Bytes of one array of log ratios.
BYTES_AT_ONCE = 2**26


def blocks_of_trace(log_l):
    """Draws in blocks of consecutive ones, as even as they come, and how long these are.

    Returns
    -------
    index, present
        (blocks, L) flat indices of the draws, and whether it is one or fills up the block.
    times
        Autocorrelation times of log L in the longest block.
    """
    num_chains, num_draws = log_l.shape[1:]
    ess = [diagnose(values)["ess_bulk"] for values in log_l]
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
    return index, present, length / time


def bootstrap_counts(key, num_posteriors, num_blocks, num_bootstrap):
    """(posteriors, replicates, blocks): how often each is taken; once in the first replicate."""
    shape = (num_posteriors, num_bootstrap, num_blocks)
    drawn = jax.random.randint(key, shape, 0, num_blocks).reshape(-1, num_blocks)
    counts = jax.vmap(lambda own: jnp.zeros(num_blocks, jnp.int32).at[own].add(1))(drawn)
    ones = jnp.ones((num_posteriors, 1, num_blocks), jnp.int32)
    counts = jnp.concatenate([ones, counts.reshape(shape)], axis=1)
    return counts.astype(jnp.result_type(float))


def values_of_draws(log_l, index, present, estimator):
    """log L in blocks, less a constant that is returned too, or what the estimator wants of it."""
    if estimator == "refit":
        return {"values": None, "centre": None}
    in_blocks = log_l.reshape(len(log_l), -1)[:, index]
    if estimator == "gamma":
        centre = log_l.mean(axis=(1, 2))
        values = in_blocks - centre[:, None, None]
    else:
        centre = log_l.max(axis=(1, 2))
        values = np.exp(in_blocks - centre[:, None, None])
    dtype = jnp.result_type(float)
    values = jnp.asarray(np.where(present, values, 0), dtype)
    return {"values": values, "centre": jnp.asarray(centre, dtype)}


@partial(jax.jit, static_argnames=("num_draws", "top", "estimator"))
def judge_targets(log_ratio, valid, *, values, centre, present, counts, num_draws, top, estimator):
    """Judge several records.

    Parameters
    ----------
    log_ratio
        (A, P, C - 1, draws) log weights of the candidates but the truth, by posterior.
    valid
        (A, C - 1) which of these there are.
    values, centre, present, counts
        Of the draws in blocks.

    Returns
    -------
    rho, standard_error, pareto_k, rank, p_values
        As `AttackRisk` has them.
    """

    def one(arguments):
        log_weight, valid = arguments
        # The truth, whose weights are equal, goes first; what is no candidate has equal ones too.
        log_weight = jnp.pad(jnp.where(valid[:, None], log_weight, 0), ((0, 0), (1, 0), (0, 0)))
        log_weight = jnp.where(present.reshape(-1), log_weight, -jnp.inf)
        valid = jnp.pad(valid, (1, 0), constant_values=True)
        in_blocks = log_weight.reshape(*log_weight.shape[:2], *present.shape)
        score = _scores(in_blocks, values, centre, counts, estimator)
        log_odds = score - score[:, :1]
        rho = jax.nn.softmax(jnp.where(valid, score[0], -jnp.inf))
        shape = jnp.max(jax.vmap(partial(pareto_k, num_draws=num_draws))(log_weight), axis=0)
        error, p_values = top_rank_p_values(log_odds, valid, top)
        gone = jnp.where(valid, 0, jnp.nan)
        return rho + gone, error + gone, shape + gone, ranks_of_first(score[0], valid), p_values

    return jax.lax.map(one, (log_ratio, valid))


def _scores(in_blocks, values, centre, counts, estimator):
    """(replicates, C): log of what rho is proportional to, up to a constant."""

    def replicated(sums, counts):
        return jnp.einsum("rb,bn...->rn...", counts, sums, precision=jax.lax.Precision.HIGHEST)

    if estimator == "gamma":
        sums = replicated(moment_sums(in_blocks[0], values), counts[0])
        return log_gamma_means(sums, centre)
    if estimator == "direct":
        sums = jnp.log(replicated(weighted_sums(in_blocks[0], values), counts[0]))
        return jnp.sum(sums[..., 1:] - sums[..., :1], axis=-1)
    score = 0.0
    for p, own in enumerate(in_blocks):
        top = jnp.max(own, axis=(1, 2))
        sums = replicated(jnp.sum(jnp.exp(own - top[:, None, None]), axis=2).T, counts[p])
        sums = jnp.log(jnp.maximum(sums, jnp.finfo(sums.dtype).tiny)) + top
        score = score + sums * (1 if p else 1 - len(in_blocks))
    return score
