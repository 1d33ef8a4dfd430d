"""YAML files as nodes that know their lines; nothing in a file is run or made an object of."""

import re
from typing import TypeAlias

import yaml

from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import Label, MicrodataError

Entries: TypeAlias = dict[str, tuple[yaml.Node, yaml.Node]]
"""Keys and values of a mapping, by the text of the keys."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")


class _Loader(yaml.SafeLoader):
    """Loader without tags, and without aliases, by which a small file can become a huge one."""

    def compose_node(self, parent, index):
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise mistake(event, f"the alias *{event.anchor} is not read; write it out")
        if event.tag is not None:
            raise mistake(event, f"the tag {event.tag} is not read; leave it out")
        return super().compose_node(parent, index)


def mistake(node: yaml.Node | yaml.Event, problem: str) -> MicrodataError:
    """Return the error that a node is wrong, with its line."""
    return MicrodataError(problem, line=node.start_mark.line + 1)


def compose(content: str | bytes) -> yaml.Node:
    """Return the one document of a YAML text, bytes in UTF-8.

    Raises
    ------
    MicrodataError
        If it is empty or no YAML, or has tags or aliases; it names the line.
    """
    try:
        node = yaml.compose(content, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, [error.context, error.problem]))
        raise MicrodataError(
            f"is not valid YAML ({problem}); indent by spaces, and quote text that has special "
            "characters",
            line=None if mark is None else mark.line + 1,
        ) from None
    except yaml.YAMLError:
        raise MicrodataError("is no plain text in UTF-8; save it as such") from None
    if node is None:
        raise MicrodataError("is empty; it needs a list of `rules`")
    return node


def mapping(node: yaml.Node, what: str) -> Entries:
    """Return the keys and values of a mapping.

    Raises
    ------
    MicrodataError
        If the node is no mapping, or a key is no text or is there twice.
    """
    if not isinstance(node, yaml.MappingNode):
        raise mistake(node, f"here should be {what}, as `key: value`, not {kind(node)}")
    entries: Entries = {}
    for key, value in node.value:
        name = text(key, "a key")
        if name in entries:
            raise mistake(key, f"{quoted(name)} is there twice; keep one")
        entries[name] = (key, value)
    return entries


def sequence(node: yaml.Node, what: str) -> list[yaml.Node]:
    """Return the nodes of a list.

    Raises
    ------
    MicrodataError
        If the node is no list.
    """
    if not isinstance(node, yaml.SequenceNode):
        raise mistake(node, f"here should be a list of {what}, each after a `-`, not {kind(node)}")
    return node.value


def text(node: yaml.Node, what: str) -> str:
    """Return the text of a scalar as it is written, without quotes.

    Raises
    ------
    MicrodataError
        If the node is no scalar, or it is empty.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise mistake(node, f"here should be {what}, not {kind(node)}")
    if node.value == "":
        raise mistake(
            node, f"the value is empty, and should be {what}; put text with commas in quotes"
        )
    return node.value


def label(node: yaml.Node) -> Label:
    """Return the label that a scalar is: as it is written, so that ``01`` and ``no`` stay such.

    A number without quotes is a number if its text is that of the label: ``1`` and ``1.5``, but not
    ``01`` or ``1.0``. Labels of data are compared as text in any case.
    """
    written = text(node, "a label")
    if not node.style and _INTEGER.fullmatch(written):
        return int(written)
    if not node.style and _DECIMAL.fullmatch(written) and not written.endswith("0"):
        return float(written)
    return written


def number(node: yaml.Node, what: str) -> int | float:
    """Return the number that a scalar is.

    Raises
    ------
    MicrodataError
        If it is none.
    """
    written = text(node, what)
    if _INTEGER.fullmatch(written):
        return int(written)
    if _DECIMAL.fullmatch(written):
        return float(written)
    raise mistake(node, f"here should be {what}, such as 15, not {quoted(written)}")


def count(node: yaml.Node) -> int:
    """Return the number of persons that a scalar is.

    Raises
    ------
    MicrodataError
        If it is no whole number of 0 or more.
    """
    value = number(node, "a number of persons")
    if not isinstance(value, int) or value < 0:
        raise mistake(node, f"here should be a number of persons, 0 or more, not {value}")
    return value


def kind(node: yaml.Node) -> str:
    """Say what a node is."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return (
            f"a mapping of {listing([key.value for key, _ in node.value])}" if node.value else "{}"
        )
    return quoted(node.value) if node.value else "nothing"
