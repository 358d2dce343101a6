"""MixUp and CutMix: an image mixed with its neighbour in the shuffled batch. In graph, pure.

Two neighbours are each other's partners. A share and a box are drawn from the image's own key, so that the result does not depend on how
the batch is divided, as long as its parts are even: the last image of an odd one stays as it is.
"""

import functools

import numpy as np
import tensorflow as tf

from pipelines.data import random

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
    drawn = random.uniform(keys, stream, 3)

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
