"""The core's own links: clipping, the optimizer with its rate, rates by layer, freezing, statistics, averages, and float16's loss scale."""

from collections.abc import Callable

import keras
import tensorflow as tf

from pipelines.config.schema import Clip
from pipelines.training import model_state
from pipelines.training.chain import Change, Link, Replica, State
from pipelines.training.sums import Sums


def clip(gradients: list, norm: tf.Tensor, settings: Clip) -> list:
    """Clips the summed gradients as the settings say: by global norm (Pascanu et al. 2013), by each one's norm, or by value.

    Args:
        norm: float32 scalar, the global norm of all gradients of the step.
    """
    if settings.global_norm:
        factor = settings.global_norm / tf.maximum(norm, settings.global_norm)
        return [gradient * factor for gradient in gradients]
    if settings.norm:
        return [tf.clip_by_norm(gradient, settings.norm) for gradient in gradients]
    if settings.value:
        return [tf.clip_by_value(gradient, -settings.value, settings.value) for gradient in gradients]
    return gradients


class Clipped(Link):
    """Gradients are clipped."""

    def __init__(self, settings: Clip):
        self.settings = settings

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        return change._replace(gradients=clip(change.gradients, change.norm, self.settings)), state


class Optimized(Link):
    """The new weights by a Keras optimizer (`optimizers.make`), with decay; its own rate is a factor on the schedule's, 1 unless a callback
    changed it.

    Args:
        schedule: step -> learning rate, float32.
        shares: of each weight, its rate as a share of the schedule's.
    """

    name = "optimizer"

    def __init__(self, optimizer: keras.optimizers.Optimizer, schedule: Callable[[tf.Tensor], tf.Tensor], shares: list[float]):
        self.optimizer, self.schedule, self.shares = optimizer, schedule, shares
        self.variables = list(optimizer.variables)

    def rate_in(self, replica: Replica, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of a step, in a replica."""
        return self.schedule(step) * replica.copy(self.optimizer._learning_rate)

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        at = next(number for number, variable in enumerate(self.variables) if variable is self.optimizer._learning_rate)
        slots = [*state[:at], state[at] * self.schedule(change.step), *state[at + 1:]]
        weights, slots = self.optimizer.stateless_apply(slots, change.gradients, change.weights)
        # a step is proportional to the rate, weight decay included
        weights = [new if share == 1.0 else old + share * (new - old) for old, new, share in zip(change.weights, weights, self.shares)]
        return change._replace(weights=weights), [*slots[:at], state[at], *slots[at + 1:]]

    def row(self, step: int) -> dict[str, float]:
        return {"learning_rate": float(self.schedule(tf.constant(step))) * float(self.optimizer.learning_rate.value.numpy())}


class Frozen(Link):
    """Frozen weights stand still, though the optimizer may decay them."""

    def __init__(self, model: keras.Model, weights: list[keras.Variable]):
        self.model, self.weights = model, weights

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        trains = {id(variable) for variable in self.model.trainable_variables}
        return change._replace(weights=[new if id(variable) in trains else old
                                        for variable, old, new in zip(self.weights, change.before, change.weights)]), state


class Statistics(Link):
    """Moving statistics move towards those of the batch."""

    def __init__(self, model: keras.Model):
        self.model, self.momenta = model, model_state.momenta(model)

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        moved = {}
        for number, batch in change.batch.items():
            old, momentum = change.statistics[number], self.momenta.get(id(self.model.non_trainable_variables[number]))
            # one that belongs to no norm is what the batch makes it
            moved[number] = batch if momentum is None else old + (batch - old) * (1.0 - model_state.rising(momentum, change.step))
        return change._replace(statistics=moved), state


class Averaged(Link):
    """Exponential moving averages of weights and statistics, so that averaged weights are judged with statistics of the same age.

    Args:
        weights: those of the chain; `variables`: an average for each, and one for each of `statistics`.
    """

    name = "averages"

    def __init__(self, model: keras.Model, weights: list[keras.Variable], statistics: list[keras.Variable],
                 averages: list[keras.Variable], decay: float):
        self.model, self.variables, self.decay = model, averages, decay
        self.places = {id(variable): place for place, variable in enumerate([*weights, *statistics])}

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        decay, averages = model_state.rising(self.decay, change.step), list(state)
        moved = {place: new for place, (old, new) in enumerate(zip(change.before, change.weights)) if new is not old}
        for number, value in change.statistics.items():
            place = self.places.get(id(self.model.non_trainable_variables[number]))
            moved.update({} if place is None else {place: value})
        for place, value in moved.items():
            averages[place] += (tf.cast(value, tf.float32) - averages[place]) * (1.0 - decay)
        return change, averages


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
