"""Texts that are written beside one another, piece by piece: each begins when it is asked for, and ends when it is done, or left."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.task.writer import Way, Writer

Ended = Literal["stop", "length"]
ROWS = 16  # texts that are written at the same time


@dataclass(eq=False)
class Stream:
    """A text that is written.

    Attributes:
        told: gets each new piece of the text and, with the last one, why it ended; called in another thread.
        failed: gets what went wrong in its stead.
        left: nobody wants the rest; set by whoever has asked.
        used: tokens that were written.
    """

    prompt: np.ndarray
    way: Way
    told: Callable[[str, Ended | None], None]
    failed: Callable[[Exception], None]
    left: bool = False
    ids: list[int] = field(default_factory=list)
    said: int = 0  # characters that were told
    state: int = 0  # of the automaton of its form

    @property
    def used(self) -> int:
        return len(self.ids)


class Streams:
    """Writes texts in a thread of its own: one step is one token for each of them. Close it."""

    def __init__(self, writer: Writer, *, rows: int = ROWS, room: int = 8 * ROWS):
        """
        Args:
            rows: texts at the same time; more wait.
            room: texts that may wait.
        """
        self.writer, self.room = writer, room
        self._steps = writer.steps(rows)
        self._rows: list[Stream | None] = [None] * rows
        self._waiting: deque[Stream] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether no more texts may wait."""
        return len(self._waiting) >= self.room

    @property
    def busy(self) -> int:
        """Texts that are written or wait."""
        return sum(one is not None for one in self._rows) + len(self._waiting)

    def write(self, prompt: np.ndarray, way: Way, told: Callable[[str, Ended | None], None],
              failed: Callable[[Exception], None]) -> Stream:
        """Begins a text. Raises DataError where the window is too small for it, or nothing is there to be written on."""
        if not len(prompt):
            raise DataError("the prompt has no token: it is empty, or has only characters that the model does not know")
        if len(prompt) + way.most > self.writer.limit:
            raise DataError(f"{len(prompt):,} tokens and {way.most:,} to be written are more than the {self.writer.limit:,} that are seen "
                            "(model.length); send less, or ask for less")
        if way.form is not None and way.form.left[0] > way.most:
            raise DataError(f"the shortest text of this form has {way.form.left[0]:,} tokens, and {way.most:,} at most are to be written")
        if way.form is not None:
            way = replace(way, fewest=0, stop=())
        stream = Stream(prompt, way, told, failed)
        with self._news:
            self._waiting.append(stream)
            self._news.notify()
        return stream

    def close(self) -> None:
        """Ends the thread; texts that are not done end where they are."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closed or self.busy)
                if self._closed:
                    return
            try:
                self._begin()
                self._step()
            except Exception as error:  # of the steps, which all texts share
                lost = [*filter(None, self._rows), *self._waiting]
                self._rows = [None] * len(self._rows)
                self._waiting.clear()
                for stream in lost:
                    stream.failed(error)

    def _begin(self) -> None:
        for row, there in enumerate(self._rows):
            if there is not None and there.left:
                self._rows[row] = None
        for row, there in enumerate(self._rows):
            while there is None and self._waiting:
                stream = self._waiting.popleft()
                if stream.left:
                    continue
                self._rows[row] = stream
                logits = self._steps.begin(tf.constant(row), tf.constant(stream.prompt, tf.int32))
                self._tell([(row, stream)], logits)
                there = self._rows[row]

    def _step(self) -> None:
        active = [(row, stream) for row, stream in enumerate(self._rows) if stream is not None]
        if not active:
            return
        count = active[-1][0] + 1
        tokens, at = np.zeros(count, np.int32), np.zeros(count, np.int32)
        for row, stream in active:
            tokens[row], at[row] = stream.ids[-1], len(stream.prompt) + len(stream.ids) - 1
        logits = self._steps.follow(tf.constant(tokens), tf.constant(at))
        self._tell(active, logits if len(active) == count else tf.gather(logits, [row for row, _ in active]))

    def _tell(self, active: Sequence[tuple[int, Stream]], logits: tf.Tensor) -> None:
        """The next token of each, and what is new of its text."""
        for (row, stream), token in zip(active, self._tokens([stream for _, stream in active], logits)):
            ended: Ended | None = "stop" if token == self.writer.end else None
            if ended is None:
                stream.ids.append(token)
                ended = None if len(stream.ids) < stream.way.most else "stop" if stream.way.form is not None else "length"
            text, stopped = self._said(stream, ended)
            ended = "stop" if stopped else ended
            if text or ended:
                stream.told(text, ended)
            if ended:
                self._rows[row] = None

    def _said(self, stream: Stream, ended: Ended | None) -> tuple[str, bool]:
        """What is new of a text, and whether it ends before one of its stops. What may be the beginning of a stop waits."""
        whole, stops = self.writer.text(stream.ids), stream.way.stop
        places = [place for place in (whole.find(stop) for stop in stops) if place >= 0]
        end = min(places) if places else len(whole)
        if not places and ended is None:
            end -= max((length for stop in stops for length in range(1, len(stop)) if whole.endswith(stop[:length])), default=0)
        text = whole[stream.said:end]
        stream.said = max(stream.said, end)
        return text, bool(places)

    def _tokens(self, streams: Sequence[Stream], logits: tf.Tensor) -> list[int]:
        ways, size = [stream.way for stream in streams], logits.shape[1]
        there = np.zeros([len(streams), size], bool)
        for row, stream in enumerate(streams):
            if stream.way.repetition != 1.0:
                there[row, [*stream.prompt.tolist(), *stream.ids]] = True
        own = {"temperature": np.array([way.temperature for way in ways], np.float32),
               "top_k": np.array([way.top_k or size for way in ways], np.int32),
               "top_p": np.array([way.top_p or 1.0 for way in ways], np.float32),
               "repetition": np.array([way.repetition for way in ways], np.float32),
               "unended": np.array([len(stream.ids) < stream.way.fewest for stream in streams]),
               "seeds": np.array([[way.seed, len(stream.ids)] for way, stream in zip(ways, streams)], np.int32)}
        if any(way.form is not None for way in ways):
            logits = tf.where(self._allowed(streams, size), logits, -float("inf"))
        drawn: list[int] = _drawn(logits, self.writer.first, self.writer.end, there, own).numpy().tolist()
        for stream, token in zip(streams, drawn):
            if stream.way.form is not None:
                stream.state = stream.way.form.behind(stream.state, token)
        return drawn

    @staticmethod
    def _allowed(streams: Sequence[Stream], size: int) -> np.ndarray:
        """What the forms of texts allow, [texts, tokens] bool."""
        found = np.ones([len(streams), size], bool)
        for row, stream in enumerate(streams):
            if stream.way.form is not None:
                found[row] = stream.way.form.allowed(stream.state, stream.way.most - len(stream.ids))
        return found


@tf.function(reduce_retracing=True, autograph=False)
def _drawn(logits: tf.Tensor, first: Any, end: Any, there: tf.Tensor, ways: dict[str, tf.Tensor]) -> tf.Tensor:
    """The next token of each row, [rows] int32, as `Drawn` has it, of each by its own settings.

    Args:
        logits: [rows, tokens] float32.
        first: number of the first token that may be written; end: of the one that ends a text.
        there: which tokens a row has, [rows, tokens] bool.
        ways: temperature, top_k, top_p and repetition, [rows]; unended, [rows] bool: it may not end yet; seeds, [rows, 2] int32: the
            seed, and how many tokens are written.
    """
    temperature, top_k, top_p = ways["temperature"], ways["top_k"], ways["top_p"]
    size = tf.shape(logits)[1]
    never = (tf.range(size) < first)[None] | ((tf.range(size) == end)[None] & ways["unended"][:, None])
    logits = tf.where(never, -float("inf"), logits)
    factor = ways["repetition"][:, None]
    logits = tf.where(there, tf.where(logits > 0, logits / factor, logits * factor), logits)
    greedy = tf.argmax(logits, 1, tf.int32)

    def drawn() -> tf.Tensor:
        wide = logits / tf.where(temperature > 0.0, temperature, 1.0)[:, None]

        def narrowed() -> tf.Tensor:
            ordered = tf.sort(wide, direction="DESCENDING")
            least = tf.gather(ordered, tf.minimum(top_k, size) - 1, batch_dims=1)[:, None]
            ordered = tf.where(ordered < least, -float("inf"), ordered)
            before = tf.cumsum(tf.nn.softmax(ordered), 1, exclusive=True)
            inside = (before < top_p[:, None]) | (top_p[:, None] >= 1.0)
            lowest = tf.reduce_min(tf.where(inside, ordered, float("inf")), 1, keepdims=True)
            return tf.where(wide < tf.maximum(least, lowest), -float("inf"), wide)

        narrow = tf.cond(tf.reduce_any((top_k < size) | (top_p < 1.0)), narrowed, lambda: wide)
        noise = tf.map_fn(lambda seed: tf.random.stateless_uniform([size], seed, minval=1e-20), ways["seeds"],
                          fn_output_signature=tf.float32)
        return tf.argmax(narrow - tf.math.log(-tf.math.log(noise)), 1, tf.int32)

    return tf.where(temperature > 0.0, tf.cond(tf.reduce_any(temperature > 0.0), drawn, lambda: greedy), greedy)
