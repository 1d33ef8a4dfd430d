"""Posterior margins: the probability of every level under each draw."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.bins import level_counts
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.households import persons_of
from bnp_models.data.identifying import SMALLEST_SHOWN
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, Schema
from bnp_models.inference.convergence import monitored
from bnp_models.inference.run import Run, blocks_of_draws, shape_of_draws
from bnp_models.inference.weighting import population_law
from bnp_models.kernels.numerics.counting import variable_of_rows
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.models.model import KnowsMargins, MakesHouseholds


@dataclass(frozen=True, eq=False)
@displayed
class Margins:
    """Probabilities of the levels of each variable, for a new record, given thinned draws.

    Examples
    --------
    >>> margins = bnp.level_margins(run)
    >>> margins.names[0]
    'margin age=0-14'
    """

    names: tuple[str, ...]
    """(R,) "margin VARIABLE=LEVEL" of each level. It is "margin VARIABLE, level NUMBER" if few
    records have the level: warnings name margins, and other people must not see such levels."""
    draws: np.ndarray
    """(chains, draws, R) float64 probabilities."""
    thin: int
    """Interval between the draws that were used, among the draws whose arrays were kept."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities of the run by which convergence is judged, and the worst margins."""
        return monitored(run) | worst_margins(self)

    def warnings(self) -> list[str]:
        """Sentences about the evaluation itself; there are none because it is exact."""
        return []

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        chains, draws, number = self.draws.shape
        means = zip(self.names, self.draws.mean(axis=(0, 1)), strict=True)
        frame = pd.DataFrame(means, columns=["margin", "mean"])
        what = f"{counted(chains, 'chain')} of {counted(draws, 'draw')}"
        return Shown(f"Margins: {counted(number, 'level')}, {what}", frame=frame)


def level_margins(run: Run, max_draws: int = 200) -> Margins | None:
    """Evaluate the margins of feasible records, by which convergence is judged.

    With design weights, these are the margins of the population.

    Parameters
    ----------
    run
        Chains of a model that can compute the margins; they must have kept its ``parameters``.
    max_draws
        Largest number of draws of each chain that are evaluated.

    Returns
    -------
    margins
        For households, the margins of possible households with the sizes of those in the sample.
        None if the margins cannot be computed under the rules, or if this would take too long.

    Raises
    ------
    ValueError
        If the model cannot compute the margins (`KnowsMargins`, `MakesHouseholds`), or `run` kept
        no parameters.

    Examples
    --------
    >>> bnp.level_margins(run).draws.shape
    (2, 20, 15)
    """
    check_kind(Run, "level_margins(run)", run=run)
    run = population_law(run)
    model, schema = run.model, run.table.schema
    rare = _rare_levels(persons_of(run.table))
    data, feasible = None, None
    num_levels: tuple[int, ...] = ()
    if isinstance(model, MakesHouseholds):
        data = model.prepare(run.table, run.conditions)
        names = _names_of_households(schema, data, rare)
    elif isinstance(model, KnowsMargins):
        if run.coding is not None:
            return None
        assert isinstance(schema, Schema)
        feasible, num_levels = run.feasible_sets, schema.num_levels
        names = _names(schema.variables, schema.levels, rare)
    else:
        raise ValueError(f"the {model.name} model cannot compute the margins of variables")
    thin = max(1, -(-run.settings.num_arrays // max_draws))
    draws = run.parameters(thin)
    num_chains, num_draws = shape_of_draws(draws)
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    total, blocks = num_chains * num_draws, []
    for _, padded in blocks_of_draws(total):
        block = {name: value[padded] for name, value in draws.items()}
        levels = _levels(model, block, data, feasible, num_levels=num_levels)
        if levels is None:
            return None
        blocks.append(np.asarray(levels))
    values = np.concatenate(blocks)[:total].astype(np.float64)
    values = values.reshape(num_chains, num_draws, len(names))
    known = np.array([name is not None for name in names])
    return Margins(tuple(filter(None, names)), values[..., known], thin)


def _rare_levels(table: Records) -> set[tuple[str, Label]]:
    """Variable and label of levels that pages without single records do not show."""
    return {
        (name, label)
        for name, labels in zip(table.schema.variables, table.schema.levels, strict=True)
        for label, count in zip(labels, level_counts(table, name), strict=True)
        if 0 < count < SMALLEST_SHOWN
    }


def _names(variables, levels, rare):
    """Name of each margin, the levels of one variable after the other."""
    # The variables of the head of a household have the levels of persons.
    return [
        f"margin {variable}, level {k}"
        if {(variable, label), (variable.removeprefix("head_"), label)} & rare
        else f"margin {variable}={label}"
        for variable, labels in zip(variables, levels, strict=True)
        for k, label in enumerate(labels, 1)
    ]


def _names_of_households(schema, data, rare):
    """Name of each margin of households and their members; None for a margin that is not used.

    Margins of the household size are not used, because the sizes are those of the sample. Margins
    of codes relative to the head are not used, because these are not levels of a variable.
    """
    household = _names(schema.household_variables, schema.household_levels, rare)
    member = _names(schema.member_variables, schema.member_levels, rare)
    relative = {pair.member for pair in data.relative.pairs} if data.relative else set()
    variable = variable_of_rows(schema.num_member_levels)
    member = [None if j in relative else name for j, name in zip(variable, member, strict=True)]
    return [*household, *[None] * len(data.blocks), *member]


@partial(jax.jit, static_argnames="num_levels")
def _levels(model, draws, data, feasible, num_levels):
    """(draws, R) probability of every level given each draw."""

    def of_draw(draw):
        if data is not None:
            return model.level_probabilities(draw, data)
        return model.level_probabilities(draw, num_levels, feasible)

    with jax.named_scope("level_probabilities"):
        return map_draws(of_draw, draws)


NUM_MARGINS = 3
"""Number of margins that are reported."""


def worst_margins(margins: Margins, number: int = NUM_MARGINS) -> dict[str, np.ndarray]:
    """Choose the margins with the largest split R-hat, each (chains, draws), without constant ones.

    Parameters
    ----------
    margins
        All margins.
    number
        Number of margins to choose.
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
