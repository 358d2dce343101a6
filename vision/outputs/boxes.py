"""Boxes with a class each: loss, suppression, AP, the score from which they are given, judgement, and the answer in pixels as sent."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors
from pipelines.outputs.of_classes import OfClasses
from pipelines.task.contract import AnswerFormat, Answers, Condensed, Features, SetScores
from pipelines.task.results import Baseline, Judgement, worst_numbers
from vision.data import geometry, mosaic
from vision.data.boxes.open import BOXES, CLASSES, NONE
from vision.models.detector import places_of
from vision.outputs import answer_files, box_errors, box_figures, box_loss, suppression
from vision.outputs.box_metrics import MAIN, MATCH, Judged
from vision.settings import ImageDetection, Tiled

LEAST = 0.01  # score below which no box counts
SIDE = 1.0  # px that a box keeps of each side, at least, to be learned


class Boxes(OfClasses):
    """Facts: `classes`, `class_counts` of train's boxes, and `thresholds`, chosen on validation; settings: `loss` and `evaluate` are a
    BoxLoss and a BoxEvaluate.

    Outputs of the model are those of vision.models.detector; targets are `boxes` [batch, n, 4] float32 in pixels of the image that the
    model sees, and `classes` [batch, n] int32, -1 where there is no further box.
    """

    watch = ("ap", "max")
    experiment: ImageDetection
    input: Any  # vision.tasks.images.Images, with `places`

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        classes = self.facts.get("classes", ())
        return Answers({"boxes": "left, top, right and bottom of each, in pixels of the picture as it was sent, upright",
                        "labels": "of each", "scores": "of each, 0 to 1", "count": "how many there are"},
                       ranked=("boxes", "labels", "scores"), kinds={"boxes": "boxes"}, beside=("sent", "place"),
                       formats={"coco": AnswerFormat(partial(answer_files.coco, classes=classes), alone=True),
                                "yolo": AnswerFormat(partial(answer_files.yolo, classes=classes))},
                       draw=partial(answer_files.draw_boxes, classes=classes))

    @property
    def width(self) -> int:
        """Classes that a detector tells apart."""
        return len(self.classes)

    @property
    def thresholds(self) -> list[float]:
        """The score from which boxes of each class are given."""
        return self.facts.get("thresholds") or [0.5] * len(self.classes)

    @property
    def places(self) -> box_loss.Places:
        model = self.experiment.model
        return box_loss.Places(*places_of(self.input.image_size, model if isinstance(model, Tiled) else None))

    # ---- learning

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """Boxes in pixels of the image that the model sees. To be learned they are cut at its border, and those of which less than
        loss.least_visible or a pixel is left are none; to be judged they are whole."""
        if BOXES not in examples:
            return {}
        classes = examples[CLASSES]
        if changes is None:
            return {BOXES: geometry.move_boxes(examples[BOXES], examples["place"]), CLASSES: classes}
        if "mosaic" in changes:
            boxes, left = mosaic.join_boxes(examples[BOXES], changes["place"], changes["mosaic"])
            classes = tf.concat([tf.gather(classes, other) for other in changes["mosaic"].examples], 1)
        else:
            height, width = self.input.image_size
            moved = geometry.move_boxes(examples[BOXES], changes["place"])
            boxes, left = geometry.clip_boxes(moved, tf.constant([0.0, 0.0, width, height]))
        seen = (left >= self.experiment.loss.least_visible) & tf.reduce_all(boxes[..., 2:] - boxes[..., :2] >= SIDE, -1)
        return {BOXES: boxes, CLASSES: tf.where(seen, classes, NONE)}

    def loss(self, outputs: tf.Tensor, targets: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """See box_loss.losses; the mean is one over boxes."""
        settings = self.experiment.loss
        each, _ = box_loss.losses(outputs, targets[BOXES], targets[CLASSES], self.places, most=settings.places, weight=settings.boxes)
        return each, tf.reduce_sum(tf.cast(targets[CLASSES] >= 0, tf.float32), -1)

    def scores(self, outputs: tf.Tensor, targets: Any) -> Tensors:
        return {}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """boxes [batch, most, 4] float32 in pixels of the image that the model sees, scores [batch, most] float32, best first and 0 where
        there is no further box, and classes [batch, most] int32: those that evaluate.overlap leaves of each class."""
        settings = self.experiment.evaluate
        outputs = tf.cast(model(inputs), tf.float32)
        boxes, chances = outputs[..., :4], tf.nn.sigmoid(outputs[..., 4:])
        if settings.flip:
            outputs = tf.cast(model(tf.reverse(inputs, [2])), tf.float32)
            turned, width = outputs[..., :4], float(self.input.image_size[1])
            turned = tf.stack([width - turned[..., 2], turned[..., 1], width - turned[..., 0], turned[..., 3]], -1)
            boxes, chances = tf.concat([boxes, turned], 1), tf.concat([chances, tf.nn.sigmoid(outputs[..., 4:])], 1)
        return self.suppress(boxes, chances)[0]

    def suppress(self, boxes: tf.Tensor, chances: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """(the best of boxes [batch, places, 4] with probabilities [batch, places, classes], as `answer` gives them, the place of each,
        [batch, most] int32)."""
        settings = self.experiment.evaluate
        kept = suppression.suppress(boxes, chances, most=settings.boxes, overlap=settings.overlap, least=LEAST)
        found = tf.where((kept.scores > 0.0)[..., None], tf.gather(boxes, kept.places, batch_dims=1), 0.0)
        return {BOXES: found, "scores": kept.scores, CLASSES: kept.classes}, kept.places

    def respond(self, answers: Tensors) -> Tensors:
        """boxes [batch, most, 4] float32, cut at the picture's border, labels [batch, most] string, scores [batch, most] float32, those
        that reach the threshold of their class first, and their count [batch] int32; 0 and empty behind them."""
        return self.order_answers(answers)[0]

    def order_answers(self, answers: Tensors) -> tuple[Tensors, tf.Tensor]:
        """(what `respond` gives of boxes, the place of each among the answers, [batch, most] int32)."""
        high = tf.tile(tf.cast(tf.reverse(answers["sent"], [-1]), tf.float32), [1, 2])[:, None]
        boxes = tf.clip_by_value(geometry.move_boxes(answers[BOXES], geometry.inverse(answers["place"])), 0.0, high)
        scores, classes = answers["scores"], answers[CLASSES]
        given = (scores >= tf.gather(tf.constant(self.thresholds, tf.float32), classes)) & (scores > 0.0)
        order = tf.argsort(tf.where(given, -scores, 1.0), stable=True)
        boxes, scores, classes, given = (tf.gather(value, order, batch_dims=1) for value in (boxes, scores, classes, given))
        names = tf.gather(tf.constant(self.classes), classes)
        return {"boxes": tf.where(given[..., None], boxes, 0.0), "labels": tf.where(given, names, ""),
                "scores": tf.where(given, scores, 0.0),
                "count": tf.reduce_sum(tf.cast(given, tf.int32), -1)}, order

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """All boxes, in pixels of the picture as it was sent."""
        maps = answers["place"]
        scale, begin = (np.tile(one, [1, 2])[:, None] for one in (maps[:, [0, 1], [0, 1]], maps[:, :, 2]))
        mine, theirs = ((side[BOXES] - begin) / scale for side in (answers, targets))
        return ({BOXES: mine, "scores": answers["scores"], CLASSES: answers[CLASSES]}, {BOXES: theirs, CLASSES: targets[CLASSES]})

    def judged(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Judged:
        """Condensed answers and targets, matched as COCO matches them."""
        return Judged(answers, targets, self.classes)

    overlaps = staticmethod(box_errors.overlaps_of_boxes)

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"thresholds": self.judged(answers, targets).thresholds()}

    @property
    def set_scores(self) -> SetScores:
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            found = self.judged(answers, targets).metrics(sizes=False)
            return {name: found[name] if np.isfinite(found[name]) else 0.0 for name in MAIN}

        return SetScores(dict.fromkeys(MAIN, "max"), compute)

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        settings, units, judged = self.experiment.evaluate, self.input.units(source), self.judged(answers, targets)
        chosen = self.thresholds
        each = judged.by_picture(chosen)
        given = (answers["scores"] >= np.array(chosen)[answers[CLASSES]]) & (answers["scores"] > 0)
        names = [source.name(number) for number in range(len(source))]
        tables = {"classes": judged.by_class(chosen), "mistakes": box_errors.mistakes(answers, targets, chosen, self.overlaps)}
        judgement = Judgement(
            judged.with_intervals(settings.bootstrap, units), tables, units=units, notes=units.notes(),
            predictions={"example": names, "boxes": (targets[CLASSES] >= 0).sum(1), "found": given.sum(1), "box_f1": each})
        threshold = "chosen on validation" if self.facts.get("thresholds") else "0.5"
        judgement.notes.append(f"A box is found where one of its class overlaps it by {MATCH:g} or more; those are given whose score "
                               f"reaches the threshold of their class, {threshold}.")
        judgement.figures["precision_and_recall"] = box_figures.curves(judged)
        worst = worst_numbers(self, answers, targets, settings.worst)
        judgement.tables["worst_mistakes"] = [{"number": number, "example": names[number], "box_f1": score} for number, score in worst]
        return judgement

    def explain(self, model: Any, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """The worst pictures, with their boxes beside those that are given."""
        worst = [row["number"] for row in judgement.tables["worst_mistakes"]][:box_figures.SHOWN]
        if worst:
            judgement.figures["worst_mistakes"] = box_figures.pictures(self, answers, targets, source, worst)

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return self.judged(answers, targets).by_picture(self.thresholds)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        """The mean box of each class at its mean place, as likely as pictures of train have one."""
        _, targets = features(train, lambda images: tf.zeros([tf.shape(images)[0], 1]))
        boxes, classes = targets[BOXES], targets[CLASSES]
        there = [classes == number for number in range(len(self.classes))]
        mean = np.array([boxes[one].mean(0) if one.any() else np.zeros(4) for one in there], np.float32)
        share = np.array([one.any(1).mean() for one in there], np.float32)
        order = np.argsort(-share, kind="stable")

        def answer(images: tf.Tensor) -> Tensors:
            batch = tf.shape(images)[0]
            each = {BOXES: mean[order], "scores": share[order], CLASSES: order.astype(np.int32)}
            return {name: tf.repeat(tf.constant(value)[None], batch, 0) for name, value in each.items()}

        return Baseline("the mean box of each class", answer=answer)
