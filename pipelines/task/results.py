"""What judging gives: metrics with intervals, all that an evaluation says of a split, and the cheap model beside it.
The examples that a model answers worst stand beside them, whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import formatting
from pipelines.data.source import Source
from pipelines.task.units import Units

if TYPE_CHECKING:
    import keras
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Metric:
    """A number with its 95 % interval and the number of examples behind it.

    Attributes:
        unit: what the interval draws: "example", or the name of a group of them ("speaker").
        units: how many of those there are; None: as many as examples.
        drawn: [resamples], the metric on each resample: of two models judged on the same examples these are paired.
        measured_in: the unit of the value, such as "years", where it is the data's.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    unit: str = "example"
    units: int | None = None
    drawn: np.ndarray | None = field(default=None, repr=False, compare=False)
    measured_in: str = ""

    def text(self, name: str) -> str:
        """`73.1 % [72.2, 74.0]`; `name` says what it is."""
        return " ".join(filter(None, (formatting.number(self.value, name), self.measured_in, formatting.bounds(self.low, self.high, name))))

    def drawn_by(self) -> str:
        """What its interval was drawn by: `20 speakers`, `examples`."""
        if self.unit == "example" or (self.units is None and not self.n):
            return f"{self.unit}s"
        return formatting.counted(self.n or 0 if self.units is None else self.units, self.unit)

    def as_json(self) -> dict[str, Any]:
        """What report.json holds of it."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n, "unit": self.unit,
                "units": self.n if self.units is None else self.units}


@dataclass
class Judgement:
    """All that an evaluation of one split says.

    Units are what its intervals draw; None: examples one by one. Predictions hold a value of each example, by column.
    How the model compares with a cheap baseline stands in `compared`; `beaten` is what must be warned of.
    Listings are shown in place of the table of their name, which report.json has: (title, lines whose letters stand under each other).
    """

    metrics: dict[str, Metric] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, "Figure"] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    listings: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    units: Units | None = None
    compared: str = ""
    beaten: str | None = None
    predictions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A fitted cheap model; it gives answers, or scores alone.

    Attributes:
        name: what it is, as the report calls it: "kernel ridge on 16 x 16 px".
        metric: the metric that `score` gives of each example: "accuracy".
        score: a source -> [n] float64, of each of its examples.
        better: "max" where more of `metric` is better, "min" where less is.
        answer: a batch of the model's inputs -> its answers, in graph, as `Output.answer` gives them; a single tensor is the entry
            `answer`. They are judged as the model's are, by all its metrics.
        answers: a source -> such answers to all of its examples, where they are not made of the model's inputs; judged alike.
    """

    name: str
    metric: str = ""
    score: Callable[[Source], np.ndarray] | None = None
    better: str = "max"
    answer: Callable[[Any], Any] | None = None
    answers: Callable[[Source], dict[str, np.ndarray]] | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.score, self.answer, self.answers)) != 1 or bool(self.metric) != (self.score is not None):
            raise ValueError(f"{self.name}: a baseline has an answer, or answers, or a metric with its score")


@dataclass(frozen=True)
class Answered:
    """One example.

    Attributes:
        number, name: in its source.
        score: the watched metric of it.
        inputs, targets, answers: as the model, `Output.loss` and `Output.respond` have them, of this example alone; arrays.
        model_answers: as `Output.answer` has them.
    """

    number: int
    name: str
    score: float
    inputs: Any
    targets: dict[str, np.ndarray]
    answers: dict[str, np.ndarray]
    model_answers: dict[str, np.ndarray]


def worst_numbers(output: Any, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], count: int) -> list[tuple[int, float]]:
    """(number, watched metric) of the examples that are answered worst, worst first; of those that do not count none."""
    scores = output.each(answers, targets)
    order = np.argsort(scores if output.watch[1] == "max" else -scores, kind="stable")
    return [(int(number), float(scores[number])) for number in order if np.isfinite(scores[number])][:count]


def worst_examples(output: Any, model: "keras.Model", answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source,
                   count: int | None = None) -> list[Answered]:
    """The worst answered examples of a split, worst first; these alone are read and answered once more. For `Output.explain`.

    Args:
        answers, targets, source: as `Output.explain` has them.
        count: default: as many as evaluate.worst says.

    Raises:
        TypeError: the watched metric is none of single examples (`Output.each`).
    """
    import tensorflow as tf

    from pipelines.data.cache import decoded_spec
    from pipelines.data.lengths import stacked

    task = output.task
    worst = worst_numbers(output, answers, targets, task.experiment.evaluate.worst if count is None else count)
    if not worst:
        return []
    decode = None if source.decoded is not None else task.input.decoder
    raw = [{name: value[0] for name, value in source.gather(tf.constant([number], tf.int64)).items()} for number, _ in worst]
    rows = [decode(row) for row in raw] if decode else raw
    batch = stacked(rows, decoded_spec(source, decode), task.input.lengths)
    inputs, _ = task.prepare(batch)
    given = output.answer(lambda some: model(some, training=False), inputs) | task.passed_by(batch)
    whole = (inputs, output.targets(batch), output.respond(given), given)

    def of(place: int) -> Any:
        return tf.nest.map_structure(lambda value: value[place].numpy(), whole)

    return [Answered(number, source.name(number), score, *of(place)) for place, (number, score) in enumerate(worst)]
