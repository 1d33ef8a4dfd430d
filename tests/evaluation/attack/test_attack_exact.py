"""Attack risks against exhaustive answers, on samples so small that all candidates are refitted.

The prior is a list of parameters, drawn once from that of the model: then the posterior given any
records is exact, and so are draws from it.
"""

import dataclasses

import jax
import numpy as np
import pytest
from attacks import HOW, NUM_ATOMS, NUM_DRAWS, NestedAtoms, expectation, z_scores
from harness import Z_LIMIT
from latent import feasible_cells, structural_zeros
from nested import (
    tiny_households,
)
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.evaluation.attack import attack, bootstrap, household_targets, targets
from bnp_models.models.nested.probabilities import log_possible_by_size
from bnp_models.models.nested.state import NESTED
from bnp_models.rules import exactly, person

NUM_LEVELS = (2, 3, 2)
CODES = np.array([[0, 0, 0], [0, 1, 1], [1, 2, 1], [0, 0, 1], [0, 1, 1], [0, 1, 0], [1, 2, 1]])
FILES = (
    np.array([[0, 0, 0], [0, 1, 1], [0, 1, 1], [1, 2, 1]]),
    np.array([[0, 1, 1], [1, 2, 1], [0, 0, 0], [0, 1, 1], [0, 0, 1]]),
)
CONDITIONS = [[1, 0, -1], [-1, 2, 0]]


class RecordAtoms:
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
        return bnp.results.Posterior(self.model, parameters, attributes)

    def neighbours(self, i):
        """The records that may stand in the place of record i: itself, then by row."""
        neighbours = [(0, CODES[i])]
        changes = [(j, level) for j, size in enumerate(NUM_LEVELS) for level in range(size)]
        for column, (j, level) in enumerate(changes):
            x = CODES[i].copy()
            x[j] = level
            if level != CODES[i][j] and (x == self.cells).all(axis=1).any():
                neighbours.append((1 + column, x))
        return neighbours

    def exact(self, i, of_file):
        """Log rho up to a constant, every candidate's posterior computed anew.

        `of_file` makes of the log likelihoods of a file and the posterior's log weights, both by
        atom, what stands for the log of the expected likelihood.
        """
        log_rho = {}
        for column, x in self.neighbours(i):
            codes = CODES.copy()
            codes[i] = x
            log_w = self.log_likelihood(codes)
            log_w = log_w - logsumexp(log_w)
            log_rho[column] = sum(of_file(self.log_likelihood(file), log_w) for file in FILES)
        return log_rho


def gamma_matched(log_l, log_w):
    mean = np.exp(log_w) @ log_l
    variance = np.exp(log_w) @ (log_l - mean) ** 2
    return -(mean**2) / variance * np.log1p(variance / abs(mean))


@pytest.fixture(scope="module", params=[None, CONDITIONS], ids=["free", "zeros"])
def atoms(request):
    return RecordAtoms(request.param)


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
    for i, log_rho in enumerate(exact):
        ranked = sorted(log_rho, key=log_rho.get, reverse=True)
        truths = ranked.index(0) + 1
        close = sum(abs(log_rho[column] - log_rho[0]) < 0.3 for column in log_rho)
        assert abs(risk.rank[i] - truths) <= close
    if estimator == "gamma":
        for i, log_rho in enumerate(exact):
            true = atoms.exact(i, expectation)
            assert all(
                abs(log_rho[c] - log_rho[0] - true[c] + true[0]) < 0.2 for c in log_rho
            )  # fmt: skip


def _upside_down(patch):
    right = targets._log_ratios
    patch.setattr(targets, "_log_ratios", lambda *args, **how: -right(*args, **how))


def _no_truncation(patch):
    right = targets._log_cells

    def log_cells(draws, cells, num_levels):
        return right(draws | {"log_feasible": 0 * draws["log_feasible"]}, cells, num_levels)

    patch.setattr(targets, "_log_cells", log_cells)


def _one_file(patch):
    right = bootstrap.centred_likelihoods

    def of_first(log_l, *rest):
        return jax.tree.map(lambda x: x[:1], right(log_l, *rest))

    patch.setattr(attack, "centred_likelihoods", of_first)


def _half_the_weight(patch):
    right = targets._log_ratios
    patch.setattr(targets, "_log_ratios", lambda *args, **how: right(*args, **how) / 2)


PLANTED = {
    "weights upside down": _upside_down,
    "no truncation": _no_truncation,
    "one file only": _one_file,
    "square roots of the weights": _half_the_weight,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_seen(planted, monkeypatch):
    atoms = RecordAtoms(CONDITIONS)
    PLANTED[planted](monkeypatch)
    risk, exact = judged(atoms, "gamma")
    assert np.abs(z_scores(risk, exact)).max() > Z_LIMIT


def test_infeasible_candidates_are_seen():
    """Conditions that the attack does not know of leave candidates that there are not."""
    atoms = RecordAtoms(CONDITIONS)
    source = atoms.posterior(CODES, 1)
    source = source._replace(attributes=source.attributes | {"conditions_sha256": ""})
    risk = bnp.attack_risk(source, atoms.table, atoms.files, key=jax.random.key(0), **HOW)
    exact = [atoms.exact(i, gamma_matched) for i in risk.rows]
    with pytest.raises(AssertionError):
        z_scores(risk, exact)


def test_chunks_and_seeds():
    atoms = RecordAtoms(None)
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


def plain(ruled, head, **options):
    """Values for themselves."""
    head = ("role", "head") if head else None
    return NestedAtoms(
        bnp.NDPMPM(3, 2, level_prior="uniform", **options), tiny_households(HOUSEHOLDS, head),
        [tiny_households(file, head) for file in HOUSEHOLD_FILES],
        bnp.Rules([exactly(1, person(role="head"))]) if ruled else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "ruled, head, classes",
    [(False, False, "nested"), (True, False, "nested"), (True, True, "nested"),
     (True, True, "shared")],
    ids=["no rules", "one head", "head at household level", "shared member classes"],
)  # fmt: skip
def test_every_candidate_for_a_household_refitted(ruled, head, classes):
    atoms = plain(ruled, head, member_classes=classes)
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


@pytest.mark.long
@pytest.mark.parametrize("head", [False, True], ids=["among members", "at household level"])
def test_every_candidate_for_a_person_refitted(head):
    """One variable of one person: of a head at household level, the head's there."""
    atoms = plain(True, head)
    risk = atoms.attack(estimator="direct", target="person", rows=range(atoms.table.num_persons))
    z = z_scores(risk, atoms.exact_of_persons())
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("head", [False, True], ids=["among members", "at household level"])
def test_persons_of_selected_households_are_found_in_their_places(head):
    """Their rows are those of the file from which the households were selected."""
    whole = tiny_households(HOUSEHOLDS, ("role", "head") if head else None)
    table = whole.select(np.array([4, 2, 1]))
    persons = np.arange(table.num_persons)
    attacked = household_targets.HouseholdTargets(bnp.NDPMPM(3, 2), table, None, "person", persons)
    start = np.concatenate([[0], np.cumsum(table.sizes - table.schema.num_heads)])
    names, codes = table.schema.table.variables, table.persons.codes
    assert (attacked.place < 0).sum() == 3 * head
    for i, household, place in zip(persons, attacked.household, attacked.place, strict=True):
        if place < 0:
            k = table.schema.household_variables.index("head_age")
            age = table.household_codes[household, k]
        else:
            k = table.schema.member_variables.index("age")
            age = table.member_codes[start[household] + place, k]
        assert age == codes[i, names.index("age")]


def test_share_of_possible_households_by_simulation(monkeypatch):
    """Where rules give no closed form, P(possible, size) of every draw is estimated."""
    atoms = plain(True, False)
    draws = {
        name: value[:8].astype(np.float32)
        for name, value in zip(NESTED, atoms.parameters, strict=True)
    } | {"number": np.arange(8)}
    exact = log_possible_by_size(draws, atoms.data, jax.random.key(0))
    np.testing.assert_allclose(exact, atoms.log_size[:, :8].T, atol=1e-4)
    tables = dataclasses.replace(atoms.data.tables, compositions=None)
    without = dataclasses.replace(atoms.data, tables=tables)
    estimate = log_possible_by_size(draws, without, jax.random.key(1))
    np.testing.assert_allclose(estimate, exact, atol=0.1)


def test_likelihood_of_files_given_the_sizes_of_their_households():
    """Over P(possible) of a size once for each household of that size."""
    atoms = plain(True, False)
    draws = {
        name: value[:8].astype(np.float32)
        for name, value in zip(NESTED, atoms.parameters, strict=True)
    }
    targets = household_targets.HouseholdTargets(
        atoms.model, atoms.table, atoms.rules, "household", [0]
    )
    found = targets.log_likelihood(draws, atoms.files, jax.random.key(0), False)
    exact = [atoms.log_likelihood(atoms.cells(file), True)[:8] for file in atoms.files]
    np.testing.assert_allclose(found, exact, atol=1e-3)


def _nested_upside_down(patch):
    right = household_targets.log_household_ratios
    patch.setattr(
        household_targets, "log_household_ratios", lambda *args, **how: -right(*args, **how)
    )


def test_a_planted_error_of_households_is_seen(monkeypatch):
    atoms = plain(True, False)
    _nested_upside_down(monkeypatch)
    risk = atoms.attack(estimator="direct")
    exact = [atoms.exact(i, atoms.changes(i)) for i in range(atoms.table.n)]
    assert np.abs(z_scores(risk, exact)).max() > Z_LIMIT
