"""Attack risks against exhaustive answers, on samples so small that all candidates are refitted.

The prior is a list of parameters, drawn once from that of the model: then the posterior given any
records is exact, and so are draws from it.
"""

import dataclasses
import json
from itertools import product

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from latent import feasible_cells, structural_zeros
from nested import (
    all_households,
    log_probabilities,
    possible_households,
    prior_parameters,
    tiny_households,
)
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models import attack, attack_targets
from bnp_models.rules import exactly, person

NUM_ATOMS, NUM_DRAWS = 3000, 4000
HOW = {"num_bootstrap": 200, "max_draws": NUM_DRAWS, "top": (1, 2), "num_datasets": 1}

NUM_LEVELS = (2, 3, 2)
CODES = np.array([[0, 0, 0], [0, 1, 1], [1, 2, 1], [0, 0, 1], [0, 1, 1], [0, 1, 0], [1, 2, 1]])
FILES = (
    np.array([[0, 0, 0], [0, 1, 1], [0, 1, 1], [1, 2, 1]]),
    np.array([[0, 1, 1], [1, 2, 1], [0, 0, 0], [0, 1, 1], [0, 0, 1]]),
)
CONDITIONS = [[1, 0, -1], [-1, 2, 0]]


class Atoms:
    """A latent class model whose prior is a list of parameters."""

    def __init__(self, conditions):
        rng = np.random.default_rng(0)
        pi = rng.dirichlet(np.ones(3), NUM_ATOMS)
        levels = [rng.dirichlet(0.7 * np.ones(size), (NUM_ATOMS, 3)) for size in NUM_LEVELS]
        self.log_pi = np.log(pi)
        self.log_lambda = np.log(np.concatenate([x.swapaxes(1, 2) for x in levels], axis=1))
        self.conditions = structural_zeros(conditions, NUM_LEVELS)
        self.model = "nplcm" if conditions is None else "tnplcm"
        self.cells = feasible_cells(conditions, NUM_LEVELS)
        self.log_feasible = logsumexp(self._log_p(self.cells), axis=1)
        self.log_cell = self._log_p(self.cells) - self.log_feasible[:, None]
        names = tuple(f"v{j}" for j in range(len(NUM_LEVELS)))
        self.schema = bnp.Schema(names, tuple(tuple(range(size)) for size in NUM_LEVELS))
        self.table = bnp.Microdata(self.schema, CODES)
        self.files = [bnp.Microdata(self.schema, codes) for codes in FILES]

    def _log_p(self, cells):
        rows = cells + np.cumsum((0, *NUM_LEVELS[:-1]))
        return logsumexp(self.log_lambda[:, rows].sum(axis=2) + self.log_pi[:, None], axis=2)

    def log_likelihood(self, codes):
        """(atoms,) of records, exactly."""
        which = (codes[:, None] == self.cells).all(axis=2)
        assert which.any(axis=1).all()
        return self.log_cell[:, which.argmax(axis=1)].sum(axis=1)

    def posterior(self, codes, seed):
        """Independent draws given records, in one chain, as a file would hold them."""
        log_w = self.log_likelihood(codes)
        chosen = np.random.default_rng(seed).choice(
            NUM_ATOMS, NUM_DRAWS + 1, p=np.exp(log_w - logsumexp(log_w))
        )
        parameters = {
            name: getattr(self, name)[None, chosen].astype(np.float32)
            for name in ("log_pi", "log_lambda", "log_feasible")
        }
        digest = "" if self.conditions is None else self.conditions.digest
        table = bnp.Microdata(self.schema, codes)
        attributes = {"sample_sha256": table.digest, "conditions_sha256": digest}
        return bnp.Posterior(self.model, parameters, attributes)

    def neighbours(self, i):
        """The records that may stand in the place of record i: itself, then by row."""
        found = [(0, CODES[i])]
        changes = [(j, level) for j, size in enumerate(NUM_LEVELS) for level in range(size)]
        for column, (j, level) in enumerate(changes):
            x = CODES[i].copy()
            x[j] = level
            if level != CODES[i][j] and (x == self.cells).all(axis=1).any():
                found.append((1 + column, x))
        return found

    def exact(self, i, of_file):
        """Log rho up to a constant, every candidate's posterior computed anew.

        `of_file` makes of the log likelihoods of a file and the posterior's log weights, both by
        atom, what stands for the log of the expected likelihood.
        """
        found = {}
        for column, x in self.neighbours(i):
            codes = CODES.copy()
            codes[i] = x
            log_w = self.log_likelihood(codes)
            log_w = log_w - logsumexp(log_w)
            found[column] = sum(of_file(self.log_likelihood(file), log_w) for file in FILES)
        return found


def expectation(log_l, log_w):
    return logsumexp(log_l + log_w)


def gamma_matched(log_l, log_w):
    mean = np.exp(log_w) @ log_l
    variance = np.exp(log_w) @ (log_l - mean) ** 2
    return -(mean**2) / variance * np.log1p(variance / abs(mean))


def z_scores(risk, exact):
    """Errors of all log odds against the truth, in standard errors; candidates must agree."""
    scores = []
    for own, error, found in zip(risk.rho, risk.standard_error, exact, strict=True):
        assert set(np.flatnonzero(np.isfinite(own))) == set(found)
        for column in set(found) - {0}:
            log_odds = np.log(own[column] / own[0])
            scores.append((log_odds - (found[column] - found[0])) / error[column])
    return np.array(scores)


@pytest.fixture(scope="module", params=[None, CONDITIONS], ids=["free", "zeros"])
def atoms(request):
    return Atoms(request.param)


def judged(atoms, estimator, **how):
    """The attack on every record, and exact answers to it."""
    refits = None
    if estimator == "refit":
        refits = [
            atoms.posterior(np.concatenate([CODES, file]), 10 + m) for m, file in enumerate(FILES)
        ]
    risk = bnp.attack_risk(
        atoms.posterior(CODES, 1), atoms.table, atoms.files, key=jax.random.key(0), refits=refits,
        estimator=estimator, conditions=atoms.conditions, rows=range(len(CODES)), **HOW | how,
    )  # fmt: skip
    of_file = gamma_matched if estimator == "gamma" else expectation
    return risk, [atoms.exact(i, of_file) for i in range(len(CODES))]


@pytest.mark.parametrize("estimator", attack.ESTIMATORS)
def test_every_candidate_refitted(atoms, estimator):
    """All three estimates of rho; that of gamma has the error that its approximation has."""
    risk, exact = judged(atoms, estimator)
    z = z_scores(risk, exact)
    assert np.abs(z).max() < Z_LIMIT, z
    # Enough draws for the test to mean something.
    assert risk.typical_error.max() < 0.1
    for i, found in enumerate(exact):
        ranked = sorted(found, key=found.get, reverse=True)
        truths = ranked.index(0) + 1
        close = sum(abs(found[column] - found[0]) < 0.3 for column in found)
        assert abs(risk.rank[i] - truths) <= close
    if estimator == "gamma":
        for i, found in enumerate(exact):
            true = atoms.exact(i, expectation)
            assert all(
                abs(found[c] - found[0] - true[c] + true[0]) < 0.2 for c in found
            )  # fmt: skip


def _upside_down(patch):
    right = attack_targets._log_ratios
    patch.setattr(attack_targets, "_log_ratios", lambda *args, **how: -right(*args, **how))


def _no_truncation(patch):
    right = attack_targets._log_cells

    def log_cells(draws, cells, num_levels):
        return right(draws | {"log_feasible": 0 * draws["log_feasible"]}, cells, num_levels)

    patch.setattr(attack_targets, "_log_cells", log_cells)


def _one_file(patch):
    right = attack._values

    def values(log_l, *rest):
        found = right(log_l, *rest)
        return {name: None if x is None else x[:1] for name, x in found.items()}

    patch.setattr(attack, "_values", values)


def _half_the_weight(patch):
    right = attack_targets._log_ratios
    patch.setattr(attack_targets, "_log_ratios", lambda *args, **how: right(*args, **how) / 2)


PLANTED = {
    "weights upside down": _upside_down,
    "no truncation": _no_truncation,
    "one file only": _one_file,
    "square roots of the weights": _half_the_weight,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_seen(planted, monkeypatch):
    atoms = Atoms(CONDITIONS)
    PLANTED[planted](monkeypatch)
    risk, exact = judged(atoms, "gamma")
    assert np.abs(z_scores(risk, exact)).max() > Z_LIMIT


def test_infeasible_candidates_are_seen():
    """Conditions that the attack does not know of leave candidates that there are not."""
    atoms = Atoms(CONDITIONS)
    source = atoms.posterior(CODES, 1)
    source = source._replace(attributes=source.attributes | {"conditions_sha256": ""})
    risk = bnp.attack_risk(source, atoms.table, atoms.files, key=jax.random.key(0), **HOW)
    exact = [atoms.exact(i, gamma_matched) for i in risk.rows]
    with pytest.raises(AssertionError):
        z_scores(risk, exact)


def test_chunks_and_seeds():
    atoms = Atoms(None)
    one, other, again = (
        judged(atoms, "gamma", records_at_once=size)[0] for size in (None, 3, 3)
    )  # fmt: skip
    for name in ("rho", "standard_error", "pareto_k", "rank", "p_values"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


HOUSEHOLDS = [
    ("own", [("head", "1"), ("other", "0")]),
    ("rent", [("head", "1")]),
    ("own", [("head", "1"), ("other", "1")]),
    ("own", [("head", "0")]),
    ("rent", [("head", "1"), ("other", "0")]),
]
HOUSEHOLD_FILES = [
    [HOUSEHOLDS[0], HOUSEHOLDS[1], HOUSEHOLDS[0]],
    [HOUSEHOLDS[4], HOUSEHOLDS[3], HOUSEHOLDS[2]],
]


class NestedAtoms:
    """A nested model, its prior a list of parameters."""

    num_atoms = NUM_ATOMS

    def __init__(self, model, table, files, rules):
        self.model, self.table, self.files, self.rules = model, table, files, rules
        self.data = self.model.prepare(self.table, self.rules)
        # Not concentrated at one class, so that the classes matter.
        model = dataclasses.replace(self.model, a=4.0, b=2.0, a_beta=4.0, b_beta=2.0)
        self.parameters = prior_parameters(model, self.data, self.num_atoms, 3)[2]
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
        own, persons = self.households[size]
        which = (own == codes).all(axis=1) & (persons == members).all(axis=(1, 2))
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
            for name, value in zip(attack_targets.NESTED, self.parameters, strict=True)
        }
        digest = "" if self.rules is None else self.rules.digest
        attributes = {
            "sample_sha256": table.digest, "conditions_sha256": digest,
            "options": json.dumps(dataclasses.asdict(self.model)),
        }  # fmt: skip
        return bnp.Posterior("ndpmpm", parameters, attributes)

    def attack(self, **how):
        """The attack on every household."""
        how = {"rows": range(self.table.n), "conditions": self.rules} | HOW | how
        return bnp.attack_risk(
            self.posterior(1), self.table, self.files, key=jax.random.key(0), **how
        )

    def exact(self, household, changes):
        """Log rho by column, of the changes (column, codes, members) of one household."""
        cells, found = self.cells(self.table), {}
        size = cells[household][0]
        for column, codes, members in changes:
            cell = self.find(size, codes, members)
            if cell is None:
                continue
            log_w = self.log_likelihood(cells | {household: (size, cell)}, False)
            log_w = log_w - logsumexp(log_w)
            found[column] = sum(
                expectation(self.log_likelihood(self.cells(file), True), log_w)
                for file in self.files
            )
        return found

    def exact_of_persons(self):
        """Log rho by column, of the changes of each person."""
        schema, exact = self.table.schema, []
        own, member = sum(schema.num_household_levels), sum(schema.num_member_levels)
        # Persons are in the order of the households here, the head first.
        persons = [(i, place) for i, size in enumerate(self.table.sizes) for place in range(size)]
        for i, place in persons:
            is_head = schema.head is not None and place == 0
            start = own + (place - schema.num_heads) * member
            found = {}
            for column, value in self.exact(i, self.changes(i)).items():
                if column == 0:
                    found[0] = value
                elif is_head and schema.num_household_levels[0] < column <= own:
                    found[column] = value
                elif not is_head and start < column <= start + member:
                    found[column - start + own] = value
            exact.append(found)
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


def plain(ruled, head):
    """Values for themselves."""
    head = ("role", "head") if head else None
    return NestedAtoms(
        bnp.NDPMPM(components=3, member_components=2), tiny_households(HOUSEHOLDS, head),
        [tiny_households(file, head) for file in HOUSEHOLD_FILES],
        bnp.Rules([exactly(1, person(role="head"))]) if ruled else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "ruled, head", [(False, False), (True, False), (True, True)],
    ids=["no rules", "one head", "head at household level"],
)  # fmt: skip
def test_every_candidate_for_a_household_refitted(ruled, head):
    atoms = plain(ruled, head)
    risk = atoms.attack(estimator="direct")
    exact = [atoms.exact(i, atoms.changes(i)) for i in range(atoms.table.n)]
    z = z_scores(risk, exact)
    assert np.abs(z).max() < Z_LIMIT, z
    assert risk.typical_error.max() < 0.1


def test_every_candidate_for_a_household_with_draws_that_know_the_files():
    atoms = plain(True, True)
    risk = atoms.attack(refits=[atoms.posterior(2 + m, m) for m in range(len(atoms.files))])
    exact = [atoms.exact(i, atoms.changes(i)) for i in range(atoms.table.n)]
    z = z_scores(risk, exact)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("head", [False, True], ids=["among members", "at household level"])
def test_every_candidate_for_a_person_refitted(head):
    """One variable of one person: of a head at household level, the head's there."""
    atoms = plain(True, head)
    risk = atoms.attack(estimator="direct", target="person", rows=range(atoms.table.num_persons))
    z = z_scores(risk, atoms.exact_of_persons())
    assert np.abs(z).max() < Z_LIMIT, z


def test_share_of_possible_households_by_simulation(monkeypatch):
    """Where rules give no closed form, P(possible, size) of every draw is estimated."""
    atoms = plain(True, False)
    draws = {
        name: value[:8].astype(np.float32)
        for name, value in zip(attack_targets.NESTED, atoms.parameters, strict=True)
    } | {"number": np.arange(8)}
    exact = attack_targets._log_possible(draws, atoms.data, jax.random.key(0))
    np.testing.assert_allclose(exact, atoms.log_size[:, :8].T, atol=1e-4)
    tables = dataclasses.replace(atoms.data.tables, compositions=None)
    without = dataclasses.replace(atoms.data, tables=tables)
    found = attack_targets._log_possible(draws, without, jax.random.key(1))
    np.testing.assert_allclose(found, exact, atol=0.1)


def _nested_upside_down(patch):
    right = attack_targets._log_nested_ratios
    patch.setattr(attack_targets, "_log_nested_ratios", lambda *args, **how: -right(*args, **how))


def test_a_planted_error_of_households_is_seen(monkeypatch):
    atoms = plain(True, False)
    _nested_upside_down(monkeypatch)
    risk = atoms.attack(estimator="direct")
    exact = [atoms.exact(i, atoms.changes(i)) for i in range(atoms.table.n)]
    assert np.abs(z_scores(risk, exact)).max() > Z_LIMIT
