"""A small vision transformer for 28 to 64 px (Dosovitskiy et al. 2021).

Mean pooling and positions that start as sine waves, after Beyer et al. 2022 (Better plain ViT baselines for ImageNet-1k).
"""

from collections.abc import Sequence

import keras
import numpy as np

from pipelines.base.errors import ConfigError
from vision.models.layers import logits, pixels
from vision.settings import Vit


def build(
    settings: Vit, *, image_size: tuple[int, int], channels: int, classes: int, mean: Sequence[float], std: Sequence[float],
) -> keras.Model:
    """See `vision.models.build`.

    Raises:
        ConfigError: the patch does not divide the image.
    """
    if image_size[0] % settings.patch or image_size[1] % settings.patch:
        raise ConfigError(
            f"model.patch: {settings.patch} px does not divide images of {image_size[0]} x {image_size[1]} px; "
            f"choose a patch that divides both, or set data.image_size")
    layers = keras.layers
    rows, columns = image_size[0] // settings.patch, image_size[1] // settings.patch
    images, x = pixels(image_size, channels, mean, std)
    x = layers.Reshape((rows, settings.patch, columns, settings.patch, channels), name="split")(x)
    x = layers.Permute((1, 3, 2, 4, 5), name="patches")(x)
    x = layers.Reshape((rows * columns, settings.patch**2 * channels), name="tokens")(x)
    # the projection of the patches; its bias for each place is the learned position, which starts as sine waves
    embed = layers.EinsumDense("bnd,de->bne", output_shape=(rows * columns, settings.width), bias_axes="ne", name="embed")
    x = embed(x)
    embed.bias.assign(_sine_positions(rows, columns, settings.width))
    for number in range(1, settings.depth + 1):
        x = _block(x, settings, number)
    x = layers.LayerNormalization(epsilon=1e-6, name="last_norm")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(images, logits(x, classes), name="vit")


def _block(x: keras.KerasTensor, settings: Vit, number: int) -> keras.KerasTensor:
    """Attention, then a dense layer four times as wide, each after its norm and beside the identity."""
    layers, name = keras.layers, f"block{number}"
    hidden = 4 * settings.width if settings.hidden is None else settings.of_block("hidden", number)
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    attention = layers.MultiHeadAttention(settings.of_block("heads", number), settings.size_of_head, dropout=settings.dropout,
                                          name=f"{name}_attention")
    x = layers.Add(name=f"{name}_add1")([x, attention(y, y)])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(hidden, activation="gelu", name=f"{name}_dense1")(y)
    y = layers.Dense(settings.width, name=f"{name}_dense2")(y)
    if settings.dropout:
        y = layers.Dropout(settings.dropout, name=f"{name}_dropout")(y)
    return layers.Add(name=f"{name}_add2")([x, y])


def _sine_positions(rows: int, columns: int, width: int) -> np.ndarray:
    """Two-dimensional sine and cosine positions, [rows * columns, width] float32; left-over columns are 0."""
    quarter = width // 4
    frequencies = 1.0 / 10_000 ** (np.arange(quarter) / max(quarter - 1, 1))
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    angles = [position.reshape(-1, 1) * frequencies for position in (row, column)]
    table = np.zeros((rows * columns, width), np.float32)
    table[:, : 4 * quarter] = np.concatenate([part(angle) for angle in angles for part in (np.sin, np.cos)], axis=1)
    return table
