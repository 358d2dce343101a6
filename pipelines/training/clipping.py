"""Clipping of gradients that are summed over the whole batch."""

import tensorflow as tf

from pipelines.config.schema import Clip


def clip(gradients: list, norm: tf.Tensor, settings: Clip) -> list:
    """Clips the summed gradients as the settings say: by global norm (Pascanu et al. 2013), by each one's norm, or by value.

    Args:
        norm: float32 scalar, the global norm of all gradients of the step.
    """
    if settings.global_norm:
        factor = settings.global_norm / tf.maximum(norm, settings.global_norm)
        return [gradient * factor for gradient in gradients]
    if settings.norm:
        return [tf.clip_by_norm(gradient, settings.norm) for gradient in gradients]
    if settings.value:
        return [tf.clip_by_value(gradient, -settings.value, settings.value) for gradient in gradients]
    return gradients
