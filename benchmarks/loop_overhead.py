"""What the loop costs: steps through the loop with its hooks, against the same network in a bare tf.function.

python -m benchmarks.loop_overhead         # about 1 minute on 2 cores; random data of CIFAR-10's size

Bare: batches gathered from a tensor, forward, backward and Keras' own Adam, all steps in one call of one tf.function. Loop: the
product's step with its order, finite check and gradient norm, called by the loop, with logging, TensorBoard and checkpoints
on. The two take turns in one process; medians are compared.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.product import machine
from pipelines.data.source import ArraySource
from pipelines.monitoring.metrics_log import MetricsLog
from pipelines.monitoring.progress import Progress
from pipelines.monitoring.tensorboard import Writer
from pipelines.task.contract import Splits
from pipelines.training.hooks.checkpoint import Checkpoint
from pipelines.training.hooks.log import Log
from pipelines.training.hooks.validation import Validation
from pipelines.training.loop import Loop
from pipelines.training.meter import Meter
from pipelines.training.session import assemble
from pipelines.training.still import Still
from vision.settings import ImageClassification
from vision.tasks.classification import Classification

EXAMPLES, SIDE, CLASSES = 16384, 32, 10


class OnRandomImages(Classification):
    """Image classification on made images, so that nothing has to be prepared."""

    def splits(self) -> Splits:
        draw = np.random.default_rng(0)
        arrays = {
            "image": draw.integers(0, 256, (EXAMPLES, SIDE, SIDE, 3), dtype=np.uint8),
            "label": draw.integers(0, CLASSES, EXAMPLES).astype(np.int32),
        }
        facts = {
            "classes": [str(i) for i in range(CLASSES)],
            "image_size": [SIDE, SIDE],
            "channels": 3,
            "mean": [127.5] * 3,
            "std": [64.0] * 3,
            "class_counts": [EXAMPLES // CLASSES] * CLASSES,
        }
        return Splits(ArraySource(arrays), None, None, facts)


def bare(session, batch: int):
    """steps -> None: the plainest loop of steps that the stack allows."""
    arrays = session.splits.train.arrays
    images, labels = tf.constant(arrays["image"]), tf.constant(arrays["label"])
    model = session.task.model()
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def run(steps: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for step in tf.range(steps):
            rows = (step * batch + tf.range(batch)) % EXAMPLES
            with tf.GradientTape() as tape:
                logits = model(tf.cast(tf.gather(images, rows), tf.float32), training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, rows), tf.cast(logits, tf.float32)))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            total += loss
        return total

    return lambda steps: run(tf.constant(steps))


def measure(precision: str, batch: int, seconds: float, rounds: int) -> None:
    experiment = ImageClassification.model_validate(
        {
            "task": "vision.classification",
            "data": {"source": "digits"},
            "model": {"name": "cnn"},
            "train": {"precision": precision, "batch_size": batch, "epochs": 10**4, "optimizer": {"name": "adam"}},
        }
    )
    session = assemble(experiment, OnRandomImages)
    plain = bare(session, batch)
    plain(2)
    began = time.perf_counter()
    plain(20)
    steps = max(20, int(seconds * 20 / (time.perf_counter() - began)))
    with tempfile.TemporaryDirectory() as folder, Progress(session.steps, session.plan.steps_per_epoch, True) as progress:
        meter = Meter()
        every = max(1, session.plan.steps_per_epoch // 10)
        log = Log(
            every=every, log=MetricsLog(Path(folder) / "metrics.jsonl"), writers={"train": Writer(Path(folder) / "tb")}, progress=progress
        )
        saver = Checkpoint(Path(folder), session.state_groups, seconds=60.0, say=print, identity={}, meter=meter,
                           still=Still(Path(folder)))
        loop = Loop(session.step, plan=session.plan, steps=2, hooks=[Validation(None, 1), log, saver], meter=meter)
        loop.train()  # compiles
        times: dict[str, list[float]] = {"bare": [], "loop": []}
        for _ in range(rounds):
            began = time.perf_counter()
            plain(steps)
            times["bare"].append((time.perf_counter() - began) / steps)
            loop.steps += steps
            began = time.perf_counter()
            loop.train()
            times["loop"].append((time.perf_counter() - began) / steps)
        one, other = (statistics.median(times[name]) for name in ("loop", "bare"))
        print(
            f"{precision}, batch {batch}: loop {one * 1e3:.2f} ms a step {[round(t * 1e3, 2) for t in times['loop']]}, "
            f"bare tf.function {other * 1e3:.2f} ms {[round(t * 1e3, 2) for t in times['bare']]}: overhead {one / other - 1:+.1%}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(machine(), flush=True)
    measure(asked.precision, asked.batch, asked.seconds, asked.rounds)
