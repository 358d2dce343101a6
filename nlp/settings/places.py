"""What the settings of tasks share whose answers are places in a text. Imports no TensorFlow."""

from typing import Any, ClassVar, Literal

from pipelines.config.schema import Experiment, setting
from pipelines.encoders.finetune import Finetune, Whole
from pipelines.encoders.settings import PretrainedModel


class PlaceEncoder(PretrainedModel):
    """An encoder of KerasHub with a layer on the vector of each token; needs the extra `pretrained`."""

    name: Literal["pretrained"] = setting(..., "an encoder of KerasHub, as yet the only kind of model")
    own_tokens: ClassVar[bool] = True
    layers: ClassVar[int | None] = 1
    words: ClassVar[int | None] = 0
    html: ClassVar[bool] = False
    pool: ClassVar[str] = "mean"
    limit: int = setting(512, "tokens of a text that are used, with the encoder's own marks; in what comes after nothing is found",
                         unit="tokens", ge=4)
    window: int | None = setting(
        None, "tokens that the encoder sees at a time: a longer text is cut into windows of equal length; default: as many as it takes",
        unit="tokens", ge=4)
    finetune: Finetune | None = setting(
        lambda: Whole(name="whole", head="new"), "how the network is trained: last, gradual, whole or lora; head: new")

    def problems(self) -> list[tuple[str, str]]:
        wrong = self.finetune is None or self.finetune.name == "frozen" or self.finetune.head != "new"
        return super().problems() + ([("finetune", "the encoder trains under a new head: {name: whole, head: new}, or last, gradual or "
                                       "lora")] if wrong else [])


class PlaceExperiment(Experiment):
    """Its tokens are those of an encoder."""

    own_tokens: ClassVar[bool] = True
    tokens: ClassVar[None] = None
    model: Any

    @property
    def limit(self) -> int:
        """Tokens that are read."""
        return int(self.model.limit)
