"""The risk of households against households so few that all of them can be gone through."""

import dataclasses
from functools import cached_property

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from nested import (
    all_households,
    log_probabilities,
    possible_households,
    prior_parameters,
    relative_ages,
    tiny_households,
)
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models import NDPMPM, Rules
from bnp_models.data.compositions import compositions
from bnp_models.inference.run import Run, Settings
from bnp_models.models.nested.probabilities import knows_persons
from bnp_models.models.nested.state import NESTED
from bnp_models.risk import households
from bnp_models.rules import aged, at_most, each, exactly, household, person

HEAD, OTHER, AT_TOP = person(role="head"), person(role="other"), ("role", "head")
SAMPLE = [
    ("own", [("head", "1")]), ("rent", [("head", "0")]), ("own", [("head", "1"), ("other", "0")]),
    ("rent", [("head", "1"), ("other", "1")]), ("own", [("head", "1"), ("other", "0")]),
    ("rent", [("head", "1"), ("other", "0"), ("other", "1")]),
    ("own", [("head", "1"), ("other", "0"), ("other", "0")]),
]  # fmt: skip
SMALL = {"level_prior": "uniform", "a": 1.0, "b": 1.0, "a_beta": 1.0, "b_beta": 1.0}
NUM_DRAWS = 3

# Rules, head, ages, options of the model.
CASES = {
    "no rules": (None, None, 2, {}),
    "a head": (None, AT_TOP, 2, {}),
    "shared": (None, AT_TOP, 2, {"member_classes": "shared"}),
    "relative": (None, AT_TOP, 3, {"relative": [("age", "difference")]}),
    "tables": (Rules([exactly(1, HEAD), at_most(1, person(role="other", age="1"))]), None, 2, {}),
    "tables, a head": (
        Rules([each(OTHER).is_younger_than(HEAD, 0), at_most(1, person(role="other", age="1"))]),
        AT_TOP, 3, {},
    ),
    "tables on homes": (
        Rules([exactly(1, HEAD), household(home="own").implies(each(OTHER).has(aged(0, 0)))]),
        None, 2, {},
    ),
    "relative rules": (
        Rules([each(OTHER).is_younger_than(HEAD, 0)]), AT_TOP, 3,
        {"relative": [("age", "difference")]},
    ),
    "no closed form": (Rules([at_most(2, aged(1))]), AT_TOP, 2, {}),
}  # fmt: skip


class Exact:
    """A run whose draws are from the prior, and all possible households of the sample's sizes."""

    def __init__(self, rules, head, ages, options, num_draws=NUM_DRAWS, draws=1):
        self.model = NDPMPM(components=3, member_components=2, **(SMALL | options))
        self.table = tiny_households(SAMPLE, head, ages)
        self.rules = rules
        if rules is not None:
            rules.require_feasible(self.table)
        self.data = self.model.prepare(self.table, rules)
        *_, parameters = prior_parameters(self.model, self.data, num_draws, 0)
        self.parameters = parameters
        scalars = dict.fromkeys(
            ("alpha", "components", "log_likelihood", "log_feasible"), np.zeros((1, num_draws * draws))
        )
        arrays = {
            name: np.repeat(value, draws, axis=0)[None].astype(np.float32)
            for name, value in zip(NESTED, parameters, strict=True)
        }
        settings = Settings(1, 0, num_draws * draws, 1, (), (1,), 1)
        completed = np.zeros((1, num_draws * draws, 1), int)
        self.run = Run(
            self.model, self.table, settings, scalars | arrays | {"completed": completed},
            jax.random.key(1), None, self.model.capacity, (), rules,
        )  # fmt: skip

    @cached_property
    def all(self):
        """All possible households, members in every order, and their probabilities (draws, B)."""
        codes, sizes, members, log_p = [], [], [], []
        for i, (number, _) in enumerate(self.data.blocks):
            household, person = all_households(self.data, number)
            possible = possible_households(self.data, i)
            found = log_probabilities(np, self.parameters, self.data, i)
            log_p.append(found[:, possible])
            household, person = household[possible], person[possible]
            if self.data.relative is not None:
                person = relative_ages(_Block(household, person), 1)
            codes.append(household)
            sizes.append(np.full(len(household), number + self.table.schema.num_heads))
            members.append(person.reshape(-1, person.shape[2]))
        log_p = np.concatenate(log_p, axis=1)
        p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
        parts = (np.concatenate(x) for x in (codes, sizes, members))
        return bnp.Households(self.table.schema, *parts), p

    @cached_property
    def compositions(self):
        """All possible compositions, and their probabilities (draws, D)."""
        table, p = self.all
        found = compositions(table)
        return found, np.stack([np.bincount(found.of_household, row) for row in p])

    @cached_property
    def persons(self):
        """All possible persons, and their probabilities (draws, C)."""
        table, p = self.all
        cells = table.persons.cells()
        weight = np.repeat(p, table.sizes, axis=1)
        of = np.stack([np.bincount(cells.record_cell[table.rows], row) for row in weight])
        return cells.codes, of / of.sum(axis=1, keepdims=True)

    def evaluated(self):
        """The same probabilities as the risk evaluates them."""
        laws = households._Laws(self.run, jax.random.key(3))
        draws = {name: self.run.draws[name][0] for name in NESTED}
        log_possible = laws.log_possible(draws, np.arange(len(draws["log_pi"])))
        found, _ = self.compositions
        table, _ = self.all
        of = laws.of_households(table.select(found.first), found.log_orders)
        persons = None
        if knows_persons(self.data):
            persons = np.exp(laws.of_persons(self.persons[0])(draws, log_possible))
        return np.exp(of(draws, log_possible)), persons


@dataclasses.dataclass
class _Block:
    household_codes: np.ndarray
    member_codes: np.ndarray


@pytest.mark.parametrize("case", CASES)
def test_probabilities_are_sums_over_all_households(case):
    """In single precision; P(possible) is simulated where the rules have no closed form."""
    exact = Exact(*CASES[case])
    found, persons = exact.evaluated()
    rtol = 1e-4 if exact.data.closed_form else 0.05
    assert exact.data.closed_form == (case != "no closed form")
    np.testing.assert_allclose(found, exact.compositions[1], rtol=rtol)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=rtol)
    assert (persons is None) == (case in ("relative rules", "no closed form"))
    if persons is not None:
        np.testing.assert_allclose(persons, exact.persons[1], rtol=rtol)
        np.testing.assert_allclose(persons.sum(axis=1), 1, rtol=rtol)
