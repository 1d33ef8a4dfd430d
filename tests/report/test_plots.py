"""What the plots of pages draw: the figures themselves, read back from the axes."""

import dataclasses
from types import SimpleNamespace

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.report import cells, evaluation, plots


@pytest.fixture(autouse=True)
def axes_for_svg(monkeypatch):
    """Plots give their axes in place of their text; their colours have others on dark screens."""

    def axes_of(figure, _title):
        (axes,) = figure.axes
        colours = [line.get_color() for line in axes.get_lines()] + [
            patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor()
            for patch in axes.patches
        ]
        assert set(map(matplotlib.colors.to_hex, colours)) <= set(plots._THEMED)
        return axes

    for module in (plots, cells, evaluation):
        monkeypatch.setattr(module, "as_svg", axes_of)


def lines(axes):
    """Points of each line, with its colour and its label."""
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float),
         matplotlib.colors.to_hex(line.get_color()), line.get_label())
        for line in axes.get_lines()
    ]  # fmt: skip


def bars(axes):
    """Left ends, widths and heights of bars."""
    return np.array([(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]).T


def risk_of(draws):
    return SimpleNamespace(tau1=np.array([draws]))


def test_the_histogram_of_tau_1_is_of_its_draws():
    draws = np.array([3, 3, 4, 6])
    axes = plots.histogram_plot(risk_of(draws))
    band = axes.patches[-1]
    left, width, height = bars(axes)[:, :-1]
    np.testing.assert_allclose(left + width / 2, [3, 4, 5, 6])
    np.testing.assert_allclose(height, [0.5, 0.25, 0, 0.25])
    low, high = np.quantile(draws, [0.025, 0.975])
    assert (band.get_x(), band.get_x() + band.get_width()) == (low - 0.5, high + 0.5)
    assert band.get_label() == "95% interval"
    (mean,) = lines(axes)
    assert list(mean[0]) == [4, 4] and mean[3] == "mean 4.0"
    # Many values: bars of several each, no more than fifty, with all draws in them.
    many = plots.histogram_plot(risk_of(np.arange(1000)))
    *_, height = bars(many)[:, :-1]
    assert len(height) == 50 and height.sum() == pytest.approx(1)
    one = plots.histogram_plot(risk_of(np.full(5, 7)))
    assert one.get_title() == "7: the same in every draw" and one.get_xlim() == (3, 11)
    np.testing.assert_allclose(bars(one)[2], [1])


def test_checks_are_intervals_of_replicates_beside_the_sample():
    check = SimpleNamespace(replicated=np.arange(101.0), predicted=50.0, observed=120)
    axes = plots.checks_plot(SimpleNamespace(cells={1: check, 2: check}))
    drawn = lines(axes)
    for place in (0, 1):
        interval, predicted, observed = drawn[3 * place : 3 * place + 3]
        np.testing.assert_allclose(interval[0], [2.5, 97.5])
        assert (predicted[0], observed[0]) == (50, 120)
        assert all((one[1] == place).all() for one in (interval, predicted, observed))
    assert [drawn[0][3], drawn[2][3]] == ["95% of the replicates", "sample"]
    assert all(one[3].startswith("_") for one in (drawn[1], *drawn[3:]))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1 record", "2 records"]


def test_traces_are_of_each_chain():
    values = np.arange(1000.0).reshape(2, 500)
    drawn = lines(plots.trace_plot("x", values))
    for (x, y, colour, _), chain, expected in zip(drawn, values, plots.COLOURS, strict=False):
        np.testing.assert_array_equal(x, np.arange(0, 500, 2))
        np.testing.assert_array_equal(y, chain[::2])
        assert colour == expected
    assert len(drawn) == 2
    flat = plots.trace_plot("x", np.full((2, 5), 30.0))
    assert flat.get_title() == plots.SAME and flat.get_ylim() == (27, 33)
    assert [label.get_text() for label in flat.get_yticklabels()] == ["30"]


def test_ranks_are_flat_where_chains_agree():
    values = np.array([[0.0, 1, 2, 3], [4, 5, 6, 7]])
    steps = [x.get_data() for x in plots.rank_plot("x", values).patches]
    # Of eight ranks in four bins, all of the first chain are in the first two.
    np.testing.assert_allclose([x.values for x in steps], [[2, 2, 0, 0], [0, 0, 2, 2]])
    np.testing.assert_allclose(steps[0].edges, [0, 2, 4, 6, 8])
    agreed = plots.rank_plot("x", np.array([[0.0, 3, 4, 7], [1, 2, 5, 6]]))
    np.testing.assert_allclose([x.get_data().values for x in agreed.patches], 1)
    assert plots.rank_plot("x", np.ones((2, 3))).get_title() == "no draw ranks above another"


def test_cells_by_number_of_records():
    fit = pd.DataFrame({"records": ["0", "1", "2+"], "observed": [0, 3, 1], "expected": [4, 2, 0]})
    observed, expected = lines(cells.plot_fit(fit))
    np.testing.assert_allclose(observed[1], [1e-9, 3, 1])
    np.testing.assert_allclose(expected[1], [4, 2, 1e-9])
    assert (observed[3], expected[3]) == ("observed", "expected")


def test_proportions_and_their_overlap(small):
    part = bnp.evaluation.proportions(small.table, bnp.synthesize(small.run, 2), order=1)
    axes = evaluation._scatter(part, "original", 12, 1)
    points = np.asarray(axes.collections[0].get_offsets()) ** 2
    shown = (part.count == 0) | (part.count >= 12)
    assert not shown.all() and 0 < len(points) <= shown.sum()
    pairs = {(round(x, 9), round(y, 9)) for x, y in
             zip(part.original[shown], part.synthetic[shown], strict=True)}  # fmt: skip
    assert {(round(x, 9), round(y, 9)) for x, y in points} <= pairs
    assert {x.get_text() for x in axes.get_xticklabels()} >= {"0%", "1%", "5%"}
    judged = np.arange(len(part.overlap)) < 4
    overlap = np.where(judged, np.resize([0.01, 0.01, 0.5, 1.0], len(judged)), 0.7)
    axes = evaluation._overlaps(dataclasses.replace(part, judged=judged, overlap=overlap), 1)
    left, _, height = bars(axes)
    np.testing.assert_allclose(left[height > 0], [0, 0.5, 0.95])
    np.testing.assert_allclose(height[height > 0], [0.5, 0.25, 0.25])
    (mean,) = lines(axes)
    assert mean[0][0] == pytest.approx(0.38) and mean[3] == "mean 38%"
