"""Have the chains converged? Figures by ArviZ, and sentences for whoever has to decide.

Everything here is a function of the draws alone: a resumed run says what an uninterrupted one says.
"""

import functools
import importlib
import math
import os
import tempfile
import warnings
from unittest import mock

import numpy as np

from bnp_models.risk import PopulationRisk
from bnp_models.sampling import LEFT_OVER_TOLERANCE, Run
from bnp_models.synthesis import Margins

MAX_RHAT = 1.05

# Bulk and tail, per chain: below it the figures themselves are unreliable (Vehtari et al. 2021,
# doi:10.1214/20-BA1221).
MIN_ESS_PER_CHAIN = 100

# Chains sit in different modes where their means are this many within-chain standard deviations
# apart; chains of one mode with 10 effective draws each are about 0.7 apart.
MODE_SEPARATION = 2.0

# Of the Monte Carlo cell probabilities, where they are not exact.
MAX_RELATIVE_ERROR = 0.1

# Of the margins of the model, those reported.
NUM_MARGINS = 3

_MIN_DRAWS = 4


@functools.cache
def load_arviz():
    """Import ArviZ without its once-a-day announcement of version 1."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            return importlib.import_module("arviz")
        except OSError:
            # ArviZ 0.23 notes the day in the user's cache folder and fails where there is none.
            with (
                tempfile.TemporaryDirectory() as folder,
                mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}),
            ):
                return importlib.import_module("arviz")


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
    names = ("log_likelihood", "components", "alpha")
    chosen = {name: run.draws[name] for name in names if name in run.draws}
    return chosen if margins is None else chosen | worst_margins(margins)


def worst_margins(margins: Margins, number: int = NUM_MARGINS) -> dict[str, np.ndarray]:
    """The margins with the largest split R-hat, each (chains, draws); none that is constant."""
    varies = np.flatnonzero(np.ptp(margins.draws, axis=(0, 1)) > 0)
    half = margins.draws.shape[1] // 2
    if half < 2:
        return {}
    parts = np.concatenate([margins.draws[:, :half, varies], margins.draws[:, -half:, varies]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    order = np.argsort(-between / np.maximum(within, 1e-300), kind="stable")
    return {margins.names[r]: margins.draws[:, :, r] for r in varies[order[:number]]}


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
    if num_draws < _MIN_DRAWS or np.ptp(values) == 0 or not np.isfinite(values).all():
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


def warnings_of(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> list[str]:
    """What a methodologist should know before using the figures; empty if all is well."""
    draws = monitored(run, risk, margins)
    figures = {name: diagnose(values) for name, values in draws.items()}
    checks = (
        _not_converged(figures),
        _different_modes(draws),
        _few_effective_draws(figures, run.settings.num_chains),
        _short_run(draws),
        _no_warmup(run),
        _one_chain(run),
        _left_over(run),
        _last_class(run),
        _too_many_augmented(run),
        _monte_carlo_error(risk),
        _growth(run),
    )
    return [sentence for sentence in checks if sentence]


def _not_converged(figures):
    bad = [
        f"{name} {figure['rhat']:.3f}"
        for name, figure in figures.items()
        if figure["rhat"] is not None and figure["rhat"] > MAX_RHAT
    ]
    if bad:
        return (
            f"not converged: R-hat should be below {MAX_RHAT} and is {_listed(bad)}; run a longer "
            "warm-up and more draws before using the figures"
        )


def _different_modes(draws):
    for name in ("log_likelihood", "components"):
        values = np.asarray(draws.get(name, np.zeros((1, 0))), np.float64)
        if len(values) == 1 or values.shape[1] < _MIN_DRAWS:
            continue
        means = values.mean(axis=1)
        within = math.sqrt(np.mean(values.var(axis=1, ddof=1)))
        if np.ptp(means) > MODE_SEPARATION * within:
            of_risk = ""
            if "tau1_conditional" in draws:
                by_chain = ", ".join(f"{m:.1f}" for m in draws["tau1_conditional"].mean(axis=1))
                of_risk = f" by chain, the mean of tau1 is {by_chain};"
            return (
                f"multimodal: the chains' means of {name} "
                f"({', '.join(f'{mean:.1f}' for mean in means)}) differ by much more than the "
                f"spread within a chain ({within:.1f});{of_risk} run a longer warm-up and more "
                "chains, and do not use the average if they still differ"
            )


def _few_effective_draws(figures, num_chains):
    least = MIN_ESS_PER_CHAIN * num_chains
    bad = [
        f"{name} {' and '.join(short)}"
        for name, figure in figures.items()
        if (
            short := [
                f"{figure[f'ess_{kind}']:.0f} ({kind})"
                for kind in ("bulk", "tail")
                if figure[f"ess_{kind}"] is not None and figure[f"ess_{kind}"] < least
            ]
        )
    ]
    if bad:
        return (
            f"too few effective draws: the effective sample size should be at least {least} "
            f"({MIN_ESS_PER_CHAIN} a chain) and is {'; '.join(bad)}; run more draws"
        )


def _short_run(draws):
    fewest = min(values.shape[1] for values in draws.values())
    if fewest < _MIN_DRAWS:
        return (
            f"too few draws to judge convergence: {fewest} a chain, and fewer "
            f"than {_MIN_DRAWS} say nothing; run more draws"
        )


def _no_warmup(run):
    if run.settings.num_warmup == 0:
        return "no warm-up: the draws start from an arbitrary state; run a warm-up of some hundreds"


def _one_chain(run):
    if run.settings.num_chains == 1:
        return "one chain only: neither R-hat nor a second mode can be seen; run 4 chains"


def _left_over(run):
    largest = float(np.max(run.draws["left_over"], initial=0)) if "left_over" in run.draws else 0
    if largest > LEFT_OVER_TOLERANCE:
        return (
            f"truncated: up to {largest:.1e} of the component weight is left out in a kept draw "
            f"(at most {LEFT_OVER_TOLERANCE:.0e} is wanted); give the model a larger capacity"
        )


def _last_class(run):
    most = int(np.max(run.draws["last_class"], initial=0)) if "last_class" in run.draws else 0
    if most > 0:
        return (
            f"too few classes: in a kept draw, {most} records are in the last class, which takes "
            "all that the others leave; raise components (--components)"
        )


def _too_many_augmented(run):
    if "augmented" in run.draws and np.min(run.draws["augmented"], initial=0) < 0:
        return (
            "nearly everything is impossible: in a kept draw more records of the impossible region "
            "than can be counted were left out; look for conditions that exclude too much"
        )


def _monte_carlo_error(risk):
    if risk is not None and risk.relative_error > MAX_RELATIVE_ERROR:
        return (
            f"imprecise cell probabilities: their Monte Carlo error is {risk.relative_error:.0%} "
            f"(at most {MAX_RELATIVE_ERROR:.0%} is wanted); choose fewer key variables or the "
            "exact method"
        )


def _growth(run):
    if run.growth:
        sizes = ", ".join(f"{capacity} at sweep {sweep}" for sweep, capacity in run.growth)
        return f"capacity grown (for information): room for components was enlarged to {sizes}"


def _listed(items):
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _finite(value):
    value = float(value)
    return value if math.isfinite(value) else None
