"""What of a network with a pretrained encoder trains, and at which share of the learning rate, by the way of fine-tuning: whole blocks
from input to output, or a low-rank change of some dense layers (LoRA, Hu et al. 2021, arXiv:2106.09685).
"""

import fnmatch
import re

import keras

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment
from pipelines.encoders.features import parts
from pipelines.encoders.finetune import Finetune, Frozen, Gradual, Last, Lora, Whole, by_examples, stated
from pipelines.encoders.linear_head import dense_of
from pipelines.encoders.settings import PretrainedModel

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


RATES = {"batch norm": 1e-3, "others": 1e-4}  # of an encoder, where the experiment states none
LORA = 5.0  # times as much for its changes, which begin at 0


def way_of(experiment: Experiment, model: keras.Model, examples: int) -> Finetune | None:
    """How a network is fine-tuned: as the experiment says, else by the number of training examples; None: it has no encoder and head, or
    is fitted at once.

    Raises:
        ConfigError: train.freeze says something else, or the network cannot be trained so.
    """
    settings = getattr(experiment, "model", None)
    if not isinstance(settings, PretrainedModel) or getattr(settings, "fitted", False):
        return None
    if {"features", "head"} - {layer.name for layer in model.layers}:
        if settings.finetune is not None:
            raise ConfigError("model.finetune: is for an encoder under a new head, which this network is not; leave it out")
        return None
    if experiment.train.freeze is None:
        return settings.finetune or by_examples(examples, convolutional=_convolutional(parts(model)[0]))
    if settings.finetune is not None:
        raise ConfigError("train.freeze: model.finetune says which layers train; leave one of the two out")
    return Whole(name="whole", decay=1.0)


def note(experiment: Experiment, way: Finetune | None, examples: int) -> str | None:
    """What is said of a way that nobody chose; None where somebody did."""
    settings = getattr(experiment, "model", None)
    chosen = not isinstance(settings, PretrainedModel) or settings.finetune is not None or experiment.train.freeze is not None
    return None if way is None or chosen else stated(examples, way)


def settle(way: Finetune, model: keras.Model) -> None:
    """Freezes what never trains, and adds what LoRA trains; call it inside the strategy's scope, on a new model.

    Raises:
        ConfigError: the encoder has fewer blocks, or no such layers.
    """
    features, _ = parts(model)
    if isinstance(way, Last):
        found = blocks(model)
        count = way.blocks if isinstance(way.blocks, int) else max(1, round(way.blocks * (len(found) - 1)))
        if count >= len(found):
            raise ConfigError(f"model.finetune.blocks: {way.blocks} of {len(found) - 1} blocks; take fewer, or finetune: {{name: whole}}")
        freeze([layer for block in found[:-count] for layer in block])
    elif isinstance(way, (Frozen, Lora)):
        freeze([features])
        if isinstance(way, Lora):
            add(way, features)


def shares(way: Finetune | None, model: keras.Model, peak: float) -> dict[int, float]:
    """id of a weight -> its learning rate as a share of the schedule's, whose highest is `peak`; of those that are missing it is 1."""
    if way is None or isinstance(way, Frozen):
        return {}
    features, head = parts(model)
    rate = _rate(way, features)
    found = {id(weight): rate / peak for weight in features.weights if weight.trainable}
    if way.head == "fitted" and dense_of(head) is not None:
        found |= {id(weight): rate / peak for weight in head.weights}
    if isinstance(way, (Gradual, Whole)):
        for depth, block in enumerate(reversed(blocks(model))):
            share = rate / peak * way.decay**depth
            found |= {id(weight): share for layer in block for weight in layer.weights if weight.trainable}
    return found


def _rate(way: Last | Gradual | Whole | Lora, features: keras.Model) -> float:
    """The encoder's peak learning rate."""
    if way.learning_rate is not None:
        return way.learning_rate
    return RATES["batch norm" if _convolutional(features) else "others"] * (LORA if isinstance(way, Lora) else 1.0)


def _convolutional(features: keras.Model) -> bool:
    """Whether an encoder has batch normalisation, as convolutional networks of images do."""
    return any(isinstance(layer, keras.layers.BatchNormalization) for layer in features._flatten_layers())
