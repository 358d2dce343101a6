"""What a person is asked for who tries a model: a task says it, and the page of `quartet serve` is made from it. Imports no TensorFlow.
What the outputs of a saved model are is said here, too: what `predict` writes, the page draws and a server describes follows from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# kinds of outputs that say more than their type: of bytes, [batch] string each, the ending of a file of them, and what browsers call it
FILES = {"picture": (".png", "image/png"), "mask": (".png", "image/png"), "sound": (".wav", "audio/wav")}
# a mask is a picture that lies over the one that was sent; boxes are [batch, boxes, 4], each left, top, right and bottom in its pixels
ANSWER_KINDS = (*FILES, "boxes")


@dataclass(frozen=True)
class AnswerFormat:
    """Files of a form that others read.

    Attributes:
        files: (name of the input, its answer) of each that was answered -> (name, content) of each file.
        alone: it is one file, whatever it is called.
    """

    files: Callable[[Iterable[tuple[str, Mapping[str, Any]]]], Iterator[tuple[str, bytes]]]
    alone: bool = False


@dataclass(frozen=True)
class Answers:
    """What the outputs of the saved model are.

    Attributes:
        meanings: of each output, for its README.
        ranked: lists, best first, of which an answer has the first `count` alone, which is an output too.
        details: lists too long for a table, of one length: `predict` writes them as JSON lines only.
        kinds: of outputs that are no plain numbers or texts, one of ANSWER_KINDS, or the ending of files of other bytes: {"page": ".pdf"}.
        beside: entries of examples that pass by the model, such as the size of a picture as it was sent: they stand among the answers that
            `condense`, `judge` and `respond` are given.
        formats: what `predict --format` offers beside those of all tasks.
        draw: the path of an input and its answer -> a PNG file of the input with the answer in it, which `predict --draw` writes.
    """

    meanings: Mapping[str, str] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    formats: Mapping[str, AnswerFormat] = field(default_factory=dict)
    draw: Callable[[str, Mapping[str, Any]], bytes] | None = None

    def __post_init__(self) -> None:
        wrong = next((name for name, kind in self.kinds.items() if kind not in ANSWER_KINDS and not kind.startswith(".")), None)
        if wrong is not None:
            raise ValueError(f"Answers.kinds: {wrong}: {self.kinds[wrong]!r} is none of {', '.join(ANSWER_KINDS)} "
                             "and no ending such as '.pdf'")


def ending(kind: str | None) -> str | None:
    """Of files of such an output; None where it is no bytes, or nothing is said of it."""
    return kind if kind and kind.startswith(".") else FILES[kind][0] if kind in FILES else None


# image, sound: a file; text: lines; word: an id or another short text; words, numbers: several, with commas between; json: any value
FIELD_KINDS = ("image", "sound", "text", "word", "words", "number", "numbers", "flag", "json")


@dataclass(frozen=True)
class Field:
    """One thing to enter.

    Attributes:
        kind: one of FIELD_KINDS.
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
