"""The models of recordings. Imports no TensorFlow."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.config.schema import Section, Share, WithHeads, setting
from pipelines.config.variants import Variants
from pipelines.encoders.settings import BlendedModel, PretrainedModel
from pipelines.fitting.settings import KernelModel
from speech.settings.recordings import Count

COMMAND_MODELS, TRANSCRIPT_MODELS = Variants(), Variants()


@COMMAND_MODELS.register("speech.models.ds_cnn:build")
class DsCnn(Section):
    """Depthwise separable convolutions, after Zhang et al. 2017, "Hello Edge" (arXiv:1711.07128)."""

    name: Literal["ds_cnn"]
    width: Annotated[int, Field(ge=4)] | list[Count] = setting(64, "filters of each convolution; or of the first, and of each block")
    depth: int = setting(4, "separable blocks after the first convolution", ge=1, le=20)
    dropout: Share = setting(0.2, "dropout before the last layer", unit="share")

    @property
    def widths(self) -> list[int]:
        """Filters of the first convolution, and of each block."""
        return self.width if isinstance(self.width, list) else [self.width] * (self.depth + 1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if len(self.widths) != self.depth + 1:
            found.append(("width", f"{len(self.widths)} numbers, and the first convolution and {self.depth} blocks have {self.depth + 1}"))
        return found

    @property
    def prunable(self) -> list[str]:
        return ["first", *(f"pointwise{number}" for number in range(self.depth))]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        return {"width": [counts[name] for name in self.prunable]}


@COMMAND_MODELS.register("speech.models.broadcast:build")
class Broadcast(Section):
    """Broadcasted residual learning, after Kim et al. 2021 (arXiv:2106.04140): convolutions over bands, residuals over time."""

    name: Literal["broadcast"]
    width: int = setting(16, "channels of the first stage; the others have 1, 1.5, 2 and 2.5 times as many", ge=4)
    depth: list[Count] = setting(lambda: [2, 2, 4, 4], "blocks of the four stages", min_length=4, max_length=4)
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")


@COMMAND_MODELS.register("speech.models.kernel:build")
class Kernel(KernelModel):
    """A kernel machine on statistics of cepstra, fitted at once: the cheap baseline that stands beside every report, as a model. With a
    preset those of an encoder of sounds stand beside them, and folds of train choose how much each counts."""

    preset: str | None = setting(
        None, "YAMNet: a folder with weights.npz and yamnet_class_map.csv, or its name in ~/.keras/presets; data.rate is then 16000",
        preset=True)
    weights: Literal["preset"] | None = setting("preset", "with preset: start from its weights; null: from scratch")

    @property
    def own_front_end(self) -> bool:
        """Hears as YAMNet does where there is a preset."""
        return self.preset is not None

    @property
    def is_baseline(self) -> bool:
        return self.preset is None


@COMMAND_MODELS.register("speech.models.yamnet:sounds")
class Yamnet(Section):
    """YAMNet as it is: which of AudioSet's 521 sounds are heard, several at once (`labels: many`, `source: none`). Nothing is trained."""

    name: Literal["yamnet"]
    own_front_end: ClassVar[bool] = True
    preset: str = setting("yamnet", "a folder with weights.npz and yamnet_class_map.csv, or its name in ~/.keras/presets", preset=True)
    weights: Literal["preset"] | None = setting("preset", "preset: start from its weights; null: from scratch")
    threshold: float = setting(0.2, "the mean score from which a sound is named; AudioSet's scores are low where several sounds mix",
                               unit="share", gt=0.0, lt=1.0)


@COMMAND_MODELS.register("speech.models.pretrained:commands")
class PretrainedSounds(BlendedModel):
    """The encoder of Whisper or Moonshine with its own front end, the mean of its vectors over speech, and a linear layer (these two need
    the extra `pretrained`); or YAMNet's, with mean and deviation of four of its layers."""

    own_front_end: ClassVar[bool] = True  # hears as its preset does, and not by the section `frontend`
    silence: float | None = setting(
        None, "silence that the encoder hears behind data.seconds; default: 1 s for Whisper, which was trained on sounds with much of it, "
        "none for Moonshine", unit="s", ge=0.0, le=30.0)
    names: str | None = setting(
        None, "Whisper, frozen: the language of the classes' names, such as en, where these are the words said, or digits: then the "
        "decoder's scores of the names stand beside the mean, for twice the weights (docs/pretrained.md)")

    def problems(self) -> list[tuple[str, str]]:
        frozen = self.finetune is not None and self.finetune.name == "frozen"
        wrong = self.names is not None and not frozen
        return super().problems() + ([("names", "is for a frozen encoder; set finetune: {name: frozen}")] if wrong else [])


@TRANSCRIPT_MODELS.register("speech.models.quartz:build")
class Quartz(Section):
    """Separable convolutions over time with residuals, after QuartzNet (Kriman et al. 2019, arXiv:1910.10261)."""

    name: Literal["quartz"]
    width: int = setting(128, "channels", ge=8)
    kernels: list[Annotated[int, Field(ge=3)]] = setting(
        lambda: [11, 13, 15, 17], "length of the convolutions of each block, odd", unit="frames", min_length=1)
    repeat: int = setting(2, "separable convolutions in a block", ge=1, le=10)
    stride: int = setting(2, "frames that become one step of the output", unit="frames", ge=1, le=8)
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")

    def problems(self) -> list[tuple[str, str]]:
        return super().problems() + [("kernels", f"{length} is not odd") for length in self.kernels if length % 2 == 0]


@TRANSCRIPT_MODELS.register("speech.models.conformer:build")
class Conformer(WithHeads):
    """Attention and convolution, after Gulati et al. 2020 (arXiv:2005.08100); four frames become one step."""

    name: Literal["conformer"]
    width: int = setting(144, "channels", ge=16)
    depth: int = setting(4, "blocks", ge=1, le=40)
    heads: int = setting(4, "attention heads", ge=1)
    kernel: int = setting(15, "length of the convolution, odd", unit="steps", ge=3)
    stride: ClassVar[int] = 4
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")

    def problems(self) -> list[tuple[str, str]]:
        return super().problems() + ([("kernel", f"{self.kernel} is not odd")] if self.kernel % 2 == 0 else [])


@TRANSCRIPT_MODELS.register("speech.models.pretrained:transcripts")
class PretrainedTranscripts(PretrainedModel):
    """The encoder of Whisper or Moonshine with its own front end, and CTC over means of its steps of 20 or 24 ms; needs the
    extra `pretrained`."""

    own_front_end: ClassVar[bool] = True
    stride: ClassVar[int] = 2
    merge: int | None = setting(
        None, "steps of the encoder whose mean is one step of the output. Default: 4, where nearly all of train's recordings then have "
        "twice the steps that their transcripts need, else 2, else 1", ge=1, le=50, search=True)
    layers: int = setting(
        1, "Whisper: the encoder's last so many layers, whose vectors stand beside one another under the last layer", ge=1, search=True)


@TRANSCRIPT_MODELS.register("speech.models.pretrained:whisper")
class Whisper(Section):
    """Whisper whole, encoder and decoder (Radford et al. 2022, arXiv:2212.04356): it writes as it was trained to, or is trained further;
    needs the extra `pretrained`."""

    name: Literal["whisper"]
    own_front_end: ClassVar[bool] = True
    own_decoder: ClassVar[bool] = True  # writes token by token, without CTC; without training, too
    preset: str = setting(..., "as of model.name: pretrained; with its tokenizer", preset=True)
    weights: Literal["preset"] | None = setting("preset", "preset: start from its weights; null: from scratch")
    language: str | None = setting(
        None, "of the speech, such as en or de; default: recognised from each 30 s, where the preset knows several")
    trains: Literal["nothing", "decoder", "whole"] = setting("nothing", "nothing: it is used as it is, without training; or what trains")
    longest: int = setting(224, "most tokens written of 30 s", unit="tokens", ge=1, le=448)
    times: bool = setting(False, "write time stamps, too: when each phrase begins and ends")
    silence: float | None = setting(
        None, "silence heard behind a recording, so that one shorter than 30 s costs what it lasts; default: up to 30 s, as it was trained",
        unit="s", ge=0.0, le=30.0)
