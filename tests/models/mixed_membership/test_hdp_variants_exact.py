"""Variants of HDP mixed membership against exact answers, and faults seen.

A fixed number of components, the not-applicable form, boxes that cannot be listed, and the
approximate truncation of the risk.
"""

import dataclasses
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, draw_levels, level_shapes, prior_of
from truncated import (
    BINARY,
    CONDITIONS,
    WIDER,
    WIDER_CONDITIONS,
    all_cells,
    at_least,
    exact_means,
    fit_few_records,
    is_feasible,
    of_alpha0,
    posterior_chains,
    prepared,
    prior_draws,
    scores,
    structural_zeros,
    switched,
    urn_weights,
    weighted_means,
)

import bnp_models as bnp
from bnp_models import HDPMixedMembership, MixedMembership
from bnp_models.inference.trace import Settings
from bnp_models.kernels.mixed_membership import urn_partitions
from bnp_models.models.mixed_membership import feasible as mixed_membership_feasible
from bnp_models.models.mixed_membership.start import prepare_records

MOVES = {"dish_stride": 2, "cell_stride": 1, "seating_every": 3, "trajectory_steps": 4}
# Without those of dishes, which take long to compile.
FEWER_MOVES = MOVES | {"dish_stride": 0, "cell_stride": 0}
# A smaller alpha_0 than the default's, for which 16 slots hold all but 1e-4 of the mass.
SMALL = {"b0": 3.0, "split_merge_every": 0}
CAPACITY = 16


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    fit_few_records(monkeypatch)


def chain_scores(model, data, ends, exact, key, switches=None, capacity=CAPACITY, num_chains=128,
                 num_sweeps=200):  # fmt: skip
    """Those of alpha, alpha_0 (or the weights squared), log P(F), and two cells' shares."""
    ends = jnp.asarray(ends, jnp.int32)
    means = posterior_chains(
        model, jax.random.key(key), data, ends, switches or {}, num_sweeps, num_sweeps // 4,
        num_chains=num_chains, capacity=capacity,
    )  # fmt: skip
    return scores(means, exact)


# A fixed number of components --------------------------------------------------------------------

FIXED_SAMPLE = [[0, 0, 0], [1, 1, 0]] * 4


class Fixed:
    """Three components: compiled once for all faults."""

    def __init__(self, conditions, faults, level_prior="learned", **fixed):
        moves = FEWER_MOVES if conditions is None else MOVES
        self.model = MixedMembership(components=3, level_prior=level_prior, **moves, **fixed)
        self.faults = faults
        zeros, feasible = None, np.ones(len(all_cells(BINARY)), bool)
        if conditions is not None:
            zeros, feasible = structural_zeros(conditions), is_feasible(conditions)
        assert feasible[cell_numbers(FIXED_SAMPLE)].all()
        self.exact = fixed_means(self.model, feasible)
        self.data = prepare_records(self.model, np.array(FIXED_SAMPLE), BINARY, zeros, multiple=2)
        self.ends = all_cells(BINARY)[np.flatnonzero(feasible)[[0, -1]]]

    def scores(self, key, on=None, num_sweeps=200):
        return chain_scores(
            self.model, self.data, self.ends, self.exact, key, switched(self.faults, on),
            capacity=3, num_sweeps=num_sweeps,
        )  # fmt: skip


def fixed_means(model, feasible, num_draws=300_000):
    """Posterior means by prior Monte Carlo, every cell's probability summed over all labels."""
    rng = np.random.default_rng(0)
    alpha = rng.gamma(model.a, 1 / model.b, num_draws)
    if model.alpha is not None:
        alpha = np.full(num_draws, model.alpha)
    h = rng.dirichlet(np.ones(model.components), num_draws)
    shapes = [level_shapes(rng, prior_of(model), num_draws, size) for size in BINARY]
    theta = [draw_levels(rng, shape, (model.components,)) for shape in shapes]
    cells = all_cells(BINARY)
    p = np.zeros((num_draws, len(cells)))
    for z in product(range(model.components), repeat=len(BINARY)):
        share = 1.0
        for j, k in enumerate(z):
            urn = (alpha * h[:, k] + z[:j].count(k)) / (alpha + j)
            share = share * urn[:, None] * theta[j][:, cells[:, j], k]
        p += share
    mass = p[:, feasible].sum(axis=1)
    likelihood = np.prod(p[:, cell_numbers(FIXED_SAMPLE)], axis=1) / mass ** len(FIXED_SAMPLE)
    shares = p[:, np.flatnonzero(feasible)[[0, -1]]] / mass[:, None]
    log_c = np.log(shapes[0].sum(axis=1))
    log_feasible = at_least(np.log(mass))
    values = np.column_stack([alpha, np.sum(h**2, axis=1), log_feasible, shares, log_c])
    return weighted_means(likelihood, values)


def cell_numbers(records):
    """The place of each record's cell among all."""
    return np.ravel_multi_index(np.array(records).T, BINARY)


WEIGHTS_FAULT = "weights with half their prior"
TRUNCATED_FAULTS = (WEIGHTS_FAULT, "trajectory without the prior of weights")
TILT_FAULT = "tilt without the prior of weights"


@pytest.fixture(scope="module")
def truncated_fixed():
    return Fixed(CONDITIONS["equivalence"], TRUNCATED_FAULTS)


@pytest.fixture(scope="module")
def unrestricted_fixed():
    return Fixed(None, (WEIGHTS_FAULT,))


@pytest.mark.long
def test_fixed_components_under_structural_zeros(truncated_fixed):
    z = truncated_fixed.scores(1)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("fault", TRUNCATED_FAULTS)
def test_fixed_components_under_structural_zeros_reject(truncated_fixed, fault):
    z = truncated_fixed.scores(2, fault)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_fixed_components_reject_a_wrong_tilt():
    """Seen after many sweeps, all else repairs what tilts do.

    Under a learned prior it drives chains to where next to nothing is feasible, and sweeps do not
    end.
    """
    chains = Fixed(CONDITIONS["equivalence"], (TILT_FAULT,), "uniform")
    z = chains.scores(2, TILT_FAULT, num_sweeps=1000)[:-1]
    assert np.abs(z).max() > Z_LIMIT, z


def test_fixed_components(unrestricted_fixed):
    z = unrestricted_fixed.scores(3)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("conditions", [None, CONDITIONS["equivalence"]], ids=["all", "feasible"])
def test_fixed_components_with_fixed_alpha_and_shape(conditions):
    z = Fixed(conditions, (), alpha=0.5, level_shape=0.7).scores(5)
    # All but log c, which is fixed too.
    assert np.abs(z[:-1]).max() < Z_LIMIT, z


def test_fixed_components_reject(unrestricted_fixed):
    z = unrestricted_fixed.scores(4, WEIGHTS_FAULT)
    assert np.abs(z).max() > Z_LIMIT, z


# The not-applicable form --------------------------------------------------------------------------

# The second variable's first level goes with the first variable's; without it all have two levels.
HOMES = (2, 3, 2)
SETTLED = [[0, 1, -1], [0, 2, -1], [1, 0, -1]]
LEFT = {"none left": [], "some left": [[0, -1, 1], [1, 1, 0]]}
HOMES_SAMPLE = [[0, 0, 0], [0, 0, 0], [1, 2, 0], [1, 2, 1], [1, 1, 1], [0, 0, 0]]


class Applicable:
    """Records of which an item may be absent."""

    def __init__(self, left):
        moves = MOVES if left == "none left" else FEWER_MOVES
        options = SMALL | moves | {"split_merge_every": 1}
        self.model = HDPMixedMembership(not_applicable=True, **options)
        zeros = structural_zeros(SETTLED + LEFT[left], HOMES)
        assert zeros.not_applicable.coding.schema.num_levels == BINARY
        self.data = prepare_records(self.model, np.array(HOMES_SAMPLE), HOMES, zeros, multiple=2)
        # The first feasible record lacks an item; the last one has all.
        self.ends = np.array([[0, -1, 0], [1, 1, 1]])
        self.exact = applicable_means(self.model, left)

    def scores(self, key, data=None, num_sweeps=200):
        return chain_scores(
            self.model, data or self.data, self.ends, self.exact, key, num_sweeps=num_sweeps
        )


def applicable_means(model, left):
    """Those of `truncated.exact_means`: an absent item's levels are summed over.

    In the reduced table the second variable has the two levels that are left, in every record; the
    records of a feasible region are those in which no condition holds, absent items or not.
    """
    alpha0, log_c, sums = prior_draws(BINARY, *of_alpha0(model), prior_of(model))
    alpha, weight = urn_weights(model, len(alpha0))
    p = np.einsum("bd,bdc->dc", weight, sums)
    a, b, c = all_cells(BINARY).T
    # In the codes of the reduced table, in which the second variable's begin at 0.
    impossible = ((a == 0) & (c == 1)) | ((a == 1) & (b == 0) & (c == 0))
    mass = p[:, ~impossible | (left == "none left")].sum(axis=1)

    def share(record):
        of_cell = (a == record[0]) & (c == record[2])
        if record[0] == 1:
            of_cell &= b == record[1] - 1
        return p[:, of_cell].sum(axis=1) / mass

    likelihood = np.prod([share(record) for record in HOMES_SAMPLE], axis=0)
    ends = share([0, 0, 0]), share([1, 2, 1])
    log_feasible = at_least(np.log(mass))
    return weighted_means(likelihood, np.column_stack([alpha, alpha0, log_feasible, *ends, log_c]))


@pytest.fixture(scope="module", params=LEFT)
def applicable(request):
    return Applicable(request.param)


@pytest.mark.long
def test_absent_items(applicable):
    z = applicable.scores(5)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_absent_items_taken_for_present_ones_are_rejected(applicable):
    """As if an absent item had the first level that is left."""
    absent, first = applicable.data.levels.variable.size - 1, BINARY[0]

    def present(rows):
        return jnp.where(rows == absent, first, rows)

    assert (applicable.data.rows == absent).sum() == 3
    data = eqx.tree_at(lambda d: (d.rows, d.cell_rows), applicable.data, replace_fn=present)
    z = applicable.scores(6, data)
    assert np.abs(z).max() > Z_LIMIT, z


# Boxes that cannot be listed ----------------------------------------------------------------------

SEATED_OFTEN = FEWER_MOVES | {"seating_every": 1}
UNLISTED_FAULTS = ("augmented levels left out", "seating at another concentration")


def unlisted(monkeypatch, augmentation="auto", most=1):
    """A model, its data and two cells where no more partitions are listed than this."""
    monkeypatch.setattr(urn_partitions, "MAX_PARTITIONS", most)
    model = HDPMixedMembership(augmentation=augmentation, **SMALL, **SEATED_OFTEN)
    return model, *prepared(model, "one")


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, *UNLISTED_FAULTS])
def test_boxes_that_cannot_be_listed(monkeypatch, fault):
    # Of which log P(F) is the logarithm of a mean.
    monkeypatch.setattr(mixed_membership_feasible, "FEASIBLE_DRAWS", 64)
    model, data, ends = unlisted(monkeypatch)
    assert data.zeros.feasible is None and data.zeros.impossible is None
    z = chain_scores(
        model, data, ends, exact_means(model, "one"), 7, switched(UNLISTED_FAULTS, fault),
        num_chains=64, num_sweeps=200 if fault else 300,
    )  # fmt: skip
    assert (np.abs(z).max() > Z_LIMIT) == (fault is not None), z


def test_boxes_that_cannot_be_listed_are_refused_where_asked_for(monkeypatch):
    with pytest.raises(ValueError, match='"boxes".* too many partitions.*"simulation"'):
        unlisted(monkeypatch, "boxes")
    unlisted(monkeypatch, "boxes", most=100)
    unlisted(monkeypatch, "simulation")


# The risk by an approximate truncation ------------------------------------------------------------

POPULATION = 25
WIDER_SAMPLE = [[0, 0, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 2, 0], [1, 2, 2], [1, 2, 2]]


@pytest.fixture(params=[False, True], ids=["all items", "not applicable"])
def run(request):
    """A run whose draws are from a prior, and log P(F) that of each draw by hand."""
    zeros = structural_zeros(WIDER_CONDITIONS, WIDER)
    settings = Settings(2, 0, 1500, 1, ("alpha",), (1,))
    run = bnp.Run(
        HDPMixedMembership(not_applicable=request.param),
        bnp.Microdata(zeros.schema, np.array(WIDER_SAMPLE, np.int32)), settings, {},
        jax.random.key(9), None, 4, (), zeros,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shape = settings.num_chains, settings.num_samples
    levels = (*run.num_levels, 1) if request.param else run.num_levels
    theta = [np.moveaxis(rng.dirichlet(np.ones(size), (*shape, 4)), 3, 2) for size in levels]
    draws = {
        "alpha": rng.gamma(2, 1, shape), "alpha_rate": np.ones(shape),
        "g0": rng.dirichlet(np.ones(4), shape), "theta": np.concatenate(theta, axis=2),
    }  # fmt: skip
    run = dataclasses.replace(run, draws=draws)
    draws |= {"log_feasible": np.log(by_hand(run)[1])}
    single = {name: np.asarray(value, np.float32) for name, value in draws.items()}
    return dataclasses.replace(run, draws=single)


def by_hand(run):
    """p_c of the sample uniques, and P(F), of every draw: over partitions of three items."""
    draws = {name: np.asarray(value, np.float64) for name, value in run.draws.items()}
    alpha, g0, theta = draws["alpha"], draws["g0"], draws["theta"]
    first = np.cumsum((0, *run.num_levels[:-1]))

    def block(*items):
        return np.sum(g0 * np.prod(items, axis=0), axis=2)

    def probability(cell):
        # An absent item has any level.
        x, y, z = (
            theta[:, :, f + c] if c >= 0 else np.ones_like(g0)
            for f, c in zip(first, cell, strict=True)
        )
        total = 2 * alpha * block(x, y, z) + alpha**3 * block(x) * block(y) * block(z)
        for one, two, alone in ((x, y, z), (x, z, y), (y, z, x)):
            total += alpha**2 * block(one, two) * block(alone)
        return total / (alpha * (alpha + 1) * (alpha + 2))

    cells, counts = np.unique(WIDER_SAMPLE, axis=0, return_counts=True)
    unique, feasible = cells[counts == 1], all_cells(WIDER)[is_feasible(WIDER_CONDITIONS, WIDER)]
    if run.coding is not None:
        unique, feasible = run.coding.reduce(unique), run.coding.reduce(feasible)
    p = np.stack([probability(cell) for cell in unique], axis=-1)
    return p, np.sum([probability(cell) for cell in feasible], axis=0)


def expectations(q, num_new):
    """tau_1 and tau_2 where as many records fall in cells of these probabilities."""
    tau2 = (1 - (1 - q) ** (num_new + 1)) / ((num_new + 1) * q)
    return np.sum((1 - q) ** num_new, axis=-1), np.sum(tau2, axis=-1)


def test_risks_are_of_truncated_probabilities(run):
    """Unlike equation (11), of untruncated ones and (N - n) / P(F) records."""
    p, feasible = by_hand(run)
    feasible = feasible[..., None]
    num_new = POPULATION - len(WIDER_SAMPLE)
    approximate = expectations(p, num_new / feasible)
    exact = expectations(p / feasible, num_new)
    risk = bnp.population_risk(run, POPULATION, ties="off", thin=1)
    for figure, truth, other in zip(
        (risk.tau1_conditional, risk.tau2_conditional), exact, approximate, strict=True
    ):
        np.testing.assert_allclose(figure, truth, rtol=1e-4)
        # Shown to fail: equation (11).
        assert np.mean(np.abs(figure / other - 1) > 1e-3) > 0.25
    np.testing.assert_allclose(np.sum(risk.r1), risk.tau1_conditional.mean(), rtol=1e-9)
    # The counts too; shown to fail: untruncated probabilities.
    assert abs(count_score(risk, exact[0])) < Z_LIMIT
    assert abs(count_score(risk, expectations(p, num_new)[0])) > Z_LIMIT
    # Fewer records join a unique cell than would.
    assert (approximate[0] > exact[0]).all()


def count_score(risk, expectation):
    """Of the counts of uniques that no record joins."""
    difference = (risk.tau1 - expectation).ravel()
    return difference.mean() / difference.std() * np.sqrt(difference.size)
