"""Models as pairs of functions, and pairs of functions as models.

`kernel_of` gives the functions of a model to a loop that you write yourself. `model_of_steps` makes
a model of functions that you write yourself, so that `sample` can run its chains, with checkpoints,
resuming, progress bars and diagnostics.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any, ClassVar, Generic, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.frames import Tabular
from bnp_models.inference.sampling import check_input, coded_input
from bnp_models.models.model import (
    ConditionsT,
    DataT,
    FixedComponents,
    Growing,
    InfoT,
    Model,
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

    def prepare(self, table, conditions=None):
        """Data of the functions; an empty array if the functions contain their data."""
        return jnp.zeros(0) if self.data_of is None else self.data_of(table)

    def init(self, key, data, capacity, num_components):
        """State of one chain."""
        return self.init_chain(key, *self._given(data))

    def sweep(self, key, state, data, iteration):
        """One step of one chain."""
        state, info = self.step_chain(key, state, *self._given(data))
        return state, StepsInfo(info, jnp.zeros(()))

    def keep(self, state, info):
        """All fields of the state and of the step's figures."""
        return _by_name(state) | _by_name(info.own)

    def _given(self, data) -> tuple:
        """Arguments with the data for the functions, if they take them."""
        return () if self.data_of is None else (data,)


def _by_name(value: Any) -> dict[str, Any]:
    """Fields of a dictionary, a named tuple or an object."""
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        return value._asdict()
    return dict(vars(value)) if hasattr(value, "__dict__") else {}


def model_of_steps(
    init: Callable[..., Any],
    step: Callable[..., Any],
    *,
    keep: Sequence[str],
    prepare: Callable[[Any], Any] | None = None,
    name: str = "own",
) -> Model:
    """Make a model from functions that you write yourself, for `sample`.

    Parameters
    ----------
    init
        ``init(key) -> state``: the initial state of one chain, a pytree of arrays.
    step
        ``step(key, state) -> (state, info)``, pure and jittable; it has to leave the posterior
        invariant. State and info are dictionaries, named tuples or `equinox.Module`.
    keep
        Names of the fields of state and info that are kept for each draw. Convergence is judged by
        those that are scalars.
    prepare
        Function of the coded table that returns the data, a pytree of arrays. If it is given, the
        functions are ``init(key, data)`` and ``step(key, state, data)``. Default: the functions
        contain their data.
    name
        Name of the model. A checkpoint belongs to a run whose model has the same name and whose
        functions have the same code. Other things that the functions use, such as global constants,
        are not compared: if they change, change the name.

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
    >>> sorted(bnp.convergence(chains))
    ['square', 'x']
    """
    for argument, function in (("init", init), ("step", step), ("prepare", prepare)):
        if function is not None and not callable(function):
            raise TypeError(f"{argument} must be a function, not {type(function).__name__}")
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    data_of = None if prepare is None else Named(prepare)
    return Steps(Named(init), Named(step), data_of, kept, name)  # type: ignore[call-arg]
