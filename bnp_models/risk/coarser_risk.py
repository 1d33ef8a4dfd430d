"""Risk on coarser keys from the same posterior, without new chains.

In mixed membership and latent class models the factor of a dropped variable becomes one, and a
merged level has the sum of the probabilities of its levels. With structural zeros, the probability
of a coarser cell is the sum of the probabilities of the feasible cells in it, which are listed. The
coarser compositions of households are those of `bnp_models.risk.coarser_compositions`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import jax
import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.coarser_households import recoded_households
from bnp_models.data.compositions import compositions_of, num_compositions
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records, SmallCells
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import Schema
from bnp_models.inference.run import (
    HouseholdsRun,
    RecordsRun,
    Run,
    is_of_households,
    is_of_records,
    shape_of_draws,
)
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.coarsening import (
    hierarchies_of,
    household_drops,
    parse_coarsening,
    require_listable,
    single_drops,
)
from bnp_models.risk.coarser_compositions import HouseholdEvaluator, require_few_heads
from bnp_models.risk.evaluator import Evaluator, draw_taus
from bnp_models.risk.households import check_households
from bnp_models.risk.missing_keys import (
    MISSING_KEYS,
    Completions,
    anonymity_of,
    are_alone,
    matching_records,
)
from bnp_models.risk.overdispersion import TIES, Overdispersion

NUM_DRAWS = 100
"""Largest number of draws at which coarser keys are evaluated."""


@dataclasses.dataclass(frozen=True, eq=False)
@displayed
class CoarserRisk:
    """Disclosure risk of the sample on coarser keys.

    Examples
    --------
    >>> coarser = bnp.coarsen(run, 5_000, ["drop:education"])["drop:education"]
    >>> coarser.table.schema.variables
    ('age', 'sex')
    """

    table: Records | Households
    """The coarser records, or households."""
    tau1: np.ndarray
    """(draws,) draws of the number of sample uniques that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F their population count."""
    matching: np.ndarray | None = None
    """(C,) as of `PopulationRisk`, where missing values are wildcards."""
    num_uniques: np.ndarray | None = None
    """(draws,) as of `PopulationRisk`, where values are missing at random."""

    @cached_property
    def sample_uniques(self) -> int:
        """Number of sample uniques; where values are missing at random, its posterior mean."""
        if self.num_uniques is not None:
            return round(self.num_uniques.mean())
        counts = self.units.tabulated.counts if self.matching is None else self.matching
        return int((counts == 1).sum())

    @cached_property
    def units(self) -> Records:
        """The units that are at risk: the records, or households as records of one variable."""
        if isinstance(self.table, Households):
            return compositions_of(self.table).records
        return self.table

    @property
    def schema(self) -> Schema:
        """The variables of records, or of the persons of households."""
        return self.table.schema.table if isinstance(self.table, Households) else self.table.schema

    @property
    def num_cells(self) -> int:
        """Number of cells, or of compositions of households with the sizes of the sample."""
        if isinstance(self.table, Households):
            return num_compositions(self.table.schema, np.unique(self.table.sizes))
        return self.table.schema.num_cells

    @cached_property
    def anonymity(self) -> list[SmallCells]:
        """Records, or households, that match fewer than 2, 3 and 5, themselves included."""
        return anonymity_of(self.units, self.matching)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "sample": title_of(self.table),
            "sample uniques": self.sample_uniques,
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
        }
        return Shown("CoarserRisk", lines)


def coarsen(
    run: RecordsRun | HouseholdsRun,
    population_size: int,
    coarsenings: Sequence[str] | Mapping[str, Recoding] | None = None,
    *,
    ties: str = "on",
    missing_keys: str = "random",
    num_samples: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> dict[str, CoarserRisk]:
    """Evaluate the risk of a sample on coarser keys, from the same draws.

    Parameters
    ----------
    run, population_size
        As for `population_risk`; or as for `household_risk`, for the risk of households. The
        coarser variables are then those of persons, including those of their households.
    coarsenings
        Each has one or more statements, such as "drop:race" or "merge:age=0-14+15-24;drop:sex", or
        "group:occupation" if the model has groups of that variable's levels. A dictionary of
        recodings by their text is accepted too. Default: each variable dropped by itself; of
        households, not the variable that is the number of persons, which their rows tell.
    ties
        As for `population_risk`: "on" uses the correction for overdispersion, with the parameters
        of the finer file; "off" and "sensitivity" do not.
    missing_keys
        As for `population_risk`; households must be complete.
    num_samples
        Largest number of draws of the run that are used; they are evenly spaced.
    key
        By default a key that `run` keeps for this purpose.

    Returns
    -------
    risks
        By the text of the coarsening.

    Raises
    ------
    MicrodataError
        As `parse_coarsening` and `require_listable`; if no variable of the persons of households is
        left, or the head's values would have more than 1,024 combinations (`relative`).
    ValueError
        As `population_risk` or `household_risk`; if `ties` or `missing_keys` is unknown.

    Notes
    -----
    The posterior is that of the finer file, which has more information than the coarser file.
    All coarser keys are evaluated with the same random numbers: those that divide the records into
    the same cells have the same figures.

    Examples
    --------
    >>> coarser = bnp.coarsen(run, 5_000, ["drop:education", "merge:age=0-14+15-24"])
    >>> list(coarser)
    ['drop:education', 'merge:age=0-14+15-24']
    """
    check_kind(Run, "coarsen(run, population_size)", run=run)
    check_choice(TIES, ties=ties)
    check_choice(MISSING_KEYS, missing_keys=missing_keys)
    key = run.key if key is None else typed_key(key)
    if is_of_households(run):
        return _coarsen_households(run, population_size, coarsenings, ties, num_samples, key)
    assert is_of_records(run)
    evaluator = Evaluator.of(
        run, population_size, lambda law: law.spaced_parameters(num_samples), complete=False
    )
    table, conditions = evaluator.run.table, evaluator.run.conditions
    if coarsenings is None:
        coarsenings = single_drops(table, conditions)
    found = _parsed(coarsenings, table.schema, run)
    require_listable(found, table, conditions)
    key_overdispersion, key_common = Keys(key)
    overdispersion = evaluator.draw_overdispersion(key_overdispersion) if ties == "on" else None
    evaluate: Callable[..., CoarserRisk] = _evaluate
    if table.has_missing:
        evaluate = _evaluate_wildcards
        if missing_keys == "random":
            # The samples are completed once, by all draws, and then used for all coarser keys.
            drawn = Completions(run, evaluator, key_overdispersion).codes(
                np.arange(math.prod(shape_of_draws(evaluator.draws)))
            )
            evaluate = partial(_evaluate_completed, drawn)
    # Common random numbers: keys that make the same cells of the records have the same figures.
    return {
        text: evaluate(evaluator, coarsening, overdispersion, key_common)
        for text, coarsening in found.items()
    }


def _parsed(
    coarsenings: Sequence[str] | Mapping[str, Recoding], schema: Schema, run: Run
) -> Mapping[str, Recoding]:
    """Recodings by their text."""
    if isinstance(coarsenings, Mapping):
        return coarsenings
    return {text: parse_coarsening(text, schema, hierarchies_of(run.model)) for text in coarsenings}


def _coarsen_households(
    run: HouseholdsRun,
    population_size: int,
    coarsenings: Sequence[str] | Mapping[str, Recoding] | None,
    ties: str,
    num_samples: int,
    key: jax.Array,
) -> dict[str, CoarserRisk]:
    """`coarsen` for the risk of households."""
    check_households(run.model, run.table, population_size)
    key_evaluator, key_overdispersion, key_counts = Keys(key, 3)
    evaluator = HouseholdEvaluator(run, population_size, num_samples, key_evaluator)
    schema = evaluator.run.table.schema
    if coarsenings is None:
        coarsenings = household_drops(schema)
    found = _parsed(coarsenings, schema.table, run)
    require_few_heads(found, run.model, schema)
    tables = {text: recoded_households(evaluator.run.table, x) for text, x in found.items()}
    overdispersion = evaluator.draw_overdispersion(key_overdispersion) if ties == "on" else None
    risks = {}
    for text, coarsening in found.items():
        rows = np.flatnonzero(evaluator.sharing(coarsening) == 1)
        b, q = (np.exp(np.minimum(x, 0)) for x in evaluator.coarser(coarsening, rows))
        generator = numpy_generator(key_counts)
        taus = _draw_taus(evaluator, overdispersion, generator, b, q)
        risks[text] = CoarserRisk(tables[text], *taus)
    return risks


def _evaluate(
    evaluator: Evaluator,
    coarsening: Recoding,
    overdispersion: Overdispersion | None,
    key: jax.Array,
) -> CoarserRisk:
    """Evaluate the risk on one coarser key, with or without a correction for overdispersion."""
    key_cells, key_counts = Keys(key)
    generator = numpy_generator(key_counts)
    table = coarsening.coarser(evaluator.run.table)
    cells = table.tabulated
    # Cells come in the order of the records, so that the order of merged levels has no effect.
    codes = evaluator.run.table.codes_at(np.sort(cells.first_rows[cells.unique_cells]))
    # Cells are padded to the number of cells of the finer file, so that nothing is compiled anew.
    size = len(evaluator.run.table.tabulated.codes)
    b, q = _probabilities(evaluator, coarsening, codes, key_cells, size)
    return CoarserRisk(table, *_draw_taus(evaluator, overdispersion, generator, b, q))


def _probabilities(evaluator, coarsening, codes, key, size=None) -> Iterator[np.ndarray]:
    """Yield probabilities (draws, m) of coarser cells, for a record of the sample and another."""
    for log_p in evaluator.coarser(coarsening, codes, key, size):
        yield np.exp(np.minimum(log_p, 0))


def _draw_taus(
    evaluator, overdispersion, generator, b, q, alone=None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw tau_1 and tau_2 of cells with these probabilities, corrected for overdispersion or not.

    There is no correction if `overdispersion` is None.
    """
    if overdispersion is not None:
        q = overdispersion.draw_probabilities(generator, b, q)
    return draw_taus(generator, q, evaluator.num_new, alone)


def _evaluate_wildcards(
    evaluator: Evaluator,
    coarsening: Recoding,
    overdispersion: Overdispersion | None,
    key: jax.Array,
) -> CoarserRisk:
    """`_evaluate` where missing values match every value."""
    key_cells, key_counts = Keys(key)
    generator = numpy_generator(key_counts)
    table = coarsening.coarser(evaluator.run.table)
    cells = table.tabulated
    matching = matching_records(cells)
    codes = evaluator.run.table.codes_at(cells.first_rows[matching == 1])
    b, q = _probabilities(evaluator, coarsening, codes, key_cells)
    return CoarserRisk(table, *_draw_taus(evaluator, overdispersion, generator, b, q), matching)


def _evaluate_completed(
    drawn: np.ndarray,
    evaluator: Evaluator,
    coarsening: Recoding,
    overdispersion: Overdispersion | None,
    key: jax.Array,
) -> CoarserRisk:
    """`_evaluate` where values are missing at random: on the samples as draws complete them.

    The codes (draws, m, J) are those of the incomplete records, completed by each draw.
    """
    key_cells, key_counts = Keys(key)
    generator = numpy_generator(key_counts)
    original = evaluator.run.table
    known = original.codes[original.complete]
    codes = np.concatenate([np.tile(known, (len(drawn), 1, 1)), drawn], axis=1)
    flat = codes.reshape(-1, codes.shape[2])
    coarse, num_levels = coarsening.coarser_codes(flat), coarsening.schema.num_levels
    alone = np.stack([are_alone(x, num_levels) for x in np.split(coarse, len(drawn))])
    # Most cells occur in several draws. The cells of all draws are therefore evaluated together.
    cells = group_cells(coarse, num_levels)
    of_record = cells.record_cell.reshape(alone.shape)
    used, place = np.unique(of_record[alone], return_inverse=True)
    both = _probabilities(evaluator, coarsening, flat[cells.first_rows[used]], key_cells)
    draw, record = np.nonzero(alone)
    b, q = np.zeros((2, *alone.shape))
    b[draw, record], q[draw, record] = (x[draw, place] for x in both)
    some = alone.any(axis=0)
    taus = _draw_taus(evaluator, overdispersion, generator, b[:, some], q[:, some], alone[:, some])
    return CoarserRisk(coarsening.coarser(original), *taus, num_uniques=alone.sum(axis=1))
