"""Prepared TFDS data whose files can be read by number on disk (ArrayRecord), and the choice between the ways to read TFDS."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source, Tensors
from pipelines.data.tfds import Prepared, TfdsSource, as_text, features, parse, plain, prepared

CHUNK = 64  # records read and parsed at a time by a pass over all of them: recordings of half a minute take 4 MB each


class RecordSource(Prepared, Source):
    """One split of a data set prepared as ArrayRecord, read from the disk by number; arguments and errors as TfdsSource."""

    def __init__(self, name: str, split: str, *, fields: Mapping[str, str] | None = None, data_dir: str | Path | None = None,
                 label: str | None = None, group: str | None = None):
        super().__init__(name, split, fields, data_dir, group)
        known = features(self.builder)
        for feature in self.fields.values():
            if not plain(known[feature]):
                raise DataError(f"{self.builder.info.full_name}: feature {feature} ({known[feature]}) needs TFDS' own decoding and cannot "
                                "be read by number from ArrayRecord files; prepare the data set as tfrecord (`tfds build`)")
        self._flat = {key: (feature, known[feature]) for key, feature in self.fields.items()}
        self._records = self.builder.as_data_source(split).data_source  # the stored records, before TFDS parses them
        self.spec = {key: tf.TensorSpec(value.shape[1:], value.dtype) for key, value in self.gather(tf.constant([0], tf.int64)).items()}
        columns = self.columns([*([self.fields[label]] if label else []), *([group] if group else [])])
        if label:
            self.labels = columns[self.fields[label]].numpy().astype(np.int64)
        if group:
            self.groups = np.array([as_text(value) for value in columns[group].numpy()])

    @tf.autograph.experimental.do_not_convert
    def gather(self, numbers: tf.Tensor) -> Tensors:
        records = tf.numpy_function(self._read, [numbers], tf.string)
        return parse(tf.ensure_shape(records, [numbers.shape[0]]), self._flat)

    def name(self, number: int) -> str:
        return f"{self.title()}[{number}]"

    def _read(self, numbers: np.ndarray) -> np.ndarray:
        return np.array(self._records.__getitems__([int(number) for number in numbers]), object)

    def columns(self, wanted: Collection[str], *, counted: str | None = None) -> Tensors:
        """Features of all examples in one pass over the files, by feature: [examples, ...], or ragged where a dimension is free.

        Args:
            counted: a feature of one free dimension of which only the lengths are kept, [examples] int64.
        """
        known = features(self.builder)
        flat = {name: (name, known[name]) for name in (*wanted, *([counted] if counted else []))}
        parts: dict[str, list[Any]] = {name: [] for name in flat}
        for start in range(0, len(self) if flat else 0, CHUNK):
            parsed = parse(tf.constant(self._read(np.arange(start, min(start + CHUNK, len(self))))), flat)
            for name, value in parsed.items():
                parts[name].append(_lengths(value) if name == counted else value)
        return {name: tf.concat(part, 0) for name, part in parts.items()}


def _lengths(values: Any) -> tf.Tensor:
    """Of each row, [batch] int64."""
    return values.row_lengths() if isinstance(values, tf.RaggedTensor) else tf.repeat(tf.shape(values, tf.int64)[1], len(values))


def tfds_source(name: str, split: str, *, fields: Mapping[str, str] | None = None, data_dir: str | Path | None = None,
                label: str | None = None, group: str | None = None) -> TfdsSource | RecordSource:
    """A split by number, the way its files allow: ArrayRecord from the disk, TFRecord through memory. See TfdsSource.

    Raises:
        DataError: as TfdsSource.
    """
    kind = prepared(name, data_dir).info.file_format.value
    way = RecordSource if kind == "array_record" else TfdsSource
    return way(name, split, fields=fields, data_dir=data_dir, label=label, group=group)

