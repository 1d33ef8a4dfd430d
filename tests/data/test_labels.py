"""Labels that may not be what they seem."""

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
        (("a", "*"), ["'*'"]),
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
        assert found[0].endswith("rename the label")
        assert f"--missing {','.join(codes)}," in found[0] and "(2 records)" in found[0]
        told = as_numbers(table_of(labels).schema, {"a": {code.strip("'") for code in codes}})
        assert told == table_of(labels).schema and label_warnings(table_of(*told.levels)) == []


def test_one_label_spelt_twice():
    (found,) = label_warnings(table_of(("Paris", " paris", "Pa ris"), ("a", "b")))
    assert "'a'" in found and "'Paris' (2 records) and ' paris' (2 records)" in found
    assert "'Pa ris'" not in found


def test_dates_among_ranges():
    (found,) = label_warnings(table_of(("0-4", "05-Sep", "10+")))
    assert "05-Sep' was 5-9" in found


def test_one_sentence_of_each_kind_for_all_variables():
    missing, spelt = label_warnings(table_of(*[("0", "1", "NA", "x", " X")] * 5, ("3", "4", "-9")))
    assert missing.startswith("missing values? 'a' has 'NA' (2 records); 'b' has 'NA' (2 records);")
    assert "2 more variables among their levels; are they to be read" in missing
    assert "'e'" not in missing and "--missing NA,-9, else --level a=NA" in missing
    assert spelt.startswith("one label or two? ") and "of 'd'; 1 more value; --normal" in spelt
