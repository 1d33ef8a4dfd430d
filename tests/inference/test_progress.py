"""What is shown of chains on their way."""

import time

import numpy as np
import pytest

from bnp_models.inference import progress
from bnp_models.inference.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_a_forecast_and_a_sentence_a_minute(clock):
    said = []
    shown = Progress(said.append, None, 4)
    # The first stretch, of buffers that are made, takes long and is no measure.
    for seconds, sweep in ((50, 8), (50.5, 13), (52, 28), (53, 38), (114, 648), (173, 1238),
                           (175, 1258), (290, 2408), (401, 4000)):  # fmt: skip
        clock[0] = seconds
        shown.update(sweep, 4000, 2000, dict)
    shown.close()
    assert said == [
        "4 chains of 4,000 sweeps: about 7 minutes, estimated from the first 28 sweeps",
        "warm-up: 648 of 4,000 sweeps, about 6 minutes left",
        "warm-up: 1,258 of 4,000 sweeps, about 5 minutes left",
        "draws: 2,408 of 4,000 sweeps, about 3 minutes left",
    ]


def test_short_runs_need_no_forecast(clock):
    said = []
    shown = Progress(said.append, None, 2)
    for seconds, sweep in ((1, 8), (3, 108), (4, 130)):
        clock[0] = seconds
        shown.update(sweep, 130, 100, dict)
    assert said == []


def test_the_bar_and_nothing(capsys):
    latest = {"components": np.array([3, 4])}
    for shown in (False, True):
        bar = Progress(shown, lambda figures: {"tau1": 2.0}, 2)
        bar.update(8, 20, 10, lambda: latest)
        bar.update(12, 20, 10, lambda: latest)
        bar.update(20, 20, 10, lambda: latest)
        bar.close()
        printed = capsys.readouterr().err
        assert ("20/20" in printed and "components=3/4" in printed) == shown


def test_a_long_compilation_says_that_it_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_COMPILING", 0.05)
    said = []
    with Progress(said.append, None, 2).compiling():
        time.sleep(0.3)
    number = len(said)
    assert number >= 2 and all(x.startswith("compiling the sweeps: ") for x in said)
    time.sleep(0.2)
    assert len(said) == number
    with Progress(True, None, 2).compiling():
        time.sleep(0.2)
    assert "compiling the sweeps" in capsys.readouterr().err
    with Progress(False, None, 2).compiling():
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    # A short one says nothing.
    monkeypatch.setattr(progress, "_SECONDS_COMPILING", 5.0)
    with Progress(said.append, None, 2).compiling():
        pass
    assert len(said) == number
