"""Vectors of moments of a frozen encoder, under a CTC head, are computed once: training is as where every step computes them."""

import importlib.util
import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.base.progress import silent
from pipelines.config.load import from_text
from pipelines.data.lengths import FlatSource
from pipelines.data.results import Shapes
from pipelines.encoders import features, linear_head
from pipelines.encoders.features import FEATURES, MOMENTS
from pipelines.runs import judging
from pipelines.runs.launch import task_class
from pipelines.training.loop import Hook, Loop
from pipelines.training.meter import Meter
from pipelines.training.session import assemble
from tests.encoders import tiny

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")]
SETTINGS = """
task: speech.transcription
data: {{source: synthetic, validation: 0.2, test: 0, limit: 30, cache: {cache}, cache_folder: {folder}}}
model: {{name: pretrained, preset: {preset}, dropout: 0.0, merge: {merge}, finetune: {{name: frozen, head: {head}, views: {views}}}}}
tokens: {{unit: words}}
augment: {{speed: {speed}}}
train: {{epochs: 2, batch_size: 8, precision: float32, devices: cpu, deterministic: true}}
"""


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return tiny.whisper(tmp_path_factory.mktemp("whisper") / "tiny", seconds=1)


def session(preset, folder, *, cache="disk", views=1, speed=0.0, merge=1, head="trained"):
    """(the session, what it said)."""
    said = []
    text = SETTINGS.format(preset=preset, cache=cache, views=views, speed=speed, merge=merge, head=head, folder=folder)
    experiment = from_text(text, check_paths=False).experiment
    return assemble(experiment, task_class(experiment.task), say=said.append), said


@pytest.fixture(scope="module")
def kept(preset, tmp_path_factory):
    """A session whose vectors are on disk, and in memory; and its folder."""
    folder = tmp_path_factory.mktemp("cache")
    return *session(preset, folder), folder


class Weights(Hook):
    """Those of a session after each epoch."""

    def __init__(self, made):
        self.made, self.found = made, []

    def on_epoch(self, loop):
        self.found.append([weight.numpy() for weight in self.made.weights])


def trained(made):
    """(weights after each epoch, scores on validation)."""
    for weight in made.weights:
        weight.assign(tf.random.stateless_normal(weight.shape, [1, 2], stddev=0.1))
    made.initialise()
    weights = Weights(made)
    Loop(made.step, plan=made.plan, steps=made.steps, hooks=[weights], meter=Meter()).train()
    return weights.found, judging.validation(made).scores()


def test_a_head_on_kept_vectors_trains_as_on_those_of_every_step(preset, kept):
    one, said, folder = kept
    other, _ = session(preset, folder, views=0)
    assert isinstance(one.learner.train, FlatSource) and one.learner.model is not one.model and other.learner.model is other.model
    assert sum("computing the features" in text for text in said) == 2  # of train and validation
    weights, scores = trained(one)
    expected, their_scores = trained(other)
    assert not np.allclose(weights[0][0], weights[1][0])
    for own, each in zip(weights, expected):
        for array, computed in zip(own, each):
            np.testing.assert_allclose(array, computed, atol=2e-5)
    assert scores == pytest.approx(their_scores, abs=1e-4)


def test_they_are_found_on_disk_and_read_as_from_memory(preset, kept, monkeypatch):
    held, _, folder = kept
    monkeypatch.setattr(features.Computing, "_computed", None)  # they are there, and nothing is computed
    monkeypatch.setattr("pipelines.machine.memory.room", lambda: 0)
    again, said = session(preset, folder)
    assert again.learner.train.mapped and not held.learner.train.mapped and not said
    numbers = tf.constant([3, 0, 11], tf.int64)
    one, other = (made.learner.train.gather(numbers) for made in (held, again))
    counts = one[MOMENTS].numpy()
    assert len(set(counts)) > 1 and one[FEATURES].shape[1] % 16 == 0 and not one[FEATURES][np.argmin(counts), counts.min():].numpy().any()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_where_they_change_every_step_computes_them(preset, tmp_path):
    made, said = session(preset, tmp_path, speed=0.1)
    assert made.learner.model is made.model and not said


def test_a_linear_head_is_fitted_to_them_at_once(preset, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.base.progress.SECONDS", 0.001)
    made, said = session(preset, tmp_path, cache="memory", merge=4, head="linear")
    learner = made.learner
    assert isinstance(learner.train, FlatSource) and learner.model is not made.model and learner.fit is not None
    assert int(learner.train.arrays[MOMENTS].max()) == -(-int(learner.train.lengths.max()) // (4 * 320))
    dense = linear_head.dense_of(learner.model, moments=True)
    batch = learner.train.gather(tf.range(len(learner.train), dtype=tf.int64))

    def loss():
        inputs, targets = learner.task.prepare(batch)
        return float(np.mean(learner.task.output.loss(learner.model(inputs), targets, training=False)))

    before = loss()
    made.initialise()
    assert loss() < 0.8 * before
    assert "The last layer was fitted by L-BFGS" in learner.notes[-1]
    whole = judging.evaluator(made, made.splits.validation).scores()  # by the network that is kept, from waveforms
    for what in ("features: ", "fitting the last layer, regularisation 30: ", "fitting the last layer to all of train, ", "answering "):
        assert any(line.startswith(what) for line in said), f"{what} is no silent work"
    assert whole["loss"] == pytest.approx(judging.validation(made).scores()["loss"], rel=1e-3)
    chosen = float(learner.notes[-1].split("regularisation of ")[1].split()[0])
    objective = linear_head._Objective(learner.task, learner.model, linear_head._chunks(learner.task, learner.train, 1),
                                       moments=learner.train.flat[FEATURES])
    kernel = dense.kernel.numpy() / objective.scale[:, None]
    flat = np.concatenate([kernel.ravel(), dense.bias.numpy() + objective.mean @ dense.kernel.numpy()])
    value, slope = objective._value(flat, chosen, objective.all)
    assert value == pytest.approx(loss() + 0.5 * chosen * np.sum(kernel**2), rel=1e-4)
    assert np.abs(slope).max() < 0.1 * np.abs(objective._value(np.zeros_like(flat), chosen, objective.all)[1]).max()
    for most, judged_on, count in ((10**6, "train, held out in 5 folds", 5), (0, "a fifth of train", 1)):
        monkeypatch.setattr(linear_head, "TELLING_MOMENTS", most)
        folds, name = linear_head._folds(learner.task, objective, learner.train, None, 1, 0, False)
        assert (name, len(folds)) == (judged_on, count), "of many moments one fold tells enough"
    fitted = [weight.numpy() for weight in dense.weights]
    learner.fit(silent)  # as a run does that was killed while it fitted
    assert all(np.array_equal(weight.numpy(), before) for weight, before in zip(dense.weights, fitted))


def test_the_fit_begins_where_nearly_every_moment_is_blank(preset, tmp_path, monkeypatch):
    """From even chances a word that all recordings begin with was learned as the silence before it."""
    monkeypatch.setattr("scipy.optimize.minimize", lambda value, start, **_: SimpleNamespace(x=start))
    made, _ = session(preset, tmp_path, cache="memory", merge=4, head="linear")
    made.learner.fit(silent)
    inputs, _ = made.learner.task.prepare(made.learner.train.gather(tf.range(len(made.learner.train), dtype=tf.int64)))
    shares = tf.nn.softmax(made.learner.model(inputs)).numpy()
    words = shares.shape[-1] - 1
    np.testing.assert_allclose(shares[..., -1], 1 / (1 + words * np.exp(-6.0)), rtol=1e-4)
    np.testing.assert_allclose(shares[..., :-1], shares[..., :1] * np.ones(words), rtol=1e-4)


def test_where_a_linear_head_cannot_be_fitted_it_is_said(preset, tmp_path):
    with pytest.raises(ConfigError, match="recordings that become text are augmented"):
        session(preset, tmp_path, cache="memory", head="linear", speed=0.1)


def test_rows_of_examples_stand_one_after_the_other():
    shapes = Shapes(3, {"a": ((None, 2), np.float32), "b": ((), np.int32)}, np.array([2, 0, 1]))
    assert shapes.of("a") == (3, 2) and shapes.of("b") == (3,) and shapes.nbytes == 36
    batch = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    assert [(first, rows.tolist()) for first, rows in shapes.placed("a", np.array([2, 0]), batch)] == [
        (2, [[0.0, 1.0]]), (0, [[6.0, 7.0], [8.0, 9.0]])]
