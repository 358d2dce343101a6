"""A residual network for 28 to 64 px with pre-activation (He et al. 2016, Identity Mappings in Deep Residual Networks)."""

from collections.abc import Sequence

import keras

from pipelines.training.batch_norm import FusedBatchNormalization
from vision.models.layers import check_size, logits, pixels
from vision.settings import Residual


def build(
    settings: Residual, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`. `depth` blocks in each stage; each stage after the first halves the size."""
    check_size(image_size, 2 ** (len(settings.widths) - 1), "residual")
    layers = keras.layers
    images, x = pixels(image_size, channels, mean, std)
    x = layers.Conv2D(settings.widths[0], 3, padding="same", use_bias=False, kernel_initializer="he_normal", name="stem")(x)
    inner = settings.inner or [settings.widths[stage - 1] for stage, _ in settings.blocks]
    for (stage, number), between in zip(settings.blocks, inner):
        x = _block(x, settings.widths[stage - 1], between, stride=2 if stage > 1 and number == 1 else 1, name=f"stage{stage}_block{number}")
    x = layers.ReLU(name="last_relu")(FusedBatchNormalization(momentum=0.9, name="last_norm")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    if settings.dropout:
        x = layers.Dropout(settings.dropout, name="dropout")(x)
    return keras.Model(images, logits(x, classes), name="residual")


def _block(x: keras.KerasTensor, width: int, between: int, *, stride: int, name: str) -> keras.KerasTensor:
    """Norm, ReLU, convolution, twice, beside the identity (or a 1 x 1 convolution where width or size change); `between` filters in the
    middle."""
    layers = keras.layers

    def convolution(features: keras.KerasTensor, filters: int, size: int, stride: int, label: str) -> keras.KerasTensor:
        return layers.Conv2D(
            filters, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal", name=f"{name}_{label}")(features)

    active = layers.ReLU(name=f"{name}_relu1")(FusedBatchNormalization(momentum=0.9, name=f"{name}_norm1")(x))
    shortcut = x if stride == 1 and x.shape[-1] == width else convolution(active, width, 1, stride, "shortcut")
    y = convolution(active, between, 3, stride, "conv1")
    y = layers.ReLU(name=f"{name}_relu2")(FusedBatchNormalization(momentum=0.9, name=f"{name}_norm2")(y))
    return layers.Add(name=f"{name}_add")([shortcut, convolution(y, width, 3, 1, "conv2")])
