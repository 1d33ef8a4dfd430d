"""Combining rules: one inference from several synthetic or completed data sets."""

from typing import NamedTuple

import numpy as np


class Combined(NamedTuple):
    """A point estimate from several data sets, its variance and its degrees of freedom.

    Examples
    --------
    >>> combined = bnp.evaluation.combine_partially_synthetic([0.31, 0.29, 0.3], [0.01, 0.01, 0.01])
    >>> round(float(combined.estimate), 3)
    0.3
    """

    estimate: np.ndarray
    """Point estimates."""
    variance: np.ndarray
    """Variances of the estimates."""
    df: np.ndarray
    """Degrees of freedom of their t intervals; inf: normal."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the t interval of this confidence level."""
        from scipy.special import stdtrit

        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, not {level}")
        half = stdtrit(self.df, (1 + level) / 2) * np.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def combine_partially_synthetic(q, u) -> Combined:
    """Combine estimates from synthetic files as large as the sample: the rule for `synthesize`.

    T = ubar + b / M with (M - 1) (1 + M ubar / b)^2 degrees of freedom, where ubar is the mean of
    the variances within files and b the variance between their estimates.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, computed from each file as if it were the sample.

    Notes
    -----
    The rule was made for files in which some values of the sample are replaced. It also holds for
    files in which all values are replaced, if each file has as many records as the sample and its
    own draw of the parameters: the variance within a file then estimates the variance of the
    sample's own estimate. `synthesize` with its default number of rows makes such files. With other
    numbers of rows, multiply `u` by rows / n, or use `combine_fully_synthetic`, which needs more
    files for a stable variance.

    References
    ----------
    Reiter, J. P. (2003), Inference for partially synthetic, public use microdata sets, Survey
    Methodology 29. Reiter, J. P. & Raghunathan, T. E. (2007), doi:10.1198/016214507000000932.
    Raab, G. M., Nowok, B. & Dibben, C. (2016), doi:10.29012/jpc.v7i3.407, on complete synthesis.

    Examples
    --------
    >>> combined = bnp.evaluation.combine_partially_synthetic([0.31, 0.29, 0.3], [0.01, 0.01, 0.01])
    >>> low, high = combined.interval(0.95)
    >>> bool(low < 0.3 < high)
    True
    """
    num, estimate, within, between = _moments(q, u)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = (num - 1) * (1 + num * within / between) ** 2
    return Combined(estimate, within + between / num, np.where(between > 0, df, np.inf))


def combine_fully_synthetic(q, u, rows_per_record: float = 1.0) -> Combined:
    """Combine estimates from synthetic files of any size by the rule for fully synthetic data.

    T = (1 + 1 / M) b - ubar, with (M - 1) (1 - ubar / ((1 + 1 / M) b))^2 degrees of freedom. If T
    is not positive, it is replaced by ubar times `rows_per_record`, with M - 1 degrees of freedom.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    rows_per_record
        Records of a synthetic file for each record of the sample.

    Notes
    -----
    The rule holds for files of any size that are samples of a new population, such as those of
    `synthesize`. But T is a difference, which is often negative if M is below 20, and its
    replacement is only a rough estimate. For files of the sample's size
    `combine_partially_synthetic` estimates the same variance with far less noise. This rule is
    wrong for files that keep values of the sample.

    References
    ----------
    Raghunathan, T. E., Reiter, J. P. & Rubin, D. B. (2003), Multiple imputation for statistical
    disclosure limitation, Journal of Official Statistics 19, 1-16. Reiter, J. P. (2002), Journal of
    Official Statistics 18, 531-543, for the positive variance and the degrees of freedom.

    Examples
    --------
    >>> combined = bnp.evaluation.combine_fully_synthetic([0.31, 0.29, 0.30], [0.01, 0.01, 0.01])
    >>> round(float(combined.estimate), 3)
    0.3
    """
    num, estimate, within, between = _moments(q, u)
    variance = (1 + 1 / num) * between - within
    usable = variance > 0
    ratio = within / np.where(usable, (1 + 1 / num) * between, 1)
    df = np.where(usable, (num - 1) * (1 - ratio) ** 2, num - 1)
    return Combined(estimate, np.where(usable, variance, rows_per_record * within), df)


def combine_imputed(q, u, complete_df: float | None = None) -> Combined:
    """Combine estimates from completed files: the rule for `impute`.

    T = ubar + (1 + 1 / M) b.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    complete_df
        Degrees of freedom without missing values, such as n - 1 for a mean; infinite by default.

    Notes
    -----
    Do not use this rule for synthetic files: it would count the variance of their parameters twice.

    References
    ----------
    Rubin, D. B. (1987), doi:10.1002/9780470316696, chapter 3. Barnard, J. & Rubin, D. B. (1999),
    doi:10.1093/biomet/86.4.948: degrees of freedom in small samples.

    Examples
    --------
    >>> combined = bnp.evaluation.combine_imputed([0.31, 0.29, 0.30], [0.01, 0.01, 0.01])
    >>> round(float(combined.variance), 5)
    0.01013
    """
    num, estimate, within, between = _moments(q, u)
    added = (1 + 1 / num) * between
    variance = within + added
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(variance > 0, added / variance, 0)
        df = np.where(lost > 0, (num - 1) / lost**2, np.inf)
        if complete_df is not None:
            observed = (complete_df + 1) / (complete_df + 3) * complete_df * (1 - lost)
            df = 1 / (1 / df + 1 / observed)
    return Combined(estimate, variance, df)


def _moments(q, u):
    """Number of files, mean estimate, and variances within files and between them."""
    q, u = np.asarray(q, np.float64), np.asarray(u, np.float64)
    if q.shape != u.shape:
        raise ValueError(f"q and u have shapes {q.shape} and {u.shape}; expected the same")
    if q.ndim == 0 or len(q) < 2:
        raise ValueError("estimates of at least two data sets are needed, along the first axis")
    if (u < 0).any():
        raise ValueError("u must hold variances, but one of them is negative")
    return len(q), q.mean(axis=0), u.mean(axis=0), q.var(axis=0, ddof=1)


COMBINING_RULES = ("partially", "fully")


def combine(q, u, rows_per_record, rule: str = "partially") -> Combined:
    """Combine the estimates of M synthetic files.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    rows_per_record
        Records of each file for each record of the original; broadcasts with `q`.
    rule
        "partially": `combine_partially_synthetic` with the variances multiplied by
        `rows_per_record`, for partially synthetic files and for completely synthetic files of
        `synthesize`; "fully": `combine_fully_synthetic`, for other completely synthetic files.

    Returns
    -------
    combined
        Estimate and variance; for a single file, its own, because there is no variance between
        files.
    """
    if rule not in COMBINING_RULES:
        raise ValueError(f"the combining rule must be one of {COMBINING_RULES}, not {rule!r}")
    q, u = np.asarray(q, np.float64), np.asarray(u, np.float64)
    rows_per_record = np.broadcast_to(rows_per_record, q.shape)
    if len(q) == 1:
        return Combined(q[0], u[0] * rows_per_record[0], np.array(np.inf))
    if rule == "partially":
        return combine_partially_synthetic(q, u * rows_per_record)
    return combine_fully_synthetic(q, u, rows_per_record.mean(axis=0))


def proportion_interval(combined: Combined, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval of proportions, cut to [0, 1]: with few degrees of freedom it may be far wider.

    Parameters
    ----------
    combined
        Estimates of proportions.
    level
        Confidence level.
    """
    low, high = combined.interval(level)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def compare_with_original(q, rows, num_files: int, rule: str, level: float):
    """Compare the proportions of M synthetic files, combined, with those of the original.

    Parameters
    ----------
    q, rows
        Proportions, and the numbers of records or households that they are based on. The first axis
        is the original, the M files and, if it is known, the population.
    num_files
        M.
    rule
        Combining rule, as for `combine`.
    level
        Confidence level of the intervals.

    Returns
    -------
    synthetic, interval, original_interval, overlap
        Means over the files, the ends of the two intervals, and their overlap.
    """
    u, files = q * (1 - q) / rows, slice(1, 1 + num_files)
    combined = combine(q[files], u[files], rows[files] / rows[0], rule)
    interval = proportion_interval(combined, level)
    original = proportion_interval(Combined(q[0], u[0], np.array(np.inf)), level)
    return combined.estimate, interval, original, interval_overlap(original, interval)


def interval_overlap(first, second) -> np.ndarray:
    """Measure how much two intervals have in common: 0 nothing, 1 everything.

    Parameters
    ----------
    first, second
        Lower and upper ends, arrays that broadcast.

    Returns
    -------
    overlap
        The mean of two shares: the share of each interval that the other covers. A point inside an
        interval counts as covered; two equal points overlap by 1.

    References
    ----------
    Karr, A. F., Kohnen, C. N., Oganian, A., Reiter, J. P. & Sanil, A. P. (2006), A framework for
    evaluating the utility of data altered to protect confidentiality, The American Statistician
    60, 224-232. doi:10.1198/000313006X124640

    Examples
    --------
    >>> float(bnp.evaluation.interval_overlap((0.0, 1.0), (0.5, 1.5)))
    0.5
    """
    (low_1, high_1), (low_2, high_2) = (
        tuple(np.asarray(end, np.float64) for end in ends) for ends in (first, second)
    )
    common = np.minimum(high_1, high_2) - np.maximum(low_1, low_2)

    def covered(width):
        return np.where(width > 0, np.maximum(common, 0) / np.where(width > 0, width, 1), 1.0)

    shares = (covered(high_1 - low_1) + covered(high_2 - low_2)) / 2
    return np.where(common >= 0, shares, 0.0)
