"""Limits, verdicts and identifiers of ``bnp-models risk``, and ``bnp-models protect``."""

import datetime
import hashlib
import itertools
import json
import re

import pandas as pd
import pytest
from commands import one_line
from pages import check_well_formed, words_of

import bnp_models as bnp
from bnp_models.cli import protect
from bnp_models.cli.main import main
from bnp_models.cli.parts import Limits
from bnp_models.cli.release import with_strictness

# Shapes of the coarser keys of test_compare: nothing is compiled twice.
SHORT = ["--chains", "2", "--warmup", "30", "--draws", "20", "--model", "nplcm",
         "--components", "4", "--variables", "age,sex,race",
         "--population-size", "300"]  # fmt: skip


@pytest.fixture(scope="module")
def csv(tmp_path_factory, sample_frame):
    path = tmp_path_factory.mktemp("input") / "sample.csv"
    person = [f"={k}" for k in range(len(sample_frame))]
    sample_frame.assign(person=person).to_csv(path, index=False)
    return path


def test_the_page_answers_the_question(csv, tmp_path, capsys):
    out = tmp_path / "out"
    call = ["risk", str(csv), *SHORT, "--max-tau1", "0.5", "--max-risk", "0.01", "--id", "person",
            "--title", "A & B", "--author", "C. Doe", "--bom", "--strict",
            "--out", str(out)]  # fmt: skip
    assert main(call) == 3
    printed = capsys.readouterr().out
    risk, run = (json.loads((out / f"{name}.json").read_text()) for name in ("risk", "run"))
    # So short a run cannot be quoted, but records are far above their limit.
    assert risk["verdict"]["release"] is False and not risk["usable"]["tau1"]
    assert f"release: no; {risk['verdict']['why']}" in printed
    above = pd.read_csv(out / "records.csv")["r1"] > 0.01
    assert risk["verdict"]["records_above"] == above.sum() > 0
    largest = f"(the largest is {risk_of(out).max():.3g}, with a Monte Carlo error of "
    assert largest in risk["verdict"]["why"]
    digest = hashlib.sha256(csv.read_bytes()).hexdigest()
    assert run["filing"] == {"date": datetime.date.today().isoformat(), "input": "sample.csv",
                             "sha256": digest, "title": "A & B", "author": "C. Doe"}  # fmt: skip
    words = words_of((out / "report.html").read_text())
    for part in ("Release: no.", "A & B", "C. Doe", run["filing"]["date"], digest,
                 "meets the limit"):  # fmt: skip
        assert part in words
    assert (out / "records.csv").read_bytes().startswith(b"\xef\xbb\xbfrow,person,age,")
    records = pd.read_csv(out / "records.csv")
    assert (records["person"] == "'=" + records["row"].astype(str)).all()
    assert main([*call, "--resume"]) == 3 and "is complete" in capsys.readouterr().out
    assert main([*[word for word in call if word != "--strict"], "--resume"]) == 0


def test_suda_scores_beside_the_risks(csv, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["risk", str(csv), *SHORT, "--suda", "2", "--out", str(out)]) == 0
    records = pd.read_csv(out / "records.csv")
    table = pd.read_csv(csv, dtype=str)[["age", "sex", "race"]]
    expected = bnp.risk.suda(table, 2).frame().loc[records["row"], ["suda", "dis_suda"]]
    assert list(records)[-4:] == ["r1", "r2", "suda", "dis_suda"]
    assert expected["suda"].max() > 0
    assert (records[["suda", "dis_suda"]].to_numpy() == expected.to_numpy()).all()
    pd.read_csv(csv).rename(columns={"race": "suda"}).to_csv(tmp_path / "taken.csv", index=False)
    capsys.readouterr()
    assert main(["risk", str(tmp_path / "taken.csv"), "--variables", "age,suda", "--suda",
                 "--population-size", "300", "--out", str(tmp_path / "no")]) == 2  # fmt: skip
    assert "records.csv gets a column 'suda'" in one_line(capsys)


def risk_of(out):
    return pd.read_csv(out / "records.csv")["r1"]


def test_protect_knows_columns_by_labels(csv, tmp_path):
    """No column is left as it was beside the protected one."""
    frame = pd.read_csv(csv, dtype=str).rename(columns={"age": "age in years"})
    bnp.io.write_frame(frame, tmp_path / "sample.dta")
    short = [word.replace("age", "age in years") for word in SHORT]
    assert main(["protect", str(tmp_path / "sample.dta"), *short, "--max-tau1", "2", "--suppress",
                 "0.02", "--out", str(tmp_path / "out"), "--quiet"]) == 0  # fmt: skip
    made = pd.read_csv(tmp_path / "out" / "protected.csv")
    dropped = {"age in years", "sex", "race"} - set(made)
    keys = {"age in years", "sex", "race"}
    assert list(made) == [column for column in frame if column in keys - dropped]


def test_protect_by_k_anonymity(csv, tmp_path, capsys):
    frame = pd.read_csv(csv, dtype=str)
    frame["region"] = ["north", "south"] * (len(frame) // 2)
    frame.to_csv(tmp_path / "sample.csv", index=False)
    out = tmp_path / "out"
    call = ["protect", str(tmp_path / "sample.csv"), *SHORT, "--suppress", "0.2"]
    assert main([*call, "--k", "3", "2=4", "--strata", "region", "--out", str(out)]) == 0
    assert "release: yes; each combination of all key variables" in capsys.readouterr().out
    changes, run = (json.loads((out / f"{x}.json").read_text()) for x in ("changes", "run"))
    reached = [(x["k"], x["size"], x["after"]) for x in changes["anonymity"]]
    assert reached == [(3, None, 0), (4, 2, 0)]
    assert changes["anonymity"][0]["before"] > 0 and run["strata"] == "region"
    assert "3 records for each combination of all key variables" in words_of(
        (out / "report.html").read_text()
    )
    made = pd.read_csv(out / "protected.csv", dtype=str)
    keys = [name for name in ("age", "sex", "race") if name in made]
    for size, k in ((len(keys), 3), (2, 4)):
        for chosen in map(list, itertools.combinations(keys, min(size, len(keys)))):
            for _, own in made.iterrows():
                like = (made[chosen] == own[chosen]) | made[chosen].isna() | own[chosen].isna()
                assert (like.all(axis=1) & (made["region"] == own["region"])).sum() >= k
    for words, problem in (
        (["--k", "9=3"], "--k: there are 3 variables"), (["--strata", "region"], "--max-tau1"),
        (["--k", "3", "--strata", "sex"], "the column of the strata cannot be a key variable"),
        (["--k", "1"], "not a number of records of at least 2"),
        (["--max-tau1", "3", "--strata", "region"], "--strata: is used only with --k"),
        (["--k", "age,no=3"], "no"),
    ):  # fmt: skip
        assert main([*call, *words, "--out", str(tmp_path / "no")]) == 2
        assert problem in one_line(capsys) and not (tmp_path / "no").exists()


def test_protect(csv, tmp_path, capsys, caplog, monkeypatch):
    out, said, write_files = tmp_path / "out", [], protect.write_files

    def after_silence(*args):
        said.append(capsys.readouterr().out)
        write_files(*args)

    monkeypatch.setattr(protect, "write_files", after_silence)
    assert main(["protect", str(csv), *SHORT, "--max-tau1", "2", "--id", "person", "--suppress",
                 "0.02", "--recode", "merge:age=65-74+75+", "--refit", "--carry", "education",
                 "--out", str(out)]) == 0  # fmt: skip
    printed = capsys.readouterr().out
    # Of columns that are no key variables, only those that somebody named are released.
    assert "not written to protected.csv: 'person'; --carry" in caplog.text
    # Ages have numbers, and two sexes are no levels to merge.
    assert "without an order or groups of their levels" in caplog.text
    assert "with any other: 'race'; --groups" in caplog.text
    # Where nobody reads stdout any more, the files are made all the same.
    assert said == [""]
    assert sorted(path.name for path in out.iterdir()) == ["changes.json", "protected.csv",
                                                           "report.html", "run.json",
                                                           "run.toml"]  # fmt: skip
    changes = json.loads((out / "changes.json").read_text())
    made = pd.read_csv(out / "protected.csv", dtype=str, keep_default_na=False)
    before = pd.read_csv(csv, dtype=str, keep_default_na=False)
    assert changes["after"]["tau1"]["q975"] <= 2 < changes["before"]["tau1"]["q975"]
    # The chains are short, and the interval is far enough below the limit for their error.
    assert changes["verdict"]["release"] is True and "release: yes" in printed
    # By chains of their own, that are as short and so warned of alike.
    new, old = changes["refitted"], changes["after"]
    assert new["sample_uniques"] == old["sample_uniques"]
    assert new["tau1"] != old["tau1"] and new["tau1"]["mean"] < 4
    warnings = json.loads((out / "run.json").read_text())["warnings"]
    assert any(x.startswith("new chains: not converged") for x in warnings), warnings
    assert "after, by new chains" in words_of((out / "report.html").read_text())
    # The log undoes the protection.
    for one in changes["suppressions"]:
        assert made.loc[one["row"], one["column"]] == "" and one["id"] == f"={one['row']}"
        assert before.loc[one["row"], one["column"]] == one["old"]
    assert len(changes["suppressions"]) == (made == "").sum().sum()
    assert changes["suppressed_records"] <= 3
    first = changes["recodings"][0]
    assert (first["variable"], first["to"]) == ("age", "65+")
    merged = sum(one["to"] is not None for one in changes["recodings"])
    dropped = sum(name not in made for name in ("age", "sex", "race"))
    assert f"{merged} merge" in printed and f" of levels, {dropped} variable" in printed
    for name in before.columns.difference(["person"]):
        if name not in made:
            assert any(x["variable"] == name and x["to"] is None for x in changes["recodings"])
        elif name not in ("age", "sex", "race"):
            assert (made[name] == before[name]).all()
        else:
            became = {label: label for label in before[name]}
            for one in changes["recodings"]:
                if one["variable"] == name:
                    became = {x: one["to"] if y in one["levels"] else y for x, y in became.items()}
            assert ((made[name] == before[name].map(became)) | (made[name] == "")).all()
    page = (out / "report.html").read_text()
    check_well_formed(page, page.count("<svg"))
    words = words_of(page)
    assert "65+" in words and "Before and after" in words and "The file that is written" in words
    assert "person" not in made
    assert {x["column"]: x["role"] for x in changes["released"]["columns"]}[
        "education"
    ] == "carried"
    # What became of each level, whatever the steps were.
    for one in changes["levels"]:
        rows = before[one["variable"]] == one["level"]
        assert set(made.get(one["variable"], before["age"])[rows]) <= {one["becomes"], ""} or (
            one["becomes"] is None and one["variable"] not in made
        )

    # What it cost: the sample recoded as the file was, and nothing but suppression between them.
    judged = ["evaluate", str(csv), str(out / "protected.csv"), "--variables",
              "age,sex,race,education", "--quiet", "--out"]  # fmt: skip
    changed = ["--changes", str(out / "changes.json")]
    assert main([*judged, str(tmp_path / "e"), *changed]) == 0
    found = json.loads((tmp_path / "e/evaluation.json").read_text())
    assert found["proportions"]["1"]["overlap"] > 0.9
    assert main([*judged, str(tmp_path / "f")]) == 2
    assert re.search(r"column '(age|education)': value '.*( to |\+).*'", one_line(capsys))
    other = ["--changes", str(out / "run.json")]
    assert main([*judged, str(tmp_path / "f"), *other]) == 2
    assert "is not a changes.json that bnp-models protect has written" in one_line(capsys)
    assert not (tmp_path / "f").exists()


def test_a_recoding_is_kept_and_applied_to_other_files(csv, tmp_path, capsys):
    out, rare = tmp_path / "out", ["--merge-rare", "12"]
    call = ["protect", str(csv), *SHORT, "--max-tau1", "2", "--suppress", "0.02", "--quiet"]
    assert main([*call, *rare, "--recode", "drop:sex", "--keep-recoding", "--out", str(out)]) == 0
    rows = pd.read_csv(out / "recoding.csv", dtype=str, keep_default_na=False)
    assert ["sex", "", ""] in rows.to_numpy().tolist()
    became = {name: own.set_index("level")["becomes"] for name, own in rows.groupby("variable")}
    before, made = (pd.read_csv(x, dtype=str, keep_default_na=False)
                    for x in (csv, out / "protected.csv"))  # fmt: skip
    assert "sex" not in made and len(became) > 1
    for name, own in became.items():
        if name in made:
            assert ((made[name] == before[name].map(own)) | (made[name] == "")).all()

    # The original after it, and after each step.
    judged = ["evaluate", str(csv), str(out / "protected.csv"), "--variables", "age,sex,race",
              "--quiet", "--out"]  # fmt: skip
    by = ["--recode-by", str(out / "recoding.csv")]
    steps = [*rare, "--changes", str(out / "changes.json")]
    found = []
    for name, more in (("a", by), ("b", steps)):
        assert main([*judged, str(tmp_path / name), *more]) == 0
        found.append(json.loads((tmp_path / name / "evaluation.json").read_text()))
    assert found[0]["proportions"] == found[1]["proportions"]

    # Next year's file: the variable that is dropped is in no file that is written.
    again = tmp_path / "again"
    assert main([*call, *by, "--keep-recoding", "--max-risk", "1", "--out", str(again)]) == 0
    assert "sex" not in pd.read_csv(again / "protected.csv")
    assert (again / "recoding.csv").read_text().startswith("variable,level,becomes\n")
    for more, says in (
        (["--top-code", "age=65"], "--top-code: 'age' is also recoded by"),
        (["--bins", "age=3"], "--bins: 'age' is also recoded by"),
        (["--household", "person"], "--recode-by: "),
    ):  # fmt: skip
        capsys.readouterr()
        assert main([*judged, str(tmp_path / "c"), *by, *more]) == 2
        assert says in one_line(capsys)


@pytest.mark.parametrize(
    ("command", "more", "parts"),
    [
        ("protect", [], ["--max-tau1", "--max-risk"]),
        ("protect", ["--max-tau1", "1", "--recode", "merge:age=x+y"], ["--recode", "age"]),
        ("protect", ["--max-tau1", "1", "--importance", "income=2"], ["--importance", "income"]),
        ("protect", ["--max-tau1", "1", "--importance", "age"], ["such as income=2"]),
        ("protect", ["--max-risk", "1.5"], ["1.5 is out of range; it must be from 0 to 1"]),
        ("protect", ["--max-tau1", "1", "--link", "person=income"], ["--link", "key variable"]),
        ("protect", ["--max-tau1", "1", "--link", "income=age"], ["column 'income'", "unknown"]),
        ("protect", ["--max-tau1", "1", "--carry", "income"], ["column 'income'", "unknown"]),
        ("protect", ["--max-tau1", "1", "--carry", "age"], ["column of the carried age"]),
        ("protect", ["--max-tau1", "1", "--no-merge", "income"], ["--no-merge", "income"]),
        ("risk", ["--id", "age"], ["identifiers", "column 'age'"]),
        ("risk", ["--id", "nobody"], ["column 'nobody'", "unknown column"]),
        ("risk", ["--id", "r1"], ["column 'r1'", "records.csv"]),
    ],
)
def test_what_is_refused(command, more, parts, csv, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([command, str(csv), *SHORT, "--out", str(out), *more]) == 2
    message = one_line(capsys)
    assert all(part in message for part in parts), message
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "part"), [(["--conditions", "zeros.csv"], "structural zeros"),
                       (["--weights", "w"], "cannot be used with --weights")],
)  # fmt: skip
def test_new_chains_are_refused_where_there_could_be_none(more, part, csv, tmp_path, capsys):
    frame = pd.read_csv(csv)
    (tmp_path / "zeros.csv").write_text("age,sex\n0-14,Male\n")
    frame = frame[(frame["age"] != "0-14") | (frame["sex"] != "Male")]
    frame.assign(w=300 / len(frame)).to_csv(tmp_path / "sample.csv", index=False)
    more = [str(tmp_path / word) if word.endswith("csv") else word for word in more]
    call = ["protect", str(tmp_path / "sample.csv"), *SHORT, "--max-tau1", "1", "--refit", *more]
    if more[0] == "--conditions":
        call[call.index("nplcm")] = "tnplcm"
    assert main([*call, "--out", str(tmp_path / "out")]) == 2
    message = one_line(capsys)
    assert "--refit: " in message and part in message and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({"usable": {"tau1": True}, "warnings": ["for information"]}, 0),
        ({"usable": {"tau1": False}, "warnings": []}, 3),
        ({"usable": {"tau1": True}, "verdict": {"release": "unknown"}}, 3),
        # Of cells: the verdict is unknown already where their figures cannot be used.
        ({"verdict": {"release": True}, "warnings": ["full Bayes was used instead"]}, 0),
        ({"verdict": {"release": "unknown"}, "warnings": []}, 3),
        ({"warnings": ["not converged"]}, 3),
        ({"warnings": []}, 0),
    ],
)
def test_the_code_of_strict_commands(found, code, tmp_path):
    (tmp_path / "risk.json").write_text(json.dumps(found))
    document, limits = tmp_path / "risk.json", Limits(strict=True)
    assert with_strictness(limits, 0, document) == code
    assert with_strictness(limits, 2, document) == 2
    assert with_strictness(Limits(), 0, document) == 0
