"""Where images and labels lie - digits, TFDS, folders, tables, .npz - opened as the data's own splits, nothing divided yet."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data import arrays, folders
from pipelines.data.cache import cache_folder
from pipelines.data.files import FileSource, TensorSource
from pipelines.data.fingerprint import of_files
from pipelines.data.label_sets import coded, labels_in_table, labels_of_array, one_example_each
from pipelines.data.mapping import mapped
from pipelines.data.names import groups_in_names
from pipelines.data.number_columns import TARGET, NumberColumns
from pipelines.data.opened import Opened, check_columns, check_skipped
from pipelines.data.records import RecordSource, tfds_source
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.data.tables import (
    LeftOut,
    absent_files,
    class_names,
    column,
    file_paths,
    read_table,
    row,
    split_names,
    values_of,
)
from pipelines.data.tfds import TfdsSource, features, prepared
from pipelines.machine import memory
from pipelines.stores.remote import local
from vision.data.annotations import naming_boxes
from vision.data.decode import pixels
from vision.data.files import ENDINGS, is_image
from vision.data.headers import image_header
from vision.settings import SOURCES, ImageData

CLASSES = [str(digit) for digit in range(10)]


def digits() -> ArraySource:
    """All digits as one pool: image [8, 8, 1] uint8, 0..255 (stored as 0..16), and label int64."""
    package = importlib.util.find_spec("sklearn")  # its file alone: importing it takes a second
    assert package is not None and package.origin
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype=np.int64)
    images = np.rint(rows[:, :-1] * (255.0 / 16.0)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = rows[:, -1]
    return ArraySource({"image": images, "label": labels}, title="digits", labels=labels)


ARRAY_SHARE = 0.25  # of the free memory that decoded TFDS images may take
CHUNK = 256  # images decoded in one call


def open_data(data: ImageData, numbers: NumberColumns | None = None) -> Opened:
    """The data of any registered source, with class numbers, or the `numbers` that are to be predicted as `target`. Raises DataError that
    names file, row or array and the remedy."""
    opened = SOURCES.build(data, numbers=numbers)
    return opened if isinstance(opened, Opened) else _own(opened, data, numbers)


def open_shipped(data: ImageData, numbers: NumberColumns | None) -> Opened:
    """See `open_data`; of the sources that ship with Quartet."""
    if data.source in ("digits", "folder"):
        return {"digits": _digits, "folder": _folder}[data.source](data)
    return {"tfds": _tfds, "table": _table, "npz": _npz}[data.source](data, numbers)


def _own(splits: Mapping[str, Mapping[str, np.ndarray]], data: ImageData, numbers: NumberColumns | None) -> Opened:
    """A source of somebody's own: split -> {"image": [n, h, w] or [n, h, w, c], "label": [n], or with labels: many a list of labels each
    or [n, labels] of 0 and 1, or [n, columns] where numbers are predicted, "group": [n] where data.group_by asks}."""
    wanted = ("image", "label", *(("group",) if data.group_by else ()))
    check_columns(splits, wanted, data.source)
    listed = "label" if data.labels == "many" else None  # lists of labels differ in length, and are no array
    parts = {split: arrays.Arrays({name: columns[name] if name == listed else np.asarray(columns[name]) for name in wanted},
                                  {name: name for name in wanted}) for split, columns in splits.items()}
    return _of_arrays(f"source {data.source}", parts, data, numbers)


def _digits(data: ImageData) -> Opened:
    if data.group_by:
        raise DataError(f"data.group_by: {data.group_by}: the embedded digits have no groups")
    return Opened("the embedded digits", ["all"], lambda _: digits(), CLASSES)


def _tfds(data: ImageData, numbers: NumberColumns | None) -> Opened:
    name, label_key = data.name or "", str(data.label_key)
    builder = prepared(name, data.data_dir)
    known, classes = features(builder), list[str]()

    def load_numbers(split: str) -> Source:
        source = tfds_source(name, split, fields={"image": data.image_key, TARGET: label_key}, data_dir=data.data_dir, group=data.group_by)
        stored = source.columns([label_key])[label_key] if isinstance(source, RecordSource) else source._values[TARGET]
        assert numbers is not None
        return as_arrays(WithTargets(source, numbers.in_array(stored.numpy(), f"{source.title()} {label_key}")), data.max_pixels)

    def load(split: str) -> Source:
        source = tfds_source(name, split, fields={"image": data.image_key, "label": label_key}, data_dir=data.data_dir, label="label",
                             group=data.group_by)
        labels = _labels(source)
        if int(labels.min()) < 0:
            number = int(np.argmin(labels))
            raise DataError(f"{source.name(number)} has no label ({labels[number]}): split {split} of {builder.info.full_name} cannot be "
                            "evaluated; set data.test to another split, a share or null")
        classes[:] = source.class_names("label") or [str(label) for label in range(max(int(labels.max()) + 1, len(classes)))]
        return as_arrays(source, data.max_pixels)

    if numbers is not None:
        return Opened(builder.info.full_name, sorted(builder.info.splits), load_numbers)
    if label_key in known and known[label_key].shape != ():
        raise DataError(f"data.label_key: feature {label_key} of {name} is not one label for each example: {known[label_key]}")
    return Opened(builder.info.full_name, sorted(builder.info.splits), load, classes)


def _folder(data: ImageData) -> Opened:
    path = data.path or ""
    with naming_boxes(Path(path)):
        opened = folders.read_folders(path, key="image", suffixes=ENDINGS, kind="image", sniff=is_image, group_by=data.group_by,
                                     group_pattern=data.group_pattern, label_pattern=data.label_pattern, cache=cache_folder(data))

    def load(split: str) -> Source:
        source = opened.splits[split]
        return one_example_each(source, len(opened.classes)) if data.labels == "many" else source

    return Opened(str(data.path), sorted(opened.splits), load, opened.classes, opened.notes)


def _table(data: ImageData, numbers: NumberColumns | None) -> Opened:
    path = local(data.path or "", folder=True)
    by_folder, by_name = data.group_by == "folder", data.group_by == "name"
    label_keys = [data.label_key] if isinstance(data.label_key, str) else []
    text = [name for name in (data.image_key, *label_keys, data.split_key, None if by_folder or by_name else data.group_by) if name]
    lost = LeftOut()
    table = read_table(path, text=text, names=data.columns, left_out=lost if data.on_bad_example == "skip" else None,
                       delimiter=data.delimiter, encoding=data.encoding, quote=data.quote)
    splits = split_names(values_of(table, data.split_key, path, "data.split_key"), data) if data.split_key else ["all"] * table.num_rows
    groups = values_of(table, data.group_by, path, "data.group_by") if data.group_by and not by_folder and not by_name else None
    images = column(table, data.image_key, path, "data.image_key").to_pylist()
    classes: list[str] = []
    learned = {TARGET: numbers.in_table(table, path)} if numbers else {"label": coded(labels_in_table(table, data, path), classes)}
    parts = np.array(splits)
    skipped = list(lost.reasons)
    several = "-many" if data.labels == "many" else ""  # labels are stored otherwise
    if all(isinstance(image, (bytes, dict)) for image in images):
        content = _contents(images, path)

        def load(split: str) -> Source:
            rows = np.flatnonzero(parts == split)
            with tf.device("CPU:0"):
                values = {"image": tf.constant([content[row] for row in rows]),
                          **{name: tf.constant(value[rows]) for name, value in learned.items()}}
            identity = f"{of_files([path], path.parent, whole=True)}-{split}{several}"
            return TensorSource(values, title=f"{path} {split}", fingerprint=identity,
                                labels=learned["label"][rows] if "label" in learned else None,
                                groups=np.array(groups)[rows] if groups else None)
    else:
        files = file_paths(images, path, data.file_pattern, f"{data.image_key} (data.image_key)")
        absent = absent_files(files, path, skip=data.on_bad_example == "skip")
        skipped += absent.values()
        parts[list(absent)] = ""
        near = [file.parent.name for file in files] if by_folder else groups
        if by_name:
            near = groups_in_names([os.path.relpath(file, path.parent) for file in files], data.group_pattern or "")

        def load(split: str) -> Source:
            rows = np.flatnonzero(parts == split)
            own = {name: value[rows] for name, value in learned.items()}
            return FileSource([files[row] for row in rows], key="image", root=path.parent, fields=own, labels=own.get("label"),
                              groups=np.array(near)[rows] if near else None)

    check_skipped(skipped, len(images) + lost.count, data, str(path))
    return Opened(str(path), sorted(set(splits)), load, classes, skipped=skipped)


def _contents(images: list, path: Path) -> list[bytes]:
    """Encoded images within a table: bytes, or {"bytes": ..., "path": ...} as Hugging Face's data sets have them."""
    contents = []
    for number, image in enumerate(images):
        content = image.get("bytes") if isinstance(image, dict) else image
        if not isinstance(content, bytes):
            raise DataError(f"{row(path, number)}: no image bytes")
        contents.append(content)
    return contents


def _npz(data: ImageData, numbers: NumberColumns | None) -> Opened:
    path = local(data.path or "")
    roles = {"image": data.image_key, "label": str(data.label_key), **({"group": data.group_by} if data.group_by else {})}
    settings = {"image": "data.image_key", "label": "data.label_key", "group": "data.group_by"}
    found = arrays.read_npz(path, roles, {"image": "x", "label": "y"}, settings=settings)
    return _of_arrays(str(path), found, data, numbers)


def _of_arrays(place: str, found: Mapping[str, arrays.Arrays], data: ImageData, numbers: NumberColumns | None) -> Opened:
    named: dict[str, list[Any]] = {}
    classes: list[str] = []
    if numbers is None and data.labels == "many":
        named = {split: labels_of_array(part.values["label"], data.label_separator) for split, part in found.items()}
        classes = class_names([label for labels in named.values() for names in labels for label in names])
    elif numbers is None:
        named = {split: _names_of(part.values["label"], place, part.names["label"]) for split, part in found.items()}
        classes = class_names([label for labels in named.values() for label in set(labels)])
    notes: list[str] = []

    def load(split: str) -> Source:
        part = found[split]
        images, note = arrays.to_uint8(part.values["image"], f"{place}: array {part.names['image']!r}")
        if note and note not in notes:
            notes.append(note)
        groups = part.values["group"].astype(str) if data.group_by else None
        if numbers:
            targets = numbers.in_array(part.values["label"], f"{place}: array {part.names['label']!r}")
            return ArraySource({"image": images, TARGET: targets}, title=f"{place}:{part.names['image']}", groups=groups)
        labels = coded(named[split], classes)
        return ArraySource({"image": images, "label": labels}, title=f"{place}:{part.names['image']}", labels=labels, groups=groups)

    return Opened(place, sorted(found), load, classes, notes)


def _names_of(labels: np.ndarray, path: str, name: str) -> list[str]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{path}: array {name!r} has shape {list(labels.shape)}; labels are one value for each example, [n]")
    if labels.dtype.kind == "f":
        if not np.all(np.isfinite(labels)) or np.any(labels != np.rint(labels)):
            raise DataError(f"{path}: array {name!r} holds fractions or NaN; labels are whole numbers or text")
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biuUS":
        raise DataError(f"{path}: array {name!r} is {labels.dtype}; labels are whole numbers or text")
    if labels.dtype.kind == "S":
        return [label.decode("utf-8", "replace") for label in labels.tolist()]
    return [str(label) for label in labels.tolist()]


class WithTargets(Source):
    """A split of TFDS with numbers [n, columns] in the place of what it stores of them."""

    def __init__(self, base: TfdsSource | RecordSource, targets: np.ndarray):
        self.base, self.number_targets, self.groups = base, targets, base.groups
        self.spec = {**base.spec, TARGET: tf.TensorSpec(targets.shape[1:], tf.float32)}
        self.shape, self.title = base.shape, base.title

    def __len__(self) -> int:
        return len(self.base)

    def gather(self, numbers: tf.Tensor) -> Tensors:
        return {**self.base.gather(numbers), TARGET: tf.gather(self.number_targets, numbers)}

    def name(self, number: int) -> str:
        return self.base.name(number)

    def fingerprint(self) -> str:
        return self.base.fingerprint()


def as_arrays(source: TfdsSource | RecordSource | WithTargets, max_pixels: int) -> Source:
    """The source decoded once, where all images have one size and fit in memory; else unchanged."""
    shape = source.shape("image")
    if len(shape) != 3 or None in shape or shape[2] not in (1, 3):
        return source
    height, width, channels = (int(edge) for edge in shape)  # type: ignore[arg-type]
    if len(source) * height * width * channels > memory.free() * ARRAY_SHARE:
        return source
    images = np.empty((len(source), height, width, channels), np.uint8)

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(pixels(encoded, channels, max_pixels), [height, width, channels])

    def batch(numbers: tf.Tensor) -> tf.Tensor:
        # an element of tf.data costs more than a small image: a batch of them is decoded in each call
        return tf.map_fn(decode, source.gather(numbers)["image"], fn_output_signature=tf.uint8, parallel_iterations=8)

    dataset = mapped(tf.data.Dataset.range(len(source)).batch(CHUNK), batch, tf.data.AUTOTUNE)
    done = 0
    try:
        for part in dataset.prefetch(4):
            images[done:done + len(part)] = part.numpy()
            done += len(part)
    except (tf.errors.OpError, UnicodeDecodeError):
        return source  # whoever reads the examples one by one names the bad one
    learned = {"label": _labels(source)} if source.number_targets is None else {TARGET: source.number_targets}
    # not source.name, which would keep the encoded images in memory
    return ArraySource({"image": images, **learned}, title=source.title(), labels=learned.get("label"), groups=source.groups,
                       fingerprint=source.fingerprint())


def stored_header(start: bytes) -> tuple[int, int, int] | None:
    """(height, width, channels) of the upright image whose file begins with `start`; None where that is unknown."""
    header = image_header(start)
    if header is None or header.width < 1 or header.height < 1:
        return None
    if start[:2] == b"\xff\xd8" and exif_orientation(start) >= 5:
        return header.width, header.height, header.channels
    return header.height, header.width, header.channels


def exif_orientation(start: bytes) -> int:
    """The orientation that `vision.data.decode` applies: 1 to 8."""
    first = 2 if start[3:4] == b"\xe1" else 20
    if start[first:first + 2] != b"\xff\xe1" or start[first + 4:first + 8] != b"Exif":
        return 1
    tiff = first + 10
    order = "little" if start[tiff:tiff + 1] == b"I" else "big"
    number = lambda at, size: int.from_bytes(start[at:at + size], order)  # type: ignore[arg-type]  # noqa: E731
    directory = tiff + number(tiff + 4, 4)
    for entry in range(directory + 2, min(directory + 2 + 12 * number(directory, 2), len(start)), 12):
        if number(entry, 2) == 0x0112:
            value = number(entry + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1


def _labels(source: Source) -> np.ndarray:
    if source.labels is None:
        raise DataError(f"{source.name(0)} and the rest have no labels")
    return source.labels
