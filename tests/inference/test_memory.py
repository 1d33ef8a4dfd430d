"""Runs that do not fit into memory are refused before the first sweep."""

import jax
import pytest
from commands import one_line

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.inference import compilation, driver


def test_a_run_that_does_not_fit_is_refused(sample_frame, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(driver, "LARGE", 1)
    sample_frame.to_csv(tmp_path / "sample.csv", index=False)
    words = ["risk", str(tmp_path / "sample.csv"), "--variables", "age,sex,race", "--chains", "2",
             "--warmup", "30", "--draws", "20", "--model", "nplcm", "--components", "4",
             "--population-size", "300", "--out", str(tmp_path / "out"), "--quiet"]  # fmt: skip
    monkeypatch.setattr(compilation, "free_bytes", lambda device: 1000)
    assert main(words) == 2
    said = one_line(capsys)
    assert "the chains need about 0 GiB of memory" in said and "fewer chains (--chains)" in said
    assert not (tmp_path / "out").exists()


def test_free_memory_is_that_of_the_device():
    class Card:
        platform = "gpu"

        def __init__(self, **stats):
            self.memory_stats = lambda: stats

    assert compilation.free_bytes(Card(bytes_limit=80, bytes_in_use=30)) == 50
    assert compilation.free_bytes(Card()) is None
    assert 2**20 < compilation.free_bytes(jax.devices("cpu")[0]) < 2**50


def test_what_is_needed_is_what_the_program_says():
    def outer(x):
        return jax.numpy.sort(x[:, None] * x, axis=0)

    compiled = jax.jit(outer).lower(jax.numpy.ones(1000)).compile()
    device = jax.devices("cpu")[0]
    compilation.check_memory(compiled, device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "free_bytes", lambda device: 6 * 10**6)
        compilation.check_memory(compiled, device)
        with pytest.raises(bnp.inference.NotEnoughMemory, match="need about"):
            compilation.check_memory(compiled, device, 2)
        # Where nothing is known, it runs.
        patch.setattr(compilation, "free_bytes", lambda device: None)
        compilation.check_memory(compiled, device, 2)


def test_draws_that_do_not_fit_are_refused_before_the_first_sweep(sample_frame, monkeypatch):
    def run(draws):
        return bnp.sample(
            bnp.NPLCM(components=4), sample_frame, key=jax.random.key(0), num_chains=2,
            num_warmup=5, num_samples=draws, keep=["log_pi"],
        )  # fmt: skip

    # Of 2 chains 4 floats a draw, there twice.
    monkeypatch.setattr(compilation, "host_bytes", lambda: 2 * 2 * 4 * 4 * 10)
    # Where the chains fit, or nothing is known, they run.
    monkeypatch.setattr(driver, "LARGE", 1)
    for free in (2**40, None):
        monkeypatch.setattr(compilation, "free_bytes", lambda device, free=free: free)
        assert run(10).draws["log_pi"].shape == (2, 10, 4)
    with pytest.raises(
        bnp.inference.NotEnoughMemory, match="the draws need about 0 GiB of .*--draws"
    ):
        run(11)


def test_files_that_do_not_fit_are_refused_before_the_chains(
    sample_frame, tmp_path, capsys, monkeypatch
):
    sample_frame.to_csv(tmp_path / "sample.csv", index=False)
    words = ["synthesize", str(tmp_path / "sample.csv"), "--datasets", "3", "--rows", "20000000",
             "--draws", "20", "--out", str(tmp_path / "out"), "--quiet"]  # fmt: skip
    monkeypatch.setattr(compilation, "host_bytes", lambda: 2**30)
    # Labels of four columns, eight bytes each or more.
    assert main(words) == 2
    said = one_line(capsys)
    assert "the files need about " in said and "GiB of memory, and 1 GiB are free" in said
    assert "--datasets" in said and not (tmp_path / "out").exists()
