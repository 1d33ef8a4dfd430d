"""Empty values that another variable settles: found, said, made a level and tied to it."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.zeros import settled
from bnp_models.zeros.settled import (
    EMPTY,
    NOT_APPLICABLE,
    empty_as_level,
    find_settled,
    in_words,
    keep_empty,
    missing_by_design,
    not_applicable_zeros,
)


def people(n=400, seed=0):
    """Children have no job, and who has none has no hours; some did not say their sex."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 60, n)
    job = rng.choice(["clerk", "farmer", "none"], n)
    hours = np.where(job == "none", None, rng.choice(["few", "many"], n))
    frame = pd.DataFrame({"hours": hours, "job": job, "sex": rng.choice(["f", "m"], n), "age": age})
    frame.loc[age < 15, ["job", "hours"]] = None
    return frame.mask(rng.random(frame.shape) < [0, 0, 0.1, 0])


def coded(frame):
    return bnp.Microdata.from_frame(frame)


def test_what_settles_empty_values_is_found_and_said():
    frame = people()
    table = coded(frame)
    found = find_settled(table)
    pairs = [(one.variable, one.parent) for one in found]
    assert pairs == [(0, 1), (0, 3), (1, 3)]
    children = (frame["age"] < 15).sum()
    np.testing.assert_array_equal(found[2].where, np.array(table.schema.levels[3]) < 15)
    none = (frame["job"] == "none").sum()
    assert in_words(table, found) == [
        f"'hours' is empty in all {none} records with 'job' none, in all {children} other records "
        "with 'age' <15 and in no others",
        f"'job' is empty in all {children} records with 'age' <15 and in no others",
    ]
    # The same of cells with counts.
    assert in_words(table.tabulated, find_settled(table.tabulated)) == in_words(table, found)


def test_what_is_said_of_values_that_are_missing_by_design():
    frame = people()
    table, filled = coded(frame), coded(frame.fillna({"job": "clerk"}))
    (sentence,) = missing_by_design(table)
    assert sentence.startswith("missing by design? 'hours' is empty in all ")
    assert "and in no others; 'job' is empty in all " in sentence
    assert missing_by_design(coded(frame.drop(columns=["job", "hours"]))) == []
    # Files in which children have jobs are judged by that first.
    files = [with_schema(one, table.schema) for one in (table, filled)]
    copy, first, *_ = bnp.evaluate(table, files).warnings(["a.csv", "b.csv"])
    assert copy.startswith("a.csv has the same records as the original")
    children = (frame["age"] < 15).sum()
    assert first.startswith("values where the original has none by design: 'job' is empty in all")
    assert f"values of 'job' in {children} of {children} such records of b.csv; make" in first
    assert not any("by design" in one for one in bnp.evaluate(table, files[:1]).warnings())


def with_schema(table, schema):
    return bnp.Microdata.from_frame(table.to_frame(), levels=schema)


def test_other_values_that_are_missing_stay_so():
    frame = people()
    others = frame.index[frame["age"] >= 15][:12]
    frame.loc[others, "job"] = None
    table = coded(frame)
    [job] = [one for one in find_settled(table) if one.variable == 1]
    assert "and in 12 others" in in_words(table, [job])[0]
    made = empty_as_level(table, find_settled(table))
    labels = made.to_frame()
    assert (labels.loc[frame["age"] < 15, "job"] == NOT_APPLICABLE).all()
    assert labels.loc[others, "job"].isna().all()
    # Nobody of 15 and over is known to have the level: it is tied on both sides.
    zeros = not_applicable_zeros(made)
    assert not zeros.impossible_rows(made).size
    kept = keep_empty(made).to_frame()
    assert (kept.loc[others, "job"] == EMPTY).all() and not kept.isna().any(axis=None)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_values_that_are_missing_at_random_are_not_settled(share):
    """Whatever the numbers of levels and of their records."""
    rng = np.random.default_rng(1)
    for n in (20, 300):
        numbers = rng.integers(0, 10**6, n)
        frame = pd.DataFrame({
            "own": numbers, "few": numbers % 50, "two": numbers % 2,
            "gaps": np.where(rng.random(n) < share, None, "x"),
        })  # fmt: skip
        assert not find_settled(coded(frame))


def test_chance_is_what_tells_them_apart(monkeypatch):
    """The planted error: without it, every gap is settled by a column of numbers of their own."""
    monkeypatch.setattr(settled, "CHANCE", 2.0)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"own": range(50), "gaps": np.where(rng.random(50) < 0.3, None, "x")})
    assert find_settled(coded(frame))


def test_few_records_are_settled_where_that_is_known():
    frame = pd.DataFrame({"age": ["a", "b", "b", "c"], "job": [None, "x", None, "y"]})
    table = coded(frame)
    assert not find_settled(table)
    [job] = find_settled(table, named=[("age", "job")])
    assert job.where.tolist() == [True, False, False] and job.records == 1
    made = empty_as_level(table, [job])
    assert made.to_frame()["job"].tolist()[0] == NOT_APPLICABLE
    assert not_applicable_zeros(made) is None
    assert not_applicable_zeros(made, [("age", "job")]).to_frame().dropna(how="all").shape == (4, 2)
    assert find_settled(table, named=[("job", "age")])[0].parent == 0
    other = coded(frame.assign(sex=["f", "f", "m", "m"]))
    for named, said in (
        ([("sex", "job")], "does not determine"), ([("job", "job")], "does not determine"),
    ):  # fmt: skip
        with pytest.raises(bnp.MicrodataError, match=said):
            find_settled(other, named=named)
    for named, said in (([("age", "hours")], "unknown variable"),):
        with pytest.raises(bnp.MicrodataError, match=said):
            find_settled(table, named=named)


def test_large_numbers_make_no_warning():
    """Probabilities that are zero to floating point."""
    many = pd.DataFrame({"age": ["child", "adult"] * 20_000, "job": [None, "clerk"] * 20_000})
    assert find_settled(coded(many))[0].records == 20_000


def test_ties_leave_what_occurs_and_nothing_else():
    """By hand: all combinations of job, hours and the two kinds of age."""
    frame = people().assign(sex="f")
    made = empty_as_level(coded(frame), find_settled(coded(frame)))
    zeros = not_applicable_zeros(made)
    assert not zeros.impossible_rows(made).size
    every = pd.MultiIndex.from_product(made.schema.levels, names=made.schema.variables)
    cells = every.to_frame(index=False)
    cells = bnp.Microdata.from_frame(cells, levels=made.schema)
    possible = cells.to_frame()[~zeros.contains(cells.codes)]
    child, none = possible["age"] < 15, possible["job"] == "none"
    assert (child == (possible["job"] == NOT_APPLICABLE)).all()
    assert ((child | none) == (possible["hours"] == NOT_APPLICABLE)).all()
    # 15 ages of children; 45 others with no job, or with two jobs and two lengths of hours.
    assert len(possible) == 15 + 45 * (1 + 2 * 2)


def test_levels_that_are_there_already_are_used_and_numbers_become_text():
    frame = people().assign(job=lambda x: x["job"].mask(x["age"] == 3, NOT_APPLICABLE))
    table = coded(frame)
    made = empty_as_level(table, find_settled(table))
    assert made.schema.levels[1] == table.schema.levels[1]
    numbers = pd.DataFrame({"kind": ["a", "b"] * 50, "amount": [1, None] * 50}, dtype=object)
    made = empty_as_level(coded(numbers), find_settled(coded(numbers)))
    assert made.schema.levels[1] == ("1", NOT_APPLICABLE)


@pytest.fixture
def sample(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    return "people.csv"


def test_candidates_for_structural_zeros_tie_the_level(sample, capsys):
    assert main(["conditions", "suggest", sample, "--out", "without.csv"]) == 0
    said = capsys.readouterr().err
    assert "'job' is empty in all" in said and "--empty-as-level" in said
    assert main(["conditions", "suggest", sample, "--empty-as-level", "--out", "zeros.csv"]) == 0
    assert "these values become the level 'not applicable'" in capsys.readouterr().err
    found = pd.read_csv("zeros.csv", keep_default_na=False)
    rows = found[["age", "job", "hours"]].to_numpy().tolist()
    assert ["<15", f"!{NOT_APPLICABLE}", ""] in rows and [">=15", NOT_APPLICABLE, ""] in rows
    # Confirmed, they are conditions that the sample keeps, and that commands read.
    found.drop(columns="#confirm").to_csv("zeros.csv", index=False)
    words = ["conditions", "check", sample, "--conditions", "zeros.csv", "--out", "broken.csv"]
    assert main([*words, "--empty-as-level"]) == 0
    assert "0 records are impossible" in capsys.readouterr().out


def test_a_level_that_nothing_settles_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(["x", "y"], 50), "b": rng.choice(["", "z", "w"], 50)})
    frame.to_csv("s.csv", index=False)
    words = ["synthesize", "s.csv", "--empty-as-level", "--out", "o"]
    assert main(words) == 2
    assert "--empty-as-level: no column determines" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
