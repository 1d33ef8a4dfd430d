"""Options as fields of frozen dataclasses: they define the parser, and hold the parsed values.

A group of options is a dataclass whose fields are made by `option`. A command is such a dataclass
whose fields may also be groups, made by `part`. This module does not know the commands.
"""

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar, cast

from bnp_models.data.messages import listed


class UsageError(ValueError):
    """Options that do not fit the data, or a folder that cannot be used."""


@contextlib.contextmanager
def about(option: str) -> Iterator[None]:
    """Name an option in an error about what it asks for."""
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def refuse(given: Mapping[str, object], why: str) -> None:
    """Raise an error about the first of these options that was given, by their names."""
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name}: {why}")


class ParseError(ValueError):
    """Words that are no command; the message is one line that begins with the command."""


class Said(NamedTuple):
    """A value, and the text of the command line that said it."""

    text: str
    value: object


class Command:
    """Options of a command, which are the fields; its class says what it is called and does."""

    name: ClassVar[str]
    first: ClassVar[tuple[str, ...]]
    """Options that most runs need, which come first on the help page."""
    heading: ClassVar[str] = "more"
    """Heading of its other options, but for those in groups."""
    help: ClassVar[str | None] = None
    description: ClassVar[str]
    epilog: ClassVar[str | None] = None


Found = TypeVar("Found")


def option(
    metavar: str | None = None,
    type: Callable[[str], object] | None = None,
    /,
    *,
    help: str,
    default: object = None,
    **told: object,
) -> Any:
    """Field that is an option.

    Parameters
    ----------
    metavar, type
        Placeholder of the value in the help, and function that reads the value.
    help, default
        Help text of the option, and its value if it is not given.
    **told
        Further arguments of `argparse.ArgumentParser.add_argument`; also `positional=True` for an
        argument without a name, and `heading` if the help page lists the option under another
        heading than that of its group.
    """
    told |= {"help": help, "default": default}
    if metavar is not None:
        told["metavar"] = metavar
    if type is not None:
        told["type"] = type
    return dataclasses.field(default=cast(Any, default), metadata={"told": told})


def switch(help: str, **told: object) -> Any:
    """Field that is an option without a value."""
    return option(help=help, default=False, action="store_true", **told)


def part(
    of: type,
    *,
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
    fixed: Mapping[str, object] | None = None,
    last: bool = False,
    **changed: Mapping[str, object] | str,
) -> Any:
    """Field that is a group of options.

    Parameters
    ----------
    of
        Class of the group.
    only
        Options that the command offers, by default all.
    without
        Options, or groups within the group, that it does not offer.
    fixed
        Values of options that the command does not offer.
    last
        Whether the options come after all others in the file that repeats a run.
    **changed
        By option, what differs from the group: its help text, or several arguments of `option`.
    """
    names = [one.name for one in dataclasses.fields(of)]
    left_out = [*without, *(fixed or ()), *(n for n in names if only is not None and n not in only)]
    changes: dict[str, Mapping[str, object] | None] = dict.fromkeys(left_out)
    for name, told in changed.items():
        changes[name] = {"help": told} if isinstance(told, str) else told
    return dataclasses.field(
        default_factory=of,
        metadata={"of": of, "changes": changes, "fixed": fixed or {}, "last": last},
    )


class Option(NamedTuple):
    """An option as a command offers it."""

    name: str
    heading: str
    about: str | None
    told: dict[str, Any]
    """Keyword arguments for `argparse.ArgumentParser.add_argument`."""
    last: bool

    @property
    def positional(self) -> bool:
        """Whether it is a word without a name."""
        return bool(self.told.get("positional"))

    @property
    def takes_value(self) -> bool:
        """Whether it is said with a value."""
        return self.told.get("action") not in ("store_true", "store_const")

    @property
    def rank(self) -> tuple[bool, ...]:
        """Its place: files first, then the folder of the results, and what else is required."""
        required = self.told.get("required", False)
        return not self.positional, self.name != "out", not required, self.last


def options_of(of: type) -> list[Option]:
    """Options that a command offers, in the order of the file that repeats a run."""
    return sorted(_options(of, {}, False), key=lambda one: one.rank)


def _options(
    of: Any, changes: Mapping[str, Mapping[str, object] | None], last: bool
) -> Iterator[Option]:
    for one in dataclasses.fields(of):
        change = changes.get(one.name, {})
        if change is None:
            continue
        if "of" in one.metadata:
            inner = {**one.metadata["changes"], **changes}
            yield from _options(one.metadata["of"], inner, last or one.metadata["last"])
        elif "told" in one.metadata:
            told = {**one.metadata["told"], **change}
            heading = told.get("heading", of.heading)
            yield Option(one.name, heading, getattr(of, "about", None) or None, told, last)


def read(
    of: type[Found], values: Mapping[str, object], fixed: Mapping[str, object] | None = None
) -> Found:
    """Return an object of a command or group, from values by the names of options.

    Where there is none, the object has its class's default, unless it is `fixed`.
    """
    given = dict(fixed or {})
    found: dict[str, object] = {}
    for one in dataclasses.fields(cast(Any, of)):
        if "of" in one.metadata:
            inner = {**one.metadata["fixed"], **given}
            found[one.name] = read(one.metadata["of"], values, inner)
        elif one.name in given:
            found[one.name] = given[one.name]
        elif values.get(one.name) is not None:
            found[one.name] = values[one.name]
    return of(**found)


def values_of(group: Any) -> dict[str, object]:
    """Values of the options of a group, and of those within it, by name."""
    found: dict[str, object] = {}
    for one in dataclasses.fields(group):
        value = getattr(group, one.name)
        found |= values_of(value) if "of" in one.metadata else {one.name: value}
    return found


def plain(value: object) -> object:
    """A value as JSON has it, lists in the place of tuples."""
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


class Parser(argparse.ArgumentParser):
    """Parser of a command, or of several; it raises where others end the program."""

    def __init__(self, **texts: Any) -> None:
        super().__init__(**texts, allow_abbrev=False)
        self.commands: dict[str, Parser] = {}
        """Parsers of the commands within it, by name."""
        self.offered: list[Option] = []
        """Options of its command, in the order of the file that repeats a run."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, in one line."""
        if re.match(r"unrecognized arguments: [^-]", message):
            message += (
                "; names in a list have commas between them (--variables age,sex), and what has "
                "blanks is put in quotation marks"
            )
        raise ParseError(f"{self.prog}: error: {one_line(message)}{self._elsewhere(message)}")

    def _elsewhere(self, message: str) -> str:
        """Sentence on the commands that have the option which a message is about."""
        unknown = re.match(r"unrecognized arguments: (--[a-z-]+)", message)
        if unknown is None:
            return ""
        having = [
            name
            for name, of in self.commands.items()
            if any(unknown[1] == flag(one.name) for one in of.offered)
        ]
        return f"; {unknown[1]} is an option of {listed(having)}" if having else ""

    def offer(self, command: type[Command]) -> None:
        """Take the options of a command: those that most runs need first, then by headings."""
        self.offered = options_of(command)
        of_name = {one.name: one for one in self.offered}
        files = [one for one in self.offered if one.positional]
        first = [of_name[name] for name in command.first if name in of_name]
        rest = [one for one in self.offered if one not in files and one not in first]
        groups: dict[str, Any] = {}
        for one in rest:
            if one.heading not in groups:
                groups[one.heading] = self.add_argument_group(one.heading, one.about)
        for one in (*files, *first, *rest):
            told = {k: v for k, v in one.told.items() if k not in ("positional", "heading")}
            if "type" in told:
                told["type"] = _saying(told["type"])
            if told["default"] == ():
                # What is appended to is a list of its own.
                told["default"] = None
            name = one.name if one.positional else flag(one.name)
            (groups[one.heading] if one in rest else self).add_argument(name, **told)
        said = [one.told["metavar"] + " ..." * ("nargs" in one.told) for one in files]
        for one in first:
            if "required" in one.told:
                said += [flag(one.name), one.told["metavar"]]
        self.usage = f"%(prog)s {' '.join(said)} [option ...]"
        self.set_defaults(command=command)


def _saying(read: Callable[[str], object]) -> Callable[[str], Said]:
    """Type of an argument that keeps the text that said its value."""
    return lambda text: Said(text, read(text))


class Parsed(NamedTuple):
    """Parsed words of a command line."""

    command: type[Command]
    values: dict[str, Any]
    """Values by the names of options, defaults included."""
    texts: dict[str, Any]
    """The same, as far as they were said in texts as these texts."""


def parse(parser: Parser, argv: list[str]) -> Parsed:
    """Parse the words of a command.

    Raises
    ------
    ParseError
        If they are none.
    """
    found = vars(parser.parse_args(argv))
    command = found.pop("command")
    return Parsed(
        command,
        {name: _of_said(value, lambda said: said.value) for name, value in found.items()},
        {name: _of_said(value, lambda said: said.text) for name, value in found.items()},
    )


def _of_said(value: Any, what: Callable[[Said], object]) -> Any:
    """A value, frozen, with a part of all that was said in it."""
    if isinstance(value, Said):
        value = what(value)
    if isinstance(value, list):
        return tuple(_of_said(one, what) for one in value)
    return value


def flag(name: str) -> str:
    """Option of the command line that has this name in Python, where a keyword ends with "_"."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.splitlines())
