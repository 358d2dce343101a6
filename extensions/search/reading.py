"""Answers to questions in the rows that a search found, each with its source. Imports no TensorFlow until then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from extensions.search.index import Hit
from pipelines.base.errors import ConfigError, DataError
from pipelines.runs.folder import RunFolder

SCALE = 20.0  # what cosines are multiplied by to weigh rows against each other; chosen on validation of SQuADShifts (docs/search.md)


@dataclass(frozen=True)
class Answer:
    """An answer as it stands in a row.

    Attributes:
        answer, sentence: the text of it, and the sentence with it.
        score: the probability of its row among those that were read, by their cosines, times its own in the row, 0 to 1.
        start, end: its first character and the one behind its last, in the text that was read of the row.
        similarity: of the row to the question.
        row: the row's columns.
    """

    answer: str
    sentence: str
    score: float
    start: int
    end: int
    similarity: float
    row: dict[str, Any]


class Reader:
    """A run of nlp.question_answering."""

    def __init__(self, folder: RunFolder):
        """Raises ConfigError for a run that finds no answers in passages."""
        from pipelines.serving.forms import open_run
        from pipelines.serving.predict import Predictor

        self.predictor = Predictor(open_run(folder, where=1))
        there = {*self.predictor.columns, *self.predictor.inputs}
        if not {"text", "text_pair", "answer", "sentence", "starts", "ends"} <= there:
            raise ConfigError(f"--reader: {folder.path}: a run that finds answers in passages is needed (task: nlp.question_answering)")

    def compare(self, answer: str, true: Any) -> tuple[float, float]:
        """(F1, exact match) of an answer; true ones as a column of the task's tables has them. Raises DataError for what is none."""
        output: Any = self.predictor.run.task.output
        scores: tuple[float, float] = output.compare(answer, true)
        return scores

    def answer(self, question: Any, hits: Sequence[Hit], text_of: Callable[[Mapping[str, Any]], str]) -> list[Answer]:
        """The best answer of each row that has one, best first. Raises DataError for a question that is no text."""
        if not isinstance(question, str):
            raise DataError("a question has to be a text to be answered")
        taken = [("passage", self.predictor.take([question, text_of(hit.row)])) for hit in hits]
        found = [one for start in range(0, len(taken), self.predictor.batch)
                 for one in self.predictor.together(taken[start:start + self.predictor.batch])]
        weights = np.exp(SCALE * np.array([hit.similarity for hit in hits]))
        weights /= max(weights.sum(), 1e-30)
        answers = [Answer(str(one.values["answer"]), str(one.values["sentence"]), float(weight * one.values["score"]),
                          int(one.values["starts"][0]), int(one.values["ends"][0]), hit.similarity, hit.row)
                   for one, hit, weight in zip(found, hits, weights) if one.error is None and one.values["answer"]]
        return sorted(answers, key=lambda one: -one.score)
