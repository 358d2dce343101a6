"""What every report on a classifier says, whatever was classified: one place, so that images, sounds and texts are judged alike."""

from collections.abc import Callable

from pipelines.config.schema import Evaluate
from pipelines.reports import classification, classification_figures
from pipelines.reports.classification import Classified
from pipelines.reports.per_class import left_out, per_class
from pipelines.reports.units import Units
from pipelines.task import Judgement

MISTAKES_LISTED = 20


def judgement(answers: Classified, settings: Evaluate, units: Units, name: Callable[[int], str]) -> Judgement:
    """Metrics with intervals, classes, confusions, calibration and the worst mistakes.

    Args:
        units: what intervals draw.
        name: what a person calls an example, by its number.
    """
    made = Judgement(
        metrics=classification.metrics(answers, resamples=settings.bootstrap, units=units),
        tables={
            "per_class": per_class(answers, resamples=settings.bootstrap, units=units),
            "worst_confusions": classification.worst_confusions(answers),
            "worst_mistakes": classification.mistakes_table(answers, min(settings.worst, MISTAKES_LISTED), name),
        },
        units=units,
        notes=[classification.baseline_note(answers), *units.notes(), *left_out(answers)],
    )
    made.figures["confusion"] = classification_figures.confusion(classification.confusions(answers), answers.classes)
    bins = classification.reliability(answers)
    made.figures["reliability"] = classification_figures.reliability(bins, error=made.metrics["calibration_error"].value)
    return made
