"""Outputs that are written one token after another: learned behind the true tokens, answered by a search over the model's own."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Tensors
from pipelines.machine.mesh import on_mesh
from pipelines.task import intervals
from pipelines.task.contract import Output

WRITTEN, COUNT, WHOLE = "written", "count", "whole"  # entries of an example: its true tokens, how many, and 1 where none is cut off


def behind(logits: tf.Tensor, tokens: tf.Tensor, counts: tf.Tensor, end: int, whole: tf.Tensor | None = None,
           ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Logits behind the beginning and each token, the tokens that stand there, and which of them count: [batch, most + 1, ...].

    Args:
        logits: [batch, most + 1, vocabulary].
        tokens, counts: [batch, most] int32, padded, and how many there are, [batch] int32.
        end: the token that ends a text.
        whole: 1 where the end is to be written, too, [batch] int32; None: everywhere.
    """
    number = tf.range(tf.shape(tokens)[1] + 1)[None]
    truth = tf.where(number == counts[:, None], end, tf.pad(tokens, [[0, 0], [0, 1]]))
    last = counts if whole is None else counts + whole - 1
    return logits, truth, tf.cast(number <= last[:, None], tf.float32)


def cross_entropy(logits: tf.Tensor, truth: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """In nats, [rows, n] float32, against a target of which `smoothing` is the uniform distribution (Szegedy et al. 2016).

    Logits are the largest tensor of a step by far; as TensorFlow derives it, this would pass three times as often over them.

    Args:
        logits: [rows, n, vocabulary] float32.
        truth: [rows, n] int32.
    """
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits)
    size = logits.shape[-1]
    if on_mesh():
        return tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(truth, size) * (1.0 - smoothing) + smoothing / size, logits)

    @tf.custom_gradient
    def losses(logits: tf.Tensor) -> Any:
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits)
        true = tf.gather(logits, truth, batch_dims=2)
        # against the uniform distribution: the same log sum of all, less the mean of the logits in the place of the true one
        loss = plain + smoothing * (true - tf.reduce_mean(logits, -1))

        def gradient(above: tf.Tensor) -> tf.Tensor:
            each = tf.reshape(tf.nn.softmax(logits) - smoothing / size, [-1, size]) * tf.reshape(above, [-1, 1])
            places = tf.stack([tf.range(tf.shape(each)[0]), tf.reshape(truth, [-1])], 1)
            each = tf.tensor_scatter_nd_sub(each, places, (1.0 - smoothing) * tf.reshape(above, [-1]))
            return tf.reshape(each, tf.shape(logits))

        return loss, gradient

    result: tf.Tensor = losses(logits)
    return result


class Tokens(Output):
    """Outputs of the model are logits of the first token and of the one behind each true one, [batch, most + 1, vocabulary] float32;
    targets are "written" [batch, most] int32, "count" and "whole" [batch] int32.

    The model takes inputs as a dict: with "written" it gives these logits, without it writes itself ({"tokens", "confidence"}).
    """

    @property
    @abstractmethod
    def end(self) -> int:
        """The token that ends a text."""

    @property
    def smoothing(self) -> float:
        """Weight of the uniform distribution in the target while training."""
        return 0.0

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name: examples[name] for name in (WRITTEN, COUNT, WHOLE)} if WRITTEN in examples else {}

    def _behind(self, outputs: tf.Tensor, targets: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return behind(tf.cast(outputs, tf.float32), targets[WRITTEN], targets[COUNT], self.end, targets[WHOLE])

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropy in nats, summed over a text's tokens and its end, and how many these are, [batch] float32 each."""
        logits, truth, own = self._behind(outputs, targets)
        losses = cross_entropy(logits, truth, self.smoothing if training else 0.0)
        return tf.reduce_sum(losses * own, 1), tf.reduce_sum(own, 1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        """perplexity and token_accuracy, of each token behind the true ones."""
        logits, truth, own = self._behind(outputs, targets)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits)
        right = tf.cast(tf.argmax(logits, -1, tf.int32) == truth, tf.float32)
        count = tf.reduce_sum(own, 1)
        return {"perplexity": tf.stack([tf.reduce_sum(losses * own, 1), count], 1),
                "token_accuracy": tf.stack([tf.reduce_sum(right * own, 1), count], 1)}

    @property
    def statistics(self) -> Mapping[str, intervals.Statistic]:
        def mean(sums: np.ndarray) -> np.ndarray:
            return sums[:, 0] / np.maximum(sums[:, 1], 1.0)

        return {"perplexity": lambda sums: np.exp(mean(sums)), "token_accuracy": mean}

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """tokens [batch, most] int32, padded with 0; confidence [batch] float32, the mean probability of the written ones."""
        return dict(model({name: value for name, value in inputs.items() if name != WRITTEN}))
