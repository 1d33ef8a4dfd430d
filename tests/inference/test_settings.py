"""How often arrays are kept."""

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.trace import MOST_KEPT, interval_of_arrays


def table_of(number, size):
    names, levels = tuple(f"v{j}" for j in range(number)), tuple(range(size))
    codes = np.random.default_rng(0).integers(0, size, (9, number))
    return bnp.Microdata(bnp.Schema(names, (levels,) * number), codes)


@pytest.mark.parametrize(("variables", "every"), [(10, 1), (40, 4), (400, 31)])
def test_arrays_of_many_levels_are_kept_of_fewer_draws(variables, every):
    table, model = table_of(variables, 10), bnp.HDPMixedMembership()
    assert interval_of_arrays(model, table, 4, 1000) == every
    kept = 1000 // every * 4 * 4 * 10 * variables * model.capacity
    assert kept <= MOST_KEPT
    assert interval_of_arrays(model, table, 4, 10) == 1


def test_a_model_may_keep_fewer():
    assert interval_of_arrays(bnp.NDPMPM(), object(), 4, 1000) == 10
    assert interval_of_arrays(bnp.NDPMPM(), object(), 4, 3) == 3
