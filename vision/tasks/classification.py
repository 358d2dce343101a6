"""vision.classification: one label per image."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.encoders import blend
from pipelines.fitting import kernel
from pipelines.outputs.classes import Classes
from pipelines.outputs.classification import Classified
from pipelines.task.contract import Features, Task
from pipelines.task.results import Judgement
from vision import models
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.settings import ImageClassification, Kernel, Pretrained
from vision.tasks.images import Images

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


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


class Classification(Task):
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

    def model(self) -> keras.Model:
        return models.build(
            self.experiment.model,
            image_size=self.input.image_size,
            channels=self.facts["channels"],
            classes=len(self.output.classes),
            mean=self.facts["mean"],
            std=self.facts["std"],
            facts=self.facts,
        )

    def initialise(self, model: keras.Model, batches: Iterator[tuple[Any, Any]]) -> None:
        if getattr(self.experiment.model, "whiten", False):  # declared by `fast`
            images: list[np.ndarray] = []
            for inputs, _ in batches:
                images.extend(inputs.numpy())
                if len(images) >= 5000:
                    break
            models.initialise(model, np.stack(images))

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        seed, cheap, settings = self.experiment.train.seed, self.input.cheap, self.experiment.model
        if isinstance(settings, Pretrained) and settings.fitted:
            return blend.fit_model(self, model, train, features, cheap.describe, blocks=cheap.blocks, seed=seed)
        if not isinstance(settings, Kernel):
            return None
        how = kernel.fit_model(model, train, features, cheap.describe, blocks=cheap.blocks, seed=seed)
        return f"{cheap.name}: {how}."

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        if not self.drawing.due():
            return
        labels = targets.numpy()
        names = [self.output.classes[int(row if labels.ndim == 1 else row.argmax())] for row in labels]
        with self.drawing:
            writer.images("inputs after augmentation", np.clip(np.rint(inputs.numpy()), 0, 255).astype(np.uint8), step, captions=names)


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
