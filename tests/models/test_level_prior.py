"""Which variables are ordered by themselves, and the bands of their levels."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.models.level_prior import are_numbers, bands_of_labels, ordered_names

AGES = [str(age) for age in range(16, 40)]


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        (AGES, True),
        (list(range(13)), True),
        ([*AGES, "unknown"], True),
        ([f"{low}-{low + 4}" for low in range(0, 85, 5)] + ["85+"], True),
        (list(range(12)), False),
        ([*AGES, "unknown", "refused", "none"], False),
        (AGES[::-1], False),
        ([f"state {k}" for k in range(51)], False),
        ([], False),
    ],
)
def test_many_numbers_in_order_are_ordered(labels, answer):
    assert are_numbers(labels) is answer


def test_a_level_that_is_no_number_is_a_band_by_itself():
    (bands,) = bands_of_labels(["n/a", *range(9), "unknown"])
    assert bands == [3, 0, 0, 0, 1, 1, 1, 2, 2, 2, 4]
    assert bands_of_labels(list("abcd")) == ([0, 0, 1, 1],)
    assert bands_of_labels(["a", 1, 2]) == ()


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return bnp.Microdata.from_frame(pd.DataFrame({
        "age": rng.integers(20, 60, 500), "income": rng.integers(0, 30, 500) * 1000,
        "sex": rng.choice(["f", "m"], 500), "rooms": rng.integers(1, 6, 500),
    }))  # fmt: skip


@pytest.mark.parametrize(
    ("ordered", "names"),
    [("auto", ("age", "income")), ("none", ()), ("rooms", ("rooms",)), (["sex", "age"], None)],
)
@pytest.mark.parametrize("model", [bnp.HDPMixedMembership, bnp.MixedMembership, bnp.NPLCM])
def test_names_of_ordered_variables(model, table, ordered, names):
    found = ordered_names(model(ordered=ordered), table.schema)
    assert found == (tuple(ordered) if names is None else names)


def test_ages_are_ordered_by_default_and_have_bands(table):
    by_default = bnp.HDPMixedMembership().prepare(table).levels
    named = bnp.HDPMixedMembership(ordered=("age", "income")).prepare(table).levels
    plain = bnp.HDPMixedMembership(ordered="none").prepare(table).levels
    assert by_default.layers[0].of.tolist() == named.layers[0].of.tolist()
    assert not plain.layers


def test_groups_with_names_take_the_place_of_bands(table):
    decades = pd.DataFrame({"level": range(20, 60), "group": [k // 10 for k in range(20, 60)]})
    model = bnp.HDPMixedMembership(groups={"age": decades})
    assert ordered_names(model, table.schema) == ("income",)
    assert model.prepare(table).levels.layers[0].number == 4 + round(np.sqrt(30))


@pytest.mark.parametrize("model", [bnp.HDPMixedMembership(ordered="none"), bnp.NPLCM(2)])
def test_concentrations_of_levels_are_means_of_their_sums(model):
    """Over the draws, of the shapes of a variable's levels; those behind have no name."""
    schema = bnp.Schema(("a", "b"), ((0, 1), (0, 1, 2)))
    shape = np.arange(2 * 4 * 6, dtype=float).reshape(2, 4, 6)
    run = SimpleNamespace(
        draws={"level_shape": shape}, coding=None, table=SimpleNamespace(schema=schema)
    )
    expected = {"a": shape[..., :2].sum(axis=2).mean(), "b": shape[..., 2:5].sum(axis=2).mean()}
    assert model.level_concentrations(run) == pytest.approx(expected)
    assert type(model)(level_prior="uniform").level_concentrations(run) is None
