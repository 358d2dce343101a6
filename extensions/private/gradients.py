"""DP-SGD (Abadi et al. 2016, "Deep Learning with Differential Privacy", arXiv:1607.00133): what it changes in a step.

Each example's gradient is clipped to one L2 norm over all weights, and Gaussian noise is added once to the sum over the whole batch, after
replicas and micro-batches were summed. The noise is a pure function of (key, step, weight), the same on every replica. The key is secret.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
from pydantic import Field

from extensions.private.accounting import accountant
from extensions.private.hook import PrivacySpent
from extensions.private.settings import Private
from pipelines.base.errors import ConfigError
from pipelines.base.stored import Record, checked
from pipelines.config.schema import Experiment
from pipelines.data.draws import Draws
from pipelines.data.order import Plan, Poisson, room
from pipelines.machine.devices import Machine
from pipelines.task.contract import Task
from pipelines.training.chain import Replica, Sums
from pipelines.training.embedding_tables import tables_of
from pipelines.training.loop import Hook
from pipelines.training.moving_statistics import norms
from pipelines.training.transform import Cost, Transform


class Secret(Record):
    """What a training is made private with. Whoever knows it can take the noise away: it stands in checkpoints, which are removed when the
    run is finished, and nowhere else."""

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    noise: Annotated[float, Field(gt=0)] | None = None  # as a multiple of the clipping norm; None: not known yet

    def key_of(self, purpose: str) -> tuple[int, int]:
        """Two int64 for one purpose."""
        words = np.frombuffer(hashlib.sha256(f"{self.key} {purpose}".encode()).digest()[:16], "<i8")
        return int(words[0]), int(words[1])


class PrivateGradients(Transform):
    """Batches are drawn, each example's gradient is clipped, noise is added to their sum, and what that spends is accounted for."""

    cost = Cost("privacy", "More training examples, a larger epsilon, larger batches, and fewer weights on good features make it less "
                           "(docs/training.md#private-training).")

    @classmethod
    def applies(cls, experiment: Experiment) -> bool:
        return experiment.train.added(Private).privacy is not None

    @classmethod
    def begin(cls, kept: Mapping[str, Any] | None) -> dict[str, Any]:
        return dict(kept or {"key": secrets.token_hex(32)})

    def __init__(self, experiment: Experiment, examples: int, kept: Mapping[str, Any]):
        settings, train, secret = experiment.train.added(Private).privacy, experiment.train, checked(kept, Secret, "train.privacy")
        assert settings is not None
        self.accountant = accountant(settings, examples, train.batch_size, train.epochs, secret.noise)
        super().__init__(experiment, examples, {**kept, "noise": self.accountant.noise})
        self.secret, self.clip, self.noise, self.expected = secret, settings.clip, self.accountant.noise, train.batch_size

    def facts(self, task: Task, facts: dict[str, Any]) -> dict[str, Any]:
        return task.public_facts(facts)

    def plan(self, replicas: int) -> Plan:
        train, examples = self.experiment.train, self.examples
        if train.batch_size > examples:
            raise ConfigError(f"train.batch_size: {train.batch_size} is more than the {examples:,} training examples, from which "
                              "train.privacy draws each batch")
        most = room(examples, train.batch_size)
        micro = train.micro_batch_size or -(-most // (replicas * (train.accumulation or 1)))
        turns = -(-most // (replicas * micro))
        return Plan(examples, replicas * turns * micro, replicas, turns, Poisson(train.batch_size, self.secret.key_of("batches")))

    def check(self, task: Task, model: keras.Model, machine: Machine) -> None:
        """Refuses what no example's part can be clipped of."""
        learning = next((layer.name for layer in norms(model) if layer.trainable), None)
        if learning:
            raise ConfigError(f"train.privacy: the layer {learning} normalises by the statistics of a batch, which mix its examples and "
                              "are kept without noise; take a model without batch normalisation, such as one with group or layer "
                              "normalisation")
        if tables_of(model):
            raise ConfigError("train.privacy: which rows of an embedding table were updated tells which examples were there; a model with "
                              "tables cannot be trained with it")
        if mixes := task.output.learning.mixes:
            raise ConfigError(f"train.privacy: {mixes} takes in the other examples of a batch, so that none has its own "
                              "gradient")
        if machine.precision == "float16":
            raise ConfigError("train.privacy: train.precision chose float16, which scales the loss by what the gradients were; set float32")

    def describe(self) -> str:
        most = self.accountant.epsilon(self.accountant.steps)
        return f"private: noise {self.noise:.4g}, epsilon at most {most:.3g} at delta {self.accountant.delta:g}"

    def hooks(self) -> list[Hook]:
        return [PrivacySpent(self.accountant)]

    def record(self, steps: int) -> dict[str, Any]:
        return self.accountant.record(self.clip, steps)

    def by_micro_batch(self, forward_and_backward: Callable[..., Sums]) -> Callable[..., Sums]:
        """The sum of clipped gradients of a micro-batch's examples. An example whose gradient is not finite
        adds nothing. Memory: the gradients of all examples of a micro-batch at once."""

        def summed(weights: list, state: list, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws, scale: tf.Tensor,
                   rows: None) -> Sums:
            def one(example: Any) -> tuple[list, tf.Tensor]:
                *alone, place = tf.nest.map_structure(lambda value: value[None], example)
                sums = forward_and_backward(weights, state, *alone, Draws(draws.seed, place), scale, rows)
                if sums.statistics or sums.lookups:
                    raise ConfigError("train.privacy: this model keeps statistics of batches or embedding tables, in which no example can "
                                      "be clipped; take a model without, such as one with group or layer normalisation")
                norm = tf.linalg.global_norm(sums.gradients)
                factor = tf.where(tf.math.is_finite(norm), self.clip / tf.maximum(norm, self.clip), 0.0)
                return [tf.math.multiply_no_nan(gradient, factor) for gradient in sums.gradients], sums.totals

            with _without_advice():
                gradients, totals = tf.vectorized_map(one, (inputs, targets, mask, draws.places))
            return Sums([tf.reduce_sum(each, 0) for each in gradients], {}, tf.reduce_sum(totals, 0), [])

        return summed

    def scale(self, replica: Replica, scale: tf.Tensor) -> tf.Tensor:
        return tf.constant(1.0)

    def summed(self, replica: Replica, step: tf.Tensor, sums: Sums, rescale: tf.Tensor) -> tuple[Sums, tf.Tensor]:
        """With noise in the gradients, once, in the sum over the whole batch."""
        key = tf.random.experimental.stateless_fold_in(tf.constant(self.secret.key_of("noise"), tf.int64), tf.cast(step, tf.int64))
        noisy = [gradient + self.noise * self.clip * tf.random.stateless_normal(
            tf.shape(gradient), tf.random.experimental.stateless_fold_in(key, number), dtype=gradient.dtype)
            for number, gradient in enumerate(sums.gradients)]
        return sums._replace(gradients=noisy), tf.constant(1.0 / self.expected)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silences TensorFlow's remarks on operations that it maps one example at a time."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
