"""Images without TensorFlow, as the copy beside a converted model decodes them: as the run decodes them."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from extensions.convert.decoders.images import decode
from tests.vision.test_plain import PLAIN, SIZE
from vision.data.decode import decode_image

DRAWN = np.random.default_rng(3)
SMOOTH = np.asarray(Image.fromarray(DRAWN.integers(0, 256, (6, 8, 4), np.uint8)).resize((53, 41), Image.Resampling.BICUBIC))


def encoded(array, kind, **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("content", [
    encoded(SMOOTH[..., :3], "PNG"), encoded(SMOOTH, "PNG"), encoded(SMOOTH[..., 0], "PNG"), encoded(SMOOTH[..., :3], "BMP"),
    encoded(SMOOTH[..., 0].astype(np.uint16) * 256 + 7, "PNG"), encoded(SMOOTH[..., :3], "WEBP", lossless=True),
], ids=["rgb", "rgba", "grey", "bmp", "16 bits", "webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_as_the_run_decodes(content, channels):
    for size, resize in (((41, 53), "crop"), ((16, 16), "crop"), ((20, 30), "pad"), ((60, 20), "squash")):
        settings = {"image_size": size, "channels": channels, "resize": resize}
        expected = decode_image(tf.constant(content), size, channels, resize).numpy().astype(int)
        found = decode(settings, io.BytesIO(content))
        assert found.shape == (1, *size, channels) and found.dtype == np.float32
        assert np.abs(found[0] - expected).max() <= (0 if size == (41, 53) else 1)


def test_jpeg_with_its_orientation():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(SMOOTH[..., :3], "JPEG", quality=90, exif=exif)
    expected = decode_image(tf.constant(content), (53, 41), 3).numpy().astype(int)
    assert np.abs(decode({"image_size": (53, 41), "channels": 3, "resize": "crop"}, io.BytesIO(content))[0] - expected).max() <= 3


def test_an_image_that_a_server_decodes_the_short_way_is_decoded_to_the_bit():
    for content in PLAIN.values():
        found = decode({"image_size": SIZE, "channels": 3, "resize": "crop"}, io.BytesIO(content))
        np.testing.assert_array_equal(found[0], decode_image(tf.constant(content), SIZE, 3).numpy())
