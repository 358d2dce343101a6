"""Examples of different lengths: kept one after another without padding, and padded only to the longest of their batch.

The length of an example is an entry of its own (`Lengths.entry`); it counts the first dimension of every entry whose spec
leaves that dimension free, but for those that `Lengths.others` names: they have numbers of their own, as boxes in a picture.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
        others: free entry -> the entry that counts it in place of `entry`. They are padded to the most of their batch, and decide neither
            the padding of the rest nor which examples come together: targets, such as the boxes of a recording's sounds.
    """

    entry: str
    unit: int = 1
    few: bool = False
    most: int | None = None
    others: Mapping[str, str] = field(default_factory=dict, hash=False)

    def of(self, name: str) -> "Lengths":
        """The rule of a free entry."""
        return replace(self, entry=self.others[name], unit=1, most=None, others={}) if name in self.others else self

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
    def fitted(name: str, value: tf.Tensor) -> tf.Tensor:
        rule = lengths.of(name)
        size = rule.rounded(tf.reduce_max(tf.cast(examples[rule.entry], tf.int32)))
        missing = tf.maximum(size - tf.shape(value)[1], 0)
        rest = [[0, 0]] * (value.shape.rank - 2)
        padded = tf.pad(value[:, :size], tf.stack([[0, 0], [0, missing], *rest]), constant_values=tf.zeros([], value.dtype))
        return tf.ensure_shape(padded, [value.shape[0], None, *value.shape[2:]])

    names = free(spec)
    return {name: fitted(name, value) if name in names else value for name, value in examples.items()}


def stacked(rows: list[Tensors], spec: Specs, lengths: Lengths | None) -> Tensors:
    """Single examples as one batch, padded as the step would pad them; eager."""
    if lengths is None:
        return {name: tf.stack([row[name] for row in rows]) for name in rows[0]}
    names = free(spec)

    def full(name: str, value: tf.Tensor) -> tf.Tensor:
        if name not in names:
            return value
        longest = max(int(row[lengths.of(name).entry]) for row in rows)
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
        flat: the free entries, [sum of what counts them, ...].
        spec: of one example.
        source: of the raw examples, for names, labels and groups.
        alike: by which examples are put into batches together, [examples]; None: by their lengths.
    """

    def __init__(self, arrays: dict[str, np.ndarray], flat: dict[str, np.ndarray], *, spec: Specs, lengths: Lengths, source: Source,
                 alike: np.ndarray | None = None):
        super().__init__(arrays, names=source.name, labels=source.labels, groups=source.groups, fingerprint=source.fingerprint())
        self.flat, self.spec, self.rule = flat, spec, lengths
        self.lengths: np.ndarray = arrays[lengths.entry] if alike is None else alike
        self._starts = {entry: _every_start(arrays[entry]) for entry in {lengths.of(name).entry for name in flat}}
        self.mapped = any(isinstance(value, np.memmap) for value in flat.values())

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in (*self.arrays.values(), *self.flat.values()))

    def tensors(self) -> Tensors:
        flat = {f"flat/{name}": tf.constant(value) for name, value in self.flat.items()}
        starts = {f"starts/{entry}": tf.cumsum(tf.constant(self.arrays[entry], tf.int64), exclusive=True) for entry in self._starts}
        return {**super().tensors(), **flat, **starts}

    def pick(self, tensors: Tensors, numbers: tf.Tensor) -> Tensors:
        fixed = {name: tf.gather(tensors[name], numbers) for name in self.arrays}
        rows_of = dict[str, tuple[tf.Tensor, tf.Tensor]]()  # which places of a batch are there, and the row of each
        for entry in self._starts:
            lengths = tf.cast(fixed[entry], tf.int64)
            rule = next(rule for name in self.flat if (rule := self.rule.of(name)).entry == entry)
            at = tf.range(tf.cast(rule.rounded(tf.reduce_max(lengths)), tf.int64))
            rows_of[entry] = at < lengths[:, None], tf.gather(tensors[f"starts/{entry}"], numbers)[:, None] + at

        def padded(name: str) -> tf.Tensor:
            there, places = rows_of[self.rule.of(name).entry]
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

    def _start(self, entry: str, number: int) -> int:
        """The place in the free entries that `entry` counts at which an example begins."""
        block = number // EACH
        return int(self._starts[entry][block]) + int(np.sum(self.arrays[entry][block * EACH:number], dtype=np.int64))

    def _read(self, numbers: np.ndarray, names: list[str]) -> list[np.ndarray]:
        def read(name: str) -> np.ndarray:
            if name in self.arrays:
                return np.asarray(self.arrays[name][numbers])
            flat, rule = self.flat[name], self.rule.of(name)
            lengths = np.asarray(self.arrays[rule.entry][numbers], np.int64)
            starts = [self._start(rule.entry, int(number)) for number in numbers]
            size = rule.padded(int(lengths.max(initial=0)))
            batch = np.zeros((len(numbers), size, *flat.shape[1:]), flat.dtype)
            for row, start, length in zip(batch, starts, lengths):
                row[:length] = flat[start:start + length]
            return batch
        return [read(name) for name in names]


def _every_start(sizes: np.ndarray) -> np.ndarray:
    """Where every EACH-th of examples of these sizes begins."""
    sums = np.add.reduceat(sizes, np.arange(0, len(sizes), EACH), dtype=np.int64) if len(sizes) else [0]
    return np.concatenate([[0], np.cumsum(sums)[:-1]]).astype(np.int64)
