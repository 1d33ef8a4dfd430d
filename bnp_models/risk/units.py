"""Units of a sample that are at risk, records or households, and their targets of k-anonymity."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata, Records
from bnp_models.risk.anonymity import Anonymity, missed, rows_of
from bnp_models.risk.recoding import Recoded
from bnp_models.risk.suppression import suppress_rare


class Units(NamedTuple):
    """Units of a sample that are at risk: its records, or its households."""

    table: Microdata
    """The records, or the persons of the households."""
    of_household: np.ndarray | None = None
    """(N,) household of each person, if the units are households."""
    needed: Sequence[str] = ()
    """Variables of which at least one is kept: those of persons."""

    @classmethod
    def of(cls, table: Records | Households) -> "Units":
        """The units of a sample without weights; ValueError if it is a table of cells."""
        if isinstance(table, Households):
            return cls(table.persons, table.of_household, table.schema.personal)
        if not isinstance(table, Microdata):
            raise ValueError("protection needs single records, not a table of cell counts")
        return cls(table)

    @property
    def number(self) -> int:
        """Number of units."""
        return self.table.n if self.of_household is None else int(self.of_household.max()) + 1

    def with_levels(self, j: int, codes: Sequence[int]) -> np.ndarray:
        """(n,) bool: whether a unit has one of these codes of a variable."""
        asked = np.zeros(self.table.schema.num_levels[j], bool)
        asked[list(codes)] = True
        found = asked[self.table.codes[:, j]]
        return found if self.of_household is None else np.bincount(self.of_household, found) > 0

    def costs(self, importance: np.ndarray) -> np.ndarray:
        """Cost of suppressing each variable (J',), or (n, J') in all persons of each household."""
        if self.of_household is None:
            return importance
        return np.bincount(self.of_household)[:, None] * importance

    def strata(self, given: ArrayLike | None) -> np.ndarray | None:
        """(n,) stratum of each unit, from those of the records."""
        if given is None:
            return None
        stratum = pd.factorize(np.asarray(given), use_na_sentinel=False)[0]
        if stratum.shape != (self.table.n,):
            raise ValueError(
                f"strata has shape {stratum.shape}, not one for each of {self.table.n} records"
            )
        if self.of_household is None:
            return stratum
        first = np.unique(self.of_household, return_index=True)[1]
        if (stratum != stratum[first][self.of_household]).any():
            raise ValueError("strata: persons of one household are in different strata")
        return stratum[first]


def by_record(of_units: np.ndarray, of_household: np.ndarray | None) -> np.ndarray:
    """Rows of units (n, ...) as rows of their records."""
    return of_units if of_household is None else of_units[of_household]


class Targets(NamedTuple):
    """Targets of k-anonymity."""

    targets: Sequence[Anonymity]
    stratum: np.ndarray | None
    """(n,) strata of the units."""
    units: Units

    def missed(self, table: Microdata, target: Anonymity, suppressed: np.ndarray) -> np.ndarray:
        """Which units (n,) miss a target, given the recoded records and what is suppressed."""
        return missed(table, target, suppressed, self.stratum, self.units.of_household)

    def number_missed(self, recoded: Recoded) -> int:
        """Number of units that miss a target, if no value is suppressed."""
        nothing = np.zeros((self.units.number, recoded.records.num_variables), bool)
        found = [self.missed(recoded.records, one, nothing) for one in self.targets]
        return int(np.any(found, axis=0).sum())

    def suppress(self, recoded: Recoded, weight: np.ndarray, most: int) -> tuple[bool, np.ndarray]:
        """Choose values (n, J') whose suppression gives k-anonymity.

        The first result is whether they are values of at most `most` units. If more units are
        needed, the values are those of the `most` units whose combinations are rarest.
        """
        table, of_household = recoded.records, self.units.of_household
        costs = weight[recoded.kept]
        mask = suppress_rare(table, self.targets, costs, self.stratum, of_household)
        if mask.any(axis=1).sum() <= most:
            return True, mask
        rows = rows_of(table, self.stratum, of_household)
        order = np.lexsort([rows.alike(range(table.num_variables)), ~mask.any(axis=1)])
        mask[order[most:]] = False
        return False, mask
