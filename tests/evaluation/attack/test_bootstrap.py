"""The verdict on the targets of an attack: its figures by hand, draws in blocks of any length."""

import jax
import numpy as np
import pytest

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
