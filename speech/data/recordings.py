"""Recordings by number, whatever stores them: read, mixed to one channel and resampled on demand, as int16."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.shards import ShardSource
from pipelines.data.source import Source, Subset, Tensors, one_or_several


@dataclass(frozen=True)
class Facts:
    """What is known of each recording beside its samples.

    Attributes:
        names: for messages: a path, `metadata.csv:7`, `spoken_digit/train[17] 3_theo_7.wav`.
        files: its name for data.speaker_pattern and data.test_names, and for sorting: the file's own.
        labels: class names, or of several labels tuples of names; or None.
        texts: transcripts, or None.
        speakers: or None.
        lengths: samples at the model's rate where that is known without reading, else None.
    """

    names: Sequence[str]
    files: Sequence[str]
    labels: Sequence[Any] | None = None
    texts: Sequence[str] | None = None
    speakers: Sequence[str] | None = None
    lengths: np.ndarray | None = None

    def of(self, numbers: Sequence[int] | np.ndarray) -> "Facts":
        """Of some of them, in that order."""

        def pick(values: Any) -> Any:
            return values[numbers] if isinstance(values, np.ndarray) else None if values is None else [values[number] for number in numbers]

        return Facts(pick(self.names), pick(self.files), pick(self.labels), pick(self.texts), pick(self.speakers), pick(self.lengths))


class Recordings(Source):
    """Recordings as `samples` [samples] int16 and `length`, with further values that the task adds.

    Args:
        load: number -> int16 [samples] at the model's rate; raises DataError. Called from several threads.
        facts: of every recording.
        fingerprint: see Source; must cover the rate and the channel, too.
        fields: further values by name, [examples, ...].
        labels, groups, pieces: see Source; labels also stand in the examples, as `label` int64, or several, [examples, labels] float32.
        stamp: see Source.
    """

    def __init__(self, load: Callable[[int], np.ndarray], facts: Facts, fingerprint: str, *, fields: Mapping[str, np.ndarray] | None = None,
                 labels: np.ndarray | None = None, groups: np.ndarray | None = None, pieces: np.ndarray | None = None, stamp: str = ""):
        self.load, self.facts, self._identity, self._stamp = load, facts, fingerprint, stamp
        self.labels, self.sets = one_or_several(labels)
        self.groups, self.pieces = groups, pieces
        self.lengths = facts.lengths
        self.fields = {**(fields or {}), **({} if self.label is None else {"label": self.label})}
        self.number_targets = self.fields.get("target")
        self.spec = {"samples": tf.TensorSpec([None], tf.int16), "length": tf.TensorSpec([], tf.int32),
                     **{name: tf.TensorSpec(value.shape[1:], tf.as_dtype(value.dtype)) for name, value in self.fields.items()}}
        self._tensors: Tensors | None = None
        self._fingerprint: str | None = None

    @property
    def label(self) -> np.ndarray | None:
        """The entry of that name of all examples: one label or several each."""
        return self.labels if self.sets is None else self.sets

    def __len__(self) -> int:
        return len(self.facts.names)

    @tf.autograph.experimental.do_not_convert
    def gather(self, numbers: tf.Tensor) -> Tensors:
        """Shorter recordings are padded with zeros to the longest of the batch."""
        if self._tensors is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._tensors = {name: tf.constant(value) for name, value in self.fields.items()}
        samples, lengths = tf.numpy_function(self._read, [numbers], [tf.int16, tf.int32])
        count = numbers.shape[0]
        return {"samples": tf.ensure_shape(samples, [count, None]), "length": tf.ensure_shape(lengths, [count]),
                **{name: tf.gather(value, numbers) for name, value in self._tensors.items()}}

    def _read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        waves = [self.load(int(number)) for number in numbers]
        lengths = np.array([len(one) for one in waves], np.int32)
        samples = np.zeros((len(waves), max(lengths, default=0)), np.int16)
        for row, one in zip(samples, waves):
            row[:len(one)] = one
        return samples, lengths

    def subset(self, numbers: Sequence[int] | np.ndarray) -> "Recordings":
        """Just `numbers`, in that order; Recordings again, so that their facts stay available."""
        numbers = np.asarray(numbers, np.int64)
        chosen = hashlib.sha256(numbers.tobytes()).hexdigest()

        def pick(values: Any) -> Any:
            return None if values is None else values[numbers]

        load = self.load
        return Recordings(lambda number: load(int(numbers[number])), self.facts.of(numbers), f"{self._identity}\n{chosen}",
                          fields={name: value[numbers] for name, value in self.fields.items() if name != "label"}, labels=pick(self.label),
                          groups=pick(self.groups), pieces=pick(self.pieces), stamp=self._stamp)

    def with_texts(self, texts: list[str]) -> "Recordings":
        """The same recordings with other transcripts."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        return Recordings(self.load, replace(self.facts, texts=texts), f"{self._identity}\n{digest}", fields=self.fields,
                          labels=self.label, groups=self.groups, pieces=self.pieces, stamp=self._stamp)

    def of_voices(self, voices: np.ndarray, groups: np.ndarray | None) -> "Recordings":
        """The same recordings with who speaks in each, [recordings] str, and groups."""
        digest = hashlib.sha256("\n".join(voices).encode()).hexdigest()
        return Recordings(self.load, replace(self.facts, labels=None, speakers=voices.tolist()), f"{self._identity}\n{digest}",
                          groups=groups, pieces=self.pieces, stamp=self._stamp)

    def also(self, *, labels: np.ndarray | None = None, fields: Mapping[str, np.ndarray] | None = None) -> "Recordings":
        """The same recordings with class numbers, or labels, or with further values."""
        own = {name: value for name, value in self.fields.items() if name != "label"}
        return Recordings(self.load, self.facts, self._identity, fields={**own, **(fields or {})},
                          labels=self.label if labels is None else labels, groups=self.groups, pieces=self.pieces, stamp=self._stamp)

    def name(self, number: int) -> str:
        return self.facts.names[number].encode("utf-8", "backslashreplace").decode("utf-8")  # of a file whose name is not UTF-8

    def stamp(self) -> str:
        return self._stamp

    def fingerprint(self) -> str:
        if self._fingerprint is None:
            digest = hashlib.sha256(self._identity.encode())
            for name, value in sorted(self.fields.items()):
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint


class PreparedRecordings(Recordings):
    """Recordings that `quartet prepare` wrote, read by number from there."""

    def __init__(self, source: ShardSource):
        more = source.more()
        self.source = source
        facts = Facts(more["names"], more["files"], more.get("labels"), more.get("texts"), more.get("speakers"), source.lengths)
        super().__init__(lambda number: source.values(number, "samples"), facts,
                         source.fingerprint(), labels=source.labels, groups=source.groups, pieces=source.pieces, stamp=source.stamp())
        self.spec, self._fingerprint = source.spec, source.fingerprint()

    def gather(self, numbers: tf.Tensor) -> Tensors:
        return self.source.gather(numbers)

    def subset(self, numbers: Sequence[int] | np.ndarray) -> Source:  # type: ignore[override]
        return Subset(self, np.asarray(numbers, np.int64))


def facts_of(source: Source) -> Facts:
    """The facts of the recordings behind a source, in its order."""
    if isinstance(source, Recordings):
        return source.facts
    base = getattr(source, "base", None)
    if base is None:
        raise DataError("these examples are not recordings")
    numbers = getattr(source, "numbers", None)
    return facts_of(base) if numbers is None else facts_of(base).of(numbers)


def waveform(source: Source, number: int) -> np.ndarray:
    """Samples of one example, int16 [samples]."""
    example = source.gather(tf.constant([number], tf.int64))
    return example["samples"][0, :int(example["length"][0])].numpy()


QUIET = 0.2  # s over which loudness is measured
STEP = 0.02  # s


def pieces(samples: np.ndarray, rate: int, longest: float) -> list[tuple[int, int]]:
    """(start, end) of pieces of at most `longest` seconds, in samples, without gaps.

    Each cut is in the middle of the quietest 0.2 s of the second half of the longest possible piece; the latest of equals.

    Args:
        samples: [n] float32.
        rate: Hz.
        longest: s.
    """
    most = round(longest * rate)
    if len(samples) <= most:
        return [(0, len(samples))]
    width, step = max(1, round(QUIET * rate)), max(1, round(STEP * rate))
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    cuts, start = [], 0
    while len(samples) - start > most:
        middles = np.arange(start + most // 2, start + most - width // 2, step)
        loud = energy[middles + width // 2] - energy[middles - width // 2]
        cut = int(middles[len(middles) - 1 - np.argmin(loud[::-1])])
        cuts.append((start, cut))
        start = cut
    return [*cuts, (start, len(samples))]
