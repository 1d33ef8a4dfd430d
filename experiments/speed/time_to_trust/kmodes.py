"""The HDP with chains that start from clusters of the records, for comparison."""

import jax
import jax.numpy as jnp

import bnp_models as bnp
from bnp_models.kernels.numerics.counting import count_rows_by_component, first_rows
from bnp_models.models.mixed_membership.start import state_of_labels

ROUNDS = 20


class FromClusters(bnp.HDPMixedMembership):
    """The default model. Each chain starts from k-modes with seeds of its own.

    The number of clusters of a chain is its usual number of initial components. K-modes is that of
    Huang (1998, doi:10.1023/A:1009769707641): the mode of a cluster has the most frequent level of
    each variable, and a record joins the mode with which it shares most values.
    """

    def init(self, key, data, capacity, num_components):
        """Initial state: all values of a record are in the component of its cluster."""
        key_alpha, key_seeds = jax.random.split(key)
        used = jnp.arange(capacity) < jnp.minimum(num_components, int(capacity * self.start_share))
        return state_of_labels(self, key_alpha, data, capacity, k_modes(key_seeds, data, used))


def k_modes(key, data, used):
    """Cluster of each record; `used` says which clusters there may be. Complete records only."""
    likely = data.weight / jnp.sum(data.weight)
    seeds = jax.random.choice(key, data.weight.size, used.shape, replace=False, p=likely)

    def labels(modes):
        """The nearest mode of each record; the first of several."""
        differs = sum(x[:, None] != mode for x, mode in zip(data.rows, modes, strict=True))
        return jnp.argmin(jnp.where(used, differs, len(data.rows) + 1), axis=1)

    def one_round(_, modes):
        counts = count_levels(labels(modes), data, used.size)
        ends = zip(first_rows(data.num_levels), data.num_levels, strict=True)
        best = jnp.stack(
            [first + jnp.argmax(counts[first : first + n], axis=0) for first, n in ends]
        )
        return jnp.where(jnp.sum(counts[: data.num_levels[0]], axis=0) > 0, jnp.stack(best), modes)

    return labels(jax.lax.fori_loop(0, ROUNDS, one_round, data.rows[:, seeds]))


def count_levels(label, data, number):
    """Number of records by level and cluster."""
    label = jnp.broadcast_to(label, data.rows.shape)
    shape = data.levels.variable.size, number
    return count_rows_by_component(data.rows, label, data.weight, shape)
