"""Risk of files whose values were changed at random: by simulation, and against the unchanged."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError
from bnp_models.risk.misclassification import COLUMNS, Misclassification

SCHEMA = bnp.Schema(("sex", "town"), (("f", "m"), (1, 2, 3, 4)))
CELLS = np.array(list(itertools.product(range(2), range(4))))
OF_SEX = np.array([[0.95, 0.05], [0.2, 0.8]])
OF_TOWN = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.3, 0], [0.02, 0, 0.98, 0], [0, 0, 0, 1]])
N = 600


def rows_of(variable, labels, matrix):
    """Rows of a file; zeros are left out, and so are levels that are never changed."""
    return [
        (variable, true, released, matrix[j, k])
        for (j, true), (k, released) in itertools.product(enumerate(labels), repeat=2)
        if matrix[j, k] > 0 and matrix[j, j] < 1
    ]


def frame_of(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.fixture
def changed():
    rows = (*rows_of("sex", "fm", OF_SEX), *rows_of("town", (1, 2, 3, 4), OF_TOWN))
    return Misclassification.of_frame(frame_of(*rows), SCHEMA)


def test_the_share_of_correct_matches_of_a_known_population(changed):
    """Samples of one population, released by PRAM: how often a match with a unique is correct.

    An intruder matches each person of the population with the unique of the same released cell. By
    the exact formula the probabilities of all these matches sum to the number of correct ones; with
    few persons sampled, so do those of M_jj / F~_j. The sampling is Bernoulli.
    """
    rng = np.random.default_rng(0)
    counts = np.array([400, 90, 30, 250, 10, 3, 60, 1])
    matrix = np.kron(OF_SEX, OF_TOWN)
    person = np.repeat(np.arange(8), counts)
    cumulative = matrix.cumsum(axis=1)
    kept = changed.kept(CELLS)
    expected = counts * kept / (counts @ matrix)
    for fraction, exact in ((0.002, False), (0.002, True), (0.1, True)):
        if exact:
            odds = matrix / (1 - fraction * matrix)
            expected = counts * np.diag(odds) / (counts @ odds)
        differences = []
        for _ in range(4000):
            true = person[rng.random(len(person)) < fraction]
            released = (rng.random((len(true), 1)) > cumulative[true]).sum(axis=1)
            unique = np.bincount(released, minlength=8) == 1
            correct = np.sum(unique[released] & (true == released))
            differences.append(correct - expected[unique].sum())
        z = np.mean(differences) / (np.std(differences) / 4000**0.5)
        assert abs(z) < Z_LIMIT, (fraction, exact)


def test_levels_without_rows_are_never_changed(changed):
    np.testing.assert_allclose(changed.kept(CELLS), np.kron(np.diag(OF_SEX), np.diag(OF_TOWN)))
    only = Misclassification.of_frame(frame_of(("town", "2", "1", 1.0)), SCHEMA)
    np.testing.assert_array_equal(only.kept(CELLS), [1, 0, 1, 1, 1, 0, 1, 1])


@pytest.fixture
def pram(small):
    """PRAM of the race and of one sex."""
    names = small.table.schema.variables
    races = small.table.schema.levels[names.index("race")]
    stay = np.linspace(0.5, 0.95, len(races))
    matrix = np.diag(stay) + (1 - stay[:, None]) / (len(races) - 1) * (1 - np.eye(len(races)))
    moved = [("sex", "Female", "Female", 0.6), ("sex", "Female", "Male", 0.4)]
    return frame_of(*rows_of("race", races, matrix), *moved)


def kept_by_hand(table, frame, codes):
    """Product of the probabilities of the levels to be themselves, one record at a time."""
    same = {
        (row.variable, str(row.true)): row.probability
        for row in frame.itertuples() if str(row.true) == str(row.released)
    }  # fmt: skip
    schema = table.schema
    return np.array([
        np.prod([
            same.get((name, str(schema.levels[j][record[j]])), 1.0)
            for j, name in enumerate(schema.variables)
        ])
        for record in codes
    ])  # fmt: skip


@pytest.mark.parametrize("ties", ["on", "off"])
def test_records_count_by_the_probability_that_their_values_are_their_own(small, pram, ties):
    before = bnp.population_risk(small.run, N, ties=ties)
    risk = bnp.population_risk(small.run, N, ties=ties, misclassification=pram)
    kept = kept_by_hand(small.table, pram, small.table.codes_at(risk.rows))
    assert len(np.unique(kept)) > 4
    np.testing.assert_allclose(risk.r1, before.r1 * kept, rtol=1e-9)
    np.testing.assert_allclose(risk.r2, before.r2 * kept, rtol=1e-9)
    np.testing.assert_allclose(risk.r1_error, before.r1_error * kept, rtol=1e-6)
    assert risk.r1.sum() == pytest.approx(risk.tau1_conditional.mean(), rel=1e-9)
    assert risk.r2.sum() == pytest.approx(risk.tau2_conditional.mean(), rel=1e-9)
    # The same draws without the correction, and each draw of tau_1 is thinned.
    without = risk.misclassification
    np.testing.assert_array_equal(without.tau1, before.tau1)
    np.testing.assert_array_equal(without.tau2, before.tau2)
    assert (risk.tau1 <= before.tau1).all() and (risk.tau2 < before.tau2).all()
    for tau, conditional in (
        (risk.tau1, risk.tau1_conditional), (risk.tau2, risk.tau2_conditional)
    ):  # fmt: skip
        difference = (tau - conditional).ravel()
        assert abs(difference.mean()) < Z_LIMIT * difference.std() / difference.size**0.5
    if ties == "on":
        beside, drawn = before.overdispersion, risk.overdispersion
        assert (drawn.tau1 <= beside.tau1).all() and (drawn.tau2 < beside.tau2).all()


def test_tau1_is_a_number_of_records(small, pram):
    """Each population unique is kept or not: its number varies as that of independent records."""
    levels = small.table.schema.levels[0]
    half = frame_of(*(("age", x, y, 0.5) for x in levels for y in (x, levels[x == levels[0]])))
    risk = bnp.population_risk(small.run, N, ties="off", misclassification=half)
    unthinned = risk.misclassification.tau1.ravel()
    np.testing.assert_array_equal(risk.tau1, risk.tau1.round())
    z = (risk.tau1.ravel() - unthinned / 2) / np.sqrt(unthinned / 4)
    # The variance of a mean of squares of standard normal values is 2 / n.
    assert abs((z**2).mean() - 1) < Z_LIMIT * (2 / z.size) ** 0.5


def test_the_identity_changes_nothing(small):
    schema = small.table.schema
    named = zip(schema.variables, schema.levels, strict=True)
    same = frame_of(*((name, x, x, 1.0) for name, labels in named for x in labels))
    before = bnp.population_risk(small.run, N)
    risk = bnp.population_risk(small.run, N, misclassification=same)
    for name in ("tau1", "tau2", "tau1_conditional", "tau2_conditional", "r1", "r2", "r1_error"):
        np.testing.assert_allclose(vars(risk)[name], vars(before)[name], rtol=1e-12, err_msg=name)
    for name in ("tau1", "tau2"):
        found, expected = (vars(x.overdispersion)[name] for x in (risk, before))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_records_that_are_not_unique(small, pram):
    before = bnp.population_risk(small.run, N, all_records=True)
    risk = bnp.population_risk(small.run, N, all_records=True, misclassification=pram)
    kept = kept_by_hand(small.table, pram, small.table.tabulated.codes)
    np.testing.assert_allclose(risk.r2_of_cells, before.r2_of_cells * kept, rtol=1e-9)


def test_missing_values_are_refused(small, pram):
    codes = np.array(small.table.codes)
    codes[3, 1] = -1
    run = dataclasses.replace(small.run, table=bnp.Microdata(small.table.schema, codes))
    with pytest.raises(MicrodataError, match="--misclassification"):
        bnp.population_risk(run, N, missing_keys="wildcard", misclassification=pram)


@pytest.mark.parametrize(("rows", "parts"), [
    ([("sex", "f", "f", 0.9), ("sex", "f", "m", 0.0999)], ["'sex'", "'f'", "0.9999"]),
    ([("sex", "m", "f", 0.3)], ["'sex'", "'m'", "0.3"]),
    ([("age", "f", "f", 1)], ["row 0", "'age' is no key variable", "--variables"]),
    ([("sex", "f", "f", 1), ("town", "9", "1", 1)], ["row 1", "column 'true'", "'town'", "'9'"]),
    ([("town", "1", "x", 1)], ["column 'released'", "'x'", "--levels"]),
    ([("sex", "f", "f", "0,5")], ["column 'probability'", "'0,5'"]),
    ([("sex", "f", "f", 1.5), ("sex", "f", "m", -0.5)], ["row 0", "1.5", "from 0 to 1"]),
    ([("sex", "f", "m", -0.5), ("sex", "f", "f", 1)], ["row 0", "-0.5", "from 0 to 1"]),
    ([("sex", "f", "f", float("nan"))], ["column 'probability'", "empty"]),
    ([("sex", "", "f", 1)], ["column 'true'", "empty"]),
    ([("sex", "f", "f", 0.5), ("sex", "f", "f", 0.5)], ["row 1", "'sex'", "twice"]),
])  # fmt: skip
def test_wrong_probabilities(rows, parts):
    with pytest.raises(MicrodataError) as error:
        Misclassification.of_frame(frame_of(*rows), SCHEMA)
    assert all(part in str(error.value) for part in parts), error.value


def test_sums_may_be_rounded():
    rounded = frame_of(("sex", "f", "f", 0.6666667), ("sex", "f", "m", 0.3333332))
    np.testing.assert_array_equal(Misclassification.of_frame(rounded, SCHEMA).unchanged[0],
                                  [0.6666667, 1])  # fmt: skip
    wrong = frame_of(("sex", "f", "f", 0.66667), ("sex", "f", "m", 0.333332))
    with pytest.raises(MicrodataError, match="sum to"):
        Misclassification.of_frame(wrong, SCHEMA)


def test_a_file_is_read_with_its_lines(tmp_path):
    path = tmp_path / "pram.csv"
    path.write_text("variable,true,released,probability\nsex,f,f,0.9\nsex,f,m,0.1\n")
    read = Misclassification.from_file(str(path), SCHEMA)
    assert read.source == str(path) and read.unchanged[0].tolist() == [0.9, 1]
    path.write_text("variable,true,released,probability\nsex,f,f,0.9\nsex,g,m,0.1\n")
    with pytest.raises(MicrodataError, match=r"pram\.csv, row 1 \(line 3\)"):
        Misclassification.from_file(str(path), SCHEMA)
    with pytest.raises(MicrodataError, match="'probability'"):
        Misclassification.of_frame(pd.DataFrame(columns=COLUMNS[:3]), SCHEMA)
