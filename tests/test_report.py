"""The report: says what risk.json says, in one file that needs no other."""

import collections
import dataclasses
import html.parser
import re

import pytest

import bnp_models as bnp
from bnp_models.report import render_report

VOID = {"meta", "link", "br", "img", "input", "path", "use", "hr"}


class Page(html.parser.HTMLParser):
    """Tags, ids, open elements and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.open, self.words = collections.Counter(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def text(small):
    return render_report(small.risk, command="bnp-models risk a.csv", seed=3)


def test_it_says_what_the_summary_says(small, text):
    summary = bnp.risk_summary(small.risk, seed=3)
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    mean, number = f"{summary['tau1']['mean']:.1f}", summary["sample_uniques"]
    assert f"{mean} of the {number} sample uniques are expected" in words
    assert f"of a population of {summary['population_size']:,}" in words
    assert summary["warnings"]
    for sentence in summary["warnings"]:
        assert sentence[1:] in words
    assert "bnp-models risk a.csv" in words
    assert f"bnp-models {bnp.__version__}" in words
    riskiest = small.risk.records().head(20)
    shown = re.findall(r"<tr><td>(0\.\d{3}|1\.000)</td>", text)
    assert shown == [f"{r1:.3f}" for r1 in riskiest["r1"]]


def test_it_is_well_formed_and_self_contained(text):
    page = Page(text)
    assert page.open == []
    assert page.tags["svg"] == 9
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["image"] == 0
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "<metadata" not in text
    assert set(re.findall(r"https?://[^\"]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_it_is_deterministic(small, text):
    assert render_report(small.risk, command="bnp-models risk a.csv", seed=3) == text


def test_counts_of_records_in_small_cells(small, text):
    counts = small.table.cells()
    own = counts.counts[counts.record_cell]
    for k in (2, 3, 5):
        assert f"<td>fewer than {k} sample records</td><td>{(own < k).sum()}</td>" in text


def test_labels_are_escaped(small):
    schema = small.table.schema
    levels = (("<b>&", *schema.levels[0][1:]), *schema.levels[1:])
    codes = small.table.codes.copy()
    codes[small.risk.rows, 0] = 0
    table = bnp.Microdata(bnp.Schema(("<i>", *schema.variables[1:]), levels), codes)
    risk = dataclasses.replace(small.risk, run=dataclasses.replace(small.run, table=table))
    text = render_report(risk)
    assert "&lt;b&gt;&amp;" in text and "&lt;i&gt;" in text
    assert "<b>&" not in text and "<i>" not in text


def test_it_is_written_whole(small, tmp_path):
    bnp.write_report(tmp_path / "report.html", small.risk)
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
    assert len(list(tmp_path.iterdir())) == 1
