"""Members' values relative to their head's: codes, rules about them, synthetic and missing ones."""

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.inference.sampling import check_input
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.rules import aged, at_most, each, person
from bnp_models.rules.head_forms import head_form
from bnp_models.rules.views import joint_level

HEAD = ("role", "head")
AGES = [f"{age}" for age in range(5)]
RACES = ["black", "other", "white"]


def frame(rng, number=40):
    rows = []
    for i in range(number):
        age, race = rng.integers(5), rng.choice(RACES)
        rows.append((i, "rent", "head", str(age), race))
        for _ in range(rng.integers(3)):
            own = race if rng.random() < 0.8 else rng.choice(RACES)
            # Partners are of one age, or a year younger.
            partner = rng.random() < 0.5
            member = max(0, age - rng.integers(2)) if partner else rng.integers(age + 1)
            rows.append((i, "own", "partner" if partner else "child", str(member), own))
    made = pd.DataFrame(rows, columns=["hid", "home", "role", "age", "race"])
    return made.assign(home=made.groupby("hid")["home"].transform("first"))


def levels():
    role = ["head", "partner", "child"]
    named = {"home": ["own", "rent"], "role": role, "age": AGES, "race": RACES}
    return pd.DataFrame(
        [(name, label) for name, labels in named.items() for label in labels],
        columns=["variable", "level"],
    )


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def table(rng):
    return bnp.Households.from_frame(frame(rng), "hid", ["home"], levels=levels(), head=HEAD)


@pytest.fixture
def rules(table):
    older = each(person(role="child")).is_older_than(person(role="head"), 0)
    made = bnp.Rules([~older | at_most(0, aged(4)), at_most(1, person(role="partner"))])
    return made


def columns_of(table):
    schema = table.schema
    head_age, head_race = (schema.household_variables.index(f"head_{v}") for v in ("age", "race"))
    age, race = (schema.member_variables.index(v) for v in ("age", "race"))
    heads = table.household_codes[table.member_household]
    return heads[:, head_age], heads[:, head_race], age, race


def test_codes_of_some_relationships(table):
    """Partners have differences to the head's age, and children their ages; race as before."""
    coding = RelativeCoding(table.schema, (("age", None, ("partner",)), "race"))
    heads = table.household_codes[table.member_household]
    coded = coding.encode(heads, table.member_codes[:, None])[:, 0]
    every = RelativeCoding(table.schema, ("age", "race"))
    of_all = every.encode(heads, table.member_codes[:, None])[:, 0]
    _, _, age, race = columns_of(table)
    role = table.schema.member_variables.index("role")
    labels = np.array(table.schema.member_levels[role])
    is_partner = labels[table.member_codes[:, role]] == "partner"
    own = np.where(is_partner, of_all[:, age], table.member_codes[:, age])
    np.testing.assert_array_equal(coded[:, age], own)
    np.testing.assert_array_equal(coded[:, race], of_all[:, race])
    assert (own != of_all[:, age]).any() and (own != table.member_codes[:, age]).any()
    back = coding.decode(heads, coded[:, None])[:, 0]
    np.testing.assert_array_equal(back, table.member_codes)


def test_relationships_in_which_members_are_like_their_heads(rng):
    """The ages of partners, and the races of partners and of children."""
    persons = frame(rng, 400)
    # There are twenty ages, and partners have that of their head.
    persons["age"] = persons["age"].astype(int) * 4 + rng.integers(4, size=len(persons))
    heads = persons.loc[persons["role"] == "head"].set_index("hid")["age"]
    is_partner = persons["role"] == "partner"
    persons.loc[is_partner, "age"] = heads[persons.loc[is_partner, "hid"]].to_numpy()
    table = bnp.Households.from_frame(persons, "hid", ["home"], head=HEAD)
    found = bnp.models.relative_to_heads(table)
    assert found == (("age", "difference", ("partner",)), ("race", "same", ("child", "partner")))
    # Nothing is chosen where members are not like their heads, or nobody is known as the head.
    shuffled = persons.assign(
        age=rng.permutation(persons["age"]), race=rng.choice(RACES, len(persons))
    )
    for other, head in ((shuffled, HEAD), (persons, None)):
        table = bnp.Households.from_frame(other, "hid", ["home"], head=head)
        assert bnp.models.relative_to_heads(table) == ()
    # A missing age of a head who lives alone, and a missing relationship.
    alone = persons[persons["role"] == "head"].tail(1).assign(hid=-1, age=None)
    table = bnp.Households.from_frame(pd.concat([persons, alone]), "hid", ["home"], head=HEAD)
    assert bnp.models.relative_to_heads(table) == found[1:]
    persons.loc[persons.index[persons["role"] != "head"][0], "role"] = None
    table = bnp.Households.from_frame(persons, "hid", ["home"], head=HEAD)
    assert bnp.models.relative_to_heads(table) == ()
    with pytest.raises(bnp.MicrodataError, match="whose relationship to the head is missing"):
        bnp.NDPMPM(relative=found).check(table)


def test_codes_that_rules_read_need_the_relationship(table):
    """It is drawn for impossible households, also if rules read the age alone."""
    rules = bnp.Rules([each(person()).has(aged(0, 3))])
    table = table.select(rules.check(table))
    age, role = (table.schema.member_variables.index(name) for name in ("age", "role"))
    for relative, read in (((), (age,)), (("age",), (age,))):
        data = bnp.NDPMPM(2, 2, relative=relative).prepare(table, rules)
        assert data.member.read == read and data.tables is not None
    data = bnp.NDPMPM(2, 2, relative=[("age", None, ["partner"])]).prepare(table, rules)
    assert set(data.member.read) == {age, role} and data.tables is None
    # The predicate judges what codes stand for: level 4 of a child, and not that of a partner.
    roles = table.schema.member_levels[role]
    codes = np.zeros((2, 1, len(table.schema.member_variables)), int)
    codes[:, 0, age] = 4
    codes[:, 0, role] = roles.index("child"), roles.index("partner")
    households = np.zeros((2, len(table.schema.household_variables)), int)
    households[:, table.schema.household_variables.index("head_age")] = 1
    np.testing.assert_array_equal(data.possible.on_numpy(households, codes), [False, True])


def test_labels_of_relationships():
    """One text is one label."""
    model = bnp.NDPMPM(relative=[("age", None, "partner"), ("race", "same"), ["sex", "same", None]])
    assert model.relative == (("age", None, ("partner",)), ("race", "same"), ("sex", "same"))


def test_the_risk_of_households_needs_all_members_or_none(table):
    relative = [("age", "difference", ["partner"])]
    run = bnp.sample(
        bnp.NDPMPM(2, 2, relative=relative), table, key=jax.random.key(0), num_chains=1,
        num_warmup=1, num_samples=2, parameters_every=1,
    )  # fmt: skip
    with pytest.raises(ValueError, match="^relative: the risk of households is not known if"):
        bnp.household_risk(run, 1000)
    labels = bnp.NDPMPM(relative=relative).levels_of_axes(table, None)["member_variable_level"]
    assert labels["age"][:2] == ("0 or head's difference 0", "1 or head's difference 1")
    assert "margin age, level or code 1" in bnp.level_margins(run).names


def test_an_unknown_relationship(table):
    with pytest.raises(
        bnp.MicrodataError, match="'uncle' is no relationship .* 'partner', 'child'"
    ):
        RelativeCoding(table.schema, (("age", "difference", ("partner", "uncle")),))


def test_codes_are_differences_and_sameness(table):
    coding = RelativeCoding(table.schema, ("age", "race"))
    assert [pair.kind for pair in coding.pairs] == ["difference", "same"]
    heads = table.household_codes[table.member_household]
    coded = coding.encode(heads, table.member_codes[:, None])[:, 0]
    head_age, head_race, age, race = columns_of(table)
    np.testing.assert_array_equal(coded[:, age], (table.member_codes[:, age] - head_age) % 5)
    same = table.member_codes[:, race] == head_race
    assert same.any() and not same.all()
    np.testing.assert_array_equal(coded[:, race] == 0, same)
    # Other races are themselves, but for the first, which has the code of the head's.
    own = table.member_codes[~same, race]
    expected = np.where(own == 0, head_race[~same], own)
    np.testing.assert_array_equal(coded[~same, race], expected)
    back = coding.decode(heads, coded[:, None])[:, 0]
    np.testing.assert_array_equal(back, table.member_codes)


@pytest.mark.parametrize("kind", ["difference", "same"])
def test_codes_are_one_to_one_given_the_head(table, kind):
    pair = RelativeCoding(table.schema, (("race", kind),)).pairs[0]
    for head in range(3):
        np.testing.assert_array_equal(np.sort(pair.decoded[head]), range(3))
        np.testing.assert_array_equal(pair.decoded[head][pair.coded[head]], range(3))
        assert pair.decoded[head, 0] == head


@pytest.mark.parametrize("relative", [("race", "age"), ("race", ("age", None, ("partner",)))])
def test_tables_of_codes_judge_as_the_rules_do(table, rng, relative):
    """Every joint code, against the code decoded and judged one by one."""
    made = bnp.Rules([
        each(person(role="partner")).is_older_than(person(role="head"), 0).implies(
            at_most(0, person(role="child", race="white"))
        ),
        each(person(role="child")).has(aged(0, 3)),
    ])  # fmt: skip
    form = head_form(made, table.schema)
    coding = RelativeCoding(table.schema, relative)
    households, members = coding.decoded_levels(*form.columns)
    extended = coding.columns(*form.columns)
    num = [table.schema.num_household_levels[k] for k in extended]
    num_member = [table.schema.num_member_levels[j] for j in form.columns.member]
    for _ in range(200):
        own = [rng.integers(size) for size in num]
        codes = np.zeros((1, len(table.schema.household_variables)), int)
        codes[0, list(extended)] = own
        member = np.zeros((1, 1, len(table.schema.member_variables)), int)
        given = [rng.integers(size) for size in num_member]
        member[0, 0, list(form.columns.member)] = given
        b = np.ravel_multi_index(own, num)
        r = np.ravel_multi_index(given, num_member)
        decoded = coding.decode(codes, member)
        columns = form.columns
        level = joint_level(codes[..., columns.household], form.num_household_levels)
        assert level[0] == households[b]
        level = joint_level(decoded[..., columns.member], form.num_member_levels)
        assert level[0, 0] == members[b, r]


def test_rules_may_not_use_the_head(table):
    """The head's columns give the members' levels, and are no columns of the household's level."""
    coding = RelativeCoding(table.schema, ("age", "race"))
    home, age = 0, table.schema.member_variables.index("age")
    pair = next(pair for pair in coding.pairs if pair.member == age)
    for household in ((), (home,)):
        households, members = coding.decoded_levels(household, [age])
        extended = coding.columns(household, [age])
        assert extended == (*household, pair.household)
        num = [table.schema.num_household_levels[k] for k in extended]
        for b, codes in enumerate(np.ndindex(*num)):
            assert households[b] == (codes[0] if household else 0)
            np.testing.assert_array_equal(members[b], pair.decoded[codes[-1]])


@pytest.mark.long
def test_relative_ages_keep_the_correlation_of_couples(rng):
    """Ages that differ by a year at most; as printed, their synthetic correlation is below 0.8."""
    age = rng.integers(1, 40, 400)
    rows = [(i, role, str(a - (role != "head") * rng.integers(2)))
            for i, a in enumerate(age) for role in ("head", "partner")]  # fmt: skip
    labels = [("role", "head"), ("role", "partner")] + [("age", str(a)) for a in range(40)]
    table = bnp.Households.from_frame(
        pd.DataFrame(rows, columns=["hid", "role", "age"]), "hid",
        levels=pd.DataFrame(labels, columns=["variable", "level"]), head=HEAD,
    )  # fmt: skip
    model = bnp.NDPMPM(10, 2, relative=["age"])
    run = bnp.sample(
        model, table, key=jax.random.key(0), num_chains=1, num_warmup=150, num_samples=50
    )
    ages = bnp.synthesize(run, 1)[0]["age"].astype(int).to_numpy().reshape(-1, 2)
    assert np.corrcoef(ages.T)[0, 1] > 0.95


@pytest.mark.parametrize(
    "relative",
    [[("age", None, ["partner"]), "race"], pytest.param(["age", "race"], marks=pytest.mark.long)],
)
def test_synthetic_and_completed_households_keep_the_rules(rng, rules, relative):
    full = frame(rng)
    table = bnp.Households.from_frame(full, "hid", ["home"], levels=levels(), head=HEAD)
    holes = full[full["hid"].isin(table.ids[rules.check(table)])].copy()
    gone = (holes["role"] != "head") & (rng.random(len(holes)) < 0.5)
    holes.loc[gone, "age"] = None
    table = bnp.Households.from_frame(holes, "hid", ["home"], levels=levels(), head=HEAD)
    model = bnp.NDPMPM(3, 3, relative=relative)
    run = bnp.sample(
        model, table, key=jax.random.key(0), conditions=rules, num_chains=1, num_warmup=5,
        num_samples=20,
    )  # fmt: skip
    known = holes.notna().to_numpy()
    for made in bnp.impute(run, 2):
        np.testing.assert_array_equal(made.to_numpy()[known], holes.to_numpy()[known])
        assert made["age"].notna().all()
    schema = table.schema.table
    for made in bnp.synthesize(run, 2) + bnp.impute(run, 2):
        again = bnp.Households.from_frame(made, "hid", ["home"], levels=schema, head=HEAD)
        assert rules.check(again).all()
        np.testing.assert_array_equal(np.sort(again.sizes), np.sort(table.sizes))


def test_a_head_without_the_value_is_refused(rng):
    holes = frame(rng)
    holes.loc[0, "age"] = None
    table = bnp.Households.from_frame(holes, "hid", ["home"], levels=levels(), head=HEAD)
    with pytest.raises(bnp.MicrodataError, match="the head of household 0 has a missing value"):
        check_input(bnp.NDPMPM(relative=["age"]), table)
    check_input(bnp.NDPMPM(relative=["race"]), table)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"relative": ["height"]}, "cannot be relative to the head's value, only age, race can"),
        ({"relative": ["role"]}, "cannot be relative to the head's value, only age, race can"),
        ({"relative": ["age", "age"]}, "relative twice"),
        ({"relative": [("age", "ratio")]}, "difference or same, not 'ratio'"),
    ],
)
def test_options_that_do_not_fit_are_refused(table, options, match):
    with pytest.raises(bnp.MicrodataError, match=match):
        check_input(bnp.NDPMPM(**options), table)


def test_heads_among_the_members_are_refused(rng):
    table = bnp.Households.from_frame(frame(rng), "hid", ["home"], levels=levels())
    with pytest.raises(
        bnp.MicrodataError, match="head must be described by variables of the household"
    ):
        check_input(bnp.NDPMPM(relative="age"), table)
