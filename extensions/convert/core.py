"""The numeric core of a run: from the model's input to the answer as numbers. What decodes before it and words after it stays outside.

`Input.receive` and `Task.prepare` give the input, `Output.answer` calls the model and gives numbers, `Output.respond` words them. Other
runtimes have no operations for image files and texts, so the core alone can take another form.
"""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.messages import listed
from pipelines.data.source import Tensors
from pipelines.machine.compiling import without_cudnn
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import WARNING
from pipelines.task.contract import Task

INPUT, OUTPUT = "input_0", "output_{:02d}"  # their names in every form; the answers in the order of `Core.answers`


@dataclass(frozen=True)
class Core:
    """
    Attributes:
        function: {INPUT: [batch, ...]} -> {OUTPUT: [batch, ...]}, traced.
        input: spec of the model's input, with its batch.
        answers: name -> spec of what `Output.answer` gives, in the order of the outputs.
        module: holds the variables.
    """

    function: Any
    input: tf.TensorSpec
    answers: dict[str, tf.TensorSpec]
    module: tf.Module

    @property
    def nbytes(self) -> int:
        """Of the weights, as they were trained."""
        return sum(variable.shape.num_elements() * variable.dtype.size for variable in self.module.values)

    def __call__(self, values: Any) -> list[Any]:
        given = self.function(tf.constant(values, self.input.dtype))
        return [given[name].numpy() for name in sorted(given)]


class _Module(tf.Module):
    values: tuple[tf.Variable, ...] = ()


def core_of(run: LoadedRun) -> Core:
    """The core of a run. Raises ConfigError where it has none, and says why."""
    spec = input_of(run.task)

    named: dict[str, tf.TensorSpec] = {}

    def numbered(input_0: tf.Tensor) -> dict[str, tf.Tensor]:
        answers = dict(sorted(run.task.output.answer(lambda values: run.model(values, training=False), input_0).items()))
        named.update({name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in answers.items()})
        return {OUTPUT.format(place): value for place, value in enumerate(answers.values())}

    with without_cudnn(run.model):
        traced = tf.function(numbered, autograph=False).get_concrete_function(tf.TensorSpec(spec.shape, spec.dtype, name=INPUT))
    texts = [name for name, value in named.items() if value.dtype == tf.string]
    if texts:
        raise ConfigError(f"{run.folder.path}: has no numeric core that could be converted: the model writes text itself "
                          f"({listed(texts, 'and')}); export it --for server")
    module = _Module()
    module.values = tuple(traced.variables)
    return Core(traced, spec, named, module)


def input_of(task: Task) -> tf.TensorSpec:
    """Spec of the one tensor that the task's model takes. Raises ConfigError where it takes several, or texts."""
    raw = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in task.input.raw_spec().items()}
    traced = tf.function(lambda given: prepared(task, given)[0], autograph=False).get_concrete_function(raw)
    inputs = traced.structured_outputs
    flat = tf.nest.flatten(inputs)
    if len(flat) > 1:
        names = f" ({listed(inputs, 'and')})" if isinstance(inputs, dict) else ""
        raise ConfigError(f"{task.experiment.task}: this model takes {len(flat)} inputs{names}; only models of one tensor of numbers are "
                          "converted. Export it --for server")
    if isinstance(inputs, dict):
        raise ConfigError(f"{task.experiment.task}: this model takes its input by name ({listed(inputs, 'and')}), as those do that write "
                          "texts in a loop; only models of one tensor of numbers are converted. Export it --for server")
    if flat[0].dtype == tf.string:
        raise ConfigError(f"{task.experiment.task}: this model takes texts, and other runtimes know numbers alone; export it --for server")
    return tf.TensorSpec(flat[0].shape, flat[0].dtype)


def prepared(task: Task, raw: Tensors) -> tuple[Any, Tensors]:
    """Raw input as (the model's input, the `warning` that came with it, if any, and what stands beside answers); in graph."""
    examples = task.input.receive(raw)
    inputs, _ = task.prepare({name: value for name, value in examples.items() if name != WARNING})
    return inputs, {name: value for name, value in examples.items() if name == WARNING} | task.passed_by(examples)
