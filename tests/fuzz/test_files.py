"""Files of any kind: a command runs on them, or ends with one line that says where and why."""

import io
import json
import zipfile

import pandas as pd
import pytest
from fuzzing import (
    GOOD,
    Table,
    altered,
    cells_of,
    check,
    coarsenings,
    condition_tables,
    damaged,
    folder_with,
    fuzzed,
    known_names,
    labels,
    level_tables,
    mostly,
    role_tables,
    rule_files,
    tables,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

from bnp_models.data.writing import write_frame

SMALL = ("--chains", "2", "--draws", "10", "--warmup", "1")
COMMANDS = {
    "risk": ("--population-size", "1000", "--model", "hdp", *SMALL),
    "risk cells": ("--population-size", "1000", "--model", "polettini-stander-1"),
    "synthesize": ("--model", "nplcm", "--datasets", "1", *SMALL),
    "synthesize households": ("--model", "ndpmpm", "--household", "hid", "--datasets", "1", *SMALL),
    "impute": ("--model", "tnplcm", "--datasets", "1", *SMALL),
    "compare": ("--models", "nplcm,tnplcm", "--parts", "2", "--folds", "1", *SMALL),
    "protect": ("--population-size", "1000", "--max-tau1", "1", *SMALL),
    "evaluate": (),
    "evaluate households": ("--household", "hid"),
    "conditions suggest": ("--least", "0.1"),
    "conditions check": (),
}

READING = ("--sep", "--encoding", "--missing", "--variables")
RECODING = ("--bins", "--top-code", "--merge-rare")
TAKEN = {kind: READING + RECODING for kind in COMMANDS}
TAKEN["risk"] += ("--ordered", "--id", "--what-if", "--keys")
TAKEN["protect"] += ("--ordered", "--id")
TAKEN["evaluate"] += ("--keys",)
TAKEN["synthesize households"] += ("--ordered", "--household-variables", "--relative")
TAKEN["evaluate households"] += ("--household-variables",)


@st.composite
def commands(draw):
    """Words of a command, files by their names in its folder, and the bytes of these."""
    kind = draw(st.sampled_from(sorted(COMMANDS)))
    words = kind.split()
    name = words[0]
    weighted = name in ("risk", "protect") and draw(st.integers(0, 2)) == 0
    needed = ["hid"] * ("hid" in COMMANDS[kind]) + ["w"] * weighted
    table = draw(st.one_of(tables(needed), st.just(GOOD), altered(GOOD)))
    encoding = draw(mostly(st.just("utf-8"), st.sampled_from(["utf-16", "cp1252", "utf-8-sig"])))
    sep = draw(mostly(st.just(","), st.sampled_from(";\t|:")))
    files = {"sample.csv": draw(written(table, sep, encoding))}
    argv = [*(words if name == "conditions" else words[:1]), "{}/sample.csv", *COMMANDS[kind]]
    households = "hid" in argv
    if name == "evaluate":
        other = Table(table.header, draw(st.permutations(table.rows)))
        files["made.csv"] = draw(written(other))
        argv.insert(2, "{}/made.csv")
    if name not in ("conditions", "evaluate") and draw(st.integers(0, 3)):
        argv.append("--allow-identifying")

    def add(option, file, strategy):
        files[file] = draw(strategy)
        argv.append(f"{option}={{}}/{file}")

    if kind == "conditions check" or (
        not households and kind != "conditions suggest" and draw(st.booleans())
    ):
        add("--conditions", "zeros.csv", condition_tables(table).flatmap(written))
        if kind == "risk cells" or name == "synthesize":
            argv += ["--model", "tnplcm"] if name == "synthesize" else ["--model", "hdp"]
    if draw(st.integers(0, 2)) == 0:
        add("--levels", "levels.csv", level_tables(table).flatmap(written))
    if households:
        if draw(st.booleans()):
            add("--rules", "rules.yaml", rule_files(table))
        if draw(st.integers(0, 2)) == 0:
            add("--roles", "roles.csv", role_tables(table).flatmap(written))
    if weighted:
        argv.append(f"--weights={draw(mostly(st.just('w'), known_names(table)))}")
    for option, values in (
        ("--sep", st.sampled_from([sep, sep, "", ";;", '"', "\\t", "x"])),
        ("--encoding", st.sampled_from([encoding, encoding, "utf-16", "rot13", "hex", "idna", "x",
                                        "utf-7", "unicode_escape", "undefined", "punycode"])),
        ("--missing", st.lists(labels, max_size=2).map(",".join)),
        ("--variables", st.lists(known_names(table), max_size=3).map(",".join)),
        ("--bins", known_names(table).map("{}=2".format)),
        ("--top-code", st.tuples(known_names(table), st.sampled_from([1, 15, 0.5])).map(
            lambda pair: f"{pair[0]}={pair[1]}")),
        ("--merge-rare", st.sampled_from([2, 3])),
        ("--ordered", st.lists(known_names(table), max_size=2).map(",".join)),
        ("--id", known_names(table)),
        ("--what-if", coarsenings(table)),
        ("--keys", st.lists(known_names(table), max_size=2).map(",".join)),
        ("--household-variables", st.lists(known_names(table), max_size=2).map(",".join)),
        ("--relative", known_names(table)),
    ):  # fmt: skip
        if option in TAKEN[kind] and draw(st.integers(0, 9)) == 0:
            argv.append(f"{option}={draw(values)}")
    return argv, files


@fuzzed()
@given(commands())
def test_any_files_are_read_or_refused(monkeypatch, command):
    check(*command, monkeypatch)


@st.composite
def logs_of_changes(draw):
    """An evaluation of a file by a log of changes, or by any JSON."""
    name = st.sampled_from(GOOD.header) | labels
    step = st.fixed_dictionaries(
        {
            "variable": mostly(name, odd_json, 8),
            "levels": mostly(st.lists(cells_of(GOOD, "sex"), max_size=3), odd_json, 8),
            "to": mostly(st.none() | labels, odd_json, 8),
        }
    )
    document = {"recodings": draw(mostly(st.lists(step, max_size=3), odd_json, 8))}
    text = json.dumps(draw(mostly(st.just(document), odd_json, 8)))
    argv = ["evaluate", "{}/sample.csv", "{}/sample.csv", "--changes={}/changes.json"]
    content = draw(mostly(st.just(text.encode()), damaged(text.encode()), 20))
    return argv, {"sample.csv": file_of(GOOD), "changes.json": content}


odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | labels,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(labels, inner, max_size=2),
    max_leaves=4,
)


@fuzzed()
@given(logs_of_changes())
def test_any_log_of_changes_is_read_or_refused(monkeypatch, command):
    check(*command, monkeypatch)


@st.composite
def other_formats(draw):
    """A command on Parquet, Excel, Stata or SPSS files, some bytes of which are others."""
    ending = draw(st.sampled_from(sorted(WRITERS)))
    # A workbook cannot hold all text.
    table = GOOD if ending == "xlsx" else draw(st.just(GOOD) | altered(GOOD))
    content = bytes_of(table, ending)
    kind = draw(st.sampled_from(["risk", "synthesize", "evaluate"]))
    name = f"sample.{ending}"
    argv = [kind, f"{{}}/{name}", *COMMANDS[kind]]
    argv += [argv[1]] if kind == "evaluate" else ["--allow-identifying"]
    return argv, {name: draw(mostly(with_other_bytes(content, ending), st.just(content), 6))}


@st.composite
def with_other_bytes(draw, content, ending):
    """Some bytes replaced, or the end cut off; in a workbook, of one of its parts too."""
    if ending == "xlsx" and draw(st.integers(0, 3)):
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            parts = {name: book.read(name) for name in book.namelist()}
        name = draw(st.sampled_from(sorted(parts)))
        parts[name] = draw(with_other_bytes(parts[name], "xml"))
        with zipfile.ZipFile(changed := io.BytesIO(), "w") as book:
            for name, part in parts.items():
                book.writestr(name, part)
        return changed.getvalue()
    # The size hangs on the date of writing, and what is drawn must not.
    places = st.integers(0, 2**20 - 1).map(lambda k: k * len(content) >> 20)
    if draw(st.integers(0, 4)) == 0:
        return content[: draw(places)]
    changed = bytearray(content)
    for place in draw(st.lists(places, min_size=1, max_size=4)):
        changed[place] ^= draw(st.integers(1, 255))
    return bytes(changed)


WRITERS = {
    "parquet": pd.DataFrame.to_parquet,
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "dta": write_frame,
    "sav": write_frame,
}


def bytes_of(table, ending):
    """The table as a file of this format."""
    frame = pd.DataFrame(table.rows, columns=table.header).replace("", None)
    with folder_with({}) as folder:
        WRITERS[ending](frame, folder / f"sample.{ending}")
        return (folder / f"sample.{ending}").read_bytes()


@fuzzed()
@given(other_formats())
def test_any_bytes_in_files_of_other_formats_are_read_or_refused(monkeypatch, command):
    check(*command, monkeypatch)


def file_of(table):
    return "\n".join(map(",".join, [table.header, *table.rows])).encode()


RISK = ("risk", "{}/sample.csv", *COMMANDS["risk"], "--allow-identifying")
HOUSEHOLDS = ("synthesize", "{}/sample.csv", *COMMANDS["synthesize households"],
              "--allow-identifying", "--rules={}/rules.yaml")  # fmt: skip
CHANGES = ("evaluate", "{}/sample.csv", "{}/sample.csv", "--changes={}/changes.json")
STEP = '{"recodings": [{"variable": "sex", "levels": %s}]}'
WITHIN = "rules:\n- each: anyone\n  within: -1\n  of: anyone\n"
BOUNDS = "rules:\n- at least: 1\n  of: {age: {at least: 12, at most: 10}}\n"
YEARS = "rules:\n- each: {{relate: Child}}\n  {}: {{relate: {}}}\n  {}: {}\n"

# What fuzzing found, or what was looked at because of it; each line says what went wrong.
FOUND = [
    # The message named no option.
    (RISK + ("--sep=",), {}, "--sep: "),
    # A codec of bytes: a traceback.
    (RISK + ("--encoding=rot13",), {}, "--encoding: there is no encoding called 'rot13'"),
    # Thirds have no last digit: bins were looked for without end.
    (RISK + ("--bins=age=2",), {"sample.csv": b"age,sex\n1/3,a\n1/7,b\n2/3,a\n1/3,b\n"}, "numbers"),
    # A number that would have to be written out: minutes, or a traceback.
    (RISK + ("--bins=age=2",), {"sample.csv": b"age,sex\n1e9999999,a\n2,b\n2,a\n2,b\n"}, "numbers"),
    # Larger than any float: a traceback.
    (RISK + ("--bins=age=2",), {"sample.csv": b"age,sex\n1e400,a\n2,b\n2,a\n2,b\n"}, "numbers"),
    # Values of other types, here and below: tracebacks.
    (CHANGES, {"changes.json": STEP % '5, "to": "x"'}, "is not a changes.json"),
    (CHANGES, {"changes.json": STEP % '["Male"], "to": ["x"]'}, "is not a changes.json"),
    (CHANGES, {"changes.json": "[" * 100_000}, "is not a changes.json"),
    # The message did not say which file drops all variables.
    (CHANGES + ("--variables=sex",), {"changes.json": STEP % '["Male"], "to": null'},
     "changes.json: every variable is dropped"),
    # More years than 32 bits hold: a traceback.
    (HOUSEHOLDS, {"rules.yaml": YEARS.format("older than", "Spouse", "by at least", 3 * 10**9)},
     "rules.yaml, line 4: here should be a number of years"),
    # Persons of labels that stand for several ages were so near each other.
    (HOUSEHOLDS, {"rules.yaml": WITHIN},
     "rules.yaml, line 3: here should be a number of years"),
    # No age is within both; labels of several ages were.
    (HOUSEHOLDS, {"rules.yaml": BOUNDS},
     "rules.yaml, line 3: at least 12 and at most 10 cannot be"),
    # An age that 32 bits do not hold became another one.
    (HOUSEHOLDS, {"sample.csv": file_of(GOOD).replace(b"65+", b"99999999999"),
                  "rules.yaml": YEARS.format("younger than", "Spouse", "by at least", 1)},
     "level '99999999999' is too large"),
    # An interval that holds nothing was taken for ages.
    (HOUSEHOLDS, {"sample.csv": file_of(GOOD).replace(b"65+", b"65-24"),
                  "rules.yaml": YEARS.format("younger than", "Spouse", "by at least", 1)},
     "level '65-24' is no number"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "files", "said"), FOUND, ids=range(len(FOUND)))
def test_what_was_found(monkeypatch, argv, files, said):
    files = {"sample.csv": file_of(GOOD)} | {
        name: content if isinstance(content, bytes) else content.encode()
        for name, content in files.items()
    }
    outcome = check(list(argv), files, monkeypatch)
    assert outcome.code == 2 and said in outcome.err, outcome
