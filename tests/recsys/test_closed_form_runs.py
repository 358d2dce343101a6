"""A run whose model is fitted at once: no steps, judged and logged once, and finished also where it was interrupted in the midst."""

import json
import signal

import pytest

from pipelines.base.errors import ConfigError, Interrupted
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving.evaluate import evaluate
from pipelines.serving.load import load_run
from recsys.tasks.retrieval import RetrievalTask
from tests.signals import send

pytestmark = pytest.mark.slow

TEXT = """
task: recsys.retrieval
data: {source: synthetic, protocol: random, validation: 0.1, test: 0.1}
model: {name: ease, rank: 32}
train: {devices: cpu, precision: float32}
evaluate: {bootstrap: 100, baselines: [popularity, ease]}
"""


@pytest.fixture
def experiment():
    return from_text(TEXT, file="at_once.yaml").experiment


def test_a_run_without_steps_says_so_and_resumes(experiment, tmp_path, monkeypatch, capsys):
    call = Call("recsys/at_once", RetrievalTask)
    whole = train(experiment, RunFolder(tmp_path / "whole"), call)
    assert "fitted at once: nothing trains by steps" in capsys.readouterr().err
    assert whole["timing"]["steps"] == whole["timing"]["epochs"] == 0
    notes = [note for notes in whole["notes"].values() for note in notes] if isinstance(whole["notes"], dict) else whole["notes"]
    assert not any("weights of epoch" in note for note in notes)
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0] and "epoch/loss" not in rows[0]
    assert rows[0]["validation/ndcg@10"] == pytest.approx(whole["metrics"]["validation/ndcg@10"]["value"], abs=1e-6)

    fit = RetrievalTask.initialise

    def interrupted(task, model, batches):
        fit(task, model, batches)
        monkeypatch.setattr("pipelines.training.evaluation.Evaluator.scores", stopped)

    def stopped(self, asked):
        send(signal.SIGTERM)
        monkeypatch.undo()

    monkeypatch.setattr(RetrievalTask, "initialise", interrupted)
    folder = RunFolder(tmp_path / "interrupted")
    with pytest.raises(Interrupted):
        train(experiment, folder, call)
    again = train(experiment, folder, call)
    assert again["metrics"] == whole["metrics"]
    model = load_run(folder, where="cpu").model
    assert (model.history_vectors.numpy() == load_run(RunFolder(tmp_path / "whole"), where="cpu").model.history_vectors.numpy()).all()


def test_beside_ease_stand_other_baselines_and_validation_is_learned_from_in_the_end(experiment, tmp_path):
    folder = RunFolder(tmp_path / "run")
    report = train(experiment, folder, Call("recsys/at_once", RetrievalTask, quiet=True))
    assert {row["of"] for row in report["tables"]["test/model_and_baselines"]} == {"model", "popularity"}
    text = json.dumps(report)
    assert "the best baseline, popularity" in text and "In closed form, no step trained it. EASE: rank 32, l2" in text
    assert "fitted once more to train and validation" in text and "Baselines are fitted to train and validation" in text
    with pytest.raises(ConfigError, match="has learned from this validation split"):
        evaluate(load_run(folder, where="cpu"), split="validation")
    again = evaluate(load_run(folder, where="cpu"))
    value = again.judgement.metrics["ndcg@10"].value
    assert value == pytest.approx(report["metrics"]["test/ndcg@10"]["value"], abs=1e-6)
    assert any("EASE: rank 32" in note for note in again.judgement.notes)
