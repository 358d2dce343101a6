"""A task of somebody's own with answers at every pixel: which are bright. A mask and a box for each picture, from arrays."""

from typing import Literal

import keras
import numpy as np
import tensorflow as tf

import quartet


class Bright(quartet.Experiment):
    """The bright pixels of each picture."""

    task: Literal["mine.bright"]


class Pictures(quartet.Input):
    def splits(self) -> quartet.Splits:
        rng = np.random.default_rng(0)
        mask = np.zeros((120, 12, 12), np.uint8)
        for one, (row, column) in zip(mask, rng.integers(0, 6, (120, 2))):
            one[row:row + 5, column:column + 4] = 1
        image = np.clip(rng.normal(80 + 90 * mask, 30), 0, 255).astype(np.uint8)
        return self.divided(quartet.ArraySource({"image": image, "mask": mask}), "the pictures")

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"image": tf.TensorSpec([None, 12, 12], tf.uint8)}


def iou(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


class Masks(quartet.Output):
    watch = ("iou", "max")
    answers = quartet.Answers({"mask": "the bright pixels", "boxes": "around them", "count": "of boxes"},
                              ranked=("boxes",), kinds={"mask": "mask", "boxes": "boxes"})

    @property
    def statistics(self):
        return {"iou": iou}

    def loss(self, outputs, targets, training):
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(targets, tf.float32), outputs)
        return tf.reduce_sum(losses, [1, 2]), tf.fill([tf.shape(outputs)[0]], 144.0)

    def scores(self, outputs, targets):
        given, true = outputs > 0, targets > 0
        sizes = [tf.reduce_sum(tf.cast(one, tf.float32), [1, 2]) for one in (given & true, given | true)]
        return {"iou": tf.stack(sizes, 1)}

    def respond(self, answers):
        bright = answers["answer"] > 0
        rows, columns = (tf.cast(tf.reduce_any(bright, axis), tf.int32) for axis in (2, 1))
        left, top = (tf.argmax(one, 1, tf.int32) for one in (columns, rows))
        right, bottom = (12 - tf.argmax(one[:, ::-1], 1, tf.int32) for one in (columns, rows))
        pictures = tf.map_fn(tf.io.encode_png, tf.cast(bright, tf.uint8)[..., None] * 255, fn_output_signature=tf.string)
        return {"mask": pictures, "boxes": tf.stack([left, top, right, bottom], 1)[:, None],
                "count": tf.cast(tf.reduce_any(bright, [1, 2]), tf.int32)}

    def baseline(self, train, features):
        """Every pixel that is brighter than the middle of the range."""
        return quartet.Baseline("brighter than grey", answer=lambda images: tf.cast(images, tf.float32) - 127.5)


@quartet.register_task(Bright)
class BrightTask(quartet.Task):
    input_class, output_class = Pictures, Masks

    def model(self) -> keras.Model:
        layers = [keras.Input((12, 12)), keras.layers.Rescaling(1 / 64, -2.0), keras.layers.Reshape((12, 12, 1)),
                  keras.layers.Conv2D(8, 5, padding="same", activation="relu"), keras.layers.Conv2D(1, 1, dtype="float32"),
                  keras.layers.Reshape((12, 12), dtype="float32")]
        return keras.Sequential(layers)
