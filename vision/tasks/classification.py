"""vision.classification: one label per image, or several."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.outputs.classes import Classes
from pipelines.outputs.classification import Classified
from pipelines.outputs.labels import Labels
from pipelines.task.results import Judgement
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.settings import ImageClassification, ImageEvaluate, Pretrained
from vision.tasks.image_task import ImageTask
from vision.tasks.images import Images


class ImageClasses(Classes):
    """Answers are means over test-time views."""

    experiment: ImageClassification
    input: Images

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """Probabilities [batch, classes] float32: the softmax of the mean logits over the test-time views."""
        return super().answer(partial(mean_logits, model, self.experiment.evaluate), inputs)

    def add(self, judgement: Judgement, answered: Classified, source: Source) -> None:
        judgement.notes.extend(views_note(self.experiment.evaluate))


class ImageLabels(Labels):
    """Answers are means over test-time views."""

    experiment: ImageClassification
    input: Images

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """Probabilities [batch, labels] float32, of each label by itself: of the mean logits over the test-time views."""
        return super().answer(partial(mean_logits, model, self.experiment.evaluate), inputs)

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        judgement = super().judge(answers, targets, source)
        judgement.notes.extend(views_note(self.experiment.evaluate))
        return judgement


class Classification(ImageTask):
    """vision.classification. Facts: those of `Images` and of `Classes` or `Labels`."""

    input_class = Images
    facts_schema = ImageFacts
    hub_name = "image-classification"
    input: Images
    output: ImageClasses | ImageLabels
    experiment: ImageClassification

    def __init__(self, experiment: ImageClassification, facts: dict[str, Any] | None = None):
        self.output_class = ImageLabels if experiment.data.labels == "many" else ImageClasses
        super().__init__(experiment, facts)

    def facts_error(self) -> str | None:
        model = self.experiment.model
        wanted = (*(ENCODER_FACTS if isinstance(model, Pretrained) else ()), *(["class_counts"] if getattr(model, "fitted", False) else []))
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def public_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Pixels are normalised by fixed numbers. Class names, image size, channels and the number of examples count as public."""
        splits = {name: {"examples": split["examples"]} for name, split in facts.get("splits", {}).items()}
        channels = facts["channels"]
        return {**facts, "mean": [127.5] * channels, "std": [64.0] * channels, "statistics_of": 0, "class_counts": None, "splits": splits}


def mean_logits(model: Callable[[tf.Tensor], tf.Tensor], settings: ImageEvaluate, images: tf.Tensor) -> tf.Tensor:
    """Logits [batch, classes] float32: their mean over the test-time views."""
    views = test_time_views(images, flip=settings.flip, shift=settings.shift)
    return tf.add_n([tf.cast(model(view), tf.float32) * weight for view, weight in views])


def views_note(settings: ImageEvaluate) -> list[str]:
    """What the report says of them."""
    if not settings.flip and not settings.shift:
        return []
    return [f"Answers are means over test-time views (flip: {settings.flip}, shift: {settings.shift} px); "
            "validation during training is without them."]


def test_time_views(images: tf.Tensor, *, flip: bool, shift: int) -> list[tuple[tf.Tensor, float]]:
    """The views of a batch that are answered at test time, each with its weight; the weights sum to 1.

    With a shift, the image itself counts half and its moves by (-shift, -shift) and (+shift, +shift), border reflected, a
    quarter each; with a flip, each view is taken in both directions (both as in Jordan 2024, arXiv:2404.00498).
    """
    views = [(images, 1.0)]
    if shift:
        height, width = images.shape[1], images.shape[2]
        padded = tf.pad(images, [[0, 0], [shift, shift], [shift, shift], [0, 0]], "REFLECT")
        moved = [padded[:, at : at + height, at : at + width] for at in (0, 2 * shift)]
        views = [(images, 0.5)] + [(view, 0.25) for view in moved]
    if flip:
        views = [(view, weight / 2) for view, weight in views] + [(tf.reverse(view, [2]), weight / 2) for view, weight in views]
    return views
