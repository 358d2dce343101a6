"""What a model keeps beside its weights: states of seeds, which the step sets, and statistics, which it averages and writes.

The moving statistics of batch normalisation are kept by the training step, not by the layers, so that what was there before step 0 is
soon forgotten: with the momentum 0.999 of MobileNetV3, a training of 1,000 steps would be judged with a third of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import tensorflow as tf


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a Keras SeedGenerator, which the step sets itself."""
    return variable.name == "seed_generator_state"


def is_statistic(variable: keras.Variable) -> bool:
    """Whether a variable that does not train is a float, and so may be averaged over replicas and steps."""
    return not is_seed(variable) and variable.dtype.startswith(("float", "bfloat"))


def statistics_of(model: keras.Model) -> list[keras.Variable]:
    """What a model keeps beside its weights in floats, such as the moving mean and variance of batch normalisation."""
    own = {id(variable) for layer in model._flatten_layers() for variable in layer._non_trainable_variables}
    return [variable for variable in model.non_trainable_variables if id(variable) in own and is_statistic(variable)]


def seeded(variables: Sequence[keras.Variable], values: Sequence[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
    """`values` of `variables`, each state of a seed replaced with one drawn from `seed`, int32 [2]."""
    return [
        tf.cast(tf.random.experimental.stateless_fold_in(seed, number), value.dtype) if is_seed(variable) else value
        for number, (variable, value) in enumerate(zip(variables, values))
    ]


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


def momenta(model: keras.Model) -> dict[int, float]:
    """id of each moving mean and variance -> the momentum of its layer."""
    return {id(statistic): layer.momentum for layer in norms(model) for statistic in (layer.moving_mean, layer.moving_variance)}


def rising(decay: float, step: tf.Tensor) -> tf.Tensor:
    """The decay of a moving average at a step: (1 + step) / (10 + step) up to `decay`, float32.

    So an average covers a ninth of the steps so far at most, and forgets what it began with, as tf.train.ExponentialMovingAverage does.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(decay, (1.0 + done) / (10.0 + done))
