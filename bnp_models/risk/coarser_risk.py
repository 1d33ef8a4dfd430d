"""Risk on coarser keys from the same posterior, without new chains.

In mixed membership and latent class models the factor of a dropped variable becomes one, and a
merged level has the sum of the probabilities of its levels. With structural zeros, the probability
of a coarser cell is the sum of the probabilities of the feasible cells in it, which are listed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

import jax
import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Records, SmallCells, k_anonymity
from bnp_models.data.recoding import Recoding
from bnp_models.inference.run import Run
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.coarsening import (
    hierarchies_of,
    parse_coarsening,
    require_listable,
    single_drops,
)
from bnp_models.risk.evaluator import Evaluator, draw_taus
from bnp_models.risk.ties import TIES, Tied

NUM_DRAWS = 100
"""Draws at which coarser keys are evaluated, at the most."""


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

    table: Records
    """The coarser records."""
    tau1: np.ndarray
    """(draws,) draws of the number of sample uniques that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F their population count."""

    @cached_property
    def sample_uniques(self) -> int:
        """Number of records alone in their cell."""
        return len(self.table.tabulated.unique_cells)

    @cached_property
    def anonymity(self) -> list[SmallCells]:
        """Records in cells of fewer than 2, 3 and 5."""
        return k_anonymity(self.table)

    def _shown(self) -> Shown:
        """What is shown of it."""
        lines = {
            "sample": title_of(self.table),
            "sample uniques": self.sample_uniques,
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
        }
        return Shown("CoarserRisk", lines)


def coarsen(
    run: Run,
    population_size: int,
    coarsenings: Sequence[str] | Mapping[str, Recoding] | None = None,
    *,
    ties: str = "on",
    num_samples: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> dict[str, CoarserRisk]:
    """Evaluate the risk of a sample on coarser keys, from the same draws.

    Parameters
    ----------
    run, population_size
        As for `population_risk`.
    coarsenings
        Each of one or more statements, as "drop:race" or "merge:age=0-14+15-24;drop:sex", and
        "group:occupation" where the model has groups of that variable's levels; or those read, by
        text. Default: each variable dropped by itself.
    ties
        As for `population_risk`: "on" uses the layer for ties, with the parameters of the finer
        file; "off" and "sensitivity" do not.
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
        As `parse_coarsening` and `require_listable`.
    ValueError
        As `population_risk`; if `ties` is unknown.

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
    if key is not None:
        key = typed_key(key)
    evaluator = Evaluator.of(run, population_size, lambda law: law.spaced_parameters(num_samples))
    table, conditions = evaluator.run.table, evaluator.run.conditions
    if coarsenings is None:
        coarsenings = single_drops(table, conditions)
    found = (
        coarsenings if isinstance(coarsenings, Mapping)
        else {
            text: parse_coarsening(text, table.schema, hierarchies_of(run.model))
            for text in coarsenings
        }
    )  # fmt: skip
    require_listable(found, table, conditions)
    key_ties, key_common = Keys(run.key if key is None else key)
    tied = evaluator.draw_ties(key_ties) if ties == "on" else None
    # Common random numbers: keys that make the same cells of the records have the same figures.
    return {
        text: _evaluate(evaluator, coarsening, tied, key_common)
        for text, coarsening in found.items()
    }


def _evaluate(
    evaluator: Evaluator, coarsening: Recoding, tied: Tied | None, key: jax.Array
) -> CoarserRisk:
    """Evaluate the risk on one coarser key, with a layer for ties or None."""
    key_cells, key_counts = Keys(key)
    generator = numpy_generator(key_counts)
    table = coarsening.coarser(evaluator.run.table)
    cells = table.tabulated
    # In the order of the records, whatever that of the levels.
    codes = evaluator.run.table.codes_at(np.sort(cells.first_rows[cells.unique_cells]))
    # Padded to as many as the finer file has: same shapes, nothing is compiled.
    size = len(evaluator.run.table.tabulated.codes)
    logs = evaluator.coarser(coarsening, codes, key_cells, size)
    b, q = (np.exp(np.minimum(log_p, 0)) for log_p in logs)
    if tied is not None:
        q = tied.draw_probabilities(generator, b, q)
    return CoarserRisk(table, *draw_taus(generator, q, evaluator.num_new))
