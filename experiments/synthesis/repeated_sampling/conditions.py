"""Structural zeros of the census population.

    python experiments/synthesis/repeated_sampling/conditions.py

Writes conditions.csv from the reasons below and prints how every zero cell of the two-way tables of
the population comes about. Stops if a person of the population is in a structural zero.
"""

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
CONDITIONS = HERE / "conditions.csv"

CHILD = "0-14"
GROWN = ("25-34", "35-44", "45-54", "55-64", "65-74", "75+")
LIVES_WITH = ("Both", "Mother only", "Father only", "Neither")

# Reason, first variable and levels, second variable and levels: all pairs are impossible.
REASONS = (
    ("schooling is asked from 15 on: children have the code of children",
     "age", (CHILD,),
     "education", ("Less than high school", "High school", "Some college", "Bachelor or higher")),
    ("and nobody else has that code",
     "age", ("15-24", *GROWN), "education", ("Under 15 years old",)),
    ("work is asked from 15 on",
     "age", (CHILD,), "class_of_worker", ("Employee", "Self-employed")),
    ("a child under 15 has no marriage behind it",
     "age", (CHILD,), "marital_status", ("Separated or divorced", "Widowed")),
    ("parents at home are recorded of persons under 18",
     "age", GROWN, "parents_at_home", LIVES_WITH),
    ("and not of those who head a household or are married to its head",
     "household_relationship", ("Householder", "Spouse"), "parents_at_home", LIVES_WITH),
    ("nor of those who live with a husband or wife: the couple is a family of its own",
     "marital_status", ("Married",), "parents_at_home", LIVES_WITH),
    ("a child of the householder has a parent at home",
     "household_relationship", ("Child",), "parents_at_home", ("Neither",)),
    ("the householder's spouse is married, spouse present",
     "marital_status", ("Never married", "Separated or divorced", "Widowed"),
     "household_relationship", ("Spouse",)),
)  # fmt: skip


def frame_of_conditions() -> pd.DataFrame:
    """One impossible combination a row, None where a variable is free."""
    names = bnp.datasets.census_income().variables
    rows = [
        {first: a, second: b}
        for _, first, levels, second, others in REASONS
        for a, b in product(levels, others)
    ]
    return pd.DataFrame(rows, columns=list(names))


def two_way_zeros(people: bnp.Microdata) -> list[tuple[int, int, int, int]]:
    """(variable, level, variable, level) of each pair of levels that no person has."""
    zeros, levels = [], people.schema.num_levels
    for i, j in combinations(range(people.num_variables), 2):
        table = np.zeros((levels[i], levels[j]), int)
        np.add.at(table, (people.codes[:, i], people.codes[:, j]), 1)
        zeros += [(i, int(a), j, int(b)) for a, b in np.argwhere(table == 0)]
    return zeros


def main() -> None:
    """Write conditions.csv, check it, and print what it amounts to."""
    frame = frame_of_conditions()
    frame.to_csv(CONDITIONS, index=False)
    population = bnp.datasets.census_income()
    people = bnp.Microdata.from_frame(population.frame)
    zeros = bnp.read_conditions(CONDITIONS, people.schema)
    zeros.require_feasible(people)

    stated = {
        tuple(x for j in np.flatnonzero(row >= 0) for x in (int(j), int(row[j])))
        for row in zeros.conditions
    }
    candidates = two_way_zeros(people)
    implied, sampling = [], []
    for zero in candidates:
        if zero in stated:
            continue
        record = np.full((1, people.num_variables), -1)
        record[0, zero[0]], record[0, zero[2]] = zero[1], zero[3]
        (sampling if zeros.admits(record)[0] else implied).append(zero)

    def words(zero):
        names, levels = people.schema.variables, people.schema.levels
        return " and ".join(f"{names[j]} {levels[j][k]}" for j, k in (zero[:2], zero[2:]))

    print(f"persons in a structural zero: {int(zeros.contains(people.codes).sum())}")
    print(f"conditions {zeros.num_conditions}, disjoint slices {len(zeros.slices())}")
    print(f"boxes: impossible {len(zeros.impossible)}, feasible {len(zeros.feasible)}")
    impossible, cells = zeros.num_impossible_cells, people.schema.num_cells
    print(f"impossible cells {impossible:,} of {cells:,} ({impossible / cells:.1%})")
    print(f"zero cells of two-way tables: {len(candidates)}, of which")
    print(f"  conditions: {len(stated & set(candidates))} (of {len(stated)})")
    print("  implied by conditions:", *(f"\n    {words(zero)}" for zero in implied))
    print("  no reason found, left possible:", *(f"\n    {words(zero)}" for zero in sampling))


if __name__ == "__main__":
    main()
