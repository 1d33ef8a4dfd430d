"""One small run that several test files look at, and one compilation cache for all of them."""

import dataclasses
import os
import tempfile
from types import SimpleNamespace

import jax
import pytest

import bnp_models as bnp

# Commands that tests start as processes of their own find what the tests compiled.
_cache = tempfile.TemporaryDirectory(prefix="bnp-models-xla-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
jax.config.update("jax_compilation_cache_dir", _cache.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

VARIABLES = ("age", "sex", "race", "education")


@pytest.fixture(scope="session")
def sample_frame():
    """150 census records, as labels."""
    return bnp.datasets.census_income().sample(150, seed=1)[list(VARIABLES)]


@pytest.fixture(scope="session")
def small(sample_frame):
    """A short run on those records, and the risk estimated from it."""
    table = bnp.Microdata.from_frame(sample_frame)
    run = bnp.sample(
        bnp.HDPMixedMembership(), table, key=jax.random.key(0), num_chains=2, num_warmup=100,
        num_samples=30,
    )  # fmt: skip
    return SimpleNamespace(
        table=table, run=run, risk=bnp.population_risk(run, population_size=20_000)
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
