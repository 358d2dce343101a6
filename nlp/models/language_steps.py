"""A language model that writes several texts beside one another, each from its own place on: `pipelines.outputs.streams.Steps`."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from nlp.models.language import NEVER, Block, LanguageNetwork, RootNorm

ROUND = 64  # places: products of matrices of a new size begin slowly


class LanguageSteps(tf.Module):
    """See Steps. Where the network does not compute with its weights as they are, this has a copy, changes of low rank added: a step reads
    all weights for few tokens, so that to change their type would take longer than to compute with them."""

    def __init__(self, network: LanguageNetwork, *, rows: int, most: int):
        super().__init__(name="steps")
        self.network, self.rows, self.most = _copied(network), rows, most
        block = self.network.blocks[0]
        shape = [most, rows, block.groups, block.size]  # places first, so that a step reads those alone that are in use
        self.kept = [tuple(tf.Variable(tf.zeros(shape, network.compute_dtype), trainable=False) for _ in range(2))
                     for _ in self.network.blocks]

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.int32)], autograph=False)
    def begin(self, row: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """See Steps.begin."""
        places = tf.range(tf.size(ids))
        mask = tf.where(places[None] > places[:, None], NEVER, 0.0)[None]
        where = tf.stack([places, tf.fill([tf.size(ids)], row)], 1)

        def keep(kept: tuple[tf.Variable, ...], *new: tf.Tensor) -> tuple[tf.Tensor, ...]:
            for own, each in zip(kept, new):
                own.scatter_nd_update(where, tf.transpose(each[0], [1, 0, 2]))
            return new

        return self._through(ids[None], mask, 0, keep)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)] * 2, autograph=False)
    def follow(self, tokens: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        """See Steps.follow."""
        rows = tf.size(tokens)
        used = tf.range(tf.minimum(self.most, (tf.reduce_max(at) // ROUND + 1) * ROUND))
        mask = tf.where(used[None] <= at[:, None], 0.0, NEVER)[:, None]
        where = tf.stack([at, tf.range(rows)], 1)

        def keep(kept: tuple[tf.Variable, ...], *new: tf.Tensor) -> tuple[tf.Tensor, ...]:
            found = []
            for own, each in zip(kept, new):
                with tf.control_dependencies([own.scatter_nd_update(where, each[:, :, 0])]):
                    found.append(tf.transpose(own.sparse_read(used)[:, :rows], [1, 2, 0, 3]))
            return tuple(found)

        return self._through(tokens[:, None], mask, at, keep)

    def _through(self, ids: tf.Tensor, mask: tf.Tensor, at: Any, keep: Any) -> tf.Tensor:
        x = self.network.vectors(ids)
        for block, kept in zip(self.network.blocks, self.kept):
            x = block(x, mask, at=at, keep=partial(keep, kept))
        return self.network.logits(x[:, -1:])[:, 0]


def _copied(network: LanguageNetwork) -> LanguageNetwork:
    """With weights in the precision of its computations; itself where they are, and nothing is to be added to them."""
    if network.compute_dtype == network.variable_dtype and not any(getattr(part, "lora_enabled", False) for part in _parts(network)):
        return network
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(network.compute_dtype)
    try:
        copy = LanguageNetwork(network.shape, network.size, network.end, network.how)
        copy({"tokens": tf.zeros([1, 2], tf.int32)})
    finally:
        keras.config.set_dtype_policy(policy)
    for own, other in zip(_parts(copy), _parts(network)):
        for name in ("kernel", "embeddings", "scale"):
            if hasattr(own, name):  # of a dense layer with a change of low rank, `kernel` has it
                getattr(own, name).assign(tf.cast(tf.convert_to_tensor(getattr(other, name)), network.compute_dtype))
    return copy


def _parts(network: LanguageNetwork) -> list[keras.layers.Layer]:
    def of_block(block: Block) -> list[keras.layers.Layer | RootNorm]:
        return [*block.norms, block.mixed, block.out, block.inner, block.inner_out]

    return [network.vectors, network.norm, *([network.last] if network.last else []),
            *(part for block in network.blocks for part in of_block(block))]
