"""One label per image: from stored pixels or encoded bytes to probabilities, and their evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.base import figures
from pipelines.base.errors import DataError
from pipelines.base.regular import check_regular
from pipelines.data.shards import ShardSource
from pipelines.data.source import Source, Tensors
from pipelines.encoders import blend
from pipelines.fitting import kernel
from pipelines.reports import classification, classifier
from pipelines.reports.baselines import kernel_baseline
from pipelines.task.contract import Condensed, Features, Splits
from pipelines.task.form import Field
from pipelines.task.results import Baseline, Judgement
from pipelines.task.single_label import SingleLabel
from pipelines.task.units import units_of
from vision import models
from vision.data import augment, splits
from vision.data.decode import decode_image
from vision.data.facts import ENCODER_FACTS, ImageFacts
from vision.data.files import find_images
from vision.data.plain import decode_plain, is_large, is_plain
from vision.data.streaming import STREAMED
from vision.models import kernel as described
from vision.settings import ImageClassification, Kernel, Pretrained

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

CHEAP = "kernel machine on small copies, colours and gradients"


class Classification(SingleLabel):
    """vision.classification. Facts: `classes`, `image_size`, `channels`, `mean`, `std`, `class_counts` (see vision.data.splits)."""

    meanings = {
        "image": "the bytes of a JPEG, PNG, BMP, GIF (its first frame) or still WebP file",
        **SingleLabel.answers,
    }
    hub_task = "image-classification"
    takes_files = True
    sends = 'the bytes of an image file; in JSON {"b64": "..."}'
    examples = {"image": "tf.constant([open('example', 'rb').read()])"}
    kept = ImageFacts
    decoded_by = "decode"
    drawn_by = "augment.random_resized_crop"
    experiment: ImageClassification

    @property
    def image_size(self) -> tuple[int, int]:
        height, width = self.facts["image_size"]
        return height, width

    @property
    def random_decode(self) -> bool:  # type: ignore[override]
        return self.experiment.augment.random_resized_crop is not None

    @property
    def no_matter(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().no_matter, "augment", *(() if isinstance(self.experiment.model, Pretrained) else ("model",)))

    def splits(self) -> Splits:
        model, known = self.experiment.model, {name: self.facts[name] for name in ENCODER_FACTS if name in self.facts}
        size = None
        if isinstance(model, Pretrained):
            from vision.models import pretrained

            known = known or pretrained.learn(model)  # a finished run is judged without the preset
            size = pretrained.preset_size(known)
        found = splits.load_images(self.experiment, judging=bool(self.facts), mixed_size=size)
        return replace(found, facts={**found.facts, **known})

    def public_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Pixels are normalised by fixed numbers. Class names, image size, channels and the number of examples count as public."""
        splits = {name: {"examples": split["examples"]} for name, split in facts.get("splits", {}).items()}
        channels = facts["channels"]
        return {**facts, "mean": [127.5] * channels, "std": [64.0] * channels, "statistics_of": 0, "class_counts": None, "splits": splits}

    def restored(self, splits: Splits) -> Splits:
        """What was streamed when it was prepared is read by number now: shuffled as a whole, and its labels can be counted."""
        train = splits.train
        if not self.experiment.data.streaming or not isinstance(train, ShardSource):
            return splits
        counts = np.bincount(train.column("label"), minlength=len(splits.facts["classes"])).tolist()
        return replace(splits, facts={**splits.facts, "class_counts": counts},
                       notes=tuple(note for note in splits.notes if not note.endswith(STREAMED)))

    def unfit(self) -> str | None:
        model = self.experiment.model
        wanted = (*(ENCODER_FACTS if isinstance(model, Pretrained) else ()), *(["class_counts"] if getattr(model, "fitted", False) else []))
        missing = next((name for name in wanted if self.facts.get(name) is None), None)
        return f"{missing}: field required" if missing else None

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One image of the stored form to uint8 [height, width, channels]; a random part of it when training asks for that."""
        area = self.experiment.augment.random_resized_crop
        image = decode_image(
            raw["image"],
            self.image_size,
            self.facts["channels"],
            self.experiment.data.resize,
            crop_key=key if area else None,
            area=(area[0], area[1]) if area else None,
            max_pixels=self.experiment.data.max_pixels,
        )
        return {"image": image, **({"label": tf.cast(raw["label"], tf.int32)} if "label" in raw else {})}

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Any]:
        """Images [batch, height, width, channels] float32 in 0..255; labels [batch] int32, or mixed targets [batch, classes]."""
        images, labels = examples["image"], examples.get("label")
        if keys is None:
            return tf.cast(images, tf.float32), labels
        return augment.augment(
            images, labels, self.experiment.augment, keys=keys, seed=seed, epoch=epoch, classes=len(self.classes), mean=self.facts["mean"]
        )

    def model(self) -> keras.Model:
        return models.build(
            self.experiment.model,
            image_size=self.image_size,
            channels=self.facts["channels"],
            classes=len(self.classes),
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

    def answer(self, model: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """Probabilities [batch, classes] float32: the softmax of the mean logits over the test-time views."""
        views = test_time_views(inputs, flip=self.experiment.evaluate.flip, shift=self.experiment.evaluate.shift)
        logits = tf.add_n([tf.cast(model(view), tf.float32) * weight for view, weight in views])
        return {"probabilities": tf.nn.softmax(logits)}

    def fit_at_once(self, model: keras.Model, train: Source, features: Features) -> str | None:
        seed = self.experiment.train.seed
        if self._blended:
            return blend.fit_model(self, model, train, features, described.describe, blocks=self._blocks, seed=seed)
        if not isinstance(self.experiment.model, Kernel):
            return None
        how = kernel.fit_model(model, train, features, described.describe, blocks=self._blocks, seed=seed)
        return f"{CHEAP}: {how}."

    @property
    def _blended(self) -> bool:
        return isinstance(self.experiment.model, Pretrained) and self.experiment.model.fitted

    @property
    def _blocks(self) -> list[int]:
        return described.blocks((*self.image_size, self.facts["channels"]))

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        if isinstance(self.experiment.model, Kernel):
            return None
        return kernel_baseline(CHEAP, train, features, described.describe, len(self.classes), blocks=self._blocks)

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        return classification.condensed(answers["probabilities"], targets["label"]), targets

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings = self.experiment.evaluate
        answered = classification.of_condensed(answers, targets["label"], self.classes)
        judgement = classifier.judgement(answered, settings, units_of(source, self.experiment.data.group_by), source.name)
        worst = classification.worst_mistakes(answered, settings.worst)
        if worst:
            images = self.images(source, [mistake.number for mistake in worst])
            captions = [f"{self.classes[m.predicted]} {m.confidence:.0%}\nis {self.classes[m.true]}" for m in worst]
            judgement.figures["worst_mistakes"] = figures.image_grid(images, captions, title="Worst mistakes: predicted, and true class")
        if settings.flip or settings.shift:
            judgement.notes.append(
                f"Answers are means over test-time views (flip: {settings.flip}, shift: {settings.shift} px); "
                "validation during training is without them."
            )
        return judgement

    def images(self, source: Source, numbers: list[int]) -> np.ndarray:
        """Examples `numbers` as evaluated: uint8 [n, height, width, channels]."""
        raw = [{name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()} for number in numbers]
        return np.stack([self.decode(example)["image"].numpy() for example in raw])

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        if not self.drawing.due():
            return
        labels = targets.numpy()
        names = [self.classes[int(row if labels.ndim == 1 else row.argmax())] for row in labels]
        with self.drawing:
            writer.images("inputs after augmentation", np.clip(np.rint(inputs.numpy()), 0, 255).astype(np.uint8), step, captions=names)

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"image": tf.TensorSpec([None], tf.string)}

    def receive(self, raw: Tensors) -> Tensors:
        """Encoded images [batch] string into uint8 [batch, height, width, channels]."""
        height, width = self.image_size
        stored = self.experiment.data
        decode = partial(decode_image, size=self.image_size, channels=self.facts["channels"], resize=stored.resize,
                         max_pixels=stored.max_pixels)
        return {
            "image": tf.map_fn(decode, raw["image"], fn_output_signature=tf.TensorSpec([height, width, self.facts["channels"]], tf.uint8))
        }

    def large(self, row: dict[str, Any]) -> bool:
        return is_large(row["image"])

    def plain(self, row: dict[str, Any]) -> bool:
        return is_plain(row["image"], *self.image_size)

    def receive_plain(self, raw: Tensors) -> Tensors:
        return {"image": decode_plain(raw["image"], self.image_size, self.facts["channels"])}

    def read(self, inputs: list[str]) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
        for path in find_images(inputs, self.read_notes.append):
            try:
                check_regular(path)
                yield str(path), {"image": Path(path).read_bytes()}
            except (OSError, DataError) as error:
                yield str(path), error

    def take(self, sent: Any) -> dict[str, Any]:
        if not isinstance(sent, bytes):
            raise DataError('send the bytes of an image file; in JSON as {"b64": "..."}')
        return {"image": sent}

    def form(self) -> list[Field]:
        return [Field("image")]

    def sample(self) -> dict[str, Any]:
        return {"image": tf.io.encode_jpeg(tf.zeros([2 * size for size in self.image_size] + [3], tf.uint8)).numpy()}

    def typical(self) -> list[dict[str, Any]]:
        """Noise and slopes of the model's own size, as PNG and JPEG."""
        height, width = self.image_size
        rows, columns = np.mgrid[:height, :width] / max(height, width)
        slopes = np.stack([255 * rows, 255 * columns, 127 * (rows + columns)], -1).astype(np.uint8)
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        return [{"image": encode(image).numpy()} for image in (slopes, noise) for encode in (tf.io.encode_png, tf.io.encode_jpeg)]


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
