"""Training augmentation of whole batches, in graph, on the device: pure functions of their keys.

What happens to one image (flip, shift, erase, RandAugment, one's own) depends on its own key alone, so it is the same in any batch and on
any number of replicas. MixUp and CutMix mix it with its neighbour in the shuffled batch.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from pipelines.data import draws
from pipelines.machine import kernels
from vision.data import geometry
from vision.data.rand_augment import rand_augment
from vision.settings import AUGMENTATIONS, Augment

LEVELS = 4096  # shares that can be drawn


def mix(
    images: tf.Tensor, *, mixup: float, cutmix: float, keys: tf.Tensor, stream: int, seed: tf.Tensor,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """MixUp or CutMix; where both alphas are set, each step takes one of them at even odds.

    Args:
        images: [batch, height, width, channels] float32.
        mixup: alpha of MixUp (Zhang et al. 2018), 0 for none.
        cutmix: alpha of CutMix (Yun et al. 2019), 0 for none.
        keys: int32 [batch, 2], one for each example and epoch.
        stream: the first of three draws from a key.
        seed: int32 [2], of the step.

    Returns:
        (images as given, {"partner": [batch] int32, which other example is in each, "share": [batch] float32, what is left of its own}).
    """
    batch = tf.shape(images)[0]
    partner = tf.minimum(tf.bitwise.bitwise_xor(tf.range(batch), 1), batch - 1)
    others = tf.gather(images, partner)
    drawn = draws.uniform(keys, stream, 3)

    def blended() -> tuple[tf.Tensor, tf.Tensor]:
        return _blend(images, others, _beta(drawn[0], mixup))

    def pasted() -> tuple[tf.Tensor, tf.Tensor]:
        return _paste(images, others, _beta(drawn[0], cutmix), drawn[1:, :, None])

    if mixup and cutmix:
        mixed, share = tf.cond(tf.random.stateless_uniform([], seed) < 0.5, blended, pasted)
    else:
        mixed, share = blended() if mixup else pasted()
    return mixed, {"partner": partner, "share": share}


def _blend(images: tf.Tensor, others: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """MixUp: (mixed images, weight [batch] of each image's own label)."""
    own = share[:, None, None, None]
    return own * images + (1.0 - own) * others, share


def _paste(images: tf.Tensor, others: tf.Tensor, share: tf.Tensor, centres: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """CutMix: a box of the partner, centred at `centres` [2, batch, 1] (0..1) and cut at the border; (mixed images, weight [batch] by what
    is left)."""
    height, width = images.shape[1], images.shape[2]
    edge = tf.sqrt(1.0 - share)[:, None]

    def inside(size: int, centre: tf.Tensor) -> tf.Tensor:
        middle, half = tf.floor(centre * size), edge * size / 2.0
        positions = tf.range(size, dtype=tf.float32)[None]
        return (positions >= tf.round(middle - half)) & (positions < tf.round(middle + half))

    rows, columns = inside(height, centres[0]), inside(width, centres[1])
    box = rows[:, :, None] & columns[:, None, :]
    left = 1.0 - tf.reduce_mean(tf.cast(box, tf.float32), axis=[1, 2])
    return tf.where(box[..., None], others, images), left


def _beta(drawn: tf.Tensor, alpha: float) -> tf.Tensor:
    """Beta(alpha, alpha) of uniform draws [batch], to one of LEVELS equally probable values."""
    return tf.gather(tf.constant(_quantiles(alpha)), tf.cast(drawn * LEVELS, tf.int32))


@functools.cache
def _quantiles(alpha: float) -> np.ndarray:
    from scipy.stats import beta

    return beta.ppf((np.arange(LEVELS) + 0.5) / LEVELS, alpha, alpha).astype(np.float32)


# the purpose of each draw from an example's key
FLIP, SHIFT, ERASE, MIX, SCALE, FLIP_VERTICAL, COLOUR, RAND_AUGMENT = 0, 1, 3, 5, 8, 11, 12, 16


def augment(
    images: tf.Tensor, settings: Augment, *, keys: tf.Tensor, seed: tf.Tensor, epoch: tf.Tensor, mean: Sequence[float],
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Augments a batch of training images. In graph.

    Args:
        images: [batch, height, width, channels] uint8 or float, 0..255.
        settings: the experiment's augment section (`random_resized_crop` belongs to decoding and is not done here).
        keys: int32 [batch, 2], one for each example and epoch.
        seed: int32 [2], one for the step.
        epoch: int64 scalar.
        mean: mean of each channel, 0..255, with which `erase` fills.

    Returns:
        (images [batch, height, width, channels] float32, 0..255; with MixUp or CutMix what targets must follow, as `mix` has it).
    """
    images = tf.cast(move_and_erase(images, settings, keys, epoch, mean), tf.float32)
    if settings.scale or settings.flip_vertical:
        images = moved_by(images, _scales(images, settings, keys), mean)
    if settings.colour:
        images = _recoloured(images, settings.colour, keys)
    if settings.rand_augment:
        images = rand_augment(images, keys, operations=settings.rand_augment.operations, magnitude=settings.rand_augment.magnitude,
                              stream=RAND_AUGMENT)
    if settings.own is not None:
        shape = images.shape
        images = tf.ensure_shape(tf.cast(AUGMENTATIONS.build(settings.own, images=images, keys=draws.own(keys)), tf.float32), shape)
    if settings.mixup or settings.cutmix:
        return mix(images, mixup=settings.mixup, cutmix=settings.cutmix, keys=keys, stream=MIX, seed=seed)
    return images, {}


def mirrored(images: tf.Tensor, settings: Augment, keys: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
    """Which images are mirrored in this epoch, [batch] bool.

    In mode `alternate` each image is mirrored in every other epoch (Jordan 2024). Whether it begins mirrored is drawn from its
    pixels, because keys change with the epoch; so half of the images begin so.
    """
    if settings.flip_mode == "random":
        return draws.uniform(keys, FLIP) < 0.5
    total = tf.reduce_sum(tf.cast(images, tf.int32), axis=[1, 2, 3])
    side = draws.bits(tf.stack([total, tf.zeros_like(total)], axis=1), FLIP)[0]
    return tf.cast((tf.bitwise.bitwise_and(side, tf.constant(1, tf.uint32)) + tf.cast(epoch & 1, tf.uint32)) & 1, tf.bool)


def move_and_erase(images: tf.Tensor, settings: Augment, keys: tf.Tensor, epoch: tf.Tensor, mean: Sequence[float]) -> tf.Tensor:
    """Mirrors, shifts and erases by one gather of pixels, [batch, height, width, channels] of the same type.

    Shifts reflect the border. Erasing sets a square, centred anywhere in the image and cut at its border, to the mean (Cutout,
    DeVries and Taylor 2017), rounded where images are integers.
    """
    if not (settings.flip or settings.shift or settings.erase):
        return images
    batch, (height, width, channels) = tf.shape(images)[0], images.shape[1:]
    rows, columns = tf.range(height)[None], tf.range(width)[None]
    if settings.flip:
        columns = tf.where(mirrored(images, settings, keys, epoch)[:, None], width - 1 - columns, columns)
    if settings.shift:
        shifts = draws.integers(keys, SHIFT, -settings.shift, settings.shift, count=2)[..., None]
        rows, columns = _reflect(rows + shifts[0], height), _reflect(columns + shifts[1], width)
    row_numbers = tf.range(batch)[:, None] * height + rows  # among all rows of the batch
    pixels = row_numbers[:, :, None] * width + columns[:, None, :]
    table = tf.reshape(images, [-1, channels])
    if settings.erase:
        fill = tf.constant([mean], tf.float32)
        table = tf.concat([table, tf.cast(tf.round(fill) if images.dtype.is_integer else fill, images.dtype)], 0)
        pixels = tf.where(_squares(height, width, settings.erase, keys), batch * height * width, pixels)
    return tf.reshape(kernels.gather(table, pixels), [batch, height, width, channels])


def moves(images: tf.Tensor, settings: Augment, keys: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
    """The map of each image from its pixels to those that `augment` makes of them, [batch, 2, 3] float32 (vision.data.geometry); the
    copies that a shift reflects at the border are not followed."""
    batch, width = tf.shape(images)[0], float(images.shape[2])
    zeros = tf.zeros([batch])
    across = tf.where(mirrored(images, settings, keys, epoch), -1.0, 1.0) if settings.flip else tf.ones([batch])
    down = right = zeros
    if settings.shift:
        shifts = draws.integers(keys, SHIFT, -settings.shift, settings.shift, count=2)
        down, right = tf.cast(shifts[0], tf.float32), tf.cast(shifts[1], tf.float32)
    begins = tf.where(across < 0, width, 0.0) - across * right
    maps = tf.stack([tf.stack([across, zeros, begins], 1), tf.stack([zeros, tf.ones([batch]), -down], 1)], 1)
    return geometry.then(maps, _scales(images, settings, keys)) if settings.scale or settings.flip_vertical else maps


def _scales(images: tf.Tensor, settings: Augment, keys: tf.Tensor) -> tf.Tensor:
    """The map of each image that mirrors it above and below and scales it about a random place, [batch, 2, 3] float32; factors are drawn
    evenly in their logarithm."""
    height, width = float(images.shape[1]), float(images.shape[2])
    drawn, ones = draws.uniform(keys, SCALE, 3), tf.ones([tf.shape(images)[0]])
    low, high = (math.log(factor) for factor in settings.scale or (1.0, 1.0))
    factor = tf.exp(low + (high - low) * drawn[0]) if settings.scale else ones
    turned = (draws.uniform(keys, FLIP_VERTICAL) < 0.5) if settings.flip_vertical else tf.zeros_like(ones, tf.bool)
    right, down = drawn[1] * (1.0 - factor) * width, drawn[2] * (1.0 - factor) * height
    rows = tf.stack([tf.zeros_like(ones), tf.where(turned, -factor, factor), tf.where(turned, down + factor * height, down)], 1)
    return tf.stack([tf.stack([factor, tf.zeros_like(ones), right], 1), rows], 1)


def moved_by(images: tf.Tensor, maps: tf.Tensor, fill: Sequence[float]) -> tf.Tensor:
    """Images [batch, height, width, channels] float32 by maps [batch, 2, 3], bilinear; pixels from beyond the border are `fill`."""
    back = geometry.inverse(maps)  # from the centres of new pixels, half a pixel from their corners, to the indices of old ones
    begins = tf.reduce_sum(back[..., :2], -1) * 0.5 + back[..., 2] - 0.5
    rows = tf.concat([back[..., :2], begins[..., None]], -1)
    flat = tf.concat([tf.reshape(rows, [-1, 6]), tf.zeros([tf.shape(images)[0], 2])], 1)
    colour = tf.constant(fill, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images - colour, transforms=flat, output_shape=tf.shape(images)[1:3], fill_value=0.0, interpolation="BILINEAR",
        fill_mode="CONSTANT")
    return tf.ensure_shape(moved, images.shape) + colour


def _recoloured(images: tf.Tensor, most: float, keys: tf.Tensor) -> tf.Tensor:
    """Brightness, contrast about the image's mean and saturation times factors of 1 - most to 1 + most, cut to 0..255."""
    bright, contrast, saturation = (factor[:, None, None, None] for factor in tf.unstack(1.0 + most * (
        2.0 * draws.uniform(keys, COLOUR, 3) - 1.0)))
    grey = tf.reduce_mean(images, -1, keepdims=True)
    images = grey + (images - grey) * saturation
    middle = tf.reduce_mean(images, [1, 2, 3], keepdims=True)
    return tf.clip_by_value((middle + (images - middle) * contrast) * bright, 0.0, 255.0)


def _reflect(positions: tf.Tensor, size: int) -> tf.Tensor:
    """Positions outside 0 .. size - 1 mirrored at the outermost pixel, which is not repeated."""
    return (size - 1) - tf.abs((size - 1) - tf.abs(positions))


def _squares(height: int, width: int, edge: int, keys: tf.Tensor) -> tf.Tensor:
    """True inside a square of each image, centred on a uniformly drawn pixel, [batch, height, width] bool."""
    top = draws.integers(keys, ERASE, 0, height - 1)[:, None] - edge // 2
    left = draws.integers(keys, ERASE + 1, 0, width - 1)[:, None] - edge // 2
    rows, columns = tf.range(height)[None], tf.range(width)[None]
    inside_rows = (rows >= top) & (rows < top + edge)
    inside_columns = (columns >= left) & (columns < left + edge)
    return inside_rows[:, :, None] & inside_columns[:, None, :]
