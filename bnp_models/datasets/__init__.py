"""Bundled real data: a population, from which samples with a known disclosure risk are drawn, and
persons within households.

``census_income()`` holds ten grouped variables of the 299,285 persons of the Census-Income (KDD)
data (UCI Machine Learning Repository, DOI 10.24432/C5N30T, CC BY 4.0), an extract of the public
domain US Current Population Survey of 1994 and 1995.

``bay_area_households()`` and ``southeast_michigan_households()`` hold persons within households,
with their relationship to the householder: examples of ActivitySim (BSD 3-Clause) made of
public-use records of the US census and the American Community Survey.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Label, MicrodataError

__all__ = [
    "HouseholdData",
    "Population",
    "Truth",
    "bay_area_households",
    "census_income",
    "southeast_michigan_households",
]


@dataclass(frozen=True, eq=False)
@displayed
class Truth:
    """The disclosure risk of a sample of a population that is known.

    Attributes
    ----------
    sample_uniques : int
        Number of sample records alone in their cell, S.
    tau1 : int
        Number of sample uniques that are alone in the population too.
    tau2 : float
        Sum over the sample uniques of 1 / F: expected number of correct matches.
    rows : (S,) int64 array
        0-based rows of the sample uniques, ascending.
    population_counts : (S,) int64 array
        F, the number of persons of the population in the cell of each of ``rows``.
    """

    sample_uniques: int
    tau1: int
    tau2: float
    rows: np.ndarray
    population_counts: np.ndarray

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {"tau_1": self.tau1, "tau_2": f"{self.tau2:,.1f}"}
        return Shown(f"Truth: {counted(self.sample_uniques, 'sample unique')}", lines)


@dataclass(frozen=True, eq=False)
@displayed
class Population:
    """A population of persons described by categorical variables.

    Attributes
    ----------
    frame : DataFrame, (N, J)
        One person a row, categorical columns without missing values.
    source : str
        Origin of the data.
    licence : str
        Terms of use.
    """

    frame: pd.DataFrame
    source: str
    licence: str

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the J variables."""
        return tuple(self.frame.columns)

    @cached_property
    def _microdata(self) -> Microdata:
        return Microdata.from_frame(self.frame)

    @property
    def levels(self) -> dict[str, tuple]:
        """The levels of each variable, in order: the code book, as ``levels`` arguments take it."""
        schema = self._microdata.schema
        return dict(zip(schema.variables, schema.levels, strict=True))

    def sample(self, n: int, seed: int) -> pd.DataFrame:
        """Draw a simple random sample without replacement.

        The columns stay categorical with all the levels of the population, seen or not: an agency
        knows its own code book.

        Parameters
        ----------
        n : int
            Sample size, from 2 to the size of the population.
        seed : int
            Seed of the PCG64 generator.

        Returns
        -------
        sample : DataFrame, (n, J)
            In random order, indexed from 0.

        Raises
        ------
        ValueError
            If n is out of range.
        """
        if not 2 <= n <= len(self):
            raise ValueError(f"sample size {n} is not between 2 and {len(self)}; choose another")
        rows = _drawn(len(self), n, seed)
        return self.frame.iloc[rows].reset_index(drop=True)

    def truth(self, sample: pd.DataFrame) -> Truth:
        """Compute the true risk of a sample of this population.

        Parameters
        ----------
        sample : DataFrame, (n, at least one of the variables)
            Records with the labels of the population. The key variables are those of the
            population that are among the columns.

        Raises
        ------
        MicrodataError
            If no column is a variable of the population, a value is missing or unknown, or the
            sample has a cell with more records than the population.
        """
        keys = [variable for variable in self.variables if variable in sample.columns]
        records = Microdata.from_frame(sample, keys, levels=self._microdata.schema)
        records.require_complete("the true risk")
        columns = [self.variables.index(variable) for variable in keys]
        codes = np.concatenate([records.codes, self._microdata.codes[:, columns]])
        cells = group_cells(codes, records.schema.num_levels)
        sample_cell, population_cell = np.split(cells.record_cell, [records.n])
        f = np.bincount(sample_cell, minlength=len(cells.counts))
        F = np.bincount(population_cell, minlength=len(cells.counts))
        excess = f[sample_cell] > F[sample_cell]
        if excess.any():
            raise MicrodataError(
                "the sample has more such records than the population; draw it from the population",
                row=int(np.argmax(excess)),
            )
        rows = np.flatnonzero(f[sample_cell] == 1)
        counts = F[sample_cell[rows]]
        return Truth(
            sample_uniques=len(rows),
            tau1=int((counts == 1).sum()),
            tau2=float((1 / counts).sum()),
            rows=rows,
            population_counts=counts,
        )

    def write_sample(self, directory: str | PathLike, n: int, seed: int) -> Truth:
        """Write ``sample.csv`` and ``levels.csv`` into a directory, made if it does not exist.

        Parameters
        ----------
        directory : str or path
            The directory.
        n, seed : int
            As for :meth:`sample`.

        Returns
        -------
        truth : Truth
            The true risk of the sample written.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        sample = self.sample(n, seed)
        sample.to_csv(directory / "sample.csv", index=False)
        pd.DataFrame(
            [(variable, label) for variable, labels in self.levels.items() for label in labels],
            columns=["variable", "level"],
        ).to_csv(directory / "levels.csv", index=False)
        return self.truth(sample)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "variables": ", ".join(self.variables),
            "source": self.source,
            "licence": self.licence,
        }
        return Shown(f"Population: {counted(len(self), 'person')}", lines)


def census_income(*, adults: bool = False) -> Population:
    """Return the bundled census population: 299,285 persons, 10 variables, 460,800 cells.

    The rows are sorted. ``bnp_models/datasets/README.md`` describes the variables.

    Parameters
    ----------
    adults : bool
        Leave out the persons under 15, whose age determines most of their variables, and with them
        the variable of the parents at home, which only they have: 228,421 persons, 9 variables,
        64,512 cells, and hardly a combination that is impossible.
    """
    frame = _read("census_income")
    if adults:
        frame = frame[frame["age"] != "0-14"].drop(columns="parents_at_home")
        frame = frame.apply(lambda column: column.cat.remove_unused_categories())
        frame = frame.reset_index(drop=True)
    return Population(
        frame=frame,
        source=(
            "Census-Income (KDD), UCI Machine Learning Repository, DOI 10.24432/C5N30T: an extract "
            "of the US Current Population Survey, 1994 and 1995 (US Census Bureau). Ten variables, "
            "grouped."
        ),
        licence="CC BY 4.0; the survey's microdata are in the US public domain",
    )


@dataclass(frozen=True, eq=False)
@displayed
class HouseholdData:
    """Persons within households, and how to code them.

    Attributes
    ----------
    frame : DataFrame, (N, columns)
        One person a row, household by household.
    household : str
        The column that identifies the household.
    household_variables : tuple of str
        The variables that describe households.
    head : (str, label)
        The relationship variable and its label for the head.
    source : str
        Origin of the data.
    licence : str
        Terms of use.
    """

    frame: pd.DataFrame
    household: str
    household_variables: tuple[str, ...]
    head: tuple[str, Label]
    source: str
    licence: str

    def __len__(self) -> int:
        return self.frame[self.household].nunique()

    def sample(self, num_households: int, seed: int) -> "HouseholdData":
        """Draw a simple random sample of households without replacement.

        Parameters
        ----------
        num_households : int
            Number of households, from 2 to as many as there are.
        seed : int
            Seed of the PCG64 generator.

        Raises
        ------
        ValueError
            If the number is out of range.
        """
        if not 2 <= num_households <= len(self):
            raise ValueError(
                f"{num_households} households are not between 2 and {len(self)}; choose another "
                "number"
            )
        chosen = _drawn(self.frame[self.household].unique(), num_households, seed)
        kept = self.frame[self.household].isin(chosen)
        return replace(self, frame=self.frame[kept].reset_index(drop=True))

    def households(self, *, head: bool = False) -> Households:
        """Code the households.

        Parameters
        ----------
        head : bool
            Put the head's variables at household level.
        """
        return Households.from_frame(
            self.frame, self.household, self.household_variables, head=self.head if head else None
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "variables": ", ".join(map(str, self.frame.columns)),
            "source": self.source,
            "licence": self.licence,
        }
        number = counted(len(self), "household")
        return Shown(f"HouseholdData: {number} of {counted(len(self.frame), 'person')}", lines)


def bay_area_households(*, group_quarters: bool = False, distinct: bool = False) -> HouseholdData:
    """Return the bundled households: 4,427 with 7,639 persons, 4 household and 6 person variables.

    ``bnp_models/datasets/README.md`` describes the variables and says which records repeat.

    Parameters
    ----------
    group_quarters : bool
        Keep the 573 persons in group quarters too, each a household of one without a householder.
    distinct : bool
        Keep one household of each source record: 1,968 (with group quarters 2,305).
    """
    frame = _read("bay_area_households")
    if not group_quarters:
        frame = frame[frame["tenure"] != "Group quarters"]
    return HouseholdData(
        frame=_without_repeats(frame, distinct),
        household="household",
        household_variables=("persons", "tenure", "income", "vehicles"),
        head=("relate", "Householder"),
        source=(
            "ActivitySim 1.6.0, examples/prototype_mtc/data: a synthetic population of part of the "
            "San Francisco Bay Area, drawn with repeats from US Census 2000 public-use microdata."
        ),
        licence="BSD 3-Clause, Copyright (c) Zephyr Foundation",
    )


def southeast_michigan_households(*, distinct: bool = False) -> HouseholdData:
    """Return the bundled households with race: 14,853 with 31,074 persons, 8 variables.

    Three variables describe households, five persons.

    ``bnp_models/datasets/README.md`` describes the variables and says which records repeat.

    Parameters
    ----------
    distinct : bool
        Keep one household of each source record: 1,183.
    """
    return HouseholdData(
        frame=_without_repeats(_read("southeast_michigan_households"), distinct),
        household="household",
        household_variables=("persons", "income", "vehicles"),
        head=("relate", "Householder"),
        source=(
            "ActivitySim 1.6.0, examples/production_semcog/data: a synthetic population of part of "
            "Southeast Michigan, drawn with repeats from public-use microdata of the American "
            "Community Survey."
        ),
        licence="BSD 3-Clause, Copyright (c) Zephyr Foundation",
    )


def _drawn(population: int | np.ndarray, size: int, seed: int) -> np.ndarray:
    """Draw from a population, or from the numbers below one, without replacement."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.choice(population, size=size, replace=False)


def _read(name: str) -> pd.DataFrame:
    """Read a bundled file."""
    with resources.files(__name__).joinpath(f"{name}.parquet").open("rb") as file:
        return pd.read_parquet(file)


def _without_repeats(frame: pd.DataFrame, distinct: bool) -> pd.DataFrame:
    """Return the frame without its column of source records, its narrow integers widened.

    If `distinct`, only the first household of each source record is kept.
    """
    if distinct:
        first = frame.groupby("source_record")["household"].transform("min")
        frame = frame[frame["household"] == first]
    frame = frame.drop(columns="source_record").reset_index(drop=True)
    numbers = frame.select_dtypes("integer").columns
    frame = frame.astype(dict.fromkeys(numbers, np.int64))
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].cat.remove_unused_categories()
    return frame
