"""The driver: chunks, resuming, devices, capacity, compilation, input."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray as xr

import bnp_models as bnp
from bnp_models.inference import chunks, driver, sampling
from bnp_models.inference.checkpoint import Checkpoint, CheckpointError
from bnp_models.inference.run import AllDraws

SETTINGS = {"num_chains": 2, "num_warmup": 15, "num_samples": 10, "thin": 2}

# Without the moves that take longest to compile.
MODEL = bnp.HDPMixedMembership(cell_stride=0, split_merge_every=0, seating_every=0)


def equal(a, b):
    return all(np.array_equal(a.draws[name], b.draws[name]) for name in a.draws)


def run(table, seed=0, model=MODEL, **options):
    return bnp.sample(model, table, key=jax.random.key(seed), **(SETTINGS | options))


@pytest.fixture(scope="module")
def reference(small):
    return run(small.table)


@pytest.mark.parametrize("chunk_sweeps", [1, 7, 1000])
def test_chunk_size_has_no_effect(small, reference, chunk_sweeps):
    assert equal(run(small.table, chunk_sweeps=chunk_sweeps), reference)


def test_draws_depend_on_the_key_and_on_nothing_else(small, reference):
    assert equal(run(small.table), reference)
    assert not equal(run(small.table, seed=1), reference)


@pytest.mark.parametrize(("num_chains", "together"), [(3, 1), (16, 4), (18, 1)])
def test_of_many_chains_some_start_at_one_point(small, monkeypatch, num_chains, together):
    seen = []

    def init_chains(model, data, keys, capacity, starts):
        seen.append((np.asarray(jax.random.key_data(keys)), np.asarray(starts)))
        return right(model, data, keys, capacity, starts)

    right = driver.init_chains
    monkeypatch.setattr(driver, "init_chains", init_chains)
    made = run(small.table, num_chains=num_chains, num_warmup=0, num_samples=1, thin=1)
    keys, starts = (np.concatenate(arrays) for arrays in zip(*seen, strict=True))
    assert made.settings.superchain == together
    groups = keys.reshape(-1, together, keys.shape[-1]), starts.reshape(-1, together)
    assert all((group == group[:, :1]).all() for group in groups)
    assert len(np.unique(keys, axis=0)) == num_chains // together
    assert len(np.unique(made.draws["alpha"])) == num_chains


def test_kept_draws_are_those_after_each_thinning(small, reference):
    every = run(small.table, thin=1, num_samples=20)
    for name, value in reference.draws.items():
        np.testing.assert_array_equal(value, every.draws[name][:, 1::2])


def test_the_last_draw_is_of_the_state_that_a_run_ends_with(sample_frame):
    made = run(bnp.Microdata.from_frame(sample_frame))
    for name in ("alpha", "g0", "theta"):
        np.testing.assert_array_equal(made.draws[name][:, -1], getattr(made.state, name))


def test_the_warm_up_is_kept_on_request(small, reference, tmp_path):
    """Sweeps of this model without split-merge moves know no warm-up, beyond its first part."""
    short = run(small.table, num_warmup=3, num_samples=7, thin=1, keep_warmup=True)
    whole = run(small.table, num_warmup=0, num_samples=10, thin=1)
    assert not whole.warmup_draws and set(short.warmup_draws) == set(MODEL.scalars) | {
        "alpha_rate", "log_feasible"
    }  # fmt: skip
    for name, values in short.warmup_draws.items():
        parts = [values, short.draws[name]]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole.draws[name])

    def equal_warmup(one):
        same = [np.array_equal(x, one.warmup_draws[name]) for name, x in kept.warmup_draws.items()]
        return all(same) and equal(one, kept)

    kept = run(small.table, keep_warmup=True)
    assert equal(kept, reference) and kept.warmup_draws["alpha"].shape == (2, 7)
    how = {"keep_warmup": True, "checkpoint": tmp_path, "checkpoint_seconds": 0, "chunk_sweeps": 4}
    assert equal_warmup(run(small.table, **how))
    assert equal_warmup(run(small.table, resume=True, **how))
    assert equal_warmup(bnp.extend(run(small.table, num_samples=4, keep_warmup=True), 6))
    every_sweep = run(small.table, num_samples=20, thin=1, keep_warmup=True)
    assert equal_warmup(every_sweep.thinned(2))
    np.testing.assert_array_equal(
        kept.warmup_draws["alpha"], every_sweep.warmup_draws["alpha"][:, 2::2]
    )
    assert every_sweep.thinned(20).warmup_draws["alpha"].shape == (2, 0)

    data = kept.to_inference_data()
    np.testing.assert_array_equal(data["warmup_posterior"]["alpha"], kept.warmup_draws["alpha"])
    assert "tables" in data["warmup_sample_stats"]
    bnp.io.write_netcdf(data, tmp_path / "posterior.nc")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["warmup_posterior"]["alpha"], kept.warmup_draws["alpha"])


def test_a_resumed_run_ends_as_one_that_was_not(small, reference, tmp_path, monkeypatch):
    """Stopped at every checkpoint in turn, and continued."""

    class Stopped(Exception):
        pass

    save = Checkpoint.save

    def save_and_stop(self, *saved, **how):
        save(self, *saved, **how)
        raise Stopped

    options = {"checkpoint": tmp_path / "c", "chunk_sweeps": 6, "checkpoint_seconds": 0}
    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    for stops in range(20):
        try:
            resumed = run(small.table, resume=stops > 0, **options)
            break
        except Stopped:
            continue
    assert 4 < stops < 19
    assert equal(resumed, reference)


@pytest.mark.parametrize("chunk_sweeps", [3, None])
def test_an_extended_run_is_a_longer_one(small, reference, chunk_sweeps):
    shorter = run(small.table, num_samples=4)
    longer = bnp.extend(bnp.extend(shorter, 1), 5, chunk_sweeps=chunk_sweeps)
    same_run(longer, reference)
    assert longer.seconds["draws"] > shorter.seconds["draws"] > 0
    assert all(value.shape[1] == 4 for value in shorter.draws.values())


def same_run(a, b):
    assert equal(a, b) and set(a.draws) == set(b.draws)
    assert (a.settings, a.growth, a.capacity) == (b.settings, b.growth, b.capacity)
    for one, other in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.random.key_data(a.key).tolist() == jax.random.key_data(b.key).tolist()


def test_an_extension_that_was_killed_goes_on_as_a_longer_run(small, reference, tmp_path):
    folder = tmp_path / "c"
    bnp.extend(run(small.table, num_samples=4), 6, checkpoint=folder)
    assert len(list(folder.glob("draws-*"))) == 1
    same_run(run(small.table, checkpoint=folder, resume=True, progress=False), reference)
    with pytest.raises(CheckpointError, match="other data, settings"):
        run(small.table, num_samples=4, checkpoint=folder, resume=True)


def test_a_run_without_its_key_cannot_be_extended(small):
    with pytest.raises(ValueError, match="cannot be extended"):
        bnp.extend(dataclasses.replace(small.run, origin=None), 1)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        bnp.extend(small.run, 0)


def test_a_thinned_run_is_one_of_more_sweeps_per_draw(small, reference):
    same_run(reference.thinned(5), run(small.table, num_samples=2, thin=10))
    with pytest.raises(ValueError, match="not a multiple"):
        reference.thinned(3)


def after(sweeps):
    """A target that is reached after so many sweeps that follow the warm-up."""
    return lambda run: after_warmup(run) >= sweeps


def after_warmup(run):
    return run.settings.num_sweeps - run.settings.num_warmup


UNTIL = {"num_chains": 2, "num_warmup": 15, "num_samples": 3, "thin": 2}


def run_until(table, target, **options):
    return bnp.sample(MODEL, table, key=jax.random.key(0), until=target, **(UNTIL | options))


# Lengths of the rounds, the first one's being 1.
ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


# Sweeps asked for; draws held and sweeps per draw: 3 draws first, and never more than 12.
@pytest.mark.parametrize(
    ("sweeps", "held", "thin"),
    [(1, 3, 2), (7, 6, 2), (13, 9, 2), (24, 12, 2), (25, 9, 4), (37, 12, 4), (49, 9, 8),
     (97, 9, 16)],
)  # fmt: skip
def test_draws_until_a_target_are_those_of_one_run(small, sweeps, held, thin):
    """The first quarter of the draws is let go, but of the first round."""
    asked = []

    def target(run):
        asked.append(after_warmup(run))
        return after(sweeps)(run)

    found = run_until(small.table, target)
    kept = held if held == 3 else held - held // 4
    assert (found.settings.num_samples, found.settings.thin) == (kept, thin)
    assert asked == [6 * times for times in ROUNDS[: len(asked)]] and asked[-1] == held * thin
    same_run(found, later_draws(run(small.table, num_samples=held, thin=thin)))
    assert found.until.target is target and found.until.first.thin == 2


def later_draws(whole):
    """Three quarters of the draws, but of the run of the first ones alone."""
    number = whole.settings.num_samples
    if number == 3:
        return whole
    dropped = number // 4
    draws = {name: value[:, dropped:] for name, value in whole.draws.items()}
    settings = dataclasses.replace(
        whole.settings, num_samples=number - dropped, num_discarded=dropped * whole.settings.thin
    )
    return dataclasses.replace(whole, draws=draws, settings=settings)


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_let_draws_go_is_extended_like_any_other(small, every):
    """Arrays are kept of every fourth draw only, or of all."""
    later = run(small.table, num_samples=16, parameters_every=every).later_draws()
    dropped = 4
    assert later.settings.num_discarded == 2 * dropped and later.settings.num_sweeps == 15 + 32
    assert bnp.to_inference_data(later)["posterior"].attrs["num_warmup"] == 15 + 2 * dropped
    longer = bnp.extend(later, 8)
    whole = run(small.table, num_samples=24, parameters_every=every)
    for name, value in whole.draws.items():
        kept = value[:, dropped if value.ndim == 2 else dropped // every :]
        np.testing.assert_array_equal(longer.draws[name], kept)
    assert longer.settings.num_samples == 24 - dropped
    cut = bnp.extend(later, 8, max_seconds=1e-9, chunk_sweeps=1)
    assert cut.settings.num_samples == cut.draws["alpha"].shape[1]
    with pytest.raises(ValueError, match="that were discarded, cannot be thinned by 5"):
        longer.thinned(5)


def test_the_time_of_checks_counts(small, monkeypatch):
    """By this clock the function `until` takes 1,000 seconds: one call uses up ten minutes."""
    clock = itertools.count(step=1000.0)
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    calls = []
    ended = run_until(small.table, lambda run: bool(calls.append(run)), max_minutes=10)
    assert len(calls) == 1 and ended.seconds["checks"] == 1000


def test_a_run_ends_at_the_first_draw_after_its_minutes(small):
    """It stops where no target would have it stop, the first draws being asked for in any case."""
    first = run_until(small.table, after(1000), max_minutes=1e-9, finish_first=True)
    same_run(first, run(small.table, num_samples=3))
    used = sum(first.seconds.values())
    again = bnp.extend(first, 10**5, max_seconds=used + 1, chunk_sweeps=1)
    assert 3 < again.settings.num_samples < 3 + 10**5
    assert sum(again.seconds.values()) > used + 1
    same_run(again, run(small.table, num_samples=again.settings.num_samples))
    with pytest.raises(ValueError, match="max_minutes"):
        run_until(small.table, after(1), max_minutes=0)
    with pytest.raises(ValueError, match="resume is only for a run with a checkpoint"):
        run(small.table, resume=True)
    with pytest.raises(ValueError, match="finish_first are only for a run with a target"):
        run(small.table, finish_first=False)


@pytest.fixture
def one_second(monkeypatch):
    """A clock by which every chunk of sweeps takes one second, and so does each compilation."""
    clock = itertools.count()
    monkeypatch.setattr(driver, "time", SimpleNamespace(perf_counter=lambda: next(clock)))


SLOW = {"num_samples": 30, "chunk_sweeps": 1}


@pytest.mark.parametrize("every", [1, 4])
def test_minutes_end_the_first_draws_too(small, tmp_path, one_second, every):
    """What was made until then is judged; with more minutes the draws are those of one run."""
    options = SLOW | {"checkpoint": tmp_path / "c", "parameters_every": every}
    short = run_until(small.table, AllDraws(30), max_minutes=55 / 60, **options)
    made = short.settings.num_samples
    assert 16 <= made < 20 and 55 <= sum(short.seconds.values()) < 58
    assert short.settings.num_discarded == 0 and short.settings.num_arrays == made // every
    same_run(short, run(small.table, num_samples=made, parameters_every=every))
    told = f"stopped after 0.916667 minutes, with {made} of at least 30 draws of each chain; allow"
    assert any(sentence.startswith(told) for sentence in bnp.diagnose(short).warnings)
    longer = run_until(small.table, AllDraws(30), max_minutes=10, resume=True, **options)
    assert not any(sentence.startswith("stopped") for sentence in bnp.diagnose(longer).warnings)
    same_run(longer, run(small.table, num_samples=30, parameters_every=every))


@pytest.mark.parametrize(("every", "seconds"), [(1, 10), (1, 20), (4, 40)])
def test_minutes_that_end_before_there_are_draws_to_judge(
    small, tmp_path, one_second, every, seconds
):
    """In the warm-up, or before four draws have their arrays; nothing is lost."""
    options = SLOW | {"checkpoint": tmp_path / "c", "parameters_every": every}
    first = 15 + 2 * 4 * every
    with pytest.raises(bnp.OutOfTime, match=f"of the {first} that the warm-up and") as caught:
        run_until(small.table, after(1), max_minutes=seconds / 60, **options)
    swept = int(str(caught.value).split("at sweep ")[1].split()[0])
    assert seconds - 4 <= swept < seconds and "take about 1 minute" in str(caught.value)
    longer = run_until(small.table, after(1), max_minutes=10, resume=True, **options)
    same_run(longer, run(small.table, num_samples=30, parameters_every=every))


def test_minutes_that_compilation_takes(small, one_second):
    said = (
        r"^stopped after 0\.0167 minutes, at sweep 0 of the 23 .* compilation, which cannot be "
        r"stopped, took longer than the 0\.01 minutes allowed"
    )
    # The clock has one second of the initial states, after which the sweep is not compiled.
    with pytest.raises(bnp.OutOfTime, match=said):
        run_until(small.table, after(1), max_minutes=0.01, **SLOW)
    said = r"^stopped after 0\.0333 minutes, at sweep 0 of .* longer than the 0\.025 minutes"
    with pytest.raises(bnp.OutOfTime, match=said):
        run_until(small.table, after(1), max_minutes=0.025, **SLOW)
    whole = run_until(small.table, after(1), max_minutes=0.01, finish_first=True, **SLOW)
    assert whole.settings.num_samples == 30


def test_a_run_until_a_target_goes_on_from_any_checkpoint(small, tmp_path, monkeypatch):
    """Stopped at every checkpoint in turn: also at those that let go of every second draw."""

    class Stopped(Exception):
        pass

    save = Checkpoint.save
    replaced = []

    def save_and_stop(self, *saved, **how):
        save(self, *saved, **how)
        replaced.append(how["replace"])
        raise Stopped

    options = {"checkpoint": tmp_path / "c", "chunk_sweeps": 7, "checkpoint_seconds": 0}
    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    for stops in range(40):
        try:
            resumed = run_until(small.table, after(97), resume=stops > 0, **options)
            break
        except Stopped:
            continue
    assert sum(replaced) == 3 and len(replaced) > 10
    same_run(resumed, later_draws(run(small.table, num_samples=9, thin=16)))
    # What the manifest names, and nothing else, is in the folder.
    monkeypatch.undo()
    assert len(list((tmp_path / "c").glob("state-*"))) == 1
    assert run_until(small.table, after(97), resume=True, **options).settings == resumed.settings


def test_more_minutes_go_on_where_fewer_ended(small, tmp_path):
    options = {"checkpoint": tmp_path / "c"}
    short = run_until(small.table, after(49), max_minutes=1e-9, finish_first=True, **options)
    assert short.settings.num_samples == 3
    longer = run_until(small.table, after(49), resume=True, **options)
    same_run(longer, later_draws(run(small.table, num_samples=9, thin=8)))
    assert sum(longer.seconds.values()) > sum(short.seconds.values())


def test_a_checkpoint_of_another_run_is_refused(small, tmp_path):
    options = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0}
    run(small.table, **options)
    with pytest.raises(CheckpointError, match="other data, settings"):
        run(small.table, seed=1, resume=True, **options)
    run(small.table, seed=1, **options)


@pytest.mark.parametrize("victim", ["manifest.json", "state-*.npz", "draws-*.npz"])
def test_a_flipped_bit_is_noticed(small, tmp_path, victim):
    options = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0, "chunk_sweeps": 9}
    run(small.table, **options)
    path = next((tmp_path / "c").glob(victim))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        run(small.table, resume=True, **options)


@pytest.mark.parametrize("victim", ["state-*.npz", "draws-*.npz"])
def test_other_arrays_in_a_sound_file_are_noticed(tmp_path, victim):
    """A file as NumPy writes it, whose own checksums are right."""
    Checkpoint(tmp_path, "some").save({}, [np.arange(3)], {"alpha": np.ones(4)})
    assert Checkpoint(tmp_path, "some").load() is not None
    path = next(tmp_path.glob(victim))
    with np.load(path) as arrays:
        other = {name: array + 1 for name, array in arrays.items()}
    np.savez(path, **other)
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoint(tmp_path, "some").load()


@pytest.mark.long
def test_slots_of_the_starts_are_given_back(small):
    """A start from many components has the slots for them, which later sweeps do not pay for."""
    options = SETTINGS | {"num_warmup": 240, "start_components": (2, 60)}
    model = dataclasses.replace(MODEL, capacity=64, level_prior="uniform")
    assert (
        chunks.capacity_of_starts(model, bnp.inference.Settings(2, 1, 1, 1, (), (2, 60)), 10**6)
        == 128
    )
    few = bnp.sample(model, small.table, key=jax.random.key(0), **options)
    assert few.capacity == 64 and few.growth == ()
    assert few.draws["g0"].shape[-1] == 64
    np.testing.assert_allclose(few.draws["g0"].sum(axis=-1), 1, atol=1e-5)
    again = bnp.sample(model, small.table, key=jax.random.key(0), chunk_sweeps=7, **options)
    assert equal(few, again)


class Marked(bnp.NPLCM):
    """Each time that a state is settled, it doubles shapes that no sweep changes."""

    def settle(self, state, data):
        return dataclasses.replace(state, level_shape=2 * state.level_shape)


@pytest.mark.parametrize("chunk_sweeps", [3, None])
def test_states_are_settled_in_the_warm_up_and_never_after(small, chunk_sweeps):
    """A state that is put in order between two draws would leave the posterior."""
    model = Marked(components=2, level_prior="uniform", split_merge_every=0)
    options = {"num_warmup": 5, "num_samples": 12, "keep": ["level_shape", "alpha"]}
    made = run(small.table, model=model, thin=1, chunk_sweeps=chunk_sweeps, **options)
    assert (made.draws["level_shape"] == 2**5).all()


def test_capacity_grows_by_itself(small, monkeypatch):
    """By new slots that have a key of their own each time, in each chain."""
    keys, right = [], driver.grow_chains

    def grow_chains(model, of_chains, *others):
        keys.append(np.asarray(jax.random.key_data(of_chains)))
        return right(model, of_chains, *others)

    monkeypatch.setattr(driver, "grow_chains", grow_chains)
    few = dataclasses.replace(MODEL, capacity=16)
    options = SETTINGS | {"num_warmup": 60, "start_components": (3,)}
    grown = bnp.sample(few, small.table, key=jax.random.key(0), **options)
    assert grown.capacity > 16
    assert [capacity for _, capacity in grown.growth] == [
        32 * 2**i for i in range(len(grown.growth))
    ]
    late = grown.draws["left_over"][:, -5:]
    assert late.max() <= chunks.LEFT_OVER_TOLERANCE
    np.testing.assert_allclose(grown.draws["g0"].sum(axis=-1), 1, atol=1e-5)
    again = bnp.sample(few, small.table, key=jax.random.key(0), chunk_sweeps=3, **options)
    assert equal(grown, again) and grown.growth == again.growth
    # In an extension too, where draws of several sizes meet.
    options |= {"num_warmup": 0, "thin": 1}
    shorter = bnp.sample(few, small.table, key=jax.random.key(0), **options | {"num_samples": 1})
    extended = bnp.extend(shorter, 69)
    assert extended.capacity > shorter.capacity
    same_run(
        extended,
        bnp.sample(few, small.table, key=jax.random.key(0), **options | {"num_samples": 70}),
    )
    times = {sweep for made in (grown, extended) for sweep, _ in made.growth}
    assert len(np.unique(np.concatenate(keys), axis=0)) == 2 * len(times) > 2


def test_a_second_run_on_data_of_the_same_shape_compiles_nothing(small):
    run(small.table)
    shuffled = bnp.Microdata(small.table.schema, small.table.codes[::-1])
    before = [f._cache_size() for f in (chunks.advancing(), chunks.init_chains)]
    options = {"num_warmup": 9, "num_samples": 14, "thin": 1, "parameters_every": 2}
    run(shuffled, seed=5, **options)
    assert [f._cache_size() for f in (chunks.advancing(), chunks.init_chains)] == before


def test_kept_names_are_chosen_and_checked(small):
    kept = run(small.table, model=bnp.NPLCM(components=4), keep=("components", "last_class"))
    assert set(kept.draws) == {"components", "last_class"}
    with pytest.raises(ValueError, match="no 'nothing'"):
        run(small.table, model=bnp.NPLCM(components=4), keep=("nothing",))


@pytest.mark.parametrize(
    "options",
    [{"num_chains": 0}, {"num_samples": 0}, {"thin": 0}, {"num_warmup": -1}, {"num_samples": 2**31},
     {"start_components": ()}, {"chunk_sweeps": 0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(small, options):
    with pytest.raises(ValueError):
        run(small.table, **options)


DEVICES = """
import json, sys
import jax, numpy as np, pandas as pd
import bnp_models as bnp
frame = bnp.datasets.census_income().sample(150, seed=1)[["age", "sex", "race", "education"]]
table = bnp.Microdata.from_frame(frame)
cells = pd.DataFrame([
    {"age": "0-14", "education": level} for level in ("High school", "Bachelor or higher")
])
run = bnp.sample(
    bnp.HDPMixedMembership(concentration="hierarchical", capacity=256), table,
    key=jax.random.key(0), conditions=bnp.StructuralZeros.from_frame(cells, table.schema),
    num_chains=2, num_warmup=0, num_samples=20,
)
draws = run.draws | {"z": np.asarray(run.state.z), "alphas": np.asarray(run.state.alpha)}
shards = len(run.state.z.sharding.device_set)
run = bnp.sample(
    bnp.NPLCM(components=8), table, key=jax.random.key(1), num_chains=2, num_warmup=0,
    num_samples=20,
)
draws |= {f"nplcm {name}": value for name, value in run.draws.items()}
draws = {k: (str(v.dtype), v.tobytes().hex()) for k, v in draws.items()}
print(json.dumps({"shards": shards, "draws": draws}))
"""


@pytest.mark.long
def test_one_device_and_eight_give_the_same_draws():
    """Two chains by four parts of the records: integers are the same, floats but for rounding."""
    results = []
    for devices in (1, 8):
        environment = os.environ | {
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} "
            f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
            # Without any optimisation, sums over parts of the records round in another order.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
        }
        command = [sys.executable, "-c", DEVICES]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    assert [r["shards"] for r in results] == [1, 8]
    one, eight = (r["draws"] for r in results)
    for name, (dtype, data) in one.items():
        a, b = (np.frombuffer(bytes.fromhex(x), dtype) for x in (data, eight[name][1]))
        if np.issubdtype(dtype, np.integer):
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=name)


def test_settings_out_of_range_leave_an_earlier_checkpoint(small, tmp_path):
    run(small.table, num_samples=4, checkpoint=tmp_path)
    kept = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match="chunk_sweeps"):
        run(small.table, num_samples=4, checkpoint=tmp_path, chunk_sweeps=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_parameters_are_taken_evenly(small):
    """As many of them as are asked for, or fewer."""
    kept = small.run.settings.num_chains * small.run.settings.num_arrays
    for most, thin in ((kept, 1), (kept // 2, 2), (kept // 2 - 1, 3), (2 * kept, 1)):
        few, every = small.run.spaced_parameters(most), small.run.parameters(thin)
        assert few["alpha"].shape == every["alpha"].shape
        np.testing.assert_array_equal(few["alpha"], every["alpha"])
