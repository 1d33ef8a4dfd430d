"""Households of the simulated population with one region, and ages and sexes of their members.

    python experiments/accuracy/household_risk/copies.py FOLDER

FOLDER has simulated_households.csv.gz. Prints the numbers by size of the household.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "known_truth")]
from results import markdown  # noqa: E402
from run import patterns, read  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    frame = read(parser.parse_args().folder)
    pattern = patterns(frame)
    of_household = pd.DataFrame({
        "size": frame.groupby("hid")["size"].first(), "pattern": pattern,
        "alike": pattern.map(pattern.value_counts()),
    })  # fmt: skip
    table = of_household.groupby("size").agg(
        households=("pattern", "size"), patterns=("pattern", "nunique"),
        alone=("alike", lambda x: (x == 1).sum()), alike=("alike", "mean"),
    )  # fmt: skip
    print(markdown(table))


if __name__ == "__main__":
    main()
