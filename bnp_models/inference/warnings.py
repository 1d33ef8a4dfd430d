"""Warnings: sentences for whoever has to decide whether the figures can be used."""

import numpy as np

from bnp_models.data.messages import listed
from bnp_models.inference.chunks import LEFT_OVER_TOLERANCE
from bnp_models.inference.diagnostics import (
    MAX_RHAT,
    MIN_DRAWS,
    MIN_ESS_PER_CHAIN,
    Converged,
    diagnose,
    large_rhats,
    monitored,
    target_reached,
)
from bnp_models.inference.modes import MAX_UNSPLIT_SHARE, find_modes
from bnp_models.inference.run import Run
from bnp_models.kernels.mixed_membership.urn_boxes import TooManyPartitions, require_listable
from bnp_models.models.mixed_membership.feasible import FEASIBLE_DRAWS
from bnp_models.risk.population import PopulationRisk
from bnp_models.synthesis.margins import Margins

# Of the Monte Carlo cell probabilities, where they are not exact.
MAX_RELATIVE_ERROR = 0.1


def warnings_of(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> list[str]:
    """What a methodologist should know before using the figures; empty if all is well."""
    draws = monitored(run, risk, margins)
    figures = {name: diagnose(values) for name, values in draws.items()}
    checks = (
        _stopped_early(run, risk, margins),
        _not_converged(figures),
        _different_modes(draws),
        _few_effective_draws(figures, run.settings.num_chains),
        _short_run(draws),
        _no_warmup(run),
        _one_chain(run),
        _left_over(run),
        _last_class(run),
        _last_member_class(run),
        _too_many_augmented(run),
        _too_many_to_split(run),
        _estimated_feasible(run),
        _weighted(run),
        _monte_carlo_error(risk),
        _growth(run),
    )
    return [sentence for sentence in checks if sentence]


def warnings_of_draws(draws: dict[str, np.ndarray]) -> list[str]:
    """Those warnings of `warnings_of` that arrays (chains, draws) by name suffice for."""
    figures = {name: diagnose(values) for name, values in draws.items()}
    num_chains = len(next(iter(draws.values())))
    checks = (
        _not_converged(figures),
        _different_modes(draws),
        _few_effective_draws(figures, num_chains),
        _short_run(draws),
    )
    return [sentence for sentence in checks if sentence]


def _stopped_early(run, risk, margins):
    if run.until is None or target_reached(run, risk, margins):
        return None
    target, minutes = run.until.target, f"{run.until.max_minutes:g}"
    start = f"stopped after {minutes} minute{'s'[: minutes != '1']}"
    if not isinstance(target, Converged):
        return f"{start}, before the target was reached; allow more minutes"
    missed = target.missed(monitored(run, risk, margins))
    return (
        f"{start}: {listed(missed)}, where R-hat of at most {target.max_rhat:g} and effective "
        f"sample sizes of at least {target.least_ess(run.settings.num_chains):g} were asked for; "
        "allow more minutes (--max-minutes)"
    )


def _not_converged(figures):
    bad = large_rhats(figures)
    if bad:
        return (
            f"not converged: R-hat should be below {MAX_RHAT} and is {listed(bad)}; run a longer "
            "warm-up and more draws before using the figures"
        )


def _different_modes(draws):
    modes = find_modes(draws)
    if len(modes.each) > 1:
        return f"multimodal: {modes.verdict}; report the modes apart, or run more and longer chains"


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
    if fewest < MIN_DRAWS:
        return (
            f"too few draws to judge convergence: {fewest} a chain, and fewer "
            f"than {MIN_DRAWS} say nothing; run more draws"
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


def _last_member_class(run):
    draws = run.draws.get("last_member_class", np.zeros(1))
    if np.mean(draws) >= 1:
        return (
            f"too few member classes: on average, {np.mean(draws):.1f} members are in the last "
            "class of their household's class, which takes all that the others leave; raise "
            "member_components (--member-components)"
        )


def _too_many_augmented(run):
    if "augmented" in run.draws and np.min(run.draws["augmented"], initial=0) < 0:
        return (
            "nearly everything is impossible: in a kept draw more records of the impossible region "
            "than can be counted were left out; look for conditions that exclude too much"
        )


def _too_many_to_split(run):
    if "augmented" not in run.draws or not hasattr(run.model, "most_simulated"):
        return None
    most = run.model.most_simulated(run.table.n)
    share = 0 if most is None else np.mean(run.draws["augmented"] > most)
    if share > MAX_UNSPLIT_SHARE:
        return (
            f"components neither split nor merge: in {share:.0%} of the kept draws the impossible "
            f"region holds more than the {most:,} records with which they do, so that chains may "
            "stay in the mode in which they began; compare more chains and starts, or run tnplcm"
        )


def _estimated_feasible(run):
    if not hasattr(run.model, "most_simulated") or run.feasible_sets is None:
        return None
    try:
        require_listable(run.feasible_sets, run.num_levels)
    except TooManyPartitions:
        return (
            f"P(feasible) is estimated from {FEASIBLE_DRAWS:,} draws of record weights, not exact: "
            "the conditions fix too many variables together; the log-likelihood has its error, n "
            "times as large, and chains mix without tilts and trajectories; fewer variables to a "
            "condition, or tnplcm, make it exact"
        )


def _weighted(run):
    weight = getattr(run.model, "impossible_weight", 1)
    if weight > 1:
        return (
            f"approximation: each impossible household drawn stands for {weight} (cap-and-weight); "
            "leave out --impossible-weight for the exact posterior"
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
