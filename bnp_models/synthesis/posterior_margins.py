"""Posterior margins: the probability of every level under each draw."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.bins import level_counts
from bnp_models.data.cells import joint_codes
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.households import persons_of
from bnp_models.data.identifying import SMALLEST_SHOWN
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, Schema
from bnp_models.inference.convergence import BEHIND, monitored
from bnp_models.inference.run import Run, blocks_of_draws, is_of_records, shape_of_draws
from bnp_models.inference.weighting import population_law
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.models.model import KnowsMargins, MakesHouseholds
from bnp_models.synthesis.synthesize import simulate_samples

# Samples that are simulated from each chain, and their largest number of records; number of pairs
# of levels that are judged; folded into the key that a run set aside.
_SIMULATED, _MOST_ROWS, _MOST_PAIRS, _MARGINS = 100, 10_000, 500, 0x4D415247


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
    pairs: "Margins | None" = None
    """Two-way margins, if files take a part of them from the draws."""

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities of the run by which convergence is judged, and the worst margins."""
        if self.share == 1:
            return monitored(run) | worst_margins(self)
        others = {name: x for name, x in monitored(run).items() if name not in BEHIND}
        worst = worst_margins(self) | ({} if self.pairs is None else worst_margins(self.pairs))
        return others | {f"{name} in the files": x for name, x in worst.items()}

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

    Calibrated files take this share of the two-way margins too, of which those of samples that are
    simulated from the draws are judged. If exact one-way margins would take too long, those of the
    simulated samples are judged as well.

    Parameters
    ----------
    run, share
        As for `level_margins`.
    """
    found = level_margins(run, share=share)
    if share == 1 or not is_of_records(run):
        return found
    settings, law = run.settings, population_law(run)
    table = law.table.tabulated
    pairs = _largest_pairs(table)
    levels = {(j,): np.arange(size) for j, size in enumerate(table.schema.num_levels)}
    each, rows = min(_SIMULATED, settings.num_arrays), min(table.n, _MOST_ROWS)
    key = jax.random.fold_in(run.key, _MARGINS)
    simulated = simulate_samples(law, settings.num_chains * each, key, rows)
    shares = np.stack([_shares(made, levels | pairs) for made in simulated])
    values = shares.reshape(settings.num_chains, each, -1)
    thin, rare = max(1, settings.num_arrays // each), _rare_levels(table)
    names = _names(table.schema.variables, table.schema.levels, rare)
    if found is None:
        found = Margins(tuple(names), values[..., : len(names)], thin, share)
    of_pairs = tuple(_pair_names(table, pairs, rare))
    return replace(found, pairs=Margins(of_pairs, values[..., len(names) :], thin, share))


def _largest_pairs(table: ContingencyTable) -> dict[tuple[int, ...], np.ndarray]:
    """Joint codes of the pairs of levels that most records have, by positions of variables."""
    found = {}
    for pair in combinations(range(len(table.schema.variables)), 2):
        joint, counts = _joint(table, pair)
        codes, of_row = np.unique(joint, return_inverse=True)
        found[pair] = codes, np.bincount(of_row, counts, len(codes))
    every = np.concatenate([np.zeros(0), *(counts for _, counts in found.values())])
    chosen = np.zeros(len(every), bool)
    chosen[np.argsort(-every, kind="stable")[:_MOST_PAIRS]] = True
    ends = np.cumsum([len(codes) for codes, _ in found.values()])[:-1]
    parts = zip(found.items(), np.split(chosen, ends), strict=False)
    return {pair: codes[some] for (pair, (codes, _)), some in parts if some.any()}


def _joint(table: ContingencyTable, of: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Joint codes of variables, and numbers of records, of the cells without missing values."""
    columns = table.codes[:, of]
    known = (columns >= 0).all(axis=1)
    sizes = [table.schema.num_levels[j] for j in of]
    return joint_codes(list(columns[known].T), sizes), table.counts[known]


def _numbers(table: ContingencyTable, of: tuple[int, ...], wanted: np.ndarray) -> np.ndarray:
    """Number of records with each of the wanted joint codes of variables, which ascend."""
    codes, counts = _joint(table, of)
    place = np.minimum(np.searchsorted(wanted, codes), len(wanted) - 1)
    have = wanted[place] == codes
    return np.bincount(place[have], counts[have], len(wanted))


def _shares(table: ContingencyTable, wanted: Mapping[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """Shares of the records with the wanted joint codes of variables, in one array."""
    return np.concatenate([_numbers(table, *one) for one in wanted.items()]) / table.n


def _pair_names(
    table: ContingencyTable,
    pairs: Mapping[tuple[int, ...], np.ndarray],
    rare: set[tuple[str, Label]],
) -> Iterator[str]:
    """Name of each pair of levels, by numbers of levels if few records have it."""
    schema = table.schema
    for of, codes in pairs.items():
        names = [schema.variables[j] for j in of]
        for code, count in zip(codes, _numbers(table, of, codes), strict=True):
            both = divmod(int(code), schema.num_levels[of[1]])
            labels = [schema.levels[j][k] for j, k in zip(of, both, strict=True)]
            named = set(zip(names, labels, strict=True))
            few = 0 < count < SMALLEST_SHOWN or not rare.isdisjoint(named)
            yield "margin " + " and ".join(
                f"{name}, level {k + 1}" if few else f"{name}={label}"
                for name, k, label in zip(names, both, labels, strict=True)
            )


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

    Margins of the household size are not used, because the sizes are those of the sample. Those of
    codes relative to the head are named by number, because a code is not one level of the variable.
    """
    household = _names(schema.household_variables, schema.household_levels, rare)
    member = _names(schema.member_variables, schema.member_levels, rare)
    first = first_rows(schema.num_member_levels)
    for pair in data.relative.pairs if data.relative else ():
        name, start = schema.member_variables[pair.member], first[pair.member]
        what = "code relative to the head" if all(pair.applies) else "level or code"
        codes = [f"margin {name}, {what} {k}" for k in range(pair.num_levels)]
        member[start : start + pair.num_levels] = codes
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
