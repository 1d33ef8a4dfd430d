"""Guesses of an intruder who knows all values of a person but one, and sees synthetic files.

Files are data to the intruder, whatever made them. For variable j of a person x, a kernel estimate
of value v (Aitchison & Aitken 1976, doi:10.1093/biomet/63.3.413) is

    p(v | x_-j)  proportional to  sum_r  w_r decay^d_j(x, r) [r_j = v]

over the records r of the files, with d_j the number of the other variables in which r differs from
x. With a small decay it uses the closest records, with a large one it smooths over more of them.

An intruder who also knows all other records of the sample compares their tables with those of the
files. With the tables t of the files, scaled to the size of the sample, and the tables T of the
records that he knows, the excess t - T of a cell (v, x_k) contains the person if v is the truth.

The intruder combines the estimates, and the excesses if he knows them, in a conditional logit model
(McFadden 1974). He fits it to other persons of the sample, so that he knows how far values follow
from these files.
"""

from typing import NamedTuple

import numpy as np

from bnp_models.kernels.numerics.counting import first_rows

DECAYS = (0.02, 0.1, 0.3)
"""Factors by which the weight of a record decreases with each variable in which it differs."""

# Share of each kernel estimate that is divided equally among the possible values.
_EQUAL = 0.01

# Largest number of pairs of persons and records at once.
_PAIRS_AT_ONCE = 2**23

# Precision of the prior of each coefficient of the conditional logit model; largest number of
# Newton steps, and squared length of a step, in standard errors, that is the last one.
_RIDGE, _STEPS, _CLOSE = 1.0, 50, 1e-4


class Weighted(NamedTuple):
    """Records with weights."""

    codes: np.ndarray
    """(N, J) level codes."""
    weights: np.ndarray
    """(N,) weights."""


class Persons(NamedTuple):
    """Persons whose values are guessed, one at a time."""

    codes: np.ndarray
    """(A, J) level codes."""
    possible: np.ndarray
    """(A, R) whether each level of each variable is possible, given the other values."""

    def at(self, which: np.ndarray) -> "Persons":
        """Some of the persons."""
        return Persons(self.codes[which], self.possible[which])


class Guesses(NamedTuple):
    """How well values are guessed."""

    right: np.ndarray
    """(A, J) 1 if the truth is the first guess; its share of the first place if there are ties."""
    probability: np.ndarray
    """(A, J) probability that the intruder gives to the truth."""


def kernel_estimates(persons: Persons, known: Weighted, num_levels: tuple[int, ...]) -> np.ndarray:
    """Estimate the probability of each value of each variable given the person's other values.

    Parameters
    ----------
    persons
        A persons.
    known
        Records from which the estimates are made.
    num_levels
        Levels of each variable, R in all.

    Returns
    -------
    probabilities : (A, R, D) float32 array
        For each of `DECAYS`; they sum to one over the possible levels of each variable.
    """
    records = _one_hot(known.codes, num_levels)
    weights = known.weights.astype(np.float32)
    found = np.empty((*persons.possible.shape, len(DECAYS)), np.float32)
    step = max(1, _PAIRS_AT_ONCE // len(records))
    for start in range(0, len(persons.codes), step):
        part = slice(start, start + step)
        agreeing = _one_hot(persons.codes[part], num_levels) @ records.T
        differing = agreeing.max(axis=1, keepdims=True) - agreeing
        truth = persons.codes[part] + first_rows(num_levels)
        for d, decay in enumerate(DECAYS):
            sums = (np.exp(np.float32(np.log(decay)) * differing) * weights) @ records
            # Records with the true value agree in one variable that does not count.
            own = np.take_along_axis(sums, truth, axis=1) * decay
            np.put_along_axis(sums, truth, own, axis=1)
            found[part, :, d] = sums
    found *= persons.possible[:, :, None]
    for block in _variables(num_levels):
        some = persons.possible[:, block, None]
        equal = some / some.sum(axis=1, keepdims=True)
        total = found[:, block].sum(axis=1, keepdims=True)
        share = np.divide(found[:, block], total, where=total > 0, out=0 * found[:, block])
        found[:, block] = np.where(total > 0, (1 - _EQUAL) * share + _EQUAL * equal, equal)
    return found


def clues_of_files(persons: Persons, files: Weighted, num_levels: tuple[int, ...]) -> np.ndarray:
    """(A, R, D) logarithms of `kernel_estimates`, which need nothing but the files."""
    # An impossible value has no probability, and is never guessed.
    return np.log(np.maximum(kernel_estimates(persons, files, num_levels), 1e-6))


def together(files: list[Weighted]) -> Weighted:
    """Records of all files."""
    return Weighted(*map(np.concatenate, zip(*files, strict=True)))


def excess_of_tables(
    codes: np.ndarray,
    weights: np.ndarray,
    made: np.ndarray,
    known: Weighted,
    num_levels: tuple[int, ...],
) -> np.ndarray:
    """Compare the tables of files with those of the records that an intruder knows.

    Parameters
    ----------
    codes : (A, J) integer array
        Values of the persons.
    weights : (A,) array
        Weight of each person among the known records, whom the intruder does not know; 0 if the
        person is not among them.
    made : (R, R) array
        Share of the records of the files that have each pair of levels.
    known
        Records of the sample.
    num_levels
        Levels of each variable, R in all.

    Returns
    -------
    excess : (A, R, 3) float32 array
        For each value v: the sum over the other variables k of (t - T) / (t + T + 1) and of
        (t - T) / sqrt(t + T + 1), for the cell (v, x_k) of two variables; and the first of these
        for the table of one variable.
    """
    seen = two_way(known, num_levels)
    apart = ~np.eye(len(num_levels), dtype=bool)
    found = np.empty((len(codes), len(seen), 3), np.float32)
    # A person who is not among the known records is one more.
    for who, total in ((weights > 0, 0), (weights == 0, 1)):
        tables = made * (known.weights.sum() + total)
        ours, truth = _one_hot(codes[who], num_levels), codes[who] + first_rows(num_levels)
        by_count, by_root = _excess(tables, seen)
        of_value = np.empty((len(ours), len(seen), 3))
        # No record has two levels of one variable.
        of_value[..., 0], of_value[..., 1] = ours @ by_count, ours @ by_root
        of_value[..., 2] = by_count.diagonal()
        # Cells of the true values contain the person, if he is known.
        cells = truth[:, :, None], truth[:, None, :]
        by_count, by_root = _excess(tables[cells], seen[cells] - weights[who, None, None])
        at_truth = [(by_count * apart).sum(axis=2), (by_root * apart).sum(axis=2)]
        at_truth.append(by_count.diagonal(axis1=1, axis2=2))
        of_value[np.arange(len(truth))[:, None], truth] = np.stack(at_truth, axis=-1)
        found[who] = of_value
    return found


def fit_choices(
    found: np.ndarray,
    persons: Persons,
    num_levels: tuple[int, ...],
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Fit the conditional logit model of the true values among all values.

    Parameters
    ----------
    found : (A, R, P) array
        P clues to each value of each variable.
    persons
        The A persons, whose values are known.
    num_levels
        Levels of each variable.
    start : (P,) array, optional
        Coefficients with which the search begins.

    Returns
    -------
    coefficients : (P,) float64 array
        Posterior mode under independent standard normal priors, for clues in units of their
        standard deviations.
    """
    scale = _scale(found)
    truth = persons.codes + first_rows(num_levels)
    at_truth = np.take_along_axis(found, truth[:, :, None], axis=1).sum(axis=(0, 1), dtype=float)

    def loss(beta):
        probability, log_total = _choice(found @ np.float32(beta / scale), persons, num_levels)
        return probability, log_total - at_truth @ (beta / scale) + _RIDGE / 2 * beta @ beta

    beta = np.zeros(found.shape[2]) if start is None else start * scale
    probability, value = loss(beta)
    for _ in range(_STEPS):
        mean, information = _moments(found, probability, num_levels)
        gradient = (mean - at_truth) / scale + _RIDGE * beta
        curvature = information / np.outer(scale, scale) + _RIDGE * np.eye(len(beta))
        step = np.linalg.solve(curvature, gradient)
        while (new := loss(beta - step))[1] > value + 1e-9 * abs(value):
            step = step / 2
        beta, (probability, value) = beta - step, new
        if gradient @ step < _CLOSE:
            break
    return beta / scale


def _moments(
    found: np.ndarray, probability: np.ndarray, num_levels: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Expectation (P,) and covariance (P, P) of the sum of the clues to the values chosen."""
    mean, second = np.zeros(found.shape[2]), np.zeros((found.shape[2],) * 2)
    for block in _variables(num_levels):
        weighted = found[:, block] * probability[:, block, None]
        of_person = weighted.sum(axis=1, dtype=np.float64)
        mean += of_person.sum(axis=0)
        second += np.tensordot(weighted, found[:, block], axes=([0, 1], [0, 1]))
        second -= of_person.T @ of_person
    return mean, second


def choice_probabilities(
    found: np.ndarray, coefficients: np.ndarray, persons: Persons, num_levels: tuple[int, ...]
) -> np.ndarray:
    """(A, R) probability of each value of each variable under the conditional logit model."""
    return _choice(found @ np.float32(coefficients), persons, num_levels)[0]


def judge_guesses(
    probabilities: np.ndarray, codes: np.ndarray, num_levels: tuple[int, ...]
) -> Guesses:
    """Judge the guesses of all values: (A, R) probabilities against (A, J) true codes."""
    right = np.empty(codes.shape)
    truth = np.take_along_axis(probabilities, codes + first_rows(num_levels), axis=1)
    for j, block in enumerate(_variables(num_levels)):
        best = probabilities[:, block].max(axis=1, keepdims=True) * (1 - 1e-6)
        first = probabilities[:, block] >= best
        right[:, j] = (truth[:, j] >= best[:, 0]) / first.sum(axis=1)
    return Guesses(right, truth.astype(float))


def _variables(num_levels: tuple[int, ...]) -> list[slice]:
    """Levels of each variable among all levels."""
    starts = first_rows(num_levels)
    return [slice(a, a + size) for a, size in zip(starts, num_levels, strict=True)]


def _one_hot(codes: np.ndarray, num_levels: tuple[int, ...]) -> np.ndarray:
    """(N, R) whether a record has each level of each variable, as float32."""
    found = np.zeros((len(codes), sum(num_levels)), np.float32)
    np.put_along_axis(found, codes + first_rows(num_levels), 1, axis=1)
    return found


def two_way(records: Weighted, num_levels: tuple[int, ...]) -> np.ndarray:
    """(R, R) weight of the records that have each pair of levels."""
    indicators = _one_hot(records.codes, num_levels)
    return (indicators.T * records.weights) @ indicators


def _excess(made: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Excess of counts in units of their number, and of its root."""
    number = made + seen + 1
    return (made - seen) / number, (made - seen) / np.sqrt(number)


def _scale(found: np.ndarray) -> np.ndarray:
    """(P,) standard deviation of each clue; one if it is constant."""
    sd = found.std(axis=(0, 1), dtype=np.float64)
    return np.where(sd > 0, sd, 1)


def _choice(
    log_odds: np.ndarray, persons: Persons, num_levels: tuple[int, ...]
) -> tuple[np.ndarray, float]:
    """Probabilities (A, R) by variable, and the sum of the logarithms of their denominators."""
    log_odds = np.where(persons.possible, log_odds, -np.inf)
    total = 0.0
    for block in _variables(num_levels):
        top = log_odds[:, block].max(axis=1, keepdims=True)
        odds = np.exp(log_odds[:, block] - top)
        sums = odds.sum(axis=1, keepdims=True)
        log_odds[:, block] = odds / sums
        total += float((np.log(sums) + top).sum(dtype=np.float64))
    return log_odds, total
