"""Placement of arrays on devices: chains over one axis of a mesh, records over the other."""

import math

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def describe_devices(devices) -> str:
    kinds = [device.device_kind for device in devices]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


class Placement:
    """Where arrays lie: chains over one axis of a mesh of devices, records over the other."""

    def __init__(self, model, num_chains: int, data, devices):
        self._model = model
        pairs = zip(jax.tree.leaves(data), model.record_axes(data), strict=True)
        lengths = [leaf.shape[axis] for leaf, axis in pairs if axis is not None]
        num_padded = max(lengths, default=1)
        chains = math.gcd(num_chains, len(devices))
        records = math.gcd(num_padded, len(devices) // chains)
        self._mesh = jax.make_mesh(
            (chains, records), ("chains", "records"), axis_types=(AxisType.Auto,) * 2,
            devices=devices[: chains * records],
        )  # fmt: skip

    def data(self, data):
        return self._put(data, leading=())

    def state(self, states):
        return self._put(states, leading=("chains",))

    def _put(self, tree, leading):
        axes = self._model.record_axes(tree)
        leaves, structure = jax.tree.flatten(tree)
        placed = []
        for leaf, axis in zip(leaves, axes, strict=True):
            spec = list(leading) + [None] * (leaf.ndim - len(leading))
            if axis is not None:
                spec[len(leading) + axis] = "records"
            placed.append(jax.device_put(leaf, NamedSharding(self._mesh, PartitionSpec(*spec))))
        return jax.tree.unflatten(structure, placed)
