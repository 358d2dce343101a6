"""The same step on a mesh of devices: one program over all of them, whose tensors have layouts, in place of a copy of the model on each.

A step's examples are prepared as on one device, and its parts sent to the devices. Between the calls in which hooks look, weights and all
that changes lie in main memory, in Keras' variables: checkpoints, validation, export and callbacks see whole weights, and a run resumes on
another mesh, or on none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from pipelines.base.errors import ConfigError
from pipelines.data.draws import Draws
from pipelines.machine.mesh import ALONE, DATA, traced_on
from pipelines.training.chain import Replica, Sums
from pipelines.training.mesh_layouts import Layout, Layouts
from pipelines.training.step import Carry, Step

ROUNDING = {"float32": 1e-3, "bfloat16": 0.15}  # by how much a gradient may differ for the order of sums, as a share
REFUSED = (tf.errors.UnknownError, tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.InternalError)


class OnMesh(Replica):
    """The values of a training's variables on the mesh, in the place of a replica's copies.

    Args:
        layouts: of the model's.
        variables: all that a step reads or writes.
        averaged: id of an average -> of what it is one.
    """

    number = place = 0

    def __init__(self, layouts: Layouts, variables: Sequence[keras.Variable], averaged: Mapping[int, keras.Variable]):
        self.mesh, self.variables = layouts.mesh, list(variables)
        self._layouts = {id(variable): layouts.of(variable, averaged.get(id(variable))) for variable in variables}
        self._copies: dict[int, Any] = {}
        self.stale = False  # what lies on the mesh is newer than the Keras variables
        self._spread = False  # the mesh has what the Keras variables have, or newer

    def layout(self, variable: keras.Variable) -> Layout:
        return self._layouts[id(variable)]

    def spread(self) -> None:
        """The mesh has what the Keras variables have."""
        for variable in () if self._spread else self.variables:
            value = self.mesh.place(variable.numpy(), self.layout(variable).axes)
            if id(variable) in self._copies:
                self._copies[id(variable)].assign(value)
            else:
                self._copies[id(variable)] = dtensor.DVariable(value)
        self._spread = True

    def gather(self) -> None:
        """The Keras variables have what the mesh has, until the next step."""
        for variable in self.variables if self.stale else ():
            variable.assign(self.mesh.whole(self._copies[id(variable)].read_value(), self.layout(variable).axes))
        self.stale = self._spread = False

    def copy(self, variable: keras.Variable) -> Any:
        return self._copies[id(variable)]

    def values(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """For the update."""
        return [self.mesh.relaid(self.copy(variable).read_value(), self.layout(variable).state) for variable in variables]

    def used(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """For the forward pass."""
        return [self.mesh.relaid(self.copy(variable).read_value(), self.layout(variable).used) for variable in variables]

    def updated(self, variables: Sequence[keras.Variable], gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Gradients as their weights are updated."""
        return [self.mesh.relaid(gradient, self.layout(variable).state, made=self.layout(variable).used)
                for variable, gradient in zip(variables, gradients)]

    def assign(self, variable: keras.Variable, value: tf.Tensor) -> None:
        self.copy(variable).assign(self.mesh.relaid(tf.cast(value, variable.dtype), self.layout(variable).axes))

    def same(self, value: Any) -> tf.Tensor:
        """A value of the host, the same on each device."""
        value = tf.convert_to_tensor(value)
        return self.mesh.place(value, (None,) * value.shape.rank)

    def divided(self, value: tf.Tensor, rows: int) -> tf.Tensor:
        """A value of the host, in parts along its first axis, where that is the batch's."""
        if not value.shape.rank or value.shape[0] != rows:
            return self.same(value)
        return self.mesh.place(value, (DATA, *(None,) * (value.shape.rank - 1)))


class MeshStep(Step):
    """Runs training steps on a mesh. Arguments are those of `Step`, and `held`: the values there."""

    def __init__(self, *, held: OnMesh, **options: Any):
        self.held = held
        super().__init__(**options)

    def retrace(self) -> None:
        super().retrace()
        self._proved = False
        self._fetched = tf.function(self._fed, autograph=False)
        self._one = tf.function(self._of_micro_batch, autograph=False)
        self._both = tf.function(lambda one, other: tf.nest.map_structure(tf.add, one, other), autograph=False)
        self._judged = tf.function(lambda step, sums: self.checked(self.held, step, sums), autograph=False)
        self._written = tf.function(lambda step, sums, rescale, norm: self.chain.write(self.held, step, sums, rescale, norm,
                                                                                       self.plan.accumulation), autograph=False)

    def __call__(self, iterator: Any, start: int, count: int, carry: Carry) -> tuple[int, Carry]:
        if not self._proved:  # by what the Keras variables have
            self.held.gather()
        self.held.spread()
        for number in range(start, start + count):
            batches, seconds = self._fetched(iterator, tf.constant(number, tf.int64))
            step = self.held.same(tf.constant(number, tf.int64))
            with _divided_by_dtensor():
                if not self._proved:
                    self._prove(batches[0])
                sums: Sums = reduce(self._both, (self._one(*self._sent(batch)) for batch in batches))
                sums, rescale, norm, loss, finite = self._judged(step, sums)
                totals = tf.constant(sums.totals.numpy(), tf.float64)
                if finite := bool(finite.numpy()):
                    self._written(step, sums, rescale, norm)
            self.held.stale = True
            carry = Carry(carry.totals + (totals if finite else 0.0), tf.constant(loss.numpy()), tf.constant(norm.numpy()),
                          tf.constant(finite), carry.waited + seconds)
            if not finite:
                return number, carry
        return start + count, carry

    def _prove(self, batch: tuple) -> None:
        """Computes a micro-batch on the mesh and on one device, and compares them: DTensor has operations that it divides wrongly.

        Raises:
            ConfigError: loss or gradients differ by more than rounding; names the weight.
        """
        with tf.device("CPU:0"):
            alone = tf.function(self._alone, autograph=False)(*batch)
        meshed, most = self._one(*self._sent(batch)), ROUNDING[self.machine.precision]
        values = [("the loss", meshed.totals.numpy()[0], alone.totals.numpy()[0])]
        for variable, ours, theirs in zip(self.model.trainable_variables, meshed.gradients, alone.gradients):
            values.append((variable.path, self.held.mesh.whole(ours, self.held.layout(variable).state), theirs.numpy()))
        scale = max(float(np.linalg.norm(theirs)) for _, _, theirs in values[1:]) if len(values) > 1 else 0.0
        for name, ours, theirs in values:
            off = float(np.linalg.norm(np.asarray(ours, np.float64) - theirs))
            # a gradient that is 0 is so but for rounding
            if off > most * max(float(np.linalg.norm(theirs)), 0.1 * scale, 1e-6):
                raise ConfigError(f"train.parallel: on the mesh the first step comes out otherwise than on one device ({name} differs by "
                                  f"{off:.2g}): TensorFlow's DTensor divides an operation of this model wrongly. Set "
                                  'train.parallel.layouts: {"*": gathered}, or leave train.parallel out: each device has a copy then')
        self._proved = True

    def _alone(self, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws) -> Sums:
        weights, state = ([tf.convert_to_tensor(variable.value) for variable in some]
                          for some in (self.model.trainable_variables, self.model.non_trainable_variables))
        with traced_on(ALONE):
            return self._forward_and_backward(weights, state, inputs, targets, mask, draws, tf.constant(1.0) / self.plan.batch, None)

    def _fed(self, iterator: Any, step: tf.Tensor) -> tuple[list[tuple], tf.Tensor]:
        """(the micro-batches of a step, seconds waited); on the host."""
        examples, seconds = self.feed.fetched(iterator, deterministic=self.train.deterministic)
        micro_batch = self.micro_batches(Replica(self.machine), step, examples)
        return [micro_batch(turn) for turn in range(self.plan.accumulation)], seconds

    def _sent(self, batch: tuple) -> tuple:
        inputs, targets, mask, draws = batch
        inputs, targets, mask, places = tf.nest.map_structure(lambda value: self.held.divided(value, self.plan.micro),
                                                              (inputs, targets, mask, draws.places))
        return inputs, targets, mask, Draws(self.held.same(draws.seed), places)

    def _of_micro_batch(self, inputs: Any, targets: Any, mask: tf.Tensor, draws: Draws) -> Sums:
        """The pure function of a micro-batch, over all devices."""
        weights, state, held = self.model.trainable_variables, self.model.non_trainable_variables, self.held
        scale = tf.constant(1.0) / self.plan.batch
        with traced_on(held.mesh):
            sums = self._forward_and_backward(held.used(weights), held.used(state), inputs, targets, mask, draws, scale, None)
        return sums._replace(gradients=held.updated(weights, sums.gradients), totals=held.mesh.relaid(sums.totals, (None,)))


@contextmanager
def _divided_by_dtensor() -> Iterator[None]:
    """Without TensorFlow's own rewriting of graphs, which complains at length of the shapes that DTensor notes beside those of the parts.

    Raises:
        ConfigError: DTensor cannot divide an operation.
    """
    before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    except REFUSED as error:
        _refuse(error)
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


def _refuse(error: tf.errors.OpError) -> NoReturn:
    """Raises what to do where DTensor cannot divide an operation; any other error as it is."""
    text = str(error)
    operation = re.search(r'"tf\.(\w+)"', text)
    if "dtensor" not in text.lower() and "SPMD" not in text:
        raise error
    named = f"the operation {operation[1]}" if operation else "an operation"
    first = next((line for line in text.splitlines() if "error:" in line), "").partition("error:")[2].strip()
    remedy = "" if "does not implement" in text else "set train.parallel.layouts: {\"*\": gathered}, or "
    raise ConfigError(f"train.parallel: TensorFlow's DTensor cannot divide {named} of this model on the mesh ({first or text[:200]}); "
                      f"{remedy}leave train.parallel out: each device has a copy then") from error
