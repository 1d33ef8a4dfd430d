"""Split and merge of components, parallel over records: the move that opens components.

One-item and one-table updates can hardly open a component: a free slot's theta comes from the
prior, and fits no whole record. This move proposes the split of a component in two that data have
shaped, or the merge of two, with the weights g_0 and the level probabilities integrated out.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.counting import (
    count_components,
    count_rows_by_component,
    order_free_sum,
)
from bnp_models.kernels.rng import uniform, word_pair, words

# Rounds of two-means that shape a proposal; more gain little acceptance.
LAUNCH_ROUNDS = 4

# Partners of a merge are proposed by its log posterior ratio over this.
PARTNER_TEMPERATURE = 10.0


def split_or_merge(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    table: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    weight: Int[Array, " n"],
    variable: Int[Array, " R"],
    num_records: Int[Array, ""],
    alpha0: Float[Array, ""],
    num_slots: int,
) -> tuple[Int[Array, "J n"], Bool[Array, ""]]:
    """One Metropolis-Hastings split or merge of components, given the seating.

    Parameters
    ----------
    key
        Used once.
    z, table
        Component of each item, and the item that opened its table (`kernels.tables.seat_items`).
    rows, weight, variable
        Row of theta of each item; 1 for a record, 0 for padding; the variable of each row.
    num_records
        Records, which come before the padding.
    alpha0
        Concentration of G_0.
    num_slots
        Slots for components, K.

    Returns
    -------
    z, accepted
        Both g_0 and theta must be redrawn before anything uses them.

    Notes
    -----
    After Jain & Neal (2004), doi:10.1198/1061860043001. Anchors: an item a, uniform; then, with
    probability one half each, an item b of its component (split) or of another one, chosen by how
    well the two would merge (merge). Two sets of level probabilities are shaped from the anchors
    by rounds of two-means on the tables of the component or pair: the launch state, a function of
    those tables and the anchors alone, so that it is the same for the reverse move. Every other
    table then takes a side independently, which makes the proposal's probability a product,
    computed in parallel.
    """
    dtype = alpha0.dtype
    num_items, num_padded = z.shape
    key_words, key_scalars = jax.random.split(key)
    side_words, priority = word_pair(key_words, z.shape)
    u = uniform(words(key_scalars, (5,)), dtype.type)
    real = jnp.broadcast_to(weight > 0, z.shape)
    opener = real & (table == jnp.arange(num_items)[:, None])
    counts = count_rows_by_component(rows, z, weight, (variable.size, num_slots))
    tables = count_components(z, opener, num_slots)
    active = tables > 0
    num_active = jnp.sum(active, dtype=jnp.int32)

    # Anchors.
    record = jnp.minimum((u[0] * num_records).astype(jnp.int32), num_records - 1)
    item = jnp.minimum((u[1] * num_items).astype(jnp.int32), num_items - 1)
    k_a = z[item, record]
    is_split = u[2] < 0.5
    partner = _partner_probability(k_a, counts, tables, variable, alpha0)
    k_other = jnp.argmax(jnp.cumsum(partner) > u[3] * jnp.sum(partner))
    k_b = jnp.where(is_split, k_a, k_other)
    free = jnp.argmin(active)
    k_new = jnp.where(is_split, free, k_other)
    b = jnp.argmax(jnp.where(real & (z == k_b), priority, 0).reshape(-1))
    item_b, record_b = b // num_padded, b % num_padded

    everyone = jnp.arange(num_padded)
    with_a = (everyone == record) & (table == table[item, record])
    with_b = (everyone == record_b) & (table == table[item_b, record_b])
    inside = real & ((z == k_a) | (z == k_b))
    possible = jnp.where(is_split, ~jnp.all(active), num_active > 1) & ~jnp.any(with_a & with_b)

    # Launch: two-means from the anchors, on whole tables.
    num_rows = variable.size
    levels = jnp.zeros(variable.size, dtype).at[variable].add(1)[variable]

    def count(mask):
        flat = jnp.zeros(num_rows, jnp.int32)
        return flat.at[rows.reshape(-1)].add(mask.reshape(-1).astype(jnp.int32))

    def by_variable(x):
        return jnp.zeros(num_rows, x.dtype).at[variable].add(x)[variable]

    total = count(inside)

    def log_theta(counts):
        return jnp.log((1 + counts.astype(dtype)) / (levels + by_variable(counts).astype(dtype)))

    def table_sums(row_score):
        """Score of each item's table: the sum over its items of the scores of their rows."""
        of_item = row_score[rows]
        return sum(jnp.where(table == table[j], of_item[j], 0) for j in range(num_items))

    def log_odds(side_1, num_1):
        """Log odds of side 1 of each item's table, given the tables on side 1."""
        prior = jnp.log(num_1.astype(dtype)) - jnp.log((num_tables - num_1).astype(dtype))
        return table_sums(log_theta(side_1) - log_theta(total - side_1)) + prior

    opener &= inside
    num_tables = jnp.sum(opener, dtype=jnp.int32)

    def with_anchors(side):
        return inside & ((side & ~with_a) | with_b)

    def tables_on(side):
        return jnp.sum(side & opener, dtype=jnp.int32)

    share = total.astype(dtype) / jnp.maximum(by_variable(total), 1).astype(dtype)

    def anchored(anchor):
        """Level probabilities half way between an anchor and the whole."""
        seen = count(anchor)
        return jnp.log(jnp.where(by_variable(seen) > 0, (share + seen) / 2, share) + 1e-3)

    def launch_round(_, side):
        return with_anchors(log_odds(count(side), tables_on(side)) > 0)

    side = with_anchors(table_sums(anchored(with_b) - anchored(with_a)) > 0)
    side = lax.fori_loop(0, LAUNCH_ROUNDS, launch_round, side)
    odds = log_odds(count(side), tables_on(side))

    # Proposal: every table but the anchors' takes a side on its own.
    v = uniform(side_words, dtype.type)
    drawn = jnp.log(v) - jnp.log1p(-v) < odds
    drawn = jnp.take_along_axis(drawn, table, axis=0, mode="promise_in_bounds")
    side = jnp.where(is_split, with_anchors(drawn), inside & (z == k_b))
    chosen = opener & ~with_a & ~with_b
    cost = jnp.where(chosen, jax.nn.softplus(jnp.where(side, -odds, odds)), 0)
    minus_log_q = order_free_sum(jnp.sum(cost, axis=0))

    # Acceptance: split against merged.
    c_1 = count(side)
    m_1 = tables_on(side)
    log_target = _log_split_ratio(total - c_1, c_1, variable, num_tables - m_1, m_1, alpha0)
    in_1 = jnp.sum(side, dtype=jnp.int32).astype(dtype)
    in_both = jnp.sum(inside, dtype=jnp.int32).astype(dtype)
    split_counts = counts.at[:, k_a].set(total - c_1).at[:, k_new].set(c_1)
    split_tables = tables.at[k_a].set(num_tables - m_1).at[k_new].set(m_1)
    reverse = _partner_probability(k_a, split_counts, split_tables, variable, alpha0)[k_new]
    log_ratio = log_target + minus_log_q + jnp.log(in_both) + jnp.log(reverse / in_1)
    log_accept = jnp.where(is_split, log_ratio, -log_ratio)
    accepted = possible & (jnp.log(u[4]) < log_accept)
    proposal = jnp.where(inside, jnp.where(is_split & side, k_new, k_a), z)
    return jnp.where(accepted, proposal.astype(z.dtype), z), accepted


def _partner_probability(k_a, counts, tables, variable, alpha0):
    """Probability of each other component as the partner of a merge: half of it by resemblance.

    The other half is uniform, so that no merge is ever nearly impossible to propose.
    """
    other = (tables > 0) & (jnp.arange(tables.size) != k_a)

    def gain(c_h, m_h):
        return -_log_split_ratio(counts[:, k_a], c_h, variable, tables[k_a], m_h, alpha0)

    score = jax.vmap(gain)(counts.T, jnp.where(other, tables, 1)) / PARTNER_TEMPERATURE
    alike = jax.nn.softmax(jnp.where(other, score, -jnp.inf))
    even = other / jnp.maximum(jnp.sum(other), 1)
    return jnp.where(other, (alike + even) / 2, 0)


def _log_split_ratio(c_0, c_1, variable, m_0, m_1, alpha0):
    """log p(split) - log p(merged): tables' partition and Dirichlet-multinomial likelihoods."""
    dtype = alpha0.dtype
    num_rows = variable.size
    levels = jnp.zeros(num_rows, dtype).at[variable].add(1)
    c_0, c_1, m_0, m_1 = (x.astype(dtype) for x in (c_0, c_1, m_0, m_1))
    t_0 = jnp.zeros(num_rows, dtype).at[variable].add(c_0)
    t_1 = jnp.zeros(num_rows, dtype).at[variable].add(c_1)
    exists = levels > 0
    extra = jnp.where(exists, levels - 1, 0)
    # Gamma(L + t_0) Gamma(L + t_1) / Gamma(L + t_0 + t_1), through a binomial coefficient.
    norms = (
        log_binomial(extra + t_0, extra + t_1)
        - log_gamma_ratio(levels + t_0 + t_1 + (levels == 0), extra)
        + lax.lgamma(jnp.maximum(levels, 1))
    )
    likelihood = jnp.sum(jnp.where(exists, norms, 0)) - jnp.sum(log_binomial(c_0, c_1))
    # Gamma(m_0) Gamma(m_1) / Gamma(m_0 + m_1)
    partition = jnp.log(m_0 + m_1) - jnp.log(m_0) - jnp.log(m_1) - log_binomial(m_0, m_1)
    return jnp.log(alpha0) + partition + likelihood


def log_binomial(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """log of (a + b)! / (a! b!), without the cancellation of three large log-gammas.

    Stirling's formula, whose leading terms combine to a log(1 + b/a) + b log(1 + a/b); log-gamma
    itself where a and b are small.
    """
    small = jnp.maximum(a, b) < 16
    x, y = jnp.maximum(a, b), jnp.minimum(a, b)
    low = lax.lgamma(x + y + 1) - lax.lgamma(x + 1) - lax.lgamma(y + 1)
    # y may be small while x is large: then y! by log-gamma and the rest as a ratio.
    high = log_gamma_ratio(jnp.maximum(x, 16) + 1, y) - lax.lgamma(y + 1)
    safe = jnp.maximum(y, 1)
    large = jnp.maximum(x, 16)
    leading = large * jnp.log1p(safe / large) + safe * jnp.log1p(large / safe)
    stirling = (
        leading
        + (jnp.log1p(large / safe) - jnp.log(2 * jnp.pi * large)) / 2
        + (1 / (large + safe) - 1 / large - 1 / safe) / 12
    )
    return jnp.where(small, low, jnp.where(y < 16, high, stirling))


def log_gamma_ratio(x: Float[Array, "..."], d: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Gamma(x + d) - log Gamma(x) for x > 0, d >= 0, accurate where x is much larger than d."""
    small = x < 16
    direct = lax.lgamma(x + d) - lax.lgamma(x)
    y = jnp.maximum(x, 16)
    series = (y - 0.5) * jnp.log1p(d / y) + d * (jnp.log(y + d) - 1) + (1 / (y + d) - 1 / y) / 12
    return jnp.where(small, direct, series)
