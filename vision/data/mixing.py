"""MixUp and CutMix of whole batches: images and labels mixed with a partner's from the same micro-batch. In graph, pure.

Keras' layers of these names keep their generators' state; these draw from the seed of the micro-batch, and are otherwise the same.
"""

import tensorflow as tf


def mix(
    images: tf.Tensor, labels: tf.Tensor, *, mixup: float, cutmix: float, seed: tf.Tensor, classes: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """MixUp or CutMix; where both alphas are set, each batch takes one of them at even odds.

    Args:
        images: [batch, height, width, channels] float32.
        labels: [batch] integer.
        mixup: alpha of MixUp (Zhang et al. 2018), 0 for none.
        cutmix: alpha of CutMix (Yun et al. 2019), 0 for none.
        seed: int32 [2].
        classes: number of classes.

    Returns:
        (images as given, targets [batch, classes] float32 that sum to 1).
    """
    batch = tf.shape(images)[0]
    order, share, place, coin = (tf.random.experimental.stateless_fold_in(seed, number) for number in range(4))
    partner = tf.random.experimental.index_shuffle(tf.range(batch), order, batch - 1)
    others = tf.gather(images, partner)
    if not (mixup and cutmix):
        mixed, weight = _blend(images, others, mixup, share) if mixup else _paste(images, others, cutmix, share, place)
    else:
        mixed, weight = tf.cond(
            tf.random.stateless_uniform([], coin) < 0.5, lambda: _blend(images, others, mixup, share),
            lambda: _paste(images, others, cutmix, share, place))
    targets = tf.one_hot(labels, classes)
    weight = weight[:, None]
    return mixed, weight * targets + (1.0 - weight) * tf.gather(targets, partner)


def _blend(images: tf.Tensor, others: tf.Tensor, alpha: float, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """MixUp: (mixed images, weight [batch] of each image's own label)."""
    weight = _beta(tf.shape(images)[0], alpha, seed)
    own = weight[:, None, None, None]
    return own * images + (1.0 - own) * others, weight


def _paste(images: tf.Tensor, others: tf.Tensor, alpha: float, share: tf.Tensor, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """CutMix: a box of the partner, centred anywhere and cut at the border; (mixed images, weight [batch] by what is left)."""
    batch, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    edge = tf.sqrt(1.0 - _beta(batch, alpha, share))[:, None]
    centres = tf.random.stateless_uniform([2, batch, 1], place)

    def inside(size: int, centre: tf.Tensor) -> tf.Tensor:
        middle, half = tf.floor(centre * size), edge * size / 2.0
        positions = tf.range(size, dtype=tf.float32)[None]
        return (positions >= tf.round(middle - half)) & (positions < tf.round(middle + half))

    rows, columns = inside(height, centres[0]), inside(width, centres[1])
    box = rows[:, :, None] & columns[:, None, :]
    left = 1.0 - tf.reduce_mean(tf.cast(box, tf.float32), axis=[1, 2])
    return tf.where(box[..., None], others, images), left


def _beta(count: tf.Tensor, alpha: float, seed: tf.Tensor) -> tf.Tensor:
    """Beta(alpha, alpha), [count] float32, as a ratio of gamma variates."""
    first, second = tf.unstack(tf.random.stateless_gamma(tf.stack([2, count]), seed, alpha))
    total = first + second
    return tf.where(total > 0.0, first / tf.maximum(total, 1e-30), 0.5)
