"""How many pixels an image may have: read from its header, before anything is decoded. In graph, so that it stands in the saved model too.

A JPEG of a few megabytes, or a PNG of a few hundred kilobytes, can hold billions of pixels.
"""

import tensorflow as tf

from vision.settings import MAX_PIXELS as MAX_PIXELS

TOO_MANY = "pixels are allowed (data.max_pixels)"  # in every such message


def limited(image: tf.Tensor, area: tf.Tensor, most: int) -> tf.Tensor:
    """`image`, after its `area` (px, int64 scalar) was checked.

    Raises:
        tf.errors.InvalidArgumentError: more than `most` pixels.
    """
    check = tf.debugging.Assert(area <= most, [f"the image is too large: {most:,} {TOO_MANY}"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(image)


def jpeg_area(image: tf.Tensor) -> tf.Tensor:
    """Pixels of a JPEG file."""
    shape = tf.cast(tf.io.extract_jpeg_shape(image), tf.int64)
    return shape[0] * shape[1]


def png_area(head: tf.Tensor) -> tf.Tensor:
    """Pixels of a PNG file from its first 32 bytes, uint8; likewise the others."""
    return _big(head, 16) * _big(head, 20)


def gif_area(head: tf.Tensor) -> tf.Tensor:
    """Of the screen, on which the frames are drawn."""
    return _little(head, 6, 2) * _little(head, 8, 2)


def bmp_area(head: tf.Tensor) -> tf.Tensor:
    """The height may be negative: rows from the top."""
    height = _little(head, 22, 4)
    return _little(head, 18, 4) * tf.minimum(height, (1 << 32) - height)


def webp_area(head: tf.Tensor) -> tf.Tensor:
    """Of extended, lossless and lossy files."""
    bits = _little(head, 21, 4)
    extended = (1 + _little(head, 24, 3)) * (1 + _little(head, 27, 3))
    lossless = (1 + bits % (1 << 14)) * (1 + (bits // (1 << 14)) % (1 << 14))
    lossy = (_little(head, 26, 2) % (1 << 14)) * (_little(head, 28, 2) % (1 << 14))
    kind = head[15]  # the last letter of "VP8X", "VP8L", "VP8 "
    return tf.where(kind == ord("X"), extended, tf.where(kind == ord("L"), lossless, lossy))


def _little(head: tf.Tensor, at: int, size: int) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(head[at:at + size], tf.int64) * tf.constant([256**place for place in range(size)], tf.int64))


def _big(head: tf.Tensor, at: int) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(head[at:at + 4], tf.int64) * tf.constant([1 << 24, 1 << 16, 1 << 8, 1], tf.int64))
