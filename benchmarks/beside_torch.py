"""The rate of a training step of ours beside PyTorch's: measured in processes of their own that take turns, medians compared."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.product import machine, peer


def rate(session: Any, batch: int, steps: int, seconds: float) -> float:
    """Examples a second of the product's step, called with `steps` at a time."""
    import tensorflow as tf

    step, carry = session.step(None, 0, steps, session.step.fresh())
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        step, carry = session.step(None, step, steps, carry)
        float(tf.convert_to_tensor(carry.loss))
        rates.append(steps * batch / (time.perf_counter() - began))
    return statistics.median(rates)


def compare(about: str, name: str, other: str, ours: Callable[[str, float], float], *, rounds: int, seconds: float,
            dtypes: list[str]) -> None:
    """The command of a benchmark.

    Args:
        about: what it measures.
        name, other: modules of benchmarks/: this one, and PyTorch's, whose best of two memory formats counts.
        ours: (dtype, seconds) -> examples a second.
        rounds, seconds, dtypes: the defaults of its options.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--dtypes", nargs="+", default=dtypes)
    parser.add_argument("--only", choices=["float32", "bfloat16"], help="one measurement of ours, as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps({"examples_per_second": ours(asked.only, asked.seconds)}))
        return
    print(machine(), flush=True)
    for dtype in asked.dtypes:
        mine: list[float] = []
        theirs: dict[str, list[float]] = {"contiguous": [], "channels_last": []}
        for _ in range(asked.rounds):
            mine.append(_measured(name, "--only", dtype, asked.seconds))
            for layout, found in theirs.items():
                found.append(_measured(other, "--layout", layout, asked.seconds, "--dtype", dtype))
        best = max(theirs, key=lambda layout: statistics.median(theirs[layout]))
        first, second = statistics.median(mine), statistics.median(theirs[best])
        print(f"{dtype}: quartet {first:,.1f} examples/s {[round(v, 1) for v in mine]}; PyTorch ({best}) {second:,.1f} "
              f"{[round(v, 1) for v in theirs[best]]}; ratio {first / second:.2f}", flush=True)


def _measured(module: str, option: str, value: str, seconds: float, *more: str) -> float:
    """One measurement in a process of its own."""
    return float(peer(module, option, value, "--seconds", str(seconds), *more)["examples_per_second"])
