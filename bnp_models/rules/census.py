"""Rules of census households, composed from the labels of a relationship variable."""

import re
from collections.abc import Mapping

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.rules.persons import Person, aged, person
from bnp_models.rules.rules import Rules
from bnp_models.rules.statements import Rule, at_least, at_most, each, exactly
from bnp_models.rules.views import schema_of

# The roles that the shipped rules know, and usual labels of each, in lower case and without
# punctuation; "of head" and the like may follow. The rules say nothing of "other".
ROLES = {
    "head": (
        "head", "householder", "head householder", "head of household", "household head",
        "reference person", "householder reference person", "head of the household",
    ),
    "spouse": (
        "spouse", "husband", "wife", "husband wife", "husband or wife", "wife husband",
        "husband wife spouse", "opposite sex husband wife spouse", "opposite sex spouse",
    ),
    "same-sex spouse": ("same sex spouse", "same sex husband wife spouse"),
    "child": (
        "child", "biological child", "natural child", "natural born child", "own child", "son",
        "daughter", "son daughter", "son or daughter", "biological son or daughter",
        "biological son daughter", "natural born son daughter", "natural born son or daughter",
    ),
    "adopted child": (
        "adopted child", "adopted", "adopted son or daughter", "adopted son daughter",
    ),
    "stepchild": (
        "stepchild", "step child", "stepson or stepdaughter", "stepson stepdaughter",
        "stepson", "stepdaughter",
    ),
    "sibling": (
        "sibling", "brother", "sister", "brother sister", "brother or sister",
    ),
    "parent": (
        "parent", "father", "mother", "father mother", "father or mother", "mother father",
        "mother or father",
    ),
    "parent-in-law": (
        "parent in law", "father in law", "mother in law", "father mother in law",
        "mother father in law", "father in law or mother in law", "mother in law father in law",
    ),
    "grandchild": ("grandchild", "grand child", "grandson", "granddaughter"),
    "other": (
        "other", "other relative", "other relatives", "other non relative", "other non relatives",
        "other nonrelative", "other nonrelatives", "nonrelative", "non relative", "nonrelatives",
        "non relatives", "unrelated", "child in law", "son in law", "daughter in law",
        "son daughter in law", "son in law or daughter in law", "son in law daughter in law",
        "sibling in law", "brother in law", "sister in law", "brother sister in law",
        "brother in law sister in law", "nephew niece", "nephew or niece", "grandparent",
        "uncle aunt", "uncle or aunt", "cousin", "roomer", "boarder", "roomer boarder",
        "roomer or boarder", "lodger", "housemate", "roommate", "housemate roommate",
        "housemate or roommate", "roommate or housemate", "roommate housemate", "partner",
        "unmarried partner", "partner friend visitor", "partner roommate", "partner or roommate",
        "same sex unmarried partner", "opposite sex unmarried partner", "foster child", "visitor",
        "friend", "friend visitor", "employee", "group quarters", "institutional inmates",
        "institutionalized group quarters", "noninstitutionalized group quarters",
        "institutionalized group quarters population",
        "noninstitutionalized group quarters population",
    ),
}  # fmt: skip

USUAL_NAMES = {
    "relationship": (
        "relate", "relationship", "relp", "relshipp", "related", "rel", "relation",
        "relationship to head", "relationship to householder", "household relationship",
    ),
    "age": ("age", "agep", "age years", "age in years"),
    "sex": ("sex", "gender"),
}  # fmt: skip

_ROLE_OF = {label: role for role, labels in ROLES.items() for label in labels}

_OF_HEAD = re.compile(r" (?:of|to) (?:the )?(?:household )?(?:head|householder|reference person)$")


def census_relationships(
    schema: Households | HouseholdSchema | Schema,
    relationship: str | None = None,
    age: str | None = None,
    sex: str | None = None,
    labels: Mapping[Label, str | None] | None = None,
    *,
    same_sex_spouse: bool = False,
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
        The role of labels of the relationship variable that the defaults (``ROLES``) do not know,
        or that mean something else here: ``{"Child": "child", "Lodger": "other"}``. None is
        ``"other"``. Labels are compared without case and punctuation.
    same_sex_spouse : bool
        Leave out the rule ``spouse of the other sex``, and do not read the sex. Where spouses of
        the same sex have a label of their own, the rule is not about them in any case.

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
    variables = _person_schema(schema)
    relationship = _find(variables, "relationship", relationship)
    age = _find(variables, "age", age)
    labels_of = _labels_by_role(variables, relationship, labels or {})
    roles = {role: person({relationship: known}) for role, known in labels_of.items()}
    if "head" not in roles:
        raise MicrodataError(
            "no level is the head of the household; map one: labels={LABEL: 'head'}",
            column=relationship,
        )
    head = roles["head"]
    spouses = (*labels_of.get("spouse", ()), *labels_of.get("same-sex spouse", ()))
    spouse = person({relationship: spouses}) if spouses else None
    if "spouse" in roles and not same_sex_spouse:
        sex = _find(variables, "sex", sex)
    rules = [
        exactly(1, head).named("one head"),
        each(head).has(aged(15, variable=age)).named("age of the head"),
    ]
    if spouse is not None:
        other_sex = None if same_sex_spouse else roles.get("spouse")
        rules += _rules_of_spouses(head, spouse, other_sex, age, sex)
    rules += _rules_of_relatives(head, roles, age)
    if grandchild := roles.get("grandchild"):
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
        rules.append(each(other_sex).differs_from(head, sex).named("spouse of the other sex"))
    return [*rules, each(spouse).is_within(49, head, age).named("ages of spouses")]


def _rules_of_relatives(head: Person, roles: Mapping[str, Person], age: str) -> list[Rule]:
    """Return the rules of the ages of children, parents and siblings of the head."""
    rules = []
    for role, years in (("child", 7), ("adopted child", 11), ("stepchild", 9)):
        if young := roles.get(role):
            rules.append(each(young).is_younger_than(head, years, age).named(f"age of {role}"))
    for role in ("parent", "parent-in-law"):
        if old := roles.get(role):
            rules.append(each(old).is_older_than(head, 4, age).named(f"age of {role}"))
    if sibling := roles.get("sibling"):
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


def find_head(schema: HouseholdSchema | Schema) -> tuple[str, Label] | None:
    """Return the relationship variable and its label for the head, if usual names tell them.

    :meth:`Households.from_frame` takes it as `head`; None if there is no variable of a usual name,
    or not one label of the head.

    Examples
    --------
    >>> bnp.find_head(households.schema)
    ('relate', 'Householder')
    """
    persons = _person_schema(schema)
    for variable, labels in zip(persons.variables, persons.levels, strict=True):
        if _plain(variable) in USUAL_NAMES["relationship"]:
            heads = [label for label in labels if _role(label) == "head"]
            if len(heads) == 1:
                return variable, heads[0]
    return None


def _person_schema(schema: Households | HouseholdSchema | Schema) -> Schema:
    """Return the schema of persons, household variables included."""
    return schema if isinstance(schema, Schema) else schema_of(schema).table


def _plain(label: Label) -> str:
    """Return a label in lower case, with single spaces for what is no letter or digit."""
    text = "".join(letter if letter.isalnum() else " " for letter in text_of(label).lower())
    return " ".join(text.split())


def _role(label: Label) -> str | None:
    """Return the role that a label usually names."""
    text = _plain(label)
    return _ROLE_OF.get(text) or _ROLE_OF.get(_OF_HEAD.sub("", text))


def _find(persons: Schema, what: str, given: str | None) -> str:
    """Return the variable given, or the one that has a usual name."""
    if given is not None:
        if given not in persons.variables:
            raise unknown_variable(given, persons.variables)
        return given
    candidates = [name for name in persons.variables if _plain(name) in USUAL_NAMES[what]]
    if len(candidates) == 1:
        return candidates[0]
    problem = "no variable has" if not candidates else f"{listing(candidates)} all have"
    raise MicrodataError(
        f"{problem} a usual name of the {what} ({listing(USUAL_NAMES[what])}); rename a column, or "
        f"say which it is: census_relationships(schema, {what}=NAME)"
    )


def _labels_by_role(
    persons: Schema, relationship: str, given: Mapping[Label, str | None]
) -> dict[str, tuple[Label, ...]]:
    """Return the labels of each role that has any."""
    known = persons.levels[persons.variables.index(relationship)]
    plain = {_plain(label): role or "other" for label, role in given.items()}
    for label, role in given.items():
        if (role or "other") not in ROLES:
            raise MicrodataError(
                f"label {quoted(label)} is mapped to {quoted(role)}, which is no role; the roles "
                f"are {listing(list(ROLES))}",
                column=relationship,
            )
        if _plain(label) not in map(_plain, known):
            raise MicrodataError(
                f"label {quoted(label)} is mapped to a role but is no level ({listing(known)}); "
                "correct it",
                column=relationship,
            )
    labels_of: dict[str, tuple[Label, ...]] = {}
    unknown = []
    for label in known:
        role = plain.get(_plain(label), _role(label))
        if role is None:
            unknown.append(label)
        else:
            labels_of[role] = (*labels_of.get(role, ()), label)
    if unknown:
        raise MicrodataError(
            f"the role of {listing(unknown)} is not known; map each label to a role, in a Python "
            "file of rules: rules = lambda schema: census_relationships(schema, "
            f"labels={{{unknown[0]!r}: 'other'}}); the roles are {listing(list(ROLES))}",
            column=relationship,
        )
    return labels_of
