"""What layers draw (dropout, noise, paths left out) as a function of seed, step and an example's place in the global batch.

While a step is traced, Keras' random functions give each example numbers of its own: a hash of the layer's seed in this step, the example's
place and the element's coordinates. So a part of a batch draws what the whole batch would have drawn for it, however the batch is divided
and however far it is padded. On a CPU this costs half of what TensorFlow's generator does, and a thousandth of it under XLA.

Augmentation draws from examples' keys (`uniform`, `integers`): a counter-based generator (Salmon et al. 2011, Parallel Random Numbers: As
Easy as 1, 2, 3) on whole batches of keys, with the finaliser of MurmurHash3 as its mixing: a few vector operations, where TensorFlow's own
stateless functions take one seed a call.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend import random as backend_random
from keras.src.random.seed_generator import draw_seed


def bits(keys: tf.Tensor, stream: int, count: int = 1) -> tf.Tensor:
    """Random bits for `count` streams, [count, batch] uint32. In graph.

    Args:
        keys: int32 [batch, 2], one for each example and epoch.
        stream: which draw from the key: different numbers give independent draws.
        count: how many streams from `stream` on.
    """
    words = tf.bitcast(keys, tf.uint32)
    streams = tf.constant([[(stream + i + 1) * 0x9E3779B9 & 0xFFFFFFFF] for i in range(count)], tf.uint32)
    return mix(mix(mix(words[:, 0] + streams) ^ words[:, 1]) + streams)


def uniform(keys: tf.Tensor, stream: int, count: int = 1) -> tf.Tensor:
    """Uniform on [0, 1), [batch] float32, or [count, batch] where count > 1; multiples of 2**-24, so never rounded to 1. In graph."""
    values = tf.cast(right(bits(keys, stream, count), 8), tf.float32) * 2.0**-24
    return values if count > 1 else values[0]


def integers(keys: tf.Tensor, stream: int, low: int, high: int, count: int = 1) -> tf.Tensor:
    """Whole numbers from low to high, both included, [batch] int32, or [count, batch] where count > 1. In graph.

    Each is equally likely to within (high - low + 1) / 2**24.
    """
    return low + tf.cast(uniform(keys, stream, count) * float(high - low + 1), tf.int32)


def own(keys: tf.Tensor) -> tf.Tensor:
    """Keys for somebody's own augmentation, int32 [batch, 2]: whatever its streams, its draws are independent of ours."""
    return tf.bitwise.bitwise_xor(keys, tf.constant([0x6F776E21, 0x51A7B3C5], tf.int32))


def mix(words: tf.Tensor) -> tf.Tensor:
    """MurmurHash3's fmix32: every bit of the input moves each bit of the output with probability one half."""
    words = (words ^ right(words, 16)) * tf.constant(0x85EBCA6B, tf.uint32)
    words = (words ^ right(words, 13)) * tf.constant(0xC2B2AE35, tf.uint32)
    return words ^ right(words, 16)


def right(words: tf.Tensor, places: int) -> tf.Tensor:
    """Words moved so many bits to the right."""
    return tf.bitwise.right_shift(words, tf.constant(places, tf.uint32))


Size = Any  # a number, or an int32 tensor []
SEED = "seed_generator_state"  # name of the state of a Keras SeedGenerator, which the step sets itself


class Draws(NamedTuple):
    """What the draws of a micro-batch follow from."""

    seed: tf.Tensor  # int32 [2], of the step
    places: tf.Tensor  # int32 [micro], of the examples in the global batch


@dataclass
class _Current:
    draws: Draws
    unseeded: int = 0  # draws so far without a seed of their own


_CURRENT = contextvars.ContextVar[_Current | None]("current", default=None)


@contextlib.contextmanager
def by_example(draws: Draws) -> Iterator[None]:
    """While a model is called within (or traced), its layers draw for each example by its place."""
    _install()
    token = _CURRENT.set(_Current(draws))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def seeded(variables: Sequence[keras.Variable], values: Sequence[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
    """`values` of `variables`, each state of a seed replaced with one drawn from `seed`, int32 [2]."""
    return [tf.cast(_folded(seed, number), value.dtype) if variable.name == SEED else value
            for number, (variable, value) in enumerate(zip(variables, values))]


def _folded(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Another seed, int32 [2], for each whole number. TensorFlow's own gives others where XLA compiles it and a word is negative."""
    words = tf.bitcast(seed, tf.uint32)
    first = mix(words[0] + tf.constant((number + 1) * 0x9E3779B9 & 0xFFFFFFFF, tf.uint32))
    return tf.bitcast(tf.stack([first, mix(first ^ words[1])]), tf.int32)


def row_keys(seed: Any, rows: Size) -> tf.Tensor:
    """A key for each row of a draw, uint32 [rows]; in graph.

    Rows are examples, or several of each example one after another, as where [batch, time, width] was made [batch x time, width]. Any other
    number of rows belongs to no example: the same is then drawn for every part of the batch. So it is outside of `by_example`.

    Args:
        seed: a Keras SeedGenerator, an integer, a tensor [2], or None for one that follows from the step.
    """
    current, rows = _CURRENT.get(), _known(rows)
    if seed is None and current is not None:
        current.unseeded += 1
        seed = _folded(current.draws.seed, -current.unseeded)
    words = tf.bitcast(tf.cast(seed if tf.is_tensor(seed) else draw_seed(seed), tf.int32), tf.uint32)

    def keys_of(places: tf.Tensor) -> tf.Tensor:
        return mix(mix(tf.bitcast(places, tf.uint32) ^ words[0]) + words[1])

    shared = keys_of(tf.constant([-1]))
    places = tf.constant([-1]) if current is None else current.draws.places
    count, keys = places.shape[0], keys_of(places)
    if isinstance(rows, int):
        if rows == count:
            return keys
        if rows % count:
            keys, count = shared, 1
    else:
        own = rows % count == 0
        count = tf.where(own, count, 1)
        keys = tf.where(own, keys, shared)[:count]
    return tf.reshape(_spread(keys, [rows // count], 0), [rows])


def layer_bits(keys: tf.Tensor, shape: Sequence[Size]) -> tf.Tensor:
    """Random bits, uint32 of `shape`, whose first dimension is that of `keys`; in graph. An element's do not depend on how many others
    there are."""
    return mix(_spread(keys, shape[1:], 1))


def kept(x: tf.Tensor, keys: tf.Tensor, rate: float, noise_shape: Sequence[Size] | None = None) -> tf.Tensor:
    """`x` with a share of `rate` of its elements set to 0, the others divided by 1 - rate; in graph.

    Args:
        keys: of the rows of the noise.
        noise_shape: of the draw, where several elements share one; None there is the size of `x`.
    """
    sizes = _sizes(x)
    shape = sizes if noise_shape is None else [size if own is None else own for size, own in zip(sizes, noise_shape)]
    stays = layer_bits(keys, shape) >= tf.constant(round(rate * 2**32), tf.uint32)
    return tf.where(stays, x / tf.cast(1.0 - rate, x.dtype), tf.zeros([], x.dtype))


def _spread(keys: tf.Tensor, sizes: Sequence[Size], first: int) -> tf.Tensor:
    """Keys [...] + a number for each element of so many more dimensions, [..., *sizes]; the same coordinates add the same number."""
    for number, size in enumerate(sizes, first):
        stride = tf.constant(pow(0x9E3779B1, number + 1, 2**32), tf.uint32)  # odd, so that no two coordinates of a dimension meet
        keys = keys[..., None] + tf.cast(tf.range(size), tf.uint32) * stride
    return keys


def _sizes(x: tf.Tensor) -> list[Size]:
    """The sizes of a tensor's dimensions, as numbers where they are known."""
    return [tf.shape(x)[at] if size is None else size for at, size in enumerate(x.shape)]


def _known(size: Any) -> Size:
    static = tf.get_static_value(size) if tf.is_tensor(size) else size
    return size if static is None else int(static)


# Keras' random functions by example. Signatures are Keras' (keras.src.backend.tensorflow.random).


def _dropout(inputs: tf.Tensor, rate: float, noise_shape: Any = None, seed: Any = None) -> tf.Tensor:
    if not 0.0 < rate < 1.0:
        return tf.zeros_like(inputs) if rate else inputs
    rows = _sizes(inputs)[0] if noise_shape is None or noise_shape[0] is None else noise_shape[0]
    return kept(inputs, row_keys(seed, rows), rate, noise_shape)


def _bits_of(shape: Any, seed: Any) -> tf.Tensor:
    sizes = [_known(size) for size in (tf.unstack(shape) if tf.is_tensor(shape) else shape)]
    if not sizes:
        return layer_bits(row_keys(seed, 1), [1])[0]
    return layer_bits(row_keys(seed, sizes[0]), sizes)


def _share(shape: Any, seed: Any, digits: int = 24) -> tf.Tensor:
    """Uniform on [0, 1), float32, in multiples of 2^-digits."""
    return tf.cast(right(_bits_of(shape, seed), 32 - digits), tf.float32) * 2.0**-digits


def _uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> tf.Tensor:
    dtype = tf.as_dtype(dtype or keras.config.floatx())
    digits = {tf.bfloat16: 8, tf.float16: 11}.get(dtype, 24)  # so that none is rounded to 1
    low = tf.cast(minval, dtype)
    return low + tf.cast(_share(shape, seed, digits), dtype) * (tf.cast(maxval, dtype) - low)


def _normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None, *, outside: float = 0.0) -> tf.Tensor:
    """Without the share `outside` at each end."""
    share = outside + (_share(shape, seed, 23) + 2.0**-24) * (1.0 - 2.0 * outside)  # never 0 or 1
    dtype = dtype or keras.config.floatx()
    return tf.cast(tf.math.ndtri(share), dtype) * tf.cast(stddev, dtype) + tf.cast(mean, dtype)


def _truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> tf.Tensor:
    return _normal(shape, mean, stddev, dtype, seed, outside=0.022750131948179195)  # beyond two standard deviations


def _randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> tf.Tensor:
    low = tf.cast(minval, tf.int64)
    drawn = tf.cast(_bits_of(shape, seed), tf.int64) * (tf.cast(maxval, tf.int64) - low)
    return tf.cast(low + tf.bitwise.right_shift(drawn, tf.constant(32, tf.int64)), dtype)


@functools.cache
def _install() -> None:
    """From now on Keras' functions are ours within `by_example`, and their own outside."""
    functions: dict[str, Callable] = {"dropout": _dropout, "uniform": _uniform, "normal": _normal, "truncated_normal": _truncated_normal,
                                      "randint": _randint}
    for name, ours in functions.items():
        setattr(backend_random, name, _chosen(ours, getattr(backend_random, name)))


def _chosen(ours: Callable, theirs: Callable) -> Callable:
    @functools.wraps(theirs)
    def drawn(*arguments: Any, **options: Any) -> Any:
        return (theirs if _CURRENT.get() is None else ours)(*arguments, **options)

    return drawn
