"""LoRA (Hu et al. 2021, arXiv:2106.09685): a low-rank change of some dense layers trains, and the layers themselves stand still.

Keras keeps the change beside the kernel and saves both as one kernel, so that a saved network is of the encoder's own form.
"""

import fnmatch

import keras

from pipelines.base.errors import ConfigError
from pipelines.encoders.finetune import Lora


def add(way: Lora, features: keras.Model) -> None:
    """Adds a change, at first 0, to each layer of a frozen network that the settings name.

    Raises:
        ConfigError: a pattern matches none that can change.
    """
    able = [layer for layer in features._flatten_layers() if hasattr(layer, "enable_lora") and layer.built]
    for pattern in way.layers:
        chosen = [layer for layer in able if fnmatch.fnmatchcase(layer.name, pattern)]
        if not chosen:
            names = ", ".join(sorted({layer.name for layer in able}))
            raise ConfigError(f"model.finetune.layers: {pattern!r} matches no dense layer of the encoder; it has {names}")
        for layer in chosen:
            if not layer.lora_enabled:
                layer.enable_lora(way.rank, lora_alpha=way.scale * way.rank)
                layer.lora_kernel_a.trainable = layer.lora_kernel_b.trainable = True  # in a layer that stands still
