"""Options of models: what they take, and what they refuse by name."""

import dataclasses
from typing import Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.models.options import options_of

COUNTS = {
    bnp.HDPMixedMembership: {
        "dish_stride": 0, "cell_stride": 0, "seating_every": 0, "split_merge_every": 0,
        "trajectory_steps": 0,
    },
    bnp.MixedMembership: {"components": 2, "dish_stride": 0, "seating_every": 0},
    bnp.NPLCM: {"components": 2, "split_merge_every": 0},
    bnp.TNPLCM: {"components": 2, "split_merge_every": 0},
    bnp.NDPMPM: {"components": 2, "member_components": 2},
}  # fmt: skip


REFUSED = [
    ({"alpha": 0}, "alpha must be a positive number, not 0"),
    ({"alpha": float("inf")}, "alpha must be a positive number, not inf"),
    ({"alpha": "0.3"}, "alpha must be a positive number, not '0.3'"),
    ({"level_shape": -1.0}, "level_shape must be a positive number, not -1.0"),
    ({"level_shape": (1.0, 0.0)}, "level_shape must be a positive number"),
]


@pytest.mark.parametrize("model", COUNTS)
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_fixed_must_be_positive(model, options, message):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_what_cannot_be_fixed():
    with pytest.raises(ValueError, match="alpha .* concentration \"shared\", not 'record'"):
        bnp.HDPMixedMembership(alpha=1.0, concentration="record")
    with pytest.raises(ValueError, match="level_shape must be one number .* not 2"):
        bnp.MixedMembership(level_shape=(1.0, 2.0), not_applicable=True)
    with pytest.raises(ValueError, match="beta must be a positive number"):
        bnp.NDPMPM(beta=0.0)
    table = bnp.Microdata.from_frame(pd.DataFrame({"a": [0, 1], "b": ["x", "y"]}))
    with pytest.raises(ValueError, match="level_shape has 3 values, and the variables have 4"):
        bnp.NPLCM(level_shape=[1.0, 2.0, 3.0]).prepare(table)


@pytest.mark.parametrize("several", [np.array([1.0, 2.0]), jnp.array([1, 2])])
def test_an_array_is_no_hyperparameter(several):
    message = r"^a must be one positive number, not an array of shape \(2,\); jax.vmap fits"
    with pytest.raises(ValueError, match=message):
        bnp.NPLCM(a=several)
    # A model for each of the two.
    models = jax.vmap(lambda a: bnp.NPLCM(a=a))(jnp.asarray(several, float))
    np.testing.assert_array_equal(models.a, several)


@pytest.mark.parametrize("model", COUNTS)
def test_a_model_shows_all_its_options(model):
    made = model(a=jnp.array(1.5))
    shown = repr(made)
    for name in options_of(model):
        value = "1.5" if name == "a" else repr(vars(made)[name])
        assert f"{name}={value}" in " ".join(shown.split())


@pytest.mark.parametrize("model", COUNTS)
def test_types_of_options_are_their_choices(model):
    """So that an editor offers them, and a type checker refuses others."""
    for field in dataclasses.fields(model):
        declared = field.metadata.get("option", {}).get("choices", ())
        kinds = (field.type, *get_args(field.type))
        written = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
        assert written == ([declared] if declared else [])


@pytest.mark.parametrize("model", COUNTS)
def test_numbers_of_options_begin_where_they_say(model):
    """The least of each is taken, and one less is refused by the option's name."""
    for name, least in COUNTS[model].items():
        assert vars(model(**{name: least}))[name] == least
        with pytest.raises(ValueError, match=name):
            model(**{name: least - 1})


@pytest.mark.parametrize("model", COUNTS)
def test_every_field_is_an_option_and_in_the_docstring(model):
    options = options_of(model)
    assert options.keys() == {field.name for field in dataclasses.fields(model)}
    described = model.__doc__.split("Parameters")[1].split("References")[0]
    named = {
        name for line in described.splitlines() if line[:5].strip() for name in line.split(",")
    }
    assert options.keys() <= {name.strip() for name in named}
    assert all(vars(model())[name] == one.default for name, one in options.items()
               if name not in ("ordered", "member_components"))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "number"),
    [({}, 40), ({"member_classes": "nested"}, 15), ({"member_components": 3}, 3)],
)
def test_default_number_of_member_classes(options, number):
    model = bnp.NDPMPM(**options)
    assert model.member_components == number
    assert model.member_classes == options.get("member_classes", "shared")
    assert number not in jax.tree.leaves(model)
