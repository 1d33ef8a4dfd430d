"""Households to time the nested model on: of nested classes, and plausible ones under rules."""

import numpy as np

import bnp_models as bnp
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.rules.census import census_relationships

PAPER_SIZES = {1: 2528, 2: 5421, 3: 1375, 4: 478, 5: 123, 6: 52, 7: 16, 8: 5, 9: 2}
"""Households by size of Hu, Reiter & Wang (2018, doi:10.1214/16-BA1047), section 4.1."""
PAPER_MEMBER_LEVELS = (78, 2, 6, 2, 2, 2, 5, 3, 4, 6)
PAPER_HOUSEHOLD_LEVELS = (2, 2, 5)

SMALL_SIZES = {1: 500, 2: 800, 3: 400, 4: 300}
"""Households of one person too, where no relation is wrong."""

RULED_SIZES = {2: 5370, 3: 2504, 4: 2126}
"""The same, section 4.2."""
CROWDED_SIZES = {4: 5000, 5: 3500, 6: 1500}
"""Households large enough that many more are impossible."""
RELATIONS = (
    "head", "spouse", "child", "child-in-law", "parent", "parent-in-law", "sibling",
    "sibling-in-law", "grandchild", "other relative", "partner, friend, visitor",
    "other non-relative",
)  # fmt: skip
AGES = 94


def nested_households(sizes, member_levels, household_levels, seed=0, num_classes=(12, 4)):
    """Households of the nested model without rules, with (household, member) classes.

    Parameters
    ----------
    sizes
        Households of each number of members.
    member_levels, household_levels
        Levels of the variables.
    """
    rng = np.random.default_rng(seed)
    size = np.repeat(list(sizes), list(sizes.values()))
    g = rng.integers(0, num_classes[0], size.size)
    g_member = np.repeat(g, size)
    z = g_member * num_classes[1] + rng.integers(0, num_classes[1], g_member.size)

    def draw(levels, of_class, classes):
        cumulative = rng.dirichlet(np.full(levels, 0.5), classes).cumsum(axis=1)
        codes = (rng.random((of_class.size, 1)) > cumulative[of_class]).sum(axis=1)
        return np.minimum(codes, levels - 1)

    household = [draw(levels, g, num_classes[0]) for levels in household_levels]
    member = [draw(levels, z, np.prod(num_classes)) for levels in member_levels]
    names = [f"h{k}" for k in range(len(household))], [f"m{j}" for j in range(len(member))]
    levels = tuple(tuple(range(x)) for x in (*household_levels, *member_levels))
    schema = HouseholdSchema(bnp.Schema((*names[0], *names[1]), levels), "hid", tuple(names[0]))
    return bnp.Households(schema, np.stack(household, axis=1), size, np.stack(member, axis=1))


def plausible_households(sizes, seed=0):
    """Households of relatives that keep `census-relationships`, and these rules.

    Ages lie about those of the head, races and origins agree in 9 of 10 households; variables and
    numbers of levels are those of the paper's section 4.2.
    """
    rng = np.random.default_rng(seed)
    schema = HouseholdSchema(
        bnp.Schema(
            ("own", "relate", "age", "sex", "race", "hispanic"),
            (("owned", "rented"), RELATIONS, tuple(range(AGES)), ("male", "female"),
             tuple(range(9)), tuple(range(5))),
        ),
        "hid", ("own",),
    )  # fmt: skip
    rules = census_relationships(schema)
    size = np.repeat(list(sizes), list(sizes.values()))
    made = _propose(schema, size, rng)
    while not (good := rules.check(made)).all():
        again = _propose(schema, size[~good], rng)
        of_member = np.repeat(~good, size)
        codes, members = made.household_codes.copy(), made.member_codes.copy()
        codes[~good], members[of_member] = again.household_codes, again.member_codes
        made = bnp.Households(schema, codes, size, members)
    return made, rules


def _propose(schema, size, rng):
    code = {name: RELATIONS.index(name) for name in RELATIONS}
    households, members = [], []
    race = rng.dirichlet(np.full(9, 0.3))
    origin = np.array([0.85, 0.08, 0.03, 0.01, 0.03])
    # Years older than the head, and their spread; relations beside spouse and children, by weight.
    older = {"spouse": (-1, 4), "child": (-29, 7), "parent": (27, 6), "parent-in-law": (26, 7),
             "sibling": (0, 8), "grandchild": (-50, 8)}  # fmt: skip
    rare = [name for name in RELATIONS if name not in ("head", "spouse", "child")]
    weight = np.array([1, 2, 1, 2, 1, 2, 2, 6, 3]) / 20
    for n in size:
        married = n > 1 and rng.random() < 0.65
        age = int(np.clip(rng.normal(50 if married else 45, 15), 18, 90))
        sex = int(rng.random() < 0.4)
        own_race, own_origin = rng.choice(9, p=race), rng.choice(5, p=origin)
        mixed = rng.random() < 0.1
        household = [("head", age, sex)]
        if married:
            household.append(("spouse", None, 1 - sex))
        likely_child = 0.85 if age < 65 else 0.4
        while len(household) < n:
            child = rng.random() < likely_child
            name = "child" if child else rare[rng.choice(len(rare), p=weight)]
            household.append((name, None, int(rng.random() < 0.5)))
        for name, known, sex_of in household:
            mean, spread = older.get(name, (-10, 18))
            years = age + rng.normal(mean, spread) if known is None else known
            other = mixed and name != "head"
            members.append((
                code[name], int(np.clip(years, 0, AGES - 1)), sex_of,
                rng.choice(9, p=race) if other else own_race,
                rng.choice(5, p=origin) if other else own_origin,
            ))  # fmt: skip
        households.append([int(rng.random() < (0.3 if married else 0.6))])
    return bnp.Households(schema, np.array(households), np.asarray(size), np.array(members))
