"""Design weights with the correction for overdispersion, on fine and coarse keys, term by term.

The parameters of the model and of the correction are made up. The probability of a cell with f
records of the sample is p ~ Ga(f + s, s / b + n) with s = shape (n b)^exponent, and Poisson(M p q /
b) of the M unsampled persons are in the cell: b is the probability that a record is in the cell,
and q that of an unsampled person.
"""

import itertools

import jax
import numpy as np
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.inference.trace import Settings
from bnp_models.risk import evaluator
from bnp_models.risk.coarsening import parse_coarsening
from bnp_models.risk.overdispersion import Overdispersion, OverdispersionPosterior
from bnp_models.risk.protected_risks import ProtectedRisks

NUM_LEVELS = (6, 5, 4, 3)
SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(size)) for size in NUM_LEVELS))
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
N, NEW, CLASSES, CHAINS, DRAWS = 150, 600, 6, 2, 200
WEIGHTS = np.array([1.02, 1.5, 12.0])
SHAPE, EXPONENT = 0.8, 0.4

KEYS = {
    "keep:a,b,c,d": CELLS,
    "drop:d": CELLS[:, :3],
    "merge:b=1+3;drop:d": np.where(CELLS[:, :3] == [-1, 3, -1], 1, CELLS[:, :3]),
}


@pytest.fixture(scope="module")
def run():
    """Latent classes whose draws are given by hand, on records of three weights."""
    rng, shape = np.random.default_rng(0), (CHAINS, DRAWS)
    levels = [rng.dirichlet(np.full(size, 0.6), CLASSES) for size in NUM_LEVELS]
    levels.append(np.repeat([[0.85, 0.1, 0.05], [0.05, 0.1, 0.85]], CLASSES // 2, axis=0))
    kind = rng.choice(CLASSES, N)
    *codes, of_weight = [(rng.random((N, 1)) > p[kind].cumsum(axis=1)[:, :-1]).sum(axis=1)
                         for p in levels]  # fmt: skip
    table = bnp.Microdata(SCHEMA, np.stack(codes, axis=1).astype(np.int32))
    drawn = [rng.standard_gamma(50 * p + 0.1, (*shape, *p.shape)) for p in levels]
    rows = [np.swapaxes(p / p.sum(axis=3, keepdims=True), 2, 3) for p in drawn]
    draws = {
        "alpha": np.ones(shape), "log_feasible": np.zeros(shape),
        "log_pi": np.log(rng.dirichlet(np.full(CLASSES, 20), shape)),
        "log_lambda": np.log(np.maximum(np.concatenate(rows, axis=2), 1e-6)),
    }  # fmt: skip
    return bnp.Run(
        bnp.NPLCM(components=CLASSES), bnp.weighted_microdata(table, WEIGHTS[of_weight]),
        Settings(CHAINS, 0, DRAWS, 1, (), (CLASSES,)),
        {name: np.float32(x) for name, x in draws.items()}, jax.random.key(4), None, CLASSES, (),
    )  # fmt: skip


@pytest.fixture(scope="module")
def cells(run):
    """Probabilities b and q (draws, cells) of all cells, summed over the weights."""
    pi = np.exp(run.draws["log_pi"], dtype=float).reshape(-1, CLASSES)
    levels = np.exp(run.draws["log_lambda"], dtype=float).reshape(len(pi), -1, CLASSES)
    *key, of_weight = np.split(levels, np.cumsum([*NUM_LEVELS]), axis=1)
    inside = np.prod([p[:, CELLS[:, j]] for j, p in enumerate(key)], axis=0)
    joint = np.einsum("dk,dck,dsk->dcs", pi, inside, of_weight)
    rest = joint @ (WEIGHTS - 1)
    return joint.sum(axis=2), rest / rest.sum(axis=1, keepdims=True)


@pytest.fixture
def seen(monkeypatch):
    """The correction has these parameters in every draw; yields the probabilities it was given."""
    given = []

    def draw(self, generator, b, number=1):
        given.append(b)
        return [
            Overdispersion(np.full(len(b), SHAPE), np.full(len(b), EXPONENT), self.num_records)
        ] * number

    monkeypatch.setattr(OverdispersionPosterior, "draw", draw)
    return given


def on_key(run, cells, text="keep:a,b,c,d"):
    """Of the sample's cells on a key, in order: the first row of each, records, and b and q."""
    place = [tuple(x) for x in KEYS[text]]
    records = [place[i] for i in np.ravel_multi_index(run.table.records.codes.T, NUM_LEVELS)]
    found = sorted(set(records))
    sums = [[p[:, [x == one for x in place]].sum(axis=1) for one in found] for p in cells]
    counts = np.array([records.count(one) for one in found])
    b, q = np.swapaxes(sums, 1, 2)
    return np.array([records.index(one) for one in found]), counts, b, q


def expected(counts, b, q, ties):
    """P(F = 1) and E(1 / F), each (draws, cells), added up over the persons who join a cell."""
    size, odds = -NEW, -q
    if ties:
        shape = SHAPE * (N * b) ** EXPONENT
        size, odds = shape + counts, NEW * (q / b) / (shape / b + N)
    # Negative binomials of negative size and odds are binomials.
    p = none = (1 + odds) ** -size
    mean = p / counts
    for k in range(1, NEW + 1):
        p = p * (size + k - 1) / k * odds / (1 + odds)
        mean = mean + p / (counts + k)
    return none * (counts == 1), mean


def z_score(draws, means):
    """Of draws about the mean that each has."""
    difference = np.ravel(draws) - means
    return abs(difference.mean()) / difference.std() * np.sqrt(difference.size)


def test_cells_that_the_sample_has_not_are_simulated_by_its_own_law(run, cells, monkeypatch):
    layers, draw = [], OverdispersionPosterior.draw
    monkeypatch.setattr(
        OverdispersionPosterior,
        "draw",
        lambda self, *args: layers.append(self) or draw(self, *args),
    )
    bnp.population_risk(run, N + NEW, ties="on")
    evaluator.Evaluator.of(run, N + NEW, lambda law: law.parameters(1)).draw_overdispersion(
        jax.random.key(1)
    )
    for layer in layers:
        # Each is the probability b of some cell at some draw; few are near one of the others' q.
        near = []
        for p in cells:
            p = np.sort(p.ravel())
            place = np.clip(np.searchsorted(p, layer.unseen), 1, p.size - 1)
            gap = np.minimum(layer.unseen - p[place - 1], p[place] - layer.unseen)
            near.append((np.abs(gap) < 3e-6 * layer.unseen).mean())
        assert near[0] > 0.99 and near[1] < 0.5, near


def test_the_risk_of_the_finest_key_is_that_of_both_laws(run, cells, seen):
    first, counts, b, q = on_key(run, cells)
    unique = counts == 1
    in_order = np.argsort(first[unique])
    for ties in ("off", "on", "sensitivity"):
        risk = bnp.population_risk(run, N + NEW, ties=ties, all_records=True)
        r1, r2 = expected(counts, b, q, ties == "on")
        for found, figure in (
            (risk.tau1_conditional.ravel(), r1.sum(axis=1)),
            (risk.tau2_conditional.ravel(), r2[:, unique].sum(axis=1)),
            (risk.r1, r1[:, unique].mean(axis=0)[in_order]),
            (risk.r2, r2[:, unique].mean(axis=0)[in_order]),
            (risk.r2_of_cells, r2.mean(axis=0)),
        ):
            np.testing.assert_allclose(found, figure, rtol=1e-4)
        assert z_score(risk.tau1, r1.sum(axis=1)) < Z_LIMIT
        assert z_score(risk.tau2, r2[:, unique].sum(axis=1)) < Z_LIMIT
        if ties != "off":
            beside = expected(counts, b, q, ties == "sensitivity")
            assert z_score(risk.overdispersion.tau1, beside[0].sum(axis=1)) < Z_LIMIT
            assert z_score(risk.overdispersion.tau2, beside[1][:, unique].sum(axis=1)) < Z_LIMIT
            # Shape and exponent are those of the sample.
            np.testing.assert_allclose(np.concatenate(seen), b, rtol=1e-4)
            seen.clear()


@pytest.mark.parametrize("ties", ["on", "off"])
def test_the_halves_of_both_laws_take_the_bias_off(run, cells, seen, monkeypatch, ties):
    """Of probabilities of which either half of the Monte Carlo draws gives another."""
    halves, evaluate = (0.8, 1.3), evaluator.cell_probabilities

    def with_halves(*arguments):
        for log_p, error, _ in evaluate(*arguments):
            yield log_p, error, log_p[:, None] + np.log(halves)[:, None]

    monkeypatch.setattr(evaluator, "cell_probabilities", with_halves)
    risk = bnp.population_risk(run, N + NEW, ties=ties)
    _, counts, b, q = on_key(run, cells)
    whole, *parts = (
        np.stack(expected(counts, b * x, q * x, ties == "on"))[..., counts == 1].sum(axis=2)
        for x in (1, *halves)
    )
    found = risk.tau1_conditional.ravel(), risk.tau2_conditional.ravel()
    np.testing.assert_allclose(found, 2 * whole - np.mean(parts, axis=0), rtol=1e-4)


@pytest.mark.parametrize("ties", [True, False])
def test_the_risk_of_coarser_keys_is_that_of_both_laws(run, cells, seen, ties):
    found = bnp.coarsen(
        run, N + NEW, [*KEYS], ties="on" if ties else "off", num_samples=CHAINS * DRAWS
    )
    for text, risk in found.items():
        _, counts, b, q = on_key(run, cells, text)
        r1, r2 = expected(counts, b, q, ties)
        assert (counts == 1).sum() == risk.sample_uniques
        assert z_score(risk.tau1, r1.sum(axis=1)) < Z_LIMIT
        assert z_score(risk.tau2, r2[:, counts == 1].sum(axis=1)) < Z_LIMIT
        # Planted errors: one law taken for the other, of which the sample's needs the layer.
        for wrong in ((b, b), (q, q))[: 1 + ties]:
            assert z_score(risk.tau1, expected(counts, *wrong, ties)[0].sum(axis=1)) > Z_LIMIT
    if ties:
        np.testing.assert_allclose(np.concatenate(seen), on_key(run, cells)[2], rtol=1e-4)


@pytest.mark.parametrize("ties", [True, False])
def test_the_risk_of_protected_records_is_that_of_both_laws(run, cells, seen, ties):
    risks = ProtectedRisks(
        run, N + NEW, overdispersion=ties, num_draws=CHAINS * DRAWS, key=jax.random.key(5)
    )  # fmt: skip
    for text in KEYS:
        first, counts, b, q = on_key(run, cells, text)
        unique, key = counts == 1, parse_coarsening(text, SCHEMA)
        r1, r2 = (x[:, unique] for x in expected(counts, b, q, ties))
        found = risks.of_rows(key, first[unique])
        np.testing.assert_allclose(found, (r1, r2), rtol=1e-4)
        joined = risks.draw_joining(key, first[unique])
        assert z_score((joined == 0).sum(axis=1), r1.sum(axis=1)) < Z_LIMIT
        assert z_score((1 / (1 + joined)).sum(axis=1), r2.sum(axis=1)) < Z_LIMIT
    if ties:
        np.testing.assert_allclose(np.concatenate(seen), on_key(run, cells)[2], rtol=1e-4)
