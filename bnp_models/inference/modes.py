"""Modes of the posterior in which the chains are, found from their draws."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bnp_models.data.display import Shown, displayed
from bnp_models.data.documents import Document, Share
from bnp_models.data.messages import listed
from bnp_models.inference.convergence import MAX_RHAT, Figures, figures_by_name, large_rhats

# Modes are groups of segments of chains. Minimum numbers: segments of a chain, segments of all
# chains together, draws of a segment.
MIN_SEGMENTS_PER_CHAIN, MIN_SEGMENTS, MIN_DRAWS_PER_SEGMENT = 4, 16, 3

MAX_MODES = 8

FEW_CROSSINGS = 20

# Groups of segments are modes if the distance between their means is large enough, in units of:
# the standard deviation of a draw within a segment; that of a segment's mean within its group; and,
# for groups of whole chains, the standard error of the difference. Among simulated autocorrelated
# runs with one mode and at least 5 effective draws a chain, fewer than 1% are found to have two.
DRAW_SEPARATION, SEGMENT_SEPARATION, CHAIN_SEPARATION = 0.75, 6.0, 7.0


class IntervalEntry(Document):
    """Posterior mean and 95% interval."""

    mean: float
    q025: float
    q975: float


class ModeEntry(Document):
    """Mode of the posterior: its draws, and their means."""

    chains: Sequence[int]
    """Chains that were in it, counted from 1."""
    share: Share
    """Share of the draws in it."""
    log_likelihood: float | None = None
    components: float | None = None
    alpha: float | None = None
    tau1: IntervalEntry | None = None


class ModesEntry(Document):
    """Result of the search for different modes of the chains."""

    verdict: str
    """Result in words."""
    number: int | None
    """Number of modes; null if there are too few draws to decide."""
    crossings: int
    """Times that a chain went from one mode to another."""
    crossing_chains: Sequence[int]
    """Chains that did so, counted from 1."""
    modes: Sequence[ModeEntry]


@dataclass(frozen=True, eq=False)
@displayed
class Modes:
    """Modes of the posterior in which the chains are.

    Examples
    --------
    >>> bnp.results.Diagnosis.of(run).modes.verdict
    'there are too few draws to tell modes apart'
    """

    labels: np.ndarray
    """(chains, segments) mode of each segment of each chain; mode 0 has the highest log-likelihood.
    There are no segments if there are too few draws to decide."""
    each: tuple[ModeEntry, ...]
    """One entry for each mode."""
    verdict: str
    """Sentence that describes the modes."""

    @property
    def number(self) -> int | None:
        """Number of modes; None if there are too few draws to decide."""
        return len(self.each) or None

    @property
    def crossings(self) -> int:
        """Number of times that a segment of a chain is in another mode than the one before it."""
        return int(np.sum(self.labels[:, 1:] != self.labels[:, :-1]))

    @property
    def crossing_chains(self) -> list[int]:
        """Chains, counted from 1, that have been in more than one mode."""
        crossed = (self.labels[:, 1:] != self.labels[:, :-1]).any(axis=1)
        return [int(chain) + 1 for chain in np.flatnonzero(crossed)]

    def document(self) -> ModesEntry:
        """Entry "modes" of ``risk.json`` and ``run.json``."""
        return ModesEntry.of(self, modes=self.each)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        return Shown(f"Modes: {self.verdict}")


def find_modes(draws: dict[str, np.ndarray], figures: dict[str, Figures] | None = None) -> Modes:
    """Find out from the draws whether the chains are in different modes.

    Each chain is cut into quarters, or into more segments if there are fewer than four chains.
    Segments are grouped by their mean log-likelihood, or, if it shows only one mode, by their mean
    number of components. Two groups are separate modes if their distance is larger than the spread
    within segments, and between the segments of a group, can explain. Therefore slow mixing within
    one mode is not mistaken for two modes. Modes between which the chains move many times in a
    segment are not distinguished, because the chains mix well between them.

    Parameters
    ----------
    draws
        Arrays (chains, draws) by name, such as those of `Diagnosis`. At least one of
        "log_likelihood" and "components" is needed to find modes; the means of "tau1" and "alpha"
        in each mode are reported.
    figures
        Their convergence figures, if these have been computed already.

    Examples
    --------
    >>> bnp.diagnose(run).modes.number is None
    True
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
    figures = figures_by_name(draws) if figures is None else figures
    return Modes(labels, each, _verdict(Modes(labels, each, ""), large_rhats(figures)))


def _group_segments(values, cuts) -> np.ndarray:
    """Labels (chains, segments) of the segments, from the lowest mean to the highest."""
    means = np.stack([values[:, cut].mean(axis=1) for cut in cuts], axis=1)
    variances = np.stack([values[:, cut].var(axis=1, ddof=1) for cut in cuts], axis=1)
    # Differences of less than one nat, or one component, do not matter. The median is used because
    # a segment in which a chain changes mode has a large variance.
    least = DRAW_SEPARATION * max(1.0, math.sqrt(np.median(variances)))
    labels = _group(means.ravel(), least, SEGMENT_SEPARATION).reshape(means.shape)
    labels = _without_passages(labels, means)
    if labels.max() == 0 and len(values) > 1:
        # A smaller distance is enough to separate whole chains.
        error = means.var(axis=1, ddof=1).mean() / len(cuts)
        of_chain = _group(means.mean(axis=1), least, CHAIN_SEPARATION, error)
        labels = np.broadcast_to(of_chain[:, None], means.shape).copy()
    return labels


def _group(values, least, separation, variance=None):
    """Group of each value, for the largest number of groups whose neighbours are all separated.

    Groups minimise the sum of squares within them. Their means differ by at least `least`, and by
    at least `separation` standard deviations of a value within its group or, if the `variance` of a
    value is given, of the difference.
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
    """Groups of sorted values: best division by least squares into 1, 2, .., `most` groups."""
    size = len(ordered)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    squares = np.concatenate([[0], np.cumsum(ordered**2)])
    start, end = np.meshgrid(np.arange(size + 1), np.arange(size + 1), indexing="ij")
    length = np.maximum(end - start, 1)
    cost = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / length
    cost = np.where(end > start, cost, np.inf)
    best, starts, groupings = cost[0], [], [np.zeros(size, int)]
    for number in range(2, most + 1):
        total = best[:, None] + cost
        starts.append(np.argmin(total, axis=0))
        best = np.min(total, axis=0)
        cut, last = np.zeros(size, int), size
        for group in range(number - 1, 0, -1):
            first = starts[group - 1][last]
            cut[first:last], last = group, first
        groupings.append(cut)
    return groupings


def _without_passages(labels, means):
    """Remove groups between two others in which chains stay for one segment only.

    In such a segment a chain changes from one mode to another; the segment gets the label of the
    nearer of the two modes.
    """
    before = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    after = np.pad(labels[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    for group in range(1, labels.max()):
        passing = labels == group
        # -1 means that there is no segment before or after; it may stand for either side.
        one_way = (before < group) & ((after > group) | (after < 0))
        other_way = ((before > group) | (before < 0)) & (after < group)
        if (one_way | other_way)[passing].all():
            low, high = means[labels == group - 1].mean(), means[labels == group + 1].mean()
            nearer = np.where(means - low < high - means, group - 1, group + 1)
            labels = np.where(passing, nearer, labels)
            return _without_passages(labels - (labels > group), means)
    return labels


def _describe_mode(draws, segments, where) -> ModeEntry:
    """Entry that describes the mode of these segments and draws."""
    names = [name for name in ("log_likelihood", "components", "alpha") if name in draws]
    interval = None
    if "tau1" in draws:
        tau1 = np.asarray(draws["tau1"], np.float64)[where]
        low, high = np.quantile(tau1, [0.025, 0.975])
        interval = IntervalEntry(mean=tau1.mean(), q025=low, q975=high)
    return ModeEntry(
        chains=[int(chain) + 1 for chain in np.flatnonzero(segments.any(axis=1))],
        share=np.mean(where),
        **{name: np.mean(draws[name][where]) for name in names},
        tau1=interval,
    )


def _verdict(modes: Modes, apart: list[str]) -> str:
    """Sentence on the modes; `apart` names the quantities on which the chains do not agree."""
    num_chains = len(modes.labels)
    if modes.number == 1 and num_chains == 1:
        return (
            "the chain stays in one mode; it is not known whether other chains would find more "
            "modes"
        )
    if modes.number == 1:
        if not apart:
            return "the chains agree: one mode"
        return (
            "no separate modes were found, but the chains do not agree yet: R-hat should be at "
            f"most {MAX_RHAT}, but its values are: {listed(apart)}"
        )
    crossing = modes.crossing_chains
    sentences = []
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
        sentences.append(f"{_chains(mode['chains'])} ({', '.join(figures)})")
    start = "the chains sit" if num_chains > 1 else "the chain has been"
    told = f"{start} in {modes.number} modes: {listed(sentences)}"
    if not crossing:
        return (
            f"{told}; no chain moves from one mode to another, so that the probabilities of the "
            "modes are unknown; pooled figures weight each mode by its number of chains"
        )
    times = "once" if modes.crossings == 1 else f"{modes.crossings} times in all"
    verb = "moves between modes" if len(crossing) == 1 else "move between modes"
    few = (
        ", which is too few to estimate the probabilities of the modes"
        if modes.crossings < FEW_CROSSINGS
        else ""
    )
    return (
        f"{told}; {_chains(crossing)} {verb}, {times}{few}; pooled figures weight each mode by its "
        "number of draws"
    )


def _chains(numbers: list[int]) -> str:
    """Words "chain 2" or "chains 1, 3"."""
    return f"chain{'s'[: len(numbers) > 1]} {', '.join(map(str, numbers))}"
