"""Rule sets by name, from a YAML file, or from a Python file that defines ``rules``."""

import runpy
import traceback
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.messages import listing, quoted, reason
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules.census import census_relationships
from bnp_models.rules.roles import Roles
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Rule
from bnp_models.rules.views import schema_of
from bnp_models.rules.yaml_reading import read_yaml_rules

SHIPPED = {"census-relationships": census_relationships}


def read_rules(
    source: str | PathLike,
    schema: Households | HouseholdSchema | Schema,
    roles: Roles | None = None,
) -> Rules:
    """Return the rule set that comes with the package, or the rules of a YAML or Python file.

    Parameters
    ----------
    source : str or path
        ``census-relationships``, or a file. One whose name ends in ``.yaml`` or ``.yml`` has
        statements only (``docs/household_rules.md``): nothing in it is run. One whose name ends in
        ``.py`` is run, so it must be one you trust. It defines ``rules``: Rules, a rule, a list of
        rules, or a function of `schema` that returns one of these.
    schema : Households, HouseholdSchema or Schema
        The data that the rules are for.
    roles : Roles, optional
        Labels of the shipped set's roles (:func:`~bnp_models.io.read_roles`). Files name labels
        themselves.

    Raises
    ------
    MicrodataError
        If there is no such rule set or file, the file fails or is wrong (with the line), it defines
        no ``rules``, or they are of another type or do not fit the data.

    Examples
    --------
    >>> with open("rules.yaml", "w") as file:
    ...     _ = file.write("rules: [{exactly: 1, of: {relate: Householder}}]")
    >>> bnp.read_rules("rules.yaml", households)
    <1 rules>
    - exactly 1 person with relate 'Householder'
    """
    if str(source) in SHIPPED:
        return SHIPPED[str(source)](schema, roles=roles)
    path = Path(source)
    if not path.is_file():
        raise MicrodataError(
            "there is no such file, and no shipped rule set of this name "
            f"({listing(list(SHIPPED))})",
            file=source,
        )
    if path.suffix in (".yaml", ".yml"):
        return read_yaml_rules(path, None if isinstance(schema, Schema) else schema_of(schema))
    if path.suffix != ".py":
        raise MicrodataError(
            "is no file of rules; name a shipped rule set, a YAML file (.yaml, .yml), or a Python "
            "file (.py), which is run",
            file=source,
        )
    try:
        defined = runpy.run_path(str(path))
        if "rules" not in defined:
            raise MicrodataError("defines no variable `rules`; assign your rules to it")
        given = defined["rules"]
        if callable(given):
            given = given(schema)
        rules = _as_rules(given)
        if not isinstance(schema, Schema):
            rules.compile(schema)
    except MicrodataError as error:
        raise MicrodataError(error.problem, file=source, column=error.column) from None
    except Exception as error:
        raise MicrodataError(
            f"{type(error).__name__}: {reason(error)}",
            file=source,
            line=_line_in(path, error),
        ) from error
    return rules


def _as_rules(given) -> Rules:
    """Return rules, a rule or several as rules; refuse all else."""
    if isinstance(given, Rules):
        return given
    if isinstance(given, Rule):
        return Rules([given])
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        given = list(given)
        wrong = [rule for rule in given if not isinstance(rule, Rule)]
        if not wrong:
            return Rules(given)
        raise MicrodataError(
            f"`rules` holds {quoted(wrong[0])}, of type {type(wrong[0]).__name__}, which is no rule"
        )
    raise MicrodataError(
        f"`rules` is of type {type(given).__name__}; expected bnp_models.Rules, a rule, a list of "
        "rules or a function that returns one of these"
    )


def _line_in(path: Path, error: Exception) -> int | None:
    """Return the last line of the file that the error went through."""
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path
    ]
    return lines[-1] if lines else None
