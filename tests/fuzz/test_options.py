"""Options in any combination: a command begins its work, or ends with one line that says why not.

They are those of the parser, so that a new option is tried too.
"""

import pytest
import tomli_w
from fuzzing import (
    GOOD,
    check,
    fuzzed,
    mostly,
    odd_text,
)
from hypothesis import given
from hypothesis import strategies as st

from bnp_models.cli.commands import COMMANDS
from bnp_models.cli.options import flag, options_of

FILES = {
    "sample.csv": "\n".join(map(",".join, [GOOD.header, *GOOD.rows])),
    "levels.csv": "variable,level\nsex,Female\nsex,Male\nsex,other\n",
    "zeros.csv": "relate,age\nSpouse,0-14\n",
    "roles.csv": "role,label\nhead,Householder\n",
    "rules.yaml": "rules:\n- exactly: 1\n  of: {relate: Householder}\n",
    "changes.json": '{"recodings": [{"variable": "tenure", "levels": ["own"], "to": null}]}',
    "recoding.csv": "variable,level,becomes\nsex,Female,a\nsex,Male,a\ntenure,,\n",
    "groups.csv": "level,group,group\nFemale,a,x\nMale,a,x\nother,b,x\n",
    "notes.txt": "no file for any of these",
}  # fmt: skip

# By the word that stands for the value in the help.
GOOD_VALUES = {
    "FILE": [f"{{}}/{name}" for name in FILES],
    "RULES": ["{}/rules.yaml", "census-relationships", "{}/notes.txt"],
    "A,B,..": ["sex", "sex,age", "relate,age,sex", "hid", "tenure", "age:same,sex", "x", ""],
    "M,M,..": ["nplcm", "tnplcm,hdp", "hdp:level-prior=uniform:ordered=age", "nplcm:components=x"],
    "X,Y,..": ["Male", "NA,-9", "own,rent"],
    "COLUMN": ["hid", "w", "sex", "x"],
    "A=B": ["age=2", "w=3", "sex=2"],
    "A=FILE": ["sex={}/groups.csv", "age={}/groups.csv", "sex={}/notes.txt"],
    "A=X": ["w=20", "age=65"],
    "A=W": ["sex=2", "x=1"],
    "SPEC": ["drop:sex", "keep:age", "merge:sex=Female+Male", "drop:sex;merge:relate=Child+Spouse",
             "group:sex"],
    "P:W,..": ["0.0034:0.86,0.028:0.14", "0.5:1"],
    "HOST:PORT": ["localhost:1234"],
    "TEXT": ["A title", "<b>"],
    "C": [",", ";"],
    "E": ["utf-8", "cp1252", "utf-16"],
    "SHARE": ["0", "0.1", "1"],
}  # fmt: skip
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "10",
    "100",
    "0.5",
    "1.5",
    "1e3",
    "1,000",
    "4294967295",
    "2147483647",
]
BAD_VALUES = [
    "", "-1", "-0.1", "nan", "inf", "-inf", "1e999999999", "9" * 30, "9" * 5000, "1/2", "x", "=",
    "a=", "=1", ":", "::", ",", "a:b:c", "drop:", "merge:a", ";", "\ud800", "a\nb", "\0", "\u2028",
    "--out", "-", ".", "/", "{}", "%s", "x" * 5000,
]  # fmt: skip

LEFT_OUT = {"out", "quiet", "progress"}
OPTIONS = {
    command.name: {flag(one.name): one for one in options_of(command)
                   if not one.positional and one.name not in LEFT_OUT}
    for command in COMMANDS
}  # fmt: skip
# A base that works, so that what is drawn beside it decides.
BASES = {
    "risk": ["--population-size=1000", "--allow-identifying"],
    "synthesize": ["--allow-identifying", "--datasets=1"],
    "impute": ["--allow-identifying", "--datasets=1"],
    "evaluate": [],
    "compare": ["--allow-identifying", "--parts=2"],
    "protect": ["--population-size=1000", "--allow-identifying", "--max-tau1=1"],
}


def value_of(option):
    """A value of an option, mostly one that it takes."""
    if choices := option.told.get("choices"):
        good = st.sampled_from(sorted(choices))
    else:
        good = st.sampled_from(GOOD_VALUES.get(option.told["metavar"], NUMBERS))
    return mostly(good, st.sampled_from(BAD_VALUES) | odd_text, 6)


@st.composite
def words_of(draw, name):
    """Some options of a command with values, none given twice."""
    chosen = draw(st.lists(st.sampled_from(sorted(OPTIONS[name])), max_size=5, unique=True))
    words = []
    for word in chosen:
        option = OPTIONS[name][word]
        words.append(f"{word}={draw(value_of(option))}" if option.takes_value else word)
    return words


@st.composite
def commands(draw):
    """Words of a command on good files."""
    name = draw(st.sampled_from(sorted(OPTIONS)))
    words = [*BASES[name], *draw(words_of(name))]
    if name in ("synthesize", "impute", "evaluate") and draw(st.booleans()):
        words.append("--household=hid")
        if name != "evaluate":
            words.append("--model=ndpmpm")
    elif name != "compare" and name != "evaluate" and draw(st.booleans()):
        models = OPTIONS[name]["--model"].told["choices"]
        words.append(f"--model={draw(st.sampled_from(models))}")
    files = ["{}/sample.csv"] * (2 if name == "evaluate" else 1)
    if draw(st.integers(0, 30)) == 0:
        files = draw(st.sampled_from([["{}"], ["{}/none.csv"], ["{}/zeros.csv"], ["a\0b"]]))
    return [name, *files, *draw(st.permutations(words))], FILES


@st.composite
def configs(draw):
    """A command whose options are in a file."""
    name = draw(st.sampled_from(sorted(OPTIONS)))
    keys = st.sampled_from([word[2:] for word in sorted(OPTIONS[name])]) | odd_text
    texts = st.sampled_from(["sex", "{}/levels.csv", "hid", "x"]) | odd_text | st.just("a\0b")
    scalars = st.one_of(
        texts, st.booleans(), st.integers(-1, 3), st.just(2**70), st.floats(allow_nan=False)
    )
    values = st.one_of(
        scalars, st.lists(scalars, max_size=2), st.dictionaries(texts, scalars, max_size=2),
        st.lists(st.lists(texts, max_size=2), max_size=2),
    )  # fmt: skip
    document = {"sample": "{}/sample.csv"} if name != "evaluate" else {
        "original": "{}/sample.csv", "synthetic": ["{}/sample.csv"]
    }  # fmt: skip
    document |= {"population-size": 1000} if name in ("risk", "protect") else {}
    document |= {"max-tau1": 1} if name == "protect" else {}
    document |= draw(st.dictionaries(keys, values, max_size=3))
    if draw(st.booleans()):
        document = {name: document}
    content = draw(written_toml(document))
    return [name, "--config={}/run.toml"], FILES | {"run.toml": content}


def written_toml(document):
    """A document as TOML, now and then with something wrong in it."""
    text = tomli_w.dumps(document)
    return mostly(st.just(text), st.sampled_from([text + "x", text[: len(text) // 2], "\0", "="]))


@fuzzed()
@given(commands())
def test_any_options_are_taken_or_refused(monkeypatch, command):
    check(*command, monkeypatch)


@fuzzed()
@given(configs())
def test_any_file_of_options_is_taken_or_refused(monkeypatch, command):
    check(*command, monkeypatch)


RISK = ("risk", "{}/sample.csv", "--population-size=1000", "--allow-identifying")
EVALUATE = ("evaluate", "{}/sample.csv", "{}/sample.csv")

# What fuzzing found, or what was looked at because of it; each line says what went wrong.
FOUND = [
    # Minutes until it was known to be out of range.
    (RISK + ("--chains=1e999999999",), "argument --chains"),
    # Read the folder where the command was run.
    (EVALUATE + ("--holdout=",), "--holdout: is empty"),
    (RISK + ("--levels=",), "--levels: is empty"),
    # A traceback, here and from a file of options.
    (RISK + ("--levels=a\0b",), "--levels: 'a\\x00b' is not valid UTF-8 text"),
    # Could not be written, after all the work.
    (RISK + ("--title=\udcff",), "--title: '\\udcff' is not valid UTF-8 text"),
    # The words of a library, which did not begin with the file.
    (EVALUATE + ("--posterior={}/none.nc",), "none.nc: cannot be read"),
    # The message named no option.
    (RISK + ("--model=polettini-stander-2", "--gamma=100"), "--gamma must be above 0"),
    (RISK + ("--warmup=2147483647", "--thin=2147483647"), "--warmup, --draws and --thin"),
    # A traceback.
    (("compare", "{}/sample.csv", "--allow-identifying", "--parts=2", "--variables=hid",
      "--warmup=2147483647", "--thin=2147483647"), "--warmup, --draws and --thin"),
    # A traceback, where the command has no SAMPLE and a variable was left with one level.
    (EVALUATE + ("--missing=Male", "--merge-rare=10", "--changes={}/sample.csv"), "changes"),
    # Named no option, and did not say that it could not be read.
    (EVALUATE + ("--changes=-1",), "--changes: -1: cannot be read (No such file"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "said"), FOUND, ids=range(len(FOUND)))
def test_what_was_found(monkeypatch, argv, said):
    outcome = check(list(argv), FILES, monkeypatch)
    assert outcome.code == 2 and said in outcome.err, outcome
