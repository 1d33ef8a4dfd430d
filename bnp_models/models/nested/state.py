"""Data, state and info of the chains of the nested model of persons within households."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from bnp_models.kernels.nested.judges import HeadTables
from bnp_models.kernels.nested.members import Blocks, Plan
from bnp_models.kernels.nested.parameters import Head, Variables
from bnp_models.kernels.variates.levels import Levels
from bnp_models.models.nested.relative import RelativeCoding, RelativePredicate
from bnp_models.rules.rules import CompiledRules

NESTED = ("log_pi", "log_omega", "log_lambda", "log_phi")
"""Weights and level probabilities of the classes, of households and of members within."""


class Missing(eqx.Module):
    """Missing values of the households of one size."""

    households: Int[Array, " I"]
    """Indices of the incomplete households."""
    members: Int[Array, "I h"]
    """Indices of their members."""
    of_household: Bool[Array, "I q"]
    """Where a household's own value is missing."""
    of_members: Bool[Array, "I h p"]
    """Where a member's value is missing."""


class NestedData(eqx.Module):
    """Coded households, in blocks of one number of members."""

    household_rows: Int[Array, "Q1 n"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda that holds each household's level of each variable, the size the last one."""
    member_codes: Int[Array, "p N"] = eqx.field(metadata={"record_axis": 1})
    """Level codes of the members, relative to the head's where there is a coding."""
    household_weight: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """1 for a household, 0 for padding."""
    member_weight: Int[Array, " N"] = eqx.field(metadata={"record_axis": 0})
    """1 for a member, 0 for padding."""
    household_levels: Levels
    """Levels of the variables of households, the rows of lambda."""
    member_levels: Levels
    """Levels of the variables of members, the rows of phi; those of heads are of one more."""
    blocks: Blocks = eqx.field(static=True)
    """(members, households) of each block; the sizes in ascending order."""
    blocks_of_part: Blocks = eqx.field(static=True)
    """The same of each part, padding included."""
    parts: int = eqx.field(static=True)
    """Parts that households lie in, one after the other: devices may have some each."""
    plan: Plan = eqx.field(static=True)
    """Member variables by table of joint levels."""
    household: Variables
    """The household variables, the size the last one."""
    member: Variables
    """The member variables."""
    possible: CompiledRules | RelativePredicate | None = eqx.field(static=True)
    """Predicate of household and member codes, true of possible households; None without rules."""
    head: Head | None = eqx.field(static=True)
    """Members of whom every household has exactly one, if there are such."""
    kind_shape: tuple[float, ...] = eqx.field(static=True)
    """Dirichlet shapes of the shares of those who are no head and of heads, in each class."""
    tables: HeadTables | None
    """Rules as tables, where they have that form."""
    is_head: Bool[Array, " levels"] | None
    """Whether each joint level is a head's, if the tables have heads among the members."""
    missing: tuple[Missing, ...]
    """Incomplete households of each block that has any; the codes above are completed."""
    at_household: Int[Array, "2 C1"]
    """(variable, household) of each missing value of a household."""
    at_member: Int[Array, "2 C2"]
    """(variable, member) of each missing value of a member."""
    distinct: Int[Array, "p U"] | None
    """Codes of the distinct members; None where that saves little."""
    distinct_index: Int[Array, " N"] | None = eqx.field(metadata={"record_axis": 0})
    """Index of each member among them."""
    relative: RelativeCoding | None = eqx.field(static=True)
    """Coding of members relative to their head; None where codes stand for themselves."""

    @property
    def num_households(self) -> int:
        """Number of households, padding excluded."""
        return sum(households for _, households in self.blocks)

    @property
    def closed_form(self) -> bool:
        """Whether P(possible) is known: no rules, or tables whose compositions are listed."""
        listed = self.tables is not None and self.tables.compositions is not None
        return listed or self.possible is None


class NestedState(eqx.Module):
    """Parameters with which a chain goes on, and the missing values: classes are redrawn first."""

    log_pi: Float[Array, " F"]
    """Log weights of the household classes before truncation."""
    log_omega: Float[Array, "F S"]
    """Log weights of the member classes in each household class."""
    log_lambda: Float[Array, "Q F"]
    """Log level probabilities of households."""
    log_phi: Float[Array, "R F S"]
    """Log level probabilities of members."""
    household_shape: Float[Array, " Q+B"]
    """Dirichlet shapes c_k beta_kl of the households' level probabilities; ones where uniform."""
    member_shape: Float[Array, " R+G"]
    """Dirichlet shapes of the members' level probabilities."""
    alpha: Float[Array, ""]
    """Concentration of the household classes."""
    beta: Float[Array, " *F"]
    """Concentration of the member classes, one for all or one for each household class."""
    completed: Int[Array, " C"]
    """Level codes of the missing values, those of households first; one 0 where none is missing."""


class NestedInfo(eqx.Module):
    """Figures of one sweep."""

    components: Int[Array, ""]
    """Household classes with at least one household of the sample."""
    member_components: Int[Array, ""]
    """Occupied member classes of the household class that has most of them."""
    last_class: Int[Array, ""]
    """Households in the last class, which takes all that the sticks leave: should be 0."""
    last_member_class: Int[Array, ""]
    """Members in the last class of a household class."""
    log_likelihood: Float[Array, ""]
    """Log-likelihood of the sample, missing values as last drawn and classes summed out, at the
    parameters that the sweep started from."""
    log_feasible: Float[Array, ""]
    """Log P(possible) of a household before truncation, at the parameters that the sweep started
    from; driven by the prior."""
    augmented: Int[Array, ""]
    """Number of impossible households, each counted `impossible_weight` times; -1 where they were
    too many to simulate or to count."""
    left_over: Float[Array, ""]
    """0: the sticks are truncated by definition."""
