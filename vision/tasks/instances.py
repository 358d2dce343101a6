"""vision.instances: Images with Instances."""

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.task.contract import Splits
from vision.data import geometry
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.data.boxes.splits import load_boxes
from vision.data.instances.open import open_instances
from vision.outputs import mask_figures
from vision.outputs.instances import Instances
from vision.settings import INSTANCES, ImageInstances
from vision.tasks.detection import BoxImages, Detection

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class InstanceImages(BoxImages):
    """Pictures whose boxes and masks go with them."""

    @staticmethod
    def load(experiment: ImageInstances, **how: Any) -> Splits:  # type: ignore[override]
        return load_boxes(experiment, open_data=open_instances, **how)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """As Images; `things` [height, width] uint16 of the image's size, as vision.outputs.instances has it."""
        decoded = super().decode(raw, key)
        if THINGS not in raw:
            return decoded
        numbers = tf.io.decode_png(raw[THINGS], 1, tf.uint16)[..., 0]
        moved = geometry.move_masks(tf.cast(numbers, tf.int32)[None], decoded["place"][None], self.image_size, 0)[0]
        return {**decoded, THINGS: tf.cast(moved, tf.uint16)}


class InstanceSegmentation(Detection):
    """vision.instances. Facts: those of `Images` and `Boxes`."""

    input_class = InstanceImages
    output_class = Instances
    models = INSTANCES
    hub_name = "image-segmentation"
    output: Instances
    experiment: ImageInstances  # type: ignore[assignment]

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        self.draw(writer, "inputs after augmentation", step, lambda: [
            mask_figures.draw_numbered(image, things, boxes[classes >= 0]) for image, things, boxes, classes in zip(
                *(one.numpy() for one in (inputs, targets[THINGS], targets[BOXES], targets[CLASSES])))])

    def draw_answer(self, image: np.ndarray, given: dict[str, np.ndarray]) -> np.ndarray:
        sure = given["scores"] >= 0.5
        return mask_figures.draw_numbered(image, np.concatenate([[False], sure])[given[THINGS]] * given[THINGS], given[BOXES][sure])
