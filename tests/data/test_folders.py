"""Folders of Parquet files: read in batches into cells with counts, and written."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data import contingency, folders
from bnp_models.data.microdata import k_anonymity
from bnp_models.data.reading import read_microdata
from bnp_models.data.schema import MicrodataError


def write_parts(frame, folder, ends):
    """The records of a frame in files, one from each end to the next."""
    (folder / "more").mkdir(parents=True)
    for number, (start, stop) in enumerate(zip((0, *ends), (*ends, len(frame)), strict=True)):
        place = folder / ("more" if number else ".") / f"{number}.parquet"
        frame.iloc[start:stop].to_parquet(place, index=False)
    return folder


@pytest.fixture
def frame():
    """Records of text, numbers with missing ones, and a categorical with a level to spare."""
    rng = np.random.default_rng(3)
    number = pd.array(rng.choice([10, 2, 3], 300), "Int64")
    number[rng.random(300) < 0.1] = pd.NA
    return pd.DataFrame({
        "text": rng.choice(["b", "a", "c d"], 300),
        "number": number,
        "kind": pd.Categorical(rng.choice(["z", "y"], 300), ["z", "x", "y"]),
    })  # fmt: skip


@pytest.mark.parametrize("held", [2**20, 3])
def test_a_folder_is_the_records_of_its_files(frame, tmp_path, monkeypatch, held):
    """The same schema, cells, counts and first rows as of all records at once, however read."""
    monkeypatch.setattr(folders, "_BATCH", 17)
    monkeypatch.setattr(contingency, "LEAST_HELD", held)
    folder = write_parts(frame, tmp_path / "parts", (40, 41, 200))
    expected = bnp.Microdata.from_frame(frame)
    table = bnp.read_contingency_table(folder)
    assert table.schema == expected.schema
    assert (table.n, table.num_variables, table.has_missing) == (300, 3, True)
    for name in ("codes", "counts", "first_rows"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected.tabulated, name))
    np.testing.assert_array_equal(table.codes, expected.codes[table.first_rows])
    assert table.digest == expected.tabulated.digest
    records = read_microdata(folder)
    assert records.schema == expected.schema
    np.testing.assert_array_equal(records.codes, expected.codes)
    chosen = bnp.read_contingency_table(folder, ["kind"], {"kind": ["y", "w", "z"]})
    assert chosen.schema.levels == (("y", "w", "z"),) and chosen.counts.sum() == 300


def test_labels_are_read_as_those_of_one_file(tmp_path, monkeypatch, caplog):
    """What the labels of one file alone do not tell, those of all do."""
    monkeypatch.setattr(folders, "_BATCH", 7)
    frame = pd.DataFrame({
        "income": ["1.200", "1.300", *["2.400,5", "980"] * 9],
        "town": ["01", "1", *["Os", "OS "] * 9],
        "kind": pd.Categorical([*"ab"] * 10, [*"cab"]),
    })  # fmt: skip
    folder, one = write_parts(frame, tmp_path / "parts", (2, 9)), tmp_path / "one.parquet"
    frame.to_parquet(one, index=False)
    some = {"town": ("1", "x", "os"), "kind": ("b", "a")}
    for given, levels in (
        ({"numbers": ("income",)}, None), ({"normalise": True}, None), ({"decimal": ","}, None),
        ({"normalise": True, "numbers": ("income",)}, some),
    ):  # fmt: skip
        reading = bnp.io.Reading(**given)
        said = []
        for read, path in ((bnp.read_contingency_table, folder), (read_microdata, one)):
            caplog.clear()
            table = read(path, None, levels, reading).tabulated
            words = [record.getMessage().partition(": ")[2] for record in caplog.records]
            said.append((words, table.schema, table.digest))
        assert said[0] == said[1] and said[0][0]
    assert table.schema.levels[0] == ("980", "1200", "1300", "2400.5")
    with pytest.raises(MicrodataError, match="parts, column 'town': value '01' is not a declared"):
        bnp.read_contingency_table(folder, None, {"town": ["Os"]}, bnp.io.Reading(normalise=True))


def test_names_are_read_as_those_of_text_files(frame, tmp_path, caplog):
    frame.columns = ["text,\nof two lines", " number", "kind"]
    folder, one = write_parts(frame, tmp_path / "parts", (9,)), tmp_path / "one.parquet"
    frame.to_parquet(one, index=False)
    frame.to_csv(tmp_path / "one.csv", index=False)
    expected = read_microdata(tmp_path / "one.csv")
    assert expected.schema.variables == ("text, of two lines", "number", "kind")
    for table in (bnp.read_contingency_table(folder), read_microdata(one)):
        assert table.schema.variables == expected.schema.variables
    assert caplog.text.count("read without line breaks and without blanks at the ends") == 3
    frame.columns = ["a", "a ", "kind"]
    frame.to_parquet(one, index=False)
    with pytest.raises(MicrodataError, match="'a': the column name occurs twice; rename one"):
        read_microdata(one, ["kind"])


def test_counts_of_cells(frame):
    records = bnp.Microdata.from_frame(frame)
    cells = frame.astype(object).fillna("none").groupby(list(frame), observed=True).size()
    assert sorted(records.tabulated.counts) == sorted(cells)
    complete = bnp.Microdata.from_frame(frame.dropna())
    assert k_anonymity(complete) == k_anonymity(complete.tabulated)
    unique = complete.tabulated.unique_cells
    rows = complete.tabulated.first_rows[unique]
    assert set(rows) == set(complete.cells().sample_uniques)
    np.testing.assert_array_equal(complete.tabulated.codes_at(rows), complete.codes[rows])


@pytest.mark.parametrize(
    ("change", "options", "parts"),
    [
        (lambda f: f, {"levels": {"text": ["a", "b"]}}, ["text", "c d", "not a declared level"]),
        (lambda f: f, {"variables": ["other"]}, ["other", "unknown column"]),
        (lambda f: f.iloc[:1], {}, ["1 usable record"]),
        (lambda f: f.assign(text=[["x"]] * len(f)), {}, ["text", "not plain labels"]),
    ],
    ids=["a level", "a column", "too few", "lists"],
)
def test_what_is_refused(frame, tmp_path, change, options, parts):
    folder = tmp_path / "parts"
    folder.mkdir()
    change(frame).to_parquet(folder / "0.parquet", index=False)
    with pytest.raises(MicrodataError) as raised:
        bnp.read_contingency_table(folder, **options)
    assert all(part in str(raised.value) for part in ("parts", *parts))


def test_the_row_of_a_value_that_is_refused(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_BATCH", 16)
    frame.loc[222, "text"] = "new"
    folder = write_parts(frame, tmp_path / "parts", (100,))
    with pytest.raises(MicrodataError, match="row 222.*'text'.*'new'"):
        bnp.read_contingency_table(folder, levels={"text": ["a", "b", "c d"]})
    frame["number"] = 1
    frame.loc[250, "text"] = None
    folder = write_parts(frame, tmp_path / "gone", (100,))
    with pytest.raises(MicrodataError, match=r"row 250.*missing \(1 of 300"):
        bnp.read_contingency_table(folder).require_complete("the model")


def test_folders_that_are_none(tmp_path):
    with pytest.raises(MicrodataError, match="without Parquet files"):
        bnp.read_contingency_table(tmp_path)
    (tmp_path / "0.parquet").write_text("not one")
    with pytest.raises(MicrodataError, match="not a Parquet file"):
        read_microdata(tmp_path)


def test_what_is_written_is_read_back(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_RECORDS_OF_FILE", 64)
    table = bnp.Microdata.from_frame(frame).tabulated
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.parquet").write_text("of an earlier run")
    folders.write_contingency_table(table, tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert [len(pd.read_parquet(path)) for path in files] == [64, 64, 64, 64, 44]
    back = bnp.read_contingency_table(tmp_path / "out", levels=table.schema)
    assert back.schema == table.schema
    np.testing.assert_array_equal(back.codes, table.codes)
    np.testing.assert_array_equal(back.counts, table.counts)


def test_cells_of_several_tables(frame):
    one, two = (bnp.Microdata.from_frame(frame[rows]) for rows in (slice(0, 99), slice(99, None)))
    two = two.recoded(one.schema, two.codes)
    codes, counts = contingency.common_cells([one, two])
    for table, of_table in zip((one, two), counts, strict=True):
        complete = table.tabulated.complete
        np.testing.assert_array_equal(codes[of_table > 0], table.tabulated.codes[complete])
        np.testing.assert_array_equal(of_table[of_table > 0], table.tabulated.counts[complete])
