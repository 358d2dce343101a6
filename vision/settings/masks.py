"""The settings of masks: a class for each pixel. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import FileData, Overridable, Section, Share, location_problems, setting
from pipelines.config.variants import Variants
from pipelines.encoders.finetune import Finetune, Whole
from pipelines.encoders.settings import PretrainedModel
from vision.settings.images import MAX_PIXELS, Count, ImageEvaluate, ImageExperiment, Pixels, Tiled

declare({"miou": MetricKind("max", True, "mIoU"), "pixel_accuracy": MetricKind("max", True, "Pixel accuracy"),
         "iou": MetricKind("max", True, "IoU"), "dice": MetricKind("max", True, "Dice"),
         "boundary_f1": MetricKind("max", True, "F1 of boundaries")})

MASK_SOURCES = Variants("source", "source")
Level = Annotated[int, Field(ge=0, le=255)]
PixelValue = Level | Annotated[list[Level], Field(min_length=3, max_length=3)]


@MASK_SOURCES.register("vision.data.masks.open:open_masks")
class MaskData(FileData):
    """Where the pictures and their masks come from, what the masks' pixels mean, and the size the model sees."""

    streaming: ClassVar[bool] = False

    source: Overridable[Any, Literal["folder", "table"]] = setting(
        ..., "folder: a folder of pictures beside one of masks, in folders for train, validation and test or not; table: CSV, TSV, JSONL "
        "or Parquet naming the files of both")
    path: str | None = setting(None, "the folder or file", path=True)
    image_key: str = setting("image", "table: the column that names pictures")
    mask_key: str = setting("mask", "table: the column that names masks, PNG files of the picture's size")
    mask_pattern: str | None = setting(
        None, "table: where the masks lie, from its folder on, with {} for the column's value; default: the value itself")
    classes: list[str] | None = setting(None, "names of the classes; default: those of `values`, as numbers", min_length=2)
    values: list[PixelValue] | None = setting(
        None, "the value that each class has in the masks: a grey level, the index of a palette, or [red, green, blue]; default: with "
        "`classes` 0, 1, 2, ..., else those in the masks", min_length=2)
    void: list[PixelValue] = setting(list, "values of pixels that are neither learned nor judged")
    image_size: Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = setting(
        None, "height and width the model sees, one number or [height, width]; default: the data's own where all are equal", unit="px",
        search=True)
    resize: Literal["crop", "pad", "squash"] = setting(
        "pad", "how pictures reach image_size: pad keeps all of them and their aspect; crop the centre, or squash", search=True)
    channels: Literal[1, 3] | None = setting(None, "1 grey, 3 colour; default: the data's own", search=True)
    max_pixels: int = setting(MAX_PIXELS, "a picture with more pixels by its header is refused before decoding", unit="px", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + location_problems(self.source, None, self.path, example="")
        if self.classes and self.values and len(self.classes) != len(self.values):
            found.append(("values", f"{len(self.values)} for {len(self.classes)} classes"))
        if self.mask_pattern is not None and self.mask_pattern.count("{}") != 1:
            found.append(("mask_pattern", f"{self.mask_pattern!r} needs {{}} once, for the column's value"))
        listed: dict[str, list[Any]] = {"classes": [*(self.classes or ())], "values": [*(self.values or ()), *self.void]}
        for name, values in listed.items():
            twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
            if twice is not None:
                found.append((name, f"{twice} is there twice"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        return [(self.image_key, "image"), *self.of_rows()]


SEGMENTERS = Variants()


class Segmenter(Tiled):
    """What every segmenter has above its encoder: a decoder in the manner of U-Net (Ronneberger et al. 2015, arXiv:1505.04597)."""

    decoder: Annotated[list[Count], Field(min_length=4, max_length=4)] = setting(
        lambda: [24, 48, 64, 96], "filters of the decoder's stages, finest first: of a half, a quarter, an eighth and a sixteenth of the "
        "picture's sides")
    dropout: Share = setting(0.1, "of whole channels before the last layer", unit="share")


@SEGMENTERS.register("vision.models.segmenter:small")
class SmallSegmenter(Segmenter):
    """A small network from scratch."""

    name: Literal["small"]
    widths: Annotated[list[Count], Field(min_length=5, max_length=5)] = setting(
        lambda: [24, 48, 96, 160, 224], "filters of the encoder's stages, each of which halves the size")


@SEGMENTERS.register("vision.models.segmenter:pretrained")
class PretrainedSegmenter(PretrainedModel, Segmenter):
    """An image encoder of KerasHub whose stages feed a decoder; needs the extra `pretrained`."""

    name: Literal["pretrained"]
    dropout: Share = setting(0.1, "of whole channels before the last layer", unit="share")
    finetune: Finetune | None = setting(
        lambda: Whole(name="whole", head="new"), "how the network is trained: last, gradual or whole; the encoder has to learn places")

    def problems(self) -> list[tuple[str, str]]:
        wrong = self.finetune is None or self.finetune.name in ("frozen", "lora")
        return super().problems() + ([("finetune", "a segmenter trains its encoder: last, gradual or whole")] if wrong else [])


class MaskLoss(Section):
    """Cross-entropy of the class of each pixel; the mean is one over all pixels of a batch that are not void."""

    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0.0)]] | None = setting(
        None, "weight of each class; balanced: 1 / log(1.02 + its share of train's pixels) (Paszke et al. 2016, arXiv:1606.02147), "
        "scaled to a mean of 1 over train's pixels")
    label_smoothing: float = setting(0.0, "share of the target spread over all classes", ge=0.0, lt=1.0)


@register_task("vision.tasks.segmentation:Segmentation")
class ImageSegmentation(ImageExperiment):
    """A class for each pixel of a picture."""

    task: Literal["vision.segmentation"]
    data: Annotated[Any, MASK_SOURCES]
    model: Annotated[Any, SEGMENTERS]
    loss: MaskLoss = setting(MaskLoss, "the loss")
    evaluate: ImageEvaluate = setting(ImageEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.evaluate.shift:
            found.append(("evaluate.shift", "is for answers about the whole picture; evaluate.flip averages over the mirror image"))
        return found
