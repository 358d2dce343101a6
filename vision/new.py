"""An image experiment for somebody's data: sizes, model and training chosen from what is there. Imports no TensorFlow.

The choices are starting points that train in reasonable time on two cores; comments name the alternatives.
"""

import math
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, Way, section
from pipelines.data.columns import number_of
from pipelines.data.frame import COMMENTS
from pipelines.data.kinds import Question, labels_in, question, reading, separator_in
from pipelines.encoders.finetune import Frozen, by_examples
from pipelines.encoders.listing import BLENDED, FOLDS_CHOOSE, choices, noted, propose
from pipelines.encoders.presets import Preset
from vision import new_boxes, new_masks
from vision.data.annotations import Form, boxes_in
from vision.data.inspection import ROLES as ROLES
from vision.data.inspection import Seen, look
from vision.data.masks.inspection import look_at, numbers_things

TASKS = ("classification", "regression", "detection", "segmentation", "instances")
_EDGES = (32, 48, 64, 96)  # px; sizes in use
_SMALL, _LARGE = 64, 160  # px: images up to the first keep their size; from the second on, the model sees 96 px
_UNEVEN = 5.0  # largest class over smallest from which a comment says how to weigh classes
_FEWEST = 10  # images without which there is nothing to divide
_PASSES = 1500.0  # epochs times the root of the number of images, so that steps grow with the root of the data
_OFTEN = 12  # epochs that large data have, too, where the time allows
_PIXELS = 4.5e8  # pixels of all epochs that `fast` trains on in about five minutes on two cores
_STEPS = 500  # the fewest, however long they take
# of a pretrained encoder, chosen on validation: docs/pretrained.md
_GAINING = 10_000  # training images up to which one is proposed; with more, training from scratch learns as much in its time
_GREY_GAINING, _GREY_FINEST = 3000, 24  # the same of grey images, and px of the shorter side below which none is: digits of 8 px need none
_ENCODED = 160  # px that it sees
_ENCODED_MANY, _MANY = 96, 5000  # px for small images, where there are more than so many
_ENCODED_OFTEN, _ENCODED_PIXELS = 12, 8e8  # epochs at most, and as _PIXELS
_FLOATS = ("float32", "on CPUs bfloat16 is slower for such networks; auto on a GPU")


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a folder, table or .npz of images. Raises DataError for what it does not understand."""
    if asked.task in (None, "detection", "instances") and (form := boxes_in(path)):
        return new_boxes.draft(form, asked)
    if asked.task == "detection":
        raise DataError(f"{path}: holds no boxes as COCO, Pascal VOC, YOLO or a table have them")
    if asked.task in (None, "instances") and numbers_things(path):
        return new_boxes.draft(Form("masks", path, "masks that number their things"), asked)
    if asked.task == "instances":
        raise DataError(f"{path}: holds neither masks that number the things of each picture nor outlines as COCO, YOLO or LabelMe have "
                        "them")
    if asked.task in (None, "segmentation") and (masks := look_at(path)):
        return new_masks.draft(path, asked, masks)
    if asked.task == "segmentation":
        raise DataError(f"{path}: holds no folder of pictures beside one of masks (images and masks)")
    seen = look(path, asked)
    path = seen.path or path
    images = sum(seen.counts.values())
    if images < _FEWEST:
        raise DataError(f"{path}: {images} images are too few to train on and to judge by; give {_FEWEST} or more")
    asks = question(seen.counts, path, asked, "an image", seen.label)
    seen.notes += reading(seen.counts, asks, seen.label)
    if asks != "classes":
        return _other_question(seen, path, asked, asks)
    proposal = propose(asked, "vision", reason=_reason(seen, _train(seen), _grey(seen)),
                       gain="few photos are learned better, and in fewer epochs")
    return Draft(f"Images of {path.name}: {len(seen.counts)} classes.", _found(seen, images), _body(seen, path, proposal.preset),
                 "a kernel classifier on small copies of the images, fitted in the run", proposal.notes,
                 partial(_ways, seen, path, asked, blends=asked.used_blend(lambda: choices(asked, "vision"))))


def _other_question(seen: Seen, path: Path, asked: Asked, asks: Question) -> Draft:
    """Numbers, or several labels an image: of a frozen encoder, else of a kernel machine, which is the cheap baseline."""
    values = seen.counts
    images = sum(values.values())
    proposal = propose(asked, "vision", reason=_reason(seen, _train(seen), _grey(seen)), gain="few photos are learned better")
    size, preset = _size(seen, encoded=proposal.preset is not None), proposal.preset
    if asks == "labels":
        separator = separator_in(values) or ";"
        seen.counts = Counter(label for value, count in values.items() for label in labels_in(value, separator) if label
                              for _ in range(count))
        seen.columns |= {"labels": "many"} | ({} if separator in (";", "[") else {"label_separator": separator})
        what, beside = f"{len(seen.counts)} labels", "a kernel machine on small copies of the images"
    else:
        numbers = sorted(number for value in values if (number := number_of(value)) is not None)
        what, beside = f"a number from {numbers[0]:g} to {numbers[-1]:g}", "kernel ridge regression on small copies of the images"
    found = _found(seen, images) if asks == "labels" else (f"Found: {images:,} training images, with {len(values):,} different numbers.",
                                                         *seen.notes)
    model = _encoded(preset, _train(seen), size, True, False) if preset else (
        section("model", [("name", "kernel", "fitted at once; or fast, pretrained, which see more")]),)
    data = [(key, 0.2, "share of train: it chooses " + ("thresholds" if asks == "labels" else "the widths of intervals"))
            if key == "validation" and not seen.validation else (key, value, comment)
            for key, value, comment in _data(seen, path, size, channels=1 if _grey(seen) else 3, folds=False)]
    task = "vision.regression" if asks == "numbers" else "vision.classification"
    return Draft(f"Images of {path.name}: {what}.", found, "\n".join([f"task: {task}", section("data", data), *model]),
                 f"{beside}, fitted in the run", proposal.notes)


def _grey(seen: Seen) -> bool:
    return all(header.channels == 1 for header in seen.headers)


def _train(seen: Seen) -> int:
    """Images that are trained on, by what `_data` proposes."""
    return round(sum(seen.counts.values()) * _left(seen))


def _body(seen: Seen, path: Path, preset: Preset | None, *, still: bool | None = None, blend: bool = False) -> str:
    """The YAML of an encoder, or of a network from scratch.

    Args:
        still: whether the encoder is not trained; None: by the number of images.
        blend: its answers are averaged with those of a kernel machine.
    """
    train, size = _train(seen), _size(seen, encoded=preset is not None)
    frozen = preset is not None and (_stands_still(train) if still is None else still)
    sections = [
        "task: vision.classification",
        section("data", _data(seen, path, size, channels=1 if _grey(seen) else 3, folds=frozen)),
        *(_encoded(preset, train, size, frozen, blend) if preset else
          (section("model", _model(size)), section("train", training_settings(train, size)))),
    ]
    if not frozen:  # mixed, shifted or mirrored images gain nothing there
        sections += _shown(_augment(seen, size, photos=max(_size(seen)) > _SMALL), encoded=preset is not None)
    if not blend and (weights := _class_weights(seen)):
        sections.append(section("loss", weights))
    return "\n".join(sections)


def _ways(seen: Seen, path: Path, asked: Asked, *, blends: bool) -> list[Way]:
    """Encoders as they are, `blends` of them with a kernel machine, and a network from scratch. Cheap ones first."""
    found = []
    for preset in choices(asked, "vision"):
        tuned = None if _stands_still(_train(seen)) or _train(seen) > _GAINING else Way(
            f"{preset.name}, its later blocks trained", _body(seen, path, preset, still=False), noted(preset))
        found.append(Way(f"{preset.name}, frozen", _body(seen, path, preset, still=True), noted(preset), tuned))
        if blends:
            mean = _body(seen, path, preset, still=True, blend=True)
            found.append(Way(f"mean of {preset.name} and a kernel machine", mean, noted(preset)))
    if asked.wants_encoder:
        return found
    size = _size(seen)
    data = _data(seen, path, size, channels=1 if _grey(seen) else 3, folds=True)
    kernel = "\n".join(["task: vision.classification", section("data", data),
                        section("model", [("name", "kernel", "fitted at once; or fast, pretrained")])])
    return [Way("kernel machine on small copies", kernel), *found, Way("a network from scratch", _body(seen, path, None))]


def _found(seen: Seen, images: int) -> tuple[str, ...]:
    names = list(seen.counts)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    edges = sorted({(header.width, header.height) for header in seen.headers})
    low, high = (f"{width} x {height}" for width, height in (edges[0], max(edges, key=lambda edge: edge[0] * edge[1])))
    sizes = f"{low} px" if len(edges) == 1 else f"{low} to {high} px, {len(edges):,} sizes"
    sizes += f" in a sample of {len(seen.headers):,}" if seen.sampled else ""
    sizes = f"all {sizes}" if len(edges) == 1 and not seen.sampled else sizes
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return (f"Found: {images:,} training images, {sizes}; {each} a class: {shown}.", *seen.notes)


def _data(seen: Seen, path: Path, size: tuple[int, int], channels: int, *, folds: bool) -> list[Entry]:
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    entries += [(key, name, COMMENTS.get(key, "")) for key, name in seen.columns.items()]
    if folds and not seen.validation:
        entries.append(("validation", 0, FOLDS_CHOOSE))
    else:
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


def _left(seen: Seen) -> float:
    """The share of the images found that is trained on, by what `_data` proposes."""
    return (1.0 if seen.test else 0.8) * (1.0 if seen.validation else 0.9)


def _reason(seen: Seen, train: int, grey: bool) -> str:
    """Why these images gain by a pretrained encoder; empty where they do not, or validation has not shown it."""
    short = median(min(header.height, header.width) for header in seen.headers)
    if train > (_GREY_GAINING if grey else _GAINING) or (grey and short < _GREY_FINEST):
        return ""
    return f"since {train:,} {'grey' if grey else 'colour'} images are few: what it learned from a million photos helps"


def _encoded(preset: Preset, images: int, size: tuple[int, int], frozen: bool, blend: bool) -> tuple[str, str]:
    """The sections model and train of a pretrained encoder whose later blocks train, within some minutes on two cores."""
    edge = _ENCODED_MANY if images > _MANY else _ENCODED
    model: list[Entry] = [("name", "pretrained", "or fast, which trains from scratch"),
                          ("preset", preset.handle, "quartet encoders lists others")]
    if min(size) < edge:
        model.append(("image_size", edge, "px that the encoder sees; more is better, and takes longer"))
    if blend:
        model.append(("blend", "kernel", BLENDED))
        return section("model", model), section("train", [("precision", *_FLOATS)])
    if frozen:
        model.append(("finetune", {"name": "frozen"}, "fitted at once; {name: last, blocks: 0.7} for what is unlike photos"))
        return section("model", model), section("train", [("precision", *_FLOATS)])
    model.append(("finetune", {"name": "last", "blocks": 0.7}, "share of the blocks that train; {name: frozen} takes one pass"))
    pixels, batch = max(min(size), edge) ** 2, 16 if images < 500 else 32
    epochs = round(min(_ENCODED_OFTEN, max(3.0, _ENCODED_PIXELS / (pixels * images))))
    train: list[Entry] = [
        ("epochs", epochs, f"{epochs * -(-images // batch):,} steps; more is better, and takes longer"),
        ("batch_size", batch, "examples per update, over all devices"),
        ("optimizer", {"name": "adamw", "weight_decay": 0.05}, ""),
        ("learning_rate", {"schedule": "cosine", "warmup": 0.1}, "its shape; finetune.learning_rate has the peak"),
        ("ema", 0.98, "the average of the weights is judged and saved"),
        ("precision", *_FLOATS),
    ]
    return section("model", model), section("train", train)


def _stands_still(images: int) -> bool:
    """Whether an encoder is not trained: there are too few images for it."""
    return isinstance(by_examples(images, convolutional=True), Frozen)


def _shown(augment: list[Entry], *, encoded: bool) -> list[str]:
    """The section augment, and how images are judged: an encoder that trains on few sees each in many forms."""
    if not encoded:
        return [section("augment", augment)]
    mixed: list[Entry] = [("cutmix", 1.0, "each batch: a part of another image,"), ("mixup", 0.2, "or another one shining through")]
    sections = [section("augment", [*augment, *mixed])]
    if ("flip", True) in [entry[:2] for entry in augment]:
        sections.append(section("evaluate", [("flip", True, "the mean with the answer to the mirror image; false is twice as fast")]))
    return sections


def _size(seen: Seen, *, encoded: bool = False) -> tuple[int, int]:
    """Height and width the model sees: the images' own where they are equal and small; larger ones reduced, of one shape where all are.

    An encoder sees more: it has learned what details mean.
    """
    edges = {(header.height, header.width) for header in seen.headers}
    short = median(min(header.height, header.width) for header in seen.headers)
    most = _ENCODED if encoded else _EDGES[-1] if short >= _LARGE else _SMALL
    if len(edges) == 1:
        height, width = next(iter(edges))
        if max(height, width) <= most:
            return height, width
        factor = most / math.sqrt(height * width)  # as many pixels as the square has
        return max(8, 8 * round(height * factor / 8)), max(8, 8 * round(width * factor / 8))
    edge = max((edge for edge in (*_EDGES, _ENCODED) if edge <= min(short, most)), default=_EDGES[0])
    return edge, edge


def _model(size: tuple[int, int]) -> list[Entry]:
    if min(size) < 5:
        return [("name", "cnn", ""), ("widths", [64], "filters; each halves the size")]
    name: Entry = ("name", "fast", "or residual, cnn, vit; or application with weights: imagenet, downloaded, better on few photos")
    if min(size) < 16:
        return [name, ("widths", [64, 128] if min(size) < 12 else [64, 128, 256], "filters of the stages, each of which halves the size")]
    return [name]


def training_settings(images: int, size: tuple[int, int]) -> list[Entry]:
    """Epochs by steps and by time: the fewer images, the more often each, within some five minutes on two cores."""
    batch = 32 if images < 500 else 64 if images < 5000 else 128 if images < 20_000 else 256
    often = max(_OFTEN, _PASSES / math.sqrt(images))
    affordable = _PIXELS / (size[0] * size[1] * images)
    fewest = _STEPS * batch / images
    epochs = round(min(100.0, max(1.0, fewest, min(often, affordable))))
    entries: list[Entry] = [
        ("epochs", epochs, f"{epochs * -(-images // batch):,} steps; more is better, and takes longer"),
        ("batch_size", batch, "examples per update, over all devices"),
        ("optimizer", {"name": "adamw", "weight_decay": 0.05}, ""),
        ("learning_rate", {"peak": 0.003, "schedule": "cosine", "warmup": 0.1}, ""),
        ("ema", 0.99, "the average of the weights is judged and saved"),
    ]
    if epochs >= 10:
        entries.append(("early_stopping", {"patience": max(5, epochs // 3)}, "epochs without a gain on validation"))
    return entries


def _augment(seen: Seen, size: tuple[int, int], *, photos: bool) -> list[Entry]:
    # A mirrored 2 or b is no 2 or b.
    signs = all(len(name) == 1 or name.isdigit() for name in seen.counts) or any("left" in name.lower() for name in seen.counts)
    why = "mirroring changes digits, letters and sides" if signs and seen.source != "npz" else "false where left and right matter"
    flip: Entry = ("flip", not signs, why)
    if signs and seen.source == "npz":
        flip = ("flip", False, "true where the mirror image is of the same class")
    if photos and len({header[:2] for header in seen.headers}) > 1:
        return [flip, ("random_resized_crop", [0.35, 1.0], "share of the area")]
    return [flip, ("shift", max(1, min(size) // 10), "px")]


def _class_weights(seen: Seen) -> list[Entry]:
    uneven = max(seen.counts.values()) / min(seen.counts.values())
    if uneven < _UNEVEN:
        return []
    return [("class_weights", "none",
             f"the largest class has {uneven:.0f} times the smallest; balanced finds more of the small ones, and costs accuracy")]
