"""Keys that can be used only once; uniforms and normals with fine resolution near zero.

``jax.random.uniform`` has a granularity of 2**-23 in float32, so that an event rarer than about
1e-7 happens never or too often. The uniforms here have 32 bits: their granularity near zero is
2**-32, and every kernel puts its rarest event there.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Float, Int, Key, UInt32


class Keys:
    """Keys split from one key, each of which is given out once.

    ``keys = Keys(key, 3)`` and three times ``keys.pop()``, or ``a, b, c = Keys(key, 3)``.

    Parameters
    ----------
    key
        Key that is used up; do not use it for anything else.
    num
        Number of keys to give out; static.

    Raises
    ------
    IndexError
        If more keys are requested. (With an array of keys, JAX would silently return the last one.)
    """

    def __init__(self, key: Key[Array, ""], num: int = 2):
        self._num, self._left = num, list(jax.random.split(key, num))  # noqa: TID251

    def pop(self) -> Key[Array, ""]:
        """Return the next key."""
        if not self._left:
            raise IndexError(f"all {self._num} keys have been handed out; split off more")
        return self._left.pop(0)

    def __iter__(self):
        while self._left:
            yield self.pop()


def key_array(key: Key[Array, ""], num: int) -> Key[Array, " num"]:
    """Array of keys split from one, one for each lane of `jax.vmap`."""
    return jax.random.split(key, num)  # noqa: TID251


def word_pair(
    key: Key[Array, ""], shape: tuple[int, ...], stream: int | UInt32[Array, ""] = 0
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Draw two independent arrays of random 32-bit words at the cost of one `jax.random.bits`.

    Parameters
    ----------
    key
        A key of any implementation; used once.
    shape
        Shape of each array, of at most 2**32 elements.
    stream
        Number below 2**32. The streams of a key are independent of each other, so that a loop need
        not fold its counter into the key.

    Returns
    -------
    first, second
        Words that depend only on the key and on the position in the array, so that they are the
        same for every division of the arrays among devices.

    Raises
    ------
    ValueError
        If the shape has more than 2**32 elements.

    Notes
    -----
    The generator is Threefry-2x32 with 20 rounds (Salmon et al. 2011, doi:10.1145/2063384.2063405);
    both words of each block are used.
    """
    if math.prod(shape) > 2**32:
        raise ValueError(f"word_pair: {shape} has more than 2**32 elements; draw it in parts")
    if jax.random.key_impl(key) == "threefry2x32":
        seed = jax.random.key_data(key)
    else:
        seed = jax.random.bits(key, (2,))
    position = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        position = position + lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
        stride *= shape[axis]
    if isinstance(stream, jax.Array):
        # The generator's loop does not broadcast its two counters: `jax.vmap` of a loop over
        # streams makes lanes of one of them, and so of both.
        position = position + stream * jnp.uint32(0)
    return tuple(
        threefry2x32_p.bind(
            jnp.broadcast_to(seed[0], shape),
            jnp.broadcast_to(seed[1], shape),
            jnp.broadcast_to(jnp.uint32(stream), shape),
            position,
        )
    )


def words(key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Draw one array of random words, at half the cost of a pair if the first axis is 2 or longer.

    The two words of each block are in the two halves of the first axis, so that the last axis may
    be divided among devices in any way.
    """
    if len(shape) < 2 or shape[0] < 2:
        return word_pair(key, shape)[0]
    half = (shape[0] + 1) // 2
    return jnp.concatenate(word_pair(key, (half, *shape[1:])))[: shape[0]]


def uniform(words: UInt32[Array, "..."], dtype=jnp.float32) -> Float[Array, "..."]:
    """Uniforms on the open interval (0, 1) from random words.

    The smallest is 2**-33 and the granularity near zero 2**-32; the largest is below one in the
    floating type `dtype`.
    """
    u = (words.astype(dtype) + dtype(0.5)) * dtype(2.0**-32)
    return jnp.minimum(u, dtype(1.0 - jnp.finfo(dtype).epsneg))


def uniform_index(
    u: Float[Array, "*#shape"], n: int | Int[Array, "*#shape"]
) -> Int[Array, "*#shape"]:
    """Uniform integers on 0..n-1 from uniforms on (0, 1); -1 where n is 0."""
    return jnp.minimum((u * n).astype(jnp.int32), n - 1)


def normal(words: UInt32[Array, "..."], dtype=jnp.float32) -> Float[Array, "..."]:
    """Standard normals from random words, by the inverse error function."""
    magnitude = (words >> 1).astype(dtype) * dtype(2.0**-31)
    magnitude = jnp.minimum(magnitude, dtype(1.0 - jnp.finfo(dtype).epsneg))
    x = dtype(2.0**0.5) * lax.erf_inv(magnitude)
    return jnp.where(words & 1, x, -x)


def uniform_pair(
    key: Key[Array, ""], shape: tuple[int, ...], dtype=jnp.float32
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Draw two independent arrays of uniforms on (0, 1), by `word_pair` and `uniform`."""
    first, second = word_pair(key, shape)
    return uniform(first, dtype), uniform(second, dtype)


def numpy_generator(key: Key[Array, ""]) -> np.random.Generator:
    """Make a NumPy generator from a key, by 128 random bits."""
    bits = np.asarray(jax.random.bits(key, (4,), np.uint32), np.uint64)
    return np.random.Generator(np.random.Philox(key=bits[:2] << np.uint64(32) | bits[2:]))
