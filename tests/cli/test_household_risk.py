"""The risk of households on the command line, and the advice to ask for it."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
from commands import CHILDREN_ARE_YOUNGER, one_line, untimed

import bnp_models as bnp
from bnp_models.cli.main import main

SHORT = ["--components", "3", "--member-components", "2", "--chains", "2", "--warmup", "20",
         "--draws", "40", "--population-size", "900", "--quiet"]  # fmt: skip
BY = ["--household", "hid", "--household-variables", "tenure,persons"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """sample.csv of 60 households with heads, and rules that they obey."""
    folder = tmp_path_factory.mktemp("risk_of_households")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        size, tenure = int(rng.integers(1, 4)), str(rng.choice(["own", "rent"]))
        rows.append((f"H{i}", size, tenure, "Householder", str(rng.choice(["30", "40", "50"]))))
        rows += [
            (f"H{i}", size, tenure, "Child", str(rng.choice(["5", "10"]))) for _ in range(size - 1)
        ]
    frame = pd.DataFrame(rows, columns=["hid", "persons", "tenure", "relate", "age"])
    frame.to_csv(folder / "sample.csv", index=False)
    (folder / "rules.yaml").write_text(CHILDREN_ARE_YOUNGER)
    return folder


def command(folder, out, *more):
    return ["risk", str(folder / "sample.csv"), *BY, *SHORT, "--out", str(out), *more]


@pytest.fixture(scope="module")
def done(folder):
    out = folder / "out"
    assert main(command(folder, out)) == 0
    return out


def test_files(done, folder):
    sample = pd.read_csv(folder / "sample.csv")
    risk = json.loads((done / "risk.json").read_text())
    assert risk["model"] == "ndpmpm"
    households, persons = risk["households"], risk["persons"]
    assert (households["n"], households["population_size"]) == (60, 900)
    assert (risk["n"], risk["population_size"]) == (60, 900)
    assert persons["n"] == len(sample)
    assert persons["population_size"] == round(900 * len(sample) / 60)
    # The composition, by hand.
    own = ["tenure", "relate", "age"]
    kinds = sample.groupby("hid")[own].apply(lambda x: tuple(sorted(map(tuple, x.to_numpy()))))
    counts = kinds.map(kinds.value_counts())
    assert households["sample_uniques"] == risk["sample_uniques"] == (counts == 1).sum()
    table = pd.read_csv(done / "households.csv").set_index("household")
    assert list(table) == ["f", "r1", "r2", "hierarchical"]
    assert (table["f"] == counts[table.index]).all()
    assert (table.loc[table["f"] > 1, "r1"] == 0).all()
    assert ((table["r1"] <= table["r2"]) & (table["r2"] <= 1 / table["f"])).all()
    np.testing.assert_allclose(table["r1"].sum(), risk["tau1_conditional"]["mean"], rtol=1e-6)
    records = pd.read_csv(done / "records.csv").set_index("row").sort_index()
    assert list(records) == [*sample.columns[:1], *sample.columns[1:], "f", "r1", "r2",
                             "r_household"]  # fmt: skip
    pd.testing.assert_frame_equal(
        records[list(sample)].reset_index(drop=True), sample, check_dtype=False
    )
    alike = sample.iloc[:, 1:].value_counts()
    assert (records["f"] == [alike[tuple(row)] for row in sample.iloc[:, 1:].to_numpy()]).all()
    through = np.fmax(table["r1"].reindex(sample["hid"]).to_numpy(), records["r1"])
    np.testing.assert_allclose(records["r_household"], through, rtol=1e-6)
    np.testing.assert_allclose(persons["found"], records["r_household"].sum(), rtol=1e-6)
    rest = (1 - records["r2"]).groupby(sample["hid"].to_numpy()).prod()
    np.testing.assert_allclose(table["hierarchical"], (1 - rest)[table.index], rtol=1e-5)
    np.testing.assert_allclose(households["hierarchical"], table["hierarchical"].sum(), rtol=1e-6)
    checks = risk["checks"]
    assert checks["cells_with_1"]["observed"] == (counts == 1).sum()
    sizes = sample.groupby("hid").size().value_counts()
    assert {k: v["observed"] for k, v in checks["household_sizes"].items()} == {
        str(size): n for size, n in sizes.items()
    }
    page = (done / "report.html").read_text()
    assert "H1" in page and "The riskiest households" in page and "hierarchical" in page


def test_coarser_keys(folder, tmp_path):
    """Those that are asked for and each variable dropped, with their sample uniques by hand."""
    out = tmp_path / "out"
    assert main(command(folder, out, "--what-if", "merge:age=30+40;drop:tenure")) == 0
    sample = pd.read_csv(folder / "sample.csv", dtype=str)
    risk = json.loads((out / "risk.json").read_text())
    found = {one["spec"]: one for one in risk["what_if"]}
    asked = "merge:age=30+40;drop:tenure"
    assert list(found) == [asked, "drop:tenure", "drop:relate", "drop:age"]
    assert json.loads((out / "run.json").read_text())["coarsenings"] == list(found)
    coarse = {name: sample.drop(columns=name.removeprefix("drop:")) for name in list(found)[1:]}
    coarse[asked] = sample.replace({"age": {"30": "30/40", "40": "30/40"}}).drop(columns="tenure")
    for text, frame in coarse.items():
        keys = frame.groupby("hid").apply(
            lambda x: tuple(sorted(map(tuple, x.drop(columns="hid", errors="ignore").to_numpy()))),
            include_groups=False,
        )  # fmt: skip
        counts = keys.map(keys.value_counts())
        one = found[text]
        assert one["sample_uniques"] == (counts == 1).sum()
        assert one["k_anonymity"][1]["records"] == (counts < 3).sum()
        assert one["tau1"]["mean"] <= one["tau2"]["mean"] <= one["sample_uniques"]
        assert one["variables"] == [x for x in frame.columns if x != "hid"]
    page = (out / "report.html").read_text()
    assert "With coarser keys" in page and "households in compositions of fewer than 3" in page


def test_without_single_households(folder, tmp_path):
    out = tmp_path / "out"
    assert main(command(folder, out, "--no-records", "--max-tau1", "1")) == 0
    assert not (out / "households.csv").exists() and not (out / "records.csv").exists()
    page = (out / "report.html").read_text()
    assert "The riskiest households" not in page and "household" in page
    assert json.loads((out / "risk.json").read_text())["verdict"]["max_tau1"] == 1


def test_a_run_that_is_resumed(done, folder, capsys):
    assert main([*command(folder, done), "--resume"]) == 0
    other = folder / "again"
    assert main(command(folder, other, "--first-row", "1")) == 0
    assert untimed(other) == untimed(done)
    one, another = (pd.read_csv(out / "records.csv") for out in (done, other))
    pd.testing.assert_frame_equal(one.assign(row=one["row"] + 1), another)
    assert (other / "households.csv").read_bytes() == (done / "households.csv").read_bytes()
    assert main([*command(folder, done), "--ties", "off", "--resume"]) == 2
    assert "other data, settings or versions" in one_line(capsys)


@pytest.mark.parametrize("options", [["--relative", "age"], ["--head", "no"]])
def test_rules_and_codes(folder, tmp_path, options):
    rules = ["--rules", str(folder / "rules.yaml")]
    assert main(command(folder, tmp_path / "out", *rules, *options)) == 0
    risk = json.loads((tmp_path / "out" / "risk.json").read_text())
    assert len(risk["rules_in_words"]) == 2
    unknown = options[0] == "--relative"
    assert (risk["persons"]["tau1"] is None) == unknown
    assert any("no closed form" in x for x in risk["warnings"]) == unknown
    records = pd.read_csv(tmp_path / "out" / "records.csv")
    assert records["r1"].isna().all() == unknown
    assert records["r_household"].notna().all()
    alike = records.groupby(["persons", "tenure", "relate", "age"])["row"].transform("size")
    assert (records["f"] == alike).all() and records["f"].max() > 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--what-if", "drop:no"], "--what-if: column 'no'"),
        (["--what-if", "keep:tenure"], "keep at least one that describes persons"),
        (["--suda"], "--suda: cannot be used for the risk of households"),
        (["--misclassification", "x.csv"], "--misclassification: cannot be used for the risk of"),
        (["--population-size", "59"], "is not between the sample's 60 households"),
        (["--model", "nplcm"], "can be used only with --model ndpmpm"),
        (["--model", "hdp"], "can be used only with --model ndpmpm"),
        (["--prior-possible", "2"], "--prior-possible: is used only with --rules"),
        (["--relative", "auto"], "--relative auto: cannot be used for the risk of households"),
        (["--head", "no", "--roles", "roles.csv"], "--roles: is used only by --rules and to find"),
        (["--bom", "--format", "parquet"], "--bom: is only for CSV, not for --format parquet"),
        (["--level-prior", "uniform", "--level-shape", "1"], "--level-prior: is replaced by"),
        (["--sizes", "given"], "unrecognized arguments: --sizes"),
        (["--household-variables", "age"], "of the same household"),
    ],
)
def test_refusals(folder, tmp_path, capsys, more, message):
    assert main(command(folder, tmp_path / "out", *more)) == 2
    assert message in one_line(capsys)


@pytest.fixture(scope="module")
def weighted(folder):
    """The sample with a weight of each household: rare among those who rent."""
    out = folder / "weighted"
    out.mkdir()
    frame = pd.read_csv(folder / "sample.csv")
    frame["w"] = np.where(frame["tenure"] == "own", 25.0, 5.0)
    frame.to_csv(out / "sample.csv", index=False)
    return out


def test_weights_of_households(weighted, folder, capsys):
    frame = pd.read_csv(weighted / "sample.csv")
    of_households = frame.groupby("hid")["w"].first()
    total = int(of_households.sum())
    words = command(weighted, weighted / "out", "--weights", "w")
    del words[words.index("--population-size") : words.index("--population-size") + 2]
    words.remove("--quiet")
    assert main(words) == 0
    said = capsys.readouterr().err
    assert f"add up to {total:,}, and this is taken for the number of households in the" in said
    risk = json.loads((weighted / "out" / "risk.json").read_text())
    assert risk["population_size"] == risk["households"]["population_size"] == total
    assert risk["persons"]["population_size"] == round(frame["w"].sum())
    assert [one["mean"] for one in risk["weights"]["classes"]] == [5, 25]
    assert [one["records"] for one in risk["weights"]["classes"]] == [
        (of_households == w).sum() for w in (5, 25)
    ]
    assert risk["variables"] == ["persons", "tenure", "relate", "age"]
    assert not any("add up to" in sentence for sentence in risk["warnings"])
    assert json.loads((weighted / "out" / "run.json").read_text())["weights"] == "w"
    page = (weighted / "out" / "report.html").read_text()
    assert "Design weights" in page and "each household counts with the mean weight" in page
    table = pd.read_csv(weighted / "out" / "households.csv").set_index("household")
    rents = frame.groupby("hid")["tenure"].first()[table.index] == "rent"
    alone = table["f"] == 1
    # A household that rents is rarer outside the sample than the sample says.
    assert table[alone & rents]["r1"].mean() > 2 * table[alone & ~rents]["r1"].mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (6.0, "column 'w': the weight is 6, but"),
        (0.5, "column 'w': the weight is 0.5, but"),
        (-1.0, "column 'w': '-1.0' is not a positive number"),
    ],
)
def test_weights_that_are_not_of_households(weighted, tmp_path, capsys, change, message):
    frame = pd.read_csv(weighted / "sample.csv")
    several = frame.index[frame["persons"] > 1][1]
    frame.loc[several, "w"] = change
    frame.to_csv(tmp_path / "sample.csv", index=False)
    assert main(command(tmp_path, tmp_path / "out", "--weights", "w")) == 2
    said = one_line(capsys)
    assert message in said
    if change > 0:
        assert f"of the same household, '{frame.loc[several, 'hid']}'" in said


def test_weights_below_one_are_refused(weighted, tmp_path, capsys):
    frame = pd.read_csv(weighted / "sample.csv")
    frame["w"] = np.where(frame["hid"] == "H3", 0.5, frame["w"])
    frame.to_csv(tmp_path / "sample.csv", index=False)
    assert main(command(tmp_path, tmp_path / "out", "--weights", "w")) == 2
    row = frame.index[frame["hid"] == "H3"][0]
    assert f"row {row} (line {row + 2}): the weight 0.5 is below 1" in one_line(capsys)


def test_missing_values_are_refused(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "sample.csv")
    frame.loc[3, "age"] = None
    frame.to_csv(tmp_path / "sample.csv", index=False)
    assert main(command(tmp_path, tmp_path / "out")) == 2
    said = one_line(capsys)
    assert "has a missing value" in said and "with bnp-models impute --model ndpmpm" in said


def test_a_file_without_persons(folder, tmp_path, capsys):
    pd.read_csv(folder / "sample.csv").head(0).to_csv(tmp_path / "sample.csv", index=False)
    assert main(command(tmp_path, tmp_path / "out")) == 2
    assert "sample.csv: 0 usable records" in one_line(capsys)


PERSONS = ["--population-size", "2000", "--model", "nplcm", "--components", "2", "--chains", "1",
           "--warmup", "2", "--draws", "4"]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "column 'hid' groups the persons into 60 households"),
        ({"hid": "ident"}, "column 'ident' groups the persons into 60 households"),
        (None, "the persons follow each other in 60 households of size 'persons'"),
    ],
)
def test_the_risk_of_persons_tells_of_households(folder, tmp_path, caplog, change, told):
    frame = pd.read_csv(folder / "sample.csv")
    frame = frame.drop(columns="hid") if change is None else frame.rename(columns=change)
    frame.to_csv(tmp_path / "s.csv", index=False)
    with caplog.at_level(logging.WARNING):
        code = main(["risk", str(tmp_path / "s.csv"), *PERSONS, "--variables",
                     "tenure,persons,relate,age", "--out", str(tmp_path / "out")])  # fmt: skip
    assert code == 0
    told_of = [x for x in caplog.messages if "the risk of households" in x]
    assert len(told_of) == 1 and told in told_of[0]
    column = "hid" if change is None else frame.columns[0]
    assert f"--household {column} --household-variables" in told_of[0]
    assert "--variables tenure,persons,relate,age --population-size" in told_of[0]
    # The page and risk.json have it without the command, and a verdict is not affected.
    warnings = json.loads((tmp_path / "out" / "risk.json").read_text())["warnings"]
    (note,) = [x for x in warnings if "the risk of households" in x.lower()]
    assert told in note and note in " ".join(told_of[0].split(" type: ")) + note
    page = (tmp_path / "out" / "report.html").read_text()
    assert "this risk takes each person alone" in page
    # What the command records is what it recorded before households had a risk.
    assert json.loads((tmp_path / "out" / "run.json").read_text())["head"] is None


def test_plain_persons_are_told_nothing(tmp_path, caplog):
    frame = bnp.datasets.census_income().sample(300, seed=0)[["age", "sex", "education"]]
    frame.insert(0, "serial", range(300))
    frame.to_csv(tmp_path / "s.csv", index=False)
    with caplog.at_level(logging.WARNING):
        assert main(["risk", str(tmp_path / "s.csv"), *PERSONS, "--variables",
                     "age,sex,education", "--out", str(tmp_path / "out")]) == 0  # fmt: skip
    assert not [x for x in caplog.messages if "household" in x]
