"""Numbers, codes and spellings of a sample, said or refused before any chain is run."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli.dispatch import data_files
from bnp_models.cli.main import main
from bnp_models.cli.options import parse, read
from bnp_models.cli.parser import make_parser
from bnp_models.cli.samples import read_sample
from bnp_models.data.label_numbers import OwnLevel

LATENT = ("--model", "nplcm", "--components", "4", "--chains", "2", "--warmup", "10", "--draws",
          "10")  # fmt: skip


@pytest.fixture
def sample(tmp_path):
    """Ages with a code, incomes with decimal commas and thousands, and years with another code."""
    rng, n = np.random.default_rng(0), 240
    income = [f"{x:,.1f}".translate(str.maketrans(",.", ".,")) for x in rng.gamma(3, 200, n)]
    age = rng.integers(18, 90, n)
    age[:12] = 9999
    years = rng.choice([1, 2, 3, 4, -9], n, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    frame = pd.DataFrame({"age": age, "income": income, "years": years, "sex": ["F", "M"] * 120})
    path = tmp_path / "sample.csv"
    frame.to_csv(path, sep=";", index=False)
    return path


def suggest(path, *options):
    """Read a sample as all commands do, without chains."""
    out = path.with_name("found.csv")
    return main(("conditions", "suggest", str(path), "--force", "--out", str(out), *options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--bins", "age=4"), "'9999' (12 records) looks like a code among numbers, and --bins"),
        (("--top-code", "age=80"), "--level age=9999"),
        (("--merge-rare", "20", "--decimal", ","), "'years' has '-9'"),
        (("--bins", "age=4", "--level", "age=98"), "column 'age': has no value '98'"),
        (("--bins", "age=4", "--number", "age=98"), "column 'age': has no value '98'"),
        (("--level", "ages=98"), "unknown variable"),
        (("--decimal", ";"), "--decimal: ';' cannot be the decimal mark"),
        (
            ("--decimal", ",", "--thousands", ","),
            "--thousands: ',' cannot be both the decimal mark",
        ),
        (("--decimal", ".", "--bins", "income=4"), "cannot be read as numbers with"),
    ],
)
def test_what_is_refused(sample, options, said, capsys):
    assert suggest(sample, *options) == 2
    assert said in one_line(capsys)


def test_codes_in_an_order(sample, tmp_path, capsys):
    command = ("risk", str(sample), "--variables", "age,sex", "--population-size", "9000", *LATENT)
    assert main((*command, "--ordered", "age", "--out", str(tmp_path / "out"))) == 2
    assert "--ordered would" in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "own", "asks"),
    [((), ["9999"], True), (("--level", "age=9999"), ["9999"], False),
     (("--number", "age=9999"), [], False)],
)  # fmt: skip
def test_an_order_that_nobody_asked_for_leaves_codes_out(sample, options, own, asks, caplog):
    words = (
        "risk",
        str(sample),
        "--variables",
        "age,sex",
        "--population-size",
        "9000",
        "--out",
        "o",
    )
    words += options
    found = parse(make_parser(), words)
    with data_files(found.values) as values:
        command = read(found.command, values)
        changed, _, changes = read_sample(command.data, command.fit)
    assert [x for x in changed.schema.levels[0] if isinstance(x, OwnLevel)] == own
    assert changes.settings().get("own_levels", {}) == ({"age": own} if own else {})
    assert ("codes among numbers? 'age' has '9999' (12 records)" in caplog.text) == asks
    assert "missing values? 'age'" not in caplog.text


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (("--missing", "9999"), None), (("--level", "age=9999"), "9999"),
        (("--number", "age=9999"), None),
    ],
)  # fmt: skip
def test_codes_that_somebody_explained(sample, options, levels, capsys):
    assert suggest(sample, "--bins", "age=4", "income=5", *options) == 0
    said = capsys.readouterr().err
    # Incomes were told from the column, and the code of another one is said before the work.
    assert "column 'income' were read with a decimal comma and points between thousands" in said
    assert "'years' has '-9'" in said and "'age' has '9999'" not in said


def test_levels_of_their_own_are_not_merged(sample):
    own = ("--level", "years=-9", "age=9999", "--bins", "income=4")
    assert suggest(sample, "--merge-rare", "8", *own) == 0


def test_labels_that_are_no_numbers_are_said(tmp_path, capsys):
    path = tmp_path / "s.csv"
    numbers = [str(k) for k in range(60)]
    pd.DataFrame({"x": [*numbers, *["unknown"] * 5, *["90+"] * 3]}).to_csv(path, index=False)
    assert suggest(path, "--bins", "x=3") == 0
    said = capsys.readouterr()
    assert "levels of column 'x' that are not single numbers stay as they are: '90+' (3 records)"\
        " and 'unknown' (5 records)" in said.err  # fmt: skip
    assert said.out.startswith("0 candidates: no combination is missing of which chance alone")
    # The numbers from 50 on are the top level, 90+ among them.
    assert suggest(path, "--top-code", "x=50") == 0
    said = capsys.readouterr().err
    assert "stay as they are: 'unknown' (5 records)" in said and "90+" not in said
    pd.DataFrame({"x": [*numbers, *["60+"] * 3]}).to_csv(path, index=False)
    assert suggest(path, "--top-code", "x=60") == 0
    assert "stay as they are" not in capsys.readouterr().err
    pd.DataFrame({"x": [*numbers, "12.5.1", "12.5.1", "30-40"]}).to_csv(path, index=False)
    assert suggest(path, "--bins", "x=3") == 2
    assert "'12.5.1' (2 records) cannot be read as numbers" in one_line(capsys)
    pd.DataFrame({"x": [*numbers, "30-40"]}).to_csv(path, index=False)
    assert suggest(path, "--bins", "x=3") == 2
    assert "level '30-40' is not a single number" in one_line(capsys)


def test_bins_exempt_no_column_from_being_identifying(tmp_path, capsys):
    path = tmp_path / "s.csv"
    names = [f"name {chr(97 + i)}{chr(97 + j)}" for i in range(8) for j in range(8)]
    pd.DataFrame({"x": ["1", "2", *names], "y": ["a", "b"] * 33}).to_csv(path, index=False)
    command = ("risk", str(path), "--population-size", "900", "--variables", "x,y", *LATENT)
    assert main((*command, "--bins", "x=2", "--out", str(tmp_path / "out"))) == 2
    assert "column 'x': has 6" in one_line(capsys)


def test_spellings_and_dates(tmp_path, capsys):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"prov": ["01", "1", "10", "01"], "sex": ["M", "M\u200b", "F", "F"]})
    frame.to_csv(path, index=False)
    assert suggest(path) == 0
    said = capsys.readouterr().err
    assert "'01' (2 records) and '1' (1 record) of 'prov'; 'M' (1 record) and 'M\\u200b'" in said
    assert suggest(path, "--normalise") == 0
    said = capsys.readouterr().err
    assert "'1' is '01' (1 record)" in said and "one label or two" not in said
    frame.assign(age=["0-4", "05-Sep", "10+", "05-Sep"]).to_csv(path, index=False)
    assert suggest(path, "--normalise") == 2
    assert "'05-Sep' (2 records) was '5-9'" in one_line(capsys)


def test_another_notation_of_columns_that_nobody_asked_for(tmp_path, capsys):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"x": [f"{k},5" for k in range(20)] * 3, "y": ["a", "b", "c"] * 20})
    frame.to_csv(path, index=False)
    assert suggest(path) == 0
    assert "column 'x' looks like numbers with a decimal comma" in capsys.readouterr().err
    assert suggest(path, "--merge-rare", "4") == 2
    assert "--merge-rare 4 would take its values for labels" in one_line(capsys)
    assert suggest(path, "--merge-rare", "4", "--decimal", ",") == 0
    capsys.readouterr()
    frame.assign(x=[f"{k}.200" for k in range(2, 22)] * 3).to_csv(path, index=False)
    command = ("risk", str(path), "--population-size", "900", *LATENT)
    assert main((*command, "--out", str(tmp_path / "out"))) == 2
    assert "--ordered auto): how its numbers are written cannot be told" in one_line(capsys)


def test_synthetic_files_are_written_as_the_sample(sample, tmp_path):
    out, judged = tmp_path / "out", tmp_path / "judged"
    frame = pd.read_csv(sample, sep=";", dtype=str)
    frame.assign(cars=["0", "1", "2", "99"] * 60).to_csv(sample, sep=";", index=False)
    options = ("--bins", "income=4", "--top-code", "age=80", "--level", "age=9999", "years=-9",
               "--number", "cars=99", "--merge-rare", "8", "--quiet")  # fmt: skip
    assert main(("synthesize", str(sample), *LATENT, *options, "--datasets", "1", "--out",
                 str(out))) == 0  # fmt: skip
    made = pd.read_csv(out / "synthetic_1.csv", dtype=str)
    assert made["income"].str.fullmatch(r"[0-9]+,[0-9]").all()
    assert "80+" in set(made["age"]) and "9999" in set(made["age"])
    assert not made["years"].str.contains(" to ").any()
    run = json.loads((out / "run.json").read_text())
    alone = pd.read_csv(sample, sep=";", dtype=str)["income"].str.replace(".", "")
    share = made["income"].isin(alone[~alone.duplicated(keep=False)]).mean()
    assert run["values_of_one_person"]["income"] == pytest.approx(share) and share > 0
    assert run["own_levels"] == {"age": ["9999"], "years": ["-9"]}
    # Nor is it asked again what somebody said.
    assert "99" in set(made["cars"])
    assert not any(one.startswith("missing values?") for one in run["warnings"])
    assert main(("evaluate", str(sample), str(out / "synthetic_1.csv"), *options, "--out",
                 str(judged))) == 0  # fmt: skip


def test_identifying_numbers_are_refused_as_such_whatever_their_notation(tmp_path, capsys):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"w": [f"{k},{k + 100}" for k in range(1, 61)], "y": ["a", "b"] * 30})
    frame.to_csv(path, index=False)
    command = ("risk", str(path), "--population-size", "900", *LATENT)
    assert main((*command, "--out", str(tmp_path / "out"))) == 2
    assert "column 'w': has 60 values" in one_line(capsys)


def test_codes_among_the_ranges_of_a_recoding(tmp_path, capsys):
    path, file = tmp_path / "s.csv", tmp_path / "recoding.csv"
    ages = [f"{age},5" for age in range(20, 90)] + ["9999"] * 3
    pd.DataFrame({"age": ages}).to_csv(path, index=False)
    rows = "variable,level,becomes\nage,<65,young\nage,>=65,old\n"
    file.write_text(rows)
    assert suggest(path, "--recode-by", str(file)) == 2
    assert "'9999' (3 records) looks like a code among numbers, and a range of" in one_line(capsys)
    assert suggest(path, "--recode-by", str(file), "--missing", "9999") == 0
    file.write_text(f"{rows}age,9999,unknown\n")
    assert suggest(path, "--recode-by", str(file)) == 0
    # Ranges need numbers.
    assert "column 'age' were read with a decimal comma" in capsys.readouterr().err
    assert suggest(path, "--recode-by", str(file), "--level", "age=9999") == 2
    assert "give the value a row in this file" in one_line(capsys)
