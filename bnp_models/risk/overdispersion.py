"""Correction for overdispersion: cell counts may vary more than a model alone allows.

    p_c ~ Ga(shape_c, shape_c / b_c),    shape_c = shape (n b_c)^exponent

where p_c is the probability that a new record is in cell c, b_c is this probability by a kept draw
of the model, and n is the size of the sample. In real populations some cells have more persons, and
others fewer, than any model with a few dozen components expects. The variance of p_c about b_c is
proportional to b_c^(2 - exponent), Taylor's power law (1961, doi:10.1038/189732a0): exponent 0 is a
gamma factor that is alike in all cells (Bethlehem, Keller & Pannekoek 1990,
doi:10.1080/01621459.1990.10475304), exponent 1 the Dirichlet process DP(shape n, F) whose mean F is
the model.

The prior of shape and exponent was estimated from real populations. For each of them, a model was
fitted to a sample, and the pair of shape and exponent was found that best explains the counts of
the population given the probabilities of the model; the prior is a distribution that was fitted to
these pairs (experiments/accuracy/layer_prior). A small prior probability is left for the model
without gamma variables, which is the limit of large shapes. The likelihood is evaluated on draws of
a model that was fitted to the same counts without them. The likelihood of these counts would
therefore be too informative, and is raised to a power below one, which was chosen on the same
populations (Bissiri, Holmes & Walker 2016, doi:10.1111/rssb.12158).
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import jax
import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.sparse import csr_array
from scipy.special import gammaln

from bnp_models.inference.run import RecordsRun
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.kernels.variates.rng import Keys, key_array
from bnp_models.risk.reciprocals import expected_reciprocal

EXPONENTS = np.linspace(0, 1, 9)
"""Values of the exponent."""

SHAPES = np.logspace(-1.5, 5, 27)
"""Values of the shape of a cell that has one record of the sample on average."""

MODEL_HOLDS = 1e8
"""Shape that stands for infinity: the model holds without overdispersion."""

# Grid of exponents and shapes; the last shape means no overdispersion.
_BLOCKS = (*((exponent, SHAPES) for exponent in EXPONENTS), (0.0, np.array([MODEL_HOLDS])))

GRID = (
    np.concatenate([shapes for _, shapes in _BLOCKS]),
    np.repeat([exponent for exponent, _ in _BLOCKS], [len(shapes) for _, shapes in _BLOCKS]),
)
"""All pairs of a shape and an exponent, as two arrays (G,); the last pair means none."""

DEGREES_OF_FREEDOM = 4.0
"""Degrees of freedom of the prior, a bivariate t distribution with uncorrelated components."""

PROBABILITY_MODEL_HOLDS = 0.05
"""Prior probability that the model holds without overdispersion."""


class Prior(NamedTuple):
    """Prior of shape and exponent: location and scale of each."""

    log10_shape: tuple[float, float]
    """Location and scale of log10 of the shape."""
    exponent: tuple[float, float]
    """Location and scale of the exponent."""

    def log_probabilities(self) -> np.ndarray:
        """Log probability (G,) of every pair of the grid, of which the last means none."""
        shape, exponent = (x[:-1] for x in GRID)
        distance = ((np.log10(shape) - self.log10_shape[0]) / self.log10_shape[1]) ** 2
        distance += ((exponent - self.exponent[0]) / self.exponent[1]) ** 2
        density = (1 + distance / DEGREES_OF_FREEDOM) ** (-(DEGREES_OF_FREEDOM + 2) / 2)
        present = (1 - PROBABILITY_MODEL_HOLDS) * density / density.sum()
        return np.log(np.append(present, PROBABILITY_MODEL_HOLDS))


OF_RECORDS = Prior((1.06, 0.87), (0.53, 0.21))
"""Prior for records, from nine populations (experiments/accuracy/layer_prior)."""

OF_COMPOSITIONS = Prior((-0.03, 0.5), (0.42, 0.2))
"""Prior for compositions of households, from three populations
(experiments/accuracy/household_risk)."""

OF_FORESTS = Prior((1.04, 1.02), (0.5, 0.17))
"""Prior for records about a log-linear forest, from nine populations
(experiments/accuracy/risk_peers)."""

LIKELIHOOD_POWER = 0.5
"""Power of the likelihood of the sample's counts."""

AVERAGED_DRAWS = 8
"""Number of draws of shape and exponent over which expectations of a kept draw are averaged."""

LARGEST_TABULATED = 32
"""Largest count whose log probability is computed by a spline in the expected count."""

DEGREE, POINTS_PER_UNIT = 5, 4
"""Degree of these splines, and number of points per unit of the logarithm."""

LEAST_EXPECTED = 1e-9
"""Smallest expected count; smaller ones are replaced by it."""

NUM_DRAWS, NUM_SIMULATED = 32, 1024
"""Number of draws of a run from which records are simulated, and of records from each."""

TIES = ("on", "sensitivity", "off")
"""Values of the option `ties`."""

_FOLD = 0x54494553


@dataclass(frozen=True, eq=False)
class OverdispersionPosterior:
    """Posterior of the correction given the counts of a sample's cells."""

    counts: np.ndarray
    """(C,) records of the sample in each of its cells."""
    unseen: np.ndarray
    """(S,) model's probabilities of the cells of simulated records that the sample has not."""
    incomplete: int = 0
    """Records of the sample with missing values, which are in none of its cells."""
    prior: Prior = OF_RECORDS
    """Prior of shape and exponent."""

    @classmethod
    def of(
        cls, run: RecordsRun, key: jax.Array, method: str, num_draws: int
    ) -> "OverdispersionPosterior":
        """Simulate records from draws of a run, to represent cells without a sample record.

        Parameters
        ----------
        run
            Chains that kept the model's ``parameters``.
        key
            A key. It may also be used elsewhere, because a constant is folded into it here.
        method, num_draws
            Method for cell probabilities, and number of its draws of record weights.
        """
        cells = run.table.tabulated
        complete, counts = cells.codes[cells.complete], cells.counts[cells.complete]
        draws = run.spaced_parameters(NUM_DRAWS)
        draws = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}
        keys = key_array(jax.random.fold_in(key, _FOLD), len(next(iter(draws.values()))))
        codes, log_b = _simulate(
            run.model, keys, draws, run.feasible_sets, num_records=NUM_SIMULATED,
            num_levels=run.num_levels, method=method, num_draws=num_draws,
        )  # fmt: skip
        codes = np.asarray(codes).reshape(-1, codes.shape[-1]).astype(np.int32)
        seen = complete if run.coding is None else run.coding.reduce(complete)
        rows = {row.tobytes() for row in np.ascontiguousarray(seen, np.int32)}
        elsewhere = np.array([row.tobytes() not in rows for row in codes])
        unseen = np.exp(np.asarray(log_b, float).ravel()[elsewhere])
        return cls(counts, unseen, cells.n - int(counts.sum()))

    @cached_property
    def num_records(self) -> int:
        """Complete records of the sample, n where no value is missing."""
        return int(self.counts.sum())

    @cached_property
    def log_prior(self) -> np.ndarray:
        """Log prior probability (G,) of every pair of the grid."""
        return self.prior.log_probabilities()

    def probabilities(self, b: np.ndarray) -> np.ndarray:
        """Posterior probability (D, G) of every pair of the grid, given the model's b (D, C)."""
        log_weight = self.log_prior + LIKELIHOOD_POWER * self.log_likelihood(b)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def log_likelihood(self, b: np.ndarray) -> np.ndarray:
        """Log likelihood (D, G) of every pair of the grid, up to a constant.

        Parameters
        ----------
        b
            (D, C) model's probabilities of the sample's cells under each of D draws.

        Notes
        -----
        The counts are negative binomial, given that their sum is n. The probability of this sum is
        approximated by a normal distribution. There are too many cells without records of the
        sample to list them. Their sum is computed as an expectation over records that are simulated
        from the model; it has no Monte Carlo error if the exponent is 1.
        """
        if not self.num_records:
            return np.zeros((len(b), len(self.log_prior)))
        log_p, variance = self._sums_of_seen(self.num_records * b)
        empty, excess_unseen = self._of_unseen
        unseen = np.maximum(1 - b.sum(axis=1, keepdims=True), 0)
        log_variance = np.log(1 + variance / self.num_records + unseen * excess_unseen)
        return log_p - unseen * empty + 0.5 * log_variance

    def _sums_of_seen(self, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums (D, G) of `_log_probability` over the sample's cells with expected counts (D, C).

        For small counts, splines in the logarithm of the expected count are summed, because a
        logarithm for each cell and pair would take most of the time of a risk.
        """
        expected = np.clip(expected, LEAST_EXPECTED, self.num_records)
        small, *_ = self._small_counts
        log_p, variance = np.zeros((2, len(expected), len(self.log_prior)))
        if small.any():
            log_p, variance = self._sums_by_splines(np.log(expected[:, small]))
        if not small.all():
            for d, others in enumerate(expected[:, ~small]):
                parts = _log_probability(others, self.counts[~small])
                log_p[d] += parts[0].sum(axis=1)
                variance[d] += parts[1].sum(axis=1)
        return log_p, variance

    def _sums_by_splines(self, log_expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of `_sums_of_seen` over the cells with small counts, by splines."""
        of_count, of_variance, knots = self._splines
        _, values, place = self._small_counts
        num_draws, number = len(log_expected), log_expected.size
        points = BSpline.design_matrix(log_expected.ravel(), knots, DEGREE)
        of_group = (place + len(values) * np.arange(num_draws)[:, None]).ravel()
        groups = csr_array(
            (np.ones(number), (of_group, np.arange(number))), (len(values) * num_draws, number)
        )
        weights = (groups @ points).toarray().reshape(num_draws, len(values), -1)
        log_p = weights.reshape(num_draws, -1) @ of_count
        return log_p, weights.sum(axis=1) @ of_variance

    @cached_property
    def _small_counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(C,) whether a cell's count is small; the distinct small counts; each cell's index."""
        small = self.counts <= LARGEST_TABULATED
        return small, *np.unique(self.counts[small], return_inverse=True)

    @cached_property
    def _splines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients for each count (F K, G) and for the variance (K, G), and the knots."""
        low, high = np.log(LEAST_EXPECTED), np.log(max(self.num_records, 2))
        points = np.linspace(low, high, int(POINTS_PER_UNIT * (high - low)) + 1)
        of_count = []
        for count in self._small_counts[1]:
            log_p, excess = _log_probability(np.exp(points), np.full(points.size, count))
            of_count.append(make_interp_spline(points, log_p.T, DEGREE).c)
        of_variance = make_interp_spline(points, excess.T, DEGREE)
        return np.concatenate(of_count), of_variance.c, of_variance.t

    @cached_property
    def _of_unseen(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (G,) over unseen cells of -log P(empty) / b, and of n b / shape_c."""
        if not len(self.unseen):
            return np.full(len(GRID[0]), float(self.num_records)), np.zeros(len(GRID[0]))
        expected = self.num_records * np.maximum(self.unseen, 1e-300)
        shape, exponent = (x[:, None] for x in GRID)
        excess = expected / (shape * expected**exponent)
        empty = self.num_records * np.mean(np.log1p(excess) / excess, axis=1)
        return empty, np.mean(excess, axis=1)

    def draw(
        self, generator: np.random.Generator, b: np.ndarray, number: int = 1
    ) -> list["Overdispersion"]:
        """Draw shapes and exponents given the model's probabilities (D, C) of each draw.

        Each kept draw has its own posterior of shape and exponent; if several draws shared one,
        tau_1 would have half as many effective draws. The `number` draws for each kept draw are
        stratified: equally spaced in probability, and in random order.
        """
        shape, exponent = GRID
        strata = generator.permuted(np.tile(np.arange(number), (len(b), 1)), axis=1)
        u = (strata + generator.random((len(b), 1))) / number
        cumulative = np.cumsum(self.probabilities(b), axis=1)
        chosen = [
            np.searchsorted(up_to[:-1], of_row, side="right")
            for up_to, of_row in zip(cumulative, u, strict=True)
        ]
        # A shape belongs to a cell that has one record on average. On the grid this is a complete
        # record; in the result it is any record of the sample.
        total = self.num_records + self.incomplete
        share = self.num_records / total if self.num_records else 1.0
        return [Overdispersion(shape[x] * share ** exponent[x], exponent[x], total)
                for x in np.transpose(chosen)]  # fmt: skip


def _log_probability(expected: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(G, C) log P(count) for every pair of the grid, up to a common term, and excess variance.

    The excess variance is the negative binomial's variance minus its mean.
    """
    log_p, excess = [], []
    # One exponent at a time, because arrays for all pairs do not fit into the processor's cache.
    for exponent, shapes in _BLOCKS:
        of_cell = shapes[:, None] * expected**exponent
        ratio = expected / of_cell
        rising = gammaln(of_cell + counts) - gammaln(of_cell + 1)
        log_p.append(rising + (1 - counts) * np.log(of_cell) - (counts + of_cell) * np.log1p(ratio))
        excess.append(ratio * expected)
    return np.concatenate(log_p), np.concatenate(excess)


class Overdispersion(NamedTuple):
    """Parameters of the correction for each of some draws."""

    shape: np.ndarray
    """(D,) shape of a cell with one expected sample record; `MODEL_HOLDS` means none."""
    exponent: np.ndarray
    """(D,) exponent by which the shape grows with the model's probability of a cell."""
    num_records: int
    """Size n of the sample."""

    def shape_of(self, b: np.ndarray) -> np.ndarray:
        """Shapes of the gamma distributions of cell probabilities, given the model's b (D, ...)."""
        of_draw = (-1,) + (1,) * (b.ndim - 1)
        expected = self.num_records * np.maximum(b, 1e-300)
        return self.shape.reshape(of_draw) * expected ** self.exponent.reshape(of_draw)

    def record_risks(
        self, log_b: np.ndarray, num_new: int, log_q: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate r_1 = P(F = 1) and r_2 = E(1/F) of cells with one record of the sample.

        Parameters
        ----------
        log_b
            (D, ...) logarithms of the model's probabilities.
        num_new
            N - n unsampled records.
        log_q
            The same as `log_b` for an unsampled record, if its distribution differs.

        Notes
        -----
        F - 1 is negative binomial of size shape_c + 1 and mean (N - n) q_c (shape_c + 1) / (shape_c
        + n b_c): Skinner & Shlomo (2008), section 2, with a size for each cell. The correction
        multiplies the model's probability of a cell by the same factor in the sample and outside
        it.
        """
        b = np.exp(log_b)
        q = b if log_q is None else np.exp(log_q)
        shape = self.shape_of(b)
        odds = num_new * q / (shape + self.num_records * b)
        log_one_more, expected = np.log1p(odds), shape * odds
        r2 = -np.expm1(-shape * log_one_more) / np.maximum(expected, 1e-300)
        return np.exp(-(shape + 1) * log_one_more), np.where(expected > 1e-12, r2, 1.0)

    def expected_reciprocals(
        self, counts: np.ndarray, b: np.ndarray, expected_new: np.ndarray
    ) -> np.ndarray:
        """Evaluate E(1/F) of cells with any number of records.

        Parameters
        ----------
        counts
            (C,) records of the sample in each cell, at least 1.
        b
            (D, ..., C) probabilities of the cells by the model.
        expected_new
            (D, ..., C) unsampled persons of each cell that the model expects.
        """
        shape = self.shape_of(b)
        odds = expected_new / (shape + self.num_records * b)
        return expected_reciprocal(counts, shape + counts, odds)

    def draw_probabilities(
        self, generator: np.random.Generator, b: np.ndarray, q: np.ndarray | None = None
    ) -> np.ndarray:
        """Draw the probabilities (D, U) of cells that have one record of the sample.

        The probabilities are for an unsampled record; `q` is the model's if it differs from `b`.
        """
        shape = self.shape_of(b)
        q = b if q is None else q
        return q * generator.standard_gamma(shape + 1) / (shape + self.num_records * b)


@partial(jax.jit, static_argnames=("num_records", "num_levels", "method", "num_draws"))
def _simulate(model, keys, draws, feasible, num_records, num_levels, method, num_draws):
    """Codes (D, S, J) of records simulated from each draw, and their log probabilities (D, S)."""

    def one(arguments):
        key, draw = arguments
        key_simulate, key_evaluate = Keys(key)
        codes = model.simulate_records(key_simulate, draw, num_records, num_levels, feasible).T
        found = model.log_cell_probability(
            key_evaluate, draw, codes, num_levels, method=method, num_draws=num_draws
        )
        return codes, found if method == "exact" else found.log_p

    with jax.named_scope("simulated_cells"):
        return map_draws(one, (keys, draws))
