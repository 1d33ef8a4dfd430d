"""The fewest values of impossible records that must change for the records to be possible.

The problem is that of Fellegi & Holt (1976), doi:10.1080/01621459.1976.10481472. A record becomes
possible by the values on a path of the decision diagram from the root to the feasible terminal. An
edge that holds the record's own level costs nothing, and any other edge costs one changed value.
As no path meets a variable twice, the cheapest path is exact, and no integer program is solved.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.microdata import Microdata, as_records
from bnp_models.zeros.boxes import FEASIBLE, level_offsets
from bnp_models.zeros.diagram import Diagram
from bnp_models.zeros.membership import walkers_at_once
from bnp_models.zeros.structural_zeros import StructuralZeros, as_conditions


class Edits(NamedTuple):
    """Records whose impossible combinations of values were set free, and what was set free."""

    table: Microdata
    """The records, in which the values that were set free are missing: each can be completed."""
    fields: pd.DataFrame
    """The values that were set free, one a row: `row`, 0-based; `variable`; and `value`."""


def fewest_edits(
    table: Microdata | pd.DataFrame, conditions: StructuralZeros | pd.DataFrame, *, seed: int
) -> Edits:
    """Set the fewest values of each impossible record to missing, so that it can be completed.

    Values that are missing already are free, and cost nothing. Among several smallest sets of
    values one is chosen at random, for each record independently of the others.

    Parameters
    ----------
    table
        The n records of J variables, or a data frame of them; not changed.
    conditions
        Structural zeros of these variables, or a data frame of them as for
        `StructuralZeros.from_frame`.
    seed
        Seed of the choice among sets of the same size; the same seed makes the same choice.

    Returns
    -------
    edits
        The records with these values missing, and the values. There is always a solution, because
        conditions that make every combination impossible are refused.

    Raises
    ------
    MicrodataError
        If the conditions are of other variables or levels.

    References
    ----------
    Fellegi, I. P. & Holt, D. (1976), doi:10.1080/01621459.1976.10481472.

    Examples
    --------
    >>> wrong = frame.assign(age=frame["age"].where(frame.index != frame.index[0], "0-14"))
    >>> wrong.iloc[0, 2] = "Bachelor or higher"
    >>> records = bnp.Microdata.from_frame(wrong, levels=table.schema)
    >>> edits = bnp.zeros.fewest_edits(records, zeros, seed=0)
    >>> len(edits.fields), int(zeros.admits(edits.table.codes).sum())
    (1, 62)
    """
    table = as_records(table, "fewest_edits(table, conditions, seed=0)", (Microdata,))
    conditions = as_conditions(conditions, table.schema)
    bad = conditions.impossible_rows(table)
    broken = table.codes[bad]
    # The random part of the costs decides between sets of the same size only.
    random = np.random.default_rng(seed).random(broken.shape)
    costs = 1 + random / (2 * broken.shape[1])
    freed = np.zeros(broken.shape, dtype=bool)
    diagram = conditions.diagram
    # Costs take more memory than the bits for which the number of walkers is meant.
    step = max(1, walkers_at_once(diagram) // 16)
    for start in range(0, len(broken), step):
        some = slice(start, start + step)
        freed[some] = _cheapest(diagram, table.schema.num_levels, broken[some], costs[some])
    codes = table.codes.copy()
    codes[bad] = np.where(freed, -1, broken)
    which, columns = np.nonzero(freed)
    names, labels = table.schema.variables, table.schema.levels
    fields = pd.DataFrame({
        "row": bad[which],
        "variable": [names[j] for j in columns],
        "value": pd.Series(
            [labels[j][broken[i, j]] for i, j in zip(which, columns, strict=True)], dtype=object
        ),
    })  # fmt: skip
    return Edits(table.recoded(table.schema, codes), fields)


def _cheapest(
    diagram: Diagram, num_levels: tuple[int, ...], codes: np.ndarray, costs: np.ndarray
) -> np.ndarray:
    """Values of records (n, J) that are set free at the lowest cost.

    Parameters
    ----------
    diagram
        The impossible region.
    num_levels
        Number of levels of each variable.
    codes
        (n, J) level codes, -1 where missing.
    costs
        (n, J) cost of each value that is set free.
    """
    n, offsets = len(codes), np.array(level_offsets(num_levels))
    # The column of a missing value is not looked up.
    own, missing = np.maximum(codes, 0) + offsets[:-1], codes < 0
    least = np.full((len(diagram.variable), n), np.inf)
    least[FEASIBLE] = 0
    edge = np.zeros(least.shape, dtype=np.int32)
    # Children have smaller numbers than parents, and are done before them.
    for e, (node, child) in enumerate(zip(diagram.parent, diagram.child, strict=True)):
        j = diagram.variable[node]
        stays = diagram.sets[e, own[:, j]] | missing[:, j]
        cost = least[child] + np.where(stays, 0, costs[:, j])
        lower = cost < least[node]
        least[node, lower], edge[node, lower] = cost[lower], e
    freed = np.zeros(codes.shape, dtype=bool)
    place = np.full(n, diagram.root)
    for j in diagram.order:
        here = np.flatnonzero(diagram.variable[place] == j)
        taken = edge[place[here], here]
        freed[here, j] = ~(diagram.sets[taken, own[here, j]] | missing[here, j])
        place[here] = diagram.child[taken]
    return freed
