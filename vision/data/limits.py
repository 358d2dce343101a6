"""What decoding an image may cost: how many pixels it may have, read from its header before anything is decoded, and what a file carries
beside them. In graph, so that it is part of the saved model too.

A JPEG of a few megabytes, or a PNG of a few hundred kilobytes, can hold billions of pixels; or gigabytes of compressed text, which the
decoder would unpack and keep.
"""

from typing import Any

import tensorflow as tf

from vision.settings import MAX_PIXELS as MAX_PIXELS

SCANS = 20  # times the pixels of an image that all scans of a progressive JPEG may have: cameras and editors write about 10
MOST_SCANS = 1000  # that are counted
TEXT = b"TXt"  # in the names of a PNG file's chunks of text that may be compressed, zTXt and iTXt, each of up to 8 MB
TEXTS = 4  # of them that are unpacked: 0.2 s and 40 MB
CHUNKS = 10_000  # of a PNG file with more texts
FRAMES = 4  # times the pixels of an image that all frames of a GIF may have, at a byte each
WALKED = 1 << 20  # bytes of a GIF from which on all of its blocks are counted: of one byte each they cost 40 times as much memory
BLOCKS = 20_000  # of a GIF: 1 s; full ones in a row count as 64
TOO_MANY = "pixels are allowed (data.max_pixels)"  # in every such message


def limited(image: tf.Tensor, area: tf.Tensor, most: int) -> tf.Tensor:
    """`image`, with a check of its `area` (px, int64 scalar).

    Raises:
        tf.errors.InvalidArgumentError: more than `most` pixels.
    """
    check = tf.debugging.Assert(area <= most, [f"the image is too large: {most:,} {TOO_MANY}"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(image)


def jpeg_area(image: tf.Tensor) -> tf.Tensor:
    """Pixels of a JPEG file, or of all its scans as time counts them: each, of a few bytes, makes the decoder visit every pixel."""
    shape = tf.cast(tf.io.extract_jpeg_shape(image), tf.int64)
    scans = tf.cast(_count(image, b"\xff\xda", MOST_SCANS), tf.int64)  # each begins so, and nothing else within one may
    return tf.where(scans < MOST_SCANS, shape[0] * shape[1] * tf.maximum(scans, SCANS) // SCANS, tf.int64.max)


def _count(image: tf.Tensor, part: bytes, most: int) -> tf.Tensor:
    """How often a part occurs in the bytes of a file, int32, `most` times at most."""
    return tf.size(tf.raw_ops.StringSplitV2(input=image[None], sep=part, maxsplit=most).values) - 1


def png_area(head: tf.Tensor) -> tf.Tensor:
    """Pixels of a PNG file from its first 32 bytes, uint8; likewise the others."""
    return _big(head, 16) * _big(head, 20)


def without_texts(image: tf.Tensor) -> tf.Tensor:
    """A PNG file without its texts, where it has more than TEXTS; nothing else of it is changed.

    Raises:
        tf.errors.InvalidArgumentError: such a file of over CHUNKS chunks.
    """
    return tf.cond(_count(image, TEXT, TEXTS + 1) > TEXTS, lambda: _without_texts(image), lambda: image)


def _without_texts(image: tf.Tensor) -> tf.Tensor:
    size = tf.strings.length(image)

    def step(at: tf.Tensor, start: tf.Tensor, number: tf.Tensor, kept: tf.TensorArray) -> tuple[Any, ...]:
        """At a chunk; what stands between `start` and it is kept."""
        head = tf.io.decode_raw(tf.strings.substr(image, at, 8), tf.uint8, fixed_length=8)
        text = tf.reduce_all(head[5:] == tf.constant(list(TEXT), tf.uint8))
        end = tf.cast(tf.minimum(tf.cast(at, tf.int64) + 12 + _big(head, 0), tf.cast(size, tf.int64)), tf.int32)
        kept = kept.write(number, tf.where(text, tf.strings.substr(image, start, at - start), b""))
        return end, tf.where(text, end, start), number + 1, kept

    zero, pieces = tf.constant(0), tf.TensorArray(tf.string, 0, dynamic_size=True, element_shape=[])
    _, start, number, kept = tf.while_loop(lambda at, start, number, kept: (at < size) & (number < CHUNKS), step,
                                           [tf.minimum(8, size), zero, zero, pieces])
    check = tf.debugging.Assert(number < CHUNKS, [f"over {CHUNKS:,} chunks with over {TEXTS} texts make the PNG file; save it without"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.strings.join([tf.strings.reduce_join(kept.stack()), tf.strings.substr(image, start, size - start)])


def gif_area(image: tf.Tensor, head: tf.Tensor, most: int) -> tf.Tensor:
    """Pixels of the screen or the largest frame, or of all frames as memory counts them, since the decoder reads every one.

    Each frame states its own size, which need not fit the screen. Of a small file the bytes that may be its header are looked at; where
    they say too much, and in a file of over WALKED bytes, it is read block by block.

    Raises:
        tf.errors.InvalidArgumentError: such a file of over BLOCKS blocks; the decoder keeps each one that is no frame's.
    """
    data = tf.io.decode_raw(tf.strings.join([image, b"\0" * 16]), tf.uint8)
    first = 13 + _colours(head[10])
    suspicious = tf.cond(tf.size(data) > WALKED, lambda: tf.constant(True), lambda: _suspicious(data, first, most))
    frames = tf.cond(suspicious, lambda: _walked(data, first), lambda: tf.constant(0, tf.int64))
    return tf.maximum(_little(head, 6, 2) * _little(head, 8, 2), frames)


def _suspicious(data: tf.Tensor, first: tf.Tensor, most: int) -> tf.Tensor:
    """Whether frames may be too large, or too many: a frame's header follows a byte of 0, or comes first."""
    marks = data[:-15] == 0x2C
    beginning = tf.minimum(first, tf.size(marks, tf.int64) - 1)[None]
    at = tf.concat([1 + tf.where(marks[1:] & (data[:-16] == 0))[:, 0], tf.boolean_mask(beginning, tf.gather(marks, beginning))], 0)
    sizes = tf.cast(tf.gather(data, at[:, None] + tf.range(5, 9, dtype=tf.int64)), tf.int64)
    areas = (sizes[:, 0] + 256 * sizes[:, 1]) * (sizes[:, 2] + 256 * sizes[:, 3])
    return (tf.reduce_max(tf.concat([areas, [0]], 0)) > most) | (tf.reduce_sum(areas) > FRAMES * most)


def _walked(data: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """The largest frame's area, or the share of all that counts, of a GIF file's bytes (uint8, 16 zeros behind them)."""
    last = tf.size(data, tf.int64) - 16
    following = tf.range(0, 64 * 256, 256, dtype=tf.int64)  # where the blocks of a frame begin, of which all but the last have 255 bytes

    def step(at: tf.Tensor, inside: tf.Tensor, going: tf.Tensor, number: tf.Tensor, largest: tf.Tensor, total: tf.Tensor,
             ) -> tuple[tf.Tensor, ...]:
        here = tf.cast(data[at:at + 10], tf.int64)
        frame = ~inside & (here[0] == 0x2C)
        area = tf.where(frame, (here[5] + 256 * here[6]) * (here[7] + 256 * here[8]), 0)
        full = tf.gather(data, tf.minimum(at + following, last)) == 255
        run = 256 * tf.reduce_sum(tf.math.cumprod(tf.cast(full, tf.int64)))
        skip = tf.where(inside, tf.maximum(run, here[0] + 1), tf.where(frame, 11 + _colours(here[9]), 2))
        going = inside | frame | (here[0] == 0x21)
        return tf.minimum(at + skip, last), ~inside | (here[0] > 0), going, number + 1, tf.maximum(largest, area), total + area

    zero, yes = tf.constant(0, tf.int64), tf.constant(True)
    result = tf.while_loop(lambda at, inside, going, number, largest, total: going & (at < last) & (number < BLOCKS), step,
                           [first, ~yes, yes, zero, zero, zero])
    check = tf.debugging.Assert(result[3] < BLOCKS, [f"over {BLOCKS:,} blocks make the GIF file; save it anew, or a frame of it"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.maximum(result[4], result[5] // FRAMES)


def _colours(flags: tf.Tensor) -> tf.Tensor:
    """Bytes of the table of colours that a GIF's flags announce, int64."""
    flags = tf.cast(flags, tf.int64)
    return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(tf.constant(2, tf.int64), flags % 8), 0)


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
