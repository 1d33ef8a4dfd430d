"""``bnp-models evaluate``: what it writes, what it refuses, and what may be handed outside."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import check_well_formed, words_of

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.data.source import file_digest
from bnp_models.evaluation import evaluation
from bnp_models.report.evaluation import render_evaluation_report

NAMES = ["age", "sex", "work", "region"]
LEVELS = {"age": ["0-14", "15-64", "65+"], "sex": ["f", "m"], "work": ["no", "yes"],
          "region": ["n", "e", "s", "w"]}  # fmt: skip


def people(rng, rows):
    age = rng.choice(3, rows, p=[0.2, 0.6, 0.2])
    work = (age == 1) & (rng.random(rows) < 0.7)
    codes = [age, rng.integers(2, size=rows), work.astype(int),
             np.minimum(rng.geometric(0.5, rows), 4) - 1]  # fmt: skip
    return pd.DataFrame({n: np.array(LEVELS[n])[c] for n, c in zip(NAMES, codes, strict=True)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An original, three good synthetic files, one that is independent, and the population."""
    folder, rng = tmp_path_factory.mktemp("evaluate"), np.random.default_rng(0)
    frame = people(rng, 500)
    frame.to_csv(folder / "original.csv", index=False)
    for m in (1, 2, 3):
        people(rng, 400).to_csv(folder / f"synthetic_{m}.csv", index=False)
    shuffled = frame.apply(lambda column: rng.permutation(column.to_numpy()))
    shuffled.to_csv(folder / "bad.csv", index=False)
    people(rng, 20_000).to_parquet(folder / "population.parquet", index=False)
    (folder / "zeros.csv").write_text("age,work\n0-14,yes\n65+,yes\n")
    return folder


def arguments(folder, *more, files=("synthetic_1.csv", "synthetic_2.csv", "synthetic_3.csv")):
    return ["evaluate", str(folder / "original.csv"), *(str(folder / name) for name in files),
            *map(str, more)]  # fmt: skip


@pytest.fixture(scope="module")
def done(folder):
    out = folder / "out"
    (out).mkdir()
    (out / "report.html").write_text("that of an earlier call")
    assert main(arguments(folder, "--population", folder / "population.parquet", "--conditions",
                          folder / "zeros.csv", "--out", out, "--quiet")) == 0  # fmt: skip
    return out


def test_evaluation_json(done, folder):
    found = json.loads((done / "evaluation.json").read_text())
    assert list(found) == [
        "command", "original_sha256", "synthetic_sha256", "n", "files", "population_size",
        "variables", "levels", "cells", "missing", "seed", "version", "combining", "level",
        "proportions", "pmse", "worst_tables", "household_shares", "k_anonymity",
        "replicated_uniques", "closest_records", "disclosure", "pmse_trees", "impossible",
        "synthetic_runs", "attack_risk", "attack_gains", "attack_not_assessed", "warnings",
        "seconds",
    ]  # fmt: skip
    assert found["command"].startswith("bnp-models evaluate ")
    assert (found["n"], found["population_size"], found["levels"]) == (500, 20_000, [3, 2, 2, 4])
    assert [file["name"] for file in found["files"]] == [f"synthetic_{m}.csv" for m in (1, 2, 3)]
    # The command is the notebook's few lines.
    original = bnp.read_microdata(folder / "original.csv")
    files = [bnp.io.read_like(folder / f"synthetic_{m}.csv", original) for m in (1, 2, 3)]
    population = bnp.io.read_like(folder / "population.parquet", original)
    for order in (1, 2, 3):
        expected = bnp.evaluation.proportions(
            original, files, order, population=population
        ).summary()
        assert found["proportions"][str(order)] == expected
        assert 0.6 < expected["overlap"] < 1 and expected["covers_population"] > 0.9
    score = bnp.evaluation.propensity_score(original, files[1])
    assert found["pmse"]["main_effects"]["files"][1] == score._asdict()
    assert found["pmse"]["pairs"]["ratio"] < 5
    assert [one["number"] for one in found["impossible"]] == [0, 0, 0]
    assert len(found["worst_tables"]["2"]) == 6
    own = pd.read_csv(folder / "original.csv").value_counts()
    assert found["k_anonymity"]["original"][0]["records"] == (own == 1).sum()
    assert found["replicated_uniques"]["uniques"] == (own == 1).sum()
    assert found["attack_risk"] is None and found["attack_not_assessed"] is None


def test_the_report_says_the_same(done):
    found = json.loads((done / "evaluation.json").read_text())
    text = (done / "report.html").read_text()
    check_well_formed(text, num_plots=9)
    words = words_of(text)
    assert html.unescape(found["command"]) in words
    assert f"bnp-models {bnp.__version__}" in words and "synthetic_2.csv (400 records)" in words
    for row in found["proportions"].values():
        assert f"<td>{row['overlap']:.1%}</td>" in text
        assert f"<td>{row['covers_population']:.1%}</td>" in text
    for row in found["k_anonymity"]["original"]:
        assert f">fewer than {row['k']}</th><td>{row['records']}</td>" in text
    assert "Not one record breaks a condition" in words and "Read before use" not in words


def test_it_is_deterministic(done, folder):
    again = folder / "again"
    command = json.loads((done / "evaluation.json").read_text())["command"]
    assert main([*command.split()[1:-3], "--out", str(again), "--quiet"]) == 0
    mine, theirs = (json.loads((out / "evaluation.json").read_text()) for out in (done, again))
    for found in (mine, theirs):
        del found["command"], found["seconds"]
    assert mine == theirs


def test_a_bad_file_is_warned_of(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(arguments(folder, "--conditions", folder / "zeros.csv", "--out", out,
                          files=["bad.csv"])) == 0  # fmt: skip
    printed = capsys.readouterr().out
    bad = pd.read_csv(folder / "bad.csv")
    broken = (bad["work"] == "yes") & (bad["age"] != "15-64")
    row = int(np.argmax(broken))
    assert (
        f"warning: do not release bad.csv: {broken.sum()} records break a condition (the first in "
        f"row {row}: age = {bad['age'][row]} and work = yes)"
    ) in printed
    assert "poor fit of 1 pair of variables" in printed and "age and work" in printed
    assert "warning: poor fit: a regression on pairs of variables" in printed
    assert "one synthetic file" in printed
    assert "written: " in printed and "evaluation.json" in printed
    found = json.loads((out / "evaluation.json").read_text())
    assert found["impossible"][0]["number"] == broken.sum()
    assert found["impossible"][0]["first_rows"] == np.flatnonzero(broken)[:20].tolist()
    assert "Do not release these files" in (out / "report.html").read_text()


def test_no_green_box_over_chains_that_did_not_converge(folder, done, tmp_path):
    assert "because there is no run.json" in words_of((done / "report.html").read_text())
    made = tmp_path / "made"
    made.mkdir()
    names = [f"synthetic_{m}.csv" for m in (1, 2, 3)]
    for name in names:
        (made / name).write_bytes((folder / name).read_bytes())
    run = {"files_sha256": {name: file_digest(made / name) for name in names}, "warnings": []}
    (made / "run.json").write_text(json.dumps(run))
    call = ["evaluate", str(folder / "original.csv"), *(str(made / name) for name in names),
            "--quiet", "--out"]  # fmt: skip
    assert main([*call, str(tmp_path / "good")]) == 0
    assert (
        "run that made the files warned of nothing"
        in (tmp_path / "good" / "report.html").read_text()
    )
    run["warnings"] = ["not converged: R-hat should be at most 1.05, but its values are: alpha 1.4"]
    (made / "run.json").write_text(json.dumps(run))
    assert main([*call, str(tmp_path / "bad")]) == 0
    page = (tmp_path / "bad" / "report.html").read_text()
    said = f"run that made {names[0]}, {names[1]} and {names[2]}: {run['warnings'][0]}"
    assert said in words_of(page) and 'class="box good"' not in page
    found = json.loads((tmp_path / "bad" / "evaluation.json").read_text())
    assert f"the {said}" in found["warnings"]
    assert found["synthetic_runs"][0]["files"] == names


def test_missing_values(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "original.csv")
    frame.loc[:9, "work"] = None
    frame.to_csv(tmp_path / "original.csv", index=False)
    out = tmp_path / "out"
    assert main(["evaluate", str(tmp_path / "original.csv"), str(folder / "synthetic_1.csv"),
                 "--conditions", str(folder / "zeros.csv"), "--out", str(out)]) == 0  # fmt: skip
    assert "values are missing in 10 records of the original and 0 syn" in capsys.readouterr().out
    found = json.loads((out / "evaluation.json").read_text())
    assert found["missing"] == 10
    complete = frame.dropna().value_counts()
    assert found["k_anonymity"]["original"][0]["records"] == (complete == 1).sum()


# Content of the synthetic file, arguments, parts of the message.
BAD = {
    "no file": (None, [], ["s.csv", "No such file"]),
    "a column is missing": ("age,sex,work\n0-14,f,no\n", [], ["s.csv", "column 'region'"]),
    "unknown label": ("age,sex,work,region\n0-14,f,no,n\n0-14,x,no,n\n", [],
                      ["s.csv", "row 1 (line 3)", "column 'sex'", "'x'"]),
    "nothing complete": ("age,sex,work,region\n0-14,f,no,\n0-14,,no,n\n", [],
                         ["s.csv", "no record has values of all"]),
    "one record": ("age,sex,work,region\n0-14,f,no,n\n", [], ["s.csv", "1 usable record"]),
    "unknown variable": ("", ["--variables", "age,height"], ["original.csv", "column 'height'"]),
    "impossible original": ("", ["--conditions", "{dir}/all.csv"],
                            ["original.csv", "row ", "(line ", "'age' = '15-64'"]),
    "conditions of others": ("", ["--conditions", "{dir}/other.csv"],
                             ["other.csv", "row 0 (line 2)", "'height'"]),
    "household options": ("", ["--rules", "census-relationships"], ["--rules", "--household"]),
    "quantities": ("", ["--quantities", "q.py"], ["--quantities", "--household"]),
    "combining": ("", ["--combining", "both"], ["--combining", "'both'"]),
    "population": ("", ["--population", "{dir}/people.csv"],
                   ["people.csv", "row 0 (line 2)", "column 'age'", "'40'"]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "more", "parts"), BAD.values(), ids=BAD)
def test_bad_input(content, more, parts, folder, tmp_path, capsys):
    good = "age,sex,work,region\n0-14,f,no,n\n15-64,m,yes,s\n"
    if content is not None:
        (tmp_path / "s.csv").write_text(content or good)
    (tmp_path / "all.csv").write_text("age,work\n15-64,yes\n")
    (tmp_path / "other.csv").write_text("age,height\n0-14,tall\n")
    (tmp_path / "people.csv").write_text(good.replace("0-14", "40"))
    out = tmp_path / "deep" / "out"
    more = [word.format(dir=tmp_path) for word in more]
    code = main(["evaluate", str(folder / "original.csv"), str(tmp_path / "s.csv"), *more, "--out",
                 str(out)])  # fmt: skip
    assert code == 2
    message = one_line(capsys)
    for part in parts:
        assert part in message
    assert not out.parent.exists()


def test_nothing_is_left_of_an_interrupted_call(folder, tmp_path, capsys, monkeypatch):
    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "evaluate", interrupt)
    assert main(arguments(folder, "--out", tmp_path / "a" / "out")) == 130
    assert "repeat the command" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_progress(folder, tmp_path, capsys):
    assert main(arguments(folder, "--out", tmp_path / "out", "--progress", "--quiet")) == 0
    printed = capsys.readouterr().err
    assert "3-way tables" in printed and "propensity scores, pairs" in printed


RULES = """
from bnp_models.rules import Rules, at_least, exactly, household, person

head, child = person(relate="head"), person(relate="child")
rules = Rules([exactly(1, head).named("one head")])
"""
QUANTITIES = """
rules:
- name: any child
  at least: 1
  of: {relate: child}
- name: owned
  household: {tenure: own}
"""


def homes(rng, number, heads=1):
    rows = []
    for i in range(number):
        tenure = str(rng.choice(["own", "rent"]))
        rows += [(f"H{i}", "head", tenure)] * heads
        rows += [(f"H{i}", "child", tenure)] * int(rng.integers(0, 3))
    return pd.DataFrame(rows, columns=["hid", "relate", "tenure"])


def test_households(tmp_path, capsys):
    rng = np.random.default_rng(1)
    frames = [homes(rng, 200) for _ in range(3)]
    two = homes(rng, 1, heads=2).assign(hid="two")
    frames[2] = pd.concat([frames[2], two])
    for name, frame in zip(("original", "s_1", "s_2"), frames, strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "quantities.yaml").write_text(QUANTITIES)
    out = tmp_path / "out"
    files = [str(tmp_path / f"{name}.csv") for name in ("original", "s_1", "s_2")]
    options = ["--household", "hid", "--household-variables", "tenure", "--quantities",
               str(tmp_path / "quantities.yaml"), "--out", str(out)]  # fmt: skip
    (tmp_path / "roles.csv").write_text("role,label\nhead,head\nelf,child\n")
    assert main(["evaluate", *files, *options, "--roles", str(tmp_path / "roles.csv")]) == 2
    assert "roles.csv, row 1 (line 3), column 'role': unknown role 'elf'" in one_line(capsys)
    unused = ["--household", "hid", "--roles", str(tmp_path / "roles.csv"), "--out", str(out)]
    assert main(["evaluate", *files, *unused]) == 2
    assert "--roles: is used only with --rules, --quantities or --posterior" in one_line(capsys)
    assert main(["evaluate", *files, *options, "--rules", str(tmp_path / "rules.py")]) == 0
    assert "do not release s_2.csv: 1 household breaks a rule" in capsys.readouterr().out
    found = json.loads((out / "evaluation.json").read_text())
    assert [one["number"] for one in found["impossible"]] == [0, 1]
    assert found["impossible"][1]["by_rule"] == {"one head": 1}
    assert found["households"] == 200 and found["synthetic_households"] == [200, 201]
    child, owned = found["household_shares"]
    has_child = [(f["relate"] == "child").groupby(f["hid"]).any().mean() for f in frames]
    assert child["original"] == pytest.approx(has_child[0])
    assert child["synthetic"] == pytest.approx(np.mean(has_child[1:]))
    assert owned["name"] == "owned" and 0 < owned["overlap"] < 1
    assert '<th scope="row" class="wrap">any child</th>' in (out / "report.html").read_text()
    assert main(["evaluate", files[0], files[1], *options, "--conditions", "z.csv"]) == 2
    assert "--conditions" in one_line(capsys)
    assert main(["evaluate", files[2], files[1], *options[:-1], str(tmp_path / "o"), "--rules",
                 str(tmp_path / "rules.py")]) == 2  # fmt: skip
    assert "breaks the rule 'one head'" in one_line(capsys)
    assert not (tmp_path / "o").exists()


def rare_files():
    """A table with a level, and with cells, that one record has; and a synthetic one."""
    rng = np.random.default_rng(2)
    schema = bnp.Schema(("x", "y"), (("common", "usual", "peculiar"), ("1", "2")))
    codes = np.stack([rng.integers(2, size=300), rng.integers(2, size=300)], axis=1)
    codes[0, 0] = 2
    return bnp.Microdata(schema, codes), bnp.Microdata(schema, codes[::-1])


def test_a_page_without_records_shows_no_single_person():
    original, synthetic = rare_files()
    found = bnp.evaluate(original, [synthetic] * 2)
    points = []
    for records in (True, False):
        text = render_evaluation_report(found, records=records)
        assert "peculiar" not in text
        plots = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
        points.append([plot.count("<use ") for plot in plots[:2]])
    # One level, and one cell of two variables, less.
    assert points[0][0] - points[1][0] == 1 and points[0][1] - points[1][1] == 1
    assert "Cells with fewer than 5 records" in words_of(text)


def test_no_cells_are_written_on_request(folder, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(["risk", str(folder / "original.csv"), "--population-size", "20000", "--chains",
                 "2", "--draws", "10", "--model", "polettini-stander-1", "--alpha", "0.9",
                 "--no-records", "--out", str(out)])  # fmt: skip
    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "posterior.nc", "report.html", "risk.json", "run.json", "run.toml",
    ]  # fmt: skip
    assert "cells.csv" not in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "riskiest" not in page and "left out of this page" in words_of(page)


def test_files_that_break_the_same_conditions_have_their_own_names():
    original, synthetic = rare_files()
    zeros = bnp.StructuralZeros.from_codes([[2, -1]], original.schema)
    result = bnp.evaluate(original, [synthetic, synthetic], conditions=zeros)
    page = render_evaluation_report(result, ["first.csv", "second.csv"])
    for name in ("first.csv", "second.csv"):
        assert page.count(f'<tr><th scope="row">{name}</th><td>1</td>') == 1


def test_tables_of_too_many_cells_are_refused_in_one_line(tmp_path, capsys):
    frame = pd.DataFrame({name: np.arange(1001) for name in ("x", "y")})
    for name in ("original", "synthetic"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("original", "synthetic")]
    assert main(["evaluate", *files, "--out", str(tmp_path / "out")]) == 2
    assert "every table of 2 variables has more than 1,000,000 cells" in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_an_unknown_combining_rule_is_refused_before_any_table_is_made():
    original, synthetic = rare_files()
    done = []
    with pytest.raises(ValueError, match="combining rule must be one of"):
        bnp.evaluate(
            original, [synthetic], combining="both", progress=lambda *step: done.append(step)
        )
    assert done == []
