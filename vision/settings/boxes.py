"""The settings of boxes: a class for each thing in a picture. Imports no TensorFlow."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.base.formatting import MetricKind, declare
from pipelines.config.registry import register_task
from pipelines.config.schema import Evaluate, FileData, Overridable, Section, Share, setting
from pipelines.config.variants import Variants
from pipelines.encoders.finetune import Finetune, Whole
from pipelines.encoders.settings import PretrainedModel
from vision.settings.images import MAX_PIXELS, Count, ImageExperiment, Pixels, Tiled

declare({"ap": MetricKind("max", True, "AP"), "ap50": MetricKind("max", True, "AP50"), "ap75": MetricKind("max", True, "AP75"),
         "ap_small": MetricKind("max", True, "AP of small things"), "ap_medium": MetricKind("max", True, "AP of medium things"),
         "ap_large": MetricKind("max", True, "AP of large things"), "box_f1": MetricKind("max", True, "F1 of things"),
         "costs_ap50": MetricKind("min", True, "Costs in AP50")})

BOX_SOURCES = Variants("source", "source")


@BOX_SOURCES.register("vision.data.boxes.open:open_boxes")
class BoxData(FileData):
    """Where the pictures and their boxes come from, and the size the model sees."""

    streaming: ClassVar[bool] = False

    source: Overridable[Any, Literal["voc", "coco", "yolo", "labelme", "cvat", "table", "none"]] = setting(
        ..., "voc: Pascal VOC's XML beside or below; coco: COCO's JSON; yolo: a text file for each picture; labelme: a JSON for each "
        "picture; cvat: the XML of CVAT for images; table: CSV, TSV, JSONL or Parquet with a row for each box; none: no data, for "
        "model.name: yolox as it is")
    path: str | None = setting(None, "the folder, or the file of a table or of COCO", path=True)
    image_size: Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = setting(
        None, "height and width the model sees, one number or [height, width], of which 32 divides both; default: the data's own where all "
        "are equal", unit="px", search=True)
    resize: Literal["crop", "pad", "squash"] = setting(
        "pad", "how pictures reach image_size: pad keeps all of them and their aspect; crop the centre, or squash", search=True)
    channels: Literal[1, 3] | None = setting(None, "1 grey, 3 colour; default: the data's own", search=True)
    max_pixels: int = setting(MAX_PIXELS, "a picture with more pixels by its header is refused before decoding", unit="px", ge=1)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        return found if self.path or self.source not in ("voc", "coco", "yolo", "labelme", "cvat", "table") else [
            *found, ("path", f"source: {self.source} needs a path")]

    def described(self) -> list[tuple[str | int, str]]:
        return [("image", "image")]


DETECTORS = Variants()


class Detector(Tiled):
    """What every detector has above its encoder: a feature pyramid (Lin et al. 2017) and two towers that all of its levels share."""

    width: int = setting(64, "filters of the pyramid and the towers", ge=8)
    depth: int = setting(2, "3 x 3 convolutions of each tower", ge=0)


@DETECTORS.register("vision.models.detector:small")
class SmallDetector(Detector):
    """A small network from scratch, with pyramid and towers."""

    name: Literal["small"]
    widths: Annotated[list[Count], Field(min_length=5, max_length=5)] = setting(
        lambda: [16, 32, 64, 128, 192], "filters of the stages, each of which halves the size; the last three are seen by the pyramid")


@DETECTORS.register("vision.models.detector:pretrained")
class PretrainedDetector(PretrainedModel, Detector):
    """An image encoder of KerasHub whose stages feed pyramid and towers; needs the extra `pretrained`."""

    name: Literal["pretrained"]
    dropout: Share = setting(0.0, "a detector has none", unit="share")
    finetune: Finetune | None = setting(
        lambda: Whole(name="whole", head="new"), "how the network is trained: last, gradual or whole; the encoder has to learn places")

    def problems(self) -> list[tuple[str, str]]:
        wrong = self.finetune is None or self.finetune.name in ("frozen", "lora")
        return [*super().problems(), *([("finetune", "a detector trains its encoder: last, gradual or whole")] if wrong else []),
                *([("dropout", "a detector has no dropout; leave it out")] if self.dropout else [])]


@DETECTORS.register("vision.models.yolox:build")
class Yolox(Section):
    """YOLOX-Nano (Ge et al. 2021) with the weights that it learned on COCO: whole, for COCO's 80 classes as it is, or to be trained further
    for classes of one's own."""

    name: Literal["yolox"]
    preset: str = setting("yolox_nano", "a folder with weights.npz and classes.txt, or its name in ~/.keras/presets", preset=True)
    weights: Literal["preset"] | None = setting("preset", "preset: start from its weights; null: from scratch")
    trains: Literal["nothing", "whole"] = setting(
        "whole", "whole: it learns the classes of the data, of which those called as in COCO begin as they are there; nothing: it is used "
        "as it is, for data whose classes are all called so, or with data.source: none for the 80 of COCO")


class BoxLoss(Section):
    """The loss of a detector: binary cross-entropy of classes whose target is how well a place's box lies, and generalised IoU of boxes,
    over the places that task-aligned assignment gives each box (Feng et al. 2021, arXiv:2108.07755)."""

    boxes: float = setting(2.0, "weight of the boxes; that of classes is 1", gt=0.0)
    places: int = setting(10, "places that learn a box, at most", ge=1)
    least_visible: Share = setting(
        0.25, "a box of which augmentation leaves a smaller share in the picture is not to be found", unit="share")


class BoxEvaluate(Evaluate):
    """Judging of detectors, as COCO does it."""

    boxes: int = setting(100, "most boxes of a picture, best first", ge=1, le=1000)
    overlap: float = setting(0.6, "of two boxes of a class with a larger intersection over union the better one alone is given",
                             gt=0.0, le=1.0)
    flip: bool = setting(False, "boxes of the mirror image are suppressed together with those of the picture")


@register_task("vision.tasks.detection:Detection")
class ImageDetection(ImageExperiment):
    """Boxes of the things in a picture, each with its class."""

    task: Literal["vision.detection"]
    data: Annotated[Any, BOX_SOURCES]
    model: Annotated[Any, DETECTORS]
    loss: BoxLoss = setting(BoxLoss, "the loss")
    evaluate: BoxEvaluate = setting(BoxEvaluate, "judging")

    @property
    def untrained(self) -> bool:
        """Whether the model is used as it is."""
        return getattr(self.model, "trains", None) == "nothing"

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if self.data.source == "none" and not self.untrained:
            found.append(("data.source", "none: there is nothing to train on; it is for model: {name: yolox, trains: nothing}"))
        return found
