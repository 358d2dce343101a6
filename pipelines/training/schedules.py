"""Learning rate as a pure function of the step."""

import math

import tensorflow as tf

from pipelines.config.schema import LearningRate


def learning_rate(settings: LearningRate, steps: int, step: tf.Tensor) -> tf.Tensor:
    """The rate at `step` of a run of `steps`: float32 scalar, in graph or eager.

    With warm-up over w = warmup x steps, step s < w has start + (1 - start) (s + 1) / (w + 1) of the peak, so the
    first step already moves; one_cycle rises along a half cosine instead (Smith and Topin 2018). After it,
    cosine and one_cycle fall as (1 + cos(pi t)) / 2 and linear as 1 - t to `final`, with t from 0 to 1 (SGDR,
    Loshchilov and Hutter 2017, without restarts).
    """
    s = tf.cast(step, tf.float32)
    warm = settings.warmup * steps
    t = tf.clip_by_value((s - warm) / max(1.0, steps - 1 - warm), 0.0, 1.0)
    if settings.schedule in ("cosine", "one_cycle"):
        share = settings.final + (1.0 - settings.final) * 0.5 * (1.0 + tf.cos(math.pi * t))
    elif settings.schedule == "linear":
        share = settings.final + (1.0 - settings.final) * (1.0 - t)
    elif settings.schedule == "step":
        passed = tf.reduce_sum(tf.cast(s >= tf.constant([m * steps for m in settings.milestones], tf.float32), tf.float32))
        share = tf.pow(settings.factor, passed)
    else:
        share = tf.ones_like(s)
    if warm > 0.0:
        rise = tf.minimum((s + 1.0) / (warm + 1.0), 1.0)
        if settings.schedule == "one_cycle":
            rise = 0.5 * (1.0 - tf.cos(math.pi * rise))
        share = tf.where(s < warm, settings.start + (1.0 - settings.start) * rise, share)
    return settings.peak * share
