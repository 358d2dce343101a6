"""RandAugment (Cubuk et al. 2020) of whole batches, in graph; what happens to an image depends on its own key alone.

Keras' layer draws one operation for the whole batch from a stateful generator and computes all eleven to keep one. Here each
image draws its own; the operations on values alone share one table look-up, the geometric ones one affine transform.
"""

import math

import tensorflow as tf

from pipelines.data import draws

# the paper's fourteen
OPERATIONS = ("identity", "auto_contrast", "equalize", "rotate", "solarize", "colour", "posterize", "contrast", "brightness", "sharpness",
              "shear_x", "shear_y", "translate_x", "translate_y")
DRAWS = 2  # of a key for each operation: which one, and its sign


def rand_augment(images: tf.Tensor, keys: tf.Tensor, *, operations: int, magnitude: float, stream: int) -> tf.Tensor:
    """Applies to each image `operations` of OPERATIONS, drawn independently, at one strength with a random sign. In graph.

    Full strength is 30 degrees, a shear of 0.3, a move by 0.3 of the size, a factor of 0.1 or 1.9 in colour, contrast,
    brightness and sharpness, 4 of 8 bits kept, and inversion of all values. What a transform uncovers is grey (128).

    Args:
        images: [batch, height, width, channels] float32, 0..255.
        keys: int32 [batch, 2].
        operations: their number, applied in sequence.
        magnitude: strength, 0 to 1.
        stream: the first of `operations * DRAWS` draws of the keys that are used.

    Returns:
        tf.Tensor: as images.
    """
    for turn in range(operations):
        operation = draws.integers(keys, stream + turn * DRAWS, 0, len(OPERATIONS) - 1)
        sign = tf.cast(draws.integers(keys, stream + turn * DRAWS + 1, 0, 1) * 2 - 1, tf.float32)
        images = apply(images, operation, sign * magnitude)
    return images


def apply(images: tf.Tensor, operation: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """One operation on each image.

    Args:
        images: [batch, height, width, channels] float32, 0..255.
        operation: [batch] int32, a position in OPERATIONS.
        strength: [batch] float32, -1 to 1; solarize and posterize take its magnitude.

    Returns:
        tf.Tensor: as images.
    """
    chosen = {name: tf.equal(operation, number) for number, name in enumerate(OPERATIONS)}
    return _blend(_look_up(_transform(images, chosen, strength), chosen, strength), chosen, strength)


def _pick(chosen: dict[str, tf.Tensor], values: dict[str, tf.Tensor], otherwise: tf.Tensor) -> tf.Tensor:
    """The value of the chosen operation for each image, [batch, ...]."""
    result = otherwise
    for name, value in values.items():
        result = tf.where(tf.reshape(chosen[name], [-1] + [1] * (result.shape.rank - 1)), value, result)
    return result


def _transform(images: tf.Tensor, chosen: dict[str, tf.Tensor], strength: tf.Tensor) -> tf.Tensor:
    """Rotation, shear and translation: the affine map from output to input pixels, about the centre."""
    height, width = float(images.shape[1]), float(images.shape[2])
    zero = tf.zeros_like(strength)
    angle = tf.where(chosen["rotate"], strength * math.radians(30.0), zero)
    shear_x, shear_y = (tf.where(chosen[f"shear_{axis}"], 0.3 * strength, zero) for axis in "xy")
    move_x = tf.where(chosen["translate_x"], 0.3 * strength * width, zero)
    move_y = tf.where(chosen["translate_y"], 0.3 * strength * height, zero)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    a, b, c, d = cosine, shear_x - sine, shear_y + sine, cosine  # only one differs from the identity
    middle_x, middle_y = (width - 1.0) / 2.0, (height - 1.0) / 2.0
    shift_x = middle_x - a * middle_x - b * middle_y + move_x
    shift_y = middle_y - c * middle_x - d * middle_y + move_y
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images, transforms=tf.stack([a, b, shift_x, c, d, shift_y, zero, zero], axis=1), output_shape=tf.shape(images)[1:3],
        fill_value=128.0, interpolation="BILINEAR", fill_mode="CONSTANT")


def _look_up(images: tf.Tensor, chosen: dict[str, tf.Tensor], strength: tf.Tensor) -> tf.Tensor:
    """The operations that map each value to another one, by a table of 256 for each image and channel."""
    batch: tf.Tensor = tf.shape(images)[0]
    height, width, channels = (int(size) for size in images.shape[1:])
    levels = tf.cast(tf.round(tf.clip_by_value(images, 0.0, 255.0)), tf.int32)
    tables = tf.range(batch * channels)  # one for each image and channel
    places = levels + 256 * tf.reshape(tables, [batch, 1, 1, channels])
    values = tf.range(256, dtype=tf.float32)[None, None]
    factor = (1.0 + 0.9 * strength)[:, None, None]
    size = tf.abs(strength)[:, None, None]

    counts = tf.math.unsorted_segment_sum(tf.ones([tf.size(places)]), tf.reshape(places, [-1]), batch * channels * 256)
    counts = tf.reshape(counts, [batch, channels, 256])
    low, high = (tf.cast(reduce(levels, axis=[1, 2]), tf.float32)[..., None] for reduce in (tf.reduce_min, tf.reduce_max))
    # as Pillow: the share of pixels below each value, leaving out the last occupied one
    last = tf.gather(tf.reshape(counts, [-1]), 256 * tables + tf.reshape(tf.cast(high, tf.int32), [-1]))
    step = tf.floor((height * width - tf.reshape(last, [batch, channels, 1])) / 255.0)
    equal = tf.floor((tf.cumsum(counts, axis=2, exclusive=True) + tf.floor(step / 2.0)) / tf.maximum(step, 1.0))
    grey = tf.reduce_mean(_grey(images), axis=[1, 2])[..., None]
    coarse = tf.pow(2.0, tf.round(4.0 * size))
    table = _pick(chosen, {
        "auto_contrast": tf.where(high > low, (values - low) * 255.0 / tf.maximum(high - low, 1.0), values),
        "equalize": tf.where(step > 0.0, equal, values),
        "solarize": tf.where(values >= 256.0 * (1.0 - size), 255.0 - values, values),
        "posterize": tf.floor(values / coarse) * coarse,
        "contrast": grey + factor * (values - grey),
        "brightness": factor * values,
    }, tf.tile(values, [batch, channels, 1]))
    return tf.gather(tf.reshape(tf.clip_by_value(table, 0.0, 255.0), [-1]), places)


def _blend(images: tf.Tensor, chosen: dict[str, tf.Tensor], strength: tf.Tensor) -> tf.Tensor:
    """Colour and sharpness: away from, or towards, the grey and the smoothed image."""
    channels = images.shape[-1]
    smooth = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32) / 13.0
    kernel = tf.tile(smooth[:, :, None, None], [1, 1, channels, 1])
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    blurred = tf.nn.depthwise_conv2d(padded, kernel, [1, 1, 1, 1], "VALID")
    plain = _pick(chosen, {"colour": tf.broadcast_to(_grey(images), tf.shape(images)), "sharpness": blurred}, images)
    return tf.clip_by_value(plain + (1.0 + 0.9 * strength)[:, None, None, None] * (images - plain), 0.0, 255.0)


def _grey(images: tf.Tensor) -> tf.Tensor:
    """Luma (ITU-R BT.601), [batch, height, width, 1]."""
    if images.shape[-1] == 1:
        return images
    return tf.tensordot(images, tf.constant([[0.299], [0.587], [0.114]]), 1)
