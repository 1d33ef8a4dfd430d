"""Files with missing values: what is made of them, and what the product writes, it reads."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line

import bnp_models as bnp
from bnp_models.cli import runs
from bnp_models.cli.main import main
from bnp_models.data.folders import read_contingency_table
from bnp_models.data.schema import MicrodataError
from bnp_models.evaluation import evaluation
from bnp_models.zeros.settled import NOT_APPLICABLE

CHAINS = ("--chains", "2", "--warmup", "20", "--draws", "20", "--quiet")
CLASSES = ("--model", "tnplcm", "--components", "4")


def survey(n=300):
    """Children have no job; some did not say where they live."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.choice(["0-14", "15-64", "65+"], n), "job": rng.choice(["clerk", "none"], n),
        "region": rng.choice(list("NSW"), n), "town": rng.integers(40, size=n),
    })  # fmt: skip
    frame.loc[frame["age"] == "0-14", "job"] = None
    frame.loc[rng.random(n) < 0.1, "region"] = None
    frame["town"] = frame["town"].map("t{}".format)
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing")
    survey().to_csv(folder / "survey.csv", index=False)
    return folder


def run(folder, name, out, *more):
    words = [name, str(folder / "survey.csv"), *more, "--out", str(folder / out)]
    assert main([*words, *(CHAINS if name != "evaluate" else ["--quiet"])]) == 0
    return folder / out


@pytest.fixture(scope="module")
def kept(folder):
    """A synthetic file with missing values."""
    return run(folder, "synthesize", "kept", "--keep-missing", "--datasets", "1", *CLASSES)


@pytest.fixture
def is_read(folder, monkeypatch, capsys):
    """Whether `evaluate` reads a file, whose figures take longer and are tested elsewhere."""

    def enough(*_, **__):
        raise MicrodataError("enough")

    monkeypatch.setattr(evaluation, "evaluate", enough)

    def read(file, *more):
        words = ["evaluate", str(folder / "survey.csv"), str(file), *more]
        assert main([*words, "--quiet", "--out", str(folder / "read")]) == 2
        said = capsys.readouterr().err
        return said == "bnp-models: error: enough\n" or said

    return read


def test_what_is_said_of_text_is_not_said_of_other_kinds_of_files(folder, is_read):
    """--sep is said of the original, and of a population that is a text file too."""
    frame = survey()
    frame.to_csv(folder / "bar.csv", sep="|", index=False)
    frame.to_parquet(folder / "everybody.parquet")
    original = ["--population", str(folder / "everybody.parquet"), "--empty-as-level"]
    words = [str(folder / "survey.csv"), "--sep", ",", *original]
    assert is_read(*words) is True
    semicolon = [str(folder / "survey.csv"), "--sep", ",", "--population", str(folder / "bar.csv")]
    assert "bar.csv" in is_read(*semicolon)


def test_synthetic_records_have_the_level_of_what_does_not_apply(folder, monkeypatch):
    found = []

    def stop(_model, table, conditions=None, **_):
        found.append((table, conditions))
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sample", stop)
    words = ["synthesize", str(folder / "survey.csv"), "--empty-as-level", *CLASSES, *CHAINS]
    assert main([*words, "--datasets", "1", "--out", str(folder / "level")]) == 130
    ((table, conditions),) = found
    ages, jobs = table.schema.levels[:2]
    assert jobs[-1] == NOT_APPLICABLE
    # The only jobs that a child can have, and that nobody else can.
    pairs = np.array([[a, j, 0, 0] for a in range(len(ages)) for j in range(len(jobs))])
    impossible = conditions.contains(pairs)
    child = np.array([ages[a] == "0-14" for a, *_ in pairs])
    np.testing.assert_array_equal(impossible, child != (pairs[:, 1] == len(jobs) - 1))


def test_files_with_the_level_are_read_with_the_option_that_made_it(folder, is_read):
    survey().fillna({"job": NOT_APPLICABLE}).to_csv(folder / "made.csv", index=False)
    said = is_read(folder / "made.csv")
    assert "made.csv, row" in said and "give that option here too" in said
    assert is_read(folder / "made.csv", "--empty-as-level") is True


def test_synthetic_files_keep_missing_values_where_asked(kept, is_read):
    made = pd.read_csv(kept / "synthetic_1.csv")
    child = made["age"] == "0-14"
    assert (made["job"].isna() == child).all()
    assert 0.02 < made["region"].isna().mean() < 0.25
    assert set(made["region"].dropna()) == set("NSW")
    assert json.loads((kept / "run.json").read_text())["num_conditions"]
    # The product reads it, and takes what does not apply for the level where asked.
    for more in ((), ("--empty-as-level",)):
        assert is_read(kept / "synthetic_1.csv", *more) is True


def test_synthetic_files_with_missing_values_are_judged(folder, kept):
    judged = run(folder, "evaluate", "judged", str(kept / "synthetic_1.csv"), "--empty-as-level")
    found = json.loads((judged / "evaluation.json").read_text())
    assert not any("by design" in sentence for sentence in found["warnings"])


def test_columns_that_settle_others_may_be_named(folder, capsys):
    words = ["conditions", "suggest", str(folder / "survey.csv"), "--out"]
    assert main([*words, str(folder / "z.csv"), "--settles-empty", "age=job"]) == 0
    assert "these values become the level" in capsys.readouterr().err
    found = pd.read_csv(folder / "z.csv", keep_default_na=False)
    assert (found["job"] == NOT_APPLICABLE).any()
    assert main([*words, str(folder / "y.csv"), "--settles-empty", "region=job"]) == 2
    assert "survey.csv, column 'job'" in capsys.readouterr().err
    assert main([*words, str(folder / "y.csv"), "--settles-empty", "age"]) == 2
    assert "is not two variables, such as municipality=region" in capsys.readouterr().err
    # Ages settle where jobs are empty, not which jobs there are.
    words = ["synthesize", str(folder / "survey.csv"), "--out", str(folder / "w")]
    assert main([*words, "--allow-identifying", "--settles", "age=job"]) == 2
    assert "missing, say --settles-empty age=job" in capsys.readouterr().err


def test_completed_files_leave_what_does_not_apply(folder, is_read):
    out = run(folder, "impute", "imputed", "--empty-as-level", "--datasets", "1", *CLASSES)
    made = pd.read_csv(out / "imputed_1.csv", keep_default_na=False)
    assert ((made["job"] == NOT_APPLICABLE) == (made["age"] == "0-14")).all()
    assert set(made["region"]) == set("NSW")
    assert is_read(out / "imputed_1.csv", "--empty-as-level") is True


SIZE = ("--population-size", "2000")
LATENT = ("--model", "nplcm", "--components", "4")


def of_risk(out):
    return json.loads((out / "risk.json").read_text()), pd.read_csv(out / "records.csv")


def test_the_risk_of_a_file_with_gaps_is_read_in_either_way(folder, capsys):
    """Uniques among pairs of records that agree where both have values, and by completed files."""
    sample = survey().astype(object)
    found, records = of_risk(
        run(folder, "risk", "wild", *SIZE, *LATENT, "--missing-keys", "wildcard", "--all-records")
    )
    rows = sample.where(sample.notna(), None).to_numpy().tolist()
    pairs = [
        sum(all(None in (x, y) or x == y for x, y in zip(one, two, strict=True)) for two in rows)
        for one in rows
    ]
    assert records.sort_values("row")["f"].tolist() == pairs
    assert found["sample_uniques"] == pairs.count(1)
    assert found["missing"] == {
        "reading": "wildcard", "records": int(sample.isna().any(axis=1).sum()),
        "missing_values": int(sample.isna().sum().sum()),
    }  # fmt: skip
    assert json.loads((folder / "wild" / "run.json").read_text())["missing_keys"] == "wildcard"
    assert "read as suppressed values" in (folder / "wild" / "report.html").read_text()
    capsys.readouterr()
    found, _ = of_risk(run(folder, "risk", "random", *SIZE, *LATENT))
    assert found["missing"]["reading"] == "random" and len(found["what_if"]) == 4
    # No longer run makes it better: it comes before all else.
    assert found["warnings"][0].startswith("missing by design? 'job' is empty in all ")
    assert "values that are not known" in (folder / "random" / "report.html").read_text()


def test_what_takes_no_missing_values_says_so_before_any_work(folder, capsys):
    words = ["risk", str(folder / "survey.csv"), *SIZE, "--out", str(folder / "no")]
    for more, said in (
        (["--validate"], "--validate: cannot be used if values of key variables are missing"),
        (["--baselines"], "--baselines: cannot be used if values of key variables are missing"),
        (["--all-records"], "--missing-keys wildcard"),
        (["--empty-as-level"], "only without structural zeros"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
        assert not (folder / "no").exists()


@pytest.mark.long
def test_what_protect_and_synthesize_write_has_a_risk(kept, tmp_path):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({
        "age": rng.integers(10, size=150), "town": rng.integers(12, size=150),
        "sex": ["f", "m"] * 75,
    })  # fmt: skip
    frame.to_csv(tmp_path / "sample.csv", index=False)
    words = ["--population-size", "300", *LATENT, *CHAINS]
    assert main([
        "protect", str(tmp_path / "sample.csv"), "--max-tau1", "20", "--suppress", "1",
        "--out", str(tmp_path / "protected"), *words,
    ]) == 0  # fmt: skip
    protected = pd.read_csv(tmp_path / "protected" / "protected.csv")
    assert protected.isna().any(axis=None)
    tau1 = {}
    for reading in ("random", "wildcard"):
        assert main([
            "risk", str(tmp_path / "protected" / "protected.csv"), "--missing-keys", reading,
            "--out", str(tmp_path / reading), *words,
        ]) == 0  # fmt: skip
        tau1[reading] = of_risk(tmp_path / reading)[0]["tau1"]["mean"]
    assert tau1["wildcard"] < tau1["random"]
    assert main([
        "risk", str(kept / "synthetic_1.csv"), "--out", str(tmp_path / "synthetic"), *words
    ]) == 0  # fmt: skip


def test_nothing_is_left_to_impute(folder, capsys):
    words = ["impute", str(folder / "survey.csv"), "--variables", "age,job", "--empty-as-level"]
    assert main([*words, "--out", str(folder / "nothing")]) == 2
    assert "--empty-as-level has made all missing values a level" in capsys.readouterr().err


def test_without_the_option_it_is_said_before_chains_are_run(folder, capsys, monkeypatch):
    def enough(*_, **__):
        raise MicrodataError("enough")

    monkeypatch.setattr(runs, "sample", enough)
    words = ["impute", str(folder / "survey.csv"), "--datasets", "1", *CLASSES, *CHAINS[:-1]]
    assert main([*words, "--out", str(folder / "random")]) == 2
    said = capsys.readouterr().err
    assert "'job' is empty in all" in said and "with 'age' 0-14 and in no others" in said
    assert "missing at random" in said and "--empty-as-level" in said
    # Where nothing ties the level, that is said too.
    words = ["synthesize", *words[1:4], *CHAINS[:-1], "--empty-as-level"]
    assert main([*words, "--model", "nplcm", "--out", str(folder / "untied")]) == 2
    assert "takes no structural zeros, and may draw other values" in capsys.readouterr().err


SURVEY = pd.DataFrame({
    "age": np.repeat(["child", "adult"], [30, 60]),
    "ymarr": ["NA"] * 30 + ["1990", "2000"] * 30,
    "income": (["low", "high", "NA"] * 30),
})  # fmt: skip


def formats_of(frame, folder):
    """The same records as text, a workbook, Parquet, Stata and SPSS."""
    paths = [folder / f"survey.{kind}" for kind in ("csv", "xlsx", "parquet", "dta", "sav")]
    frame.to_excel(paths[1], index=False)
    for path in (paths[0], *paths[2:]):
        bnp.io.write_frame(frame, path)
    return paths


def test_labels_are_missing_by_column_in_every_format(tmp_path):
    """NA says that nobody knows an income, and that children have no year of marriage."""
    reading = bnp.io.Reading(missing_of=[("income", "NA")])
    tables = [bnp.read_microdata(path, reading=reading) for path in formats_of(SURVEY, tmp_path)]
    folder = tmp_path / "parts"
    folder.mkdir()
    SURVEY.to_parquet(folder / "part.parquet", index=False)
    tables.append(bnp.read_microdata(folder, reading=reading))
    for table in tables:
        # Of CSV files the levels are sorted as everywhere.
        assert table.schema == tables[0].schema and (table.codes == tables[0].codes).all()
        assert table.schema.levels[1:] == (("1990", "2000", "NA"), ("high", "low"))
        assert (table.codes < 0).sum(axis=0).tolist() == [0, 0, 30]
    everywhere = bnp.read_microdata(tmp_path / "survey.csv", reading=bnp.io.Reading(missing=["NA"]))
    assert (everywhere.codes < 0).sum(axis=0).tolist() == [0, 30, 30]
    cells = read_contingency_table(folder, reading=reading)
    assert int(cells.counts @ (cells.codes[:, 2] < 0)) == 30 and not (cells.codes[:, 1] < 0).any()


def test_the_advice_on_missing_values_is_by_column(tmp_path, caplog, capsys):
    """What the warning says makes no value of what does not apply."""
    SURVEY.to_csv(tmp_path / "survey.csv", index=False)
    call = ["conditions", "suggest", str(tmp_path / "survey.csv"), "--force", "--out",
            str(tmp_path / "zeros.csv")]  # fmt: skip
    assert main(call) == 0
    (said,) = [text for text in caplog.messages if "missing values?" in text]
    assert "'ymarr' is 'NA' in all 30 records with 'age' child and in no others" in said
    assert "(--missing income=NA)" in said and "--missing ymarr=NA --empty-as-level" in said
    caplog.clear()
    assert main([*call, "--missing", "income=NA", "--level", "ymarr=NA"]) == 0
    assert "missing values?" not in caplog.text
    assert main([*call, "--missing", "income=NA,ymarr=NA", "--empty-as-level"]) == 0
    assert "'ymarr' is empty in all 30 records with 'age' child" in caplog.text
    capsys.readouterr()
    assert main([*call, "--missing", "salary=NA"]) == 2
    assert "--missing: " in (said := one_line(capsys)) and "column 'salary': unknown column" in said
