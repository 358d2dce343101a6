"""A run whose model is fitted at once: no steps, judged and logged once, and finished also where it was interrupted in the midst."""

import json
import signal

import numpy as np
import pytest

from pipelines.base.errors import ConfigError, Interrupted
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.serving.evaluate import evaluate
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
from pipelines.training.evaluation import Evaluator
from recsys.tasks.retrieval import RetrievalTask
from recsys.tasks.sequential import SequentialTask
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


def fashion(folder, days: int = 120):
    """Each day has three new users, of ten events each; items are in fashion for some days around their number."""
    draw, rows = np.random.default_rng(0), ["user,item,time"]
    for day in range(days):
        for user in range(3):
            items = draw.choice(np.arange(day, day + 20), 10, replace=False)
            rows += [f"u{3 * day + user},i{item},{1_600_000_000 + 86_400 * day + 60 * place}" for place, item in enumerate(items)]
    path = folder / "fashion.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_who_is_new_gets_what_was_popular_of_late(tmp_path):
    """By a point in time all users of test are new: model and baselines answer them by popularity, the model by that of late."""
    data = f"{{source: table, path: {fashion(tmp_path)}, time_key: time, protocol: time, test_from: 10 d, validation_from: 10 d}}"
    text = TEXT.replace("{source: synthetic, protocol: random, validation: 0.1, test: 0.1}", data)
    text = text.replace("{name: ease, rank: 32}", "{name: item_knn}").replace("[popularity, ease]", "[popularity, recent, item_knn, ease]")
    report = train(from_text(text, file="new.yaml").experiment, RunFolder(tmp_path / "run"), Call("recsys/new", RetrievalTask))
    assert any("Who has no history gets what was popular of late: an event counts half for every" in note for note in report["notes"])
    (new,) = report["tables"]["test/new_and_known"]
    assert new["judged"] == "new users" and new["users"] == 33 and 0.2 < new["of items that train has"] < 0.9
    assert new["model, ndcg@10"] >= new["recent, ndcg@10"] > 3 * new["popularity, ndcg@10"]  # chosen by the new users of validation alone
    assert new["ease, ndcg@10"] == new["popularity, ndcg@10"]
    run = load_run(RunFolder(tmp_path / "run"), where="cpu")
    answer = next(iter(Predictor(run).predict(["a stranger"])))
    assert answer.values["based_on"].startswith("popularity") and min(int(item[1:]) for item in answer.values["items"][:10]) > 80
    assert "learned from this validation split" in str(run.task.cannot_judge(type(run.task)(run.task.experiment).splits().validation))


def test_a_network_answers_strangers_alike_and_so_it_does_when_it_was_interrupted(tmp_path, monkeypatch):
    """Validation chooses on train alone; what is saved has learned from validation, too."""
    data = f"{{source: table, path: {fashion(tmp_path, 40)}, time_key: time, protocol: time, test_from: 4 d, validation_from: 4 d}}"
    text = f"""
task: recsys.sequential
data: {data}
model: {{name: sasrec, length: 5, width: 8}}
train: {{devices: cpu, precision: float32, epochs: 2, batch_size: 16}}
evaluate: {{bootstrap: 100, baselines: [popularity, recent]}}
"""
    experiment = from_text(text, file="net.yaml").experiment
    call = Call("recsys/net", SequentialTask)
    whole = train(experiment, RunFolder(tmp_path / "whole"), call)
    (new,) = whole["tables"]["test/new_and_known"]
    assert new["model, ndcg@10"] == pytest.approx(new["recent, ndcg@10"]) and new["model, ndcg@10"] > 0.1
    judge = Evaluator.scores

    def stopped(self, asked):
        send(signal.SIGTERM)
        monkeypatch.undo()
        return judge(self, asked)

    monkeypatch.setattr("pipelines.training.evaluation.Evaluator.scores", stopped)
    folder = RunFolder(tmp_path / "interrupted")
    with pytest.raises(Interrupted):
        train(experiment, folder, call)
    assert train(experiment, folder, call)["metrics"] == whole["metrics"]
