"""Convergence of chains: R-hat and effective sample sizes by ArviZ, and targets for them.

They depend only on the draws, so that a resumed run has the same values as an uninterrupted one.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from bnp_models.data.documents import Document
from bnp_models.inference.run import Run

MAX_RHAT = 1.05

# If R-hat of the reported quantities is at most the first number, R-hat of the supporting
# quantities (`BEHIND`) may be up to the second. Components and alpha are not judged: whether an
# interval of tau_1 contains the truth does not depend on their R-hat
# (experiments/accuracy/layer_prior).
CLOSE_RHAT, OTHERS_RHAT = 1.01, 1.1

BEHIND = ("log_likelihood", "tau1_conditional")
"""Supporting quantities: the fit, and the mean of tau_1 given the parameters."""

REPORTED = ("tau1", "tau2")

# Least bulk and tail ESS per chain. If they are smaller, R-hat and ESS are themselves unreliable
# (Vehtari et al. 2021, doi:10.1214/20-BA1221).
MIN_ESS_PER_CHAIN = 100

MIN_DRAWS = 4


class Figures(Document):
    """Rank-normalised split R-hat, bulk and tail effective sample size (Vehtari et al. 2021,
    doi:10.1214/20-BA1221); null where a chain has too few draws, or they are all the same.
    """

    rhat: float | None
    ess_bulk: float | None
    ess_tail: float | None


class Evaluated(Protocol):
    """Result computed from a run's draws (a risk or margins) whose convergence is judged."""

    @property
    def share(self) -> float:
        """Part of the reported quantities that the results take from the chains: 1 for all."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities by which the convergence of the run is judged, each (chains, draws)."""

    def warnings(self) -> list[str]:
        """Sentences about the evaluation itself."""


def monitored(run: Run, evaluated: Evaluated | None = None) -> dict[str, np.ndarray]:
    """Quantities by which convergence is judged, each (chains, draws).

    Quantities that depend mostly on the prior are never among them: the mass of the impossible
    region, and the records that are drawn for it.

    Parameters
    ----------
    run
        Chains.
    evaluated
        Result computed from the run's draws. With a `PopulationRisk`, tau1 is among the
        quantities, and the quantities of the run are thinned to the draws at which tau1 was
        evaluated. With `Margins`, the three margins on which the chains agree least are included.
    """
    if evaluated is not None:
        return evaluated.monitored(run)
    draws = {
        name: run.draws[name]
        for name in run.model.monitored
        if name in run.draws and run.draws[name].ndim == 2
    }
    return draws | sampled_rate(run)


def sampled_rate(run: Run) -> dict[str, np.ndarray]:
    """The rate b of the prior of alpha, (chains, draws) by its name; empty if it is not drawn."""
    rate = run.draws.get("alpha_rate")
    return {} if rate is None or np.ptp(rate) == 0 else {"alpha_rate": rate}


def figures_by_name(
    draws: dict[str, np.ndarray], superchain: int = 1, share: float = 1.0
) -> dict[str, Figures]:
    """Convergence figures of each of these arrays (chains, draws), computed by `figures_of`.

    `share` is the part of reported quantities that results take from them (`figures_in_part`).
    """
    found = {name: figures_of(values, superchain) for name, values in draws.items()}
    if share == 1:
        return found
    return {
        name: figures_in_part(figures, share, draws[name].size) if is_reported(name) else figures
        for name, figures in found.items()
    }


def figures_of(values: np.ndarray, superchain: int = 1) -> Figures:
    """R-hat, bulk and tail ESS of one scalar.

    Parameters
    ----------
    values
        (chains, draws).
    superchain
        Number of consecutive chains that started at the same point. If it is above one, R-hat is
        nested: it compares these groups of chains, so that each single chain may be short
        (Margossian et al. 2024, doi:10.1214/24-BA1453).
    """
    num_chains, num_draws = values.shape
    if num_draws < MIN_DRAWS or np.ptp(values) == 0 or not np.isfinite(values).all():
        return Figures(rhat=None, ess_bulk=None, ess_tail=None)
    from arviz_stats.base import array_stats

    values = np.asarray(values, np.float64)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if num_chains == 1:
            rhat = None
        elif superchain == 1:
            rhat = _finite(array_stats.rhat(values, chain_axis=0, draw_axis=1))
        else:
            groups = np.arange(num_chains) // superchain
            rhat = _finite(
                array_stats.rhat_nested(values, superchain_ids=groups, chain_axis=0, draw_axis=1)
            )
        bulk = array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk")
        tail = array_stats.ess(values, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95))
    return Figures(rhat=rhat, ess_bulk=_finite(bulk), ess_tail=_finite(tail))


def figures_in_part(figures: Figures, share: float, num_draws: int) -> Figures:
    """Convergence figures of a result that takes only a part of a quantity from the chains.

    A difference d between chains is a difference share * d of the result. It is compared with the
    same posterior spread, so that R-hat squared, less one, is smaller by the factor share squared,
    and the effective sample size, which is at most the number of draws, is larger by it.
    """
    rhat = figures["rhat"]
    if rhat is not None and rhat > 1:
        rhat = math.sqrt(1 + share**2 * (rhat**2 - 1))
    bulk, tail = (
        None if ess is None else min(ess / share**2, max(num_draws, ess))
        for ess in (figures["ess_bulk"], figures["ess_tail"])
    )
    return Figures(rhat=rhat, ess_bulk=bulk, ess_tail=tail)


ENDS = (0.025, 0.975)
"""Probabilities of the ends of a 95% interval."""


class FigureErrors(NamedTuple):
    """Monte Carlo standard errors of figures of one scalar."""

    mean: float
    low: float
    """Of the lower end of the 95% interval."""
    high: float
    """Of the upper end."""


def monte_carlo_errors(values: np.ndarray, superchain: int = 1) -> FigureErrors:
    """Monte Carlo standard errors of the mean and of the ends of the 95% interval of one scalar.

    The error of a figure is the one by Vehtari et al. (2021, doi:10.1214/20-BA1221), or, if it is
    larger, the standard error of the mean of the chains' own figures. It is multiplied by R-hat,
    because chains that disagree may have missed a part of the posterior. Chains that started at the
    same point are not independent, so that their draws together are one chain in both comparisons.

    Parameters
    ----------
    values, superchain
        As for `figures_of`.

    Returns
    -------
    errors
        nan if a chain has fewer than 4 draws. One chain, or one superchain, has only the first of
        the two errors.
    """
    if values.shape[1] < MIN_DRAWS:
        return FigureErrors(math.nan, math.nan, math.nan)
    from arviz_stats.base import array_stats

    factor = max(figures_of(values, superchain)["rhat"] or 1.0, 1.0)
    values = np.asarray(values, np.float64)
    starts = values.reshape(len(values) // superchain, -1)
    own = np.concatenate([starts.mean(axis=1)[None], np.quantile(starts, ENDS, axis=1)])
    between = own.std(axis=1, ddof=1) / math.sqrt(len(starts)) if len(starts) > 1 else np.zeros(3)
    kinds = [("mean", None), *(("quantile", p) for p in ENDS)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        within = [
            array_stats.mcse(values, chain_axis=0, draw_axis=1, method=method, prob=prob)
            for method, prob in kinds
        ]
    return FigureErrors(*(
        factor * max(float(error), float(other))
        for error, other in zip(within, between, strict=True)
    ))  # fmt: skip


def batches_of(num_chains: int, num_draws: int, superchain: int = 1) -> np.ndarray:
    """Batch, (chains * draws,), of each draw: the two halves of every chain, or superchain."""
    half = np.arange(num_draws) * 2 // max(num_draws, 1)
    return (2 * (np.arange(num_chains)[:, None] // superchain) + half).ravel()


def errors_of_mean_draws(values: np.ndarray, num_chains: int, superchain: int = 1) -> np.ndarray:
    """Monte Carlo standard errors (m,) of the means of draws (chains * draws, m), as of batches."""
    batches = batches_of(num_chains, len(values) // num_chains, superchain)
    counts = np.bincount(batches, minlength=2 * num_chains // superchain)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, batches, values)
    return errors_of_means(sums, counts)


def errors_of_means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Monte Carlo standard errors of means, from the means of batches of draws.

    They contain the disagreement of the chains, which are in different batches.

    Parameters
    ----------
    sums
        (batches, ...) sum of each quantity over the draws of each batch.
    counts
        (batches,) draws of each batch.

    Returns
    -------
    errors
        (...) nan if a batch is empty.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        means = sums / counts.reshape(-1, *[1] * (sums.ndim - 1))
        return means.std(axis=0, ddof=1) / math.sqrt(len(counts))


# Shares of the draws at which a forecast is computed, and their weights in its mean.
_PARTS = ((0.5, 0.2), (0.75, 0.3), (1.0, 0.5))

# A forecast is within this factor in 19 of 20 simulated chains (experiments/speed/time_to_trust).
_FORECAST_FACTOR, _LEAST_ESS = 2.0, 10


@dataclass(frozen=True)
class Converged:
    """A target for ``sample(until=...)``: small R-hat and large effective sample sizes.

    Parameters
    ----------
    max_rhat
        R-hat of every quantity is at most this. It needs two chains.
    min_ess
        Bulk and tail effective sample sizes of every quantity, chains together, are at least this.
        Default: 100 for each chain.
    quantities
        A function of a run that returns arrays (chains, draws) by name. They are judged in addition
        to the log-likelihood, components and alpha, as far as the model keeps these with its draws
        (the mixed membership models keep no log-likelihood). The function is called only after
        these have met their limits. ``lambda run: bnp.population_risk(run, N).monitored(run)``
        judges tau_1. Default: no further quantities.
    others_rhat
        Limit of R-hat for the log-likelihood and for the conditional expectation of tau_1. Their
        effective sample sizes are then not judged, and components and alpha are not judged at all.
        Default: all of these have to meet the limits of the reported quantities.

    Notes
    -----
    A quantity that never changes, such as tau1 if no record is unique, is not judged.

    Examples
    --------
    >>> target = bnp.Converged(max_rhat=1.01, min_ess=400)
    >>> target(run)
    False
    """

    max_rhat: float = 1.01
    min_ess: float | None = None
    quantities: Callable[[Run], dict[str, np.ndarray]] | None = None
    others_rhat: float | None = None

    def __post_init__(self):
        if not self.max_rhat > 1:
            raise ValueError(f"max_rhat must be more than 1, not {self.max_rhat}")
        if self.min_ess is not None and not self.min_ess > 0:
            raise ValueError(f"min_ess must be positive, not {self.min_ess}")

    def __call__(self, run: Run) -> bool:
        """Whether the draws of this run meet the target."""
        if self.missed_by(run, monitored(run)):
            return False
        return self.quantities is None or not self.missed_by(run, self.quantities(run))

    def missed_by(self, run: Run, draws: dict[str, np.ndarray]) -> list[str]:
        """Return the sentences of `missed` for draws of this run."""
        return self.missed(draws, figures_by_name(draws, run.settings.superchain))

    def least_ess(self, num_chains: int) -> float:
        """Required effective sample size of all chains together."""
        return MIN_ESS_PER_CHAIN * num_chains if self.min_ess is None else self.min_ess

    def missed(
        self, draws: dict[str, np.ndarray], figures: dict[str, Figures] | None = None
    ) -> list[str]:
        """Sentences on figures that miss the target, such as "R-hat of alpha is 1.080".

        Parameters
        ----------
        draws
            Arrays (chains, draws) by name.
        figures
            Convergence figures of these draws, if they have been computed already.
        """
        sentences = []
        for name, figure, limit, least in self._asked(draws, figures):
            rhat = figure["rhat"]
            if rhat is None or not rhat <= limit:
                sentences.append(f"R-hat of {name} is {shown(rhat, '.3f')}")
            for kind in ("bulk", "tail"):
                ess = figure[f"ess_{kind}"]
                if least and (ess is None or not ess >= least):
                    sentences.append(f"the {kind} ESS of {name} is {shown(ess, '.0f')}")
        return sentences

    def draws_needed(
        self, draws: dict[str, np.ndarray], figures: dict[str, Figures] | None = None
    ) -> float | None:
        """Estimated factor by which the draws must grow to meet the target; None if unknown.

        Effective sample sizes grow with the draws, and R-hat squared, less one, falls as they grow.
        Arguments are those of `missed`.
        """
        times = 1.0
        for _, figure, limit, least in self._asked(draws, figures):
            rhat, ess = figure["rhat"], [figure["ess_bulk"], figure["ess_tail"]]
            if rhat is None or None in ess:
                return None
            of_ess = least / min(ess) if least else 0
            times = max(times, of_ess, (rhat**2 - 1) / (limit**2 - 1))
        return times

    def forecast(
        self,
        draws: dict[str, np.ndarray],
        figures: dict[str, Figures],
        figures_of: Callable[[dict[str, np.ndarray]], dict[str, Figures]],
    ) -> tuple[float, float] | None:
        """Range of the factor by which the draws must grow to meet the target; None if unknown.

        `draws_needed` may change by a factor of two from one look at the chains to the next. Its
        values at the first half, the first three quarters and all of the draws are therefore
        averaged, as logarithms. The factor is unknown if a quantity has fewer than 10 effective
        draws.

        Parameters
        ----------
        draws, figures
            As for `missed`.
        figures_of
            Function that computes the figures of such arrays.
        """
        log_times = 0.0
        for share, weight in _PARTS:
            part = {name: x[:, : round(share * x.shape[1])] for name, x in draws.items()}
            times = self.draws_needed(part, figures if share == 1 else figures_of(part))
            if times is None:
                return None
            log_times += weight * math.log(share * times)
        asked = self._asked(draws, figures)
        if any((figure["ess_bulk"] or 0) < _LEAST_ESS for _, figure, _, _ in asked):
            return None
        times = math.exp(log_times)
        return max(1.0, times / _FORECAST_FACTOR), max(1.0, times * _FORECAST_FACTOR)

    def _asked(self, draws, figures):
        """Name, figures, R-hat limit and least effective sample size of each judged quantity."""
        for name, values in draws.items():
            if values.size and np.ptp(values) == 0:
                continue
            figure = figures_of(values) if figures is None else figures[name]
            if self.others_rhat is None or is_reported(name):
                yield name, figure, self.max_rhat, self.least_ess(len(values))
            elif name in BEHIND:
                yield name, figure, self.others_rhat, 0.0


def is_reported(name: str) -> bool:
    """Whether a quantity is one that people report: a risk or a margin.

    The others, such as the number of components, only describe the state of the chains.
    """
    return name in REPORTED or name.startswith("margin ")


def judged(figures: dict[str, Figures]) -> dict[str, Figures]:
    """Figures of reported and supporting quantities; of all quantities, if none is reported."""
    if not any(map(is_reported, figures)):
        return figures
    return {name: f for name, f in figures.items() if is_reported(name) or name in BEHIND}


def reported(figures: dict[str, Figures]) -> dict[str, Figures]:
    """Figures of the quantities that people report; of all quantities, if none is reported."""
    return {name: f for name, f in figures.items() if is_reported(name)} or figures


def rhat_of_others(figures: dict[str, Figures]) -> float:
    """Limit of R-hat for supporting quantities: larger if chains agree on reported quantities."""
    rhats = [figure["rhat"] or 1.0 for name, figure in figures.items() if is_reported(name)]
    return OTHERS_RHAT if rhats and max(rhats) <= CLOSE_RHAT else MAX_RHAT


def large_rhats(figures: dict[str, Figures]) -> list[str]:
    """Names and R-hats of the quantities on which the chains do not agree."""
    of_others = rhat_of_others(figures)
    return [
        f"{name} {figure['rhat']:.3f}"
        for name, figure in judged(figures).items()
        if figure["rhat"] is not None
        and figure["rhat"] > (MAX_RHAT if is_reported(name) else of_others)
    ]


def shown(value: float | None, format_spec: str) -> str:
    """Text of a figure, also if it is undefined."""
    return "undefined" if value is None else format(value, format_spec)


def _finite(value) -> float | None:
    """The number, or None if it is not finite."""
    value = float(value)
    return value if math.isfinite(value) else None
