"""Private training: what is clipped, drawn, added and spent; what is refused; no trace of the key in a finished run."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from extensions.private.accounting import accountant
from extensions.private.gradients import PrivateGradients, Secret
from extensions.private.settings import Private
from pipelines.base.errors import ConfigError
from pipelines.config.load import load
from pipelines.config.variants import rebuild
from pipelines.data import order
from pipelines.data.draws import Draws
from pipelines.monitoring.metrics_log import read_rows
from pipelines.reports.report import card
from pipelines.runs import lineage
from pipelines.runs.folder import RunFolder
from pipelines.runs.run import Call, train
from pipelines.runs.work import Policy
from pipelines.training.chain import Sums
from pipelines.training.loop import Hook
from pipelines.tuning.search import prepared
from tests import processes
from tests.training.runs import At, Killed, model_weights, rows
from tests.training.toy import TableToyTask, ToyExperiment, ToyTask, experiment

rebuild(ToyExperiment)  # a file of tests may have made it before the extension was there
SECRET = Secret(key="0123456789abcdef" * 4)
PRIVACY = {"noise": 0.8, "clip": 0.5, "delta": 1e-4}


def private(noise, clip=0.5, batch_size=5):
    """The link of a training on 200 examples."""
    settings = experiment(train={"privacy": {"noise": noise, "clip": clip, "delta": 1e-4}, "batch_size": batch_size})
    return PrivateGradients(settings, 200, SECRET.model_dump())


def privately(folder, *, task=ToyTask, secret=SECRET, hooks=(), callbacks=(), privacy=PRIVACY, **changes):
    settings = experiment(monitor={"tensorboard": False}, evaluate={"bootstrap": 100}, **{
        **changes, "train": {"epochs": 2, "checkpoint_seconds": 1e-9, **changes.get("train", {}), "privacy": privacy}})
    policy = Policy(kept={"privacy": secret.model_dump()} if secret else {}, hooks=tuple(hooks))
    return train(settings, RunFolder(folder), Call("toy/toy", task, quiet=True, callbacks=tuple(callbacks), policy=policy))


class KillAt(Hook):
    def __init__(self, step):
        self.step = step

    def next_stop(self, loop):
        return self.step

    def on_rest(self, loop):
        if loop.step == self.step:
            loop.hooks[-1].wait(loop)  # the checkpoint, which stands last
            raise Killed


def test_batches_are_drawn_example_by_example():
    plan = order.Plan(100, 64, poisson=order.Poisson(20, SECRET.key_of("batches")))
    drawn = tf.function(lambda step: order.batch_numbers(plan, 0, step))
    counts, sizes = np.zeros(100), []
    for step in range(1500):
        numbers, weights = drawn(tf.constant(step, tf.int64))
        chosen = numbers.numpy()[weights.numpy() > 0]
        assert len(set(chosen)) == len(chosen)
        counts[chosen] += 1
        sizes.append(len(chosen))
    assert abs(np.mean(sizes) - 20) < 0.6  # its deviation is 0.10
    assert abs(np.var(sizes) - 16) < 3.5  # binomial: 100 x 0.2 x 0.8; its deviation is 0.6
    assert np.abs(counts / 1500 - 0.2).max() < 0.06  # six deviations of 0.0103
    again = drawn(tf.constant(7, tf.int64))
    np.testing.assert_array_equal(again[0], drawn(tf.constant(7, tf.int64))[0])
    other = order.Plan(100, 64, poisson=order.Poisson(20, SECRET.key_of("others")))
    assert not np.array_equal(again[0], order.batch_numbers(other, 0, tf.constant(7, tf.int64))[0])


def test_each_gradient_is_clipped_over_all_weights():
    rng = np.random.default_rng(0)
    rows_, targets = rng.normal(size=(6, 3)).astype("float32") * 5, rng.normal(size=6).astype("float32")
    rows_[4] = np.inf  # adds nothing
    mask = np.array([1, 1, 1, 1, 1, 0], "float32")

    def whole(weights, state, inputs, targets, mask, seed, scale, rows):
        losses = (tf.linalg.matvec(inputs, weights[0]) + weights[1] - targets) ** 2 * mask
        error = 2 * (tf.linalg.matvec(inputs, weights[0]) + weights[1] - targets) * mask
        return Sums([tf.linalg.matvec(inputs, error, transpose_a=True), tf.reduce_sum(error)], {},
                    tf.stack([tf.reduce_sum(losses), tf.reduce_sum(mask)]), [])

    weights = [tf.constant([0.1, -0.2, 0.3]), tf.constant(0.5)]
    batch = (tf.constant(rows_), tf.constant(targets), tf.constant(mask), Draws(tf.constant([1, 2]), tf.range(6)))
    sums = tf.function(private(2.0, clip=1.5).by_micro_batch(whole))(weights, [], *batch, tf.constant(1.0), None)
    wanted = np.zeros(4)
    for number in range(4):
        error = 2 * (rows_[number] @ weights[0].numpy() + 0.5 - targets[number])
        gradient = np.append(error * rows_[number], error)
        wanted += gradient * min(1.0, 1.5 / np.linalg.norm(gradient))
    np.testing.assert_allclose(np.append(sums.gradients[0], sums.gradients[1]), wanted, rtol=1e-5)
    assert sums.totals[1] == 5


def test_noise_is_normal_and_a_function_of_key_step_and_weight():
    link = private(3.0)
    zero = Sums([tf.zeros([200, 100]), tf.zeros([200, 100])], {}, tf.zeros([2]), [])
    noise = [link.summed(None, tf.constant(step, tf.int64), zero, tf.constant(1.0))[0].gradients for step in (4, 4, 5)]
    first = noise[0][0].numpy()
    assert abs(first.std() - 1.5) < 0.05 and abs(first.mean()) < 0.06
    np.testing.assert_array_equal(first, noise[1][0])
    for other in (noise[0][1], noise[2][0]):
        assert abs(np.corrcoef(first.ravel(), other.numpy().ravel())[0, 1]) < 0.05


def test_epsilon_is_that_of_dp_accounting():
    import dp_accounting
    from dp_accounting import pld

    settings = experiment(train={"privacy": {"noise": 1.1}}).train.privacy
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 700)
    assert accountant(settings, 10_000, 100, 7).epsilon(700) == pytest.approx(pld.PLDAccountant().compose(event).get_epsilon(1e-5))
    least = accountant(settings.model_copy(update={"noise": None, "epsilon": 2.0}), 10_000, 100, 7)
    assert 1.98 < least.epsilon(700) <= 2.0
    with pytest.raises(ConfigError, match=r"train\.privacy\.delta: 1e-05 is not below 1 / 100,000"):
        accountant(settings, 100_000, 100, 7)
    with pytest.raises(ConfigError, match=r"train\.privacy\.noise: with 1\.1 the first epoch spends"):
        accountant(settings.model_copy(update={"epsilon": 0.01}), 10_000, 100, 7)


def test_what_breaks_the_guarantee_is_refused():
    def conflicts(one):
        return one.train.added(Private).conflicts(one)

    assert conflicts(experiment(train={"privacy": PRIVACY})) == []
    for setting, changes in {"train.clip": {"train": {"clip": {"value": 1.0}}}, "train.keep_state": {"train": {"keep_state": True}},
                             "train.precision": {"train": {"precision": "float16"}}, "seeds": {"seeds": 3},
                             "train.teacher": {"train": {"teacher": {"run": "."}}}}.items():
        found = conflicts(experiment(**{**changes, "train": {**changes.get("train", {}), "privacy": PRIVACY}}))
        assert [name for name, _ in found] == [setting]


@pytest.mark.parametrize("model, task, message", [
    ("norm", ToyTask, "normalises by the statistics of a batch"), ("smooth", TableToyTask, "rows of an embedding table")])
def test_models_without_gradients_by_example_are_refused(tmp_path, model, task, message):
    with pytest.raises(ConfigError, match=message):
        privately(tmp_path / "run", task=task, model=model)


def test_callbacks_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="Keras callbacks see the training loss"):
        privately(tmp_path / "run", callbacks=[At()])


@pytest.mark.slow(seconds=25)
def test_a_killed_run_ends_as_the_same_never_killed_and_says_what_it_spent(tmp_path):
    report = privately(tmp_path / "whole")
    with pytest.raises(Killed):
        privately(tmp_path / "killed", hooks=[KillAt(6)])
    assert SECRET.key.encode() in (tmp_path / "killed" / "checkpoints" / "resume.npz").read_bytes()
    privately(tmp_path / "killed", secret=None)  # the checkpoint has it
    for one, other in zip(model_weights(tmp_path / "whole"), model_weights(tmp_path / "killed")):
        np.testing.assert_array_equal(one, other)
    assert [row.get("epoch/loss") for row in rows(tmp_path / "whole")] == [row.get("epoch/loss") for row in rows(tmp_path / "killed")]

    folder = RunFolder(tmp_path / "whole")
    spent = folder.read_environment()["privacy"]
    settings = experiment(train={"privacy": PRIVACY}).train.privacy
    assert spent["steps"] == 10 and spent["rate"] == 48 / 200
    assert spent["epsilon"] == pytest.approx(accountant(settings, 200, 48, 2).epsilon(10))
    epochs = [row["epoch/epsilon"] for row in read_rows(folder.metrics) if "epoch/epsilon" in row]
    assert len(epochs) == 2 and epochs[0] < epochs[1] == pytest.approx(spent["epsilon"])
    assert any("Trained with differential privacy: epsilon" in note for note in report["notes"])
    assert "Differential privacy: epsilon" in str(card(report, "run"))
    assert f"privacy      epsilon {spent['epsilon']}" in lineage.text(lineage.lineage(folder))
    for file in (tmp_path / "whole").rglob("*"):
        assert not file.is_file() or SECRET.key.encode() not in file.read_bytes(), file


@pytest.mark.slow(seconds=10)
def test_training_ends_before_more_is_spent_than_may_be(tmp_path):
    one = accountant(experiment(train={"privacy": PRIVACY}).train.privacy, 200, 48, 1).epsilon(5)
    report = privately(tmp_path / "run", privacy={**PRIVACY, "epsilon": one * 1.05}, train={"epochs": 4})
    assert report["timing"]["epochs"] == 1
    assert report["environment"]["privacy"]["epsilon"] == pytest.approx(one)
    assert any("another epoch would spend more" in note for note in report["notes"])


CHILD = "import sys, json, extensions.private; from tests.training import toy; toy.save_final_weights(sys.argv[1], json.loads(sys.argv[2]))"


@pytest.mark.slow(seconds=20)
def test_two_replicas_draw_clip_and_add_noise_as_one_device(tmp_path):
    """Promise 1: each number of devices in a process of its own."""
    train = {"privacy": {"noise": 0.05, "clip": 1.0, "delta": 1e-4}, "learning_rate": {"peak": 0.1}, "batch_size": 96,
             "micro_batch_size": 8}  # more than has room in one of two replicas
    weights = []
    for devices in (1, 2):
        asked = [{"model": "smooth dropout penalty", "train": {**train, "devices": devices}}]
        processes.run("-c", CHILD, tmp_path / "weights.npz", json.dumps(asked), check=True)
        with np.load(tmp_path / "weights.npz") as stored:
            weights += stored.values()
    assert np.isfinite(weights[0]).all() and np.abs(weights[0] - weights[1])[:-2].max() <= 1e-5


def test_no_search_is_made_of_private_trainings():
    """Each trial would spend epsilon on the same examples; also where only the space has train.privacy."""
    grid = {"algorithm": "grid", "space": {"train.epochs": {"choice": [1, 2]}}}
    prepared(experiment(tune=grid))
    searched = {**grid, "space": {"train.privacy": {"choice": [None, {"epsilon": 3.0}]}}}
    for wrong in (experiment(tune=grid, train={"privacy": {"epsilon": 3.0}}), experiment(tune=searched)):
        with pytest.raises(ConfigError, match=r"train\.privacy: every trial would spend"):
            prepared(wrong)


@pytest.mark.parametrize("name, overrides, setting", [
    ("vision/digits", ["augment.mixup=0.2"], "augment.mixup: it puts one example into another"),
    ("nlp/quickstart", ["tokens=null", "model={name: pretrained, preset: x, words: 2}"],
     "model.words: its classifiers are fitted to the training texts without noise")])
def test_what_a_domain_does_with_examples_outside_of_the_step_is_refused(name, overrides, setting):
    with pytest.raises(ConfigError, match=re.escape(setting)):
        load(name, [*overrides, "train.privacy={epsilon: 3}"])
