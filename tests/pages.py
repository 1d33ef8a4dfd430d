"""Pages of reports as tests read them: their tags, ids and words."""

import collections
import html.parser
import re

VOID = {"meta", "link", "br", "img", "input", "path", "use", "hr", "col"}


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


def words_of(text):
    return " ".join(" ".join(Page(text).words).split())


def check_well_formed(text, num_plots):
    page = Page(text)
    assert page.open == []
    assert page.tags["svg"] == num_plots
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["image"] == 0
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "<metadata" not in text
    assert set(re.findall(r"https?://[^\"]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
