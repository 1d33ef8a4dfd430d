"""Guesses of an intruder who knows all values of a person but one, and sees synthetic files.

Files are data to the intruder, whatever made them. For variable j of a person x, a kernel estimate
of value v (Aitchison & Aitken 1976, doi:10.1093/biomet/63.3.413) is

    p(v | x_-j)  proportional to  sum_r  w_r decay^d_j(x, r) [r_j = v]

over the records r of the files, with d_j the number of the other variables in which r differs from
x. With a small decay it uses the closest records, with a large one it smooths over more of them.

An intruder who also knows all other records of the sample makes the same estimates from these, and
compares their tables with those of the files. With the tables t of the files, scaled to the size of
the sample, and the tables T of the records that he knows, the excess t - T of a cell (v, x_k)
contains the person if v is the truth.

The intruder combines the estimates, and the excesses if he knows them, in a conditional logit model
(McFadden 1974). He fits it to other persons of the sample, so that he knows how far values follow
from these files.
"""

from typing import NamedTuple

import numpy as np

from bnp_models.kernels.numerics.counting import first_rows

DECAYS = (0.02, 0.1, 0.3)
"""Factors by which the weight of a record decreases with each variable in which it differs."""

NUM_CLUES = 2 * len(DECAYS) + 3
"""Number P of figures by which a value is described (`clues`)."""

# Share of each kernel estimate that is divided equally among the possible values.
_EQUAL = 0.01

# Largest number of pairs of persons and records at once.
_PAIRS_AT_ONCE = 2**23

# Precision of the prior of each coefficient of the conditional logit model.
_RIDGE = 1.0


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
    own: np.ndarray | None
    """(A,) position of each among the records that an intruder knows; None if they are not there.
    He does not know this one."""

    def at(self, rows: np.ndarray) -> "Persons":
        """Some of the persons."""
        own = None if self.own is None else self.own[rows]
        return Persons(self.codes[rows], self.possible[rows], own)


class Guesses(NamedTuple):
    """How well values are guessed."""

    right: np.ndarray
    """(A, J) 1 if the truth is the first guess; its share of the first place if there are ties."""
    probability: np.ndarray
    """(A, J) probability that the intruder gives to the truth."""


def kernel_estimates(
    persons: Persons, known: Weighted, num_levels: tuple[int, ...], apart: bool = False
) -> np.ndarray:
    """Estimate the probability of each value of each variable given the person's other values.

    Parameters
    ----------
    persons
        A persons.
    known
        Records from which the estimates are made.
    num_levels
        Levels of each variable, R in all.
    apart
        Whether the record of each person (`Persons.own`) is left out of `known`.

    Returns
    -------
    probabilities : (D, A, R) float32 array
        For each of `DECAYS`; they sum to one over the possible levels of each variable.
    """
    records = _one_hot(known.codes, num_levels)
    weights = known.weights.astype(np.float32)
    found = np.empty((len(DECAYS), *persons.possible.shape), np.float32)
    step = max(1, _PAIRS_AT_ONCE // len(records))
    for start in range(0, len(persons.codes), step):
        part = slice(start, start + step)
        agreeing = _one_hot(persons.codes[part], num_levels) @ records.T
        if apart and persons.own is not None:
            agreeing[np.arange(len(agreeing)), persons.own[part]] = -np.inf
        differing = agreeing.max(axis=1, keepdims=True) - agreeing
        truth = persons.codes[part] + first_rows(num_levels)
        for d, decay in enumerate(DECAYS):
            sums = (np.exp(np.float32(np.log(decay)) * differing) * weights) @ records
            # Records with the true value agree in one variable that does not count.
            own = np.take_along_axis(sums, truth, axis=1) * decay
            np.put_along_axis(sums, truth, own, axis=1)
            found[d, part] = sums
    found *= persons.possible
    for block in _variables(num_levels):
        some = persons.possible[:, block]
        equal = some / some.sum(axis=1, keepdims=True)
        total = found[..., block].sum(axis=-1, keepdims=True)
        share = np.divide(found[..., block], total, where=total > 0, out=0 * found[..., block])
        found[..., block] = np.where(total > 0, (1 - _EQUAL) * share + _EQUAL * equal, equal)
    return found


def together(files: list[Weighted]) -> Weighted:
    """Records of all files."""
    return Weighted(*map(np.concatenate, zip(*files, strict=True)))


def excess_of_tables(
    persons: Persons, files: Weighted, known: Weighted, num_levels: tuple[int, ...]
) -> np.ndarray:
    """Compare the tables of files with those of the records that an intruder knows.

    Parameters
    ----------
    persons
        A persons.
    files
        Records of all files together.
    known
        Records of the sample, the persons' own included if `Persons.own` says so. The intruder
        knows all of them but the person's.
    num_levels
        Levels of each variable, R in all.

    Returns
    -------
    excess : (A, R, 3) float64 array
        For each value v: the sum over the other variables k of (t - T) / (t + T + 1) and of
        (t - T) / sqrt(t + T + 1), for the cell (v, x_k) of two variables; and the first of these
        for the table of one variable.
    """
    weight = np.ones(len(persons.codes)) if persons.own is None else known.weights[persons.own]
    made = _two_way(files, num_levels)
    seen = _two_way(known, num_levels)
    # The person counts as one more record, if he is not among the known ones.
    total = known.weights.sum() + (1.0 if persons.own is None else 0.0)
    made *= total / files.weights.sum()
    ours = _one_hot(persons.codes, num_levels)
    variable = np.repeat(np.arange(len(num_levels)), num_levels)
    others = variable[:, None] != variable
    found = np.empty((*persons.possible.shape, 3))
    by_count, by_root = _excess(made, seen)
    found[..., 0], found[..., 1] = ours @ (by_count * others), ours @ (by_root * others)
    found[..., 2] = by_count.diagonal()
    if persons.own is None:
        return found
    # Cells of the true values contain the person, whom the intruder does not know.
    truth = persons.codes + first_rows(num_levels)
    cells = truth[:, :, None], truth[:, None, :]
    by_count, by_root = _excess(made[cells], seen[cells] - weight[:, None, None])
    apart = ~np.eye(len(num_levels), dtype=bool)
    rows = np.arange(len(truth))[:, None]
    found[rows, truth, 0] = (by_count * apart).sum(axis=2)
    found[rows, truth, 1] = (by_root * apart).sum(axis=2)
    found[rows, truth, 2] = by_count.diagonal(axis1=1, axis2=2)
    return found


def clues(
    persons: Persons, files: Weighted, known: Weighted, num_levels: tuple[int, ...]
) -> np.ndarray:
    """Describe each value of each variable by what an intruder knows.

    Returns
    -------
    clues : (A, R, P) float32 array
        Log kernel estimates from the files, which need nothing but the files; and, for an intruder
        who knows all other records, those from these, and the excess of tables.
    """
    of_files = kernel_estimates(persons, files, num_levels)
    of_known = kernel_estimates(persons, known, num_levels, apart=True)
    # A value that is impossible has no probability.
    logs = np.log(np.maximum(np.concatenate([of_files, of_known]), 1e-6))
    excess = excess_of_tables(persons, files, known, num_levels)
    return np.concatenate([np.moveaxis(logs, 0, -1), excess], axis=-1, dtype=np.float32)


def fit_choices(found: np.ndarray, persons: Persons, num_levels: tuple[int, ...]) -> np.ndarray:
    """Fit the conditional logit model of the true values among all values.

    Parameters
    ----------
    found : (A, R, P) array
        Result of `clues`.
    persons
        The A persons, whose values are known.
    num_levels
        Levels of each variable.

    Returns
    -------
    coefficients : (P,) float64 array
        Posterior mode under independent standard normal priors, for clues in units of their
        standard deviations.
    """
    from scipy.optimize import minimize

    scale = _scale(found)
    truth = persons.codes + first_rows(num_levels)
    at_truth = np.take_along_axis(found, truth[:, :, None], axis=1).sum(axis=(0, 1), dtype=float)

    def loss(beta):
        probability, log_total = _choice(found @ np.float32(beta / scale), persons, num_levels)
        expected = np.einsum("ar,arp->p", probability, found, dtype=np.float64)
        value = log_total - at_truth @ (beta / scale) + _RIDGE / 2 * beta @ beta
        return value, (expected - at_truth) / scale + _RIDGE * beta

    return minimize(loss, np.zeros(found.shape[2]), jac=True, method="L-BFGS-B").x / scale


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


def _two_way(records: Weighted, num_levels: tuple[int, ...]) -> np.ndarray:
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
