"""The real files of this experiment: columns, bins, structural zeros, and what is measured."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class RealFile:
    """File that is taken for a whole population, of which samples are drawn."""

    path: str
    """Where it is, below the folder of the data."""
    variables: tuple[str, ...]
    n: int
    """Records of a sample."""
    bins: dict[str, int]
    """Number of bins of each numeric column."""
    heaped: tuple[str, int]
    """Numeric column, and the number of which its values are often multiples."""
    keys: tuple[str, ...]
    """Variables that an intruder knows."""
    target: str
    """What he wants to know."""
    conditions: str = ""
    """Structural zeros that the models are given, as CSV."""

    def population(self, folder: Path) -> pd.DataFrame:
        """All records whose numbers are known, as text."""
        frame = pd.read_csv(folder / self.path, dtype=str, keep_default_na=False)
        known = (frame[list(self.bins)] != "unknown").all(axis=1)
        return frame.loc[known, list(self.variables)].reset_index(drop=True)


FILES = {
    "persons": RealFile(
        "nist/national2019.csv.gz",
        (
            "AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP", "DVET",
            "DEYE",
        ),
        2500, {"AGEP": 15, "PINCP": 20}, ("PINCP", 1000), ("SEX", "AGEP", "RAC1P", "EDU"), "PINCP",
        "MSP,PINCP,HOUSING_TYPE,OWN_RENT\nN,!N,,\n!N,N,,\n,,1,0\n,,2|3,1|2\n",
    ),
    "mothers": RealFile(
        "populations/mothers.csv.gz",
        ("age", "weeks", "morekids", "gender1", "gender2", "afam", "hispanic", "other"),
        5000, {"weeks": 8}, ("weeks", 10), ("age", "gender1", "gender2", "afam", "hispanic"),
        "weeks",
    ),
    "crashes": RealFile(
        "populations/crash_occupants.csv.gz",
        (
            "age", "sex", "vehicle_year", "year", "speed", "seatbelt", "role", "airbag", "injury",
        ),
        2500, {"age": 15, "vehicle_year": 12}, ("age", 5), ("age", "sex", "year", "role"),
        "injury",
    ),
}  # fmt: skip
