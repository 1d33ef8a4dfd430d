"""``risk --misclassification``: the files and the page of it, and what is refused."""

import json

import pandas as pd
import pytest

from bnp_models.cli.main import main
from bnp_models.data.source import file_digest

CHANGES = "variable,true,released,probability\n"
HALF = CHANGES + "".join(
    f"sex,{true},{released},0.5\n"
    for true in ("Female", "Male") for released in ("Female", "Male")
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample_frame):
    folder = tmp_path_factory.mktemp("changed")
    sample_frame.to_csv(folder / "sample.csv", index=False)
    (folder / "half.csv").write_text(HALF)
    return folder


def words(folder, out, *more):
    return [
        "risk", str(folder / "sample.csv"), "--population-size", "600", "--model", "nplcm",
        "--components", "6", "--chains", "2", "--warmup", "100", "--draws", "30", "--quiet",
        "--out", str(folder / out), *more,
    ]  # fmt: skip


def read(folder, out):
    return json.loads((folder / out / "risk.json").read_text())


def test_all_figures_are_of_records_with_their_own_values(folder):
    limits = ("--max-risk", "0.5")
    file = folder / "half.csv"
    assert main(words(folder, "plain", *limits)) == 0
    assert main(words(folder, "changed", *limits, "--misclassification", str(file))) == 0
    plain, changed = read(folder, "plain"), read(folder, "changed")
    entry = changed["misclassification"]
    assert "misclassification" not in plain and list(entry) == ["file", "tau1", "tau2", "without"]
    assert entry["file"] == str(file)
    for name in ("tau1", "tau2"):
        assert entry[name] == changed[name]
        assert entry["without"][name] == plain[name]
    half = pytest.approx(plain["tau2_conditional"]["mean"] / 2, rel=1e-6)
    assert changed["tau2_conditional"]["mean"] == half
    records = [pd.read_csv(folder / out / "records.csv") for out in ("plain", "changed")]
    assert list(records[0]) == list(records[1])
    plainly, corrected = (frame.set_index("row").sort_index() for frame in records)
    pd.testing.assert_series_equal(corrected["r1"], plainly["r1"] / 2, rtol=1e-5)
    assert corrected["r1"].sum() == pytest.approx(changed["tau1_conditional"]["mean"], rel=1e-6)
    # The verdict is on the corrected risks, none of which is above a half.
    assert plain["verdict"]["records_above"] > 0 == changed["verdict"]["records_above"]
    # Coarser keys are not corrected, and therefore not written.
    assert changed["what_if"] == [] and len(plain["what_if"]) == 4
    settings = json.loads((folder / "changed" / "run.json").read_text())
    assert settings["misclassification"] == str(file)
    assert settings["misclassification_sha256"] == file_digest(file)
    page = " ".join((folder / "changed" / "report.html").read_text().split())
    assert f"with the probabilities in {file}. The risk and the verdict on this page" in page
    number = f"{entry['without']['tau2']['mean']:.1f} correct matches would be expected"
    assert number in page and "and to have their own values (95% interval" in page
    assert "Values of this file" not in (folder / "plain" / "report.html").read_text()


@pytest.mark.parametrize(("content", "more", "parts"), [
    (CHANGES + "sex,Female,Male,0.4\n", [], ["half.csv", "'sex'", "'Female'", "sum to 0.4"]),
    (CHANGES + "height,1,1,1\n", [], ["half.csv", "row 0 (line 2)", "'height' is no key"]),
    (HALF, ["--variables", "age,race"], ["half.csv", "'sex' is no key variable"]),
    (CHANGES + "sex,other,Male,1\n", [], ["half.csv", "line 2", "'other' is not a declared"]),
    ("variable,true,released\nsex,Male,Male\n", [], ["half.csv", "column 'probability'"]),
    (HALF, ["--what-if", "drop:age"], ["--what-if: cannot be used with --misclassification"]),
    (HALF, ["--keys", "age,sex"], ["--keys: cannot be used with --misclassification"]),
    (HALF, ["--baselines"], ["--baselines: cannot be used with --misclassification"]),
    (HALF, ["--missing", "sex=Male"], ["--misclassification: cannot be used if values of key"]),
])  # fmt: skip
def test_what_is_refused_before_any_work(folder, tmp_path, capsys, content, more, parts):
    (tmp_path / "half.csv").write_text(content)
    more = [*more, "--misclassification", str(tmp_path / "half.csv")]
    assert main(words(folder, "refused", *more)) == 2
    message = capsys.readouterr().err
    assert all(part in message for part in parts), message
    assert not (folder / "refused").exists()
