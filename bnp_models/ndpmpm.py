"""Nested Dirichlet process mixture of products of multinomials: persons within households.

    alpha, beta_g ~ Ga(a, b),  pi = sticks(alpha, F classes),  omega_g = sticks(beta_g, S classes)
    lambda_gk ~ Dir(1),        phi_gmk ~ Dir(1)
    G_i ~ pi,                  M_ij ~ omega_{G_i}
    size and values of household i ~ lambda_{G_i},  values of its member j ~ phi_{G_i M_ij}

truncated to the households that a `bnp_models.Rules` leaves possible (Hu, Reiter & Wang 2018,
doi:10.1214/16-BA1047). The functions are pure: they jit, and vmap over chains.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.completions import complete_households
from bnp_models.head_forms import head_form
from bnp_models.head_tables import head_of, head_tables
from bnp_models.households import Households
from bnp_models.kernels.assignment import cumulative_sum, draw_rows, search_cumulative
from bnp_models.kernels.counting import count_rows_by_component, first_rows, order_free_sum
from bnp_models.kernels.impossible_households import (
    MAX_COUNTED,
    Augmented,
    Head,
    HeadTables,
    Judge,
    Levels,
    Simulated,
    add_other_heads,
    add_simulated,
    judge_by_predicate,
    judge_by_tables,
    log_class_weights,
    log_possible,
    simulate_households,
    tables_of,
)
from bnp_models.kernels.logspace import gamma_variate, loggamma, loggamma_from_one
from bnp_models.kernels.nested import (
    Blocks,
    Plan,
    draw_member_classes,
    log_member_probability,
    merge_plan,
    merged_rows,
    merged_tables,
    repeat_by_member,
    sum_by_household,
)
from bnp_models.kernels.rng import uniform, words
from bnp_models.kernels.sticks import truncated_sticks
from bnp_models.kernels.truncation import normalise_levels, reorder_classes
from bnp_models.microdata import unknown_variable
from bnp_models.relative import RelativeCoding
from bnp_models.rules import Rules

BETAS = ("common", "class")

NESTED = ("log_pi", "log_omega", "log_lambda", "log_phi")
"""Weights and level probabilities of the classes, of households and of members within."""

MISSING_ATTEMPTS = 4
"""Proposals of missing values in a sweep."""

DISTINCT_BELOW = 0.8
"""Share of distinct members up to which probabilities are computed for these alone."""

FEW_MEMBERS = 512
"""Members below which that is not tried."""

MEMBERS_AT_ONCE = 4
"""Room for members, for each of the households that are simulated at once."""


class Groups(eqx.Module):
    """Groups of adjacent levels, those of one variable after those of another."""

    num_groups: tuple[int, ...] = eqx.field(static=True)
    """Groups of each variable."""
    group: Int[Array, " R"]
    """Of each row of level probabilities."""


class NestedData(eqx.Module):
    """Coded households, in blocks of one number of members."""

    household_rows: Int[Array, "Q1 n"]
    """Row of lambda that holds each household's level of each variable, the size the last one."""
    member_codes: Int[Array, "p N"]
    """Level codes of the members, relative to the head's where there is a coding."""
    household_variable: Int[Array, " Q"]
    """Variable of each row of lambda."""
    member_variable: Int[Array, " R"]
    """Variable of each row of phi."""
    blocks: Blocks = eqx.field(static=True)
    """(members, households) of each block; the sizes in ascending order."""
    plan: Plan = eqx.field(static=True)
    """Member variables by table of joint levels."""
    household: Levels
    """The household variables, the size the last one."""
    member: Levels
    """The member variables."""
    possible: object = eqx.field(static=True)
    """Of household and member codes, whether a household is possible; None without rules."""
    head: Head | None = eqx.field(static=True)
    """The members of whom every household has exactly one, if there are such."""
    tables: HeadTables | None
    """The rules as tables, where they have that form."""
    is_head: Bool[Array, " J"] | None
    """Joint levels of a head among the members, if the tables have such."""
    missing: tuple["Missing", ...] = ()
    """The incomplete households of each block that has any; the codes above are completed."""
    at_household: Int[Array, "2 C1"] = None
    """(variable, household) of each missing value of a household."""
    at_member: Int[Array, "2 C2"] = None
    """(variable, member) of each missing value of a member."""
    distinct: tuple[Int[Array, "p U"], Int[Array, " N"]] | None = None
    """The distinct members, and which of them each member is; None where that saves little."""
    relative: RelativeCoding | None = eqx.field(static=True, default=None)
    """What the codes of members stand for, given the head's; None where for themselves."""
    household_groups: Groups | None = None
    """Groups of levels of the household variables, if any variable has such."""
    member_groups: Groups | None = None
    """The same of the member variables."""

    @property
    def num_households(self) -> int:
        """Households n."""
        return self.household_rows.shape[1]


class NestedState(eqx.Module):
    """All that a chain needs to go on: the classes are redrawn first."""

    log_pi: Float[Array, " F"]
    """Log weights of the household classes before truncation."""
    log_omega: Float[Array, "F S"]
    """Log weights of the member classes in each."""
    log_lambda: Float[Array, "Q F"]
    """Log level probabilities of households."""
    log_phi: Float[Array, "R F S"]
    """Log level probabilities of members."""
    alpha: Float[Array, ""]
    """Concentration of the household classes."""
    beta: Float[Array, " *F"]
    """Concentration of the member classes, one for all or one for each household class."""
    completed: Int[Array, " C"]
    """Level codes of the missing values, those of households first; one 0 where none is missing."""


class Missing(eqx.Module):
    """Missing values of the households of one block."""

    households: Int[Array, " I"]
    """Incomplete households."""
    members: Int[Array, "I h"]
    """Their members."""
    of_household: Bool[Array, "I q"]
    """Which of their values are missing."""
    of_members: Bool[Array, "I h p"]
    """Which of their members' are."""


class NestedInfo(eqx.Module):
    """What one sweep says of itself."""

    components: Int[Array, ""]
    """Household classes with at least one household of the sample."""
    member_components: Int[Array, ""]
    """The most member classes that are occupied in one of them."""
    last_class: Int[Array, ""]
    """Households in the last class, which takes all that the sticks leave: should be 0."""
    last_member_class: Int[Array, ""]
    """Members in the last class of a household class."""
    log_likelihood: Float[Array, ""]
    """Of the sample, classes integrated out, at the parameters that the sweep started from."""
    log_feasible: Float[Array, ""]
    """Log P(possible) of a household before truncation; driven by the prior."""
    augmented: Int[Array, ""]
    """Impossible households drawn; -1 where they were beyond 2**28 and not all drawn."""
    left_over: Float[Array, ""]
    """0: the sticks are truncated by definition."""


def _as_pairs(given):
    """A mapping or a sequence of names and pairs, hashable."""
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str):
        given = (given,)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


class NDPMPM(eqx.Module):
    """The nested Dirichlet process mixture of products of multinomials.

    Parameters
    ----------
    components
        Household classes F at which the sticks are truncated.
    member_components
        Member classes S of each of them.
    a, b
        Shape and rate of alpha's prior.
    a_beta, b_beta
        The same of beta.
    beta
        "common": one concentration for the member classes of all household classes; "class": one
        each.
    reorder
        Moves that exchange adjacent classes, weights and all.
    relative
        Variables whose values members have relative to their head's, with the head at household
        level: names, or names with a kind, "difference" for an ordered variable and "same" for
        another (`bnp_models.relative.RelativeCoding`). Ages of couples, or races within
        households, then agree without a class for each.
    grouped
        Numbers of adjacent levels by variable, as ``{"age": 5}``: classes differ in the
        probabilities of groups of so many levels only, a level's share of its group is the same in
        all. The groups of differences are centred at 0. For variables with many levels and classes
        with few households.
    level_concentration
        Parameter of the symmetric Dirichlet prior of level probabilities, or of those of groups;
        1, as printed, draws classes with few members to uniform probabilities more than less does.
    impossible_weight
        Cap-and-weight, an approximation: impossible households are drawn until a part of the
        sample's number of possible ones, and each stands for so many. 1 is exact. The chains then
        forget the variation of what is not drawn.

    References
    ----------
    Hu, J., Reiter, J. P. & Wang, Q. (2018), doi:10.1214/16-BA1047. Cap-and-weight: Akande, O.,
    Barrientos, A. & Reiter, J. P. (2019), doi:10.1093/jssam/smy022.
    """

    components: int = eqx.field(static=True, default=40)
    member_components: int = eqx.field(static=True, default=15)
    a: float = 0.25
    b: float = 0.25
    a_beta: float = 0.25
    b_beta: float = 0.25
    beta: str = eqx.field(static=True, default="common")
    reorder: bool = eqx.field(static=True, default=True)
    relative: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    grouped: tuple = eqx.field(static=True, default=(), converter=_as_pairs)
    level_concentration: float = eqx.field(static=True, default=1.0)
    impossible_weight: int = eqx.field(static=True, default=1)

    name: ClassVar[str] = "ndpmpm"
    truncates: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    parameters_every: ClassVar[int] = 10
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "member_components", "alpha", "beta", "log_likelihood", "last_class",
        "last_member_class", "augmented",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = (*NESTED, "log_feasible", "completed")

    def __check_init__(self):
        for name in ("components", "member_components"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 2:
                raise ValueError(f"{name} must be an integer of at least 2, not {value}")
        if not isinstance(self.impossible_weight, int) or self.impossible_weight < 1:
            raise ValueError(
                f"impossible_weight must be an integer of at least 1, not {self.impossible_weight}"
            )
        for name in ("a", "b", "a_beta", "b_beta", "level_concentration"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if self.beta not in BETAS:
            raise ValueError(f"beta is one of {', '.join(BETAS)}, not {self.beta!r}")
        for one in self.grouped:
            if isinstance(one, str) or len(one) != 2 or not isinstance(one[1], int) or one[1] < 1:
                raise ValueError(
                    f"grouped takes a number of levels for each variable, as in {{'age': 5}}, not "
                    f"{one!r}"
                )

    @property
    def start_components(self) -> tuple[int, ...]:
        """Household classes of the initial states: all."""
        return (self.components,)

    @property
    def capacity(self) -> int:
        """Slots for household classes: F, which never grows."""
        return self.components

    def check(self, table: Households) -> None:
        """Raise MicrodataError unless the options `relative` and `grouped` fit the table."""
        if self.relative:
            RelativeCoding(table.schema, self.relative).require_heads(table)
        known = {*table.schema.household_variables, *table.schema.member_variables}
        for name, _ in self.grouped:
            if name not in known:
                raise unknown_variable(name, sorted(known))

    def prepare(self, table: Households, rules: Rules | None = None) -> NestedData:
        """Arrays of coded households."""
        self.check(table)
        schema = table.schema
        relative = RelativeCoding(schema, self.relative) if self.relative else None
        at_household = at_member = np.zeros((2, 0), int)
        missing = ()
        order, of_member = table.order_by_size
        if table.has_missing:
            at_household = np.stack(np.nonzero((table.household_codes[order] < 0).T))
            at_member = np.stack(np.nonzero((table.member_codes[of_member] < 0).T))
            missing = _missing(table.size_blocks)
            table = complete_households(table, rules, seed=0)
        blocks = table.size_blocks
        size = np.repeat(np.arange(len(blocks)), [len(block.households) for block in blocks])
        members = [
            block.member_codes if relative is None
            else relative.encode(block.household_codes, block.member_codes)
            for block in blocks
        ]  # fmt: skip
        members = [own.reshape(-1, len(schema.member_variables)) for own in members]
        codes = np.column_stack([table.household_codes[order], size])
        num_household = (*schema.num_household_levels, len(blocks))
        num_member = schema.num_member_levels
        read, possible, head, tables = ((), ()), None, None, None
        if rules is not None and len(rules):
            read = rules.columns(schema)
            possible = rules.compile(schema)
            if relative is not None:
                read = (relative.columns(*read), read.member)
                possible = relative.possible(possible)
            form = head_form(rules, schema)
            if form is not None:
                head = head_of(form)
                if not len(form.rest) and (head is not None or schema.head is not None):
                    others = [block.member_codes.shape[1] - (head is not None) for block in blocks]
                    tables = head_tables(form, others, relative)
        member_codes = np.concatenate(members).T
        return NestedData(
            household_rows=jnp.asarray((codes + first_rows(num_household)).T, jnp.int32),
            member_codes=jnp.asarray(member_codes, jnp.int32),
            household_variable=_variables(num_household),
            member_variable=_variables(num_member),
            blocks=tuple((block.member_codes.shape[1], len(block.households)) for block in blocks),
            plan=merge_plan(num_member),
            household=Levels(num_household, tuple(read[0])),
            member=Levels(num_member, tuple(read[1])),
            possible=possible,
            head=head,
            tables=tables,
            missing=missing,
            at_household=jnp.asarray(at_household, jnp.int32),
            at_member=jnp.asarray(at_member, jnp.int32),
            is_head=None if tables is None or head is None else jnp.asarray(form.is_head),
            distinct=None if missing else _distinct(member_codes),
            relative=relative,
            household_groups=self._groups(
                (*schema.household_variables, None), num_household, frozenset()
            ),
            member_groups=self._groups(
                schema.member_variables, num_member,
                {pair.member for pair in relative.pairs if pair.kind == "difference"}
                if relative is not None else frozenset(),
            ),
        )  # fmt: skip

    def _groups(self, names, num_levels, circular) -> Groups | None:
        """Groups of levels of these variables; those of variables in `circular` centred at 0."""
        width = dict(self.grouped)
        # The head's variables are grouped as the members'.
        widths = [
            width.get(name, width.get(str(name).removeprefix("head_"), 1)) for name in names
        ]  # fmt: skip
        if all(own == 1 for own in widths):
            return None
        groups = []
        for j, (number, own) in enumerate(zip(num_levels, widths, strict=True)):
            shift = own // 2 if j in circular else 0
            groups.append((np.arange(number) + shift) % number // own)
        num_groups = tuple(int(own.max()) + 1 for own in groups)
        group = np.concatenate([
            own + first for own, first in zip(groups, first_rows(num_groups), strict=True)
        ])  # fmt: skip
        return Groups(num_groups, jnp.asarray(group, jnp.int32))

    def record_axes(self, tree) -> list[int | None]:
        """No leaf is sharded over households: chains are what devices share."""
        return [None] * len(jax.tree.leaves(tree))

    def init(
        self, key: Key[Array, ""], data: NestedData, capacity: int, num_components: Int[Array, ""]
    ) -> NestedState:
        """A start with every household in one of the classes, at random, and so its members."""
        del capacity
        key_g, key_m, key_parameters = jax.random.split(key, 3)
        limit = jnp.minimum(num_components, self.components)
        g = _draw_uniform(key_g, (data.num_households,), limit)
        m = _draw_uniform(key_m, data.member_codes.shape[1:], self.member_components)
        alpha = jnp.ones(())
        beta = jnp.ones((self.components,) if self.beta == "class" else ())
        counts = count_classes(self, g, m, data)
        return update_parameters(self, key_parameters, alpha, beta, counts, data)

    def settle(self, state: NestedState, data: NestedData) -> NestedState:
        """Sort the classes by weight: for warm-up only, the posterior is not invariant."""
        del data
        return _reordered(state, jnp.argsort(-state.log_pi), jnp.argsort(-state.log_omega, axis=1))

    def sweep(
        self, key: Key[Array, ""], state: NestedState, data: NestedData, iteration: Int[Array, ""]
    ) -> tuple[NestedState, NestedInfo]:
        """One sweep, in an order that leaves the posterior invariant."""
        del iteration
        key_g, key_missing, key_augment, key_parameters, key_order = jax.random.split(key, 5)
        data = fill_in(state, data)
        g, m, log_likelihood = update_classes(key_g, state, data)
        if data.missing:
            data = update_missing(key_missing, state, g, m, data)
        counts = count_classes(self, g, m, data)
        augmented, number, log_feasible = augment(self, key_augment, state, data)
        info = NestedInfo(
            components=jnp.sum(counts.households > 0, dtype=jnp.int32),
            member_components=jnp.max(jnp.sum(counts.members > 0, axis=1, dtype=jnp.int32)),
            last_class=counts.households[-1],
            last_member_class=jnp.sum(counts.members[:, -1]),
            log_likelihood=log_likelihood - data.num_households * log_feasible,
            log_feasible=log_feasible,
            augmented=number,
            left_over=jnp.zeros((), state.alpha.dtype),
        )
        counts = jax.tree.map(jnp.add, counts, augmented)
        state = update_parameters(self, key_parameters, state.alpha, state.beta, counts, data)
        return update_order(self, key_order, state), info

    def simulate_households(self, key, draw, data, left, lanes):
        """See the function `simulate_possible`."""
        return simulate_possible(key, draw, data, left, lanes)

    def grow(self, key, state, data, capacity):
        """The number of classes is part of the model: the driver never asks for more."""
        raise ValueError(f"{self.name} has a fixed number of classes")

    def keep(self, state: NestedState, info: NestedInfo) -> dict[str, Array]:
        """Everything of one sweep that a user may choose to keep."""
        return {
            "components": info.components,
            "member_components": info.member_components,
            "alpha": state.alpha,
            "beta": state.beta,
            "log_likelihood": info.log_likelihood,
            "last_class": info.last_class,
            "last_member_class": info.last_member_class,
            "augmented": info.augmented,
            "log_pi": state.log_pi,
            "log_omega": state.log_omega,
            "log_lambda": state.log_lambda,
            "log_phi": state.log_phi,
            "completed": state.completed,
            "log_feasible": info.log_feasible,
        }


def draw_prior(model: NDPMPM, key: Key[Array, ""], data: NestedData) -> NestedState:
    """Parameters from the prior before truncation."""
    key_alpha, key_beta, key_parameters = jax.random.split(key, 3)
    dtype = jnp.result_type(float)
    alpha = gamma_variate(key_alpha, jnp.asarray(model.a, dtype), model.b)
    shape = (model.components,) if model.beta == "class" else ()
    beta = gamma_variate(key_beta, jnp.full(shape, model.a_beta, dtype), model.b_beta)
    none = Augmented.none((model.components, model.member_components), data.household, data.member)
    return update_parameters(model, key_parameters, alpha, beta, none, data)


def _variables(num_levels):
    return jnp.asarray(np.repeat(np.arange(len(num_levels)), num_levels), jnp.int32)


def _draw_uniform(key, shape, limit):
    dtype = jnp.result_type(float)
    u = uniform(words(key, shape), dtype.type)
    return jnp.minimum((u * limit).astype(jnp.int32), limit - 1)


def update_classes(
    key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Int[Array, " n"], Int[Array, " N"], Float[Array, ""]]:
    """Steps 1 and 2: the class of every household, its members' summed out, and then theirs.

    Returns
    -------
    g, m
        Classes of the households and of the members.
    log_likelihood
        Of the sample before truncation, all classes summed out.
    """
    key_g, key_m = jax.random.split(key)
    omega = jnp.exp(state.log_omega)
    tables = merged_tables(jnp.exp(state.log_phi), data.member.num_levels, data.plan)
    rows = merged_rows(data.member_codes, data.member.num_levels, data.plan)
    if data.distinct is None:
        log_member = log_member_probability(tables, omega, rows)
    else:
        codes, index = data.distinct
        own = merged_rows(codes, data.member.num_levels, data.plan)
        log_member = log_member_probability(tables, omega, own)
        log_member = log_member.at[index].get(mode="promise_in_bounds")

    # A loop, not unrolled: fused gathers are computed again by every consumer on a CPU.
    def add(k, log_weight):
        own = data.household_rows[k]
        return log_weight + state.log_lambda.at[own].get(mode="promise_in_bounds")

    log_weight = sum_by_household(log_member, data.blocks) + state.log_pi
    log_weight = jax.lax.fori_loop(0, data.household_rows.shape[0], add, log_weight)
    g, log_total = draw_rows(key_g, log_weight.T)
    m = draw_member_classes(key_m, tables, omega, rows, repeat_by_member(g, data.blocks))
    return g, m, -order_free_sum(-jnp.minimum(log_total, 0))


def fill_in(state: NestedState, data: NestedData) -> NestedData:
    """The data with the missing values as they are in this state."""
    if not data.missing:
        return data
    number = data.at_household.shape[1]
    first = jnp.asarray(first_rows(data.household.num_levels), jnp.int32)
    rows = first[data.at_household[0]] + state.completed[:number]
    return dataclasses.replace(
        data,
        household_rows=data.household_rows.at[tuple(data.at_household)].set(rows),
        member_codes=data.member_codes.at[tuple(data.at_member)].set(state.completed[number:]),
    )


def _completed(data):
    """The missing values, of data in which they are filled in."""
    if not data.missing:
        return jnp.zeros(1, jnp.int32)
    first = jnp.asarray(first_rows(data.household.num_levels), jnp.int32)
    of_households = data.household_rows[tuple(data.at_household)] - first[data.at_household[0]]
    return jnp.concatenate([of_households, data.member_codes[tuple(data.at_member)]])


def update_missing(
    key: Key[Array, ""],
    state: NestedState,
    g: Int[Array, " n"],
    m: Int[Array, " N"],
    data: NestedData,
) -> NestedData:
    """The missing values of the incomplete households, given their classes.

    Values drawn from the classes are a Metropolis-Hastings proposal that is accepted where the
    household is possible: all missing values of a household at once, then random halves of them.
    """
    first = first_rows(data.household.num_levels)
    household_codes = data.household_rows[:-1] - first[:-1, None].astype(np.int32)
    member_codes = data.member_codes

    def draw(key, log_levels, levels, of_class):
        """Codes of all variables, of units in these classes: (units, variables)."""
        u = uniform(words(key, (len(levels.num_levels), of_class.size)), log_levels.dtype.type)
        tables = [
            cumulative_sum(jnp.exp(levels.block(log_levels, j)).T)
            for j in range(len(levels.num_levels))
        ]
        codes = [search_cumulative(t, of_class, x)[0] for t, x in zip(tables, u, strict=True)]
        return jnp.stack(codes, axis=1)

    log_phi = state.log_phi.reshape(state.log_phi.shape[0], -1)
    num_nested = state.log_omega.shape[1]
    for i, block in enumerate(data.missing):
        here = household_codes[:, block.households].T
        there = jnp.moveaxis(member_codes[:, block.members], 0, 2)
        g_block = g[block.households]
        z_block = (g_block[:, None] * num_nested + m[block.members]).reshape(-1)

        def attempt(t, codes, i=i, block=block, g_block=g_block, z_block=z_block):
            here, there = codes
            keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, i), t), 3)
            new_here = draw(keys[0], state.log_lambda, data.household, g_block)[:, :-1]
            new_there = draw(keys[1], log_phi, data.member, z_block).reshape(there.shape)
            number = here.shape[1] + there[0].size
            coin = uniform(words(keys[2], (here.shape[0], number)))
            coin = (coin < 0.5) | (t == 0)
            change = coin[:, : here.shape[1]] & block.of_household
            new_here = jnp.where(change, new_here, here)
            change = coin[:, here.shape[1] :].reshape(there.shape) & block.of_members
            new_there = jnp.where(change, new_there, there)
            possible = jnp.ones(here.shape[0], bool)
            if data.possible is not None:
                possible = data.possible(new_here, new_there)
            return (
                jnp.where(possible[:, None], new_here, here),
                jnp.where(possible[:, None, None], new_there, there),
            )

        here, there = jax.lax.fori_loop(0, MISSING_ATTEMPTS, attempt, (here, there))
        household_codes = household_codes.at[:, block.households].set(here.T)
        member_codes = member_codes.at[:, block.members].set(jnp.moveaxis(there, 2, 0))
    rows = household_codes + first[:-1, None].astype(np.int32)
    return dataclasses.replace(
        data,
        household_rows=data.household_rows.at[:-1].set(rows),
        member_codes=member_codes,
    )


def _distinct(member_codes):
    """The distinct members and which of them each one is, where they are few enough."""
    if member_codes.shape[1] < FEW_MEMBERS:
        return None
    codes, index = np.unique(member_codes, axis=1, return_inverse=True)
    if codes.shape[1] > DISTINCT_BELOW * member_codes.shape[1]:
        return None
    return jnp.asarray(codes, jnp.int32), jnp.asarray(index.reshape(-1), jnp.int32)


def _missing(blocks):
    """The incomplete households of each block that has any."""
    found, household, member = [], 0, 0
    for block in blocks:
        number, members = block.member_codes.shape[:2]
        of_household, of_members = block.household_codes < 0, block.member_codes < 0
        own = np.flatnonzero(of_household.any(axis=1) | of_members.any(axis=(1, 2)))
        if own.size:
            of_own = member + own[:, None] * members + np.arange(members)
            found.append(Missing(
                households=jnp.asarray(household + own, jnp.int32),
                members=jnp.asarray(of_own, jnp.int32),
                of_household=jnp.asarray(of_household[own]),
                of_members=jnp.asarray(of_members[own]),
            ))  # fmt: skip
        household, member = household + number, member + number * members
    return tuple(found)


def count_classes(
    model: NDPMPM, g: Int[Array, " n"], m: Int[Array, " N"], data: NestedData
) -> Augmented:
    """Households and members of the sample by class and level."""
    shape = (model.components, model.member_components)
    household_levels = count_rows_by_component(
        data.household_rows, jnp.broadcast_to(g, data.household_rows.shape),
        jnp.ones(g.size, jnp.int32), (sum(data.household.num_levels), shape[0]),
    )  # fmt: skip
    z = repeat_by_member(g, data.blocks) * shape[1] + m
    rows = data.member_codes + first_rows(data.member.num_levels)[:, None].astype(np.int32)
    member_levels = count_rows_by_component(
        rows, jnp.broadcast_to(z, rows.shape), jnp.ones(z.size, jnp.int32),
        (sum(data.member.num_levels), math.prod(shape)),
    ).reshape(-1, *shape)  # fmt: skip
    return Augmented(
        households=jnp.sum(household_levels[data.household.size_rows], axis=0),
        household_levels=household_levels,
        members=jnp.sum(member_levels[: data.member.num_levels[0]], axis=0),
        member_levels=member_levels,
        unread=jnp.zeros((2, *shape), jnp.int32),
    )


def augment(
    model: NDPMPM, key: Key[Array, ""], state: NestedState, data: NestedData
) -> tuple[Augmented, Int[Array, ""], Float[Array, ""]]:
    """Step 1 under structural zeros: the impossible households.

    Returns
    -------
    augmented
        Their counts.
    number
        How many, weighted; -1 where there were too many.
    log_feasible
        Log P(possible) of a household: exact where the rules are tables, else from the share of
        possible ones among those drawn.
    """
    shape = (model.components, model.member_components)
    augmented = Augmented.none(shape, data.household, data.member)
    if data.possible is None:
        return augmented, jnp.int32(0), jnp.zeros_like(state.alpha)
    tables = tables_of(
        state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.household,
        data.member, data.head,
    )  # fmt: skip
    key_simulate, key_heads = jax.random.split(key)
    sizes, wanted = zip(*data.blocks, strict=True)
    log_size = state.log_lambda[data.household.size_rows]
    has_head = data.head is not None
    until = -(-sum(wanted) // model.impossible_weight)
    augmented, found, number = add_simulated(
        key_simulate, augmented, tables, log_size, sizes, wanted, _judge(data), data.household,
        data.member, has_head, until,
    )  # fmt: skip
    failed = found < until
    if has_head:
        augmented, others = add_other_heads(
            key_heads, augmented, tables, log_size, sizes, found + number, data.household
        )
        failed = failed | (others < 0)
        number = number + jnp.maximum(others, 0)
    if data.tables is not None and data.tables.compositions is not None:
        log_share = log_possible(
            state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.tables,
            data.household, data.member, data.is_head,
        )  # fmt: skip
    else:
        log_share = jnp.log(found / (found + number).astype(state.alpha.dtype))
    if model.impossible_weight > 1:
        # All or nothing, as in `add_other_heads`: int32 must hold them.
        most = jnp.maximum(jnp.sum(augmented.members.astype(state.alpha.dtype)), number)
        failed = failed | (most * model.impossible_weight > MAX_COUNTED)
        weight = jnp.where(failed, 1, model.impossible_weight)
        augmented = jax.tree.map(lambda x: x * weight, augmented)
        number = number * weight
    return augmented, jnp.where(failed, -1, number), log_share


def _judge(data: NestedData) -> Judge:
    if data.tables is None:
        return judge_by_predicate(data.possible, *zip(*data.blocks, strict=True))
    return judge_by_tables(data.tables, data.household, data.member)


def update_parameters(
    model: NDPMPM,
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    beta: Float[Array, " *F"],
    counts: Augmented,
    data: NestedData,
) -> NestedState:
    """Steps 3 to 8: level probabilities, sticks and then their concentrations."""
    keys = jax.random.split(key, 4)
    log_lambda, log_phi = draw_level_probabilities(keys[0], counts, data, model.level_concentration)
    log_pi, sum_log_1mv = truncated_sticks(keys[1], counts.households, alpha)
    each_beta = jnp.broadcast_to(beta, (model.components,))
    log_omega, sums_log_1mv = truncated_sticks(keys[2], counts.members, each_beta)
    sticks = model.member_components - 1
    if model.beta == "common":
        sticks, sums_log_1mv = sticks * model.components, jnp.sum(sums_log_1mv)
    of_betas = jnp.atleast_1d(sums_log_1mv)
    dtype = alpha.dtype
    drawn = gamma_variate(
        keys[3],
        jnp.full(1 + of_betas.size, model.a_beta + sticks, dtype)
        .at[0].set(model.a + model.components - 1),
        jnp.append(model.b - sum_log_1mv, model.b_beta - of_betas),
    )  # fmt: skip
    alpha, beta = drawn[0], drawn[1:].reshape(beta.shape)
    return NestedState(log_pi, log_omega, log_lambda, log_phi, alpha, beta, _completed(data))


def draw_level_probabilities(
    key: Key[Array, ""], counts: Augmented, data: NestedData, concentration: float = 1.0
) -> tuple[Float[Array, "Q F"], Float[Array, "R F S"]]:
    """Log level probabilities of households and of members, those known by their kind only among
    the counts.

    The gamma variates are drawn together: each draw apart is compiled, and waits, by itself.

    Parameters
    ----------
    concentration
        Of the symmetric Dirichlet priors of levels, or of groups; at least 1 is quicker.
    """
    num_member, num_classes = counts.member_levels.shape[0], counts.members.size
    of_levels = [counts.household_levels, counts.member_levels.reshape(num_member, num_classes)]
    groups = [data.household_groups, data.member_groups]
    of_groups = [
        x if own is None
        else jnp.zeros((sum(own.num_groups), x.shape[1]), x.dtype).at[own.group].add(x)
        for x, own in zip(of_levels, groups, strict=True)
    ]  # fmt: skip
    dtype = jnp.result_type(float)
    shapes = [concentration + x.astype(dtype) for x in of_groups]
    # Shares within groups are those of all classes.
    shapes += [
        1 + jnp.sum(x, axis=1).astype(dtype)
        for x, own in zip(of_levels, groups, strict=True) if own is not None
    ]  # fmt: skip
    if data.head is not None:
        variable, levels = data.head
        num_groups = data.member.num_levels
        if data.member_groups is not None:
            num_groups = data.member_groups.num_groups
        first = first_rows(num_groups)[variable]
        own = slice(first, first + len(levels))
        kind = jnp.asarray(levels, jnp.int32)
        of_kind = [jnp.sum(shapes[1][own][np.array(levels) == k], axis=0) for k in (0, 1)]
        unread = counts.unread.reshape(2, num_classes)
        shapes.append(jnp.stack(of_kind) + unread)
    flat = jnp.concatenate([x.reshape(-1) for x in shapes])
    log_g = loggamma_from_one(key, flat) if concentration >= 1 else loggamma(key, flat)
    ends = np.cumsum([x.size for x in shapes])[:-1]
    log_g = [x.reshape(y.shape) for x, y in zip(jnp.split(log_g, ends), shapes, strict=True)]
    found = []
    within = iter(log_g[2:])
    for j, (of_group, variable) in enumerate(
        zip(groups, (data.household_variable, data.member_variable), strict=True)
    ):
        if of_group is not None:
            variable = _variables(of_group.num_groups)
        log_levels = normalise_levels(log_g[j], variable)
        if j == 1 and data.head is not None:
            # Kinds have Dirichlet shares given all counts, the levels of one given those read only.
            log_share = jax.nn.log_softmax(log_g[-1], axis=0)
            of_kind = normalise_levels(log_g[j][own], kind)
            log_levels = log_levels.at[own].set(of_kind + log_share[kind])
        if of_group is not None:
            share = normalise_levels(next(within)[:, None], of_group.group)
            log_levels = log_levels[of_group.group] + share
        found.append(log_levels)
    return found[0], found[1].reshape(counts.member_levels.shape)


def update_order(model: NDPMPM, key: Key[Array, ""], state: NestedState) -> NestedState:
    """Exchange classes with their neighbours, weights and all: only the sticks know the order."""
    if not model.reorder:
        return state
    key_pi, key_omega = jax.random.split(key)
    order = reorder_classes(key_pi, state.log_pi, state.alpha)
    beta = jnp.broadcast_to(state.beta, (model.components,))
    nested = jax.vmap(reorder_classes)(
        jax.random.split(key_omega, model.components), state.log_omega, beta
    )
    return _reordered(state, order, nested)


def _reordered(state: NestedState, order, nested) -> NestedState:
    """Member classes in the order `nested` of each household class, then those in `order`."""
    nested = nested[order]
    rows = order[:, None], nested
    return NestedState(
        log_pi=state.log_pi[order],
        log_omega=state.log_omega[rows],
        log_lambda=state.log_lambda[:, order],
        log_phi=state.log_phi[:, *rows],
        alpha=state.alpha,
        beta=state.beta[order] if state.beta.ndim else state.beta,
        completed=state.completed,
    )


def simulate_possible(
    key: Key[Array, ""],
    draw: dict[str, Array],
    data: NestedData,
    left: Float[Array, " H"],
    lanes: int,
) -> tuple[Simulated, Bool[Array, " B"]]:
    """A batch of households given one kept draw, and which of them are possible.

    Parameters
    ----------
    draw
        Parameters.
    data
        The sample, of which only sizes and rules are used.
    left
        Of each size, in which proportion to simulate it: the households of one size do not depend
        on that.
    lanes
        Households at once.
    """
    key_draw, key_judge = jax.random.split(key)
    every = (
        Levels(data.household.num_levels, tuple(range(len(data.household.num_levels) - 1))),
        Levels(data.member.num_levels, tuple(range(len(data.member.num_levels)))),
    )
    parameters = [draw[name] for name in NESTED]
    tables = tables_of(*parameters, *every, data.head)
    sizes, _ = zip(*data.blocks, strict=True)
    log_size = draw["log_lambda"][data.household.size_rows]
    has_head = data.head is not None
    log_weight = log_class_weights(tables, log_size, sizes, has_head)
    log_weight = jax.nn.log_softmax(log_weight, axis=1) + jnp.log(left)[:, None]
    others = tuple(size - has_head for size in sizes)
    new = simulate_households(
        key_draw, tables, log_weight, others, lanes, lanes * MEMBERS_AT_ONCE + max(others), *every,
        has_head,
    )  # fmt: skip
    possible = new.used
    if data.possible is not None:
        possible = possible & _judge(data)(new, key_judge)
    return new, possible
