"""Features computed once: where an encoder is frozen, what it makes of each example is kept, and the head alone is trained on it.

It is one vector of an example, or, of a recording that is to be transcribed, one of each moment: then as many as the example has.

A network with a pretrained encoder has two parts, the layers `features` and `head`. The features of a split are a source like any other,
so that order, replicas, resuming and judging are those of every training. They are kept as decoded examples are (data.cache), on disk for
the next run or trial, too: named by data, preprocessing and weights.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.progress import Work
from pipelines.config.schema import Data
from pipelines.data import order
from pipelines.data.cache import MappedSource, computation, decoded_spec, readable
from pipelines.data.fingerprint import graph_hash
from pipelines.data.input import Decoder, Feed, make_feed
from pipelines.data.lengths import FlatSource, Lengths
from pipelines.data.results import Shapes, kept
from pipelines.data.source import ArraySource, Source, Tensors, origin
from pipelines.data.stream import StreamSource
from pipelines.machine.compiling import constant
from pipelines.machine.devices import Machine
from pipelines.task.contract import Decoding, Input, Output, Task

FEATURES, TARGET, JUDGED = "features", "target/", "judged/"  # entries of an example: of the encoder, of `prepare`, of `targets`
MOMENTS, LENGTH = "moments", "length"  # of one with a vector for each moment: how many these are, and its own length
# Bytes of vectors of moments; of more, every step computes its own. 30 hours of speech by the smallest Whisper, 120 in means of four steps.
MOST = 8 << 30
MOMENT_UNIT = 16  # batches of them are padded to a multiple of it
BATCH = {"CPU": 64, "GPU": 256}  # examples a device takes at a time, the same on any number of devices: rounding is the same, too
SHORT, SHORT_BATCH = 64, 256  # where the longest text has so many tokens at most: weights are cast to the precision once a batch
TRACED = 2  # examples in a trace on symbols


def parts(model: keras.Model) -> tuple[keras.Model, keras.Model]:
    """(features, head) of a network with a pretrained encoder."""
    return model.get_layer("features"), model.get_layer("head")


class ClassScores(keras.layers.Layer):
    """A layer that scores the classes, [batch, classes] float32; the scores stand behind the encoder's vectors, as the last columns of
    `features`."""


def own_columns(model: keras.Model) -> int:
    """How many columns of `features` are the encoder's own, before the scores of classes."""
    features, _ = parts(model)
    return int(features.output_shape[-1]) - sum(layer.output.shape[-1] for layer in features.layers if isinstance(layer, ClassScores))


@dataclass(frozen=True)
class Prepared:
    """What `Task.prepare` does with a batch, from a trace on symbols.

    Attributes:
        random: what it gives depends on keys, seed or epoch, or decoding does: augmentation stands before the encoder.
        targets: its targets, as specs.
        judged: specs of `Task.targets`, by name.
        features: shape and dtype of an example's features.
        graph: hash of all that is computed.
        sequences: features are a vector for each moment.
    """

    random: bool
    targets: Any
    judged: dict[str, tf.TensorSpec]
    features: tf.TensorSpec
    graph: str
    sequences: bool = False

    @classmethod
    def of(cls, task: Task, features: keras.Model, source: Source) -> "Prepared":
        decode = task.input.decoder
        one = {name: tf.TensorSpec([TRACED, *spec.shape], spec.dtype) for name, spec in decoded_spec(source, decode).items()}

        def judged(examples: Tensors) -> Any:
            inputs, targets = task.prepare(examples)
            return features(inputs, training=False), targets, task.output.targets(examples), task.input.frame_counts(inputs)

        def trained(keys: tf.Tensor, seed: tf.Tensor, epoch: tf.Tensor, examples: Tensors) -> Any:
            return task.prepare(examples, keys=keys, seed=seed, epoch=epoch)

        traced = tf.function(judged, autograph=False).get_concrete_function(one)
        drawn = tf.function(trained, autograph=False).get_concrete_function(
            tf.TensorSpec([TRACED, 2], tf.int32), tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.int64), one)
        random = task.input.decoding.random or any(value.consumers() for value in drawn.graph.inputs[:3])
        outputs, targets, own, moments = traced.structured_outputs
        return cls(random, targets, own, tf.TensorSpec(outputs.shape[1:], outputs.dtype), graph_hash(traced),
                   moments is not None and task.input.lengths is not None and outputs.shape[1] is None)

    @property
    def spec(self) -> dict[str, tf.TensorSpec]:
        """Of an example's entries in a source of features."""
        found = {FEATURES: self.features}
        found |= {f"{TARGET}{place}": _of_one(value) for place, value in enumerate(tf.nest.flatten(self.targets))}
        return found | {f"{JUDGED}{name}": _of_one(value) for name, value in self.judged.items()}

    @property
    def fixed(self) -> bool:
        """Whether each entry is one example's, of a shape known before."""
        leaves = [*tf.nest.flatten(self.targets), *self.judged.values()]
        each = all(value.shape.rank and value.shape[0] == TRACED for value in leaves)
        shapes = {name: spec.shape[1:] if self.sequences and name == FEATURES else spec.shape for name, spec in self.spec.items()}
        return each and all(shapes[name].is_fully_defined() and spec.dtype != tf.string for name, spec in self.spec.items())


def _of_one(value: Any) -> tf.TensorSpec:
    return tf.TensorSpec(value.shape[1:], value.dtype)


class OnFeatures:
    """A task whose examples are features, and whose model is the head; in everything else it is the task itself.

    Args:
        task: of the whole network.
        targets: a structure like that of its targets.
        views: versions of each training example, of which epoch e takes number e modulo `views`; 1 where there is one, without an axis.
        sequences: features are a vector for each moment; then only losses and scores are those of the task, not answers.
    """

    def __init__(self, task: Task, targets: Any, views: int, sequences: bool = False):
        self.whole, self.structure, self.views = task, targets, views
        self.input, self.output = _FeaturesIn(task.input, sequences), _JudgedAsStored(task.output)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def prepare(self, examples: Tensors, *, keys: Any = None, seed: Any = None, epoch: tf.Tensor | None = None) -> tuple[tf.Tensor, Any]:
        """(features [batch, ...], targets)."""
        if epoch is not None and self.views > 1:
            examples = {name: value[:, epoch % self.views] for name, value in examples.items()}
        flat = [examples[f"{TARGET}{place}"] for place in range(len(tf.nest.flatten(self.structure)))]
        return examples[FEATURES], tf.nest.pack_sequence_as(self.structure, flat)


class _FeaturesIn:
    """The input of a task whose examples are features, as they are stored."""

    decoding, decode_batch, decoder = Decoding(stored=True), None, None

    def __init__(self, whole: Input, sequences: bool):
        self.whole, self.lengths = whole, Lengths(MOMENTS, MOMENT_UNIT) if sequences else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


class _JudgedAsStored:
    """The output of such a task: what answers are compared with stands beside the features."""

    def __init__(self, whole: Output):
        self.whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name.removeprefix(JUDGED): value for name, value in examples.items() if name.startswith(JUDGED)}


def answers_once(task: Task, model: keras.Model, source: Source) -> bool:
    """Whether an answer is what the model gives for the inputs as they are: no further calls, such as of mirrored images."""
    calls: list[bool] = []
    if task.output.answers.beside:  # what passes by the model is not kept with its features
        return False

    def answer(examples: Tensors) -> Any:
        inputs, _ = task.prepare(examples)

        def called(given: Any) -> Any:
            calls.append(given is inputs)
            return tf.nest.map_structure(lambda output: tf.zeros([TRACED, *output.shape[1:]], output.dtype), model.output)
        return task.output.answer(called, inputs)

    decode = task.input.decoder
    one = {name: tf.TensorSpec([TRACED, *spec.shape], spec.dtype) for name, spec in decoded_spec(source, decode).items()}
    tf.function(answer, autograph=False).get_concrete_function(one)
    return calls == [True]


@dataclass
class Computing:
    """Computes the features of sources, on all devices of the machine."""

    task: Task
    encoder: Callable[[Any], tf.Tensor]  # with its weights of now
    machine: Machine
    data: Data
    seed: int
    prepared: Prepared
    weights: str  # hash of them
    say: Callable[[str], None]
    seconds: float = 0.0  # that it took; 0 where all were there already
    _functions: dict[str, Callable[..., Tensors]] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, model: keras.Model, train: Source, machine: Machine, data: Data, seed: int,
           say: Callable[[str], None]) -> "Computing | None":
        """None where features cannot be kept: data streamed or not cached, or targets or features of no fixed shape.

        Args:
            say: is told how far a computation is.
        """
        if isinstance(train, StreamSource) or data.cache == "none":
            return None
        features, _ = parts(model)
        prepared = Prepared.of(task, features, train)
        if not prepared.fixed:
            return None
        return cls(task, constant(features, machine.devices), machine, data, seed, prepared, weights_hash(features), say)

    def adapted(self, views: int) -> Task:
        """The task on features."""
        return cast(Task, OnFeatures(self.task, self.prepared.targets, views, self.prepared.sequences))

    def source(self, source: Source, views: int = 0) -> ArraySource | None:
        """The features of a source; None where there is no room for them, or they are vectors of moments that change with each view.

        Args:
            views: 0: as they are judged, else as the first epochs of training see them, with an axis for them where there are several.
        """
        whole, numbers = origin(source, shared=True)
        if whole.shared and whole is not source and not self.prepared.sequences:
            features = self.source(whole, views)
            return None if features is None else ArraySource(
                {name: array[numbers] for name, array in features.arrays.items()}, names=source.name, labels=source.labels,
                groups=source.groups, fingerprint=source.fingerprint())
        if self.prepared.sequences:
            return None if views else self._sequences(source)
        lead = (views,) if views > 1 else ()
        shapes = {name: ((*lead, *spec.shape.as_list()), spec.dtype.as_numpy_dtype) for name, spec in self.prepared.spec.items()}
        began = time.perf_counter()
        arrays = kept(Shapes(len(source), shapes), self.data, self._key(source, views),
                      lambda: self._computed(self._feed(source, views), self._values, views))
        self.seconds += time.perf_counter() - began
        if arrays is None:
            return None
        if any(isinstance(value, np.memmap) for value in arrays.values()):
            return MappedSource(arrays, source)
        return ArraySource(arrays, names=source.name, labels=source.labels, groups=source.groups, fingerprint=source.fingerprint())

    def _sequences(self, source: Source) -> FlatSource | None:
        """As `source`, of vectors of moments: first it is found how many each example has."""
        key, spec, began = self._key(source, 0), self.prepared.spec, time.perf_counter()
        feed = cache(lambda: self._feed(source, 0))
        counts = kept(Shapes(len(source), {MOMENTS: ((), np.int32), LENGTH: ((), np.int32)}), self.data, f"{key} {MOMENTS}",
                      lambda: self._computed(feed(), self._counts))
        if counts is None:
            return None
        shapes = Shapes(len(source), {name: (tuple(one.shape.as_list()), one.dtype.as_numpy_dtype) for name, one in spec.items()},
                        counts[MOMENTS])
        arrays = None
        if shapes.nbytes <= MOST:
            arrays = kept(shapes, self.data, key, lambda: self._computed(feed(), self._values))
        self.seconds += time.perf_counter() - began
        if arrays is None:
            self.say(f"features of {len(source):,} examples take {readable(shapes.nbytes)}, and there is room for "
                     f"{readable(MOST) if shapes.nbytes > MOST else 'less'}: every step computes its own")
            return None
        flat = {FEATURES: arrays.pop(FEATURES)}
        return FlatSource({**arrays, MOMENTS: counts[MOMENTS]}, flat, spec={**spec, MOMENTS: tf.TensorSpec([], tf.int32)},
                          lengths=Lengths(MOMENTS, MOMENT_UNIT, self.machine.xla), source=source, alike=counts[LENGTH])

    def _key(self, source: Source, views: int) -> str:
        decode = self.task.input.decoder
        # numbers learned from train stand in the graph, tables of texts do not
        learned = {name: json.dumps(value, sort_keys=True, default=str) for name, value in self.task.facts.items() if name != "splits"}
        facts = json.dumps({name: text for name, text in learned.items() if '"' in text}, sort_keys=True)
        drawn = f"{views} {self.seed}" if views else ""
        return " ".join([source.fingerprint(), source.stamp(), str(len(source)), computation(source, decode), self.prepared.graph,
                         self.weights, facts, drawn, self.machine.precision])

    def _feed(self, source: Source, views: int) -> Feed:
        """All examples, a device's batch at a time."""
        task, machine = self.task, self.machine
        lengths = task.input.lengths
        batch = BATCH[machine.devices[0].partition(":")[0]]
        if lengths and lengths.most is not None and lengths.most <= SHORT:
            batch = max(batch, SHORT_BATCH)
        plan = order.Plan(len(source), machine.replicas * min(batch, len(source)), machine.replicas)
        # an example is decoded as often as it has views: to keep it decoded helps sorting by length alone
        data = self.data if task.input.lengths else self.data.model_copy(update={"cache": "none"})
        decoding = Decoder.of(task)
        if lengths := decoding.lengths:  # lengths are alike, and nothing is compiled
            decoding = replace(decoding, lengths=replace(lengths, unit=1))
        return make_feed(source, decoding, plan=plan, seed=self.seed, shuffle=bool(views), data=data, machine=machine)

    def _computed(self, feed: Feed, values_of: Callable[[Tensors, Any, Any], Tensors], views: int = 0,
                  ) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
        """(places, values) of each batch: places are example numbers, with several views a pair of these and the view."""
        plan, step_function = feed.plan, self._step(feed, values_of, views)
        if values_of == self._values:
            self.say(f"computing the features of {plan.examples:,} examples" + (f" in {views} views" if views > 1 else ""))
        with Work(self.say, "features", plan.steps_per_epoch * max(views, 1)) as work:
            yield from self._steps(feed, step_function, views, work)

    def _steps(self, feed: Feed, step_function: Any, views: int, work: Work) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
        """As `_computed`."""
        machine, plan = self.machine, feed.plan
        for view in range(max(views, 1)):
            start = view * plan.steps_per_epoch
            iterator = feed.iterator(start, start + plan.steps_per_epoch)
            for step in range(start, start + plan.steps_per_epoch):
                try:
                    results = step_function(tf.constant(step, tf.int64), iterator)
                except tf.errors.OpError as error:
                    raise feed.blame(error, start, start + plan.steps_per_epoch) or error from error
                local = [machine.strategy.experimental_local_results(value) for value in tf.nest.flatten(results)]
                for replica in range(len(local[0])):
                    numbers, values = tf.nest.pack_sequence_as(results, [pieces[replica].numpy() for pieces in local])
                    yield (numbers, view) if views > 1 else numbers, values
                work.at(step + 1)

    def _values(self, examples: Tensors, inputs: Any, targets: Any) -> Tensors:
        """What is kept of a batch."""
        values = {FEATURES: self.encoder(inputs)}
        values |= {f"{TARGET}{place}": value for place, value in enumerate(tf.nest.flatten(targets))}
        return values | {f"{JUDGED}{name}": value for name, value in self.task.output.targets(examples).items()}

    def _counts(self, examples: Tensors, inputs: Any, targets: Any) -> Tensors:
        lengths = self.task.input.lengths
        assert lengths is not None
        return {MOMENTS: self.task.input.frame_counts(inputs), LENGTH: examples[lengths.entry]}

    def _step(self, feed: Feed, values_of: Callable[[Tensors, Any, Any], Tensors], views: int) -> Any:
        """(step, iterator) -> (numbers, values) of each replica."""
        random = bool(views)

        def read(step: tf.Tensor, fetched: Any) -> tuple[tf.Tensor, Tensors, Tensors]:
            """(numbers, examples, what augmentation draws from)."""
            context = tf.distribute.get_replica_context()
            replica = int(tf.get_static_value(context.replica_id_in_sync_group)) % self.machine.replicas  # of several hosts, this one's
            numbers, _, examples = feed.batch(step, replica, fetched)
            if not random:
                return numbers, examples, {}
            epoch = step // feed.plan.steps_per_epoch
            return numbers, examples, {"keys": order.example_keys(self.seed, epoch, numbers), "epoch": epoch,
                                       "seed": order.step_seed(self.seed, step)}

        def made(examples: Tensors, drawn: Tensors) -> Tensors:
            return values_of(examples, *self.task.prepare(examples, **drawn))

        def whole(step: tf.Tensor, fetched: Any) -> tuple[tf.Tensor, Tensors]:
            numbers, *given = read(step, fetched)
            return numbers, made(*given)

        def on_replicas(function: Callable[..., Any]) -> Callable[..., Any]:
            return tf.function(lambda step, iterator: self.machine.strategy.run(
                function, args=(step, None if feed.on_device else next(iterator))), autograph=False)

        if self.machine.replicas > 1:
            return on_replicas(whole)
        batches, values = on_replicas(read), self._function(made, values_of.__name__, feed, random)

        def step_function(step: tf.Tensor, iterator: Any) -> tuple[tf.Tensor, Tensors]:
            numbers, *given = batches(step, iterator)
            return numbers, values(*given)

        return step_function

    def _function(self, made: Callable[[Tensors, Tensors], Tensors], name: str, feed: Feed, random: bool) -> Callable[..., Tensors]:
        """`made` as one function for the batches of all splits: what an encoder's graph costs before its first batch is paid once."""
        count = feed.plan.local if random else None  # augmentation is of train alone
        examples = {entry: tf.TensorSpec([count, *value.shape], value.dtype) for entry, value in feed.spec.items()}
        key = f"{name} {random} {examples}"
        if key not in self._functions:
            drawn = {"keys": tf.TensorSpec([count, 2], tf.int32), "epoch": tf.TensorSpec([], tf.int64),
                     "seed": tf.TensorSpec([2], tf.int32)} if random else {}
            self._functions[key] = tf.function(lambda *given: self.machine.strategy.run(made, args=given),
                                               input_signature=[examples, drawn], autograph=False)
        return self._functions[key]


def weights_hash(model: keras.Model) -> str:
    """SHA-256 of a model's weights."""
    digest = hashlib.sha256()
    for variable in model.variables:
        if variable.name != "seed_generator_state":  # nothing is drawn in inference
            digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return digest.hexdigest()
