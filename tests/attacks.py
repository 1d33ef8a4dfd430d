"""Attacks on files of a nested model whose prior is a list of parameters: exact answers."""

import dataclasses
import json
from itertools import product

import jax
import numpy as np
from nested import (
    all_households,
    log_probabilities,
    possible_households,
    prior_parameters,
)
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.models.nested.state import NESTED

NUM_ATOMS, NUM_DRAWS = 3000, 4000


HOW = {"num_bootstrap": 200, "max_draws": NUM_DRAWS, "top": (1, 2), "num_datasets": 1}


def expectation(log_l, log_w):
    return logsumexp(log_l + log_w)


def z_scores(risk, exact):
    """Errors of all log odds against the truth, in standard errors; candidates must agree."""
    scores = []
    for rho, error, log_rho in zip(risk.rho, risk.standard_error, exact, strict=True):
        assert set(np.flatnonzero(np.isfinite(rho))) == set(log_rho)
        for column in set(log_rho) - {0}:
            log_odds = np.log(rho[column] / rho[0])
            scores.append((log_odds - (log_rho[column] - log_rho[0])) / error[column])
    return np.array(scores)


class NestedAtoms:
    """A nested model, its prior a list of parameters."""

    num_atoms = NUM_ATOMS

    def __init__(self, model, table, files, rules):
        self.model, self.table, self.files, self.rules = model, table, files, rules
        self.data = self.model.prepare(self.table, self.rules)
        # Not concentrated at one class, so that the classes matter.
        model = dataclasses.replace(self.model, a=4.0, b=2.0, a_beta=4.0, b_beta=2.0)
        self.parameters = prior_parameters(model, self.data, self.num_atoms, 3)[-1]
        self.households, self.log_p = [], []
        for i, (members, _) in enumerate(self.data.blocks):
            self.households.append(all_households(self.data, members))
            self.log_p.append(np.where(self.possible(i), self.log_probabilities(i), -np.inf))
        self.log_size = np.stack([logsumexp(x, axis=1) for x in self.log_p])
        self.log_feasible = logsumexp(self.log_size, axis=0)

    def possible(self, size):
        """Whether each of the households of the size's index is possible."""
        return possible_households(self.data, size)

    def log_probabilities(self, size):
        """(atoms, households of the size's index) before truncation."""
        return log_probabilities(np, self.parameters, self.data, size)

    def find(self, size, codes, members):
        """Cell of a household of the size's index; None if it is impossible."""
        households, persons = self.households[size]
        which = (households == codes).all(axis=1) & (persons == members).all(axis=(1, 2))
        cell = int(np.flatnonzero(which)[0])
        return None if self.log_p[size][0, cell] == -np.inf else cell

    def cells(self, table):
        """(size, cell) of each household, those of one size together."""
        sizes = list(np.unique(self.table.sizes))
        return {
            int(household): (sizes.index(block.size), self.find(sizes.index(block.size), *codes))
            for block in table.size_blocks
            for household, *codes in zip(
                block.households, block.household_codes, block.member_codes, strict=True
            )
        }

    def with_file(self, m):
        """The sample and a file, the latter given its sizes: log likelihood, and the table."""
        file = self.files[m]
        table = bnp.Households(
            self.table.schema,
            *(
                np.concatenate([getattr(self.table, name), getattr(file, name)])
                for name in ("household_codes", "sizes", "member_codes")
            ),
        )
        return self.log_likelihood(self.cells(file), True), table

    def log_likelihood(self, cells, given_size):
        """(atoms,) of households, each with its size, or given it."""
        total = 0.0
        for size, cell in cells.values():
            scale = self.log_size[size] if given_size else self.log_feasible
            total = total + self.log_p[size][:, cell] - scale
        return total

    def posterior(self, seed, m=None):
        """Draws given the sample, and given a file as well."""
        log_w, table = self.log_likelihood(self.cells(self.table), False), self.table
        if m is not None:
            more, table = self.with_file(m)
            log_w = log_w + more
        chosen = np.random.default_rng(seed).choice(
            self.num_atoms, NUM_DRAWS + 1, p=np.exp(log_w - logsumexp(log_w))
        )
        parameters = {
            name: value[None, chosen].astype(np.float32)
            for name, value in zip(NESTED, self.parameters, strict=True)
        }
        digest = "" if self.rules is None else self.rules.digest
        attributes = {
            "sample_sha256": table.digest, "conditions_sha256": digest,
            "options": json.dumps(dataclasses.asdict(self.model)),
        }  # fmt: skip
        return bnp.results.Posterior("ndpmpm", parameters, attributes)

    def attack(self, **how):
        """The attack on every household."""
        how = {"rows": range(self.table.n), "conditions": self.rules} | HOW | how
        return bnp.attack_risk(
            self.posterior(1), self.table, self.files, key=jax.random.key(0), **how
        )

    def exact(self, household, changes):
        """Log rho by column, of the changes (column, codes, members) of one household."""
        cells, log_rho = self.cells(self.table), {}
        size = cells[household][0]
        for column, codes, members in changes:
            cell = self.find(size, codes, members)
            if cell is None:
                continue
            log_w = self.log_likelihood(cells | {household: (size, cell)}, False)
            log_w = log_w - logsumexp(log_w)
            log_rho[column] = sum(
                expectation(self.log_likelihood(self.cells(file), True), log_w)
                for file in self.files
            )
        return log_rho

    def exact_of_persons(self):
        """Log rho by column, of the changes of each person."""
        schema, exact = self.table.schema, []
        household, member = sum(schema.num_household_levels), sum(schema.num_member_levels)
        # Persons are in the order of the households, the head first.
        persons = [(i, place) for i, size in enumerate(self.table.sizes) for place in range(size)]
        for i, place in persons:
            is_head = schema.head is not None and place == 0
            start = household + (place - schema.num_heads) * member
            log_rho = {}
            for column, value in self.exact(i, self.changes(i)).items():
                if column == 0:
                    log_rho[0] = value
                elif is_head and schema.num_household_levels[0] < column <= household:
                    log_rho[column] = value
                elif not is_head and start < column <= start + member:
                    log_rho[column - start + household] = value
            exact.append(log_rho)
        return exact

    def changes(self, household):
        """Everything that may differ in one variable: (column, codes, members)."""
        table, schema = self.table, self.table.schema
        heads = schema.num_heads
        first = int((table.sizes - heads)[:household].sum())
        codes = table.household_codes[household]
        members = table.member_codes[first : first + table.sizes[household] - heads]
        yield 0, codes, members
        column = 0
        places = [(None, k, size) for k, size in enumerate(schema.num_household_levels)]
        places += [
            (j, k, size)
            for j, (k, size) in product(range(len(members)), enumerate(schema.num_member_levels))
        ]
        for j, k, size in places:
            for level in range(size):
                column += 1
                new = codes.copy(), members.copy()
                array = new[0] if j is None else new[1][j]
                if array[k] != level:
                    array[k] = level
                    yield column, *new
