"""Options from a TOML file."""

import os
import subprocess
import sys

import pytest
from commands import one_line

from bnp_models.cli.config import ConfigError, as_config, with_config
from bnp_models.cli.folder import into_folder
from bnp_models.cli.main import main
from bnp_models.cli.outputs import output_names, remove_outputs
from bnp_models.cli.parser import make_parser

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
    parser = make_parser()
    config = [word.format(file) for word in how]
    argv = with_config(parser, ["risk", "s.csv", *config, "--out", "o"])
    assert not any("config" in word for word in argv)
    found, said = (
        parser.parse_args(argv),
        parser.parse_args(["risk", "s.csv", "--out", "o", *WORDS]),
    )
    assert vars(found) == vars(said)


def test_the_command_line_has_the_last_word(file):
    parser = make_parser()
    argv = with_config(
        parser, ["risk", "s.csv", "--out", "o", "--config", str(file), "--chains", "3"]
    )
    options = parser.parse_args(argv)
    assert options.chains == 3 and options.population_size == 10**6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chaims = 2", "'chaims' is no option of risk, do you mean chains?"),
        ("whatever = 2", "'whatever' is no option of risk, which has sample, out, population-size"),
        ("chains = ", "is not TOML"),
        ("quiet = 1", "quiet is true or false"),
        ("chains = true", "chains takes a value"),
        ("help = true", "'help' is no option"),
    ],
)
def test_what_is_no_file_of_options(text, said, tmp_path, capsys):
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        with_config(make_parser(), ["risk", "s.csv", "--config", str(path)])
    assert main(["risk", "s.csv", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "options.toml" in one_line(capsys)
    assert main(["risk", "s.csv", "--config", str(tmp_path / "none"), "--out", "o"]) == 2
    assert "cannot be read" in one_line(capsys)


@pytest.mark.parametrize("model", ["hdp", "polettini-stander-1"])
def test_names_of_the_table_of_records(model, tmp_path):
    given = ["risk", "s.csv", "--population-size", "9", "--model", model, "--out", str(tmp_path)]
    stem = "records" if model == "hdp" else "cells"
    for more, name in (([], f"{stem}.csv"), (["--format", "parquet"], f"{stem}.parquet")):
        options = make_parser().parse_args([*given, *more])
        assert sorted(output_names(options)) == sorted(
            ["risk.json", "run.json", "report.html", name, "posterior.nc"]
        )
        (tmp_path / "cells.parquet").touch()
        remove_outputs(options)
        assert not list(tmp_path.iterdir())
    options = make_parser().parse_args([*given, "--no-records"])
    assert not any(stem in name for name in output_names(options))


REPEATED = [
    ["risk", "my file.csv", "--out", "o", *WORDS, "--empty-phat", "0.1:0.5,0.2:0.5", "--id", "12"],
    ["risk", "s.csv", "--out", "o", "--population-size", "1,000,000", "--validate", "--strict"],
    ["risk", "s.csv", "--out", "o", "--population-size", "1e6", "--validate", "5", "--thin", "2"],
    ["synthesize", "s.csv", "--out", "o", "--model", "ndpmpm", "--relative", "age,race:same",
     "--household", "hid", "--rules", "census-relationships"],
    ["evaluate", "s.csv", "a.csv", "b.csv", "--out", "o", "--keys", "a,b", "--keys", "c"],
    ["compare", "s.csv", "--out", "o", "--models", "hdp,nplcm:ordered=a+b", "--sep", "\\t"],
]  # fmt: skip


@pytest.mark.parametrize("argv", REPEATED, ids=range(len(REPEATED)))
def test_a_file_repeats_a_command(argv, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(as_config(make_parser(), argv))
    assert f"[{argv[0]}]\n" in path.read_text()
    words = with_config(make_parser(), [argv[0], "--config", str(path)])
    assert vars(make_parser().parse_args(words)) == vars(make_parser().parse_args(argv))


def test_a_file_names_the_sample_where_the_command_line_does_not(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(as_config(make_parser(), REPEATED[4]))
    argv = ["evaluate", "other.csv", "c.csv", "--config", str(path), "--out", "again"]
    options = make_parser().parse_args(with_config(make_parser(), argv))
    assert (options.original, options.synthetic, options.out) == ("other.csv", ["c.csv"], "again")


def test_a_file_names_the_samples_in_any_order(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('synthetic = ["a.csv", "b.csv"]\noriginal = "s.csv"\nout = "o"\n')
    words = with_config(make_parser(), ["evaluate", "--config", str(path)])
    options = make_parser().parse_args(words)
    assert (options.original, options.synthetic) == ("s.csv", ["a.csv", "b.csv"])


def test_the_file_of_an_earlier_run_goes_before_the_work(tmp_path):
    argv = ["risk", "s.csv", "--out", str(tmp_path), "--population-size", "9", "--quiet"]
    options = make_parser().parse_args(argv)
    options.repeating = "seed = 1"
    path = tmp_path / "run.toml"
    path.touch()

    def work(out):
        assert not path.exists()
        return ""

    assert into_folder(options, {}, ["risk.json"], work, "") == 0
    assert path.read_text() == "seed = 1"


def test_a_file_leaves_out_what_a_repeated_run_is_not_told():
    argv = ["risk", "s.csv", "--out", "o", "--population-size", "9", "--resume", "--force"]
    text = as_config(make_parser(), argv)
    assert "resume" not in text and "force" not in text
    # The file lies in the folder of the results.
    assert "\n# bnp-models risk --config o/run.toml --out ANOTHER_FOLDER\n" in text
    assert "seed = 0" in text
    assert as_config(make_parser(), ["conditions", "check", "s.csv"]) is None


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
