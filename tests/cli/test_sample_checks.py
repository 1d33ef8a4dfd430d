"""Columns of a sample that are no key variables, said or refused before any chain is run."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.cli import runs
from bnp_models.cli.main import main
from bnp_models.data.schema import MicrodataError

N = 120
STOPPED = "chains would start"


@pytest.fixture(autouse=True)
def no_chains(monkeypatch):
    def stopped(*_):
        raise MicrodataError(STOPPED)

    monkeypatch.setattr(runs, "_sample", stopped)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    columns = {"age": ["0-14", "15-64", "65+"], "sex": ["F", "M"], "region": ["N", "E", "S", "W"]}
    return pd.DataFrame({name: rng.choice(labels, N) for name, labels in columns.items()})


def run(tmp_path, frame, *options, command="risk"):
    """Run a command on a sample, up to its chains."""
    path = tmp_path / "s.csv"
    frame.to_csv(path, index=False)
    more = ("--population-size", "9000") if command == "risk" else ()
    return main((command, str(path), *more, "--out", str(tmp_path / "out"), *options))


def refused(capsys, said):
    """Whether a command ended with an error that has these words, the only line but for what is
    said where chains would start."""
    printed = capsys.readouterr()
    *before, last = printed.err.splitlines()
    return printed.out == "" and said in last and (not before or last.endswith(STOPPED))


def test_weights_are_no_key_variable(tmp_path, frame, capsys):
    weighted = frame.assign(wgt=np.where(frame.sex == "F", 50.5, 80.0), repwt1=2.5, repwt2=1)
    weighted.loc[::2, ["repwt1", "repwt2"]] = 0
    for command, options, said in (
        ("risk", (), "'repwt1' and 'repwt2' are refused too: they are no key variable; say --weigh"
         "ts wgt, or leave them out (--drop wgt,repwt1,repwt2)"),
        ("risk", ("--weights", "wgt"), "leave them out (--drop repwt1,repwt2)"),
        ("compare", (), "key variable; leave them out (--drop wgt,repwt1,repwt2)"),
        ("risk", ("--weights", "wgt", "--drop", "repwt1,repwt2"), STOPPED),
        ("risk", ("--variables", "age,sex,wgt"), STOPPED),
        ("risk", ("--allow-identifying",), STOPPED),
    ):  # fmt: skip
        assert run(tmp_path, weighted, *options, command=command) == 2
        assert refused(capsys, said), options


def test_probabilities_are_no_weights(tmp_path, frame, capsys):
    assert run(tmp_path, frame.assign(p=0.02), "--weights", "p", command="synthesize") == 2
    assert refused(capsys, "column 'p': the weights are all below 1, as the probabilities")
    assert run(tmp_path, frame.assign(p=1 / N), "--weights", "p", command="synthesize") == 2
    assert refused(capsys, STOPPED)


def test_a_table_of_counts_is_no_sample(tmp_path, frame, capsys, caplog):
    counts = frame.groupby(list(frame)).size().reset_index(name="n")
    assert run(tmp_path, counts) == 2
    assert refused(capsys, "column 'n': the rows look like a table of counts")
    assert run(tmp_path, counts, "--variables", "age,sex,region,n") == 2
    assert refused(capsys, STOPPED)
    assert "called like a number of persons" not in caplog.text
    assert run(tmp_path, counts, "--variables", "age,sex,region") == 2
    assert "column 'n' is called like a number of persons" in caplog.text


def test_a_variable_that_settles_another_is_told(tmp_path, frame, capsys, caplog):
    both = frame.assign(area=frame.region.map({"N": 1, "E": 1, "S": 2, "W": 3}))
    told = "'region' settles 'area' in all records"
    for options, said in (
        ((), "--settles region=area says so, and --drop area loses nothing"),
        (("--variables", "age,region,area"), "says so, and to leave it out loses nothing"),
        (("--model", "nplcm"), "does not know; --drop area loses nothing"),
        (("--drop", "area"), None),
        (("--settles", "region=area"), None),
    ):
        caplog.clear()
        run(tmp_path, both, *options)
        assert (told in caplog.text) == (said is not None)
        assert said is None or said in caplog.text


def test_boxes_that_are_ticked_or_empty(tmp_path, frame, caplog):
    run(tmp_path, frame.assign(tv=np.where(frame.sex == "F", "1", ""), country="NZ"))
    assert "columns with one value and empty cells: 'tv' ('1'); as they are, every" in caplog.text


def test_an_identifier_of_several_records_is_told(tmp_path, frame, caplog):
    run(tmp_path, frame.assign(pid=[*range(N - 2), 0, 1]), "--id", "pid")
    assert "2 values of --id pid, such as '0', have several records" in caplog.text


@pytest.mark.parametrize(
    ("born", "said"),
    [
        (lambda days: days.strftime("%Y%m%d"), "has dates such as '19"),
        (lambda days: days.strftime("%Y%m"), "has dates such as '19"),
        (lambda days: days.strftime("%Y"), STOPPED),
        (lambda days: days.strftime("%d kg"), "has numbers with a unit or a sign, such as '01 kg'"),
    ],
)
def test_bins_need_numbers(tmp_path, frame, born, said, capsys):
    days = pd.date_range("1950-01-01", periods=N, freq="97D")
    assert run(tmp_path, frame.assign(born=born(days)), "--bins", "born=4") == 2
    assert refused(capsys, said)


def test_advice_on_dates(tmp_path, frame, capsys):
    days = pd.date_range("1950-01-01", periods=N, freq="97D").strftime("%Y-%m-%d")
    assert run(tmp_path, frame.assign(born=days)) == 2
    assert refused(capsys, "(or --drop born), put years, months or ages in the place of dates, or")


@pytest.fixture
def persons():
    """Persons of households without a word for the head."""
    rows = [(h, 1 + (k > 0), h % 2, k + 1, 1 + h % 3, (h + k) % 5 % 2) for h in range(60)
            for k in range(1 + h % 3)]  # fmt: skip
    return pd.DataFrame(rows, columns=["hid", "rel", "tenure", "person", "size", "sex"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "column 'size': is the number of persons of each household"),
        (("--drop", "size"), "column 'person': numbers the persons of each household, and would be"
         " drawn like their other values; leave it out (--drop size,person)"),
        (("--household-variables", "tenure,size"), "column 'person': numbers the persons"),
        (("--drop", "size,person"), STOPPED),
    ],
)  # fmt: skip
def test_variables_of_households_are_none_of_persons(
    tmp_path, persons, options, said, capsys, caplog
):
    command = ("--model", "ndpmpm", "--household", "hid", *options)
    assert run(tmp_path, persons, *command, command="synthesize") == 2
    assert refused(capsys, said)
    told = said.startswith("chains")
    assert ("same value of 'tenure', and those of the model may not" in caplog.text) == told
    assert ("rel = '1', as its head would" in caplog.text) == told
    assert ("by a row head,1 of --roles" in caplog.text) == told
    assert "couples are not modelled" not in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame, None),
        # Tops of sizes are no numbers.
        (lambda frame: frame.assign(size=frame["size"].replace(3, "3+")), None),
        (lambda frame: pd.concat([frame, frame.iloc[[0]]]),
         "of 1 household, the first of which is '0'"),
        (lambda frame: frame.drop(index=[2, 5]), "of 2 households, the first of which is '1'"),
        (lambda frame: frame.assign(hid=frame["hid"].astype(str).where(frame.index != 1, " 1")),
         "of 2 households, the first of which is ' 1'"),
        # Of a number that is no size, nothing is said.
        (lambda frame: frame.assign(size=1 + frame["hid"] // 2 % 3), None),
    ],
)  # fmt: skip
def test_sizes_that_the_rows_contradict(tmp_path, persons, change, said, caplog):
    options = ("--model", "ndpmpm", "--household", "hid", "--household-variables", "tenure,size",
               "--drop", "person")  # fmt: skip
    run(tmp_path, change(persons), *options, command="synthesize")
    assert ("column 'size' is the number of persons of most households" in caplog.text) == bool(
        said
    )
    assert said is None or said in caplog.text


def test_advice_for_households_names_options_that_they_take(tmp_path, persons, capsys):
    frame = persons.assign(code=range(len(persons)))
    options = ("--household", "hid", "--household-variables", "tenure,size", "--drop", "person")
    assert run(tmp_path, frame, *options) == 2
    said = capsys.readouterr().err
    assert "column 'code': has" in said and "--id" not in said


@pytest.mark.parametrize(
    ("column", "options", "hint"),
    [
        (None, (), True),
        (None, ("--head", "no"), False),
        ([1, 5, 5], (), False),
        (["Householder", "Spouse", "Child"], (), False),
    ],
)
def test_households_without_a_relationship(
    tmp_path, persons, column, options, hint, capsys, caplog
):
    """Before the chains: nothing says who is whose spouse."""
    frame = persons[["hid", "sex"]].assign(age=np.arange(len(persons)) % 7)
    if column is not None:
        frame["relate"] = [column[k - 1] for k in persons["person"]]
    command = ("--model", "ndpmpm", "--household", "hid", *options)
    assert run(tmp_path, frame, *command, command="synthesize") == 2
    assert refused(capsys, STOPPED)
    said = "no column says how the persons of a household are related to its head"
    assert (said in caplog.text) == hint


def test_names_with_blanks_between_them(tmp_path, frame, capsys):
    assert run(tmp_path, frame, "--variables", "age", "sex") == 2
    assert refused(capsys, "unrecognized arguments: sex; names in a list have commas between them")
