"""Randomness without state: numbers drawn from each example's own key, the same in any batch and on any replica.

A counter-based generator (Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3) on whole batches of
keys, with the finaliser of MurmurHash3 as its mixing: a few vector operations, where TensorFlow's own stateless
functions take one seed a call.
"""

import tensorflow as tf


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
