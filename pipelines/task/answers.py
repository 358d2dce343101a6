"""What the outputs of a saved model are, said once: what `predict` writes, the page draws and a server's description says follows from it.
Imports no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# kinds of outputs that say more than their type: of bytes, [batch] string each, the ending of a file of them, and what browsers call it
FILES = {"picture": (".png", "image/png"), "mask": (".png", "image/png"), "sound": (".wav", "audio/wav")}
# a mask is a picture that lies over the one that was sent; boxes are [batch, boxes, 4], each left, top, right and bottom in its pixels
KINDS = (*FILES, "boxes")


@dataclass(frozen=True)
class Answers:
    """What the outputs of the saved model are.

    Attributes:
        meanings: of each output, for its README.
        ranked: lists, best first, of which an answer has the first `count` alone, which is an output too.
        details: lists too long for a table, of one length: `predict` writes them as JSON lines only.
        kinds: of outputs that are no plain numbers or texts, one of KINDS, or the ending of files of any other bytes: {"page": ".pdf"}.
        beside: entries of examples that pass by the model, such as the size of a picture as it was sent: they stand among the answers that
            `condense`, `judge` and `respond` are given.
    """

    meanings: Mapping[str, str] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = next((name for name, kind in self.kinds.items() if kind not in KINDS and not kind.startswith(".")), None)
        if wrong is not None:
            raise ValueError(f"Answers.kinds: {wrong}: {self.kinds[wrong]!r} is none of {', '.join(KINDS)} and no ending such as '.pdf'")


def ending(kind: str | None) -> str | None:
    """Of files of such an output; None where it is no bytes, or nothing is said of it."""
    return kind if kind and kind.startswith(".") else FILES[kind][0] if kind in FILES else None
