"""Households so few that all of them can be gone through, and runs with draws from the prior."""

import dataclasses
from functools import cached_property

import jax
import numpy as np
from nested import (
    ROLES,
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
from bnp_models.data.compositions import compositions_of
from bnp_models.inference.run import Run
from bnp_models.inference.trace import Settings
from bnp_models.models.nested.probabilities import knows_persons
from bnp_models.models.nested.state import NESTED
from bnp_models.risk.household_probabilities import Laws
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
    "sizes": (None, None, 2, {}),
    "sizes, a head": (Rules([each(OTHER).is_younger_than(HEAD, 0)]), AT_TOP, 3, {}),
    "guests, a head": (None, AT_TOP, 2, {}),
    "guests, rules": (
        Rules([each(OTHER).is_younger_than(HEAD, 0), at_most(1, person(role="guest"))]),
        AT_TOP, 3, {},
    ),
    "weights": (None, None, 2, {}),
    "weights, a head": (None, AT_TOP, 2, {}),
    "weights, sizes": (None, None, 2, {}),
    "weights, tables": (
        Rules([exactly(1, HEAD), household(home="own").implies(each(OTHER).has(aged(0, 0)))]),
        None, 2, {},
    ),
    "weights, no closed form": (Rules([at_most(2, aged(1))]), AT_TOP, 2, {}),
}  # fmt: skip
WEIGHTS = np.array([2.0, 2, 9, 2, 9, 1, 1])


def with_sizes(table):
    """The same households with a household variable that is the number of persons, up to "2+"."""
    frame = table.to_frame()
    sizes = frame.groupby("hid")["hid"].transform("size")
    frame["size"] = np.where(sizes == 1, "1", "2+")
    variables, labels = (*table.schema.table.variables, "size"), ("1", "2+")
    levels = bnp.Schema(variables, (*table.schema.table.levels, labels))
    head = table.schema.head
    made = bnp.Households.from_frame(frame, "hid", ["home", "size"], levels=levels, head=head)
    assert made.schema.size_variable == "size"
    return made


def with_areas(table):
    """The same households with a household variable before the other, by which they alternate."""
    frame = table.to_frame()
    frame.insert(1, "area", np.where(frame["hid"] % 2, "a", "b"))
    levels = bnp.Schema(
        ("area", *table.schema.table.variables), (("a", "b"), *table.schema.table.levels)
    )
    made = bnp.Households.from_frame(frame, "hid", ["area", "home"], levels=levels)
    assert made.schema.household_variables[:2] == ("area", "home")
    return made


def with_head_last(table):
    """The same households, the level of heads being the last one of roles."""
    names, levels = table.schema.table.variables, table.schema.table.levels
    turned = tuple(x[::-1] if name == "role" else x for name, x in zip(names, levels, strict=True))
    schema, head = bnp.Schema(names, turned), table.schema.head
    made = bnp.Households.from_frame(table.to_frame(), "hid", ["home"], levels=schema, head=head)
    assert made.schema.head_code == len(ROLES[:2]) - 1
    return made


class Exact:
    """A run whose draws are from the prior, and all possible households of the sample's sizes."""

    def __init__(
        self, case, num_draws=NUM_DRAWS, draws=1, weigh=lambda weights: weights - 1, sample=SAMPLE,
        ages=None,
    ):  # fmt: skip
        self.weigh = weigh
        rules, head, usual, options = CASES[case]
        ages = ages or usual
        self.model = NDPMPM(components=3, member_components=2, **(SMALL | options))
        self.table = tiny_households(sample, head, ages, 3 if "guests" in case else 2)
        if case in CHANGES:
            self.table = CHANGES[case](self.table)
        if "weights" in case:
            self.table = bnp.data.weighted_households(self.table, WEIGHTS)
        self.rules = rules
        if rules is not None:
            rules.require_feasible(self.table)
        self.data = self.model.prepare(self.table, rules)
        *_, parameters = prior_parameters(self.model, self.data, num_draws, 0)
        self.parameters = parameters
        scalars = dict.fromkeys(
            ("alpha", "components", "log_likelihood", "log_feasible"),
            np.zeros((1, num_draws * draws)),
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

    @property
    def plain(self):
        """The households without the class of their weights."""
        return bnp.inference.sample_law(self.run).table

    @cached_property
    def all(self):
        """All possible households, members in every order, and their probabilities (draws, B).

        With weights, those of households that are not in the sample, once for each class.
        """
        codes, sizes, members, log_p = [], [], [], []
        for i, (number, _) in enumerate(self.data.blocks):
            household, person = all_households(self.data, number)
            possible = possible_households(self.data, i)
            found = log_probabilities(np, self.parameters, self.data, i)
            log_p.append(found[:, possible])
            household, person = household[possible], person[possible]
            if self.data.relative is not None:
                applies = self.data.relative.pairs[0].applies
                person = relative_ages(_Block(household, person), 1, applies)
            codes.append(household)
            sizes.append(np.full(len(household), number + self.table.schema.num_heads))
            members.append(person.reshape(-1, person.shape[2]))
        log_p = np.concatenate(log_p, axis=1)
        p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
        codes, sizes, members = (np.concatenate(x) for x in (codes, sizes, members))
        if self.plain is not self.table:
            # The class follows the home.
            tilted = p * self.weigh(self.table.class_weights)[codes[:, 1]]
            p, codes = tilted / tilted.sum(axis=1, keepdims=True), np.delete(codes, 1, axis=1)
        return bnp.Households(self.plain.schema, codes, sizes, members), p

    @cached_property
    def compositions(self):
        """All possible compositions, and their probabilities (draws, D)."""
        table, p = self.all
        found = compositions_of(table)
        return found, np.stack([np.bincount(found.of_household, row) for row in p])

    @cached_property
    def persons(self):
        """All possible persons, and their probabilities (draws, C)."""
        table, p = self.all
        cells = table.persons.cells()
        weight = np.repeat(p, table.sizes, axis=1)
        of = np.stack([np.bincount(cells.record_cell[table.rows], row) for row in weight])
        return cells.codes, of / of.sum(axis=1, keepdims=True)

    def evaluated(self, law_of=bnp.inference.unsampled_law):
        """The same probabilities as the risk evaluates them."""
        laws = Laws(law_of(self.run))
        draws = {name: laws.run.draws[name][0] for name in NESTED}
        numbers = np.arange(len(draws["log_pi"]))
        log_possible = laws.log_possible(jax.random.key(3), draws, numbers)
        found, _ = self.compositions
        table, _ = self.all
        of = laws.of_households(table.select(found.first), found.log_orders)
        persons = None
        if knows_persons(self.data):
            persons = np.exp(laws.of_persons(self.persons[0])(draws, log_possible))
        return np.exp(of(draws, log_possible)), persons


CHANGES = {
    "sizes": with_sizes, "sizes, a head": with_sizes, "tables on homes": with_areas,
    "shared": with_head_last, "weights, sizes": with_sizes,
}  # fmt: skip


@dataclasses.dataclass
class _Block:
    household_codes: np.ndarray
    member_codes: np.ndarray
