"""Labels that may not be what they seem."""

import numpy as np
import pytest

from bnp_models.data.labels import label_warnings
from bnp_models.data.messages import as_option
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
        (("1", "n/a", ".", ".a", "?"), ["n/a", ".", ".a", "?"]),
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
        option = as_option(f"a={code}" for code in codes)
        assert f"(--missing {option})" in found[0] and "(2 records)" in found[0]
        assert label_warnings(table_of(labels), {"a": codes}) == []


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
    (only,) = label_warnings(both, {"b": ["NA"]}, {("a", "NA"): words})
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
