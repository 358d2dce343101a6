"""What tasks on images share, whatever is said of them: the model between input and output, and pictures of what it sees."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from pipelines.data.source import Source
from pipelines.encoders import blend
from pipelines.fitting import kernel
from pipelines.task.contract import Features, Task
from vision import models
from vision.settings import ImageExperiment, Kernel, Pretrained
from vision.tasks.images import Images

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer


class ImageTask(Task):
    """Its output says how many numbers the model gives (`width`), how a target is written (`name_of`), and what a model that is fitted at
    once learns (`fitted_to`)."""

    input_class = Images
    input: Images
    output: Any
    experiment: ImageExperiment

    def model(self) -> keras.Model:
        return models.build(
            self.experiment.model,
            image_size=self.input.image_size,
            channels=self.facts["channels"],
            classes=self.output.width,
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
        how = kernel.fit_model(model, train, features, cheap.describe, blocks=cheap.blocks, seed=seed, truth=self.output.fitted_to)
        return f"{cheap.name}: {how}."

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        if not self.drawing.due():
            return
        names = [self.output.name_of(target) for target in targets.numpy()]
        with self.drawing:
            writer.images("inputs after augmentation", np.clip(np.rint(inputs.numpy()), 0, 255).astype(np.uint8), step, captions=names)

    def draw(self, writer: "Writer", name: str, step: int, pictures: Callable[[], list[np.ndarray]]) -> None:
        """Puts pictures of one size, [height, width, 3] uint8 each, into TensorBoard, where it is time to draw."""
        if self.drawing.due():
            with self.drawing:
                writer.images(name, np.stack(pictures()), step)
