"""Placement of arrays on devices: chains over one axis of a mesh, records over the other."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def describe_devices(devices: Sequence[jax.Device]) -> str:
    """Number and kind of the devices, as pages show them."""
    kinds = [device.device_kind for device in devices]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def record_axes(tree: Any, num_leading: int = 0) -> list[int | None]:
    """Axis of each leaf that runs over records, after `num_leading` others; None: none.

    The fields of `tree` say it: ``eqx.field(metadata={"record_axis": axis})``. A leaf without that
    axis, such as a concentration that all records share, has none.
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
    """Places of arrays: chains over one axis of a mesh of devices, records over the other."""

    def __init__(self, num_chains: int, data: Any, devices: Sequence[jax.Device]):
        pairs = zip(jax.tree.leaves(data), record_axes(data), strict=True)
        num_padded = max([leaf.shape[axis] for leaf, axis in pairs if axis is not None], default=1)
        chains = math.gcd(num_chains, len(devices))
        records = math.gcd(num_padded, len(devices) // chains)
        self._mesh = jax.make_mesh(
            (chains, records), ("chains", "records"), axis_types=(AxisType.Auto,) * 2,
            devices=devices[: chains * records],
        )  # fmt: skip

    def data(self, data: Any) -> Any:
        """Place the arrays of a table."""
        return self._put(data, leading=())

    def state(self, states: Any) -> Any:
        """Place the states of the chains, whose leading axis is the chain."""
        return self._put(states, leading=("chains",))

    def _put(self, tree: Any, leading: tuple[str, ...]) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        placed = []
        for leaf, axis in zip(leaves, record_axes(tree, len(leading)), strict=True):
            spec = [*leading] + [None] * (leaf.ndim - len(leading))
            if axis is not None:
                spec[axis] = "records"
            placed.append(jax.device_put(leaf, NamedSharding(self._mesh, PartitionSpec(*spec))))
        return jax.tree.unflatten(structure, placed)
