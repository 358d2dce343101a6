"""vision.regression: one or several numbers per image."""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from pipelines.data.source import Tensors
from pipelines.outputs.numbers import Numbers
from vision.data.facts import ENCODER_FACTS, ImageNumberFacts
from vision.settings import ImageRegression, Pretrained
from vision.tasks.classification import mean_logits
from vision.tasks.image_task import ImageTask


class ImageNumbers(Numbers):
    """Answers are means over test-time views."""

    experiment: ImageRegression

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """See Numbers; of the mean outputs over the test-time views."""
        return super().answer(partial(mean_logits, model, self.experiment.evaluate), inputs)


class Regression(ImageTask):
    """vision.regression. Facts: those of `Images` and `Numbers`."""

    output_class = ImageNumbers
    facts_schema = ImageNumberFacts
    output: ImageNumbers
    experiment: ImageRegression

    def facts_error(self) -> str | None:
        wanted = ENCODER_FACTS if isinstance(self.experiment.model, Pretrained) else ()
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None
