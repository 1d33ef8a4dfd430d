"""Nested Dirichlet process mixture of products of multinomials: persons within households.

    alpha, beta_g ~ Ga(a, b),  pi = sticks(alpha, F classes),  omega_g = sticks(beta_g, S classes)
    lambda_gk ~ Dir(c beta),   phi_gmk ~ Dir(c beta), with c and beta of each variable
    G_i ~ pi,                  M_ij ~ omega_{G_i}
    size and values of household i ~ lambda_{G_i},  values of its member j ~ phi_{G_i M_ij}

or, if all household classes share the member classes, which is the default,

    omega_g ~ Dir(c beta) with c and beta of the member classes,  values of member j ~ phi_{M_ij}

truncated to the households that a `bnp_models.Rules` leaves possible (Hu, Reiter & Wang 2018,
doi:10.1214/16-BA1047). The functions are pure: `jax.jit` can compile them, and `jax.vmap` can run
them over chains.
"""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from bnp_models.data.households import Households
from bnp_models.data.schema import MicrodataError, text_of
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.level_prior import learns_levels, mean_concentrations
from bnp_models.models.model import (
    Fitted,
    Levels,
    last_class_used,
    matters,
    too_many_augmented,
)
from bnp_models.models.nested.expectation_maximisation import maximise
from bnp_models.models.nested.missing import fill_in, update_missing
from bnp_models.models.nested.options import NestedOptions
from bnp_models.models.nested.predictions import (
    level_probabilities,
    simulate_possible,
    weight_households,
)
from bnp_models.models.nested.prepare import prepare_households, trees_of
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.models.nested.state import NESTED, NestedData, NestedInfo, NestedState
from bnp_models.models.nested.sweep import (
    augment,
    by_member_class,
    count_classes,
    draw_uniform,
    initial_member_class_shapes,
    reordered,
    update_classes,
    update_level_shapes,
    update_member_class_shapes,
    update_order,
    update_parameters,
)
from bnp_models.models.options import documented, fixed_or
from bnp_models.rules.rules import Rules

SIZE = "household size"
"""Name of the household variable for the number of members."""


@documented
class NDPMPM(NestedOptions):
    """The nested Dirichlet process mixture of products of multinomials.

    By default the sizes of households are random, and the model is truncated to the possible
    households of all sizes together. This differs from the sampler as printed in the paper, which
    draws the impossible households of each size separately, with classes that depend on the size.
    `sizes` chooses the model given the sizes, for samples whose design fixes them.

    With a learned prior of the levels, classes with few members use the information of all other
    classes. Two priors stay uniform because the data cannot determine them: that of the sizes if
    there are rules, and that of the share of heads in a class if every household has one head whom
    a variable of the members identifies; then only the levels of the others are learned.

    References
    ----------
    Hu, J., Reiter, J. P. & Wang, Q. (2018), doi:10.1214/16-BA1047. Cap-and-weight: Akande, O.,
    Barrientos, A. & Reiter, J. P. (2019), doi:10.1093/jssam/smy022.

    Examples
    --------
    >>> model = bnp.NDPMPM(components=10, member_components=5)
    >>> bnp.check_input(model, households)
    """

    name: ClassVar[str] = "ndpmpm"
    table_type: ClassVar[type] = Households
    conditions_type: ClassVar[type | None] = Rules
    takes_missing: ClassVar[bool] = True
    parameters_every: ClassVar[int] = 10
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "member_components", "alpha", "beta", "log_likelihood", "last_class",
        "last_member_class", "augmented",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = (*NESTED, "log_feasible", "completed")
    hyperparameters: ClassVar[tuple[str, ...]] = ("household_shape", "member_shape")
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "log_pi": ("household_class",),
        "log_omega": ("household_class", "member_class"),
        "log_lambda": ("household_variable_level", "household_class"),
        "log_phi": ("member_variable_level", "household_class", "member_class"),
        "beta": ("household_class",),
        "household_shape": ("household_variable_level",),
        "member_shape": ("member_variable_level",),
        "completed": ("missing_value",),
    }

    def check(self, table: Households) -> None:
        """Raise MicrodataError unless the options that depend on the table fit it."""
        trees_of(self, table.schema)
        if self.prior_possible >= table.n:
            raise MicrodataError(
                f"prior_possible (--prior-possible) is {self.prior_possible:,}, and must be less "
                f"than the number of households, {table.n:,}"
            )
        if self.relative:
            RelativeCoding(table.schema, self.relative).require_heads(table)

    def levels_of_axes(self, table: Households, conditions: Rules | None) -> dict[str, Levels]:
        """Variables and levels of households, their size last, and of members."""
        del conditions
        schema = table.schema
        sizes = tuple(block.size for block in table.size_blocks)
        member = dict(zip(schema.member_variables, schema.member_levels, strict=True))
        if self.relative:
            for pair in RelativeCoding(schema, self.relative).pairs:
                name = schema.member_variables[pair.member]
                codes = tuple(f"head's {pair.kind} {k}" for k in range(pair.num_levels))
                if not all(pair.applies):
                    both = zip(member[name], codes, strict=True)
                    codes = tuple(f"{text_of(level)} or {code}" for level, code in both)
                member[name] = codes
        household = dict(zip(schema.household_variables, schema.household_levels, strict=True))
        return {
            "household_variable_level": household | {SIZE: sizes},
            "member_variable_level": member,
        }

    def prepare(self, table: Households, conditions: Rules | None = None) -> NestedData:
        """Arrays of coded households, and of the rules on them."""
        self.check(table)
        return prepare_households(self, table, conditions)

    def init(
        self, key: Key[Array, ""], data: NestedData, capacity: int, num_components: Int[Array, ""]
    ) -> NestedState:
        """Initial state: random classes, from which shared member classes are maximised."""
        del capacity
        key_g, key_m, key_parameters = Keys(key, 3)
        limit = jnp.minimum(num_components, self.components)
        g = draw_uniform(key_g, data.household_weight.shape, limit)
        m = draw_uniform(key_m, data.member_weight.shape, self.member_components)
        alpha = fixed_or(self.alpha, jnp.ones(()))
        beta = jnp.ones((self.components,) if self.beta == "class" else ())
        beta = fixed_or(self.fixed_beta, beta)
        shared = initial_member_class_shapes(self)
        counts = by_member_class(self, count_classes(self, g, m, data))
        shapes = data.household_levels.shape, data.member_levels.shape
        state = update_parameters(self, key_parameters, alpha, beta, shared, shapes, counts, data)
        return maximise(state, data) if self.shares_members else state

    def settle(self, state: NestedState, data: NestedData) -> NestedState:
        """Sort the classes by weight, the largest first; for the warm-up only.

        The stick-breaking prior gives the orders of the same classes different densities, so that
        sorting after every sweep would change the distribution of the draws.
        """
        del data
        order = jnp.argsort(-state.log_pi)
        if self.shares_members:
            return reordered(state, order)
        return reordered(state, order, jnp.argsort(-state.log_omega, axis=1))

    def sweep(
        self, key: Key[Array, ""], state: NestedState, data: NestedData, iteration: Int[Array, ""]
    ) -> tuple[NestedState, NestedInfo]:
        """Draw each conditional once, in an order that leaves the posterior invariant."""
        del iteration
        key_g, key_missing, key_augment, key_parameters, key_order, key_shapes = Keys(key, 6)
        data = fill_in(state, data)
        g, m, log_likelihood = update_classes(key_g, state, data)
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
        counts = by_member_class(self, jax.tree.map(jnp.add, counts, augmented))
        shared = state.member_class_shapes
        if self.shares_members:
            key_shapes, key_classes = Keys(key_shapes, 2)
            shared = update_member_class_shapes(self, key_classes, shared, counts)
        shapes = update_level_shapes(self, key_shapes, state, counts, data)
        state = update_parameters(
            self, key_parameters, state.alpha, state.beta, shared, shapes, counts, data
        )
        return update_order(self, key_order, state), info

    simulate_households = staticmethod(simulate_possible)
    level_probabilities = staticmethod(level_probabilities)
    weight_households = staticmethod(weight_households)

    def level_concentrations(self, run: Fitted[Households, Rules]) -> dict[str, float] | None:
        """Posterior mean, by variable, of the concentration of a learned prior of levels."""
        if not learns_levels(self) or "member_shape" not in run.draws:
            return None
        schema = run.table.schema
        data = self.prepare(run.table, run.conditions)
        names = schema.household_variables
        names += (SIZE,) if data.possible is None and self.sizes == "random" else ()
        return mean_concentrations(
            run.draws["household_shape"], data.household_levels, names
        ) | mean_concentrations(
            run.draws["member_shape"], data.member_levels, schema.member_variables
        )

    def warnings(self, run: Fitted[Households, Rules]) -> list[str]:
        """Sentences on full last classes and uncounted households."""
        draws = run.draws
        checks = (
            last_class_used(draws, run.table.n, "household"),
            self._last_member_class(draws, run.table.persons.n),
            too_many_augmented(draws),
        )  # fmt: skip
        return list(filter(None, checks))

    def _last_member_class(self, draws: dict[str, np.ndarray], num_members: int) -> str | None:
        """Warning of members in the last class of their household's class."""
        mean = float(np.mean(draws.get("last_member_class", 0)))
        # Shared member classes have no order, and none stands for further ones.
        if matters(mean, num_members) and not self.shares_members:
            return (
                f"too few member classes: on average, {mean:,.0f} of {num_members:,} members are "
                "in the last class of their household's class, which stands for all further "
                "classes; raise member_components (--member-components)"
            )
        return None
