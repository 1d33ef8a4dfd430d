"""What tests of the command line share."""

CHILDREN_ARE_YOUNGER = """
persons:
  head: {relate: Householder}
rules:
- exactly: 1
  of: head
- each: {relate: Child}
  younger than: head
  by at least: 15
"""
"""Rules of households with one head and younger children, as YAML."""


def one_line(capsys):
    """What was printed to stderr: one line, and nothing to stdout."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.endswith("\n")
    return printed.err


def untimed(out):
    """The bytes of risk.json that do not depend on the clock."""
    content = (out / "risk.json").read_bytes()
    return content[: content.index(b'  "seconds"')]
