"""Items 9, 12 and 15: what is in a page, `python page.py FILE`."""

import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
for what in (
    "prefers-color-scheme",
    "@media print",
    "<caption",
    'scope="',
    "overflow-x",
    "SHA-256",
):
    print(f"{what}: {page.count(what)}", end="; ")
print(f"tables: {page.count('<table')}; {len(page) // 1000} kB")
print("boxes:", *re.findall(r'class="box[^"]*"', page))
text = re.sub(r"<(style|script|svg|title).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
print(re.sub(r"\s+", " ", text).strip()[:300])
