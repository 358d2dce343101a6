"""Examples whose labels are numbered otherwise: as a run numbers its classes, or without those that train lacks."""

import hashlib

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source, Tensors


class Relabelled(Source):
    """Another source whose entry `label` is looked up in a table: a number, or [their classes] of 0 and 1 for each class.

    The table's last entry is the number of our classes, which stands for a number beyond theirs.
    """

    def __init__(self, base: Source, table: np.ndarray):
        if "label" not in base.spec:
            raise DataError("the examples have no label to compare answers with")
        self.base, self.table, self.spec = base, table, dict(base.spec)
        self.several = base.spec["label"].shape == (len(table) - 1,) and base.spec["label"].dtype.is_floating
        if self.several:
            self.spec["label"] = tf.TensorSpec([int(table[-1])], base.spec["label"].dtype)
            known = np.flatnonzero(table[:-1] >= 0)
            self._spread = np.zeros((len(table) - 1, int(table[-1])), base.spec["label"].dtype.as_numpy_dtype)
            self._spread[known, table[known]] = 1
        self.labels = None if base.labels is None else table[base.labels]
        self.sets = None if base.sets is None else base.sets @ self._spread
        self.groups = base.groups

    @property
    def arrays(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        arrays = self.base.arrays
        if arrays is None or self.several:
            return None
        return {**arrays, "label": self.table[arrays["label"]].astype(arrays["label"].dtype)}

    def __len__(self) -> int:
        return len(self.base)

    def gather(self, numbers: tf.Tensor) -> Tensors:
        examples = self.base.gather(numbers)
        if self.several:
            return {**examples, "label": tf.matmul(examples["label"], self._spread)}
        return {**examples, "label": tf.cast(tf.gather(tf.constant(self.table), examples["label"]), examples["label"].dtype)}

    def name(self, number: int) -> str:
        return self.base.name(number)

    def fingerprint(self) -> str:
        known = self.base.fingerprint()
        return hashlib.sha256(known.encode() + self.table.tobytes()).hexdigest()[:16] if self.several else known

    def stamp(self) -> str:
        return self.base.stamp()
