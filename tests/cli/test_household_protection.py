"""Protected files of households: limits, files, and what is read of them again."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
from commands import CHILDREN_ARE_YOUNGER, one_line

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.data.compositions import compositions_of

SHORT = ["--components", "3", "--member-components", "2", "--chains", "2", "--warmup", "50",
         "--draws", "500", "--population-size", "300", "--quiet"]  # fmt: skip
BY = ["--household", "hid", "--household-variables", "tenure,persons"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """sample.csv of 60 households with heads, and rules that they obey."""
    folder = tmp_path_factory.mktemp("protected_households")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        size, tenure = int(rng.integers(1, 4)), str(rng.choice(["own", "rent"]))
        home = (f"H{90 - i}", size, tenure)
        rows.append((*home, "Householder", int(rng.choice(range(35, 75, 5)))))
        rows += [(*home, "Child", int(rng.choice(range(0, 20, 5)))) for _ in range(size - 1)]
    frame = pd.DataFrame(rows, columns=["hid", "persons", "tenure", "relate", "age"])
    frame["income"] = rng.integers(0, 3, len(frame)).astype(str)
    frame["area"] = np.where(frame["hid"] < "H6", "x", "y")
    frame.to_csv(folder / "sample.csv", index=False)
    (folder / "rules.yaml").write_text(CHILDREN_ARE_YOUNGER)
    return folder


def command(folder, out, *more):
    return ["protect", str(folder / "sample.csv"), *BY, *SHORT, "--drop", "income,area",
            "--out", str(out), *more]  # fmt: skip


def compositions(frame, names):
    keys = frame.groupby("hid", sort=False)[names].apply(
        lambda x: tuple(sorted(map(tuple, x.to_numpy(str))))
    )
    return keys.map(keys.value_counts())


def test_recodings_meet_the_limit(folder, tmp_path):
    out = tmp_path / "out"
    assert main(command(folder, out, "--max-tau1", "2", "--suppress", "0")) == 0
    sample, protected = pd.read_csv(folder / "sample.csv"), pd.read_csv(out / "protected.csv")
    changes = json.loads((out / "changes.json").read_text())
    assert changes["verdict"]["release"] is True and "2" in changes["verdict"]["why"]
    assert changes["household"] == "hid" and changes["n"] == 60
    assert changes["persons"] == len(sample) == len(protected)
    assert changes["recodings"] and not changes["suppressions"]
    assert changes["before"]["tau1"]["q975"] > 2 >= changes["after"]["tau1"]["q975"]
    # The households are those of the sample, numbered in its order.
    np.testing.assert_array_equal(protected["hid"], pd.factorize(sample["hid"])[0] + 1)
    kept = [name for name in ("persons", "tenure", "relate", "age") if name in protected]
    assert list(protected) == ["hid", *kept]
    own = ["persons", "tenure", "relate", "age"]
    for label, frame, names in (("before", sample, own), ("after", protected, kept)):
        assert changes[label]["sample_uniques"] == (compositions(frame, names) == 1).sum()
    level = {(one["variable"], one["level"]): one["becomes"] for one in changes["levels"]}
    for name in kept:
        expected = [level.get((name, str(x)), str(x)) for x in sample[name]]
        assert protected[name].astype(str).tolist() == expected
    page = (out / "report.html").read_text()
    assert "households of the protected file" in page and "60 households with" in page
    read = bnp.read_households(out / "protected.csv", "hid", [x for x in kept if x in BY[3]])
    assert read.n == 60
    # The protected file is one of households, with the same compositions.
    sharing = compositions_of(read).counts
    assert (sharing == 1).sum() == changes["after"]["sample_uniques"]


@pytest.mark.parametrize("rules", [False, pytest.param(True, marks=pytest.mark.long)])
def test_suppressions_are_of_whole_households(folder, tmp_path, rules):
    out = tmp_path / "out"
    more = ["--rules", str(folder / "rules.yaml")] if rules else []
    limits = ["--max-tau1", "4", "--max-risk", "0.5", "--suppress", "1"]
    assert main(command(folder, out, *limits, *more)) == 0
    sample = pd.read_csv(folder / "sample.csv", dtype=str)
    protected = pd.read_csv(out / "protected.csv", dtype=str)
    changes = json.loads((out / "changes.json").read_text())
    assert changes["verdict"]["release"] is True and not changes["recodings"]
    assert changes["after"]["largest_risk"] <= 0.5
    names = ["persons", "tenure", "relate", "age"]
    gone = protected[names].isna()
    assert gone.to_numpy().any()
    # All persons of a household lose a value together.
    same = gone.groupby(protected["hid"]).nunique()
    assert (same == 1).to_numpy().all()
    assert changes["suppressed"] == gone.sum().to_dict()
    assert changes["suppressed_records"] == gone.any(axis=1).groupby(protected["hid"]).any().sum()
    assert len(changes["suppressions"]) == gone.to_numpy().sum()
    for one in changes["suppressions"]:
        assert sample.loc[one["row"], one["column"]] == one["old"]
        assert sample.loc[one["row"], "hid"] == one["id"]
        assert pd.isna(protected.loc[one["row"], one["column"]])
    # What is left are the values of the sample.
    assert (protected[names].where(~gone) == sample[names].where(~gone)).to_numpy().sum() == (
        (~gone).to_numpy().sum()
    )
    if rules:
        read = bnp.read_households(out / "protected.csv", "hid", ["tenure", "persons"])
        assert bnp.read_rules(str(folder / "rules.yaml"), read).check(read).all()


def test_each_composition_has_k_households(folder, tmp_path):
    out = tmp_path / "out"
    asked = ["--k", "3", "tenure,age=4", "--suppress", "0.2", "--strata", "area"]
    words = command(folder, out, *asked)
    words[words.index("--drop") + 1] = "income"
    assert main(words) == 0
    protected = pd.read_csv(out / "protected.csv", dtype=str)
    changes = json.loads((out / "changes.json").read_text())
    assert changes["verdict"]["release"] is True
    assert [one["after"] for one in changes["anonymity"]] == [0, 0]
    assert changes["anonymity"][0]["before"] > 0
    assert "3 households" in changes["verdict"]["why"]
    names = [x for x in ("persons", "tenure", "relate", "age") if x in protected]
    complete = protected[names].notna().all(axis=1).groupby(protected["hid"]).transform("all")
    for _, one in protected[complete].groupby("area"):
        counts = compositions(one, names)
        missing = protected[protected["area"] == one["area"].iloc[0]]["hid"].nunique() - len(counts)
        assert (counts + missing >= 3).all()
    assert "area" in protected


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "no limit is given"),
        (["--max-tau1", "1", "--refit", "--rules", "RULES"], "--refit: the rules describe"),
        (["--max-tau1", "1", "--refit", "--weights", "persons"], "--refit: cannot be used with"),
        (
            ["--max-tau1", "1", "--recode", "drop:age;drop:relate"],
            "keep at least one that describes",
        ),
        (["--max-tau1", "1", "--recode", "drop:no"], "--recode: column 'no'"),
        (["--k", "2", "--strata", "income"], "persons of one household are in different strata"),
        (["--max-tau1", "1", "--population-size", "59"], "sample's 60 households"),
        (["--max-tau1", "1", "--model", "nplcm"], "can be used only with --model ndpmpm"),
        (["--max-tau1", "1", "--sizes", "given"], "unrecognized arguments: --sizes"),
    ],
)
def test_refusals(folder, tmp_path, capsys, more, message):
    more = [str(folder / "rules.yaml") if word == "RULES" else word for word in more]
    words = command(folder, tmp_path / "out", *more)
    words[words.index("--drop") + 1] = "area" if "income" in more else "income,area"
    if "--weights" in more:
        words[words.index("--household-variables") + 1] = "tenure"
    assert main(words) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_households_need_their_column(folder, tmp_path, capsys):
    words = ["protect", str(folder / "sample.csv"), *SHORT, "--model", "ndpmpm", "--max-tau1", "1"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "--model ndpmpm: needs --household" in one_line(capsys)


@pytest.mark.long
def test_weights_add_up_to_the_population(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "sample.csv").drop(columns=["income", "area"])
    frame["w"] = np.where(frame["tenure"] == "own", 25.0, 5.0)
    frame.to_csv(tmp_path / "sample.csv", index=False)
    total = int(frame.groupby("hid")["w"].first().sum())
    words = ["protect", str(tmp_path / "sample.csv"), *BY, *SHORT[:10], "--weights", "w",
             "--max-tau1", "2", "--out", str(tmp_path / "out")]  # fmt: skip
    assert main(words) == 0
    assert f"{total:,}" in capsys.readouterr().err
    changes = json.loads((tmp_path / "out" / "changes.json").read_text())
    assert changes["population_size"] == total and changes["verdict"]["release"] is True
    assert "w" not in pd.read_csv(tmp_path / "out" / "protected.csv")


def test_a_run_that_is_repeated(folder, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for out in (one, other):
        assert main(command(folder, out, "--max-tau1", "2", "--carry", "income",
                            "--drop", "area")) == 0  # fmt: skip
    for name in ("protected.csv", "changes.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert "income" in pd.read_csv(one / "protected.csv")


@pytest.mark.parametrize(
    ("recode", "relative"),
    [
        ("merge:age=0+5", []),
        pytest.param("drop:age", ["--relative", "age"], marks=pytest.mark.long),
    ],
)
def test_new_chains_on_the_protected_households(folder, tmp_path, recode, relative):
    out = tmp_path / "out"
    limits = ["--max-tau1", "1.5", "--suppress", "0.1", "--recode", recode]
    assert main(command(folder, out, *limits, "--refit", *relative)) == 0
    changes = json.loads((out / "changes.json").read_text())
    after, again = changes["after"], changes["refitted"]
    assert changes["recodings"][0]["variable"] == "age"
    assert again["sample_uniques"] == after["sample_uniques"]
    assert again["loss"] == after["loss"]
    if not relative:
        assert after["sample_uniques"] > 0 and again["tau1"] != after["tau1"]
    assert abs(again["tau1"]["mean"] - after["tau1"]["mean"]) < 2
    assert "new chains" in (out / "report.html").read_text()


def test_columns_beside_the_keys_are_judged_by_households(folder, tmp_path):
    """The income of each person makes more households unique."""
    out = tmp_path / "out"
    words = command(folder, out, "--max-tau1", "2", "--suppress", "0", "--carry", "income")
    words[words.index("--drop") + 1] = "area"
    assert main(words) == 0
    protected = pd.read_csv(out / "protected.csv", dtype=str)
    released = json.loads((out / "changes.json").read_text())["released"]
    keys = [x for x in protected if x not in ("hid", "income")]
    alone = [(compositions(protected, names) == 1).sum() for names in (keys, [*keys, "income"])]
    assert 0 < alone[0] < alone[1] == released["sample_uniques"]
    found = {one["column"]: one["sample_uniques"] for one in released["columns"]}
    assert found == dict.fromkeys(keys, alone[0]) | {"income": alone[1]}
    assert f"{alone[1]} households are unique in the sample" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("column", "more", "told"),
    [("age", [], True), ("age", ["--relative", "age"], False), ("age", ["--head", "no"], False),
     ("years", [], False)],
)  # fmt: skip
def test_the_head_tells_what_may_be_relative(folder, tmp_path, caplog, column, more, told):
    frame = pd.read_csv(folder / "sample.csv").drop(columns=["income", "area"])
    frame.rename(columns={"age": column}).to_csv(tmp_path / "sample.csv", index=False)
    words = ["risk", str(tmp_path / "sample.csv"), *BY, *SHORT[:-1], "--population-size", "5",
             "--out", str(tmp_path / "out"), *more]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        assert main(words) == 2
    said = [x for x in caplog.messages if "relative to the head" in x]
    assert len(said) == told and all("--relative age models" in x for x in said)
