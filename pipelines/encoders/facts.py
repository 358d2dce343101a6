"""What a run keeps of its pretrained encoder, checked when the run is loaded. Imports no TensorFlow."""

from typing import Annotated, Any

from pydantic import Field

from pipelines.base.stored import Count, Record, Text


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
