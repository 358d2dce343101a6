"""An image experiment for somebody's data: sizes, model and training chosen from what is there. Imports no TensorFlow.

The choices are starting points that train in reasonable time on two cores; each says in a comment what else there is.
"""

from pathlib import Path
from statistics import median

from pipelines.config.new import Draft, Entry, section
from pipelines.errors import DataError
from vision.look import Seen, look

_EDGES = (32, 48, 64, 96, 128, 160, 192, 224)  # px; sizes in use
_SMALL = 64  # px, the largest edge for the models written for small images
_UNEVEN = 5.0  # largest class over smallest from which the loss weighs classes
_FEWEST = 10  # images without which there is nothing to divide


def draft(path: Path) -> Draft:
    """Looks at a folder, table or .npz of images. Raises DataError for what it does not understand."""
    seen = look(path)
    images = sum(seen.counts.values())
    if images < _FEWEST:
        raise DataError(f"{path}: {images} images are too few to train on and to judge by; give {_FEWEST} or more")
    size = _size(seen)
    grey = all(header.channels == 1 for header in seen.headers)
    small = max(size) <= _SMALL
    sections = [
        "task: vision.classification",
        section("data", _data(seen, path, size, channels=1 if grey and small else 3)),
        section("model", _model(small, size)),
        section("train", _train(images)),
        section("augment", _augment(seen, size, small)),
    ]
    uneven = max(seen.counts.values()) / min(seen.counts.values())
    if uneven >= _UNEVEN:
        sections.append(section("loss", [("class_weights", "balanced", f"the largest class has {uneven:.0f} times the smallest")]))
    return Draft(f"Images of {path.name}: {len(seen.counts)} classes.", _found(seen, images), "\n".join(sections))


def _found(seen: Seen, images: int) -> tuple[str, ...]:
    names = list(seen.counts)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    edges = sorted({(header.width, header.height) for header in seen.headers})
    low, high = (f"{width} x {height}" for width, height in (edges[0], max(edges, key=lambda edge: edge[0] * edge[1])))
    sizes = f"all {low} px" if len(edges) == 1 else f"{low} to {high} px in a sample of {len(seen.headers)}"
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return (f"Found: {images:,} training images, {sizes}; {each} a class: {shown}.",)


def _data(seen: Seen, path: Path, size: tuple[int, int], channels: int) -> list[Entry]:
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    entries += [(key, name, "") for key, name in seen.columns.items()]
    entries.append(("validation", seen.validation or 0.1, "the data's own" if seen.validation else "share of train, stratified"))
    entries.append(("test", seen.test or 0.2, "the data's own" if seen.test else "share of all, stratified; judged once, at the end"))
    if seen.group:
        entries.append(("group_by", seen.group, "all images of one stay on one side of the splits; null to divide image by image"))
    same = len(set(seen.headers)) == 1
    edge: int | list[int] = size[0] if size[0] == size[1] else list(size)
    entries.append(("image_size", edge, "px" if same else "px; larger sees more and takes longer"))
    if not same:
        entries.append(("resize", "crop", "crop the centre; or pad, or squash"))
    entries.append(("channels", channels, "grey" if channels == 1 else "colour"))
    return entries


def _size(seen: Seen) -> tuple[int, int]:
    """Height and width the model sees: the images' own where all are equal and small, else a usual square."""
    edges = {(header.height, header.width) for header in seen.headers}
    if len(edges) == 1 and max(next(iter(edges))) <= _EDGES[-1]:
        return next(iter(edges))
    short = median(min(header.height, header.width) for header in seen.headers)
    edge = max((edge for edge in _EDGES if edge <= short), default=_EDGES[0])
    return edge, edge


def _model(small: bool, size: tuple[int, int]) -> list[Entry]:
    if min(size) < 16:
        return [("name", "cnn", "or residual, fast, vit, application")]
    if small:
        return [("name", "residual", "or cnn, fast, vit, application")]
    return [("name", "application", "any network of keras.applications"),
            ("architecture", "MobileNetV3Small", "or ResNet50, EfficientNetV2B0, ConvNeXtTiny, ..."),
            ("weights", None, "null: from scratch; imagenet: downloaded by Keras, far better on few images")]


def _train(images: int) -> list[Entry]:
    batch = 128 if images >= 4000 else 32 if images >= 300 else 8
    epochs = 60 if images < 1000 else 40 if images < 10_000 else 20 if images < 100_000 else 10
    return [("epochs", epochs, ""), ("batch_size", batch, "examples per update, over all devices"),
            ("optimizer", {"name": "adamw", "weight_decay": 0.05}, ""),
            ("learning_rate", {"peak": 0.001, "schedule": "cosine", "warmup": 0.1}, "")]


def _augment(seen: Seen, size: tuple[int, int], small: bool) -> list[Entry]:
    # A mirrored 2 or b is no 2 or b.
    signs = all(len(name) == 1 or name.isdigit() for name in seen.counts) or any("left" in name.lower() for name in seen.counts)
    why = "mirroring changes digits, letters and sides" if signs and seen.source != "npz" else "false where left and right matter"
    flip: Entry = ("flip", not signs, why)
    if signs and seen.source == "npz":
        flip = ("flip", False, "true where the mirror image is of the same class")
    return [flip, ("shift", max(1, min(size) // 8), "px")] if small else [flip, ("random_resized_crop", [0.35, 1.0], "share of the area")]
