"""The judgement of any classifier, so that images, sounds and texts are judged alike."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.config.schema import Evaluate
from pipelines.outputs import classification, classification_figures
from pipelines.outputs.classification import Classified
from pipelines.outputs.per_class import left_out, per_class
from pipelines.task.results import Judgement
from pipelines.task.units import Units

MISTAKES_LISTED = 20


def predictions(answers: Classified, name: Callable[[int], str]) -> dict[str, Any]:
    """A row for each example: its name, label and predicted class, the probability of each of the two."""
    classes = np.asarray(answers.classes, object)
    return {
        "example": [name(number) for number in range(len(answers.labels))], "label": classes[answers.labels].tolist(),
        "predicted": classes[answers.predicted].tolist(), "confidence": answers.confidence, "label_probability": answers.probability,
    }


def judgement(answers: Classified, settings: Evaluate, units: Units, name: Callable[[int], str]) -> Judgement:
    """Metrics with intervals, classes, confusions, calibration and the worst mistakes.

    Args:
        units: what intervals resample.
        name: the name of an example, by its number.
    """
    result = Judgement(
        metrics=classification.metrics(answers, resamples=settings.bootstrap, units=units),
        tables={
            "per_class": per_class(answers, resamples=settings.bootstrap, units=units),
            "worst_confusions": classification.worst_confusions(answers),
            "worst_mistakes": classification.mistakes_table(answers, min(settings.worst, MISTAKES_LISTED), name),
        },
        units=units,
        predictions=predictions(answers, name),
        notes=[classification.baseline_note(answers), *units.notes(), *left_out(answers)],
    )
    result.figures["confusion"] = classification_figures.confusion(classification.confusions(answers), answers.classes)
    bins = classification.reliability(answers)
    result.figures["reliability"] = classification_figures.reliability(bins, error=result.metrics["calibration_error"].value)
    return result
