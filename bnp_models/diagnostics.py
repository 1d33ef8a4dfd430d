"""Have the chains converged? Figures by ArviZ, and sentences for whoever has to decide.

Everything here is a function of the draws alone: a resumed run says what an uninterrupted one says.
"""

import functools
import importlib
import math
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np

from bnp_models.hdp_zeros import FEASIBLE_DRAWS
from bnp_models.kernels.urn_boxes import TooManyPartitions, require_listable
from bnp_models.risk import PopulationRisk
from bnp_models.sampling import LEFT_OVER_TOLERANCE, Run
from bnp_models.synthesis import Margins
from bnp_models.wording import listed

MAX_RHAT = 1.05

# Bulk and tail, per chain: below it the figures themselves are unreliable (Vehtari et al. 2021,
# doi:10.1214/20-BA1221).
MIN_ESS_PER_CHAIN = 100

# Modes are groups of segments of chains. A chain has at least so many segments, all chains together
# at least so many, and a segment so many draws.
MIN_SEGMENTS_PER_CHAIN, MIN_SEGMENTS, MIN_DRAWS_PER_SEGMENT = 4, 16, 3
MAX_MODES = 8
FEW_CROSSINGS = 20

# Share of the draws without which split-merge moves are not missed.
MAX_UNSPLIT_SHARE = 0.5

# Groups of segments are modes where their means are this many standard deviations of a draw within
# a segment apart; this many of a segment's mean within its group; and, for groups of whole chains,
# this many standard errors of the difference. Of autocorrelated runs in one mode, with 5 effective
# draws a chain or more, less than 1% are found to have two.
DRAW_SEPARATION, SEGMENT_SEPARATION, CHAIN_SEPARATION = 0.75, 6.0, 7.0

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
    names = ("log_likelihood", "components", "alpha", "beta")
    chosen = {
        name: run.draws[name] for name in names if name in run.draws and run.draws[name].ndim == 2
    }
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
                found.append(f"R-hat of {name} is {_shown(figure['rhat'], '.3f')}")
            for kind in ("bulk", "tail"):
                ess = figure[f"ess_{kind}"]
                if not (ess is not None and ess >= self.least_ess(len(values))):
                    found.append(f"the {kind} ESS of {name} is {_shown(ess, '.0f')}")
        return found


def target_reached(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> bool:
    """Whether a run of `bnp_models.sample_until` ended because its target was reached."""
    target = run.until.target
    if isinstance(target, Converged):
        return not target.missed(monitored(run, risk, margins))
    return bool(target(run))


@dataclass(frozen=True, eq=False)
class Modes:
    """In which modes of the posterior the chains sit."""

    labels: np.ndarray
    """(chains, segments) mode of each segment of each chain, the one of the highest log-likelihood
    being 0; no segments where there are too few draws to tell."""
    each: tuple[dict, ...]
    """Of each mode: "chains" (from 1), "share" of the draws, the means of "log_likelihood",
    "components" and "alpha", and, with a risk, the "mean", "q025" and "q975" of "tau1"."""
    verdict: str
    """All this in words."""

    @property
    def number(self) -> int | None:
        """How many modes; None where there are too few draws to tell."""
        return len(self.each) or None

    @property
    def crossings(self) -> int:
        """How often a segment of a chain is in another mode than the one before it."""
        return int(np.sum(self.labels[:, 1:] != self.labels[:, :-1]))

    @property
    def crossing_chains(self) -> list[int]:
        """The chains, from 1, that have been in more than one mode."""
        crossed = (self.labels[:, 1:] != self.labels[:, :-1]).any(axis=1)
        return [int(chain) + 1 for chain in np.flatnonzero(crossed)]

    def document(self) -> dict:
        """The modes as JSON values."""
        return {
            "verdict": self.verdict,
            "number": self.number,
            "crossings": self.crossings,
            "crossing_chains": self.crossing_chains,
            "modes": list(self.each),
        }


def find_modes(draws: dict[str, np.ndarray]) -> Modes:
    """Tell from the draws whether the chains sit in different modes.

    Each chain is cut into quarters, or into more segments where there are fewer than four chains.
    Segments are grouped by their mean log-likelihood, or, where it shows one mode only, by their
    mean number of components: into as many groups as are separated by more than the spread within
    segments and between the segments of a group explains, so that slow mixing within one mode is
    not taken for two. Modes that the chains change between many times in a segment are not told
    apart, and need not be.

    Parameters
    ----------
    draws
        What `monitored` returned, or other arrays (chains, draws) by name: "log_likelihood" or
        "components", of which one at least is needed to see anything; "tau1" and "alpha" are
        reported.
    """
    judged = [name for name in ("log_likelihood", "components") if name in draws]
    num_chains, num_draws = next(iter(draws.values())).shape
    number = max(MIN_SEGMENTS_PER_CHAIN, -(-MIN_SEGMENTS // num_chains))
    judged = [name for name in judged if np.isfinite(draws[name]).all()]
    if num_draws < number * MIN_DRAWS_PER_SEGMENT or not judged:
        labels = np.zeros((num_chains, 0), int)
        return Modes(labels, (), "there are too few draws to tell modes apart")
    cuts = np.array_split(np.arange(num_draws), number)
    labels = np.zeros((num_chains, number), int)
    for name in judged:
        if labels.max() == 0:
            labels = _group_segments(np.asarray(draws[name], np.float64), cuts)
    of_draw = np.repeat(labels, [len(cut) for cut in cuts], axis=1)
    if "log_likelihood" in judged:
        means = [draws["log_likelihood"][of_draw == m].mean() for m in range(labels.max() + 1)]
        rank = np.argsort(np.argsort(-np.asarray(means), kind="stable"))
        labels, of_draw = rank[labels], rank[of_draw]
    each = tuple(_describe_mode(draws, labels == m, of_draw == m) for m in range(labels.max() + 1))
    modes = Modes(labels, each, "")
    return Modes(labels, each, _verdict(modes, draws))


def _group_segments(values, cuts):
    """Labels of the segments, from the lowest mean to the highest."""
    means = np.stack([values[:, cut].mean(axis=1) for cut in cuts], axis=1)
    variances = np.stack([values[:, cut].var(axis=1, ddof=1) for cut in cuts], axis=1)
    # Differences of less than one nat, or one component, are of no consequence. The median: a
    # segment in which a chain changes mode has a large variance.
    least = DRAW_SEPARATION * max(1.0, math.sqrt(np.median(variances)))
    labels = _group(means.ravel(), least, SEGMENT_SEPARATION).reshape(means.shape)
    labels = _without_passages(labels, means)
    if labels.max() == 0 and len(values) > 1:
        # Whole chains are told apart by less.
        error = means.var(axis=1, ddof=1).mean() / len(cuts)
        of_chain = _group(means.mean(axis=1), least, CHAIN_SEPARATION, error)
        labels = np.broadcast_to(of_chain[:, None], means.shape).copy()
    return labels


def _group(values, least, separation, variance=None):
    """The largest number of groups of which all neighbours are separated, and each value's group.

    Groups are those of least squares. Their means differ by `least` and by `separation` standard
    deviations: of a value within its group, or, where the `variance` of a value is given, of the
    difference.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order] - np.mean(values)
    groups = np.zeros(len(values), int)
    most = len(values) if variance is not None else len(values) - 2
    for cut in _least_squares_groups(ordered, min(MAX_MODES, most))[1:]:
        sizes = np.bincount(cut)
        centres = np.bincount(cut, ordered) / sizes
        if variance is None:
            within = np.sum((ordered - centres[cut]) ** 2) / (len(values) - len(sizes))
            noise = math.sqrt(within)
        else:
            noise = np.sqrt(variance * (1 / sizes[1:] + 1 / sizes[:-1]))
        if np.all(np.diff(centres) > np.maximum(least, separation * noise)):
            groups[order] = cut
    return groups


def _least_squares_groups(ordered, most):
    """Of sorted values, the group of each in the best 1, 2, .., `most` groups."""
    size = len(ordered)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    squares = np.concatenate([[0], np.cumsum(ordered**2)])
    start, end = np.meshgrid(np.arange(size + 1), np.arange(size + 1), indexing="ij")
    length = np.maximum(end - start, 1)
    cost = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / length
    cost = np.where(end > start, cost, np.inf)
    best, starts, found = cost[0], [], [np.zeros(size, int)]
    for number in range(2, most + 1):
        total = best[:, None] + cost
        starts.append(np.argmin(total, axis=0))
        best = np.min(total, axis=0)
        cut, last = np.zeros(size, int), size
        for group in range(number - 1, 0, -1):
            first = starts[group - 1][last]
            cut[first:last], last = group, first
        found.append(cut)
    return found


def _without_passages(labels, means):
    """The groups but for those between two others that chains only pass through, for a segment.

    Such segments hold a change of mode; they go to the nearer of the two modes.
    """
    before = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    after = np.pad(labels[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    for group in range(1, labels.max()):
        here = labels == group
        # -1 stands for no segment, which lies on either side.
        one_way = (before < group) & ((after > group) | (after < 0))
        other_way = ((before > group) | (before < 0)) & (after < group)
        if (one_way | other_way)[here].all():
            low, high = means[labels == group - 1].mean(), means[labels == group + 1].mean()
            nearer = np.where(means - low < high - means, group - 1, group + 1)
            labels = np.where(here, nearer, labels)
            return _without_passages(labels - (labels > group), means)
    return labels


def _describe_mode(draws, segments, where):
    """The entry of `Modes.each` of these segments, and draws."""
    entry = {
        "chains": [int(chain) + 1 for chain in np.flatnonzero(segments.any(axis=1))],
        "share": float(np.mean(where)),
    }
    for name in ("log_likelihood", "components", "alpha"):
        if name in draws:
            entry[name] = float(np.mean(draws[name][where]))
    if "tau1" in draws:
        tau1 = np.asarray(draws["tau1"], np.float64)[where]
        low, high = np.quantile(tau1, [0.025, 0.975])
        entry["tau1"] = {"mean": float(tau1.mean()), "q025": float(low), "q975": float(high)}
    return entry


def _verdict(modes, draws):
    num_chains = len(modes.labels)
    if modes.number == 1 and num_chains == 1:
        return "the chain stays in one mode; what others would find is unknown"
    if modes.number == 1:
        apart = _large_rhats({name: diagnose(values) for name, values in draws.items()})
        if not apart:
            return "the chains agree: one mode"
        return (
            "no modes apart were found, but the chains do not agree yet: R-hat should be at most "
            f"{MAX_RHAT} and is {listed(apart)}"
        )
    crossing = modes.crossing_chains
    told = []
    for m, mode in enumerate(modes.each):
        label = "" if m else "log-likelihood "
        figures = [f"{label}{mode['log_likelihood']:.0f}"] if "log_likelihood" in mode else []
        if "components" in mode:
            figures.append(f"{mode['components']:.0f} components")
        if "tau1" in mode:
            tau1 = mode["tau1"]
            figures.append(f"tau_1 {tau1['mean']:.0f} [{tau1['q025']:.0f}, {tau1['q975']:.0f}]")
        if crossing:
            figures.append(f"{mode['share']:.0%} of the draws")
        told.append(f"{_chains(mode['chains'])} ({', '.join(figures)})")
    start = "the chains sit" if num_chains > 1 else "the chain has been"
    told = f"{start} in {modes.number} modes: {listed(told)}"
    if not crossing:
        return (
            f"{told}; no chain crosses, so their masses are unknown and the pooled figures weigh "
            "them by chains"
        )
    times = "once" if modes.crossings == 1 else f"{modes.crossings} times in all"
    verb = "crosses" if len(crossing) == 1 else "cross"
    few = ", which is too few to know their masses by" if modes.crossings < FEW_CROSSINGS else ""
    return (
        f"{told}; {_chains(crossing)} {verb}, {times}{few}: the pooled figures weigh them by draws"
    )


def _chains(numbers):
    return f"chain{'s'[: len(numbers) > 1]} {', '.join(map(str, numbers))}"


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


def _large_rhats(figures):
    return [
        f"{name} {figure['rhat']:.3f}"
        for name, figure in figures.items()
        if figure["rhat"] is not None and figure["rhat"] > MAX_RHAT
    ]


def _not_converged(figures):
    bad = _large_rhats(figures)
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


def _shown(value, format_spec):
    return "undefined" if value is None else format(value, format_spec)


def _finite(value):
    value = float(value)
    return value if math.isfinite(value) else None
