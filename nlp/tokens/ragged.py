"""Concatenation of ragged tensors along axis 1, without the transposition of int64 in tf.concat(..., 1): TensorFlow's oneDNN has no
kernel for it, and would write an error to the terminal once in each process that reads text."""

from collections.abc import Sequence

import tensorflow as tf


def joined(parts: Sequence[Sequence[tf.RaggedTensor]]) -> list[tf.RaggedTensor]:
    """tf.concat([part[field] for part in parts], 1) for each field of the parts.

    Args:
        parts: of each a [rows, None] for each field; the fields of a part have the same row lengths.
    """
    splits = [part[0].row_splits for part in parts]
    before = tf.cumsum(tf.stack([one[-1] for one in splits]), exclusive=True)  # values of the parts before
    starts, ends = (tf.reshape(tf.stack([one[which] + before[number] for number, one in enumerate(splits)], 1), [-1])
                    for which in (slice(None, -1), slice(1, None)))  # [rows x parts]
    order = tf.ragged.range(starts, ends).flat_values
    rows = tf.add_n(splits)
    return [tf.RaggedTensor.from_row_splits(tf.gather(tf.concat([one.flat_values for one in field], 0), order), rows, validate=False)
            for field in zip(*parts)]
