"""Reads stored images once, in parallel, for the size and a fingerprint of each, or why it cannot be read."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pipelines.data.mapping import mapped
from pipelines.data.reasons import broken_image
from pipelines.data.reasons import reason as words
from pipelines.data.source import Source
from vision.data.decode import pixels
from vision.data.headers import image_header
from vision.data.limits import MAX_PIXELS, TOO_MANY

MIX, WORD = 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF  # spreads height and width over 64 bits
OTHERS = ((b"II*\0", "a TIFF image"), (b"MM\0*", "a TIFF image"), (b"\0\0\0\x0cJXL ", "a JPEG XL image"), (b"\xff\x0a", "a JPEG XL image"),
          (b"%PDF", "a PDF file"), (b"PK\3\4", "a zip archive"), (b"8BPS", "a Photoshop image"), (b"<!DO", "an HTML page"),
          (b"<htm", "an HTML page"), (b"<svg", "an SVG image"), (b"<?xml", "an XML file"))
NAMES = ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG", "PNG"), (b"GIF8", "GIF"), (b"BM", "BMP"), (b"RIFF", "WebP"))


STEP = 256  # images between two calls of `progress`


@dataclass
class Examined:
    """Findings by example.

    Attributes:
        heights, widths: [examples] int32, px of the upright image; 0 where it cannot be read.
        fingerprints: [examples] uint64, of size and RGB pixels; two different images share one with probability 5e-20.
        bad: (number, reason) of each that cannot be read, ascending.
    """

    heights: np.ndarray
    widths: np.ndarray
    fingerprints: np.ndarray
    bad: list[tuple[int, str]]


def examine(source: Source, workers: int | None = None, progress: Callable[[int, int], None] | None = None,
            max_pixels: int = MAX_PIXELS) -> Examined:
    """Every example of a source: encoded images are decoded whole, arrays are only fingerprinted.

    Args:
        source: images, `image`.
        workers: parallel decoding calls; default: chosen by tf.data.
        progress: called now and then with (images read, images in all).
        max_pixels: larger images are bad.
    """
    count = len(source)
    result = Examined(np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, np.uint64), [])
    report = progress or (lambda done, of: None)
    if source.spec["image"].dtype != tf.string:
        result.heights[:], result.widths[:] = source.spec["image"].shape[:2]
        for start in range(0, count, STEP):
            report(start, count)
            images = source.gather(tf.range(start, min(start + STEP, count), dtype=tf.int64))["image"]
            prints = tf.raw_ops.Fingerprint(data=tf.reshape(images, [len(images), -1]), method="farmhash64")
            result.fingerprints[start:start + STEP] = prints.numpy().view("<u8")[:, 0]
        report(count, count)
        return result

    def one(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = pixels(source.gather(number[None])["image"][0], 3, max_pixels)
        return tf.shape(image), tf.raw_ops.Fingerprint(data=tf.reshape(image, [1, -1]), method="farmhash64")[0]

    dataset = mapped(tf.data.Dataset.range(count), one, workers or tf.data.AUTOTUNE).prefetch(64)
    iterator = iter(dataset)
    for number in range(count):
        if number % STEP == 0:
            report(number, count)
        try:
            shape, fingerprint = next(iterator)
        # the iterator continues with the next; TensorFlow's message may quote bytes that Python cannot decode
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            result.bad.append((number, reason(source, number, error)))
            continue
        height, width = shape.numpy()[:2]
        result.heights[number], result.widths[number] = height, width
        # the size is part of it: the same bytes in another shape are another image
        result.fingerprints[number] = fingerprint.numpy().view("<u8")[0] ^ np.uint64((int(height) << 32 | int(width)) * MIX & WORD)
    report(count, count)
    return result


def _cause(error: Exception) -> str:
    # tf.data puts the place in the pipeline before the cause
    return re.sub(r"^Error in user-defined function .*? with iterator: \S+: ", "", words(error)).rstrip(".")


def find_bad(source: Source, workers: int | None = None, max_pixels: int = MAX_PIXELS) -> list[tuple[int, str]]:
    """(number, reason) of every example that cannot be read, ascending. Arrays in memory have none."""
    return [] if source.spec["image"].dtype != tf.string else examine(source, workers, max_pixels=max_pixels).bad


def is_there(source: Source, number: int) -> bool:
    """Whether an example's bytes can be read, so that the fault is in them and permanent."""
    try:
        source.gather(tf.constant([number], tf.int64))
    except (tf.errors.OpError, UnicodeDecodeError):
        return False
    return True


def reason(source: Source, number: int, error: Exception) -> str:
    """Why an example cannot be read, for its owner."""
    if isinstance(error, tf.errors.NotFoundError):
        return "the file is not there"
    if isinstance(error, tf.errors.PermissionDeniedError):
        return "the file may not be read (permission denied)"
    try:
        content: bytes = source.gather(tf.constant([number], tf.int64))["image"][0].numpy()
    except (tf.errors.OpError, UnicodeDecodeError):
        return words(error)
    if not content:
        return "the file is empty"
    if TOO_MANY in str(error):
        size = image_header(content)
        return f"{size.width} x {size.height} px, and {_cause(error).rpartition(': ')[2]}" if size else _cause(error)
    for start, kind in OTHERS:
        if content.startswith(start):
            return f"{kind}, not a JPEG, PNG, BMP, GIF or WebP image"
    if content[4:8] == b"ftyp":
        return "a HEIC, AVIF or video file, not a JPEG, PNG, BMP, GIF or WebP image"
    if "animated WebP" in str(error):
        return "an animated WebP image, which TensorFlow cannot read; save its first frame"
    for start, kind in NAMES:
        if content.startswith(start):
            return broken_image(kind)
    return "not a JPEG, PNG, BMP, GIF or WebP image"
