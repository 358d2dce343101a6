"""What a domain may declare beyond plain settings: lists and mappings of sections, optional choices, mixed types, validators."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator

from pipelines.config.check import Check, validation_problems
from pipelines.config.problems import dotted
from pipelines.config.schema import Experiment, Section, setting
from pipelines.config.tree import settings, split


class Word(Section):
    kind: Literal["word"]
    length: int = setting(3, "letters", ge=1)


class Image(Section):
    kind: Literal["image"]
    size: int = setting(8, "edge", unit="px", ge=1)


class Mix(Section):
    share: float = setting(0.5, "share", ge=0.0, le=1.0)


class Toy(Experiment):
    columns: list[Annotated[Word | Image, Field(discriminator="kind")]] = setting(list, "columns")
    sources: dict[str, Mix] = setting(dict, "sources")
    either: Mix | str | bool = setting("none", "a section, a name or a switch")
    encoder: Annotated[Word | Image, Field(discriminator="kind")] | None = setting(None, "encoder")
    odd: int = setting(1, "an odd number")

    @field_validator("odd")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"{value} is even; give an odd number")
        return value


def wrong(values: dict[str, Any]) -> list[str]:
    values = {"task": "toy", **values}
    found = Check(Toy, values).run().problems
    if not found:
        try:
            Toy.model_validate(values)
        except ValueError as error:
            found = validation_problems(error, values)  # type: ignore[arg-type]
    return [f"{dotted(route)}: {message}" for route, message in found]


@pytest.mark.parametrize("values", [
    {}, {"columns": [{"kind": "word"}, {"kind": "image", "size": 3}]}, {"sources": {"a": {"share": 0.1}, "b": {}}},
    {"sources": {"a": None}},
    {"either": {"share": 0.1}}, {"either": "name"}, {"either": True}, {"encoder": None}, {"encoder": {"kind": "word"}}, {"odd": 3},
])
def test_right(values: dict[str, Any]) -> None:
    assert wrong(values) == []


@pytest.mark.parametrize(("values", "says"), [
    ({"columns": [{"kind": "word"}, {"kind": "image", "length": 3}]},
     "columns[1].length: no such setting of image, which has size; word has it"),
    ({"columns": [{"kind": "wrod"}]}, "columns[0].kind: 'wrod' is not one of word or image; did you mean word?"),
    ({"columns": [3]}, "columns[0]: 3 is not a section; write {kind: ...} with one of word or image"),
    ({"columns": [{"kind": "image", "siez": 3}]},
     "columns[0].siez: no such setting of image, which has size; did you mean columns[0].size?"),
    ({"sources": {"a": {"share": 2}}}, "sources.a.share: 2 is not a number from 0 to 1"),
    ({"sources": {"a": {"sare": 1}}}, "sources.a.sare: no such setting; did you mean sources.a.share?"),
    ({"either": {"share": 2}}, "either.share: 2 is not a number from 0 to 1"),
    ({"either": 3}, "either: 3 is not a mapping of share, text, true or false; 3 is a number in YAML; write '3' in quotes"),
    ({"encoder": {"kind": "word", "length": 0}}, "encoder.length: 0 is not a whole number >= 1"),
    ({"odd": 4}, "odd: 4 is even; give an odd number"),
])
def test_wrong(values: dict[str, Any], says: str) -> None:
    assert wrong(values) == [says]


def test_routes() -> None:
    names = [each.name for each in settings(Toy)]
    assert {"columns", "columns.*.kind", "columns.*.size", "sources.*.share", "either.share", "encoder.length"} <= set(names)
    assert split(Toy, "train.optimizer.options.a.b") == ("train", "optimizer", "options", "a.b")
    assert split(Toy, "tune.space.train.epochs") == ("tune", "space", "train.epochs")
    assert split(Toy, "sources.a.share") == ("sources", "a", "share")
    assert split(Toy, "no.such.thing") == ("no", "such", "thing")
