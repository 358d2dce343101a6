"""The settings of a pretrained encoder that all domains share, of which a domain derives its own section, and what a run keeps of its
encoder, checked when the run is loaded. Imports no TensorFlow.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.base.stored import Count, Record, Text
from pipelines.config.schema import Section, Share, setting
from pipelines.encoders.finetune import FROZEN_BELOW, Finetune


class KerasObject(Record):
    """An object of keras-hub: its class and settings."""

    class_: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=200)] = Field(alias="class")
    config: dict[str, Any]


class EncoderRecord(Record):
    """Where a run's encoder came from. `licence` and `source` are what the preset states; null where it states nothing.
    `unread`: pickles beside its weights, which nothing opened."""

    name: Text
    source: Text | None = None
    checksum: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    licence: Text | None = None
    weights: Count
    unread: list[Text] = Field(default_factory=list)


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


class BlendedModel(PretrainedModel):
    """An encoder whose answers can be averaged with those of a kernel machine (pipelines.encoders.blend)."""

    blend: Literal["kernel"] | None = setting(
        None, "kernel: answers are the weighted mean of those of a linear head on the frozen encoder and those of the model `kernel`, both "
        "fitted at once; the weights are chosen on folds of train")

    @property
    def fitted(self) -> bool:
        return self.blend is not None

    def problems(self) -> list[tuple[str, str]]:
        trained = self.blend is not None and self.finetune is not None and self.finetune.name != "frozen"
        return super().problems() + ([("blend", "is for an encoder that stays as it is; leave finetune out")] if trained else [])
