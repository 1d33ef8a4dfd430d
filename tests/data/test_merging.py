"""Top coding, and levels that few records have."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.bins import bin_columns, in_bins
from bnp_models.data.merging import merge_in_steps, merge_levels, own_levels
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError


def table_of(**columns):
    return Microdata.from_frame(pd.DataFrame(columns))


def labels(table, name):
    return table.to_frame()[name].tolist()


@pytest.mark.parametrize("text", [False, True])
def test_top_coding(text):
    ages = [3, 90, 84, 85, 17, 101]
    table = table_of(age=list(map(str, ages)) if text else ages, sex=list("abaabb"))
    changed, merged = merge_levels(table, {"age": 85})
    assert changed.schema.levels == (("3", "17", "84", "85+"), ("a", "b"))
    assert labels(changed, "age") == ["3", "85+", "84", "85+", "17", "85+"]
    assert merged["age"].groups() == {"85+": ["85", "90", "101"]} and list(merged) == ["age"]
    # Another file of the same kind: its own numbers above, or the level.
    other = table_of(age=["3", "120", "85+", "84"], sex=list("abab"))
    assert in_bins(other, merged).codes[:, 0].tolist() == [0, 3, 3, 2]
    with pytest.raises(MicrodataError, match="'age': value '4' is not a label of the original"):
        in_bins(table_of(age=["3", "4"], sex=list("ab")), merged)


def test_top_coding_leaves_what_is_no_number():
    table = table_of(hours=["none", "10", "70", "80", "none"])
    changed, _ = merge_levels(table, {"hours": 60})
    assert set(changed.schema.levels[0]) == {"none", "10", "60+"}
    assert labels(changed, "hours") == ["none", "10", "60+", "60+", "none"]


@pytest.mark.parametrize("rare", [0, 2])
def test_labels_before_and_after_the_numbers_keep_their_codes(rare):
    levels = ["none", "0-4", "55-59", "60", "75", "other", "Unknown"]
    ages = [level for level in levels for _ in range(2)]
    table = Microdata.from_frame(pd.DataFrame({"age": ages}), levels={"age": levels})
    changed, merged = merge_levels(table, {"age": 60}, rare=rare)
    left = ("none", "0-4", "55-59", "60+", "other", "Unknown")
    assert changed.schema.levels[0] == merged["age"].labels == left
    assert labels(changed, "age") == [
        {"60": "60+", "75": "60+"}.get(level, level) for level in ages
    ]  # fmt: skip
    # Numbers that the sample has not go with those from 60 on, and nothing else does.
    assert merged["age"].code(["80", 60, "60+", "Unknown", "55-59"]).tolist() == [3, 3, 3, 5, 2]
    assert merged["age"].code(["61-64", "over 70"]).tolist() == [3, 3]
    for other in ("58-64", "59", "unknown"):
        with pytest.raises(MicrodataError, match="is not a label of the original"):
            merged["age"].code([other])


def test_the_top_level_merged_with_a_label_beside_it_takes_all_larger_numbers():
    counts = {"10": 2, "20": 5, "30": 4, "60": 1, "75": 1, "Unknown": 3}
    ages = [age for age, number in counts.items() for _ in range(number)]
    table = Microdata.from_frame(pd.DataFrame({"age": ages}), levels={"age": list(counts)})
    changed, merged = merge_levels(table, {"age": 60}, rare=3, ordered=["age"])
    assert changed.schema.levels[0] == ("10 to 20", "30", "60+ + Unknown")
    assert changed.codes[:, 0].tolist() == [0] * 7 + [1] * 4 + [2] * 5
    assert merged["age"].code(["99", "60+", "Unknown", "75", "20"]).tolist() == [2, 2, 2, 2, 0]
    # Without an order it is among the rare ones.
    changed, merged = merge_levels(table, {"age": 60}, rare=3)
    assert changed.schema.levels[0] == ("20", "30", "Unknown", "other")
    assert merged["age"].code(["99", "Unknown", "10"]).tolist() == [3, 2, 3]


def test_rare_levels_without_an_order_become_one():
    table = table_of(job=list("aaaaabbbccd") + [None], one=list("xxxxxxyyyyyy"))
    changed, merged = merge_levels(table, rare=3)
    assert changed.schema.levels[0] == ("a", "b", "other") and list(merged) == ["job"]
    assert labels(changed, "job")[:-1] == list("aaaaabbb") + ["other"] * 3
    assert changed.codes[-1, 0] == -1
    # One rare level takes the next rarest with it: alone it would be what it was.
    changed, merged = merge_levels(table_of(job=list("aaaabbbc")), rare=2)
    assert changed.schema.levels[0] == ("a", "other")
    assert merged["job"].groups() == {"other": ["b", "c"]}
    # There may be such a level already.
    changed, merged = merge_levels(table_of(job=["Other", "Other", "a", "a", "b"]), rare=2)
    assert changed.schema.levels[0] == ("a", "Other")
    assert merged["job"].groups() == {"Other": ["b"]}
    # It takes the rare ones also where it has the most records, and the rare ones would do.
    changed, merged = merge_levels(table_of(job=["Other"] * 9 + list("aaabc")), rare=2)
    assert changed.schema.levels[0] == ("a", "Other")
    assert merged["job"].groups() == {"Other": ["b", "c"]}


def test_rare_levels_in_an_order_join_a_neighbour():
    ages = [1] * 5 + [2] * 4 + [3] + [4] * 2 + [5] * 6
    changed, merged = merge_levels(table_of(age=ages), rare=3)
    assert changed.schema.levels[0] == (1, 2, "3 to 4", 5)
    assert merged["age"].groups() == {"3 to 4": ["3", "4"]}
    changed, _ = merge_levels(table_of(age=ages), rare=5)
    assert changed.schema.levels[0] == (1, "2 to 4", 5)
    named = table_of(size=["small"] * 4 + ["middle"] + ["large"] * 2)
    levels = {"size": ["small", "middle", "large"]}
    named = Microdata.from_frame(named.to_frame(), levels=levels)
    changed, _ = merge_levels(named, rare=2, ordered=["size"])
    assert changed.schema.levels[0] == ("small", "middle + large")
    # Levels that are declared and that no record has stay.
    declared = Microdata.from_frame(pd.DataFrame({"age": ages}), levels={"age": range(8)})
    changed, _ = merge_levels(declared, rare=3)
    assert changed.schema.levels[0] == (0, 1, 2, "3 to 4", 5, 6, 7)


def test_every_level_holds_enough_after_both(sample_frame):
    table = Microdata.from_frame(sample_frame.assign(age=np.arange(150) % 70))
    changed, merged = merge_levels(table, {"age": 60}, rare=10, but=["race"])
    assert set(merged) >= {"age"} and "race" not in merged
    for j, name in enumerate(changed.schema.variables):
        if name != "race":
            counts = np.bincount(changed.codes[:, j], minlength=len(changed.schema.levels[j]))
            assert counts[counts > 0].min() >= 10, name
    # The same file again, and its raw labels.
    np.testing.assert_array_equal(in_bins(table, merged).codes, changed.codes)
    np.testing.assert_array_equal(in_bins(changed, merged).codes, changed.codes)


def test_top_coding_of_ranges():
    table = table_of(age=["0-14", "15-79", "80-84", "85+", "unknown"])
    changed, merged = merge_levels(table, {"age": 80})
    assert changed.schema.levels[0] == ("0-14", "15-79", "80+", "unknown")
    assert merged["age"].groups() == {"80+": ["80-84", "85+"]}
    for limit, said in ((82, "'80-84' has numbers below 82"), (90, r"'85\+' has numbers below")):
        with pytest.raises(MicrodataError, match=said):
            merge_levels(table, {"age": limit})
    with pytest.raises(MicrodataError, match=r"'12 or 13' \(1 record\) cannot be read"):
        merge_levels(table_of(age=["12 or 13", "80"]), {"age": 80})


@pytest.mark.parametrize("typed", [int, str])
def test_levels_of_their_own_are_kept_apart_from_the_numbers(typed):
    ages = [*range(20, 40), *[90] * 3, *[-9] * 2, *[9999] * 2]
    table = table_of(age=list(map(typed, ages)), sex=["f", "m", "f"] * 9)
    merged = own_levels(table, {"age": ["-9", "9999"]})
    own = in_bins(table, merged)
    assert own.schema.levels[0][-3:] == ("90", "-9", "9999") and own.schema.levels[1] == ("f", "m")
    changed, again = merge_levels(own, {"age": 80}, rare=3)
    assert changed.schema.levels[0][-4:] == ("36 to 39", "80+", "-9", "9999")
    assert again["age"].groups()["80+"] == ["90"]
    binned, bins = bin_columns(own, {"age": 2})
    assert binned.schema.levels[0][:2] == ("-9", "9999") and len(bins["age"].labels) == 4
    for levels, said in ({"age": ["98"]}, "has no value '98'"), ({"ages": ["9"]}, "unknown"):
        with pytest.raises(MicrodataError, match=said):
            own_levels(table, levels)


def test_what_cannot_be_merged():
    table = table_of(age=[1, 2, 3], sex=list("aba"))
    for top, said in (({"height": 3}, "unknown variable"), ({"age": 4}, "no number of 4 or more"),
                      ({"sex": 1}, "'sex': has no number")):  # fmt: skip
        with pytest.raises(MicrodataError, match=said):
            merge_levels(table, top)


def test_levels_merged_step_by_step():
    table = table_of(job=[*"abcd", None], n=[1, 2, 3, 2, 1])
    steps = [("job", ("c", "a"), "a + c"), ("n", ("1", "3"), "1 + 3"),
             ("job", ("a + c", "d"), "a + c + d")]  # fmt: skip
    changed, merged = merge_in_steps(table, steps)
    assert changed.schema.levels == (("a + c + d", "b"), ("1 + 3", "2"))
    assert changed.codes.T.tolist() == [[0, 1, 0, 0, -1], [0, 1, 0, 1, 0]]
    # A file in which they are merged already.
    other = table_of(job=["a + c + d", "b", "c"], n=["1 + 3", "2", "2"])
    assert in_bins(other, merged).codes.T.tolist() == [[0, 1, 0], [0, 1, 1]]
    with pytest.raises(MicrodataError, match="'x': unknown level; the levels are"):
        merge_in_steps(table, [("job", ("a", "b"), "c"), ("job", ("x", "c"), "y")])
    with pytest.raises(MicrodataError, match="'age': unknown variable"):
        merge_in_steps(table, [("age", ("a", "b"), "c")])


def test_rare_levels_are_merged_within_their_groups_first():
    codes = [f"{a}{b}" for a in "123" for b in "xyz"]
    counts = dict(zip(codes, (1, 2, 9, 1, 1, 1, 9, 9, 1), strict=True))
    frame = pd.DataFrame({"job": [code for code, k in counts.items() for _ in range(k)]})
    table = Microdata.from_frame(frame, levels={"job": [*codes, "3w", "4x"]})
    groups = pd.DataFrame(
        [(code, code[0], "low" if code[0] in "12" else "high") for code in [*codes, "3w", "4x"]],
        columns=["level", "group", "larger"],
    )
    changed, merged = merge_levels(table, rare=3, groups={"job": groups})
    # 1x and 1y suffice; all of group 2; the rarest of group 3 with the next rarest.
    assert merged["job"].groups() == {
        "1, other": ["1x", "1y"], "2": ["2x", "2y", "2z"], "3, other": ["3x", "3z"],
    }  # fmt: skip
    assert changed.schema.levels[0] == ("1, other", "1z", "2", "3, other", "3y", "3w", "4x")
    # Where a group has too few, with others of the larger one.
    changed, _ = merge_levels(table, rare=5, groups={"job": groups})
    assert changed.schema.levels[0] == ("low", "3, other", "3y", "3w", "4x")
    # What is left after the groups is merged with any.
    few = frame.iloc[:3].replace({"1y": "3y"})
    changed, _ = merge_levels(Microdata.from_frame(few), rare=2, groups={"job": groups})
    assert changed.schema.levels[0] == ("other",)
    with pytest.raises(MicrodataError, match="'job': level '1x' has no row"):
        merge_levels(table, rare=3, groups={"job": groups[1:]})
