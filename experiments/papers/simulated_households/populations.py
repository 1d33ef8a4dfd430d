"""Two populations of households with the variables of Hu, Reiter & Wang (2018), and samples.

    python experiments/papers/simulated_households/populations.py   # prints their true quantities

The households are simulated, and not from the model of the paper: ages of couples differ by a few
years, children are younger than their parents, and members share race, origin, education and
moves. Numbers of households and sizes are those of the paper (doi:10.1214/16-BA1047, sections 4.1
and 4.2), and the rates are chosen so that the true quantities are near to those that it prints.
"""

import functools
from typing import NamedTuple

import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.rules.census import census_relationships

ADULT_SIZES = {1: 2528, 2: 5421, 3: 1375, 4: 478, 5: 123, 6: 52, 7: 16, 8: 5, 9: 2}
"""Households by size in the paper's sample of 10,000 without rules."""
FAMILY_SIZES = {2: 5370, 3: 2504, 4: 2126}
"""The same, with rules."""
ADULT_HOUSEHOLDS, FAMILY_HOUSEHOLDS = 308_769, 127_685

YOUNGEST, OLDEST = 18, 95
ADULT_LEVELS = {
    "tenure": ("owned", "rented"),
    "acreage": ("under 10 acres", "10 acres or more"),
    "income": ("under 25K", "25K to 45K", "45K to 75K", "75K to 100K", "over 100K"),
    "age": tuple(range(YOUNGEST, OLDEST + 1)),
    "sex": ("male", "female"),
    "race": ("white", "black", "American Indian", "Asian", "other", "two or more"),
    "english": ("no", "yes"),
    "hispanic": ("no", "yes"),
    "insurance": ("no", "yes"),
    "education": ("less than high school", "high school", "some college", "bachelor", "beyond"),
    "employment": ("employed", "unemployed", "not in labor force"),
    "migration": ("same house", "within state", "between states", "abroad"),
    "marital": ("married, spouse present", "married, spouse absent", "separated", "divorced",
                "widowed", "never married"),
}  # fmt: skip

RELATIONS = (
    "head", "spouse", "child", "child-in-law", "parent", "parent-in-law", "sibling",
    "sibling-in-law", "grandchild", "other relative", "partner, friend, visitor",
    "other non-relative",
)  # fmt: skip
FAMILY_LEVELS = {
    "tenure": ("owned", "rented"),
    "sex": ("male", "female"),
    "race": ("white", "black", "American Indian", "Chinese", "Japanese", "other Asian", "other",
             "two races", "three or more"),
    "hispanic": ("no", "Mexican", "Puerto Rican", "Cuban", "other"),
    "age": tuple(range(94)),
    "relate": RELATIONS,
}  # fmt: skip

# Relations of the members besides the head, by their first letters, and their rates by size.
_LETTERS = dict(zip("sclpmbigofn", RELATIONS[1:], strict=True))
_FAMILIES = {
    2: {"s": 0.655, "c": 0.16, "f": 0.08, "n": 0.03, "b": 0.022, "p": 0.028, "g": 0.006,
        "o": 0.015, "m": 0.002, "l": 0.001, "i": 0.001},
    3: {"sc": 0.56, "cc": 0.15, "fc": 0.07, "sp": 0.015, "sm": 0.012, "sg": 0.02, "so": 0.02,
        "cg": 0.035, "cp": 0.02, "nn": 0.04, "fn": 0.01, "pb": 0.012, "co": 0.016, "sb": 0.008,
        "cb": 0.006, "cl": 0.003, "si": 0.003},
    4: {"scc": 0.71, "ccc": 0.07, "fcc": 0.06, "scp": 0.02, "scm": 0.014, "scg": 0.03,
        "sco": 0.02, "ccg": 0.02, "ccp": 0.01, "nnn": 0.015, "clg": 0.012, "scl": 0.006,
        "ppb": 0.005, "sgg": 0.006, "ffn": 0.002},
}  # fmt: skip
# Years by which a member is older than the head: mean and standard deviation.
_OLDER = {"s": (-2, 5), "c": (-28, 6), "l": (-27, 6), "p": (28, 5), "m": (27, 6), "b": (0, 7),
          "i": (0, 8), "g": (-52, 6), "o": (-12, 18), "f": (-1, 7), "n": (-4, 12)}  # fmt: skip


class Design(NamedTuple):
    """A population, and how it is sampled."""

    population: bnp.Households
    sizes: dict[int, int]
    """Households of each size in a sample of 10,000."""
    rules: bnp.Rules | None

    def sample(self, n: int, seed: int) -> bnp.Households:
        """n households drawn at random, with the paper's shares of the sizes.

        As the sizes are the same in all samples of n, they use one compiled program.
        """
        rng = np.random.default_rng(seed)
        total = sum(self.sizes.values())
        chosen = [
            rng.choice(np.flatnonzero(self.population.sizes == h), round(count * n / total), False)
            for h, count in self.sizes.items()
        ]
        return self.population.select(np.sort(np.concatenate(chosen)))


@functools.cache
def adults() -> Design:
    """Households of adults with 14 variables, of which no combination is impossible."""
    rng = np.random.default_rng(2012)
    size = _sizes(rng, ADULT_SIZES, ADULT_HOUSEHOLDS)
    household = np.repeat(np.arange(size.size), size)
    place = np.arange(household.size) - np.repeat(np.cumsum(size) - size, size)
    couple = (size > 1) & (rng.random(size.size) < np.where(size == 2, 0.78, 0.72))
    in_couple = couple[household] & (place < 2)
    age = _adult_ages(rng, size, household, place, couple)
    sex = rng.integers(0, 2, household.size)
    partner = in_couple & (place == 1)
    opposite = 1 - sex[np.flatnonzero(partner) - 1]
    sex[partner] = np.where(rng.random(opposite.size) < 0.985, opposite, 1 - opposite)
    race, hispanic = _race_and_origin(
        rng, household, (0.815, 0.085, 0.008, 0.045, 0.032, 0.015),
        ((0.92, 0.08), (0.97, 0.03), (0.85, 0.15), (0.98, 0.02), (0.05, 0.95), (0.8, 0.2)),
    )  # fmt: skip
    standing = rng.normal(size=size.size)
    foreign = (rng.random(size.size) < 0.5)[household] & ((hispanic == 1) | (race == 3))
    english = 1 - (rng.random(household.size) < np.where(foreign, 0.12, 0.001))
    own = 0.75 * standing[household] + 0.65 * rng.normal(size=household.size)
    schooling = own - 0.9 * foreign - 0.012 * np.maximum(age - 55, 0) - 1.2 * (age < 22)
    education = np.searchsorted([-1.35, -0.2, 0.55, 1.25], schooling)
    marital = _marital(rng, household, place, age, in_couple, couple)
    works = 1.9 + 0.35 * own - 0.4 * ((sex == 1) & (marital == 0)) - 1.1 * (age < 21)
    works = works - 0.16 * np.maximum(age - 57, 0) + rng.logistic(size=household.size) * 1.1
    employment = np.where(works > 0.6, 0, np.where((works > 0.2) & (age < 68), 1, 2))
    cover = 2.0 + 0.8 * standing[household] + rng.logistic(size=size.size)[household]
    cover = cover + 0.5 * (employment == 0) - 1.2 * hispanic - 0.9 * (age < 30) + 8 * (age > 64)
    insurance = (cover + 0.6 * rng.logistic(size=household.size) > -0.1).astype(int)
    workers = np.bincount(household, employment == 0)
    oldest = np.maximum.reduceat(age, np.cumsum(size) - size)
    earns = 0.8 * standing + 0.55 * workers + 0.3 * couple + 0.7 * rng.normal(size=size.size)
    income = np.searchsorted([0.05, 0.65, 1.35, 1.85], earns)
    owns = -2.3 + 0.05 * oldest + 0.9 * couple + 0.35 * income + rng.logistic(size=size.size)
    tenure = (owns < -0.75).astype(int)
    acreage = (rng.random(size.size) < np.where(tenure == 1, 0.02, 0.07)).astype(int)
    moved = rng.random(size.size) < np.clip(0.4 - 0.006 * oldest + 0.2 * tenure, 0.02, 0.6)
    where = 1 + (rng.random((size.size, 1)) > np.array([0.83, 0.97])).sum(axis=1)
    with_all = rng.random(household.size) < 0.92
    alone = rng.random(household.size) < 0.1
    migration = np.where(np.where(with_all, moved[household], alone), where[household], 0)
    members = np.stack([age - YOUNGEST, sex, race, english, hispanic, insurance, education,
                        employment, migration, marital], axis=1)  # fmt: skip
    of_households = np.stack([tenure, acreage, income], axis=1)
    made = _households(ADULT_LEVELS, ("tenure", "acreage", "income"), of_households, size, members)
    return Design(made, ADULT_SIZES, None)


@functools.cache
def families() -> Design:
    """Households of two to four persons and their relations, which keep `census-relationships`."""
    rng = np.random.default_rng(2011)
    size = _sizes(rng, FAMILY_SIZES, FAMILY_HOUSEHOLDS)
    made = _propose_families(rng, size)
    rules = census_relationships(made)
    bad = np.flatnonzero(~rules.check(made))
    codes, members = made.household_codes.copy(), made.member_codes.copy()
    while bad.size:
        again = _propose_families(rng, size[bad])
        codes[bad] = again.household_codes
        members[np.isin(made.member_household, bad)] = again.member_codes
        bad = bad[~rules.check(again)]
    return Design(bnp.Households(made.schema, codes, size, members), FAMILY_SIZES, rules)


def _sizes(rng, sizes, number):
    """Sizes of a number of households, in random order, with given relative frequencies."""
    share = np.array(list(sizes.values())) / sum(sizes.values())
    counts = np.floor(share * number).astype(int)
    counts[0] += number - counts.sum()
    return rng.permutation(np.repeat(list(sizes), counts))


def _adult_ages(rng, size, household, place, couple):
    """Ages: a first adult, a partner of similar age, grown children, and others of similar age."""
    centre = np.where(couple, 53, np.where(size == 1, 57, 45))
    first = np.clip(rng.normal(centre, np.where(size == 1, 19, 15)), YOUNGEST, OLDEST)
    parents = (size > 1 + couple) & (first > 42) & (rng.random(size.size) < 0.8)
    age = first[household]
    years = rng.normal(size=household.size)
    partner = couple[household] & (place == 1)
    others = (place > 0) & ~partner
    age = np.where(partner, age - 2 + 4.5 * years, age)
    child = others & parents[household]
    age = np.where(child, np.maximum(age - 29 + 5 * years, YOUNGEST + np.abs(3 * years)), age)
    age = np.where(others & ~child, age + 7 * years, age)
    return np.clip(np.round(age), YOUNGEST, OLDEST).astype(int)


def _race_and_origin(rng, household, races, origin_by_race):
    """Races that a fifth of the households mix, and origins that follow the race."""
    number, persons = household[-1] + 1, household.size
    shared, own = (rng.choice(len(races), x, p=races) for x in (number, persons))
    mixed = rng.random(number) < 0.2
    first = np.r_[True, np.diff(household) > 0]
    race = np.where(mixed[household] & ~first, own, shared[household])
    cumulative = np.cumsum(origin_by_race, axis=1)[race]
    # Members use the same random number, unless they are among those who differ.
    u = np.where(rng.random(persons) < 0.06, rng.random(persons), rng.random(number)[household])
    return race, np.minimum((u[:, None] > cumulative).sum(axis=1), cumulative.shape[1] - 1)


def _marital(rng, household, place, age, in_couple, couple):
    """Marital status: by couple, and by age for all others."""
    u = rng.random(household.size)
    never = np.clip(1.25 - 0.018 * age, 0.06, 0.97)
    widowed = np.where(u < never, 0.0, np.clip(0.022 * (age - 48), 0, 0.75))
    status = np.where(u < never, 5, 3)
    v = rng.random(household.size)
    status = np.where((status == 3) & (v < widowed), 4, status)
    status = np.where((status == 3) & (v > 0.86), 2, status)
    status = np.where((status == 3) & (v > 0.78), 1, status)
    married = (couple & (rng.random(couple.size) < 0.87))[household] & in_couple
    return np.where(married, 0, status)


def _propose_families(rng, size):
    """Households of relatives, of whom some may break a rule."""
    letters = np.empty(size.size, object)
    for h, families in _FAMILIES.items():
        share = np.array(list(families.values()))
        at = size == h
        letters[at] = rng.choice(list(families), at.sum(), p=share / share.sum())
    letter = np.array(list("".join("h" + text for text in letters)))
    household = np.repeat(np.arange(size.size), size)
    has = {x: np.bincount(household, letter == x) > 0 for x in "scgp"}
    centre = np.where(has["c"], 43, np.where(has["s"], 57, 48))
    centre = np.where(has["g"], 58, np.where(has["p"], 42, centre))
    head_age = np.clip(rng.normal(centre, np.where(has["c"], 9, 14)), 18, 90)
    code = {"h": 0} | {x: RELATIONS.index(name) for x, name in _LETTERS.items()}
    mean, spread = np.array([(0, 0), *(_OLDER[x] for x in list(code)[1:])]).T
    relate = np.array([code[x] for x in letter])
    order = np.array(list(code.values())).argsort()
    years = rng.normal(mean[order][relate], spread[order][relate])
    age = np.clip(np.round(head_age[household] + years), 0, 93).astype(int)
    sex = rng.integers(0, 2, household.size)
    # Two thirds of the heads without a spouse or partner are women, and two fifths of the others.
    woman = rng.random(size.size) < np.where(has["s"], 0.4, 0.68)
    head, spouse = letter == "h", letter == "s"
    sex[head] = woman
    sex[spouse] = 1 - woman[household[spouse]]
    race, hispanic = _race_and_origin(
        rng, household, (0.79, 0.095, 0.008, 0.01, 0.005, 0.035, 0.037, 0.017, 0.003),
        ((0.9, 0.06, 0.012, 0.006, 0.022), (0.96, 0.01, 0.02, 0.004, 0.006),
         (0.85, 0.1, 0.01, 0.005, 0.035), (0.99, 0.004, 0.002, 0.001, 0.003),
         (0.99, 0.004, 0.002, 0.001, 0.003), (0.98, 0.01, 0.004, 0.001, 0.005),
         (0.06, 0.66, 0.1, 0.02, 0.16), (0.8, 0.12, 0.04, 0.01, 0.03),
         (0.8, 0.12, 0.04, 0.01, 0.03)),
    )  # fmt: skip
    rents = 0.9 - 0.035 * (head_age - 30) - 1.3 * has["s"] + rng.logistic(size=size.size)
    tenure = (rents > 0.2).astype(int)[:, None]
    members = np.stack([sex, race, hispanic, age, relate], axis=1)
    return _households(FAMILY_LEVELS, ("tenure",), tenure, size, members)


def _households(levels, of_household, codes, size, members):
    schema = HouseholdSchema(
        bnp.Schema(tuple(levels), tuple(levels.values())), "household", of_household
    )
    return bnp.Households(schema, codes.astype(np.int32), size, members.astype(np.int32))


def main() -> None:
    from quantities import of_adults, of_families

    for design, quantities in ((adults(), of_adults), (families(), of_families)):
        frame = design.population.to_frame()
        rows = quantities(frame)
        with pd.option_context("display.width", 120, "display.max_rows", 50):
            print(f"{design.population.n:,} households, {len(frame):,} persons", rows["q"].round(4))


if __name__ == "__main__":
    main()
