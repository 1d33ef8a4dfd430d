"""Rules that a YAML file states: the vocabulary of `bnp_models.rules`, without code.

A file has a list of ``rules``. It may have ``persons``, whose names the rules can use.
``docs/household_rules.md`` describes the format, with examples.
"""

import operator
from collections.abc import Callable
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import yaml

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.messages import listed, listing, quoted, reason
from bnp_models.data.schema import Label, MicrodataError
from bnp_models.rules.persons import ANYONE, AsHousehold, OfHousehold, PersonPredicate, aged, person
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Count, HouseholdHas, Rule, at_least, at_most, each, exactly
from bnp_models.rules.views import OPEN_ENDED, JointLevels, Variables, columns_of
from bnp_models.rules.yaml_nodes import (
    Entries,
    compose,
    count,
    label,
    mapping,
    mistake,
    number,
    sequence,
    text,
)

Parts: TypeAlias = dict[str, yaml.Node]
"""Values of a mapping by the text of their keys."""

# The word for ``person()``.
EVERYBODY = "anyone"

# Characters of the longest description of persons, in words.
_LONGEST = 20_000

ALL, ANY, NOT = "all of", "any of", "not"


def read_yaml_rules(path: str | PathLike, schema: HouseholdSchema | None = None) -> Rules:
    """Read the rules that a YAML file states.

    Parameters
    ----------
    path : str or path
        The file, in UTF-8.
    schema : HouseholdSchema, optional
        Variables and levels for which the rules must compile.

    Raises
    ------
    MicrodataError
        If the file cannot be read, says what is not known, or does not fit the data; it names the
        file and the line.
    """
    try:
        return rules_of_yaml(Path(path).read_bytes(), schema)
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    except MicrodataError as error:
        raise error.in_file(path) from None


def rules_of_yaml(content: str | bytes, schema: HouseholdSchema | None = None) -> Rules:
    """Return the rules that a YAML text states; as :func:`read_yaml_rules`, without a file."""
    try:
        return _Reader(schema).file(compose(content))
    except RecursionError:
        raise MicrodataError("is nested too deeply; say it in fewer levels") from None


class _Reader:
    """Reader of one file: what is said there, as rules, and who is named there."""

    def __init__(self, schema: HouseholdSchema | None):
        self.schema = schema
        self.persons: dict[str, PersonPredicate] = {EVERYBODY: ANYONE}

    def file(self, node: yaml.Node) -> Rules:
        """Return the rules of a file."""
        parts = _known(mapping(node, "`persons` and `rules`"), ("persons", "rules"))
        if "rules" not in parts:
            raise mistake(node, "has no list of `rules`; add one")
        if "persons" in parts:
            for name, (key, described) in mapping(parts["persons"], "names of persons").items():
                if name == EVERYBODY:
                    raise mistake(key, f"{name!r} is every person; choose another name")
                self.persons[name] = self.who(described)
                # Names that each stand for another one twice would grow without bounds.
                if len(str(self.persons[name])) > _LONGEST:
                    raise mistake(key, f"{quoted(name)} is too long a description; shorten it")
        rules: list[Rule] = []
        for part in sequence(parts["rules"], "statements"):
            rule = self.rule(part)
            self._require_fit(part, lambda schema, rule=rule: Rules([rule]).compile(schema))
            if any(rule.name == other.name for other in rules):
                raise mistake(
                    part, f"two statements are called {quoted(rule.name)}; drop or `name` one"
                )
            rules.append(rule)
        return Rules(rules)

    def rule(self, node: yaml.Node) -> Rule:
        """Return the rule that a mapping states."""
        parts = _known(mapping(node, "a statement"), _KEYS)
        title = text(parts.pop("name"), "a name") if "name" in parts else None
        for form in FORMS:
            if {*form.needed} <= parts.keys() <= {*form.needed, *form.optional}:
                rule = form.make(self, parts)
                return rule if title is None else rule.named(title)
        alike = [len(parts.keys() & {*form.needed}) for form in FORMS]
        likely = [form for form, same in zip(FORMS, alike, strict=True) if same == max(alike)]
        raise mistake(
            node,
            f"the keys {listed(map(quoted, parts)) if parts else '(none)'} do not make a complete "
            f"statement; besides `name`, a statement has: {' or '.join(map(str, likely))}",
        )

    def rules(self, node: yaml.Node) -> list[Rule]:
        """Return the rules that a list states, two or more."""
        return [self.rule(part) for part in _two(sequence(node, "statements"), node)]

    def who(self, node: yaml.Node) -> PersonPredicate:
        """Return the persons that a name or a mapping describes."""
        if isinstance(node, yaml.ScalarNode):
            name = text(node, "who is meant")
            if name not in self.persons:
                raise mistake(
                    node,
                    f"nobody is called {quoted(name)}; describe them under `persons`, above where "
                    f"they are used (described are {listing(list(self.persons))})",
                )
            return self.persons[name]
        entries = mapping(node, "a description of persons")
        if len(entries) == 1:
            ((word, (_, part)),) = entries.items()
            if word == NOT:
                return ~self.who(part)
            if word in (ALL, ANY):
                parts = [self.who(one) for one in _two(sequence(part, "descriptions"), part)]
                return reduce(operator.and_ if word == ALL else operator.or_, parts)
        return self._with_values(entries)

    def _with_values(self, entries: Entries) -> PersonPredicate:
        """Return the persons who have some labels, and whose other values are within bounds."""
        labels: dict[str, tuple[Label, ...]] = {}
        others = []
        for variable, (key, value) in entries.items():
            if variable in (NOT, ALL, ANY):
                raise mistake(key, f"{quoted(variable)} must be the only key; use `{ALL}`")
            described: PersonPredicate
            if isinstance(value, yaml.MappingNode):
                described = _bounds(variable, value)
                others.append(described)
            else:
                labels[variable] = _labels(value)
                described = person({variable: labels[variable]})
            self._require_fit(key, lambda schema, one=described: _look_up(one, schema))
        return reduce(operator.and_, [person(labels), *others] if labels else others or [ANYONE])

    def household(self, node: yaml.Node) -> Rule:
        """Return the rule that the household has some values."""
        entries = mapping(node, "variables of the household")
        if not entries:
            raise mistake(node, "here should be variables of the household, as `variable: label`")
        values = []
        for variable, (key, value) in entries.items():
            values.append((variable, _labels(value)))
            one = OfHousehold((values[-1],))
            self._require_fit(key, lambda schema, one=one: _look_up(one, schema))
        return HouseholdHas(OfHousehold(tuple(values)))

    def _require_fit(self, node: yaml.Node, check: Callable) -> None:
        """Check what a node says against the data, if they are known."""
        if self.schema is None:
            return
        try:
            check(self.schema)
        except MicrodataError as error:
            line = node.start_mark.line + 1
            raise MicrodataError(error.problem, line=line, column=error.column) from None


class Form(NamedTuple):
    """Keys that together make a statement.

    Attributes
    ----------
    needed, optional : tuple of str
        The keys, of which the first one needed tells what the statement is.
    make : callable
        Takes the reader and the nodes by key; returns the rule.
    """

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    make: Callable[[_Reader, Parts], Rule]

    def __str__(self):
        return " + ".join([*self.needed, *(f"[{key}]" for key in self.optional)])


def _of(reader: _Reader, parts: Parts) -> PersonPredicate:
    """Return the persons who are counted."""
    return reader.who(parts["of"]) if "of" in parts else ANYONE


def _between(reader: _Reader, parts: Parts) -> Rule:
    """Return the rule that there are from so many to so many persons."""
    least, most = count(parts["at least"]), count(parts["at most"])
    if least > most:
        raise mistake(
            parts["at most"], f"at least {least} and at most {most} cannot be; correct one"
        )
    return Count(least, most, _of(reader, parts))


def _years(parts: Parts, key: str) -> int | float:
    """Return the difference of two ages."""
    years = number(parts[key], "a number of years")
    least = 0 if key == "within" else -OPEN_ENDED
    if not least <= years <= OPEN_ENDED:
        raise mistake(
            parts[key],
            f"here should be a number of years from {least:,} to {OPEN_ENDED:,}, not "
            f"{quoted(parts[key].value)}",
        )
    return years


def _variable(parts: Parts) -> str:
    """Return the variable that is compared."""
    return text(parts["variable"], "a variable") if "variable" in parts else "age"


FORMS = (
    Form(("exactly",), ("of",), lambda r, p: exactly(count(p["exactly"]), _of(r, p))),
    Form(("at least",), ("of",), lambda r, p: at_least(count(p["at least"]), _of(r, p))),
    Form(("at most",), ("of",), lambda r, p: at_most(count(p["at most"]), _of(r, p))),
    Form(("at least", "at most"), ("of",), _between),
    Form(("each", "has"), (), lambda r, p: each(r.who(p["each"])).has(r.who(p["has"]))),
    Form(
        ("each", "younger than", "by at least"),
        ("variable",),
        lambda r, p: each(r.who(p["each"])).is_younger_than(
            r.who(p["younger than"]), _years(p, "by at least"), _variable(p)
        ),
    ),
    Form(
        ("each", "older than", "by at least"),
        ("variable",),
        lambda r, p: each(r.who(p["each"])).is_older_than(
            r.who(p["older than"]), _years(p, "by at least"), _variable(p)
        ),
    ),
    Form(
        ("each", "within", "of"),
        ("variable",),
        lambda r, p: each(r.who(p["each"])).is_within(
            _years(p, "within"), r.who(p["of"]), _variable(p)
        ),
    ),
    Form(
        ("each", "same as", "variable"),
        (),
        lambda r, p: each(r.who(p["each"])).agrees_with(r.who(p["same as"]), _variable(p)),
    ),
    Form(
        ("each", "differs from", "variable"),
        (),
        lambda r, p: each(r.who(p["each"])).differs_from(r.who(p["differs from"]), _variable(p)),
    ),
    Form(("household",), (), lambda r, p: r.household(p["household"])),
    Form(("if", "then"), (), lambda r, p: r.rule(p["if"]).implies(r.rule(p["then"]))),
    Form((ALL,), (), lambda r, p: reduce(operator.and_, r.rules(p[ALL]))),
    Form((ANY,), (), lambda r, p: reduce(operator.or_, r.rules(p[ANY]))),
    Form((NOT,), (), lambda r, p: ~r.rule(p[NOT])),
)

_KEYS = ("name", *dict.fromkeys(key for form in FORMS for key in (*form.needed, *form.optional)))


def _known(entries: Entries, known: tuple[str, ...]) -> Parts:
    """Return the values of a mapping whose keys all are known."""
    for name, (key, _) in entries.items():
        if name not in known:
            raise mistake(key, f"unknown key {quoted(name)}; the keys are {listed(known)}")
    return {name: value for name, (_, value) in entries.items()}


def _two(nodes: list[yaml.Node], where: yaml.Node) -> list[yaml.Node]:
    """Return the nodes of a list of two or more."""
    if len(nodes) < 2:
        raise mistake(where, "here should be a list of two or more")
    return nodes


def _labels(node: yaml.Node) -> tuple[Label, ...]:
    """Return the labels that a scalar or a list gives."""
    if not isinstance(node, yaml.SequenceNode):
        return (label(node),)
    if not node.value:
        raise mistake(node, "the list of labels is empty; name one")
    return tuple(label(part) for part in node.value)


def _bounds(variable: str, node: yaml.Node) -> PersonPredicate:
    """Return the persons whose value is within bounds, or that of their household."""
    parts = _known(mapping(node, "bounds"), ("at least", "at most", "same as household"))
    if parts.keys() == {"same as household"}:
        return AsHousehold(variable, text(parts["same as household"], "a household variable"))
    if not parts or "same as household" in parts:
        raise mistake(node, "give 'at least', 'at most' or both, or 'same as household' alone")
    at_least, at_most = (
        number(parts[key], "a number") if key in parts else None for key in ("at least", "at most")
    )
    if at_least is not None and at_most is not None and at_least > at_most:
        raise mistake(node, f"at least {at_least} and at most {at_most} cannot be; correct one")
    return aged(at_least, at_most, variable)


def _look_up(one: PersonPredicate, schema: HouseholdSchema) -> None:
    """Look up the variable and the labels of which a predicate speaks."""
    columns_of(schema, Variables.of([one]))
    codes = {name: np.zeros(1, dtype=np.int32) for name in (*one.member, *one.household)}
    one.mask(JointLevels(schema, codes, codes, (1,)))
