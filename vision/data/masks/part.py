"""A split of pictures with masks, as files. Imports no TensorFlow."""

from dataclasses import dataclass, field
from pathlib import Path

Files = dict[str, Path]  # class -> its file, of one picture


@dataclass(frozen=True)
class Part:
    """A split: each picture with its mask, or with a file for each class in `by_class`; `alone` are pictures without one."""

    images: list[Path]
    masks: list[Path | bytes]
    alone: list[Path]
    by_class: list[Files] = field(default_factory=list)
