"""Keys with missing values against sums over all completions, and all pairs of records."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from scipy.stats import binom

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.trace import Settings
from bnp_models.risk import missing_keys
from bnp_models.risk.evaluator import cell_probabilities, record_risks
from bnp_models.risk.missing_keys import matching_records
from bnp_models.risk.taus import RiskSums

SCHEMA = bnp.Schema(("age", "sex", "town"), (("young", "middle", "old"), (0, 1), tuple("abcd")))
NUM_LEVELS = SCHEMA.num_levels
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
# Some agree with others where both have values, and two are alike.
CODES = np.array([
    [0, 0, 0], [0, 0, 0], [1, 0, 2], [2, 1, 3], [1, 0, -1], [-1, 1, 3], [2, 0, -1], [0, 1, 1],
    [1, 1, -1], [1, 1, -1],
])  # fmt: skip
IMPOSSIBLE = [[2, 0, 0], [2, 0, 1], [-1, 1, 2]]
N = 60
SAME = 800
"""Draws of the same parameters, each with completions of its own."""


def draws_by_hand(num_draws, components=4):
    """Parameters of one draw or of several, at random, under the names of either family."""
    rng = np.random.default_rng(0)
    shape = (2, num_draws, components)
    levels = [np.moveaxis(rng.dirichlet(np.ones(s), shape), 3, 2) for s in NUM_LEVELS]
    theta, weights = np.concatenate(levels, axis=2), rng.dirichlet(np.ones(4), shape[:2])
    return theta, weights, {
        "alpha": rng.gamma(2, 1, shape[:2]), "log_feasible": np.zeros(shape[:2]),
        "level_shape": np.ones((*shape[:2], sum(NUM_LEVELS))),
    }  # fmt: skip


def run_by_hand(family, base, codes=CODES, same=0):
    theta, weights, draws = draws_by_hand(1 if same else 3)
    if family == "hdp":
        model = bnp.HDPMixedMembership()
        # The last row is that of absent items.
        theta = np.concatenate([theta, np.ones_like(theta[:, :, :1])], axis=2)
        draws |= {"theta": theta, "g0": weights, "alpha_rate": np.ones(draws["alpha"].shape)}
    else:
        model = bnp.NPLCM(components=4) if family == "nplcm" else bnp.TNPLCM(components=4)
        draws |= {"log_lambda": np.log(theta), "log_pi": np.log(weights)}
    number = 3
    if same:
        # The parameters of one draw, again and again.
        number = same // 2
        draws = {
            name: np.repeat(x[:1], 2, axis=0).repeat(number, axis=1) for name, x in draws.items()
        }
    run = dataclasses.replace(
        base, model=model, table=bnp.Microdata(SCHEMA, codes), conditions=None,
        draws={name: np.float32(x) for name, x in draws.items()},
        settings=Settings(2, 0, number, 1, (), (2,)),
    )  # fmt: skip
    if family != "tnplcm":
        return run
    zeros = bnp.StructuralZeros.from_codes(np.array(IMPOSSIBLE), SCHEMA)
    share = fine(run)[:, ~zeros.contains(CELLS)].sum(axis=1)
    truncated = draws | {"log_feasible": np.log(share).reshape(draws["alpha"].shape)}
    return dataclasses.replace(
        run, conditions=zeros, draws={name: np.float32(x) for name, x in truncated.items()}
    )


def fine(run):
    """Probabilities (draws, cells) of all cells; impossible ones have none."""
    possible = np.ones(len(CELLS), bool)
    if run.conditions is not None:
        possible = ~run.conditions.contains(CELLS)
    p = np.zeros((run.draws["alpha"].size, len(CELLS)))
    blocks = cell_probabilities(run, run.parameters(), CELLS[possible], "exact", jax.random.key(0))
    p[:, possible] = np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))
    return p


@pytest.fixture(params=["hdp", "nplcm", "tnplcm"])
def family(request):
    return request.param


@pytest.fixture
def base(family, small, latent):
    return small.run if family == "hdp" else latent.run


def matches(record, other):
    """Whether two rows of codes agree where both have values."""
    return all(x == y or x < 0 or y < 0 for x, y in zip(record, other, strict=True))


def test_records_match_where_both_have_values():
    rng = np.random.default_rng(0)
    codes = np.where(rng.random((40, 3)) < 0.3, -1, CELLS[rng.integers(len(CELLS), size=40)])
    table = bnp.Microdata(SCHEMA, np.concatenate([CODES, codes, [[-1, -1, -1]]]))
    cells = table.tabulated
    expected = [sum(matches(cell, other) for other in table.codes) for cell in cells.codes]
    np.testing.assert_array_equal(matching_records(cells), expected)
    complete = bnp.Microdata(SCHEMA, CELLS[[0, 0, 5]]).tabulated
    np.testing.assert_array_equal(matching_records(complete), complete.counts)


def test_wildcards_match_every_value(family, base):
    """Each record's risk, from the sum of the probabilities of the cells that it matches."""
    run = run_by_hand(family, base)
    risk = bnp.population_risk(run, N, ties="off", all_records=True, missing_keys="wildcard")
    p = fine(run)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-4)
    found = risk.records().set_index("row").sort_index()
    number = [sum(matches(record, other) for other in CODES) for record in CODES]
    assert found["f"].tolist() == number
    # By hand: a record without a value that others have matches them.
    assert risk.sample_uniques == len(risk.rows) and risk.rows.tolist() == [6, 7]
    new = N - len(CODES)
    for row, (record, f) in enumerate(zip(CODES, number, strict=True)):
        q = p[:, [matches(record, cell) for cell in CELLS]].sum(axis=1)
        count = np.arange(new + 1)
        of_count = np.stack([binom.pmf(count, new, x) for x in q])
        assert found.loc[row, "r2"] == pytest.approx(
            (of_count / (f + count)).sum(1).mean(), rel=1e-4
        )
        r1 = of_count[:, 0].mean() if f == 1 else 0
        assert found.loc[row, "r1"] == pytest.approx(r1, rel=1e-4)
    assert risk.tau1_conditional.mean() == pytest.approx(found["r1"].sum())
    assert found["age"].isna().sum() == 1


def completed_risks(p, codes, num_new):
    """Exact r1, r2 and P(alone) of every record by the sum over all completed samples."""
    choices = [[k for k, cell in enumerate(CELLS) if matches(record, cell)] for record in codes]
    # Records are independent given the parameters.
    weights = [p[cells] / p[cells].sum() for cells in choices]
    r1_of, r2_of = record_risks(np.log(np.maximum(p, 1e-300)), num_new)
    found = np.zeros((3, len(codes)))
    for chosen in itertools.product(*map(range, map(len, choices))):
        weight = np.prod([w[k] for w, k in zip(weights, chosen, strict=True)])
        cells = [c[k] for c, k in zip(choices, chosen, strict=True)]
        for i, cell in enumerate(cells):
            if cells.count(cell) == 1:
                found[:, i] += weight * np.array([r1_of[cell], r2_of[cell], 1])
    return found


def scores(risk, exact, num_records):
    """z-scores of r1, r2 and the number of sample uniques, by their posterior spread."""
    r1, r2, alone = exact
    found = np.zeros((2, num_records))
    found[0, risk.rows], found[1, risk.rows] = risk.r1, risk.r2
    error = np.sqrt(np.maximum(np.array([r1, r2]), 1e-4) / SAME)
    spread = max(risk.num_uniques.std(), 0.1)
    uniques = (risk.num_uniques.mean() - alone.sum()) / (spread / np.sqrt(SAME))
    return np.append((found - exact[:2]) / error, uniques)


FEW = np.array([
    [0, 0, 0], [1, 0, 2], [2, 1, 3], [1, 0, -1], [-1, 1, 3], [2, -1, -1], [1, 1, -1],
])  # fmt: skip


@pytest.fixture
def exact(family, base):
    run = run_by_hand(family, base, FEW, same=SAME)
    return run, completed_risks(fine(run)[0], FEW, N - len(FEW))


def test_values_missing_at_random_are_summed_out(exact):
    """Against the sum over all completed samples, for one draw of the parameters."""
    run, of_all = exact
    risk = bnp.population_risk(run, N, ties="off", thin=1)
    assert risk.missing_keys == "random"
    assert np.abs(scores(risk, of_all, len(FEW))).max() < Z_LIMIT
    difference = (risk.tau1 - risk.tau1_conditional).ravel()
    assert abs(difference.mean()) < Z_LIMIT * difference.std() / np.sqrt(SAME)
    assert risk.sample_uniques == round(of_all[2].sum())


def test_a_sample_that_is_not_completed_is_seen(exact, monkeypatch):
    """The planted errors: every record is taken for alone, or values are not drawn by their law."""
    run, of_all = exact
    with monkeypatch.context() as patch:
        patch.setattr(RiskSums, "_alone", lambda self, codes: np.ones((len(codes), 7), bool))
        risk = bnp.population_risk(run, N, ties="off", thin=1)
        assert np.abs(scores(risk, of_all, len(FEW))).max() > Z_LIMIT
    draw = missing_keys.Completions.codes

    def careless(self, indices):
        return np.where(run.table.codes[self.rows] < 0, 0, draw(self, indices))

    if run.conditions is None:
        monkeypatch.setattr(missing_keys.Completions, "codes", careless)
        risk = bnp.population_risk(run, N, ties="off", thin=1)
        assert np.abs(scores(risk, of_all, len(FEW))).max() > Z_LIMIT


@pytest.mark.parametrize("reading", ["random", "wildcard"])
def test_coarser_keys_take_missing_values_too(family, base, reading):
    """The key with all variables has the risk of the file itself."""
    run, ties = run_by_hand(family, base, FEW, same=SAME), "off" if family == "tnplcm" else "on"
    risk = bnp.population_risk(run, N, ties=ties, missing_keys=reading, thin=1)
    found = bnp.coarsen(
        run, N, ["keep:age,sex,town", "drop:town"], ties=ties, missing_keys=reading,
        num_samples=SAME,
    )  # fmt: skip
    same, fewer = found["keep:age,sex,town"], found["drop:town"]
    for name in ("tau1", "tau2"):
        one, other = vars(same)[name], vars(risk)[name]
        error = np.hypot(one.std(), other.std()) / np.sqrt(SAME)
        assert abs(one.mean() - other.mean()) <= Z_LIMIT * error
    assert same.sample_uniques == risk.sample_uniques
    assert fewer.tau1.mean() <= same.tau1.mean()
    assert fewer.sample_uniques <= same.sample_uniques


def test_the_two_readings_are_one_without_missing_values(small):
    risks = [
        bnp.population_risk(small.run, 2000, missing_keys=x) for x in missing_keys.MISSING_KEYS
    ]
    np.testing.assert_array_equal(risks[0].tau1, risks[1].tau1)
    assert risks[0].missing_keys is risks[1].missing_keys is None


def test_levels_add_up_with_what_is_missing(latent):
    run = run_by_hand("nplcm", latent.run)
    for reading in missing_keys.MISSING_KEYS:
        risk = bnp.population_risk(run, N, ties="off", missing_keys=reading)
        levels = risk.by_level()
        totals = levels.groupby("variable")[["records", "tau1", "tau2"]].sum()
        assert (totals["records"] == len(CODES)).all()
        np.testing.assert_allclose(totals["tau1"], risk.r1.sum())
        # Everybody's sex is known.
        assert levels.groupby("variable").tail(1)["level"].tolist() == ["", 1, ""]


def test_what_cannot_be_read_is_an_error(latent):
    run = run_by_hand("nplcm", latent.run)
    with pytest.raises(MicrodataError, match="--missing-keys wildcard"):
        bnp.population_risk(run, N, all_records=True)
    with pytest.raises(ValueError, match="missing_keys"):
        bnp.population_risk(run, N, missing_keys="no")
