"""Memory grows with the number of synthetic files, not with its square."""

import tracemalloc

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.evaluation.attack.targets import RecordTargets

SCHEMA = bnp.Schema(tuple("abcdef"), (tuple(range(10)),) * 6)


def files_of(number):
    """Records that are nearly all different."""
    rng = np.random.default_rng(0)
    return [bnp.Microdata(SCHEMA, rng.integers(0, 10, (500, 6))) for _ in range(number)]


def draws_of(number, classes=3):
    """Draws of a latent class model from its prior."""
    rng = np.random.default_rng(1)
    levels = [rng.dirichlet(np.ones(10), (number, classes)) for _ in SCHEMA.variables]
    levels = np.concatenate(levels, axis=2).swapaxes(1, 2).astype(np.float32)
    weights = rng.dirichlet(np.ones(classes), number).astype(np.float32)
    of_zeros = {"log_feasible": np.zeros(number, np.float32)}
    return {"log_pi": np.log(weights), "log_lambda": np.log(levels)} | of_zeros


def log_likelihood(original, files):
    targets = RecordTargets(original, None, None)
    return targets.log_likelihood(draws_of(20), files, jax.random.key(0), False)


MEASURES = {
    "replicated uniques": bnp.evaluation.replicated_uniques,
    "disclosure": lambda original, files: bnp.evaluation.disclosure(
        original, files, "abcde", ["f"]
    ),
    "likelihood of files": log_likelihood,
}


@pytest.mark.parametrize("name", MEASURES)
def test_memory_grows_no_faster_than_the_number_of_files(name):
    original, *files = files_of(129)
    peaks = []
    for number in (32, 128):
        tracemalloc.start()
        MEASURES[name](original, files[:number])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0]


def test_uniques_by_the_counts_of_all_files_together():
    original, *files = files_of(6)
    files[2] = bnp.Microdata(SCHEMA, np.concatenate([files[2].codes, original.codes[:50]]))
    files[4] = bnp.Microdata(SCHEMA, np.concatenate([original.codes[20:70]] * 2))
    cells = {tuple(row) for row in original.codes}
    times = [
        [sum((file.codes == cell).all(axis=1)) for file in (original, *files)] for cell in cells
    ]
    there = np.array([row[1:] for row in times if row[0] == 1])
    found = bnp.evaluation.replicated_uniques(original, files)
    assert found.uniques == len(there)
    assert found.found == tuple((there > 0).sum(axis=0))
    assert found.found_unique == tuple((there == 1).sum(axis=0))
    assert found.in_any == (there > 0).any(axis=1).sum()
    assert found.in_all == (there > 0).all(axis=1).sum()


def test_likelihood_of_files_is_the_sum_over_records():
    original, *files = files_of(4)
    draws = draws_of(20)
    # Sums over classes, in double precision.
    expected = np.zeros((3, 20))
    for d in range(20):
        levels = draws["log_lambda"][d].astype(float).reshape(6, 10, 3)
        for m, file in enumerate(files):
            of_classes = draws["log_pi"][d].astype(float) + sum(
                levels[j, file.codes[:, j]] for j in range(6)
            )
            expected[m, d] = np.logaddexp.reduce(of_classes, axis=1).sum()
    found = log_likelihood(original, files)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
