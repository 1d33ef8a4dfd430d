"""Structural zeros of real records that several files look at."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest
from regions import numbered_schema

from bnp_models.zeros.structural_zeros import StructuralZeros

ROOT = Path(__file__).parents[2]
NUM_LEVELS_60 = (3, 4, 9, 2, 6, 5, 11, 4, 3, 3)


@pytest.fixture(scope="session")
def benchmark():
    """The conditions of the benchmark."""
    path = ROOT / "experiments" / "speed" / "benchmark" / "conditions.py"
    spec = importlib.util.spec_from_file_location("conditions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sixty():
    codes = pd.read_csv(ROOT / "tests" / "reference" / "conditions_60.csv").to_numpy() - 1
    return StructuralZeros.from_codes(codes, numbered_schema(NUM_LEVELS_60))


@pytest.fixture(scope="session")
def pairwise(benchmark):
    num_levels, codes = benchmark.pairwise_conditions()
    return StructuralZeros.from_codes(codes, numbered_schema(num_levels))


@pytest.fixture(scope="session")
def real(benchmark):
    return {60: benchmark.conditions_60(), 73: benchmark.conditions_73()}
