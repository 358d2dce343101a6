"""The settings of image classification: data sources, models, augmentation. Imports no TensorFlow."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.config.label_settings import LabelData, problems_of_labels
from pipelines.config.registry import register_task
from pipelines.config.schema import (
    ClassificationLoss,
    Evaluate,
    Experiment,
    FileData,
    Overridable,
    PrunableBlocks,
    Section,
    Share,
    location_problems,
    setting,
)
from pipelines.config.train_settings import protected_by
from pipelines.config.variants import Variants
from pipelines.encoders.settings import BlendedModel
from pipelines.fitting.settings import KernelModel, problems_at_once
from pipelines.outputs.settings import NumberEvaluate, NumberLoss, NumberTarget, number_problems

Count = Annotated[int, Field(ge=1)]
Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]
MAX_PIXELS = 64_000_000  # holds what cameras of 60 megapixels take; a decoding call then takes some 0.4 GB for JPEG
Pixels = Annotated[int, Field(ge=1, le=16_384)]


class Tiled(Section):
    """Models that may see a large picture in tiles."""

    tile: Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = setting(
        None, "[height, width] of tiles in which a picture of data.image_size is seen, in training as in answering; null: as a whole",
        unit="px")
    tile_overlap: Share = setting(0.2, "of neighbouring tiles, of their sides, at least", unit="share")


SOURCES = Variants("source", "source")


@SOURCES.register("vision.data.sources:open_shipped")
class ImageData(LabelData, FileData):
    """Where the images and labels come from, and the size the model sees."""

    of_one_label = ("digits", "tfds")

    source: Overridable[Any, Literal["digits", "tfds", "folder", "table", "npz"]] = setting(
        ..., "digits: 1,797 embedded 8 x 8 digits; tfds: a TensorFlow data set; folder: a folder per class; "
        "table: CSV, TSV, JSONL or Parquet naming files; npz: arrays")
    name: str | None = setting(None, "tfds: the data set, such as cifar10 or imagenet2012")
    path: str | None = setting(None, "folder, table or npz: the folder or file", path=True)
    data_dir: str | None = setting(None, "tfds: the data directory; default as TFDS has it", path=True)
    streaming: bool = setting(
        False, "tfds: read shards in order through a shuffle window instead of by number, for data too large for that")
    image_key: str = setting("image", "tfds feature, table column or npz array with the images (npz: also <key>_train, <key>_test)")
    label_key: str | Annotated[list[str], Field(min_length=2)] = setting(
        "label", "tfds feature, table column or npz array with the labels (labels: many: of lists, or [n, labels] of 0 and 1); a list of "
        "columns, one of which holds 1 in each row, the others 0 (labels: many: none, one or several); of vision.regression the "
        "numbers, in one column or several")
    image_size: Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = setting(
        None, "height and width the model sees, one number or [height, width]; default: the data's own where all are equal", unit="px",
        search=True)
    resize: Literal["crop", "pad", "squash"] = setting(
        "crop", "how images reach image_size: crop the centre, pad, or squash; the first two keep the aspect ratio", search=True)
    channels: Literal[1, 3] | None = setting(None, "1 grey, 3 colour; default: the data's own", search=True)
    max_pixels: int = setting(
        MAX_PIXELS, "an image with more pixels by its header is refused before decoding, in training, evaluation and serving alike: each "
        "image being decoded takes 6 bytes of memory per pixel, with transparency 20", unit="px", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + location_problems(self.source, self.name, self.path, example="cifar10")
        if isinstance(self.label_key, list) and self.source != "table":
            found.append(("label_key", "several columns, one of which holds 1, are for source: table"))
        if self.streaming and self.source != "tfds":
            found.append(("streaming", f"streaming is for source: tfds, not {self.source}"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        labels = [(self.label_key, "label")] if isinstance(self.label_key, str) else [(key, "number") for key in self.label_key]
        return [(self.image_key, "image"), *labels, *self.of_rows()]

MODELS = Variants()


@MODELS.register("vision.models.cnn:build")
class Cnn(Section):
    """Two convolutions, pooling, one hidden layer: the classic CIFAR-10 teaching network."""

    name: Literal["cnn"]
    widths: list[Count] = setting(
        lambda: [64, 128], "filters of each 3 x 3 convolution; each is followed by 2 x 2 max-pooling", min_length=1)
    hidden: int = setting(256, "units of the dense layer", ge=1)
    dropout: Share = setting(0.0, "dropout before the dense layers", unit="share")
    batch_norm: bool = setting(False, "batch normalisation after each convolution")

    @property
    def prunable(self) -> list[str]:
        return [*(f"conv{stage}" for stage in range(1, len(self.widths) + 1)), "hidden"]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        return {"widths": [counts[name] for name in self.prunable[:-1]], "hidden": counts["hidden"]}


@MODELS.register("vision.models.residual:build")
class Residual(Section):
    """A residual network for 28 to 64 px, after He et al. 2016 with pre-activation."""

    name: Literal["residual"]
    depth: int = setting(2, "blocks in each stage", ge=1)
    widths: list[Count] = setting(lambda: [64, 128, 256], "filters of each stage; each stage after the first halves the size", min_length=1)
    inner: list[Count] | None = setting(
        None, "filters between the two convolutions of each block, one number a block; default: those of its stage")
    dropout: Share = setting(0.0, "dropout before the last layer", unit="share")

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """(stage, block) of all blocks, from 1."""
        return [(stage, block) for stage in range(1, len(self.widths) + 1) for block in range(1, self.depth + 1)]

    def problems(self) -> list[tuple[str, str]]:
        found, count = super().problems(), len(self.blocks)
        if self.inner is not None and len(self.inner) != count:
            found.append(("inner", f"{len(self.inner)} numbers for {count} blocks"))
        return found

    @property
    def prunable(self) -> list[str]:
        stages = ["stem", *(f"stage{stage}_block1_conv2" for stage in range(2, len(self.widths) + 1))]
        return [*stages, *(f"stage{stage}_block{block}_conv1" for stage, block in self.blocks)]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        stages = len(self.widths)
        return {"widths": [counts[name] for name in self.prunable[:stages]], "inner": [counts[name] for name in self.prunable[stages:]]}


@MODELS.register("vision.models.fast:build")
class Fast(Section):
    """A small network in the manner of the CIFAR speed records: whitened first layer, few wide convolutions."""

    name: Literal["fast"]
    widths: list[Count | Pair] = setting(
        lambda: [64, 128, 256], "filters of the stages; [first, second] where the two convolutions of a stage differ", min_length=1)
    whiten: bool = setting(True, "fix the first convolution to the whitening of training patches")
    activation: Literal["relu", "gelu"] = setting("relu", "relu trains 1.5 times as fast on CPUs; gelu is slightly more accurate on images")
    scale: float = setting(1.0 / 9.0, "factor on the logits", gt=0.0)

    @property
    def prunable(self) -> list[str]:
        return [f"stage{stage}_conv{number}" for stage in range(1, len(self.widths) + 1) for number in (1, 2)]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        return {"widths": [[counts[f"stage{stage}_conv{number}"] for number in (1, 2)] for stage in range(1, len(self.widths) + 1)]}


@MODELS.register("vision.models.vit:build")
class Vit(PrunableBlocks):
    """A small vision transformer for 28 to 64 px, after Dosovitskiy et al. 2021."""

    name: Literal["vit"]
    patch: int = setting(4, "patch edge", unit="px", ge=1)
    depth: int = setting(6, "encoder blocks", ge=1)
    width: int = setting(192, "embedding size", ge=8)
    heads: Count | list[Count] = setting(3, "attention heads, or those of each block")
    head_size: int | None = setting(None, "columns of a head; default: width / heads", ge=1)
    hidden: Count | list[Count] | None = setting(None, "units of each block's dense layer, or of each block; default: 4 x width")
    dropout: Share = setting(0.0, "dropout in the blocks", unit="share")


@MODELS.register("vision.models.gradients:build")
class Gradients(Section):
    """A linear layer on histograms of oriented gradients (Dalal and Triggs 2005): fixed features, few weights, for private training."""

    name: Literal["gradients"]
    orientations: int = setting(8, "directions of a gradient that are told apart", ge=2, le=36)
    cells: list[Annotated[int, Field(ge=1)]] = setting(
        lambda: [2, 4, 8], "edges of the windows that histograms are taken over; those of one edge lie half of it apart", unit="px",
        min_length=1)
    norm: float = setting(6.0, "L2 norm to which the features of each image are scaled", gt=0.0)


@MODELS.register("vision.models.kernel:build")
class Kernel(KernelModel):
    """A kernel machine on small copies, colours and gradients of images, fitted at once: the cheap baseline that stands beside every
    report, as a model."""


@MODELS.register("vision.models.application:build")
class Application(Section):
    """Any network of keras.applications."""

    name: Literal["application"]
    architecture: str = setting(
        ..., "a name of keras.applications, such as ResNet50, MobileNetV3Small or ConvNeXtTiny", names="keras.applications")
    weights: Literal["imagenet"] | str | None = setting(
        None, "null: from scratch; imagenet: downloaded by Keras; or a path to a weights file", path=True)
    dropout: Share = setting(0.0, "dropout before the last layer", unit="share")


@MODELS.register("vision.models.pretrained:build")
class Pretrained(BlendedModel):
    """An image encoder of KerasHub with its own preprocessing and a new head; needs the extra `pretrained`."""

    name: Literal["pretrained"]
    image_size: Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = setting(
        None, "height and width that the encoder sees, one number or [height, width]; images are resampled to it inside the model. "
        "Default: the images' own, where they are not below 0.7 of the size that the encoder was trained on, to which they are enlarged "
        "else; an encoder for one size alone gets that", unit="px", search=True)
    pooling: Literal["mean", "first"] | None = setting(
        None, "of an encoder that gives tokens: their mean or the first; default: the first where it stands for the image, as in ViT")


class RandAugment(Section):
    """RandAugment (Cubuk et al. 2020), by Keras' layer."""

    operations: int = setting(2, "operations an image", ge=1, le=10)
    magnitude: float = setting(0.5, "strength", ge=0.0, le=1.0)


AUGMENTATIONS = Variants(what="augmentation")


class Augment(Section):
    """Training augmentation; each random choice depends on seed, epoch and example only."""

    flip: bool = setting(False, "mirror left and right")
    flip_vertical: bool = setting(False, "mirror above and below")
    flip_mode: Literal["random", "alternate"] = setting(
        "random", "random by example and epoch; alternate: each image flipped every other epoch (airbench)")
    shift: int = setting(0, "largest shift in each direction, border reflected", unit="px", ge=0)
    random_resized_crop: list[float] | None = setting(
        None, "[low, high] share of the area cropped at random before resizing (Szegedy et al. 2015)", min_length=2, max_length=2)
    scale: list[Annotated[float, Field(gt=0.0, le=10.0)]] | None = setting(
        None, "[low, high] factor by which each image is scaled about a random place; what is then missing has the mean of train",
        min_length=2, max_length=2)
    colour: float = setting(
        0.0, "largest share by which brightness, contrast and saturation change, each by itself", ge=0.0, lt=1.0)
    mosaic: Share = setting(
        0.0, "for boxes and masks: how many of the pictures are put together from four of the batch (Bochkovskiy et al. 2020); the same on "
        "any number of devices whose part of the batch 4 divides", unit="share")
    erase: int = setting(0, "edge of a square set to the mean (Cutout, DeVries and Taylor 2017)", unit="px", ge=0)
    rand_augment: RandAugment | None = setting(None, "RandAugment")
    own: Annotated[Any, AUGMENTATIONS] | None = setting(
        None, "an augmentation of one's own, after all but mixup and cutmix (`register_augmentation`)")
    mixup: float = setting(0.0, "alpha of MixUp's beta distribution (Zhang et al. 2018); 0: off", ge=0.0)
    cutmix: float = setting(0.0, "alpha of CutMix's beta distribution (Yun et al. 2019); 0: off; with mixup, each batch takes one", ge=0.0)


class ImageEvaluate(Evaluate):
    """Evaluation of images."""

    flip: bool = setting(False, "average the answers for the image and its mirror image")
    shift: int = setting(0, "also average over shifts of this many pixels (airbench's test-time crops)", unit="px", ge=0)


class ImageNumberEvaluate(NumberEvaluate, ImageEvaluate):
    """Evaluation of numbers that belong to images."""


class ImageExperiment(Experiment):
    """What tasks on images share."""

    data: Annotated[ImageData, SOURCES]
    model: Annotated[Any, MODELS]
    augment: Augment = setting(Augment, "training augmentation")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + problems_at_once(self)
        data, augment = self.data, self.augment
        if data.streaming and getattr(self.model, "fitted", False):
            found.append(("data.streaming", f"model.name: {self.model.name} is fitted to all images at once; leave it out"))
        if protection := protected_by(self.train):
            found += _mixing_examples(augment, self.model, protection)
        crop = augment.random_resized_crop
        if crop and not 0.0 < crop[0] <= crop[1] <= 1.0:
            found.append(("augment.random_resized_crop", f"{crop} is not [low, high] with 0 < low <= high <= 1"))
        if augment.scale and augment.scale[0] > augment.scale[1]:
            found.append(("augment.scale", f"{augment.scale} is not [low, high] with low <= high"))
        return found


@register_task("vision.tasks.classification:Classification")
class ImageClassification(ImageExperiment):
    """One label per image, or several."""

    task: Literal["vision.classification"]
    loss: ClassificationLoss = setting(ClassificationLoss, "the loss")
    evaluate: ImageEvaluate = setting(ImageEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + problems_of_labels(self)
        if self.data.streaming and not self.data.prepared and self.loss.class_weights == "balanced":
            found.append(("loss.class_weights", "balanced needs the classes counted, and a stream is not read ahead; give {class: weight}, "
                          "or train from prepared data (quartet prepare)"))
        return found


@register_task("vision.tasks.regression:Regression")
class ImageRegression(ImageExperiment):
    """One or several numbers per image."""

    task: Literal["vision.regression"]
    target: NumberTarget = setting(NumberTarget, "what is known of the numbers in data.label_key")
    loss: NumberLoss = setting(NumberLoss, "the loss")
    evaluate: ImageNumberEvaluate = setting(ImageNumberEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + number_problems(self)
        if self.data.labels == "many":
            found.append(("data.labels", "is for classes; several numbers are columns in data.label_key"))
        if self.data.source in ("digits", "folder") or self.data.streaming:
            found.append(("data.source", "numbers come from a column of a table, an array, or a feature of TFDS that is read by number"))
        return found


def _mixing_examples(augment: Augment, model: Any, protection: str) -> list[tuple[str, str]]:
    """What a setting such as train.privacy does not allow: images that become part of others, and weights that are computed from images."""
    mixing = [(f"augment.{name}", "it puts one example into another, so that no example has a gradient of its own; leave it out with "
                                  f"{protection}") for name in ("mixup", "cutmix") if getattr(augment, name)]
    if augment.own is not None:
        mixing.append(("augment.own", f"whether it puts one example into another is not known; leave it out with {protection}"))
    if getattr(model, "whiten", False):
        mixing.append(("model.whiten", "the first convolution is computed from training images without noise; set it to false with "
                                       f"{protection}"))
    return mixing


QUICK_START = "vision/digits"
