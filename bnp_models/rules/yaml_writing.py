"""Rules written as the YAML that :func:`~bnp_models.read_rules` reads."""

from collections.abc import Mapping
from typing import Any

import yaml

from bnp_models.data.schema import MicrodataError, plain_label
from bnp_models.rules.persons import (
    ANYONE,
    Aged,
    AsHousehold,
    Both,
    Either,
    Negation,
    OfHousehold,
    Person,
    PersonPredicate,
    Values,
)
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import (
    And,
    Compare,
    Count,
    Each,
    HouseholdHas,
    Implies,
    Not,
    Or,
    Rule,
    Same,
)
from bnp_models.rules.yaml_reading import ALL, ANY, EVERYBODY, NOT, rules_of_yaml


class _OneLine(dict):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Dumper of plain YAML, without anchors."""

    def ignore_aliases(self, data):
        return True


_Dumper.add_representer(
    _OneLine,
    lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True),
)


def rules_to_yaml(rules: Rules, persons: Mapping[str, PersonPredicate] | None = None) -> str:
    """Return rules as a YAML text: print it, adapt it, and read it with
    :func:`~bnp_models.read_rules`.

    Parameters
    ----------
    rules : Rules
        The rules.
    persons : mapping of name to person predicate, optional
        Persons who are described once, under their names:
        ``{"head": person(relate="Householder")}``. Others are described where they occur.

    Raises
    ------
    ValueError
        If YAML has no form of a rule, as of a Python function (`predicate`), or of a name.

    Examples
    --------
    >>> from bnp_models.rules import exactly, person
    >>> print(bnp.rules.rules_to_yaml(bnp.Rules([exactly(1, person(relate="Householder"))])))
    rules:
    - exactly: 1
      of: {relate: Householder}
    <BLANKLINE>
    """
    names = dict(persons or {})
    document: dict[str, Any] = {}
    if names:
        earlier: dict[str, PersonPredicate] = {}
        document["persons"] = described = {}
        for name, predicate in names.items():
            described[name] = _who(predicate, earlier)
            earlier[name] = predicate
    document["rules"] = [_rule(rule, names) for rule in rules]
    text = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96,
        default_flow_style=False,
    )  # fmt: skip
    if not _reads_as(text, rules):
        raise ValueError(
            "a label or the name of a variable or person cannot be written in YAML; leave the "
            "rules in a Python file"
        )
    return text


def _reads_as(text: str, rules: Rules) -> bool:
    """Whether a text is read as these rules."""
    try:
        return rules_of_yaml(text) == rules
    except MicrodataError:
        return False


def _rule(rule: Rule, names: Mapping[str, PersonPredicate]) -> dict[str, Any]:
    """Return a rule as a mapping."""
    title = {} if rule.title is None else {"name": rule.title}
    return title | _statement(rule, names)


def _statement(rule: Rule, names: Mapping[str, PersonPredicate]) -> dict[str, Any]:
    """Return what a rule states as a mapping."""
    match rule:
        case Count(least=least, most=most, who=who):
            return _number(least, most) | ({} if who == ANYONE else {"of": _who(who, names)})
        case Each(who=who, what=what):
            return {"each": _who(who, names), "has": _who(what, names)}
        case Compare(relation="within", years=years):
            return {
                "each": _who(rule.who, names),
                "within": years,
                "of": _who(rule.whom, names),
            } | _variable(rule)
        case Compare(relation=relation, years=years):
            return {
                "each": _who(rule.who, names),
                f"{relation} than": _who(rule.whom, names),
                "by at least": years,
            } | _variable(rule)
        case Same(same=same):
            return {
                "each": _who(rule.who, names),
                "same as" if same else "differs from": _who(rule.whom, names),
                "variable": rule.variable,
            }
        case HouseholdHas(what=what):
            return _of_household(what)
        case Not(rule=negated):
            return {NOT: _rule(negated, names)}
        case Implies(first=first, second=second):
            return {"if": _rule(first, names), "then": _rule(second, names)}
        case And():
            return {ALL: [_rule(part, names) for part in _in_a_row(rule, And)]}
        case Or():
            return {ANY: [_rule(part, names) for part in _in_a_row(rule, Or)]}
    raise ValueError(f"the rule {rule.name!r} cannot be written in YAML; leave it in a Python file")


def _number(least: int, most: int | None) -> dict[str, int]:
    """Return the numbers of persons of a count."""
    if least == most:
        return {"exactly": least}
    if most is None:
        return {"at least": least}
    return ({"at least": least} if least else {}) | {"at most": most}


def _variable(rule: Compare) -> dict[str, str]:
    """Return the variable of a comparison, unless it is the age."""
    return {} if rule.variable == "age" else {"variable": rule.variable}


def _of_household(what: PersonPredicate) -> dict[str, Any]:
    """Return a statement about the variables of a household."""
    match what:
        case OfHousehold(values):
            return {"household": _values(values)}
        case Both():
            return {ALL: [_of_household(part) for part in _in_a_row(what, Both)]}
        case Either():
            return {ANY: [_of_household(part) for part in _in_a_row(what, Either)]}
        case Negation(negated):
            return {NOT: _of_household(negated)}
    raise ValueError(f"{what} of a household cannot be written in YAML; leave it in a Python file")


def _who(predicate: PersonPredicate, names: Mapping[str, PersonPredicate]) -> str | _OneLine:
    """Return the name or the description of persons."""
    if predicate == ANYONE:
        return EVERYBODY
    for name, named in names.items():
        if named == predicate:
            return name
    match predicate:
        case Person(values):
            return _values(values)
        case Aged(at_least, at_most, variable):
            bounds = {"at least": at_least, "at most": at_most}
            return _OneLine({variable: {k: v for k, v in bounds.items() if v is not None}})
        case AsHousehold(variable, household_variable):
            return _OneLine({variable: {"same as household": household_variable}})
        case Both():
            parts = _in_a_row(predicate, Both)
            described = [_who(part, names) for part in parts]
            return _joined(parts, described) or _OneLine({ALL: described})
        case Either():
            return _OneLine({ANY: [_who(part, names) for part in _in_a_row(predicate, Either)]})
        case Negation(negated):
            return _OneLine({NOT: _who(negated, names)})
    raise ValueError(f"{predicate} cannot be written in YAML; leave it in a Python file")


def _joined(parts: list, described: list) -> _OneLine | None:
    """Return one description of persons of whom several are true; None if it would be another.

    Labels come first where it is read, then bounds.
    """
    kinds = [type(part) for part in parts]
    simple = kinds[0] in (Person, Aged, AsHousehold) and {*kinds[1:]} <= {Aged, AsHousehold}
    if not simple or any(isinstance(one, str) for one in described):
        return None
    joined = _OneLine(item for one in described for item in one.items())
    return joined if len(joined) == sum(map(len, described)) else None


def _values(values: Values) -> _OneLine:
    """Return the labels of variables."""
    plain = {variable: [plain_label(label) for label in labels] for variable, labels in values}
    return _OneLine({k: labels if len(labels) > 1 else labels[0] for k, labels in plain.items()})


def _in_a_row(pair: Any, kind: type) -> list:
    """Return the parts that were combined one after the other."""
    first = pair.first
    nested = isinstance(first, kind) and getattr(first, "title", None) is None
    return [*(_in_a_row(first, kind) if nested else [first]), pair.second]
