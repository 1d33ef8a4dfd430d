"""Pages, JSON and CSV of results whose labels are any text at all.

Results are made once; each example puts other names and labels into them.
"""

import contextlib
import csv
import dataclasses
import functools
import itertools
import json
import re
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from documents import check_document
from fuzzing import check_refusal, ended, fuzzed, odd_text, plain_labels
from hypothesis import assume, given
from hypothesis import strategies as st
from markupsafe import Markup
from pages import Page, check_well_formed

import bnp_models as bnp
from bnp_models.cli import runs
from bnp_models.data.writing import write_json, write_table
from bnp_models.inference.run import Run
from bnp_models.inference.trace import Settings
from bnp_models.report import cells as of_cells
from bnp_models.report import evaluation as of_evaluation
from bnp_models.report import pages, protection, synthesis
from bnp_models.report import risk as of_risk
from bnp_models.report.pages import Filing

LEVELS = (("0-4", "5-14", "15-44", "65+"), ("f", "m"), ("a", "b", "c", "d", "e"))
NAMES = ("age", "sex", "town")
SCHEMA = bnp.Schema(NAMES, LEVELS)
CELLS = np.array(list(itertools.product(*map(range, SCHEMA.num_levels))))
N, SHAPE = 40, (2, 20)
# Town 0 goes with sex 0 alone.
IMPOSSIBLE = [[-1, 1, 0], [-1, 0, 1], [-1, 0, 2], [-1, 0, 3], [-1, 0, 4]]
TAKEN = ("row", "r1", "r2", "cell", "id", *of_cells.CELL_COLUMNS, *of_cells.classical.NAMES)


@pytest.fixture(scope="module")
def made():
    return make_results()


def run_of(draws, model, table, **_options):
    """A run with these draws, whatever it is of."""
    key = jax.random.key(0)
    return Run(
        model, table, Settings(SHAPE[0], 0, SHAPE[1], 1, (), (2,)), draws, key, None, 4, (),
        seconds={"compile": 0.0, "warmup": 0.0, "draws": 1.0}, origin=key,
    )  # fmt: skip


def make_results():
    """Latent classes whose draws are given by hand, and all that is made of them."""
    rng = np.random.default_rng(0)
    levels = [np.moveaxis(rng.dirichlet(np.ones(s), (*SHAPE, 4)), 3, 2) for s in SCHEMA.num_levels]
    draws = {
        "alpha": rng.gamma(2, 1, SHAPE), "components": rng.poisson(4, SHAPE),
        "log_likelihood": rng.normal(size=SHAPE), "log_feasible": np.zeros(SHAPE),
        "log_pi": np.log(rng.dirichlet(np.ones(4), SHAPE)),
        "log_lambda": np.log(np.concatenate(levels, axis=2)),
        "level_shape": np.ones((*SHAPE, sum(SCHEMA.num_levels))),
    }  # fmt: skip
    codes = CELLS[rng.choice(len(CELLS), N, p=rng.dirichlet(np.full(len(CELLS), 0.7)))]
    table = bnp.Microdata(SCHEMA, codes)
    key = jax.random.key(0)
    draws = {name: np.float32(x) for name, x in draws.items()}
    run = run_of(draws, bnp.NPLCM(components=4), table)
    risk = bnp.population_risk(run, 200)
    cells = bnp.weighted_cells(table, 200)
    return SimpleNamespace(
        codes=codes,
        run=run,
        risk=risk,
        checks=bnp.predictive_checks(run),
        coarser=bnp.coarsen(run, 200),
        protection=protection.changes_document(bnp.protect(run, 200, max_tau1=2.5)),
        frames=[CELLS[rng.integers(len(CELLS), size=N)] for _ in range(2)],
        diagnosis=bnp.results.Diagnosis.of(run, risk),
        of_margins=bnp.results.Diagnosis.of(run, bnp.level_margins(run)),
        cells=bnp.cell_risk(bnp.PolettiniStander(variant=1), cells, key=key),
    )


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_pages():
        yield


@contextlib.contextmanager
def quick_pages():
    """Plots have no labels of data, and templates are the same for all examples."""
    with pytest.MonkeyPatch.context() as patch:
        plot = Markup('<svg role="img" aria-label="a plot"></svg>')
        for module, name in (
            (pages, "trace_plot"), (pages, "rank_plot"), (of_risk, "checks_plot"),
            (of_risk, "histogram_plot"), (synthesis, "checks_plot"), (of_cells, "plot_fit"),
            (of_evaluation, "_scatter"), (of_evaluation, "_overlaps"),
        ):  # fmt: skip
            patch.setattr(module, name, lambda *_args, **_options: plot)
        shared = functools.lru_cache(pages.environment)
        versions = functools.lru_cache(pages.versions)
        patch.setattr(pages, "versions", versions)
        for module in (pages, of_evaluation, of_cells):
            patch.setattr(module, "environment", shared)
        yield


def distinct(strategy, size):
    return st.lists(strategy, min_size=size, max_size=size, unique=True)


# Half of the text is such as a page, or a spreadsheet, might take for its own.
MARKUP = ("<script>alert(1)</script>", "<b>", "&lt;", "&amp;", "a&b", '"', "'", "<", "</td>")
FORMULAS = ("=1+1", "+cmd", "@x", "-x", "\t=1", "\r=1", "\n=1", "\uff1d1", "-9", "+1.5")
labels = st.one_of(st.sampled_from(MARKUP), st.sampled_from(FORMULAS), odd_text, plain_labels)
labels = labels.filter(bool)


def bare(name):
    """A name as a header is read: without line breaks, and without blanks at its ends."""
    return " ".join(part.strip() for part in name.splitlines()).strip(" \t\ufeff")


@st.composite
def schemas(draw):
    """Names and labels of any text, some for filing, and which pages to look at."""
    # Labels of blanks only are missing values.
    levels = [draw(distinct(labels.filter(str.strip), size)) for size in SCHEMA.num_levels]
    # A header of labels is taken for a record, and refused.
    taken = {*TAKEN, *(bare(label) for of in levels for label in of)}
    names = draw(distinct(labels.filter(lambda name: bare(name) not in taken), len(NAMES)))
    schema = bnp.Schema(tuple(names), tuple(map(tuple, levels)))
    return schema, draw(st.lists(labels, max_size=4)), draw(st.integers(0, len(PAGES) - 1))


class Cells(Page):
    """A page, and the text of every cell of its tables."""

    def __init__(self, text):
        self.found, self.cell = set(), None
        super().__init__(text)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        self.cell = [] if tag in ("td", "th") else self.cell

    def handle_endtag(self, tag):
        super().handle_endtag(tag)
        if tag in ("td", "th"):
            self.found.add("".join(self.cell))
            self.cell = None

    def handle_data(self, data):
        super().handle_data(data)
        if self.cell is not None:
            self.cell.append(data)


def renamed(document, schema):
    """A document with the names and labels of a schema in the place of those of `SCHEMA`."""
    new = dict(zip(NAMES, schema.variables, strict=True))
    for old, of in zip(LEVELS, schema.levels, strict=True):
        new |= dict(zip(old, of, strict=True))
    if isinstance(document, dict):
        return {key: renamed(value, schema) for key, value in document.items()}
    if isinstance(document, list):
        return [renamed(value, schema) for value in document]
    return new.get(document, document) if isinstance(document, str) else document


def check_page(text, shown):
    """A page is whole, has no element but its own, and shows these labels as they are."""
    check_well_formed(text, text.count('<svg role="img"'))
    page = Cells(text)
    assert set(page.tags) <= ELEMENTS
    assert set(shown) <= page.found, set(shown) - page.found


TEMPLATES = Path(pages.__file__).parent.glob("templates/*.j2")
ELEMENTS = {tag for path in TEMPLATES for tag in re.findall(r"<(\w+)", path.read_text())} | {"svg"}


def check_json(document, folder):
    """A document is written as it is."""
    write_json(document, folder / "document.json")
    read = json.loads((folder / "document.json").read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(document))


FORMULA = re.compile(r"[=@+\-\t\r\n＝＠＋－]")


def check_harmless(path, header, rows):
    """No cell of a table is run by a spreadsheet, and all else is what it was."""
    with open(path, encoding="utf-8", newline="") as file:
        read = list(csv.reader(file, strict=True))
    assert len(read) == len(rows) + 1
    for cells, given_cells in zip(read, [header, *rows], strict=True):
        assert len(cells) == len(given_cells)
        for cell, value in zip(cells, given_cells, strict=True):
            if isinstance(value, str):
                assert not FORMULA.match(cell) or re.fullmatch(r"[+-][0-9.,]*", cell), cell
                assert cell in (value, f"'{value}"), (cell, value)
                assert cell == value or FORMULA.match(value)


class Results:
    """Results with the names and labels of a schema; each method checks a page, and gives JSON."""

    def __init__(self, made, schema, filed):
        self.made, self.schema, self.filed = made, schema, filed
        self.table = bnp.Microdata(schema, made.codes)
        title, author, command, name = [*filed, None, None, None, "a.csv"][:4]
        self.filing = Filing("2025-03-31", name or "a", None, title, author)
        self.command = command
        self.run = dataclasses.replace(made.run, table=self.table)
        self.risk = dataclasses.replace(made.risk, run=self.run)
        counted = dataclasses.replace(made.cells.cells, table=self.table)
        self.cells = dataclasses.replace(made.cells, cells=counted)
        self.more = {"diagnosis": made.diagnosis, "checks": made.checks, "coarser": made.coarser}

    def of_risk(self):
        page = of_risk.render_report(
            self.risk, filing=self.filing, command=self.command, **self.more
        )
        riskiest = self.risk.records().head(of_risk.NUM_RISKIEST)[list(self.schema.variables)]
        check_page(page, {*riskiest.to_numpy(object).ravel(), *self.schema.variables})
        return bnp.report.risk_summary(self.risk, seed=0, **self.more)

    def of_protection(self):
        changes = renamed(self.made.protection, self.schema)
        summary = bnp.report.risk_summary(self.risk, seed=0, **self.more)
        page = protection.render_protection_report(
            self.risk, changes, summary=summary, diagnosis=self.made.diagnosis,
            filing=self.filing, command=self.command,
        )  # fmt: skip
        check_page(page, {one["old"] for one in changes["suppressions"]})
        return changes

    def of_synthesis(self):
        schema, (name, other, _) = self.schema, self.schema.variables
        zeros = bnp.StructuralZeros(schema, np.array(IMPOSSIBLE))
        run = dataclasses.replace(self.run, model=bnp.TNPLCM(components=4), conditions=zeros)
        page = synthesis.render_synthesis_report(
            run, [bnp.Microdata(schema, codes).to_frame() for codes in self.made.frames],
            self.made.of_margins, checks=self.made.checks, merged={name: {"x": self.filed}},
            kept=[name], binned=[other], notes=self.filed, command=self.command,
        )  # fmt: skip
        check_page(page, {label for levels in schema.levels for label in levels})
        return bnp.report.run_summary(run, self.made.of_margins, seed=0)

    def of_evaluation(self):
        frames = [bnp.Microdata(self.schema, codes).to_frame() for codes in self.made.frames]
        keys = [list(self.schema.variables[:2])]
        evaluation, files = bnp.evaluate(self.table, frames, keys=keys), [*self.filed[:1], "=1"]
        files = dict.fromkeys([*files, "a.csv"])
        page = of_evaluation.render_evaluation_report(
            evaluation, list(files)[:2], command=self.command
        )
        check_page(page, list(files)[:2])
        return evaluation.summary(list(files)[:2])

    def of_cells(self):
        summary = of_cells.cell_risk_summary(self.cells)
        page = of_cells.render_cell_report(
            self.cells, summary, filing=self.filing, command=self.command
        )
        shown = self.cells.frame().head(5)[list(self.schema.variables)]
        check_page(page, set(shown.to_numpy(object).ravel()))
        return summary


PAGES = ("of_risk", "of_protection", "of_synthesis", "of_evaluation", "of_cells")


def check_frame(frame, folder):
    """Records come back as they were written, in a file with their separator told."""
    bnp.io.write_frame(frame, folder / "data.csv")
    reading = bnp.io.Reading(sep=",", encoding="utf-8")
    names = [bare(name) for name in frame]
    if len(set(names)) < len(names) or "" in names:
        with pytest.raises(bnp.MicrodataError, match="occurs twice|has no name"):
            bnp.io.read_frame(folder / "data.csv", reading=reading)
        return
    read, _ = bnp.io.read_frame(folder / "data.csv", reading=reading)
    assert list(read) == names
    assert read.to_numpy(object).tolist() == frame.to_numpy(object).tolist()


def check(made, schema, filed, which):
    """Two pages of results with these names and labels, and all their tables."""
    results = Results(made, schema, filed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        folder = Path(folder)
        for k in range(2):
            check_json(getattr(results, PAGES[(which + k) % len(PAGES)])(), folder)
        ids = pd.Series([*filed, "a"] * N, name="id")[:N]
        bnp.io.write_records(results.risk, folder / "records.csv", ids)
        frame = results.risk.records()
        frame.insert(1, "id", ids.to_numpy(object)[frame["row"]])
        check_harmless(folder / "records.csv", list(frame), frame.to_numpy(object).tolist())
        bnp.io.write_cells(results.cells, folder / "cells.csv")
        frame = of_cells.cells_frame(results.cells)
        check_harmless(folder / "cells.csv", list(frame), frame.to_numpy(object).tolist())
        check_frame(results.table.to_frame().astype(object), folder)


@fuzzed()
@given(schemas())
def test_labels_of_any_text_are_shown_as_they_are(made, example):
    check(made, *example)


@fuzzed()
@given(st.lists(st.lists(labels | st.just(""), min_size=2, max_size=2), min_size=1, max_size=4),
       distinct(labels, 2))  # fmt: skip
def test_tables_for_spreadsheets_hold_no_formula(rows, header):
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        frame = pd.DataFrame(rows, columns=header, dtype=object)
        write_table(frame, Path(folder) / "table.csv")
        check_harmless(Path(folder) / "table.csv", header, rows)


def check_whole(made, schema, filed, monkeypatch):
    """Commands on a file with these names and labels, to the end; only the draws are given."""
    monkeypatch.setattr(runs, "sample", functools.partial(run_of, made.run.draws))
    text, names = " ".join(filed), list(map(bare, schema.variables))
    assume(all(names) and len(set(names)) == len(names))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        sample, out = Path(folder) / "sample.csv", Path(folder) / "out"
        frame = bnp.Microdata(schema, made.codes).to_frame().astype(object)
        frame.to_csv(sample, index=False, quoting=csv.QUOTE_ALL, encoding="utf-8-sig")
        given = [f"{sample}", "--sep=,", "--encoding=utf-8-sig", "--model=nplcm", "--components=4",
                 "--chains=2", "--draws=20", "--allow-identifying", f"--out={out}"]  # fmt: skip
        done = ended(["risk", "--population-size=200", f"--title={text}", f"--id={text}", *given])
        if text not in names:
            check_refusal(done, folder)
        done = ended(["risk", "--population-size=200", f"--title={text}", *given])
        assert done.code == 0 and "Traceback" not in done.err, done
        check_folder(out)
        with open(out / "records.csv", encoding="utf-8", newline="") as file:
            for cells in csv.reader(file, strict=True):
                assert not any(re.match(r"[=@\t\r]", cell) for cell in cells)
        assert tomllib.loads((out / "run.toml").read_text())["risk"].get("title", "") == text
        done = ended(["synthesize", "--datasets=1", "--force", *given])
        assert done.code == 0 and "Traceback" not in done.err, done
        check_folder(out)
        reading = bnp.io.Reading(sep=",", encoding="utf-8")
        read, _ = bnp.io.read_frame(out / "synthetic_1.csv", reading=reading)
        for name, labels in zip(names, schema.levels, strict=True):
            # Values may be read, and are then written, without blanks at their ends.
            assert {label.strip() for label in read[name]} <= {label.strip() for label in labels}


def check_folder(out):
    """Pages and JSON of a folder."""
    for path in out.glob("*.json"):
        check_document(json.loads(path.read_text(encoding="utf-8")), path.name)
    # Python would read a carriage return as the end of a line, and take two names for one.
    check_page((out / "report.html").read_bytes().decode(), ())


@fuzzed(0.04)
@given(schemas())
def test_commands_on_labels_of_any_text(made, monkeypatch, example):
    check_whole(made, *example[:2], monkeypatch)


# What fuzzing found; each line says what went wrong.
FOUND = [
    # The end of a line was not in quotes, and one record was read as two.
    "a\rb",
    # Wide forms, which some spreadsheets run, were left as they were.
    "\uff1d1+1",
    "\n=1+1",
]


@pytest.mark.parametrize("label", FOUND, ids=range(len(FOUND)))
def test_what_was_found(tmp_path, label):
    rows = [[label, "a"], ["b", label]]
    frame = pd.DataFrame(rows, columns=["x", label], dtype=object)
    write_table(frame, tmp_path / "table.csv")
    check_harmless(tmp_path / "table.csv", list(frame), rows)
    check_frame(frame, tmp_path)
