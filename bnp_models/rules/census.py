"""Rules of census households, composed from the labels of a relationship variable."""

from collections.abc import Mapping

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import Label, MicrodataError, Schema, unknown_variable
from bnp_models.rules.persons import Person, aged, person
from bnp_models.rules.roles import ROLES, USUAL_NAMES, Roles, plain
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Rule, at_least, at_most, each, exactly
from bnp_models.rules.views import schema_of

OTHER_SEX = "spouse of the other sex"
"""Name of the rule that is not about labels of the role "same-sex spouse"."""


def census_relationships(
    schema: Households | HouseholdSchema | Schema,
    relationship: str | None = None,
    age: str | None = None,
    sex: str | None = None,
    labels: Mapping[Label, str | None] | None = None,
    *,
    same_sex_spouse: bool = False,
    roles: Roles | None = None,
) -> Rules:
    """Return the shipped rules of relationships to the head of the household, ages in years.

    Parameters
    ----------
    schema : Households, HouseholdSchema or Schema
        The data that the rules are for: the labels say which rules there are. A role that no
        label has never occurs.
    relationship, age, sex : str, optional
        The variables; by default those of usual names (``USUAL_NAMES``).
    labels : mapping of label to role, optional
        The role of labels of the relationship variable that are not among the defaults (``ROLES``),
        or have another meaning in this file: ``{"Child": "child", "Lodger": "other"}``. The role
        None means ``"other"``. Labels are compared without case and punctuation.
    same_sex_spouse : bool
        Leave out the rule ``spouse of the other sex``, and do not read the sex. Where spouses of
        the same sex have a label of their own, the rule is not about them in any case.
    roles : Roles, optional
        A table of roles (:func:`~bnp_models.io.read_roles`): variables and roles of labels that
        the arguments above do not give.

    Raises
    ------
    MicrodataError
        If a variable is not found, a label has no role, no label is the head, or the ages are no
        numbers or intervals.

    Notes
    -----
    The names of the rules, for :meth:`Rules.without`, are those of ``describe()``. Grandparents,
    children-in-law and persons not related are in no rule.

    Examples
    --------
    >>> rules = bnp.census_relationships(households)
    >>> len(rules) > 5
    True
    """
    variables, table = _person_schema(schema), roles or Roles()
    relationship = _find(variables, "relationship", relationship, table)
    age = _find(variables, "age", age, table)
    labels_of = _labels_by_role(variables, relationship, labels or {}, table)
    persons = {role: person({relationship: known}) for role, known in labels_of.items()}
    if "head" not in persons:
        raise MicrodataError(
            "no level is the head of the household; map one, by a row head,LABEL of --roles, or in "
            "Python by labels={LABEL: 'head'}",
            column=relationship,
        )
    head = persons["head"]
    spouses = (*labels_of.get("spouse", ()), *labels_of.get("same-sex spouse", ()))
    spouse = person({relationship: spouses}) if spouses else None
    if "spouse" in persons and not same_sex_spouse:
        sex = _find(variables, "sex", sex, table)
    rules = [
        exactly(1, head).named("one head"),
        each(head).has(aged(15, variable=age)).named("age of the head"),
    ]
    if spouse is not None:
        other_sex = None if same_sex_spouse else persons.get("spouse")
        rules += _rules_of_spouses(head, spouse, other_sex, age, sex)
    rules += _rules_of_relatives(head, persons, age)
    if grandchild := persons.get("grandchild"):
        rules += _rules_of_grandchildren(head, spouse, grandchild, age)
    composed = Rules(rules)
    if not isinstance(schema, Schema):
        composed.compile(schema)
    return composed


def _rules_of_spouses(
    head: Person, spouse: Person, other_sex: Person | None, age: str, sex: str | None
) -> list[Rule]:
    """Return the rules of spouses, some of whom have another sex than the head."""
    rules = [
        at_most(1, spouse).named("one spouse"),
        each(spouse).has(aged(15, variable=age)).named("age of the spouse"),
    ]
    if other_sex is not None and sex is not None:
        rules.append(each(other_sex).differs_from(head, sex).named(OTHER_SEX))
    return [*rules, each(spouse).is_within(49, head, age).named("ages of spouses")]


def _rules_of_relatives(head: Person, persons: Mapping[str, Person], age: str) -> list[Rule]:
    """Return the rules of the ages of children, parents and siblings of the head."""
    rules = []
    for role, years in (("child", 7), ("adopted child", 11), ("stepchild", 9)):
        if young := persons.get(role):
            rules.append(each(young).is_younger_than(head, years, age).named(f"age of {role}"))
    for role in ("parent", "parent-in-law"):
        if old := persons.get(role):
            rules.append(each(old).is_older_than(head, 4, age).named(f"age of {role}"))
    if sibling := persons.get("sibling"):
        rules.append(each(sibling).is_within(37, head, age).named("age of sibling"))
    return rules


def _rules_of_grandchildren(
    head: Person, spouse: Person | None, grandchild: Person, age: str
) -> list[Rule]:
    """Return the rules of the ages of grandchildren and of their grandparents."""
    there_is = at_least(1, grandchild)
    grown = each(head).has(aged(30, variable=age))
    rules = [there_is.implies(grown).named("age of grandparent")]
    if spouse is not None:
        grown = each(spouse).has(aged(16, variable=age))
        rules.append(there_is.implies(grown).named("age of grandparent's spouse"))
    return [*rules, each(grandchild).is_younger_than(head, 26, age).named("age of grandchild")]


def find_head(
    schema: HouseholdSchema | Schema, roles: Roles | None = None
) -> tuple[str, Label] | None:
    """Return the relationship variable and its label for the head, if usual names tell them.

    :meth:`~bnp_models.Households.from_frame` takes it as `head`; None if there is no variable of a
    usual name, or not one label of the head. A table of roles (:func:`~bnp_models.io.read_roles`)
    says more names.

    Parameters
    ----------
    schema
        Variables and levels of households, or of their persons.
    roles
        Further names of relationships.

    Examples
    --------
    >>> bnp.rules.find_head(households.schema)
    ('relate', 'Householder')
    """
    persons, roles = _person_schema(schema), roles or Roles()
    named = roles.variables.get("relationship")
    for variable, labels in zip(persons.variables, persons.levels, strict=True):
        usual = plain(variable) in USUAL_NAMES["relationship"]
        if variable == named or (named is None and usual):
            heads = [label for label in labels if roles.role(label) == "head"]
            if len(heads) == 1:
                return variable, heads[0]
    return None


def _person_schema(schema: Households | HouseholdSchema | Schema) -> Schema:
    """Return the schema of persons, household variables included."""
    return schema if isinstance(schema, Schema) else schema_of(schema).table


def _find(persons: Schema, what: str, given: str | None, roles: Roles) -> str:
    """Return the variable given, or that of the table of roles, or the one of a usual name."""
    given = given or roles.variables.get(what)
    if given is not None:
        if given not in persons.variables:
            raise unknown_variable(given, persons.variables)
        return given
    candidates = [name for name in persons.variables if plain(name) in USUAL_NAMES[what]]
    if len(candidates) == 1:
        return candidates[0]
    problem = "no variable has" if not candidates else f"{listing(candidates)} all have"
    raise MicrodataError(
        f"{problem} a usual name of the {what} ({listing(USUAL_NAMES[what])}); rename a column, or "
        f"say which it is, by a row {what} variable,NAME of --roles, or in Python: "
        f"census_relationships(schema, {what}=NAME)"
    )


def _labels_by_role(
    persons: Schema, relationship: str, given: Mapping[Label, str | None], roles: Roles
) -> dict[str, tuple[Label, ...]]:
    """Return the labels of each role that has any."""
    known = persons.levels[persons.variables.index(relationship)]
    mapped = {plain(label): role or "other" for label, role in given.items()}
    for label, role in given.items():
        if (role or "other") not in ROLES:
            raise MicrodataError(
                f"label {quoted(label)} is mapped to {quoted(role)}, which is no role; the roles "
                f"are {listing(list(ROLES))}",
                column=relationship,
            )
        if plain(label) not in map(plain, known):
            raise MicrodataError(
                f"label {quoted(label)} is mapped to a role but is no level ({listing(known)}); "
                "correct it",
                column=relationship,
            )
    labels_of: dict[str, tuple[Label, ...]] = {}
    unknown = []
    for label in known:
        role = mapped.get(plain(label), roles.role(label))
        if role is None:
            unknown.append(label)
        else:
            labels_of[role] = (*labels_of.get(role, ()), label)
    if unknown:
        raise MicrodataError(
            f"the role of {listing(unknown)} is not known; map each label to a role, by a row such "
            f"as other,{unknown[0]} of --roles, or in Python: census_relationships(schema, "
            f"labels={{{unknown[0]!r}: 'other'}}); the roles are {listing(list(ROLES))}",
            column=relationship,
        )
    return labels_of
