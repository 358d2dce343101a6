"""A class for each pixel: loss, mIoU, judgement, and the answer as a mask of the picture as it was sent."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.data.source import Source, Tensors
from pipelines.outputs.of_classes import OfClasses
from pipelines.task import intervals
from pipelines.task.contract import AnswerFormat, Answers, Condensed, Features, kept
from pipelines.task.results import Baseline, Judgement, worst_examples
from vision.data import geometry, mosaic
from vision.data.masks.open import MASK
from vision.data.masks.values import VOID
from vision.outputs import answer_files, mask_baseline, mask_figures, mask_metrics
from vision.settings import ImageSegmentation

CONFUSION = "confusion"  # pixels of each true class (rows) that are given each class, of an example
TABLED = 64  # classes up to which that is kept
SHOWN = 6  # worst pictures


class Masks(OfClasses):
    """Facts: `classes`, `class_counts` of train's pixels and `coding` (vision.data.masks.values); settings: `loss` is a MaskLoss.

    Outputs of the model are [batch, height, width, classes] logits; targets are [batch, height, width] uint8 class numbers, 255 where a
    pixel is void. Both, and all that is judged, are of the size that the model sees.
    """

    watch = ("miou", "max")
    experiment: ImageSegmentation
    input: Any  # Images, with `places`

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        coding = self.facts.get("coding", {"kind": "grey"})
        how = "colours" if coding["kind"] == "colour" else "values"
        return Answers({"mask": f"a PNG file of the size of the picture as it was sent, upright, in the {how} of the training masks",
                        "overlay": "the same in colours that let the picture through, a PNG file",
                        "shares": f"share of the pixels of each class: {', '.join(self.facts.get('classes', ()))}",
                        "confidence": "mean probability of the class given, over the pixels"},
                       details=("shares",), kinds={"mask": ".png", "overlay": "mask"}, beside=("sent", "place"),
                       formats={"png": AnswerFormat(answer_files.masks)}, draw=answer_files.draw_mask)

    @property
    def width(self) -> int:
        """Classes that are told apart."""
        return len(self.classes)

    # ---- learning

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """{"mask"}, moved as its image was; what comes from beyond the border is void."""
        if MASK not in examples:
            return {}
        mask = examples[MASK]
        if changes is not None and "moved" in changes:
            mask = geometry.move_masks(mask, changes["moved"], self.input.image_size, VOID)
            mask = mosaic.join_masks(mask, changes["mosaic"], VOID) if "mosaic" in changes else mask
        return {MASK: mask}

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropy of the pixels that are not void, and their number, weighed by class when training."""
        settings, logits = self.experiment.loss, tf.cast(outputs, tf.float32)
        counted, numbers = _counted(targets, self.width)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(numbers, logits)
        if training and settings.label_smoothing:
            even = tf.reduce_logsumexp(logits, -1) - tf.reduce_mean(logits, -1)
            losses = (1.0 - settings.label_smoothing) * losses + settings.label_smoothing * even
        if training and (weights := self._weights()) is not None:
            counted *= tf.gather(tf.constant(weights, tf.float32), numbers)
        return tf.reduce_sum(losses * counted, [1, 2]), tf.reduce_sum(counted, [1, 2])

    def _weights(self) -> list[float] | None:
        """See MaskLoss. Raises ConfigError for a class that is not there."""
        setting = self.experiment.loss.class_weights
        if setting is None:
            return None
        if isinstance(setting, Mapping):
            unknown = sorted(set(setting) - set(self.classes))
            if unknown:
                raise ConfigError(f"loss.class_weights: the masks have no class {unknown[0]!r} (there are: {', '.join(self.classes)})")
            return [float(setting.get(name, 1.0)) for name in self.classes]
        shares = np.array(self.facts["class_counts"], np.float64) / max(1, sum(self.facts["class_counts"]))
        weights = 1.0 / np.log(1.02 + shares)
        return list((weights / (weights * shares).sum()).tolist())

    def soft_loss(self, outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
        """The mean over pixels of the cross-entropy to the teacher's softened probabilities."""
        wanted = tf.nn.softmax(tf.cast(teacher, tf.float32) / temperature)
        losses = tf.nn.softmax_cross_entropy_with_logits(wanted, tf.cast(outputs, tf.float32) / temperature)
        return tf.reduce_mean(losses, [1, 2]) * temperature**2

    def scores(self, outputs: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """miou: of each class its common pixels, those given and those true; pixel_accuracy: right pixels and all that are not void."""
        return self._scores(tf.argmax(outputs, -1, tf.int32), targets)

    def _scores(self, given: tf.Tensor, targets: tf.Tensor) -> Tensors:
        table = mask_metrics.confusion(given, targets, self.width)
        right = tf.linalg.diag_part(table)
        sums = tf.concat([right, tf.reduce_sum(table, 1), tf.reduce_sum(table, 2)], -1)
        return {"miou": sums, "pixel_accuracy": tf.stack([tf.reduce_sum(right, -1), tf.reduce_sum(table, [1, 2])], -1)}

    @property
    def statistics(self) -> Mapping[str, intervals.Statistic]:
        return {"miou": mask_metrics.mean_iou, "pixel_accuracy": lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1)}

    # ---- answers

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: tf.Tensor) -> Tensors:
        """mask [batch, height, width] uint8 class numbers, and confidence [batch] float32, the mean probability of the class given."""
        chances = tf.nn.softmax(tf.cast(model(inputs), tf.float32))
        if self.experiment.evaluate.flip:
            turned = tf.nn.softmax(tf.cast(model(tf.reverse(inputs, [2])), tf.float32))
            chances = 0.5 * (chances + tf.reverse(turned, [2]))
        return {MASK: tf.cast(tf.argmax(chances, -1), tf.uint8), "confidence": tf.reduce_mean(tf.reduce_max(chances, -1), [1, 2])}

    def respond(self, answers: Tensors) -> Tensors:
        """mask and overlay, [batch] string each; shares [batch, classes] float32; confidence [batch] float32."""
        coding, masks = self.facts["coding"], answers[MASK]
        values = mask_figures.colours_of(coding["values"], coding["kind"])
        tints = np.concatenate([mask_figures.tints(self.width), np.full((self.width, 1), 140)], 1).astype(np.uint8)
        back = geometry.inverse(answers["place"])

        def files(one: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
            mask, sent, place = one
            numbers = geometry.move_mask(mask, place, sent)
            return tuple(tf.io.encode_png(tf.gather(tf.constant(table), numbers)) for table in (values, tints))  # type: ignore[return-value]

        written = tf.map_fn(files, (tf.cast(masks, tf.int32), answers["sent"], back), fn_output_signature=(tf.string, tf.string))
        shares = tf.reduce_mean(tf.one_hot(masks, self.width), [1, 2])
        return {"mask": written[0], "overlay": written[1], "shares": shares, "confidence": answers["confidence"]}

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """Scores and confidence of each example, and how its classes were taken for each other."""
        given, true = tf.cast(answers[MASK], tf.int32), tf.constant(targets[MASK])
        scores = {**self._scores(given, true), "boundary_f1": mask_metrics.boundary_f1(given, true, self.width)}
        known, _ = kept(scores, {"confidence": answers["confidence"]}, {})
        if self.width <= TABLED:
            known[CONFUSION] = mask_metrics.confusion(given, true, self.width).numpy().reshape(len(true), -1)
        return known, {}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        rest = {name: value for name, value in answers.items() if name != CONFUSION}
        judgement = super().judge(rest, targets, source)
        sums = np.asarray(answers["score/miou"], np.float64)
        units, resamples = self.input.units(source), self.experiment.evaluate.bootstrap
        judgement.tables["classes"] = mask_metrics.by_class(sums, self.classes, resamples=resamples, units=units)
        judgement.metrics["dice"] = intervals.interval(sums, mask_metrics.mean_dice, resamples=resamples, units=units)
        if CONFUSION in answers:
            table = answers[CONFUSION].sum(0, dtype=np.float64).reshape(self.width, self.width)
            judgement.figures["confusion"] = mask_figures.confusion(table, self.classes)
        height, width = self.input.image_size
        judgement.notes.append(f"Pixels are judged at the size that the model sees, {height} x {width} px; void ones are left out. The F1 "
                               f"of boundaries allows {mask_metrics.tolerance(height, width)} px.")
        return judgement

    def explain(self, model: Any, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """The worst pictures: each as it is, with its true mask and with the one given."""
        worst = worst_examples(self, model, answers, targets, source, count=SHOWN)
        if worst:
            judgement.figures["worst_mistakes"] = mask_figures.worst(self, worst)

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        return mask_baseline.fitted(self, train, features)


def _counted(targets: tf.Tensor, classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """(1 for pixels that count, else 0, float32; class numbers int32, 0 for void ones)."""
    numbers = tf.cast(targets, tf.int32)
    known = numbers < classes
    return tf.cast(known, tf.float32), tf.where(known, numbers, 0)
