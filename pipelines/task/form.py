"""What a person is asked for who tries a model: a task says it, and the page of `quartet serve` is made from it. Imports no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# image, sound: a file; text: lines; word: an id or another short text; words, numbers: several, with commas between; json: any value
KINDS = ("image", "sound", "text", "word", "words", "number", "numbers", "flag", "json")


@dataclass(frozen=True)
class Field:
    """One thing to enter.

    Attributes:
        kind: one of KINDS.
        name: its key in the request; empty where it is the whole request.
        meaning: in words; may be empty.
        needed: a request without it is none.
    """

    kind: str
    name: str = ""
    meaning: str = ""
    needed: bool = True


def fields_of(specs: Mapping[str, Any], meanings: Mapping[str, str], kinds: Mapping[str, str] | None = None) -> list[Field]:
    """A field for each raw input.

    Args:
        specs: name -> spec with its batch.
        kinds: of inputs, where the spec says too little: bytes may be an image.
    """
    return [Field((kinds or {}).get(name) or _kind(spec), name, meanings.get(name, "")) for name, spec in specs.items()]


def _kind(spec: Any) -> str:
    if len(spec.shape) > 2:
        return "json"
    several = len(spec.shape) == 2
    if spec.dtype.name == "string":
        return "words" if several else "text"
    if spec.dtype.name == "bool":
        return "json" if several else "flag"
    return "numbers" if several else "number"
