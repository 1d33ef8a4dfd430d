"""Probabilities of compositions of households, and of kinds of persons, at draws of a run."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from scipy.special import logsumexp
from tqdm import tqdm

from bnp_models.data.compositions import composition_rows, compositions_of
from bnp_models.data.households import Households
from bnp_models.inference.run import HouseholdsRun, blocks_of_draws, spaced_draws
from bnp_models.inference.simulated_households import simulate_households
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.nested.probabilities import (
    coded_persons,
    household_arrays,
    knows_persons,
    log_households,
    log_persons,
    log_possible_by_size,
)
from bnp_models.models.nested.state import NESTED, NestedData
from bnp_models.risk.evaluator import Draws
from bnp_models.risk.overdispersion import NUM_DRAWS, NUM_SIMULATED

# Fewest draws from which households are simulated for the correction for overdispersion.
_LEAST_SIMULATED = 4

LogProbability: TypeAlias = Callable[[Draws, np.ndarray], np.ndarray]
"""Function of a block of draws, and of log P(size and possible) (block, H), that returns log
probabilities (block, C) in float64."""


class Parameters(NamedTuple):
    """A block of draws of the parameters."""

    draws: Draws
    """Arrays (block, ...), padded."""
    log_possible: np.ndarray
    """(block, H) log P(size and possible)."""
    number: int
    """Draws of the block before padding."""


class Laws:
    """Distributions of the possible households, and of their persons, at draws of a run."""

    def __init__(self, run: HouseholdsRun):
        self.run = run
        self.data: NestedData = run.model.prepare(run.table, run.conditions)
        self.sizes = np.unique(run.table.sizes)

    def blocks(self, key: jax.Array, thin: int, progress: bool) -> Iterator[Parameters]:
        """Yield blocks of every `thin`-th draw; the key is as of `log_possible`."""
        draws = self.run.parameters(thin)
        flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in NESTED}
        blocks = blocks_of_draws(len(flat["log_pi"]))
        for indices, padded in tqdm(blocks, desc="risk", disable=not progress):
            block = {name: value[padded] for name, value in flat.items()}
            yield Parameters(block, self.log_possible(key, block, padded), len(indices))

    def log_possible(self, key: jax.Array, draws: Draws, numbers: np.ndarray) -> np.ndarray:
        """Log P(size and possible) (block, H) of a household before truncation.

        The numbers of the draws are folded into the key, which is used if there is no closed form.
        """
        found = log_possible_by_size(draws | {"number": numbers}, self.data, key)
        return np.asarray(found, np.float64)

    def of_households(
        self, table: Households, log_orders: np.ndarray, distinct: bool = True
    ) -> LogProbability:
        """Probabilities of the compositions of households, given their log numbers of orders."""
        arrays = household_arrays(table, self.sizes, self.data.relative, distinct)
        order, _ = table.order_by_size

        def log_probability(draws, log_possible):
            log_p = np.empty((len(log_possible), table.n))
            log_p[:, order] = log_households(draws, **arrays)
            return log_p + log_orders - logsumexp(log_possible, axis=1, keepdims=True)

        return log_probability

    def of_persons(self, codes: np.ndarray) -> LogProbability:
        """Probabilities of kinds of persons (C, J) for a random person of possible households."""
        groups = coded_persons(codes, self.run.table, self.data)

        def log_probability(draws, log_possible):
            log_p = np.empty((len(log_possible), len(codes)))
            for heads, persons in groups:
                log_p[:, persons.place] = log_persons(draws, self.data, persons, heads)
            persons_of_size = np.log(self.sizes)
            return log_p - logsumexp(log_possible + persons_of_size, axis=1, keepdims=True)

        return log_probability


def simulated_unseen(laws: Laws, key: jax.Array) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield model's probabilities of compositions, and of kinds of persons, that the sample lacks.

    They are those of households that are simulated from some draws, as many of each size as in the
    sample, and of their persons.
    """
    run = laws.run
    key_households, key_possible = Keys(key)
    kept = run.settings.num_chains * run.settings.num_arrays
    wanted = max(_LEAST_SIMULATED, NUM_DRAWS * NUM_SIMULATED // run.table.n)
    number = min(wanted, NUM_DRAWS, kept)
    seen = {row.tobytes() for row in composition_rows(run.table)}
    seen_persons = {row.tobytes() for row in run.table.persons.codes}
    made = simulate_households(run, number, key_households)
    draws = ({name: draw[name][None] for name in NESTED} for draw in spaced_draws(run, number))
    for m, (draw, table) in enumerate(zip(draws, made, strict=True)):
        log_possible = laws.log_possible(key_possible, draw, np.array([m]))
        grouped = compositions_of(table)
        orders = grouped.log_orders[grouped.of_household]
        log_b = laws.of_households(table, orders, distinct=False)(draw, log_possible)[0]
        parts = [np.exp(log_b)[[row.tobytes() not in seen for row in composition_rows(table)]]]
        if knows_persons(laws.data):
            codes = table.persons.codes
            log_q = laws.of_persons(codes)(draw, log_possible)[0]
            parts.append(np.exp(log_q)[[row.tobytes() not in seen_persons for row in codes]])
        yield tuple(parts)
