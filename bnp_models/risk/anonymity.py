"""k-anonymity as a target, and l-diversity.

k-anonymity asks for a least number of records with each combination of key values. A suppressed
value gives no information. The record counts as equal to all records that had its other values
before any value was suppressed. If it is equal to k of these, at least k records of the file match
it by the rule of sdcMicro and mu-Argus, in which a suppressed value stands for any.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.cells import group_cells
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.data.schema import MicrodataError, Schema, choose_variables
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.rare_combinations import Rows, check_combinations


class Reached(NamedTuple):
    """Target of k-anonymity, and the records that miss it."""

    k: int
    """Number of records that each combination of values must have."""
    size: int | None
    """Number of key variables of a combination; null: all of them."""
    variables: tuple[str, ...] | None
    """Key variables of the combinations; null: all."""
    before: int
    """Number of records of the sample with a combination that fewer than k records have."""
    after: int
    """Number of such records in the protected file."""


class Anonymity(NamedTuple):
    """Target of k-anonymity.

    Examples
    --------
    >>> str(bnp.risk.Anonymity(3)), str(bnp.risk.Anonymity(5, size=2))
    ('each combination of all key variables', 'each combination of 2 key variables')
    """

    k: int
    """Least number of records that each combination of values must have."""
    size: int | None = None
    """Number of variables of a combination; every such set counts; None: all variables."""
    variables: tuple[str, ...] | None = None
    """Variables of the combinations; None: all key variables."""

    def __str__(self) -> str:
        """The combinations, in words."""
        of = "key variables" if self.variables is None else ", ".join(self.variables)
        if self.size is not None:
            return f"each combination of {self.size} {of}"
        return f"each combination of {'all ' if self.variables is None else ''}{of}"

    def check(self, schema: Schema) -> None:
        """Raise ValueError unless the target fits these variables."""
        if self.k < 2:
            raise ValueError(f"k must be at least 2, not {self.k}")
        names = choose_variables(self.variables, schema.variables)
        if self.size is not None and not 1 <= self.size <= len(names):
            raise ValueError(
                f"there are {len(names)} variables, and none are in sets of {self.size}"
            )
        remedy = (
            "ask for k-anonymity of smaller sets of variables (--k 3=K), or choose fewer variables"
        )
        check_combinations(len(names), self.size or len(names), remedy)

    def columns(self, schema: Schema) -> list[int]:
        """Indices of the target's variables in a schema, which may lack some of them."""
        wanted = schema.variables if self.variables is None else self.variables
        return [j for j, name in enumerate(schema.variables) if name in wanted]

    def sets(self, columns: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The largest sets of variables whose combinations of values must be common."""
        size = len(columns) if self.size is None else min(self.size, len(columns))
        return itertools.combinations(columns, size)


def rows_of(
    table: Microdata, stratum: np.ndarray | None, of_household: np.ndarray | None = None
) -> Rows:
    """The records of a table, or the households that they are the persons of, in their strata."""
    counts = np.ones(table.n, int)
    return Rows(table.codes, counts, table.schema.num_levels, stratum, of_household)


def missed(
    table: Microdata,
    target: Anonymity,
    suppressed: np.ndarray,
    stratum: np.ndarray | None = None,
    of_household: np.ndarray | None = None,
) -> np.ndarray:
    """Which records (n,) have a combination that fewer than k records have, bool.

    Parameters
    ----------
    table
        Complete records.
    target
        The target.
    suppressed
        (n, J) bool: values that are suppressed.
    stratum
        (n,) numbers of strata, within which records are counted.
    of_household
        (N,) household of each of the N records, if these are the persons of n households. A
        combination is then that of all persons of a household, and households are counted.
    """
    rows, found = rows_of(table, stratum, of_household), np.zeros(len(suppressed), bool)
    if not (columns := target.columns(table.schema)):
        return found
    for pattern, where in patterns(suppressed[:, columns]):
        left = [j for j, gone in zip(columns, pattern, strict=True) if not gone]
        for chosen in target.sets(left) if left else ():
            found[where] |= rows.alike(chosen)[where] < target.k
    return found


def l_diversity(
    table: Microdata | pd.DataFrame, keys: Sequence[str], sensitive: str
) -> pd.DataFrame:
    """Measure the diversity of a sensitive variable among the records with the same key.

    Parameters
    ----------
    table
        Records, or a data frame of them.
    keys
        Key variables: records with the same values of all of them are one equivalence class.
    sensitive
        A variable that is not a key variable. Its missing values are left out.

    Returns
    -------
    frame
        One row for each record, with figures of its equivalence class. records: its size; distinct:
        the number of different sensitive values, which is distinct l-diversity; entropy: the
        exponential of their entropy, which is l of entropy l-diversity. The file is l-diverse for l
        up to the smallest number of a column.

    Raises
    ------
    MicrodataError
        If a variable is unknown, the sensitive one is a key, or a key has missing values.

    References
    ----------
    Machanavajjhala, A., Kifer, D., Gehrke, J. & Venkitasubramaniam, M. (2007),
    doi:10.1145/1217299.1217302.

    Examples
    --------
    >>> people = pd.DataFrame({"sex": ["f", "f", "m", "m"], "ill": ["yes", "no", "no", "no"]})
    >>> bnp.risk.l_diversity(people, ["sex"], "ill")["distinct"].tolist()
    [2, 2, 1, 1]
    """
    records = as_records(table, "l_diversity(table, keys, sensitive)", (Microdata,))
    schema = records.schema
    names = choose_variables(keys, schema.variables)
    (of_interest,) = choose_variables([sensitive], schema.variables)
    if of_interest in names:
        raise MicrodataError("the sensitive variable is a key too", column=of_interest)
    columns = [schema.variables.index(name) for name in (*names, of_interest)]
    codes = records.codes[:, columns]
    sizes = [schema.num_levels[j] for j in columns]
    for name, column in zip(names, codes.T, strict=False):
        if (column < 0).any():
            raise MicrodataError(
                "the key has a missing value, and l-diversity needs complete keys; drop these "
                "records, or complete them with bnp-models impute",
                row=int(np.argmax(column < 0)), column=name,
            )  # fmt: skip
    group = group_cells(codes[:, :-1], sizes[:-1])
    known = codes[:, -1] >= 0
    counts = np.zeros((len(group.codes), sizes[-1]))
    np.add.at(counts, (group.record_cell[known], codes[known, -1]), 1)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1)), axis=1)
    of_class = pd.DataFrame(
        {
            "records": group.counts, "distinct": (counts > 0).sum(axis=1),
            "entropy": np.exp(entropy),
        }
    )  # fmt: skip
    return of_class.iloc[group.record_cell].reset_index(drop=True)
