"""The cheap model beside one of instances: what stands out from the ground of its picture, each connected part a thing."""

from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.data.split import choose
from pipelines.task.contract import Features
from pipelines.task.results import Baseline
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.data.instances import things

EXAMPLES = 100  # of train that say whether things are brighter than the ground, and how small they may be
SMALL = 0.01  # quantile of the areas of things below which a part is none


def fitted(output: Any, train: Source, features: Features) -> Baseline | None:
    """Parts beyond the threshold of Otsu (1979), of the side of it on which the things of train lie; the class is the most frequent one."""
    some = train.subset(choose(EXAMPLES, count=len(train), seed=0, purpose="baseline")) if len(train) > EXAMPLES else train
    grey, targets = features(some, lambda images: tf.cast(tf.reduce_mean(images, -1), tf.uint8))
    true = targets[THINGS]
    if not (true > 0).any() or (true > 0).all():
        return None
    bright = bool(grey[true > 0].mean() > grey[true == 0].mean())
    areas = np.concatenate([np.bincount(one.ravel())[1:] for one in true])
    least = float(np.quantile(areas[areas > 0], SMALL))
    label = int(np.argmax(np.bincount(targets[CLASSES][targets[CLASSES] >= 0])))
    most = output.experiment.evaluate.boxes

    def found(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        each = [_parts(image, bright, least, most) for image in images]
        boxes = np.zeros((len(each), most, 4), np.float32)
        for place, one in enumerate(each):
            own = things.boxes_of(one)
            boxes[place, :len(own)] = own
        return boxes, (boxes[..., 2] > boxes[..., 0]).astype(np.float32), np.stack(each).astype(np.int32)

    def answer(images: tf.Tensor) -> Tensors:
        boxes, scores, numbers = tf.numpy_function(found, [tf.reduce_mean(images, -1)], (tf.float32, tf.float32, tf.int32), stateful=False)
        return {BOXES: tf.ensure_shape(boxes, [None, most, 4]), "scores": tf.ensure_shape(scores, [None, most]),
                CLASSES: tf.fill(tf.shape(scores), label), THINGS: numbers}

    return Baseline("connected parts beyond Otsu's threshold", answer=answer)


def _parts(image: np.ndarray, bright: bool, least: float, most: int) -> np.ndarray:
    """The `most` largest connected parts, [height, width] uint16."""
    from scipy import ndimage

    limit = _otsu(image)
    numbers, _ = ndimage.label(image > limit if bright else image <= limit)
    areas = np.bincount(numbers.ravel())[1:]
    large = areas >= max(least, np.sort(areas)[-most] if len(areas) > most else 0)
    large &= np.cumsum(large) <= most  # of equal areas
    return things.keep_things(numbers, large)


def _otsu(image: np.ndarray) -> float:
    """The grey level whose two sides differ most (Otsu 1979)."""
    counts = np.bincount(np.clip(image, 0, 255).astype(np.int64).ravel(), minlength=256).astype(np.float64)
    below, levels = np.cumsum(counts), np.arange(256)
    sums = np.cumsum(counts * levels)
    above = below[-1] - below
    between = (sums * below[-1] - below * sums[-1]) ** 2 / np.maximum(below * above, 1)
    return float(np.argmax(np.where((below > 0) & (above > 0), between, -1)))
