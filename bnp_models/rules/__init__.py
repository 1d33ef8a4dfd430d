"""Rules that possible households obey: composed, put into words, compiled to JAX predicates.

::

    head, child = person(relate="Householder"), person(relate="Child")
    rules = Rules([
        exactly(1, head),
        each(head).has(aged(15)),
        each(child).is_younger_than(head, 7),
        at_most(1, person(relate="Spouse")).named("one spouse"),
        at_least(1, child).implies(household(tenure="Owned")),
    ])

A person predicate (:func:`~bnp_models.rules.person`, :func:`~bnp_models.rules.aged`, ...) is true
or false of one person, and a rule is true or false of a household of complete records. Both are
combined by ``&``, ``|`` and ``~``. A comparison compares every person that the left side describes
with every *other* person that the right side describes; it is true if there is no such pair.

Ages are the numbers that labels stand for: ``7``, ``"7"``, ``"5-9"`` or ``"5 to 9"``, ``"85+"`` or
``"85 and over"``, ``"under 5"`` or ``"<5"``. If a label stands for several ages, a comparison is
true if it is true for at least one of them. A comparison thus makes a household impossible only if
it is false for all ages within the intervals.
"""

from bnp_models.rules.census import find_head
from bnp_models.rules.persons import aged, person
from bnp_models.rules.rules import CompiledRules, Rules
from bnp_models.rules.statements import Rule, at_least, at_most, each, exactly, household, predicate
from bnp_models.rules.views import HouseholdView
from bnp_models.rules.yaml_writing import rules_to_yaml

__all__ = [
    "CompiledRules",
    "HouseholdView",
    "Rule",
    "Rules",
    "aged",
    "at_least",
    "at_most",
    "each",
    "exactly",
    "find_head",
    "household",
    "person",
    "predicate",
    "rules_to_yaml",
]
