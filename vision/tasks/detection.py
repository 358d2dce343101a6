"""vision.detection: Images with Boxes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base import figures
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.data.split import describe
from pipelines.encoders import presets
from pipelines.task.contract import Splits
from vision.data.boxes.open import BOXES, CLASSES, NONE
from vision.data.boxes.splits import load_boxes
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.outputs.boxes import Boxes
from vision.settings import DETECTORS, ImageDetection, PretrainedDetector, Yolox
from vision.tasks.image_task import ImageTask
from vision.tasks.images import Images

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class BoxImages(Images):
    """Pictures whose boxes go with them."""

    places = True
    cheap = None  # type: ignore[assignment]  # what a kernel machine knows of a picture is of all of it

    @staticmethod
    def load(experiment: ImageDetection, **how: Any) -> Splits:
        """As load_boxes. Without data: a grey picture of nothing, to train nothing on, and the classes of the preset."""
        known: dict[str, Any] = {}
        if isinstance(experiment.model, Yolox) and experiment.model.weights == "preset":  # a finished run is judged without the preset
            from vision.models import yolox

            preset = yolox.found(experiment.model)
            known = {"encoder": presets.record(preset)}
            if experiment.data.source == "none":
                return as_it_is(experiment, yolox.class_names(preset.folder), yolox.SIZE, known)
        found = load_boxes(experiment, **how)
        return replace(found, facts={**found.facts, **known})


def as_it_is(experiment: ImageDetection, classes: list[str], usual: tuple[int, int], known: dict[str, Any]) -> Splits:
    """Splits of a model that is used as it is. `usual`: the size of the pictures that it was trained on."""
    wanted = experiment.data.image_size or usual
    size = (wanted, wanted) if isinstance(wanted, int) else (wanted[0], wanted[1])
    grey = tf.io.encode_png(tf.fill([*size, 3], tf.constant(128, tf.uint8))).numpy()
    nothing = {BOXES: np.zeros((1, 1, 4), np.float32), CLASSES: np.full((1, 1), NONE, np.int32)}
    train = ArraySource({"image": np.array([grey], object), **nothing})
    facts = {"classes": classes, "class_counts": [0] * len(classes), "image_size": list(size), "channels": 3, "mean": [128.0] * 3,
             "std": [0.0] * 3, "splits": describe({"train": train, "validation": None, "test": None}), **known}
    return Splits(train, None, None, facts, notes=("There are no data: the model is used as it is, and is not judged",))


class Detection(ImageTask):
    """vision.detection. Facts: those of `Images` and `Boxes`."""

    input_class = BoxImages
    output_class = Boxes
    facts_schema = ImageFacts
    models = DETECTORS
    hub_name = "object-detection"
    output: Boxes
    experiment: ImageDetection

    def model(self) -> keras.Model:
        return self.models.build(
            self.experiment.model, image_size=self.input.image_size, channels=self.facts["channels"], classes=self.output.width,
            mean=self.facts["mean"], std=self.facts["std"], facts=self.facts)

    def facts_error(self) -> str | None:
        wanted = ENCODER_FACTS if isinstance(self.experiment.model, PretrainedDetector) else ()
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        self.draw(writer, "inputs after augmentation", step, lambda: [
            figures.overlaid(image, boxes=boxes[classes >= 0], names=classes[classes >= 0])
            for image, boxes, classes in zip(inputs.numpy(), targets[BOXES].numpy(), targets[CLASSES].numpy())])

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """The boxes with a score of 0.5 and more: the thresholds are chosen at the end."""
        def pictures() -> list[np.ndarray]:
            given = self.output.answer(lambda images: model(images, training=False), inputs)
            return [self.draw_answer(image, {name: value[place].numpy() for name, value in given.items()})
                    for place, image in enumerate(inputs.numpy())]

        self.draw(writer, "given", step, pictures)

    def draw_answer(self, image: np.ndarray, given: dict[str, np.ndarray]) -> np.ndarray:
        """A picture as the model sees it, with what it gives for it."""
        sure = given["scores"] >= 0.5
        return figures.overlaid(image, boxes=given[BOXES][sure], names=given[CLASSES][sure].tolist())
