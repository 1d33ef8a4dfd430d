"""Tables of groups of levels: read, checked, and the trees that they make."""

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.hierarchies import Hierarchy, as_hierarchies

CODES = pd.DataFrame({
    "level": ["111", "112", "121", "211", "212", "999"],
    "group": ["11", "11", "12", "21", "21", "99"],
    "larger": ["1", "1", "1", "2", "2", "9"],
})  # fmt: skip


def test_a_frame_and_its_file_are_one_hierarchy(tmp_path):
    header = "level,group,group\n"
    rows = "".join(",".join(row) + "\n" for row in CODES.to_numpy())
    (tmp_path / "codes.csv").write_text(header + rows)
    read, made = Hierarchy.of(tmp_path / "codes.csv"), Hierarchy.of(CODES)
    assert read == made and hash(read) == hash(made) and repr(read) == repr(made)
    assert as_hierarchies({"job": CODES}) == as_hierarchies([("job", tmp_path / "codes.csv")])
    # What tells two models apart in checkpoints.
    assert repr(made) != repr(Hierarchy.of(CODES.replace("12", "13")))


def test_a_file_as_people_have_it(tmp_path):
    """A first line for Excel, and row names."""
    made = Hierarchy.of(CODES)
    rows = [
        ";".join(["", *CODES.columns]),
        *(";".join(map(str, row)) for row in CODES.itertuples()),
    ]
    (tmp_path / "codes.csv").write_text("\n".join(["sep=;", *rows]))
    assert Hierarchy.of(tmp_path / "codes.csv") == made


def test_trees_have_the_levels_of_the_variable_only():
    hierarchy = Hierarchy.of(CODES)
    # Codes are numbers in some files; the group of 999 is not needed.
    labels = (111, 112, 121, 211, 212)
    assert hierarchy.tree(labels) == ((0, 0, 1, 2, 2), (0, 0, 1))
    # Layers of one group, or of groups of one level each, say nothing.
    assert hierarchy.tree(("111", "112", "121")) == ((0, 0, 1),)
    assert hierarchy.tree(("111", "211")) == () and hierarchy.tree(("111",)) == ()
    assert hierarchy.tree(("111", "121", "211")) == ((0, 0, 1),)
    assert hierarchy.groups_of(("211", "112"), 2) == ["2", "1"]


def test_merged_levels_keep_their_larger_groups():
    found = Hierarchy.of(CODES).merged(
        ["11", "121", "mixed"], [["111", "112"], ["121"], ["211", "999"]]
    )
    assert found.rows == (
        ("11", "11", "1"), ("121", "12", "1"), ("mixed", "mixed (merged)", "mixed (merged)"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("level,group\n1,a\n1,b\n", r"codes.csv, row 1 \(line 3\): level '1' has two rows"),
        ("level,group,g\n1,a,x\n2,a,y\n", r"line 3\): group 'a' lies in 'x' and in 'y'"),
        ("level,group\n1,\n", r"row 0 \(line 2\), column 'group': the cell is empty"),
        ("level\n1\n", "has no column of groups"),
        ("code,group\n1,a\n", "the header begins with 'code'"),
        ("level,group\n", "has no level"),
        ("level,group\n1,a,b\n", "3 cells but the header has 2"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, says):
    (tmp_path / "codes.csv").write_text(text)
    with pytest.raises(bnp.MicrodataError, match=says):
        Hierarchy.of(tmp_path / "codes.csv")


def test_groups_of_a_model_fit_its_sample():
    frame = pd.DataFrame({"job": ["111", "112", "211"], "age": ["1", "2", "3"]})
    table = bnp.Microdata.from_frame(frame)
    bnp.NPLCM(groups={"job": CODES}).check(table)
    bnp.HDPMixedMembership(groups={"job": CODES}, ordered="age").check(table)
    with pytest.raises(bnp.MicrodataError, match="'work': cannot have groups, only job, age can"):
        bnp.NPLCM(groups={"work": CODES}).check(table)
    with pytest.raises(bnp.MicrodataError, match="'job': level '111' has no row"):
        bnp.MixedMembership(groups={"job": CODES[1:]}).check(table)
    with pytest.raises(ValueError, match="groups of 'job' and ordered are both given"):
        bnp.NPLCM(groups={"job": CODES}, ordered="job")
    with pytest.raises(bnp.MicrodataError, match="'job': has two tables of groups"):
        as_hierarchies([("job", CODES), ("job", CODES)])


def test_groups_of_household_variables():
    persons = pd.DataFrame({
        "hid": [1, 1, 2], "home": ["111", "111", "121"], "job": ["111", "112", "211"],
    })  # fmt: skip
    table = bnp.Households.from_frame(persons, "hid", ["home"])
    bnp.NDPMPM(groups={"home": CODES, "job": CODES}).check(table)
    with pytest.raises(bnp.MicrodataError, match="'work': cannot have groups, only home, job can"):
        bnp.NDPMPM(groups={"work": CODES}).check(table)
