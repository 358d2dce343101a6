"""Size and channels of an image from its first bytes, without decoding it. Imports no TensorFlow."""

import struct
from typing import NamedTuple

ENOUGH = 1 << 18  # bytes to read: a JPEG's size follows its EXIF data and thumbnail
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")

_NO_SIZE = (0xC4, 0xC8, 0xCC)  # JPEG segments in the range of frame headers that are not frame headers


class Header(NamedTuple):
    """Width and height in px as stored (before any EXIF rotation); channels 1 for grey, 3 for everything else."""

    width: int
    height: int
    channels: int


def image_header(start: bytes) -> Header | None:
    """Header of a JPEG, PNG, BMP, GIF or WebP whose first bytes are `start`; None for anything else or a cut file."""
    try:
        if start[:8] == b"\x89PNG\r\n\x1a\n":
            width, height = struct.unpack(">II", start[16:24])
            return Header(width, height, 1 if start[25] in (0, 4) else 3)
        if start[:2] == b"\xff\xd8":
            return _jpeg(start)
        if start[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack("<HH", start[6:10])
            return Header(width, height, 3)
        if start[:2] == b"BM":
            width, height = struct.unpack("<ii", start[18:26])
            return Header(width, abs(height), 3)
        if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
            return _webp(start)
    except (struct.error, IndexError):
        return None
    return None


def _jpeg(start: bytes) -> Header | None:
    at = 2
    while True:
        while start[at] != 0xFF or start[at + 1] in (0x00, 0xFF):
            at += 1
        marker = start[at + 1]
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # no length follows
            at += 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width, components = struct.unpack(">HHB", start[at + 5: at + 10])
            return Header(width, height, 1 if components == 1 else 3)
        at += 2 + struct.unpack(">H", start[at + 2: at + 4])[0]


def _webp(start: bytes) -> Header | None:
    kind = start[12:16]
    if kind == b"VP8X":
        return Header(1 + int.from_bytes(start[24:27], "little"), 1 + int.from_bytes(start[27:30], "little"), 3)
    if kind == b"VP8L":
        bits = int.from_bytes(start[21:25], "little")
        return Header(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF), 3)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", start[26:30])
        return Header(width & 0x3FFF, height & 0x3FFF, 3)
    return None
