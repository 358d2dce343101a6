"""The facts of vision.classification, checked when a run is loaded."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from pipelines.base.stored import Count
from pipelines.task.facts import ClassFacts, Moment

Pixels = Annotated[int, Field(ge=1, le=16_384)]


class ImageFacts(ClassFacts):
    image_size: Annotated[list[Pixels], Field(min_length=2, max_length=2)]
    channels: Annotated[int, Field(ge=1, le=3)]
    mean: list[Moment]
    std: list[Annotated[Moment, Field(ge=0)]]
    statistics_of: Count = 0

    @model_validator(mode="after")
    def _channels(self) -> Any:
        if self.channels == 2:
            raise ValueError("channels: 2 is neither 1 nor 3")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels:
                raise ValueError(f"{name}: {len(values)} numbers for {self.channels} channels")
        return self
