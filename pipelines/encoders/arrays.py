"""Presets of plain arrays: a folder with weights.npz and a file that names classes, for networks that the domains build themselves.

No code is read. What the network is, the names of its arrays say.
"""

import math
from pathlib import Path
from typing import NamedTuple

from pipelines.base import npz
from pipelines.base.errors import ConfigError
from pipelines.base.inside import check_regular

FILE = "weights.npz"


class Kind(NamedTuple):
    """A network.

    Attributes:
        name: as people know it.
        domain: whose data it takes.
        array: that its weights have, and those of no other kind.
        classes: the file that names what it knows, beside the weights.
        model: the model's name in an experiment that takes it, where it is no encoder under a new head; else "".
    """

    name: str
    domain: str
    array: str
    classes: str
    model: str = ""


YAMNET = Kind("YAMNet", "speech", "layer14/pointwise_conv/kernel", "yamnet_class_map.csv")
YOLOX = Kind("YOLOX-Nano", "vision", "head.cls_preds.0.weight", "classes.txt", "yolox")
KINDS = (YAMNET, YOLOX)


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds; None where it is no preset of arrays."""
    file = folder / FILE
    if not file.is_file() or (folder / "config.json").exists():
        return None
    try:
        with npz.opened(file) as arrays:
            return next((kind for kind in KINDS if kind.array in arrays.names), None)
    except npz.Damaged:
        return None


def weights(folder: Path, handle: str, kind: Kind, key: str) -> int:
    """The number of weights, by the headers of the arrays. Raises ConfigError where the folder is no preset of that kind."""
    file = folder / FILE
    for needed in (file, folder / kind.classes):
        if not needed.is_file():
            raise ConfigError(f"{key}: {handle} is no preset of {kind.name.partition('-')[0]}: there is no {needed.name} in {folder}")
        check_regular(needed, key, ConfigError)
    try:
        with npz.opened(file) as arrays:
            return sum(math.prod(arrays.header(name).shape) for name in arrays.names)
    except npz.Damaged:
        raise ConfigError(f"{key}: {file} cannot be read as arrays; copy the preset again") from None
