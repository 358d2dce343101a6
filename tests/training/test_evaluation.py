"""Evaluation brings answers to the host batch by batch, and keeps of them what the task condenses them to."""

import numpy as np
import pytest

from pipelines.training.evaluation import Evaluator
from pipelines.training.session import assemble
from tests.training.toy import ToyOutput, ToyTask, experiment

pytestmark = pytest.mark.slow


class CondensingOutput(ToyOutput):
    rows: list[int]

    def condense(self, answers, targets):
        assert all(isinstance(value, np.ndarray) for value in answers.values())
        self.rows.append(len(targets["label"]))
        return {"predicted": answers["probabilities"].argmax(-1)}, targets


class Condensing(ToyTask):
    output_class = CondensingOutput


@pytest.mark.parametrize("batch", [16, 77])
def test_what_is_kept_is_the_condensed_answers_in_order(batch):
    session = assemble(experiment(), Condensing)
    session.task.output.rows = []
    evaluator = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=batch)
    answers, targets = evaluator.judged()
    whole, labels = evaluator.answers()
    assert set(answers) == {"predicted"} and np.array_equal(answers["predicted"], whole["probabilities"].argmax(-1))
    assert np.array_equal(targets["label"], labels["label"]) and len(targets["label"]) == 77
    assert session.task.output.rows == [batch] * -(-77 // batch)
