"""Examples of different lengths: kept one after another without padding, and padded only to the longest of their batch.

The length of an example is an entry of its own (`Lengths.entry`); it counts the first dimension of every entry whose spec
leaves that dimension free.
"""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pipelines.data.source import ArraySource, Source, Tensors

Specs = dict[str, tf.TensorSpec]


@dataclass(frozen=True)
class Lengths:
    """Which entry holds an example's length, and how far a batch is padded.

    Attributes:
        unit: to a multiple of it, one at least.
        few: to one of few multiples, each about 30 % longer than the one before. XLA compiles the step for each that occurs: speech of
            1.5 to 35 s has 135 different quarters of a second, and 15 of these.
        most: no example is longer, and no batch is padded further than its multiple: a model may have no places beyond.
    """

    entry: str
    unit: int = 1
    few: bool = False
    most: int | None = None

    def rounded(self, longest: tf.Tensor) -> tf.Tensor:
        """The length to which a batch is padded whose longest example has `longest`; in graph."""
        units = tf.maximum(-(-longest // self.unit), 1)
        if self.few:
            steps = tf.constant(_steps(), units.dtype)
            wider = tf.gather(steps, tf.searchsorted(steps, units[None])[0])
            units = wider if self.most is None else tf.minimum(wider, tf.maximum(units, -(-self.most // self.unit)))
        return units * self.unit

    def padded(self, longest: int) -> int:
        """As `rounded`, of a number."""
        units = max(-(-longest // self.unit), 1)
        if self.few:
            wider = int(_steps()[np.searchsorted(_steps(), units)])
            units = wider if self.most is None else min(wider, max(units, -(-self.most // self.unit)))
        return units * self.unit


@functools.cache
def _steps() -> np.ndarray:
    """1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 18, ...: each the next number, or 30 % more rounded down, up to 2^30."""
    steps = [1]
    while steps[-1] < 2**30:
        steps.append(max(steps[-1] + 1, steps[-1] * 13 // 10))
    return np.asarray(steps, np.int64)


def free(spec: Specs) -> list[str]:
    """The entries of an example whose first dimension is free."""
    return [name for name, value in spec.items() if value.shape.rank and value.shape[0] is None]


def fit(examples: Tensors, spec: Specs, lengths: Lengths) -> Tensors:
    """A padded batch with its free entries cut, or padded with zeros, to the longest of its examples; in graph."""
    size = lengths.rounded(tf.reduce_max(tf.cast(examples[lengths.entry], tf.int32)))

    def fitted(value: tf.Tensor) -> tf.Tensor:
        missing = tf.maximum(size - tf.shape(value)[1], 0)
        rest = [[0, 0]] * (value.shape.rank - 2)
        padded = tf.pad(value[:, :size], tf.stack([[0, 0], [0, missing], *rest]), constant_values=tf.zeros([], value.dtype))
        return tf.ensure_shape(padded, [value.shape[0], None, *value.shape[2:]])

    names = free(spec)
    return {name: fitted(value) if name in names else value for name, value in examples.items()}


def stacked(rows: list[Tensors], spec: Specs, lengths: Lengths | None) -> Tensors:
    """Single examples as one batch, padded as the step would pad them; eager."""
    if lengths is None:
        return {name: tf.stack([row[name] for row in rows]) for name in rows[0]}
    longest = max(int(row[lengths.entry]) for row in rows)
    names = free(spec)

    def full(name: str, value: tf.Tensor) -> tf.Tensor:
        if name not in names:
            return value
        value = value[:longest]  # one that was kept is padded already
        return tf.pad(value, [[0, longest - value.shape[0]], *[[0, 0]] * (value.shape.rank - 1)], constant_values=tf.zeros([], value.dtype))

    return fit({name: tf.stack([full(name, row[name]) for row in rows]) for name in rows[0]}, spec, lengths)


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Batches one after another; where free lengths differ, shorter ones are padded with zeros."""
    if len({part.shape[1:] for part in parts}) > 1:
        shape = np.max([part.shape[1:] for part in parts], axis=0)
        parts = [np.pad(part, [(0, 0), *((0, full - there) for full, there in zip(shape, part.shape[1:]))]) for part in parts]
    return np.concatenate(parts)


EACH = 64  # examples between two whose places are kept, so that 100 million take 12 MB


class FlatSource(ArraySource):
    """Decoded examples in memory, or mapped, with their free entries one after another; a batch is padded when it is gathered.

    Args:
        arrays: the entries of fixed shape, [examples, ...], the lengths among them.
        flat: the free entries, [sum of lengths, ...].
        spec: of one example.
        source: of the raw examples, for names, labels and groups.
        alike: by which examples are put into batches together, [examples]; None: by their lengths.
    """

    def __init__(self, arrays: dict[str, np.ndarray], flat: dict[str, np.ndarray], *, spec: Specs, lengths: Lengths, source: Source,
                 alike: np.ndarray | None = None):
        super().__init__(arrays, names=source.name, labels=source.labels, groups=source.groups, fingerprint=source.fingerprint())
        self.flat, self.spec, self.rule = flat, spec, lengths
        self._sizes: np.ndarray = arrays[lengths.entry]
        self.lengths: np.ndarray = self._sizes if alike is None else alike
        sums = np.add.reduceat(self._sizes, np.arange(0, len(self._sizes), EACH), dtype=np.int64) if len(self._sizes) else [0]
        self._starts = np.concatenate([[0], np.cumsum(sums)[:-1]]).astype(np.int64)  # of each EACH-th example
        self.mapped = any(isinstance(value, np.memmap) for value in flat.values())

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in (*self.arrays.values(), *self.flat.values()))

    def tensors(self) -> Tensors:
        flat = {f"flat/{name}": tf.constant(value) for name, value in self.flat.items()}
        return {**super().tensors(), **flat, "starts": tf.cumsum(tf.constant(self._sizes, tf.int64), exclusive=True)}

    def pick(self, tensors: Tensors, numbers: tf.Tensor) -> Tensors:
        fixed = {name: tf.gather(tensors[name], numbers) for name in self.arrays}
        lengths = tf.cast(fixed[self.rule.entry], tf.int64)
        at = tf.range(tf.cast(self.rule.rounded(tf.reduce_max(lengths)), tf.int64))
        there = at < lengths[:, None]
        places = tf.gather(tensors["starts"], numbers)[:, None] + at

        def padded(name: str) -> tf.Tensor:
            values = tensors[f"flat/{name}"]
            if not len(self.flat[name]):  # only empty examples: one row of zeros to gather from
                values = tf.zeros([1, *values.shape[1:]], values.dtype)
            rows = tf.gather(values, tf.where(there, places, 0))
            inside = tf.reshape(there, tf.concat([tf.shape(there), tf.ones([values.shape.rank - 1], tf.int32)], 0))
            return tf.where(inside, rows, tf.zeros([], values.dtype))

        return {**fixed, **{name: padded(name) for name in self.flat}}

    def gather(self, numbers: tf.Tensor) -> Tensors:
        if not self.mapped:
            return super().gather(numbers)
        names = [*self.arrays, *self.flat]
        dtypes = [self.spec[name].dtype for name in names]
        values = tf.numpy_function(lambda some: self._read(some, names), [numbers], dtypes)
        return {name: tf.ensure_shape(value, [numbers.shape[0], *self.spec[name].shape]) for name, value in zip(names, values)}

    def _start(self, number: int) -> int:
        """The place in the free entries at which an example begins."""
        block = number // EACH
        return int(self._starts[block]) + int(np.sum(self._sizes[block * EACH:number], dtype=np.int64))

    def _read(self, numbers: np.ndarray, names: list[str]) -> list[np.ndarray]:
        lengths = np.asarray(self._sizes[numbers], np.int64)
        starts = [self._start(int(number)) for number in numbers]
        size = self.rule.padded(int(lengths.max(initial=0)))

        def read(name: str) -> np.ndarray:
            if name in self.arrays:
                return np.asarray(self.arrays[name][numbers])
            flat = self.flat[name]
            batch = np.zeros((len(numbers), size, *flat.shape[1:]), flat.dtype)
            for row, start, length in zip(batch, starts, lengths):
                row[:length] = flat[start:start + length]
            return batch
        return [read(name) for name in names]
