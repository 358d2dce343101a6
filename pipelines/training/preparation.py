"""What a training begins with, before its data are decoded: data that are divided, and a model that can learn from them.

Which precision is faster on a CPU is found by a plain convolution (pipelines.machine.precision). Depthwise ones have other kernels: of 5 x
5 they take seventeen times as long in bfloat16 on processors whose plain ones take a third. So a network that has them is timed itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import finite
from pipelines.base.formatting import better
from pipelines.base.stored import checked
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import Train, accumulation_of
from pipelines.data.cache import decoded_spec
from pipelines.data.order import Plan
from pipelines.encoders import trainable
from pipelines.encoders.finetune import Finetune, Gradual
from pipelines.machine import devices
from pipelines.machine.precision import FASTER, speed
from pipelines.task.contract import Splits, Task
from pipelines.task.own_metrics import own_scores
from pipelines.task.prepared import splits_of
from pipelines.training import other_run, transform
from pipelines.training.embedding_tables import in_main_memory, tables_of
from pipelines.training.hooks.freezing import GradualUnfreeze, Unfreeze
from pipelines.training.loop import Hook
from pipelines.training.mesh_layouts import Layouts, lay_out
from pipelines.training.totals import ScoreSums, find_scores
from pipelines.training.transform import Kept, Transform
from pipelines.training.weight_limits import bounded

BATCH = 8  # examples in a step that is timed
FREE = 4  # units of length, of examples of no fixed length
TURNS = 3
DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D, keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)


def depthwise(model: keras.Model) -> bool:
    """Whether the network has such convolutions."""
    return any(isinstance(layer, DEPTHWISE) for layer in model._flatten_layers())


def speed_gain(task: Task, first: keras.Model, second: keras.Model, spec: Mapping[str, tf.TensorSpec], batch: int) -> float:
    """How many times as fast as `second` the network `first` is in a training step, forward and backward, on examples of zeros.

    The two take turns and the best of each counts, so that other work on the machine does not decide.

    Args:
        spec: name -> spec of one decoded example.
        batch: examples of a step in training.
    """
    examples = _zeros(task, spec, min(batch, BATCH))
    runs = [_step(task, model, examples) for model in (first, second)]
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for number, run in enumerate(runs):
            began = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - began)
    return best[1] / best[0]


def _zeros(task: Task, spec: Mapping[str, tf.TensorSpec], batch: int) -> dict[str, tf.Tensor]:
    rule = task.input.lengths
    length = FREE * rule.unit if rule else 0
    shapes = {name: [batch, *(length if size is None else size for size in one.shape)] for name, one in spec.items()}
    return {name: tf.fill(shape, tf.cast(length, spec[name].dtype)) if rule and name == rule.entry else tf.zeros(shape, spec[name].dtype)
            for name, shape in shapes.items()}


def _step(task: Task, model: keras.Model, examples: Mapping[str, tf.Tensor]) -> Callable[[], Any]:
    """A compiled training step that changes nothing."""
    @tf.function(autograph=False)
    def run() -> Any:
        inputs, _ = task.prepare(dict(examples))
        weights = [tf.convert_to_tensor(weight) for weight in model.trainable_variables]
        still = [tf.convert_to_tensor(weight) for weight in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, _ = model.stateless_call(weights, still, inputs, training=True)
            total = tf.add_n([tf.reduce_sum(tf.cast(one, tf.float32)) for one in tf.nest.flatten(outputs)])
        slopes = tape.gradient(total, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return tf.add_n([total, *(tf.reduce_sum(tf.cast(slope, tf.float32)) for slope in slopes)])

    run()
    return run


@dataclass(frozen=True)
class Prepared:
    """All that a training can be refused for before its first step.

    Attributes:
        model: the whole network, as it is judged on test and saved.
        way: in which a network with a pretrained encoder is fine-tuned.
        watch: the validation metric that early stopping and the best weights follow, and "max" or "min".
        others: the models of other runs, by the setting that names one.
        layouts: of the model's variables on the mesh, if the machine has one.
    """

    task: Task
    splits: Splits
    machine: devices.Machine
    plan: Plan
    model: keras.Model
    way: Finetune | None
    freezing: list[Hook]
    scores: ScoreSums
    watch: tuple[str, str]
    others: dict[str, keras.Model]
    transforms: list[Transform]
    layouts: Layouts | None


@dataclass(frozen=True)
class Network:
    """A task's model with what of it trains settled, and the machine in the precision in which it was built."""

    machine: devices.Machine
    model: keras.Model
    way: Finetune | None


def prepare(
    experiment: Experiment,
    task_class: type[Task],
    *,
    precision: str | None = None,
    facts: dict[str, Any] | None = None,
    beside: Path | None = None,
    kept: Kept | None = None,
) -> Prepared:
    """Divides the data and builds the model. `check` does it, too.

    Args:
        experiment: checked settings.
        task_class: what is learned.
        precision: the precision an interrupted run had chosen, None for a new run.
        beside: the folder of this run, above which other runs are looked for that the experiment names.
        kept: what transforms keep of this run (`transform.begin`), None for a new one.

    Raises:
        ConfigError, DataError: settings or data that cannot be used.
    """
    train = experiment.train
    machine = devices.prepare(train, precision=precision)
    task = task_class(experiment, facts)
    splits, transforms = divide_data(task, kept or {})
    planned = (one.plan(machine.replicas) for one in transforms)
    plan = next((one for one in planned if one), None) or plan_batches(train, len(splits.train), machine.replicas)
    spec = decoded_spec(splits.train, task.input.decoder)
    with machine.scope(), bounded("model"), in_main_memory(divides_tables(train, machine)):
        network = build_network(machine, task, len(splits.train))
        if precision is None and devices.by_convolution(machine, train) and depthwise(network.model):
            network = choose_precision(network, task, spec, len(splits.train))
        machine, model, way = devices.for_model(network.machine, network.model), network.model, network.way
        others = {setting: other_run.model_of(setting, folder, task, splits.train)
                  for setting, folder in other_run.named(experiment, beside).items()}
        freezing: list[Hook] = [Unfreeze(train.freeze, model)] if train.freeze else []
        if isinstance(way, Gradual):
            freezing.append(GradualUnfreeze(way, model))
    # what is wrong whatever the data is reported before they are all decoded
    scores = find_scores(task, model, spec)
    own = check_own_metrics(task, model, splits, scores.names)
    for one in transforms:
        one.check(task, model, machine)
    watch = find_watch(train, task, [*scores.names, *own], splits)
    layouts = find_layouts(task, model, machine, plan, transforms)
    return Prepared(task, splits, machine, plan, model, way, freezing, scores, watch, others, transforms, layouts)


def find_layouts(task: Task, model: keras.Model, machine: devices.Machine, plan: Plan, transforms: list[Transform]) -> Layouts | None:
    """How the model's variables lie on the machine's mesh; None without one.

    Raises:
        ConfigError: the model, or another setting, does not go with a mesh.
    """
    train, mesh = task.experiment.train, machine.mesh
    if mesh is None or train.parallel is None:
        return None
    others = {
        f"train.{transforms[0].name}" if transforms else "": bool(transforms),
        "train.teacher": train.teacher is not None,
        "a model with embedding tables, whose rows are updated one by one (train.tables.divided divides them),": bool(tables_of(model)),
    }
    if other := next((what for what, there in others.items() if there), None):
        raise ConfigError(f"train.parallel: {other} does not go with a mesh; leave train.parallel out: each device has a copy then")
    if plan.micro % mesh.data:
        unit = mesh.data * plan.accumulation
        raise ConfigError(f"train.parallel.data: a forward pass of {plan.micro} examples does not divide into {mesh.data} parts; set "
                          f"train.batch_size: {max(1, round(plan.batch / unit)) * unit}")
    return lay_out(model, train.parallel, mesh)


def divide_data(task: Task, kept: Kept) -> tuple[Splits, list[Transform]]:
    """The splits, with the facts that may be used of train, which are the task's from now on; and the transforms of the training."""
    experiment = task.experiment
    splits = splits_of(task)
    transforms = transform.made(experiment, len(splits.train), kept)
    for one in transforms:
        splits = replace(splits, facts=one.facts(task, splits.facts))
    task.facts = splits.facts
    checked(finite(splits.facts), task.facts_schema, f"{experiment.task}, what was learned of the data",
            "a run with it could not be loaded")
    if not len(splits.train):
        raise DataError("the training split holds no examples")
    for name, source in (("validation", splits.validation), ("test", splits.test)):
        if source is not None and (why := task.cannot_judge(source)) is not None:
            raise DataError(f"data.{name}: {why}")
    return splits, transforms


def plan_batches(train: Train, examples: int, replicas: int) -> Plan:
    """Divides the global batch over replicas and accumulation.

    Raises:
        ConfigError: the three batch settings and the number of devices do not fit together.
    """
    return Plan(examples, train.batch_size, replicas, accumulation_of(train, replicas))


def divides_tables(train: Train, machine: devices.Machine) -> bool:
    """Whether each replica holds a part of the embedding tables."""
    return train.tables.divided and machine.replicas > 1


def build_network(machine: devices.Machine, task: Task, examples: int) -> Network:
    """The task's network, to be trained on so many examples."""
    model = task.model()
    way = trainable.way_of(task.experiment, model, examples)
    if way is not None:
        trainable.settle(way, model)
    return Network(machine, model, way)


def choose_precision(network: Network, task: Task, spec: dict[str, tf.TensorSpec], examples: int) -> Network:
    """The network in float32, where that is no slower for it than the machine's own precision."""
    train, machine = task.experiment.train, network.machine
    plain = build_network(devices.in_precision(machine, train, "float32"), task, examples)
    gain = machine.group.of_chief(speed_gain(task, network.model, plain.model, spec, train.batch_size)
                                  if machine.group.chief else None)
    said = f"this network, which has depthwise convolutions, is {speed(gain, machine.precision)} here"
    if gain < FASTER:
        return replace(plain, machine=plain.machine.with_reason(said))
    return replace(network, machine=devices.in_precision(machine, train, machine.precision).with_reason(said))


def check_own_metrics(task: Task, model: Any, splits: Splits, scores: list[str]) -> list[str]:
    """The names of evaluate.metrics, traced on an example to be judged, so that what is wrong with them is reported before training.

    Raises:
        ConfigError: one that is there twice or has the name of a score, or gives anything but a number for each example.
    """
    names = [one.name for one in task.experiment.evaluate.metrics]
    twice = next((name for number, name in enumerate(names) if name in [*scores, "loss", *names[:number]]), None)
    if twice:
        raise ConfigError(f"evaluate.metrics: there is a metric {twice} already")
    source = splits.validation or splits.test
    if names and source is not None:
        spec = decoded_spec(source, task.input.decoder)
        find_scores(task, model, spec, partial(own_scores, task))
    return names


def find_watch(train: Train, task: Task, scores: list[str], splits: Splits) -> tuple[str, str]:
    """The validation metric that early stopping and the best weights follow, and "max" or "min".

    Raises:
        ConfigError: the task has no such metric, or there is no validation split to stop by.
    """
    own = task.output.watch
    if train.early_stopping and not splits.validation:
        raise ConfigError("train.early_stopping: there is no validation split to judge by; set data.validation")
    if train.watch is None:
        return own
    name = train.watch.removeprefix("validation/")
    if name == own[0]:  # also where validation alone has it
        return own
    sets = task.output.set_scores.better
    known = ["loss", *scores, *sets]
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise ConfigError(f"train.watch: {train.watch!r} is no metric of this task{f'; did you mean {near[0]}?' if near else ''} "
                          f"(there are: {', '.join(known)})")
    direction = sets.get(name) or better(name)
    if direction is None:
        raise ConfigError(f"train.watch: whether more or less of {name} is better is not known; declare it (pipelines.base.formatting)")
    return name, direction
