"""Prepared TensorFlow Datasets by number. Nothing is ever downloaded or prepared here.

A TFRecord file can only be read from front to back, so one pass puts the encoded bytes of a split into memory
(images stay compressed; 60,000 of fashion_mnist take 0.3 s) and examples are then gathered by number. A split
that does not fit is refused with the alternatives: ArrayRecord (`records.py`), and for images StreamSource.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.files import TensorSource
from pipelines.data.mapping import mapped
from pipelines.data.reasons import reason as words
from pipelines.data.source import Tensors
from pipelines.data.tfds_folder import check_folder, check_inside, read_json
from pipelines.machine import memory
from pipelines.stores.remote import local

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

MEMORY_SHARE = 0.5  # of the free memory that a split's encoded bytes may take
PARSE = 1024  # records parsed at a time
RECORD = 16  # bytes of a TFRecord beside its content
GROUP = "\0group"  # among the values read, the one that is no field


class Prepared:
    """The facts of one split of a prepared data set, without reading it.

    Attributes:
        builder: TFDS' read-only builder.
        split: the split or slice, in TFDS notation.
        fields: our name -> feature.
    """

    def __init__(self, name: str, split: str, fields: Mapping[str, str] | None, data_dir: str | Path | None, *others: str | None):
        self.builder = prepared(name, data_dir)
        self.split, self._asked = split, name
        self.shards = instructions(self.builder, split)
        known = features(self.builder)
        self.fields = dict(fields) if fields is not None else {key: key for key in known}
        for feature in [*self.fields.values(), *(other for other in others if other)]:
            if feature not in known:
                raise DataError(f"{self.builder.info.full_name} has no feature {feature!r}; there are {listed(known, 'and')}"
                                f"{did_you_mean(feature, known)}")
        largest = max((os.stat(part.filename).st_size for part in self.shards), default=0)
        for feature in self.fields.values():
            shape = known[feature].get_serialized_info().shape if plain(known[feature]) else ()
            values = math.prod(edge for edge in shape if edge is not None)
            if values > largest:
                raise DataError(f"{self.builder.info.full_name}: features.json states {values:,} values for each {feature}, more than its "
                                "files have bytes; prepare the data set again")

    def __len__(self) -> int:
        return sum(part.take for part in self.shards)

    def title(self) -> str:
        """The name of the split: `cifar10/train`."""
        return f"{self.builder.info.full_name.rpartition('/')[0]}/{self.split}"

    def fingerprint(self) -> str:
        """Hash of what identifies the data: full name, split, fields, and each file's name and size."""
        files = [(Path(part.filename).name, os.stat(part.filename).st_size, part.skip, part.take) for part in self.shards]
        text = json.dumps([self.builder.info.full_name, self.split, sorted(self.fields.items()), files])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def class_names(self, field: str) -> list[str] | None:
        """The names of a ClassLabel field's values, None for other fields."""
        feature = features(self.builder)[self.fields[field]]
        names = getattr(feature, "names", None)
        return list(names) if names and hasattr(feature, "int2str") else None

    def shape(self, field: str) -> tuple[int | None, ...]:
        """The shape that the data set states for a field once decoded; None where it varies."""
        return tuple(features(self.builder)[self.fields[field]].shape)


class TfdsSource(Prepared, TensorSource):
    """One split of a prepared data set, its encoded fields in memory.

    Fields of fixed shape are gathered as [batch, ...]; fields of one free dimension (audio, token lists) as
    tf.RaggedTensor [batch, None]. Images stay encoded: scalar strings.

    Args:
        name: `cifar10`, `name/config`, `name:version` or `name/config:version`.
        split: a split or slice in TFDS notation, `train` or `train[:10%]`.
        fields: our name -> feature (nested ones joined by `/`); default: every feature under its own name.
        data_dir: where the data were prepared; default: as TFDS has it.
        label: which of our names is the class of an example; also given as `labels`.
        group: feature whose value is the group of an example; also given as `groups`.
        memory_limit: most bytes that the split may take on disk; default: half of the free memory.

    Raises:
        DataError: no such prepared data set, split or feature (names the existing ones), an unreadable file, or too large.
    """

    def __init__(self, name: str, split: str, *, fields: Mapping[str, str] | None = None, data_dir: str | Path | None = None,
                 label: str | None = None, group: str | None = None, memory_limit: int | None = None):
        Prepared.__init__(self, name, split, fields, data_dir, group)
        wanted = {**self.fields, **({GROUP: group} if group else {})}
        kind = self.builder.info.file_format.value
        if kind != "tfrecord":
            raise DataError(f"{self.builder.info.full_name} is stored as {kind}; prepare it as tfrecord or array_record")
        self._guard(memory_limit)
        values = self._read(wanted)
        groups = np.asarray([as_text(value) for value in values.pop(GROUP).numpy()]) if group else None
        TensorSource.__init__(self, values, title=self.title(), fingerprint=Prepared.fingerprint(self),
                              labels=values[label].numpy().astype(np.int64) if label else None, groups=groups)

    def _guard(self, memory_limit: int | None) -> None:
        size = sum(os.stat(part.filename).st_size * part.take // max(part.examples_in_shard, 1) for part in self.shards)
        limit = memory_limit if memory_limit is not None else int(memory.free() * MEMORY_SHARE)
        if size > limit:
            raise DataError(
                f"{self.builder.info.full_name}: split {self.split} takes {size / 1e9:.2f} GB, more than the {limit / 1e9:.2f} GB "
                "of memory it may have, and TFRecord files cannot be read by number from the disk; prepare the data set as array_record, "
                f"which is: tfds.builder({self._asked!r}, file_format='array_record').download_and_prepare() in Python. For images "
                "data.streaming: true also reads it as it is, in shards")

    def _read(self, wanted: Mapping[str, str]) -> dict[str, Any]:
        known = features(self.builder)
        flat = {key: known[feature] for key, feature in wanted.items()}
        if all(plain(feature) for feature in flat.values()):
            batches = mapped(
                self._records().batch(PARSE),
                lambda records: parse(records, {key: (wanted[key], feature) for key, feature in flat.items()}), tf.data.AUTOTUNE)
        else:
            batches = self._examples(wanted)
        parts: dict[str, list[Any]] = {key: [] for key in wanted}
        try:
            for batch in batches.prefetch(4):
                for key in wanted:
                    parts[key].append(batch[key])
        except tf.errors.OpError as error:
            raise DataError(f"{self.builder.info.full_name}: a file of split {self.split} in {self.builder.data_path} cannot be read: "
                            f"{words(error)}; prepare the data set again") from error
        if not parts[next(iter(wanted))]:
            raise DataError(f"{self.builder.info.full_name}: split {self.split} is empty")
        with tf.device("CPU:0"):
            values = {key: tf.concat(part, 0) for key, part in parts.items()}
        got = int(next(iter(values.values())).shape[0])
        stated = sum(part.take for part in self.shards)
        if got != stated:
            raise DataError(f"{self.builder.info.full_name}: split {self.split} in {self.builder.data_path} holds {got:,} examples where "
                            f"its dataset_info.json states {stated:,}; prepare the data set again")
        return values

    def _records(self) -> tf.data.Dataset:
        dataset = None
        for part in self.shards:
            records = tf.data.TFRecordDataset(str(part.filename), buffer_size=8 << 20)
            if part.skip or part.take != part.examples_in_shard:
                records = records.skip(part.skip).take(part.take)
            dataset = records if dataset is None else dataset.concatenate(records)
        return dataset

    def _examples(self, wanted: Mapping[str, str]) -> tf.data.Dataset:
        """The slow and general way: every example through TFDS' own decoding."""
        import tensorflow_datasets as tfds

        dataset = self.builder.as_dataset(
            split=self.split, decoders=decoders(self.builder, wanted.values()), shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False))

        def pick(example: Any) -> Tensors:
            return {key: _at(example, feature) for key, feature in wanted.items()}

        dataset = mapped(dataset, pick)
        ragged = any(None in spec.shape for spec in dataset.element_spec.values())
        return dataset.ragged_batch(PARSE) if ragged else dataset.batch(PARSE)


def prepared(name: str, data_dir: str | Path | None = None) -> "tfds.core.DatasetBuilder":
    """The read-only builder of a data set prepared on disk.

    Raises:
        DataError: names the data directory, its contents, and how to prepare the data set; or what in its folder is not trusted.
    """
    import tensorflow_datasets as tfds

    base, _, version = name.partition(":")
    title, _, config = base.partition("/")
    roots = data_dirs(data_dir)
    for root in roots:
        if not (root / title).is_dir():
            continue
        folder = root / title / (config or _default_config(root / title))
        versions = sorted((path.parent for path in folder.glob("*/dataset_info.json")), key=lambda path: _version(path.name))
        if version:
            versions = [path for path in versions if path.name == version]
        if versions:
            check_folder(versions[-1])
            try:
                return tfds.builder_from_directory(str(versions[-1]))
            except Exception as error:  # TFDS raises many kinds for a broken folder
                raise DataError(f"{versions[-1]} is not a data set that TFDS {tfds.__version__} can read: {error}") from error
    there = list_prepared(data_dir)
    configs = [other for other in there if other.startswith(f"{base}/")]
    meant = f"; did you mean {listed(configs)}?" if configs else did_you_mean(name, there) or "."
    existing = f"there are {listed(there, 'and')}" if there else "nothing is prepared there"
    raise DataError(
        f"data.name: {name} is not prepared in {listed(roots)}; {existing}{meant} "
        f"Prepare it with `tfds build {base}` (or tfds.load({base!r}) in Python), or set data.data_dir to where it lies.")


def data_dirs(data_dir: str | Path | None = None) -> list[Path]:
    """Where prepared data sets are searched: the given directory, or TFDS' own (TFDS_DATA_DIR, ~/tensorflow_datasets)."""
    if data_dir:
        return [local(data_dir).expanduser()]
    from tensorflow_datasets.core.utils import file_utils

    return [Path(path).expanduser() for path in file_utils.list_data_dirs()]


def list_prepared(data_dir: str | Path | None = None) -> list[str]:
    """Names of the prepared data sets, `name` or `name/config`, sorted."""
    names: set[str] = set()
    for root in data_dirs(data_dir):
        for pattern in ("*/*/dataset_info.json", "*/*/*/dataset_info.json"):
            names.update("/".join(path.relative_to(root).parts[:-2]) for path in root.glob(pattern))
    return sorted(names)


def instructions(builder: "tfds.core.DatasetBuilder", split: str) -> list[Any]:
    """The (filename, skip, take, examples_in_shard) that make up a split, in the order of its shards.

    Raises:
        DataError: no such split (with those there are), a slice that TFDS does not understand, or a missing file.
    """
    base = split.partition("[")[0]
    there = sorted(builder.info.splits)
    if base not in there:
        raise DataError(f"{builder.info.full_name} has no split {base!r}; there are {listed(there, 'and')}{did_you_mean(base, there)}")
    try:
        parts = list(builder.info.splits[split].file_instructions)
    except ValueError as error:
        raise DataError(f"{builder.info.full_name}: {split!r} is not a split in TFDS notation: {error}") from error
    for part in parts:
        path = Path(part.filename)
        check_inside(path, Path(builder.data_path))
        if not path.is_file():
            raise DataError(f"{path} is missing or no regular file, though dataset_info.json names it; prepare the data set again")
        size, count = path.stat().st_size, part.examples_in_shard
        if count < 0 or (builder.info.file_format.value == "tfrecord" and count * RECORD > size):
            raise DataError(f"{path} has {size:,} bytes and cannot hold the {count:,} examples that dataset_info.json states; prepare the "
                            "data set again")
    return parts


def features(builder: "tfds.core.DatasetBuilder") -> dict[str, Any]:
    """The features of a data set by name, nested ones joined by `/`."""
    fields = {}

    def walk(prefix: str, mapping: Mapping[str, Any]) -> None:
        for key, value in mapping.items():
            if hasattr(value, "keys") and hasattr(value, "items"):
                walk(f"{prefix}{key}/", value)
            else:
                fields[prefix + key] = value

    walk("", builder.info.features)
    return dict(sorted(fields.items()))


def decoders(builder: "tfds.core.DatasetBuilder", wanted: Any) -> Any:
    """TFDS decoders that read just `wanted` and leave images encoded."""
    import tensorflow_datasets as tfds

    known = features(builder)
    tree: dict[str, Any] = {}
    skip: dict[str, Any] = {}
    for feature in wanted:
        # a feature's own name may hold a slash ("audio/filename"), a nested one's path is joined by it
        path = [feature] if feature in builder.info.features else feature.split("/")
        encoded = isinstance(known[feature], tfds.features.Image)
        for target, value in ((tree, True), *([(skip, tfds.decode.SkipDecoding())] if encoded else [])):
            for key in path[:-1]:
                target = target.setdefault(key, {})
            target[path[-1]] = value
    return tfds.decode.PartialDecoding(tree, decoders=skip)


def plain(feature: Any) -> bool:
    """True where the stored value is the value (or an encoded image), so that `parse` reads it."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Image):
        return True
    stored, given = feature.get_serialized_info(), feature.get_tensor_info()
    if not hasattr(stored, "shape") or stored.shape != given.shape or stored.tf_dtype != given.tf_dtype:
        return False
    encoded = getattr(feature, "_encoding", None)
    if encoded is not None and str(getattr(encoded, "value", encoded)).lower() not in ("none", ""):
        return False
    return None not in given.shape or len(given.shape) == 1


def parse(records: tf.Tensor, flat: Mapping[str, tuple[str, Any]]) -> Tensors:
    """Stored records [batch] string to name -> [batch, ...], for (feature name, feature) of each; in graph."""
    spec, types = {}, {}
    for key, (name, feature) in flat.items():
        info = feature.get_serialized_info()
        types[key] = info.tf_dtype
        stored = tf.string if info.tf_dtype == tf.string else tf.float32 if info.tf_dtype.is_floating else tf.int64
        if None in info.shape:
            spec[name] = tf.io.RaggedFeature(stored, row_splits_dtype=tf.int64)
        else:
            spec[name] = tf.io.FixedLenFeature(info.shape, stored)
    parsed = tf.io.parse_example(records, spec)
    return {key: tf.cast(parsed[name], types[key]) if parsed[name].dtype != types[key] else parsed[name] for key, (name, _) in flat.items()}


def _at(example: Any, feature: str) -> Any:
    if feature in example:
        return example[feature]
    for key in feature.split("/"):
        example = example[key]
    return example


def _default_config(folder: Path) -> str:
    """The config to read where the name gives none: what the data set calls its default if prepared, else the only one, else none."""
    if any(folder.glob("*/dataset_info.json")):
        return ""
    configs = sorted({path.parent.parent.name for path in folder.glob("*/*/dataset_info.json")})
    try:
        stored = read_json(folder / ".config" / "metadata.json")
        default = stored.get("default_config_name") if isinstance(stored, dict) else None
    except (OSError, DataError):
        default = None
    if default in configs:
        return default
    return configs[0] if len(configs) == 1 else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in text.split("."))


def as_text(value: Any) -> str:
    """A stored value as a group's or class's name."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
