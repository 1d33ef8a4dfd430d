"""Recodings against plain dictionaries; their names, and the files that they are kept in."""

import math

import numpy as np
import pandas as pd
import pytest
from fuzzing import fuzzed, labels
from hypothesis import given
from hypothesis import strategies as st

import bnp_models as bnp
from bnp_models.data.bins import in_bins
from bnp_models.data.hierarchies import Hierarchy
from bnp_models.data.recoding import Merged, Recoding, level_names
from bnp_models.data.schema import MicrodataError, text_of

TABLE = bnp.Microdata.from_frame(
    pd.DataFrame({"age": [3, 17, 84, 90], "job": list("abca"), "sex": list("fmfm")})
)


@st.composite
def recodings(draw):
    """A schema, a recoding of it, and what it makes of each label: a dictionary, None or itself."""
    number = draw(st.integers(1, 3))
    levels = [
        draw(st.lists(labels.filter(bool), min_size=1, max_size=6, unique=True))
        for _ in range(number)
    ]
    names = [f"v{j}" for j in range(number)]
    changed, means = {}, {}
    for name, own in zip(names, levels, strict=True):
        kind = draw(st.integers(0, 3))
        if kind == 0 and len(changed) < number - 1:
            changed[name] = means[name] = None
        elif kind > 1:
            of = draw(st.lists(st.integers(0, 2), min_size=len(own), max_size=len(own)))
            new = draw(st.permutations([f"new {k}" for k in sorted(set(of))]))
            code = {k: c for c, k in enumerate(sorted(set(of)))}
            codes = [code[k] for k in of]
            changed[name] = Merged.of(name, own, codes, new)
            means[name] = {label: new[c] for label, c in zip(own, codes, strict=True)}
    schema = bnp.Schema(tuple(names), tuple(map(tuple, levels)))
    return Recoding.of(schema, changed), means


def plainly(frame, means):
    """The frame after what a dictionary says."""
    kept = [name for name in frame if means.get(name, {}) is not None]
    return [
        [None if pd.isna(x) else means.get(name, {}).get(x, x) for x in frame[name]]
        for name in kept
    ]  # fmt: skip


def labels_of(table):
    frame = table.to_frame()
    return [[None if pd.isna(x) else x for x in frame[name]] for name in frame]


def all_records(schema, rng):
    codes = [rng.integers(-1, size, 12) for size in schema.num_levels]
    return bnp.Microdata(schema, np.stack(codes, axis=1))


@given(recodings())
@fuzzed()
def test_a_recoding_is_a_dictionary_of_labels(made):
    recoding, means = made
    table = all_records(recoding.original, np.random.default_rng(0))
    coarse = recoding.coarser(table)
    assert labels_of(coarse) == plainly(table.to_frame(), means)
    # All finer cells of a coarser one, and no others.
    cell = recoding.coarser_codes(np.zeros((1, len(table.schema.variables)), int))[0]
    finer = recoding.finer(cell)
    assert len(finer) == recoding.num_finer(cell) == len(np.unique(finer, axis=0))
    assert (recoding.coarser_codes(finer) == cell).all()
    size = math.prod(recoding.original.num_levels)
    every = np.stack(np.unravel_index(np.arange(size), recoding.original.num_levels), axis=1)
    assert (recoding.coarser_codes(every) == cell).all(axis=1).sum() == len(finer)


@given(recodings())
@fuzzed()
def test_what_is_written_is_read_alike(tmp_path_factory, made):
    recoding, _ = made
    path = tmp_path_factory.mktemp("recoding") / "recoding.csv"
    recoding.to_file(path)
    again = Recoding.from_file(path, recoding.original)
    assert again.schema == recoding.schema and again.variables == recoding.variables
    for one, other in zip(recoding.codes, again.codes, strict=True):
        np.testing.assert_array_equal(one, other)
    again.to_file(path.with_name("again.csv"))
    assert path.with_name("again.csv").read_bytes() == path.read_bytes()


@given(st.data())
@fuzzed()
def test_bins_and_top_levels_take_numbers_that_the_sample_has_not(tmp_path_factory, data):
    """The nearest bin below or the lowest; the top level from its number on; nothing else."""
    numbers = st.decimals(-1000, 1000, places=data.draw(st.integers(0, 2))).map(float)
    seen = sorted(data.draw(st.lists(numbers, min_size=2, max_size=20, unique=True)))
    made, bins = bnp.bin_columns(pd.DataFrame({"x": seen}), {"x": data.draw(st.integers(1, 5))})
    asked = data.draw(st.lists(numbers, min_size=1, max_size=10))
    low = bins["x"].low
    expected = [max(0, int((low <= x).sum()) - 1) for x in asked]
    path = tmp_path_factory.mktemp("recoding") / "recoding.csv"
    schema = bnp.Microdata.from_frame(pd.DataFrame({"x": seen})).schema
    Recoding.of(schema, bins).to_file(path)
    told = Recoding.from_file(path, schema)
    np.testing.assert_array_equal(told.codes[0], made.codes[:, 0])
    for one in (bins["x"], told.changed["x"]):
        assert one.code(asked).tolist() == expected
        assert one.code(list(map(str, asked))).tolist() == expected
    limit = data.draw(st.sampled_from(seen))
    _, merged = bnp.merge_levels(bnp.Microdata.from_frame(pd.DataFrame({"x": seen})), {"x": limit})
    Recoding.of(schema, merged).to_file(path)
    for one in (merged["x"], Recoding.from_file(path, schema).changed["x"]):
        for x in asked:
            top = one.find(x) == one.find(limit)
            assert top == (x >= limit) and (one.find(x) is None) == (x < limit and x not in seen)


def test_next_year_is_recoded_alike(tmp_path):
    path = tmp_path / "recoding.csv"
    changed, merged = bnp.merge_levels(TABLE, {"age": 80})
    again, more = bnp.merge_levels(changed, rare=2, but=["age"])
    dropped = dict.fromkeys(["sex"])
    recoding = Recoding.of(TABLE.schema, merged).then(
        Recoding.of(changed.schema, {**more, **dropped})
    )
    np.testing.assert_array_equal(recoding.coarser(TABLE).codes, again.codes[:, :2])
    recoding.to_file(path)
    assert path.read_text() == (
        "variable,level,becomes\nage,3,3\nage,17,17\nage,>=80,80+\nage,80+,80+\nage,84,80+\n"
        "age,90,80+\njob,a,a\njob,other,other\njob,b,other\njob,c,other\nsex,,\n"
    )
    assert path.stat().st_mode & 0o077 == 0
    # Other numbers at the top, fewer levels, a label that is merged already.
    new = bnp.Microdata.from_frame(
        pd.DataFrame({"age": [17, 99, 80], "job": ["b", "other", "a"], "sex": list("xyz")})
    )
    made = Recoding.from_file(path, new.schema).coarser(new)
    assert made.schema.levels == (("3", "17", "80+"), ("a", "other"))
    assert made.codes.tolist() == [[1, 1], [2, 1], [2, 0]]
    # A variable that is dropped need not be there.
    less = bnp.Microdata.from_frame(new.to_frame()[["age", "job"]])
    assert Recoding.from_file(path, less.schema).schema == made.schema


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("agee,3,3", "row 0 (line 2), column 'variable': unknown variable 'agee'; the variables"),
        (",3,3", "row 0 (line 2), column 'variable': the cell is empty; name a variable"),
        ("sex,f,f\nsex,m,", "row 1 (line 3), column 'becomes': the cell is empty; name a level"),
        ("sex,,f", "row 0 (line 2), column 'level': the cell is empty; name a level"),
        ("sex,f,x\nsex,f,y", "row 1 (line 3), column 'level': level 'f' of 'sex' has two rows"),
        ("sex,,\nsex,f,x", "row 1 (line 3), column 'variable': 'sex' has a row that drops it"),
        ("sex,f,x\nsex,,", "row 1 (line 3), column 'variable': 'sex' has a row that drops it"),
        ("age,<50,x\nage,40 to <90,y",
         "row 1 (line 3), column 'level': '40 to <90' and '<50' of 'age' overlap"),
        ("age,<50,x\nage,>=90,y", "recoding.csv: level 84 of 'age' has no row; add a row"),
        ("sex,f,x", "recoding.csv: level 'm' of 'sex' has no row; add a row that says what"),
        ("age,,\njob,,\nsex,,", "recoding.csv: every variable is dropped; keep at least one"),
    ],
)  # fmt: skip
def test_errors_name_their_place(rows, says, tmp_path):
    path = tmp_path / "recoding.csv"
    path.write_text(f"variable,level,becomes\n{rows}\n")
    with pytest.raises(MicrodataError) as error:
        Recoding.from_file(path, TABLE.schema)
    assert says in str(error.value) and "recoding.csv" in str(error.value)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "recoding.csv"
    with pytest.raises(MicrodataError, match=r"recoding\.csv.*cannot be read"):
        Recoding.from_file(path, TABLE.schema)
    path.write_text("variable,level\nsex,f\n")
    with pytest.raises(MicrodataError, match=r"recoding\.csv.*'becomes': unknown column"):
        Recoding.from_file(path, TABLE.schema)
    path.write_text("variable,level,becomes\n")
    assert Recoding.from_file(path, TABLE.schema).schema == TABLE.schema
    with pytest.raises(MicrodataError, match="'x': unknown variable"):
        Recoding.of(TABLE.schema, {"x": None})


@pytest.mark.parametrize(
    ("levels", "groups", "names"),
    [
        (["0-14", "15-24", "25-64", "65+"], [[0, 1], [2, 3]], ["0 to 24", "25+"]),
        (["0-14", "15-24", "25-64", "65+"], [[0, 2], [1], [3]], ["0-14 + 25-64", "15-24", "65+"]),
        ([1, 2, 3], [[0], [1, 2]], [1, "2 to 3"]),
        (["a", "b", "c"], [[0, 1], [2]], ["a + b", "c"]),
        (["1", "2", "unknown"], [[0], [1, 2]], ["1", "2 + unknown"]),
        # A name that a level has is not given again.
        (["1", "2", "1 to 2"], [[0, 1], [2]], ["1 + 2", "1 to 2"]),
    ],
)
def test_names_of_merged_levels(levels, groups, names):
    assert level_names(levels, groups) == names
    named = level_names(levels, groups, {tuple(groups[0]): "named"})
    assert named[0] == ("named" if len(groups[0]) > 1 else levels[0])


def test_one_name_whoever_merges():
    """What-if, protection, rare levels, and the groups of a table."""
    from bnp_models.risk.coarsening import parse_coarsening
    from bnp_models.risk.recoding import Recoded

    frame = pd.DataFrame({"age": ["0-14"] + ["15-24"] + ["25+"] * 9, "job": list("abccccccccc")})
    table = bnp.Microdata.from_frame(frame)
    jobs = Hierarchy.of(pd.DataFrame({"level": list("abc"), "group": ["x", "x", "y"]}))
    groups = (("job", jobs),)
    asked = parse_coarsening("merge:age=0-14+15-24;merge:job=a+b", table.schema, groups)
    found = Recoded.unchanged(table, groups).merging(0, [0, 1]).merging(1, [0, 1])
    rare, _ = bnp.merge_levels(table, rare=2, groups=groups)
    for one in (asked, found.coarsening, rare):
        schema = one.schema
        assert set(map(text_of, schema.levels[0])) == {"0 to 24", "25+"}
        assert set(schema.levels[1]) == {"x", "c"}
    np.testing.assert_array_equal(in_bins(table, asked.changed).codes, asked.coarser(table).codes)


def test_a_group_may_have_the_name_of_a_level_of_another():
    from bnp_models.risk.coarsening import parse_coarsening

    jobs = Hierarchy.of(pd.DataFrame({"level": list("123"), "group": list("231")}))
    schema = bnp.Schema(("job",), (tuple("123"),))
    found = parse_coarsening("group:job", schema, (("job", jobs),))
    table = bnp.Microdata(schema, np.arange(3)[:, None])
    assert found.coarser(table).to_frame()["job"].tolist() == list("231")


def test_two_recodings_are_one():
    table = bnp.Microdata.from_frame(pd.DataFrame({"age": list("123456")}))
    first = Merged.together("age", list("123456"), [[0, 1], [2], [3], [4], [5]])
    new = Recoding.of(table.schema, {"age": first})
    last = Merged.together("age", new.schema.levels[0], [[1], [0, 3], [2], [4]])
    then = Recoding.of(new.schema, {"age": last})
    assert [first.then(last).find(label) for label in "123456"] == [1, 1, 0, 2, 1, 3]
    both = new.then(then)
    np.testing.assert_array_equal(both.coarser(table).codes, then.coarser(new.coarser(table)).codes)
    assert both.schema == then.schema
    assert both.coarser(table).codes[:, 0].tolist() == [1, 1, 0, 2, 1, 3]
