"""Clipping, and the optimizer with its learning rate as a pure function of the step."""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from pipelines.config.schema import Clip, LearningRate
from pipelines.training.chain import Change, Link, Replica, State


def clip(gradients: list, norm: tf.Tensor, settings: Clip) -> list:
    """Clips the summed gradients, whose global norm is `norm`: by that (Pascanu et al. 2013), by each one's norm, or by value."""
    if settings.global_norm:
        factor = settings.global_norm / tf.maximum(norm, settings.global_norm)
        return [gradient * factor for gradient in gradients]
    if settings.norm:
        return [tf.clip_by_norm(gradient, settings.norm) for gradient in gradients]
    if settings.value:
        return [tf.clip_by_value(gradient, -settings.value, settings.value) for gradient in gradients]
    return gradients


class Clipped(Link):
    def __init__(self, settings: Clip):
        self.settings = settings

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        return change._replace(gradients=clip(change.gradients, change.norm, self.settings)), state


def learning_rate(settings: LearningRate, steps: int, step: tf.Tensor) -> tf.Tensor:
    """The rate at `step` of a run of `steps`: float32 scalar, in graph or eager.

    With warm-up over w = warmup x steps, step s < w has start + (1 - start) (s + 1) / (w + 1) of the peak; one_cycle rises along a
    half cosine instead (Smith and Topin 2018). After it, cosine and one_cycle fall as (1 + cos(pi t)) / 2 and linear as 1 - t to
    `final`, with t from 0 to 1 (SGDR, Loshchilov and Hutter 2017, without restarts).
    """
    s = tf.cast(step, tf.float32)
    warm = settings.warmup * steps
    t = tf.clip_by_value((s - warm) / max(1.0, steps - 1 - warm), 0.0, 1.0)
    if settings.schedule in ("cosine", "one_cycle"):
        share = settings.final + (1.0 - settings.final) * 0.5 * (1.0 + tf.cos(math.pi * t))
    elif settings.schedule == "linear":
        share = settings.final + (1.0 - settings.final) * (1.0 - t)
    elif settings.schedule == "step":
        passed = tf.reduce_sum(tf.cast(s >= tf.constant([m * steps for m in settings.milestones], tf.float32), tf.float32))
        share = tf.pow(settings.factor, passed)
    else:
        share = tf.ones_like(s)
    if warm > 0.0:
        rise = tf.minimum((s + 1.0) / (warm + 1.0), 1.0)
        if settings.schedule == "one_cycle":
            rise = 0.5 * (1.0 - tf.cos(math.pi * rise))
        share = tf.where(s < warm, settings.start + (1.0 - settings.start) * rise, share)
    return settings.peak * share


class Optimized(Link):
    """The new weights by a Keras optimizer, whose own rate is a factor on the schedule's: 1 unless a callback changed it.

    `shares` are the weights, each with its rate as a share of the schedule's. Frozen ones stand still, though they may decay.
    """

    name = "optimizer"

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer, schedule: Callable[[tf.Tensor], tf.Tensor],
                 shares: list[tuple[keras.Variable, float]]):
        self.model, self.optimizer, self.schedule, self.shares = model, optimizer, schedule, shares
        self.variables = list(optimizer.variables)

    def rate_in(self, replica: Replica, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of a step, in a replica."""
        return self.schedule(step) * replica.copy(self.optimizer._learning_rate)

    def update(self, change: Change, state: State) -> tuple[Change, State]:
        at = next(number for number, variable in enumerate(self.variables) if variable is self.optimizer._learning_rate)
        slots = [*state[:at], state[at] * self.schedule(change.step), *state[at + 1:]]
        weights, slots = self.optimizer.stateless_apply(slots, change.gradients, change.weights)
        trains = {id(variable) for variable in self.model.trainable_variables}
        # a step is proportional to the rate, weight decay included
        weights = [old if id(variable) not in trains else new if share == 1.0 else old + share * (new - old)
                   for old, new, (variable, share) in zip(change.weights, weights, self.shares)]
        return change._replace(weights=weights), [*slots[:at], state[at], *slots[at + 1:]]

    def row(self, step: int) -> dict[str, float]:
        return {"learning_rate": float(self.schedule(tf.constant(step))) * float(self.optimizer.learning_rate.value.numpy())}
