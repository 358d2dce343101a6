"""Tasks whose model may be fitted at once: before step 0 with what validation chooses, and in the end to train and validation."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from pipelines.data.source import Source, origin
from pipelines.task.contract import Output, Task
from pipelines.task.results import Judgement
from recsys.closed_form.fitting import described
from recsys.tasks.interactions import Interactions


class FittedAtOnce(Task):
    """Further facts of such a model: `fitted`, what was chosen in words; `learned`, the validation split that it has learned from."""

    input: Interactions
    chosen: Any = None  # its settings, by validation

    def initialise(self, model: keras.Model, batches: Iterator[tuple[Any, Any]]) -> None:
        if self.input.closed_form:
            model.put(self._choose())

    def refit(self, model: keras.Model) -> None:
        if not self.input.closed_form:
            return
        if self.chosen is None:  # an interrupted run was resumed, or another host chose
            self._choose()
        if self.chosen.refit and self.input.validation is not None:
            model.put(self.input.fitted(self.chosen, final=True))
            self.facts["learned"] = self.input.validation.fingerprint()

    def cannot_judge(self, source: Source) -> str | None:
        if origin(source)[0].fingerprint() != self.facts.get("learned"):
            return None
        if not self.input.closed_form:
            return ("what those without a history get is learned from this validation split, too, since it was judged, and the run's "
                    "report has that score: judge test")
        return ("the model has learned from this validation split since it was judged on it (model.refit), and the run's report has that "
                "score: judge test, or train with model.refit: false")

    def _choose(self) -> Any:
        fitted = self.input.fitted(self.experiment.model)
        self.chosen, self.facts["fitted"] = fitted.settings, described(fitted)
        return fitted


class ClosedFormOutput(Output):
    """An output whose model may have learned from validation."""

    input: Interactions

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        if self.input.closed_form:
            twice = "; fitted once more to train and validation before test was read" if "learned" in self.facts else ""
            judgement.notes.append(f"In closed form, no step trained it. {self.facts['fitted']}{twice}")
