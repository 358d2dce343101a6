"""A task of somebody's own with answers at every pixel: which are bright. With sources, models and augmentations of its own, a mask and
a box for each picture, a baseline that answers, and a proposal for a folder."""

from pathlib import Path
from typing import Annotated, Any, Literal

import keras
import numpy as np
import tensorflow as tf

import quartet
from quartet import figures

SOURCES, MODELS, AUGMENTATIONS = quartet.Variants("source", "source"), quartet.Variants(), quartet.Variants(what="augmentation")


class Augment(quartet.Section):
    """Changes of training pictures."""

    own: Annotated[Any, AUGMENTATIONS] | None = quartet.setting(None, "what is done to them")


class Bright(quartet.Experiment):
    """The bright pixels of each picture."""

    task: Literal["mine.bright"]
    data: Annotated[Any, SOURCES]
    model: Annotated[Any, MODELS]
    augment: Augment = quartet.setting(Augment, "changes of training pictures")


class Pictures(quartet.Input):
    decoding = quartet.Decoding("decode")

    def splits(self) -> quartet.Splits:
        return self.divided(SOURCES.build(self.experiment.data), "the pictures")

    def decode(self, raw, key=None):
        if raw["image"].dtype != tf.string:
            return raw
        return {name: tf.ensure_shape(tf.io.decode_png(value, 1)[..., 0], [12, 12]) for name, value in raw.items()}

    def prepare(self, examples, *, keys=None, seed=None, epoch=None):
        images, own = examples["image"], self.experiment.augment.own
        if keys is None or own is None:
            return images, {}
        mirrored = AUGMENTATIONS.build(own, keys=keys)
        return tf.where(mirrored[:, None, None], images[:, :, ::-1], images), {"mirrored": mirrored}

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"image": tf.TensorSpec([None, 12, 12], tf.uint8)}


quartet.declare_metrics(iou=quartet.MetricKind("max", share=True, title="IoU"))


def iou(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


class Masks(quartet.Output):
    watch = ("iou", "max")
    answers = quartet.Answers({"mask": "the bright pixels", "boxes": "around them", "count": "of boxes"},
                              ranked=("boxes",), kinds={"mask": "mask", "boxes": "boxes"})

    @property
    def statistics(self):
        return {"iou": iou}

    def targets(self, examples, changes=None):
        if "mask" not in examples:
            return {}
        mask = examples["mask"]
        return {"mask": tf.where(changes["mirrored"][:, None, None], mask[:, :, ::-1], mask) if changes else mask}

    def loss(self, outputs, targets, training):
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(targets > 0, tf.float32), outputs)
        return tf.reduce_sum(losses, [1, 2]), tf.fill([tf.shape(outputs)[0]], 144.0)

    def scores(self, outputs, targets):
        given, true = outputs > 0, targets > 0
        sizes = [tf.reduce_sum(tf.cast(one, tf.float32), [1, 2]) for one in (given & true, given | true)]
        return {"iou": tf.stack(sizes, 1)}

    def respond(self, answers):
        bright = answers["answer"] > 0
        rows, columns = (tf.cast(tf.reduce_any(bright, axis), tf.int32) for axis in (2, 1))
        left, top = (tf.argmax(one, 1, tf.int32) for one in (columns, rows))
        right, bottom = (12 - tf.argmax(one[:, ::-1], 1, tf.int32) for one in (columns, rows))
        pictures = tf.map_fn(tf.io.encode_png, tf.cast(bright, tf.uint8)[..., None] * 255, fn_output_signature=tf.string)
        return {"mask": pictures, "boxes": tf.stack([left, top, right, bottom], 1)[:, None],
                "count": tf.cast(tf.reduce_any(bright, [1, 2]), tf.int32)}

    def explain(self, model, judgement, answers, targets, source):
        worst = quartet.worst_examples(self, model, answers, targets, source, count=3)
        pictures = [figures.overlaid(one.inputs, mask=one.targets["mask"], boxes=one.answers["boxes"]) for one in worst]
        judgement.figures["worst"] = figures.image_grid(np.stack(pictures), [one.name for one in worst])

    def baseline(self, train, features):
        """Every pixel that is brighter than the middle of the range."""
        return quartet.Baseline("brighter than grey", answer=lambda images: tf.cast(images, tf.float32) - 127.5)


def proposed(path: Path) -> str:
    """What `quartet new mine` makes of a folder."""
    if not (path / "masks").is_dir():
        raise quartet.DataError(f"{path}: has no folder masks")
    return f"task: mine.bright\ndata: {{source: folder, path: {path}, validation: 0.2, test: 0.2}}\nmodel: {{name: tiny}}\n"


@quartet.register_task(Bright, new=proposed)
class BrightTask(quartet.Task):
    input_class, output_class = Pictures, Masks

    def model(self) -> keras.Model:
        return MODELS.build(self.experiment.model, side=12)


class Drawn(quartet.Data):
    """Bright rectangles under noise."""

    source: Literal["drawn"]
    pictures: int = quartet.setting(120, "pictures that are drawn", ge=20)


class Folder(quartet.Data):
    """PNG files in images/, and of the same names in masks/."""

    source: Literal["folder"]
    path: str = quartet.setting(..., "the folder", path=True)


class Tiny(quartet.Section):
    """Two convolutions."""

    name: Literal["tiny"]
    filters: int = quartet.setting(8, "of the first convolution", ge=1)


class Mirror(quartet.Section):
    """Left and right exchanged."""

    name: Literal["mirror"]
    share: float = quartet.setting(0.5, "share of pictures", ge=0.0, le=1.0)


@quartet.register_source("mine.bright", Drawn)
def drawn(settings) -> quartet.Source:
    rng = np.random.default_rng(0)
    mask = np.zeros((settings.pictures, 12, 12), np.uint8)
    for one, (row, column) in zip(mask, rng.integers(0, 6, (settings.pictures, 2))):
        one[row:row + 5, column:column + 4] = 1
    image = np.clip(rng.normal(80 + 90 * mask, 30), 0, 255).astype(np.uint8)
    return quartet.ArraySource({"image": image, "mask": mask})


@quartet.register_source("mine.bright", Folder)
def folder(settings) -> quartet.Source:
    images = sorted(Path(settings.path, "images").glob("*.png"))
    return quartet.FileSource(images, key="image", beside={"mask": [one.parents[1] / "masks" / one.name for one in images]},
                              root=settings.path)


@quartet.register_model("mine.bright", Tiny)
def tiny(settings, side) -> keras.Model:
    layers = [keras.Input((side, side)), keras.layers.Rescaling(1 / 64, -2.0), keras.layers.Reshape((side, side, 1)),
              keras.layers.Conv2D(settings.filters, 5, padding="same", activation="relu"), keras.layers.Conv2D(1, 1, dtype="float32"),
              keras.layers.Reshape((side, side), dtype="float32")]
    return keras.Sequential(layers)


@quartet.register_augmentation("mine.bright", Mirror)
def mirror(settings, keys) -> tf.Tensor:
    return quartet.uniform(keys, 0) < settings.share
