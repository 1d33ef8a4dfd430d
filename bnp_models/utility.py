"""Utility of synthetic data: how near what is computed from them is to what the original says.

Proportions of all cells of all one-, two- and three-way tables with their intervals, the overlap
of these with the original's, propensity scores, and shares of households of which a rule is true.
Files are :class:`Microdata` of one schema; a record counts in the tables of whose variables it has
all values.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg, sparse
from scipy.special import expit, logit

from bnp_models.households import Households
from bnp_models.microdata import Microdata, Schema, group_cells
from bnp_models.rules import Rules
from bnp_models.synthesis import Combined, combine_fully_synthetic, combine_partially_synthetic

COMBINING_RULES = ("partially", "fully")

# Added to the diagonal of the information of logistic regressions: coefficients that the data do
# not settle (aliased, or infinite) stay finite, and fitted values move by less than 1e-6.
_RIDGE = 1e-6
_MAX_STEPS, _TOLERANCE = 100, 1e-9
# Eigenvalues of a correlation matrix below this share of the largest are those of aliases.
_ALIASED = 1e-10


@dataclass(frozen=True, eq=False)
class Proportions:
    """Proportions of the C cells of all T tables of one order.

    Intervals are those of one confidence level. Overlap and coverage are judged of cells that
    enough records of the original are in, and enough are not, for a normal interval to make sense.
    """

    schema: Schema
    order: int
    tables: np.ndarray
    """(T, order) positions of each table's variables."""
    left_out: int
    """Tables that were not made, because they are too many or too large."""
    table: np.ndarray
    """(C,) index into `tables`."""
    count: np.ndarray
    """(C,) records of the original."""
    original: np.ndarray
    """(C,) proportions."""
    synthetic: np.ndarray
    """(C,) means of the proportions in the files."""
    interval: tuple[np.ndarray, np.ndarray]
    """(C,) ends of the intervals from the synthetic files, by the combining rule, cut to [0, 1]."""
    original_interval: tuple[np.ndarray, np.ndarray]
    """(C,) ends of q +- z sqrt(q (1 - q) / n), from the original, cut to [0, 1]."""
    judged: np.ndarray
    """(C,) bool: cells of which overlap and coverage are judged."""
    overlap: np.ndarray
    """(C,) overlap of the two intervals, from 0 to 1; NaN where it is not judged."""
    population: np.ndarray | None
    """(C,) proportions in the population, where that is known."""
    fit: pd.DataFrame
    """A row a table, the worst first: `variables`, `cells` that are not empty, `tvd` (total
    variation distance) and `pmse_ratio` (of the propensity score of the table's cells)."""

    def covered(self, of: str = "original", by: str = "synthetic") -> np.ndarray:
        """Which of the judged cells have their proportion inside the interval.

        Parameters
        ----------
        of
            "original" or "population".
        by
            The interval: "synthetic" or "original".
        """
        value = getattr(self, of)
        if value is None:
            raise ValueError("no population was given")
        low, high = self.interval if by == "synthetic" else self.original_interval
        return ((low <= value) & (value <= high))[self.judged]

    def summary(self) -> dict:
        """Figures for evaluation.json; shares are None where no cell is judged."""
        away = np.abs(self.synthetic - self.original)
        overlap = self.overlap[self.judged]

        def share(values):
            return float(np.mean(values)) if len(values) else None

        found = {
            "tables": len(self.tables),
            "tables_left_out": self.left_out,
            "cells": len(self.original),
            "cells_judged": int(self.judged.sum()),
            "mean_difference": float(away.mean()),
            "largest_difference": float(away.max()),
            "mean_tvd": float(self.fit["tvd"].mean()),
            "overlap": share(overlap),
            "overlap_below_half": share(overlap < 0.5),
            "covers_original": share(self.covered()),
        }
        if self.population is not None:
            found["mean_difference_from_population"] = float(
                np.abs(self.synthetic - self.population).mean()
            )
            found["original_mean_difference_from_population"] = float(
                np.abs(self.original - self.population).mean()
            )
            found["covers_population"] = share(self.covered("population"))
            found["original_covers_population"] = share(self.covered("population", "original"))
        return found


def proportions(
    original: Microdata,
    synthetic: Sequence[Microdata],
    order: int,
    *,
    population: Microdata | None = None,
    combining: str = "partially",
    level: float = 0.95,
    min_count: int = 10,
    max_tables: int = 1000,
    max_cells: int = 1_000_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Proportions:
    """Compare the proportions of all cells of all tables of some variables at a time.

    Parameters
    ----------
    original
        The records that the synthetic ones stand for.
    synthetic
        M files of the same schema.
    order
        Number of variables of a table.
    population
        Records of the whole population, where it is known, in the same schema.
    combining
        "partially" or "fully": see `combined`.
    level
        Confidence level of the intervals.
    min_count
        Overlap and coverage are judged of cells with at least so many records of the original
        inside and outside.
    max_tables, max_cells
        Where there are more tables, or their cells together are more, as many as these allow are
        chosen at random.
    seed
        Of that choice.
    progress
        Called with the number of tables done and of all.

    Raises
    ------
    ValueError
        If no file is given, schemas differ, `order` is not from 1 to the number of variables, no
        table is small enough, or a table has no complete record.

    References
    ----------
    Karr, A. F. et al. (2006), doi:10.1198/000313006X124640: overlap. Raab, G. M., Nowok, B. &
    Dibben, C. (2021), doi:10.48550/arXiv.2109.12717: propensity scores of tables.
    """
    _check_files(original, synthetic, population)
    schema = original.schema
    if not 1 <= order <= len(schema.variables):
        raise ValueError(f"order must be from 1 to {len(schema.variables)}, not {order}")
    tables, left_out = _chosen_tables(schema.num_levels, order, max_tables, max_cells, seed)
    files = [original, *synthetic] + ([] if population is None else [population])
    # One contiguous column a variable.
    columns = [np.ascontiguousarray(file.codes.T).astype(np.int64) for file in files]
    incomplete = [(column < 0).any(axis=1) for column in columns]
    counts = []
    for done, table in enumerate(tables):
        counts.append(
            np.stack([
                _table_counts(column, missing, table, schema.num_levels)
                for column, missing in zip(columns, incomplete, strict=True)
            ])
        )  # fmt: skip
        if (counts[-1].sum(axis=1) == 0).any():
            names = [schema.variables[j] for j in table]
            raise ValueError(f"a file has no record with values of all of {', '.join(names)}")
        if progress is not None:
            progress(done + 1, len(tables))
    sizes = [count.shape[1] for count in counts]
    rows = np.stack([count.sum(axis=1) for count in counts], axis=1).astype(np.float64)
    fit = _fits(schema, tables, counts, 1 + len(synthetic))
    counts = np.concatenate(counts, axis=1)
    rows = np.repeat(rows, sizes, axis=1)
    q = counts / rows
    made = slice(1, 1 + len(synthetic))
    found = combined(
        q[made], q[made] * (1 - q[made]) / rows[made], rows[made] / rows[0], combining
    )  # fmt: skip
    interval = _clipped(found, level)
    own = _clipped(Combined(q[0], q[0] * (1 - q[0]) / rows[0], np.inf), level)
    judged = (counts[0] >= min_count) & (rows[0] - counts[0] >= min_count)
    return Proportions(
        schema, order, tables, left_out, np.repeat(np.arange(len(tables)), sizes), counts[0], q[0],
        found.estimate, interval, own, judged,
        np.where(judged, interval_overlap(own, interval), np.nan),
        None if population is None else q[-1], fit,
    )  # fmt: skip


def combined(q, u, rows_per_record, rule: str = "partially") -> Combined:
    """Combine the estimates of M synthetic files.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    rows_per_record
        Records of each file for each record of the original; broadcasts with `q`.
    rule
        "partially": `combine_partially_synthetic` with the variances multiplied by
        `rows_per_record`, which holds for partially synthetic files and for the completely
        synthetic ones of `synthesize`; "fully": `combine_fully_synthetic`, for other completely
        synthetic files.

    Returns
    -------
    combined
        For one file, whose spread from others is not known, its own estimate and variance.
    """
    if rule not in COMBINING_RULES:
        raise ValueError(f"the combining rule must be one of {COMBINING_RULES}, not {rule!r}")
    q, u = np.asarray(q, np.float64), np.asarray(u, np.float64)
    rows_per_record = np.broadcast_to(rows_per_record, q.shape)
    if len(q) == 1:
        return Combined(q[0], u[0] * rows_per_record[0], np.inf)
    if rule == "partially":
        return combine_partially_synthetic(q, u * rows_per_record)
    return combine_fully_synthetic(q, u, rows_per_record.mean(axis=0))


def interval_overlap(first, second) -> np.ndarray:
    """How much two intervals have in common: 0 nothing, 1 everything.

    Parameters
    ----------
    first, second
        Lower and upper ends, arrays that broadcast.

    Returns
    -------
    overlap
        The mean of the shares of either that the other covers. A point inside an interval counts
        as covered; two equal points overlap by 1.

    References
    ----------
    Karr, A. F., Kohnen, C. N., Oganian, A., Reiter, J. P. & Sanil, A. P. (2006), A framework for
    evaluating the utility of data altered to protect confidentiality, The American Statistician
    60, 224-232. doi:10.1198/000313006X124640
    """
    (low_1, high_1), (low_2, high_2) = (
        tuple(np.asarray(end, np.float64) for end in ends) for ends in (first, second)
    )
    common = np.minimum(high_1, high_2) - np.maximum(low_1, low_2)

    def covered(width):
        return np.where(width > 0, np.maximum(common, 0) / np.where(width > 0, width, 1), 1.0)

    shares = (covered(high_1 - low_1) + covered(high_2 - low_2)) / 2
    return np.where(common >= 0, shares, 0.0)


class PropensityScore(NamedTuple):
    """The mean squared error of propensity scores of one synthetic file.

    Attributes
    ----------
    pmse
        0 where the original and the synthetic records cannot be told apart.
    parameters
        Of the logistic regression, without its intercept and without aliases: k - 1.
    ratio, z
        `pmse` over its expected value, and less it over its standard deviation, for records drawn
        from the right model with parameters estimated from the original: about 1 and 0 then.
    ratio_predictive, z_predictive
        The same for files of which each has parameters of its own, drawn given the original, as
        those of `synthesize` have: the expected value is that of a second sample.
    """

    pmse: float
    parameters: int
    ratio: float
    z: float
    ratio_predictive: float
    z_predictive: float


def propensity_score(
    original: Microdata,
    synthetic: Microdata,
    *,
    interactions: bool = False,
    max_parameters: int = 1000,
) -> PropensityScore:
    """Tell synthetic records from the original's by a logistic regression.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, of which the complete records are used.
    interactions
        Have the interactions of all pairs of variables, besides main effects.
    max_parameters
        Most columns of the regression.

    Raises
    ------
    ValueError
        If schemas differ, a file has no complete record, or there are more columns.

    Notes
    -----
    The regression is on cells, not records, by Newton's method with a ridge of 1e-6 of a record:
    columns that are combinations of others, and levels of one file only, do no harm. Expected value
    under the null hypothesis: (k - 1) (1 - c)^2 c / N, standard deviation: sqrt(2 (k - 1))
    (1 - c)^2 c / N, where N records, a share c of them synthetic, have k parameters; without one
    factor (1 - c) for a second sample.

    References
    ----------
    Snoke, J., Raab, G. M., Nowok, B., Dibben, C. & Slavkovic, A. (2018), General and specific
    utility measures for synthetic data, JRSS A 181, 663-688. doi:10.1111/rssa.12358
    """
    _check_files(original, [synthetic], None)
    num_levels = original.schema.num_levels
    codes = [table.codes[table.complete] for table in (original, synthetic)]
    if not all(map(len, codes)):
        raise ValueError("a file has no complete record")
    cells = group_cells(np.concatenate(codes), num_levels)
    of_synthetic = np.bincount(
        cells.record_cell[len(codes[0]) :], minlength=len(cells.counts)
    ).astype(np.float64)
    design = _design(cells.codes, cells.counts, num_levels, interactions, max_parameters)
    total, share = cells.counts.sum(), len(codes[1]) / len(cells.record_cell)
    if np.array_equal(of_synthetic, share * cells.counts):
        fitted = np.full(len(cells.counts), share)
    else:
        fitted = _logistic_regression(design, of_synthetic, cells.counts.astype(np.float64))
    pmse = float(cells.counts @ (fitted - share) ** 2 / total)
    return _standardised(pmse, _rank(design, cells.counts), share, total)


def num_columns(tables: Sequence[Microdata], interactions: bool) -> int:
    """Columns, at most, of the regression of `propensity_score`."""
    seen = [
        len(set(itertools.chain.from_iterable(np.unique(t.codes[:, j]) for t in tables)) - {-1}) - 1
        for j in range(tables[0].num_variables)
    ]
    pairs = sum(a * b for a, b in itertools.combinations(seen, 2)) if interactions else 0
    return sum(seen) + pairs


class Shares(NamedTuple):
    """Shares of households, R of them.

    Attributes
    ----------
    names : tuple of str
    original, synthetic, overlap : (R,) arrays
    interval, original_interval : pairs of (R,) arrays
    population : (R,) array or None
    """

    names: tuple[str, ...]
    original: np.ndarray
    synthetic: np.ndarray
    overlap: np.ndarray
    interval: tuple[np.ndarray, np.ndarray]
    original_interval: tuple[np.ndarray, np.ndarray]
    population: np.ndarray | None


def household_shares(
    quantities: Rules,
    original: Households,
    synthetic: Sequence[Households],
    *,
    population: Households | None = None,
    combining: str = "partially",
    level: float = 0.95,
) -> Shares:
    """Compare the shares of households of which statements are true.

    Parameters
    ----------
    quantities
        The statements, as rules (`bnp_models.rules`): "at least one child", say.
    original, synthetic, population
        Households of the same schema; those with a missing value are left out.
    combining, level
        As in `proportions`.

    Raises
    ------
    ValueError
        If no file is given, schemas differ or a file has no complete household.
    MicrodataError
        If a rule does not fit the table.
    """
    _check_files(original, synthetic, population)
    files = [original, *synthetic] + ([] if population is None else [population])
    complete = [file.select(~file.incomplete) if file.has_missing else file for file in files]
    if any(file.n == 0 for file in complete):
        raise ValueError("a file has no complete household")
    rows = np.array([[float(file.n)] for file in complete])
    q = np.array([
        [Rules([rule]).check(file).mean() for rule in quantities] for file in complete
    ])  # fmt: skip
    u, made = q * (1 - q) / rows, slice(1, 1 + len(synthetic))
    found = combined(q[made], u[made], rows[made] / rows[0], combining)
    interval, own = _clipped(found, level), _clipped(Combined(q[0], u[0], np.inf), level)
    return Shares(
        quantities.names, q[0], found.estimate, interval_overlap(own, interval), interval, own,
        None if population is None else q[-1],
    )  # fmt: skip


class SmallCells(NamedTuple):
    """Records in cells of fewer than k."""

    k: int
    records: int
    share: float


def k_anonymity(table: Microdata, sizes: Sequence[int] = (2, 3, 5)) -> list[SmallCells]:
    """For each k, how many of the complete records share their cell with fewer than k - 1 others.

    Parameters
    ----------
    table
        Records; incomplete ones are left out.
    sizes
        The values of k.
    """
    complete = table.codes[table.complete]
    if not len(complete):
        return []
    cells = group_cells(complete, table.schema.num_levels)
    own = cells.counts[cells.record_cell]
    return [SmallCells(k, int((own < k).sum()), float((own < k).mean())) for k in sizes]


class Replicated(NamedTuple):
    """Combinations that one record of the original has, and that synthetic files have too.

    Attributes
    ----------
    uniques
        Records that are alone in their cell in the original.
    found
        For each file, how many of these cells have a record there.
    found_unique
        For each file, how many of them have one record there.
    in_any, in_all
        How many have a record in some file, and in every one.
    """

    uniques: int
    found: tuple[int, ...]
    found_unique: tuple[int, ...]
    in_any: int
    in_all: int


def replicated_uniques(original: Microdata, synthetic: Sequence[Microdata]) -> Replicated:
    """Count the uniques of the original whose combination occurs in synthetic files.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, of which the complete records are used.

    Notes
    -----
    A combination that occurs again may do so by chance, and does where the model is good: this is
    not the probability that an intruder learns anything.
    """
    _check_files(original, synthetic, None)
    codes = [table.codes[table.complete] for table in (original, *synthetic)]
    cells = group_cells(np.concatenate(codes), original.schema.num_levels)
    ends = np.cumsum([len(part) for part in codes])
    counts = np.stack([
        np.bincount(part, minlength=len(cells.counts))
        for part in np.split(cells.record_cell, ends[:-1])
    ])  # fmt: skip
    there = counts[1:, counts[0] == 1]
    return Replicated(
        there.shape[1],
        tuple(map(int, (there > 0).sum(axis=1))),
        tuple(map(int, (there == 1).sum(axis=1))),
        int((there > 0).any(axis=0).sum()),
        int((there > 0).all(axis=0).sum()),
    )


def _clipped(found: Combined, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The interval of proportions, from 0 to 1: t with few degrees of freedom goes far beyond."""
    low, high = found.interval(level)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def _check_files(original, synthetic, population):
    if not synthetic:
        raise ValueError("at least one synthetic file is needed")
    for table in (*synthetic, *([] if population is None else [population])):
        if table.schema != original.schema:
            raise ValueError("the files have other variables or levels than the original")


def _chosen_tables(num_levels, order, max_tables, max_cells, seed):
    """(T, order) positions of variables, and how many tables are left out."""
    variables = len(num_levels)
    number = math.comb(variables, order)
    if number <= 200_000:
        every = np.array(list(itertools.combinations(range(variables), order)))
    else:
        # Far more than are wanted: so many drawn at random are nearly all distinct.
        drawn = np.random.default_rng(seed).random((4 * max_tables, variables))
        every = np.unique(np.sort(np.argsort(drawn, axis=1)[:, :order], axis=1), axis=0)
    sizes = np.prod(np.array(num_levels, dtype=np.float64)[every], axis=1)
    chosen = np.arange(len(every))
    if len(every) > max_tables or sizes.sum() > max_cells:
        chosen = np.random.default_rng(seed).permutation(len(every))
        chosen = chosen[sizes[chosen] <= max_cells]
        chosen = np.sort(chosen[np.cumsum(sizes[chosen]) <= max_cells][:max_tables])
    if not len(chosen):
        raise ValueError(f"every table of {order} variables has more than {max_cells:,} cells")
    return every[chosen], number - len(chosen)


def _table_counts(columns, incomplete, table, num_levels):
    """Records in each cell of a table, of those with all its values."""
    joint = columns[table[0]]
    for j in table[1:]:
        joint = joint * num_levels[j] + columns[j]
    if incomplete[table].any():
        joint = joint[(columns[table] >= 0).all(axis=0)]
    return np.bincount(joint, minlength=math.prod(num_levels[j] for j in table))


def _fits(schema, tables, counts, end):
    """Total variation distance and propensity score of each table, the worst first."""
    rows = []
    for table, count in zip(tables, counts, strict=True):
        q = count / count.sum(axis=1, keepdims=True)
        ratios = []
        for made in count[1:end]:
            both = count[0] + made
            occupied = both > 0
            total, share = both.sum(), made.sum() / both.sum()
            away = made[occupied] / both[occupied] - share
            pmse = both[occupied] @ away**2 / total
            ratios.append(_standardised(pmse, occupied.sum() - 1, share, total).ratio)
        rows.append((
            tuple(schema.variables[j] for j in table),
            int((count[:end] > 0).any(axis=0).sum()),
            np.abs(q[1:end].mean(axis=0) - q[0]).sum() / 2,
            np.mean(ratios),
        ))  # fmt: skip
    frame = pd.DataFrame(rows, columns=["variables", "cells", "tvd", "pmse_ratio"])
    return frame.sort_values("pmse_ratio", ascending=False, kind="stable", ignore_index=True)


def _standardised(pmse, parameters, share, total) -> PropensityScore:
    """Ratios and z-scores; of a regression without parameters there is nothing to tell by."""
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
    """Columns of 0 and 1, sparse: levels but the most frequent one, and their products."""
    own = []
    for j, levels in enumerate(num_levels):
        frequency = np.bincount(codes[:, j], weights=counts, minlength=levels)
        column = np.full(levels, -1)
        kept = np.setdiff1d(np.flatnonzero(frequency), np.argmax(frequency))
        column[kept] = np.arange(len(kept))
        own.append((column[codes[:, j]], len(kept)))
    terms = list(own)
    if interactions:
        for (first, _), (second, size) in itertools.combinations(own, 2):
            both = (first >= 0) & (second >= 0)
            product = np.full(len(codes), -1)
            # Products that occur; the others would be empty columns.
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
    return (design.T @ sparse.dia_array((weights[None], [0]), shape=(len(weights),) * 2) @ design
            ).toarray()  # fmt: skip


def _rank(design, counts):
    """How many columns no others, nor the intercept, make up."""
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
    # Large enough for the rounding errors of large counts.
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
