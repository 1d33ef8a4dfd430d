"""Structural zeros on the command line: records left out, and variables that are compared."""

import json
import stat

import numpy as np
import pandas as pd
import pytest

from bnp_models.cli.main import main
from bnp_models.data.reading import read_frame

SHORT = ["--chains", "2", "--warmup", "5", "--draws", "10"]


@pytest.fixture
def workers(tmp_path):
    """Persons, three of whom have worked for longer than they live, and their truth."""
    rng = np.random.default_rng(0)
    age = rng.integers(15, 25, 200)
    frame = pd.DataFrame({
        "id": [f"p{k}" for k in range(200)], "age": age, "years": rng.integers(0, age - 10),
        "sex": rng.choice(["f", "m", "-"], 200), "w": 2.5,
    })  # fmt: skip
    frame.loc[[7, 50, 199], "years"] = [25, 26, 25]
    frame.to_csv(tmp_path / "s.csv", index=False)
    (tmp_path / "z.csv").write_text("age\n<years\n")
    return tmp_path, frame


def on_columns(folder):
    return [str(folder / "s.csv"), "--variables", "age,years,sex", "--missing", "-",
            "--conditions", str(folder / "z.csv")]  # fmt: skip


@pytest.mark.parametrize("name", ["good.csv", "good.parquet"])
def test_a_file_without_the_impossible_records(name, workers, capsys):
    folder, frame = workers
    command = ["conditions", "check", *on_columns(folder), "--out", str(folder / "bad.csv")]
    assert main([*command, "--possible", str(folder / name)]) == 0
    said = capsys.readouterr().out
    assert "3 records are impossible" in said
    assert f"3 of 200 records left out; the other 197 are in {folder / name}" in said
    bad = pd.read_csv(folder / "bad.csv")
    assert bad["row"].tolist() == [7, 50, 199]
    assert bad["why"].str.contains("'age' = .* and 'years' = .* cannot occur together").all()
    good, _ = read_frame(folder / name)
    # All columns, and labels of missing values too.
    expected = frame.drop(index=[7, 50, 199]).astype(str).reset_index(drop=True)
    pd.testing.assert_frame_equal(good.astype(str).reset_index(drop=True), expected)
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    # It is refused to replace a file, and to write both to one.
    assert main([*command[:-1], str(folder / "b.csv"), "--possible", str(folder / name)]) == 2
    assert "--possible" in capsys.readouterr().err
    both = [*command, "--force", "--possible", str(folder / "bad.csv")]
    assert main(both) == 2 and "is the file of --out" in capsys.readouterr().err
    assert len(pd.read_csv(folder / "bad.csv")) == 3


@pytest.mark.parametrize("option", ["--out", "--possible"])
@pytest.mark.parametrize(("name", "what"), [("s.csv", "SAMPLE"), ("z.csv", "--conditions")])
def test_force_does_not_replace_a_file_that_is_read(option, name, what, workers, capsys):
    folder, _ = workers
    before = (folder / name).read_bytes()
    options = {"--out": str(folder / "bad.csv"), option: str(folder / name)}
    command = ["conditions", "check", *on_columns(folder), "--force"]
    assert main([*command, *(word for pair in options.items() for word in pair)]) == 2
    assert f"{option} {folder / name}: is the file of {what}" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


def test_commands_advise_it_and_take_its_file(workers, capsys):
    folder, _ = workers
    out = ["--out", str(folder / "risk"), "--population-size", "10000", *SHORT]
    assert main(["risk", *on_columns(folder), *out]) == 2
    said = capsys.readouterr().err
    assert "cannot occur together (row 0 of the conditions)" in said
    assert "3 of 200 records are impossible" in said and "conditions check --possible FILE" in said
    assert "bnp-models impute --edit" in said
    assert main(["conditions", "check", *on_columns(folder), "--out", str(folder / "bad.csv"),
                 "--possible", str(folder / "good.csv")]) == 0  # fmt: skip
    assert main(["risk", str(folder / "good.csv"), *on_columns(folder)[1:], *out]) == 0
    assert json.loads((folder / "risk" / "risk.json").read_text())["n"] == 197


def test_no_synthetic_record_breaks_an_inequality(workers, capsys):
    folder, frame = workers
    frame.drop(index=[7, 50, 199]).to_csv(folder / "s.csv", index=False)
    out = folder / "made"
    command = ["synthesize", *on_columns(folder), "--out", str(out), "--datasets", "2",
               "--components", "5", *SHORT]  # fmt: skip
    assert main([*command, "--bins", "age=3"]) == 2
    assert "--bins: the conditions compare the numbers of 'age'" in capsys.readouterr().err
    # In so wide a bin the inequality holds of no level as a whole, and excludes nothing.
    assert main([*command, "--bins", "years=2"]) == 2
    assert "--bins: the conditions compare the numbers of 'years'" in capsys.readouterr().err
    assert not out.exists()
    assert main(command) == 0
    for m in (1, 2):
        made = pd.read_csv(out / f"synthetic_{m}.csv")
        assert len(made) == 197 and (made["age"] >= made["years"]).all()


def test_codes_among_numbers_are_in_no_range_in_any_command(tmp_path, capsys):
    """Babies coded -1 are a level of their own, and married babies no error, until it is said."""
    rng = np.random.default_rng(1)
    age = rng.integers(0, 60, 300)
    marital = np.where(age < 15, "single", rng.choice(["single", "married"], 300))
    frame = pd.DataFrame({"age": age, "marital": marital})
    frame.loc[:1, "age"] = -1
    frame.loc[:1, "marital"] = ["single", "married"]
    sample, zeros, out = tmp_path / "s.csv", tmp_path / "z.csv", tmp_path / "o"
    frame.to_csv(sample, index=False)
    zeros.write_text("age,marital\n<15,married\n")
    check = ["conditions", "check", str(sample), "--conditions", str(zeros), "--force",
             "--out", str(tmp_path / "bad.csv")]  # fmt: skip
    evaluate = ["evaluate", str(sample), str(sample), "--conditions", str(zeros), "--force",
                "--out", str(out)]  # fmt: skip
    risk = ["risk", str(sample), "--conditions", str(zeros), "--population-size", "9000", "--force",
            "--out", str(out), *SHORT]  # fmt: skip
    for command in (check, evaluate, risk):
        assert main(command) == 0
        said = capsys.readouterr().err
        assert "codes among numbers? 'age' has '-1' (2 records)" in said
        assert "in no range of --conditions" in said and "--number age=-1" in said
        # Once it is a number, it is below 15.
        assert main([*command, "--number", "age=-1"]) == (0 if command is check else 2)
        assert command is check or "cannot occur together" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "bad.csv")["row"].tolist() == [1]
