"""l-diversity: how many values of a sensitive variable records with the same key have."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bnp_models.data.cells import group_cells
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.data.schema import MicrodataError, choose_variables


def l_diversity(
    table: Microdata | pd.DataFrame, keys: Sequence[str], sensitive: str
) -> pd.DataFrame:
    """Measure how many values of a sensitive variable the records of each key have.

    Parameters
    ----------
    table
        Records, or a data frame of them.
    keys
        Key variables: records with the same values of all of them are one equivalence class.
    sensitive
        A variable that is no key. Missing values of it are left out.

    Returns
    -------
    frame
        One row for each record, with what is true of its equivalence class. records: its size;
        distinct: the number of different sensitive values, which is distinct l-diversity;
        entropy: the exponential of their entropy, which is l of entropy l-diversity. The file is
        l-diverse for l up to the smallest number of a column.

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
