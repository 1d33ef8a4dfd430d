"""Build the bundled Southeast Michigan households from the wheel of ActivitySim 1.6.0.

python southeast_michigan.py activitysim-1.6.0-py3-none-any.whl OUT.parquet

Takes the example persons and households of the Southeast Michigan Council of Governments, leaves
out group quarters, labels and groups eight variables, sorts and numbers the households (sorted rows
compress better, and their order carries no meaning) and writes one Parquet file, one person a row.
"""

import numpy as np
import pandas as pd
import wheel

NUM_HOUSEHOLDS, NUM_PERSONS = 19_548, 35_769

# Codes of the American Community Survey of 2008 to 2018, from which the source is made.
RELATE = {
    0: "Householder",
    1: "Husband/wife",
    2: "Biological child",
    3: "Adopted child",
    4: "Stepchild",
    5: "Brother/sister",
    6: "Father/mother",
    7: "Grandchild",
    8: "Parent-in-law",
    9: "Son/daughter-in-law",
    10: "Other relative",
    12: "Housemate/roommate",
    13: "Unmarried partner",
    14: "Foster child",
    15: "Other nonrelative",
}
SEX = {1: "Male", 2: "Female"}
# The source does not say what its four codes of race mean.
RACE = {1: "1", 2: "2", 3: "3", 4: "4"}
EMPLOYMENT = {
    -9: "Under 16 years old",
    1: "Employed",
    2: "Employed",
    3: "Unemployed",
    6: "Not in the labor force",
}
VEHICLES = {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6+"}
HOUSING_UNIT = 1
INCOME_EDGES = [-np.inf, 30_000, 60_000, 100_000, np.inf]
INCOME = ["Under $30,000", "$30,000-59,999", "$60,000-99,999", "$100,000 or more"]

# What makes two households the same record of the source, beside their number of persons.
SAME = ["age", "sex", "relate", "race_id", "esr", "wkhp", "wkw", "schg", "mil", "naicsp",
        "hincp", "adjinc", "cars"]  # fmt: skip


def make(path):
    """Return the columns to bundle, (31074, 10): the household's number and the variables."""
    persons, households = wheel.read(path, "production_semcog")
    if (len(households), len(persons)) != (NUM_HOUSEHOLDS, NUM_PERSONS):
        raise SystemExit(f"{len(households)} households of {len(persons)} persons")
    households = households[households["type"] == HOUSING_UNIT].drop(columns="race_id")
    persons = persons.merge(households, on="household_id", validate="many_to_one")
    text = persons[SAME].astype(str).agg("|".join, axis=1)
    record = text.groupby(persons["household_id"]).transform(lambda rows: ";".join(sorted(rows)))
    persons["record"] = pd.factorize(record, sort=True)[0].astype(np.int16) + 1
    persons = persons.sort_values(["record", "household_id", "member_id"], ignore_index=True)
    return pd.DataFrame(
        {
            "household": pd.factorize(persons["household_id"])[0].astype(np.int16) + 1,
            "source_record": persons["record"],
            "persons": persons["persons"].astype(np.int8),
            "income": pd.cut(persons["hincp"], INCOME_EDGES, right=False, labels=INCOME),
            "vehicles": wheel.labelled("vehicles", persons["cars"].astype(int), VEHICLES),
            "relate": wheel.labelled("relate", persons["relate"], RELATE),
            "age": persons["age"].astype(np.int8),
            "sex": wheel.labelled("sex", persons["sex"], SEX),
            "race": wheel.labelled("race", persons["race_id"], RACE),
            "employment": wheel.labelled("employment", persons["esr"].astype(int), EMPLOYMENT),
        }
    )


if __name__ == "__main__":
    wheel.run(make, __doc__.splitlines()[0])
