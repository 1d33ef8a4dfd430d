"""Guesses of an intruder: kernel estimates, excess of tables and choices, by other ways."""

import numpy as np

from bnp_models.evaluation.attack import guesses

LEVELS = (2, 3, 4)
VARIABLE = np.repeat(np.arange(3), LEVELS)


def records(rng, number):
    return np.stack([rng.integers(size, size=number) for size in LEVELS], axis=1)


def persons(codes, possible=None):
    possible = np.ones((len(codes), sum(LEVELS)), bool) if possible is None else possible
    return guesses.Persons(codes, possible)


def by_hand(person, possible, codes, weights, decay):
    """Kernel estimate of each value of one person, in plain Python."""
    found = []
    for j, size in enumerate(LEVELS):
        sums = np.zeros(size)
        for record, weight in zip(codes, weights, strict=True):
            differ = sum(record[k] != person[k] for k in range(3) if k != j)
            sums[record[j]] += weight * decay**differ
        allowed = possible[VARIABLE == j]
        share = sums * allowed / (sums * allowed).sum()
        found.append(0.99 * share + 0.01 * allowed / allowed.sum())
    return np.concatenate(found)


def test_kernel_estimates_by_hand(monkeypatch):
    monkeypatch.setattr(guesses, "_PAIRS_AT_ONCE", 100)
    rng = np.random.default_rng(0)
    known = guesses.Weighted(records(rng, 30), rng.gamma(2, size=30))
    codes, possible = records(rng, 8), rng.random((8, sum(LEVELS))) < 0.8
    np.put_along_axis(possible, codes + np.array([0, 2, 5]), True, axis=1)
    found = guesses.kernel_estimates(persons(codes, possible), known, LEVELS)
    for a, person in enumerate(codes):
        for d, decay in enumerate(guesses.DECAYS):
            expected = by_hand(person, possible[a], *known, decay)
            np.testing.assert_allclose(found[a, :, d], expected, rtol=1e-5, atol=1e-7)


def test_excess_of_tables_by_counting_without_the_person():
    rng = np.random.default_rng(1)
    files = guesses.Weighted(records(rng, 50), np.ones(50))
    known = guesses.Weighted(records(rng, 30), rng.gamma(2, size=30))
    inside, own = np.arange(6) < 4, rng.permutation(30)[:6]
    codes = np.where(inside[:, None], known.codes[own], records(rng, 6))
    weights = np.where(inside, known.weights[own], 0)
    made = guesses.two_way(files, LEVELS) / 50
    found = guesses.excess_of_tables(codes, weights, made, known, LEVELS)

    def count(table, *pairs):
        """Weight of the records with these values of these variables."""
        have = np.all([table.codes[:, k] == value for k, value in pairs], axis=0)
        return table.weights[have].sum()

    for a, person in enumerate(codes):
        some = (np.arange(30) != own[a]) | ~inside[a]
        others = guesses.Weighted(known.codes[some], known.weights[some])
        scale = (others.weights.sum() + (weights[a] if inside[a] else 1)) / 50
        for r, j in enumerate(VARIABLE):
            value = r - np.searchsorted(VARIABLE, j)
            by_count = by_root = 0.0
            for k in range(3):
                if k != j:
                    cell = (j, value), (k, person[k])
                    made, seen = scale * count(files, *cell), count(others, *cell)
                    by_count += (made - seen) / (made + seen + 1)
                    by_root += (made - seen) / np.sqrt(made + seen + 1)
            made, seen = scale * count(files, (j, value)), count(others, (j, value))
            expected = by_count, by_root, (made - seen) / (made + seen + 1)
            np.testing.assert_allclose(found[a, r], expected, rtol=1e-4, atol=1e-5)


def test_choices_are_fitted():
    """Coefficients by which values were drawn are found again, and impossible values left out."""
    rng = np.random.default_rng(2)
    clues, beta = np.float32(rng.normal(size=(3000, sum(LEVELS), 2))), np.array([1.0, -0.5])
    possible = rng.random((3000, sum(LEVELS))) < 0.8
    possible[:, [0, 2, 5]] = True
    odds = np.exp(clues @ beta) * possible
    codes = np.empty((3000, 3), int)
    for j in range(3):
        share = odds[:, VARIABLE == j].cumsum(axis=1)
        codes[:, j] = (rng.random((3000, 1)) * share[:, -1:] > share).sum(axis=1)
    whom = persons(codes, possible)
    found = guesses.fit_choices(clues, whom, LEVELS)
    np.testing.assert_allclose(found, beta, atol=0.1)
    probability = guesses.choice_probabilities(clues, beta, whom, LEVELS)
    for j in range(3):
        some = odds[:, VARIABLE == j]
        expected = some / some.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(probability[:, VARIABLE == j], expected, rtol=1e-4, atol=1e-6)


def test_ties_share_the_first_place():
    probabilities = np.array([[0.5, 0.5, 0.2, 0.4, 0.4, 0.1, 0.2, 0.3, 0.4]])
    found = guesses.judge_guesses(probabilities, np.array([[0, 2, 1]]), LEVELS)
    np.testing.assert_allclose(found.right, [[0.5, 0.5, 0]])
    np.testing.assert_allclose(found.probability, [[0.5, 0.4, 0.2]])
