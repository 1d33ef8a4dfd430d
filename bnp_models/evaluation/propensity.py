"""Propensity scores: how well synthetic records can be distinguished from the original's."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from scipy import linalg, sparse
from scipy.special import expit, logit

from bnp_models.data.contingency import common_cells
from bnp_models.data.frames import Tabular
from bnp_models.data.microdata import Records
from bnp_models.evaluation.files import coded_files
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default

# This is added to the diagonal of the information matrix of logistic regressions, so that
# coefficients that the data do not determine (aliased or infinite) stay finite. Fitted values
# change by less than 1e-6.
_RIDGE = 1e-6

_MAX_STEPS, _TOLERANCE = 100, 1e-9

# Eigenvalues of a correlation matrix below this share of their sum belong to aliased columns.
_ALIASED = 1e-10


class PropensityScore(NamedTuple):
    """Propensity-score mean squared error (pMSE) of one synthetic file, and standardised figures.

    Examples
    --------
    >>> bnp.evaluation.propensity_score(table, table).pmse
    0.0
    """

    pmse: float
    """Mean squared difference of the propensity scores from the share of synthetic records; 0 if
    original and synthetic records cannot be distinguished."""
    parameters: int
    """Parameters of the logistic regression, without intercept and aliased columns: k - 1."""
    ratio: float
    """pMSE divided by its expected value if the file came from the right model with parameters
    estimated from the original (Snoke et al. 2018, doi:10.1111/rssa.12358). It is about 1 for such
    files."""
    z: float
    """(pMSE - expected) / standard deviation. It is about 0 for such files."""
    ratio_predictive: float
    """The same ratio for files that each have their own draw of the parameters, such as files from
    a posterior predictive distribution. The expected value is then that of a second sample."""
    z_predictive: float
    """z for such files."""


def propensity_score(
    original: Tabular,
    synthetic: Tabular,
    *,
    interactions: bool = False,
    max_parameters: int = 1000,
) -> PropensityScore:
    """Score how well a logistic regression distinguishes synthetic from original records.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.
    interactions
        Include the interactions of all pairs of variables, besides main effects.
    max_parameters
        Largest number of columns of the regression.

    Raises
    ------
    ValueError
        If schemas differ, a file has no complete record, or there are more columns.

    Notes
    -----
    The data of the regression are cells, not records. It is fitted by Newton's method with a ridge
    of 1e-6 of a record, so that columns that are combinations of others, and levels that only one
    file has, do no harm. Under the null hypothesis, the expected value is (k - 1) (1 - c)^2 c / N
    and the standard deviation sqrt(2 (k - 1)) (1 - c)^2 c / N, where N is the number of all
    records, c the share of synthetic records and k the number of parameters. For a second sample,
    (1 - c)^2 is replaced by (1 - c) in both.

    References
    ----------
    Snoke, J., Raab, G. M., Nowok, B., Dibben, C. & Slavkovic, A. (2018), General and specific
    utility measures for synthetic data, JRSS A 181, 663-688. doi:10.1111/rssa.12358

    Examples
    --------
    >>> score = bnp.evaluation.propensity_score(table, files[0])
    >>> score.ratio > 0
    True
    """
    original, (synthetic,), _ = coded_files(
        "propensity_score(original, synthetic)", original, [synthetic], complete=True
    )
    codes, of_files = common_cells([original, synthetic])
    counts, of_synthetic = of_files.sum(axis=0), of_files[1].astype(np.float64)
    design = _design(codes, counts, original.schema.num_levels, interactions, max_parameters)
    total, share = counts.sum(), of_synthetic.sum() / counts.sum()
    if np.array_equal(of_synthetic, share * counts):
        fitted = np.full(len(counts), share)
    else:
        fitted = _logistic_regression(design, of_synthetic, counts.astype(np.float64))
    pmse = float(counts @ (fitted - share) ** 2 / total)
    return standardised(pmse, _rank(design, counts), share, total)


def num_columns(tables: Sequence[Records], interactions: bool) -> int:
    """Largest possible number of columns of the regression of `propensity_score`.

    Parameters
    ----------
    tables
        All files that are to be compared.
    interactions
        Whether the regression has the interactions of all pairs of variables.
    """
    seen = [
        len(
            set(itertools.chain.from_iterable(np.unique(t.tabulated.codes[:, j]) for t in tables))
            - {-1}
        )
        - 1
        for j in range(tables[0].num_variables)
    ]
    pairs = sum(a * b for a, b in itertools.combinations(seen, 2)) if interactions else 0
    return sum(seen) + pairs


def standardised(pmse: float, parameters: int, share: float, total: int) -> PropensityScore:
    """Standardise the mean squared error of a regression.

    Parameters
    ----------
    pmse
        Mean squared error of the fitted values.
    parameters
        k - 1; if it is 0, the files cannot be distinguished, and all figures are 0.
    share
        Share c of the records that are synthetic.
    total
        Records N.
    """
    if parameters == 0:
        return PropensityScore(float(pmse), 0, 0.0, 0.0, 0.0, 0.0)
    figures = []
    for unit in ((1 - share) ** 2 * share / total, (1 - share) * share / total):
        figures += [
            float(pmse / (parameters * unit)),
            float((pmse / unit - parameters) / math.sqrt(2 * parameters)),
        ]
    return PropensityScore(float(pmse), int(parameters), *figures)


def _design(codes, counts, num_levels, interactions, max_parameters):
    """Sparse columns of 0 and 1: all levels except the most frequent one, and their products."""
    main = []
    for j, levels in enumerate(num_levels):
        frequency = np.bincount(codes[:, j], weights=counts, minlength=levels)
        column = np.full(levels, -1)
        kept = np.setdiff1d(np.flatnonzero(frequency), np.argmax(frequency))
        column[kept] = np.arange(len(kept))
        main.append((column[codes[:, j]], len(kept)))
    terms = list(main)
    if interactions:
        for (first, _), (second, size) in itertools.combinations(main, 2):
            both = (first >= 0) & (second >= 0)
            product = np.full(len(codes), -1)
            # Only products that occur are included; the others would be empty columns.
            seen, product[both] = np.unique(first[both] * size + second[both], return_inverse=True)
            terms.append((product, len(seen)))
    number = sum(size for _, size in terms)
    if number > max_parameters:
        raise ValueError(
            f"the regression would have {number:,} columns, more than the {max_parameters:,} "
            "allowed"
        )
    rows, columns, offset = [], [], 0
    for column, size in terms:
        inside = np.flatnonzero(column >= 0)
        rows.append(inside)
        columns.append(column[inside] + offset)
        offset += size
    rows, columns = (np.concatenate([np.zeros(0, int), *parts]) for parts in (rows, columns))
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(codes), number))


def _gram(design, weights):
    """X' W X, dense."""
    diagonal = sparse.dia_array((weights[None], [0]), shape=(len(weights),) * 2)
    return (design.T @ diagonal @ design).toarray()


def _rank(design, counts):
    """Number of columns that are linearly independent of each other and of the intercept."""
    if design.shape[1] == 0:
        return 0
    total = counts.sum()
    mean = counts @ design / total
    covariance = _gram(design, counts.astype(np.float64)) / total - np.outer(mean, mean)
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1
    values = linalg.eigvalsh(covariance / scale / scale[:, None])
    return int((values > _ALIASED * len(values)).sum())


def _logistic_regression(design, successes, trials):
    """Fitted probabilities of successes, by Newton's method with halved steps."""
    # The intercept is the first column.
    ones = sparse.csr_array(np.ones((design.shape[0], 1)))
    design = sparse.hstack([ones, design], format="csr")
    # The tolerance is large enough for the rounding errors of large counts.
    ridge = np.full(design.shape[1], max(_RIDGE, 1e-12 * trials.sum()))
    ridge[0] = 0

    def objective(beta, eta):
        # log(1 + exp(eta)) without overflow.
        return successes @ eta - trials @ np.logaddexp(0, eta) - ridge @ beta**2 / 2

    beta = np.zeros(design.shape[1])
    beta[0] = logit(successes.sum() / trials.sum())
    eta = design @ beta
    fitted, value = expit(eta), objective(beta, eta)
    for _ in range(_MAX_STEPS):
        gradient = design.T @ (successes - trials * fitted) - ridge * beta
        information = _gram(design, trials * fitted * (1 - fitted))
        information[np.diag_indices_from(information)] += ridge
        step = linalg.cho_solve(linalg.cho_factor(information), gradient)
        for _ in range(30):
            eta = design @ (beta + step)
            new = objective(beta + step, eta)
            if new >= value - 1e-12 * abs(value):
                break
            step /= 2
        beta, value, before, fitted = beta + step, new, fitted, expit(eta)
        if trials @ np.abs(fitted - before) < _TOLERANCE * trials.sum():
            break
    return fitted


# Least records of a leaf and least gain of a split, as in synthpop.
_LEAF, _GAIN = 5, 1e-8

_PERMUTATIONS = 10


class TreePropensity(NamedTuple):
    """Propensity-score mean squared error (pMSE) of one synthetic file, by a tree.

    Examples
    --------
    >>> bnp.evaluation.tree_propensity(table, files[0]).ratio >= 0
    True
    """

    pmse: float
    """Mean squared error."""
    expected: float
    """Expected value, estimated by permuting at random which records are synthetic."""
    ratio: float
    """pMSE divided by its expected value: about 1 if the records cannot be distinguished."""


def tree_propensity(
    original: Tabular, synthetic: Tabular, *, key: jax.Array | None = None
) -> TreePropensity:
    """Score how well a classification tree distinguishes synthetic from original records.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.
    key
        Random key of the permutations, and of a tree's choice between equal splits. Default:
        `jax.random.key(0)`.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    ValueError
        If schemas differ, or a file has no complete record.

    Notes
    -----
    The expected value is the mean over ten permutations of the indicator of synthetic records,
    because a tree also fits random differences (Snoke et al. 2018, doi:10.1111/rssa.12358, section
    3.3).

    Examples
    --------
    >>> score = bnp.evaluation.tree_propensity(table, files[0], key=jax.random.key(1))
    >>> 0 <= score.pmse <= 0.25
    True
    """
    from sklearn.tree import DecisionTreeClassifier

    original, (synthetic,), _ = coded_files(
        "tree_propensity(original, synthetic)", original, [synthetic], complete=True
    )
    codes, counts = common_cells([original, synthetic])
    records = np.concatenate([np.repeat(codes, number, axis=0) for number in counts])
    features = _indicators(records, original.schema.num_levels)
    made = np.repeat([0, 1], counts.sum(axis=1))
    rng = numpy_generator(key_or_default(key))
    state = int(rng.integers(2**31))

    def pmse(labels):
        tree = DecisionTreeClassifier(
            min_samples_leaf=_LEAF, min_impurity_decrease=_GAIN, random_state=state
        )
        fitted = tree.fit(features, labels).predict_proba(features)[:, 1]
        return float(np.mean((fitted - made.mean()) ** 2))

    value = pmse(made)
    expected = float(np.mean([pmse(rng.permutation(made)) for _ in range(_PERMUTATIONS)]))
    return TreePropensity(value, expected, value / expected if expected > 0 else 0.0)


def _indicators(codes, num_levels):
    """Sparse columns of 0 and 1, one for each level."""
    from scipy import sparse

    first = np.cumsum((0, *num_levels[:-1]))
    rows = np.repeat(np.arange(len(codes)), codes.shape[1])
    shape = (len(codes), sum(num_levels))
    ones = np.ones(codes.size, np.float32)
    return sparse.csc_matrix((ones, (rows, (codes + first).reshape(-1))), shape=shape)
