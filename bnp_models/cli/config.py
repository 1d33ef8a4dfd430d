"""Options of a command from a TOML file, and as one."""

import argparse
import csv
import io
import shlex
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomli_w

from bnp_models.cli.argument_types import name_list
from bnp_models.data.messages import listed, quoted, reason
from bnp_models.version import __version__

REPEATING = "run.toml"
"""Name of the file of options that repeats a run."""

# What a run that is repeated is not told again.
_ONCE = ("--help", "--config", "--resume", "--force")


class ConfigError(ValueError):
    """A file of options that cannot be used; the message is one line that names it."""


def with_config(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """Return the words of a command, those of its file of options in the place of ``--config``.

    Words of the command line come after those of the file, and so have the last word. The file
    names the sample only where the command line names none.

    Parameters
    ----------
    parser
        Parser of all commands, which is used up.
    argv
        Words of the command line.

    Raises
    ------
    ConfigError
        If the file cannot be read, is no TOML, or has a key that is no option of the command.
    """
    if (found := _command(parser, argv)) is None:
        return argv
    name, command = found
    argv, path = _without_config(argv)
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
    shared = {k: v for k, v in given.items() if k not in _commands(parser)}
    options = {
        flag: action
        for action in command._actions
        for flag in action.option_strings
        if flag.startswith("--") and flag not in ("--help", "--config")
    }
    files = {action.dest: action for action in command._actions if not action.option_strings}
    words: list[str] = []
    named: dict[str, list[str]] = {}
    for key, value in (shared | own).items():
        flag = f"--{key.replace('_', '-')}"
        if key in files:
            named[key] = [str(one) for one in (value if isinstance(value, list) else [value])]
        elif flag in options:
            words += _words(flag, options[flag], value, path)
        else:
            names = [*files, *(flag[2:] for flag in options)]
            near = get_close_matches(key.replace("_", "-"), names)
            which = f"do you mean {listed(near, 'or')}?" if near else f"which has {listed(names)}"
            raise ConfigError(f"--config {path}: {key!r} is no option of {name}, {which}")
    position = argv.index(name) + 1
    words = [*words, *argv[position:]]
    if named:
        for action in files.values():
            action.nargs, action.required = "*" if action.nargs else "?", False
        said = vars(parser.parse_args([*argv[:position], *words]))
        if not any(said[dest] for dest in files):
            # In the order of the command, whatever that of the file.
            words = [*(path for dest in files for path in named.get(dest, [])), *words]
    return [*argv[:position], *words]


def as_config(parser: argparse.ArgumentParser, argv: list[str]) -> str | None:
    """Return the text of a file of options by which ``--config`` repeats a command.

    It has what was said, and the defaults of today.

    Parameters
    ----------
    parser
        Parser of all commands, which is used up.
    argv
        Words of the command line, without ``--config``.

    Returns
    -------
    text
        None of a command that takes no such file.
    """
    if (found := _command(parser, argv)) is None:
        return None
    name, command = found
    types = {}
    for action in command._actions:
        # Values as they were said.
        types[action.dest], action.type = action.type, None
    said = vars(parser.parse_args(argv))
    values = {
        action.dest.replace("_", "-"): _value(said[action.dest], types[action.dest])
        for action in command._actions
        if not set(action.option_strings) & set(_ONCE) and not _is_unsaid(said.get(action.dest))
    }
    own = shlex.quote(str(Path(said["out"]) / REPEATING))
    head = (
        f"# bnp-models {__version__}; to repeat this run, from the folder where it was run:\n"
        f"# bnp-models {name} --config {own} --out ANOTHER_FOLDER\n\n"
    )
    return head + tomli_w.dumps({name: values})


# Options that name a file or a folder, of which there is none without a name.
_FILES = (
    "sample", "original", "synthetic", "out", "levels", "recode_by", "conditions", "rules", "roles",
    "quantities", "population", "holdout", "changes", "posterior",
)  # fmt: skip


def check_texts(options: argparse.Namespace) -> None:
    """Refuse texts that no file could be called or hold, and files without a name.

    Raises
    ------
    ConfigError
        It names the option.
    """
    for name, value in vars(options).items():
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                continue
            where = name.upper() if name in _FILES[:3] else f"--{name.replace('_', '-')}"
            if text == "" and name in _FILES:
                raise ConfigError(f"{where}: is empty; name a file")
            if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
                raise ConfigError(f"{where}: {quoted(text)} is no text in UTF-8; rename it")


def _is_unsaid(value: Any) -> bool:
    """Whether an option was not given; 0 is a value."""
    return value is None or value is False or value == []


def _value(said: Any, read: Any) -> Any:
    """A value as TOML has it: names in a list, and numbers that are written as such."""
    if isinstance(said, list):
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


def _command(parser, argv) -> tuple[str, argparse.ArgumentParser] | None:
    """The command that is given, and its parser, if it takes a file of options."""
    name = next((word for word in argv if not word.startswith("-")), None)
    command = None if name is None else _commands(parser).get(name)
    if name is None or command is None or "--config" not in command._option_string_actions:
        return None
    return name, command


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Parsers of the commands by name."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices


def _words(flag: str, action: argparse.Action, value: Any, path: str) -> Iterator[str]:
    """Words that say one option on the command line."""
    if isinstance(value, dict):
        value = [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, bool):
        if action.nargs != 0:
            raise ConfigError(f"--config {path}: {flag[2:]} takes a value, not true or false")
        yield from [flag] if value else []
    elif action.nargs == 0:
        raise ConfigError(f"--config {path}: {flag[2:]} is true or false")
    elif action.nargs == "+":
        # A word of its own each: "=" keeps what begins with a dash.
        for one in value if isinstance(value, list) else [value]:
            yield f"{flag}={one}"
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for one in value:
            yield f"{flag}={_as_names(one)}"
    else:
        yield f"{flag}={_as_names(value) if isinstance(value, list) else value}"


def _as_names(names: list) -> str:
    """Names as one line of a CSV file has them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()
