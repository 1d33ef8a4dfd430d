"""Options from a TOML file."""

import os
import subprocess
import sys

import pytest
from commands import one_line

from bnp_models.cli.config import ConfigError, as_config, repeated, with_config
from bnp_models.cli.folder import into_folder
from bnp_models.cli.main import main
from bnp_models.cli.options import ParseError, parse, read
from bnp_models.cli.outputs import output_names, remove_outputs
from bnp_models.cli.parser import make_parser
from bnp_models.cli.parts import Output

PARSER = make_parser()


def parsed(argv):
    """What words of a command say, those of a file of options too."""
    return parse(PARSER, with_config(PARSER, argv))


def command_of(argv):
    """The object of a command, without opening files."""
    found = parsed(argv)
    return read(found.command, found.values)


TOML = """
population-size = "1,000,000"
chains = 2
quiet = true
no-records = false
variables = ["age", "sex, at birth"]
missing = ["-9", "NA"]

[risk]
keys = [["age"], ["age", "sex, at birth"]]
what-if = ["drop:age", "merge:age=0-4+5-9"]
bins = {income = 20, rent = 5}
max-tau1 = 2.5

[synthesize]
datasets = 3
"""

WORDS = [
    "--population-size", "1000000", "--chains", "2", "--quiet", "--variables",
    'age,"sex, at birth"', "--missing=-9,NA", "--keys", "age", "--keys", 'age,"sex, at birth"',
    "--what-if", "drop:age", "merge:age=0-4+5-9", "--bins", "income=20", "rent=5", "--max-tau1",
    "2.5",
]  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text(TOML)
    return path


@pytest.mark.parametrize("how", [["--config", "{}"], ["--config={}"]])
def test_options_are_as_on_the_command_line(file, how):
    config = [word.format(file) for word in how]
    argv = with_config(PARSER, ["risk", "s.csv", *config, "--out", "o"])
    assert not any("config" in word for word in argv)
    assert command_of(argv) == command_of(["risk", "s.csv", "--out", "o", *WORDS])


def test_the_command_line_has_the_last_word(file):
    command = command_of(["risk", "s.csv", "--out", "o", "--config", str(file), "--chains", "3"])
    assert command.chains.chains == 3 and command.population_size == 10**6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chaims = 2", "'chaims' is not an option of risk; do you mean chains?"),
        (
            "whatever = 2",
            "'whatever' is not an option of risk; it has sample, out, population-size",
        ),
        ("chains = ", "is not TOML"),
        ("quiet = 1", "quiet must be true or false"),
        ("chains = true", "chains takes a value"),
        ("help = true", "'help' is not an option"),
    ],
)
def test_what_is_no_file_of_options(text, said, tmp_path, capsys):
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        with_config(PARSER, ["risk", "s.csv", "--config", str(path)])
    assert main(["risk", "s.csv", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "options.toml" in one_line(capsys)
    assert main(["risk", "s.csv", "--config", str(tmp_path / "none"), "--out", "o"]) == 2
    assert "cannot be read" in one_line(capsys)


@pytest.mark.parametrize("model", ["hdp", "polettini-stander-1"])
def test_names_of_the_table_of_records(model, tmp_path):
    given = ["risk", "s.csv", "--population-size", "9", "--model", model, "--out", str(tmp_path)]
    stem = "records" if model == "hdp" else "cells"
    for more, name in (([], f"{stem}.csv"), (["--format", "parquet"], f"{stem}.parquet")):
        command = command_of([*given, *more])
        assert sorted(output_names(command)) == sorted(
            ["risk.json", "run.json", "report.html", name, "posterior.nc"]
        )
        (tmp_path / "cells.parquet").touch()
        remove_outputs(command, tmp_path)
        assert not list(tmp_path.iterdir())
    command = command_of([*given, "--no-records"])
    assert not any(stem in name for name in output_names(command))


REPEATED = [
    ["risk", "my file.csv", "--out", "o", *WORDS, "--empty-phat", "0.1:0.5,0.2:0.5", "--id", "12"],
    ["risk", "s.csv", "--out", "o", "--population-size", "1,000,000", "--validate", "--strict"],
    ["risk", "s.csv", "--out", "o", "--population-size", "1e6", "--validate", "5", "--thin", "2"],
    ["synthesize", "s.csv", "--out", "o", "--model", "ndpmpm", "--relative", "age,race:same",
     "--household", "hid", "--rules", "census-relationships"],
    ["evaluate", "s.csv", "a.csv", "b.csv", "--out", "o", "--keys", "a,b", "--keys", "c"],
    ["compare", "s.csv", "--out", "o", "--models", "hdp,nplcm:ordered=a+b", "--sep", "\\t"],
    ["compare", "s.csv", "--out", "o"],
]  # fmt: skip


@pytest.mark.parametrize("argv", REPEATED, ids=range(len(REPEATED)))
def test_a_file_repeats_a_command(argv, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(as_config(parsed(argv)))
    assert f"[{argv[0]}]\n" in path.read_text()
    assert command_of([argv[0], "--config", str(path)]) == command_of(argv)


def test_a_file_names_the_sample_where_the_command_line_does_not(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(as_config(parsed(REPEATED[4])))
    found = command_of(["evaluate", "other.csv", "c.csv", "--config", str(path), "--out", "again"])
    files = found.original, found.synthetic, found.output.out
    assert files == ("other.csv", ("c.csv",), "again")
    # All or none: the other one is not taken from the file.
    with pytest.raises(ParseError, match="required: SYNTHETIC$"):
        parsed(["evaluate", "other.csv", "--config", str(path), "--out", "again"])


def test_a_file_names_the_samples_in_any_order(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('synthetic = ["a.csv", "b.csv"]\noriginal = "s.csv"\nout = "o"\n')
    command = command_of(["evaluate", "--config", str(path)])
    assert (command.original, command.synthetic) == ("s.csv", ("a.csv", "b.csv"))


def test_the_file_of_an_earlier_run_goes_before_the_work(tmp_path):
    output = Output(out=str(tmp_path), quiet=True, repeating="seed = 1")
    path = tmp_path / "run.toml"
    path.touch()

    def work(out):
        assert not path.exists()
        return ""

    assert into_folder(output, {}, ["risk.json"], work, "") == 0
    assert path.read_text() == "seed = 1"


def test_a_file_leaves_out_what_a_repeated_run_is_not_told():
    argv = ["risk", "s.csv", "--out", "o", "--population-size", "9", "--resume", "--force"]
    text = as_config(parsed(argv))
    assert "resume" not in text and "force" not in text
    # The file lies in the folder of the results.
    assert "\n# bnp-models risk --config o/run.toml --out ANOTHER_FOLDER\n" in text
    assert "seed = 0" in text
    argv = ["conditions", "suggest", "s.csv", "--out", "o"]
    assert repeated(parsed(argv), argv)["repeating"] == ""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_options(shell, capsys):
    assert main(["--print-completion", shell]) == 0
    printed = capsys.readouterr().out
    assert "--population-size" in printed and "synthesize" in printed


def test_a_reader_that_has_enough_ends_the_command_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    call = "import sys; from bnp_models.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", call, "--print-completion", "bash"], stdout=writing,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
