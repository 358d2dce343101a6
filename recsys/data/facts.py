"""The facts of the tasks of this domain as they are read back."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipelines.base.stored import Count, Name, Record, Text
from pipelines.task.facts import Facts, Moment

Id = Annotated[str, Field(max_length=10_000)]
Ids = list[Annotated[int, Field(ge=-(2**63) + 1, lt=2**63)]] | list[Id]  # all whole numbers or all texts, each once


class Feature(Record):
    """A column."""

    name: Name
    kind: Literal["number", "category", "list", "vector"]
    of: Literal["event", "item", "user"]
    mean: Moment = 0.0
    std: Annotated[Moment, Field(gt=0)] = 1.0
    values: list[Id] = []
    length: Annotated[int, Field(ge=1, le=100_000)] = 1

    @model_validator(mode="after")
    def _complete(self) -> Any:
        wanted = {"number": ("mean", "std"), "category": ("values",), "list": ("values", "length"),
                  "vector": ("std", "length")}[self.kind]
        missing = [name for name in wanted if name not in self.model_fields_set]
        if missing:
            raise ValueError(f"{missing[0]}: field required")
        return self


class EventFacts(Facts):
    """Of all tasks here. The last `new_items` of `item_ids` and `new_users` of `user_ids` are not in train, but in the tables of items and
    users."""

    user_ids: Ids | None = None
    item_ids: Ids | None = None
    new_items: Count = 0
    new_users: Count = 0
    titles: list[Text] | None = None
    features: dict[Name, Feature]
    history_events: Count
    divided: Text
    fitted: Text | None = None  # what was chosen for a model in closed form
    learned: Text | None = None  # fingerprint of the validation split that it has learned from in the end

    @model_validator(mode="after")
    def _ids(self) -> Any:
        for name in ("user_ids", "item_ids"):
            ids = getattr(self, name)
            if ids is not None and len(set(ids)) < len(ids):
                raise ValueError(f"{name}: an id is there twice")
        for of, ids in (("items", self.item_ids), ("users", self.user_ids)):
            if getattr(self, f"new_{of}") and getattr(self, f"new_{of}") >= len(ids or ()):
                raise ValueError(f"new_{of}: train has none of them")
        if self.titles is not None and len(self.titles) != len(self.item_ids or ()):
            raise ValueError(f"titles: {len(self.titles)} for {len(self.item_ids or ())} items")
        return self


class ListFacts(EventFacts):
    user_ids: Ids
    item_ids: Annotated[Ids, Field(min_length=1)]


class WindowFacts(ListFacts):
    targets_per_window: Annotated[float, Field(ge=0, le=1e9)]


class Label(Record):
    """Of the ratings in train."""

    mean: Moment
    low: Moment
    high: Moment
    std: Annotated[Moment, Field(gt=0)] = 1.0


class RankingFacts(EventFacts):
    label: Label
    digest: Text


class BanditFacts(EventFacts):
    """`item_ids` are the actions; `rates` their mean rewards in train, few choices counting less; `habits` the mean logarithms of their
    propensities; `binary`: rewards are 0 or 1."""

    item_ids: Annotated[Ids, Field(min_length=1)]
    label: Label
    binary: bool
    rates: list[Moment]
    habits: list[Moment]
    sharpness: Annotated[float, Field(ge=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _rates(self) -> Any:
        for name in ("rates", "habits"):
            if len(getattr(self, name)) != len(self.item_ids):
                raise ValueError(f"{name}: {len(getattr(self, name))} for {len(self.item_ids)} actions")
        if not any(one.of == "event" for one in self.features.values()):
            raise ValueError("features: none of the context")
        return self
