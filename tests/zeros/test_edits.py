"""The fewest values to set free, against all sets of values of small records."""

import itertools

import numpy as np
import pandas as pd
import pytest
from latent import all_cells
from regions import by_definition, enumerated, homes, numbered_schema, random_conditions

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.edits import fewest_edits
from bnp_models.zeros.structural_zeros import StructuralZeros

pytestmark = pytest.mark.filterwarnings("error")


def smallest_sets(record, feasible):
    """All smallest sets of known values without which some feasible cell (rows) has the others."""
    known = np.flatnonzero(record >= 0)
    for size in range(len(known) + 1):
        found = []
        for some in itertools.combinations(known.tolist(), size):
            rest = [j for j in known if j not in some]
            if (feasible[:, rest] == record[rest]).all(axis=1).any():
                found.append(some)
        if found:
            return found
    raise AssertionError("no cell is feasible")


def small_tables(number, seed, missing=True):
    """Random records, complete or not, with structural zeros, and the feasible cells."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        num_levels, conditions = random_conditions(rng)
        cells = all_cells(num_levels)
        feasible = cells[~enumerated(conditions, num_levels).ravel()]
        if len(feasible):
            zeros = StructuralZeros.from_codes(conditions, numbered_schema(num_levels))
            codes = rng.integers(-1 if missing else 0, num_levels, (25, len(num_levels)))
            yield Microdata(zeros.schema, codes), zeros, feasible


def freed_of(table, edits):
    """The values that were set free by record, as sets of columns."""
    freed = (edits.table.codes < 0) & (table.codes >= 0)
    return [tuple(np.flatnonzero(row).tolist()) for row in freed]


@pytest.mark.parametrize("missing", [False, True])
def test_the_sets_are_smallest_ones(missing):
    sizes = []
    for table, zeros, feasible in small_tables(120, 3, missing):
        before = table.codes.copy()
        edits = fewest_edits(table, zeros, seed=1)
        np.testing.assert_array_equal(table.codes, before)
        for record, freed, after in zip(
            table.codes, freed_of(table, edits), edits.table.codes, strict=True
        ):
            assert freed in smallest_sets(record, feasible)
            kept = after >= 0
            np.testing.assert_array_equal(after[kept], record[kept])
            assert (feasible[:, kept] == record[kept]).all(axis=1).any()
            sizes.append(len(freed))
    # Possible records were met, and those with one and with two values to set free.
    assert min(np.bincount(sizes)[:3]) > 20


def test_each_value_that_is_set_free_has_a_row():
    for table, zeros, _ in small_tables(20, 4):
        edits = fewest_edits(table, zeros, seed=2)
        expected = [
            (row, f"v{j}", int(table.codes[row, j]))
            for row, freed in enumerate(freed_of(table, edits))
            for j in freed
        ]
        assert list(edits.fields) == ["row", "variable", "value"]
        assert list(edits.fields.itertuples(index=False, name=None)) == expected


def test_missing_values_have_no_row():
    """Where the first level of a missing value is possible with nothing."""
    schema = numbered_schema((2, 2, 2))
    zeros = StructuralZeros.from_codes(np.array([[0, -1, -1], [-1, 1, 1]]), schema)
    edits = fewest_edits(Microdata(schema, np.array([[-1, 1, 1], [-1, 0, 1]])), zeros, seed=0)
    assert edits.fields["row"].tolist() == [0] and edits.fields["variable"][0] in ("v1", "v2")


def test_all_records_are_impossible():
    """More records than are solved at once, in none of which one value is enough."""
    schema = numbered_schema((3, 3, 3, 2))
    codes = np.full((6, 4), -1)
    for row, (j, level) in enumerate(itertools.product(range(3), range(2))):
        codes[row, j] = level
    zeros = StructuralZeros.from_codes(codes, schema)
    table = Microdata(schema, np.tile([[0, 1, 2, 0], [1, 1, 2, 1]], (700, 1)))
    edits = fewest_edits(table, zeros, seed=0)
    np.testing.assert_array_equal(
        edits.table.codes, np.tile([[-1, -1, 2, 0], [-1, -1, 2, 1]], (700, 1))
    )
    assert len(edits.fields) == 2800


def test_ties_are_broken_at_random_by_the_seed():
    schema = numbered_schema((2, 2, 2, 2))
    zeros = StructuralZeros.from_codes(np.array([[0, 0, 0, -1]]), schema)
    table = Microdata(schema, np.zeros((3000, 4), dtype=int))
    edits = fewest_edits(table, zeros, seed=5)
    counts = edits.fields["variable"].value_counts()
    # Each of three values is chosen with probability 1/3: six standard deviations are 155.
    assert set(counts.index) == {"v0", "v1", "v2"} and (abs(counts - 1000) < 155).all()
    same, other = (fewest_edits(table, zeros, seed=seed) for seed in (5, 6))
    pd.testing.assert_frame_equal(same.fields, edits.fields)
    assert not same.fields["variable"].equals(other.fields["variable"])


def test_one_value_is_set_free_where_two_conditions_are_broken(sixty):
    """Real conditions: one value that two of them share is chosen before one of each."""
    rng = np.random.default_rng(6)
    codes = rng.integers(0, sixty.schema.num_levels, (3000, 10))
    table = Microdata(sixty.schema, codes)
    edits = fewest_edits(table, sixty, seed=0)
    assert sixty.admits(edits.table.codes).all()
    bad = by_definition(sixty.conditions, codes)
    np.testing.assert_array_equal(np.unique(edits.fields["row"]), np.flatnonzero(bad))
    number = ((edits.table.codes < 0).sum(axis=1))[bad]
    several = [
        sum((sixty.conditions[k] >= 0).any() for k in sixty.broken_by(row)) for row in codes[bad]
    ]
    assert (number <= several).all() and (number < several).any()


def test_frames_and_labels():
    frame = pd.DataFrame({
        "ownership": ["owned", "rented", "free"], "mortgage": ["not applicable", "small", None],
        "rooms": [1, 2, 1],
    })  # fmt: skip
    zeros = homes()
    table = Microdata.from_frame(frame, levels=zeros.schema)
    edits = fewest_edits(table, zeros, seed=0)
    assert edits.fields["row"].tolist() == [0, 1]
    for row, variable, value in edits.fields.itertuples(index=False):
        assert variable != "rooms" and frame.loc[row, variable] == value
    impossible = pd.DataFrame({"ownership": ["rented"], "rooms": [2]})
    assert len(fewest_edits(frame, impossible, seed=0).fields) == 1
    with pytest.raises(TypeError, match="fewest_edits"):
        fewest_edits(table.tabulated, zeros, seed=0)


def test_conditions_that_leave_nothing_are_refused():
    table = Microdata(numbered_schema((2, 2)), np.zeros((2, 2), dtype=int))
    with pytest.raises(MicrodataError, match="every combination impossible"):
        fewest_edits(table, pd.DataFrame({"v0": [0, 1]}), seed=0)
    other = StructuralZeros.from_codes(np.array([[0, 1]]), numbered_schema((2, 3)))
    with pytest.raises(MicrodataError, match="other variables or levels"):
        fewest_edits(table, other, seed=0)
