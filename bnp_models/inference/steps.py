"""Models as pairs of functions, and pairs of functions as models.

`kernel_of` gives the functions of a model to a loop that you write yourself. `model_of_steps` makes
a model of functions that you write yourself, so that `sample` can run its chains, with checkpoints,
resuming, progress bars and diagnostics.
"""

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import Any, ClassVar, Generic, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.frames import Tabular
from bnp_models.inference.sampling import check_input, coded_input
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.models.model import (
    ConditionsT,
    DataT,
    Draw,
    FixedComponents,
    Growing,
    InfoT,
    Model,
    PredictsCells,
    StateT,
    TableT,
)
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros


class KernelState(NamedTuple, Generic[StateT]):
    """State of a chain outside the driver."""

    chain: StateT
    """State of the model."""
    sweeps: Int[Array, ""]
    """Sweeps made."""


class Kernel(NamedTuple, Generic[StateT, InfoT]):
    """A model's chain on one sample as pure functions, like the kernels of blackjax.

    Examples
    --------
    >>> init, step, keep = bnp.kernel_of(model, table)
    >>> shapes = jax.eval_shape(init, jax.random.key(0))
    >>> shapes.sweeps.dtype.name
    'int32'
    """

    init: Callable[[Key[Array, ""]], KernelState[StateT]]
    """``init(key) -> state``."""
    step: Callable[[Key[Array, ""], KernelState[StateT]], tuple[KernelState[StateT], InfoT]]
    """``step(key, state) -> (state, info)``: one sweep, which leaves the posterior invariant."""
    keep: Callable[[KernelState[StateT], InfoT], dict[str, Array]]
    """``keep(state, info)``: quantities of a sweep by name, of which a `Run` keeps some."""


def kernel_of(
    model: Model[TableT, ConditionsT, DataT, StateT, InfoT],
    table: Tabular,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    *,
    capacity: int | None = None,
    num_components: int | None = None,
) -> Kernel[StateT, InfoT]:
    """Return the functions that run one chain of a model, for a loop that you write yourself.

    Parameters
    ----------
    model, table, conditions
        As for `sample`.
    capacity
        Number of components that the arrays have room for; by default the minimum of the model.
        Unlike in `sample`, the arrays do not grow: if ``info.left_over`` is above 1e-4, begin again
        with a larger capacity.
    num_components
        Largest number of components of the initial state; by default the first number that the
        model recommends.

    Returns
    -------
    kernel
        Pure functions. `jax.jit`, `jax.lax.scan` and `jax.vmap` over keys and states work on them.
        The arrays of the sample are constants in them.

    Raises
    ------
    ValueError
        As `check_input` does.

    Notes
    -----
    Without warm-up, and with the keys that `sample` uses, a scan over the step makes the same draws
    as `sample`. During the warm-up `sample` does two more things: it shrinks arrays that have room
    for more components than the chains need, and it lets the model sort its components
    (`Model.settle`).

    Examples
    --------
    >>> kernel = bnp.kernel_of(model, table)
    >>> def two_steps(key):
    ...     state = kernel.init(jax.random.fold_in(key, 0))
    ...     state, _ = kernel.step(jax.random.fold_in(key, 1), state)
    ...     state, info = kernel.step(jax.random.fold_in(key, 2), state)
    ...     return kernel.keep(state, info)["alpha"]
    >>> jax.eval_shape(two_steps, jax.random.key(0)).shape  # jax.jit(two_steps) runs it
    ()
    """
    coded, limits = coded_input("kernel_of(model, table)", model, table, conditions)
    check_input(model, coded, limits)
    data = model.prepare(coded, limits)
    slots = model.capacity if capacity is None else capacity
    start = model.start_components[0] if num_components is None else num_components
    if isinstance(model, Growing) and num_components is None:
        start = min(start, int(slots * model.start_share))

    def init(key):
        return KernelState(model.init(key, data, slots, jnp.int32(start)), jnp.int32(0))

    def step(key, state):
        chain, info = model.sweep(key, state.chain, data, state.sweeps)
        return KernelState(chain, state.sweeps + 1), info

    def keep(state, info):
        return model.keep(state.chain, info)

    return Kernel(init, step, keep)


class StepsInfo(NamedTuple):
    """Second value of one step, and the figure that the driver reads."""

    own: Any
    """Second value of the step."""
    left_over: Float[Array, ""]
    """0, because the arrays always have enough slots."""


class Named:
    """A function that is identified by its code, so that it is the same in another process."""

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.function == other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        function = inspect.unwrap(self.function)
        while isinstance(function, partial):
            function = inspect.unwrap(function.func)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        code = getattr(function, "__code__", None)
        parts = [] if code is None else _parts(code)
        return f"<{name} {hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}>"


def _parts(code: CodeType) -> Iterator[bytes]:
    """Bytes of a function's code, without line numbers, file names and addresses."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        else:
            yield repr(constant).encode()


class Steps(FixedComponents):
    """A model made of a user's functions, by `model_of_steps`."""

    init_chain: Named = eqx.field(static=True)
    step_chain: Named = eqx.field(static=True)
    data_of: Named | None = eqx.field(static=True)
    kept: tuple[str, ...] = eqx.field(static=True)
    label: str = eqx.field(static=True)
    named_axes: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)

    parameters: ClassVar[tuple[str, ...]] = ()
    components: ClassVar[int] = 1  # type: ignore[misc]
    takes_missing: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the model."""
        return self.label

    @property
    def scalars(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the kept quantities."""
        return self.kept

    @property
    def monitored(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the kept scalars, by which convergence is judged."""
        return self.kept

    @property
    def axes(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        """Names of the axes of the kept arrays."""
        return dict(self.named_axes)

    def prepare(self, table, conditions=None):
        """Data of the functions; an empty array if the functions contain their data."""
        return jnp.zeros(0) if self.data_of is None else self.data_of(table)

    def init(self, key, data, capacity, num_components):
        """State of one chain."""
        return self.init_chain(key, *self._given(data))

    def sweep(self, key, state, data, iteration):
        """One step of one chain."""
        returned = self.step_chain(key, state, *self._given(data))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(f"step must return (state, info), not {type(returned).__name__}")
        _check_form(state, returned[0])
        return returned[0], StepsInfo(returned[1], jnp.zeros(()))

    def keep(self, state, info):
        """Arrays of the state and of the step's figures, at any depth, by name."""
        return _by_name(state, info.own)

    def _given(self, data) -> tuple:
        """Arguments with the data for the functions, if they take them."""
        return () if self.data_of is None else (data,)


class CellSteps(Steps, PredictsCells):
    """A model made of a user's functions, one of which gives the probabilities of cells."""

    log_probability: Named = eqx.field(static=True)
    simulate: Named | None = eqx.field(static=True)

    max_exact_variables: ClassVar[float] = math.inf
    scalars: ClassVar[tuple[str, ...]] = ()

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the kept quantities."""
        return self.kept

    def log_cell_probability(self, key, draw, cells, num_levels, *, method="exact", num_draws=0):
        """Log probabilities of cells, by the user's function."""
        return self.log_probability(draw, cells)

    def simulate_records(self, key, draw, num_records, num_levels, feasible=None):
        """New records: by the user's function, or from a list of all cells."""
        if self.simulate is not None:
            return self.simulate(key, draw, num_records)
        if math.prod(num_levels) > MOST_CELLS:
            raise ValueError(
                f"there are {math.prod(num_levels):,} cells, too many to draw records from a list "
                "of them; give model_of_steps a function simulate_records"
            )
        cells = jnp.asarray(list(np.ndindex(*num_levels)), jnp.int32)
        weight = jnp.exp(self.log_probability(draw, cells))
        cumulative = cumulative_sum(weight)[None]
        u = uniform(words(key, (num_records,)))
        drawn, _ = search_cumulative(cumulative, jnp.zeros(num_records, jnp.int32), u)
        return cells[drawn].T


MOST_CELLS = 2**20
"""Largest number of cells of which all are listed to draw records."""


def _check_form(old: Any, new: Any) -> None:
    """Raise TypeError unless a step returns a state of the form that it was given."""
    given, returned = (str(jax.tree.structure(state)) for state in (old, new))
    if given != returned:
        raise TypeError(
            f"step returns a state of another structure, {returned}, than init, {given}"
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(old), jax.tree.leaves(new), strict=True)
    for (path, before), after in pairs:
        forms = [f"{jnp.result_type(x)} of shape {jnp.shape(x)}" for x in (before, after)]
        if forms[0] != forms[1]:
            field = jax.tree_util.keystr(path, simple=True, separator=".") or "itself"
            raise TypeError(
                f"the state that step returns has another form than that of init: {field} was "
                f"{forms[0]} and is {forms[1]}"
            )


def _by_name(state: Any, info: Any) -> dict[str, Array]:
    """Arrays of a state and of the figures of a step, by the names of their fields.

    An array within a field has two names: its own, and the whole path such as "position.mu". If
    several arrays have one name, it stands for the one with the shortest path, and of these for the
    one of the state.
    """
    found = [
        ([jax.tree_util.keystr((part,), simple=True) for part in path], array)
        for tree in (state, info)
        for path, array in jax.tree_util.tree_leaves_with_path(tree)
        if path
    ]
    named: dict[str, Array] = {}
    for path, array in sorted(found, key=lambda entry: len(entry[0])):
        for name in (path[-1], ".".join(path)):
            named.setdefault(name, jnp.asarray(array))
    return named


def model_of_steps(
    init: Callable[..., Any],
    step: Callable[..., Any],
    *,
    keep: Sequence[str],
    prepare: Callable[[Any], Any] | None = None,
    name: str = "own",
    axes: Mapping[str, Sequence[str]] | None = None,
    log_cell_probability: Callable[[Draw, Array], Array] | None = None,
    simulate_records: Callable[[Array, Draw, int], Array] | None = None,
) -> Model:
    """Make a model from functions that you write yourself, for `sample`.

    Parameters
    ----------
    init
        ``init(key) -> state``: the initial state of one chain, a pytree of arrays.
    step
        ``step(key, state) -> (state, info)``, pure and jittable; it has to leave the posterior
        invariant, and the state that it returns has the structure, shapes and types of the one that
        it gets. State and info are dictionaries, named tuples or `equinox.Module`, which may
        contain others, as the states of blackjax do.
    keep
        Names of what is kept of each draw, of the arrays of state and info: "mu", or "position.mu"
        if several have the name "mu". Convergence is judged by those that are scalars.
    prepare
        Function of the coded table that returns the data, a pytree of arrays. If it is given, the
        functions are ``init(key, data)`` and ``step(key, state, data)``. Default: the functions
        contain their data.
    name
        Name of the model. A checkpoint belongs to a run whose model has the same name and whose
        functions have the same code. Other things that the functions use, such as global constants,
        are not compared: if they change, change the name.
    axes
        Names of the axes of kept arrays, after chain and draw, for ArviZ: ``{"theta": ["class",
        "variable_level"]}``. The axis "variable_level" is labelled with the levels of the sample.
    log_cell_probability
        ``log_cell_probability(draw, cells) -> (C,)``: log probabilities of cells for a new record,
        given one draw of all kept arrays by name. Cells are (C, J) level codes, -1 for any value.
        With it the risk, synthetic data and the log-likelihood for ``az.loo`` can be computed.
    simulate_records
        ``simulate_records(key, draw, num_records) -> (J, num_records)``: level codes of new records
        given one draw. Default: records are drawn from a list of all cells, of which there may be
        2**20.

    Raises
    ------
    TypeError
        If one of the functions is not a function.
    ValueError
        If `keep` is empty.

    Examples
    --------
    >>> def init(key):
    ...     return {"x": jax.random.normal(key)}
    >>> def step(key, state):
    ...     x = 0.5 * state["x"] + jax.random.normal(key)
    ...     return {"x": x}, {"square": x**2}
    >>> own = bnp.inference.model_of_steps(init, step, keep=["x", "square"])
    >>> chains = bnp.sample(own, table, key=jax.random.key(0), **short)
    >>> chains.draws["square"].shape
    (2, 20)
    >>> sorted(bnp.diagnose(chains).figures)
    ['square', 'x']
    """
    for argument, function in (
        ("init", init), ("step", step), ("prepare", prepare),
        ("log_cell_probability", log_cell_probability), ("simulate_records", simulate_records),
    ):  # fmt: skip
        optional = argument not in ("init", "step")
        if not callable(function) and not (optional and function is None):
            raise TypeError(f"{argument} must be a function, not {type(function).__name__}")
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    if not kept:
        raise ValueError("keep is empty: give the name of at least one array of state or info")
    named_axes = tuple((array, tuple(names)) for array, names in (axes or {}).items())
    of_steps: dict[str, Any] = {
        "init_chain": Named(init),
        "step_chain": Named(step),
        "data_of": None if prepare is None else Named(prepare),
        "kept": kept,
        "label": name,
        "named_axes": named_axes,
    }
    if log_cell_probability is None:
        return Steps(**of_steps)
    simulate = None if simulate_records is None else Named(simulate_records)
    return CellSteps(**of_steps, log_probability=Named(log_cell_probability), simulate=simulate)
