"""Exponential moving averages of weights, and of statistics, so that averaged weights are judged with statistics of the same age."""

import keras
import tensorflow as tf

from pipelines.training.chain import Change, Link, State
from pipelines.training.moving_statistics import is_statistic, rising


def statistics_of(model: keras.Model) -> list[keras.Variable]:
    """What a model keeps beside its weights in floats, such as the moving mean and variance of batch normalisation."""
    own = {id(variable) for layer in model._flatten_layers() for variable in layer._non_trainable_variables}
    return [variable for variable in model.non_trainable_variables if id(variable) in own and is_statistic(variable)]


class Averaged(Link):
    """Moves an average of each of the chain's weights and of each statistic; created under the strategy's scope.

    Attributes:
        averages: (weight or statistic, its average float32), weights first.
    """

    name = "averages"

    def __init__(self, model: keras.Model, weights: list[keras.Variable], decay: float):
        self.model, self.decay = model, decay
        # from numbers: given the tf.Variable of a weight, a keras.Variable would take that itself, not its value
        self.averages = [(one, keras.Variable(one.numpy(), trainable=False, dtype="float32", name=f"{one.name}_average"))
                         for one in (*weights, *statistics_of(model))]
        self.variables = [average for _, average in self.averages]
        self.places = {id(variable): place for place, (variable, _) in enumerate(self.averages)}

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        decay, averages = rising(self.decay, change.step), list(state)
        moved = {place: new for place, (old, new) in enumerate(zip(change.before, change.weights)) if new is not old}
        for number, value in change.statistics.items():
            place = self.places.get(id(self.model.non_trainable_variables[number]))
            moved.update({} if place is None else {place: value})
        for place, value in moved.items():
            averages[place] += (tf.cast(value, tf.float32) - averages[place]) * (1.0 - decay)
        return change, averages
