"""Things with a class, a box and a mask each: what masks are learned from and judged by, and the answer as a picture of numbers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.contract import AnswerFormat, Answers, Condensed, Features
from pipelines.task.results import Baseline, Judgement
from vision.data import geometry, mosaic
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.outputs import answer_files, box_loss, instance_baseline, mask_figures, mask_network
from vision.outputs.boxes import Boxes
from vision.outputs.instance_metrics import PIXEL, JudgedThings, overlaps_of_masks, panoptic_quality, panoptic_sums
from vision.settings import ImageInstances

BESIDE = 0.1  # of a box's sides: how far a mask may reach beyond it
TOGETHER = 8  # things whose masks are enlarged at once
FINER = 2  # times: of borders half as far apart as the features a mask is learned better
BYTE = 255  # things up to which a picture of numbers has 8 bits a pixel


class Instances(Boxes):
    """As `Boxes`; settings: `loss` and `evaluate` are an InstanceLoss and an InstanceEvaluate, `model` is a MaskHead.

    Outputs of the model are those of vision.models.detector with masks. Answers and targets also have `things`: a picture of numbers
    [batch, height, width] int32 of the size that the model sees, 0 where there is nothing, n + 1 where the n-th of `boxes` is.
    """

    experiment: ImageInstances  # type: ignore[assignment]

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        classes = self.facts.get("classes", ())
        return Answers({"boxes": "left, top, right and bottom of each thing, in pixels of the picture as it was sent, upright",
                        "labels": "of each", "scores": "of each, 0 to 1", "count": "how many there are",
                        "mask": "a PNG file of the size of the picture as it was sent, upright: 0 where there is nothing, 1 where the "
                                "first thing is, 2 where the second is",
                        "overlay": "the same in colours that let the picture through, a PNG file"},
                       ranked=("boxes", "labels", "scores"), kinds={"boxes": "boxes", "mask": ".png", "overlay": "mask"},
                       beside=("sent", "place"), draw=partial(answer_files.draw_things, classes=classes),
                       formats={"coco": AnswerFormat(partial(answer_files.coco, classes=classes), alone=True),
                                "png": AnswerFormat(answer_files.masks)})

    # ---- learning

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        found = super().targets(examples, changes)
        if not found:
            return found
        things = tf.cast(examples[THINGS], tf.int32)
        if changes is not None and "moved" in changes:
            things = geometry.move_masks(things, changes["moved"], self.input.image_size, 0)
            if "mosaic" in changes:
                things = mosaic.join_masks(things, changes["mosaic"], 0, step=int(examples[CLASSES].shape[1]))
        return {**found, THINGS: things}

    def loss(self, outputs: Any, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """That of boxes, and of each thing that some place learns the loss of the mask which its best place draws; of more than
        loss.things that number of them, times as much."""
        settings, pixel = self.experiment.loss, self.experiment.model.mask_stride // FINER
        each, learned = box_loss.losses(outputs["places"], targets[BOXES], targets[CLASSES], self.places, most=settings.places,
                                        weight=settings.boxes)
        many = tf.shape(targets[CLASSES])[1]
        own = tf.where(learned.thing[:, None] == tf.range(many)[:, None], learned.quality[:, None], 0.0)  # [batch, things, places]
        there, place = tf.reduce_max(own, -1) > 0.0, tf.argmax(own, -1, tf.int32)
        chosen = self._choose_things(there, targets[BOXES])
        place, counts, boxes = (tf.gather(value, chosen, batch_dims=1) for value in (place, there, targets[BOXES]))
        given = self._draw_masks(outputs, place)
        middle = [targets[THINGS][:, row::pixel, column::pixel] for row in (pixel // 2 - 1, pixel // 2)
                  for column in (pixel // 2 - 1, pixel // 2)]  # the four pixels around the middle of each of the mask's
        true = tf.add_n([tf.cast(part[:, None] == 1 + chosen[..., None, None], tf.float32) for part in middle]) / 4.0
        masks = tf.where(counts, mask_network.losses(given, true, boxes, float(pixel)), 0.0)
        share = tf.math.divide_no_nan(_count(there), _count(counts))
        return each + settings.masks * share * tf.reduce_sum(masks, -1), _count(targets[CLASSES] >= 0)

    def _choose_things(self, there: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        """Numbers of the things whose masks are learned, [batch, most] int32, those `there` first; where they are too many, drawn by where
        augmentation has put them, so that they change from epoch to epoch and are the same on any number of devices."""
        most = min(self.experiment.loss.things, int(there.shape[1] or 0))
        drawn = tf.math.floormod(tf.reduce_sum(boxes * tf.constant([12.9898, 78.233, 37.719, 4.581]), -1), 1.0)
        return tf.math.top_k(tf.where(there, drawn, -1.0), most).indices

    def _draw_masks(self, outputs: Any, place: tf.Tensor) -> tf.Tensor:
        """The masks that the networks of some places draw, FINER than the features, [batch, things, rows, columns] float32 logits."""
        controls = tf.gather(tf.cast(outputs["controls"], tf.float32), place, batch_dims=1)
        middles, strides = (tf.gather(tf.constant(value), place) for value in self.places)
        features = tf.cast(outputs["features"], tf.float32)
        drawn = mask_network.logits(features, controls, middles, strides, self.experiment.model.mask_stride)
        return mask_network.enlarge(drawn, (FINER * drawn.shape[2], FINER * drawn.shape[3]))

    # ---- answers

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """As that of Boxes, and `things`: of a pixel that several claim the one with the best score has it."""
        outputs: Any = model(inputs)
        places = tf.cast(outputs["places"], tf.float32)
        found, chosen = self.suppress(places[..., :4], tf.nn.sigmoid(places[..., 4:]))
        drawn = self._draw_masks(outputs, chosen)
        near = mask_network.inside(mask_network.around(found[BOXES], BESIDE), drawn.shape[2], drawn.shape[3],
                                   float(self.experiment.model.mask_stride // FINER))
        return {**found, THINGS: self._assign_pixels(tf.where(near, tf.nn.sigmoid(drawn), 0.0), found["scores"] > 0.0)}

    def _assign_pixels(self, drawn: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """The first of probabilities [batch, things, rows, columns] that is a half or more at each pixel, from 1, [batch, height, width]
        int32; some things at a time, so that memory holds the masks of these alone. They, not logits, are enlarged: these would move
        borders to the side that is less sure."""
        things, (rows, columns) = drawn.shape[1], drawn.shape[2:]
        more = -things % TOGETHER
        drawn, there = tf.pad(drawn, [[0, 0], [0, more], [0, 0], [0, 0]]), tf.pad(there, [[0, 0], [0, more]])
        count = tf.reduce_max(tf.reduce_sum(tf.cast(there, tf.int32), -1))

        def draw(turn: tf.Tensor, owners: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            begin = TOGETHER * (turn - 1)
            some = tf.reshape(tf.slice(drawn, [0, begin, 0, 0], [-1, TOGETHER, -1, -1]), [-1, TOGETHER, rows, columns])
            mine = mask_network.enlarge(some, self.input.image_size) > 0.5
            mine = tf.cast(mine & tf.slice(there, [0, begin], [-1, TOGETHER])[..., None, None], tf.float32)
            return turn - 1, tf.where(tf.reduce_max(mine, 1) > 0.0, begin + 1 + tf.argmax(mine, 1, tf.int32), owners)

        nobody = tf.zeros([tf.shape(drawn)[0], *self.input.image_size], tf.int32)
        return tf.while_loop(lambda turn, _: turn > 0, draw, ((count + TOGETHER - 1) // TOGETHER, nobody))[1]

    def respond(self, answers: Tensors) -> Tensors:
        """As that of Boxes, and mask and overlay, [batch] string each."""
        said, order = self.order_answers(answers)
        many, batch = tf.shape(order)[1], tf.shape(order)[0]
        number = tf.where(tf.range(many) < said["count"][:, None], tf.range(1, many + 1), 0)  # of each in the new order
        table = tf.tensor_scatter_nd_update(tf.zeros([batch, many + 1], tf.int32), tf.stack(
            [tf.repeat(tf.range(batch)[:, None], many, 1), order + 1], -1), number)
        kind = tf.uint8 if self.experiment.evaluate.boxes <= BYTE else tf.uint16
        tints = np.concatenate([[[0, 0, 0, 0]], np.insert(mask_figures.tints(mask_figures.THINGS), 3, 140, 1)]).astype(np.uint8)

        def files(one: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
            things, numbers, sent, place = one
            mask = geometry.move_mask(tf.gather(numbers, things), place, sent)
            colours = tf.where(mask > 0, 1 + (mask - 1) % mask_figures.THINGS, 0)
            return tf.io.encode_png(tf.cast(mask, kind)[..., None]), tf.io.encode_png(tf.gather(tf.constant(tints), colours))

        written = tf.map_fn(files, (answers[THINGS], table, answers["sent"], geometry.inverse(answers["place"])),
                            fn_output_signature=(tf.string, tf.string))
        return {**said, "mask": written[0], "overlay": written[1]}

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        given, true = super().condense(answers, targets)
        maps = answers["place"]
        area = 1.0 / np.abs(maps[:, 0, 0] * maps[:, 1, 1])
        return ({**given, THINGS: answers[THINGS].astype(np.uint16), PIXEL: area}, {**true, THINGS: targets[THINGS].astype(np.uint16)})

    overlaps = staticmethod(overlaps_of_masks)

    def judged(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> JudgedThings:
        return JudgedThings(answers, targets, self.classes)

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        judgement = super().judge(answers, targets, source)
        sums = panoptic_sums(answers, targets, self.thresholds)
        judgement.metrics["panoptic_quality"] = intervals.interval(
            sums.reshape(len(sums), -1), partial(panoptic_quality, classes=self.width), resamples=self.experiment.evaluate.bootstrap,
            units=self.input.units(source))
        height, width = self.input.image_size
        judgement.notes.append(f"Things are matched by their masks, at the size that the model sees, {height} x {width} px.")
        return judgement

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return instance_baseline.fitted(self, train, features)


def _count(there: tf.Tensor) -> tf.Tensor:
    """How many of each row are true, [batch] float32."""
    return tf.reduce_sum(tf.cast(there, tf.float32), -1)
