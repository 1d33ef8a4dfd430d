"""Posterior margins: the probability of every level, draw by draw."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from bnp_models.inference.convergence import monitored
from bnp_models.inference.run import Run, blocks_of_draws
from bnp_models.models.model import Completes


@dataclass(frozen=True, eq=False)
class Margins:
    """Probabilities of the levels of each variable, for a new record, given thinned draws."""

    names: tuple[str, ...]
    """(R,) "margin VARIABLE=LEVEL" of each level."""
    draws: np.ndarray
    """(chains, draws, R) float64 probabilities."""
    thin: int
    """Every how many of the run's draws were evaluated."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities of the run that convergence is judged by, and the worst margins."""
        return monitored(run) | worst_margins(self)

    def warnings(self) -> list[str]:
        """Sentences about the evaluation itself: none, it is exact."""
        return []


def level_margins(run: Run, max_draws: int = 200) -> Margins:
    """Evaluate the margins of feasible records, by which convergence is judged.

    Parameters
    ----------
    run
        Chains of a latent class model, which kept its ``parameters``.
    max_draws
        At most so many draws of each chain are evaluated.

    Raises
    ------
    ValueError
        If the model does not know the margins (`Completes`), or `run` kept no parameters.
    """
    if not isinstance(run.model, Completes):
        raise ValueError(f"the {run.model.name} model does not know the margins of variables")
    schema = run.table.schema
    thin = -(-run.settings.num_samples // max_draws)
    draws = run.parameters(thin)
    num_chains, num_draws = draws["alpha"].shape
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    total, blocks, feasible = num_chains * num_draws, [], run.feasible_sets
    for _, padded in blocks_of_draws(total):
        block = {name: value[padded] for name, value in draws.items()}
        blocks.append(np.asarray(_levels(run.model, block, feasible, num_levels=schema.num_levels)))
    values = np.concatenate(blocks)[:total].astype(np.float64)
    names = [
        f"margin {variable}={label}"
        for variable, labels in zip(schema.variables, schema.levels, strict=True)
        for label in labels
    ]
    return Margins(tuple(names), values.reshape(num_chains, num_draws, len(names)), thin)


@partial(jax.jit, static_argnames="num_levels")
def _levels(model, draws, feasible, num_levels):
    """(draws, R) probability of every level given each draw."""
    with jax.named_scope("level_probabilities"):
        return jax.lax.map(
            lambda draw: model.level_probabilities(draw, num_levels, feasible), draws
        )


NUM_MARGINS = 3
"""Margins reported of all that a model has."""


def worst_margins(margins: Margins, number: int = NUM_MARGINS) -> dict[str, np.ndarray]:
    """Choose the margins with the largest split R-hat, each (chains, draws); none is constant.

    Parameters
    ----------
    margins
        All margins.
    number
        Margins to choose.
    """
    varies = np.flatnonzero(np.ptp(margins.draws, axis=(0, 1)) > 0)
    half = margins.draws.shape[1] // 2
    if half < 2:
        return {}
    parts = np.concatenate([margins.draws[:, :half, varies], margins.draws[:, -half:, varies]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    order = np.argsort(-between / np.maximum(within, 1e-300), kind="stable")
    return {margins.names[r]: margins.draws[:, :, r] for r in varies[order[:number]]}
