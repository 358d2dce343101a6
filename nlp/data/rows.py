"""The examples of a split as they are stored. Imports no TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Rows:
    """The examples of one split as stored.

    Attributes:
        texts: [n] str, or of pairs [n] tuples of two; or a string tensor [n] or [n, 2].
        labels: [n] the label, the labels (labels: many) or None.
        places: the name of each example in messages.
        groups: [n] or None.
        bad: (place, reason) of examples left out already.
        fingerprint: of the stored data.
    """

    texts: Any
    labels: list[Any]
    places: Callable[[int], str]
    groups: list[str] | None
    bad: list[tuple[str, str]]
    fingerprint: str
