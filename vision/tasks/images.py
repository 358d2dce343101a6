"""The input of every task on images: from stored pixels or encoded bytes to what the model sees."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base import figures
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.inside import check_regular
from pipelines.data.shards import ShardSource
from pipelines.data.source import Source, Tensors, stored_label
from pipelines.encoders.settings import PretrainedModel
from pipelines.task.contract import Cheap, Decoding, Input, PreparedForm, Read, Requests, Signature, Splits
from pipelines.task.form import Field
from pipelines.task.results import Judgement
from vision.data import augment, geometry, mosaic, splits
from vision.data.decode import decode_image, decode_placed
from vision.data.facts import ENCODER_FACTS
from vision.data.files import find_images
from vision.data.plain import decode_plain, is_large, is_plain
from vision.data.streaming import STREAMED
from vision.models import kernel
from vision.settings import ImageExperiment

UNFOLLOWED = ("rand_augment", "own", "mixup", "cutmix")  # of augmentation: what lies in pictures does not move with them
CHEAP = "kernel machine on small copies, colours and gradients"


class Images(Input):
    """Facts: `image_size`, `channels`, `mean`, `std` (see vision.data.splits), and those of a pretrained encoder.

    With `places`, for outputs whose answers lie somewhere in the picture, examples also have `sent` ([batch, 2] int32, height and width of
    the picture as it was given, upright) and `place` ([batch, 2, 3] float32, the map from its pixels to those of the image, as
    vision.data.geometry has it), and what was done to them (`changes` of `Output.targets`) has `place` and `moved`: the maps to the
    augmented image, from the picture as given and from the image as decoded; and where four of these are then put together, `mosaic`
    (vision.data.mosaic.Parts).
    """

    places = False
    load: Any = staticmethod(splits.load_images)  # the splits, as that function gives them

    signature = Signature(
        {"image": "the bytes of a JPEG, PNG, BMP, GIF (its first frame) or still WebP file"},
        {"image": "tf.constant([open('example', 'rb').read()])"})
    experiment: ImageExperiment

    @property
    def image_size(self) -> tuple[int, int]:
        height, width = self.facts["image_size"]
        return height, width

    @property
    def decoding(self) -> Decoding:  # type: ignore[override]
        return Decoding("decode", random=self.experiment.augment.random_resized_crop is not None, setting="augment.random_resized_crop")

    @cached_property
    def requests(self) -> Requests:
        return ImageFiles(self)

    @cached_property
    def prepared_form(self) -> PreparedForm:
        return PreparedImages(self)

    @property
    def cheap(self) -> Cheap:
        return Cheap(CHEAP, kernel.describe, kernel.blocks((*self.image_size, self.facts["channels"])))

    def splits(self) -> Splits:
        unfollowed = [name for name in UNFOLLOWED if getattr(self.experiment.augment, name)]
        if self.places and unfollowed:
            raise ConfigError(f"augment.{unfollowed[0]}: what lies in the pictures does not follow it; leave it out")
        if self.experiment.augment.mosaic and not self.places:
            raise ConfigError("augment.mosaic: is for boxes and masks; mixup and cutmix put pictures together that have classes")
        model, known = self.experiment.model, {name: self.facts[name] for name in ENCODER_FACTS if name in self.facts}
        size = None
        if isinstance(model, PretrainedModel):
            from vision.models import pretrained

            known = known or pretrained.learn(model)  # a finished run is judged without the preset
            size = pretrained.preset_size(known)
        found = self.load(self.experiment, judging=bool(self.facts), mixed_size=size)
        return replace(found, facts={**found.facts, **known})

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One image of the stored form to uint8 [height, width, channels]; a random part of it when training asks for that."""
        area = self.experiment.augment.random_resized_crop
        found = self._decoded(raw["image"], key if area else None, (area[0], area[1]) if area else None)
        return {**raw, **found, **stored_label(raw)}

    def _decoded(self, raw: tf.Tensor, key: tf.Tensor | None = None, area: tuple[float, float] | None = None) -> Tensors:
        """What is made of one picture: its `image`, and with `places` where it comes from."""
        data, how = self.experiment.data, (self.image_size, self.facts["channels"])
        if not self.places:
            return {"image": decode_image(raw, *how, data.resize, crop_key=key, area=area, max_pixels=data.max_pixels)}
        image, sent, place = decode_placed(raw, *how, data.resize, crop_key=key, area=area, max_pixels=data.max_pixels)
        return {"image": image, "sent": sent, "place": place}

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Tensors]:
        """Images [batch, height, width, channels] float32 in 0..255; of mixed ones each one's `partner` and `share`."""
        images = examples["image"]
        if keys is None:
            return tf.cast(images, tf.float32), {"place": examples["place"]} if self.places else {}
        if self.places:
            moved = augment.moves(images, self.experiment.augment, keys, epoch)
            augmented, _ = augment.augment(images, self.experiment.augment, keys=keys, seed=seed, epoch=epoch, mean=self.facts["mean"])
            changes = {"moved": moved, "place": geometry.then(examples["place"], moved)}
            if self.experiment.augment.mosaic:
                changes["mosaic"] = mosaic.draw_parts(keys, self.image_size, self.experiment.augment.mosaic)
                augmented = mosaic.join_images(augmented, changes["mosaic"], self.facts["mean"])
            return augmented, changes
        return augment.augment(images, self.experiment.augment, keys=keys, seed=seed, epoch=epoch, mean=self.facts["mean"])

    def stored_images(self, source: Source, numbers: Sequence[int]) -> np.ndarray:
        """Examples `numbers` as evaluated: uint8 [n, height, width, channels]."""
        return np.stack([example["image"].numpy() for example in self._as_evaluated(source, numbers)])

    def placed_images(self, source: Source, numbers: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """With `places`: examples as evaluated, each with its map [2, 3] from the picture as it was given."""
        return [(example["image"].numpy(), example["place"].numpy()) for example in self._as_evaluated(source, numbers)]

    def _as_evaluated(self, source: Source, numbers: Sequence[int]) -> Iterator[Tensors]:
        for number in numbers:
            raw = {name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()}
            yield self.decode(raw)

    def draw(self, judgement: Judgement, source: Source, numbers: Sequence[int], captions: Sequence[Sequence[str]], title: str) -> None:
        if numbers:
            judgement.figures["worst_mistakes"] = figures.image_grid(
                self.stored_images(source, numbers), ["\n".join(lines) for lines in captions], title=title)

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"image": tf.TensorSpec([None], tf.string)}

    def receive(self, raw: Tensors) -> Tensors:
        """Encoded images [batch] string into uint8 [batch, height, width, channels], with `places` also where they come from."""
        spec = {"image": tf.TensorSpec([*self.image_size, self.facts["channels"]], tf.uint8)}
        if self.places:
            spec |= {"sent": tf.TensorSpec([2], tf.int32), "place": tf.TensorSpec([2, 3], tf.float32)}
        received: Tensors = tf.map_fn(self._decoded, raw["image"], fn_output_signature=spec)
        return received

    def slow_to_decode(self, row: dict[str, Any]) -> bool:
        return is_large(row["image"])

    def is_simple(self, row: dict[str, Any]) -> bool:
        return not self.places and is_plain(row["image"], *self.image_size)

    def receive_simple(self, raw: Tensors) -> Tensors:
        return {"image": decode_plain(raw["image"], self.image_size, self.facts["channels"])}


class ImageFiles(Requests):
    """The bytes of image files."""

    takes_files = True
    sends = 'the bytes of an image file; in JSON {"b64": "..."}'
    input: Images

    def read(self, inputs: list[str]) -> Iterator[Read]:
        for path in find_images(inputs, self.notes.append):
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
        return {"image": tf.io.encode_jpeg(tf.zeros([2 * size for size in self.input.image_size] + [3], tf.uint8)).numpy()}

    def typical(self) -> list[dict[str, Any]]:
        """Noise and slopes of the model's own size, as PNG and JPEG."""
        height, width = self.input.image_size
        rows, columns = np.mgrid[:height, :width] / max(height, width)
        slopes = np.stack([255 * rows, 255 * columns, 127 * (rows + columns)], -1).astype(np.uint8)
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        return [{"image": encode(image).numpy()} for image in (slopes, noise) for encode in (tf.io.encode_png, tf.io.encode_jpeg)]


class PreparedImages(PreparedForm):
    """Images depend on a model only where an encoder says how large they are."""

    input: Images

    @property
    def settings_not_in_data(self) -> tuple[str, ...]:
        own = () if isinstance(self.input.experiment.model, PretrainedModel) else ("model",)
        return (*super().settings_not_in_data, "augment", *own)

    def from_prepared(self, splits: Splits) -> Splits:
        """What was streamed when it was prepared is read by number now: shuffled as a whole, and its labels can be counted."""
        train = splits.train
        if not self.input.experiment.data.streaming or not isinstance(train, ShardSource):
            return splits
        counts = np.bincount(train.column("label"), minlength=len(splits.facts["classes"])).tolist()
        return replace(splits, facts={**splits.facts, "class_counts": counts},
                       notes=tuple(note for note in splits.notes if not note.endswith(STREAMED)))
