"""Examples whose content is a file each, or encoded bytes already in memory; decoding is left to the task."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data import fingerprint
from pipelines.data.source import Source, Tensors, one_or_several


class FileSource(Source):
    """One file an example, or several, read in graph when it is asked for.

    Args:
        paths: the files, in the order of the examples; an example is called by its file.
        key: the entry of an example that holds a file's bytes, a scalar string.
        beside: entry -> further files of the examples, such as their masks.
        root: the folder of the data; the fingerprint does not depend on its place.
        fields: further values by name, [examples, ...].
        labels, groups: see Source; labels also stand in the examples, as `label` int64, or several, [examples, labels] float32.
        fingerprint, stamp: where they are known.
    """

    def __init__(self, paths: Sequence[str | Path], *, key: str, root: str | Path | None = None,
                 fields: Mapping[str, np.ndarray] | None = None, labels: np.ndarray | None = None, groups: np.ndarray | None = None,
                 fingerprint: str | None = None, stamp: str | None = None, beside: Mapping[str, Sequence[str | Path]] | None = None):
        self.beside = {name: [os.fspath(path) for path in files] for name, files in (beside or {}).items()}
        if any(len(files) != len(paths) for files in self.beside.values()):
            raise ValueError(f"{len(paths)} examples, and files of { {name: len(files) for name, files in self.beside.items()} }")
        self.paths = [os.fspath(path) for path in paths]
        self.root, self._root = root, os.path.join(os.fspath(root), "") if root is not None else ""
        self.key, self.groups = key, groups
        self.labels, self.sets = one_or_several(labels)
        own = self.labels if self.sets is None else self.sets
        self.fields = {**(fields or {}), **({} if own is None else {"label": own})}
        self.number_targets = self.fields.get("target")
        self.spec = {**dict.fromkeys((key, *self.beside), tf.TensorSpec([], tf.string)),
                     **{name: tf.TensorSpec(value.shape[1:], tf.as_dtype(value.dtype)) for name, value in self.fields.items()}}
        self._encoded = {name: [os.fsencode(path) for path in files] for name, files in {key: self.paths, **self.beside}.items()}
        self._tensors: tuple[Tensors, Tensors] | None = None
        self._fingerprint, self._stamp = fingerprint, stamp

    def __len__(self) -> int:
        return len(self.paths)

    @tf.autograph.experimental.do_not_convert
    def gather(self, numbers: tf.Tensor) -> Tensors:
        if self._tensors is None:
            with tf.init_scope(), tf.device("CPU:0"):
                paths = {name: tf.constant(files, tf.string) for name, files in self._encoded.items()}
                self._tensors = paths, {name: tf.constant(value) for name, value in self.fields.items()}
        every, fields = self._tensors

        def content(paths: tf.Tensor) -> tf.Tensor:
            wanted = tf.gather(paths, numbers)
            if numbers.shape[0] == 1:  # one at a time, as tf.data asks for them: no loop needed
                return tf.io.read_file(wanted[0])[None]
            return tf.map_fn(tf.io.read_file, wanted, parallel_iterations=16)

        return {**{name: content(paths) for name, paths in every.items()},
                **{name: tf.gather(value, numbers) for name, value in fields.items()}}

    def name(self, number: int) -> str:
        return os.fsencode(self.paths[number]).decode("utf-8", "backslashreplace")

    def stamp(self) -> str:
        if self._stamp is None:
            self._stamp = fingerprint.times(self._all())
        return self._stamp

    def _all(self) -> list[str]:
        return [path for files in (self.paths, *self.beside.values()) for path in files]

    def relative(self, number: int) -> str:
        """A file's path relative to the folder of the data, with `/`."""
        return self.paths[number].removeprefix(self._root).replace(os.sep, "/")

    def fingerprint(self) -> str:
        """Hash of every file's path below the root, of sizes and content (see `fingerprint`), and of the labels."""
        if self._fingerprint is None:
            digest = hashlib.sha256(fingerprint.of_files(self._all(), self._root or None).encode())
            for name, value in sorted(self.fields.items()):
                content = value.tolist() if value.dtype == object else [np.ascontiguousarray(value).tobytes()]  # an array of bytes
                digest.update(name.encode() + b"".join(content))
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint


class TensorSource(Source):
    """Values in memory that numpy cannot hold well: encoded bytes, and ragged values of one free dimension.

    Args:
        values: name -> tf.Tensor [examples, ...] or tf.RaggedTensor [examples, None].
        title: names the examples: `title[number]`.
        fingerprint: see Source.
        labels, groups: see Source.
    """

    def __init__(self, values: Mapping[str, Any], *, title: str, fingerprint: str, labels: np.ndarray | None = None,
                 groups: np.ndarray | None = None):
        self._values = dict(values)
        self._title, self._fingerprint = title, fingerprint
        self.groups = groups
        self.labels, self.sets = one_or_several(labels)
        self.number_targets = self._values["target"].numpy() if "target" in self._values else None
        self.spec = {name: tf.TensorSpec(value.shape[1:], value.dtype) for name, value in self._values.items()}

    def __len__(self) -> int:
        return int(next(iter(self._values.values())).shape[0])

    @tf.autograph.experimental.do_not_convert
    def gather(self, numbers: tf.Tensor) -> Tensors:
        return {name: tf.gather(value, numbers) for name, value in self._values.items()}

    def name(self, number: int) -> str:
        return f"{self._title}[{number}]"

    def fingerprint(self) -> str:
        return self._fingerprint
