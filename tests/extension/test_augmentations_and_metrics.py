"""Augmentations and metrics of one's own: checked, searched and recorded as ours are, alike in any batch, judged on any task."""

import re

import numpy as np
import pytest

from pipelines.base import formatting
from pipelines.base.errors import ConfigError
from pipelines.config import extensions
from pipelines.config.load import from_text
from pipelines.config.reference import json_schema
from pipelines.config.registry import task_class
from tests.finished_run import ROOT

PAGE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), re.DOTALL)
AUGMENTATION, METRIC = (next(block for block in PAGE if f"register_{what}" in block) for what in ("augmentation", "metric"))
HUM = '''
from typing import Literal

import quartet


class Hum(quartet.Section):
    "Quieter."
    name: Literal["hum"]


@quartet.register_augmentation("speech.classification", Hum)
def hum(settings, waveforms, lengths, keys, rate):
    assert rate == 8000
    return waveforms * quartet.uniform(keys, 0)[:, None]


class Odd(quartet.Section):
    "Ones, and what does not count."
    name: Literal["odd_ones"]
    columns: int = quartet.setting(0, "further columns", ge=0)


@quartet.register_metric(Odd, better="max")
def odd_ones(settings, outputs):
    import tensorflow as tf

    first = tf.cast(tf.nest.flatten(outputs)[0], tf.float32)
    ones = tf.ones([tf.shape(first)[0]])
    value = tf.where(tf.range(tf.shape(first)[0]) % 2 == 1, ones, float("nan"))
    return value[:, None] if settings.columns else value


class Quotient(quartet.Section):
    "Twice what is there by what is there."
    name: Literal["quotient"]


@quartet.register_metric(Quotient, better="max", statistic=lambda sums: sums[:, 0] / sums[:, 1])
def quotient(settings, outputs):
    import tensorflow as tf

    first = tf.cast(tf.nest.flatten(outputs)[0], tf.float32)
    ones = tf.ones([tf.shape(first)[0]])
    there = tf.where(tf.range(tf.shape(first)[0]) % 2 == 1, ones, float("nan"))
    return tf.stack([2.0 * there, there], 1)
'''
IMAGES = "task: vision.classification\ndata: {source: digits}\nmodel: {name: cnn, widths: [4], hidden: 4}\n"
EVALUATE = "train: {devices: cpu}\nevaluate: {metrics: [{name: odd_ones}, {name: quotient}]}\n"


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name, text in (("augmentation", AUGMENTATION), ("metric", METRIC), ("hum", HUM)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        extensions.use([folder / f"{name}.py"])
    yield
    for name in ("augmentation", "metric", "hum"):
        extensions.forget(f"{name}.py")


@pytest.mark.parametrize(("text", "message"), [
    ("augment: {own: {name: dim, most: 2.0}}", "augment.own.most: 2.0 is not a number from 0 to 1"),
    ("augment: {own: {name: dim, mots: 0.1}}", "did you mean augment.own.most?"),
    ("evaluate: {metrics: [{name: top_k, k: 0}]}", "evaluate.metrics[0].k: 0 is not a whole number >= 1"),
    ("tune: {space: {augment.own.most: {float: [0.5, 1.5]}}}", "tune.space[augment.own.most]"),
])
def test_their_settings_are_checked_as_ours_are(used, text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_text(f"{IMAGES}{text}\n", file="mine.yaml")


def test_they_are_searched_in_the_schema_and_recorded(used):
    own = from_text(f"{IMAGES}augment: {{own: {{name: dim}}}}\nevaluate: {{metrics: [{{name: top_k}}]}}\n"
                    "tune: {objective: top_k, space: {augment.own.most: {float: [0.1, 0.5]}}}\n").experiment
    assert own.tune is not None and "augment.own.most" in own.tune.space
    assert "augment.own.most" in json_schema("vision.classification")["$defs"]["Tune"]["properties"]["space"]["properties"]
    assert {(one["name"], *one["registers"]) for one in extensions.used_by(own)} == {
        ("augmentation.py", "augmentation dim"), ("metric.py", "metric top_k")}
    assert formatting.kind_of("validation/top_k") == formatting.MetricKind("max", True, "Among the most probable")


def test_an_image_is_augmented_alike_in_any_batch_and_not_when_judged(used):
    import tensorflow as tf

    experiment = from_text(f"{IMAGES}augment: {{own: {{name: dim, most: 0.9}}}}\n").experiment
    task = task_class(experiment.task)(experiment, {"classes": ["a", "b"], "mean": [9.0]})
    images, keys = np.full([4, 8, 8, 1], 200, np.uint8), tf.constant([[number, 7] for number in range(4)])
    examples = {"image": tf.constant(images), "label": tf.zeros([4], tf.int32)}

    def augmented(rows):
        some = {name: tf.gather(value, rows) for name, value in examples.items()}
        return task.prepare(some, keys=tf.gather(keys, rows), seed=tf.constant([0, 0]), epoch=tf.constant(0, tf.int64))[0].numpy()

    whole = augmented([0, 1, 2, 3])
    assert len(np.unique(whole)) == 4 and whole.max() <= 200 and whole.min() >= 20
    np.testing.assert_array_equal(augmented([2, 0]), whole[[2, 0]])
    np.testing.assert_array_equal(task.prepare(examples)[0].numpy(), images)


def test_a_recording_is_augmented_behind_all_others(used):
    import tensorflow as tf

    from speech.data.augment import Augmenter

    experiment = from_text("task: speech.classification\ndata: {source: synthetic, rate: 8000}\nmodel: {name: ds_cnn}\n"
                           "augment: {own: {name: hum}}\n").experiment
    augmenter, keys = Augmenter(experiment.augment, 8000), tf.constant([[1, 2], [3, 4]])
    waves, _ = augmenter.waveforms(tf.ones([2, 100]), tf.constant([100, 40]), keys, window=True)
    assert augmenter.on_waveforms and 0 < waves[0, 0] < 1 and waves[0, 0] != waves[1, 0] and not waves[1, 40:].numpy().any()


@pytest.mark.parametrize("text", [
    f"{IMAGES}{EVALUATE}".replace("digits}", "digits, limit: 40}"),
    f"task: nlp.classification\ndata: {{source: quick}}\nmodel: {{name: bag, width: 4}}\n{EVALUATE}",
    "task: recsys.retrieval\ndata: {source: synthetic, user_key: user, item_key: item, time_key: time}\nmodel: {name: towers, width: 4}\n"
    f"{EVALUATE}".replace("evaluate: {", "evaluate: {baselines: [], "),
])
def test_a_metric_is_judged_on_a_task_of_any_domain(used, text):
    from pipelines.task.own_metrics import add_own
    from pipelines.training.evaluation import Evaluator
    from pipelines.training.session import assemble

    experiment = from_text(text).experiment
    session = assemble(experiment, task_class(experiment.task))
    one = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=16)
    scores = one.scores()
    assert scores["odd_ones"] == 1.0 and scores["quotient"] == 2.0
    judgement = session.task.output.judge(*one.judged(), one.source)
    add_own(judgement, one.own, session.task)
    metric = judgement.metrics["odd_ones"]
    assert metric.value == 1.0 and 0 < metric.n < len(one.source)
    assert judgement.metrics["quotient"].value == 2.0 and judgement.metrics["quotient"].n == metric.n


@pytest.mark.parametrize(("metrics", "message"), [
    ("[{name: odd_ones, columns: 1}]", "evaluate.metrics: odd_ones gives the shape (1, 1), not [batch]: a number for each example, or "),
    ("[{name: odd_ones}, {name: odd_ones}]", "evaluate.metrics: there is a metric odd_ones already"),
])
def test_a_metric_that_cannot_be_is_an_error_before_training(used, metrics, message):
    from pipelines.training.preparation import prepare

    experiment = from_text(f"{IMAGES}train: {{devices: cpu}}\nevaluate: {{metrics: {metrics}}}\n").experiment
    with pytest.raises(ConfigError, match=re.escape(message)):
        prepare(experiment, task_class(experiment.task))


def test_a_metric_takes_no_name_of_another_meaning(tmp_path):
    (tmp_path / "wrong.py").write_text(METRIC.replace('Literal["top_k"]', 'Literal["accuracy"]').replace('better="max"', 'better="min"'),
                                       encoding="utf-8")
    with pytest.raises(ConfigError, match="the metric accuracy is declared as"):
        extensions.use([tmp_path / "wrong.py"])
    extensions.forget("wrong.py")
