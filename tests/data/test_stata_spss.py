"""Stata and SPSS files: labels there and back, and what is missing."""

import builtins
import json

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from commands import one_line

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.data.stata_spss import Labelling, read_labelling

LABELS = {
    "sex": {2: "Female", 1: "Male", 9: "Refused"},
    "work": {1: "yes", 2: "no, retired", 3: "no"},
    "region": {"a": "North", "b": "South"},
}
TITLES = {"sex": "Sex of the person", "rooms": "Number of rooms"}


def survey(rows=60):
    """Codes: sex with a refusal, rooms without labels, a text variable with and one without."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "sex": rng.choice([1.0, 2.0, 9.0], rows, p=[0.5, 0.45, 0.05]),
        "work": rng.choice([3, 1], rows),
        "rooms": rng.integers(1, 5, rows),
        "region": rng.choice(["a", "b"], rows),
        "tenure": rng.choice(["01", "ü, other"], rows),
    })  # fmt: skip
    frame.loc[7, "sex"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, frame = tmp_path_factory.mktemp("formats"), survey()
    pyreadstat.write_sav(frame, folder / "survey.sav", column_labels=TITLES,
                         variable_value_labels=LABELS, missing_ranges={"sex": [9]})  # fmt: skip
    stata = frame.assign(sex=frame["sex"].astype(object).replace(9.0, "r"))
    labels = {"sex": {1: "Male", 2: "Female", "r": "Refused"}, "work": LABELS["work"]}
    pyreadstat.write_dta(stata, folder / "survey.dta", version=14, column_labels=TITLES,
                         variable_value_labels=labels,
                         missing_user_values={"sex": ["r"]})  # fmt: skip
    return folder


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_labels_are_read_in_the_order_of_their_values(folder, kind):
    table = bnp.read_microdata(folder / f"survey.{kind}")
    frame = survey()
    region = ("North", "South") if kind == "sav" else ("a", "b")
    assert table.schema.variables == ("sex", "work", "rooms", "region", "tenure")
    assert table.schema.levels == (
        ("Male", "Female"), ("yes", "no"), (1, 2, 3, 4), region, ("01", "ü, other"),
    )  # fmt: skip
    refused = (frame["sex"] == 9) | frame["sex"].isna()
    assert refused.sum() > 1
    np.testing.assert_array_equal(table.codes[:, 0] < 0, refused)
    np.testing.assert_array_equal(table.codes[~refused, 0], frame["sex"][~refused] - 1)
    chosen = bnp.read_microdata(folder / f"survey.{kind}", ["rooms", "sex"])
    np.testing.assert_array_equal(chosen.codes, table.codes[:, [2, 0]])


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_the_value_labels_are_a_code_book(folder, kind):
    source = folder / f"survey.{kind}"
    levels = bnp.io.read_levels(source)
    assert levels["sex"] == ("Male", "Female")
    assert levels["work"] == ("yes", "no, retired", "no")
    table = bnp.read_microdata(source, ["sex", "work"], source)
    assert table.schema.levels == (("Male", "Female"), ("yes", "no, retired", "no"))


@pytest.mark.parametrize("source", ["sav", "dta"])
@pytest.mark.parametrize("target", ["sav", "dta"])
def test_a_round_trip(folder, tmp_path, source, target):
    path = folder / f"survey.{source}"
    table = bnp.read_microdata(path)
    out = tmp_path / f"again.{target}"
    bnp.io.write_frame(table.to_frame(), out, bnp.io.read_labelling(path))
    assert [made.name for made in tmp_path.iterdir()] == [out.name]
    again = bnp.read_microdata(out)
    if (source, target) == ("sav", "dta"):
        # Stata has no labels for text: the values are there.
        recoded = table.to_frame().replace({"region": {"North": "a", "South": "b"}})
        table = bnp.Microdata.from_frame(recoded, levels={"sex": ["Male", "Female"],
                                                          "work": ["yes", "no"]})  # fmt: skip
    assert again.schema == table.schema
    np.testing.assert_array_equal(again.codes, table.codes)
    read = pyreadstat.read_sav if target == "sav" else pyreadstat.read_dta
    frame, metadata = read(str(out))
    np.testing.assert_array_equal(frame["work"], survey()["work"])
    assert metadata.column_names_to_labels["sex"] == "Sex of the person"
    labels = {int(v): t for v, t in metadata.variable_value_labels["work"].items()}
    assert labels == LABELS["work"]
    if source == target == "sav":
        kept = read_labelling(out)
        assert kept == read_labelling(path) and kept.missing["sex"][0]["lo"] == 9


@pytest.mark.parametrize("kind", ["sav", "dta", "parquet"])
def test_files_of_plain_labels(tmp_path, kind):
    frame = pd.DataFrame({"x": ["1", "10", "2"], "y": ["01", "2", "3"], "z": ["a", None, "b"]})
    bnp.io.write_frame(frame, tmp_path / f"a.{kind}")
    table = bnp.read_microdata(tmp_path / f"a.{kind}")
    texts = tuple(tuple(map(str, labels)) for labels in table.schema.levels)
    assert texts == (("1", "2", "10"), ("01", "2", "3"), ("a", "b"))
    assert table.codes[:, 2].tolist() == [0, -1, 1]


def test_what_cannot_be_read_or_written(folder, tmp_path, monkeypatch):
    (tmp_path / "broken.sav").write_text("x,y\n1,2\n")
    with pytest.raises(bnp.MicrodataError, match=r"broken.sav: is not an SPSS file"):
        bnp.read_microdata(tmp_path / "broken.sav")
    with pytest.raises(bnp.MicrodataError, match=r"none.dta: cannot be read \(No such file"):
        bnp.read_microdata(tmp_path / "none.dta")
    with pytest.raises(bnp.MicrodataError, match="survey.sav, column 'other': unknown column"):
        bnp.read_microdata(folder / "survey.sav", ["other"])
    twice = pd.DataFrame({"x": [1, 2, 3]})
    pyreadstat.write_sav(twice, tmp_path / "twice.sav",
                         variable_value_labels={"x": {1: "one", 2: "one"}})  # fmt: skip
    with pytest.raises(bnp.MicrodataError, match="column 'x': values 1 and 2 are both labelled"):
        bnp.read_microdata(tmp_path / "twice.sav")
    for name, kind in (("x" * 81, "dta"), ("é" * 129, "sav")):
        with pytest.raises(
            bnp.io.FormatError, match="both as the name of a column and as its label"
        ):
            bnp.io.write_frame(pd.DataFrame({name: [1]}), tmp_path / f"a.{kind}")
    assert not list(tmp_path.glob("*a.*"))
    imported = builtins.__import__

    def without(name, *rest, **more):
        if name == "pyreadstat":
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(bnp.MicrodataError, match="pip install pyreadstat"):
        bnp.read_microdata(folder / "survey.sav")
    with pytest.raises(bnp.io.FormatError, match="pip install pyreadstat"):
        bnp.io.write_frame(twice, tmp_path / "a.dta")


def test_missing_ranges():
    labelling = Labelling(
        values={"x": {1: "a", 7: "b", 8: "c", "z": "d"}, "y": {"p": "P", "q": "Q"}},
        missing={"x": ({"lo": 7, "hi": 9},), "y": ({"lo": "q", "hi": "q"},)},
    )
    assert labelling.substantive("x") == {1: "a"} and labelling.substantive("y") == {"p": "P"}
    assert labelling.substantive("z") == {}


def test_evaluation_across_formats(folder, tmp_path):
    sample = bnp.read_microdata(folder / "survey.sav")
    sample.to_frame().to_csv(tmp_path / "sample.csv", index=False)
    complete = bnp.Microdata(sample.schema, np.maximum(sample.codes, 0)).to_frame()
    made, labelling = tmp_path / "synthetic_1.sav", read_labelling(folder / "survey.sav")
    bnp.io.write_frame(complete, made, labelling)
    for original in (folder / "survey.sav", tmp_path / "sample.csv"):
        code = main(["evaluate", str(original), str(made), "--quiet", "--force",
                     "--out", str(tmp_path / "out")])  # fmt: skip
        assert code == 0
        found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert found["levels"] == [2, 2, 4, 2, 2]


def test_names_that_no_label_can_hold_are_refused_first(tmp_path, capsys):
    sample, out, name = tmp_path / "a.csv", tmp_path / "out", "x y" * 90
    sample.write_text(f"{name},y,z\n1,2,3\n1,2,3\n1,2,4\n1,2,4\n")
    carried = ["--variables", "y,z", "--keep", "z", "--carry", name]
    for kind, more in (("dta", carried), ("sav", [])):
        assert main(["synthesize", str(sample), "--format", kind, "--out", str(out), *more]) == 2
        said = one_line(capsys)
        where = f"--format {kind}: column '{name}': "
        assert f"{where}this name is too long for a .{kind} file" in said and "shorten it" in said
    assert not out.exists()


# Names of columns, and those in the file.
RENAMED = {
    "dta": {
        "age in years": "age_in_years_2", "age_in_years": "age_in_years", "sex?": "sex_2",
        "sex": "sex", "int": "v_int", "str12": "v_str12", "_N": "N", "in!": "v_in", "If": "If",
        "1st": "v_1st", "a.b": "a_b", "größe": "größe", "ü" * 32: "ü" * 32,
        "x" * 33: "x" * 32, "x" * 80: "x" * 30 + "_2", "age": "age", "Age": "Age", "?": "v_",
    },
    "sav": {
        "age in years": "age_in_years", "by": "v_by", "Not": "v_Not", "int": "int", "a.b": "a.b",
        "_a": "a", "@b": "v_@b", "age": "age", "Age": "Age_2", "AGE!": "AGE_3", "größe": "größe",
        "ü" * 32: "ü" * 32, "ü" * 33: "ü" * 31 + "_2", "x" * 256: "x" * 64,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_names_that_the_format_cannot_have_become_labels(tmp_path, kind):
    expected, path = RENAMED[kind], tmp_path / f"a.{kind}"
    frame = pd.DataFrame({name: [f"{j}", "x"] for j, name in enumerate(expected)})
    described = Labelling(variables=dict.fromkeys(frame, "What was asked"))
    bnp.io.write_frame(frame, path, described)
    read = pyreadstat.read_sav if kind == "sav" else pyreadstat.read_dta
    made, metadata = read(str(path))
    assert list(made) == list(expected.values())
    assert metadata.column_names_to_labels == {
        own: "What was asked" if own == name else name for name, own in expected.items()
    }
    # By the names that they had, or have, in any order.
    backwards = list(frame)[::-1]
    pd.testing.assert_frame_equal(bnp.io.read_frame(path, backwards)[0], frame[backwards])
    assert bnp.read_microdata(path).schema.variables == tuple(expected.values())
    levels = {name: ["x", frame[name][0]] for name in frame}
    table = bnp.read_microdata(path, list(frame), levels)
    assert bnp.io.read_like(path, table).schema == table.schema
    assert bnp.read_microdata(path, "age in years").schema.variables == ("age in years",)


def test_columns_are_found_by_labels_that_their_names_come_from_only(tmp_path):
    frame = pd.DataFrame({"age_in_years": [1, 2], "v7": [3, 4], "a_b": [5, 6], "a_b_2": [7, 8]})
    titles = {"age_in_years": "age in years", "v7": "sex?", "a_b": "a b", "a_b_2": "a b"}
    pyreadstat.write_dta(frame, tmp_path / "a.dta", version=14, column_labels=titles)
    read = bnp.read_microdata(tmp_path / "a.dta")
    assert read.schema.variables == tuple(frame)
    assert bnp.read_microdata(tmp_path / "a.dta", ["age_in_years"]).codes.tolist() == [[0], [1]]
    for name, said in (("sex?", "unknown column"), ("a b", "occurs twice")):
        with pytest.raises(bnp.MicrodataError, match=said):
            bnp.read_microdata(tmp_path / "a.dta", [name])


def test_value_labels_and_households_of_renamed_columns(tmp_path):
    path, values = tmp_path / "a.dta", {"the sex": {1: "Male", 2: "Female"}}
    frame = pd.DataFrame({
        "the household": ["a", "a", "b", "c"], "the sex": ["Female", "Male", "Male", "Female"],
        "its rooms": [2, 2, 3, 2],
    })  # fmt: skip
    bnp.io.write_frame(frame, path, Labelling(values=values))
    assert pyreadstat.read_dta(str(path))[0]["the_sex"].tolist() == [2, 1, 1, 2]
    assert bnp.io.read_levels(path, list(frame)) == {"the sex": ("Male", "Female")}
    assert bnp.io.read_labelling(path, ["the sex"]).values == values
    named = ("the household", ["its rooms"])
    households = bnp.read_households(path, *named, ["the sex", "its rooms"], path)
    original = bnp.Households.from_frame(
        frame, *named, list(frame), {"the sex": ["Male", "Female"]}
    )
    assert bnp.io.read_like(path, original).schema == original.schema
    assert households.persons.schema.levels == (("Male", "Female"), (2, 3))


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_text_values_that_look_like_integers_stay_text(tmp_path, kind):
    source, made = tmp_path / "a.sav", tmp_path / f"b.{kind}"
    frame = pd.DataFrame({"region": ["1", "2", "1"]})
    pyreadstat.write_sav(frame, source, variable_value_labels={"region": {"1": "N", "2": "S"}})
    bnp.io.write_frame(bnp.read_microdata(source).to_frame(), made, read_labelling(source))
    read = pyreadstat.read_sav if kind == "sav" else pyreadstat.read_dta
    assert read(str(made))[0]["region"].tolist() == ["1", "2", "1"]


@pytest.mark.parametrize("kind", ["sav", "dta"])
@pytest.mark.parametrize("values", [[0.5, 2.0, 0.5], [3.0, 2.0, np.nan], [3, 2, 3]])
def test_numbers_stay_numbers(tmp_path, kind, values):
    bnp.io.write_frame(pd.DataFrame({"x": values}), tmp_path / f"a.{kind}")
    read = pyreadstat.read_sav if kind == "sav" else pyreadstat.read_dta
    np.testing.assert_array_equal(read(str(tmp_path / f"a.{kind}"))[0]["x"], values)


def test_files_that_are_written_can_be_read(tmp_path):
    frame = pd.DataFrame({"x": ["a", "b"]})
    bnp.io.write_frame(frame, tmp_path / "a.pq")
    pd.testing.assert_frame_equal(bnp.read_microdata(tmp_path / "a.pq").to_frame(), frame)
    with pytest.raises(bnp.io.FormatError, match="name the file .sav"):
        bnp.io.write_frame(frame, tmp_path / "a.zsav")


def test_a_file_with_another_number_of_records(tmp_path):
    path = tmp_path / "s.dta"
    bnp.io.write_frame(pd.DataFrame({"a": ["x", "y", "x"]}), path)
    # Reading it ends in an IndexError.
    path.write_bytes(path.read_bytes().replace(b"<N>\x03\0\0\0\0", b"<N>\x03\0\0\0\1"))
    with pytest.raises(bnp.MicrodataError, match="s.dta: is not a Stata file"):
        bnp.read_microdata(path)
