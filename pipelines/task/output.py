"""What a task says of its answers: what is learned, how it is scored and judged, and the answer in the user's words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from pipelines.base import formatting
from pipelines.base.errors import ConfigError
from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.form import Answers
from pipelines.task.input import Input, Part, alone
from pipelines.task.results import Baseline, Judgement, worst_numbers

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# answers and targets, each name -> array [examples, ...]
Condensed = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

SCORE = "score/"  # before the names of scores among what is kept of answers
SMALL = 64  # values an example that an answer or target may have to be kept beside its scores

# a source and a function in graph to the function's value of the model's inputs of each example, and the targets
Features = Callable[[Source, Callable[[Any], Any]], tuple[np.ndarray, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Learning:
    """What the harness must know of the loss.

    Attributes:
        mixes: what of it takes in the other examples of the micro-batch ("The softmax over the ...").
        masked: while it trains by steps, `loss` is given which examples of the micro-batch count, as `mask` [batch] float32 of 1 and 0: the
            others pad an uneven last batch, and must not be mixed in.
        blank: with `Input.frame_counts`, the output that most moments have, such as CTC's blank; -1 is the last.
        distance: it grows with the distance from a number: a linear head that meets all of few examples exactly is far off for others.
    """

    mixes: str | None = None
    masked: bool = False
    blank: int | None = None
    distance: bool = False


@dataclass(frozen=True)
class SetScores:
    """Metrics of a whole split that are no function of sums over examples, such as mAP.

    Attributes:
        better: whether more or less of each is better, in the order of the log.
        compute: condensed answers and targets -> the value of each.
        resamples: how often the default `judge` computes them of examples drawn anew, for their intervals, which 0 leaves out.
    """

    better: Mapping[str, Literal["max", "min"]]
    compute: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], dict[str, float]]
    resamples: int = 100


def kept(scores: Mapping[str, Any], answers: Mapping[str, np.ndarray], targets: Mapping[str, np.ndarray]) -> Condensed:
    """What the default `Output.judge` needs of a batch: the scores of each example, and what is small of its answer and target.

    Args:
        scores: name -> [batch], or [batch, sums] of one in `Output.statistics`; arrays or tensors.
    """
    def small(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: value for name, value in values.items() if value.size <= SMALL * len(value)}

    return {**small(answers), **{SCORE + name: np.asarray(value) for name, value in scores.items()}}, small(targets)


class Output(Part):
    """The output of a task. Of one's own: `watch`, `loss` and `scores`; by default the report has the mean of each score.

    Args:
        task: whose input is there already.
    """

    watch: tuple[str, str]  # the metric to follow without its split, and "max" or "min": ("accuracy", "max")
    answers: Answers = Answers()
    learning: ClassVar[Learning] = Learning()

    def __init__(self, task: Any):
        super().__init__(task)
        self.input: Input = task.input

    # ---- learning; in graph

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """What answers are learned from and compared with, name -> [batch, ...]. By default every entry that is no input.

        Args:
            examples: as decoded; when predicting, inputs alone.
            changes: what `Input.prepare` did to the examples, when a loss is to be computed; None when answers are kept to be judged.
        """
        return {name: value for name, value in examples.items() if name not in self.input.raw_spec()}

    def loss(self, outputs: Any, targets: Any, training: bool) -> "tf.Tensor | tuple[tf.Tensor, tf.Tensor]":
        """Loss of each example, [batch] float32; or its sum and count, [batch] float32 each, where the mean is one over pixels, tokens or
        boxes of the whole batch and not over examples. Smoothing and class weights only when training."""
        raise NotImplementedError

    def soft_loss(self, outputs: Any, teacher: Any, temperature: float) -> "tf.Tensor":
        """Distance of outputs to a teacher's for the same inputs, [batch] float32. Raises ConfigError where there is none."""
        raise ConfigError(f"train.teacher: {self.experiment.task} has no distance to a teacher's answers")

    def example_weights(self, targets: Any) -> "tf.Tensor | None":
        """Weight of each example in the training loss, [batch] float32, or None for 1."""
        return None

    def scores(self, outputs: Any, targets: Any) -> Tensors:
        """Streamed metrics: name -> [batch] float32 whose mean over examples is the metric, or [batch, sums] of one in `statistics`."""
        raise NotImplementedError

    @property
    def statistics(self) -> Mapping[str, intervals.Statistic]:
        """Scores whose metric is no mean: name -> the metric [m] of the sums [m, sums] over examples, such as the mean of intersections by
        unions. NumPy; the bootstrap gives m of them at once."""
        return {}

    def answer(self, model: Any, inputs: Any) -> Tensors:
        """The model's answer as judged and as served: name -> [batch, ...].

        By default the model's outputs by name, or a single one as `answer`.

        Args:
            model: a callable, inputs -> outputs, with the weights being judged (test-time flips call it twice).
        """
        outputs = model(inputs)
        return dict(outputs) if isinstance(outputs, dict) else {"answer": outputs}

    def respond(self, answers: Tensors) -> Tensors:
        """Answers in the user's words, for the saved model: {"label": [batch] string, "probabilities": ...}. As they are, by default."""
        return dict(answers)

    # ---- judging

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """What is kept of a batch of answers and targets until all examples are answered: what `choose`, `judge` and `explain` need.

        It should not grow with the number of classes: all the probabilities of a million examples and classes fit no memory. By default
        all of it for a `judge` of one's own. For the default one what `kept` leaves: the scores of each example, so that a mask costs as
        little as a number. Answers are then the model's outputs; where they are not, `kept(scores of the answers, answers, targets)` is
        to be returned here.
        """
        import tensorflow as tf

        if type(self).judge is not Output.judge:
            return answers, targets
        given = {name: value for name, value in answers.items() if name not in self.answers.beside}
        outputs: Any = given.get("answer", given)
        return kept(self.scores(tf.nest.map_structure(tf.constant, outputs), tf.nest.map_structure(tf.constant, alone(targets))),
                    answers, targets)

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        """Facts that are chosen after training by the answers for validation, such as a threshold. They are saved with the model."""
        return {}

    @property
    def set_scores(self) -> SetScores:
        """Computed at each validation where train.watch, or `watch` itself, names one of them. By default there are none."""
        return SetScores({}, lambda answers, targets: {})

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        """Everything the report says about one split. Rows of answers and targets, condensed, are in the order of `source`.

        By default the metric of each of `scores`, and those of `set_scores`, with their intervals, a table of answers and targets, and the
        examples whose watched score is worst.
        """
        units, resamples = self.input.units(source), self.experiment.evaluate.bootstrap
        how: Any = {"resamples": resamples, "units": units}
        values = {name.removeprefix(SCORE): value for name, value in answers.items() if name.startswith(SCORE)}
        if not values and not self.set_scores.better:
            raise TypeError(f"{type(self).__name__}.condense leaves no scores for the default judge; end it with quartet.kept(...)")
        metrics = {name: intervals.interval(each, self.statistics[name], **how) if name in self.statistics else intervals.mean(each, **how)
                   for name, each in values.items()}
        if self.set_scores.better:
            metrics |= intervals.of_sets(self.set_scores.compute, answers, targets, resamples=min(self.set_scores.resamples, resamples),
                                         units=units)
        every = {**targets, **{name.removeprefix(SCORE): value for name, value in answers.items()}}
        flat = {name: value.reshape(len(value)) for name, value in every.items() if value.size == len(value)}
        names = [source.name(number) for number in range(len(source))]
        judgement = Judgement(metrics, units=units, predictions={"example": names, **flat}, notes=units.notes())
        if SCORE + self.watch[0] in answers:
            metric, worst = self.watch[0], worst_numbers(self, answers, targets, self.experiment.evaluate.worst)
            judgement.tables["worst_mistakes"] = [{"number": number, "example": names[number], metric: score} for number, score in worst]
            self.input.draw(judgement, source, [number for number, _ in worst], [(formatting.number(score, metric),) for _, score in worst],
                            f"Worst answers, by {formatting.title(metric)}")
        return judgement

    def explain(self, model: "keras.Model", judgement: Judgement, answers: dict[str, np.ndarray],
                targets: dict[str, np.ndarray], source: Source) -> None:
        """Adds to a judgement what needs the model itself, such as which part of an input an answer depends on, or its answers to
        `worst_examples`, whole."""

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        """A cheap model fitted on train within seconds, beside which the report puts this one; None where `judge` does that, or none fits.

        One that gives answers (`Baseline.answer`) is condensed and judged as the model is.

        Args:
            features: (source, function in graph) -> (the function's value of the model's inputs, [n, ...]; targets, each [n, ...]).
        """
        return None

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """The watched metric of each example, or that of a `Baseline.score`, [n] float64, of answers as `condense` leaves them; NaN where
        one does not count. By default of the scores that are kept; of sums the metric of each example's own.

        Raises:
            TypeError: it is no score of an example.
        """
        values = answers.get(SCORE + self.watch[0])
        if values is None:
            raise TypeError(f"{type(self).__name__} does not say how each example was answered")
        return np.asarray(values if values.ndim == 1 else self.statistics[self.watch[0]](values), np.float64)

    # ---- while it trains

    def chance(self) -> tuple[str, float] | None:
        """One of the scores, larger is better and 1 at most, and its value without a model: ("accuracy", share of the largest class).

        None where that is not known; with it a training that goes wrong is noticed while it runs (`training.hooks.diagnosis`).
        """
        return None

    def remark(self, metrics: dict[str, float]) -> str | None:
        """What should be said of an epoch, given its metrics (`train/accuracy`, `validation/loss`); each remark is said once."""
        return None
