"""The settings of instances: boxes with the mask of each thing. Imports no TensorFlow."""

from typing import Annotated, Any, Literal

from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Overridable, location_problems, setting
from pipelines.config.variants import Variants
from vision.settings.boxes import BoxData, BoxEvaluate, BoxLoss, Detector, PretrainedDetector, SmallDetector
from vision.settings.images import ImageExperiment
from vision.settings.masks import PixelValue

declare({"panoptic_quality": MetricKind("max", True, "Panoptic quality")})

INSTANCE_SOURCES = Variants("source", "source")


@INSTANCE_SOURCES.register("vision.data.instances.open:open_instances")
class InstanceData(BoxData):
    """Where the pictures and the masks of the things in them come from, and the size the model sees."""

    source: Overridable[Any, Literal["masks", "coco", "yolo", "labelme", "table"]] = setting(
        ..., "masks: a folder of pictures beside one of masks whose values number the things of each, or a folder for each picture, with "
        "images and masks, a file for each thing; coco: COCO's JSON with polygons or "
        "RLE; yolo: a text file of polygons for each picture; labelme: a JSON of polygons for each; table: CSV, TSV, JSONL or Parquet "
        "naming the files of pictures and masks")
    image_key: str = setting("image", "table: the column that names pictures")
    mask_key: str = setting("mask", "table: the column that names masks, PNG files of the picture's size")
    mask_pattern: str | None = setting(
        None, "table: where the masks lie, from its folder on, with {} for the column's value; default: the value itself")
    thing: str = setting("thing", "masks, table: what the things are called", min_length=1)
    void: list[PixelValue] = setting(list, "masks, table: values that are the ground, as 0 (of colours black) is")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.source == "masks":
            found += location_problems(self.source, None, self.path, example="")
        if self.mask_pattern is not None and self.mask_pattern.count("{}") != 1:
            found.append(("mask_pattern", f"{self.mask_pattern!r} needs {{}} once, for the column's value"))
        return found

    def described(self) -> list[tuple[str | int, str]]:
        return [(self.image_key, "image"), *self.of_rows()]


INSTANCES = Variants()


class MaskHead(Detector):
    """A detector whose places also give the weights of a small network that draws a thing's mask (CondInst: Tian et al. 2020,
    arXiv:2003.05664)."""

    mask_stride: Literal[4, 8] = setting(4, "between the features that masks are drawn from; 4 for small things, 8 is faster", unit="px",
                                         search=True)
    mask_width: int = setting(8, "channels of those features, and of the layers of the small network", ge=1)
    tile: None = setting(None, "is for boxes alone")  # type: ignore[assignment]


@INSTANCES.register("vision.models.detector:small")
class SmallInstances(MaskHead, SmallDetector):
    """A small network from scratch, with pyramid, towers and masks."""

    name: Literal["small"]


@INSTANCES.register("vision.models.detector:pretrained")
class PretrainedInstances(MaskHead, PretrainedDetector):
    """An image encoder of KerasHub whose stages feed pyramid, towers and masks; needs the extra `pretrained`."""

    name: Literal["pretrained"]


class InstanceLoss(BoxLoss):
    """The loss of a detector, and of each thing's mask 1 - Dice (Milletari et al. 2016, arXiv:1606.04797) and the binary cross-entropy of
    the pixels in its box and around it."""

    masks: float = setting(2.0, "weight of the masks", gt=0.0)
    things: int = setting(32, "things of a picture whose masks are learned in a step, at most; which, changes with augmentation", ge=1)


class InstanceEvaluate(BoxEvaluate):
    """Judging of instances, as COCO does it, by their masks."""

    flip: Literal[False] = setting(False, "is for boxes alone")


@register_task("vision.tasks.instances:InstanceSegmentation")
class ImageInstances(ImageExperiment):
    """The things in a picture, each with its class, box and mask."""

    task: Literal["vision.instances"]
    data: Annotated[Any, INSTANCE_SOURCES]
    model: Annotated[Any, INSTANCES]
    loss: InstanceLoss = setting(InstanceLoss, "the loss")
    evaluate: InstanceEvaluate = setting(InstanceEvaluate, "judging")

