"""A sample, synthetic files and the population that they stand for."""

import numpy as np
import pytest
from dependent import draw


@pytest.fixture(scope="module")
def files():
    """A sample, five files of another size, and the population."""
    rng = np.random.default_rng(0)
    return draw(rng, 400), [draw(rng, 300) for _ in range(5)], draw(rng, 20_000)
