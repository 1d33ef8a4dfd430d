"""Signals while chains are run."""

import signal
import threading

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.driver import Driver
from bnp_models.inference.interruption import SIGNALS, Interrupted, noted_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_a_second_one_obeyed(number, capsys):
    obeyed = []
    before = signal.signal(number, lambda *_: obeyed.append(number))
    try:
        with noted_signals() as noted:
            assert noted() == 0
            signal.raise_signal(number)
            assert noted() == number and not obeyed
            signal.raise_signal(number)
            assert obeyed == [number]
        signal.raise_signal(number)
        assert obeyed == [number] * 2
    finally:
        signal.signal(number, before)
    assert "once more" in capsys.readouterr().err


def test_ignored_signals_stay_ignored_and_other_threads_note_none():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted_signals() as noted:
            signal.raise_signal(signal.SIGINT)
            assert noted() == 0
    finally:
        signal.signal(signal.SIGINT, before)
    found = []

    def elsewhere():
        with noted_signals() as noted:
            found.append(noted())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [0] and signal.getsignal(signal.SIGINT) == before


@pytest.fixture(params=SIGNALS)
def obeyed(request):
    """A signal that is obeyed; jobs that a shell starts in the background ignore SIGINT."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


def test_chains_stop_with_a_checkpoint_and_go_on_to_the_same_draws(
    obeyed, small, tmp_path, monkeypatch
):
    advance = Driver._advance

    def with_signal(self, goal):
        if self.iteration == 45:
            signal.raise_signal(obeyed)
        return advance(self, goal)

    def sample(**options):
        return bnp.sample(
            bnp.HDPMixedMembership(), small.table, key=jax.random.key(0), num_chains=2,
            num_warmup=100, num_samples=30, chunk_sweeps=20, checkpoint_seconds=1e9, **options,
        )  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_advance", with_signal)
        with pytest.raises(Interrupted, match="after sweep 65 of 130, which is saved") as caught:
            sample(checkpoint=tmp_path)
        assert caught.value.number == obeyed and caught.value.saved
        with pytest.raises(Interrupted, match="65 of 130; nothing was saved"):
            sample()
    save = Driver._save

    def saved_with_signal(self, *given):
        save(self, *given)
        signal.raise_signal(obeyed)

    with monkeypatch.context() as patch:
        # With the last sweeps: what is made of the draws may take long.
        patch.setattr(Driver, "_save", saved_with_signal)
        with pytest.raises(Interrupted, match="after sweep 130 of 130, which is saved"):
            sample(checkpoint=tmp_path, resume=True)
    run = sample(checkpoint=tmp_path, resume=True)
    for name, values in small.run.draws.items():
        np.testing.assert_array_equal(run.draws[name], values)
