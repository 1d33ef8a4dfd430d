"""Warnings: sentences for the person who decides whether the figures can be used.

A model adds the warnings that concern only itself: see `Model.warnings`.
"""

import numpy as np

from bnp_models.data.display import first_parts
from bnp_models.data.households import persons_of
from bnp_models.data.identifying import identifying_variables
from bnp_models.data.labels import label_warnings
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.weight_classes import records_of
from bnp_models.inference.chunks import LEFT_OVER_TOLERANCE
from bnp_models.inference.convergence import (
    MAX_RHAT,
    MIN_DRAWS,
    MIN_ESS_PER_CHAIN,
    Converged,
    Figures,
    large_rhats,
    reported,
    rhat_of_others,
)
from bnp_models.inference.modes import Modes
from bnp_models.inference.run import AllDraws, Run
from bnp_models.zeros.settled import missing_by_design


def stopping_warnings(
    run: Run, missed: list[str], needed: tuple[float, float] | None = None
) -> list[str]:
    """Sentence on a run that used up its minutes.

    `missed` lists the figures that miss the target; `needed` is the forecast of the minutes, from
    and to.
    """
    assert run.until is not None
    until, num_chains = run.until, run.settings.num_chains
    target, minutes = until.target, f"{until.max_minutes:g}"
    start = f"stopped after {minutes} minute{'s'[: minutes != '1']}"
    least = until.first.num_samples
    if run.settings.num_sweeps < until.first.num_sweeps:
        start += f", with {run.settings.num_samples:,} of at least {least:,} draws of each chain"
    if isinstance(target, AllDraws):
        return [f"{start}; allow more minutes (--max-minutes)"]
    if not isinstance(target, Converged):
        return [f"{start}, before the target was reached; allow more minutes"]
    return [
        f"{start}: {listed(missed)}, but the target is R-hat of at most {target.max_rhat:g} and "
        f"effective sample sizes of at least {target.least_ess(num_chains):g}; allow more minutes "
        f"(--max-minutes{_about(needed)})"
    ]


def _about(minutes: tuple[float, float] | None) -> str:
    """Forecast of the minutes, in words."""
    return "" if minutes is None else f": {in_minutes(minutes)}"


def in_minutes(minutes: tuple[float, float]) -> str:
    """Words for a forecast of minutes, from and to, each with two digits at the most."""
    low, high = (
        max(1, float(f"{value:.1g}" if value >= 20 else f"{value:.0f}")) for value in minutes
    )
    return f"about {low:,.0f}" + (f" to {high:,.0f}" if high > low else "")


def draws_warnings(
    draws: dict[str, np.ndarray], figures: dict[str, Figures], modes: Modes, share: float = 1.0
) -> list[str]:
    """Sentences that need only arrays (chains, draws) by name, their figures and modes.

    If results take only a share of the reported quantities from the chains, and the chains agree on
    these, modes of other quantities do not matter.
    """
    num_chains = len(next(iter(draws.values())))
    sentences = (
        _not_converged(figures),
        None if share < 1 and not large_rhats(figures) else _different_modes(modes),
        _few_effective_draws(figures, num_chains),
        _short_run(draws),
    )
    return list(filter(None, sentences))


def design_warnings(run: Run) -> list[str]:
    """Sentence on values that are missing by design, which a longer run does not improve."""
    return missing_by_design(records_of(persons_of(run.table)))


def run_warnings(run: Run) -> list[str]:
    """Sentences on the settings of a run, on missing slots for components, and on its sample."""
    sentences = (_no_warmup(run), _one_chain(run), _left_over(run))
    table = records_of(persons_of(run.table))
    return [*filter(None, sentences), *_identifying(table), *label_warnings(table)]


def _identifying(table: Records) -> list[str]:
    """Sentence on the columns that may identify records, if there are any."""
    found = identifying_variables(table)
    if len(found) == 1:
        return [
            f"column {quoted(found[0].variable)} may identify: it {found[0].why}; leave it out, or "
            "put its values into bins or fewer levels"
        ]
    each = [f"column {quoted(one.variable)} may identify: it {one.why}" for one in found]
    remedy = "leave them out, or put their values into bins or fewer levels"
    return [f"{first_parts(each, 'column')}; {remedy}"] if each else []


def growth_warnings(run: Run) -> list[str]:
    """Sentence for information: slots for components were added."""
    if not run.growth:
        return []
    sizes = ", ".join(f"{capacity} at sweep {sweep}" for sweep, capacity in run.growth)
    return [f"capacity grown (for information): room for components was enlarged to {sizes}"]


def _not_converged(figures: dict[str, Figures]) -> str | None:
    apart = large_rhats(figures)
    if not apart:
        return None
    if not large_rhats(reported(figures)):
        return (
            "chains agree on what is reported, but not on everything else: R-hat should be below "
            f"{rhat_of_others(figures)}, but its values are: {listed(apart)}; a longer run would "
            "make the figures safer"
        )
    return (
        f"not converged: R-hat should be below {MAX_RHAT}, but its values are: {listed(apart)}; "
        "use a longer warm-up and more draws before you use the figures"
    )


def _different_modes(modes: Modes) -> str | None:
    if len(modes.each) < 2:
        return None
    return (
        f"multimodal: {modes.verdict}; report each mode separately, or run more and longer chains"
    )


def _few_effective_draws(figures: dict[str, Figures], num_chains: int) -> str | None:
    least = MIN_ESS_PER_CHAIN * num_chains
    few = []
    for name, figure in reported(figures).items():
        ess = {kind: figure[f"ess_{kind}"] for kind in ("bulk", "tail")}
        short = [f"{v:.0f} ({kind})" for kind, v in ess.items() if v is not None and v < least]
        if short:
            few.append(f"{name} {' and '.join(short)}")
    if not few:
        return None
    return (
        f"too few effective draws: the effective sample size should be at least {least} "
        f"({MIN_ESS_PER_CHAIN} a chain) and is {'; '.join(few)}; run more draws"
    )


def _short_run(draws: dict[str, np.ndarray]) -> str | None:
    fewest = min(values.shape[1] for values in draws.values())
    if fewest >= MIN_DRAWS:
        return None
    return (
        f"too few draws to judge convergence: there are {fewest} in each chain, and at least "
        f"{MIN_DRAWS} are needed; run more draws"
    )


def _no_warmup(run: Run) -> str | None:
    if run.settings.num_warmup > 0:
        return None
    return (
        "no warm-up: the draws start from an arbitrary state; run a warm-up of some hundred sweeps"
    )


def _one_chain(run: Run) -> str | None:
    if run.settings.num_chains > 1:
        return None
    return (
        "one chain only: without a second one, R-hat cannot be computed and another mode cannot be "
        "seen; run 4 chains"
    )


def _left_over(run: Run) -> str | None:
    largest = float(np.max(run.draws["left_over"], initial=0)) if "left_over" in run.draws else 0
    if largest <= LEFT_OVER_TOLERANCE:
        return None
    return (
        f"truncated: up to {largest:.1e} of the component weight is left out in a kept draw "
        f"(at most {LEFT_OVER_TOLERANCE:.0e} is wanted); give the model a larger capacity"
    )
