"""Evidence by which the HDP decides on splits, in single against double precision, by records.

python experiments/quality/numbers/splits.py

The counts of two sides, of six variables: fifty records beside all others, two halves with the
same levels, and two sides of other levels. Writes ``splits.md`` beside this file; five seconds.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.mixed_membership.split_merge import _log_split_ratio
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.kernels.variates.levels import Levels

NUM_LEVELS = (2, 3, 4, 3, 2, 6)
VARIABLE = np.repeat(np.arange(6), NUM_LEVELS)


@jax.jit
def evidence(sides, shape, alpha0):
    """Log p(split) less log p(merged), a table for each record."""
    tables = (jnp.sum(side[: NUM_LEVELS[0]]) for side in sides)
    levels = Levels.of_variables(NUM_LEVELS).with_shape(shape)
    return _log_split_ratio(*sides, levels, *tables, alpha0)


def main():
    """Write the table."""
    rng = np.random.default_rng(1)
    one, other = ([rng.dirichlet(np.full(k, 0.6)) for k in NUM_LEVELS] for _ in range(2))

    def side(number, shares):
        drawn = [rng.multinomial(number, share) for share in shares]
        return jnp.asarray(np.concatenate(drawn), jnp.int32)

    rows = ["| sides | n | log ratio | error, nats |", "|---|---|---|---|"]
    for n in (10**3, 10**4, 10**5, 10**6, 10**8):
        pairs = {
            "fifty records and the rest": (side(50, other), side(n - 50, one)),
            "halves with the same levels": (side(n // 2, one), side(n // 2, one)),
            "other levels": (side(n * 6 // 10, one), side(n * 4 // 10, other)),
        }
        for what, sides in pairs.items():
            low = float(evidence(sides, jnp.full(len(VARIABLE), 0.6), jnp.ones(())))
            with double_precision():
                shape = jnp.full(len(VARIABLE), jnp.float32(0.6).astype(float))
                high = float(evidence(sides, shape, jnp.ones((), float)))
            rows.append(f"| {what} | {n:,} | {high:,.0f} | {abs(low - high):.0e} |")
    Path(__file__).with_name("splits.md").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
