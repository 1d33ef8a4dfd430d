"""Attack risks where members' values are relative to their head's, against exhaustive answers."""

import dataclasses
import json

import jax
import numpy as np
import pandas as pd
import pytest
from attacks import NestedAtoms, z_scores
from harness import Z_LIMIT
from nested import all_households, log_probabilities

import bnp_models as bnp
from bnp_models.cli import evaluate
from bnp_models.cli.main import main
from bnp_models.evaluation.attack import attack, household_targets
from bnp_models.models.nested.probabilities import log_possible_by_size
from bnp_models.models.nested.state import NESTED
from bnp_models.rules import at_most, each, exactly, person

LEVELS = pd.DataFrame(
    [("home", "own"), ("home", "rent"), ("role", "head"), ("role", "other"), ("age", "0"),
     ("age", "1"), ("age", "2"), ("race", "a"), ("race", "b"), ("race", "c")],
    columns=["variable", "level"],
)  # fmt: skip
HOUSEHOLDS = [
    ("own", "head 2 b", "other 1 b", "other 2 c"),
    ("rent", "head 1 c"),
    ("own", "head 2 a", "other 2 a"),
    ("own", "head 1 b", "other 0 a", "other 1 b"),
    ("rent", "head 0 a", "other 0 c"),
]
FILES = (
    [HOUSEHOLDS[0], HOUSEHOLDS[1], ("own", "head 2 b", "other 2 b")],
    [HOUSEHOLDS[4], ("rent", "head 1 a"), ("own", "head 2 c", "other 1 a", "other 2 c")],
)
AGE, RACE = 3, 3


def households(given, levels=LEVELS):
    rows = [
        (i, home, *person.split()) for i, (home, *persons) in enumerate(given) for person in persons
    ]
    frame = pd.DataFrame(rows, columns=["hid", "home", "role", "age", "race"])
    return bnp.Households.from_frame(
        frame, "hid", ["home"], levels=levels, head=("role", "head")
    )  # fmt: skip


class RelativeAtoms(NestedAtoms):
    """Households in the sample's codes; what the model has in their place is worked out here."""

    num_atoms = 1000
    relative = (("age", "difference"), ("race", "same"))
    given, levels = HOUSEHOLDS, LEVELS

    def __init__(self):
        head, other = person(role="head"), person(role="other")
        rules = [
            exactly(1, head), each(other).is_younger_than(head, 0),
            at_most(1, person(role="other", race="c")),
        ]  # fmt: skip
        model = bnp.NDPMPM(
            components=3, member_components=2, relative=self.relative, level_prior="uniform"
        )
        sample, *files = (households(one, self.levels) for one in (self.given, *FILES))
        super().__init__(model, sample, files, bnp.Rules(rules))

    def possible(self, size):
        households = all_households(self.data, self.data.blocks[size][0])
        return self.rules.compile(self.table.schema).on_numpy(*households)

    def log_probabilities(self, size):
        parameters = self.parameters
        # Not all at once, for the memory.
        parts = [
            log_probabilities(np, [x[start : start + 100] for x in parameters], self.data, size)
            for start in range(0, self.num_atoms, 100)
        ]
        return np.concatenate(parts)[:, self.coded(size)]

    def coded(self, size):
        """Place, for each household, of the one that has its codes."""
        codes, members = all_households(self.data, self.data.blocks[size][0])
        schema = self.table.schema
        age, race = (schema.household_variables.index(f"head_{x}") for x in ("age", "race"))
        age, race = codes[:, [age]], codes[:, [race]]
        members = members.copy()
        role = schema.member_variables.index("role")
        labels = np.array(schema.member_levels[role])[members[..., role]]
        named = {name: own[0] if own else ("other", "guest") for name, _, *own in self.relative}
        j = schema.member_variables.index("age")
        differences = (members[..., j] - age) % AGE
        members[..., j] = np.where(np.isin(labels, named["age"]), differences, members[..., j])
        j = schema.member_variables.index("race")
        races = members[..., j]
        # Level 0 takes the code that the head's level leaves.
        same = np.where(races == race, 0, np.where(races == 0, race, races))
        members[..., j] = np.where(np.isin(labels, named["race"]), same, races)
        columns = np.concatenate([codes, members.reshape(len(codes), -1)], axis=1)
        sizes = schema.num_household_levels
        sizes += schema.num_member_levels * (self.data.blocks[size][0])
        return np.ravel_multi_index(columns.T, sizes)


class AtomsByRole(RelativeAtoms):
    """The ages of others are relative to their head's, and the races of guests."""

    relative = (("age", "difference", ("other",)), ("race", "same", ("guest",)))
    given = [
        *HOUSEHOLDS[:3], ("own", "head 1 b", "other 0 a", "guest 2 b"),
        ("rent", "head 0 a", "guest 0 c"),
    ]  # fmt: skip
    levels = pd.concat([LEVELS, pd.DataFrame({"variable": ["role"], "level": ["guest"]})])


@pytest.fixture(scope="module", params=[RelativeAtoms, AtomsByRole])
def atoms(request):
    return request.param()


@pytest.fixture(scope="module")
def exact(atoms):
    return [atoms.exact(i, atoms.changes(i)) for i in range(atoms.table.n)]


@pytest.mark.long
def test_every_candidate_for_a_household_refitted(atoms, exact):
    risk = atoms.attack(estimator="direct")
    z = z_scores(risk, exact)
    assert np.abs(z).max() < Z_LIMIT, z
    assert risk.typical_error.max() < 0.1


def test_all_levels_of_a_head_are_candidates():
    table = households(HOUSEHOLDS)
    model = bnp.NDPMPM(components=2, member_components=2, level_prior="uniform")
    targets = household_targets.HouseholdTargets(model, table, None, "person", [0])
    named = [targets.columns[j] for j in targets._columns("head", 1)]
    heads = [(f"head_{x}", label) for x in ("age", "race") for label in table.schema.labels(x)]
    assert named == heads


@pytest.mark.long
def test_every_candidate_for_a_person_refitted(atoms):
    risk = atoms.attack(
        refits=[atoms.posterior(2 + m, m) for m in range(len(atoms.files))], target="person",
        rows=range(atoms.table.num_persons),
    )  # fmt: skip
    z = z_scores(risk, atoms.exact_of_persons())
    assert np.abs(z).max() < Z_LIMIT, z


def _members_stay(patch):
    right = household_targets.HouseholdTargets._recoded

    def recoded(self, household, members):
        *others, by_head = right(self, household, members)
        coded = self._coded(household, members)
        for pair, codes in zip(self.data.relative.pairs, by_head, strict=True):
            codes[:] = coded[:, :, [pair.member]]
        return *others, by_head

    patch.setattr(household_targets.HouseholdTargets, "_recoded", recoded)


def _levels_for_codes(patch):
    right = household_targets.HouseholdTargets._recoded

    def recoded(self, household, members):
        *_, by_head = right(self, household, members)
        return (), None, by_head

    patch.setattr(household_targets.HouseholdTargets, "_recoded", recoded)


def _relationships_stay(patch):
    # The values that another relationship makes relative, or makes levels, keep their codes.
    right = household_targets.HouseholdTargets._recoded

    def recoded(self, household, members):
        by_pattern, pattern, by_head = right(self, household, members)
        # The last column is a race, which changes no codes of other variables.
        return by_pattern, np.broadcast_to(pattern[:, :, -1:], pattern.shape), by_head

    patch.setattr(household_targets.HouseholdTargets, "_recoded", recoded)


def _files_as_they_are(patch):
    right = household_targets.household_arrays
    patch.setattr(
        household_targets, "household_arrays", lambda file, sizes, _: right(file, sizes, None)
    )


PLANTED = {
    "members keep their codes under another head": _members_stay,
    "a member's levels taken for codes": _levels_for_codes,
    "files not coded": _files_as_they_are,
    "codes stay with another relationship": _relationships_stay,
}


@pytest.mark.parametrize(
    ("atoms", "planted"),
    [
        (atoms, planted)
        for atoms in (RelativeAtoms, AtomsByRole)
        for planted in PLANTED
        # The codes of all members are relative in the first.
        if atoms is AtomsByRole or planted != "codes stay with another relationship"
    ],
    indirect=["atoms"],
)
def test_planted_errors_are_seen(atoms, exact, planted, monkeypatch):
    PLANTED[planted](monkeypatch)
    risk = atoms.attack(estimator="direct", rows=[0, 3])
    assert np.abs(z_scores(risk, [exact[0], exact[3]])).max() > Z_LIMIT


def test_share_of_possible_households(atoms):
    """The rules are asked about what codes stand for, by tables and by simulation."""
    draws = {
        name: value[:4].astype(np.float32)
        for name, value in zip(NESTED, atoms.parameters, strict=True)
    } | {"number": np.arange(4)}
    assert atoms.data.tables.compositions is not None
    estimate = log_possible_by_size(draws, atoms.data, jax.random.key(0))
    np.testing.assert_allclose(estimate, atoms.log_size[:, :4].T, atol=1e-4)
    without = dataclasses.replace(atoms.data, tables=None)
    estimate = log_possible_by_size(draws, without, jax.random.key(1))
    np.testing.assert_allclose(estimate, atoms.log_size[:, :4].T, atol=0.1)


RULES = """
from bnp_models.rules import Rules, each, exactly, person

head, child = person(relate="Householder"), person(relate="Child")
rules = Rules([exactly(1, head), each(child).is_younger_than(head, 15)])
"""


@pytest.mark.long
def test_from_the_command_line(tmp_path, monkeypatch):
    """The file says all options of the model, those of the refit too."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(30):
        age, tenure = int(rng.choice([20, 30, 40])), rng.choice(["own", "rent"])
        rows.append((i, tenure, "Householder", age))
        rows += [(i, tenure, "Child", age - 20) for _ in range(rng.integers(3))]
    frame = pd.DataFrame(rows, columns=["hid", "tenure", "relate", "age"])
    frame.to_csv(tmp_path / "sample.csv", index=False)
    (tmp_path / "rules.py").write_text(RULES)
    table = bnp.read_households(
        tmp_path / "sample.csv", "hid", ["tenure"], head=("relate", "Householder")
    )
    relative = [("age", "difference", ["Child"])]
    model = bnp.NDPMPM(3, 2, relative=relative, level_prior="uniform", prior_possible=3)
    run = bnp.sample(
        model, table, key=jax.random.key(0), num_chains=1, num_warmup=20, num_samples=300,
        conditions=bnp.read_rules(tmp_path / "rules.py", table),
    )  # fmt: skip
    (made,) = bnp.synthesize(run, 1)
    bnp.io.write_frame(made, tmp_path / "synthetic.csv")
    data = bnp.to_inference_data(run, parameters=True, num_datasets=1)
    bnp.io.write_netcdf(data, tmp_path / "posterior.nc")
    refitted = []
    monkeypatch.setattr(evaluate, "refit", lambda model, *args, **how: refitted.append(model))
    out = tmp_path / "out"
    assert main(["evaluate", str(tmp_path / "sample.csv"), str(tmp_path / "synthetic.csv"),
                 "--household", "hid", "--household-variables", "tenure", "--rules",
                 str(tmp_path / "rules.py"), "--posterior", str(tmp_path / "posterior.nc"),
                 "--refit", "--out", str(out), "--quiet"]) == 0  # fmt: skip
    assert refitted == [model]
    records = pd.read_csv(out / "records.csv")
    assert len(records) and (records["candidates"] > 1).all() and records["rho"].between(0, 1).all()


def test_refits_of_another_model_are_refused(atoms):
    for name, value in (("relative", ()), ("level_prior", "learned"), ("prior_possible", 3)):
        refit = atoms.posterior(2, 0)
        options = dataclasses.asdict(atoms.model) | {name: value}
        other = refit._replace(attributes=refit.attributes | {"options": json.dumps(options)})
        with pytest.raises(bnp.MicrodataError, match=f"refit 1 used a model with {name}"):
            atoms.attack(refits=[other, other])
    # How the chains moved is their own affair.
    options = dataclasses.asdict(atoms.model) | {"reorder": False}
    other = bnp.evaluation.model_of(refit._replace(attributes={"options": json.dumps(options)}))
    attack._check_same_model(atoms.model, other, 0)
