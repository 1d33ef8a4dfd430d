"""Build the bundled household data from the wheel of ActivitySim 1.6.0.

python build.py activitysim-1.6.0-py3-none-any.whl OUT.parquet

Takes the example persons and households of the San Francisco Bay Area, labels and groups twelve
variables, numbers the households and writes one Parquet file, one person a row. The same wheel and
the same PyArrow give the same bytes.
"""

import argparse
import hashlib
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

WHEEL_SHA256 = "6b403df14ad1d5ed9800b8db7fd19a84e16bf1da0a3f891a3c43a1160c7524dd"
FOLDER = "activitysim/examples/prototype_mtc/data"
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


def read(path):
    """Read persons with the variables of their households, checked to be the wheel's."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"{path}: SHA-256 {digest}, expected {WHEEL_SHA256}")
    with zipfile.ZipFile(path) as wheel:
        persons, households = (
            pd.read_csv(wheel.open(f"{FOLDER}/{name}.csv")) for name in ("persons", "households")
        )
    if (len(households), len(persons)) != (NUM_HOUSEHOLDS, NUM_PERSONS):
        raise SystemExit(f"{len(households)} households of {len(persons)} persons")
    persons = persons.merge(
        households, left_on="household_id", right_on="HHID", validate="many_to_one"
    )
    return persons.sort_values(["household_id", "PNUM"], ignore_index=True)


def label(persons):
    """Return the columns to bundle, (8212, 13): the household's number and the variables."""
    codes = {
        "tenure": (persons["TENURE"], TENURE),
        "income": (persons["hinccat1"], INCOME),
        "vehicles": (persons["VEHICL"], VEHICLES),
        "relate": (persons["RELATE"], RELATE),
        "sex": (persons["sex"], SEX),
        "marital_status": (persons["MSP"], MARITAL_STATUS),
        "employment": (persons["pemploy"], EMPLOYMENT),
        "student": (persons["pstudent"], STUDENT),
    }
    columns = {
        "household": pd.factorize(persons["household_id"])[0].astype(np.int16) + 1,
        "source_record": pd.factorize(persons["SERIALNO"], sort=True)[0].astype(np.int16) + 1,
        "persons": persons["PERSONS"].astype(np.int8),
        "age": persons["age"].astype(np.int8),
    }
    for name, (values, labels) in codes.items():
        unknown = set(values) ^ set(labels)
        if unknown:
            raise SystemExit(f"{name}: codes of the file and of the labels differ: {unknown}")
        columns[name] = pd.Categorical(values.map(labels), categories=list(labels.values()))
    order = [
        "household", "source_record", "persons", "tenure", "income", "vehicles", "relate", "age",
        "sex", "marital_status", "employment", "student",
    ]  # fmt: skip
    return pd.DataFrame(columns)[order]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel")
    parser.add_argument("out")
    arguments = parser.parse_args()
    table = pa.Table.from_pandas(label(read(arguments.wheel)), preserve_index=False)
    table = table.replace_schema_metadata(None)
    parquet.write_table(
        table, arguments.out, compression="zstd", compression_level=19, row_group_size=NUM_PERSONS
    )


if __name__ == "__main__":
    main()
