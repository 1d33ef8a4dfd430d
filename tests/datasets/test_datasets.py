"""The bundled population and the true risk of its samples; the bundled households."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.reading import read_microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.datasets import (
    Population,
    bay_area_households,
    census_income,
    southeast_michigan_households,
)
from bnp_models.datasets import __main__ as demonstration
from bnp_models.rules.census import census_relationships, find_head

pytestmark = pytest.mark.filterwarnings("error")

NUM_LEVELS = {
    "age": 8,
    "sex": 2,
    "race": 4,
    "hispanic_origin": 3,
    "citizenship": 2,
    "marital_status": 4,
    "education": 5,
    "class_of_worker": 3,
    "household_relationship": 4,
    "parents_at_home": 5,
}


@pytest.fixture(scope="module")
def population():
    return census_income()


@pytest.fixture
def tiny():
    frame = pd.DataFrame({"x": list("aaabbc"), "y": list("ppqppq")}).astype("category")
    return Population(frame=frame, source="made up", licence="none")


def test_census_income(population):
    assert len(population) == 299_285
    assert {name: len(labels) for name, labels in population.levels.items()} == NUM_LEVELS
    assert population.variables == tuple(NUM_LEVELS)
    assert population.levels["age"][:2] == ("0-14", "15-24")
    assert not population.frame.isna().any(axis=None)
    labels = [label for labels in population.levels.values() for label in labels]
    assert labels == [label.strip() for label in labels]
    # Known totals of the source: women, and children without an education.
    assert (population.frame["sex"] == "Female").sum() == 155_775
    assert (population.frame["education"] == "Under 15 years old").sum() == 70_864


def test_sample_is_reproducible_and_keeps_the_code_book(population):
    sample = population.sample(500, seed=3)
    pd.testing.assert_frame_equal(sample, population.sample(500, seed=3))
    assert not sample.equals(population.sample(500, seed=4))
    pd.testing.assert_index_equal(sample.index, pd.RangeIndex(500))
    assert (sample.dtypes == population.frame.dtypes).all()
    everyone = population.sample(len(population), seed=0)
    ordered = everyone.sort_values(list(population.variables), ignore_index=True)
    # pandas' assert_frame_equal takes most of a minute on so many labels.
    assert ordered.equals(population.frame) and (ordered.dtypes == population.frame.dtypes).all()
    shuffled = ordered.assign(sex=ordered["sex"].to_numpy()[::-1]).astype({"sex": "category"})
    assert not shuffled.equals(population.frame)


@pytest.mark.parametrize("n", [1, 7])
def test_sample_size_out_of_range(tiny, n):
    with pytest.raises(ValueError, match=f"{n} is not between 2 and 6"):
        tiny.sample(n, seed=0)


def test_truth_of_a_tiny_population(tiny):
    truth = tiny.truth(pd.DataFrame({"y": list("qppp"), "x": list("cabb")}))
    assert (truth.sample_uniques, truth.tau1, truth.tau2) == (2, 1, 1.5)
    np.testing.assert_array_equal(truth.rows, [0, 1])
    np.testing.assert_array_equal(truth.population_counts, [1, 2])


def test_truth_on_some_of_the_variables(tiny):
    truth = tiny.truth(pd.DataFrame({"x": list("abc")}))
    np.testing.assert_array_equal(truth.population_counts, [3, 2, 1])


@pytest.mark.parametrize(
    ("sample", "part"),
    [
        ({"x": list("cc"), "y": list("qq")}, "row 0: the sample has more"),
        ({"x": list("ca"), "y": list("pp")}, "row 0: the sample has more"),
        ({"x": list("az"), "y": list("pp")}, "row 1, column 'x'"),
        ({"x": ["a", None], "y": list("pp")}, "row 1, column 'x': the value is missing"),
        ({"z": list("ab")}, "no variable"),
    ],
)
def test_truth_refuses_records_of_no_one(tiny, sample, part):
    with pytest.raises(MicrodataError, match=part):
        tiny.truth(pd.DataFrame(sample))


def test_truth_agrees_with_group_by(population):
    sample = population.sample(1_000, seed=1)
    start = time.perf_counter()
    truth = population.truth(sample)
    assert time.perf_counter() - start < 1
    keys = list(population.variables)
    sizes = population.frame.groupby(keys, observed=True).size().rename("F").reset_index()
    counts = sample.merge(sizes, on=keys, how="left")["F"].to_numpy()
    alone = ~sample.duplicated(keep=False).to_numpy()
    np.testing.assert_array_equal(truth.rows, np.flatnonzero(alone))
    np.testing.assert_array_equal(truth.population_counts, counts[alone])
    assert truth.sample_uniques == alone.sum()
    assert truth.tau1 == (counts[alone] == 1).sum()
    assert truth.tau2 == pytest.approx((1 / counts[alone]).sum(), rel=1e-12)
    assert 300 <= truth.sample_uniques <= 450 and 5 <= truth.tau1 <= 25


def test_write_sample(population, tmp_path):
    truth = population.write_sample(tmp_path / "new", 300, seed=2)
    table = read_microdata(tmp_path / "new/sample.csv", levels=tmp_path / "new/levels.csv")
    assert dict(zip(table.schema.variables, table.schema.levels, strict=True)) == population.levels
    np.testing.assert_array_equal(table.cells().sample_uniques, truth.rows)
    pd.testing.assert_frame_equal(
        table.to_frame(), population.sample(300, seed=2).astype("str"), check_dtype=False
    )


def test_adults_leave_out_what_age_determines():
    adults = census_income(adults=True)
    everyone = census_income()
    assert len(adults) == 228_421
    assert set(everyone.variables) - set(adults.variables) == {"parents_at_home"}
    assert np.prod([len(labels) for labels in adults.levels.values()]) == 64_512
    assert "0-14" not in adults.levels["age"]
    assert "Under 15 years old" not in adults.levels["education"]
    sample = adults.sample(500, seed=3)
    assert 0 < adults.truth(sample).tau1 <= adults.truth(sample).sample_uniques


@pytest.mark.parametrize(
    ("options", "households", "persons"),
    [
        ({}, 4_427, 7_639),
        ({"distinct": True}, 1_968, 3_633),
        ({"group_quarters": True}, 5_000, 8_212),
        ({"group_quarters": True, "distinct": True}, 2_305, 3_970),
    ],
)
def test_bay_area_households(options, households, persons):
    data = bay_area_households(**options)
    assert (len(data), len(data.frame)) == (households, persons)
    table = data.households()
    assert (table.n, table.num_persons) == (households, persons)
    assert table.schema.size_variable == "persons"
    assert table.household_variables == ("tenure", "income", "vehicles")
    assert table.member_variables[:3] == ("relate", "age", "sex")
    assert not table.has_missing
    assert find_head(table.schema) == data.head
    # Persons in group quarters have no householder; nobody breaks another rule.
    broken = census_relationships(table).tally(table)
    alone = (data.frame["tenure"] == "Group quarters").sum()
    assert broken == {name: alone if name == "one head" else 0 for name in broken}
    assert len(broken) == 15
    assert alone == {5_000: 573, 2_305: 337}.get(households, 0)


def test_bay_area_households_by_size():
    data = bay_area_households()
    table = data.households(head=True)
    counts = {block.size: len(block.households) for block in table.size_blocks}
    assert list(counts) == list(range(1, 13))
    assert [counts[size] for size in (1, 2, 3, 4)] == [2_480, 1_394, 307, 95]
    assert table.num_members == 7_639 - 4_427
    frame = data.frame.astype({name: object for name in data.frame.select_dtypes("category")})
    pd.testing.assert_frame_equal(table.to_frame(), frame, check_dtype=False)


def test_the_labels_of_the_households_agree_with_each_other():
    frame = bay_area_households(group_quarters=True).frame
    age, relate = frame["age"], frame["relate"]
    np.testing.assert_array_equal(frame["marital_status"] == "Under 15 years old", age < 15)
    np.testing.assert_array_equal(frame["employment"] == "Under 16 years old", age < 16)
    np.testing.assert_array_equal(
        relate.str.endswith("group quarters"), frame["tenure"] == "Group quarters"
    )
    married = frame["marital_status"] == "Married, spouse present"
    assert married[relate == "Husband/wife"].all() and (relate == "Husband/wife").sum() == 870
    with_spouse = frame["household"].isin(frame["household"][relate == "Husband/wife"])
    np.testing.assert_array_equal(
        married[relate == "Householder"], with_spouse[relate == "Householder"]
    )


def test_southeast_michigan_households():
    data = southeast_michigan_households()
    table = data.households(head=True)
    assert (len(data), len(data.frame), table.n, table.num_persons) == (14_853, 31_074) * 2
    assert table.schema.size_variable == "persons"
    assert table.household_variables[:2] == ("income", "vehicles")
    assert not table.has_missing and find_head(table.schema) == data.head
    # Couples of one sex are the only ones that break a rule.
    rules = census_relationships(table)
    broken = rules.tally(table)
    assert broken == {name: 26 * (name == "spouse of the other sex") for name in rules.names}
    rules.without("spouse of the other sex").require_feasible(table)
    one_race = data.frame.groupby("household")["race"].nunique() == 1
    np.testing.assert_allclose(
        one_race.groupby(table.sizes).mean().loc[[2, 3, 4]], [0.741, 0.900, 0.719], atol=5e-4
    )
    np.testing.assert_array_equal(
        data.frame["employment"] == "Under 16 years old", data.frame["age"] < 16
    )


def test_the_records_that_repeat_can_be_left_out():
    data = southeast_michigan_households(distinct=True)
    assert (len(data), len(data.frame)) == (1_183, 2_088)
    variables = data.frame.columns.drop("household")
    kinds = data.frame.astype(str).groupby("household")[list(variables)].agg(tuple)
    assert len(kinds.drop_duplicates()) == 1_039  # in these variables; the source has more


def test_households_are_sampled_whole():
    data = southeast_michigan_households()
    sample = data.sample(300, seed=5)
    pd.testing.assert_frame_equal(sample.frame, data.sample(300, seed=5).frame)
    assert not sample.frame.equals(data.sample(300, seed=6).frame)
    assert len(sample) == 300 == sample.households().n
    kept = data.frame[data.frame["household"].isin(sample.frame["household"])]
    pd.testing.assert_frame_equal(sample.frame, kept.reset_index(drop=True))
    assert (sample.frame.dtypes == data.frame.dtypes).all()
    for number in (1, 14_854):
        with pytest.raises(ValueError, match=f"{number} households are not between 2 and 14853"):
            data.sample(number, seed=0)


def test_a_sample_beside_its_truth(population, tmp_path, capsys):
    """What the README's demonstration writes, and prints in the end."""
    demonstration.main([str(tmp_path), "--rows", "300", "--seed", "2"])
    truth = population.write_sample(tmp_path / "same", 300, seed=2)
    for name in ("sample.csv", "levels.csv"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "same" / name).read_bytes()
    known = json.loads((tmp_path / "truth.json").read_text())
    assert known == {
        "population_size": 299_285, "rows": 300, "seed": 2, "tau1": truth.tau1, "tau2": truth.tau2,
        "sample_uniques": truth.sample_uniques,
    }  # fmt: skip
    risk = {
        name: {"mean": mean, "q025": mean - 1, "q975": mean + 2}
        for name, mean in (("tau1", 9.0), ("tau2", 21.5))
    }
    (tmp_path / "risk.json").write_text(json.dumps({"n": 300} | risk))
    demonstration.main([str(tmp_path), "--compare"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert f"{truth.sample_uniques} uniques among 300 records" in " ".join(lines[0])
    assert lines[2][-5:] == [f"{truth.tau1:.1f}", "9.0", "8.0", "to", "11.0"]
    assert lines[3][-5:] == [f"{truth.tau2:.1f}", "21.5", "20.5", "to", "23.5"]
    demonstration.main([str(tmp_path / "adults"), "--rows", "50", "--adults"])
    assert "0-14" not in (tmp_path / "adults" / "levels.csv").read_text()
    with pytest.raises(SystemExit):
        demonstration.main(["--help"])
    assert "usage: python -m bnp_models.datasets " in capsys.readouterr().out
