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
    levels = bnp.read_levels(source)
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
    bnp.write_frame(table.to_frame(), out, bnp.read_labelling(path))
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
    bnp.write_frame(frame, tmp_path / f"a.{kind}")
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
    for name, kind in (("a b", "sav"), ("1a", "dta"), ("a.b", "dta"), ("_a", "sav"),
                       ("x" * 33, "dta")):  # fmt: skip
        with pytest.raises(bnp.FormatError, match="cannot have a column of this name"):
            bnp.write_frame(pd.DataFrame({name: [1]}), tmp_path / f"a.{kind}")
    assert not list(tmp_path.glob("*a.*"))
    imported = builtins.__import__

    def without(name, *rest, **more):
        if name == "pyreadstat":
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(bnp.MicrodataError, match="pip install pyreadstat"):
        bnp.read_microdata(folder / "survey.sav")
    with pytest.raises(bnp.FormatError, match="pip install pyreadstat"):
        bnp.write_frame(twice, tmp_path / "a.dta")


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
    bnp.write_frame(complete, made, labelling)
    for original in (folder / "survey.sav", tmp_path / "sample.csv"):
        code = main(["evaluate", str(original), str(made), "--quiet", "--force",
                     "--out", str(tmp_path / "out")])  # fmt: skip
        assert code == 0
        found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert found["levels"] == [2, 2, 4, 2, 2]


def test_names_that_the_format_cannot_hold_are_refused_first(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("x y,z\n1,2\n3,4\n")
    out = tmp_path / "out"
    for kind in ("dta", "sav"):
        code = main(["synthesize", str(tmp_path / "a.csv"), "--format", kind, "--out", str(out)])
        assert code == 2
        assert f"--format {kind}: column 'x y': a .{kind} file cannot" in one_line(capsys)
    assert not out.exists()


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_text_values_that_look_like_integers_stay_text(tmp_path, kind):
    source, made = tmp_path / "a.sav", tmp_path / f"b.{kind}"
    frame = pd.DataFrame({"region": ["1", "2", "1"]})
    pyreadstat.write_sav(frame, source, variable_value_labels={"region": {"1": "N", "2": "S"}})
    bnp.write_frame(bnp.read_microdata(source).to_frame(), made, read_labelling(source))
    read = pyreadstat.read_sav if kind == "sav" else pyreadstat.read_dta
    assert read(str(made))[0]["region"].tolist() == ["1", "2", "1"]


def test_files_that_are_written_can_be_read(tmp_path):
    frame = pd.DataFrame({"x": ["a", "b"]})
    bnp.write_frame(frame, tmp_path / "a.pq")
    pd.testing.assert_frame_equal(bnp.read_microdata(tmp_path / "a.pq").to_frame(), frame)
    with pytest.raises(bnp.FormatError, match="name the file .sav"):
        bnp.write_frame(frame, tmp_path / "a.zsav")
