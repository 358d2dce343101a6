"""vision.segmentation: Images with Masks."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from vision.data import geometry
from vision.data.decode import pixels
from vision.data.facts import ENCODER_FACTS, MaskFacts
from vision.data.masks.open import MASK
from vision.data.masks.splits import load_masks
from vision.data.masks.values import VOID
from vision.outputs import mask_figures
from vision.outputs.masks import Masks
from vision.settings import SEGMENTERS, ImageSegmentation, PretrainedSegmenter
from vision.tasks.image_task import ImageTask
from vision.tasks.images import Images

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class MaskImages(Images):
    """Pictures whose masks go with them."""

    places = True
    load = staticmethod(load_masks)
    cheap = None  # type: ignore[assignment]  # what a kernel machine knows of a picture is of all of it

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """As Images; the mask as class numbers [height, width] uint8 of the image's size, 255 where it is void."""
        decoded = super().decode(raw, key)
        if MASK not in raw:
            return decoded
        numbers = self._numbers(raw[MASK])
        check = tf.debugging.assert_equal(tf.shape(numbers), decoded["sent"], "the mask has another size than its picture")
        with tf.control_dependencies([check] if check is not None else []):
            mask = geometry.move_masks(numbers[None], decoded["place"][None], self.image_size, VOID)[0]
        return {**decoded, MASK: mask}

    def _numbers(self, encoded: tf.Tensor) -> tf.Tensor:
        """The class number of each pixel of a PNG file, [h, w] uint8."""
        coding = self.facts["coding"]
        codes, classes = coding["decoded"]
        channels = 1 if coding["kind"] == "grey" else 3
        mask = tf.cast(pixels(encoded, channels, self.experiment.data.max_pixels), tf.int32)
        code = mask[..., 0] if channels == 1 else (mask[..., 0] * 65536) + (mask[..., 1] * 256) + mask[..., 2]
        place = tf.minimum(tf.searchsorted(tf.constant(codes), tf.reshape(code, [-1])), len(codes) - 1)
        found = tf.where(tf.gather(tf.constant(codes), place) == tf.reshape(code, [-1]), tf.gather(tf.constant(classes), place), VOID)
        return tf.cast(tf.reshape(found, tf.shape(code)), tf.uint8)


class Segmentation(ImageTask):
    """vision.segmentation. Facts: those of `Images` and `Masks`."""

    input_class = MaskImages
    output_class = Masks
    facts_schema = MaskFacts
    hub_name = "image-segmentation"
    output: Masks
    experiment: ImageSegmentation

    def model(self) -> keras.Model:
        return SEGMENTERS.build(
            self.experiment.model, image_size=self.input.image_size, channels=self.facts["channels"], classes=self.output.width,
            mean=self.facts["mean"], std=self.facts["std"], facts=self.facts)

    def facts_error(self) -> str | None:
        wanted = ENCODER_FACTS if isinstance(self.experiment.model, PretrainedSegmenter) else ()
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        self.draw(writer, "inputs after augmentation", step, lambda: [
            mask_figures.tinted(image, mask, self.output.width) for image, mask in zip(inputs.numpy(), targets.numpy())])

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        self.draw(writer, "masks given", step, lambda: [
            mask_figures.tinted(image, mask, self.output.width)
            for image, mask in zip(inputs.numpy(), tf.argmax(model(inputs, training=False), -1).numpy())])
