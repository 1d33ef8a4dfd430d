"""What fuzz tests share: how many examples, text of any kind, files of people, and commands."""

import contextlib
import csv
import gzip
import io
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from bnp_models.cli import cells, compare, evaluate, runs
from bnp_models.cli.main import main
from bnp_models.inference import processes

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "50"))
"""Examples of each target; `experiments/quality/fuzz/run.py` asks for more."""


def fuzzed(share=1.0):
    """Settings of a fuzz test, the same examples in every run; `share` of the number, for slow."""
    return settings(
        max_examples=max(1, round(share * EXAMPLES)),
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


# Text that has meant something to some program: formulas, markup, numbers that are none or huge,
# statements of conditions, signs of both directions, codes of missing values.
ODD = (
    "=1+1", "+cmd", "-cmd|' /C calc'!A0", "@x", "\t=1", "\r=1", "<script>alert(1)</script>", "<b>",
    "&lt;", "&amp;", '"', "'", "a'b", '"a"', "a,b", "a;b", "a|b", "a\tb", "a\nb", "a\rb", "a\r\nb",
    "\u2028", "\x85", "\x1b[31m", "\x01", "\x7f", "\u202eabc", "\u05d0\u05d1", "\ufeff", "\u200b",
    "e\u0301", "\xe9", "\U0001f600", " ", "  x ", "\xa0", "NA", "nan", "NaN", "None", "null", "inf",
    "-inf", "-9", "-99", "999", ".", "?", "1e5", "1e400", "1e9999999", "1/2", "1/0", "01", "1.0",
    "1_0", "\u0663", "\xb2", "0x10", "9" * 400, "-0", "+5", "75+", "0-14", "15-24", "24-15",
    "15 to 24", "under 5", "<25", ">=65", "!x", "!", "|", "<", "true", "no", "~", "{a: b}", "[",
    "- a", "*a", "&a", "!!python/object:x", "{{ 7*7 }}", "{% raw %}", "%s", "{0}", "\\", "\\t",
    "--out", "#", "#confirm", "variable", "level", "role", "label", "row", "r1", "other", "head_a",
    "x" * 300,
)  # fmt: skip

odd_text = st.sampled_from(ODD) | st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8
)
plain_labels = st.sampled_from(
    ("a", "b", "c", "x", "0", "1", "2", "3", "10", "0-14", "15-24", "25-64", "65+", "Householder",
     "Spouse", "Child", "Female", "Male", "K\xf6ln")
)  # fmt: skip


def mostly(strategy, other, among=10):
    """The one, but the other one time among so many."""
    return st.integers(1, among).flatmap(lambda k: other if k == among else strategy)


labels = mostly(plain_labels, odd_text, 5)

NAMES = ("a", "b", "age", "relate", "sex", "hid", "w", "tenure")
names = mostly(st.sampled_from(NAMES), odd_text, 20)


class Table(NamedTuple):
    """Cells of a text file."""

    header: list[str]
    rows: list[list[str]]


@st.composite
def tables(draw, needed=()):
    """A few columns of a few records, mostly with these among them."""
    header = draw(
        st.lists(
            names, min_size=1, max_size=3, unique=draw(mostly(st.just(True), st.just(False), 30))
        )
    )
    header += [name for name in needed if name not in header and draw(st.integers(0, 19))]
    number = draw(mostly(st.integers(3, 8), st.integers(0, 2)))
    columns = []
    for name in header:
        pool = draw(st.lists(labels, min_size=1, max_size=4))
        if name == "w":
            pool = draw(mostly(st.just(["1", "2.5", "30"]), st.just(pool)))
        if name == "hid":
            pool = draw(mostly(st.just(["1", "2", "3"]), st.just(pool), 20))
        if draw(st.integers(0, 3)) == 0 and name != "hid":
            pool = [*pool, ""]
        columns.append(draw(st.lists(st.sampled_from(pool), min_size=number, max_size=number)))
    return Table(header, [list(row) for row in zip(*columns, strict=True)])


GOOD = Table(
    ["hid", "relate", "age", "sex", "tenure", "w"],
    [line.split(",") for line in (
        "1,Householder,65+,Female,own,30", "1,Spouse,25-64,Male,own,30", "1,Child,0-14,Male,own,30",
        "2,Householder,25-64,Male,rent,20", "2,Child,15-24,Female,rent,20",
        "3,Householder,15-24,Female,own,10", "3,Child,0-14,,own,10",
        "4,Householder,65+,Male,rent,10",
    )],
)  # fmt: skip
"""Persons within households of whom everything can be asked."""


@st.composite
def altered(draw, table):
    """The table with another label in place of one, wherever it stands."""
    old = draw(st.sampled_from([cell for row in table.rows for cell in row]))
    new = draw(labels)
    return Table(
        table.header, [[new if cell == old else cell for cell in row] for row in table.rows]
    )


@st.composite
def written(draw, table, sep=",", encoding="utf-8"):
    """Bytes of a table; mostly as it should be, else compressed, cut or with other bytes in it."""
    text = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    csv.writer(text, delimiter=sep, quoting=quoting, lineterminator=end).writerows(
        [table.header, *table.rows]
    )
    content = text.getvalue().encode(encoding, errors="replace")
    return draw(mostly(st.just(content), damaged(content), 25))


@st.composite
def damaged(draw, content):
    """Bytes with a piece cut out or put in, compressed and so on; or any bytes at all."""
    how = draw(st.integers(0, 5))
    if how == 0:
        return draw(st.binary(max_size=80))
    if how == 1:
        return gzip.compress(content)
    if how == 2:
        return gzip.compress(content)[: draw(st.integers(2, 40))]
    start = draw(st.integers(0, len(content)))
    stop = draw(st.integers(start, min(len(content), start + 6)))
    pieces = [b"", b'"', b"\0", b"\r", b"\n", b"\xff\xfe", b",", b"\xef\xbb\xbf"]
    piece = draw(st.sampled_from(pieces) | st.binary(max_size=4))
    return content[:start] + piece + content[stop:]


def values_of(table, name):
    """Labels of a column, or some others if it has none."""
    j = table.header.index(name)
    return [row[j] for row in table.rows if row[j]] or ["a"]


def cells_of(table, name):
    """Cell of a condition or a level of this column."""
    if name not in table.header:
        return labels
    known = st.sampled_from(values_of(table, name))
    return mostly(known, labels)


@st.composite
def statements(draw, table, name):
    """What a cell of a condition says: a label, or one of the forms that mean several."""
    a, b = draw(cells_of(table, name)), draw(cells_of(table, name))
    forms = ("", a, a, f"{a}|{b}", f"!{a}", f"!{a}|{b}", f"<{a}", f">={a}", f"{a}-{b}", f"≤ {a}")
    return draw(st.sampled_from(forms))


def known_names(table):
    """Names of columns, mostly of this table."""
    return mostly(st.sampled_from(table.header), names, 20)


@st.composite
def condition_tables(draw, table):
    header = draw(st.lists(known_names(table), min_size=1, max_size=3, unique=True))
    if draw(st.integers(0, 9)) == 0:
        header.append("#confirm")
    rows = draw(
        st.lists(st.tuples(*(statements(table, name) for name in header)), min_size=0, max_size=3)
    )
    return Table(header, [list(row) for row in rows])


@st.composite
def level_tables(draw, table):
    """All levels that are seen, mostly, and others."""
    rows = []
    for name in table.header:
        if draw(st.booleans()):
            seen = dict.fromkeys(values_of(table, name))
            rows += [[name, label] for label in seen]
            rows += [[name, label] for label in draw(st.lists(labels, max_size=2))
                     if label not in seen]  # fmt: skip
    if draw(st.integers(0, 5)) == 0:
        rows.append([draw(known_names(table)), draw(labels)])
    return Table(draw(mostly(st.just(["variable", "level"]), st.just(["level", "x"]))), rows)


@st.composite
def role_tables(draw, table):
    words = st.sampled_from(
        ("head", "spouse", "child", "other", "relationship variable", "age variable",
         "sex variable", "uncle", "")
    )  # fmt: skip
    rows = draw(st.lists(st.tuples(words, st.sampled_from(table.header) | labels), max_size=5))
    return Table(["role", "label"], [list(row) for row in rows])


@st.composite
def coarsenings(draw, table):
    """Text of a coarser key."""
    name = draw(known_names(table))
    a, b = draw(cells_of(table, name)), draw(cells_of(table, name))
    one = st.sampled_from([f"drop:{name}", f"keep:{name}", f"merge:{name}={a}+{b}", a])
    return ";".join(draw(st.lists(one, min_size=1, max_size=2)))


scalars = st.one_of(
    st.integers(0, 30), st.integers(-3, 120), labels, st.none(), st.booleans(),
    st.sampled_from([2**31, 2**63, 10**40, 1.5, -0.0, 1e300]),
)  # fmt: skip


@st.composite
def person_nodes(draw, table, depth=2):
    """Who, as YAML has it."""
    kind = draw(st.integers(0, 6 if depth else 3))
    if kind <= 1:
        name = draw(known_names(table))
        return {name: draw(st.one_of(cells_of(table, name), st.lists(labels, max_size=2)))}
    if kind == 2:
        keys = draw(st.sets(st.sampled_from(["at least", "at most"]), min_size=1))
        return {draw(known_names(table)): {key: draw(scalars) for key in sorted(keys)}}
    if kind == 3:
        other = {"same as household": draw(known_names(table))}
        return draw(st.sampled_from(["head", "anyone", {draw(known_names(table)): other}, None]))
    parts = [draw(person_nodes(table, depth - 1)) for _ in range(2)]
    return [{"all of": parts}, {"any of": parts}, {"not": parts[0]}][kind - 4]


@st.composite
def rule_nodes(draw, table, depth=2):
    """A statement, as YAML has it; mostly a whole one."""
    kind = draw(st.integers(0, 10 if depth else 6))
    who, whom = draw(person_nodes(table)), draw(person_nodes(table))
    name, number = draw(known_names(table)), draw(scalars)
    variable = {"variable": name} if draw(st.booleans()) else {}
    simple = [
        {"exactly": number, "of": who},
        {"at least": number, "at most": draw(scalars), "of": who},
        {"each": who, "has": whom},
        {"each": who, "younger than": whom, "by at least": number} | variable,
        {"each": who, "within": number, "of": whom} | variable,
        {"each": who, "same as": whom, "variable": name},
        {"household": {name: draw(cells_of(table, name))}},
    ]
    if kind < 7:
        statement = simple[kind]
    else:
        parts = [draw(rule_nodes(table, depth - 1)) for _ in range(2)]
        statement = [
            {"if": parts[0], "then": parts[1]}, {"all of": parts}, {"any of": parts},
            {"not": parts[0]},
        ][kind - 7]  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        statement["name"] = draw(labels)
    if draw(st.integers(0, 15)) == 0:
        statement.pop(draw(st.sampled_from(sorted(statement))))
    return statement


@st.composite
def rule_files(draw, table):
    """Bytes of a file of rules."""
    rules = draw(st.lists(rule_nodes(table), min_size=0, max_size=3))
    persons = {"head": {draw(known_names(table)): draw(labels)}} if draw(st.booleans()) else None
    document = {"persons": persons, "rules": rules} if persons else {"rules": rules}
    text = yaml.safe_dump(document, allow_unicode=draw(st.booleans()), sort_keys=False)
    return draw(mostly(st.just(text.encode()), damaged(text.encode())))


class Outcome(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


REACHED = 130
"""Code of a command that found nothing wrong and was stopped where its work begins."""


def stop(*_args, **_options):
    """Stand in for the work."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def no_work(monkeypatch):
    """Let commands check all that they check, and stop where their work begins."""
    with monkeypatch.context() as patch:
        patch.setattr(runs, "sample", stop)
        patch.setattr(compare, "compare", stop)
        patch.setattr(evaluate.evaluation, "evaluate", stop)
        for name in ("fit_empirical_bayes", "sample_hyperparameters", "cell_risk"):
            patch.setattr(cells, name, stop)
        patch.setattr(processes, "connect", refuse)
        yield


def refuse(*_args):
    """Stand in for other processes."""
    raise RuntimeError("nobody answers")


def ended(argv):
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return Outcome(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def folder_with(files):
    """A new folder with these files, by name; in texts {} stands for the folder."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        folder = Path(folder)
        for name, content in files.items():
            if isinstance(content, str):
                content = content.replace("{}", str(folder)).encode()
            (folder / name).write_bytes(content)
        yield folder


def check(argv, files, monkeypatch):
    """Run a command in a folder of its own with these files, and look at how it ends."""
    with folder_with(files) as folder, no_work(monkeypatch):
        out = folder / ("found.csv" if argv[0] == "conditions" else "out")
        argv = [word.replace("{}", str(folder)) for word in argv]
        outcome = ended([*argv, "--out", str(out)])
        if outcome.code == 2:
            check_refusal(outcome, folder)
        elif argv[0] == "conditions":
            assert outcome.code == 0 and out.is_file()
            out.unlink()
        else:
            assert outcome.code == REACHED, outcome
        assert sorted(path.name for path in folder.iterdir()) == sorted(files)
        return outcome


def check_refusal(outcome, folder):
    """A command that refuses says why in one line, which names the file or the option."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1 and outcome.err.endswith("\n"), outcome.err
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert "Traceback" not in outcome.err
    said = outcome.err.partition("error: ")[2]
    named = (str(folder), "--", "argument", "SAMPLE: ")
    # Files whose names are odd themselves.
    odd = re.match(r".*: (cannot be read|there is no such file|File name too long)", said)
    assert odd or any(name in said for name in named), outcome.err
