"""Several processes of one run, on one machine or on many.

Each process runs some of the chains on its own devices, and then receives the draws of all chains.
All processes do the computations that follow; only the first one writes the results.
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
    """Connect this process with the others; call it before JAX computes anything.

    Parameters
    ----------
    coordinator
        HOST:PORT of the first process; all processes get the same value.
    number
        Number of processes.
    index
        Index of this process, from 0.

    Raises
    ------
    ValueError, RuntimeError
        If an argument is left out and the environment does not provide it (Slurm, Open MPI and
        Kubernetes do, see `jax.distributed.initialize`), or if the processes cannot connect.
    """
    # Otherwise JAX would only note a SIGTERM and continue; older JAX does not have this option.
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(coordinator, number, index)


def is_first() -> bool:
    """Whether this process is the one that writes files and prints messages."""
    return jax.process_index() == 0


def share(num_chains: int) -> slice:
    """Chains of this process.

    Raises
    ------
    ValueError
        If the chains cannot be divided equally among the processes.
    """
    number, index = jax.process_count(), jax.process_index()
    if num_chains % number:
        raise ValueError(f"{num_chains} chains cannot be divided equally among {number} processes")
    size = num_chains // number
    return slice(size * index, size * (index + 1))


def gather(tree: TreeT, axis: int = 0) -> TreeT:
    """Collect the arrays of the chains of all processes; `axis` is the axis of the chains."""
    if jax.process_count() == 1:
        return tree

    def of_all(x):
        parts = multihost_utils.process_allgather(np.asarray(x))
        return np.concatenate(list(np.asarray(parts)), axis=axis)

    return jax.tree.map(of_all, tree)


def largest(*values: float) -> list[float]:
    """Largest value of each argument in any process; all processes get the same result."""
    if jax.process_count() == 1:
        return list(values)
    of_all = multihost_utils.process_allgather(np.array(values, np.float32))
    return np.max(of_all, axis=0).tolist()
