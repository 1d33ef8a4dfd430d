"""The command line on persons within households: what it writes and what it refuses."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from commands import CHILDREN_ARE_YOUNGER, one_line

import bnp_models as bnp
from bnp_models.cli import options
from bnp_models.cli.dispatch import data_files
from bnp_models.cli.inputs import checked_input
from bnp_models.cli.main import main
from bnp_models.cli.options import parse
from bnp_models.cli.parser import make_parser
from bnp_models.cli.runs import recorded_settings
from bnp_models.cli.samples import read_household_sample
from bnp_models.inference.arviz import load_arviz

RULES = """
from bnp_models.rules import Rules, each, exactly, person

head, child = person(relate="Householder"), person(relate="Child")
rules = Rules([exactly(1, head), each(child).is_younger_than(head, 15)])
"""
HOUSEHOLDS = ["--model", "ndpmpm", "--household", "hid", "--household-variables", "tenure,persons"]
SHORT = ["--components", "3", "--member-components", "2", "--chains", "2", "--warmup", "20",
         "--draws", "20", "--datasets", "2"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """sample.csv with some missing ages, rules.py, and two.csv with a second householder."""
    folder = tmp_path_factory.mktemp("households")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        size, tenure = int(rng.integers(1, 3)), str(rng.choice(["own", "rent"]))
        rows.append((f"H{i}", size, tenure, "Householder", str(rng.choice(["30", "40"]))))
        rows += [(f"H{i}", size, tenure, "Child", str(rng.choice(["5", "10"])))] * (size - 1)
    frame = pd.DataFrame(rows, columns=["hid", "persons", "tenure", "relate", "age"])
    frame.loc[[3, 20, 40], "age"] = None
    frame.to_csv(folder / "sample.csv", index=False)
    two = frame.copy()
    two.loc[two.index[two["relate"] == "Child"][0], "relate"] = "Householder"
    two.to_csv(folder / "two.csv", index=False)
    (folder / "rules.py").write_text(RULES)
    (folder / "rules.yaml").write_text(CHILDREN_ARE_YOUNGER)
    (folder / "wrong.yaml").write_text("persons:\n  head:\n    relate: Haed\nrules: []\n")
    (folder / "roles.csv").write_text("role,label\nhead,Householder\nchild,Child\nboss,Child\n")
    return folder


@pytest.fixture(scope="module")
def done(folder):
    out = folder / "out"
    code = main(["synthesize", str(folder / "sample.csv"), *HOUSEHOLDS, "--rules",
                 str(folder / "rules.py"), *SHORT, "--out", str(out), "--quiet"])  # fmt: skip
    assert code == 0
    return out


def test_synthetic_files(done, folder):
    sample = pd.read_csv(folder / "sample.csv")
    for m in (1, 2):
        made = pd.read_csv(done / f"synthetic_{m}.csv")
        assert list(made.columns) == list(sample.columns)
        assert not made.isna().any(axis=None)
        sizes = made.groupby("hid").size()
        assert sorted(sizes) == sorted(sample.groupby("hid").size())
        assert (made["persons"] == made["hid"].map(sizes)).all()
        assert (made[made["relate"] == "Householder"].groupby("hid").size() == 1).all()
        heads = made[made["relate"] == "Householder"].set_index("hid")["age"]
        children = made[made["relate"] == "Child"]
        assert (children["age"] <= children["hid"].map(heads) - 15).all()
        assert made.groupby("hid")["tenure"].nunique().max() == 1


def test_run_json_and_report(done):
    run = json.loads((done / "run.json").read_text())
    assert (run["model"], run["households"], run["household_head"][1]) == (
        "ndpmpm", 60, "Householder",
    )  # fmt: skip
    assert run["augmented"] >= 0 and run["missing"] == 3
    # Too few draws of parameters were kept for margins.
    assert set(run["diagnostics"]) == {"log_likelihood", "components", "alpha", "beta"}
    page = (done / "report.html").read_text()
    for sentence in run["rules_in_words"]:
        assert sentence.replace("'", "&#39;") in page
    data = load_arviz().from_netcdf(done / "posterior.nc")
    assert data["posterior"]["alpha"].shape == (2, 20)
    assert data["parameters"]["log_phi"].shape[:2] == (2, 2)


def test_resume_of_a_finished_run(done, folder, capsys):
    arguments = ["synthesize", str(folder / "sample.csv"), *HOUSEHOLDS, "--rules",
                 str(folder / "rules.py"), *SHORT, "--out", str(done)]  # fmt: skip
    assert main([*arguments, "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().out
    assert main([*arguments, "--head", "no", "--resume"]) == 2
    assert "other data, settings or versions" in one_line(capsys)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("sample.csv", ["--model", "ndpmpm"], "needs --household"),
        ("sample.csv", ["--household", "hid"], "; say --model ndpmpm, or leave it out"),
        ("sample.csv", [*HOUSEHOLDS, "--rules", "none"], "no shipped rule set of this name"),
        ("sample.csv", [*HOUSEHOLDS, "--conditions", "c.csv"], "takes --rules"),
        ("sample.csv", [*HOUSEHOLDS, "--draws", "20", "--datasets", "9"], "(one in 10)"),
        ("sample.csv", [*HOUSEHOLDS, "--rows", "7"], "--rows: the synthetic households have"),
        ("sample.csv", ["--model", "ndpmpm", "--household", "nobody"], "unknown column"),
        (
            "sample.csv",
            ["--model", "ndpmpm", "--household", "hid", "--household-variables", "age"],
            "of the same household",
        ),
        (
            "sample.csv",
            [*HOUSEHOLDS, "--relative", "height"],
            "cannot be relative to the head's value, only age",
        ),
        ("sample.csv", [*HOUSEHOLDS, "--relative", "age"], "has a missing value of a variable"),
        (
            "sample.csv",
            [*HOUSEHOLDS, "--head", "no", "--relative", "age"],
            "described by variables of the household",
        ),
        (
            "sample.csv",
            [*HOUSEHOLDS, "--rules", "{}/wrong.yaml"],
            "wrong.yaml, line 3, column 'relate': value 'Haed' is not a declared level",
        ),
        (
            "sample.csv",
            [*HOUSEHOLDS, "--roles", "{}/roles.csv"],
            "roles.csv, row 2 (line 4), column 'role': unknown role 'boss'",
        ),
        ("two.csv", HOUSEHOLDS, "2 persons with the value 'Householder'"),
        ("two.csv", [*HOUSEHOLDS, "--head", "no"], "breaks the rule"),
        ("two.csv", [*HOUSEHOLDS, "--head", "yes"], "2 persons with the value 'Householder'"),
    ],
)
def test_bad_input(folder, tmp_path, capsys, file, options, message):
    options = [word.format(folder) for word in options]
    rules = [] if "--rules" in options or "ndpmpm" not in options else [
        "--rules", str(folder / "rules.py")
    ]  # fmt: skip
    code = main(["synthesize", str(folder / file), *options, *rules, "--out", str(tmp_path / "o")])
    assert code == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "o").exists()


def read(*words):
    """The households and the rules that options name, without a run."""
    parsed = parse(make_parser(), ["synthesize", *map(str, words), "--out", "o"])
    with data_files(parsed.values) as values:
        command = options.read(parsed.command, values)
        table, rules, _ = read_household_sample(command.data, command.fit)
    return table, rules.compile(table)


def checked(command, file, *words):
    """The model and the settings of a command, without a run."""
    words = [command, str(file), *HOUSEHOLDS, *map(str, words), "--out", "o"]
    parsed = parse(make_parser(), words)
    with data_files(parsed.values) as values:
        asked = options.read(parsed.command, values)
        inputs = checked_input(asked)
        return inputs.model, recorded_settings(asked, inputs)


def test_values_relative_to_the_head_are_chosen_from_the_sample(folder, tmp_path, caplog):
    """Files are made with those of couples, risks without; the settings say so."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(100):
        age, sex, size = int(rng.integers(20, 80)), str(rng.choice(["f", "m"])), 2 + i % 2
        rows.append((i, size, "own", "Householder", age, sex))
        rows.append((i, size, "own", "Spouse", age - 1, "m" if sex == "f" else "f"))
        rows += [(i, size, "own", "Child", int(rng.integers(20)), "f")] * (i % 2)
    names = ["hid", "persons", "tenure", "relate", "age", "sex"]
    file = tmp_path / "couples.csv"
    pd.DataFrame(rows, columns=names).to_csv(file, index=False)
    chosen = (("age", "difference", ("Spouse",)), ("sex", "same", ("Spouse",)))
    for words in ([], ["--relative", "auto"]):
        model, settings = checked("synthesize", file, *words)
        assert model.relative == chosen
        assert settings["relative"] == json.loads(json.dumps(chosen))
    assert "couples are less alike" not in caplog.text
    # Under rules with a prior of P(possible), by default if values are relative to the head's.
    rules = ["--rules", "census-relationships"]
    for words, number in (
        ([], 0), (rules, 5), ([*rules, "--relative", "none"], 0),
        ([*rules, "--prior-possible", "0"], 0), ([*rules, "--prior-possible", "7"], 7),
    ):  # fmt: skip
        model, settings = checked("synthesize", file, *words)
        assert model.prior_possible == settings["prior_possible"] == number
    assert checked("risk", file, "--population-size", "1000", *rules)[0].prior_possible == 0
    assert checked("impute", file)[0].relative == chosen
    groups = tmp_path / "ages.csv"
    ages = [*range(80)]
    pd.DataFrame({"level": ages, "tens": [x // 10 for x in ages]}).to_csv(groups, index=False)
    model, _ = checked("synthesize", file, "--groups", f"age={groups}")
    assert model.relative == chosen[1:]
    model, settings = checked("synthesize", file, "--relative", "none")
    assert model.relative == () and settings["relative"] == []
    model, _ = checked("synthesize", file, "--relative", "age")
    assert model.relative == ("age",)
    caplog.clear()
    assert checked("risk", file, "--population-size", "1000")[0].relative == ()
    assert "couples are less alike in age" in caplog.text
    # An age is not chosen if that of a head is missing, of one who lives alone too.
    persons = pd.read_csv(file, dtype=str)
    alone = pd.DataFrame([("alone", "1", "own", "Householder", None, "f")], columns=names)
    persons.loc[len(persons)] = ["with", "2", "own", "Householder", "40", "f"]
    persons.loc[len(persons)] = ["with", "2", "own", "Spouse", "40", "m"]
    for missing in (pd.concat([persons, alone]), persons.replace({"age": {"40": None}})):
        missing.to_csv(tmp_path / "missing.csv", index=False)
        assert checked("impute", tmp_path / "missing.csv")[0].relative == chosen[1:]
    # Children here are not like their heads, who are known.
    caplog.clear()
    assert checked("synthesize", folder / "sample.csv")[0].relative == ()
    assert "none was found in which members are like their heads" in caplog.text


def test_files_from_an_earlier_run_that_recorded_no_defaults(done, folder, tmp_path):
    """None stands for what was not given."""
    run = tmp_path / "run"
    shutil.copytree(done, run)
    settings = json.loads((run / "run.json").read_text())
    assert settings["relative"] == [] and settings["prior_possible"] == 0
    again = ["synthesize", str(folder / "sample.csv"), *HOUSEHOLDS, "--rules",
             str(folder / "rules.py"), *SHORT, "--from", str(run), "--quiet"]  # fmt: skip
    for recorded, code in ((None, 0), (["age"], 2)):
        changed = settings | {"relative": recorded, "prior_possible": None}
        (run / "run.json").write_text(json.dumps(changed))
        assert main([*again, "--out", str(tmp_path / f"out{code}")]) == code


def test_yaml_and_python_files_give_the_same_compiled_rules(folder):
    files = [read(folder / "sample.csv", *HOUSEHOLDS, "--rules", folder / f"rules.{suffix}")[1]
             for suffix in ("py", "yaml")]  # fmt: skip
    assert files[0] == files[1] and len(files[1].rules) == 2


def test_the_shipped_rules_in_another_language(folder, tmp_path):
    sample = pd.read_csv(folder / "sample.csv")
    german = sample.rename(columns={"relate": "stellung", "age": "alter"})
    german["stellung"] = german["stellung"].map({"Householder": "Vorstand", "Child": "Kind"})
    german.to_csv(tmp_path / "german.csv", index=False)
    (tmp_path / "roles.csv").write_text(
        "role,label\nrelationship variable,stellung\nage variable,alter\nhead,Vorstand\n"
        "spouse,Gatte\nchild,KIND\n"
    )
    shipped = [*HOUSEHOLDS, "--rules", "census-relationships"]
    table, rules = read(tmp_path / "german.csv", *shipped, "--roles", tmp_path / "roles.csv")
    assert table.schema.head == ("stellung", "Vorstand")
    same, of_same = read(folder / "sample.csv", *shipped)
    assert [rule.name for rule in rules.rules] == [rule.name for rule in of_same.rules]
    for mine, others in zip(table.size_blocks, same.size_blocks, strict=True):
        codes = np.random.default_rng(0).permuted(mine.member_codes, axis=0)
        np.testing.assert_array_equal(mine.member_codes, others.member_codes)
        np.testing.assert_array_equal(
            rules.on_numpy(mine.household_codes, codes),
            of_same.on_numpy(others.household_codes, codes),
        )


def test_imputed_files(folder, capsys):
    """Ages of children relative to heads, whose own are known."""
    sample = pd.read_csv(folder / "sample.csv")
    sample.loc[sample["relate"] == "Householder", "age"] = sample["age"].fillna(30)
    children = sample.index[sample["relate"] == "Child"]
    sample.loc[children[:2], "age"] = np.nan
    sample.to_csv(folder / "members.csv", index=False)
    out = folder / "imputed"
    command = ["impute", str(folder / "members.csv"), *HOUSEHOLDS, "--rules",
               str(folder / "rules.py"), *SHORT, "--relative", "age:difference", "--level-prior",
               "uniform", "--prior-possible", "2", "--out", str(out)]  # fmt: skip
    assert main([*command, "--quiet"]) == 0
    made = pd.read_csv(out / "imputed_1.csv")
    seen = sample.notna()
    pd.testing.assert_frame_equal(made.where(seen), sample, check_dtype=False)
    assert not made.isna().any(axis=None)
    table = bnp.Households.from_frame(made, "hid", ["tenure", "persons"])
    assert bnp.read_rules(folder / "rules.py", table).check(table).all()
    settings = json.loads((out / "run.json").read_text())
    assert settings["relative"] == [["age", "difference"]] and settings["level_prior"] == {
        "kind": "uniform"
    }
    assert settings["prior_possible"] == 2
    assert main([*command, "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["household", "person"])
def test_attack_risks(done, folder, tmp_path, target):
    out = tmp_path / "out"
    files = [str(done / f"synthetic_{m}.csv") for m in (1, 2)]
    assert main(["evaluate", str(folder / "sample.csv"), *files, *HOUSEHOLDS[2:], "--rules",
                 str(folder / "rules.py"), "--posterior", str(done / "posterior.nc"), "--target",
                 target, "--out", str(out), "--quiet"]) == 0  # fmt: skip
    found = json.loads((out / "evaluation.json").read_text())["attack_risk"]
    assert found["target"] == target
    records = pd.read_csv(out / "records.csv")
    assert len(records) == found["attacked"]
    if len(records):
        assert records["rho"].between(0, 1).all()
