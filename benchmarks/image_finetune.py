"""Training rate of EfficientNet-Lite0, fine-tuned as a whole at 160 px, against the same network in PyTorch, in one run.

python -m benchmarks.image_finetune             # about 2 min on 2 cores; needs the extras `bench` and `pretrained`, the preset and cifar10
Batch 32, AdamW, images of 32 px enlarged in the step, no augmentation. Ours is the product's step of vision/cifar10_lite0; the peer's
best of two memory formats. They take turns; medians.
"""

import argparse
import json
import statistics
import time

import numpy as np

from benchmarks.product import machine, peer

BATCH, STEPS = 32, 3


def ours(dtype: str, seconds: float) -> float:
    """Images a second of the product's step."""
    import tensorflow as tf

    from pipelines.config.load import load
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    settings = ["data.limit=512", "data.validation=0", f"train.batch_size={BATCH}", f"train.precision={dtype}", "train.ema=null",
                "train.devices=cpu", "augment={}", "loss.label_smoothing=0", "train.epochs=1000", "model.dropout=0",
                "model.finetune={name: whole, head: new}"]
    experiment = load("vision/cifar10_lite0", settings).experiment
    session = assemble(experiment, task_class(experiment.task))
    step, carry = session.step(None, 0, STEPS, session.step.fresh())
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        step, carry = session.step(None, step, STEPS, carry)
        float(tf.convert_to_tensor(carry.loss))
        rates.append(STEPS * BATCH / (time.perf_counter() - began))
    return float(np.median(rates))


def run(*arguments: str) -> float:
    """One measurement in a process of its own."""
    return peer(*arguments)["examples_per_second"]


def main(rounds: int, seconds: float, dtypes: list[str]) -> None:
    for dtype in dtypes:
        mine: list[float] = []
        theirs: dict[str, list[float]] = {"contiguous": [], "channels_last": []}
        for _ in range(rounds):
            mine.append(run("image_finetune", "--only", dtype, "--seconds", str(seconds)))
            for layout, found in theirs.items():
                found.append(run("torch_lite0", "--dtype", dtype, "--layout", layout, "--seconds", str(seconds)))
        best = max(theirs, key=lambda layout: statistics.median(theirs[layout]))
        first, second = statistics.median(mine), statistics.median(theirs[best])
        print(f"{dtype}: quartet {first:.1f} images/s {[round(v, 1) for v in mine]}; PyTorch ({best}) {second:.1f} "
              f"{[round(v, 1) for v in theirs[best]]}; ratio {first / second:.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--only", choices=["float32", "bfloat16"], help="one measurement of ours, as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps({"examples_per_second": ours(asked.only, asked.seconds)}))
    else:
        print(machine(), flush=True)
        main(asked.rounds, asked.seconds, asked.dtypes)
