"""A small wide network after the CIFAR speed records (Jordan 2024, 94% on CIFAR-10 in 3.29 seconds on a single GPU).

Its first convolution is fixed to the whitening of 2 x 2 training patches (`whiten`), the other
convolutions start as partial identities, and batch normalisation has no scale.
"""

from collections.abc import Sequence

import keras
import numpy as np

from pipelines.training.batch_norm import FusedBatchNormalization
from vision.models.layers import check_size, logits, pixels
from vision.settings import Fast

WHITEN = "whiten"  # name of the whitening convolution, by which `whiten` finds it


def build(
    settings: Fast, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`. Each stage: convolution, 2 x 2 max-pooling, norm, activation, convolution, norm, activation."""
    check_size(image_size, 2 ** len(settings.widths) + 1, "fast")
    layers = keras.layers
    images, x = pixels(image_size, channels, mean, std)
    # each whitened direction and its negative, so that the activation loses neither
    x = layers.Conv2D(2 * 4 * channels, 2, use_bias=False, trainable=not settings.whiten, name=WHITEN)(x)
    x = layers.Activation(settings.activation, name="whiten_activation")(x)
    for stage, width in enumerate(settings.widths, 1):
        first, second = width if isinstance(width, list) else (width, width)
        x = layers.Conv2D(first, 3, padding="same", use_bias=False, name=f"stage{stage}_conv1")(x)
        x = layers.MaxPooling2D(2, name=f"stage{stage}_pool")(x)
        x = _norm_activation(x, settings.activation, f"stage{stage}_1")
        x = layers.Conv2D(second, 3, padding="same", use_bias=False, name=f"stage{stage}_conv2")(x)
        x = _norm_activation(x, settings.activation, f"stage{stage}_2")
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    model = keras.Model(images, logits(x, classes, scale=settings.scale, use_bias=False), name="fast")
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D) and layer.name != WHITEN:
            _start_as_identity(layer)
    return model


def _norm_activation(x: keras.KerasTensor, activation: str, name: str) -> keras.KerasTensor:
    x = FusedBatchNormalization(momentum=0.6, epsilon=1e-5, scale=False, name=f"{name}_norm")(x)
    return keras.layers.Activation(activation, name=f"{name}_activation")(x)


def _start_as_identity(layer: keras.layers.Conv2D) -> None:
    """Lets the first filters of a convolution pass its input through unchanged (Dirac initialisation)."""
    kernel = np.array(layer.kernel)
    height, width, inputs, outputs = kernel.shape
    same = min(inputs, outputs)
    kernel[:, :, :, :same] = 0.0
    kernel[height // 2, width // 2, range(same), range(same)] = 1.0
    layer.kernel.assign(kernel)


def whiten(model: keras.Model, images: np.ndarray) -> None:
    """Sets the first convolution of `fast` to the whitening of the patches of training images; other models stay unchanged.

    The filters are the eigenvectors of the patches' covariance over the square root of their eigenvalues, and their negatives.

    Args:
        model: as `build` gave it.
        images: [n, height, width, channels], 0..255, from train only.
    """
    layer = next((layer for layer in model.layers if layer.name == WHITEN and not layer.trainable), None)
    if layer is None:
        return
    normalised = np.asarray(model.get_layer("normalise")(np.asarray(images, np.float32)), np.float64)
    height, width, channels, filters = layer.kernel.shape
    windows = np.lib.stride_tricks.sliding_window_view(normalised, (height, width), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, height * width * channels)
    values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))  # the mean is 0 by normalisation
    strongest = np.argsort(values)[::-1][: filters // 2]
    directions = vectors[:, strongest] / np.sqrt(values[strongest] + 5e-4)
    layer.kernel.assign(np.concatenate([directions, -directions], axis=1).reshape(height, width, channels, filters))
