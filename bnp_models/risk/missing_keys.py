"""Keys with missing values: a value that is not known, or a wildcard that matches every value.

**random.** Every record has a complete key. Some of its values are not known, and the fact that
they are missing gives no information about them. The risk is that of the completed sample: a record
is a sample unique if no other record has its completed key, and a population unique if nobody else
has. The missing values are integrated out: each draw of the parameters completes the sample from
the exact distribution of its missing values given the known ones, and r_1 is the posterior
probability that a record is both. Completing the file many times (`bnp_models.impute`) would give
the same risk, which is that of the file with all its values.

**wildcard.** The values were suppressed, and the intruder sees the file without them. A record
matches a person who has its known values, whatever the other values of this person are. It matches
a record of the sample if the two agree on every variable of which both have a value, as sdcMicro
counts (Templ, Kowarik & Meindl 2015, doi:10.18637/jss.v067.i04). It is a sample unique if it
matches no other record, and a population unique if it matches nobody else. Two sample uniques
disagree in a variable of which both have a value, so that nobody matches both, and counts of
persons are multinomial like those of cells.

In both cases the model is fitted with the missing values summed out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple

import jax
import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.documents import Document, Keywords
from bnp_models.data.microdata import Microdata, Records, SmallCells, k_anonymity, small_cells
from bnp_models.inference.run import RecordsRun
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.models.model import Completes
from bnp_models.risk.evaluator import Draws, Evaluator, LogProbabilities, probabilities_by_draw
from bnp_models.risk.protected_risks import patterns

MISSING_KEYS = ("random", "wildcard")
"""Values of the option `missing_keys`; the first is its default."""

_COMPLETIONS = 0x434F4D50


class MissingEntry(Document):
    """Entry "missing" of ``risk.json``: missing values of the key variables."""

    reading: Annotated[str, Keywords(enum=list(MISSING_KEYS))]
    """Meaning of missing values, as of --missing-keys."""
    records: int
    """Number of records with missing values."""
    missing_values: int
    """Number of missing values."""


def num_incomplete(table: Records) -> int:
    """Number of records with missing values."""
    cells = table.tabulated
    return int(cells.counts[~cells.complete].sum())


def matching_records(cells: ContingencyTable) -> np.ndarray:
    """(C,) number of records that agree with those of each cell in all values that both have.

    The records of the cell are included. If no value is missing, these are the counts.
    """
    found = np.zeros(len(cells.counts), np.int64)
    kinds = list(patterns(cells.codes < 0))
    for missing, rows in kinds:
        for also_missing, others in kinds:
            both = np.flatnonzero(~(missing | also_missing))
            found[rows] += _agreeing(cells, rows, others, both)
    return found


def _agreeing(
    cells: ContingencyTable, rows: np.ndarray, others: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Records of other cells that agree with each of some cells in some columns."""
    counts = cells.counts[others]
    if not columns.size:
        return np.full(len(rows), counts.sum())
    together = np.concatenate([rows, others])
    num_levels = [cells.schema.num_levels[j] for j in columns]
    grouped = group_cells(cells.codes[np.ix_(together, columns)], num_levels)
    of_row, of_other = np.split(grouped.record_cell, [len(rows)])
    return np.bincount(of_other, counts, len(grouped.codes)).astype(np.int64)[of_row]


def anonymity_of(table: Records, matching: np.ndarray | None) -> list[SmallCells]:
    """Records that match fewer than 2, 3 and 5, themselves included.

    `matching` is as of `matching_records`; None: those of the complete records' cells.
    """
    if matching is None:
        return k_anonymity(table)
    return small_cells(matching, table.tabulated.counts)


def are_alone(codes: np.ndarray, num_levels: Sequence[int]) -> np.ndarray:
    """Whether each row of codes (m, J) differs from all other rows."""
    cells = group_cells(codes, num_levels)
    return np.asarray(cells.counts[cells.record_cell] == 1)


class Completed(NamedTuple):
    """Incomplete records of a sample, as completed by a block of draws."""

    codes: np.ndarray
    """(block, m, J) level codes."""
    of_sample: LogProbabilities
    """Log probabilities (block, m) of their cells, for a record of the sample."""
    of_rest: LogProbabilities
    """The same for a person who is not in the sample."""


class Completions:
    """Incomplete records of a sample, as completed by draws of the parameters.

    Parameters
    ----------
    run
        The chains. If there are design weights, their classes are variables of this run, because
        they inform on the missing values.
    evaluator
        Evaluator of the run.
    key
        A key. It may also be used elsewhere, because a constant is folded into it here.
    """

    def __init__(self, run: RecordsRun, evaluator: Evaluator, key: jax.Array):
        table, model = run.table, run.model
        assert isinstance(model, Completes) and isinstance(table, Microdata)
        self.rows = np.flatnonzero(~table.complete)
        self._model, self._evaluator = model, evaluator
        self._key = jax.random.fold_in(key, _COMPLETIONS)
        incomplete = Microdata(table.schema, table.codes[self.rows])
        self._data = model.prepare(incomplete, run.conditions)
        draws: Draws = evaluator.parameters(run)
        self._draws = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}

    def codes(self, indices: np.ndarray) -> np.ndarray:
        """Level codes (block, m, J) of the incomplete records, completed by some draws."""
        keys = jax.vmap(partial(jax.random.fold_in, self._key))(indices)
        draws = {name: x[indices] for name, x in self._draws.items()}
        found = np.asarray(_complete(self._model, keys, draws, self._data))
        num_variables = self._evaluator.run.table.num_variables
        return np.moveaxis(found[:, :num_variables, : len(self.rows)], 1, 2)

    def evaluated(self, indices: np.ndarray, method: str, key: jax.Array) -> Completed:
        """Codes by some draws, and the probabilities of their cells.

        `method` and `key` are as for `cell_probabilities`; the key is that of the other cells.
        """
        evaluator, codes = self._evaluator, self.codes(indices)
        of = partial(probabilities_by_draw, codes=codes, indices=indices, method=method, key=key)
        of_sample = of(evaluator.run, evaluator.draws)
        if evaluator.rest is evaluator.run:
            return Completed(codes, of_sample, of_sample)
        return Completed(codes, of_sample, of(evaluator.rest, evaluator.rest_draws))


@jax.jit
def _complete(model, keys, draws, data):
    """(D, J, n) level codes of records, completed by each draw."""
    with jax.named_scope("complete_records"):
        return map_draws(lambda given: model.complete_records(*given, data), (keys, draws))
