"""An encoder's blocks from input to output, so that some of them can be frozen, or learn more slowly than others.

What belongs together is read from the network: a layer made of layers is a block (a transformer's, MBConv), and so are plain layers whose
names begin alike (`block1a_...`). Embeddings and stem come before the first block; a norm belongs to the block before it.
"""

import re

import keras

from pipelines.encoders.features import parts

_PREFIX = re.compile(r"^((?:stack|stage)_?\d+_(?:block|unit|layer)_?\d+|block_?\d+[a-z]?)_")
_NUMBERED = re.compile(r"^(.*?(?:block|layer|layers))_?\d+$")

Block = list[keras.layers.Layer]


def blocks(model: keras.Model) -> list[Block]:
    """Of a network with a pretrained encoder: embeddings or stem, then each block; what follows the backbone belongs to the last."""
    features, _ = parts(model)
    backbone = features.get_layer("backbone")
    found: list[Block] = [[]]
    names = [""]
    for layer in _expanded(backbone):
        name = _block_name(layer)
        if name and name != names[-1]:
            found.append([])
            names.append(name)
        # a decoder's embedding may stand among an encoder's blocks
        found[0 if not name and "embed" in layer.name else -1].append(layer)
    found[-1] += [layer for layer in features.layers if layer.weights and layer is not backbone]
    return [block for block in found if block]


def _expanded(container: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Its layers with weights in their order; of one that holds numbered layers of one class these, such as the layers of `vit_encoder`."""
    layers = container.layers if isinstance(container, keras.Model) else container._layers
    found = []
    for layer in layers:
        if layer.weights:
            found += _expanded(layer) if isinstance(layer, keras.Model) or _holds_blocks(layer) else [layer]
    return found


def _holds_blocks(layer: keras.layers.Layer) -> bool:
    inner = [(type(one), _NUMBERED.match(one.name)) for one in layer._layers if one._layers]
    stems = {(kind, match and match[1]) for kind, match in inner}
    return len(stems) == 1 and all(match for _, match in inner)


def _block_name(layer: keras.layers.Layer) -> str:
    """Of the block that a layer begins or belongs to by its name; empty for one that is no block by itself."""
    match = _PREFIX.match(layer.name)
    if match:
        return match[1]
    return layer.name if layer._layers and "embed" not in layer.name else ""


def freeze(layers: Block) -> None:
    """Layers stand still: their weights do not train, statistics of batches do not move, and nothing in them is dropped."""
    for layer in layers:
        layer.trainable = False
        for inner in layer._flatten_layers():
            if isinstance(inner, keras.layers.Dropout) and inner.rate:
                inner.frozen_rate, inner.rate = inner.rate, 0.0


def unfreeze(layers: Block) -> None:
    """The opposite of `freeze`."""
    for layer in layers:
        layer.trainable = True
        for inner in layer._flatten_layers():
            if isinstance(inner, keras.layers.Dropout):
                inner.rate = getattr(inner, "frozen_rate", inner.rate)
