"""Distillation: what a student learns of a teacher, on its way from the setting to the loss."""

import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.config.load import from_dict, load
from pipelines.config.train_settings import Teacher
from pipelines.outputs.cross_entropy import softened
from pipelines.training.other_run import model_of, named
from pipelines.training.teacher import Taught
from tests import finished_run, processes
from tests.waiting import until_or_over
from vision.tasks.classification import Classification

pytestmark = pytest.mark.slow(seconds=40)


@pytest.fixture(scope="module")
def student():
    """(a task of the digits and its train split, as the teacher's run has them)."""
    task = Classification(load(finished_run.run() / "experiment.yaml").experiment)
    splits = task.splits()
    task.facts = splits.facts
    return task, splits.train


def teacher_of(task, train, folder=None):
    return model_of("train.teacher.run", folder or finished_run.run(), task, train)


def test_the_distance_is_the_divergence_of_softened_answers():
    ours, theirs = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    p, q = (np.exp(x / 3) / np.exp(x / 3).sum(1, keepdims=True) for x in (theirs, ours))
    np.testing.assert_allclose(softened(ours, theirs, 3.0), 9 * (p * np.log(p / q)).sum(1), rtol=1e-4)
    assert np.abs(softened(ours, ours, 2.0)).max() < 1e-6


def test_training_targets_have_the_teachers_answers_and_judging_has_none(student):
    task, train = student
    settings = Teacher(run=str(finished_run.run()), temperature=2.0, weight=0.25)
    model = teacher_of(task, train)
    taught = Taught(task, model, settings)
    examples = train.gather(tf.range(6, dtype=tf.int64))
    images = tf.map_fn(lambda image: task.input.decode({"image": image})["image"], examples["image"])
    examples = {"image": images, "label": tf.cast(examples["label"], tf.int32)}
    drawn = {"keys": tf.zeros([6, 2], tf.int32), "seed": tf.zeros([2], tf.int32), "epoch": tf.constant(0, tf.int64)}
    inputs, targets = taught.prepare(examples, **drawn)
    np.testing.assert_allclose(targets["answered"], model(inputs, training=False), rtol=1e-4, atol=1e-5)
    outputs, own = tf.zeros([6, 10]), task.prepare(examples, **drawn)[1]
    expected = 0.25 * softened(outputs, targets["answered"], 2.0) + 0.75 * task.output.loss(outputs, own, True)
    np.testing.assert_allclose(taught.output.loss(outputs, targets, True), expected, rtol=1e-5)
    np.testing.assert_allclose(taught.output.scores(outputs, targets)["accuracy"], task.output.scores(outputs, own)["accuracy"])
    assert not isinstance(taught.prepare(examples)[1], dict)
    assert np.mean(np.argmax(targets["answered"], 1) == examples["label"]) > 0.5  # it is the trained one


@pytest.mark.parametrize("change, part", [
    ({"data": {"source": "digits", "image_size": 16}}, "sees other inputs"), ({"augment": {"flip": True}}, None),
])
def test_a_teacher_sees_what_the_student_sees(student, change, part):
    values = load(finished_run.run() / "experiment.yaml").experiment.model_dump(mode="python")
    for name, section in change.items():
        values[name] = {**values[name], **section}
    task = Classification(from_dict(values))
    splits = task.splits()
    task.facts = splits.facts
    if part is None:
        assert teacher_of(task, splits.train) is not None
        return
    with pytest.raises(ConfigError, match=part):
        teacher_of(task, splits.train)


def test_what_is_no_run_of_these_classes_is_refused(student, tmp_path):
    task, train = student
    values = task.experiment.model_dump(mode="python")
    values["train"]["teacher"] = {"run": str(tmp_path)}
    with pytest.raises(ConfigError, match=f"train.teacher.run: {tmp_path} is no finished run"):
        named(from_dict(values))
    folder = finished_run.copy(tmp_path)
    facts = json.loads((folder / "model" / "facts.json").read_text())
    (folder / "model" / "facts.json").write_text(json.dumps({**facts, "classes": facts["classes"][::-1]}))
    with pytest.raises(ConfigError, match="other classes"):
        teacher_of(task, train, folder)


def test_an_interrupted_run_is_not_resumed_with_another_teacher(tmp_path):
    teacher = finished_run.copy(tmp_path / "other")  # named as a run below the folder of runs
    arguments = ("-m", "vision.train", *finished_run.SETTINGS, "train.teacher.run=vision/digits/small", "train.checkpoint_seconds=0.01",
                 "monitor.tensorboard=false", "evaluate.baseline=false", "--runs", str(tmp_path / "other" / "runs"), "--name", "killed")
    folder = tmp_path / "other" / "runs" / "vision" / "digits" / "killed"
    process = processes.start(*arguments, cwd=tmp_path)
    until_or_over((folder / "checkpoints" / "resume.npz").exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "report" / "report.json").exists()
    facts = (teacher / "model" / "facts.json").read_text()
    (teacher / "model" / "facts.json").write_text(facts + " ")
    refused = processes.run(*arguments, cwd=tmp_path)
    assert refused.returncode == 1 and "the run that train.teacher.run names is not the one" in refused.stderr, refused.stderr
