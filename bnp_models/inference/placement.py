"""Placement of arrays on devices: chains over one axis of a mesh, records over the other."""

import dataclasses
import math
import operator
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bnp_models.inference import processes
from bnp_models.inference.processes import TreeT

ArgumentT = TypeVar("ArgumentT")

ResultT = TypeVar("ResultT")


def describe_devices(devices: Sequence[jax.Device]) -> str:
    """Number and kind of the devices, as pages show them."""
    kinds = [device.device_kind for device in devices]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def record_axes(tree: object, num_leading: int = 0) -> list[int | None]:
    """Axis of each leaf that runs over records, after `num_leading` other axes; None: no such axis.

    The fields of `tree` declare it: ``eqx.field(metadata={"record_axis": axis})``. A leaf that does
    not have this axis, such as a concentration that all records share, gets None.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    if not dataclasses.is_dataclass(tree):
        return [None] * len(leaves)
    declared = {f.name: f.metadata.get("record_axis") for f in dataclasses.fields(tree)}
    axes = [declared[path[0].name] for path, _ in leaves]
    return [
        None if axis is None or leaf.ndim <= num_leading + axis else num_leading + axis
        for axis, (_, leaf) in zip(axes, leaves, strict=True)
    ]


class Placement:
    """Places of arrays: chains over one axis of a mesh of devices, records over the other.

    If there are several processes, each has its share of the chains and its own devices. On CPUs
    each chain is a group of its own, with a program for one chain. Threads run several chains at a
    time on all cores, which takes half the time of one program for all chains. On other devices,
    and if records are divided among devices, all chains are one group.
    """

    def __init__(self, num_chains: int, data: object, devices: Sequence[jax.Device]):
        self._mine = processes.share(num_chains)
        self._num_mine = self._mine.stop - self._mine.start
        pairs = zip(jax.tree.leaves(data), record_axes(data), strict=True)
        sizes = [leaf.shape[axis] for leaf, axis in pairs if axis is not None]
        chains = math.gcd(self._num_mine, len(devices))
        records = math.gcd(*sizes, len(devices) // chains) if sizes else 1
        self._apart = records == 1 and all(device.platform == "cpu" for device in devices)
        # CPU devices share their cores, so that one is enough.
        shape = (1, 1) if self._apart else (chains, records)
        self._mesh = jax.make_mesh(
            shape, ("chains", "records"), axis_types=(AxisType.Auto,) * 2,
            devices=devices[: math.prod(shape)],
        )  # fmt: skip

    def data(self, data: TreeT) -> TreeT:
        """Place the arrays of a table."""
        return self._put(data, leading=())

    def groups(self, tree: TreeT) -> list[TreeT]:
        """Place the states, or other arrays, of chains that run together: a tree for each group.

        Their leading axis is the chain. Each process places only its own chains.
        """
        if jax.process_count() > 1:
            tree = jax.tree.map(operator.itemgetter(self._mine), tree)
        size = 1 if self._apart else self._num_mine
        parts = [slice(begin, begin + size) for begin in range(0, self._num_mine, size)]
        return [self.group(jax.tree.map(operator.itemgetter(part), tree)) for part in parts]

    def group(self, tree: TreeT) -> TreeT:
        """Place the states, or other arrays, of the chains of one group."""
        return self._put(tree, leading=("chains",))

    def run(
        self,
        function: Callable[..., ResultT],
        *groups: Sequence[object],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[ResultT]:
        """Apply a function to the arguments of each group, several at a time; wait for the end.

        The function `meanwhile` is called once, while the groups run.
        """
        with ThreadPoolExecutor(_num_cores() if self._apart else 1) as threads:
            done = threads.map(lambda *group: jax.block_until_ready(function(*group)), *groups)
            meanwhile()
            return list(done)

    def _put(self, tree: TreeT, leading: tuple[str, ...]) -> TreeT:
        leaves, structure = jax.tree.flatten(tree)
        placed = []
        for leaf, axis in zip(leaves, record_axes(tree, len(leading)), strict=True):
            spec = [*leading] + [None] * (leaf.ndim - len(leading))
            if axis is not None:
                spec[axis] = "records"
            placed.append(jax.device_put(leaf, NamedSharding(self._mesh, PartitionSpec(*spec))))
        return jax.tree.unflatten(structure, placed)


def in_threads(
    function: Callable[[ArgumentT], ResultT], arguments: Iterable[ArgumentT]
) -> Iterator[ResultT]:
    """Yield what a function returns for each argument, in order: on CPUs several at a time.

    The first call runs alone because it compiles. Later, only a few results are computed before the
    caller takes them.
    """
    number = _num_cores() if jax.default_backend() == "cpu" else 1
    remaining = iter(arguments)
    with ThreadPoolExecutor(number) as threads:
        ahead: deque[Future] = deque()
        for argument in islice(remaining, 1):
            yield function(argument)
        for argument in remaining:
            ahead.append(threads.submit(function, argument))
            if len(ahead) > 2 * number:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _num_cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def join_groups(groups: Sequence[TreeT]) -> TreeT:
    """Join the trees of groups into one tree of all chains of all processes, in their order."""
    if len(groups) > 1:
        groups = [jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)]
    return processes.gather(groups[0])
