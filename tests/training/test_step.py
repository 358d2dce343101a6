"""The step against plain computations: gradient tape, accumulation, averages, clipping, weighting, freezing, loss scale."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.config.train_settings import Clip
from pipelines.data import order
from pipelines.training.evaluation import Evaluator
from pipelines.training.links import LossScaled, clip, learning_rate
from pipelines.training.session import Session, assemble
from tests import processes
from tests.training.toy import CLASSES, ToyTask, experiment

pytestmark = pytest.mark.slow(seconds=50)

SGD = {"optimizer": {"name": "sgd"}, "learning_rate": {"peak": 0.1, "schedule": "constant"}}


def made(**changes) -> Session:
    changes = {**changes, "train": {**SGD, **changes.get("train", {})}}
    return assemble(experiment(**changes), ToyTask)


def values(variables) -> list[np.ndarray]:
    return [np.asarray(variable.value).copy() for variable in variables]


def run(session: Session, *counts: int, start: int = 0, carry=None):
    """Calls of so many steps each; (steps done, carry)."""
    step, carry = start, carry or session.step.fresh()
    iterator = session.feed.iterator(start, session.steps)
    for count in counts:
        step, carry = session.step(iterator, step, count, carry)
    return step, carry


def by_tape(session: Session, step: int, *, weighted=None, smoothing: float = 0.0, penalty: float = 0.0) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients of a step, written out: cross-entropy by hand, the keras model called as it is."""
    numbers, mask = order.batch_numbers(session.plan, 0, tf.constant(step, tf.int64))
    epoch = tf.constant(step // session.plan.steps_per_epoch, tf.int64)
    arrays = session.splits.train.arrays
    images, labels = arrays["image"][numbers.numpy()], arrays["label"][numbers.numpy()]
    keys = order.example_keys(0, epoch, numbers).numpy()
    images = images + (keys[:, 0] % 7).astype("float32")[:, None, None, None] * np.float32(0.01)
    wanted = np.eye(CLASSES)[labels] * (1 - smoothing) + smoothing / CLASSES
    count = float(tf.reduce_sum(mask))
    row_weights = mask.numpy() * (np.ones(len(labels)) if weighted is None else np.array(weighted)[labels])
    with tf.GradientTape() as tape:
        logits = session.model(tf.constant(images), training=True)
        losses = -tf.reduce_sum(tf.constant(wanted, tf.float32) * tf.nn.log_softmax(logits), axis=1)
        loss = tf.reduce_sum(losses * tf.constant(row_weights, tf.float32)) / count
        if penalty:
            loss += penalty * tf.reduce_sum(tf.square(session.model.get_layer("first").kernel.value))
    gradients = tape.gradient(loss, [weight.value for weight in session.weights])
    return float(loss), [gradient.numpy() for gradient in gradients]


@pytest.mark.parametrize(("changes", "batch"), [  # 200 examples: an uneven last batch, and one batch larger than the data
    ({}, 512), ({"class_weights": [1, 2, 0.5, 0, 3], "label_smoothing": 0.2}, 48), ({"model": "smooth penalty"}, 48)])
def test_a_step_is_the_gradient_of_the_mean_loss(changes, batch):
    session = made(**changes, train={"batch_size": batch, "epochs": 2})
    known = {"weighted": changes.get("class_weights"), "smoothing": changes.get("label_smoothing", 0.0),
             "penalty": 1e-3 if "model" in changes else 0.0}
    step, carry = 0, session.step.fresh()
    iterator = session.feed.iterator(0, session.steps)
    for _ in range(min(7, session.steps)):  # the fifth is the uneven one
        loss, gradients = by_tape(session, step, **known)
        before = values(session.weights)
        step, carry = session.step(iterator, step, 1, carry)
        assert float(carry.loss) == pytest.approx(loss, abs=2e-6)
        assert float(carry.gradient_norm) == pytest.approx(np.sqrt(sum(np.sum(g * g) for g in gradients)), rel=1e-5)
        for old, gradient, new in zip(before, gradients, values(session.weights)):
            np.testing.assert_allclose(new, old - 0.1 * gradient, atol=1e-6)


def test_totals_are_means_over_real_examples():
    session = made(train={"batch_size": 48, "epochs": 1, "learning_rate": {"peak": 1e-30, "schedule": "constant"}})
    _, carry = run(session, 5)  # one epoch, the weights stand still
    assert float(carry.totals[1]) == 200
    parts = [by_tape(session, step)[0] * count for step, count in zip(range(5), (48, 48, 48, 48, 8))]
    assert float(carry.totals[0]) == pytest.approx(sum(parts), rel=1e-5)
    assert 0 <= float(carry.totals[2]) <= 200


def test_accumulation_is_one_large_batch():
    found = []
    for accumulation in (1, 8):
        session = made(model="smooth penalty", class_weights=[1, 2, 0.5, 0, 3],
                       train={"clip": {"global_norm": 0.1}, "accumulation": accumulation, "epochs": 2})
        assert session.plan.micro == 48 // accumulation
        _, carry = run(session, 9)
        found.append([*values(session.weights), carry.totals.numpy(), carry.gradient_norm.numpy()])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            np.testing.assert_allclose(one, two, atol=5e-6, rtol=1e-5)


def test_averages_follow_their_formula():
    """Those of batch statistics, too: after few steps the raw ones belong to other weights than the averaged ones."""
    session = made(model="norm dropout", train={"ema": 0.3})
    averaged, averages = zip(*session.averages)
    assert [variable.name for variable in averaged[len(session.weights):]] == ["moving_mean", "moving_variance"]
    for variable, average in session.averages:
        np.testing.assert_array_equal(average.value, variable.value)
    expected = values(averages)
    step, carry = 0, session.step.fresh()
    for _ in range(5):
        decay = min(0.3, (1 + step) / (10 + step))
        step, carry = session.step(None, step, 1, carry)
        expected = [average * decay + value * (1 - decay) for average, value in zip(expected, values(averaged))]
        for found, wanted in zip(values(averages), expected):
            np.testing.assert_allclose(found, wanted, atol=1e-6)
    # judged with them is judged as a model that has them
    source = session.splits.validation
    common = {"machine": session.machine, "batch": 32}
    judged = Evaluator(session.task, session.model, source, averages=session.averages, **common).scores()
    for variable, value in zip(averaged, expected):
        variable.assign(value)
    by_hand = keras.losses.sparse_categorical_crossentropy(source.arrays["label"], session.model(source.arrays["image"]), from_logits=True)
    assert judged["loss"] == pytest.approx(float(np.mean(by_hand)), rel=1e-5)


def test_clipping_formulas():
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=(4, 3)).astype("float32"), np.zeros(3, "float32"), 10 * rng.normal(size=5).astype("float32")]
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))

    def clipped(**settings):
        return [value.numpy() for value in clip([tf.constant(g) for g in gradients], tf.constant(norm), Clip(**settings))]

    for found, g in zip(clipped(global_norm=1.5), gradients):
        np.testing.assert_allclose(found, g * 1.5 / norm, rtol=1e-6)
    for found, g in zip(clipped(global_norm=1e6), gradients):
        np.testing.assert_array_equal(found, g)
    for found, g in zip(clipped(norm=3.0), gradients):
        np.testing.assert_allclose(found, g * min(1, 3.0 / max(np.linalg.norm(g), 1e-9)), rtol=1e-5)
    for found, g in zip(clipped(value=0.5), gradients):
        np.testing.assert_array_equal(found, np.clip(g, -0.5, 0.5))
    for found, g in zip(clipped(), gradients):
        np.testing.assert_array_equal(found, g)


@pytest.mark.parametrize("settings", [{"global_norm": 0.2}, {"norm": 0.05}, {"value": 0.003}])
def test_the_step_clips_the_whole_batchs_gradient(settings):
    session = made(train={"clip": settings, "accumulation": 2})
    _, gradients = by_tape(session, 0)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
    expected = [value.numpy() for value in clip([tf.constant(g) for g in gradients], tf.constant(norm), Clip(**settings))]
    assert max(np.abs(one - other).max() for one, other in zip(expected, gradients)) > 1e-3  # it does clip
    before = values(session.weights)
    _, carry = run(session, 1)
    assert float(carry.gradient_norm) == pytest.approx(norm, rel=1e-5)  # before clipping
    for old, gradient, new in zip(before, expected, values(session.weights)):
        np.testing.assert_allclose(new, old - 0.1 * gradient, atol=1e-6)


def test_the_rate_follows_the_schedule_and_the_optimizers_own_is_a_factor():
    session = made(train={"learning_rate": {"peak": 0.2, "schedule": "one_cycle", "warmup": 0.4}})
    step, carry = 0, session.step.fresh()
    for _ in range(6):
        if step == 3:
            session.model.optimizer.learning_rate = 0.5  # as ReduceLROnPlateau does
        _, gradients = by_tape(session, step)
        before = values(session.weights)
        rate = float(learning_rate(session.step.train.learning_rate, session.steps, tf.constant(step))) * (0.5 if step >= 3 else 1.0)
        step, carry = session.step(None, step, 1, carry)
        for old, gradient, new in zip(before, gradients, values(session.weights)):
            np.testing.assert_allclose(new, old - rate * gradient, atol=1e-6)
    assert float(session.model.optimizer.learning_rate) == 0.5
    assert int(session.model.optimizer.iterations) == 6


def test_many_steps_in_one_call_are_as_many_calls():
    changes = {"model": "norm dropout", "train": {"accumulation": 2, "xla": "on", "ema": 0.9, "optimizer": {"name": "adam"}}}
    found = []
    for counts in ((1,) * 12, (5, 7)):
        session = made(**changes)
        step, carry = run(session, *counts)
        assert step == 12
        averages = (average for _, average in session.averages)
        found.append([*values(session.model.variables), *values(averages), *values(session.model.optimizer.variables),
                      *(value.numpy() for value in carry)])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            np.testing.assert_array_equal(one, two)


def test_a_step_depends_on_its_number_alone():
    """Steps 4 .. 8 from the state after 4, in another process' place: seeds, order and rate come from the step."""
    changes = {"model": "norm dropout", "train": {"ema": 0.9}}
    whole = made(**changes)
    _, carry = run(whole, 4)
    middle = [values(group) for group in whole.state_groups.values()]
    run(whole, 5, start=4, carry=carry)
    again = made(**changes)
    run(again, 3)
    for group, saved in zip(again.state_groups.values(), middle):
        for variable, value in zip(group, saved):
            variable.assign(value)
    run(again, 5, start=4, carry=carry)
    for one, other in zip(whole.state_groups.values(), again.state_groups.values()):
        for first, second in zip(values(one), values(other)):
            np.testing.assert_array_equal(first, second)


def test_dropout_masks_belong_to_the_step(monkeypatch):
    monkeypatch.setattr(ToyTask, "prepare", lambda self, examples, **_: (tf.ones_like(examples["image"]), tf.zeros_like(examples["label"])))

    def losses(model: str) -> list[float]:
        session = made(model=model, train={"learning_rate": {"peak": 1e-30, "schedule": "constant"}})
        return [float(session.step(None, step, 1, session.step.fresh())[1].loss) for step in (0, 1, 0, 1, 2)]

    assert len(set(losses("smooth"))) == 1  # equal examples and weights: but for the masks, all steps are the same
    found = losses("dropout")
    assert found[:2] == found[2:4]
    assert len(set(found)) == 3


def test_statistics_move_once_a_step_by_the_mean_over_micro_batches():
    session = made(model="norm", train={"accumulation": 2})
    norm = next(layer for layer in session.model.layers if "normalization" in layer.name)
    inner = session.model.get_layer("first")
    numbers = session.feed.numbers(0)[0]
    keys = order.example_keys(0, tf.constant(0, tf.int64), numbers)
    images, _ = session.task.prepare(session.feed.gather(numbers, 0), keys=keys)
    activations = inner(images).numpy()
    means = [activations[:24].mean((0, 1, 2)), activations[24:].mean((0, 1, 2))]
    variances = [activations[:24].var((0, 1, 2)), activations[24:].var((0, 1, 2))]
    run(session, 1)
    np.testing.assert_allclose(norm.moving_mean, 0.9 * np.mean(means, 0), atol=1e-6)
    np.testing.assert_allclose(norm.moving_variance, 0.1 + 0.9 * np.mean(variances, 0), atol=1e-5)


class _At:
    def __init__(self, session: Session, epoch: int):
        self.run_steps, self.epoch = session.step, epoch


def test_frozen_layers_stand_still_in_weights_averages_and_moments():
    train = {"freeze": {"layers": ["first"], "epochs": 1}, "ema": 0.5, "optimizer": {"name": "adamw", "weight_decay": 0.1}}
    session = made(model="norm", train=train)
    hook = session.freezing[0]
    hook.on_start(_At(session, 0))
    first = session.model.get_layer("first")
    frozen = {id(variable) for variable in first.variables}
    before = values(session.weights)
    step, carry = run(session, 5)
    for weight, (_, average), old in zip(session.weights, session.averages, before):
        if id(weight) in frozen:
            np.testing.assert_array_equal(weight.value, old)
            np.testing.assert_array_equal(average.value, old)
        else:
            assert np.abs(np.asarray(weight.value) - old).max() > 1e-6, weight.path
    hook.on_epoch(_At(session, 1))
    run(session, 5, start=step, carry=carry)
    for weight, (_, average), old in zip(session.weights, session.averages, before):
        assert np.abs(np.asarray(weight.value) - old).max() > 1e-6, weight.path
        assert np.abs(np.asarray(average.value) - old).max() > 1e-6, weight.path


def with_images(session: Session, change) -> Session:
    """The training images changed in place on the device."""
    images = session.splits.train.arrays["image"].copy()
    change(images)
    session.feed._copies[0]["image"] = tf.constant(images)
    session.step.retrace()
    return session


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_loss_that_is_not_finite_stops_before_its_step(precision):
    session = made(train={"precision": precision, "ema": 0.9})
    culprit = int(session.feed.numbers(3)[0][11])
    reference = made(train={"precision": precision, "ema": 0.9})
    run(reference, 3)

    def break_one(images):
        images[culprit, 0, 0, 0] = np.nan

    step, carry = run(with_images(session, break_one), 8)
    assert step == 3
    assert not bool(carry.finite)
    for group, other in zip(session.state_groups.values(), reference.state_groups.values()):
        for one, two in zip(values(group), values(other)):
            np.testing.assert_array_equal(one, two)


OVERFLOW = """
import json, sys
import numpy as np
import tensorflow as tf
from pipelines.training.session import assemble
from tests.training.toy import ToyTask, experiment

session = assemble(experiment(train={"precision": "float16", "devices": 2, "ema": 0.9}), ToyTask)
strategy = session.machine.strategy
numbers, _ = session.feed.numbers(2)
culprit = int(numbers[40])  # of 48: a row of the second replica
for copies in session.feed._copies:
    images = copies["image"].numpy()
    images[culprit] *= 2000.0
    copies["image"] = tf.constant(images)

def copies():
    return [[np.asarray(copy) for copy in strategy.experimental_local_results(variable.value)]
            for name, group in session.state_groups.items() if name != "loss_scale" for variable in group]

step, carry = session.step(None, 0, 2, session.step.fresh())
scale = lambda: float(session.state_groups["loss_scale"][0].value.numpy())
before, first_scale = copies(), scale()
step, carry = session.step(None, step, 1, carry)
after = copies()
result = {"step": step, "loss": float(carry.loss), "norm": str(float(carry.gradient_norm)),
          "scales": [first_scale, scale()], "finite": bool(carry.finite), "counted": float(carry.totals[1]),
          "moved": max(float(np.abs(one.astype("f8") - two).max()) for first, second in zip(before, after)
                       for one, two in zip(first, second))}
for copies_ in session.feed._copies:  # heal it, and go on
    images = copies_["image"].numpy()
    images[culprit] /= 2000.0
    copies_["image"] = tf.constant(images)
session.step.retrace()
step, carry = session.step(None, step, 5, carry)
last = copies()
result.update(end=step, apart=max(float(np.abs(one.astype("f8") - two).max()) for one, two in last),
              all_finite=bool(all(np.isfinite(copy).all() for pair in last for copy in pair)),
              trained=max(float(np.abs(pair[0].astype("f8") - old[0]).max()) for pair, old in zip(last, after)))
print(json.dumps(result))
"""


def test_a_float16_overflow_in_one_replica_passes_the_step_over_in_both():
    found = json.loads(processes.run("-c", OVERFLOW, check=True).stdout)
    assert found["finite"]
    assert found["step"] == 3
    assert np.isfinite(found["loss"])
    assert not np.isfinite(float(found["norm"]))
    assert found["scales"] == [2.0**15, 2.0**14]
    assert found["moved"] == 0.0
    assert found["counted"] == 96  # the step that was passed over counts nothing
    assert found["end"] == 8
    assert found["apart"] == 0.0
    assert found["all_finite"]
    assert found["trained"] > 1e-5


def test_the_loss_scale_grows_again(monkeypatch):
    monkeypatch.setattr(LossScaled, "PATIENCE", 3)
    session = made(train={"precision": "float16"})
    scale = session.state_groups["loss_scale"]
    _, carry = run(session, 2)
    assert [float(variable) for variable in scale] == [2.0**15, 2]
    run(session, 1, start=2, carry=carry)
    assert [float(variable) for variable in scale] == [2.0**16, 0]


@pytest.mark.parametrize("train", [{"ema": 0.9}, {"accumulation": 2}])
def test_slow_batch_statistics_have_settled_after_a_short_training(train):
    session = made(model="slow norm", train={"epochs": 6, "learning_rate": {"peak": 0.05, "schedule": "linear"}, **train})
    step, _ = run(session, session.steps)
    assert step == 30
    norm = next(layer for layer in session.model.layers if isinstance(layer, keras.layers.BatchNormalization))
    before = keras.Model(session.model.inputs, norm.input)
    images = session.splits.train.arrays["image"]
    activations = before.predict(images, verbose=0)
    np.testing.assert_allclose(norm.moving_mean.numpy(), activations.mean((0, 1, 2)), rtol=0.03)
    np.testing.assert_allclose(norm.moving_variance.numpy(), activations.var((0, 1, 2)), rtol=0.2)
    assert norm.momentum == 0.999  # as it was built, for whoever trains the saved model on
    judged = Evaluator(session.task, session.model, session.splits.train, machine=session.machine, batch=256,
                       averages=session.averages).scores()
    learned = np.mean(session.model(images, training=True).numpy().argmax(1) == session.splits.train.labels)
    assert learned > 0.6 and judged["accuracy"] > learned - 0.05


def test_the_first_step_keeps_nothing_of_the_initial_statistics_but_a_tenth():
    """The decay rises from 0.1: after step t it is (1 + t) / (10 + t), up to the layer's own."""
    session = made(model="slow norm", train={"learning_rate": {"peak": 1e-9, "schedule": "constant"}})
    norm = next(layer for layer in session.model.layers if isinstance(layer, keras.layers.BatchNormalization))
    before = keras.Model(session.model.inputs, norm.input)
    mean = np.zeros(8)
    for at in range(3):
        numbers, _ = order.batch_numbers(session.plan, 0, tf.constant(at, tf.int64))
        keys = order.example_keys(0, tf.constant(0, tf.int64), numbers)
        inputs, _ = session.task.prepare(session.feed.gather(numbers, 0), keys=keys)
        decay = (1 + at) / (10 + at)
        mean = decay * mean + (1 - decay) * before(inputs).numpy().mean((0, 1, 2))
        run(session, 1, start=at)
        np.testing.assert_allclose(norm.moving_mean.numpy(), mean, rtol=1e-4)
