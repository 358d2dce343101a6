"""What a person is shown of a run: what it is about to do, a batch as a step sees it, who was to blame, and the results in TensorBoard."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data import order
from pipelines.data.input import Feed
from pipelines.data.lengths import stacked
from pipelines.data.source import ArraySource, label_of, texts
from pipelines.encoders import trainable
from pipelines.encoders.features import FEATURES, own_columns
from pipelines.monitoring.arithmetic import arithmetic
from pipelines.monitoring.tensorboard import Writer
from pipelines.task.contract import Task
from pipelines.task.results import Judgement
from pipelines.training.other_draws import other_draws
from pipelines.training.totals import losses

if TYPE_CHECKING:
    from pipelines.training.loop import Loop
    from pipelines.training.session import Session

PROJECTED = 2000  # examples that TensorBoard's projector still shows fluently
PROJECTED_TEXT = 80  # characters of a text beside its point


def describe(session: "Session", name: str, say: Callable[[str], None]) -> None:
    """Says what will happen: sizes, steps, devices, how data are fed."""
    machine, plan, splits = session.machine, session.plan, session.splits
    sizes = ", ".join(
        f"{split} {len(source):,}"
        for split, source in (("train", splits.train), ("validation", splits.validation), ("test", splits.test))
        if source
    )
    learned = [*session.weights, *(table.variable for table in session.update.tables.tables)]
    count = sum(int(np.prod(variable.shape)) for variable in learned)
    batch = f"batch {plan.batch}" + (f" = {plan.replicas} devices x {plan.accumulation} x {plan.micro}" if plan.micro != plan.batch else "")
    if plan.poisson:
        batch = f"batches of {plan.usual} on average, drawn example by example"
    if machine.mesh:
        batch += f" on a mesh of {machine.mesh.data} (data) x {machine.mesh.model} (model)"
    work = f"{count:,} weights; {session.steps:,} steps, {batch}" if session.steps else "fitted at once: nothing trains by steps"
    say(
        f"{name}: {sizes}; {work}; {machine.precision} on "
        f"{', '.join(machine.working)}{' with XLA' if machine.xla else ''}; {session.feed.summary}"
    )
    if chosen := trainable.note(session.task.experiment, session.way, len(splits.train)):
        say(chosen)
    for line in filter(None, (one.describe() for one in session.transforms)):
        say(line)
    if session.layouts:
        say("\n".join(session.layouts.described()))
    if session.steps and machine.replicas > 1:
        _say_what_depends_on_devices(session, say)


def _say_what_depends_on_devices(session: "Session", say: Callable[[str], None]) -> None:
    """Says what another number of devices would train otherwise; nothing, where that is the same."""
    model, task, plan = session.learner.model, session.learner.task, session.plan
    has_norm = any(isinstance(layer, keras.layers.BatchNormalization) for layer in model._flatten_layers())
    mixing = [*(["BatchNormalization"] if has_norm else []), *([task.output.learning.mixes] if task.output.learning.mixes else [])]
    if mixing and not session.step.train.micro_batch_size:
        say(
            f"{' and '.join(mixing)} {'see' if len(mixing) > 1 else 'sees'} the {plan.micro} examples of one device; for the same training "
            f"on any number of devices, set train.micro_batch_size (a divisor of {plan.batch // session.machine.replicas})"
        )
    examples = {name: tf.TensorSpec([2, *spec.shape], spec.dtype) for name, spec in session.feed.spec.items()}
    drawing = other_draws(model, lambda examples: task.prepare(examples)[0], examples)
    if drawing:
        say(f"what {' and '.join(drawing)} draws in training depends on the number of devices; keras.random's dropout, uniform, normal, "
            "truncated_normal and randint do not")


def training_batch(session: "Session", step: int, count: int) -> tuple[Any, Any, Any]:
    """(examples, inputs, targets) of the first of the batch of `step`: as they were decoded, and as the whole network sees them then."""
    return _seen(session.task, session.shown, step, min(count, session.plan.micro))


def _seen(task: Task, feed: Feed, step: int, count: int) -> tuple[Any, Any, Any]:
    now = tf.constant(step, tf.int64)
    numbers, examples = feed.sample(step, count)
    seed, keys = order.step_seed(feed.seed, now), feed.keys(step, numbers)
    return examples, *task.prepare(examples, keys=keys, seed=seed, epoch=now // feed.plan.steps_per_epoch)


def show_samples(session: "Session", loop: "Loop", writer: Writer | None, count: int) -> None:
    """Lets the task show `count` examples of the batch of the loop's step."""
    if writer is None:
        return
    examples, inputs, targets = training_batch(session, max(0, min(loop.step, loop.steps - 1)), count)
    session.task.show(session.splits.train, writer, loop.step, inputs=inputs, targets=targets)
    session.task.show_epoch(session.model, writer, loop.step, examples=examples, inputs=inputs, targets=targets)


def show_results(session: "Session", judgements: Mapping[str, Judgement], writers: Mapping[str, Writer], step: int) -> None:
    """The report's figures in TensorBoard, and what the task shows of the trained model."""
    for split, judged in judgements.items():
        writer = writers["train" if split == "test" else split]
        for name, figure in judged.figures.items():
            writer.figure(f"{split}/{name}", figure, step)
    session.task.show_model(session.model, writers["train"], step)
    _show_features(session, writers["train"])


def _show_features(session: "Session", writer: Writer) -> None:
    """Training examples in the projector by the features of a frozen encoder, where these were kept: with texts, classes and names."""
    source = session.learner.train
    if session.learner.model is session.model or not isinstance(source, ArraySource) or FEATURES not in source.arrays:
        return  # or they are a vector for each moment
    numbers = np.sort(np.random.default_rng(0).permutation(len(source))[:PROJECTED])
    features = np.asarray(source.arrays[FEATURES][numbers], np.float32)
    features = features[:, 0] if session.learner.task.views > 1 else features  # type: ignore[attr-defined]  # the first view
    if features.ndim != 2:
        return  # a vector for each moment
    features, train = features[:, :own_columns(session.model)], session.splits.train
    columns: dict[str, list[str]] = {}
    if texts(train, [int(numbers[0])]) != [None]:  # images and sounds are not read for it
        columns["text"] = [text or "" for text in texts(train, numbers.tolist(), PROJECTED_TEXT)]
    classes = session.task.facts.get("classes") or []
    if train.labels is not None or train.sets is not None:
        columns["class"] = [label_of(train, int(number), classes) or "" for number in numbers]
    columns["name"] = [source.name(int(number)) for number in numbers]
    writer.projector("features", features, columns)


def culprits(session: "Session", step: int, most: int = 5) -> list[str]:
    """Names of the examples of a step's batch whose own loss is not finite, at the weights before the step."""
    task, feed = session.task, session.shown
    now = tf.constant(step, tf.int64)
    causes = []
    for number, raw in feed.raw(step):
        keys = feed.keys(step, tf.constant([number], tf.int64))
        example = stacked([task.input.decode(raw, keys[0] if task.input.decoding.random else None)], feed.spec, feed.rule)
        seed = order.step_seed(feed.seed, now)
        inputs, targets = task.prepare(example, keys=keys, seed=seed, epoch=now // session.plan.steps_per_epoch)
        loss, _ = losses(task.output, session.model(inputs, training=False), targets, training=True)
        if not np.isfinite(loss.numpy()).all():
            causes.append(feed.name(number, step))
            if len(causes) == most:
                break
    return causes


def waiting_remedy(session: "Session") -> str:
    """What would most likely shorten the wait for input."""
    if session.task.input.decoding.random:
        return (
            "Each image is decoded anew for its random crop: smaller files, more processor cores, "
            "or augment.shift in place of random_resized_crop."
        )
    if "on the way" in session.feed.summary:
        return "Examples are decoded in every epoch: set data.cache: memory or disk."
    return "Reading from the cache is the limit: data.cache: memory if it fits, a faster disk, or a larger train.batch_size."


def work(session: "Session", examples_per_second: float) -> dict[str, Any] | None:
    """The training's arithmetic, beside what the machine reaches (see monitoring.arithmetic)."""
    learner = session.learner
    _, inputs, _ = _seen(learner.task, session.feed, 0, session.plan.micro)
    return arithmetic(learner.model, inputs, min(session.plan.micro, session.plan.examples), examples_per_second, session.machine)
