"""Labels that may not be what they seem."""

import shlex

import numpy as np
import pytest

from bnp_models.data.labels import as_numbers, label_warnings
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema


def table_of(*levels):
    """Records of variables a, b, .. in which each level occurs twice at least."""
    names = tuple("abcdefg"[: len(levels)])
    rows = np.arange(2 * max(map(len, levels)))
    codes = np.stack([rows % len(labels) for labels in levels], axis=1)
    return Microdata(Schema(names, levels), codes)


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        (("a", "NA"), ["NA"]),
        (("1", "n/a", ".", ".a"), ["n/a", ".", ".a"]),
        (("1", "--", "NULL", "(blank)"), ["--", "NULL", "(blank)"]),
        (("1", "<NA>", "\\N", "#DIV/0!", "?"), ["<NA>", "\\N", "#DIV/0!", "?"]),
        (("a", "*"), ["*"]),
        ((1, 2, -9), ["-9"]),
        (("1", "12", "99"), ["99"]),
        ((0, 40, 998, 999), ["998", "999"]),
        (("98", "99"), []),
        (("99",), []),
        (("None", "Some", "Nan1", "a.b"), []),
    ],
)
def test_codes_of_missing_values(labels, codes):
    found = label_warnings(table_of(labels))
    assert len(found) == bool(codes)
    if codes:
        assert found[0].endswith("--level in the place of --missing says so")
        # As a shell reads the option, the values are those that were found.
        said = shlex.split(found[0][found[0].index("(--missing ") + 1 :].partition("); where")[0])
        assert said == ["--missing", ",".join(f"a={code}" for code in codes)]
        assert "(2 records)" in found[0]
        told = as_numbers(table_of(labels).schema, {"a": codes})
        assert told == table_of(labels).schema and label_warnings(table_of(*told.levels)) == []


def test_one_label_spelt_twice():
    (found,) = label_warnings(table_of(("Paris", " paris", "Pa ris"), ("a", "b")))
    assert "'a'" in found and "'Paris' (2 records) and ' paris' (2 records)" in found
    assert "'Pa ris'" not in found


def test_codes_that_another_column_settles_are_no_values_that_are_not_known():
    words = "'a' is 'NA' in all 9 records with 'b' child and in no others"
    both = table_of(("x", "NA"), ("y", "NA"))
    (found,) = label_warnings(both, settled={("a", "NA"): words})
    assert f"{words}, which says that there is no value" in found
    assert "(--missing b=NA)" in found and "--missing a=NA --empty-as-level" in found
    only_a = table_of(*as_numbers(both.schema, {"b": ["NA"]}).levels)
    (only,) = label_warnings(only_a, {("a", "NA"): words})
    assert "not known" not in only


def test_dates_among_ranges():
    (found,) = label_warnings(table_of(("0-4", "05-Sep", "10+")))
    assert "05-Sep' was 5-9" in found


def test_one_sentence_of_each_kind_for_all_variables():
    missing, spelt = label_warnings(table_of(*[("0", "1", "NA", "x", " X")] * 5, ("3", "4", "-9")))
    assert missing.startswith("missing values? 'a' has 'NA' (2 records); 'b' has 'NA' (2 records);")
    assert "2 more variables among their levels; where a value is not known, say so" in missing
    assert "'e'" not in missing
    assert "(--missing a=NA,b=NA,c=NA,d=NA,e=NA,f=-9)" in missing
    assert spelt.startswith("one label or two? ") and "of 'd'; 1 more value; --normal" in spelt


@pytest.mark.parametrize(
    ("labels", "pair"),
    [
        (("0-14", "15-64", "65+", "18-29", "0-17"), "'0-14' (2 records) and '0-17' (2 records)"),
        (("0", "1", "2", "3", "3+"), "'3' (2 records) and '3+' (2 records)"),
        (("0-5", "5-10", "10+", "unknown"), None),
        (("<15", "15", "16", "17+"), None),
        (("0-14", "15-64", "65+", "65 and over"), None),
        (("North", "South"), None),
    ],
)
def test_ranges_that_overlap(labels, pair):
    found = [sentence for sentence in label_warnings(table_of(labels)) if "overlap" in sentence]
    assert found == ([f"two groupings? these ranges overlap: {pair} of 'a'; code all records alike"]
                     if pair else [])  # fmt: skip


def test_negative_numbers_among_others_are_no_codes():
    labels = tuple(str(x) for x in range(-100, 40, 3)) + ("-9", "-8")
    assert label_warnings(table_of(labels)) == []
    assert label_warnings(table_of((*map(str, range(30)), "-9", "-8"))) != []
