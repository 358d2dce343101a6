"""Decoded examples kept in memory or on disk, so that they are decoded once.

A disk cache is named by the data, by what decoding computes and by its results' form, and is written whole or not at all:
a kill in mid-writing leaves only a folder that the next writer removes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.base.files import whole_folder
from pipelines.base.inside import opened
from pipelines.base.staging import sweep
from pipelines.config.schema import Data
from pipelines.data.fingerprint import graph_hash
from pipelines.data.lengths import FlatSource, Lengths, free
from pipelines.data.mapping import mapped
from pipelines.data.reasons import reason
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.machine import memory

Decode = Callable[[Tensors, Any], Tensors]  # (one raw example, key or None) -> one example of fixed shape

CHUNK = 256  # examples decoded at a time when a source is read whole


def cached(source: Source, decode: Decode | None, data: Data, *, facts: Mapping[str, Any] | None = None,
           lengths: Lengths | None = None, spec: dict[str, tf.TensorSpec] | None = None) -> ArraySource | None:
    """The source with every example decoded and kept, as `data.cache` says; None without a cache.

    Args:
        decode: None where the examples are ready.
        facts: what the task learned from train, on which decoding may depend.
        lengths: where examples differ in length, the entry that holds it.
        spec: of a decoded example, where it is known: it takes a trace.

    Raises:
        DataError: an example that cannot be decoded, by name; or the disk cache cannot be written.
    """
    if decode is None and source.arrays is not None:
        return source if isinstance(source, ArraySource) else _in_memory(source, source.arrays)
    spec = spec or decoded_spec(source, decode)
    if free(spec) and lengths is None:
        raise ValueError(f"entries of free length ({', '.join(free(spec))}) need Input.lengths")
    size = nbytes(spec, len(source)) + (_free_bytes(source, decode, data, spec, lengths) if lengths else 0)
    folder = cache_folder(data)
    where, as_fast = data.cache, decode is None and source.mapped and lengths is None
    if where == "auto":
        if size <= memory.room():
            where = "memory"
        else:
            where = "disk" if disk_has_room(folder, size) else "none"
    if where == "none" or (where == "disk" and as_fast):
        return None
    if where == "memory":
        kept = _flat_in_memory(source, decode, spec, lengths, data.workers) if lengths else _whole(source, decode, spec, data.workers)
        memory.hold(kept, kept.nbytes)
        return kept
    return _on_disk(source, decode, spec, folder, data.workers, facts, lengths)


def _whole(source: Source, decode: Decode | None, spec: dict[str, tf.TensorSpec], workers: int | None) -> ArraySource:
    arrays = {key: np.empty((len(source), *value.shape), value.dtype.as_numpy_dtype) for key, value in spec.items()}
    done = 0
    for batch in _decoded(source, decode, workers):
        for key, value in batch.items():
            arrays[key][done:done + len(value)] = value
        done += len(value)
    return _in_memory(source, arrays)


SAMPLE = 256  # examples from which the room for entries of free length is guessed


def _free_bytes(source: Source, decode: Decode | None, data: Data, spec: dict[str, tf.TensorSpec], lengths: Lengths) -> int:
    """About how many bytes the entries of free length take."""
    names = free(spec)
    entries = {lengths.of(name).entry for name in names}
    totals = {lengths.entry: int(np.sum(source.lengths))} if source.lengths is not None else {}
    if entries - totals.keys():
        some = source.subset(np.unique(np.linspace(0, len(source) - 1, min(SAMPLE, len(source))).astype(np.int64)))
        seen = list(_decoded(some, decode, data.workers))
        totals = {entry: int(np.mean([np.mean(batch[entry]) for batch in seen]) * len(source)) for entry in entries}
    return sum(totals[lengths.of(name).entry] * int(np.prod(spec[name].shape.as_list()[1:], dtype=np.int64)) * spec[name].dtype.size
               for name in names)


def _rows(batch: dict[str, np.ndarray], name: str, lengths: Lengths) -> np.ndarray:
    """An entry of a padded batch without its padding, [sum of lengths, ...]."""
    value = batch[name]
    return value[np.arange(value.shape[1]) < batch[lengths.of(name).entry][:, None]]


def _flat_in_memory(source: Source, decode: Decode | None, spec: dict[str, tf.TensorSpec], lengths: Lengths,
                    workers: int | None) -> FlatSource:
    names = free(spec)
    parts: dict[str, list[np.ndarray]] = {key: [] for key in spec}
    for batch in _decoded(source, decode, workers):
        for key in spec:
            parts[key].append(_rows(batch, key, lengths) if key in names else batch[key])
    whole = {key: np.concatenate(values) for key, values in parts.items()}
    return FlatSource({key: value for key, value in whole.items() if key not in names}, {key: whole[key] for key in names}, spec=spec,
                      lengths=lengths, source=source)


def _in_memory(source: Source, arrays: dict[str, np.ndarray]) -> ArraySource:
    return ArraySource(arrays, names=source.name, labels=source.labels, groups=source.groups, fingerprint=source.fingerprint())


def _on_disk(source: Source, decode: Decode | None, spec: dict[str, tf.TensorSpec], folder: Path, workers: int | None,
             facts: Mapping[str, Any] | None, lengths: Lengths | None) -> ArraySource:
    """Decoded examples as memory-mapped files; a finished cache is used again."""
    flat = free(spec)
    shapes = ",".join(f"{key}:{value.dtype.name}{list(value.shape)}" for key, value in sorted(spec.items()))
    known = json.dumps(facts or {}, sort_keys=True, default=str)
    identity = f"{source.fingerprint()} {source.stamp()} {len(source)} {shapes} {computation(source, decode)} {known}"
    target = folder / hashlib.sha256(identity.encode()).hexdigest()[:24]
    if not target.exists():
        try:
            with opened(folder) as place:
                sweep(place)
            with whole_folder(target) as staging, ExitStack() as files:
                stored = {key: staging / (f"{key}.flat" if key in flat else f"{key}.npy") for key in spec}
                open_files = {key: files.enter_context(open(path, "wb")) for key, path in stored.items()}
                for key, file in open_files.items():
                    if key not in flat:
                        write_header(file, (len(source), *spec[key].shape), spec[key].dtype.as_numpy_dtype)
                for batch in _decoded(source, decode, workers):
                    for key, value in batch.items():
                        kept = _rows(batch, key, lengths) if lengths and key in flat else value
                        open_files[key].write(np.ascontiguousarray(kept).tobytes())
        except OSError as error:
            if not target.exists():  # else another process was faster
                raise DataError(f"the disk cache {folder} cannot be written: {error.strerror or error}; free some space, name another "
                                "data.cache_folder, or set data.cache: none") from error
    arrays = {key: np.load(target / f"{key}.npy", mmap_mode="r", allow_pickle=False) for key in spec if key not in flat}
    if lengths is None:
        return MappedSource(arrays, source)
    totals = {key: int(np.sum(arrays[lengths.of(key).entry], dtype=np.int64)) for key in flat}
    mapped = {key: np.memmap(target / f"{key}.flat", spec[key].dtype.as_numpy_dtype, "r", shape=(total, *spec[key].shape[1:]))
              if total else np.zeros((0, *spec[key].shape[1:]), spec[key].dtype.as_numpy_dtype) for key, total in totals.items()}
    return FlatSource({key: np.asarray(value) for key, value in arrays.items()}, mapped, spec=spec, lengths=lengths, source=source)


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: Any) -> None:
    """The beginning of an .npy file, whose values follow."""
    # written as a file and not through a memory map: there a full disk would be a bus error
    description = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


def computation(source: Source, decode: Decode | None) -> str:
    """Hash of the graph of `decode` and of its tensors, so that other settings get another cache."""
    if decode is None:
        return ""
    raw = source.decoded or source.spec
    return graph_hash(tf.function(lambda raw: decode(raw, None), autograph=False).get_concrete_function(raw))


class MappedSource(ArraySource):
    """Memory-mapped arrays: gathered through numpy, so that only the rows asked for are read."""

    def __init__(self, arrays: dict[str, np.ndarray], source: Source):
        super().__init__(arrays, names=source.name, labels=source.labels, groups=source.groups, fingerprint=source.fingerprint())

    def gather(self, numbers: tf.Tensor) -> Tensors:
        keys = list(self.arrays)
        values = tf.numpy_function(lambda n: [self.arrays[key][n] for key in keys], [numbers], [self.spec[key].dtype for key in keys])
        return {key: tf.ensure_shape(value, [numbers.shape[0], *self.spec[key].shape]) for key, value in zip(keys, values)}


def _decoded(source: Source, decode: Decode | None, workers: int | None) -> Iterable[dict[str, np.ndarray]]:
    """All examples in their order, decoded, as batches of CHUNK; by whole batches where the task can (Task.decode_batch)."""
    many = getattr(getattr(decode, "__self__", None), "decode_batch", None)

    def one(number: tf.Tensor) -> Tensors:
        raw = {name: value[0] for name, value in source.gather(number[None]).items()}
        return decode(raw, None) if decode else raw

    numbers, parallel = tf.data.Dataset.range(len(source)), workers or tf.data.AUTOTUNE
    if many is not None:
        dataset = mapped(numbers.batch(CHUNK), lambda some: many(source.gather(some)), parallel)
    else:
        dataset = mapped(numbers, one, parallel)
        dataset = dataset.padded_batch(CHUNK) if free(dataset.element_spec) else dataset.batch(CHUNK)
    done = 0
    try:
        for batch in dataset.prefetch(2):
            yield {key: value.numpy() for key, value in batch.items()}
            done += CHUNK
    except tf.errors.OpError as error:
        bad = bad_example(source, decode, range(done, min(len(source), done + CHUNK)))
        raise bad or DataError(f"the data cannot be read: {reason(error)}") from error


def bad_example(source: Source, decode: Decode | None, numbers: Iterable[int], keys: Any = None) -> DataError | None:
    """The error that names the first of `numbers` that cannot be decoded, and why; None where each of them can.

    Args:
        keys: a key for each of them, where decoding draws from it.
    """
    for place, number in enumerate(numbers):
        try:
            raw = {name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()}
            if decode:
                decode(raw, None if keys is None else keys[place])
        except (tf.errors.OpError, DataError) as problem:  # a source that reads in Python gives its own reason
            return unreadable(source.name(int(number)), problem)
    return None


def unreadable(name: str, problem: Exception) -> DataError:
    """The error of an example that cannot be decoded."""
    return DataError(f"{name}: cannot be read: {reason(problem)}\n"
                     "Repair or remove it, or set data.on_bad_example: skip; `quartet check` lists all such examples.")


def decoded_spec(source: Source, decode: Decode | None) -> dict[str, tf.TensorSpec]:
    """Shape and dtype of one decoded example, from a trace (nothing is read)."""
    if decode is None:
        return source.spec
    raw = source.decoded or source.spec
    return tf.function(lambda raw: decode(raw, None), autograph=False).get_concrete_function(raw).structured_outputs


def nbytes(spec: dict[str, tf.TensorSpec], examples: int) -> int:
    """Bytes of the entries of fixed shape of `examples` decoded examples."""
    fixed = [value for name, value in spec.items() if name not in free(spec)]
    return examples * sum(int(np.prod(value.shape.as_list(), dtype=np.int64)) * value.dtype.size for value in fixed)


def cache_folder(data: Data) -> Path:
    """The folder of the disk cache; it need not exist yet."""
    return Path(data.cache_folder or os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet"


def disk_has_room(folder: Path, size: int) -> bool:
    """Whether `size` bytes more leave the disk of a folder half of what is free."""
    return size * 1.5 < shutil.disk_usage(existing(folder)).free * 0.5


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def readable(size: float) -> str:
    """Bytes as a person writes them: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return ""
