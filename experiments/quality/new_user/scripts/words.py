"""Text of a page around some words: `python words.py FILE REGEX`."""

import html
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
text = re.sub(r"<(style|script|svg).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
text = re.sub(r"\s+", " ", html.unescape(text))
found = [text[max(0, m.start() - 60) : m.end() + 80] for m in re.finditer(sys.argv[2], text)]
print(*(found[:3] or ["none of these words"]), sep="\n")
