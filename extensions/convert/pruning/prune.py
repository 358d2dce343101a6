"""`quartet prune RUN --operations 0.25`: a smaller network from a trained run, as an experiment that trains it further.

What is written is a folder with the run's experiment, the smaller widths in its model section, and the weights that are left; `quartet
train` on it trains from these, as any run. The schedule is the run's own from its beginning, which does better than a low rate (Renda
et al. 2020, arXiv:2003.02389), and the whole network teaches the smaller one.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from extensions.convert.pruning import channels as network
from extensions.convert.pruning import choice
from pipelines.base.errors import ConfigError
from pipelines.base.files import finite, write_json, write_whole
from pipelines.config.load import from_dict
from pipelines.config.messages import listed
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.monitoring.arithmetic import forward_operations
from pipelines.runs.launch import task_class
from pipelines.serving.export import writing
from pipelines.serving.load import LoadedRun
from pipelines.training.other_run import lasting
from pipelines.training.session import Session, assemble
from pipelines.training.weight_limits import read_weights

BATCH, BATCHES = 32, 64  # training examples by which channels are weighed
TRIES = 6  # choices until the operations, counted in the graph, are few enough


@dataclass(frozen=True)
class Pruned:
    """
    Attributes:
        settings: of the smaller model.
        counts: layer -> (channels left, of how many).
        operations, weights: (after, before); operations of one example, multiplications and additions.
    """

    settings: Mapping[str, Any]
    counts: Mapping[str, tuple[int, int]]
    operations: tuple[float, float]
    weights: tuple[int, int]


def prune(run: LoadedRun, target: Path, *, share: float, epochs: int | None = None, teacher: bool = True, replace: bool = False,
          say: Callable[[str], None] = lambda line: None) -> Pruned:
    """Chooses channels, and writes the folder: experiment.yaml, model/, pruned.json.

    Args:
        run: in float32, on the CPU.
        share: of the operations that may be left.
        epochs: of the further training; None: the run's.
        teacher: whether the run teaches the smaller network.

    Raises:
        ConfigError: the network cannot be pruned, or not so far.
        TrainingError: the folder cannot be written.
    """
    section = run.experiment.model  # type: ignore[attr-defined]
    names = prunable(section, run)
    plain = run.experiment.model_copy(update={"train": run.experiment.train.model_copy(update={
        "teacher": None, "start": None, "devices": "cpu", "parallel": None, "precision": "float32"})})
    session = assemble(plain, task_class(plain.task), facts=run.task.facts)
    session.model.optimizer = None  # whose state the file does not have
    read_weights(session.model, run.folder.model / "model.keras")
    batches = _batches(session)
    inputs = batches[0][0]
    length = max((int(one.shape[1]) for one in tf.nest.flatten(inputs) if one.shape.rank > 1), default=1)
    known = network.channels_of(session.model, names, length)
    stuck = [name for name in names if not (known.by_layer.get(name, np.zeros(0)) != network.FIXED).any()]
    if stuck:
        raise ConfigError(f"{run.folder.path}: {listed(stuck, 'and')} cannot be pruned: a layer behind needs all of the channels")
    worth = choice.importance(known, lambda given, targets: tf.reduce_mean(
        session.task.output.loss(session.model(given, training=False), targets, True)), batches)
    made, alive, operations = _within(run, session.model, known, names, worth, share, inputs)
    before = {name: len(known.by_layer[name]) for name in names}
    left = network.counts(known, names, alive)
    done = Pruned(section.pruned(left), {name: (left[name], before[name]) for name in names}, operations,
                  (made.count_params(), session.model.count_params()))
    for name in names:
        say(f"{name}: {left[name]} of {before[name]}")
    _write(run, made, target, done, _experiment(run, done.settings, target, epochs, teacher), replace=replace)
    return done


def prunable(section: Any, run: LoadedRun) -> list[str]:
    """The layers that may lose channels. Raises ConfigError where the model has none that a setting counts."""
    names: list[str] = getattr(section, "prunable", [])
    if not names:
        raise ConfigError(f"{run.folder.path}: model.name: {section.name} cannot be pruned: its settings do not count the channels of each "
                          "layer; a smaller one can be taught by the run (train.teacher)")
    return names


def _batches(session: Session) -> list[tuple[Any, Any]]:
    """(inputs, targets) of training examples, as they are judged: without augmentation."""
    feed = itertools.islice(session.feed.judged(BATCH), BATCHES)
    return [session.task.prepare(examples) for examples in feed]


def _within(run: LoadedRun, model: keras.Model, known: network.Channels, names: list[str], worth: np.ndarray, share: float, inputs: Any,
            ) -> tuple[keras.Model, np.ndarray, tuple[float, float]]:
    """(the smaller model with its weights, which channels are left, operations after and before)."""
    whole = forward_operations(model, inputs)
    aim, left = share, 1.0
    for _ in range(TRIES):
        alive = choice.chosen(known, names, worth, aim)
        made = _built(run, network.counts(known, names, alive))
        fewer = forward_operations(made, inputs)
        if whole is None or fewer is None:
            raise ConfigError(f"{run.folder.path}: the operations of this model cannot be counted: its graph has loops")
        left = fewer / whole
        if left <= share:
            _fill(made, model, known, alive)
            examples = len(tf.nest.flatten(inputs)[0])
            return made, alive, (fewer / examples, whole / examples)
        aim *= 0.98 * share / left
    raise ConfigError(f"--operations: {share:g} is less than {run.folder.path} can do with: {left:.3f} are left where each layer "
                      f"keeps {choice.LEFT:.0%} of its channels; give {left + 0.005:.2f} or more")


def _built(run: LoadedRun, left: Mapping[str, int]) -> keras.Model:
    section: Any = run.experiment.model  # type: ignore[attr-defined]
    smaller = run.experiment.model_copy(update={"model": section.model_copy(update=dict(section.pruned(left)))})
    model: keras.Model = task_class(smaller.task)(smaller, run.task.facts).model()
    return model


def _fill(made: keras.Model, model: keras.Model, known: network.Channels, alive: np.ndarray) -> None:
    """Puts the weights that are left into the smaller model."""
    cut = {id(weight): value for weight, value in network.smaller(known, alive)}
    for target, weight in zip(lasting(made), lasting(model), strict=True):
        value = cut.get(id(weight))
        target.assign(np.asarray(weight.value) if value is None else value)


def _experiment(run: LoadedRun, settings: Mapping[str, Any], target: Path, epochs: int | None, teacher: bool) -> Experiment:
    values = run.experiment.model_dump(mode="python")
    values["model"] |= settings
    values["tune"] = None
    values["train"] |= {"start": {"run": str(target)}, "teacher": {"run": str(run.folder.path)} if teacher else None,
                        **({"epochs": epochs} if epochs else {})}
    return from_dict(values, check_paths=False)


def _write(run: LoadedRun, made: keras.Model, target: Path, done: Pruned, experiment: Experiment, *, replace: bool) -> None:
    with writing(run, target, replace=replace) as staging:
        (staging / "model").mkdir()
        made.save(staging / "model" / "model.keras")
        write_json(staging / "model" / "facts.json", finite(run.task.facts))
        write_json(staging / "pruned.json", {"run": str(run.folder.path), "settings": dict(done.settings), "layers": {
            name: {"left": left, "of": before} for name, (left, before) in done.counts.items()},
            "operations": list(done.operations), "weights": list(done.weights)})
        write_whole(staging / "experiment.yaml", resolved_yaml(experiment))
