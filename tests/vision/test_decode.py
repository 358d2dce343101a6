"""vision.data.decode against Pillow, for every format, and what it refuses."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.vision.synthetic_images import encoded, picture
from vision.data.decode import ASPECT, _random_crop, decode_image, pixels

pytestmark = pytest.mark.slow

RGB = Image.fromarray(picture())
GREY = RGB.convert("L")
ALPHA = RGB.copy()
ALPHA.putalpha(Image.fromarray(np.tile(np.arange(36, dtype=np.uint8) * 7, (24, 1))))


def on_white(image: Image.Image) -> np.ndarray:
    values = np.asarray(image.convert("RGBA")).astype(float)
    alpha = values[..., 3:] / 255
    return values[..., :3] * alpha + 255 * (1 - alpha)


def luma(image: np.ndarray) -> np.ndarray:
    return image.astype(float) @ np.array([0.299, 0.587, 0.114])


FORMATS = {
    "jpeg": (encoded(RGB, "JPEG", quality=95), None),
    "jpeg grey": (encoded(GREY, "JPEG", quality=95), None),
    "jpeg progressive": (encoded(RGB, "JPEG", quality=95, progressive=True), None),
    "png": (encoded(RGB, "PNG"), None),
    "png grey": (encoded(GREY, "PNG"), None),
    "png 1 bit": (encoded(GREY.convert("1"), "PNG"), None),
    "png palette": (encoded(RGB.quantize(32), "PNG"), None),
    "png palette of 4 bits": (encoded(RGB.quantize(12), "PNG"), None),
    "png palette of 1 bit": (encoded(RGB.quantize(2), "PNG"), None),
    "png palette with alpha": (encoded(RGB.quantize(32), "PNG", transparency=3), "alpha"),
    "png alpha": (encoded(ALPHA, "PNG"), "alpha"),
    "png grey alpha": (encoded(ALPHA.convert("LA"), "PNG"), "alpha"),
    "png one transparent colour": (encoded(RGB, "PNG", transparency=tuple(int(v) for v in picture()[3, 4])), "alpha"),
    "png one transparent grey": (encoded(GREY, "PNG", transparency=int(np.asarray(GREY)[3, 4])), "alpha"),
    "bmp": (encoded(RGB, "BMP"), None),
    "bmp grey": (encoded(GREY, "BMP"), None),
    "bmp palette": (encoded(RGB.quantize(32), "BMP"), None),
    "bmp 32 bits": (encoded(ALPHA, "BMP"), None),
    "gif": (encoded(RGB.quantize(32), "GIF"), None),
    "gif animated": (encoded(RGB.quantize(32), "GIF", save_all=True, append_images=[RGB.rotate(180).quantize(32)] * 2), None),
    "webp": (encoded(RGB, "WEBP", quality=95), None),
    "webp lossless": (encoded(RGB, "WEBP", lossless=True), None),
    "webp lossless alpha": (encoded(ALPHA, "WEBP", lossless=True), "alpha"),
    "webp lossy alpha": (encoded(ALPHA, "WEBP", quality=95), "alpha"),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FORMATS)
def test_formats_as_pillow_reads_them(name, channels):
    content, kind = FORMATS[name]
    image = Image.open(io.BytesIO(content))
    expected = on_white(image) if kind == "alpha" else np.asarray(image.convert("RGB")).astype(float)
    expected = expected if channels == 3 else luma(expected)[..., None]
    got = pixels(tf.constant(content), channels)
    assert got.dtype == tf.uint8 and got.shape == (24, 36, channels)
    # lossy WebP: two upsampling filters of colour; elsewhere one level of rounding
    assert np.abs(got.numpy() - expected).max() <= (3 if name in ("webp", "webp lossy alpha") else 1.01)


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_png_keeps_the_upper_bits(channels):
    wide = (np.asarray(GREY).astype(np.uint16) << 8) + 200
    got = pixels(tf.constant(encoded(Image.fromarray(wide), "PNG")), channels).numpy()
    assert np.array_equal(got, np.repeat(np.asarray(GREY)[..., None], channels, -1))


def test_cmyk_jpeg():
    content = encoded(RGB.convert("CMYK"), "JPEG", quality=95)
    got = pixels(tf.constant(content), 3).numpy().astype(int)
    assert np.abs(got - np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))).max() <= 2
    assert pixels(tf.constant(content), 1).shape == (24, 36, 1)


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("jfif", [True, False])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation, jfif, byte_order):
    exif = Image.Exif()
    exif.endian = byte_order
    exif[0x0112] = orientation
    exif[0x010E] = "a description, so that it is not the only entry"
    content = encoded(RGB, "JPEG", quality=95, exif=exif.tobytes())
    if not jfif and content[2:4] == b"\xff\xe0":  # cameras write APP1 first and no JFIF
        content = content[:2] + content[4 + int.from_bytes(content[4:6], "big"):]
    from PIL import ImageOps

    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content)))).astype(int)
    got = pixels(tf.constant(content), 3).numpy()
    assert got.shape == expected.shape and np.abs(got - expected).max() <= 1


def test_broken_exif_is_ignored():
    content = encoded(RGB, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert pixels(tf.constant(content), 3).shape == (24, 36, 3)
    content = encoded(RGB, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert pixels(tf.constant(content), 3).shape == (24, 36, 3)


def test_what_a_file_is_stands_in_its_bytes_not_its_name(tmp_path):
    path = tmp_path / "photo.JPG"
    path.write_bytes(encoded(RGB, "PNG"))
    assert np.array_equal(pixels(tf.io.read_file(str(path)), 3), picture())


BROKEN = {
    "empty": (b"", "the file is empty"),
    "text": (b"no image at all", "not a JPEG"),
    "tiff": (encoded(RGB, "TIFF"), "not a JPEG"),
    "one byte of jpeg": (b"\xff", "JPEG"),
    "animated webp": (encoded(RGB, "WEBP", save_all=True, append_images=[RGB.rotate(180)]), "animated WebP"),
    "one bit bmp": (encoded(RGB.convert("1"), "BMP"), "channels"),
    **{f"half a {kind}": (encoded(picture(1, 64, 64), kind)[:-200], "(?i)invalid|decode|size")
       for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP")},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_images_are_refused_in_graph(name):
    content, words = BROKEN[name]
    decode = tf.function(lambda raw: decode_image(raw, (8, 8), 3))
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        decode(tf.constant(content))


def test_damaged_files_are_decoded_or_refused_and_never_end_the_process():
    decode = tf.function(lambda raw: decode_image(raw, (16, 16), 3))
    rng, refused = np.random.default_rng(0), 0
    for number in range(400):
        content = bytearray(list(FORMATS.values())[number % len(FORMATS)][0])
        place = int(rng.integers(0, min(len(content), 200)))
        content[place:place + int(rng.integers(0, 2))] = rng.bytes(int(rng.integers(0, 4)))
        try:
            assert decode(tf.constant(bytes(content))).shape == (16, 16, 3)
        except tf.errors.InvalidArgumentError:
            refused += 1
    assert 100 < refused < 400


@pytest.mark.parametrize("resize", ["crop", "pad", "squash"])
def test_resize_policies_as_pillow_resizes(resize):
    image = picture(3, 60, 40)
    got = decode_image(tf.constant(encoded(image, "PNG")), (16, 24), 3, resize).numpy().astype(int)
    full = Image.fromarray(image)
    if resize == "squash":
        expected = np.asarray(full.resize((24, 16), Image.Resampling.BILINEAR))
    elif resize == "crop":  # the widest part of aspect 24 : 16 is 40 x 27
        expected = np.asarray(full.crop((0, 16, 40, 43)).resize((24, 16), Image.Resampling.BILINEAR))
    else:  # fitted to 16 high, 11 wide, centred
        expected = np.zeros((16, 24, 3), int)
        expected[:, 6:17] = np.asarray(full.resize((11, 16), Image.Resampling.BILINEAR))
    assert np.abs(got - expected).max() <= 2


def test_images_of_the_right_size_are_not_touched():
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert np.array_equal(decode_image(tf.constant(encoded(noise, "PNG")), (16, 16), 3), noise)
    assert np.array_equal(decode_image(tf.constant(noise), (16, 16), 3), noise)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resize", ["crop", "pad", "squash"])
def test_bytes_and_stored_pixels_decode_alike(resize, channels):
    image = picture(5)
    from_bytes = decode_image(tf.constant(encoded(image, "PNG")), (20, 20), channels, resize)
    from_pixels = decode_image(tf.constant(image), (20, 20), channels, resize)
    assert np.array_equal(from_bytes, from_pixels)


def test_training_evaluation_and_serving_decode_alike():
    contents = [content for content, _ in FORMATS.values()]
    one = [decode_image(tf.constant(content), (20, 20), 3).numpy() for content in contents]
    dataset = tf.data.Dataset.from_tensor_slices(contents).map(lambda raw: decode_image(raw, (20, 20), 3), num_parallel_calls=2)
    served = tf.function(lambda raw: tf.map_fn(lambda each: decode_image(each, (20, 20), 3), raw, fn_output_signature=tf.uint8))
    assert np.array_equal(np.stack(one), np.stack(list(dataset.as_numpy_iterator())))
    assert np.array_equal(np.stack(one), served(tf.constant(contents)))


def test_a_saved_model_takes_every_format(tmp_path):
    module = tf.Module()
    module.decode = tf.function(lambda raw: decode_image(raw, (20, 20), 3), input_signature=[tf.TensorSpec([], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for content, _ in FORMATS.values():
        assert np.array_equal(loaded.decode(tf.constant(content)), decode_image(tf.constant(content), (20, 20), 3))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_random_crops_are_a_function_of_the_key(kind):
    content = tf.constant(encoded(picture(2, 80, 120), kind))
    crop = tf.function(lambda key: decode_image(content, (32, 32), 3, crop_key=key, area=(0.1, 1.0)))
    first, again, other = (crop(tf.constant(key)).numpy() for key in ([1, 2], [1, 2], [1, 3]))
    assert first.shape == (32, 32, 3) and np.array_equal(first, again) and not np.array_equal(first, other)


def test_random_crop_of_jpeg_is_the_crop_of_the_whole():
    content = tf.constant(encoded(picture(2, 80, 120), "JPEG", quality=95, subsampling=0))
    whole = pixels(content, 3)
    for number in range(5):
        key = tf.constant([number, 7])
        part = decode_image(content, (24, 24), 3, crop_key=key, area=(0.2, 0.8)).numpy().astype(int)
        same = decode_image(whole, (24, 24), 3, crop_key=key, area=(0.2, 0.8)).numpy()
        assert np.abs(part - same).max() <= 2


def test_random_crops_have_the_areas_and_aspects_asked_for():
    draw = tf.function(lambda key: tf.stack(_random_crop(tf.constant(300), tf.constant(400), (0.1, 0.6), key)))
    crops = np.array([draw(tf.constant([number, 0])) for number in range(300)])
    top, left, height, width = crops.T
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 300).all() and (left + width <= 400).all()
    share, aspect = height * width / 120000, width / height
    assert share.min() >= 0.099 and share.max() <= 0.605 and 0.3 < share.mean() < 0.4
    assert aspect.min() >= ASPECT[0] - 0.02 and aspect.max() <= ASPECT[1] + 0.02
    assert top.min() < 20 and (top + height).max() > 280  # corners are reached


def test_random_crop_falls_back_to_the_centre_of_a_strip():
    top, left, height, width = (int(value) for value in _random_crop(tf.constant(10), tf.constant(1000), (0.9, 1.0), tf.constant([0, 0])))
    assert (top, height, width) == (0, 10, 13) and left == (1000 - 13) // 2
