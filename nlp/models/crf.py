"""A linear chain of tags (Lafferty, McCallum and Pereira 2001): the score of a sequence is the sum of those of its tags and of each pair of
neighbours. In graph; the words of a sentence stand together, from the first place on."""

from collections.abc import Callable

import keras
import tensorflow as tf


class Transitions(keras.layers.Layer):
    """Anything [batch, ...] -> the scores of each pair of neighbouring tags, [batch, tags, tags] float32, the first by rows; 0 at first."""

    def __init__(self, tags: int, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.tags = tags

    def build(self, shape):
        self.scores = self.add_weight(shape=(self.tags, self.tags), initializer="zeros", name="transitions")

    def call(self, inputs):
        return tf.tile(tf.convert_to_tensor(self.scores)[None], [tf.shape(inputs)[0], 1, 1])

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((inputs.shape[0], self.tags, self.tags), "float32")


def score(emissions: tf.Tensor, transitions: tf.Tensor, tags: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """The score of sequences of tags, [batch] float32.

    Args:
        emissions: [batch, time, tags] float32, scores of the tags of each word.
        transitions: [batch, tags, tags] float32, of neighbours.
        tags: [batch, time] int32, below the number of tags everywhere.
        there: [batch, time] bool, whether there is a word.
    """
    counted = tf.cast(there, tf.float32)
    own = tf.gather(emissions, tags, batch_dims=2)
    pairs = tf.gather(tf.gather(transitions, tags[:, :-1], batch_dims=1), tags[:, 1:], batch_dims=2)
    return tf.reduce_sum(own * counted, 1) + tf.reduce_sum(pairs * counted[:, 1:], 1)


def log_partition(emissions: tf.Tensor, transitions: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """log of the sum of exp(score) over all sequences of tags, [batch] float32; arguments as those of `score`."""
    before, _ = _through(emissions, transitions, there, tf.reduce_logsumexp)
    return tf.reduce_logsumexp(before[-1], -1)


def decode(emissions: tf.Tensor, transitions: tf.Tensor, there: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable sequence (Viterbi), [batch, time] int32, and the probability of each of its tags whatever the others are,
    [batch, time] float32; arguments as those of `score`."""
    best, whole = (_through(emissions, transitions, there, join) for join in (tf.reduce_max, tf.reduce_logsumexp))
    tags = tf.argmax(best[0] + best[1], 2, tf.int32)  # through each tag of a word the best sequence
    log_chances = whole[0] + whole[1] - tf.reduce_logsumexp(whole[0][-1], -1)[None, :, None]
    chances = tf.exp(tf.gather(log_chances, tags, batch_dims=2))
    back = tf.cast(tf.transpose(tf.cast(tags, tf.float32)), tf.int32)  # transposed as floats: of whole numbers oneDNN complains
    return back, tf.transpose(chances)


def _through(emissions: tf.Tensor, transitions: tf.Tensor, there: tf.Tensor, join: Callable[..., tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Of each tag of each word the scores of all sequences before it with its own, and those of all behind it, joined: [time, batch, tags]
    each. Behind the last word both are as there."""
    words = tf.transpose(emissions, [1, 0, 2])
    counted = tf.transpose(tf.cast(there, tf.float32))[..., None]  # [time, batch, 1]

    def forward(before: tf.Tensor, word: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.where(word[1] > 0.0, join(before[:, :, None] + transitions, 1) + word[0], before)

    def backward(behind: tf.Tensor, word: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.where(word[1] > 0.0, join((word[0] + behind)[:, None] + transitions, 2), 0.0)

    before = tf.concat([words[:1], tf.scan(forward, (words[1:], counted[1:]), words[0])], 0)
    nothing = tf.zeros_like(words[0])
    return before, tf.concat([tf.scan(backward, (words[1:], counted[1:]), nothing, reverse=True), nothing[None]], 0)
