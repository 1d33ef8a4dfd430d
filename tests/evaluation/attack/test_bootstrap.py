"""The verdict on the targets of an attack: its figures by hand, draws in blocks of any length."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

from bnp_models.evaluation.attack import bootstrap

NUM_FILES, NUM_CHAINS, NUM_DRAWS, NUM_OTHERS = 2, 2, 203, 3


def verdict(log_l, log_weight, estimator):
    """Figures of one target, of log weights (posteriors, others, draws)."""
    blocks = bootstrap.split_draws(log_l)
    # Some blocks are a draw shorter than others.
    assert 0 < blocks.present.mean() < 1
    counts = bootstrap.bootstrap_counts(jax.random.key(0), len(log_weight), len(blocks.index), 20)
    return bootstrap.weigh_candidates(
        np.float32(log_weight[None][..., blocks.index.reshape(-1)]),
        np.ones((1, NUM_OTHERS), bool), present=blocks.present, counts=counts,
        num_draws=log_l[0].size, top=(1,), estimator=estimator,
        likelihoods=bootstrap.centred_likelihoods(log_l, blocks, estimator),
    )  # fmt: skip


def gamma(log_l, weight):
    """Log of E(L) for each candidate and file, -log L taken for gamma distributed."""
    mean, square = weight @ log_l.T, weight @ log_l.T**2
    variance = square - mean**2
    return -(mean**2) / variance * np.log1p(variance / -mean)


def direct(log_l, weight):
    return np.log(weight @ np.exp(log_l.T))


@pytest.mark.parametrize("estimator", ["gamma", "direct", "refit"])
def test_every_draw_counts_once_in_blocks_that_are_not_even(estimator):
    rng = np.random.default_rng(0)
    log_l = -20 + rng.normal(size=(NUM_FILES, NUM_CHAINS, NUM_DRAWS))
    num_posteriors = 1 + NUM_FILES if estimator == "refit" else 1
    log_weight = rng.normal(size=(num_posteriors, NUM_OTHERS, NUM_CHAINS * NUM_DRAWS))
    found = verdict(log_l, log_weight, estimator)
    with_truth = np.pad(log_weight, ((0, 0), (1, 0), (0, 0)))
    if estimator == "refit":
        own, *refits = np.log(np.exp(with_truth).mean(axis=2))
        log_rho = sum(refits) - len(refits) * own
    else:
        weight = np.exp(with_truth[0])
        weight /= weight.sum(axis=1, keepdims=True)
        of_file = gamma if estimator == "gamma" else direct
        log_rho = of_file(log_l.reshape(NUM_FILES, -1), weight).sum(axis=1)
    rho = np.exp(log_rho - log_rho.max())
    np.testing.assert_allclose(found.rho[0], rho / rho.sum(), rtol=1e-3)


@pytest.mark.parametrize("estimator", ["direct", "refit"])
def test_replicates_without_the_draws_that_dominate(estimator):
    """Draws whose likelihoods or weights are hundreds apart: the errors are those of float64."""
    rng = np.random.default_rng(1)
    log_l = 300 * rng.normal(size=(NUM_FILES, NUM_CHAINS, NUM_DRAWS))
    num_posteriors, scale = (1, 1) if estimator == "direct" else (1 + NUM_FILES, 300)
    log_weight = scale * rng.normal(size=(num_posteriors, NUM_OTHERS, NUM_CHAINS * NUM_DRAWS))
    found = verdict(log_l, log_weight, estimator)

    blocks = bootstrap.split_draws(log_l)
    counts = bootstrap.bootstrap_counts(jax.random.key(0), num_posteriors, len(blocks.index), 20)
    block_of_draw = np.zeros(log_l[0].size, int)
    for b, (index, present) in enumerate(zip(blocks.index, blocks.present, strict=True)):
        block_of_draw[index[present]] = b
    with_truth = np.pad(log_weight, ((0, 0), (1, 0), (0, 0)))

    def log_sums(terms, p):
        # (replicates, others)
        times = np.asarray(counts[p], float)[:, None, block_of_draw]
        return logsumexp(terms[None], b=times, axis=2)

    if estimator == "direct":
        of_files = (log_sums(with_truth[0] + log_l[m].ravel(), 0) for m in range(NUM_FILES))
        score = sum(of_files) - NUM_FILES * log_sums(with_truth[0], 0)
    else:
        score = sum(log_sums(with_truth[p], p) for p in range(1, num_posteriors))
        score = score - NUM_FILES * log_sums(with_truth[0], 0)
    odds = score - score[:, :1]
    np.testing.assert_allclose(found.standard_error[0, 1:], odds[1:, 1:].std(axis=0), rtol=1e-3)
