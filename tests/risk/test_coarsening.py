"""Coarser keys: probabilities summed by hand, statements read, and what is refused."""

import dataclasses
import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.data.hierarchies import as_hierarchies
from bnp_models.inference.trace import Settings
from bnp_models.risk import coarsening
from bnp_models.risk.coarsening import parse_coarsening, require_listable, single_drops
from bnp_models.risk.evaluator import cell_probabilities, coarser_probabilities

SCHEMA = bnp.Schema(("age", "sex", "town"), (("young", "middle", "old"), (0, 1), tuple("abcd")))
NUM_LEVELS = SCHEMA.num_levels
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
COARSENING = "drop:sex; merge:age=young+middle; merge:town=b+d"
AGE, TOWN = np.array([0, 0, 1]), np.array([0, 1, 2, 1])
FINE = np.array([[1, 1, 0], [0, 0, 3], [2, 1, 2], [2, 0, 0], [2, 1, 0]])
COARSE = np.array([[0, 0], [0, 1], [1, 2]])
IMPOSSIBLE = [[0, -1, 3], [2, 0, -1], [0, 1, 0]]


@pytest.fixture(scope="module", params=["hdp", "nplcm"])
def run(request, small, latent):
    """Runs of either family with draws by hand."""
    rng = np.random.default_rng(0)
    levels = [np.moveaxis(rng.dirichlet(np.ones(s), (2, 3, 4)), 3, 2) for s in NUM_LEVELS]
    theta, pi = np.concatenate(levels, axis=2), rng.dirichlet(np.ones(4), (2, 3))
    draws = {"alpha": rng.gamma(2, 1, (2, 3)), "log_feasible": np.zeros((2, 3)),
             "level_shape": np.ones((2, 3, sum(NUM_LEVELS)))}  # fmt: skip
    if request.param == "hdp":
        model, base = bnp.HDPMixedMembership(), small.run
        draws |= {"theta": theta, "g0": pi, "alpha_rate": np.ones((2, 3))}
    else:
        model, base = bnp.NPLCM(components=4), latent.run
        draws |= {"log_lambda": np.log(theta), "log_pi": np.log(pi)}
    return dataclasses.replace(
        base, model=model, table=bnp.Microdata(SCHEMA, CELLS[::2]), conditions=None,
        draws={name: np.float32(x) for name, x in draws.items()},
        settings=Settings(2, 0, 3, 1, (), (2,)),
    )  # fmt: skip


def fine_probabilities(run):
    blocks = cell_probabilities(run, run.parameters(), CELLS, "exact", jax.random.key(0))
    return np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))


def coarse_probabilities(run):
    """Probabilities of COARSE, the cells with one record each."""
    coarse = parse_coarsening(COARSENING, SCHEMA)
    assert coarse.schema.variables == ("age", "town")
    assert coarse.schema.levels == (("young + middle", "old"), ("a", "b + d", "c"))
    run = dataclasses.replace(run, table=bnp.Microdata(SCHEMA, FINE))
    cells = coarse.coarser(run.table).tabulated
    codes = run.table.codes_at(cells.first_rows[cells.unique_cells])
    blocks = coarser_probabilities(
        run, run.parameters(), coarse, codes, jax.random.key(0), len(FINE)
    )
    return np.exp(np.concatenate(list(blocks)))


def summed(fine, cells=CELLS):
    return np.stack(
        [fine[:, (AGE[cells[:, 0]] == a) & (TOWN[cells[:, 2]] == t)].sum(axis=1)
         for a, t in COARSE], axis=1,
    )  # fmt: skip


class NotMerged(bnp.NPLCM):
    def merge_levels(self, draws, groups):
        return None


def test_probabilities_of_coarser_cells_are_sums_of_finer_ones(run):
    fine = fine_probabilities(run)
    np.testing.assert_allclose(fine.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(coarse_probabilities(run), summed(fine), rtol=1e-4)


def test_cells_are_listed_where_the_model_merges_no_levels(run):
    if isinstance(run.model, bnp.NPLCM):
        listed = dataclasses.replace(run, model=NotMerged(components=4))
        np.testing.assert_allclose(
            coarse_probabilities(listed), coarse_probabilities(run), rtol=1e-4
        )


def test_under_structural_zeros_impossible_cells_count_for_nothing(run):
    zeros = bnp.StructuralZeros.from_codes(np.array(IMPOSSIBLE), SCHEMA)
    possible = ~zeros.contains(CELLS)
    assert 0 < possible.sum() < len(CELLS)
    fine = fine_probabilities(run)[:, possible]
    share = fine.sum(axis=1)
    draws = run.draws | {"log_feasible": np.float32(np.log(share)).reshape(2, 3)}
    model = bnp.TNPLCM(components=4) if isinstance(run.model, bnp.NPLCM) else run.model
    truncated = dataclasses.replace(run, conditions=zeros, draws=draws, model=model)
    exact = summed(fine, CELLS[possible]) / share[:, None]
    np.testing.assert_allclose(coarse_probabilities(truncated), exact, rtol=1e-4)


@pytest.mark.parametrize("ties", ["off", "on"])
def test_the_risk_of_coarser_keys_follows(run, ties):
    fine = bnp.population_risk(run, 40, ties=ties)
    found = bnp.coarsen(run, 40, ties=ties)
    assert list(found) == ["drop:age", "drop:sex", "drop:town"]
    coarse = found["drop:town"]
    np.testing.assert_array_equal(coarse.table.codes, CELLS[::2, :2])
    assert coarse.sample_uniques <= len(fine.rows)
    assert coarse.tau1.shape == coarse.tau2.shape == (6,)
    assert coarse.tau1.mean() < fine.tau1.mean() and (coarse.tau1 <= coarse.tau2).all()
    assert coarse.anonymity[0].records == coarse.sample_uniques
    same = bnp.coarsen(run, 40, ["keep:sex,age"], ties=ties)["keep:sex,age"]
    np.testing.assert_array_equal(same.table.codes, coarse.table.codes)


def test_the_numbers_of_coarser_keys_are_those_of_their_probabilities(run):
    """The mean of tau_1 against that of (1 - p)^M over the cells with one record."""
    run = dataclasses.replace(run, table=bnp.Microdata(SCHEMA, FINE))
    p = coarse_probabilities(run)
    found = [
        bnp.coarsen(run, 60, [COARSENING], ties="off", key=jax.random.key(k))[COARSENING].tau1
        for k in range(200)
    ]
    assert found[0].max() <= 3
    exact = ((1 - p) ** (60 - len(FINE))).sum(axis=1).mean()
    assert 0.02 < exact and abs(np.mean(found) - exact) < 4 * np.sqrt(exact / 1200)


def test_a_group_of_groups_is_one_level():
    found = parse_coarsening("merge:town=a+b;merge:town=b+c", SCHEMA)
    assert found.schema.levels[2] == ("a + b + c", "d")
    numbers = parse_coarsening("drop:age,town", SCHEMA)
    assert numbers.schema.levels == ((0, 1),)


def test_labels_with_a_plus():
    schema = bnp.Schema(("age", "x"), (("65-74", "75", "75+", "75+80"), (0, 1)))
    assert parse_coarsening("merge:age=65-74+75+", schema).schema.levels[0] == (
        "65-74 + 75+", "75", "75+80",
    )  # fmt: skip
    assert parse_coarsening("merge:age=75+75+", schema).schema.levels[0][1] == "75+"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("age", "is not a coarsening"),
        ("drop:", "is not a coarsening"),
        ("merge:age", "is not a coarsening"),
        ("drop:income", "income"),
        ("merge:age=young+ancient", "is not a list of its levels"),
        ("merge:age=young+young", "only one level is named"),
        ("drop:age,sex,town", "every variable is dropped"),
        ("drop:age;merge:age=young+old", "dropped and has levels merged"),
    ],
)
def test_statements_that_are_refused(text, match):
    with pytest.raises(bnp.MicrodataError, match=match):
        parse_coarsening(text, SCHEMA)


def test_too_many_cells_under_structural_zeros_are_refused(monkeypatch):
    zeros = bnp.StructuralZeros.from_codes(np.array(IMPOSSIBLE), SCHEMA)
    assert len(single_drops(bnp.Microdata(SCHEMA, FINE), zeros)) == 3
    table = bnp.Microdata(SCHEMA, CELLS[[1, 4, 15]])
    found = {"drop:town": parse_coarsening("drop:town", SCHEMA)}
    require_listable(found, table, zeros)
    monkeypatch.setattr(coarsening, "MAX_CELLS", 8)
    assert list(single_drops(table, zeros)) == ["drop:sex"]
    require_listable(found, table, None)
    with pytest.raises(
        bnp.MicrodataError, match="for 'drop:town', under structural zeros, 12 cells"
    ):
        require_listable(found, table, zeros)


def test_names_that_statements_cannot_hold_are_dropped_all_the_same(run):
    odd = bnp.Schema(("a;b", " c,d", "e"), SCHEMA.levels)
    run = dataclasses.replace(run, table=bnp.Microdata(odd, run.table.codes))
    assert list(bnp.coarsen(run, 500)) == ["drop:a;b", "drop: c,d", "drop:e"]
    assert coarsening.keep_variables(["a;b", "e"], odd).variables == (0, 2)


def test_a_coarsening_that_changes_nothing_has_the_risk_of_the_file(run):
    """With the correction for overdispersion, whose draws are those of the finer file."""
    keys = [jax.random.key(k) for k in range(50)]
    same = "keep:age,sex,town"
    coarse = np.array([bnp.coarsen(run, 40, [same], key=key)[same].tau1 for key in keys])
    fine = np.array([bnp.population_risk(run, 40, key=key).tau1.ravel() for key in keys])
    error = np.hypot(coarse.mean(axis=1).std(), fine.mean(axis=1).std()) / np.sqrt(len(keys))
    assert error > 0 and abs(coarse.mean() - fine.mean()) < Z_LIMIT * error


TOWNS = pd.DataFrame({
    "level": list("abcd"), "group": ["x", "y", "x", "z"],
    "larger": ["north", "south", "north", "north"],
})  # fmt: skip


def test_groups_take_the_place_of_levels(run):
    """As the merges that they are, under the names of the groups."""
    groups = as_hierarchies({"town": TOWNS})
    found = parse_coarsening("group:town=2; drop:sex", SCHEMA, groups)
    assert found.schema.levels[1] == ("north", "south")
    assert parse_coarsening("group:town", SCHEMA, groups).schema.levels[2] == ("x", "y", "z")
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, groups=groups))
    specs = ["group:town=2", "merge:town=a+c+d"]
    named, merged = bnp.coarsen(run, 40, specs, key=jax.random.key(1), ties="off").values()
    assert named.sample_uniques == merged.sample_uniques
    for text, says in (
        ("group:age", "'age': has no groups"), ("group:town=3", "has no groups of number '3'"),
        ("group:town;merge:town=a+b", "is also replaced by its groups"), ("group:income", "income"),
    ):  # fmt: skip
        with pytest.raises(bnp.MicrodataError, match=says):
            parse_coarsening(text, SCHEMA, groups)


@pytest.mark.parametrize("ties", ["on", "off"])
def test_keys_that_divide_the_records_alike_have_one_figure(run, ties):
    """A key that all records share changes nothing, whatever the order of the levels."""
    schema = bnp.Schema((*SCHEMA.variables, "const"), (*SCHEMA.levels, ("x",)))
    codes = np.pad(CELLS[::2], ((0, 0), (0, 1)))
    draws = dict(run.draws)
    name = "theta" if "theta" in draws else "log_lambda"
    ones = np.full_like(draws[name][:, :, :1], 1.0 if name == "theta" else 0.0)
    draws |= {name: np.concatenate([draws[name], ones], axis=2),
              "level_shape": np.ones((2, 3, sum(schema.num_levels)), np.float32)}  # fmt: skip
    whole = dataclasses.replace(run, table=bnp.Microdata(schema, codes), draws=draws)
    texts = ["drop:const", "keep:age,town,sex", "drop:const;merge:town=a+b",
             "keep:const,sex,age,town", "merge:town=a+b"]  # fmt: skip
    found = bnp.coarsen(whole, 40, texts, ties=ties)
    for same in (texts[1], texts[3]):
        np.testing.assert_array_equal(found[texts[0]].tau1, found[same].tau1)
        np.testing.assert_array_equal(found[texts[0]].tau2, found[same].tau2)
    np.testing.assert_array_equal(found[texts[2]].tau1, found[texts[4]].tau1)
    assert (found[texts[0]].tau1 != found[texts[2]].tau1).any()
    # Other draws have other numbers.
    other = bnp.coarsen(whole, 40, texts[:1], ties=ties, key=jax.random.key(5))[texts[0]]
    assert (other.tau1 != found[texts[0]].tau1).any()
