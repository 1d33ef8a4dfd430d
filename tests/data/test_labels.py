"""Labels that may not be what they seem."""

import pytest

from bnp_models.data.labels import label_warnings
from bnp_models.data.schema import Schema


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        (("a", "NA"), ["NA"]),
        (("1", "n/a", ".", ".a", "?"), ["n/a", ".", ".a", "?"]),
        ((1, 2, -9), ["-9"]),
        (("1", "12", "99"), ["99"]),
        ((0, 40, 998, 999), []),
        (("98", "99"), []),
        (("99",), []),
        (("None", "Some", "Nan1", "a.b"), []),
    ],
)
def test_codes_of_missing_values(labels, codes):
    found = label_warnings(Schema(("v",), (labels,)))
    assert len(found) == bool(codes)
    if codes:
        assert found[0].endswith("rename the label")
        assert f"--missing {','.join(codes)}," in found[0]


def test_one_label_spelt_twice():
    schema = Schema(("v", "w"), (("Paris", " paris", "Pa ris"), ("a", "b")))
    (found,) = label_warnings(schema)
    assert "'v'" in found and "'Paris' and ' paris'" in found and "'Pa ris'" not in found
