"""Candidates for structural zeros."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.zeros import suggestions
from bnp_models.zeros.statements import codes_meant
from bnp_models.zeros.structural_zeros import StructuralZeros
from bnp_models.zeros.suggestions import (
    _counts,
    settled_conditions,
    settling_variables,
    suggest_conditions,
)


def people(n=3000):
    """Children are single and out of work; employed women of 65 and over do not occur."""
    rng = np.random.default_rng(0)
    age = rng.integers(0, 80, n)
    marital = rng.choice(["single", "married", "widowed"], n, p=[0.5, 0.4, 0.1])
    work = rng.choice(["employed", "none"], n)
    sex = rng.choice(["f", "m"], n)
    marital[age < 16], work[age < 16] = "single", "none"
    old = np.where(age < 65, "no", "yes")
    work[(old == "yes") & (sex == "f") & (work == "employed")] = "none"
    return pd.DataFrame({"age": age, "marital": marital, "work": work, "sex": sex, "old": old})


def test_what_is_impossible_is_found():
    frame = people()
    found = suggest_conditions(Microdata.from_frame(frame))
    rows = found.drop(columns=["#expected", "#chance"]).to_dict("records")

    def row(**fixed):
        return (
            dict.fromkeys(["age", "marital", "work", "sex", "old"], "") | fixed | {"#confirm": "?"}
        )

    assert row(age="<16", marital="married|widowed") in rows
    assert row(age="<16", work="employed") in rows
    assert row(age=">=65", old="no") in rows and row(age="<65", old="yes") in rows
    assert row(work="employed", sex="f", old="yes") in rows
    expected = found["#expected"].astype(float)
    assert expected.is_monotonic_decreasing and expected.min() >= 5
    # By hand: the rows and columns of the table of age and marital status.
    young = (frame["age"] < 16).mean() * (frame["marital"] != "single").sum()
    at = rows.index(row(age="<16", marital="married|widowed"))
    assert expected[at] == pytest.approx(young, abs=0.051)
    # Whatever the order of the columns.
    other = suggest_conditions(Microdata.from_frame(frame[frame.columns[::-1]]))
    others = other.drop(columns=["#expected", "#chance"]).to_dict("records")
    assert len(others) == len(rows) and all(one in rows for one in others)
    # Nobody has confirmed them; then they are conditions that the sample keeps.
    table = Microdata.from_frame(frame)
    with pytest.raises(MicrodataError, match="wait for a person"):
        StructuralZeros.from_frame(found, table.schema)
    StructuralZeros.from_frame(found.drop(columns="#confirm"), table.schema).require_feasible(table)


def test_independent_variables_give_none(capsys, monkeypatch):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.integers(0, 4, (500, 4)), columns=list("abcd"))
    frame = frame.astype(object).mask(rng.random(frame.shape) < 0.1)
    found = suggest_conditions(Microdata.from_frame(frame))
    assert found.empty and list(found) == ["#confirm", "#expected", "#chance"]
    monkeypatch.setattr(suggestions, "_DELAY", 0)
    for progress in (False, True):
        assert capsys.readouterr().err == ""
        suggest_conditions(Microdata.from_frame(frame), progress=progress)
    assert "4/4" in capsys.readouterr().err


def shuffled(frame, seed):
    """The same columns, each in an order of its own: nothing is impossible, and nothing settled."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({name: rng.permutation(frame[name].to_numpy()) for name in frame})


def real_files():
    """Samples of the bundled files, with columns of many levels, some of them in order."""
    persons = bnp.datasets.bay_area_households().frame.iloc[:, 1:]
    census = bnp.datasets.census_income()
    yield people(1000)
    for seed in range(3):
        yield census.sample(1000, seed).astype(str)
        yield persons.sample(1000, random_state=seed).reset_index(drop=True)


def test_shuffled_files_have_as_few_candidates_as_promised():
    """The selection of what is empty among all combinations and their unions is counted in."""
    found = [
        len(suggest_conditions(Microdata.from_frame(shuffled(frame, seed))))
        for frame in real_files() for seed in range(3)
    ]  # fmt: skip
    # At most 0.05 for each of 21 files on average, so that more than 5 have probability 0.001.
    assert sum(found) <= 5
    # That is not because there are no empty cells that independent variables would have filled.
    for frame in real_files():
        chances = suggest_conditions(Microdata.from_frame(frame))["#chance"].astype(float)
        assert len(chances) >= 5 and chances.max() <= suggestions.LARGEST_CHANCE


def test_the_number_by_chance_is_that_of_all_combinations():
    rng = np.random.default_rng(3)
    chances, expected = suggestions._ByChance(), rng.uniform(1, 30, 500)
    chances.add(expected[:200].reshape(20, 10), 5)
    chances.add(expected[200:], 5)
    for least in (5, 6.3, 12, 29):
        number = np.exp(-expected[expected >= least]).sum()
        assert chances.number(np.array([least]))[0] == pytest.approx(number)


def test_runs_of_levels_are_counted_in():
    """An empty run is one of all runs of its length, and a union one of all unions of its form."""
    counts = np.array([[30, 5, 5, 0, 0, 0, 20, 10], [0, 0, 0, 40, 30, 30, 0, 0]]).T
    chances = suggestions._ByChance()
    rows = suggestions._of_two((0, 1), [True, False], counts, counts.sum(), 5, chances, 3)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    runs = [expected[i:k, b].sum() for i in range(8) for k in range(i + 1, 9) for b in range(2)]
    runs = np.array([x for x in runs if 5 <= x < 60])
    np.testing.assert_allclose(
        chances.number(np.array([5.0, 20.0])),
        [np.exp(-runs).sum(), np.exp(-runs[runs >= 20]).sum()],
    )
    assert sorted(row.fixed[0] for row in rows) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    # A union of levels of both variables that are each too rare.
    counts = np.array([[20, 0, 0, 0, 0], [0, 5, 5, 5, 5]])
    rows = suggestions._of_two((0, 1), [False, False], counts, 40, 5, chances, 3)
    (union,) = [row for row in rows if len(row.fixed[1]) == 4]
    assert union.expected == pytest.approx(10) and union.parts == [2.5] * 4
    # Of three pairs, forms of up to five levels, two levels of one, and five sets of four.
    assert np.exp(union.log_number) == pytest.approx(3 * 5 * 2 * 5)
    assert suggestions._with_chance(union, chances, 5).chance == pytest.approx(
        3 * 5 * 2 * 5 * np.exp(-10)
    )


def test_runs_pass_over_levels_that_no_record_has():
    counts = np.array([4, 0, 0, 3, 0, 2, 5])
    assert suggestions._runs(np.array([0, 3, 6]), counts) == [[0, 3], [6]]


def test_chance_of_a_union_is_the_sum_over_its_parts():
    chances = suggestions._ByChance()
    chances.add(np.array([6.0, 7.0, 8.0]), 5)
    union = suggestions._Row(14.0, {}, [6.0, 8.0], 50.0)
    expected = np.exp(-6.0) + np.exp(-7.0) + 2 * np.exp(-8.0)
    assert suggestions._with_chance(union, chances, 5).chance == pytest.approx(expected)
    # A part that is too rare to be noted has no chance of its own: that of the form decides.
    rare = union._replace(parts=[4.0, 10.0], log_number=3.0)
    assert suggestions._with_chance(rare, chances, 5).chance == pytest.approx(np.exp(-11))


def test_cells_of_three_variables_are_counted_in():
    """Of a full table, and of one with an empty cell, whose fit solves an equation."""
    chances, counts = suggestions._ByChance(), np.full((2, 2, 2), 10)
    assert suggestions._of_three((0, 1, 2), counts, 80, 1, chances) == []
    assert chances.number(np.array([1.0]))[0] == pytest.approx(8 * np.exp(-10.0))
    chances, counts[1, 1, 1] = suggestions._ByChance(), 0
    (row,) = suggestions._of_three((0, 1, 2), counts, 70, 1, chances)
    d = optimize.brentq(lambda d: (10 + d) ** 3 * d - (10 - d) ** 4, 0, 10)
    assert row.fixed == {0: [1], 1: [1], 2: [1]} and row.expected == pytest.approx(d, rel=1e-3)
    expected = np.exp(-d) + 3 * np.exp(-10 - d) + 4 * np.exp(d - 10)
    assert chances.number(np.array([1.0]))[0] == pytest.approx(expected, rel=1e-3)


def test_chance_that_one_variable_settles_another():
    """By hand: the first record of each level tells nothing, and there are two directions."""
    counts = np.array([[5, 0], [0, 3]])
    way, chance = suggestions._settling(6 * counts, 5, 7)
    expected = 29 * 3 / 8 + 17 * 5 / 8
    assert way == 1 and chance == pytest.approx(2 * 7 * np.exp(-expected))
    assert suggestions._settling(2 * counts, 5, 20) is None


def test_variables_that_settle_others():
    """Codes in order and names, of which some are missing; not what each record has by itself."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 40, 400)
    frame = pd.DataFrame({
        "region": [f"R{k % 5}" for k in code], "code": code + 100,
        "sex": rng.choice(["f", "m"], 400),
        "name": [f"town {k}" for k in code], "person": range(400), "rare": ["x"] * 399 + ["y"],
    }).astype(object)  # fmt: skip
    frame = frame.mask(rng.random(frame.shape) < 0.05)
    table = Microdata.from_frame(frame)
    assert settling_variables(table) == [("code", "region"), ("name", "region"), ("code", "name")]
    rows = suggest_conditions(table)
    of_pair = rows[(rows["region"] != "") & (rows["code"] != "")]
    assert sorted(of_pair["region"]) == [f"!R{k}" for k in range(5)]
    codes = [set(cell.split("|")) for cell in of_pair["code"]]
    assert sum(map(len, codes)) == len(set.union(*codes)) == 40
    file = StructuralZeros.from_frame(of_pair[["region", "code"]], table.schema)
    settled = settled_conditions(table, "code", "region")
    assert file.num_feasible_cells == settled.num_feasible_cells
    assert settled.num_feasible_cells == table.schema.num_cells // 5
    settled.require_feasible(table)
    wrong = frame.assign(region=frame["region"].where(frame.index > 0, "R9"))
    with pytest.raises(MicrodataError, match="column 'code': does not determine 'region': records"):
        settled_conditions(Microdata.from_frame(wrong), "code", "region")


def test_from_the_command_line(tmp_path, capsys):
    people(1000).to_csv(tmp_path / "s.csv", index=False)
    out = tmp_path / "zeros.csv"
    assert main(["conditions", "suggest", str(tmp_path / "s.csv"), "--out", str(out)]) == 0
    assert "a person has to confirm" in capsys.readouterr().out
    check = ["conditions", "check", str(tmp_path / "s.csv"), "--conditions", str(out), "--out",
             str(tmp_path / "bad.csv")]  # fmt: skip
    assert main(check) == 2
    out.write_text("age,marital\n<18,!single\n")
    assert main(check) == 0
    bad, sample = pd.read_csv(tmp_path / "bad.csv"), people(1000)
    truth = np.flatnonzero((sample["age"] < 18) & (sample["marital"] != "single"))
    assert bad["row"].tolist() == truth.tolist() and len(truth) > 3
    assert main([*check[:-1], str(tmp_path / "none" / "bad.csv")]) == 2


def test_tables_have_the_records_that_know_their_variables():
    """Counts of variables with missing values and without against those of pandas."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(3, size=(200, 3)).astype(str), columns=list("abc"))
    frame.loc[rng.random(200) < 0.2, "b"] = None
    table = Microdata.from_frame(frame)
    cells = table.tabulated
    codes = cells.codes.T
    for columns in itertools.combinations(range(3), 2):
        missing = (codes < 0).any(axis=1)
        counts, n = _counts(table.schema, codes, missing, cells.counts, columns)
        names = [frame.columns[j] for j in columns]
        expected = frame.dropna(subset=names).groupby(names).size().unstack()
        np.testing.assert_array_equal(counts, expected.fillna(0))
        assert n == len(frame.dropna(subset=names))


def test_levels_in_the_words_of_a_condition():
    """Each of them means the same levels when it is read."""
    ages = ("0 to 9", "10 to 19", "20 to 29", "30 to 39", "40 to 49", "50+")
    for codes, words in (
        ([0, 1, 2], "<30"), ([3, 4, 5], ">=30"), ([1, 2, 3], "10-39"), ([0, 1, 2, 3, 4], "<50"),
        ([0, 5], "0 to 9|50+"), ([0, 1, 2, 4, 5], "!30 to 39"),
    ):  # fmt: skip
        assert suggestions.levels_said(codes, ages) == words
        assert codes_meant(words, ages).tolist() == codes
    names = ("a", "b", "c", "d", "e")
    assert suggestions.levels_said([0, 1, 3, 4], names) == "!c"
    assert suggestions.levels_said([0, 1, 3], names) == "a|b|d"


def test_a_level_that_no_record_has_goes_with_all():
    """Nothing is known of it, so that nothing is impossible."""
    schema = bnp.Schema(("town", "region"), (("a", "b", "new"), ("N", "S")))
    table = Microdata(schema, np.array([[0, 0], [1, 1], [1, 1]]))
    settled = settled_conditions(table, "town", "region")
    cells = np.array(list(itertools.product(range(3), range(2))))
    assert cells[~settled.contains(cells)].tolist() == [[0, 0], [1, 1], [2, 0], [2, 1]]
