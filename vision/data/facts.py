"""The facts of this domain's tasks, checked when a run is loaded."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipelines.base.stored import Count, Record
from pipelines.encoders.settings import EncoderRecord, KerasObject
from pipelines.task.facts import ClassFacts, Facts, Moment, NumberFacts

Pixels = Annotated[int, Field(ge=1, le=16_384)]
ENCODER_FACTS = ("backbone", "image_converter", "encoder")  # there where the model is a pretrained encoder


class Converter(Record):
    """How an encoder wants its images: of what size, and pixels 0..255 times `scale` plus `offset`, numbers or one a channel."""

    image_size: Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = None
    scale: Moment | Annotated[list[Moment], Field(min_length=3, max_length=3)] | None = None
    offset: Moment | Annotated[list[Moment], Field(min_length=3, max_length=3)] | None = None
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"] = "bilinear"
    antialias: bool = False


class PixelFacts(Facts):
    """Of images, whatever is said of them."""

    image_size: Annotated[list[Pixels], Field(min_length=2, max_length=2)]
    channels: Annotated[int, Field(ge=1, le=3)]
    mean: list[Moment]
    std: list[Annotated[Moment, Field(ge=0)]]
    statistics_of: Count = 0
    backbone: KerasObject | None = None
    image_converter: Converter | None = None
    encoder: EncoderRecord | None = None

    @model_validator(mode="after")
    def _channels(self) -> Any:
        if self.channels == 2:
            raise ValueError("channels: 2 is neither 1 nor 3")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels:
                raise ValueError(f"{name}: {len(values)} numbers for {self.channels} channels")
        return self


class ImageFacts(PixelFacts, ClassFacts):
    """Of vision.classification, and of vision.detection, whose examples of a class are boxes."""


class ImageNumberFacts(PixelFacts, NumberFacts):
    """Of vision.regression."""


Code = Annotated[int, Field(ge=0, lt=1 << 24)]


class CodingFacts(Record):
    """Which class each value of the masks is; see vision.data.masks.values.Coding."""

    kind: Literal["grey", "palette", "colour"]
    values: Annotated[list[Code], Field(min_length=2, max_length=254)]
    void: Annotated[list[Code], Field(max_length=256)] = []
    decoded: Annotated[list[list[Code]], Field(min_length=2, max_length=2)]

    @model_validator(mode="after")
    def _decoded(self) -> Any:
        codes, numbers = self.decoded
        if codes != sorted(set(codes)) or len(numbers) != len(codes) or not codes or max(numbers) > 255:
            raise ValueError("decoded: no ascending codes with a class number each")
        if self.kind != "colour" and max(self.values) > 255:
            raise ValueError(f"values: {max(self.values)} is no grey level and no index")
        return self


class MaskFacts(PixelFacts, ClassFacts):
    """Of vision.segmentation, whose examples of a class are pixels."""

    coding: CodingFacts

    @model_validator(mode="after")
    def _values(self) -> Any:
        if len(self.coding.values) != len(self.classes):
            raise ValueError(f"coding.values: {len(self.coding.values)} for {len(self.classes)} classes")
        return self
