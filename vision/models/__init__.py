"""Image classifiers as functional Keras models, from pixels to logits.

Every model takes [batch, height, width, channels] float32 images in 0..255, normalises them inside, and
gives [batch, classes] float32 logits whatever the precision. `build` is the one door.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.config.schema import Section
from vision.settings import MODELS

if TYPE_CHECKING:
    import keras
    import numpy as np

def build(
    settings: Section, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
    facts: dict[str, Any] | None = None,
) -> "keras.Model":
    """A new model under the current Keras precision policy, with fresh weights drawn from Keras' global seed.

    Args:
        settings: the experiment's model section.
        image_size: height and width in px.
        channels: 1 or 3.
        classes: number of logits.
        mean: mean of each channel over train, in pixel values 0..255.
        std: standard deviation of each channel over train, in pixel values 0..255.
        facts: the task's, of which `pretrained` takes what its preset says.

    Returns:
        keras.Model: [batch, height, width, channels] float32, 0..255 -> [batch, classes] float32 logits.

    Raises:
        ConfigError: the images are too small for the network, or its pretrained weights cannot be had.
    """
    return MODELS.build(settings, image_size=image_size, channels=channels, classes=classes, mean=mean, std=std,
                        facts=facts or {})


def initialise(model: "keras.Model", images: "np.ndarray") -> None:
    """Sets what is computed from training images before step 0: the whitening of `fast`; nothing for other models.

    Args:
        model: as `build` gave it.
        images: [n, height, width, channels], 0..255, from train only; some hundreds are enough.
    """
    from vision.models import fast

    fast.whiten(model, images)
