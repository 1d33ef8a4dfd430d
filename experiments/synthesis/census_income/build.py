"""Build the bundled census population from the two files of the Census-Income (KDD) data.

python build.py census_income_1994_1995_train.csv census_income_1994_1995_test.csv OUT.parquet

Groups ten identifying variables, drops everything else, sorts the persons (sorted rows compress
better, and the order of the files carries no meaning) and writes one Parquet file. The same inputs
and the same PyArrow give the same bytes.
"""

import argparse

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

NUM_COLUMNS = 42
NUM_PERSONS = 299_285
# 0-based positions in the files, which have no header; the order is the UCI documentation's.
POSITIONS = {
    "age": 0,
    "class_of_worker": 1,
    "education": 4,
    "marital_status": 7,
    "race": 10,
    "hispanic_origin": 11,
    "sex": 12,
    "household_relationship": 23,
    "parents_at_home": 31,
    "citizenship": 35,
}

AGE_EDGES = [0, 15, 25, 35, 45, 55, 65, 75]
AGE_LABELS = ["0-14", "15-24", "25-34", "35-44", "45-54", "55-64", "65-74", "75+"]

# For each variable, its levels in order, and the labels of the source that make each.
GROUPS = {
    "sex": {"Female": ["Female"], "Male": ["Male"]},
    "race": {
        "White": ["White"],
        "Black": ["Black"],
        "Asian or Pacific Islander": ["Asian or Pacific Islander"],
        "American Indian or other": ["Amer Indian Aleut or Eskimo", "Other"],
    },
    "hispanic_origin": {
        "Not Hispanic": ["All other"],
        "Mexican": ["Mexican-American", "Mexican (Mexicano)", "Chicano"],
        "Other or not stated": [
            "Central or South American",
            "Puerto Rican",
            "Cuban",
            "Other Spanish",
            "NA",
            "Do not know",
        ],
    },
    "citizenship": {
        "Native": [
            "Native- Born in the United States",
            "Native- Born abroad of American Parent(s)",
            "Native- Born in Puerto Rico or U S Outlying",
        ],
        "Foreign born": [
            "Foreign born- U S citizen by naturalization",
            "Foreign born- Not a citizen of U S",
        ],
    },
    "marital_status": {
        "Never married": ["Never married"],
        "Married": ["Married-civilian spouse present", "Married-A F spouse present"],
        "Separated or divorced": ["Married-spouse absent", "Separated", "Divorced"],
        "Widowed": ["Widowed"],
    },
    "education": {
        "Under 15 years old": ["Children"],
        "Less than high school": [
            "Less than 1st grade",
            "1st 2nd 3rd or 4th grade",
            "5th or 6th grade",
            "7th and 8th grade",
            "9th grade",
            "10th grade",
            "11th grade",
            "12th grade no diploma",
        ],
        "High school": ["High school graduate"],
        "Some college": [
            "Some college but no degree",
            "Associates degree-occup /vocational",
            "Associates degree-academic program",
        ],
        "Bachelor or higher": [
            "Bachelors degree(BA AB BS)",
            "Masters degree(MA MS MEng MEd MSW MBA)",
            "Prof school degree (MD DDS DVM LLB JD)",
            "Doctorate degree(PhD EdD)",
        ],
    },
    "class_of_worker": {
        "Not working": ["Not in universe", "Never worked", "Without pay"],
        "Employee": ["Private", "Federal government", "State government", "Local government"],
        "Self-employed": ["Self-employed-incorporated", "Self-employed-not incorporated"],
    },
    "household_relationship": {
        "Householder": ["Householder"],
        "Spouse": ["Spouse of householder"],
        "Child": [
            "Child under 18 never married",
            "Child under 18 ever married",
            "Child 18 or older",
        ],
        "Other": [
            "Other relative of householder",
            "Nonrelative of householder",
            "Group Quarters- Secondary individual",
        ],
    },
    "parents_at_home": {
        "Not in universe": ["Not in universe"],
        "Both": ["Both parents present"],
        "Mother only": ["Mother only present"],
        "Father only": ["Father only present"],
        "Neither": ["Neither parent present"],
    },
}

VARIABLES = ["age", *GROUPS]


def read_persons(path):
    """Read the columns that are used, as text without the spaces of the source."""
    raw = pd.read_csv(path, header=None, dtype=str, keep_default_na=False)
    if raw.shape[1] != NUM_COLUMNS:
        raise SystemExit(f"{path}: {raw.shape[1]} columns, expected {NUM_COLUMNS}")
    return pd.DataFrame({name: raw[column].str.strip() for name, column in POSITIONS.items()})


def group(persons):
    """Return the grouped variables as int8 codes, (n, 10), and the levels of each."""
    codes = {"age": np.digitize(persons["age"].astype(int), AGE_EDGES) - 1}
    levels = {"age": AGE_LABELS}
    for name, groups in GROUPS.items():
        code = {label: i for i, labels in enumerate(groups.values()) for label in labels}
        unknown = set(persons[name]) ^ set(code)
        if unknown:
            raise SystemExit(f"{name}: labels of the file and of GROUPS differ: {sorted(unknown)}")
        codes[name] = persons[name].map(code)
        levels[name] = list(groups)
    return pd.DataFrame(codes).astype(np.int8), levels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("out")
    arguments = parser.parse_args()
    persons = pd.concat([read_persons(arguments.train), read_persons(arguments.test)])
    if len(persons) != NUM_PERSONS:
        raise SystemExit(f"{len(persons)} persons, expected {NUM_PERSONS}")
    codes, levels = group(persons)
    codes = codes.sort_values(VARIABLES, ignore_index=True)
    table = pa.table(
        {
            name: pa.DictionaryArray.from_arrays(
                pa.array(codes[name], pa.int8()), pa.array(levels[name])
            )
            for name in VARIABLES
        }
    )
    parquet.write_table(
        table, arguments.out, compression="zstd", compression_level=19, row_group_size=NUM_PERSONS
    )


if __name__ == "__main__":
    main()
