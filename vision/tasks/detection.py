"""vision.detection: Images with Boxes."""

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from pipelines.base import figures
from pipelines.data.source import Source
from vision.data.boxes.splits import load_boxes
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.outputs.boxes import Boxes
from vision.settings import DETECTORS, ImageDetection, PretrainedDetector
from vision.tasks.image_task import ImageTask
from vision.tasks.images import Images

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class BoxImages(Images):
    """Pictures whose boxes go with them."""

    places = True
    load = staticmethod(load_boxes)
    cheap = None  # type: ignore[assignment]  # what a kernel machine knows of a picture is of all of it


class Detection(ImageTask):
    """vision.detection. Facts: those of `Images` and `Boxes`."""

    input_class = BoxImages
    output_class = Boxes
    facts_schema = ImageFacts
    hub_name = "object-detection"
    output: Boxes
    experiment: ImageDetection

    def model(self) -> keras.Model:
        return DETECTORS.build(
            self.experiment.model, image_size=self.input.image_size, channels=self.facts["channels"], classes=self.output.width,
            mean=self.facts["mean"], std=self.facts["std"], facts=self.facts)

    def facts_error(self) -> str | None:
        wanted = ENCODER_FACTS if isinstance(self.experiment.model, PretrainedDetector) else ()
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        if not self.drawing.due():
            return
        with self.drawing:
            pictures = [figures.overlaid(image, boxes=boxes[classes >= 0], names=classes[classes >= 0])
                        for image, boxes, classes in zip(inputs.numpy(), targets["boxes"].numpy(), targets["classes"].numpy())]
            writer.images("inputs after augmentation", np.stack(pictures), step)
