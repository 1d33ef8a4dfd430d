"""Several processes of one run, on one machine or on many.

Each runs some of the chains on its own devices, and all hold the results of all: what follows from
these is done by each alike, and written by the first.
"""

from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

TreeT = TypeVar("TreeT")
"""A tree of arrays."""


def connect(
    coordinator: str | None = None, number: int | None = None, index: int | None = None
) -> None:
    """Connect this process with the others, before JAX computes anything.

    Parameters
    ----------
    coordinator
        HOST:PORT of the first process, the same for all.
    number
        Processes.
    index
        Of this one, from 0.

    Raises
    ------
    ValueError, RuntimeError
        If what is left out cannot be told from the environment, as it can under Slurm, Open MPI
        and Kubernetes (`jax.distributed.initialize`), or the processes do not meet.
    """
    # It would take a termination for a notice, and go on; older JAX has no such switch.
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(coordinator, number, index)


def is_first() -> bool:
    """Whether this process is the one that writes and speaks."""
    return jax.process_index() == 0


def share(num_chains: int) -> slice:
    """Chains of this process.

    Raises
    ------
    ValueError
        If the processes cannot have as many each.
    """
    number, index = jax.process_count(), jax.process_index()
    if num_chains % number:
        raise ValueError(f"{num_chains} chains: {number} processes cannot have as many each")
    size = num_chains // number
    return slice(size * index, size * (index + 1))


def gather(tree: TreeT, axis: int = 0) -> TreeT:
    """Arrays of the chains of all processes, given those of this one; `axis` is the chain."""
    if jax.process_count() == 1:
        return tree

    def of_all(x):
        parts = multihost_utils.process_allgather(np.asarray(x))
        return np.concatenate(list(np.asarray(parts)), axis=axis)

    return jax.tree.map(of_all, tree)


def largest(*values: float) -> list[float]:
    """The largest value of each kind in any process, the same in all of them."""
    if jax.process_count() == 1:
        return list(values)
    of_all = multihost_utils.process_allgather(np.array(values, np.float32))
    return np.max(of_all, axis=0).tolist()
