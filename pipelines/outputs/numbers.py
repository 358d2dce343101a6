"""One or several numbers for each example: loss, scores, intervals, judgement, the cheap kernel machine beside it, and the answer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.number_columns import TARGET
from pipelines.data.source import Source, Tensors
from pipelines.outputs import number_metrics, prediction_intervals
from pipelines.outputs.baselines import number_baseline
from pipelines.outputs.number_scales import Scales
from pipelines.task.contract import Answers, Features, Learning, Output, SetScores
from pipelines.task.results import Baseline, Judgement

ENDS = ("low", "high")  # of an interval
GUESSES = ("value", *ENDS)  # entries of an answer


class Numbers(Output):
    """Facts: `targets` (see number_scales.learn), and `intervals`, chosen on validation, one or null for each; settings: `target`, `loss`
    and `evaluate` are a NumberTarget, a NumberLoss and a NumberEvaluate.

    Outputs of the model are [batch, columns] in the learned scale, or with loss.name: quantiles [batch, 3 x columns], of each column its
    lower end, median and upper end; targets are [batch, columns] float32 in the data's units, NaN where one is missing.
    """

    watch = ("mae", "min")

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [one["name"] for one in self.facts["targets"]]

    @property
    def width(self) -> int:
        """Outputs of the model."""
        return len(self.names) * (3 if self.quantiles else 1)

    @property
    def quantiles(self) -> bool:
        return bool(self.experiment.loss.name == "quantiles")

    @property
    def scales(self) -> Scales:
        return Scales(self.facts["targets"])

    learning = Learning(distance=True)

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        meanings = dict[str, str]()
        for one, key in zip(self.facts.get("targets", []), self._keys()):
            unit = f", in {one['unit']}" if one["unit"] else ""
            meanings[key("")] = f"{one['name']}{unit}"
            if self.facts.get("intervals"):
                share = f"{self.experiment.evaluate.interval:.0%}"
                meanings |= {key(end): f"the {'lower' if end == 'low' else 'upper'} end of its {share} interval" for end in ENDS}
        return Answers(meanings)

    def name_of(self, target: np.ndarray) -> str:
        """A target [columns] in words."""
        return ", ".join(number_metrics.written(number) for number in target)

    def _keys(self) -> list[Callable[[str], str]]:
        """Of each column, what an answer's "", "low" and "high" are called."""
        if len(self.names) == 1:
            return [lambda end: end or "value"]
        return [lambda end, name=name: f"{name}_{end}" if end else name for name in self.names]  # type: ignore[misc]

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """{"target"}; of examples that were mixed with a `partner`, the mean of both by their `share` [batch]."""
        if TARGET not in examples:
            return {}
        numbers = tf.cast(examples[TARGET], tf.float32)
        if changes and "partner" in changes:
            share = changes["share"][:, None]
            numbers = share * numbers + (1.0 - share) * tf.gather(numbers, changes["partner"])
        return {TARGET: numbers}

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, training: bool) -> tf.Tensor:
        """The mean over the numbers of an example that are there, [batch] float32."""
        truth, there = self._truth(targets)
        outputs = tf.cast(outputs, tf.float32)
        if self.quantiles:
            tail = (1.0 - self.experiment.evaluate.interval) / 2.0
            error = truth[:, :, None] - self._guesses(outputs)
            losses = tf.reduce_sum(tf.maximum(error * [tail, 0.5, 1.0 - tail], error * [tail - 1.0, -0.5, -tail]), -1)
        else:
            error = tf.abs(outputs - truth)
            delta = {"huber": self.experiment.loss.delta, "squared": np.inf, "absolute": 0.0}[self.experiment.loss.name]
            if delta:  # the error beyond delta counts linearly
                inner = tf.minimum(error, delta)
                losses = 0.5 * inner * inner + (0.0 if delta == np.inf else delta * (error - inner))
            else:
                losses = error
        return tf.reduce_sum(losses * there, -1) / tf.maximum(tf.reduce_sum(there, -1), 1.0)

    def soft_loss(self, outputs: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
        """Half the mean squared distance in the learned scale; there is no temperature."""
        return 0.5 * tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32) - tf.cast(teacher, tf.float32)), -1)

    def scores(self, outputs: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """mae: of one number the distance in its own unit; of several the mean of their distances in deviations of train."""
        values = self.scales.numbers(self._guesses(tf.cast(outputs, tf.float32))[:, :, 1])
        there = tf.cast(tf.math.is_finite(targets), tf.float32)
        error = tf.where(there > 0, tf.abs(values - targets), 0.0) / self._units()
        return {"mae": tf.reduce_sum(error, -1) / tf.maximum(tf.reduce_sum(there, -1), 1.0)}

    def answer(self, model: Callable[[Any], tf.Tensor], inputs: Any) -> Tensors:
        """value, and the guesses low and high of its interval before its margin, [batch, columns] float32 in the learned scale."""
        guesses = tf.sort(self._guesses(tf.cast(model(inputs), tf.float32)), -1)
        return {"low": guesses[:, :, 0], "value": guesses[:, :, 1], "high": guesses[:, :, 2]}

    def respond(self, answers: Tensors) -> Tensors:
        """value, low and high, [batch] float32 each in the data's unit; of several columns NAME, NAME_low and NAME_high of each. Without
        intervals (there was no validation) the values alone."""
        scales, response = self.scales, dict[str, tf.Tensor]()
        parts = {"": answers["value"], **dict(zip(ENDS, self._intervals(answers) or ()))}
        for end, learned in parts.items():
            numbers = scales.numbers(learned)
            response |= {key(end): numbers[:, place] for place, key in enumerate(self._keys())}
        return response

    def _intervals(self, answers: Tensors) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Both ends of each interval, [batch, columns] in the learned scale."""
        found = self.facts.get("intervals")
        if not found:
            return None
        ends = [prediction_intervals.widened(one, *(answers[name][:, place] for name in GUESSES)) for place, one in enumerate(found)]
        return tf.stack([low for low, _ in ends], 1), tf.stack([high for _, high in ends], 1)

    def _guesses(self, outputs: tf.Tensor) -> tf.Tensor:
        """[batch, columns, 3]: lower end, value, upper end; the value three times where no quantiles are learned."""
        count = len(self.names)
        return tf.reshape(outputs, [-1, count, 3]) if self.quantiles else tf.repeat(tf.reshape(outputs, [-1, count, 1]), 3, -1)

    def _truth(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Targets in the learned scale, 0 for what is missing, and what is there, 1 or 0; [batch, columns] float32 each."""
        learned = self.scales.learned(targets)
        there = tf.math.is_finite(learned)
        return tf.where(there, learned, 0.0), tf.cast(there, tf.float32)

    def _units(self) -> tf.Tensor:
        """What a distance is divided by, [1, columns]."""
        return tf.constant([[1.0 if len(self.names) == 1 else one["std"] for one in self.facts["targets"]]], tf.float32)

    # ---- judging

    @property
    def set_scores(self) -> SetScores:
        def compute(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, float]:
            values = self.scales.numbers(tf.constant(answers["value"])).numpy().astype(np.float64)
            return number_metrics.set_scores(values, targets[TARGET].astype(np.float64))

        return SetScores(number_metrics.SET_SCORES, compute)

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        truth = self.scales.learned(tf.constant(targets[TARGET])).numpy()
        share = self.experiment.evaluate.interval
        found = [prediction_intervals.margins(*(answers[name][:, place] for name in GUESSES), truth=truth[:, place], share=share)
                 for place in range(truth.shape[1])]
        return {"intervals": None if any(one is None for one in found) else found}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        scales, settings = self.scales, self.experiment.evaluate
        ends = self._intervals({name: tf.constant(value) for name, value in answers.items()})
        known = number_metrics.Answered(
            scales.numbers(tf.constant(answers["value"])).numpy().astype(np.float64), targets[TARGET].astype(np.float64),
            *(None, None) if ends is None else (scales.numbers(end).numpy().astype(np.float64) for end in ends))
        judgement = number_metrics.judgement(known, self.facts["targets"], settings, self.input.units(source), source.name)
        if ends is None:
            judgement.notes.append("Answers have no intervals: their width is chosen on a validation split, of nine examples or more for "
                                   "90 %; set data.validation: 0.1.")
        worst = judgement.tables["worst_mistakes"]
        captions = [(number_metrics.written(row["predicted"]), f"is {number_metrics.written(row['true'])}") for row in worst]
        self.input.draw(judgement, source, [row["number"] for row in worst], captions, "Largest errors: predicted, and true")
        return judgement

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        cheap = self.input.cheap
        if cheap is None or getattr(self.experiment.model, "is_baseline", False):
            return None
        return number_baseline(train, features, cheap, self)

    def fitted_to(self, targets: dict[str, np.ndarray]) -> np.ndarray:
        """What a model that is fitted at once learns, [n, columns] float64 in the learned scale; missing numbers are train's mean."""
        return self._truth(tf.constant(targets[TARGET]))[0].numpy().astype(np.float64)

    def errors(self, learned: np.ndarray, targets: dict[str, np.ndarray]) -> np.ndarray:
        """The metric of `scores` of each example, [n] float64, NaN where it has no number.

        Args:
            learned: answers [n, columns] in the learned scale.
        """
        values = self.scales.numbers(tf.constant(learned, tf.float32)).numpy().astype(np.float64)
        return number_metrics.distance(values, targets[TARGET], self._units().numpy())

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        return self.errors(answers["value"], targets)
