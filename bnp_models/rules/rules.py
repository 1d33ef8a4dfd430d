"""Sets of rules, compiled to predicates of coded households."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

import jax.numpy as jnp
import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.messages import quoted
from bnp_models.data.schema import MicrodataError, content_digest, first_repeated, plain_label
from bnp_models.rules.completions import completable
from bnp_models.rules.statements import Rule
from bnp_models.rules.views import Columns, HouseholdView, Variables, columns_of, schema_of


class Rules:
    """Rules with distinct names; a possible household obeys all of them.

    Parameters
    ----------
    rules : iterable of Rule
        The rules.

    Raises
    ------
    ValueError
        If two rules have the same name.

    Examples
    --------
    >>> rules = bnp.census_relationships(households)
    >>> bool(rules.check(households).all())
    True
    """

    def __init__(self, rules: Iterable[Rule] = ()):
        self._rules = tuple(rules)
        for rule in self._rules:
            if not isinstance(rule, Rule):
                raise TypeError(f"{rule!r} is not a rule; make one of bnp_models.rules")
        if (repeated := first_repeated(rule.name for rule in self._rules)) is not None:
            raise ValueError(f"two rules are called {repeated!r}; drop or rename one")

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, name: str) -> Rule:
        for rule in self._rules:
            if rule.name == name:
                return rule
        raise KeyError(f"no rule is called {name!r}; the rules are {self.names}")

    def __add__(self, other: "Rules | Rule | Iterable[Rule]") -> "Rules":
        more = (other,) if isinstance(other, Rule) else tuple(other)
        return Rules((*self._rules, *more))

    def __eq__(self, other) -> bool:
        return isinstance(other, Rules) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    def __repr__(self) -> str:
        return f"<{len(self)} rules>\n{self.describe()}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rules."""
        return tuple(rule.name for rule in self._rules)

    @property
    def variables(self) -> Variables:
        """The variables that some rule reads."""
        return Variables.of(rule.variables for rule in self._rules)

    def without(self, *names: str) -> "Rules":
        """Return the other rules than those of some names.

        Raises
        ------
        KeyError
            If no rule has one of the names.
        """
        dropped = [self[name] for name in names]
        return Rules(rule for rule in self._rules if rule not in dropped)

    @property
    def digest(self) -> str:
        """SHA-256 of the rules in words, in hexadecimal digits."""
        return content_digest(self.describe())

    def describe(self) -> str:
        """Return the rules in words, one a line."""
        return "\n".join(
            f"- {rule}" if rule.title is None else f"- {rule.title}: {rule}" for rule in self._rules
        )

    def columns(self, schema: Households | HouseholdSchema) -> Columns:
        """Return the columns of the arrays of codes that some rule reads."""
        return columns_of(schema_of(schema), self.variables)

    def compile(
        self, schema: Households | HouseholdSchema, columns: Columns | None = None
    ) -> "CompiledRules":
        """Compile the rules for the variables and levels of households.

        Parameters
        ----------
        schema : Households or HouseholdSchema
            The variables and their levels.
        columns : Columns, optional
            The columns of codes that the function will be given, all by default; at least those
            that the rules read (:meth:`columns`).

        Returns
        -------
        CompiledRules
            Called with (..., q) household codes and (..., m, p) member codes of households of one
            size, it returns (...) bool: True where the household is possible.

        Raises
        ------
        MicrodataError
            If a rule reads a variable or label that the schema lacks, or compares labels that are
            no numbers.
        """
        schema = schema_of(schema)
        for rule in self._rules:
            _try(rule, schema)
        if columns is None:
            columns = Columns(
                tuple(range(len(schema.household_variables))),
                tuple(range(len(schema.member_variables))),
            )
        return CompiledRules(self._rules, schema, columns)

    def check(self, households: Households) -> np.ndarray:
        """Return which households are possible.

        Returns
        -------
        (n,) bool array
            For a household with missing values in variables that the rules read, whether some
            completion is possible. Also True if the first 2^20 completions are impossible, but
            there are more.

        Raises
        ------
        MicrodataError
            As for :meth:`compile`.
        """
        compiled = self.compile(households)
        columns = self.columns(households)
        result = np.ones(households.n, dtype=bool)
        for block in households.size_blocks:
            result[block.households] = compiled.on_numpy(block.household_codes, block.member_codes)
            incomplete = (block.household_codes[:, columns.household] < 0).any(1) | (
                block.member_codes[:, :, columns.member] < 0
            ).any((1, 2))
            for i in np.flatnonzero(incomplete):
                result[block.households[i]] = completable(
                    compiled.on_numpy,
                    compiled.schema,
                    columns,
                    block.household_codes[i],
                    block.member_codes[i],
                )
        return result

    def tally(self, households: Households) -> dict[str, int]:
        """Return how many households break each rule, as :meth:`check` does, by name."""
        return {rule.name: int((~Rules([rule]).check(households)).sum()) for rule in self._rules}

    def broken_by(self, households: Households, i: int) -> tuple[Rule, ...]:
        """Return the rules that household ``i`` breaks, each judged alone, as :meth:`check` does.

        An impossible household may break no single rule: it is then impossible because no values of
        the missing variables obey all rules together.
        """
        one = households.select(np.array([i]))
        return tuple(rule for rule in self._rules if not Rules([rule]).check(one)[0])

    def require_feasible(self, households: Households) -> None:
        """Check that no household breaks a rule.

        Raises
        ------
        MicrodataError
            It names the row and identifier of the first such household and the rule in words.
        """
        bad = np.flatnonzero(~self.check(households))
        if bad.size == 0:
            return
        i = int(bad[0])
        broken = self.broken_by(households, i)
        who = f"household {quoted(plain_label(households.ids[i]))}"
        if broken:
            title = "" if broken[0].title is None else f" {broken[0].title!r}"
            problem = f"{who} breaks the rule{title}: {broken[0]}"
        else:
            problem = f"{who} breaks a rule whatever its missing values are"
        raise MicrodataError(
            f"{problem} ({bad.size} of {households.n} households are impossible); correct or drop "
            "them, or drop the rule",
            row=households.first_row(i),
        )


@dataclass(frozen=True)
class CompiledRules:
    """A pure function of codes, True where a household obeys all rules; hashable.

    Attributes
    ----------
    rules : tuple of Rule
        The rules.
    schema : HouseholdSchema
        The variables and levels for which they were compiled.
    columns : Columns
        The columns of codes that the function takes.

    Examples
    --------
    >>> possible = bnp.census_relationships(households).compile(households.schema)
    >>> isinstance(possible, bnp.rules.CompiledRules)
    True
    """

    rules: tuple[Rule, ...]
    schema: HouseholdSchema
    columns: Columns

    def __call__(self, household_codes, member_codes):
        """Judge households of one size.

        Parameters
        ----------
        household_codes
            (..., columns.household) integer codes, no -1.
        member_codes
            (..., m, columns.member) integer codes, no -1; m is the number of persons, less one if
            the head is at household level. The leading dimensions are those of household_codes,
            or broadcast with them.

        Returns
        -------
        possible
            (...) bool.
        """
        return self._judge(jnp, household_codes, member_codes)

    def on_numpy(self, household_codes: np.ndarray, member_codes: np.ndarray) -> np.ndarray:
        """Judge households of one size as a call does, without JAX."""
        return np.asarray(self._judge(np, household_codes, member_codes))

    def _judge(self, xp: ModuleType, household_codes, member_codes):
        """Judge households of one size, by NumPy or JAX."""
        view = HouseholdView(self.schema, xp, household_codes, member_codes, self.columns)
        shape = np.broadcast_shapes(household_codes.shape[:-1], member_codes.shape[:-2])
        possible = xp.ones(shape, dtype=bool)
        for rule in self.rules:
            possible = possible & rule.holds(view)
        return possible


def _try(rule: Rule, schema: HouseholdSchema) -> None:
    """Judge one made-up household of two, to find what the schema lacks."""
    try:
        columns = columns_of(schema, rule.variables)
        view = HouseholdView(
            schema,
            np,
            np.zeros((1, len(columns.household)), dtype=np.int32),
            np.zeros((1, 2 - schema.num_heads, len(columns.member)), dtype=np.int32),
            columns,
        )
        judged = rule.holds(view)
    except MicrodataError as error:
        raise MicrodataError(
            f"{error.problem} (read by the rule: {rule.name})", column=error.column
        ) from None
    if np.shape(judged) != (1,) or np.asarray(judged).dtype != bool:
        raise MicrodataError(
            f"the rule {rule.name!r} gave shape {np.shape(judged)} and dtype "
            f"{np.asarray(judged).dtype} for 1 household; it must give one bool for each"
        )
