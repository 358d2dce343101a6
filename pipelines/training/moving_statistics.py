"""Moving statistics, such as those of batch normalisation, are kept by the step, not by the layers: so what was there before step 0 is soon
forgotten. With the momentum 0.999 of MobileNetV3, a training of 1,000 steps would be judged with a third of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from pipelines.data.draws import SEED
from pipelines.training.chain import Change, Link, State


def is_statistic(variable: keras.Variable) -> bool:
    """Whether a variable that does not train is a float, and so may be averaged over replicas and steps."""
    return variable.name != SEED and variable.dtype.startswith(("float", "bfloat"))


def norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """All layers with moving batch statistics, of nested models too."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]


@contextmanager
def of_this_batch_alone(layers: list[keras.layers.BatchNormalization]) -> Iterator[None]:
    """While a model is called within (or traced), its moving statistics become those of the batch."""
    own = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, own):
            layer.momentum = momentum


def rising(decay: float, step: tf.Tensor) -> tf.Tensor:
    """The decay of a moving average, `decay` at most: it covers a ninth of the steps so far (tf.train.ExponentialMovingAverage)."""
    done = tf.cast(step, tf.float32)
    return tf.minimum(decay, (1.0 + done) / (10.0 + done))


class Statistics(Link):
    """Moves them towards those of the batch."""

    def __init__(self, model: keras.Model):
        self.model = model
        self.momenta = {id(statistic): norm.momentum for norm in norms(model) for statistic in (norm.moving_mean, norm.moving_variance)}

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        moved, shares = {}, {momentum: 1.0 - rising(momentum, change.step) for momentum in set(self.momenta.values())}
        for number, batch in change.batch.items():
            old, momentum = change.statistics[number], self.momenta.get(id(self.model.non_trainable_variables[number]))
            # one that belongs to no norm is what the batch makes it
            moved[number] = batch if momentum is None else old + (batch - old) * shares[momentum]
        return change._replace(statistics=moved), state
