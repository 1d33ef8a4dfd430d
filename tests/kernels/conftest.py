"""One key for each test, derived from its name."""

import zlib

import jax
import pytest


@pytest.fixture
def key(request):
    return jax.random.key(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def seed(request):
    """For numpy, where a test simulates by other means."""
    return zlib.crc32(b"numpy " + request.node.name.encode())


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
