"""The splits of an image experiment, with the facts learned from train alone.

Raw examples are {"image": scalar string (encoded) or uint8 [h, w, c], "label": int64}. Data decoded
in memory (digits, .npz, TFDS of one size) are arrays. With labels: many `label` is [labels] float32 of 0 and 1.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from pipelines.base import stored
from pipelines.base.errors import DataError, QuartetError
from pipelines.base.files import write_json
from pipelines.base.json_text import parse_json
from pipelines.base.stored import Record
from pipelines.data.cache import cache_folder
from pipelines.data.divide import check_classes, check_several, divide
from pipelines.data.files import FileSource
from pipelines.data.label_sets import of_trained_labels
from pipelines.data.mapping import mapped
from pipelines.data.number_columns import NumberColumns, without_targets_left_out
from pipelines.data.opened import Opened, without
from pipelines.data.source import Source, class_counts, origin
from pipelines.data.split import choose, describe
from pipelines.outputs import number_scales
from pipelines.task.contract import Splits
from vision.data.decode import decode_image as decode_image
from vision.data.headers import ENOUGH
from vision.data.scan import examine, is_there
from vision.data.scan import find_bad as find_bad
from vision.data.sources import CHUNK, open_data, stored_header
from vision.settings import ImageData, ImageExperiment

STATISTICS = 10_000  # most examples of train behind mean and deviation
START = 1 << 14  # bytes of a file that nearly always hold its size


def load_images(experiment: ImageExperiment, *, judging: bool = False, mixed_size: tuple[int, int] | None = None) -> Splits:
    """The splits of an image experiment; with data.streaming, see vision.data.streaming.

    Args:
        judging: the splits evaluate a finished run, and may have a single class.
        mixed_size: height and width that images of several sizes get where data.image_size is not set; None: that is an error.

    Facts:
        classes: names in the order of the labels.
        image_size: [height, width] that the model sees.
        channels: 1 or 3.
        mean, std: of each channel over train alone, as the model sees it, in pixel values 0..255; of at most 10,000 examples.
        statistics_of: examples behind mean and std.
        class_counts: examples of each class in train; None when streaming.
        targets: where numbers are predicted, in the place of classes and class_counts; see pipelines.outputs.number_scales.
        splits: for each split its examples, fingerprint and examples of each class.

    Raises:
        DataError: names file and remedy.
    """
    data = experiment.data
    if data.streaming:
        from vision.data.streaming import stream_images

        return stream_images(data)
    numbers = NumberColumns.asked(experiment)
    opened = open_data(data, numbers)
    skipped = list(opened.skipped)
    load = opened.load if data.on_bad_example == "stop" else only_readable(opened, data, skipped)
    if numbers:
        load = without_targets_left_out(load, numbers.names, opened.notes)
    train, validation, test, notes = divide(opened.names, not_empty(load, opened.place), data, opened.place)
    classes = opened.classes
    parts = {"train": train, "validation": validation, "test": test}
    check_classes(parts, classes, opened.place)
    if data.labels == "many":
        train, validation, test, classes = of_trained_labels(train, validation, test, opened, data, skipped)
        parts = {"train": train, "validation": validation, "test": test}
    elif not judging and not numbers:
        check_several(classes if train.labels is None else [classes[label] for label in np.unique(train.labels)], opened.place,
                      labels=train.labels if data.limit is None else None)
    some = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics", labels=train.labels)
    size, channels, mean, std = cached_look(train, some, data, opened.place, mixed_size)
    facts: dict[str, Any] = {
        "image_size": list(size), "channels": channels, "mean": mean, "std": std, "statistics_of": len(some),
        "splits": describe(parts, classes),
    }
    if numbers and not judging:
        facts["targets"], remarks = number_scales.learn(train, numbers.names, experiment.target)  # type: ignore[attr-defined]
        notes += remarks
    elif not numbers:
        counts = class_counts(train, len(classes))
        facts = {"classes": classes, "class_counts": None if counts is None else counts.tolist(), **facts}
    return Splits(train=train, validation=validation, test=test, facts=facts, skipped=tuple(skipped), notes=(*opened.notes, *notes))


def not_empty(load: Callable[[str], Source], place: str) -> Callable[[str], Source]:
    """`load` with a DataError for a split that holds nothing."""

    def loaded(split: str) -> Source:
        source = load(split)
        if not len(source):
            raise DataError(f"{place}: split {split} has no example that can be read")
        return source

    return loaded


def only_readable(opened: Opened, data: ImageData, skipped: list[str]) -> Callable[[str], Source]:
    """`opened.load` without the examples that cannot be read, which are named in `skipped`."""

    def loaded(split: str) -> Source:
        source = opened.load(split)
        return without(source, _cached_bad(source, data), skipped, data, f"{opened.place}: split {split}")

    return loaded


def _cached_bad(source: Source, data: ImageData) -> list[tuple[int, str]]:
    """`find_bad`, which decodes everything, once for the same data: the result is kept in the cache folder.

    Files that could not be read at all (no permission, a missing network folder) are tried again each time.
    """
    if source.spec["image"].dtype != tf.string:
        return []
    folder = cache_folder(data)
    what = f"{source.fingerprint()} {source.stamp()} {len(source)} {data.max_pixels} by content, tensorflow {tf.__version__}"
    digest = hashlib.sha256(what.encode()).hexdigest()[:24]
    kept = folder / f"unreadable-{digest}.json"
    try:
        stored = parse_json(kept.read_text(encoding="utf-8"))
        by_content = [(int(number), str(reason)) for number, reason in stored["content"]]
        again = [int(number) for number in stored["again"]]
    except (OSError, ValueError, TypeError, KeyError):
        bad = find_bad(source, data.workers, data.max_pixels)
        again = [number for number, _ in bad if not is_there(source, number)]
        with contextlib.suppress(OSError):  # then the next run searches again
            write_json(kept, {"content": [one for one in bad if one[0] not in again], "again": again})
        return bad
    still = find_bad(source.subset(again), data.workers, data.max_pixels) if again else []
    return sorted([*by_content, *((again[place], reason) for place, reason in still)])


class Look(Record):
    """What is kept of the images of train."""

    size: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)]
    channels: Literal[1, 3]
    mean: list[float]
    std: list[float]


def cached_look(train: Source, numbers: np.ndarray, data: ImageData, place: str, mixed_size: tuple[int, int] | None,
                 ) -> tuple[tuple[int, int], int, list[float], list[float]]:
    """(size, channels, mean, standard deviation) of train, as `image_shape` and `statistics` find them; of files they are kept in the cache
    folder, so that those are not opened again at each start."""
    if not isinstance(origin(train)[0], FileSource):
        size, channels = image_shape(train, data, place, mixed_size)
        return (size, channels, *statistics(train, numbers, size, channels, data))
    what = [train.fingerprint(), train.stamp(), len(train), hashlib.sha256(numbers.tobytes()).hexdigest(), data.image_size, data.channels,
            data.resize, data.max_pixels, mixed_size, tf.__version__]
    kept = cache_folder(data) / f"images-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]}.json"
    with contextlib.suppress(QuartetError):
        look = stored.read(kept, Look)
        return (look.size[0], look.size[1]), look.channels, look.mean, look.std
    size, channels = image_shape(train, data, place, mixed_size)
    mean, std = statistics(train, numbers, size, channels, data)
    with contextlib.suppress(OSError):  # then the next start looks again
        write_json(kept, {"size": list(size), "channels": channels, "mean": mean, "std": std})
    return size, channels, mean, std


def image_shape(train: Source, data: ImageData, place: str, mixed_size: tuple[int, int] | None = None) -> tuple[tuple[int, int], int]:
    """((height, width), channels) that the model sees: as set, else as the examples of train are, or `mixed_size` where those differ.

    Raises:
        DataError: the images differ in size, and neither data.image_size nor `mixed_size` is set.
    """
    spec = train.spec["image"]
    wanted = data.image_size
    size = None if wanted is None else (wanted, wanted) if isinstance(wanted, int) else (wanted[0], wanted[1])
    if spec.dtype != tf.string:
        height, width, channels = spec.shape.as_list()
        return size or (height, width), data.channels or channels
    if size and data.channels:
        return size, data.channels
    first, colour = None, False
    for number, header in enumerate(_headers(train)):
        if header is None:  # broken, and reported where it is decoded
            continue
        if first is None:
            first = (number, header)
        elif size is None and header[:2] != first[1][:2] and mixed_size:
            size = mixed_size
        elif size is None and header[:2] != first[1][:2]:
            (height, width, _), other = first[1], train.name(first[0])
            raise DataError(f"{place}: the images differ in size ({other} is {height} x {width} px, {train.name(number)} "
                            f"{header[0]} x {header[1]}); set data.image_size, such as 64 or [48, 64] (height, width)")
        colour = colour or header[2] == 3
        if size and colour:
            break
    if first is None:
        raise DataError(f"{place}: not one of {len(train):,} files is an image, such as {train.name(0)}; `quartet check` says why")
    return size or first[1][:2], data.channels or (3 if colour else 1)


def _headers(source: Source) -> Iterator[tuple[int, int, int] | None]:
    """(height, width, channels) of each encoded image, in order, read ahead in threads."""
    base, numbers = origin(source)
    if not isinstance(base, FileSource):
        for start in range(0, len(numbers), CHUNK):
            for content in base.gather(tf.constant(numbers[start:start + CHUNK], tf.int64))["image"].numpy():
                yield stored_header(content)
        return
    with ThreadPoolExecutor(8) as threads:
        for start in range(0, len(numbers), CHUNK):
            yield from threads.map(file_header, [base.paths[number] for number in numbers[start:start + CHUNK]])


def file_header(path: str) -> tuple[int, int, int] | None:
    try:
        with open(path, "rb") as file:
            start = file.read(START)
            header = stored_header(start)
            if header is None and len(start) == START:
                header = stored_header(start + file.read(ENOUGH))
            return header
    except OSError:
        return None


def statistics(source: Source, numbers: np.ndarray, size: tuple[int, int], channels: int, data: ImageData,
               ) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel over examples `numbers`, as the model sees them, 0..255; exact sums.

    Raises:
        DataError: an example that cannot be read, by name.
    """
    spec = source.spec["image"]
    plain = spec.dtype == tf.uint8 and tuple(spec.shape) == (*size, channels)
    decoded = tf.TensorSpec((*size, channels), tf.uint8)

    def sums(part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = source.gather(part)["image"]
        if not plain:
            decode = partial(decode_image, size=size, channels=channels, resize=data.resize, max_pixels=data.max_pixels)
            images = tf.map_fn(decode, images, fn_output_signature=decoded)
        wide = tf.cast(images, tf.int64)
        return tf.reduce_sum(wide, [0, 1, 2]), tf.reduce_sum(wide * wide, [0, 1, 2])

    chunk = CHUNK if plain else 16
    dataset = mapped(tf.data.Dataset.from_tensor_slices(numbers).batch(chunk), sums, tf.data.AUTOTUNE)
    total, squares = [0] * channels, [0] * channels
    try:
        for first, second in dataset:
            total = [have + int(more) for have, more in zip(total, first.numpy())]
            squares = [have + int(more) for have, more in zip(squares, second.numpy())]
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise unreadable(source, numbers, error, data.max_pixels) from error
    count = len(numbers) * size[0] * size[1]
    mean = [value / count for value in total]
    return mean, [max(0, count * square - value * value) ** 0.5 / count for value, square in zip(total, squares)]


def unreadable(source: Source, numbers: np.ndarray, error: Exception, max_pixels: int) -> DataError:
    """The error that names the first of `numbers` that cannot be read, and why."""
    bad = examine(source.subset(numbers), max_pixels=max_pixels).bad if source.spec["image"].dtype == tf.string else []
    if not bad:
        return DataError(f"the images cannot be read: {error}")
    number, why = bad[0]
    more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
    return DataError(f"{source.name(int(numbers[number]))}: {why}{more}. Repair or remove it, or set data.on_bad_example: skip; "
                     "`quartet check` lists all such examples.")
