"""Texts with parts that are marked, such as names in a sentence: brackets where a text is plain, colours on a page."""

from collections.abc import Iterable
from dataclasses import dataclass

COLOURS = 8  # that a page tells apart


@dataclass(frozen=True)
class Piece:
    """A part of a text; `colour` None: not marked. `label` is written behind it."""

    text: str
    colour: int | None = None
    label: str = ""


class MarkedText(str):
    """As a string the text with its marked pieces in brackets: `in [Paris place]`."""

    pieces: tuple[Piece, ...]

    def __new__(cls, pieces: Iterable[Piece]) -> "MarkedText":
        every = tuple(pieces)
        plain = [one.text if one.colour is None else f"[{one.text}{' ' if one.label else ''}{one.label}]" for one in every]
        made = super().__new__(cls, "".join(plain))
        made.pieces = every
        return made
