"""Persons within households: coding, the head at household level, frames and files."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.households import Households, read_households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def frame():
    """Two households, their rows mixed."""
    return pd.DataFrame(
        {
            "tenure": ["own", "rent", "own", "own", "rent"],
            "hid": [7, 3, 7, 7, 3],
            "persons": [3, 2, 3, 3, 2],
            "relate": ["head", "spouse", "child", "spouse", "head"],
            "age": [40, 30, np.nan, 38, 31],
            "sex": list("mffmf"),
        }
    )


def coded(frame, **options):
    return Households.from_frame(frame, "hid", ["tenure", "persons"], **options)


def random_frame(seed, num_households=40):
    """Households in shuffled rows, with a head each, text labels and missing values."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, num_households)
    n = sizes.sum()
    of_household = np.repeat(np.arange(num_households), sizes)
    relate = rng.choice(["spouse", "child", "other"], n).astype(object)
    relate[np.cumsum(sizes) - sizes] = "head"
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 90, n).astype(object),
            "size": np.minimum(sizes, 4).astype(str).astype(object)[of_household],
            "relate": relate,
            "hid": np.array([f"h{i}" for i in range(num_households)], dtype=object)[of_household],
            "tenure": rng.choice(["own", "rent"], num_households).astype(object)[of_household],
            "sex": rng.choice(["m", "f"], n).astype(object),
        }
    )
    frame["size"] = frame["size"].replace("4", "4+")
    for name in ("age", "sex"):
        frame.loc[rng.random(n) < 0.1, name] = None
    return frame.iloc[rng.permutation(n)].reset_index(drop=True)


def test_codes(frame):
    table = coded(frame)
    schema = table.schema
    assert schema.household_variables == ("tenure",) == table.household_variables
    assert schema.member_variables == ("relate", "age", "sex") == table.member_variables
    assert schema.size_variable == "persons"
    assert (schema.num_household_levels, schema.num_member_levels) == ((2,), (3, 4, 2))
    assert (table.n, table.num_persons, table.num_members) == (2, 5, 5)
    np.testing.assert_array_equal(table.ids, [7, 3])
    np.testing.assert_array_equal(table.sizes, [3, 2])
    np.testing.assert_array_equal(table.household_codes, [[0], [1]])
    np.testing.assert_array_equal(
        table.member_codes, [[1, 3, 1], [0, -1, 0], [2, 2, 1], [2, 0, 0], [1, 1, 0]]
    )
    np.testing.assert_array_equal(table.member_household, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(table.rows, [0, 2, 3, 1, 4])
    np.testing.assert_array_equal(table.incomplete, [True, False])
    for array in (table.household_codes, table.sizes, table.member_codes, table.member_household):
        assert array.dtype == np.int32 and not array.flags.writeable


def test_codes_with_the_head_at_household_level(frame):
    table = coded(frame, head=("relate", "head"))
    schema = table.schema
    assert schema.household_variables == ("tenure", "head_age", "head_sex")
    assert schema.household_levels[1:] == ((30, 31, 38, 40), ("f", "m"))
    assert schema.member_variables == ("relate", "age", "sex")
    assert schema.member_levels[0] == ("child", "spouse")
    assert (table.n, table.num_persons, table.num_members) == (2, 5, 3)
    np.testing.assert_array_equal(table.household_codes, [[0, 3, 1], [1, 1, 0]])
    np.testing.assert_array_equal(table.member_codes, [[0, -1, 0], [1, 2, 1], [1, 0, 0]])
    np.testing.assert_array_equal(table.sizes, [3, 2])
    np.testing.assert_array_equal(table.member_household, [0, 0, 1])


@pytest.mark.parametrize("head", [None, ("relate", "head")])
@pytest.mark.parametrize("seed", range(3))
def test_the_frame_comes_back(head, seed):
    frame = random_frame(seed)
    table = Households.from_frame(frame, "hid", ["tenure", "size"], head=head)
    assert table.schema.size_variable == "size"
    pd.testing.assert_frame_equal(table.to_frame(), frame.infer_objects(), check_dtype=False)
    # Households chosen are those of the frame.
    chosen = table.select(np.array([5, 2, 30]))
    kept = frame[frame["hid"].isin(table.ids[[5, 2, 30]])].reset_index(drop=True)
    pd.testing.assert_frame_equal(chosen.to_frame(), kept.infer_objects(), check_dtype=False)
    assert [table.first_row(i) for i in range(table.n)] == [
        int(np.argmax(frame["hid"] == name)) for name in table.ids
    ]


@pytest.mark.parametrize("head", [None, ("relate", "head")])
def test_new_households_get_the_columns_and_labels(head):
    frame = random_frame(3).dropna().reset_index(drop=True)
    whole = frame.groupby("hid")["relate"].transform(lambda roles: (roles == "head").sum() == 1)
    frame = frame[whole].reset_index(drop=True)
    frame["size"] = "4+"
    table = Households.from_frame(
        frame, "hid", ["tenure", "size"], levels={"size": ["1", "2", "3", "4+"]}, head=head
    )
    schema = table.schema
    assert schema.size_variable is None
    rng = np.random.default_rng(0)
    sizes = np.array([1, 5, 2])
    new = Households(
        schema,
        rng.integers(0, schema.num_household_levels, (3, len(schema.num_household_levels))),
        sizes,
        rng.integers(
            0, schema.num_member_levels, (8 - 3 * schema.num_heads, len(schema.num_member_levels))
        ),
    )
    made = new.to_frame()
    assert list(made.columns) == list(frame.columns)
    assert made["hid"].tolist() == [1, 2, 2, 2, 2, 2, 3, 3]
    if head is not None:
        assert (made["relate"] == "head").groupby(made["hid"]).sum().tolist() == [1, 1, 1]
    again = Households.from_frame(made, "hid", ["tenure", "size"], levels=schema.table, head=head)
    np.testing.assert_array_equal(again.member_codes, new.member_codes)
    np.testing.assert_array_equal(again.household_codes, new.household_codes)


def test_the_size_of_new_households_is_written_in_its_column(frame):
    schema = coded(frame, levels={"persons": [1, 2, 3]}).schema
    new = Households(schema, np.array([[0], [1]]), np.array([1, 2]), np.zeros((3, 3), dtype=int))
    assert new.to_frame()["persons"].tolist() == [1, 2, 2]
    five = Households(schema, np.array([[0]]), np.array([5]), np.zeros((5, 3), dtype=int))
    with pytest.raises(MicrodataError, match="'persons': .* but no level stands for .* 5 persons"):
        five.to_frame()


def test_a_variable_that_differs_from_the_size_is_none(frame):
    frame.loc[frame["hid"] == 3, "persons"] = 3
    assert coded(frame).schema.size_variable is None
    assert coded(frame).household_variables == ("tenure", "persons")


@pytest.mark.parametrize("head", [None, ("relate", "head")])
def test_blocks_of_one_size(head):
    table = Households.from_frame(random_frame(5), "hid", ["tenure", "size"], head=head)
    blocks = table.size_blocks
    assert [block.size for block in blocks] == sorted(set(table.sizes))
    np.testing.assert_array_equal(
        np.sort(np.concatenate([block.households for block in blocks])), np.arange(table.n)
    )
    for block in blocks:
        assert block.member_codes.shape[1] == block.size - table.schema.num_heads
        for i, members in zip(block.households, block.member_codes, strict=True):
            np.testing.assert_array_equal(members, table.member_codes[table.member_household == i])


def test_columns_and_levels_are_chosen(frame):
    table = Households.from_frame(
        frame, "hid", ["tenure"], variables=["sex", "tenure"], levels={"sex": ["m", "f", "x"]}
    )
    assert table.schema.table == Schema(("sex", "tenure"), (("m", "f", "x"), ("own", "rent")))
    assert list(table.to_frame().columns) == ["hid", "sex", "tenure"]
    everyone = Households.from_frame(frame[["hid", "sex"]], "hid")
    assert everyone.household_codes.shape == (2, 0)
    hash(table.schema)


MISTAKES = [
    ({"household": "id"}, "column 'id': unknown column"),
    ({"household_variables": ["tenur"]}, "column 'tenur': unknown column"),
    ({"household_variables": "tenure"}, "give a list of names"),
    ({"household_variables": ["tenure", "tenure"]}, "'tenure': the variable is listed twice"),
    ({"household_variables": ["hid"]}, "identifier cannot be a household variable"),
    (
        {"household_variables": ["tenure", "sex"]},
        "row 2, column 'sex': value 'f' but 'm' in row 0 of the same household, 7; make them",
    ),
    ({"household_variables": ["age"]}, "row 2, column 'age': value missing but 40 in row 0"),
    ({"variables": ["age"], "household_variables": ["tenure"]}, "not among the variables chosen"),
    (
        {"variables": ["tenure"], "household_variables": ["tenure"]},
        "every variable is a household variable",
    ),
    ({"head": ("relate", "chief")}, "column 'relate': value 'chief' is not a declared level"),
    ({"head": ("role", "head")}, "column 'role': unknown person variable"),
    (
        {"head": ("relate", "child")},
        r"row 1, column 'relate': household 3 has no person with the value 'child' \(1 of 2 ",
    ),
    ({"head": ("sex", "f")}, r"row 1, column 'sex': household 3 has 2 persons with the value 'f'"),
    ({"levels": {"sex": ["m"]}}, "row 1, column 'sex': value 'f' is not a declared level"),
]


@pytest.mark.parametrize(("options", "part"), MISTAKES)
def test_mistakes_are_named(frame, options, part):
    with pytest.raises(MicrodataError, match=part):
        Households.from_frame(frame, **{"household": "hid"} | options)


def test_identifiers_are_never_missing(frame):
    frame["hid"] = frame["hid"].astype(object)
    frame.loc[3, "hid"] = None
    with pytest.raises(MicrodataError, match="row 3, column 'hid': the household identifier is m"):
        coded(frame)
    frame["hid"] = 1
    with pytest.raises(MicrodataError, match="'hid': all persons are of one household"):
        Households.from_frame(frame, "hid")


def test_a_name_that_the_head_needs(frame):
    with pytest.raises(
        MicrodataError, match="'head_age': this name is needed for the 'age' of the head"
    ):
        coded(frame.assign(head_age=1), head=("relate", "head"))


def test_everyone_is_a_head():
    frame = pd.DataFrame({"hid": [1, 2], "relate": ["head", "head"], "age": [30, 40]})
    with pytest.raises(MicrodataError, match="everyone is 'head'"):
        Households.from_frame(frame, "hid", head=("relate", "head"))
    table = Households.from_frame(
        frame, "hid", head=("relate", "head"), levels={"relate": ["head", "child"]}
    )
    assert table.num_members == 0
    pd.testing.assert_frame_equal(table.to_frame(), frame)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"household_codes": np.zeros((2, 2), int)}, r"shape \(2, 2\); expected \(2, 1\)"),
        ({"household_codes": np.array([[0], [2]])}, r"'tenure': code 2 \(index 1\)"),
        ({"member_codes": np.zeros((4, 3), int)}, r"expected \(5, 3\)"),
        ({"member_codes": np.zeros((5, 3))}, "dtype float64; expected integers"),
        ({"sizes": np.array([0, 5])}, "each at least 1"),
        ({"ids": np.array([1])}, "ids or rows do not fit"),
    ],
)
def test_arrays_are_checked(frame, change, part):
    table = coded(frame)
    fields = {
        name: getattr(table, name)
        for name in ("schema", "household_codes", "sizes", "member_codes", "ids", "rows")
    }
    with pytest.raises(MicrodataError, match=part):
        Households(**fields | change)


def test_complete_households_are_required(frame):
    table = coded(frame)
    with pytest.raises(MicrodataError, match=r"row 0: household 7 has a missing value \(1 of 2 "):
        table.require_complete("this")
    table.select(np.array([False, True])).require_complete("this")


def test_files(frame, tmp_path):
    frame.to_csv(tmp_path / "persons.csv", index=False)
    table = read_households(
        tmp_path / "persons.csv", "hid", ["tenure", "persons"], head=("relate", "head")
    )
    np.testing.assert_array_equal(table.ids, ["7", "3"])
    assert table.household_variables == ("tenure", "head_age", "head_sex")
    back = table.to_frame()
    assert back["sex"].tolist() == frame["sex"].tolist()
    frame.to_parquet(tmp_path / "persons.parquet")
    table = read_households(tmp_path / "persons.parquet", "hid", ["tenure"], ["sex", "tenure"])
    assert table.schema.table.variables == ("sex", "tenure")

    (tmp_path / "levels.csv").write_text("variable,level\nsex,m\nsex,f\nsex,x\n")
    table = read_households(tmp_path / "persons.csv", "hid", levels=tmp_path / "levels.csv")
    assert table.schema.labels("sex") == ("m", "f", "x")


def test_errors_name_file_and_line(frame, tmp_path):
    path = tmp_path / "persons.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(MicrodataError, match=r"persons.csv, row 2 \(line 4\), column 'sex'"):
        read_households(path, "hid", ["sex"])
    with pytest.raises(MicrodataError, match=r"persons.csv, column 'id': unknown column"):
        read_households(path, "id")
    with pytest.raises(MicrodataError, match=r"absent.csv: cannot be read"):
        read_households(tmp_path / "absent.csv", "hid")


def test_the_same_households_with_other_codes_or_a_head():
    frame = pd.DataFrame({
        "hid": [2, 1, 2, 1, 2], "role": ["c", "h", "h", "c", "c"], "age": [3, 40, 50, 7, 9],
        "tenure": ["own", "rent", "own", "rent", "own"],
    })  # fmt: skip
    table = Households.from_frame(frame, "hid", ["tenure"])
    headed = Households.from_frame(frame, "hid", ["tenure"], head=("role", "h"))
    made = table.with_persons(table.persons, ("role", "h"))
    assert made.schema == headed.schema and made.digest == headed.digest
    pd.testing.assert_frame_equal(made.to_frame(), frame)
    older = table.persons.to_frame().assign(age=[1, 2, 2, 1, 1])
    changed = headed.with_persons(Microdata.from_frame(older), ("role", "h"))
    assert changed.to_frame()["age"].tolist() == [1, 2, 2, 1, 1]
    assert changed.to_frame()["hid"].tolist() == frame["hid"].tolist()
    with pytest.raises(MicrodataError, match="has 2 persons with the value 'c'"):
        table.with_persons(table.persons, ("role", "c"))
