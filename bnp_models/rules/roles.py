"""Roles of persons in a household, told by the labels of a relationship variable."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike

import pandas as pd

from bnp_models.data.messages import listing, quoted
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import Label, MicrodataError, Schema, errors_in, plain_label, text_of

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

_OF_HEAD = re.compile(r" (?:of|to) (?:the )?(?:household )?(?:head|householder|reference person)$")

# The rows of a table of roles that name a column.
_VARIABLE = " variable"
_VARIABLES = tuple(name + _VARIABLE for name in USUAL_NAMES)


def plain(label: Label) -> str:
    """Return a label in lower case, with single spaces for what is no letter or digit."""
    text = text_of(plain_label(label)).lower()
    return " ".join("".join(c if c.isalnum() else " " for c in text).split())


_ROLE_OF = {label: role for role, labels in ROLES.items() for label in labels}

# What a table of roles may say, as it is compared.
_WORDS = {plain(word): word for word in (*ROLES, *_VARIABLES)}


@dataclass(frozen=True)
class Roles:
    """Roles of labels, and variables, beside those that usual names tell.

    Attributes
    ----------
    labels : dict of str to str
        The role (``ROLES``) of each label, which is in lower case and without punctuation
        (`plain`). It is stronger than the role that the label usually has.
    variables : dict of str to str
        Names of the variables that are the ``relationship``, the ``age`` and the ``sex``.

    Examples
    --------
    >>> bnp.Roles({"kind": "child"}).role("Kind")
    'child'
    """

    labels: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def role(self, label: Label) -> str | None:
        """Return the role of a label, None if it is not known."""
        text = plain(label)
        return self.labels.get(text) or _ROLE_OF.get(text) or _ROLE_OF.get(_OF_HEAD.sub("", text))


def read_roles(path: str | PathLike, variables: Schema | Iterable[str] | None = None) -> Roles:
    """Read the roles of labels from a file with columns ``role`` and ``label``.

    Parameters
    ----------
    path : str or path
        One row a label. A role (``ROLES``) may have several labels, of any language, and codes;
        labels that the data lack do no harm. In the rows of the roles ``relationship variable``,
        ``age variable`` and ``sex variable`` the label is the name of a column.
    variables : Schema or iterable of str, optional
        The names that these columns may have; any by default.

    Raises
    ------
    MicrodataError
        If the file cannot be read, a cell is empty, a role or a column unknown, or a label is
        given two roles; it names the file, row and line.

    Examples
    --------
    >>> with open("roles.csv", "w") as file:
    ...     _ = file.write("role,label\\nhead,Vorstand\\nage variable,alter\\n")
    >>> bnp.io.read_roles("roles.csv")
    Roles(labels={'vorstand': 'head'}, variables={'age': 'alter'})
    """
    names = variables.variables if isinstance(variables, Schema) else variables
    frame, lines = read_frame(path, ("role", "label"))
    with errors_in(path, lines):
        return _roles_of_frame(frame, None if names is None else list(names))


def _roles_of_frame(frame: pd.DataFrame, names: list[str] | None) -> Roles:
    """Return the roles that rows of a role and a label say."""
    found = Roles({}, {})
    for row, (given, label) in enumerate(zip(frame["role"], frame["label"], strict=True)):
        for column, value in (("role", given), ("label", label)):
            if pd.isna(value) or value == "":
                raise MicrodataError(f"the cell is empty; give a {column}", row=row, column=column)
        role = _WORDS.get(plain(given))
        if role is None:
            raise MicrodataError(
                f"unknown role {quoted(given)}; the roles are {listing(list(ROLES))}, and "
                f"{listing(_VARIABLES)} name columns",
                row=row,
                column="role",
            )
        if role not in _VARIABLES:
            known, key, value = found.labels, plain(label), role
        elif names is None or label in names:
            known, key, value = found.variables, role.removesuffix(_VARIABLE), label
        else:
            raise MicrodataError(
                f"{quoted(label)} is no column that is read; the columns are {listing(names)}",
                row=row,
                column="label",
            )
        if known.setdefault(key, value) != value:
            raise MicrodataError(
                f"{quoted(label)} is given as {quoted(role)}, but an earlier row says "
                f"{quoted(known[key])}; keep one",
                row=row,
                column="role",
            )
    return found
