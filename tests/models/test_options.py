"""Options of models: what they take, and what they refuse by name."""

import pytest

import bnp_models as bnp

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


@pytest.mark.parametrize("model", COUNTS)
def test_numbers_of_options_begin_where_they_say(model):
    """The least of each is taken, and one less is refused by the option's name."""
    for name, least in COUNTS[model].items():
        assert vars(model(**{name: least}))[name] == least
        with pytest.raises(ValueError, match=name):
            model(**{name: least - 1})
