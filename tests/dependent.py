"""Files of dependent records of four variables."""

import numpy as np

import bnp_models as bnp

NAMES = ("a", "b", "c", "d")
SCHEMA = bnp.Schema(NAMES, (tuple("xyz"), tuple("pq"), tuple("1234"), tuple("uvw")))


def draw(rng, rows, tilt=0.0):
    """Dependent records: `tilt` moves the dependence."""
    a = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    b = (rng.random(rows) < 0.3 + 0.2 * a + tilt * (a == 0)).astype(int)
    c = (a + rng.choice(4, rows, p=[0.6, 0.2, 0.1, 0.1])) % 4
    d = rng.choice(3, rows, p=[0.8, 0.15, 0.05])
    return bnp.Microdata(SCHEMA, np.stack([a, b, c, d], axis=1))
