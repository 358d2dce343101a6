"""What of a network with a pretrained encoder trains, and at which share of the learning rate, by the way of fine-tuning."""

import keras

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment
from pipelines.encoders import lora
from pipelines.encoders.blocks import blocks, freeze
from pipelines.encoders.features import parts
from pipelines.encoders.finetune import Finetune, Frozen, Gradual, Last, Lora, Whole, by_examples, stated
from pipelines.encoders.linear_head import dense_of
from pipelines.encoders.settings import PretrainedModel

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
            lora.add(way, features)


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
