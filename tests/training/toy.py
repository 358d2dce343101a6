"""A small task on made data, for tests of the harness: a smooth network, so that rounding stays rounding.

Run as a program it trains variants one after another, all on the same number of devices (a process has one), and saves
their weights: python -m tests.training.toy OUT.npz '[{"train": {"devices": 2}, "model": "smooth"}, ...]'
"""

import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from pipelines.config.schema import Data, Experiment, setting
from pipelines.data.lengths import Lengths
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.encoders.settings import PretrainedModel
from pipelines.machine import group
from pipelines.task.contract import Input, Output, Requests, Splits, Task
from pipelines.task.results import Judgement, Metric
from pipelines.training.embedding_tables import Table

EXAMPLES, CLASSES, WORDS = 200, 5, 40


class ToyExperiment(Experiment):
    task: Literal["toy"] = "toy"
    data: Data = setting(Data, "data")
    model: str | PretrainedModel = "smooth"
    label_smoothing: float = 0.0
    class_weights: list[float] = setting(list, "weights")


class ToyInput(Input):
    experiment: ToyExperiment

    def splits(self) -> Splits:
        def make(seed: int, count: int) -> ArraySource:
            rng = np.random.default_rng(seed)
            labels = rng.integers(0, CLASSES, count).astype("int32")
            images = (rng.normal(size=(count, 12, 12, 3)) + labels[:, None, None, None] * 0.4).astype("float32")
            return ArraySource({"image": images, "label": labels}, labels=labels, title=f"toy{seed}")

        return Splits(make(1, EXAMPLES), make(2, 77), make(3, 50))

    def prepare(self, examples: Tensors, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> tuple[Any, Tensors]:
        images = examples["image"]
        if keys is not None:  # a shift that depends on the example's key alone
            images = images + tf.cast(keys[:, :1] % 7, tf.float32)[:, :, None, None] * 0.01
        return images, {}

    def raw_spec(self) -> dict:
        return {"image": tf.TensorSpec([None, 12, 12, 3], tf.float32)}

    @cached_property
    def requests(self) -> Requests:
        return ToyRequests(self)


class ToyRequests(Requests):
    def read(self, inputs: list[str]) -> Any:
        for name in inputs:
            yield name, {"image": np.load(name)}

    def take(self, sent: Any) -> dict:
        return {"image": np.asarray(sent, np.float32)}


class ToyOutput(Output):
    watch = ("accuracy", "max")
    experiment: ToyExperiment

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {"label": examples["label"]} if "label" in examples else {}

    def soft_loss(self, outputs, teacher, temperature):
        from pipelines.outputs.cross_entropy import softened

        return softened(outputs, teacher, temperature)

    def loss(self, outputs: Any, targets: Any, training: bool) -> tf.Tensor:
        smooth = self.experiment.label_smoothing if training else 0.0
        wanted = tf.one_hot(targets, CLASSES) * (1.0 - smooth) + smooth / CLASSES
        return tf.nn.softmax_cross_entropy_with_logits(wanted, tf.cast(outputs, tf.float32))

    def example_weights(self, targets: Any) -> Any:
        return tf.gather(tf.constant(self.experiment.class_weights), targets) if self.experiment.class_weights else None

    def scores(self, outputs: Any, targets: Any) -> Tensors:
        return {"accuracy": tf.cast(tf.argmax(outputs, -1, tf.int32) == targets, tf.float32)}

    def answer(self, model: Any, inputs: Any) -> Tensors:
        return {"probabilities": tf.nn.softmax(tf.cast(model(inputs), tf.float32))}

    def judge(self, answers: dict, targets: dict, source: Source) -> Judgement:
        right = answers["probabilities"].argmax(-1) == targets["label"]
        return Judgement({"accuracy": Metric(float(right.mean()), n=len(right))})


class ToyTask(Task):
    input_class: type[Input] = ToyInput
    output_class: type[Output] = ToyOutput
    experiment: ToyExperiment

    def public_facts(self, facts: dict) -> dict:
        return facts

    def model(self) -> keras.Model:
        layers = keras.layers
        # "slow": as in keras.applications' MobileNetV3; before the norm a shift that statistics at their start know nothing of
        slow = [layers.Rescaling(3.0, 20.0), layers.BatchNormalization(momentum=0.999)] if "slow" in self.experiment.model else []
        norm = slow or ([layers.BatchNormalization()] if "norm" in self.experiment.model else [])
        drop = [layers.Dropout(0.3)] if "dropout" in self.experiment.model else []
        regular = keras.regularizers.L2(1e-3) if "penalty" in self.experiment.model else None
        return keras.Sequential(
            [
                keras.Input((12, 12, 3)),
                layers.Conv2D(8, 3, padding="same", activation="gelu", name="first", kernel_regularizer=regular),
                *norm,
                layers.MaxPooling2D(2) if "max" in self.experiment.model else layers.AveragePooling2D(2),
                layers.Conv2D(16, 3, padding="same", activation="gelu"),
                layers.Flatten(),
                *drop,
                layers.Dense(CLASSES, dtype="float32"),
            ]
        )


class TableToyInput(ToyInput):
    """The same with words of free number."""

    lengths = Lengths("count")

    def splits(self) -> Splits:
        found = super().splits()

        def worded(source: Source) -> ArraySource:
            rng = np.random.default_rng(len(source))
            count = rng.integers(0, 10, len(source)).astype("int32")
            return ArraySource({**(source.arrays or {}), "words": rng.integers(1, WORDS, (len(source), 9)), "count": count})

        return Splits(*(worded(source) for source in (found.train, found.validation, found.test) if source))

    def decode(self, raw: Tensors, key: Any = None) -> Tensors:
        return {**raw, "words": raw["words"][: raw["count"]]}

    def prepare(self, examples: Tensors, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> tuple[Any, Tensors]:
        images, changes = super().prepare(examples, keys=keys, seed=seed, epoch=epoch)
        return {"image": images, "words": examples["words"]}, changes


class TableToyTask(ToyTask):
    """Words are looked up in a table."""

    input_class = TableToyInput

    def model(self) -> keras.Model:
        image, words = keras.Input((12, 12, 3), name="image"), keras.Input((None,), dtype="int64", name="words")
        vectors = Table(WORDS, 4, name="words_table")(words)
        if "dropout" in self.experiment.model:  # drawn by place, so that it depends on how far a batch is padded
            vectors = keras.layers.Dropout(0.3)(vectors)
        there = keras.ops.cast(words > 0, "float32")[..., None]
        mean = keras.ops.sum(vectors * there, 1) / (keras.ops.sum(there, 1) + 1.0)
        flat = keras.layers.Concatenate()([keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(image)), mean * 10.0])
        return keras.Model({"image": image, "words": words}, keras.layers.Dense(CLASSES, dtype="float32", name="last")(flat))


@keras.saving.register_keras_serializable("toy")
class Encoding(keras.layers.Layer):
    """A block of the toy's encoder."""

    def __init__(self, width: int, **options: Any):
        super().__init__(**options)
        self.query = keras.layers.Dense(width, activation="gelu", name="query")
        self.drop, self.out = keras.layers.Dropout(0.2, name="drop"), keras.layers.Dense(width, name="out")

    def build(self, shape: Any) -> None:
        self.query.build(shape)
        self.out.build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        return x + self.out(self.drop(self.query(x), training=training))


class PlainToyInput(ToyInput):
    """Without augmentation."""

    def prepare(self, examples: Tensors, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> tuple[Any, Tensors]:
        return examples["image"], {}


class EncoderToyTask(ToyTask):
    """A network with an encoder of two blocks, and no augmentation before it."""

    input_class = PlainToyInput

    def model(self) -> keras.Model:
        layers, width = keras.layers, 8
        rows = keras.Input((36, 3))
        x = layers.Dense(width, name="embedding")(rows)
        for number in range(2):
            x = Encoding(width, name=f"transformer_layer_{number}")(x)
        backbone = keras.Model(rows, layers.LayerNormalization(name="norm")(x), name="backbone")
        images = keras.Input((12, 12, 3))
        pooled = layers.GlobalAveragePooling1D(dtype="float32")(backbone(layers.Reshape((36, 3))(layers.AveragePooling2D(2)(images))))
        features, given = keras.Model(images, pooled, name="features"), keras.Input((width,))
        dropped = layers.Dropout(0.1)(given)
        head = keras.Model(given, layers.Dense(CLASSES, dtype="float32", name="classes")(dropped), name="head")
        images = keras.Input((12, 12, 3))
        return keras.Model(images, head(features(images)))


class AugmentedEncoderToyTask(EncoderToyTask):
    """The same with a shift that depends on the example's key."""

    input_class = ToyInput


def encoder(**finetune: Any) -> dict[str, Any]:
    """The settings of a toy with an encoder."""
    return {"name": "pretrained", "preset": "toy", "weights": None, "finetune": finetune}


def experiment(**changes: Any) -> ToyExperiment:
    """A toy experiment: SGD with momentum at a constant rate, float32, unless changed."""
    train = {
        "precision": "float32",
        "batch_size": 48,
        "epochs": 3,
        "optimizer": {"name": "sgd", "momentum": 0.9},
        "learning_rate": {"peak": 0.02, "schedule": "constant"},
        **changes.pop("train", {}),
    }
    return ToyExperiment.model_validate({"train": train, **changes})


def final_weights(changes: dict[str, Any]) -> np.ndarray:
    """Trains, and returns all weights, moving statistics and averages, flat, and then the last epoch's loss and accuracy.

    Beside an experiment's, `changes` may have: `answers`, to have those for validation, too; `by_epoch`, for a feed that ends with each
    epoch; `chunk`, the rows of tables that hosts send at once.
    """
    from pipelines.training import embedding_tables, session
    from pipelines.training.evaluation import Evaluator
    from pipelines.training.hooks.validation import Validation
    from pipelines.training.loop import Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble

    answers, by_epoch, chunk = (changes.pop(name, None) for name in ("answers", "by_epoch", "chunk"))
    embedding_tables.CHUNK = chunk or embedding_tables.CHUNK
    kind = changes.get("model", "")
    settings = {"teacher": session.TEACHER, "start": session.START}
    others = {setting: Path("none") for name, setting in settings.items() if name in changes.get("train", {})}
    session.other_run.named = lambda experiment, beside: others
    session.other_run.model_of = lambda setting, folder, task, train: other_network(task)  # of no run: the same network with other weights
    made = assemble(experiment(**changes), EncoderToyTask if isinstance(kind, dict) else TableToyTask if "table" in kind else ToyTask,
                    kept={"privacy": {"key": "5e" * 32}})
    made.initialise()
    made.feed.by_epoch = bool(by_epoch)
    loop = Loop(made.step, plan=made.plan, steps=made.steps, hooks=[*made.homing(), *made.freezing, Validation(None, 1)], meter=Meter())
    loop.train()
    assert loop.step == made.steps, (loop.step, made.steps)
    learned = (*made.all_weights, *made.update.tables.saved, *(average for _, average in made.averages))
    values = [np.asarray(v.value).ravel() for v in learned if v.name != "seed_generator_state"]
    if answers:
        evaluator = Evaluator(made.task, made.model, made.splits.validation, machine=made.machine, batch=20,
                              averages=made.averages)
        values += [evaluator.judged()[0]["probabilities"].ravel(), list(evaluator.scores().values())]
    return np.concatenate([*values, list(loop.epoch_metrics.values())])


def other_network(task: Task) -> keras.Model:
    """The task's network with weights that nobody trained."""
    model, drawn = task.model(), np.random.default_rng(7)
    for variable in model.trainable_variables:
        variable.assign(0.1 * drawn.normal(size=variable.shape))
    return model


def save_final_weights(path: str, cases: list[dict[str, Any]]) -> None:
    """Of each case; of several hosts, the chief's."""
    found = [final_weights(changes) for changes in cases]
    if group.current().chief:
        np.savez(path, *found)


if __name__ == "__main__":
    save_final_weights(sys.argv[1], json.loads(sys.argv[2]))
