"""Nested Dirichlet process mixture of products of multinomials: persons within households.

    alpha, beta_g ~ Ga(a, b),  pi = sticks(alpha, F classes),  omega_g = sticks(beta_g, S classes)
    lambda_gk ~ Dir(1),        phi_gmk ~ Dir(1)
    G_i ~ pi,                  M_ij ~ omega_{G_i}
    size and values of household i ~ lambda_{G_i},  values of its member j ~ phi_{G_i M_ij}

truncated to the households that a `bnp_models.Rules` leaves possible (Hu, Reiter & Wang 2018,
doi:10.1214/16-BA1047). The functions are pure: they jit, and vmap over chains.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from bnp_models.data.households import Households
from bnp_models.data.schema import unknown_variable
from bnp_models.kernels.nested.members import merge_plan
from bnp_models.kernels.nested.parameters import Levels
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.model import FixedComponents, MakesHouseholds
from bnp_models.models.nested.head_tables import head_of, head_tables
from bnp_models.models.nested.missing import fill_in, missing_by_block, update_missing
from bnp_models.models.nested.predictions import simulate_possible
from bnp_models.models.nested.prepare import distinct_members, variable_of_rows
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.models.nested.starts import complete_households
from bnp_models.models.nested.state import NESTED, Groups, NestedData, NestedInfo, NestedState
from bnp_models.models.nested.sweep import (
    augment,
    count_classes,
    draw_uniform,
    reordered,
    update_classes,
    update_order,
    update_parameters,
)
from bnp_models.models.options import check_choice, check_integer, check_positive
from bnp_models.models.warnings import last_class_used, those_given, too_many_augmented
from bnp_models.rules.head_forms import head_form
from bnp_models.rules.rules import Rules

BETAS = ("common", "class")


def _as_pairs(given):
    """A mapping or a sequence of names and pairs, hashable."""
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, str):
        given = (given,)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


class NDPMPM(FixedComponents, MakesHouseholds):
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
        another (`RelativeCoding`). Ages of couples, or races within
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
    table_type: ClassVar[type] = Households
    conditions_type: ClassVar[type | None] = Rules
    takes_missing: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    parameters_every: ClassVar[int] = 10
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "member_components", "alpha", "beta", "log_likelihood", "last_class",
        "last_member_class", "augmented",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = (*NESTED, "log_feasible", "completed")

    def __check_init__(self):
        check_integer(2, components=self.components, member_components=self.member_components)
        check_integer(1, impossible_weight=self.impossible_weight)
        check_positive(
            a=self.a, b=self.b, a_beta=self.a_beta, b_beta=self.b_beta,
            level_concentration=self.level_concentration,
        )  # fmt: skip
        check_choice(BETAS, beta=self.beta)
        for one in self.grouped:
            if isinstance(one, str) or len(one) != 2 or not isinstance(one[1], int) or one[1] < 1:
                raise ValueError(
                    f"grouped takes a number of levels for each variable, as in {{'age': 5}}, not "
                    f"{one!r}"
                )

    def check(self, table: Households) -> None:
        """Raise MicrodataError unless the options `relative` and `grouped` fit the table."""
        if self.relative:
            RelativeCoding(table.schema, self.relative).require_heads(table)
        known = {*table.schema.household_variables, *table.schema.member_variables}
        for name, _ in self.grouped:
            if name not in known:
                raise unknown_variable(name, sorted(known))

    def prepare(self, table: Households, conditions: Rules | None = None) -> NestedData:
        """Arrays of coded households."""
        self.check(table)
        rules, schema = conditions, table.schema
        relative = RelativeCoding(schema, self.relative) if self.relative else None
        at_household = at_member = np.zeros((2, 0), int)
        missing = ()
        order, of_member = table.order_by_size
        if table.has_missing:
            at_household = np.stack(np.nonzero((table.household_codes[order] < 0).T))
            at_member = np.stack(np.nonzero((table.member_codes[of_member] < 0).T))
            missing = missing_by_block(table.size_blocks)
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
            household_variable=variable_of_rows(num_household),
            member_variable=variable_of_rows(num_member),
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
            distinct=None if missing else distinct_members(member_codes),
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
        g = draw_uniform(key_g, (data.num_households,), limit)
        m = draw_uniform(key_m, data.member_codes.shape[1:], self.member_components)
        alpha = jnp.ones(())
        beta = jnp.ones((self.components,) if self.beta == "class" else ())
        counts = count_classes(self, g, m, data)
        return update_parameters(self, key_parameters, alpha, beta, counts, data)

    def settle(self, state: NestedState, data: NestedData) -> NestedState:
        """Sort the classes by weight: for warm-up only, the posterior is not invariant."""
        del data
        return reordered(state, jnp.argsort(-state.log_pi), jnp.argsort(-state.log_omega, axis=1))

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

    simulate_households = staticmethod(simulate_possible)

    def warnings(self, run: Any) -> list[str]:
        """Sentences on last classes in use, on what was not counted, and on cap-and-weight."""
        draws = run.draws
        return those_given([
            last_class_used(draws), self._last_member_class(draws), too_many_augmented(draws),
            self._weighted(),
        ])  # fmt: skip

    def _last_member_class(self, draws):
        mean = np.mean(draws["last_member_class"])
        if mean >= 1:
            return (
                f"too few member classes: on average, {mean:.1f} members are in the last "
                "class of their household's class, which takes all that the others leave; raise "
                "member_components (--member-components)"
            )

    def _weighted(self):
        if self.impossible_weight > 1:
            return (
                f"approximation: each impossible household drawn stands for "
                f"{self.impossible_weight} (cap-and-weight); leave out --impossible-weight for "
                "the exact posterior"
            )

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
