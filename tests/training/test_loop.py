"""The loop and its hooks: what is logged, kept, stopped and resumed. In one process; kills are exceptions."""

import json
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, Interrupted
from pipelines.config.train_settings import LearningRate, Train
from pipelines.task.contract import Decoding
from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.links import learning_rate
from pipelines.training.meter import Meter
from pipelines.training.preparation import find_watch
from pipelines.training.session import assemble
from pipelines.training.still import Still
from tests.signals import send
from tests.training.runs import At, Killed, assert_same_outcome, checkpoint, interrupt, kill, killed, model_weights, rows, run, whole
from tests.training.toy import ToyInput, ToyOutput, ToyTask, experiment

pytestmark = pytest.mark.slow(seconds=50)

STEPS = 5  # an epoch of 200 examples in batches of 48


def scripted(monkeypatch, values: list[float], name: str = "accuracy") -> None:
    """Validation gives these values, by epoch; judged by the weights' count of updates, so that a resume reads on."""
    def scores(self, *_):
        return {"loss": 1.0, "accuracy": 0.5, name: values[int(self.model.optimizer.iterations) // STEPS - 1]}

    monkeypatch.setattr(Evaluator, "scores", scores)


# ---- what is logged --------------------------------------------------------------------------------------


def test_log_points_and_epoch_lines(tmp_path):
    schedule = {"peak": 0.02, "schedule": "one_cycle", "warmup": 0.3}
    report = run(tmp_path, train={"log_every": 2, "keep": "last", "learning_rate": schedule})
    points = [row for row in rows(tmp_path) if "train/loss" in row]
    epochs = [row for row in rows(tmp_path) if "epoch/loss" in row]
    assert [row["step"] for row in points] == [2, 4, 6, 8, 10, 12, 14]
    assert [row["step"] for row in epochs] == [5, 10, 15]
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    for row in points:
        expected = learning_rate(LearningRate(**schedule), 15, tf.constant(row["step"] - 1)).numpy()
        assert row["learning_rate"] == pytest.approx(float(expected))
        assert row["gradient_norm"] > 0
    # the last judging of the epoch and the report's are of the same weights and examples
    assert epochs[-1]["validation/accuracy"] == report["metrics"]["validation/accuracy"]["value"]
    assert report["metrics"]["validation/accuracy"]["n"] == 77
    assert report["metrics"]["test/accuracy"]["n"] == 50


@pytest.mark.parametrize("batch", [7, 256])
def test_scores_are_means_over_each_example_once(tmp_path, batch):
    session = assemble(experiment(), ToyTask)
    source = session.splits.validation
    evaluator = Evaluator(session.task, session.model, source, machine=session.machine, batch=batch)
    found = evaluator.scores()
    answers, targets = evaluator.answers()
    logits = session.model(source.arrays["image"])
    np.testing.assert_array_equal(targets["label"], source.arrays["label"])
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(logits), atol=1e-6)
    losses = keras.losses.sparse_categorical_crossentropy(source.arrays["label"], logits, from_logits=True)
    assert found["loss"] == pytest.approx(float(np.mean(losses)), rel=1e-5)
    assert found["accuracy"] == pytest.approx(np.mean(np.argmax(logits, -1) == source.arrays["label"]))


def test_validation_and_model_are_of_the_averages(tmp_path):
    report = run(tmp_path, model="norm", train={"ema": 0.9, "keep": "last", "learning_rate": {"peak": 0.05}})
    arrays, _ = checkpoint(tmp_path)
    found = {(weight.shape, weight.tobytes()) for weight in model_weights(tmp_path)}  # weights and batch statistics
    averages, raw = ([value for name, value in arrays.items() if name.startswith(group)] for group in ("averages/", "weights/"))
    assert found == {(average.shape, average.tobytes()) for average in averages} and len(found) == 10
    assert not found & {(value.shape, value.tobytes()) for value in raw}
    assert rows(tmp_path)[-1]["validation/accuracy"] == report["metrics"]["validation/accuracy"]["value"]


def test_validate_every(tmp_path):
    run(tmp_path, train={"epochs": 5, "validate_every": 2})
    assert [row["epoch"] for row in rows(tmp_path) if "validation/loss" in row] == [2, 4, 5]


# ---- the best weights, and early stopping -----------------------------------------------------------------


class _Loop:
    """As much of a loop as KeepBest looks at."""

    def __init__(self):
        self.epoch, self.step, self.epoch_metrics, self.stopping, self.meter = 0, 0, {}, None, Meter()


def followed(folder, values, *, direction="max", resume_at=(), **train) -> tuple[int | None, int, str | None]:
    """(best epoch, last epoch, why it stopped) of a run with these validation values; resumed from its JSON at some epochs."""
    def hook():
        return KeepBest(folder, "validation/x", direction, {}, Train(**train), say=print, still=Still(folder))

    one, loop = hook(), _Loop()
    for value in values:
        if loop.stopping:
            break
        loop.epoch += 1
        loop.epoch_metrics = {} if value is None else {"validation/x": value}
        one.on_epoch(loop)
        if loop.epoch in resume_at:
            saved = json.loads(json.dumps(one.state()))
            one = hook()
            one.restore(saved)
    return one.restore_best(), loop.epoch, loop.stopping


@pytest.mark.parametrize("resume_at", [(), (1,), (2, 3), (1, 2, 3, 4, 5, 6)])
def test_best_and_early_stopping(tmp_path, resume_at):
    early = {"early_stopping": {"patience": 2}}
    assert followed(tmp_path, [0.1, 0.3, 0.2, 0.25, 0.9], resume_at=resume_at, **early)[:2] == (2, 4)
    assert followed(tmp_path, [0.9, 0.7, 0.8, 0.75, 0.1], direction="min", resume_at=resume_at, **early)[:2] == (2, 4)
    assert followed(tmp_path, [0.1, 0.2, 0.3, 0.4], resume_at=resume_at, **early) == (4, 4, None)
    # equal values: the later is kept, yet no gain
    assert followed(tmp_path, [0.5, 0.5, 0.5, 0.5], resume_at=resume_at, **early)[:2] == (3, 3)
    # creeping by less than min_delta is no gain; the sum of small steps is
    creep = {"early_stopping": {"patience": 3, "min_delta": 0.1}}
    assert followed(tmp_path, [0.1, 0.15, 0.18, 0.19, 0.9], resume_at=resume_at, **creep)[:2] == (4, 4)
    assert followed(tmp_path, [0.1, 0.16, 0.22, 0.28, 0.34, 0.40], resume_at=resume_at, **creep) == (6, 6, None)
    # an epoch without validation says nothing; a value that is not finite is no gain
    assert followed(tmp_path, [0.1, None, 0.2, None, None, None, 0.15], resume_at=resume_at, **early)[:2] == (3, 7)
    assert followed(tmp_path, [0.1, 0.2, float("nan"), float("nan"), 0.9], resume_at=resume_at, **early)[:2] == (2, 4)
    assert followed(tmp_path, [float("nan")] * 3, resume_at=resume_at, **early)[:2] == (None, 2)
    assert followed(tmp_path, [0.1, 0.9, 0.2], resume_at=resume_at, keep="last") == (None, 3, None)


def test_the_best_epochs_weights_are_judged_and_saved(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.2, 0.7, 0.6])
    seen = {}
    taker = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.update({epoch + 1: taker.model.get_weights()}))
    report = run(tmp_path, callbacks=[taker])
    assert report["timing"]["best_epoch"] == 2
    for weight, expected in zip(model_weights(tmp_path), seen[2]):
        np.testing.assert_array_equal(weight, expected)
    assert [path.name for path in (tmp_path / "checkpoints").glob("best-*")] == ["best-00002.npz"]


def test_the_last_weights_when_asked(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.2, 0.7, 0.6])
    seen = {}
    taker = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.update({epoch + 1: taker.model.get_weights()}))
    report = run(tmp_path, callbacks=[taker], train={"keep": "last"})
    assert report["timing"]["best_epoch"] is None
    for weight, expected in zip(model_weights(tmp_path), seen[3]):
        np.testing.assert_array_equal(weight, expected)
    assert not list((tmp_path / "checkpoints").glob("best-*"))


def test_watch_knows_its_direction(tmp_path, monkeypatch):
    losses = {1: 0.9, 2: 0.8, 3: 0.1}
    values = {1: 0.2, 2: 0.7, 3: 0.6}

    def scores(self, *_):
        epoch = int(self.model.optimizer.iterations) // STEPS
        return {"loss": losses[epoch], "accuracy": values[epoch]}

    monkeypatch.setattr(Evaluator, "scores", scores)
    assert run(tmp_path, train={"watch": "loss"})["timing"]["best_epoch"] == 3


@pytest.mark.parametrize(("watch", "expected"), [
    (None, ("accuracy", "max")), ("accuracy", ("accuracy", "max")), ("validation/accuracy", ("accuracy", "max")),
    ("loss", ("loss", "min"))])
def test_what_is_followed_by_name(watch, expected):
    task = ToyTask(experiment())
    assert find_watch(Train(watch=watch), task, ["accuracy"], task.splits()) == expected


def test_watch_must_be_a_metric(tmp_path):
    with pytest.raises(ConfigError, match=r"train.watch: 'acuracy' is no metric of this task; did you mean accuracy\? .*loss, accuracy"):
        run(tmp_path, train={"watch": "acuracy"})


class NoValidation(ToyTask):
    def splits(self):
        import dataclasses

        return dataclasses.replace(super().splits(), validation=None, test=None)


def test_without_validation(tmp_path):
    report = run(tmp_path / "a", task=NoValidation)
    assert report["metrics"] == {}
    assert len(model_weights(tmp_path / "a")) == 6
    with pytest.raises(ConfigError, match=r"train.early_stopping: there is no validation split"):
        run(tmp_path / "b", task=NoValidation, train={"early_stopping": {"patience": 1}})


def test_early_stopping_ends_the_run(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.5, 0.6, 0.1, 0.2, 0.9, 0.9])
    report = run(tmp_path, train={"epochs": 6, "early_stopping": {"patience": 2}})
    assert (report["timing"]["epochs"], report["timing"]["best_epoch"]) == (4, 2)
    assert any("no gain in validation/accuracy for 2 epochs" in note for note in report["notes"])


# ---- resuming -------------------------------------------------------------------------------------------

RARELY = {"train": {"checkpoint_seconds": 1e9}}


@pytest.fixture(scope="module")
def seldom_saved(tmp_path_factory):
    """A run with RARELY's settings that was never killed."""
    folder = tmp_path_factory.mktemp("whole")
    whole(folder, **RARELY)
    return folder


def test_a_kill_before_any_checkpoint_and_one_while_judging(tmp_path, monkeypatch, seldom_saved):
    with pytest.raises(Killed):
        run(tmp_path / "killed", callbacks=[At({7: kill})], **RARELY)
    assert not (tmp_path / "killed" / "checkpoints" / "resume.npz").exists()
    with monkeypatch.context() as patch:
        patch.setattr(ToyOutput, "judge", lambda *_: kill())
        with pytest.raises(Killed):
            run(tmp_path / "killed", callbacks=[At()], **RARELY)
    assert checkpoint(tmp_path / "killed")[1]["step"] == 15
    run(tmp_path / "killed", callbacks=[At({1: kill})], **RARELY)  # only judged: no step is run again
    assert_same_outcome(seldom_saved, tmp_path / "killed")


def test_the_best_weights_survive_a_kill(tmp_path, monkeypatch):
    """Also between the file of a new best and the checkpoint that means it: then the older best is still there."""
    scripted(monkeypatch, [0.6, 0.4, 0.5])
    whole(tmp_path / "whole")
    killed(tmp_path / "killed", [5, 10])
    assert_same_outcome(tmp_path / "whole", tmp_path / "killed")


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = run(tmp_path)
    assert run(tmp_path, callbacks=[At({1: kill})])["metrics"] == first["metrics"]


def test_a_signal_saves_and_the_same_command_goes_on(tmp_path, seldom_saved):
    number = signal.SIGTERM
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=r"interrupted at step 7 of 15; the same command resumes from here") as caught:
        run(tmp_path / "run", callbacks=[At({7: lambda: send(number)})], **RARELY)
    assert caught.value.exit_status == 128 + number
    assert signal.getsignal(number) is before
    assert checkpoint(tmp_path / "run")[1]["step"] == 7
    run(tmp_path / "run", callbacks=[At()], **RARELY)
    assert_same_outcome(seldom_saved, tmp_path / "run")


def test_a_second_signal_does_not_wait(tmp_path):
    def twice():
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, callbacks=[At({3: twice})])


# ---- Keras callbacks -------------------------------------------------------------------------------------


def test_keras_early_stopping_and_plateau_are_resumed(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.5, 0.6, 0.1, 0.2, 0.3, 0.9, 0.9])

    def make():
        return [keras.callbacks.EarlyStopping("val_accuracy", patience=3, min_delta=0.01, restore_best_weights=True),
                keras.callbacks.ReduceLROnPlateau("val_accuracy", patience=1, factor=0.5, min_lr=0.0)]

    changes = {"train": {"epochs": 7, "keep": "last", "log_every": 1}}
    report = whole(tmp_path / "whole", make=make, **changes)
    assert report["timing"]["epochs"] == 5  # the best is epoch 2
    assert any("model.stop_training" in note for note in report["notes"])
    rates = {row["step"]: row["learning_rate"] for row in rows(tmp_path / "whole") if "learning_rate" in row}
    assert [rates[step] for step in (9, 14, 19, 24)] == pytest.approx([0.02, 0.02, 0.01, 0.005])
    resumed = killed(tmp_path / "killed", [18], make=make, **changes)
    assert resumed["timing"]["epochs"] == 5
    assert_same_outcome(tmp_path / "whole", tmp_path / "killed")
    arrays, _ = checkpoint(tmp_path / "whole")  # restored by EarlyStopping: not the last step's weights
    saved = model_weights(tmp_path / "whole")
    assert any(np.abs(weight - arrays[f"weights/{number:04d}"]).max() > 0 for number, weight in enumerate(saved))


def test_batch_hooks_of_a_lambda_callback(tmp_path):
    calls = []
    hook = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: calls.append("begin"), on_epoch_begin=lambda epoch, logs: calls.append(f"epoch {epoch}"),
        on_train_batch_begin=lambda batch, logs: calls.append(f"to {batch}"),
        on_train_batch_end=lambda batch, logs: calls.append(f"did {batch} {sorted(logs)}"),
        on_epoch_end=lambda epoch, logs: calls.append(f"done {epoch}"), on_train_end=lambda logs: calls.append("end"))
    run(tmp_path, callbacks=[hook], train={"epochs": 2})
    expected = ["begin"]
    for epoch in (0, 1):
        expected.append(f"epoch {epoch}")
        for batch in range(STEPS):
            expected += [f"to {batch}", f"did {batch} ['accuracy', 'loss']"]
        expected.append(f"done {epoch}")
    assert calls == [*expected, "end"]


def test_a_callback_may_stop_within_an_epoch(tmp_path):
    stopper = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: setattr(stopper.model, "stop_training", batch == 2))
    report = run(tmp_path, callbacks=[stopper])
    assert report["timing"]["steps"] == 3


# ---- time -----------------------------------------------------------------------------------------------


class SlowInput(ToyInput):
    """Each example takes a while to decode."""

    decoding = Decoding(random=True)

    def decode(self, raw, key=None):
        def wait(label):
            if key is not None:
                time.sleep(0.002)
            return label

        label = tf.ensure_shape(tf.numpy_function(wait, [raw["label"]], tf.int32), [])
        return {**raw, "label": label}


class Slow(ToyTask):
    input_class = SlowInput


def test_time_is_accounted_for(tmp_path, capsys):
    began = time.perf_counter()
    report = run(tmp_path / "quick", train={"epochs": 6})
    wall = time.perf_counter() - began
    seconds = report["time"]["seconds"]
    assert 0.4 * wall < sum(seconds.values()) < 1.01 * wall  # writing the report is not in it
    assert report["timing"]["train_seconds"] < wall - seconds["setup"]
    assert report["timing"]["input_wait_fraction"] < 0.5  # some hundredths, beside other work more
    report = run(tmp_path / "slow", task=Slow, quiet=False, data={"workers": 1})
    assert report["timing"]["input_wait_fraction"] > 0.5
    assert "of the time goes into waiting for input. Each " in "".join(capsys.readouterr())
    assert sum("of the time goes into waiting for input. Each " in note for note in report["notes"]) == 1


def test_time_adds_up_over_resumes(tmp_path):
    began = time.perf_counter()
    report = killed(tmp_path, [4])
    wall = time.perf_counter() - began
    seconds = report["time"]["seconds"]
    assert 0.3 * wall < sum(seconds.values()) < 1.01 * wall  # what a killed process did after its last checkpoint is lost
    assert report["timing"]["train_seconds"] < wall
