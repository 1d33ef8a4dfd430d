"""Have the chains converged? Figures by ArviZ, and sentences for whoever has to decide.

Everything here is a function of the draws alone: a resumed run says what an uninterrupted one says.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bnp_models.inference.arviz import load_arviz
from bnp_models.inference.run import Run
from bnp_models.risk.population import PopulationRisk
from bnp_models.synthesis.margins import Margins, worst_margins

MAX_RHAT = 1.05

# Bulk and tail, per chain: below it the figures themselves are unreliable (Vehtari et al. 2021,
# doi:10.1214/20-BA1221).
MIN_ESS_PER_CHAIN = 100

MIN_DRAWS = 4


def monitored(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> dict[str, np.ndarray]:
    """The quantities that convergence is judged by, each (chains, draws).

    With a risk, tau1 among them, and those of the run thinned to the draws at which it was
    evaluated. With margins, the three on which the chains agree least. What is driven by the prior
    (the mass of the impossible region, the records drawn for it) is never among them.
    """
    if risk is not None:
        return {
            "tau1": risk.tau1,
            "tau1_conditional": risk.tau1_conditional,
            "components": run.draws["components"][:, :: risk.thin],
            "alpha": run.draws["alpha"][:, :: risk.thin],
            "log_likelihood": risk.log_likelihood,
        }
    names = ("log_likelihood", "components", "alpha", "beta")
    chosen = {
        name: run.draws[name] for name in names if name in run.draws and run.draws[name].ndim == 2
    }
    return chosen if margins is None else chosen | worst_margins(margins)


def convergence(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> dict[str, dict[str, float | None]]:
    """R-hat and effective sample sizes of the monitored quantities.

    Returns
    -------
    figures
        For each of tau1, tau1_conditional, components, alpha and log_likelihood, or, without a
        risk, of log_likelihood, components, alpha and the worst margins: "rhat" (rank-normalised,
        split), "ess_bulk" and "ess_tail". None where a figure is undefined: fewer than 4 draws,
        constant draws, or, for R-hat, one chain.
    """
    return {name: diagnose(values) for name, values in monitored(run, risk, margins).items()}


def diagnose(values: np.ndarray) -> dict[str, float | None]:
    """R-hat, bulk and tail ESS of one scalar; `values` is (chains, draws)."""
    num_chains, num_draws = values.shape
    if num_draws < MIN_DRAWS or np.ptp(values) == 0 or not np.isfinite(values).all():
        return dict.fromkeys(("rhat", "ess_bulk", "ess_tail"))
    import xarray as xr

    az = load_arviz()
    data = xr.Dataset({"x": (("chain", "draw"), np.asarray(values, np.float64))})
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {
            "rhat": None if num_chains == 1 else _finite(az.rhat(data, method="rank")["x"]),
            "ess_bulk": _finite(az.ess(data, method="bulk")["x"]),
            "ess_tail": _finite(az.ess(data, method="tail")["x"]),
        }


@dataclass(frozen=True)
class Converged:
    """A target for `bnp_models.sample_until`: R-hat is small, effective sample sizes are large.

    Parameters
    ----------
    max_rhat
        R-hat of every quantity is at most this. It needs two chains.
    min_ess
        Bulk and tail effective sample sizes of every quantity, chains together, are at least this.
        Default: 100 for each chain.
    quantities
        What is judged besides the log-likelihood, components and alpha of the draws: a function of
        a run that returns names and arrays (chains, draws), called only once those have passed.
        Default: nothing more.

    Notes
    -----
    A quantity that never changes, such as tau1 where no record is unique, is passed over.
    """

    max_rhat: float = 1.01
    min_ess: float | None = None
    quantities: Callable[[Run], dict[str, np.ndarray]] | None = None

    def __post_init__(self):
        if not self.max_rhat > 1:
            raise ValueError(f"max_rhat must be more than 1, not {self.max_rhat}")
        if self.min_ess is not None and not self.min_ess > 0:
            raise ValueError(f"min_ess must be positive, not {self.min_ess}")

    def __call__(self, run: Run) -> bool:
        """Whether the draws of this run meet the target."""
        if self.missed(monitored(run)):
            return False
        return self.quantities is None or not self.missed(self.quantities(run))

    def least_ess(self, num_chains: int) -> float:
        """The effective sample size that is asked for."""
        return MIN_ESS_PER_CHAIN * num_chains if self.min_ess is None else self.min_ess

    def missed(self, draws: dict[str, np.ndarray]) -> list[str]:
        """What falls short, in words: "R-hat of alpha is 1.080"; empty if nothing does."""
        found = []
        for name, values in draws.items():
            if values.size and np.ptp(values) == 0:
                continue
            figure = diagnose(values)
            if not (figure["rhat"] is not None and figure["rhat"] <= self.max_rhat):
                found.append(f"R-hat of {name} is {shown(figure['rhat'], '.3f')}")
            for kind in ("bulk", "tail"):
                ess = figure[f"ess_{kind}"]
                if not (ess is not None and ess >= self.least_ess(len(values))):
                    found.append(f"the {kind} ESS of {name} is {shown(ess, '.0f')}")
        return found


def target_reached(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> bool:
    """Whether a run of `bnp_models.sample_until` ended because its target was reached."""
    target = run.until.target
    if isinstance(target, Converged):
        return not target.missed(monitored(run, risk, margins))
    return bool(target(run))


def large_rhats(figures):
    return [
        f"{name} {figure['rhat']:.3f}"
        for name, figure in figures.items()
        if figure["rhat"] is not None and figure["rhat"] > MAX_RHAT
    ]


def shown(value, format_spec):
    return "undefined" if value is None else format(value, format_spec)


def _finite(value):
    value = float(value)
    return value if math.isfinite(value) else None
