"""From an encoded image, or stored pixels, to the pixels that the model sees: one function for training, evaluation and serving.

Only TensorFlow operations, so it is part of the saved model too. The first bytes of a file tell its kind,
never its name.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import tensorflow as tf

from vision.data import geometry
from vision.data.limits import MAX_PIXELS, bmp_area, gif_area, jpeg_area, limited, png_area, webp_area, without_texts

Resize = Literal["crop", "pad", "squash"]

JPEG, PNG, GIF, BMP, WEBP = 0xFF, 0x89, ord("G"), ord("B"), ord("R")  # the first byte of each
ASPECT = (3 / 4, 4 / 3)  # width : height of random crops, Szegedy et al. 2015
ATTEMPTS = 10  # crops drawn before falling back to the centre, as in the common implementations


# a branch that stays one call in the graph, so that images that do not need it do not pay for its operations
rare = tf.function(autograph=False, experimental_attributes={"_noinline": True})


@tf.autograph.experimental.do_not_convert
def decode_image(raw: tf.Tensor, size: tuple[int, int], channels: int, resize: Resize = "crop", *,
                 crop_key: tf.Tensor | None = None, area: tuple[float, float] | None = None, max_pixels: int = MAX_PIXELS) -> tf.Tensor:
    """One image as the model sees it, in graph.

    Args:
        raw: scalar string (JPEG, PNG, BMP, GIF or WebP; see `pixels`), or uint8 [h, w, c] with c 1 or 3.
        size: (height, width) of the result.
        channels: 1 or 3.
        resize: how another size is brought to `size`, antialiased bilinear: `crop` the centre at the target's aspect, `pad` with
            black after fitting, or `squash`.
        crop_key: int32 [2]; with `area`, a random part is cut out and brought to `size` (random-resized crop, Szegedy et al.
            2015); the part is a function of the key and the stored size alone. JPEG files are decoded in that part only.
        area: (low, high) share of the image's area.
        max_pixels: most pixels of an encoded image; its header is checked before it is decoded.

    Returns:
        uint8 [height, width, channels].

    Raises:
        tf.errors.InvalidArgumentError: not such an image, broken or of too many pixels; also unequal channels.
    """
    if raw.dtype != tf.string:
        image = channels_of(raw, channels)
        if crop_key is not None and area is not None:
            image, resize = _part(image, area, crop_key), "squash"
        return _resized(image, size, channels, resize)
    if crop_key is None or area is None:
        return _resized(pixels(raw, channels, max_pixels), size, channels, resize)
    return _resized(_cropped_pixels(raw, channels, area, crop_key, max_pixels), size, channels, "squash")


@tf.autograph.experimental.do_not_convert
def decode_placed(raw: tf.Tensor, size: tuple[int, int], channels: int, resize: Resize = "crop", *, crop_key: tf.Tensor | None = None,
                  area: tuple[float, float] | None = None, max_pixels: int = MAX_PIXELS) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """As `decode_image`, and where its pixels come from; a random part is cut from the whole picture, once it is upright.

    Returns:
        (uint8 [height, width, channels]; height and width of the picture as sent, upright, [2] int32; the map from its pixels to those of
        the result, [2, 3] float32, as vision.data.geometry has it).
    """
    image = pixels(raw, channels, max_pixels) if raw.dtype == tf.string else channels_of(raw, channels)
    sent = tf.shape(image)[:2]
    if crop_key is None or area is None:
        return _resized(image, size, channels, resize), sent, _place(sent, size, resize)
    top, left, height, width = _random_crop(sent[0], sent[1], area, crop_key)
    part = image[top:top + height, left:left + width]
    return _resized(part, size, channels, "squash"), sent, geometry.part_to_size(top, left, height, width, size)


@tf.autograph.experimental.do_not_convert
def pixels(image: tf.Tensor, channels: int, max_pixels: int = MAX_PIXELS) -> tf.Tensor:
    """An encoded image as it was stored, uint8 [h, w, channels], in graph.

    - JPEG: grey, YCbCr, CMYK; turned upright by the EXIF orientation in its first 64 kB; accurate integer DCT, as Pillow has it.
    - PNG: grey, RGB, palette, each with or without alpha, 1 to 16 bits; 16-bit samples keep their upper 8 bits.
    - BMP: 8-bit palette, 24 and 32 bits (whose fourth byte is ignored).
    - GIF: the first frame; its transparent pixels are black, as TensorFlow's decoder gives them.
    - WebP: lossy and lossless, one frame. Animated WebP is refused: TensorFlow 2.21's decoder corrupts memory on it.

    Alpha is composited onto white. Grey from colour is the luma of ITU-R BT.601.

    Args:
        image: scalar string.
        channels: 1 or 3.
        max_pixels: see decode_image.

    Raises:
        tf.errors.InvalidArgumentError: not such an image, broken, or of too many pixels.
    """
    def jpeg(head: tf.Tensor) -> tf.Tensor:
        return _jpeg(limited(image, jpeg_area(image), max_pixels), head, channels)

    return _by_kind(image, channels, jpeg, lambda: _other(image, channels, max_pixels))


def _cropped_pixels(image: tf.Tensor, channels: int, area: tuple[float, float], key: tf.Tensor, max_pixels: int) -> tf.Tensor:
    def cut_jpeg(head: tf.Tensor) -> tf.Tensor:
        shape = tf.io.extract_jpeg_shape(image)
        window = tf.stack(_random_crop(shape[0], shape[1], area, key))
        whole = limited(image, tf.cast(shape[0], tf.int64) * tf.cast(shape[1], tf.int64), max_pixels)
        cut = tf.io.decode_and_crop_jpeg(whole, window, channels=3, dct_method="INTEGER_ACCURATE")
        return channels_of(_upright(cut, image, head), channels)

    return _by_kind(image, channels, cut_jpeg, lambda: _part_of_other(image, channels, area, key, max_pixels))


@rare
def _part_of_other(image: tf.Tensor, channels: int, area: tuple[float, float], key: tf.Tensor, most: int) -> tf.Tensor:
    return _part(_other(image, channels, most), area, key)


def _part(image: tf.Tensor, area: tuple[float, float], key: tf.Tensor) -> tf.Tensor:
    top, left, height, width = _random_crop(tf.shape(image)[0], tf.shape(image)[1], area, key)
    return image[top:top + height, left:left + width]


def _by_kind(image: tf.Tensor, channels: int, jpeg: Callable[[tf.Tensor], tf.Tensor], other: Callable[[], tf.Tensor]) -> tf.Tensor:
    """[h, w, channels] by the branch for JPEG, which is given the first 32 bytes, or by the other, which should be one call."""
    head = _head(image)
    return tf.ensure_shape(tf.cond(head[0] == JPEG, lambda: jpeg(head), other), [None, None, channels])


def _head(image: tf.Tensor) -> tf.Tensor:
    """The first 32 bytes, uint8, zeros where the file is shorter."""
    return tf.io.decode_raw(image, tf.uint8, fixed_length=32)


@rare
def _other(image: tf.Tensor, channels: int, most: int) -> tf.Tensor:
    """Files whose first byte is not a JPEG's; the decoder checks the rest. One call: dead operations would cost time on every JPEG."""
    head = _head(image)
    decoders = {
        PNG: lambda: _png(limited(image, png_area(head), most), head, channels),
        GIF: lambda: _gif(image, head, channels, most),
        BMP: lambda: _bmp(limited(image, bmp_area(head), most), head, channels),
        WEBP: lambda: _webp(limited(image, webp_area(head), most), head, channels),
    }
    table = np.full(256, len(decoders), np.int32)
    table[list(decoders)] = range(len(decoders))
    branches = [*decoders.values(), lambda: _refused(image, channels)]
    return tf.switch_case(tf.gather(tf.constant(table), tf.cast(head[0], tf.int32)), branches)


def _jpeg(image: tf.Tensor, head: tf.Tensor, channels: int) -> tf.Tensor:
    # always through RGB: asked for grey, the decoder fails on CMYK
    colour = tf.io.decode_jpeg(image, channels=3, dct_method="INTEGER_ACCURATE")
    return channels_of(_upright(colour, image, head), channels)


@rare
def _gif(image: tf.Tensor, head: tf.Tensor, channels: int, most: int) -> tf.Tensor:
    image = limited(image, gif_area(image, head, most), most)
    return channels_of(tf.ensure_shape(tf.io.decode_image(image, channels=3, expand_animations=False), [None, None, 3]), channels)


def _png(image: tf.Tensor, head: tf.Tensor, channels: int) -> tf.Tensor:
    image = without_texts(image)
    kind = head[25]  # colour type in IHDR: 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGB with alpha
    # tRNS names one transparent colour; found by chance in other data, it does no harm
    marked = tf.strings.regex_full_match(tf.strings.substr(image, 0, 1 << 14), rb"\C*tRNS\C*")
    opaque = tf.logical_not(marked)
    # asked for alpha, TensorFlow gives grey of less than 8 bits a wrong one; such files lose their transparent level
    grey = tf.logical_and(kind == 0, tf.logical_or(opaque, head[24] < 8))
    which = tf.where(grey, 0, tf.where(tf.logical_and(tf.logical_or(kind == 2, kind == 3), opaque), 1, 2))
    return tf.switch_case(which, {
        0: lambda: channels_of(tf.io.decode_png(image, channels=1), channels),
        1: lambda: channels_of(tf.io.decode_png(image, channels=3), channels),
        2: lambda: _transparent_png(image, channels),
    })


@rare
def _transparent_png(image: tf.Tensor, channels: int) -> tf.Tensor:
    return channels_of(_on_white(tf.io.decode_png(image, channels=4)), channels)


@rare
def _bmp(image: tf.Tensor, head: tf.Tensor, channels: int) -> tf.Tensor:
    head = tf.cast(head, tf.int32)

    def number(at: int) -> tf.Tensor:
        return head[at] + (head[at + 1] * 256) + (head[at + 2] * 65536) + (head[at + 3] * 16777216)

    def palette() -> tf.Tensor:
        # TensorFlow gives the palette's indices as if they were grey
        length = tf.strings.length(image)
        start = tf.clip_by_value(14 + number(14), 0, length)  # beyond the file, the error would quote its bytes, which Python cannot decode
        entries = (tf.clip_by_value(number(10), start, length) - start) // 4
        table = tf.reshape(tf.io.decode_raw(tf.strings.substr(image, start, 4 * entries), tf.uint8), [-1, 4])
        return tf.gather(table[:, 2::-1], tf.cast(tf.io.decode_bmp(image)[..., 0], tf.int32))

    def direct() -> tf.Tensor:
        return tf.io.decode_bmp(image)[..., :3]

    return channels_of(tf.ensure_shape(tf.cond(head[28] == 8, palette, direct), [None, None, 3]), channels)


@rare
def _webp(image: tf.Tensor, head: tf.Tensor, channels: int) -> tf.Tensor:
    animated = tf.logical_and(head[15] == ord("X"), (head[20] & 2) > 0)
    check = tf.debugging.Assert(tf.logical_not(animated), ["animated WebP images are not read; save the first frame as PNG or still WebP"])
    with tf.control_dependencies([check] if check is not None else []):
        image = tf.identity(image)
    decoded = tf.io.decode_webp(image)[0]
    opaque = lambda: tf.ensure_shape(decoded, [None, None, 3])  # noqa: E731
    return channels_of(tf.cond(tf.shape(decoded)[-1] == 4, lambda: _on_white(tf.ensure_shape(decoded, [None, None, 4])), opaque), channels)


@rare
def _refused(image: tf.Tensor, channels: int) -> tf.Tensor:
    empty = tf.strings.length(image) == 0
    reason = tf.where(empty, "the file is empty", "not a JPEG, PNG, BMP, GIF or WebP image")
    check = tf.debugging.Assert(False, [reason])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.zeros([1, 1, channels], tf.uint8)


def _on_white(image: tf.Tensor) -> tf.Tensor:
    """[h, w, 4] with alpha to [h, w, 3] on white, rounded."""
    wide = tf.cast(image, tf.uint16)  # which holds 255 * 255 + 127
    alpha = wide[..., 3:]
    return tf.cast((wide[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)


def _grey(image: tf.Tensor) -> tf.Tensor:
    """[h, w, 3] to [h, w, 1], BT.601 luma, rounded; exact where the three are equal."""
    wide = tf.cast(image, tf.int32)
    return tf.cast((299 * wide[..., :1] + 587 * wide[..., 1:2] + 114 * wide[..., 2:3] + 500) // 1000, tf.uint8)


def channels_of(image: tf.Tensor, channels: int) -> tf.Tensor:
    """[..., 1 or 3] with so many channels, 1 or 3."""
    if image.shape[-1] == channels:
        return image
    return _grey(image) if channels == 1 else tf.repeat(image, 3, axis=-1)


def _upright(image: tf.Tensor, encoded: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
    """Turns [h, w, 3] as the EXIF orientation of its JPEG file says."""
    # APP1 stands first, or behind JFIF's APP0 of 16 bytes
    return tf.cond(tf.reduce_any(tf.gather(head, [3, 21]) == 0xE1), lambda: _turned_by_exif(image, encoded, head), lambda: image)


@rare
def _turned_by_exif(image: tf.Tensor, encoded: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
    data = tf.cast(tf.io.decode_raw(tf.strings.join([tf.strings.substr(encoded, 0, 1 << 16), b"\0" * 64]), tf.uint8), tf.int32)
    first = tf.where(head[3] == 0xE1, 2, 20)
    exif = tf.reduce_all(tf.concat([data[first:first + 2], data[first + 4:first + 8]], 0) == tf.constant([0xFF, 0xE1, *b"Exif"]))
    return _turned(image, tf.where(exif, _orientation(data, first + 10), 1))


def _orientation(data: tf.Tensor, tiff: tf.Tensor) -> tf.Tensor:
    """The value of tag 0x0112 in the first directory of the TIFF block at `tiff`; 1 where there is none."""
    little = data[tiff] == ord("I")

    def short(pair: tf.Tensor) -> tf.Tensor:
        return tf.where(little, pair[..., 0] + (pair[..., 1] * 256), (pair[..., 0] * 256) + pair[..., 1])

    low, high = short(data[tiff + 4:tiff + 6]), short(data[tiff + 6:tiff + 8])
    offset = tf.where(little, low + (high * 65536), (low * 65536) + high)
    last = tf.size(data) - 2
    # a broken offset reads the zeros at the end
    directory = tf.where(tf.logical_and(offset >= 8, offset < last - tiff), tiff + offset, last)
    count = tf.minimum(short(data[directory:directory + 2]), (tf.size(data) - directory - 2) // 12)
    entries = tf.reshape(data[directory + 2:directory + 2 + 12 * count], [-1, 12])
    found = tf.where(short(entries[:, :2]) == 0x0112, short(entries[:, 8:10]), 0)
    value = tf.reduce_max(tf.concat([found, [1]], 0))
    return tf.where(value <= 8, value, 1)


def _turned(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    image = tf.cond(orientation >= 5, lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
    down = tf.reduce_any(orientation == [3, 4, 7, 8])
    across = tf.reduce_any(orientation == [2, 3, 6, 7])
    image = tf.cond(down, lambda: tf.reverse(image, [0]), lambda: image)
    return tf.cond(across, lambda: tf.reverse(image, [1]), lambda: image)


def _random_crop(height: tf.Tensor, width: tf.Tensor, area: tuple[float, float], key: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """(top, left, height, width) of a random part: area and log aspect uniform, the first of ten that fits.

    Where none fits, the largest centre part whose aspect is allowed. Few operations on small tensors: each costs every image a microsecond.
    """
    full = tf.cast(tf.stack([height, width]), tf.float32)
    draws = tf.random.stateless_uniform([ATTEMPTS, 4], key)
    low, high = math.log(ASPECT[0]) / 2, math.log(ASPECT[1]) / 2
    edges = tf.sqrt((area[0] + (area[1] - area[0]) * draws[:, :1]) * tf.reduce_prod(full))
    stretched = tf.exp(draws[:, 1:2] * tf.constant([[low - high, high - low]]) + tf.constant([[-low, low]]))
    largest = tf.maximum(tf.minimum(full, tf.round(tf.reverse(full, [0]) * tf.constant([1 / ASPECT[0], ASPECT[1]]))), 1.0)
    parts = tf.concat([tf.round(edges * stretched), largest[None]], 0)
    which = tf.argmax(tf.cast(tf.reduce_all((parts >= 1.0) & (parts <= full), 1), tf.int32))  # the largest fits always
    room = full - parts[which]
    places = tf.concat([draws[:, 2:], tf.constant([[0.4999, 0.4999]])], 0)[which]  # of an odd room the smaller half is above
    numbers = tf.cast(tf.concat([tf.minimum(tf.floor(places * (room + 1.0)), room), parts[which]], 0), tf.int32)
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _resized(image: tf.Tensor, size: tuple[int, int], channels: int, resize: Resize) -> tf.Tensor:
    target = [size[0], size[1], channels]
    if image.shape.is_fully_defined():
        return image if image.shape.as_list() == target else tf.ensure_shape(_fit(image, size, resize), target)
    same = tf.reduce_all(tf.shape(image)[:2] == tf.constant(size))
    return tf.ensure_shape(tf.cond(same, lambda: image, lambda: _fit(image, size, resize)), target)


def _fit(image: tf.Tensor, size: tuple[int, int], resize: Resize) -> tf.Tensor:
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    if resize == "crop":
        top, left, *part = _centre(height, width, size)
        return _scaled(image[top:top + part[0], left:left + part[1]], size)
    if resize == "squash":
        return _scaled(image, size)
    above, beside, *inner = _inner(height, width, size)
    return tf.image.pad_to_bounding_box(_scaled(image, tf.stack(inner)), above, beside, *size)


def _centre(height: tf.Tensor, width: tf.Tensor, size: tuple[int, int]) -> tuple[tf.Tensor, ...]:
    """(top, left, height, width) of the largest part in the middle that has the aspect of `size`."""
    scale = tf.minimum(height / size[0], width / size[1])
    part = [tf.clip_by_value(tf.cast(tf.round(edge * scale), tf.int32), 1, full) for edge, full in zip(size, (height, width))]
    return (height - part[0]) // 2, (width - part[1]) // 2, *part


def _inner(height: tf.Tensor, width: tf.Tensor, size: tuple[int, int]) -> tuple[tf.Tensor, ...]:
    """(above, beside, height, width) of the whole picture within `size`."""
    scale = tf.minimum(size[0] / height, size[1] / width)
    inner = [tf.clip_by_value(tf.cast(tf.round(tf.cast(full, tf.float64) * scale), tf.int32), 1, edge)
             for edge, full in zip(size, (height, width))]
    return (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2, *inner


def _place(sent: tf.Tensor, size: tuple[int, int], resize: Resize) -> tf.Tensor:
    """The map [2, 3] of a whole picture of [2] int32 height and width that is brought to `size`."""
    height, width = sent[0], sent[1]
    if resize == "crop":
        top, left, height, width = _centre(height, width, size)
        return geometry.part_to_size(top, left, height, width, size)
    if resize == "squash":
        return geometry.part_to_size(0, 0, height, width, size)
    above, beside, rows, columns = _inner(height, width, size)
    return geometry.part_to_size(0, 0, height, width, (rows, columns), above, beside)


def _scaled(image: tf.Tensor, size: tuple[int, int] | tf.Tensor) -> tf.Tensor:
    """Antialiased bilinear, as tf.image.resize and Pillow have it: the rows, then the columns as rows of the transposed image.

    In one operation TensorFlow walks the columns pixel by pixel, which takes more than twice the time.
    """
    down = _rows(image, size[0])
    across = _rows(tf.transpose(down, [1, 0, 2]), size[1])
    # the weights of a pixel sum to 1, so nothing leaves 0 .. 255
    return tf.cast(tf.transpose(across, [1, 0, 2]) + 0.5, tf.uint8)


def _rows(image: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """[h, w, c] scaled to [count, w, c] float32. Each row is one wide pixel, so that it is added up as a vector."""
    shape = tf.shape(image)
    wide = tf.reshape(image, tf.stack([1, shape[0], 1, -1]))
    scale = tf.stack([tf.cast(count / shape[0], tf.float32), 1.0])
    scaled = tf.raw_ops.ScaleAndTranslate(images=wide, size=tf.stack([count, 1]), scale=scale, translation=tf.zeros([2]),
                                          kernel_type="triangle", antialias=True)
    return tf.reshape(scaled, tf.stack([count, shape[1], image.shape[2]]))
