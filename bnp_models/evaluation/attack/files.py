"""Synthetic files with the codes of the sample, and added to it."""

import numpy as np

from bnp_models.data.frames import Tabular, code_like
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.models.model import Table


def coded_like(frame: Tabular, table: Table, number: int) -> Table:
    """Code a synthetic file as the sample is.

    Parameters
    ----------
    frame
        The file.
    table
        The sample.
    number
        0-based number of the file, for messages.

    Raises
    ------
    MicrodataError
        If variables or levels differ, a value is missing, or households have sizes that the
        sample's have not.
    """
    try:
        made = code_like(frame, table)
        if made.schema != table.schema:
            raise MicrodataError("has other variables or levels than the sample")
        if isinstance(made, Households):
            assert isinstance(table, Households)
            if not np.isin(made.sizes, table.sizes).all():
                raise MicrodataError(
                    "has households of sizes that the sample has not, so it was not made from it"
                )
        made.require_complete("the attack")
    except MicrodataError as error:
        raise error.in_file(f"synthetic file {number + 1}") from None
    return made


def with_file(table: Table, file: Table) -> Microdata | Households:
    """Add a synthetic file to the sample: a table of the same type."""
    if isinstance(table, Households):
        assert isinstance(file, Households)
        return Households(
            table.schema,
            np.concatenate([table.household_codes, file.household_codes]),
            np.concatenate([table.sizes, file.sizes]),
            np.concatenate([table.member_codes, file.member_codes]),
        )
    assert isinstance(table, Microdata) and isinstance(file, Microdata)
    return Microdata(table.schema, np.concatenate([table.codes, file.codes]))
