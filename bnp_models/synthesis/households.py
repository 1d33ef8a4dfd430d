"""Synthetic and completed households from the draws of the nested model."""

from collections.abc import Iterator

import jax
import numpy as np
import pandas as pd

from bnp_models.data.households import Households
from bnp_models.inference.run import HouseholdsRun, spaced_draws
from bnp_models.inference.simulated_households import simulate_households
from bnp_models.models.nested.prepare import missing_values

SYNTHESIS, IMPUTATION = 0x53594E, 0x494D50
"""Numbers that are folded into the key that a run set aside, one for each purpose."""


def synthesize_households(
    run: HouseholdsRun, num_datasets: int, num_rows: int | None, key: jax.Array | None
) -> list[pd.DataFrame]:
    """Draw synthetic files of households, as many of each size as in the sample.

    Arguments as for `synthesize`.
    """
    table = run.table
    if num_rows is not None and num_rows != table.num_persons:
        raise ValueError(
            f"num_rows is {num_rows}, but the synthetic households have the same sizes as those of "
            f"the sample, in all {table.num_persons} persons; leave num_rows out"
        )
    key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
    return [_checked_households(run, made) for made in simulate_households(run, num_datasets, key)]


def impute_households(run: HouseholdsRun, num_datasets: int) -> list[pd.DataFrame]:
    """Complete the sample with the missing values that were kept with the draws, one file for each.

    Arguments as for `impute`.
    """
    return [_checked_households(run, made) for made in complete_households(run, num_datasets)]


def complete_households(run: HouseholdsRun, number: int) -> Iterator[Households]:
    """Yield the sample, completed with the missing values that were kept with some draws."""
    table = run.table
    data = run.model.prepare(table, run.conditions)
    order, of_member = table.order_by_size
    (of_codes, household), (of_values, member) = missing_values(table)
    for draw in spaced_draws(run, number):
        values = np.asarray(draw["completed"])
        codes, members = table.household_codes.copy(), table.member_codes.copy()
        codes[order[household], of_codes] = values[: household.size]
        heads = codes[table.member_household]
        if data.relative is not None:
            members = data.relative.encode(heads, members[:, None])[:, 0]
        members[of_member[member], of_values] = values[household.size :]
        if data.relative is not None:
            members = data.relative.decode(heads, members[:, None])[:, 0]
        yield Households(table.schema, codes, table.sizes, members, table.ids, table.rows)


def _checked_households(run: HouseholdsRun, made: Households) -> pd.DataFrame:
    """Make a frame of households, after checking that all are possible."""
    if run.conditions is not None and not (possible := run.conditions.check(made)).all():
        raise RuntimeError(
            f"{int((~possible).sum())} of the {made.n} new households are impossible; please "
            "report this defect"
        )
    return made.to_frame()
