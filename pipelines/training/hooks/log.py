"""The log of a training: metrics.jsonl, TensorBoard and the terminal."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.files import why
from pipelines.base.stored import Record
from pipelines.training.loop import Hook, Loop


class Log(Hook):
    """A line in metrics.jsonl, TensorBoard and the terminal every `every` steps, and one for each epoch.

    A line's loss and scores are of the examples since the line before, of the epoch before, too. Where these are less than half of
    what so many steps usually have, as after the few that are left over at the end of an epoch, they wait for the next line.
    """

    name = "log"

    class Kept(Record):
        totals: list[float]

    def __init__(self, *, every: int, log: Any, writers: dict[str, Any], progress: Any):
        self.every, self.log, self.writers, self.progress = every, log, writers, progress
        self.totals: list[float] = []
        self._when, self._step, self._waited = time.perf_counter(), 0, 0.0
        self._failed = False

    def state(self) -> dict[str, Any]:
        return {"totals": self.totals}

    def restore(self, state: dict[str, Any]) -> None:
        self.totals = state["totals"]

    def next_stop(self, loop: Loop) -> int:
        return (loop.step // self.every + 1) * self.every

    def on_start(self, loop: Loop) -> None:
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)
        self.totals = self.totals if len(self.totals) == len(loop.carry.totals) else [0.0] * len(loop.carry.totals)

    def on_steps(self, loop: Loop) -> None:
        now = loop.meter.summary()
        self.progress.update(loop.step, now["examples_per_second"], loop.train_metrics())
        if loop.step % self.every:
            return
        totals = loop.carry.totals.numpy()
        since = totals - np.asarray(self.totals)
        if loop.run_steps.scores.examples(since) < self.every * loop.plan.examples / loop.plan.steps_per_epoch / 2:
            return
        recent = loop.run_steps.scores.metrics(since)
        seconds = max(time.perf_counter() - self._when, 1e-9)
        rate = (loop.step - self._step) * loop.plan.usual / seconds
        waited = float(loop.carry.waited) - self._waited
        row = {
            **{f"train/{name}": value for name, value in recent.items()},
            **loop.run_steps.chain.row(loop.step - 1),
            "gradient_norm": float(loop.carry.gradient_norm),
        }
        speed = {"examples_per_second": rate, "input_wait_fraction": min(1.0, waited / seconds), "memory_bytes": memory(),
                 **device_memory(loop.run_steps.machine.working)}
        with loop.meter.part("callbacks"):
            self._append({"step": loop.step, "epoch": loop.step / loop.plan.steps_per_epoch, "time_s": loop.seconds, **row, **speed})
            if "train" in self.writers:
                charts = {name.removeprefix("train/"): value for name, value in row.items()}
                self.writers["train"].scalars(charts | {f"speed/{name}": value for name, value in speed.items()}, loop.step)
        self.totals = totals.tolist()
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)

    def on_epoch(self, loop: Loop) -> None:
        metrics = dict(loop.epoch_metrics)
        with loop.meter.part("callbacks"):
            self._append(
                {
                    "step": loop.step,
                    "epoch": loop.epoch,
                    "time_s": loop.seconds,
                    **{name.replace("train/", "epoch/", 1): value for name, value in metrics.items()},
                }
            )
            for split in ("train", "validation"):
                values = {f"epoch/{name.partition('/')[2]}": value for name, value in metrics.items() if name.startswith(f"{split}/")}
                if values and split in self.writers:
                    self.writers[split].scalars(values, loop.step)
                    self.writers[split].flush()
        self.progress.epoch_line(loop.epoch, metrics)
        self.totals = (np.asarray(self.totals) - loop.carry.totals.numpy()).tolist()  # the loop counts each epoch from 0
        self._when, self._step, self._waited = time.perf_counter(), loop.step, float(loop.carry.waited)

    def close(self) -> None:
        """Closes metrics.jsonl and TensorBoard's files."""
        for file in (self.log, *self.writers.values()):
            if file is not None:
                file.close()

    def _append(self, row: dict[str, Any]) -> None:
        """Writes a line; where the disk does not take it, says so once and lets training go on without."""
        try:
            self.log.append(row)
        except OSError as error:
            if not self._failed:
                self.progress.warning(f"{self.log.path}: a line could not be written: {why(error)}; training continues, "
                                      "and its curves have a gap")
            self._failed = True


def device_memory(devices: Sequence[str]) -> dict[str, int]:
    """device_memory_bytes: the most that any of the GPUs held so far, bytes; nothing for CPUs, and where TensorFlow does not count."""
    try:
        peaks = [tf.config.experimental.get_memory_info(name)["peak"] for name in devices if name.startswith("GPU")]
    except (ValueError, tf.errors.OpError):
        return {}
    return {"device_memory_bytes": max(peaks)} if peaks else {}


def memory() -> int:
    """Resident memory of this process, bytes (0 where the system does not say)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
