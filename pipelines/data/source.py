"""Examples by number: what every kind of stored data looks like to the input layer.

A source hands out raw examples (arrays, or encoded bytes); the task turns them into what the model sees.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

Tensors = dict[str, "tf.Tensor"]


class Source(ABC):
    """A finite number of examples, each a mapping of named values, read by number in any order.

    Attributes:
        spec: name -> tf.TensorSpec of one example (no batch dimension).
        arrays: name -> array [examples, ...] where everything lies in memory already, else None.
        labels: int array [examples], class of each example, where the data has classes, else None.
        sets: float32 array [examples, labels] of 0 and 1 where an example may have several labels, or none; else None.
        groups: array [examples] of str, group of each example (data.group_by), else None.
        pieces: int array [examples], of those that are pieces of longer recordings, in order, the number of the recording, else -1; what
            is held out of them is whole recordings or the ends of all, never pieces from between. None: there are no such examples.
        lengths: int array [examples], length of each decoded example where it is known without decoding, else None.
        mapped: examples are read from files mapped into memory, as fast as from a cache on disk.
        decoded: examples are as Task.decode gives them when judging, and this is the spec of those of which it made them; None: they
            are still to be decoded, where the task does that.
        shared: folds are cut out of it, which share what an encoder makes of each of its examples.
    """

    spec: dict[str, "tf.TensorSpec"]
    arrays: dict[str, np.ndarray] | None = None
    labels: np.ndarray | None = None
    sets: np.ndarray | None = None
    groups: np.ndarray | None = None
    pieces: np.ndarray | None = None
    lengths: np.ndarray | None = None
    mapped = False
    decoded: dict[str, "tf.TensorSpec"] | None = None
    shared = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def gather(self, numbers: "tf.Tensor") -> Tensors:
        """Examples `numbers` [batch] int64 as name -> [batch, ...]; in graph, at any order and repetition."""

    @abstractmethod
    def name(self, number: int) -> str:
        """The name of example `number` in messages: a path, a row, `cifar10/train[17]`."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A short hash that changes when the data do, and not when they are copied; cheap: names, sizes, content sampled."""

    def stamp(self) -> str:
        """A further key of caches: times of change, where the fingerprint samples the content."""
        return ""

    def subset(self, numbers: Sequence[int] | np.ndarray) -> "Source":
        """The source that holds just `numbers`, in that order."""
        return Subset(self, np.asarray(numbers, np.int64))


class ArraySource(Source):
    """Arrays in memory (or memory-mapped), one entry per example along the first dimension."""

    arrays: dict[str, np.ndarray]

    def __init__(
        self, arrays: dict[str, np.ndarray], *, title: str = "array", names: Callable[[int], str] | None = None,
        labels: np.ndarray | None = None, groups: np.ndarray | None = None, fingerprint: str | None = None,
    ):
        import tensorflow as tf

        lengths = {key: len(value) for key, value in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"arrays differ in length: {lengths}")
        self.arrays = arrays
        self.groups = groups
        self.labels, self.sets = one_or_several(labels)
        self.spec = {key: tf.TensorSpec(value.shape[1:], tf.as_dtype(value.dtype)) for key, value in arrays.items()}
        self._title, self._names, self._fingerprint = title, names, fingerprint
        self._tensors: Tensors | None = None

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def nbytes(self) -> int:
        """Bytes of all examples."""
        return sum(value.nbytes for value in self.arrays.values())

    def tensors(self) -> Tensors:
        """All examples as tensors on the current device, for `pick`."""
        import tensorflow as tf

        return {key: tf.constant(value) for key, value in self.arrays.items()}

    def pick(self, tensors: Tensors, numbers: "tf.Tensor") -> Tensors:
        """Examples `numbers` of the result of `tensors`; in graph."""
        import tensorflow as tf

        return {key: tf.gather(value, numbers) for key, value in tensors.items()}

    def gather(self, numbers: "tf.Tensor") -> Tensors:
        import tensorflow as tf

        if self._tensors is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._tensors = self.tensors()
        return self.pick(self._tensors, numbers)

    def name(self, number: int) -> str:
        return self._names(number) if self._names else f"{self._title}[{number}]"

    def fingerprint(self) -> str:
        if self._fingerprint is None:
            import hashlib

            digest = hashlib.sha256()
            for key, value in sorted(self.arrays.items()):
                digest.update(f"{key} {value.shape} {value.dtype}".encode())
                digest.update(np.ascontiguousarray(value).tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint


class Subset(Source):
    """Some examples of another source, renumbered from 0."""

    def __init__(self, base: Source, numbers: np.ndarray):
        import tensorflow as tf

        self.base, self.numbers = base, numbers
        self.spec = base.spec
        self.labels = None if base.labels is None else base.labels[numbers]
        self.sets = None if base.sets is None else base.sets[numbers]
        self.groups = None if base.groups is None else base.groups[numbers]
        self.pieces = None if base.pieces is None else base.pieces[numbers]
        self.lengths = None if base.lengths is None else base.lengths[numbers]
        self._map = None
        self._tf = tf

    @property
    def arrays(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return None if self.base.arrays is None else {key: value[self.numbers] for key, value in self.base.arrays.items()}

    @property
    def mapped(self) -> bool:  # type: ignore[override]
        return self.base.mapped

    @property
    def decoded(self) -> "dict[str, tf.TensorSpec] | None":  # type: ignore[override]
        return self.base.decoded

    def __len__(self) -> int:
        return len(self.numbers)

    def gather(self, numbers: "tf.Tensor") -> Tensors:
        if self._map is None:
            with self._tf.init_scope(), self._tf.device("CPU:0"):
                self._map = self._tf.constant(self.numbers)
        return self.base.gather(self._tf.gather(self._map, numbers))

    def name(self, number: int) -> str:
        return self.base.name(int(self.numbers[number]))

    def stamp(self) -> str:
        return self.base.stamp()

    def fingerprint(self) -> str:
        import hashlib

        return hashlib.sha256(self.base.fingerprint().encode() + self.numbers.tobytes()).hexdigest()[:16]


def one_or_several(labels: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    """`Source.labels` and `Source.sets`, from the class of each example [examples], or each of its labels [examples, labels]."""
    if labels is None:
        return None, None
    labels = np.asarray(labels)
    return (labels.astype(np.int64, copy=False), None) if labels.ndim == 1 else (None, labels.astype(np.float32, copy=False))


def stored_label(raw: Tensors) -> Tensors:
    """What is decoded of an example's label: a class as int32, several as they are; nothing of an example without one. In graph."""
    import tensorflow as tf

    if "label" not in raw:
        return {}
    return {"label": raw["label"] if raw["label"].dtype.is_floating else tf.cast(raw["label"], tf.int32)}


def class_counts(source: Source, classes: int) -> np.ndarray | None:
    """Examples of each class, or label, [classes] int64; None where there are no labels."""
    if source.sets is not None:
        return np.pad(source.sets.sum(0, dtype=np.float64).astype(np.int64), (0, classes - source.sets.shape[1]))
    return None if source.labels is None else np.bincount(source.labels, minlength=classes)


def label_of(source: Source, number: int, classes: Sequence[str]) -> str | None:
    """The class of an example, or its labels, in words; None where it has none."""
    if source.sets is not None:
        return ", ".join(classes[place] for place in np.flatnonzero(source.sets[number]).tolist()) or None
    label = -1 if source.labels is None else int(source.labels[number])
    return classes[label] if 0 <= label < len(classes) else None


def origin(source: Source, *, shared: bool = False) -> tuple[Source, np.ndarray]:
    """The source behind a chain of subsets, and each example's number there, int64; `shared`: the first whose folds share features."""
    numbers = np.arange(len(source))
    while isinstance(source, Subset) and not (shared and source.shared):
        numbers, source = source.numbers[numbers], source.base
    return source, numbers


def texts(source: Source, numbers: list[int], longest: int = 200) -> list[str | None]:
    """Of each of these examples the entry that is a text, cut to `longest` characters; None where none is: encoded images and sounds."""
    import tensorflow as tf

    entries = [values.numpy() for values in source.gather(tf.constant(numbers, tf.int64)).values()
               if values.dtype == tf.string and values.shape.rank == 1]
    found = [[_text(encoded, longest) for encoded in values] for values in entries]
    return [next((values[place] for values in found if values[place] is not None), None) for place in range(len(numbers))]


def _text(encoded: bytes, longest: int) -> str | None:
    try:
        text = encoded.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if any(ord(sign) < 32 and not sign.isspace() for sign in text):
        return None
    return text if len(text) <= longest else text[:longest - 1] + "\u2026"
