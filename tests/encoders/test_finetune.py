"""Ways to fine-tune on a toy encoder: what trains, how fast, and that features computed once train as features of every step."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.data.source import ArraySource
from pipelines.encoders import features, finetune, linear_head
from pipelines.encoders.features import OnFeatures
from pipelines.encoders.trainable import blocks
from pipelines.monitoring.metrics_log import read_rows
from pipelines.training.hooks.freezing import GradualUnfreeze
from pipelines.training.loop import Hook, Loop
from pipelines.training.meter import Meter
from pipelines.training.session import assemble
from tests.training import runs
from tests.training.toy import AugmentedEncoderToyTask, EncoderToyTask, encoder, experiment

MEMORY = {"cache": "memory"}


def session(task=EncoderToyTask, data=MEMORY, train=None, **finetune):
    return assemble(experiment(model=encoder(**finetune), data=data, train={"devices": "cpu", **(train or {})}), task)


def moved(changes):
    """Names of the weights that a training changes."""
    made = assemble(experiment(**changes), EncoderToyTask)
    before = [np.array(variable.value) for variable in made.all_weights]
    Loop(made.step, plan=made.plan, steps=made.steps, hooks=made.freezing, meter=Meter()).train()
    return {variable.path: np.abs(np.array(variable.value) - old).max() for variable, old in zip(made.all_weights, before)
            if variable.name != "seed_generator_state" and not np.array_equal(variable.value, old)}


def test_blocks_are_grouped_from_input_to_output():
    names = [[layer.name for layer in block] for block in blocks(session(name="whole").model)]
    assert names == [["embedding"], ["transformer_layer_0"], ["transformer_layer_1", "norm"]]


def test_a_head_on_kept_features_trains_as_on_features_of_every_step():
    plain = {"micro_batch_size": 16, "epochs": 3, "devices": "cpu"}
    kept = session(name="frozen", head="trained", train=plain)
    each = session(name="frozen", head="trained", train=plain, data={"cache": "none"})
    assert kept.learner.model is not kept.model and each.learner.model is each.model
    assert len(kept.all_weights) < len(each.all_weights)  # no encoder in the checkpoint
    for one in (kept, each):
        one.initialise()
        for variable, value in zip(one.weights, (np.full((8, 5), 0.1), np.zeros(5))):
            variable.assign(value)
    one, other = (made.step(made.feed.iterator(0, 3), 0, 3, made.step.fresh())[1] for made in (kept, each))
    assert other.loss.numpy() == pytest.approx(one.loss.numpy(), rel=1e-2)  # dropout draws alike; the layers' order of draws may differ


def test_views_are_what_the_first_epochs_see():
    made = session(AugmentedEncoderToyTask, name="frozen", head="trained", views=2)
    spe = made.plan.steps_per_epoch
    for epoch in (0, 1, 2):
        numbers, examples = made.feed.sample(epoch * spe, 5)
        inputs, targets = made.learner.task.prepare(examples, epoch=tf.constant(epoch, tf.int64))
        numbers_whole, whole = made.shown.sample(epoch * spe, 5)
        images, labels = made.task.prepare(whole, keys=made.shown.keys(epoch % 2 * spe, numbers_whole))
        assert numbers.numpy().tolist() == numbers_whole.numpy().tolist() and targets.numpy().tolist() == labels.numpy().tolist()
        np.testing.assert_allclose(inputs, made.model.get_layer("features")(images), atol=1e-5)


@pytest.mark.parametrize(("frozen_below", "chosen"), [(10_000, "frozen"), (10, "whole")])
def test_the_number_of_examples_chooses_a_way_where_nothing_is_said(monkeypatch, frozen_below, chosen):
    monkeypatch.setattr(finetune, "FROZEN_BELOW", frozen_below)
    unsaid = {name: value for name, value in encoder().items() if name != "finetune"}
    made = assemble(experiment(model=unsaid, data=MEMORY, train={"devices": "cpu"}), EncoderToyTask)
    assert made.way.name == chosen and (made.steps == 0) == (chosen == "frozen")
    assert f"model.finetune is not set: {chosen}, since there are {len(made.splits.train):,} training examples" in made.learner.notes[0]


def test_a_way_that_is_said_is_not_remarked_on():
    assert not any("is not set" in note for note in session(name="frozen").learner.notes)


def test_without_room_for_features_a_linear_head_is_refused():
    for changes in ({"data": {"cache": "none"}}, {"views": 0}):
        with pytest.raises(ConfigError, match=r"finetune\.head: linear needs features that are kept"):
            session(name="frozen", **changes)


def test_a_linear_head_is_the_minimum_of_the_regularised_loss(tmp_path):
    made = session(name="frozen", train={"deterministic": True})
    assert made.steps == 0 and made.weights == []
    made.initialise()
    assert "chosen by loss" in made.learner.notes[-1] and "train, held out in 5 folds" in made.learner.notes[-1]
    strength = float(made.learner.notes[-1].split("regularisation of ")[1].split()[0])
    dense = made.model.get_layer("head").get_layer("classes")
    x, labels = made.learner.train.arrays["features"].astype(np.float64), made.learner.train.arrays["target/0"]
    scale = np.maximum(x.std(0), 0.1 * np.sqrt(np.mean(x.var(0))))
    kernel, bias = tf.Variable(dense.kernel.numpy()), tf.Variable(dense.bias.numpy())
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x.astype(np.float32) @ kernel + bias)
        value = tf.reduce_mean(losses) + 0.5 * strength * tf.reduce_sum((kernel * scale.astype(np.float32)[:, None]) ** 2)
    for slope in tape.gradient(value, [kernel, bias]):
        assert np.abs(slope).max() < 2e-3


def test_training_of_the_whole_begins_with_a_fitted_head_that_leaves_something_to_learn():
    made = session(name="whole")
    made.initialise()
    images, labels = made.splits.train.arrays["image"], made.splits.train.arrays["label"]
    losses = made.task.output.loss(made.model(images), tf.constant(labels), training=True).numpy()
    assert 0.1 < losses.mean() < 0.9 * np.log(5)
    assert made.steps and len(made.weights) == len(made.model.trainable_variables)


@pytest.mark.parametrize(("finetune", "still"), [
    ({"name": "last", "blocks": 1}, {"embedding", "transformer_layer_0"}),
    ({"name": "last", "blocks": 0.6}, {"embedding", "transformer_layer_0"}),
    ({"name": "lora", "rank": 2, "layers": ["query"]}, {"embedding", "norm", "out"}),
    ({"name": "whole"}, set()),
])
def test_what_trains(finetune, still):
    changed = moved({"model": encoder(**finetune), "train": {"devices": "cpu", "epochs": 1}})
    assert any("classes" in path for path in changed)
    assert not [path for path in changed if still & set(path.split("/"))]
    inner = [path for path in changed if "transformer_layer_1" in path]
    assert inner and (finetune["name"] != "lora" or all("lora" in path for path in inner))


def test_layers_near_the_input_learn_more_slowly():
    plain = {"devices": "cpu", "epochs": 1, "batch_size": 200, "optimizer": {"name": "adam", "options": {"epsilon": 1e-12}}}
    one = moved({"model": encoder(name="whole", learning_rate=1e-3, decay=0.5, head="new"), "train": plain})
    largest = {name: max(change for path, change in one.items() if name in path.split("/"))
               for name in ("embedding", "transformer_layer_0", "transformer_layer_1", "classes")}
    assert largest == pytest.approx({"embedding": 0.25e-3, "transformer_layer_0": 0.5e-3, "transformer_layer_1": 1e-3, "classes": 0.02},
                                    rel=1e-2)


@pytest.mark.slow
def test_gradual_unfreezing_trains_one_more_block_each_time():
    made = session(name="gradual", epochs=1, train={"epochs": 4})

    class Trained(Hook):
        seen: list = []

        def on_epoch(self, loop):
            self.seen.append([bool(block[0].trainable) for block in blocks(made.model)])

    Loop(made.step, plan=made.plan, steps=made.steps, hooks=[Trained(), *made.freezing], meter=Meter()).train()
    assert Trained.seen == [[False, False, False], [False, False, True], [False, True, True], [True, True, True]]


def test_gradual_unfreezing_leaves_batch_norms_as_they_were_trained():
    inputs = keras.Input((8, 8, 3))
    x = inputs
    for name in ("block1a", "block2a"):
        x = keras.layers.Conv2D(4, 3, name=f"{name}_conv")(x)
        x = keras.layers.BatchNormalization(name=f"{name}_bn")(x)
    backbone = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x), name="backbone")
    features = keras.Model(inputs, backbone(inputs), name="features")
    head = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="head")
    model = keras.Model(inputs, head(features(inputs)))
    hook = GradualUnfreeze(finetune.Gradual(name="gradual"), model)
    images = 3.0 + np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype(np.float32)
    for epoch in range(3):
        hook.on_epoch(SimpleNamespace(epoch=epoch, run_steps=SimpleNamespace(retrace=lambda: None)))
        convolutions = [layer.trainable for layer in backbone.layers if isinstance(layer, keras.layers.Conv2D)]
        assert convolutions == [epoch >= 2, epoch >= 1]
        np.testing.assert_allclose(model(images, training=True), model(images, training=False), rtol=1e-5)


@pytest.mark.parametrize("finetune", [{"name": "frozen"}, {"name": "frozen", "head": "trained"}, {"name": "lora", "rank": 2,
                                                                                              "layers": ["query"]}])
def test_the_saved_network_is_whole_and_answers_alike(tmp_path, finetune):
    report = runs.run(tmp_path / "run", task=EncoderToyTask, model=encoder(**finetune), data=MEMORY, train={"epochs": 2, "devices": "cpu"},
                      monitor={"tensorboard": True})
    assert "test/accuracy" in report["metrics"]
    projected = [path.name for path in tmp_path.rglob("projector/features.tsv")]
    assert len(projected) == (finetune["name"] == "frozen")
    model = EncoderToyTask(experiment(model=encoder(**finetune))).model()
    model.load_weights(tmp_path / "run" / "model" / "model.keras")
    images = EncoderToyTask(experiment()).splits().validation.arrays
    predicted = np.argmax(model(images["image"]), -1)
    assert (predicted == images["label"]).mean() == pytest.approx(report["metrics"]["validation/accuracy"]["value"], abs=1e-6)
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["finetune"]["name"] == finetune["name"]


def test_training_that_spoils_the_encoder_ends_with_its_fitted_head(tmp_path):
    report = runs.run(tmp_path / "run", task=EncoderToyTask, model=encoder(name="whole", learning_rate=1.0), data=MEMORY,
                      train={"epochs": 3, "devices": "cpu"})
    begun, *trained = [row["validation/accuracy"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if "validation/accuracy" in row]
    assert len(trained) == 3 and max(trained) < begun
    assert report["metrics"]["validation/accuracy"]["value"] == pytest.approx(begun, abs=1e-6)
    assert report["timing"]["best_epoch"] == 0
    assert any("the encoder as it was under its fitted head" in note for note in report["notes"])


def test_the_last_weights_stay_where_nothing_chooses(tmp_path):
    report = runs.run(tmp_path / "run", task=EncoderToyTask, model=encoder(name="whole", learning_rate=1.0), data=MEMORY,
                      train={"epochs": 1, "devices": "cpu", "keep": "last"})
    rows = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl") if "validation/accuracy" in row]
    assert len(rows) == 1 and report["timing"]["best_epoch"] is None


@pytest.mark.parametrize(("finetune", "message"), [
    ({"name": "last", "blocks": 3}, "3 of 2 blocks"),
    ({"name": "lora", "layers": ["key"]}, "'key' matches no dense layer of the encoder; it has embedding, out, query"),
])
def test_what_the_encoder_lacks_is_refused(finetune, message):
    with pytest.raises(ConfigError, match=message):
        session(**finetune)


def test_features_on_disk_are_used_again_and_depend_on_the_weights(tmp_path, monkeypatch):
    data = {"cache": "disk", "cache_folder": str(tmp_path)}
    first = session(name="frozen", data=data)
    monkeypatch.setattr("pipelines.encoders.features.Computing._computed", None)  # now they are there, and nothing is computed
    again = session(name="frozen", data=data)
    np.testing.assert_array_equal(first.learner.train.arrays["features"], again.learner.train.arrays["features"])
    with pytest.raises(TypeError):
        session(name="frozen", data=data, train={"seed": 1})


class FoldedToyTask(EncoderToyTask):
    def splits(self):
        pool = super().splits().train
        return self.input.divided({"train": pool, "test": pool})


def test_folds_of_train_share_the_features_of_its_examples(tmp_path, monkeypatch):
    data = {"cache": "disk", "cache_folder": str(tmp_path), "validation": 0, "fold": [1, 3]}
    first = session(FoldedToyTask, name="frozen", data=data)
    monkeypatch.setattr("pipelines.encoders.features.Computing._computed", None)  # now they are there, and nothing is computed
    second = session(FoldedToyTask, name="frozen", data={**data, "fold": [2, 3]})
    held = [one.learner.features(one.splits.test) for one in (first, second)]
    for made, judged in zip((first, second), held):
        assert len(made.learner.train) + len(judged) == len(first.learner.train) + len(held[0])
        for source, of in ((made.learner.train, made.splits.train), (judged, made.splits.test)):
            np.testing.assert_array_equal(source.arrays["target/0"], of.labels)
    names = [{one.name(number) for number in range(len(one))} for one in held]
    assert not names[0] & names[1]
    with pytest.raises(TypeError):  # a part of train has features of its own
        session(FoldedToyTask, name="frozen", data={**data, "limit": 20})


def test_one_graph_of_the_encoder_computes_the_features_of_all_splits(monkeypatch):
    traces = []

    def counted(model, devices):
        outputs = constant(model, devices)
        return lambda inputs: traces.append(inputs.shape) or outputs(inputs)

    constant = features.constant
    monkeypatch.setattr(features, "constant", counted)
    made = session(name="frozen")
    assert len(made.learner.train) != len(made.learner.validation) and len(traces) == 1
    for source, whole in ((made.learner.train, made.splits.train), (made.learner.validation, made.splits.validation)):
        images, _ = made.task.prepare(whole.gather(tf.range(len(whole), dtype=tf.int64)))
        np.testing.assert_allclose(source.arrays["features"], made.model.get_layer("features")(images), atol=1e-5)


def spoken(groups, seed):
    """Features of 5 classes: 40 columns that all voices have in common, with much noise, and 40 that are each voice's own, clear."""
    rng = np.random.default_rng(seed)
    labels, names = np.tile(np.arange(5, dtype=np.int32), 12 * groups), np.repeat([f"voice {number}" for number in range(groups)], 60)
    common = 0.5 * np.random.default_rng(0).normal(size=(5, 40))[labels] + rng.normal(size=(len(labels), 40))
    own = rng.normal(size=(groups, 5, 40))[np.repeat(np.arange(groups), 60), labels] + 0.1 * rng.normal(size=common.shape)
    return ArraySource({"features": np.concatenate([common, own], 1).astype(np.float32), "target/0": labels}, groups=names, labels=labels)


def test_the_strength_is_chosen_on_groups_that_the_head_has_not_seen():
    task = OnFeatures(EncoderToyTask(experiment()), tf.TensorSpec([]), 1)
    train, strangers = spoken(6, 1), spoken(20, 2)
    fitted, right = {}, {}
    for name, source in {"groups": train, "chance": ArraySource(train.arrays, labels=train.labels)}.items():
        head = keras.Sequential([keras.Input((80,)), keras.layers.Dense(5)])
        fitted[name] = linear_head.fit(task, head, source, None, 1, 0)
        right[name] = (head(strangers.arrays["features"]).numpy().argmax(1) == strangers.labels).mean()
    assert "groups held out in 5 folds" in fitted["groups"].judged_on and fitted["chance"].judged_on == "train, held out in 5 folds"
    assert fitted["chance"].metric == "loss" and fitted["chance"].value < 0.1  # of voices that it knows
    assert fitted["groups"].value < right["groups"] + 0.05 < 0.95  # one voice less to learn from
    assert fitted["groups"].strength >= 10 * fitted["chance"].strength and right["groups"] > right["chance"] + 0.03


def test_a_validation_split_that_is_too_small_to_tell_strengths_apart_does_not_choose():
    rng = np.random.default_rng(0)

    def drawn(count):
        labels = np.arange(count, dtype=np.int32) % 5
        noisy = 0.5 * np.random.default_rng(1).normal(size=(5, 40))[labels] + rng.normal(size=(count, 40))
        return ArraySource({"features": noisy.astype(np.float32), "target/0": labels}, labels=labels)

    def some(source, size):
        return ArraySource({name: values[:size] for name, values in source.arrays.items()}, labels=source.labels[:size])

    task = OnFeatures(EncoderToyTask(experiment()), tf.TensorSpec([]), 1)
    head = keras.Sequential([keras.Input((40,)), keras.layers.Dense(5)])
    train, large = drawn(200), drawn(1500)
    fitted = {size: linear_head.fit(task, head, train, some(large, size), 1, 0) for size in (20, 1500)}
    assert fitted[20].judged_on == "train, held out in 5 folds" and fitted[1500].judged_on == "validation"
    # they begin at a strength that suits features with less noise, and find that of these
    assert fitted[20].metric == "loss" and fitted[20].strength >= 0.01


@pytest.mark.parametrize(("groups", "right", "factor"), [(2, 0.85, 6.0), (10, 0.6, 1.0), (2, 0.2, 0.0)])
def test_answers_beside_the_features_count_more_than_these_where_that_is_better_for_groups_held_out(groups, right, factor):
    def with_answers(source, seed):
        rng = np.random.default_rng(seed)
        said = np.where(rng.random(len(source)) < right, source.labels, rng.integers(0, 5, len(source)))
        answers = np.log(0.8 * np.eye(5)[said] + 0.04).astype(np.float32)
        arrays = {**source.arrays, "features": np.concatenate([source.arrays["features"], answers], 1)}
        return ArraySource(arrays, groups=source.groups, labels=source.labels)

    task = OnFeatures(EncoderToyTask(experiment()), tf.TensorSpec([]), 1)
    train, strangers = with_answers(spoken(groups, 1), 3), with_answers(spoken(20, 2), 4)
    accuracy, kernels = {}, {}
    for offered in (1.0, 6.0):
        dense = keras.layers.Dense(5)
        head = keras.Sequential([keras.Input((85,)), linear_head.Emphasis(offered, 5), dense])
        fitted = linear_head.fit(task, head, train, None, 1, 0)
        accuracy[offered] = (head(strangers.arrays["features"]).numpy().argmax(1) == strangers.labels).mean()
        kernels[offered] = dense.kernel.numpy()
    assert fitted.factor == factor and kernels[6.0][80:].any() == bool(factor)
    assert accuracy[6.0] > accuracy[1.0] + 0.1 if factor == 6.0 else accuracy[6.0] == pytest.approx(accuracy[1.0])
