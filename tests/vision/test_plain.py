"""Plain image files: told by their header, and decoded as any other file is, to the bit."""


import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.vision.synthetic_images import encoded, picture
from vision.data.decode import decode_image
from vision.data.plain import decode_plain, is_large, is_plain

RGB = Image.fromarray(picture())
SIZE = RGB.size[::-1]
TURNED = Image.Exif()
TURNED[0x0112] = 6
PLAIN = {
    "jpeg": encoded(RGB, "JPEG", quality=90), "jpeg grey": encoded(RGB.convert("L"), "JPEG"),
    "jpeg whole colours": encoded(RGB, "JPEG", quality=70, subsampling=0), "jpeg optimised": encoded(RGB, "JPEG", optimize=True),
    "png": encoded(RGB, "PNG"), "png grey": encoded(RGB.convert("L"), "PNG"),
}
OTHERS = {
    "another size": encoded(RGB.resize((8, 8)), "PNG"), "jpeg of another size": encoded(RGB.resize((8, 8)), "JPEG"),
    "progressive": encoded(RGB, "JPEG", progressive=True), "turned": encoded(RGB, "JPEG", exif=TURNED.tobytes()),
    "cmyk": encoded(RGB.convert("CMYK"), "JPEG"), "alpha": encoded(RGB.convert("RGBA"), "PNG"), "palette": encoded(RGB.quantize(8), "PNG"),
    "one transparent colour": encoded(RGB, "PNG", transparency=(1, 2, 3)), "1 bit": encoded(RGB.convert("1"), "PNG"),
    "gif": encoded(RGB.quantize(8), "GIF"), "webp": encoded(RGB, "WEBP"), "bmp": encoded(RGB, "BMP"), "nothing": b"",
    "half": b"\xff\xd8\xff",
    "many scans": PLAIN["jpeg"] + b"\xff\xda" * 9,
}


@pytest.mark.parametrize("channels", [1, 3])
def test_plain_files_are_decoded_as_all_are(channels):
    found = decode_plain(tf.constant(list(PLAIN.values())), SIZE, channels).numpy()
    for content, image in zip(PLAIN.values(), found):
        assert is_plain(content, *SIZE)
        np.testing.assert_array_equal(image, decode_image(tf.constant(content), SIZE, channels).numpy())


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not_plain(name):
    assert not is_plain(OTHERS[name], *SIZE)


def test_a_size_that_the_decoder_would_not_see_is_none():
    """A first frame of the right size hidden where the decoder does not look, before one of 60,000 x 60,000 px."""
    content = PLAIN["jpeg"]
    start = content.index(b"\xff\xc0")
    frame = content[start:start + 19]
    huge = frame[:5] + b"\xea\x60\xea\x60" + frame[9:]
    for hidden in (b"\xff\xd0" + len(huge).to_bytes(2, "big"), b"\xff\x01\x00\x02", b"\xff\xe0\x00\x00", b"\xff\xff\x00\x10", b"\x00" * 4):
        assert not is_plain(content[:2] + hidden + huge + content[2:], *SIZE)
    assert not is_plain(content[:start] + huge + content[start:], *SIZE)


def test_what_takes_long_is_told_by_its_header():
    def png(width, height):
        return PLAIN["png"][:16] + width.to_bytes(4, "big") + height.to_bytes(4, "big") + PLAIN["png"][24:]

    def jpeg(width, height):
        start = PLAIN["jpeg"].index(b"\xff\xc0") + 5
        return PLAIN["jpeg"][:start] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + PLAIN["jpeg"][start + 4:]

    assert not any(is_large(content) for content in (*PLAIN.values(), *(OTHERS[name] for name in OTHERS if name != "half")))
    assert is_large(png(1 << 20, 1 << 20)) and is_large(png(4000, 1001)) and not is_large(png(1000, 1000))
    assert is_large(jpeg(60_000, 60_000)) and is_large(jpeg(4000, 1001)) and not is_large(jpeg(1000, 1000))
    assert is_large(jpeg(1000, 1000) + b"\xff\xda" * 100) and is_large(OTHERS["half"])  # of scans without an end; of no size
    assert is_large(OTHERS["gif"] + bytes(40_000)) and is_large(OTHERS["webp"] + bytes(40_000))
    assert is_large(PLAIN["jpeg"][:2] + b"\xff\xe2" + PLAIN["jpeg"][2:] + bytes(5_000_000))


def test_a_broken_file_is_refused():
    for name in ("jpeg", "png"):
        broken = PLAIN[name][:60]
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode_plain(tf.constant([broken]), SIZE, 3)
