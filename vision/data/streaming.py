"""Images streamed from prepared TFDS shards, for data sets that cannot be read by number."""

from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.divide import POOL_TEST, POOL_VALIDATION, check_several, find
from pipelines.data.mapping import mapped
from pipelines.data.reasons import reason as words
from pipelines.data.stream import StreamSource
from pipelines.data.tfds import prepared
from pipelines.task.contract import Splits
from vision.data.decode import decode_image
from vision.settings import ImageData

PEEKED = 32  # examples of each of three shards whose label is checked before training
STREAMED = " is streamed: shuffled within a window, not as a whole"
STATISTICS = 2_000  # examples of train behind mean and deviation


def stream_images(data: ImageData) -> Splits:
    """The splits of a streamed experiment; facts as vision.data.splits.load_images, with class_counts None (labels are not read ahead).

    Shares for validation and test are cut off the end of train in stored order (TFDS shuffles when it prepares), not stratified.

    Raises:
        DataError: as TfdsSource; no image_size where the data have no single one; a setting that needs reading by number.
    """
    builder = prepared(data.name or "", data.data_dir)
    place, there = builder.info.full_name, sorted(builder.info.splits)
    for setting in ("group_by", "limit"):
        if getattr(data, setting) is not None:
            raise DataError(f"data.{setting} needs data read by number; set data.streaming: false, or data.{setting}: null")
    if data.on_bad_example == "skip":
        raise DataError("data.on_bad_example: skip needs data read by number; set data.streaming: false, or on_bad_example: stop")
    if "train" not in there:
        raise DataError(f"{place} has no split 'train'; there are: {', '.join(there)}")
    last = total = builder.info.splits["train"].num_examples
    notes: list[str] = [f"{place}{STREAMED}"]
    names: dict[str, str] = {}
    for part, value, share in (("test", data.test, POOL_TEST), ("validation", data.validation, POOL_VALIDATION)):
        if value == part and find(part, there) is None:
            value = share
        if isinstance(value, str):
            name = find(value, there)
            if name is None:
                raise DataError(f"data.{part}: {value}: {place} has no such split; there are: {', '.join(there)}")
            names[part] = name
        elif value:
            size = max(1, round(last * value))
            names[part] = f"train[{last - size}:{last}]"
            notes.append(f"{part}: the last {size:,} of {last:,} examples of train as stored, not stratified")
            last -= size
    names["train"] = "train" if last == total else f"train[:{last}]"
    fields = {"image": data.image_key, "label": str(data.label_key)}
    sources = {part: StreamSource(data.name or "", name, fields=fields, data_dir=data.data_dir) for part, name in names.items()}
    train = sources["train"]
    classes = train.class_names("label")
    if not classes:
        raise DataError(f"{place}: feature {data.label_key} names no classes; streaming needs a ClassLabel feature")
    check_several(classes, place)
    for source in sources.values():
        _labelled(source, len(classes))
    height, width, stored = train.shape("image")
    wanted = data.image_size
    if wanted is None and (height is None or width is None):
        raise DataError(f"{place}: the images differ in size; set data.image_size, such as 224")
    both = [wanted, wanted] if isinstance(wanted, int) else wanted or [int(height or 0), int(width or 0)]
    size = (both[0], both[1])
    channels = data.channels or (1 if stored == 1 else 3)
    mean, std, count = _statistics(train, data, size, channels)
    facts: dict[str, Any] = {
        "classes": classes, "image_size": list(size), "channels": channels, "mean": mean, "std": std, "statistics_of": count,
        "class_counts": None,
        "splits": {part: {"examples": len(source), "fingerprint": source.fingerprint()} for part, source in sources.items()},
    }
    validation, test = sources.get("validation"), sources.get("test")
    return Splits(train=train, validation=validation, test=test, facts=facts, notes=tuple(notes))  # type: ignore[arg-type]


def _labelled(source: StreamSource, classes: int) -> None:
    """Raises DataError for a split without labels, as the test split of many a challenge is: of some examples the label is looked at."""
    for number, example in enumerate(source.peek(PEEKED)):
        label = int(example["label"])
        if not 0 <= label < classes:
            raise DataError(f"{source.title()} has no labels: one of its examples (the {number + 1}. of those looked at) has {label}; it "
                            "cannot be learned from or judged. Set data.test (or data.validation) to a split with labels, or to a share "
                            "such as 0.1 of train; data.test: null for none")


def _statistics(train: StreamSource, data: ImageData, size: tuple[int, int], channels: int) -> tuple[list[float], list[float], int]:
    def sums(example: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        wide = tf.cast(decode_image(example["image"], size, channels, data.resize, max_pixels=data.max_pixels), tf.int64)
        return tf.reduce_sum(wide, [0, 1]), tf.reduce_sum(wide * wide, [0, 1])

    dataset = mapped(train.dataset(data.split_seed).take(STATISTICS), sums, tf.data.AUTOTUNE)
    total, squares, count = np.zeros(channels, np.int64), np.zeros(channels, np.int64), 0
    try:
        for first, second in dataset:
            total, squares, count = total + first.numpy(), squares + second.numpy(), count + 1
    except tf.errors.OpError as error:
        raise DataError(f"{train.title()}: an example cannot be read: {words(error)}") from error
    pixels = count * size[0] * size[1]
    mean = total / pixels
    return mean.tolist(), np.sqrt(np.maximum(squares / pixels - mean * mean, 0)).tolist(), count
