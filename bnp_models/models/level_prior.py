"""The prior of level probabilities as an option of models: learned, uniform, or fixed."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.hierarchies import Hierarchies, as_hierarchies
from bnp_models.data.label_numbers import numbers_among, read_numbers
from bnp_models.data.schema import Label, MicrodataError, Schema
from bnp_models.kernels.variates.level_prior import draw_level_prior, update_level_prior
from bnp_models.kernels.variates.levels import Levels, Tree, bands_of_levels
from bnp_models.models.model import ConditionsT, DataT, Fitted, InfoT, Model, StateT, TableT
from bnp_models.models.options import as_names, check_fixed, option

# Least number of numeric levels of a variable that "auto" treats as ordered: with fewer levels,
# bands do not predict better (experiments/accuracy/ordered).
_MANY_NUMBERS = 13

# Largest number of other levels, such as "unknown", of a variable that "auto" treats as ordered.
_FEW_OTHERS = 2

LevelPrior: TypeAlias = Literal["learned", "uniform"]

LEVEL_PRIORS: tuple[str, ...] = get_args(LevelPrior)
"""Dir(c_j beta_j) with c_j and beta_j drawn, or Dir(1)."""


@runtime_checkable
class Ordered(Protocol):
    """A model whose variables may have groups of levels."""

    @property
    def ordered(self) -> str | tuple[str, ...]:
        """Variables with bands of adjacent levels: "auto", or names."""

    @property
    def groups(self) -> Hierarchies:
        """Groups of the levels of variables, by name."""


class Learning(Ordered, Protocol):
    """A model that may learn the prior of its levels."""

    @property
    def level_prior(self) -> str:
        """One of `LEVEL_PRIORS`."""

    @property
    def level_shape(self) -> Any:
        """Fixed shapes of the prior, or None."""


def learns_levels(model: Learning) -> bool:
    """Whether a model draws the shapes of the level probabilities' prior."""
    return model.level_prior == "learned" and model.level_shape is None


def document_of_prior(model: Learning) -> dict[str, Any]:
    """Entry of result files on the prior of level probabilities: its kind, and a fixed shape."""
    if model.level_shape is None:
        return {"kind": model.level_prior}
    return {"kind": "fixed", "shape": np.asarray(model.level_shape, float).tolist()}


def as_level_shape(given: Any) -> Any:
    """The option `level_shape` of a model: None, a number, or a tuple of numbers."""
    if given is None or isinstance(given, jax.Array) or np.ndim(given) == 0:
        return given
    return tuple(np.asarray(given).tolist())


def check_level_shape(level_shape: Any) -> None:
    """Raise ValueError unless the option is None, a positive number, or a sequence of them."""
    for value in level_shape if isinstance(level_shape, tuple) else (level_shape,):
        check_fixed(level_shape=value)


def under_prior(model: Learning, levels: Levels) -> Levels:
    """The levels of a model's variables with the initial, or fixed, shapes of their prior.

    Raises
    ------
    MicrodataError
        If `level_shape` has another number of values than there are nodes.
    """
    given, number = model.level_shape, levels.shape.size
    if given is None:
        return levels
    if np.ndim(given) and np.shape(given) != (number,):
        nodes = f"{number} levels and groups of levels" if levels.layers else f"{number} levels"
        raise MicrodataError(
            f"level_shape has {len(given)} values, and the variables have {nodes}; give as many, "
            "or one number for all"
        )
    return levels.with_shape(jnp.full_like(levels.shape, jnp.asarray(given)))


def draw_shape(model: Learning, key: Key[Array, ""], levels: Levels) -> Float[Array, " R+G"]:
    """Draw Dirichlet shapes from their prior, or return fixed shapes, which `levels` has."""
    return draw_level_prior(key, levels) if learns_levels(model) else levels.shape


def update_shape(
    model: Learning, key: Key[Array, ""], counts: Int[Array, "R K"], levels: Levels
) -> Float[Array, " R+G"]:
    """Draw Dirichlet shapes given counts of levels, with the level probabilities integrated out.

    The level probabilities must be drawn again before they are used. `levels` has the current
    shapes.
    """
    return update_level_prior(key, counts, levels) if learns_levels(model) else levels.shape


def as_ordered(names: str | Sequence[str]) -> str | tuple[str, ...]:
    """The option `ordered` of a model: "auto", or a tuple of names; "none" gives an empty tuple."""
    if names == "auto":
        return "auto"
    return () if names == "none" else as_names(names)


class Grouping(NamedTuple):
    """Variables of a model whose levels are in groups."""

    ordered: str | tuple[str, ...]
    """Variables whose groups are bands of adjacent levels; "auto": all that `are_numbers`."""
    groups: Hierarchies
    """Hierarchies of the variables whose groups have names."""

    @classmethod
    def of(cls, model: Ordered) -> "Grouping":
        """Return the ordered variables and the groups that the options of a model declare."""
        return cls(model.ordered, model.groups)

    def require_apart(self) -> None:
        """Raise ValueError if a variable is ordered and has groups with names."""
        for name, _ in self.groups:
            if name in self.ordered:
                raise ValueError(f"groups of {name!r} and ordered are both given; leave out one")

    def resolved(self, variables: Sequence[str], levels: Sequence[Sequence[Label]]) -> "Grouping":
        """Replace "auto" by the names of the ordered variables."""
        if self.ordered != "auto":
            return self
        found = zip(variables, levels, strict=True)
        names = [name for name, labels in found if are_numbers(labels)]
        return self._replace(ordered=tuple(x for x in names if x not in dict(self.groups)))

    def require_known(self, known: Sequence[str]) -> None:
        """Raise `MicrodataError` if a variable is not among those that can have groups."""
        named = () if self.ordered == "auto" else self.ordered
        for what, names in (("ordered", named), ("groups", dict(self.groups))):
            for name in names:
                if name not in known:
                    which = "be ordered" if what == "ordered" else "have groups"
                    raise MicrodataError(
                        f"cannot {which}, only {', '.join(known)} can; leave it out", column=name
                    )

    def trees(self, variables: Sequence[str], levels: Sequence[Sequence[Label]]) -> dict[int, Tree]:
        """Groups of the levels of these variables, by column.

        Raises
        ------
        MicrodataError
            If the levels of an ordered variable are numbers that are not in order, or a level is in
            no group.
        """
        trees: dict[int, Tree] = {}
        hierarchies, ordered = dict(self.groups), self.resolved(variables, levels).ordered
        for j, (name, labels) in enumerate(zip(variables, levels, strict=True)):
            if name in ordered:
                require_ordered(name, labels)
                trees[j] = bands_of_labels(labels)
            elif name in hierarchies:
                try:
                    trees[j] = hierarchies[name].tree(labels)
                except MicrodataError as error:
                    raise MicrodataError(error.problem, column=name) from None
        return trees


def trees_of(model: Ordered, schema: Schema) -> dict[int, Tree]:
    """Groups of the levels of a model's variables, by column.

    Raises
    ------
    MicrodataError
        As `Grouping.require_known` and `Grouping.trees`.
    """
    grouping = Grouping.of(model)
    grouping.require_known(schema.variables)
    return grouping.trees(schema.variables, schema.levels)


def ordered_names(model: Ordered, schema: Schema) -> tuple[str, ...]:
    """Names of a model's ordered variables, including those found by "auto"."""
    return tuple(Grouping.of(model).resolved(schema.variables, schema.levels).ordered)


def are_numbers(labels: Sequence[Label]) -> bool:
    """Whether there are many levels that are numbers in order, and few other levels.

    Neighbouring levels are then usually similar: ages in years, sums of money, and most codes.
    """
    numbers = numbers_among(labels)
    others = len(labels) - len(numbers)
    return len(numbers) >= _MANY_NUMBERS and others <= _FEW_OTHERS and numbers == sorted(numbers)


def bands_of_labels(labels: Sequence[Label]) -> Tree:
    """Bands of adjacent levels; among numbers, any other level is a band of its own."""
    is_number = [interval is not None for interval in read_numbers(labels)]
    if not any(is_number) or all(is_number):
        return bands_of_levels(len(labels))
    of_number = bands_of_levels(sum(is_number))
    if not of_number:
        return ()
    bands, of_level = iter(of_number[0]), []
    others = itertools.count(max(of_number[0]) + 1)
    for number in is_number:
        of_level.append(next(bands) if number else next(others))
    return (of_level,)


def require_ordered(name: str, labels: Sequence[Label]) -> None:
    """Raise `MicrodataError` if labels of numbers are not in order, such as 10-14 before 5-9."""
    numbers = numbers_among(labels)
    if numbers != sorted(numbers):
        raise MicrodataError(
            "the levels of an ordered variable are not in the order of their numbers "
            f"({', '.join(map(str, labels[:4]))}, ..); declare them in order (--levels)",
            column=name,
        )


def merge_rows(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Level probabilities (chains, draws, R, ...) with the merged level's value for each level.

    `groups` gives for each level (row) one level of its group, or -1 for a variable that is
    dropped; the levels of that variable get the value 1.
    """
    merged = np.ones_like(values)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        merged[:, :, members] = values[:, :, members].sum(axis=2, keepdims=True)
    return merged


def mean_concentrations(
    shape: np.ndarray, levels: Levels, names: Sequence[str]
) -> dict[str, float]:
    """Posterior means of c_j by variable, from kept shapes (chains, draws, nodes).

    Only variables with names are included. For a variable with groups, c_j is the concentration of
    the highest groups.
    """
    means = np.bincount(np.asarray(levels.group), shape.astype(float).mean(axis=(0, 1)))
    return {name: float(mean) for name, mean in zip(names, means, strict=False)}


class LevelPriorOptions(Model[TableT, ConditionsT, DataT, StateT, InfoT]):
    """Options for the prior of level probabilities, in all models of records and households."""

    level_prior: LevelPrior = option(
        "learned",
        """"learned": the level probabilities of components and classes are Dir(c_j beta_j), with a
        concentration and a mean of each variable that are estimated from the sample; "uniform":
        Dir(1), as in the papers.""",
        choices=LEVEL_PRIORS, command=True, kw_only=True,
    )  # fmt: skip
    level_shape: Any = option(
        None,
        """Dirichlet shape of the level probabilities, in place of level_prior: a positive number
        for all levels, or one for each level in the order of the variables and of their levels.
        Where levels lie in groups (`ordered`, `groups`), the numbers are those of the levels, then
        of the groups. With not_applicable, and for households, it must be one number; for
        households it is also the shape for sizes and heads. None: level_prior is used.""",
        command=True, kw_only=True, converter=as_level_shape,
    )  # fmt: skip
    ordered: str | tuple[str, ...] = option(
        "auto",
        """Variables whose neighbouring levels have similar probabilities. These probabilities are
        Dirichlet over bands of about sqrt(L_j) adjacent levels, and over the levels within each
        band. "auto": variables with more than a dozen numeric levels; "none"; or names. For a
        variable that is modelled relative to the head of a household, the relative codes are
        ordered, and so are the values of the heads.""",
        command=True, kw_only=True, converter=as_ordered,
    )  # fmt: skip
    groups: Hierarchies = option(
        (),
        """Groups of the levels of variables, by name: a frame or a CSV file whose first column has
        the levels, the next the group of each, the next the group of that, and so on. Level
        probabilities are then Dirichlet over the largest groups, over the groups within each, and
        so on down to the levels, so that the estimate for a level uses the other levels of its
        group. The variable of the heads has the same groups. A variable that is modelled relative
        to the head cannot have groups.""",
        command=True, kw_only=True, converter=as_hierarchies,
    )  # fmt: skip

    def __check_init__(self):
        check_level_shape(self.level_shape)
        Grouping.of(self).require_apart()

    def level_concentrations(self, run: Fitted[TableT, ConditionsT]) -> dict[str, float] | None:
        """Posterior mean, by variable, of the concentration of a learned prior of levels."""
        if not learns_levels(self) or "level_shape" not in run.draws:
            return None
        schema = run.table.schema if run.coding is None else run.coding.schema
        assert isinstance(schema, Schema)
        shape, trees = run.draws["level_shape"], trees_of(self, schema)
        levels = Levels.of_variables(schema.num_levels, trees)
        # The draws may have levels that the schema lacks: one for absent items, and one for each
        # weight class. Each counts here as a variable without a name, which is left out.
        more = shape.shape[-1] - levels.shape.size
        if more:
            levels = Levels.of_variables((*schema.num_levels, *[1] * more), trees)
        return mean_concentrations(shape, levels, schema.variables)
