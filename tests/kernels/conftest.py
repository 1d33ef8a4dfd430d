"""One key for each test, derived from its name."""

import re
import zlib

import jax
import pytest

from bnp_models.kernels.numerics.platforms import forms_of


def name_of(request):
    """The test's name, the same for either form of a kernel."""
    return re.sub(r"(-?(cpu|accelerator)\b-?|\[\])", "", request.node.name)


@pytest.fixture
def key(request):
    return jax.random.key(zlib.crc32(name_of(request).encode()))


@pytest.fixture(params=["cpu", "accelerator"])
def either_form(request):
    """The form of kernels for CPUs, and then that for accelerators."""
    if request.param == "cpu":
        yield
        return
    with forms_of(accelerator=True):
        yield


@pytest.fixture
def seed(request):
    """For numpy, where a test simulates by other means."""
    return zlib.crc32(b"numpy " + name_of(request).encode())


@pytest.fixture
def x64():
    """Double precision, by whichever context manager this jax has."""
    if hasattr(jax, "enable_x64"):
        context = jax.enable_x64(True)
    else:
        from jax.experimental import enable_x64

        context = enable_x64()
    with context:
        yield
