"""Build the bundled Bay Area households from the wheel of ActivitySim 1.6.0.

python bay_area.py activitysim-1.6.0-py3-none-any.whl OUT.parquet

Takes the example persons and households of the San Francisco Bay Area, labels ten variables,
numbers the households and writes one Parquet file, one person a row.
"""

import numpy as np
import pandas as pd
import wheel

NUM_HOUSEHOLDS, NUM_PERSONS = 5_000, 8_212

# Codes of the Census 2000 public-use microdata, from which the source is made.
RELATE = {
    1: "Householder",
    2: "Husband/wife",
    3: "Natural born child",
    4: "Adopted child",
    5: "Stepchild",
    6: "Brother/sister",
    7: "Father/mother",
    8: "Grandchild",
    9: "Parent-in-law",
    10: "Son/daughter-in-law",
    11: "Other relative",
    12: "Brother/sister-in-law",
    13: "Nephew/niece",
    15: "Uncle/aunt",
    16: "Cousin",
    17: "Roomer/boarder",
    18: "Housemate/roommate",
    19: "Unmarried partner",
    21: "Other nonrelative",
    22: "Institutionalized group quarters",
    23: "Noninstitutionalized group quarters",
}
SEX = {1: "Male", 2: "Female"}
MARITAL_STATUS = {
    0: "Under 15 years old",
    1: "Married, spouse present",
    2: "Married, spouse absent",
    3: "Widowed",
    4: "Divorced",
    5: "Separated",
    6: "Never married",
}
EMPLOYMENT = {1: "Full time", 2: "Part time", 3: "Not working", 4: "Under 16 years old"}
STUDENT = {1: "School", 2: "College", 3: "Not a student"}
TENURE = {
    0: "Group quarters",
    1: "Owned with a mortgage",
    2: "Owned free and clear",
    3: "Rented",
    4: "No cash rent",
}
# In group quarters the source has income 0, but groups all the same; they are kept.
INCOME = {1: "Under $20,000", 2: "$20,000-49,999", 3: "$50,000-99,999", 4: "$100,000 or more"}
VEHICLES = {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6+"}


def make(path):
    """Return the columns to bundle, (8212, 12): the household's number and the variables."""
    persons, households = wheel.read(path, "prototype_mtc")
    if (len(households), len(persons)) != (NUM_HOUSEHOLDS, NUM_PERSONS):
        raise SystemExit(f"{len(households)} households of {len(persons)} persons")
    persons = persons.merge(
        households, left_on="household_id", right_on="HHID", validate="many_to_one"
    ).sort_values(["household_id", "PNUM"], ignore_index=True)
    return pd.DataFrame(
        {
            "household": pd.factorize(persons["household_id"])[0].astype(np.int16) + 1,
            "source_record": pd.factorize(persons["SERIALNO"], sort=True)[0].astype(np.int16) + 1,
            "persons": persons["PERSONS"].astype(np.int8),
            "tenure": wheel.labelled("tenure", persons["TENURE"], TENURE),
            "income": wheel.labelled("income", persons["hinccat1"], INCOME),
            "vehicles": wheel.labelled("vehicles", persons["VEHICL"], VEHICLES),
            "relate": wheel.labelled("relate", persons["RELATE"], RELATE),
            "age": persons["age"].astype(np.int8),
            "sex": wheel.labelled("sex", persons["sex"], SEX),
            "marital_status": wheel.labelled("marital_status", persons["MSP"], MARITAL_STATUS),
            "employment": wheel.labelled("employment", persons["pemploy"], EMPLOYMENT),
            "student": wheel.labelled("student", persons["pstudent"], STUDENT),
        }
    )


if __name__ == "__main__":
    wheel.run(make, __doc__.splitlines()[0])
