"""Options of a command: read from a TOML file, and written to one."""

import argparse
import contextlib
import csv
import io
import shlex
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import tomli_w

from bnp_models.cli.argument_types import name_list
from bnp_models.cli.commands import COMMANDS
from bnp_models.cli.options import Option, Parsed, ParseError, Parser, flag, options_of
from bnp_models.data.messages import listed, quoted, reason
from bnp_models.version import __version__

REPEATING = "run.toml"
"""Name of the file of options that repeats a run."""

# What a run that is repeated is not told again.
_ONCE = ("resume", "force")

# What stands for the name of a file or a folder, of which there is none without a name.
_FILES = ("FILE", "DIR", "RULES")


class ConfigError(ValueError):
    """A file of options that cannot be used; the message is one line that names it."""


def with_config(parser: Parser, argv: list[str]) -> list[str]:
    """Return the words of a command; those of its file of options take the place of ``--config``.

    Words of the command line come after those of the file, and therefore override them. The sample
    that the file names is used only if the command line names none.

    Parameters
    ----------
    parser
        Parser of all commands.
    argv
        Words of the command line.

    Raises
    ------
    ConfigError
        If the file cannot be read, is no TOML, or has a key that is no option of the command.
    """
    name = next((word for word in argv if not word.startswith("-")), "")
    command = parser.commands.get(name)
    if command is None or not command.offered:
        return argv
    argv, path = _without_config(argv)
    if path is None and "--from" in {flag(one.name) for one in command.offered}:
        path = _of_earlier(argv)
    if path is None:
        return argv
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({reason(error)})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: is not TOML ({reason(error)})") from None
    # One file may serve several commands, with a table for each.
    own = given.pop(name, {})
    shared = {k: v for k, v in given.items() if k not in parser.commands}
    options = {flag(one.name): one for one in command.offered if not one.positional}
    files = [one.name for one in command.offered if one.positional]
    words: list[str] = []
    named: dict[str, list[str]] = {}
    for key, value in (shared | own).items():
        if key in files:
            named[key] = [str(one) for one in (value if isinstance(value, list) else [value])]
        elif flag(key) in options:
            words += _words(options[flag(key)], value, path)
        else:
            names = [*files, *(word[2:] for word in options)]
            near = get_close_matches(key.replace("_", "-"), names)
            which = f"do you mean {listed(near, 'or')}?" if near else f"it has {listed(names)}"
            raise ConfigError(f"--config {path}: {key!r} is not an option of {name}; {which}")
    position = argv.index(name) + 1
    words = [*words, *argv[position:]]
    if named:
        said = argparse.Namespace()
        with contextlib.suppress(ParseError):
            command.parse_known_args(words, said)
        if not any(vars(said).get(file) for file in files):
            # In the order of the command, whatever that of the file.
            words = [*(path for file in files for path in named.get(file, [])), *words]
    return [*argv[:position], *words]


def repeated(parsed: Parsed, argv: list[str]) -> dict[str, str]:
    """How a command is repeated: its words, and the text of a file of options, if it takes one."""
    # Of the actions of ``conditions`` nothing is repeated.
    repeating = as_config(parsed) if parsed.command in COMMANDS else ""
    return {"command": command_line(argv), "repeating": repeating}


def command_line(argv: list[str]) -> str:
    """Command line that makes these files, or goes on making them."""
    return shlex.join(["bnp-models", *(word for word in argv if word != "--resume")])


def as_config(parsed: Parsed) -> str:
    """Return the text of a file of options by which ``--config`` repeats a command.

    It has the options that were given, and the defaults of this version for all others.
    """
    name, texts = parsed.command.name, parsed.texts
    values = {}
    for one in options_of(parsed.command):
        text = texts[one.name]
        if one.name not in _ONCE and not _is_unsaid(text):
            read = None if text == one.told["default"] else one.told.get("type")
            values[flag(one.name)[2:]] = _value(text, read)
    own = shlex.quote(str(Path(texts["out"]) / REPEATING))
    head = (
        f"# bnp-models {__version__}; to repeat this run, from the folder where it was run:\n"
        f"# bnp-models {name} --config {own} --out ANOTHER_FOLDER\n\n"
    )
    return head + tomli_w.dumps({name: values})


def check_texts(parsed: Parsed) -> None:
    """Refuse texts that no file could be called or hold, and files without a name.

    Raises
    ------
    ConfigError
        It names the option.
    """
    for one in options_of(parsed.command):
        value = parsed.values[one.name]
        for text in value if isinstance(value, tuple) else [value]:
            if not isinstance(text, str):
                continue
            where = one.name.upper() if one.positional else flag(one.name)
            if text == "" and (one.positional or one.told.get("metavar") in _FILES):
                raise ConfigError(f"{where}: is empty; name a file")
            if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
                raise ConfigError(f"{where}: {quoted(text)} is not valid UTF-8 text; rename it")


def _is_unsaid(value: object) -> bool:
    """Whether an option was not given; 0 is a value."""
    return value is None or value is False or value == ()


def _value(said: object, read: object) -> object:
    """A value as TOML has it: names in a list, and numbers that are written as such."""
    if isinstance(said, tuple):
        return [_value(one, read) for one in said]
    if not isinstance(said, str) or read is None:
        return said
    if read is name_list:
        return name_list(said)
    for number in (int, float):
        try:
            if str(number(said)) == said:
                return number(said)
        except ValueError:
            continue
    return said


def _without_config(argv: list[str]) -> tuple[list[str], str | None]:
    """The words without ``--config``, and the file that it names."""
    left: list[str] = []
    path = None
    words = iter(argv)
    for word in words:
        if word == "--config":
            path = next(words, None)
        elif word.startswith("--config="):
            path = word.partition("=")[2]
        else:
            left.append(word)
    return left, path


def _of_earlier(argv: list[str]) -> str | None:
    """The file of options of the run that ``--from`` names, if it does.

    Raises
    ------
    ConfigError
        If there is none.
    """
    words = iter(argv)
    for word in words:
        name, _, folder = word.partition("=")
        if name == "--from":
            folder = folder or next(words, "")
            path = Path(folder) / REPEATING
            if not path.is_file():
                raise ConfigError(
                    f"--from {folder}: holds no finished run of synthesize ({REPEATING} is missing)"
                )
            return str(path)
    return None


def _words(option: Option, value: object, path: str) -> Iterator[str]:
    """Words that say one option on the command line."""
    name = flag(option.name)
    if isinstance(value, dict):
        value = [f"{key}={one}" for key, one in value.items()]
    if isinstance(value, bool):
        if option.takes_value:
            raise ConfigError(f"--config {path}: {name[2:]} takes a value, not true or false")
        yield from [name] if value else []
    elif not option.takes_value:
        raise ConfigError(f"--config {path}: {name[2:]} must be true or false")
    elif option.told.get("nargs") == "+":
        # A word of its own each: "=" keeps what begins with a dash.
        for one in value if isinstance(value, list) else [value]:
            yield f"{name}={one}"
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for one in value:
            yield f"{name}={_as_names(one)}"
    else:
        yield f"{name}={_as_names(value) if isinstance(value, list) else value}"


def _as_names(names: list) -> str:
    """Names as one line of a CSV file has them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()
