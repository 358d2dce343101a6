"""Metrics that are no means over examples: of sums with a statistic, and of all answers of a split; watched like any other."""


import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import f1_score

from pipelines.base.errors import ConfigError
from pipelines.base.formatting import better
from pipelines.task.contract import Output, SetScores, kept
from pipelines.training.evaluation import Evaluator
from pipelines.training.session import assemble
from tests.training.toy import CLASSES, ToyOutput, ToyTask, experiment


def macro_f1(sums):
    right, given, true = np.split(sums, 3, -1)
    return np.mean(2 * right / np.maximum(given + true, 1), -1)


class SetOutput(ToyOutput):
    @property
    def statistics(self):
        return {"macro_f1": macro_f1}

    def scores(self, outputs, targets):
        given, true = tf.one_hot(tf.argmax(outputs, -1), CLASSES), tf.one_hot(targets, CLASSES)
        return {**super().scores(outputs, targets), "macro_f1": tf.concat([given * true, given, true], -1)}

    judge = Output.judge

    def condense(self, answers, targets):
        predicted = answers["probabilities"].argmax(-1)
        return kept(self.scores(np.eye(CLASSES)[predicted], targets["label"]), {"predicted": predicted}, targets)

    @property
    def set_scores(self):
        def compute(answers, targets):
            right = answers["predicted"] == targets["label"]
            return {"worst_class": min(float(right[targets["label"] == label].mean()) for label in range(CLASSES)),
                    "right": float(right.mean())}

        return SetScores({"worst_class": "max", "right": "max"}, compute)


class SetTask(ToyTask):
    output_class = SetOutput


def answered(session):
    """(predicted, true) of validation, by the model alone."""
    source = session.splits.validation
    images, labels = (source.arrays[name] for name in ("image", "label"))
    return session.model(images, training=False).numpy().argmax(-1), labels


@pytest.mark.parametrize("batch", [16, 77])
def test_a_score_of_sums_is_that_of_the_whole_split(batch):
    session = assemble(experiment(train={"watch": "macro_f1"}), SetTask)
    scores = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=batch).scores()
    predicted, true = answered(session)
    assert scores["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro", labels=range(CLASSES), zero_division=0))
    assert "worst_class" not in scores  # nobody watches it


def test_a_score_of_all_answers_is_there_where_it_is_watched():
    session = assemble(experiment(train={"watch": "validation/worst_class"}), SetTask)
    assert session.watch == ("worst_class", "max")
    evaluator = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=16)
    predicted, true = answered(session)
    expected = min((predicted == true)[true == label].mean() for label in range(CLASSES))
    assert evaluator.scores()["worst_class"] == pytest.approx(expected)
    assert set(evaluator.each()) == {"loss", "accuracy", "macro_f1"}


def test_training_sums_them_too_and_the_averages_are_what_is_scored():
    session = assemble(experiment(train={"watch": "worst_class", "ema": 0.5}), SetTask)
    session.initialise()
    carry = session.step(session.feed.iterator(0, 2), 0, 2, session.step.fresh())[1]
    metrics = session.step.scores.metrics(carry.totals.numpy())
    assert 0.0 <= metrics["macro_f1"] <= 1.0 and carry.totals.shape == [2 + 1 + 3 * CLASSES]
    for _, average in session.averages:
        average.assign(tf.zeros_like(average.value))
    source = session.splits.validation
    one = Evaluator(session.task, session.model, source, machine=session.machine, averages=session.averages).scores()
    first = source.arrays["label"] == 0  # of equal outputs the first class is given
    assert one["accuracy"] == pytest.approx(first.mean()) and one["worst_class"] == 0.0


class CountedOutput(ToyOutput):
    """The mean over as many tokens as an example's class has."""

    def loss(self, outputs, targets, training):
        counts = tf.cast(targets, tf.float32)
        return super().loss(outputs, targets, training) * counts, counts


class CountedTask(ToyTask):
    output_class = CountedOutput


def test_what_is_kept_by_default_is_scores_and_small_answers_and_a_report_follows_from_them():
    session = assemble(experiment(evaluate={"bootstrap": 100}), SetTask)
    evaluator = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=16)
    predicted, true = answered(session)
    answers, targets = evaluator.judged()
    assert set(answers) == {"predicted", "score/accuracy", "score/macro_f1"} and set(targets) == {"label"}
    judgement = session.task.output.judge(answers, targets, evaluator.source)
    right = predicted == true
    expected = {"accuracy": right.mean(), "macro_f1": f1_score(true, predicted, average="macro", labels=range(CLASSES), zero_division=0),
                "worst_class": min(right[true == label].mean() for label in range(CLASSES)), "right": right.mean()}
    assert {name: metric.value for name, metric in judgement.metrics.items()} == pytest.approx(expected)
    one, other = judgement.metrics["right"], judgement.metrics["accuracy"]
    np.testing.assert_allclose(one.drawn, other.drawn)  # each resample holds the same examples
    assert one.low < one.value < one.high
    np.testing.assert_array_equal(session.task.output.each(answers, targets), right)


def test_a_large_answer_is_not_kept_beside_its_scores():
    masks = np.zeros([4, 99, 99])
    answers, targets = kept({"iou": tf.ones([4, 2])}, {"mask": masks, "count": np.zeros(4)}, {"mask": masks})
    assert set(answers) == {"count", "score/iou"} and not targets


def test_a_default_judge_without_scores_is_an_error():
    class Bare(SetOutput):
        set_scores = SetScores({}, dict)

        def condense(self, answers, targets):
            return answers, targets

    class BareTask(ToyTask):
        output_class = Bare

    session = assemble(experiment(), BareTask)
    with pytest.raises(TypeError, match=r"Bare\.condense leaves no scores for the default judge"):
        session.task.output.judge({}, {}, session.splits.validation)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_loss_of_sum_and_count_is_the_mean_over_what_the_whole_batch_counts(accumulation):
    session = assemble(experiment(train={"batch_size": 48, "accumulation": accumulation, "epochs": 1, "optimizer": {"name": "sgd"},
                                         "learning_rate": {"peak": 0.1, "schedule": "constant"}, "ema": None}), CountedTask)
    session.initialise()
    numbers, examples = session.feed.sample(0, 48)
    inputs, labels = session.task.prepare(examples, keys=session.feed.keys(tf.constant(0, tf.int64), numbers), seed=tf.constant([0, 0]),
                                          epoch=tf.constant(0, tf.int64))
    weights = session.model.trainable_variables
    with tf.GradientTape() as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, session.model(inputs))
        counts = tf.cast(labels, tf.float32)
        loss = tf.reduce_sum(each * counts) / tf.reduce_sum(counts)
    expected = [(weight - 0.1 * gradient).numpy() for weight, gradient in zip(weights, tape.gradient(loss, weights))]
    carry = session.step(session.feed.iterator(0, 1), 0, 1, session.step.fresh())[1]
    assert float(carry.loss) == pytest.approx(float(loss), rel=1e-5)
    for weight, right in zip(weights, expected):
        np.testing.assert_allclose(weight.numpy(), right, atol=2e-6)
    metrics = session.step.scores.metrics(carry.totals.numpy())
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["accuracy"] * 48 == pytest.approx(round(metrics["accuracy"] * 48), abs=1e-3)  # a share of examples, not of tokens
    evaluator = Evaluator(session.task, session.model, session.splits.validation, machine=session.machine, batch=16)
    each = evaluator.each()["loss"]
    labels = session.splits.validation.arrays["label"]
    assert evaluator.scores()["loss"] == pytest.approx((each * labels).sum() / labels.sum(), rel=1e-5)


def test_a_score_of_another_shape_is_an_error():
    class Wrong(SetOutput):
        statistics = {}

    class WrongTask(ToyTask):
        output_class = Wrong

    with pytest.raises(ConfigError, match=r"macro_f1 has the shape \(1, 15\).*Output.statistics"):
        assemble(experiment(), WrongTask)


def test_unknown_directions_are_asked_for():
    assert better("worst_class") is None  # its output says what is better
    with pytest.raises(ConfigError, match=r"worst_clas.*did you mean worst_class"):
        assemble(experiment(train={"watch": "worst_clas"}), SetTask)


