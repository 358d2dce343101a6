"""Tasks whose model may be fitted at once: before step 0 with what validation chooses, and in the end to train and validation."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from pipelines.data.source import Source, origin
from pipelines.task.results import Judgement
from recsys.closed_form.fitting import described
from recsys.tasks.kept_log import KeptLog


class FittedAtOnce(KeptLog):
    """Further facts of such a model: `fitted`, what was chosen in words; `learned`, the validation split that it has learned from."""

    chosen: Any = None  # its settings, by validation
    validation: Source | None = None

    @property
    def closed_form(self) -> bool:
        """Whether the model is fitted before step 0, as its settings declare."""
        return getattr(self.experiment.model, "closed_form", False)

    def fitted(self, settings: Any, *, final: bool = False) -> Any:
        """A model with these settings fitted to train, with what validation chooses; `final`: to train and validation, all being chosen."""
        raise NotImplementedError

    def initialise(self, model: keras.Model, batches: Iterator[tuple[Any, Any]]) -> None:
        if self.closed_form:
            model.put(self._chosen())

    def refit(self, model: keras.Model) -> None:
        if not self.closed_form:
            return
        if self.chosen is None:  # an interrupted run was resumed, or another host chose
            self._chosen()
        if self.chosen.refit and self.validation is not None:
            model.put(self.fitted(self.chosen, final=True))
            self.facts["learned"] = self.validation.fingerprint()

    def _chosen(self) -> Any:
        fitted = self.fitted(self.experiment.model)
        self.chosen, self.facts["fitted"] = fitted.settings, described(fitted)
        return fitted

    def cannot_judge(self, source: Source) -> str | None:
        if origin(source)[0].fingerprint() != self.facts.get("learned"):
            return None
        return ("the model has learned from this validation split since it was judged on it (model.refit), and the run's report has that "
                "score: judge test, or train with model.refit: false")

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        if self.closed_form:
            twice = "; fitted once more to train and validation before test was read" if "learned" in self.facts else ""
            judgement.notes.append(f"In closed form, no step trained it. {self.facts['fitted']}{twice}")
