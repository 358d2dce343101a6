"""The examples that a model answers worst, whole: what it was given, what is right, and what it answered, for a report to draw."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.data.source import Source

if TYPE_CHECKING:
    import keras



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
