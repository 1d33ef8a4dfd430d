"""Probabilities of coarser compositions of households at draws of a nested model.

The probability of a coarser composition (`bnp_models.data.coarser_households`) is the sum of the
probabilities of the possible finer ones in it, divided by P(possible) of the finer model.

- **Without rules** it is exact. Given the classes, a merged level has the sum of the probabilities
  of its levels, and a dropped variable the factor one. If the head is no longer known, the sum is
  over the persons who may be the head. If a coarser variable is coded relative to the head's value,
  the sum is over the values that the head may have.
- **Under rules** it is the same number times the probability that a household of the coarser
  composition is possible. This is one if the head is known and no value that was made coarser is
  read by a rule. Otherwise it is estimated for each draw: the share of possible households among
  128 that are drawn from the model given the coarser composition. With the share p, its relative
  standard error is sqrt((1 - p) / (128 p)). The coarser composition is at least as probable as the
  finer one of the household itself, which bounds the estimate from below.
"""

import math
from collections.abc import Mapping
from functools import cached_property

import jax
import numpy as np
from scipy.special import logsumexp

from bnp_models.data.coarser_households import Labels, is_coarser, labels_of
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.messages import quoted
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.run import HouseholdsRun, blocks_of_draws, shape_of_draws
from bnp_models.inference.weighting import sample_law, unsampled_law
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.model import Model
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.models.nested.state import NESTED
from bnp_models.risk.arrangements import LEAST, Arrangements, Arranger
from bnp_models.risk.evaluator import Draws
from bnp_models.risk.household_probabilities import Laws, simulated_unseen
from bnp_models.risk.overdispersion import OF_COMPOSITIONS, Overdispersion, OverdispersionPosterior
from bnp_models.risk.possible_shares import all_possible, possible_shares
from bnp_models.rules.rules import CompiledRules

MAX_HEADS = 2**10
"""Largest number of combinations of the head's values that are summed over."""


def num_heads(coarsening: Recoding, model: Model, schema: HouseholdSchema) -> int:
    """Number of combinations of the head's values that are summed over for a coarsening."""
    relative = vars(model).get("relative", ())
    if not relative:
        return 1
    labels, names = labels_of(coarsening), schema.table.variables
    pairs = RelativeCoding(schema, relative).pairs
    named = {names.index(schema.member_variables[pair.member]): pair for pair in pairs}
    return math.prod(pair.num_levels for j, pair in named.items() if is_coarser(labels[j]))


def require_few_heads(
    coarsenings: Mapping[str, Recoding], model: Model, schema: HouseholdSchema
) -> None:
    """Raise MicrodataError if one would sum over too many values; arguments as of `num_heads`."""
    for text, coarsening in coarsenings.items():
        if (number := num_heads(coarsening, model, schema)) > MAX_HEADS:
            raise MicrodataError(
                f"for {quoted(text)}, {number:,} combinations of the head's values would have to "
                f"be summed over, which is more than {MAX_HEADS:,}; make fewer of the variables "
                "coarser that are modelled relative to the head (--relative)"
            )


class CoarserCompositions:
    """Probabilities of coarser compositions of the households of a sample, at draws of a run.

    Parameters
    ----------
    laws
        Distribution of the possible households.
    num_draws
        Largest number of draws that are evaluated; they are evenly spaced.
    key
        For P(possible) without a closed form.
    generator
        For the shares of possible households that are estimated.
    num_shares
        Number of draws at which these shares are estimated, evenly spaced; all draws then have
        their mean. None: every draw has its own.
    """

    def __init__(
        self,
        laws: Laws,
        num_draws: int,
        key: jax.Array,
        generator: np.random.Generator,
        num_shares: int | None = None,
    ):
        self.arranger, self.run = Arranger(laws), laws.run
        self.draws: Draws = laws.run.spaced_parameters(num_draws)
        flat = {x: self.draws[x].reshape(-1, *self.draws[x].shape[2:]) for x in NESTED}
        log_possible = laws.log_possible(key, flat, np.arange(len(flat["log_pi"])))
        self._log_possible = logsumexp(log_possible, axis=1, keepdims=True)
        self._flat, self._generator = flat, generator
        total = len(self._log_possible)
        wanted = total if num_shares is None else min(num_shares, total)
        self._at_shares = np.unique((np.arange(wanted) * total + total // 2) // wanted)

    def log_probabilities(self, labels: Labels, rows: np.ndarray) -> np.ndarray:
        """Evaluate the coarser compositions (D, m) of some households.

        Parameters
        ----------
        labels
            The coarser levels.
        rows
            (m,) households.
        """
        found = np.empty((len(self._log_possible), len(rows)))
        may_break = self.may_break_rules(labels, rows)
        for estimated in (False, True):
            which = np.flatnonzero(may_break == estimated)
            if len(which):
                found[:, which] = self._evaluated(labels, rows[which], estimated)
        if may_break.any():
            finest = [np.arange(size) for size in self.run.table.schema.table.num_levels]
            own = self._evaluated(finest, rows[may_break], False)
            found[:, may_break] = np.maximum(found[:, may_break], own)
        return found

    def may_break_rules(self, labels: Labels, rows: np.ndarray) -> np.ndarray:
        """Whether rules may exclude some of the households of each coarser composition, (m,)."""
        data, arranger = self.arranger.data, self.arranger
        if data.possible is None:
            return np.zeros(len(rows), bool)
        if not arranger.head_is_known(labels):
            return np.ones(len(rows), bool)
        of_household = [*arranger.shared, *arranger.of_head]
        read = {of_household[k] for k in data.household.read}
        read |= {arranger.of_member[v] for v in data.member.read}
        members, found = arranger.members, np.zeros(len(arranger.members.codes), bool)
        for j in read:
            if is_coarser(labels[j]):
                found |= (np.bincount(labels[j]) > 1)[labels[j]][members.codes[:, j]]
        may = np.logical_or.reduceat(found, members.start)[rows]
        arranged = arranger.arranged(labels, rows[may])
        may[may] = ~all_possible(arranger, self._rules, labels, arranged)
        return may

    def _evaluated(self, labels: Labels, rows: np.ndarray, estimated: bool) -> np.ndarray:
        """Log probabilities (D, m), with the share of possible households if it is estimated."""
        arranger = self.arranger
        arranged = arranger.arranged(labels, rows)
        choices = arranger.choices(labels, arranged)
        sizes, head = arranger.members.sizes[rows], arranger.schema.num_heads
        # All persons in all orders; of these, each person is the head equally often.
        log_orders = arranger.members.grouped(labels, rows).log_orders - head * np.log(sizes)
        first = np.flatnonzero(np.diff(arranged.row, prepend=-1))
        found = np.empty((len(self._log_possible), len(rows)))
        shares = np.ones_like(found)
        for indices, _ in blocks_of_draws(len(found), self._figures(arranged), len(found)):
            draws = {name: value[indices] for name, value in self._flat.items()}
            evaluated = list(arranger.evaluated(draws, labels, arranged, choices))
            log_p = np.full((len(choices), len(indices), len(arranged.row)), -np.inf)
            for of, choice, one in zip(log_p, choices, evaluated, strict=True):
                of[:, choice.arrangement] = logsumexp(one.log_p, axis=2)
            summed = np.logaddexp.reduce(log_p, axis=0)
            found[indices] = np.logaddexp.reduceat(summed, first, axis=1)
            if estimated and (at := np.intersect1d(indices, self._at_shares)).size:
                places = at - indices[0]
                shares[at] = possible_shares(
                    arranger, self._rules,
                    [{name: value[d] for name, value in draws.items()} for d in places],
                    labels, arranged, choices,
                    [[one.at(d) for one in evaluated] for d in places], self._generator,
                )  # fmt: skip
        if len(self._at_shares) < len(shares):
            shares = shares[self._at_shares].mean(axis=0)
        return found + np.log(np.maximum(shares, LEAST)) + log_orders - self._log_possible

    def _figures(self, arranged: Arrangements) -> int:
        """Numbers that are computed for each draw: of members by class, and of arrangements."""
        (_, *classes), (_, num_classes) = (
            self._flat[name].shape[1:] for name in ("log_phi", "log_lambda")
        )
        number = min(len(arranged.of_member), math.prod(self.arranger.data.member.num_levels))
        return number * max(math.prod(classes), num_classes) + len(arranged.row) * num_classes

    @cached_property
    def _rules(self) -> CompiledRules:
        """The rules, as a predicate of level codes."""
        assert self.run.conditions is not None
        return self.run.conditions.compile(self.arranger.schema)


class HouseholdEvaluator:
    """Draws of a run on households, for the coarser compositions of its sample.

    Parameters
    ----------
    run, population_size
        As for `household_risk`.
    num_draws, num_shares
        As for `CoarserCompositions`.
    key
        Used once.
    """

    def __init__(
        self,
        run: HouseholdsRun,
        population_size: int,
        num_draws: int,
        key: jax.Array,
        num_shares: int | None = None,
    ):
        key_possible, key_shares = Keys(key)
        self._laws, generator = Laws(sample_law(run)), numpy_generator(key_shares)
        more = num_draws, key_possible, generator, num_shares
        self._sample = CoarserCompositions(self._laws, *more)
        self._rest, rest = self._sample, unsampled_law(run)
        if rest is not self._laws.run:
            self._rest = CoarserCompositions(Laws(rest), *more)
        self.run, self.draws = self._laws.run, self._sample.draws
        self.num_new = population_size - self.run.table.n
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._numbered: dict[tuple[int, bytes], np.ndarray] = {}
        self._known: dict[tuple[int, bytes], tuple[np.ndarray, np.ndarray]] = {}

    def sharing(self, coarsening: Recoding, among: np.ndarray | None = None) -> np.ndarray:
        """Households of the sample, or of some (m,), with each one's coarser composition."""
        return self._sample.arranger.members.grouped(labels_of(coarsening), among).sharing

    def can_evaluate(self, coarsening: Recoding) -> bool:
        """Whether there are few enough values of heads to sum over."""
        return num_heads(coarsening, self.run.model, self.run.table.schema) <= MAX_HEADS

    def coarser(self, coarsening: Recoding, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate the coarser compositions of some households.

        A composition is evaluated once: another coarsening that makes the same of a household has
        the same figures.

        Parameters
        ----------
        coarsening
            Recoding of the variables of persons.
        rows
            (m,) households.

        Returns
        -------
        log_b, log_q
            (D, m) log probabilities for a household of the sample, and for another one.
        """
        labels = labels_of(coarsening)
        keys = self._keys(labels, rows)
        new = [i for i, key in enumerate(keys) if key not in self._known]
        if new:
            log_b = log_q = self._sample.log_probabilities(labels, rows[new])
            if self._rest is not self._sample:
                log_q = self._rest.log_probabilities(labels, rows[new])
            for i, b, q in zip(new, log_b.T, log_q.T, strict=True):
                self._known[keys[i]] = b, q
        found = np.empty((2, math.prod(shape_of_draws(self.draws)), len(rows)))
        for i, key in enumerate(keys):
            found[:, :, i] = self._known[key]
        return found[0], found[1]

    def draw_overdispersion(self, key: jax.Array) -> Overdispersion:
        """Draw the parameters of the correction for overdispersion given each draw of the model."""
        key_unseen, key_draw = Keys(key)
        finest = Recoding.of(self.run.table.schema.table, {})
        grouped = self._sample.arranger.members.grouped(labels_of(finest))
        _, first = np.unique(grouped.of_household, return_index=True)
        unseen = [of_households for of_households, *_ in simulated_unseen(self._laws, key_unseen)]
        posterior = OverdispersionPosterior(
            grouped.counts, np.concatenate(unseen), prior=OF_COMPOSITIONS
        )
        b, generator = np.exp(self.coarser(finest, first)[0]), numpy_generator(key_draw)
        blocks = [indices for indices, _ in blocks_of_draws(len(b), len(first))]
        drawn = [posterior.draw(generator, b[indices])[0] for indices in blocks]
        shapes, exponents, _ = zip(*drawn, strict=True)
        return Overdispersion(np.concatenate(shapes), np.concatenate(exponents), self.run.table.n)

    def _keys(self, labels: Labels, rows: np.ndarray) -> list[tuple[int, bytes]]:
        """What a coarsening makes of each household: the levels that each value may be."""
        members = self._sample.arranger.members
        _, person = members.persons(rows)
        columns = zip(labels, members.codes[person].T, strict=True)
        numbers = np.stack([self._groups(j, of)[x] for j, (of, x) in enumerate(columns)], axis=1)
        end = np.cumsum(members.sizes[rows])
        ranges = zip(rows.tolist(), end - members.sizes[rows], end, strict=True)
        return [(row, numbers[low:high].tobytes()) for row, low, high in ranges]

    def _groups(self, j: int, of: np.ndarray) -> np.ndarray:
        """Number of the set of levels of variable j that each level is one with."""
        if (key := (j, of.tobytes())) not in self._numbered:
            groups = [
                self._numbers.setdefault((j, (of == label).tobytes()), len(self._numbers))
                for label in range(int(of.max()) + 1)
            ]
            self._numbered[key] = np.array(groups, np.int32)[of]
        return self._numbered[key]
