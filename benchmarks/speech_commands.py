"""Training rate of the small command network on precomputed features, against the same network in PyTorch, in one run.

python -m benchmarks.speech_commands            # about 90 s on 2 cores; needs the extra `bench`
DS-CNN 64 wide and 4 deep, features [91, 40], batch 64, AdamW. Ours is the training step of the product (order, gather, update) on features
held in memory; the peer's best of two memory formats. The two take turns; medians.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.product import machine, peer

FRAMES, WIDTH, BATCH, EXAMPLES = 91, 40, 64, 2048


def ours(dtype: str, seconds: float) -> float:
    """Examples a second of the product's step."""
    import tensorflow as tf

    from pipelines.config.load import load
    from pipelines.data.source import ArraySource
    from pipelines.task.contract import Splits
    from pipelines.training.session import assemble
    from speech.tasks.commands import CommandTask

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=[EXAMPLES, FRAMES, WIDTH]).astype(np.float32), rng.integers(0, 10, EXAMPLES)

    class Precomputed(CommandTask):
        """Features as they are."""

        def splits(self) -> Splits:
            names = [str(number) for number in range(10)]
            facts = {"classes": names, "class_counts": [1] * 10, "mean": [0.0] * WIDTH, "std": [1.0] * WIDTH}
            return Splits(ArraySource({"features": features, "label": labels.astype(np.int32)}), None, None, facts)

        def decode(self, raw: Any, key: Any = None) -> Any:
            return raw

        def prepare(self, examples: Any, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> Any:
            return examples["features"], examples["label"]

    settings = [f"train.batch_size={BATCH}", f"train.precision={dtype}", "train.ema=null", "train.devices=cpu", "augment={}",
                "train.epochs=1000"]
    session = assemble(load("speech/spoken_digit", settings).experiment, Precomputed)
    step, carry = session.step(None, 0, 10, session.step.fresh())
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        step, carry = session.step(None, step, 10, carry)
        float(tf.convert_to_tensor(carry.loss))
        rates.append(10 * BATCH / (time.perf_counter() - began))
    return float(np.median(rates))


def run(*arguments: str) -> float:
    """One measurement in a process of its own."""
    return peer(*arguments)["examples_per_second"]


def main(rounds: int, seconds: float, dtypes: list[str]) -> None:
    for dtype in dtypes:
        mine: list[float] = []
        theirs: dict[str, list[float]] = {"contiguous": [], "channels_last": []}
        for _ in range(rounds):
            mine.append(run("speech_commands", "--only", dtype, "--seconds", str(seconds)))
            for layout, found in theirs.items():
                found.append(run("torch_commands", "--dtype", dtype, "--layout", layout, "--seconds", str(seconds)))
        best = max(theirs, key=lambda layout: statistics.median(theirs[layout]))
        first, second = statistics.median(mine), statistics.median(theirs[best])
        print(f"{dtype}: quartet {first:,.0f} examples/s {[round(v) for v in mine]}; PyTorch ({best}) {second:,.0f} "
              f"{[round(v) for v in theirs[best]]}; ratio {first / second:.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--only", choices=["float32", "bfloat16"], help="one measurement of ours, as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps({"examples_per_second": ours(asked.only, asked.seconds)}))
    else:
        print(machine(), flush=True)
        main(asked.rounds, asked.seconds, asked.dtypes)
