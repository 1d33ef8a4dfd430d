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
from bnp_models.inference.convergence import BEHIND, monitored
from bnp_models.inference.run import Run, blocks_of_draws, is_of_records, shape_of_draws
from bnp_models.inference.weighting import population_law
from bnp_models.kernels.numerics.counting import variable_of_rows
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.models.model import KnowsMargins, MakesHouseholds
from bnp_models.synthesis.synthesize import simulate_samples

# Samples that are simulated from each chain where exact margins would take too long; folded into
# the key that a run set aside.
_SIMULATED, _MARGINS = 50, 0x4D415247


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
    share: float = 1.0
    """Part of a margin that files take from the draws. If it is below one, they take the rest from
    the sample, and only the margins are judged: the log-likelihood may differ between chains
    without consequence for the tables to which the files are calibrated."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities of the run by which convergence is judged, and the worst margins."""
        if self.share == 1:
            return monitored(run) | worst_margins(self)
        others = {name: x for name, x in monitored(run).items() if name not in BEHIND}
        return others | {f"{name} in the files": x for name, x in worst_margins(self).items()}

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


def level_margins(run: Run, max_draws: int = 200, share: float = 1.0) -> Margins | None:
    """Evaluate the margins of feasible records, by which convergence is judged.

    With design weights, these are the margins of the population.

    Parameters
    ----------
    run
        Chains of a model that can compute the margins; they must have kept its ``parameters``.
    max_draws
        Largest number of draws of each chain that are evaluated.
    share
        Part of a margin that files take from the draws: `MODEL_SHARE` of
        `bnp_models.synthesis.calibration` if the files are calibrated.

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
    return Margins(tuple(filter(None, names)), values[..., known], thin, share)


def margins_of_files(run: Run, share: float = 1.0) -> Margins | None:
    """Evaluate the margins by which files are judged that take a share of them from the draws.

    If exact margins would take too long, those of calibrated files are margins of samples that are
    simulated from the draws.

    Parameters
    ----------
    run, share
        As for `level_margins`.
    """
    found = level_margins(run, share=share)
    if found is not None or share == 1 or not is_of_records(run):
        return found
    settings, key = run.settings, jax.random.fold_in(run.key, _MARGINS)
    law = population_law(run)
    schema = law.table.schema
    each = min(_SIMULATED, settings.num_arrays)
    draws = [
        np.concatenate([
            np.bincount(made.codes[:, j], made.counts, number) / made.n
            for j, number in enumerate(schema.num_levels)
        ])
        for made in simulate_samples(law, settings.num_chains * each, key)
    ]  # fmt: skip
    names = _names(schema.variables, schema.levels, _rare_levels(law.table))
    values = np.reshape(draws, (settings.num_chains, each, -1))
    return Margins(tuple(names), values, max(1, settings.num_arrays // each), share)


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


_ROUNDING = 1e-5

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
    # Constant margins, such as that of a variable's only level, are so up to rounding in float32.
    least = _ROUNDING * margins.draws.max(axis=(0, 1))
    varies = np.flatnonzero(np.ptp(margins.draws, axis=(0, 1)) > least)
    half = margins.draws.shape[1] // 2
    if half < 2:
        return {}
    parts = np.concatenate([margins.draws[:, :half, varies], margins.draws[:, -half:, varies]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    order = np.argsort(-between / np.maximum(within, 1e-300), kind="stable")
    return {margins.names[r]: margins.draws[:, :, r] for r in varies[order[:number]]}
