"""The link that float16 brings: its small gradients would be 0."""

import keras
import tensorflow as tf

from pipelines.training.chain import Link, Replica, Sums


class LossScaled(Link):
    """The loss of float16, whose small gradients would be 0, is scaled: the more, the longer gradients are finite; half at each overflow.

    Micikevicius et al. 2018 (arXiv:1710.03740). All replicas see the same sums, so they agree. Call it under the strategy's scope.
    """

    name = "loss_scale"
    FIRST, PATIENCE = 2.0**15, 2000  # doubled after so many finite steps

    def __init__(self) -> None:
        self.factor = keras.Variable(self.FIRST, trainable=False, dtype="float32", name="loss_scale")
        self.good = keras.Variable(0, trainable=False, dtype="int32", name="finite_steps")  # since it changed
        self.variables = [self.factor, self.good]

    def scale(self, replica: Replica, scale: tf.Tensor) -> tf.Tensor:
        return scale * replica.copy(self.factor)

    def summed(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor) -> tuple[Sums, tf.Tensor]:
        return sums, rescale / replica.copy(self.factor)

    def settle(self, replica: Replica, loss: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
        """An overflow passes the step over; the loss itself is not scaled, so that no scale helps one that is not finite."""
        (factor, good), known = replica.values(self.variables), tf.math.is_finite(loss)
        grown = good + 1 >= self.PATIENCE
        new = tf.where(finite, tf.where(grown, factor * 2.0, factor), factor * 0.5)
        replica.copy(self.factor).assign(tf.where(known, new, factor))
        replica.copy(self.good).assign(tf.where(known, tf.where(finite & ~grown, good + 1, 0), good))
        return known & (new >= 1.0)

    def row(self, step: int) -> dict[str, float]:
        return {"loss_scale": float(self.factor.value.numpy())}
