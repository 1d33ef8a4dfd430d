"""Options of a command from a TOML file."""

import argparse
import csv
import io
import tomllib
from collections.abc import Iterator
from typing import Any

from bnp_models.data.messages import listed, reason


class ConfigError(ValueError):
    """A file of options that cannot be used; the message is one line that names it."""


def with_config(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """Return the words of a command, those of its file of options in the place of ``--config``.

    Words of the command line come after those of the file, and so have the last word.

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
    name = next((word for word in argv if not word.startswith("-")), None)
    command = _commands(parser).get(name) if name is not None else None
    if name is None or command is None or "--config" not in command._option_string_actions:
        return argv
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
    words: list[str] = []
    for key, value in (shared | own).items():
        flag = f"--{key.replace('_', '-')}"
        if flag not in options:
            raise ConfigError(
                f"--config {path}: {key!r} is no option of {name}, which has "
                f"{listed(flag[2:] for flag in options)}"
            )
        words += _words(flag, options[flag], value, path)
    position = argv.index(name) + 1
    return [*argv[:position], *words, *argv[position:]]


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
