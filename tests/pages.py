"""Pages of reports as tests read them: their tags, ids and words."""

import collections
import html.parser
import re
from typing import NamedTuple

VOID = {"meta", "link", "br", "img", "input", "path", "use", "hr", "col"}


class Table(NamedTuple):
    """Caption of a table, cells of each row, and scopes of its headers."""

    caption: str
    cells: list[int]
    scopes: list[str | None]


class Page(html.parser.HTMLParser):
    """Tags, ids, open elements and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.open, self.words = collections.Counter(), [], [], []
        self.tables = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append(Table("", [], []))
        elif tag == "tr":
            self.tables[-1].cells.append(0)
        elif tag in ("th", "td"):
            self.tables[-1].cells[-1] += int(dict(attributes).get("colspan", 1))
        if tag == "th":
            self.tables[-1].scopes.append(dict(attributes).get("scope"))

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] == "caption":
            self.tables[-1] = self.tables[-1]._replace(caption=data)


def words_of(text):
    return " ".join(" ".join(Page(text).words).split())


def check_well_formed(text, num_plots):
    page = Page(text)
    assert page.open == []
    assert page.tags["svg"] == num_plots
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["image"] == 0
    assert len(page.ids) == len(set(page.ids))
    captions = [table.caption for table in page.tables]
    assert all(captions) and len(captions) == len(set(captions))
    for table in page.tables:
        assert len(set(table.cells)) == 1, table
        assert "col" in table.scopes and set(table.scopes) <= {"col", "row"}, table
    # In the dark every colour is another: that of text, or one that has a name.
    dark = text[text.index("prefers-color-scheme: dark") :].split("}")[0]
    assert set(re.findall(r"var\(--(\w+)", text)) <= set(re.findall(r"--(\w+):", dark))
    assert not re.search(r"(?:fill|stroke): #", text)
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "<metadata" not in text
    assert set(re.findall(r"https?://[^\"]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
