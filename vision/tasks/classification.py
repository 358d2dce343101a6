"""vision.classification: one label per image."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.outputs.classes import Classes
from pipelines.outputs.classification import Classified
from pipelines.task.results import Judgement
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.settings import ImageClassification, Pretrained
from vision.tasks.image_task import ImageTask
from vision.tasks.images import Images


class ImageClasses(Classes):
    """Answers are means over test-time views."""

    experiment: ImageClassification
    input: Images

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """Probabilities [batch, classes] float32: the softmax of the mean logits over the test-time views."""
        views = test_time_views(inputs, flip=self.experiment.evaluate.flip, shift=self.experiment.evaluate.shift)
        logits = tf.add_n([tf.cast(model(view), tf.float32) * weight for view, weight in views])
        return {"probabilities": tf.nn.softmax(logits)}

    def add(self, judgement: Judgement, answered: Classified, source: Source) -> None:
        settings = self.experiment.evaluate
        if settings.flip or settings.shift:
            judgement.notes.append(
                f"Answers are means over test-time views (flip: {settings.flip}, shift: {settings.shift} px); "
                "validation during training is without them."
            )


class Classification(ImageTask):
    """vision.classification. Facts: those of `Images` and `Classes`."""

    input_class, output_class = Images, ImageClasses
    facts_schema = ImageFacts
    hub_name = "image-classification"
    input: Images
    output: ImageClasses
    experiment: ImageClassification

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
