"""One small run that several test files look at, and how all of them compile."""

import dataclasses
import fcntl
import gc
import inspect
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp

# Sweeps compile for longer than they run: most tests do without optimisations, those with longer
# chains make do with few.
LONG_CHAINS = (
    "test_discrete.py", "test_hypergeometric.py", "test_split_merge.py", "test_hamiltonian.py",
    "models/cells", "latent_classes/test_nplcm_exact.py", "mixed_membership/test_hdp_",
    "test_ordered_exact.py", "test_attack_exact.py", "test_modes.py", "test_calibration.py",
)  # fmt: skip
FLAGS = "--xla_backend_optimization_level=1"
# The second: a program is not compiled in parts, since each process has one core.
FLAGS_OF_SOME = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def with_flags() -> str:
    """XLA_FLAGS with these; XLA aborts at one that it does not know, and then does without."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
    more = f"{flags} {FLAGS_OF_SOME}"
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": more}, capture_output=True)
    return flags if done.returncode else more


# Tracing makes many objects that live on: the collector would go through them again and again.
gc.set_threshold(100_000, 20, 50)

# Each of the processes that share the tests has a core: threads of several on one wait for others.
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    _number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    os.sched_setaffinity(0, {_cores[_number % len(_cores)]})

# Processes that share the tests, and those that tests start, find what others compiled.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = with_flags()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _cache = tempfile.TemporaryDirectory(prefix="bnp-models-xla-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
os.makedirs(os.environ["JAX_COMPILATION_CACHE_DIR"], exist_ok=True)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
least_seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)
jax.config.update("jax_disable_most_optimizations", True)


def pytest_collection_modifyitems(items):
    """Files that take longest come first, so that no process is left alone with one of them."""
    first = ("/models/", "/inference/", "/cli/", "test_notebooks.py")
    items.sort(key=lambda item: not any(part in item.path.as_posix() for part in first))


# Moves that let chains mix, and a prior that is learned, take most of the time that a sweep takes
# to compile.
PLAIN = {
    "split_merge_every": 0, "seating_every": 0, "tilt": False, "trajectory_steps": 0,
    "reorder": False, "swap": False, "level_prior": "uniform",
}  # fmt: skip
MODELS = bnp.HDPMixedMembership, bnp.MixedMembership, bnp.NPLCM, bnp.TNPLCM, bnp.NDPMPM
AS_BY_DEFAULT = ("/tests/kernels/", "/tests/models/", "/tests/test_calibration.py")


@contextmanager
def plain_sweeps():
    """Models whose sweeps are plain Gibbs under the papers' prior, but for what a test asks for."""
    with pytest.MonkeyPatch.context() as patch:
        for model in MODELS:
            names = list(inspect.signature(model.__init__).parameters)
            # Options that are given by name only have defaults of their own.
            by_name = model.__init__.__kwdefaults__ or {}
            plain = {name: PLAIN.get(name, value) for name, value in by_name.items()}
            patch.setattr(model.__init__, "__kwdefaults__", plain)
            given = model.__init__.__defaults__ or ()
            positional = [name for name in names if name not in by_name]
            pairs = zip(positional[len(positional) - len(given) :], given, strict=True)
            patch.setattr(model.__init__, "__defaults__", tuple(PLAIN.get(*pair) for pair in pairs))
        yield


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_module(request):
    """What a module compiles is forgotten: a later one must not find programs of patched functions.

    A compiled program maps memory too, and a process that has too many maps is killed.
    """
    path = request.path.as_posix()
    runs_long = any(part in path for part in LONG_CHAINS)
    jax.config.update("jax_disable_most_optimizations", not runs_long)
    with nullcontext() if any(part in path for part in AS_BY_DEFAULT) else plain_sweeps():
        yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


@contextmanager
def one_at_a_time(name):
    """What several processes would compile at once, one compiles and the others find."""
    with open(os.path.join(os.environ["JAX_COMPILATION_CACHE_DIR"], f"{name}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


VARIABLES = ("age", "sex", "race", "education")


@pytest.fixture(scope="session")
def sample_frame():
    """150 census records, as labels."""
    return bnp.datasets.census_income().sample(150, seed=1)[list(VARIABLES)]


@pytest.fixture(scope="session")
def small(sample_frame):
    """A short run on those records, and the risk estimated from it."""
    table = bnp.Microdata.from_frame(sample_frame)
    with one_at_a_time("small"), plain_sweeps():
        run = bnp.sample(
            bnp.HDPMixedMembership(), table, key=jax.random.key(0), num_chains=2, num_warmup=100,
            num_samples=30,
        )  # fmt: skip
        risk = bnp.population_risk(run, population_size=20_000)
    return SimpleNamespace(table=table, run=run, risk=risk)


PERSONAL = ("age", "sex", "marital_status", "education", "class_of_worker")

# Combinations that cannot occur in the census: children neither marry nor work nor study on, and
# nobody else is "Under 15 years old"; some are said twice.
CHILD, NO_CHILD = {"age": "0-14"}, {"education": "Under 15 years old"}
IMPOSSIBLE = (
    [CHILD | {"marital_status": status} for status in
     ("Married", "Separated or divorced", "Widowed")]
    + [CHILD | {"education": level} for level in
       ("Less than high school", "High school", "Some college", "Bachelor or higher")]
    + [CHILD | {"class_of_worker": kind} for kind in ("Employee", "Self-employed")]
    + [NO_CHILD | {"age": age} for age in
       ("15-24", "25-34", "35-44", "45-54", "55-64", "65-74", "75+")]
    + [NO_CHILD | {"marital_status": "Widowed", "sex": sex} for sex in ("Female", "Male")]
)  # fmt: skip


@pytest.fixture(scope="session")
def conditions_frame():
    """18 structural zeros of the census variables."""
    return pd.DataFrame(IMPOSSIBLE, columns=list(PERSONAL))


@pytest.fixture(scope="session")
def incomplete_frame():
    """150 census records, as labels, a tenth of the values missing."""
    frame = bnp.datasets.census_income().sample(150, seed=1)[list(PERSONAL)]
    gone = np.random.default_rng(0).random(frame.shape) < 0.1
    return frame.astype(object).reset_index(drop=True).mask(gone)


@pytest.fixture(scope="session")
def latent(incomplete_frame, conditions_frame):
    """A short run of the truncated latent class model on those, and its margins."""
    table = bnp.Microdata.from_frame(incomplete_frame)
    conditions = bnp.StructuralZeros.from_frame(conditions_frame, table.schema)
    with one_at_a_time("latent"), plain_sweeps():
        run = bnp.sample(
            bnp.TNPLCM(), table, key=jax.random.key(0), conditions=conditions, num_chains=2,
            num_warmup=100, num_samples=30,
        )  # fmt: skip
    return SimpleNamespace(
        table=table, conditions=conditions, run=run, margins=bnp.level_margins(run)
    )


@pytest.fixture
def with_draws(small):
    """Make a run and a risk whose draws are what a test gives."""

    def make(draws, risk_draws, **run_fields):
        settings = run_fields.pop("settings", None)
        if settings is None:
            num_chains, num_draws = next(iter(risk_draws.values())).shape
            settings = dataclasses.replace(
                small.run.settings, num_chains=num_chains, num_samples=num_draws
            )
        fields = {"draws": draws, "settings": settings, "growth": ()} | run_fields
        run = dataclasses.replace(small.run, **fields)
        return run, dataclasses.replace(small.risk, run=run, **risk_draws)

    return make
