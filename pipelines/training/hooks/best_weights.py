"""The weights of the best epoch, and early stopping."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipelines.base.files import Background, why
from pipelines.base.stored import Count, Record
from pipelines.config.train_settings import Train
from pipelines.machine.group import ALONE, Group
from pipelines.training import state
from pipelines.training.loop import Hook, Loop
from pipelines.training.still import Still, candidates, of_chief


class KeepBest(Hook):
    """Keeps the weights of the best epoch on the watched metric, and stops early when asked to.

    They are written by a thread while training goes on; where the disk does not take them, the best before stay.
    """

    name = "best"

    class Kept(Record):
        best: float | None
        epoch: Count
        last_gain: Count
        reference: float | None

    def __init__(self, folder: Path, watch: str, direction: str, groups: dict[str, list[keras.Variable]], train: Train,
                 say: Callable[[str], None], still: Still, hosts: Group = ALONE):
        self.folder, self.watch, self.sign, self.groups, self.say = folder, watch, 1.0 if direction == "max" else -1.0, groups, say
        self.early, self.keep, self.hosts, self.still = train.early_stopping, train.keep, hosts, still
        self.best: float | None = None
        self.epoch, self.last_gain = 0, 0
        self.reference: float | None = None  # what early stopping compares with; moves only by min_delta or more
        self._writing = Background("best weights")

    def state(self) -> dict[str, Any]:
        self._writing.collect(wait=True)  # a checkpoint means only weights that are there
        return {"best": self.best, "epoch": self.epoch, "last_gain": self.last_gain, "reference": self.reference}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.epoch, self.last_gain, self.reference = (state[key] for key in ("best", "epoch", "last_gain", "reference"))

    @property
    def file(self) -> Path:
        return self._file(self.epoch)

    def _file(self, epoch: int) -> Path:
        # named by epoch: a kill between this file and the next checkpoint must not spoil the one the checkpoint means
        return self.folder / f"best-{epoch:05d}.npz"

    def _keep(self, loop: Loop, value: float) -> None:
        """Takes this epoch for the best, and begins to write its weights."""
        before = self.best, self.epoch
        self.best, self.epoch = value, loop.epoch
        if self.keep != "best" or not self.hosts.chief:
            return
        file, epoch, step = self.file, self.epoch, loop.step
        with loop.meter.part("checkpoint"):
            arrays = state.snapshot(self.groups, {}, {"epoch": loop.epoch, self.watch: value * self.sign})
            names = candidates(self.groups, arrays)

        def after(error: OSError | None) -> None:
            if error is not None:
                self.best, self.epoch = before
                stay = f"the weights of epoch {self.epoch} stay the best that are kept" if self.best is not None else "none are kept yet"
                self.say(f"{file}: the best weights so far, of epoch {epoch}, could not be saved: {why(error)}; {stay}. "
                         "Free some space")

        self._writing.start(lambda: state.write(file, arrays, self.still, names, step), after)

    def on_steps(self, loop: Loop) -> None:
        with loop.meter.part("checkpoint"):
            self._writing.collect()

    def on_leave(self, loop: Loop) -> None:
        self._writing.collect(wait=True)

    def begin_with(self, loop: Loop, value: float) -> None:
        """Takes what training begins with for the best so far; early stopping does not count it."""
        if np.isfinite(value):
            self._keep(loop, value * self.sign)

    def on_epoch(self, loop: Loop) -> None:
        with loop.meter.part("checkpoint"):
            self._writing.collect(wait=True)
        value = loop.epoch_metrics.get(self.watch)
        if value is None:
            return
        value *= self.sign
        finite = bool(np.isfinite(value))
        # of equals, the later: it has trained longer
        if finite and (self.best is None or value >= self.best):
            self._keep(loop, value)
        if self.early is None:
            return
        if finite and (self.reference is None or value > self.reference + self.early.min_delta):
            self.reference, self.last_gain = value, loop.epoch
        if loop.epoch - self.last_gain >= self.early.patience:
            loop.stopping = f"no gain in {self.watch} for {self.early.patience} epochs"

    def restore_best(self) -> int | None:
        """Puts the best epoch's weights back; returns that epoch (0: what training began with), None where the last weights stay."""
        self.restore(self.hosts.of_chief(self.state()))  # its disk may have refused some
        if self.keep != "best" or self.best is None:
            return None
        with of_chief(self.hosts, self.file) as file:
            state.load(file, self.groups)
        return self.epoch
