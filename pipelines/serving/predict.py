"""Answers for many inputs in bounded memory: read and decoded in parallel, answered in batches, in the order given.

An input that cannot be read or decoded is an answer with its error; the rest is answered.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.lengths import joined
from pipelines.data.reasons import reason
from pipelines.serving.answers import class_names, respond, stacked
from pipelines.serving.load import LoadedRun
from pipelines.serving.output import Prediction

CHUNK = 16  # inputs decoded in one call: enough to hide its cost, few enough to try one by one when one is broken
BATCH = 64
Read = tuple[str, dict[str, Any] | Exception]


@dataclass(frozen=True)
class Decoded:
    """A chunk: its names, the examples that could be decoded with their places, and the errors of the others."""

    names: list[str]
    places: list[int]
    examples: dict[str, np.ndarray]
    errors: dict[int, str]


class Predictor:
    """Answers inputs with a loaded run."""

    def __init__(self, run: LoadedRun, *, batch: int = BATCH, workers: int | None = None):
        """
        Args:
            run: on one device.
            batch: examples answered at a time.
            workers: chunks read and decoded at the same time; default: one for each processor.
        """
        self.run, self.batch = run, batch
        self.workers = workers or _processors()
        spec = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in run.task.raw_spec().items()}
        self._receive = tf.function(run.task.receive, input_signature=[spec], autograph=False)
        received = self._receive.get_concrete_function().structured_outputs
        self._respond = tf.function(lambda examples: respond(run, examples), autograph=False, input_signature=[
            {name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in received.items()}])
        outputs = self._respond.get_concrete_function().structured_outputs
        self.columns = {name: value.shape.rank for name, value in outputs.items()}
        vector = next((value for value in outputs.values() if value.shape.rank == 2), None)
        self.classes = class_names(run.task, vector.shape[1]) if vector is not None and vector.shape[1] else None

    def predict(self, inputs: list[str]) -> Iterator[Prediction]:
        """Answers in the order of the inputs; reads ahead a little, and holds no more than that."""
        yield from self._answered(self._decoded(self.run.task.read(inputs)))

    def _decoded(self, read: Iterable[Read]) -> Iterator[Decoded]:
        # Task.read goes on in this thread, decoding in the pool: as many chunks under way as there are workers, and as many waiting
        source = iter(read)
        with ThreadPoolExecutor(self.workers) as pool:
            waiting: deque[Future[Decoded]] = deque()
            try:
                while True:
                    while len(waiting) < 2 * self.workers and (chunk := list(islice(source, CHUNK))):
                        waiting.append(pool.submit(self._decode, chunk))
                    if not waiting:
                        return
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _decode(self, chunk: list[Read]) -> Decoded:
        errors = {place: reason(raw) for place, (_, raw) in enumerate(chunk) if isinstance(raw, Exception)}
        rows = {place: raw for place, (_, raw) in enumerate(chunk) if not isinstance(raw, Exception)}
        names = [name for name, _ in chunk]
        try:
            return Decoded(names, list(rows), self._receive_rows(list(rows.values())), errors)
        except tf.errors.OpError:
            parts = []
            for place, row in list(rows.items()):
                try:
                    parts.append(self._receive_rows([row]))
                except tf.errors.OpError as error:
                    errors[place] = reason(error)
                    del rows[place]
            examples = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
            return Decoded(names, list(rows), examples, errors)

    def _receive_rows(self, rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        if not rows:
            return {}
        return {name: value.numpy() for name, value in self._receive(stacked(self.run.task, rows)).items()}

    def _answered(self, chunks: Iterable[Decoded]) -> Iterator[Prediction]:
        held: list[Decoded] = []
        for chunk in chunks:
            held.append(chunk)
            if sum(len(one.places) for one in held) >= self.batch or sum(len(one.names) for one in held) >= 8 * self.batch:
                yield from self._answer(held)
                held = []
        yield from self._answer(held)

    def _answer(self, chunks: list[Decoded]) -> Iterator[Prediction]:
        full = [chunk for chunk in chunks if chunk.places]
        answers: dict[str, np.ndarray] = {}
        if full:
            examples = {name: joined([chunk.examples[name] for chunk in full]) for name in full[0].examples}
            answers = {name: value.numpy() for name, value in self._respond(examples).items()}
        row = 0
        for chunk in chunks:
            for place, name in enumerate(chunk.names):
                if place in chunk.errors:
                    yield Prediction(name, error=chunk.errors[place])
                else:
                    yield Prediction(name, {key: plain(value[row]) for key, value in answers.items()})
                    row += 1


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plain(value: Any) -> Any:
    """A number, a text, or an array of more."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if isinstance(value, np.float32):
        return float(str(value))  # the shortest number that is this one: 0.9, not 0.8999999761581421
    return value.item() if hasattr(value, "item") else value
