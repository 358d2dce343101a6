"""An experiment for pictures with boxes, or with the masks of things: size, encoder and training chosen from what is there."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.data.divide import find
from pipelines.encoders.listing import propose
from pipelines.encoders.presets import Preset
from pipelines.machine.startup import start_tensorflow
from vision.data.annotations import Form
from vision.data.inspection import headers_of
from vision.settings import BoxData, InstanceData

_PIXELS = 133_000  # of a picture as the model sees it: 320 x 416
_MOST_PIXELS = 3 * _PIXELS  # where things are small
_SMALLEST = 16.0  # px that the sides of nine boxes in ten have, as the model sees them
_STEP = 32
_SEEN = 12_000  # pictures of _PIXELS that training sees in all: about 45 minutes on two cores
USUAL = 50  # things of a picture up to which the setting for the most that are given stays as it is
OUTLINED = ("masks", "coco", "yolo", "labelme")  # forms that have masks or outlines
_PYRAMIDS = ("EfficientNet", "ResNet", "MobileNet", "CSPDarkNet", "DenseNet")  # encoders of KerasHub that give several stages


def draft(form: Form, asked: Asked) -> Draft:
    """Of instances where they are asked for, or the form is masks. Raises DataError for annotations that cannot be read at all."""
    start_tensorflow()
    from vision.data.boxes.open import open_boxes
    from vision.data.instances.open import open_instances

    masks = asked.task == "instances" or form.source == "masks"
    if masks and form.source not in OUTLINED:
        raise DataError(f"{form.path}: holds {form.words}, which have no outlines; --task detection finds boxes")
    how: Any = {"source": form.source, "path": str(form.path), "on_bad_example": "skip", "most_skipped": 0.99}
    opened = open_instances(InstanceData(**how)) if masks else open_boxes(BoxData(**how))
    sources = {name: opened.load(name) for name in opened.names}
    pool = find("train", opened.names) or next(iter(opened.names), "")
    if not pool or not len(sources[pool]):
        raise DataError(f"{form.path}: holds {form.words}, but no picture for training that they belong to"
                        f"{f', such as {opened.skipped[0]}' if opened.skipped else ''}")
    classes, boxes = sources[pool].fields["classes"], sources[pool].fields["boxes"]
    labels = Counter(opened.classes[label] for label in classes[classes >= 0].tolist())
    sides = np.sqrt((boxes[classes >= 0][:, 2:] - boxes[classes >= 0][:, :2]).prod(1))
    headers, _ = headers_of([Path(path) for path in sources[pool].paths])
    edges = np.array([(header.height, header.width) for header in headers], np.float64)
    small = float(np.quantile(sides, 0.1)) if len(sides) else _SMALLEST
    size, alike = picture_size(edges, small)
    proposal = propose(asked, "vision", reason="since it knows edges, textures and parts of things", gain="few pictures are learned better")
    preset = proposal.preset if proposal.preset and proposal.preset.backbone.startswith(_PYRAMIDS) else None
    most, things = int((classes >= 0).sum(1).max()), "things" if masks else "boxes"
    names = ", ".join(f"{name} ({count:,})" for name, count in labels.most_common(8)) + (", ..." if len(labels) > 8 else "")
    kinds = "1 class" if len(labels) == 1 else f"{len(labels)} classes"
    found = (f"Found: {len(sources[pool]):,} training pictures with {form.words}: {sum(labels.values()):,} {things} of {kinds}: "
             f"{names}.", *opened.notes)
    data: list[Entry] = [
        ("source", form.source, ""), ("path", str(form.path), "" if form.path.is_absolute() else "from the current directory"),
        ("validation", find("validation", opened.names) or 0.15, "chooses epoch and thresholds"),
        ("test", find("test", opened.names) or 0.2, "judged once, at the end"),
        ("image_size", list(size), "px, of which 32 divides both; larger sees smaller things and takes longer"),
        ("resize", "squash" if alike else "pad", "all have about one aspect" if alike else "the whole picture, its aspect kept"),
        *([("on_bad_example", "skip", "leaves out boxes that are empty, flipped or outside, and counts them")] if opened.skipped else [])]
    if form.source == "masks":
        data.append(("thing", "thing", "what the things are called: write it here"))
    many = len(sources[pool])
    more = [section("evaluate", [("boxes", min(1000, 2 * most), "most things of a picture")])] if most > USUAL else []
    body = "\n".join([f"task: vision.{'instances' if masks else 'detection'}", section("data", data), section("model", _model(preset)),
                      section("train", _train(many, size)), section("augment", _augment(opened.classes)), *more])
    return Draft(f"{things.capitalize()} in pictures of {form.path.name}: {kinds}.", found, body,
                 "connected parts beyond a threshold" if masks else "the mean box of each class", proposal.notes if preset else ())


def picture_size(edges: np.ndarray, small: float) -> tuple[tuple[int, int], bool]:
    """((height, width) that a detector sees; whether all pictures have about one aspect).

    Args:
        edges: heights and widths, [n, 2].
        small: side of a small box, px.
    """
    aspects = edges[:, 0] / edges[:, 1]
    height, width = np.median(edges, 0)
    wanted = math.sqrt(_PIXELS / (height * width))
    scale = min(max(wanted, _SMALLEST / max(small, 1.0)), math.sqrt(_MOST_PIXELS / (height * width)), 1.0 + 1e-9)
    rows, columns = (_STEP * max(1, round(edge * scale / _STEP)) for edge in (height, width))
    return (rows, columns), bool(aspects.max() < 1.1 * aspects.min())


def _model(preset: Preset | None) -> list[Entry]:
    if preset is None:
        return [("name", "small", "trains from scratch; or pretrained, with an encoder of KerasHub")]
    way: dict[str, Any] = {"name": "last", "blocks": 0.7, "head": "new"}
    return [("name", "pretrained", "or small, which trains from scratch"), ("preset", preset.handle, "quartet encoders lists others"),
            ("finetune", way, "{name: whole, head: new} trains all blocks")]


def _train(pictures: int, size: tuple[int, int]) -> list[Entry]:
    batch = 16 if pictures >= 100 else 8
    epochs = round(min(100.0, max(10.0, _SEEN * _PIXELS / (size[0] * size[1] * max(pictures, 1)))))
    return [("epochs", epochs, f"{epochs * -(-pictures // batch):,} steps; more is better, and takes longer"),
            ("batch_size", batch, "examples per update, over all devices"), ("optimizer", {"name": "adamw", "weight_decay": 0.05}, ""),
            ("learning_rate", {"peak": 0.002, "schedule": "cosine", "warmup": 0.05}, ""),
            ("ema", 0.99, "the average of the weights is judged and saved"),
            ("precision", "float32", "on CPUs bfloat16 is slower for such networks; auto on a GPU")]


def _augment(classes: list[str]) -> list[Entry]:
    sided = any("left" in name.lower() or "right" in name.lower() for name in classes)
    return [("flip", not sided, "false where left and right matter"), ("scale", [0.7, 1.6], "times as large, about a random place"),
            ("colour", 0.2, "share by which brightness, contrast and saturation change")]
