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
"""Names of the weights and level probabilities of classes, of households and of members."""


class Missing(eqx.Module):
    """Missing values of the households of one size."""

    households: Int[Array, " I"]
    """Indices of the incomplete households."""
    members: Int[Array, "I h"]
    """Indices of the members of each incomplete household."""
    of_household: Bool[Array, "I q"]
    """True for each missing value of the household itself."""
    of_members: Bool[Array, "I h p"]
    """True for each missing value of a member."""


class NestedData(eqx.Module):
    """Coded households, in blocks of households with the same number of members."""

    household_rows: Int[Array, "Q1 n"] = eqx.field(metadata={"record_axis": 1})
    """Row of lambda for each household's level of each variable; the size is the last variable."""
    member_codes: Int[Array, "p N"] = eqx.field(metadata={"record_axis": 1})
    """Level codes of the members, relative to the head's if there is a coding."""
    household_weight: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """1 for a household, 0 for padding."""
    member_weight: Int[Array, " N"] = eqx.field(metadata={"record_axis": 0})
    """1 for a member, 0 for padding."""
    household_levels: Levels
    """Levels of the variables of households, the rows of lambda."""
    member_levels: Levels
    """Levels of the variables of members, the rows of phi; heads have one more variable."""
    blocks: Blocks = eqx.field(static=True)
    """(members, households) of each block; the sizes in ascending order."""
    blocks_of_part: Blocks = eqx.field(static=True)
    """(members, households) of each block in each part, with padding."""
    parts: int = eqx.field(static=True)
    """Number of consecutive parts of the households, which may be on different devices."""
    plan: Plan = eqx.field(static=True)
    """Member variables by table of joint levels."""
    household: Variables
    """The household variables; the size is the last one."""
    member: Variables
    """The member variables."""
    possible: CompiledRules | RelativePredicate | None = eqx.field(static=True)
    """Predicate of household and member codes, true for possible households; None without rules."""
    head: Head | None = eqx.field(static=True)
    """Members of whom every household has exactly one, if there are such members."""
    kind_shape: tuple[float, ...] = eqx.field(static=True)
    """Dirichlet shapes of the shares of other members and of heads in each class."""
    tables: HeadTables | None
    """Rules as tables, if they have that form."""
    is_head: Bool[Array, " levels"] | None
    """Whether each joint level is a head's, if the tables have heads among the members."""
    missing: tuple[Missing, ...]
    """Incomplete households of each block that has any; the codes above are complete."""
    at_household: Int[Array, "2 C1"]
    """(variable, household) of each missing value of a household."""
    at_member: Int[Array, "2 C2"]
    """(variable, member) of each missing value of a member."""
    distinct: Int[Array, "p U"] | None
    """Codes of the distinct members; None if their use would save little."""
    distinct_index: Int[Array, " N"] | None = eqx.field(metadata={"record_axis": 0})
    """Index of each member among the distinct members."""
    relative: RelativeCoding | None = eqx.field(static=True)
    """Coding of members relative to their head; None if there is no such coding."""

    @property
    def num_households(self) -> int:
        """Number of households, without padding."""
        return sum(households for _, households in self.blocks)

    @property
    def closed_form(self) -> bool:
        """Whether P(possible) is known: no rules, or tables whose compositions are listed."""
        listed = self.tables is not None and self.tables.compositions is not None
        return listed or self.possible is None


class NestedState(eqx.Module):
    """Parameters and missing values of a chain between sweeps; each sweep first draws classes.

    In shapes, F is the number of household classes, S that of member classes, Q that of levels of
    households and B that of groups of these, and R that of levels of members.
    """

    log_pi: Float[Array, " F"]
    """Log weights of the household classes before truncation."""
    log_omega: Float[Array, "F S"]
    """Log weights of the member classes in each household class."""
    log_lambda: Float[Array, "Q F"]
    """Log level probabilities of households."""
    log_phi: Float[Array, "R G S"]
    """Log level probabilities of members; G is F, or 1 if the member classes are shared."""
    household_shape: Float[Array, " Q+B"]
    """Dirichlet shapes c_k beta_kl of the households' level probabilities; ones if uniform."""
    member_shape: Float[Array, " R+G"]
    """Dirichlet shapes of the members' level probabilities; here G counts groups of levels."""
    alpha: Float[Array, ""]
    """Concentration of the household classes."""
    beta: Float[Array, " *F"]
    """Concentration of the member classes: one for all, or one for each household class."""
    member_class_shapes: Float[Array, " S"]
    """Dirichlet shapes of the weights of shared member classes, whose sum is beta; a single 0 if
    member classes are not shared."""
    completed: Int[Array, " C"]
    """Level codes of the missing values, households first; a single 0 if no value is missing."""


class NestedInfo(eqx.Module):
    """Figures of one sweep."""

    components: Int[Array, ""]
    """Household classes with at least one household of the sample."""
    member_components: Int[Array, ""]
    """Occupied member classes of the household class that has most of them."""
    last_class: Int[Array, ""]
    """Number of households in the last class, which has the remaining weight; it should be 0."""
    last_member_class: Int[Array, ""]
    """Number of members in the last class of a household class."""
    log_likelihood: Float[Array, ""]
    """Log-likelihood of the sample at the parameters before the sweep, classes summed out, with the
    last drawn missing values."""
    log_feasible: Float[Array, ""]
    """Log P(possible) before truncation at the parameters before the sweep; mostly the prior."""
    augmented: Int[Array, ""]
    """Impossible households; -1 if too many to count."""
    left_over: Float[Array, ""]
    """0, because the model has a fixed number of sticks."""
