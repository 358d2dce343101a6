"""Answers for many inputs in bounded memory: read and decoded in parallel, answered in batches, in the order given.

An input that cannot be read or decoded gets its error as the answer.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from queue import Queue
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from pipelines.data.lengths import joined
from pipelines.data.reasons import reason
from pipelines.data.source import Tensors
from pipelines.machine.hardware import cores
from pipelines.serving.answers import bounded_parts, class_names, respond, stacked
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import Prediction, first
from pipelines.task.contract import Read
from pipelines.task.form import Field

In = TypeVar("In")
Out = TypeVar("Out")
Answer = Callable[[LoadedRun, Tensors], Tensors]
UNREADABLE = (tf.errors.OpError, ValueError, TypeError, OverflowError)  # what an input raises that is not what it should be
SIMILAR = 128  # examples of similar length answered together


@dataclass(frozen=True)
class Decoded:
    """A chunk: its names, the columns of their rows, the examples that could be decoded with their places, and the errors of the others."""

    names: list[str]
    fields: list[dict[str, Any] | None]
    places: list[int]
    examples: dict[str, np.ndarray]
    errors: dict[int, str]


class Predictor:
    """Answers inputs with a loaded run."""

    def __init__(self, run: LoadedRun, *, batch: int | None = None, workers: int | None = None, answer: Answer = respond):
        """
        Args:
            run: on one device.
            answer: examples as `Task.receive` gives them into what is answered, in graph.
            batch: examples answered at a time; default: the task's.
            workers: chunks read and decoded at the same time; default: one for each processor.
        """
        # large enough to hide the cost of a call, small enough to retry one by one when one is broken
        requests, answers = run.task.input.requests, run.task.output.answers
        self.chunk, usual = requests.read_at_once
        self.run, self.batch = run, batch or usual
        self.title, self.task = f"{run.name}/{run.folder.path.name}", run.task.experiment.task
        self.take, self.sends, self.decodes = requests.take, requests.sends, requests.decodes_uploads
        self.large, self.heavy = run.task.input.slow_to_decode, requests.slow_upload
        self.form: Sequence[Field] = requests.form()
        self.meanings: Mapping[str, str] = {**run.task.input.signature.meanings, **answers.meanings}
        self.details: Sequence[str] = answers.details
        self.ranked: Sequence[str] = answers.ranked
        self.kinds: Mapping[str, str] = answers.kinds
        self.workers = workers or cores()
        spec = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in run.task.input.raw_spec().items()}
        self._receive = tf.function(run.task.input.receive, input_signature=[spec], autograph=False)
        received = self._receive.get_concrete_function().structured_outputs
        self.free = [name for name, value in received.items() if value.shape.rank and value.shape.rank > 1 and value.shape[1] is None]
        self._respond = tf.function(lambda examples: answer(run, examples), autograph=False, input_signature=[
            {name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in received.items()}])
        self._whole = tf.function(lambda raw: answer(run, run.task.input.receive(raw)), autograph=False, input_signature=[spec])
        simple = run.task.input.receive_simple
        self._plain = straight(tf.function(lambda raw: answer(run, simple(raw)), autograph=False, input_signature=[spec]),
                               processor=not any("GPU" in device for device in run.machine.devices))
        outputs = self._respond.get_concrete_function().structured_outputs
        self.inputs: dict[str, tf.TensorSpec] = spec
        self.outputs: dict[str, tf.TensorSpec] = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in outputs.items()}
        self.columns: dict[str, int] = {name: value.shape.rank for name, value in outputs.items()}
        vector = next((value for value in outputs.values() if value.shape.rank == 2), None)
        self.classes = class_names(run.task, vector.shape[1]) if vector is not None and vector.shape[1] else None

    def predict(self, inputs: list[str]) -> Iterator[Prediction]:
        """Answers in the order of the inputs; reads ahead only a little."""
        yield from self.answers(self.run.task.input.requests.read(inputs))

    def answers(self, inputs: Iterable[Read]) -> Iterator[Prediction]:
        """As `predict`, of inputs that have been read."""
        # the inputs are read in this thread, decoded and answered in the pool
        with ThreadPoolExecutor(self.workers) as pool:
            source = iter(inputs)
            chunks = iter(lambda: list(islice(source, self.chunk)), [])
            decoded = in_order(pool, self._decode, chunks, ahead=2 * self.workers)
            for answers in in_order(pool, self._answer, self._grouped(decoded), ahead=2):
                yield from answers

    def together(self, read: list[Any]) -> list[Prediction]:
        """Answers (name, raw example) in one batch; much longer ones by themselves."""
        rows = [one[1] for one in read]
        return [one for part in bounded_parts(self.inputs, rows) for one in self._at_once(read[part], rows[part])]

    def _at_once(self, read: list[Any], rows: list[dict[str, Any]]) -> list[Prediction]:
        """Decodes and answers in one call; in two, where they are many of different length, or one of them cannot be decoded."""
        if len(read) > SIMILAR:
            return self._answer([self._decode(read)])
        batch = stacked(self.run.task, rows)
        try:
            given = self._plain(batch) if all(map(self.run.task.input.is_simple, rows)) else self._whole(batch)
            answers = {name: value.numpy() for name, value in given.items()}
        except UNREADABLE:
            return self._answer([self._decode(read)])
        return [Prediction(one[0], values) for one, values in zip(read, self._rows(answers))]

    def warm_up(self) -> None:
        """Answers examples alone and in a full batch, so that TensorFlow is ready for the first input: one that is not plain, and one
        that is."""
        typical = next(filter(self.run.task.input.is_simple, self.run.task.input.requests.typical()), None)
        for row in (self.run.task.input.requests.sample(), typical):
            with suppress(tf.errors.OpError, TypeError, ValueError):  # then the first input takes longer, or gets the same error
                for count in (1, self.batch) if row is not None else ():
                    self.together([("warm-up", row)] * count)

    def follow(self, inputs: list[str]) -> Iterator[Prediction]:
        """Answers inputs that come slowly: each as soon as it arrives, with those that already wait."""
        came: Queue[Read | BaseException | None] = Queue(2 * self.batch)

        def read() -> None:
            try:
                for one in self.run.task.input.requests.read(inputs):
                    came.put(one)
                came.put(None)
            except BaseException as error:
                came.put(error)

        Thread(target=read, daemon=True).start()
        ended, failure = False, None
        while not ended:
            waiting: list[Read] = []
            while not ended and (not waiting or (len(waiting) < self.batch and not came.empty())):
                one = came.get()
                if one is None or isinstance(one, BaseException):
                    ended, failure = True, one
                else:
                    waiting.append(one)
            yield from self._answer([self._decode(waiting)] if waiting else [])
        if failure is not None:
            raise failure

    def _decode(self, chunk: list[Read]) -> Decoded:
        errors = {place: reason(one[1]) for place, one in enumerate(chunk) if isinstance(one[1], Exception)}
        rows = {place: one[1] for place, one in enumerate(chunk) if not isinstance(one[1], Exception)}
        names, fields = [one[0] for one in chunk], [one[2] if len(one) > 2 else None for one in chunk]
        try:
            return Decoded(names, fields, list(rows), self._receive_rows(list(rows.values())), errors)
        except UNREADABLE:
            parts = []
            for place, row in list(rows.items()):
                try:
                    parts.append(self._receive_rows([row]))
                except UNREADABLE as error:
                    errors[place] = reason(error)
                    del rows[place]
            examples = {name: joined([part[name] for part in parts]) for name in parts[0]} if parts else {}
            return Decoded(names, fields, list(rows), examples, errors)

    def _receive_rows(self, rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        if not rows:
            return {}
        return {name: value.numpy() for name, value in self._receive(stacked(self.run.task, rows)).items()}

    def _grouped(self, chunks: Iterable[Decoded]) -> Iterator[list[Decoded]]:
        """Chunks that are answered together."""
        held: list[Decoded] = []
        for chunk in chunks:
            held.append(chunk)
            if sum(len(one.places) for one in held) >= self.batch or sum(len(one.names) for one in held) >= 8 * self.batch:
                yield held
                held = []
        if held:
            yield held

    def _answer(self, chunks: list[Decoded]) -> list[Prediction]:
        full = [chunk for chunk in chunks if chunk.places]
        answers: dict[str, np.ndarray] = {}
        if full:
            examples = {name: joined([chunk.examples[name] for chunk in full]) for name in full[0].examples}
            answers = self._answers(examples)
        predictions, rows = [], iter(self._rows(answers))
        for chunk in chunks:
            for place, (name, fields) in enumerate(zip(chunk.names, chunk.fields)):
                if place in chunk.errors:
                    predictions.append(Prediction(name, error=chunk.errors[place], fields=fields))
                else:
                    predictions.append(Prediction(name, next(rows), fields=fields))
        return predictions

    def _rows(self, answers: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        return rows_of(answers, self.ranked, self.details, self.kinds)

    def _answers(self, examples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Where lengths differ, examples of similar length are answered together, so that little of it is padding."""
        rule = self.run.task.input.lengths
        if rule is None or len(examples[rule.entry]) <= SIMILAR:
            return {name: value.numpy() for name, value in self._respond(examples).items()}
        lengths = examples[rule.entry]
        order = np.argsort(lengths, kind="stable")
        parts: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(order), SIMILAR):
            some = order[start:start + SIMILAR]
            longest = -(-max(1, int(lengths[some].max())) // rule.unit) * rule.unit
            counted = set(self.free) - set(rule.others)
            batch = {name: value[some, :longest] if name in counted else value[some] for name, value in examples.items()}
            for name, values in self._respond(batch).items():
                parts.setdefault(name, []).append(values.numpy())
        back = np.argsort(order)
        return {name: joined(values)[back] for name, values in parts.items()}


def straight(function: Any, *, processor: bool) -> Callable[[Tensors], Tensors]:
    """A tf.function of one signature, traced at its first call. On the processor, where its graph has neither branches nor loops nor
    calls, one thread computes it: to hand operations of a few microseconds to other threads takes longer than they do. What an operation
    does by itself on several processors, it still does."""
    @cache
    def traced() -> tuple[Any, Any]:
        concrete = function.get_concrete_function()
        nodes = concrete.graph.as_graph_def().node
        nested = any(value.HasField("func") or value.list.func for node in nodes for value in node.attr.values())
        return concrete, nullcontext if nested or not processor or any("PyFunc" in node.op for node in nodes) else partial(
            tf.experimental.function_executor_type, "SINGLE_THREADED_EXECUTOR")

    def call(batch: Tensors) -> Tensors:
        concrete, how = traced()
        with how():
            answers: Tensors = concrete(batch)
        return answers

    return call


def in_order(pool: ThreadPoolExecutor, work: Callable[[In], Out], items: Iterable[In], *, ahead: int) -> Iterator[Out]:
    """work(item) of each, in their order; at most `ahead` of them run or wait."""
    source = iter(items)
    waiting: deque[Future[Out]] = deque()
    try:
        while True:
            for item in islice(source, ahead - len(waiting)):
                waiting.append(pool.submit(work, item))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def rows_of(answers: Mapping[str, np.ndarray], ranked: Sequence[str], details: Sequence[str],
            kinds: Container[str]) -> list[dict[str, Any]]:
    """A batch of answers, name -> [batch, ...], as what each input is answered: name -> a number, a text, bytes, or an array of more.

    Args:
        ranked, details, kinds: as a task has them.
    """
    columns = [list(value) if name in kinds or (value.ndim > 1 and value.dtype != object) else list(map(plain, value))
               for name, value in answers.items()]
    rows = [dict(zip(answers, row)) for row in zip(*columns)]
    return [trimmed(first(row, ranked, row.get("count", 0)), details) for row in rows] if ranked or details else rows


def trimmed(values: dict[str, Any], details: Sequence[str]) -> dict[str, Any]:
    """An answer without the padding of its details: they end with their last text that is not empty."""
    there = [name for name in details if name in values]
    texts = [values[name] for name in there if isinstance(values[name], np.ndarray) and values[name].dtype == object]
    ends = [np.flatnonzero(text.astype(bool))[-1:] + 1 for text in texts]
    if not ends:
        return values
    end = int(np.concatenate(ends).max(initial=0))
    return {name: value[:end] if name in there else value for name, value in values.items()}


def plain(value: Any) -> Any:
    """A number, a text, or an array of more. Bytes that are no text stay bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, np.ndarray) and value.ndim:
        return np.vectorize(plain, otypes=[object])(value) if value.dtype == object else value
    if isinstance(value, np.float32):
        return float(str(value))  # the shortest number that is this one: 0.9, not 0.8999999761581421
    return value.item() if hasattr(value, "item") else value
