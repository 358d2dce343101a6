"""The settings of a pretrained encoder that all domains share; a domain derives its own section. Imports no TensorFlow."""

from typing import Literal

from pipelines.config.schema import Section, Share, setting
from pipelines.encoders.finetune import FROZEN_BELOW, Finetune


class PretrainedModel(Section):
    """An encoder of KerasHub with a new head; needs the extra `pretrained`."""

    name: Literal["pretrained"]
    preset: str = setting(
        ..., "the encoder: a folder (a Keras preset, or from Hugging Face or timm with safetensors), a name in ~/.keras/presets, "
        "hf://ORGANISATION/NAME, or a name of KerasHub such as bert_tiny_en_uncased; the last two are downloaded once",
        preset=True)
    weights: Literal["preset"] | None = setting("preset", "preset: start from its weights; null: from scratch")
    dropout: Share = setting(0.1, "dropout before the last layer", unit="share")
    finetune: Finetune | None = setting(
        None, "how the network is trained: frozen, last, gradual, whole or lora; default: by the number of training examples, frozen below "
        f"{FROZEN_BELOW:,}, else whole, of networks with batch normalisation the last 0.7 of the blocks")
