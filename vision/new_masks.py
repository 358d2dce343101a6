"""An experiment for pictures with masks. Imports no TensorFlow."""

import math
from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.encoders.listing import propose
from pipelines.encoders.presets import Preset
from vision.data.masks.inspection import SeenMasks
from vision.data.masks.values import value_of

FEWEST = 10  # pictures
PIXELS = 240 * 320  # that the model sees, where pictures are larger
STEP = 32  # px; sides that this divides lose nothing on the way
SEEN = 6.0e8  # pixels of all epochs together: some half an hour on two cores
MOST, LEAST = 100, 10  # epochs
RARE = 0.01  # share of the pixels below which a class is rare


def draft(path: Path, asked: Asked, seen: SeenMasks) -> Draft:
    """Raises DataError for too few pictures."""
    if seen.images < FEWEST:
        raise DataError(f"{path}: {seen.images} pictures with masks are too few to train on and to judge by; give {FEWEST} or more")
    proposal = propose(asked, "vision", gain="few pictures are learned better",
                       reason="since masks are learned from few pictures: what an encoder learned from a million photos helps")
    size = _size(seen)
    images = round(seen.images * (1.0 if seen.test else 0.8) * (1.0 if seen.validation else 0.9))
    body = [section("data", _data(seen, path, size)), section("model", _model(proposal.preset)),
            section("augment", [("flip", True, "false where left and right matter"), ("scale", [0.75, 1.5], "about a random place"),
                                ("colour", 0.2, "brightness, contrast and saturation")]),
            section("train", _train(images, size))]
    weights: list[Entry] = [("class_weights", None, "balanced finds more of rare classes, and gives more that is none")]
    if min(seen.pixels.get(code, 0.0) for code in seen.known.values) < RARE:
        body.append(section("loss", weights))
    return Draft(f"Pictures of {path.name} with masks: {len(seen.known.values)} classes.", _found(seen),
                 "\n".join(["task: vision.segmentation", *body]), "a model of each pixel's colour and place alone", proposal.notes)


def _found(seen: SeenMasks) -> tuple[str, ...]:
    edges = sorted({(header.width, header.height) for header in seen.headers}, key=lambda edge: edge[0] * edge[1])
    sizes = f"{edges[0][0]} x {edges[0][1]}"
    sizes += f" to {edges[-1][0]} x {edges[-1][1]} px, {len(edges):,} sizes" if len(edges) > 1 else " px"
    shares = [f"{name} {seen.pixels.get(code, 0.0):.1%}" for code, name in zip(seen.known.values, _names(seen))]
    more = f", ... ({len(shares)} in all)" if len(shares) > 12 else ""
    kinds = {"grey": "grey levels", "palette": "indices of a palette", "colour": "colours"}
    return (f"Found: {seen.images:,} pictures for training, {sizes}, each with a mask of {kinds[seen.known.kind]}.",
            f"Share of the pixels: {', '.join(shares[:12])}{more}.", *seen.notes)


def _names(seen: SeenMasks) -> list[str]:
    return seen.names or [str(value_of(code, seen.known.kind)) for code in seen.known.values]


def _data(seen: SeenMasks, path: Path, size: tuple[int, int]) -> list[Entry]:
    entries: list[Entry] = [("source", "folder", ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    values = [value_of(code, seen.known.kind) for code in seen.known.values]
    numbered = values == list(range(len(values)))
    entries.append(("classes", _names(seen), "in the order of the masks' values" + ("" if seen.names else ": write their names here")))
    if not numbered:
        entries.append(("values", values, "of each class in the masks"))
    void = [value_of(code, seen.known.kind) for code in seen.known.void]
    entries.append(("void", void, "values that are neither learned nor judged, such as those of unlabelled pixels"))
    entries.append(("validation", seen.validation or 0.2, "the data's own" if seen.validation else "share of train"))
    entries.append(("test", seen.test or 0.2, "the data's own" if seen.test else "share of all; judged once, at the end"))
    entries.append(("image_size", list(size), "px, height and width; larger sees more and takes longer"))
    if len({header[:2] for header in seen.headers}) > 1:
        entries.append(("resize", "pad", "the whole picture; or crop the centre, or squash"))
    return entries


def _model(preset: Preset | None) -> list[Entry]:
    if preset is None:
        return [("name", "small", "from scratch; or pretrained")]
    return [("name", "pretrained", "or small, which trains from scratch"), ("preset", preset.handle, "quartet encoders lists others")]


def _size(seen: SeenMasks) -> tuple[int, int]:
    """Height and width: the pictures' own where all are alike and not large, else reduced to PIXELS."""
    edges = {(header.height, header.width) for header in seen.headers}
    if len(edges) == 1 and math.prod(next(iter(edges))) <= PIXELS:
        return next(iter(edges))
    heights, widths = zip(*edges)
    aspect = math.exp(sum(math.log(width / height) for height, width in edges) / len(edges))
    high = math.sqrt(min(PIXELS, max(heights) * max(widths)) / aspect)
    return max(STEP, STEP * round(high / STEP)), max(STEP, STEP * round(high * aspect / STEP))


def _train(images: int, size: tuple[int, int]) -> list[Entry]:
    batch = 8 if images < 1000 else 16
    epochs = round(min(MOST, max(LEAST, SEEN / (math.prod(size) * images))))
    return [("epochs", epochs, f"{epochs * -(-images // batch):,} steps; more is better, and takes longer"),
            ("batch_size", batch, "examples per update, over all devices"),
            ("optimizer", {"name": "adamw", "weight_decay": 0.05}, ""),
            ("learning_rate", {"peak": 0.001, "schedule": "cosine", "warmup": 0.05}, ""),
            ("precision", "float32", "on CPUs bfloat16 is slower for such networks; auto on a GPU")]
