"""Ids to numbers and back in graph, from constants alone: nothing that an exported model would have to keep track of.

Whole-number ids are looked up by binary search; texts by a 62-bit hash, then compared, so that no two are ever confused.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

NO_ID = int(np.iinfo(np.int64).min)  # where a whole-number id is missing; texts: the empty text
BUCKETS = 1 << 62


def id_dtype(ids: Sequence[Any]) -> tf.DType:
    """int64 where the ids are whole numbers, else string."""
    return tf.int64 if len(ids) and isinstance(ids[0], int) else tf.string


def missing(dtype: tf.DType) -> Any:
    """The value that means no id."""
    return NO_ID if dtype == tf.int64 else ""


def finder(ids: Sequence[Any]) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function in graph from ids (int64 or string, any shape) to int32 numbers: place + 1, or 0 for others.

    Args:
        ids: all whole numbers or all texts, each once.
    """
    if not len(ids):
        return lambda values: tf.zeros(tf.shape(values), tf.int32)
    if id_dtype(ids) == tf.int64:
        plain = np.asarray(ids, np.int64)
        order = np.argsort(plain, kind="stable")
        return lambda values: _search(values, plain[order], order.astype(np.int32))[0]
    texts = np.asarray(ids, object)
    with tf.init_scope():  # computed once, when the graph is traced
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(texts.tolist()), BUCKETS).numpy()
    order = np.argsort(hashes, kind="stable")
    if np.any(np.diff(hashes[order]) == 0):  # one in a billion for a million ids
        raise ValueError("two ids have one hash")

    def find(values: tf.Tensor) -> tf.Tensor:
        numbers, at = _search(tf.strings.to_hash_bucket_fast(values, BUCKETS), hashes[order], order.astype(np.int32))
        return tf.where(tf.gather(tf.constant(texts[order].tolist()), at) == values, numbers, 0)

    return find


def _search(values: tf.Tensor, ordered: np.ndarray, order: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    flat = tf.reshape(values, [-1])
    at = tf.minimum(tf.searchsorted(tf.constant(ordered), flat), len(ordered) - 1)
    numbers = tf.where(tf.gather(tf.constant(ordered), at) == flat, tf.gather(tf.constant(order), at) + 1, 0)
    return tf.reshape(numbers, tf.shape(values)), tf.reshape(at, tf.shape(values))


def ids_of(numbers: tf.Tensor, ids: Sequence[Any]) -> tf.Tensor:
    """The ids of numbers from 1, in graph; for 0 the value that means no id."""
    dtype = id_dtype(ids)
    return tf.gather(tf.constant([missing(dtype), *ids], dtype), numbers)
