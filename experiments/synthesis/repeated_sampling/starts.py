"""Does TNPLCM miss a better mode? python experiments/synthesis/repeated_sampling/starts.py

Chains on samples of 5,000 from a random start, and from the state of a chain on 60,000 persons of
the population, which has classes that a small sample's chain might never find.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import bnp_models as bnp

HERE = Path(__file__).parent
BLOCKS, EVERY = 40, 100


@partial(jax.jit, static_argnames="model")
def trace(model, key, state, data):
    """Log-likelihood and classes after every hundredth of 4,000 sweeps."""

    def sweep(i, carry):
        return model.sweep(jax.random.fold_in(key, i), carry[0], data, i)

    def block(carry, b):
        carry = jax.lax.fori_loop(b * EVERY, (b + 1) * EVERY, sweep, carry)
        return carry, (carry[1].log_likelihood, carry[1].components)

    first = model.sweep(key, state, data, 0)
    return jax.lax.scan(block, first, jnp.arange(BLOCKS))[1]


def main():
    population, model = bnp.datasets.census_income(), bnp.TNPLCM()

    def sample(n, seed):
        table = bnp.Microdata.from_frame(population.sample(n, seed))
        return table, bnp.read_conditions(HERE / "conditions.csv", table.schema)

    table, zeros = sample(60_000, 999)
    large = bnp.sample(
        model, table, key=jax.random.key(1), conditions=zeros, num_chains=1, num_warmup=900,
        num_samples=1,
    )  # fmt: skip
    print("classes at n = 60,000:", int(large.draws["components"][0, 0]))
    for seed in (0, 1):
        table, zeros = sample(5000, seed)
        data = model.prepare(table, zeros)
        random_start = model.init(
            jax.random.key(5), data, model.components, jnp.asarray(model.components)
        )
        for name, start in (
            ("random start", random_start),
            ("start from n = 60,000", jax.tree.map(lambda leaf: leaf[0], large.state)),
        ):
            log_likelihood, classes = map(
                np.asarray, trace(model, jax.random.key(7 + seed), start, data)
            )
            half = BLOCKS // 2
            print(
                f"sample {seed}, {name}: log-likelihood {log_likelihood[half:].mean():.0f} "
                f"(sd {log_likelihood[half:].std():.0f}), classes {classes[0]} at first,"
                f" {classes[half:].mean():.1f} in the second half",
                flush=True,
            )


if __name__ == "__main__":
    main()
