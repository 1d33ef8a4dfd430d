"""Structural zeros of up to six variables in every form, against all cells enumerated."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from latent import all_cells
from regions import check_coding, check_equivalence, one_hot, times_covered_of_all

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.risk import evaluator
from bnp_models.risk.coarsening import parse_coarsening
from bnp_models.zeros.structural_zeros import StructuralZeros

# Numbers that labels stand for, as far as a statement can tell them apart.
GRID = np.arange(-8, 800) / 4
WHOLE = np.arange(-8, 200)


def between(low, high, grid=GRID):
    return grid[(grid >= low) & (grid <= high)]


LABELS = (
    {"a": None, "b": None, "c": None, "d": None},
    {"0": [0], "1": [1], "2": [2], "10": [10]},
    {0: [0], 1: [1], 2: [2], 3: [3]},
    {"0-14": between(0, 14, WHOLE), "15-24": between(15, 24, WHOLE),
     "25-64": between(25, 64, WHOLE), "65+": between(65, 1000, WHOLE)},
    {"under 5": WHOLE[WHOLE < 5], "5 to 9": between(5, 9, WHOLE), "10": [10], "n/a": None},
    {"-1": [-1], "0.5": [0.5], "$1,000": [1000], "20 or more": between(20, 1000)},
)  # fmt: skip
NUMBERS = st.sampled_from([0, 1, 2, 5, 9, 10, 14, 15, 24, 25, 65, 0.5, 20, -1])
ENDS = [
    NUMBERS if kind == 0 else st.sampled_from(
        [float(end) if end % 1 else int(end) for numbers in of.values() if numbers is not None
         for end in (numbers[0], numbers[-1]) if -2 < end < 100 and 2 * end % 1 == 0]
    ) | NUMBERS
    for kind, of in enumerate(LABELS)
]  # fmt: skip
SIGNS = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "\u2264": np.less_equal, "\u2265": np.greater_equal,
}  # fmt: skip


def inside(kind, codes, holds):
    """Codes whose numbers all fulfil a statement; None if some have but a part that does."""
    found = set()
    for code in codes:
        numbers = list(LABELS[kind].values())[code]
        share = 0 if numbers is None else np.mean(holds(np.asarray(numbers)))
        if 0 < share < 1:
            return None
        if share == 1:
            found.add(code)
    return found


@st.composite
def parts(draw, kind, size):
    """One label or range in words, and the codes that it means, None where it means none."""
    labels = [str(label) for label in LABELS[kind]][:size]
    how = draw(st.integers(0, 5))
    if how <= 2 or kind == 0:
        code = draw(st.integers(0, size - 1))
        return labels[code], {code}
    if how == 3:
        low, high = sorted([draw(ENDS[kind]), draw(ENDS[kind])])
        text = f"{low}{draw(st.sampled_from(['-', ' to ']))}{high}"
        found = inside(kind, range(size), lambda x: (x >= low) & (x <= high))
    else:
        sign, number = draw(st.sampled_from(sorted(SIGNS))), draw(ENDS[kind])
        text = f"{sign}{number}"
        found = inside(kind, range(size), lambda x: SIGNS[sign](x, number))
    if text in labels:
        return text, {labels.index(text)}
    if not found and draw(st.integers(0, 9)):
        # What means no level is refused: now and then will do.
        return labels[0], {0}
    return text, found or None


@st.composite
def cells(draw, kind, size):
    """Text of a cell of a condition, and the codes that it means; None where it means none."""
    how = draw(st.integers(3, 9))
    if how <= 6 or size == 1:
        return draw(parts(kind, size))
    some = [draw(parts(kind, size)) for _ in range(draw(st.integers(1, 2)))]
    text = "|".join(text for text, _ in some)
    codes = None if any(of is None for _, of in some) else set().union(*(of for _, of in some))
    if how == 7:
        return text, codes
    left = None if codes is None else set(range(size)) - codes
    if how == 8:
        return f"!{text}", left or None
    first, of_first = draw(parts(kind, size))
    one, of_one = some[0]
    left = None if of_one is None else set(range(size)) - of_one
    return f"{first}|!{one}", None if of_first is None or not left else of_first | left


@st.composite
def zeros_of(draw):
    """Kinds and sizes of variables, rows of texts, the codes that these mean, and a seed."""
    number = draw(st.sampled_from([4, 3, 2, 5, 6, 1]))
    kinds = [draw(st.integers(0, len(LABELS) - 1)) for _ in range(number)]
    sizes = [draw(st.sampled_from([2, 3, 4, 2, 3, 4, 1])) for _ in range(number)]
    rows = []
    for _ in range(draw(st.sampled_from([2, 3, 1, 5, 8, 0]))):
        fixed = draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=3))
        if draw(st.integers(0, 40)) == 0:
            fixed = set()
        rows.append([
            draw(cells(kinds[j], sizes[j])) if j in fixed else ("", set(range(sizes[j])))
            for j in range(number)
        ])  # fmt: skip
    for _ in range(draw(st.integers(0, 2)) if number > 1 else 0):
        rows += draw(ties(kinds, sizes))
    return kinds, sizes, rows, draw(st.integers(0, 1000))


@st.composite
def ties(draw, kinds, sizes):
    """Rows by which some levels of one variable go with some of another, both ways."""
    item, parent = draw(st.permutations(range(len(sizes))))[:2]
    some, where = [
        draw(st.sets(st.integers(0, sizes[j] - 1), min_size=1, max_size=max(1, sizes[j] - 1)))
        for j in (item, parent)
    ]
    rows = []
    for a in range(sizes[item]):
        for b in range(sizes[parent]):
            if (a in some) != (b in where):
                row = [("", set(range(size))) for size in sizes]
                for j, code in ((item, a), (parent, b)):
                    row[j] = (str(list(LABELS[kinds[j]])[code]), {code})
                rows.append(row)
    return rows


def coarser_key(rng, schema):
    """Text of a coarser key, the column of each variable left, and its new codes."""
    number = len(schema.variables)
    dropped = rng.random(number) < 0.3
    dropped[rng.integers(number)] = False
    said = [f"drop:{name}" for name, gone in zip(schema.variables, dropped, strict=True) if gone]
    kept, codes = np.flatnonzero(~dropped), []
    for j in kept:
        size = schema.num_levels[j]
        together = np.sort(rng.choice(size, 2, replace=False)) if size > 1 else []
        of = np.arange(size)
        if len(together) and rng.random() < 0.6:
            first, second = (str(schema.levels[j][k]) for k in together)
            said.append(f"merge:{schema.variables[j]}={first}+{second}")
            of[together[1]] = together[0]
            of = np.unique(of, return_inverse=True)[1]
        codes.append(of)
    return ";".join(said), kept, codes


def check_coarser(rng, zeros, every, mask):
    """Cells of a coarser key, and probabilities of these, are sums over the feasible cells."""
    schema = zeros.schema
    text, kept, codes = coarser_key(rng, schema)
    if not text:
        return
    key = parse_coarsening(text, schema)
    assert key.variables == tuple(kept)
    coarse = np.stack([of[every[:, j]] for j, of in zip(kept, codes, strict=True)], axis=1)
    np.testing.assert_array_equal(key.coarser_codes(every), coarse)
    assert key.schema.num_levels == tuple(of.max() + 1 for of in codes)
    p = rng.dirichlet(np.ones(len(every)))
    p = np.where(mask, 0, p)
    some = every[~mask][rng.integers((~mask).sum(), size=3)]
    place = np.ravel_multi_index

    def listed(run, draws, cells, method, key):
        yield np.log(p[place(cells.T, schema.num_levels)])[None], None, None

    expected = []
    for cell in key.coarser_codes(some):
        same = (coarse == cell).all(axis=1)
        assert key.num_finer(cell) == same.sum()
        finer = place(key.finer(cell).T, schema.num_levels)
        np.testing.assert_array_equal(np.sort(finer), np.flatnonzero(same))
        expected.append(p[same].sum())
    run = SimpleNamespace(table=bnp.Microdata(schema, some), conditions=zeros, model=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "cell_probabilities", listed)
        patch.setattr(evaluator, "checked_method", lambda *_: "exact")
        (log_p,) = evaluator.coarser_probabilities(run, {}, key, some, None)
    np.testing.assert_allclose(np.exp(log_p[0]), expected, rtol=1e-9)


def check_relations(zeros, every, mask, rng):
    """Equivalences hold, and are as many as the feasible cells have; levels that never occur."""
    feasible, num_levels = every[~mask], zeros.schema.num_levels
    hot = one_hot(feasible, num_levels)
    occurs = hot.any(axis=0)
    dimension = occurs.sum() - np.linalg.matrix_rank(hot[:, occurs]) + 1 - len(num_levels)
    assert len(zeros.equivalences) == dimension
    for equivalence in zeros.equivalences:
        check_equivalence(equivalence, zeros, feasible)
    assert len(zeros.impossible_levels) == (~occurs).sum()
    form = zeros.not_applicable
    check_coding(form, zeros, feasible, all_cells(form.coding.schema.num_levels))


def check(kinds, sizes, rows, seed):
    """Compare all forms with the cells enumerated."""
    rng = np.random.default_rng(seed)
    names = tuple(f"v{j}" for j in range(len(sizes)))
    schema = Schema(names, tuple(tuple(LABELS[k])[:n] for k, n in zip(kinds, sizes, strict=True)))
    order = rng.permutation(len(names))
    frame = pd.DataFrame(
        [[row[j][0] for j in order] for row in rows],
        columns=[names[j] for j in order],
        dtype=object,
    )
    every = all_cells(schema.num_levels)
    unclear = any(codes is None or all(text == "" for text, _ in row)
                  for row in rows for _, codes in row)  # fmt: skip
    if not unclear:
        by_row = np.zeros((len(rows), len(every)), bool)
        for i, row in enumerate(rows):
            by_row[i] = np.all(
                [np.isin(every[:, j], sorted(codes)) for j, (_, codes) in enumerate(row)], axis=0
            )
        mask = by_row.any(axis=0)
    if unclear or mask.all():
        with pytest.raises(MicrodataError):
            StructuralZeros.from_frame(frame, schema)
        return
    zeros = StructuralZeros.from_frame(frame, schema)
    assert zeros.num_conditions == len(rows)
    assert zeros.num_impossible_cells == mask.sum()
    assert zeros.num_feasible_cells == (~mask).sum()
    for boxes, region in ((zeros.impossible, mask), (zeros.feasible, ~mask)):
        np.testing.assert_array_equal(times_covered_of_all(boxes).ravel(), region)
    times = np.zeros(schema.num_levels, int)
    for one in zeros.slices():
        times[tuple(slice(None) if code < 0 else code for code in one)] += 1
    np.testing.assert_array_equal(times.ravel(), mask)
    np.testing.assert_array_equal(zeros.contains(every), mask)
    some = rng.integers(-1, schema.num_levels, (30, len(sizes)))
    fits = [bool((~mask[((one < 0) | (every == one)).all(axis=1)]).any()) for one in some]
    np.testing.assert_array_equal(zeros.admits(some), fits)
    np.testing.assert_array_equal(np.any([g.contains(every) for g in zeros.groups], axis=0), mask)
    found = zeros.impossible_records(bnp.Microdata(schema, every))
    np.testing.assert_array_equal(found["row"], np.flatnonzero(mask))
    first = [np.argmax(breaks) for breaks in by_row.T[mask]]
    np.testing.assert_array_equal(found["condition"], first)
    assert StructuralZeros.from_frame(zeros.to_frame(), schema).digest == zeros.digest
    check_relations(zeros, every, mask, rng)
    check_coarser(rng, zeros, every, mask)


@fuzzed()
@given(zeros_of())
def test_every_form_agrees_with_all_cells_enumerated(zeros):
    check(*zeros)
