"""The links of the chain: clipping, the optimizer with its learning rate as a pure function of the step, the loss scale that float16 needs
since its small gradients would be 0, and exponential moving averages of weights and statistics.
"""

import inspect
import math
from collections.abc import Callable
from difflib import get_close_matches

import keras
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.optimizer import BackendOptimizer

from pipelines.base.errors import ConfigError
from pipelines.config.train_settings import Clip, LearningRate, wrong_options
from pipelines.config.train_settings import Optimizer as Settings
from pipelines.training.chain import Change, Link, Replica, State, Sums
from pipelines.training.moving_statistics import is_statistic, rising


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


_BASE_METHODS = (
    "stateless_apply", "assign", "assign_add", "assign_sub", "_backend_update_step", "_apply_weight_decay", "_clip_by_norm", "_var_key",
)

WRAPPERS = ("optimizer", "lossscaleoptimizer", "multioptimizer")  # names of what stands around other optimizers

# between an optimizer and the tf.distribute one in the order of bases, so that what the optimizer itself overrides (Nadam, Muon) holds
_Pure = type("_Pure", (BackendOptimizer,), {name: BaseOptimizer.__dict__[name] for name in _BASE_METHODS})


def purely(optimizer_class: type) -> type:
    """The same optimizer class with the pure base methods in place of the tf.distribute ones."""
    return type(optimizer_class.__name__, (optimizer_class, _Pure), {})


def optimizer_names() -> dict[str, type]:
    """Lower-case name -> Keras optimizer class, for every one that can be used."""
    kinds = {name.lower(): kind for name, kind in vars(keras.optimizers).items()
             if inspect.isclass(kind) and issubclass(kind, keras.optimizers.Optimizer)}
    return {name: kind for name, kind in kinds.items() if name not in WRAPPERS}


def make_optimizer(settings: Settings, weights: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """A built, pure optimizer for `weights`; call it inside the strategy's scope.

    Raises:
        ConfigError: an unknown optimizer, or an option that it does not have.
    """
    known = optimizer_names()
    cls = known.get(settings.name.lower().replace("_", ""))
    if cls is None:
        near = get_close_matches(settings.name.lower(), known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"train.optimizer.name: no optimizer {settings.name!r} in Keras{hint} (there are: {', '.join(sorted(known))})")
    arguments = inspect.signature(cls).parameters
    for setting, message in wrong_options(settings, cls.__name__, arguments):
        raise ConfigError(f"{setting}: {message}")
    own = {key: getattr(settings, key) for key in ("weight_decay", "momentum", "nesterov")}
    options = {**settings.options, **{key: value for key, value in own.items() if value is not None}}
    if settings.weight_decay is not None and "adam_weight_decay" in arguments:  # Muon leaves all but matrices to Adam
        options.setdefault("adam_weight_decay", settings.weight_decay)
    try:
        optimizer = purely(cls)(learning_rate=1.0, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"train.optimizer: {cls.__name__} does not take {options}: {error}") from error
    # biases and scales do not decay, as is usual since Goyal et al. 2017 (arXiv:1706.02677); AdamW decays by default
    optimizer.exclude_from_weight_decay(var_list=[weight for weight in weights if len(weight.shape) < 2])
    optimizer.build(weights)
    return optimizer
