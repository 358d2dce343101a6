"""What the header of an image file tells in Python, before it is decoded: that it takes long, or that it is as the model sees it already,
of its size, upright, opaque, of 8 bits.

What `decode` does for any file is some fifty operations an image, nearly all of them questions; of these files one is left. A server of
small images spends most of its time there.
"""

import re

import tensorflow as tf

from vision.data.decode import channels_of
from vision.data.limits import TEXT, TEXTS

LARGE = 4_000_000  # px; and bytes of a JPEG
PACKED = 32 << 10  # bytes of a GIF or WebP file, which may have two thousand pixels in one
USUAL = 20  # scans of a JPEG that cost about as much as one, see limits
FRAME = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]...(..)(..)", re.DOTALL)  # of a JPEG: height and width, wherever
SCANS = 4  # of a JPEG: each makes the decoder visit every pixel
MARKED = 1 << 14  # bytes in which a PNG names its transparent colour, as `decode` looks for it
BASELINE = 0xC0  # JPEG's markers: of the size,
SEGMENTS = {0xC4, 0xDB, 0xDD, 0xE0, *range(0xE2, 0xF0), 0xFE}  # and of what may stand before it; not EXIF's 0xE1, which may turn the image


def is_plain(content: bytes, height: int, width: int) -> bool:
    """Whether it is a JPEG (baseline, grey or colour) or PNG file (grey or colour) of this size, by its header alone."""
    if content[:2] == b"\xff\xd8":
        return _jpeg_size(content) == (height, width) and content.count(b"\xff\xda") <= SCANS
    size = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08"
    return (content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:25] == size and content[25:26] in (b"\0", b"\2")
            and b"tRNS" not in content[:MARKED] and content.count(TEXT) <= TEXTS)


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    """(height, width) of a baseline JPEG file that says nothing of its orientation. Reads what the decoder reads: a size that it does not
    see would let a file of any size through."""
    place = 2
    while place + 10 <= len(content) and content[place] == 0xFF:
        marker, length = content[place + 1], int.from_bytes(content[place + 2:place + 4], "big")
        if marker == BASELINE and content[place + 4] == 8 and content[place + 9] in (1, 3):
            return int.from_bytes(content[place + 5:place + 7], "big"), int.from_bytes(content[place + 7:place + 9], "big")
        if marker not in SEGMENTS or length < 2:
            return None
        place += 2 + length
    return None


def is_large(content: bytes) -> bool:
    """Whether it takes long to decode, some 0.2 s or more: it has many pixels by its header, much beside them, or is of a kind that may in
    few bytes."""
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        pixels = int.from_bytes(content[16:20], "big") * int.from_bytes(content[20:24], "big")
        return pixels > LARGE or len(content) > 6 * LARGE or content.count(TEXT) > TEXTS
    if content[:2] == b"\xff\xd8":
        sizes = [int.from_bytes(high, "big") * int.from_bytes(wide, "big") for high, wide in FRAME.findall(content, 0, LARGE)]
        return max(sizes, default=LARGE) * max(content.count(b"\xff\xda"), USUAL) > USUAL * LARGE or not sizes or len(content) > LARGE
    return len(content) > (6 * LARGE if content[:2] == b"BM" else PACKED)


def decode_plain(contents: tf.Tensor, size: tuple[int, int], channels: int) -> tf.Tensor:
    """Such files, [batch] string, as uint8 [batch, height, width, channels]: what `decode.decode_image` makes of each; in graph.

    Raises:
        tf.errors.InvalidArgumentError: one is broken, or no such file.
    """
    def decode(content: tf.Tensor) -> tf.Tensor:  # this operation takes PNG files as well, by their first bytes
        return tf.ensure_shape(tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE"), [*size, 3])

    return channels_of(tf.map_fn(decode, contents, fn_output_signature=tf.TensorSpec([*size, 3], tf.uint8)), channels)
