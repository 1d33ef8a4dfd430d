"""What messages advise is tried on the very case, and files with odd headers, names and numbers."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

from bnp_models.cli import risk, runs
from bnp_models.cli.main import main

RISK = ("--population-size", "9000")
HOUSEHOLDS = ("--model", "ndpmpm", "--household", "hid")


@pytest.fixture
def asked(monkeypatch):
    """Tables and conditions that were to be sampled; the command ends with 130 then."""
    found = []

    def stop(_model, table, conditions=None, **_):
        found.append((table, conditions))
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sample", stop)
    return found


def error_of(capsys):
    """The error that the last command ended with."""
    *_, last = capsys.readouterr().err.splitlines()
    assert re.match("bnp-models( synthesize)?: error: ", last)
    return last


def advised(said):
    """Options that a message names, each with its value, as a shell reads them."""
    options = re.findall(r"--[a-z-]+(?: (?:'[^']*'|[^\s,;()']+))?", said)
    return [words for option in options if (words := shlex.split(option))[0] != "--variables"]


N = 240
SEX = np.tile(["f", "m", "m"], N // 3)
IDENTIFYING = {
    "full name": [f"Anna {k}" for k in range(N)],
    "dob": [f"19{40 + k % 50}-{1 + k % 12:02}-{1 + k // 9:02}" for k in range(N)],
    "salary, monthly": [1000 + 7 * k for k in range(N)],
    "sex=code": [f"H{k // 3:05}" for k in range(N)],
    'said "h"': [f"{k // 3}" for k in range(N)],
}


@pytest.mark.parametrize("name", IDENTIFYING)
def test_advice_on_columns_that_identify(name, tmp_path, asked, capsys):
    path = tmp_path / "s.csv"
    pd.DataFrame({name: IDENTIFYING[name], "sex": SEX, "b": "x"}).to_csv(path, index=False)
    command = ("risk", str(path), *RISK, "--out", str(tmp_path / "out"))
    assert main(command) == 2
    said = error_of(capsys)
    options = advised(said)
    names = {option for option, *_ in options}
    assert {"--drop", "--allow-identifying"} <= names
    assert ("--bins" in names) == (name == "salary, monthly")
    assert ("--merge-rare" in names) == (name in ("full name", "dob"))
    for words in options:
        assert main((*command, *words)) == 130, words
        table, _ = asked.pop()
        assert ("--drop" in words or "--id" in words) == (name not in table.schema.variables)


def test_columns_that_are_dropped(tmp_path, asked, capsys):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"sex": SEX, "a, b": None, "c": None, "age": np.arange(N) % 7, "w": 2.0})
    frame.to_csv(path, index=False)
    command = ("risk", str(path), *RISK, "--out", str(tmp_path / "out"))
    assert main(command) == 2
    said = error_of(capsys)
    assert "the variables 'a, b' and 'c' have no level" in said
    ((drop, names),) = advised(said)
    assert main((*command, drop, names, "--weights", "w")) == 130
    assert asked.pop()[0].schema.variables[:2] == ("sex", "age")
    assert main((*command, drop, names, "--variables", "sex,age")) == 2
    assert "--drop: names columns to leave out, but" in error_of(capsys)
    assert main((*command, drop, "a")) == 2
    said = error_of(capsys)
    assert "--drop: " in said and "column 'a': unknown column" in said
    # A list of names, in which a comma stands between them.
    quoted = shlex.split(said.rpartition("in a list of names, write ")[2])[0]
    assert main((*command, drop, f"{quoted},c")) == 130


def test_a_title_above_the_header(tmp_path, asked, capsys):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"sex": SEX, "age": np.arange(N) % 7, "town": np.arange(N) % 5})
    path.write_text("A survey\n\n" + frame.to_csv(index=False))
    command = ("risk", str(path), *RISK, "--out", str(tmp_path / "out"))
    assert main(command) == 2
    ((skip, number),) = advised(error_of(capsys))
    assert main((*command, skip, number)) == 130
    assert asked.pop()[0].schema.variables == tuple(frame)


@pytest.fixture
def odd(tmp_path):
    """Names and labels with the signs that options use."""
    path = tmp_path / "odd.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({
        "sex=gender": SEX,
        "edu, level": rng.integers(0, 30, N),
        "a; b": rng.choice(["A+B", "C; D", "E|F", "G=H", "!x", 'said "i"'], N),
        "town\nor village": rng.choice(list("xyz"), N),
    }).to_csv(path, index=False)  # fmt: skip
    return ("risk", str(path), *RISK, "--out", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("--what-if", "drop:edu, level"), {"edu, level": None}),
        (("--what-if", 'drop:"edu, level","a; b"'), {"edu, level": None, "a; b": None}),
        (("--what-if", 'keep:"edu, level",sex=gender'), {"a; b": None, "town or village": None}),
        (("--what-if", "merge:sex=gender=f+m"), {"sex=gender": 1}),
        (("--what-if", 'drop:edu, level;merge:"sex=gender"=f+m'),
         {"edu, level": None, "sex=gender": 1}),
        (("--what-if", 'merge:a; b="C; D"+A+B'), None),
        (("--what-if", 'merge:"a; b"="C; D"+A+B+!x'), {"a; b": 4}),
        (("--what-if", 'merge:"a; b"=E|F+G=H+"said ""i"""'), {"a; b": 4}),
        (("--keys", '"edu, level",sex=gender'), {"a; b": None, "town or village": None}),
        (("--keys", '"edu, level","a; b","town or village",sex=gender'), {}),
    ],
)  # fmt: skip
def test_what_if_statements_on_odd_names(words, kept, odd, asked, capsys, monkeypatch):
    made = []
    check = risk._checked_coarsenings
    monkeypatch.setattr(risk, "_checked_coarsenings", lambda *a: made.append(check(*a)) or made[-1])
    more = ("--variables", '"edu, level","a; b","town or village",sex=gender')
    if kept is None:
        assert main((*odd, *more, *words)) == 2
        assert "in double quotes" in error_of(capsys)
        return
    assert main((*odd, *more, *words)) == 130
    recoding = next(iter(made[0].values()))
    changed = {name: of and len(of.labels) for name, of in recoding.changed.items()}
    assert changed == kept


@pytest.mark.parametrize(
    "words",
    [
        ("--bins", "edu, level=4"),
        ("--top-code", "edu, level=20"),
        ("--ordered", '"edu, level"'),
        ("--drop", '"edu, level","town\nor village"'),
        ("--id", "a; b"),
        ("--groups", "sex=gender={}/g=1.csv"),
    ],
)
def test_options_on_odd_names(words, odd, asked, tmp_path):
    (tmp_path / "g=1.csv").write_text("level,group\nf,all\nm,all\n")
    assert main((*odd, *(word.format(tmp_path) for word in words))) == 130


def towns(tmp_path, **more):
    """Municipalities, in an order by which they and the regions are not told apart."""
    rng = np.random.default_rng(0)
    town = rng.integers(0, 30, 600)
    frame = pd.DataFrame({
        "region": [f"R{k % 4}" for k in town], "town": [f"T{k}" for k in town],
        "sex": rng.choice(["f", "m"], 600), "a=b": [f"{k % 4}" for k in town], **more,
    })  # fmt: skip
    path = tmp_path / "towns.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_one_variable_that_settles_another(tmp_path, asked, capsys):
    path, frame = towns(tmp_path)
    zeros, out = tmp_path / "zeros.csv", tmp_path / "out"
    assert main(("conditions", "suggest", str(path), "--out", str(zeros))) == 0
    said = capsys.readouterr().out
    options = advised(said)
    assert [pair for _, pair in options] == ["town=region", 'region="a=b"', 'town="a=b"']
    # All of it, in a row for each region.
    rows = pd.read_csv(zeros, dtype=str, keep_default_na=False)
    of_pair = rows[(rows["region"] != "") & (rows["town"] != "")]
    assert sorted(of_pair["region"]) == ["!R0", "!R1", "!R2", "!R3"]
    zeros.write_text(zeros.read_text().replace("?", ""))
    command = ("synthesize", str(path), "--model", "tnplcm", "--out", str(out))
    more = [word for words in options for word in words]
    for words in (more, ("--conditions", str(zeros)), (*more, "--conditions", str(zeros))):
        assert main((*command, *words)) == 130
        assert asked.pop()[1].num_feasible_cells == frame["town"].nunique() * 2
    assert main((*command, "--settles", "sex=region")) == 2
    said = error_of(capsys)
    assert (
        "--settles sex=region: " in said and "does not determine 'region': records with 'f'" in said
    )
    for pair, what in (("town=land", "unknown variable"), ("town=town", "determines itself")):
        assert main((*command, "--settles", pair)) == 2
        assert what in error_of(capsys)
    assert main((*command, "--settles", "town")) == 2
    assert "such as municipality=region" in error_of(capsys)
    nplcm = ("risk", str(path), *RISK, "--model", "nplcm", *more, "--out", str(out))
    assert main(nplcm) == 2
    assert "--settles: the nplcm model does not take structural zeros" in error_of(capsys)


def persons(number=40, size=3):
    """Households with a head each."""
    rng = np.random.default_rng(0)
    hid = np.repeat(np.arange(number), size)
    return pd.DataFrame({
        "hid": hid, "rel": np.tile(["Head", "Spouse", "Child"], number),
        "age": rng.choice(["20-29", "30-39"], number * size),
        "sex": np.tile(["f", "m", "m"], number),
    })  # fmt: skip


def made_from(frame, tmp_path, *words):
    path = tmp_path / "persons.csv"
    frame.to_csv(path, index=False)
    return main(("synthesize", str(path), *HOUSEHOLDS, *words, "--out", str(tmp_path / "out")))


@pytest.mark.parametrize(("rel", "count"), [("Child", "no person"), ("Head", "2 persons")])
def test_a_household_without_a_head_is_named(rel, count, tmp_path, asked, capsys):
    frame = persons()
    assert made_from(frame, tmp_path) == 130
    assert asked.pop()[0].schema.head == ("rel", "Head")
    frame.loc[frame.index[60 if rel == "Child" else 61], "rel"] = rel
    assert made_from(frame, tmp_path) == 2
    said = error_of(capsys)
    assert (
        f"row 60 (line 62), column 'rel': household '20' has {count} with the value 'Head'" in said
    )
    assert "(1 of 40 households" in said
    assert advised(said) == [["--head", "no"]]
    assert made_from(frame, tmp_path, "--head", "no") == 130
    assert asked.pop()[0].schema.head is None
    # Who is whose head may be what is to be completed: that is said.
    frame.loc[60:62, "rel"] = None
    assert made_from(frame, tmp_path) == 130
    assert "heads are modelled like other persons, because row 60, " in capsys.readouterr().err


def test_numbers_of_households_that_start_again(tmp_path, asked, capsys):
    """In three regions, with and without what tells that these are no households."""
    parts = [persons(20).assign(tenure=np.repeat([k, 0], [3, 57])) for k in range(3)]
    frame = pd.concat(parts, ignore_index=True)
    anew = "in 3 places of the file: if households are numbered anew in each region"
    assert made_from(frame, tmp_path) == 2
    said = error_of(capsys)
    assert "household '0' has 3 persons with the value 'Head' (20 of 20" in said and anew in said
    assert made_from(frame, tmp_path, "--household-variables", "tenure") == 2
    said = error_of(capsys)
    assert "column 'tenure': value '1' but '0' in row 0 of the same household" in said
    assert anew in said
    assert made_from(frame[["hid", "age", "sex"]], tmp_path) == 130
    said = capsys.readouterr().err
    assert "the rows of 20 of 20 households (9 to 9 persons) are in several places" in said
    # A file that is shuffled says nothing of this kind.
    asked.clear()
    shuffled = persons().sample(frac=1, random_state=0)
    assert made_from(shuffled[["hid", "age", "sex"]], tmp_path) == 130
    assert "several places" not in capsys.readouterr().err
    assert len(asked[0][0]) == 40


def test_spouses_of_one_sex(tmp_path, asked, capsys):
    frame = persons().assign(age=np.tile(["30-39", "30-39", "0-9"], 40))
    shipped = ("--rules", "census-relationships")
    assert made_from(frame, tmp_path, *shipped) == 130
    frame.loc[60, "sex"] = "m"
    assert made_from(frame, tmp_path, *shipped) == 2
    said = error_of(capsys)
    row = re.search("add a row (.+) to the file of --roles", said)[1]
    roles = tmp_path / "roles.csv"
    roles.write_text(f"role,label\n{shlex.split(row)[0]}\n")
    assert made_from(frame, tmp_path, *shipped, "--roles", str(roles)) == 130
