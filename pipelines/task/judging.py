"""What a task says of judging: answers beside what they should be, and all that a report says of them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.config.schema import METRICS
from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.learning import Learning, alone
from pipelines.task.results import Baseline, Judgement
from pipelines.task.units import EXAMPLES, units_of

if TYPE_CHECKING:
    import keras

# answers and targets, each name -> array [examples, ...]
Condensed = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

# a source and a function in graph to the function's value of the model's inputs of each example, and the targets
Features = Callable[[Source, Callable[[Any], Any]], tuple[np.ndarray, dict[str, np.ndarray]]]


def add_own(judgement: Judgement, values: Mapping[str, np.ndarray], resamples: int) -> None:
    """Adds the metrics of the experiment's own, values [n] of each example by name, with their intervals and beside each prediction."""
    for name, each in values.items():
        counts, units = ~np.isnan(each), judgement.units or EXAMPLES
        if units.of is not None:
            units = units.pick(counts) if len(units.of) == len(each) else EXAMPLES
        judgement.metrics[name] = intervals.mean(each[counts].astype(np.float64), resamples=resamples, units=units)
        if judgement.predictions and all(len(column) == len(each) for column in judgement.predictions.values()):
            judgement.predictions = {**judgement.predictions, name: each}


class Judging(Learning):
    """The part of a task that is judged. Of one's own: `watch`; by default the report has the mean of each score."""

    watch: ClassVar[tuple[str, str]]  # the metric to follow without its split, and "max" or "min": ("accuracy", "max")

    def answer(self, model: "Any", inputs: Any) -> Tensors:
        """The model's answer as judged and as served: name -> [batch, ...]. In graph.

        By default the model's outputs by name, or a single one as `answer`.

        Args:
            model: a callable, inputs -> outputs, with the weights being judged (test-time flips call it twice).
        """
        outputs = model(inputs)
        return dict(outputs) if isinstance(outputs, dict) else {"answer": outputs}

    def targets(self, examples: Tensors) -> Tensors:
        """What answers are compared with, name -> [batch, ...]; in graph. By default every entry that is no input."""
        return {name: value for name, value in examples.items() if name not in self.raw_spec()}

    def own_scores(self, outputs: Any, targets: Any) -> Tensors:
        """The metrics of the experiment's own, evaluate.metrics: name -> [batch] float32, NaN where an example does not count. In graph.

        Raises:
            ConfigError: one that gives anything but a number for each example, or has the name of a score of the task.
        """
        import tensorflow as tf

        values = {}
        for one in self.experiment.evaluate.metrics:
            value = tf.convert_to_tensor(METRICS.build(one, outputs=outputs, targets=targets, facts=self.facts))
            if value.shape.rank != 1:
                raise ConfigError(f"evaluate.metrics: {one.name} gives the shape {value.shape}, not [batch]: a number for each example")
            values[one.name] = tf.cast(value, tf.float32)
        return values

    def cannot_judge(self, source: Source) -> str | None:
        """Why a source cannot be judged, with the remedy; None where it can. Asked before anything is answered."""
        return None

    def condense(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> Condensed:
        """What is kept of a batch of answers and targets until all examples are answered: what `choose`, `judge` and `explain` need.

        It should not grow with the number of classes: all the probabilities of a million examples and classes fit no memory.
        """
        return answers, targets

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        """Everything the report says about one split. Rows of answers and targets, condensed, are in the order of `source`.

        By default the mean of each of `scores`, with its interval, and a table of answers and targets; `answer` and `condense` must then
        leave the model's outputs as they are.
        """
        import tensorflow as tf

        units = units_of(source, self.experiment.data.group_by)
        outputs = alone(answers) if "answer" in answers else dict(answers)
        scores = self.scores(tf.nest.map_structure(tf.constant, outputs), tf.nest.map_structure(tf.constant, alone(targets)))
        values = {name: np.asarray(score) for name, score in scores.items()}
        metrics = {name: intervals.mean(each, resamples=self.experiment.evaluate.bootstrap, units=units) for name, each in values.items()}
        flat = {name: value.reshape(len(value)) for name, value in {**targets, **answers, **values}.items() if value.size == len(value)}
        names = [source.name(number) for number in range(len(source))]
        return Judgement(metrics, units=units, predictions={"example": names, **flat}, notes=units.notes())

    def choose(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> dict[str, Any]:
        """Facts that are chosen after training by the answers for validation, such as a threshold. They are saved with the model."""
        return {}

    def explain(self, model: "keras.Model", judgement: Judgement, answers: dict[str, np.ndarray],
                targets: dict[str, np.ndarray], source: Source) -> None:
        """Adds to a judgement what needs the model itself, such as which part of an input an answer depends on."""

    def fit_at_once(self, model: "keras.Model", train: Source, features: Features) -> str | None:
        """Fits a model that no step trains, once, before step 0; what the report says of it, None where there is no such model.

        Args:
            features: as `baseline` takes it.
        """
        return None

    def baseline(self, train: Source, features: Features) -> Baseline | None:
        """A cheap model fitted on train within seconds, beside which the report puts this one; None where `judge` does that, or none fits.

        Args:
            features: (source, function in graph) -> (the function's value of the model's inputs, [n, ...]; targets, each [n, ...]).
        """
        return None

    def each(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray]) -> np.ndarray:
        """The metric of `baseline` of each example, [n] float64, of answers as `condense` leaves them; NaN where one does not count."""
        raise TypeError(f"{type(self).__name__} has a baseline, and does not say how each example was answered")
